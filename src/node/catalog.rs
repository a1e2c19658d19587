//! The methods of the classes `Gateway`, `Agent` and `Sandbox` that list modules, search tools, declare types and check code.

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::caller::Caller;
use super::gateway::Gateway;
use super::identity::Agent;
use super::sandbox::Sandbox;
use hyperlight_mcp::blocking::blocking;
use hyperlight_mcp::bridge::{ToolErrors, ToolQuery};
use hyperlight_mcp::error::{Error, Result};

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
    task: Option<String>,
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
            Err(Error::InvalidOption { method, problem: problem.into() })
        }
    }
}

impl Caller {
    fn declarations<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 2]) -> napi::Result<Object<'env>> {
        type Arguments = (Option<String>, Option<DeclarationOptions>);
        self.method(env, method, args, |agent, (name, options): Arguments| async move {
            blocking(move || agent.declarations(name.as_deref(), options.unwrap_or_default().tool_errors.unwrap_or_default())).await
        })
    }

    fn list_modules<'env>(&self, env: &'env Env, method: &'static str) -> napi::Result<Object<'env>> {
        self.method(env, method, [], |agent, []: [(); 0]| async move { blocking(move || agent.list_modules()).await })
    }

    fn module_info<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 2]) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<DeclarationOptions>);
        self.method(env, method, args, |agent, (name, options): Arguments| async move {
            blocking(move || agent.module_info(&name, options.unwrap_or_default().tool_errors.unwrap_or_default())).await
        })
    }

    fn tool_info<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 3]) -> napi::Result<Object<'env>> {
        type Arguments = (String, String, Option<DeclarationOptions>);
        self.method(env, method, args, |agent, (server, tool, options): Arguments| async move {
            blocking(move || agent.tool_info(&server, &tool, options.unwrap_or_default().tool_errors.unwrap_or_default())).await
        })
    }

    fn server_info<'env>(&self, env: &'env Env, method: &'static str, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(name)], |agent, (name,): (String,)| async move { blocking(move || agent.server_info(&name)).await })
    }

    fn search_tools<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 2]) -> napi::Result<Object<'env>> {
        self.method(env, method, args, move |agent, (query, options): (String, Option<SearchOptions>)| async move {
            let SearchOptions { limit, servers, tool_errors } = options.unwrap_or_default();
            let limit = whole(method, "limit", limit)?;
            // A search may have to wait until the vector of its query is computed.
            blocking(move || agent.search_tools(&ToolQuery { query, limit, servers }, tool_errors.unwrap_or_default())).await
        })
    }

    fn system_message<'env>(&self, env: &'env Env, method: &'static str, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, method, [options], move |agent, (options,): (Option<SystemMessageOptions>,)| async move {
            let SystemMessageOptions { budget_tokens, task, tool_errors } = options.unwrap_or_default();
            let budget_tokens = whole(method, "budgetTokens", budget_tokens)?;
            let errors = tool_errors.unwrap_or(ToolErrors::FOR_MODELS);
            match task {
                Some(task) => blocking(move || agent.system_message_for(&task, budget_tokens, errors)).await,
                None => blocking(move || agent.system_message(budget_tokens, errors)).await,
            }
        })
    }

    fn check<'env>(&self, env: &'env Env, method: &'static str, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(code)], |agent, (code,): (String,)| async move { blocking(move || agent.check(&code)).await })
    }
}

#[napi]
impl Gateway {
    /// Returns TypeScript declarations of the modules that a run could import now. Returns those of all modules, or those of the one with
    /// this name (`weather`, `mcp-weather`, `host:mcp-weather`, `host:mcp`). Each declaration compiles with `tsc --strict` together with
    /// the declarations of `host:mcp`, which contain the types that all modules share. Starts no server.
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
        self.caller.declarations(env, "Gateway.declarations", [name, options])
    }

    /// Returns the modules that a run could import now. Modules that a sandbox adds with `hostModule` are left out.
    ///
    /// ```js
    /// for (const { specifier, purpose } of await gateway.listModules()) console.log(specifier, purpose)
    /// ```
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.caller.list_modules(env, "Gateway.listModules")
    }

    /// Returns a short description of a module: its functions with parameters and return types, caveats, and an example. `name` has the
    /// same forms as for `declarations`.
    ///
    /// Rejects with `ERR_UNKNOWN_MODULE`.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.module_info(env, "Gateway.moduleInfo", [Some(name), options])
    }

    /// Returns a tool, with its purpose, parameters, declaration and schemas. `tool` is the name that the tool's server gives it, or the
    /// identifier that agent code imports.
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
        self.caller.tool_info(env, "Gateway.toolInfo", [Some(server), Some(tool), options])
    }

    /// Returns the status of a server, its settings and, if the server is approved, its offer. Starts no server.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ServerInfo>")]
    pub fn server_info<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.server_info(env, "Gateway.serverInfo", name)
    }

    /// Returns the tools that match a query best, in order of relevance. The query contains words about what the tools do, or words from
    /// the tools' names and parameters. Misspelled words and synonyms match too.
    ///
    /// Rejects with `ERR_INVALID_OPTION` for a query without a word, `ERR_UNKNOWN_SERVER`.
    ///
    /// ```js
    /// const [best] = await gateway.searchTools('add two numbers', { limit: 3 })
    /// ```
    #[napi(catch_unwind, ts_args_type = "query: string, options?: SearchOptions", ts_return_type = "Promise<ToolMatch[]>")]
    pub fn search_tools<'env>(&self, env: &'env Env, query: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.search_tools(env, "Gateway.searchTools", [Some(query), options])
    }

    /// Returns a part of a system prompt. It describes to a model which servers there are, and how to find and call their tools. The text
    /// fills the token budget in two steps: first with one line for each function, then with declarations. In each step, it takes one
    /// function of each server in turn. It says how many functions are left out. With a `task`, the functions that a search for the task
    /// finds come first.
    ///
    /// Rejects with `ERR_INVALID_OPTION` if the budget is too small; the message contains the minimum.
    ///
    /// ```js
    /// const part = await gateway.systemMessage({ budgetTokens: 1500, task: 'find the last commits about the parser' })
    /// ```
    #[napi(catch_unwind, ts_args_type = "options?: SystemMessageOptions", ts_return_type = "Promise<string>")]
    pub fn system_message<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.system_message(env, "Gateway.systemMessage", options)
    }

    /// Checks JavaScript or TypeScript code without running it. Finds syntax errors, imports of unknown modules, and functions that do not
    /// exist in their modules. Each problem has a position in the code and, if there is a similar name, a suggestion.
    ///
    /// Rejects with `ERR_CODE_TOO_LARGE`.
    ///
    /// ```js
    /// const { ok, problems } = await gateway.check('export const handler = () => 1')
    /// ```
    #[napi(catch_unwind, ts_args_type = "code: string", ts_return_type = "Promise<CodeReport>")]
    pub fn check<'env>(&self, env: &'env Env, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.check(env, "Gateway.check", code)
    }
}

#[napi]
impl Agent {
    /// Does the same as `Gateway.declarations`, for the modules that the agent sees.
    #[napi(catch_unwind, ts_args_type = "name?: string, options?: DeclarationOptions", ts_return_type = "Promise<string>")]
    pub fn declarations<'env>(
        &self,
        env: &'env Env,
        name: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        self.caller.declarations(env, "Agent.declarations", [name, options])
    }

    /// Does the same as `Gateway.listModules`, for the modules that the agent sees.
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.caller.list_modules(env, "Agent.listModules")
    }

    /// Does the same as `Gateway.moduleInfo`, for the modules that the agent sees.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.module_info(env, "Agent.moduleInfo", [Some(name), options])
    }

    /// Does the same as `Gateway.toolInfo`, for the tools that the agent sees.
    #[napi(catch_unwind, ts_args_type = "server: string, tool: string, options?: DeclarationOptions", ts_return_type = "Promise<ToolInfo>")]
    pub fn tool_info<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        tool: Unknown<'env>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        self.caller.tool_info(env, "Agent.toolInfo", [Some(server), Some(tool), options])
    }

    /// Does the same as `Gateway.serverInfo`, for the servers that the agent sees.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ServerInfo>")]
    pub fn server_info<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.server_info(env, "Agent.serverInfo", name)
    }

    /// Does the same as `Gateway.searchTools`, for the tools that the agent sees.
    #[napi(catch_unwind, ts_args_type = "query: string, options?: SearchOptions", ts_return_type = "Promise<ToolMatch[]>")]
    pub fn search_tools<'env>(&self, env: &'env Env, query: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.search_tools(env, "Agent.searchTools", [Some(query), options])
    }

    /// Does the same as `Gateway.systemMessage`, for the servers that the agent sees.
    #[napi(catch_unwind, ts_args_type = "options?: SystemMessageOptions", ts_return_type = "Promise<string>")]
    pub fn system_message<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.system_message(env, "Agent.systemMessage", options)
    }

    /// Does the same as `Gateway.check`, for the modules that the agent sees.
    #[napi(catch_unwind, ts_args_type = "code: string", ts_return_type = "Promise<CodeReport>")]
    pub fn check<'env>(&self, env: &'env Env, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.check(env, "Agent.check", code)
    }
}

/// The methods of `Gateway`, with the sandbox's own modules and its `toolErrors`.
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
            blocking(move || sandbox.declarations(name.as_deref(), options.unwrap_or_default().tool_errors)).await
        })
    }

    /// Does the same as `Gateway.listModules`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_return_type = "Promise<ModuleSummary[]>")]
    pub fn list_modules<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.listModules", [], |sandbox, []: [(); 0]| async move { blocking(move || sandbox.list_modules()).await })
    }

    /// Does the same as `Gateway.moduleInfo`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "name: string, options?: DeclarationOptions", ts_return_type = "Promise<ModuleInfo>")]
    pub fn module_info<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<DeclarationOptions>);
        self.method(env, "Sandbox.moduleInfo", [Some(name), options], |sandbox, (name, options): Arguments| async move {
            blocking(move || sandbox.module_info(&name, options.unwrap_or_default().tool_errors)).await
        })
    }

    /// Does the same as `Gateway.systemMessage`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "options?: SystemMessageOptions", ts_return_type = "Promise<string>")]
    pub fn system_message<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.systemMessage", [options], |sandbox, (options,): (Option<SystemMessageOptions>,)| async move {
            let SystemMessageOptions { budget_tokens, task, tool_errors } = options.unwrap_or_default();
            let budget_tokens = whole("Sandbox.systemMessage", "budgetTokens", budget_tokens)?;
            blocking(move || match task {
                Some(task) => sandbox.system_message_for(&task, budget_tokens, tool_errors),
                None => sandbox.system_message(budget_tokens, tool_errors),
            })
            .await
        })
    }

    /// Does the same as `Gateway.check`, and includes the sandbox's own modules.
    #[napi(catch_unwind, ts_args_type = "code: string", ts_return_type = "Promise<CodeReport>")]
    pub fn check<'env>(&self, env: &'env Env, code: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Sandbox.check", [Some(code)], |sandbox, (code,): (String,)| async move {
            blocking(move || sandbox.check(&code)).await
        })
    }
}
