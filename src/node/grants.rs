//! The methods of the class `Gateway` for toolboxes and grants.

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::gateway::Gateway;
use hyperlight_mcp::blocking::blocking;
use hyperlight_mcp::config::Item;

/// One toolbox, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "must be the name of a toolbox, or a list of names")]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn into_list(self) -> Vec<String> {
        match self {
            Self::One(name) => vec![name],
            Self::Several(names) => names,
        }
    }
}

#[napi]
impl Gateway {
    /// Grants toolboxes to an agent, for all processes with the same state folder. From the agent's next run on, an agent of this name may
    /// use exactly what its toolboxes allow. After the first grant, agents without a grant may use nothing, unless the config contains
    /// `"defaultGrant": "all"`.
    ///
    /// Rejects with `ERR_INVALID_OPTION`, `ERR_UNKNOWN_TOOLBOX`, `ERR_GRANT_IN_CONFIG` if the config sets the toolboxes of this agent,
    /// `ERR_STORE`.
    ///
    /// ```js
    /// await gateway.setToolbox('readers', ['everything/get-*', '!everything/get-env'])
    /// await gateway.grant('researcher', 'readers')
    /// gateway.agent('researcher').listModules()
    /// ```
    #[napi(catch_unwind, ts_args_type = "agent: string, toolboxes: string | string[]", ts_return_type = "Promise<AgentGrant>")]
    pub fn grant<'env>(&self, env: &'env Env, agent: Unknown<'env>, toolboxes: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.grant", [Some(agent), Some(toolboxes)], |gateway, (agent, toolboxes): (String, Names)| {
            blocking(move || gateway.grant(&agent, &toolboxes.into_list()))
        })
    }

    /// Takes toolboxes from an agent. Without a list, takes all of them. The agent keeps its other toolboxes. If the agent has no toolbox
    /// left, it may use nothing. It does not get the default grant of agents without a grant.
    ///
    /// Rejects with `ERR_INVALID_OPTION` if the agent does not have a toolbox, and with the errors of `grant`.
    #[napi(catch_unwind, ts_args_type = "agent: string, toolboxes?: string | string[]", ts_return_type = "Promise<AgentGrant>")]
    pub fn ungrant<'env>(&self, env: &'env Env, agent: Unknown<'env>, toolboxes: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.ungrant", [Some(agent), toolboxes], |gateway, (agent, toolboxes): (String, Option<Names>)| {
            blocking(move || gateway.ungrant(&agent, &toolboxes.map(Names::into_list).unwrap_or_default()))
        })
    }

    /// Lists all toolboxes, the agents to which they are granted, and the grant of all other agents. Rejects with `ERR_STORE`.
    #[napi(catch_unwind, ts_return_type = "Promise<GrantList>")]
    pub fn toolboxes<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.toolboxes", [], |gateway, []: [(); 0]| blocking(move || gateway.toolboxes()))
    }

    /// Adds or replaces a toolbox: a list of patterns like `weather/*`, `github/list_*`, `!github/delete_*`. The last pattern that matches
    /// decides. If an agent has added a server, only a pattern `agent:NAME:SERVER/*` grants this server to other agents. `null` removes the
    /// toolbox, unless it is granted to an agent.
    ///
    /// Rejects with `ERR_INVALID_OPTION`, `ERR_GRANT_IN_CONFIG` if the config defines the toolbox, `ERR_UNKNOWN_TOOLBOX`, `ERR_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string, patterns: string[] | null", ts_return_type = "Promise<GrantList>")]
    pub fn set_toolbox<'env>(&self, env: &'env Env, name: Unknown<'env>, patterns: Unknown<'env>) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<Vec<String>>);
        self.method(env, "Gateway.setToolbox", [Some(name), Some(patterns)], |gateway, (name, patterns): Arguments| {
            blocking(move || gateway.set_toolbox(&name, patterns.as_deref()))
        })
    }

    /// Returns whether an agent of this name may use a tool, with a reason for the operator in one sentence. `item` is the name that the
    /// server gives a tool, or `resource:` with a URI, or `prompt:` with a name. Rejects with `ERR_STORE`.
    #[napi(catch_unwind, ts_args_type = "agent: string, server: string, item: string", ts_return_type = "Promise<GrantVerdict>")]
    pub fn explain_grant<'env>(
        &self,
        env: &'env Env,
        agent: Unknown<'env>,
        server: Unknown<'env>,
        item: Unknown<'env>,
    ) -> napi::Result<Object<'env>> {
        let args = [Some(agent), Some(server), Some(item)];
        self.method(env, "Gateway.explainGrant", args, |gateway, (agent, server, item): (String, String, String)| {
            blocking(move || gateway.explain_grant(&agent, &server, Item::parse(&item)))
        })
    }
}
