//! The methods of the classes `Gateway` and `Sandbox` that list modules, search tools, declare types and check code.

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::gateway::Gateway;
use super::sandbox::Sandbox;
use crate::bridge::{ToolErrors, ToolQuery};
use crate::error::{Error, Result};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct DeclarationOptions {
    tool_errors: Option<ToolErrors>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SearchOptions {
    limit: Option<f64>,
    servers: Option<Vec<String>>,
    tool_errors: Option<ToolErrors>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SystemMessageOptions {
    budget_tokens: Option<f64>,
    tool_errors: Option<ToolErrors>,
}

/// Checks that a number from JavaScript is a whole number in the allowed range.
pub(super) fn whole(method: &'static str, name: &str, number: Option<f64>) -> Result<Option<usize>> {
    const MOST: f64 = 1e9;
    match number {
        None => Ok(None),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is whole and within the range")]
        Some(number) if number.fract() == 0.0 && (0.0..=MOST).contains(&number) => Ok(Some(number as usize)),
        Some(number) => {
            let problem = format!("{name}: must be a whole number between 0 and {MOST:.0}, not {number}");
            Err(Error::InvalidOption { method, problem })
        }
    }
}

#[napi]
impl Gateway {
    /// Returns TypeScript declarations of the modules that a run could import now: of all modules, or of one by its name (`weather`, `mcp-weather`,
    /// `host:mcp-weather`, `host:mcp`). They compile under `tsc --strict`, alone and together. Starts no server.
    ///
    /// Rejects with `ERR_UNKNOWN_MODULE`.
    ///
    /// ```js
    /// const text = await gateway.declarations('everything') // declare module "host:mcp-everything" { … }
    /// ```
    #[napi(catch_unwind, ts_args_type = "name?: string, options?: DeclarationOptions", ts_return_type = "Promise<string>")]
    pub fn declarations<'env>(
        &self,
        env: &'env Env,
        name: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        type Arguments = (Option<String>, Option<DeclarationOptions>);
        self.method(env, "Gateway.declarations", [name, options], |gateway, (name, options): Arguments| async move {
            gateway.declarations(name.as_deref(), options.unwrap_or_default().tool_errors.unwrap_or_default())
        })
    }

    /// Returns the modules that a run could import now, without modules that a sandbox adds with `hostModule`.
    ///
    /// ```js
    /// for (const { specifier, purpose } of await gateway.listModules()) console.log(specifier, purpose)
    /// ```
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.listModules", [], |gateway, []: [(); 0]| async move { gateway.list_modules() })
    }

    /// Returns a short description of a module: its functions with parameters and return types, caveats, and an example. The name has the same forms
    /// as for `declarations`.
    ///
    /// Rejects with `ERR_UNKNOWN_MODULE`.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<DeclarationOptions>);
        self.method(env, "Gateway.moduleInfo", [Some(name), options], |gateway, (name, options): Arguments| async move {
            gateway.module_info(&name, options.unwrap_or_default().tool_errors.unwrap_or_default())
        })
    }

    /// Returns a tool by the name that its server gives it, or by the identifier that agent code imports: its purpose, parameters, declaration and schemas.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_UNKNOWN_TOOL`.
    ///
    /// ```js
    /// const { signature, example } = await gateway.toolInfo('everything', 'echo')
    /// ```
    #[napi(catch_unwind, ts_args_type = "server: string, tool: string, options?: DeclarationOptions", ts_return_type = "Promise<ToolInfo>")]
    pub fn tool_info<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        tool: Unknown<'env>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        type Arguments = (String, String, Option<DeclarationOptions>);
        self.method(
            env,
            "Gateway.toolInfo",
            [Some(server), Some(tool), options],
            |gateway, (server, tool, options): Arguments| async move {
                gateway.tool_info(&server, &tool, options.unwrap_or_default().tool_errors.unwrap_or_default())
            },
        )
    }

    /// Returns the status of a server of the config and, if the server is approved, its offer. Starts no server.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ServerInfo>")]
    pub fn server_info<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.serverInfo", [Some(name)], |gateway, (name,): (String,)| async move { gateway.server_info(&name) })
    }

    /// Returns the tools that match a query best, the best first. The query has words about what the tools do, or words of their names and
    /// parameters. Spelling mistakes and synonyms also match.
    ///
    /// Rejects with `ERR_INVALID_OPTION` for a query without a word, `ERR_UNKNOWN_SERVER`.
    ///
    /// ```js
    /// const [best] = await gateway.searchTools('add two numbers', { limit: 3 })
    /// ```
    #[napi(catch_unwind, ts_args_type = "query: string, options?: SearchOptions", ts_return_type = "Promise<ToolMatch[]>")]
    pub fn search_tools<'env>(&self, env: &'env Env, query: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<SearchOptions>);
        self.method(env, "Gateway.searchTools", [Some(query), options], |gateway, (query, options): Arguments| async move {
            let SearchOptions { limit, servers, tool_errors } = options.unwrap_or_default();
            let limit = whole("Gateway.searchTools", "limit", limit)?;
            gateway.search_tools(&ToolQuery { query, limit, servers }, tool_errors.unwrap_or_default())
        })
    }

    /// Returns a part of a system prompt that tells a model which servers there are, and how to find and call their tools. To stay within the token
    /// budget, it contains full declarations, else one line for each function, else only the number of functions.
    ///
    /// Rejects with `ERR_INVALID_OPTION` if the budget is too small; the message gives the minimum.
    ///
    /// ```js
    /// const part = await gateway.systemMessage({ budgetTokens: 1500 })
    /// ```
    #[napi(catch_unwind, ts_args_type = "options?: SystemMessageOptions", ts_return_type = "Promise<string>")]
    pub fn system_message<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.systemMessage", [options], |gateway, (options,): (Option<SystemMessageOptions>,)| async move {
            let options = options.unwrap_or_default();
            gateway.system_message(
                whole("Gateway.systemMessage", "budgetTokens", options.budget_tokens)?,
                options.tool_errors.unwrap_or_default(),
            )
        })
    }

    /// Checks JavaScript or TypeScript code without running it. Finds syntax errors, imports of unknown modules, and functions that their modules do
    /// not have. Each problem has its place in the code and, if there is a similar name, a suggestion.
    ///
    /// Rejects with `ERR_CODE_TOO_LARGE`.
    ///
    /// ```js
    /// const { ok, problems } = await gateway.check('export const handler = () => 1')
    /// ```
    #[napi(catch_unwind, ts_args_type = "code: string", ts_return_type = "Promise<CodeReport>")]
    pub fn check<'env>(&self, env: &'env Env, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.check", [Some(code)], |gateway, (code,): (String,)| async move { gateway.check(&code) })
    }
}

/// The same methods as on `Gateway`, with the sandbox's own modules and its `toolErrors`.
#[napi]
impl Sandbox {
    /// Does the same as `Gateway.declarations`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "name?: string, options?: DeclarationOptions", ts_return_type = "Promise<string>")]
    pub fn declarations<'env>(
        &self,
        env: &'env Env,
        name: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        type Arguments = (Option<String>, Option<DeclarationOptions>);
        self.method(env, "Sandbox.declarations", [name, options], |sandbox, (name, options): Arguments| async move {
            sandbox.declarations(name.as_deref(), options.unwrap_or_default().tool_errors)
        })
    }

    /// Does the same as `Gateway.listModules`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.listModules", [], |sandbox, []: [(); 0]| async move { sandbox.list_modules() })
    }

    /// Does the same as `Gateway.moduleInfo`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<DeclarationOptions>);
        self.method(env, "Sandbox.moduleInfo", [Some(name), options], |sandbox, (name, options): Arguments| async move {
            sandbox.module_info(&name, options.unwrap_or_default().tool_errors)
        })
    }

    /// Does the same as `Gateway.systemMessage`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "options?: SystemMessageOptions", ts_return_type = "Promise<string>")]
    pub fn system_message<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.systemMessage", [options], |sandbox, (options,): (Option<SystemMessageOptions>,)| async move {
            let options = options.unwrap_or_default();
            sandbox.system_message(whole("Sandbox.systemMessage", "budgetTokens", options.budget_tokens)?, options.tool_errors)
        })
    }

    /// Does the same as `Gateway.check`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "code: string", ts_return_type = "Promise<CodeReport>")]
    pub fn check<'env>(&self, env: &'env Env, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.check", [Some(code)], |sandbox, (code,): (String,)| async move { sandbox.check(&code) })
    }
}
