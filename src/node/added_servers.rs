//! The methods of `Gateway` and `Agent` for servers that agents add at run time.

use napi::Env;
use napi::bindgen_prelude::{FnArgs, Object, Unknown};
use napi_derive::napi;

use super::caller::Caller;
use super::gateway::Gateway;
use super::glue;
use super::identity::Agent;
use hyperlight_mcp::registry::ServerChange;

impl Caller {
    fn add_server<'env>(&self, env: &'env Env, method: &'static str, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(server)], |agent, (server,): (ServerChange,)| async move { agent.add_server(server).await })
    }

    fn update_server<'env>(
        &self,
        env: &'env Env,
        method: &'static str,
        name: Unknown<'env>,
        change: Unknown<'env>,
    ) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(name), Some(change)], |agent, (name, change): (String, ServerChange)| async move {
            agent.update_server(&name, change).await
        })
    }

    fn remove_server<'env>(&self, env: &'env Env, method: &'static str, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(name)], |agent, (name,): (String,)| async move { agent.remove_server(&name).await })
    }
}

#[napi]
impl Agent {
    /// Does the same as `Gateway.servers`, for the servers that this agent can see.
    #[napi(catch_unwind, ts_return_type = "ServerStatus[]")]
    pub fn servers<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        let json = self.caller.agent.servers_as_json().map_err(|error| glue::thrown(env, &error))?;
        glue::call(env, "parse", FnArgs::from((json,)))
    }

    /// Adds a server for this agent, and resolves with the server's status. Other agents can use the server only through a toolbox with a
    /// pattern like `agent:researcher:my-files/*`. The server's name is derived from the display name: `My Café!` becomes `my-cafe`. A
    /// number is appended if another server or the catalogue has that name. The server is kept for the next gateway with the same
    /// `stateDir`, and for the next agent of this name. It runs only after a person has approved it. Until then, its state is
    /// `pending-approval`. An event `server-proposed` contains everything that the person must see.
    ///
    /// Rejects with `ERR_INVALID_OPTION` for an entry that cannot be used, `ERR_TOO_MANY_PROPOSALS` for more than 20 servers, `ERR_STORE`.
    ///
    /// ```js
    /// const { name } = await agent.addServer({ name: 'My Files', command: 'npx', args: ['-y', 'server-files'] })
    /// const request = await gateway.approvalRequest(name) // for a person
    /// ```
    #[napi(catch_unwind, ts_args_type = "server: NewServer", ts_return_type = "Promise<ServerStatus>")]
    pub fn add_server<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.add_server(env, "Agent.addServer", server)
    }

    /// Changes a server that this agent has added, and resolves with the server's status. The server's name stays the same, even if the
    /// display name changes. New variables and headers are merged with the existing ones; `null` removes one. If the change affects what is
    /// executed, a person has to approve the server again.
    /// server again.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_OPERATOR_ONLY` for a server that the agent has not added, and with the errors of
    /// `addServer`.
    #[napi(catch_unwind, ts_args_type = "name: string, change: ServerChange", ts_return_type = "Promise<ServerStatus>")]
    pub fn update_server<'env>(&self, env: &'env Env, name: Unknown<'env>, change: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.update_server(env, "Agent.updateServer", name, change)
    }

    /// Removes a server that this agent has added, together with its process, its approval and its tokens. A server that is added later
    /// under the same name gets none of these.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_OPERATOR_ONLY`, `ERR_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<void>")]
    pub fn remove_server<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.remove_server(env, "Agent.removeServer", name)
    }
}

#[napi]
impl Gateway {
    /// Does the same as `Agent.addServer`, for the operator's own agent. Other agents can use the server only through a toolbox with a
    /// pattern like `agent::my-files/*`.
    #[napi(catch_unwind, ts_args_type = "server: NewServer", ts_return_type = "Promise<ServerStatus>")]
    pub fn add_server<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.add_server(env, "Gateway.addServer", server)
    }

    /// Does the same as `Agent.updateServer`, for servers that the operator's own agent has added.
    #[napi(catch_unwind, ts_args_type = "name: string, change: ServerChange", ts_return_type = "Promise<ServerStatus>")]
    pub fn update_server<'env>(&self, env: &'env Env, name: Unknown<'env>, change: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.update_server(env, "Gateway.updateServer", name, change)
    }

    /// Does the same as `Agent.removeServer`, for servers that any of the agents has added. The operator refuses a proposal by removing the
    /// server.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<void>")]
    pub fn remove_server<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.remove_server(env, "Gateway.removeServer", name)
    }
}
