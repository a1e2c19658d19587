//! The classes `Gateway` and `Sandbox`: what can be imported, found, declared, checked.

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

/// A count, which JavaScript gives as a number of any kind.
pub(super) fn whole(method: &'static str, name: &str, number: Option<f64>) -> Result<Option<usize>> {
    const MOST: f64 = 1e9;
    match number {
        None => Ok(None),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole, and within these bounds")]
        Some(number) if number.fract() == 0.0 && (0.0..=MOST).contains(&number) => Ok(Some(number as usize)),
        Some(number) => {
            let problem = format!("{name}: must be a whole number between 0 and {MOST:.0}, not {number}");
            Err(Error::InvalidOption { method, problem: problem.into() })
        }
    }
}

#[napi]
impl Gateway {
    /// TypeScript declarations of the modules that a run could import now: all, or one by its name (`weather`, `mcp-weather`,
    /// `host:mcp-weather`, `host:mcp`). They compile under `tsc --strict`, alone and together. Starts nothing.
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

    /// The modules that a run could import now, those of a sandbox's own apart.
    ///
    /// ```js
    /// for (const { specifier, purpose } of await gateway.listModules()) console.log(specifier, purpose)
    /// ```
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.listModules", [], |gateway, []: [(); 0]| async move { gateway.list_modules() })
    }

    /// A module in a few words: its functions with parameters and returns, caveats, an example. Names as `declarations` takes them.
    ///
    /// Rejects with `ERR_UNKNOWN_MODULE`.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<DeclarationOptions>);
        self.method(env, "Gateway.moduleInfo", [Some(name), options], |gateway, (name, options): Arguments| async move {
            gateway.module_info(&name, options.unwrap_or_default().tool_errors.unwrap_or_default())
        })
    }

    /// A tool, by its raw name or by what agent code imports: what it is for, its parameters, declaration and schemas.
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

    /// A server of the config: its status, and, once it is approved, what it offers. Starts nothing.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ServerInfo>")]
    pub fn server_info<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.serverInfo", [Some(name)], |gateway, (name,): (String,)| async move { gateway.server_info(&name) })
    }

    /// The tools that fit a query best, the best first: words of what they do, of their names and parameters; slips of the pen and
    /// other words for the same are forgiven.
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

    /// The part of a system prompt that tells a model which servers there are and how their tools are called and found, within a
    /// budget: declarations where they fit, a line for each function where not, counts below that.
    ///
    /// Rejects with `ERR_INVALID_OPTION` where the budget is too small for anything; the message names the least.
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

    /// Looks at code without running it: its syntax, imports that are not there, functions that their modules do not have; each
    /// with its place and, where something near is there, what was probably meant. JavaScript or TypeScript.
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

/// As the gateway's, with the sandbox's own modules and its way of showing failures.
#[napi]
impl Sandbox {
    /// As `Gateway.declarations`, with the sandbox's own modules.
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

    /// As `Gateway.listModules`, with the sandbox's own modules.
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.listModules", [], |sandbox, []: [(); 0]| async move { sandbox.list_modules() })
    }

    /// As `Gateway.moduleInfo`, with the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<DeclarationOptions>);
        self.method(env, "Sandbox.moduleInfo", [Some(name), options], |sandbox, (name, options): Arguments| async move {
            sandbox.module_info(&name, options.unwrap_or_default().tool_errors)
        })
    }

    /// As `Gateway.systemMessage`, with the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "options?: SystemMessageOptions", ts_return_type = "Promise<string>")]
    pub fn system_message<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.systemMessage", [options], |sandbox, (options,): (Option<SystemMessageOptions>,)| async move {
            let options = options.unwrap_or_default();
            sandbox.system_message(whole("Sandbox.systemMessage", "budgetTokens", options.budget_tokens)?, options.tool_errors)
        })
    }

    /// As `Gateway.check`, with the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "code: string", ts_return_type = "Promise<CodeReport>")]
    pub fn check<'env>(&self, env: &'env Env, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.check", [Some(code)], |sandbox, (code,): (String,)| async move { sandbox.check(&code) })
    }
}
