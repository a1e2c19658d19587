//! The class `Agent` for Node, and `Gateway.agent`, which creates an agent. Methods that `Agent` shares with `Gateway` are in the same
//! files as those of `Gateway`.

use napi::Env;
use napi::bindgen_prelude::{FnArgs, Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;

use super::callbacks::callbacks;
use super::caller::Caller;
use super::events::EventSink;
use super::gateway::Gateway;
use super::options::CallbackOwner;
use super::reply::{Reply, promise};
use super::{glue, options};
use hyperlight_mcp::gateway::IdentityOptions;

const AGENT: &str = "Gateway.agent";

/// The options of `Gateway.agent`, without its callbacks.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgentOptions {
    profiles: Option<Vec<String>>,
}

/// One caller of a gateway, created by `Gateway.agent`. An agent has its own `session` answers, sandboxes with saved values, callbacks and
/// subscriptions. Its model has its own decisions about which servers are enabled. All of these end with the agent. Approvals and
/// connections are shared with the other agents of the gateway.
///
/// ```js
/// const researcher = gateway.agent('researcher', { onApproval: () => 'once' })
/// const [run] = researcher.agentTools()
/// await researcher.close()
/// ```
#[napi]
pub struct Agent {
    pub(super) caller: Caller,
}

#[napi]
impl Agent {
    /// The name that was given to the agent. Two agents may have the same name.
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.caller.agent.name().unwrap_or_default().to_owned()
    }

    /// Does the same as `Gateway.sandbox`. Questions about the sandbox's runs go to the callbacks of the run, the sandbox and the agent,
    /// and never to the callbacks of the gateway.
    #[napi(catch_unwind, ts_args_type = "options?: OfAgent<SandboxOptions>", ts_return_type = "Promise<Sandbox>")]
    pub fn sandbox<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.sandbox(env, "Agent.sandbox", options)
    }

    /// Does the same as `Gateway.callTool`, on behalf of the agent.
    #[napi(
        catch_unwind,
        // The text contains a second signature, because napi writes only one for each method.
        ts_args_type = "server: string, tool: string, args?: Record<string, unknown>, options?: OfAgent<CallOptions>): Promise<ToolResult>\n  callTool(name: string, args?: Record<string, unknown>, options?: OfAgent<CallOptions>",
        ts_return_type = "Promise<ToolResult>"
    )]
    pub fn call_tool<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        tool: Unknown<'env>,
        args: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        self.caller.call_tool(env, "Agent.callTool", [Some(server), Some(tool), args, options])
    }

    /// Closes the agent: ends its runs, calls and sandboxes with `ERR_CLOSED`, and waits until they have ended. Then discards its `session`
    /// answers, saved values and subscriptions. Also closes servers that the agent had through profiles, unless another open agent has them
    /// through profiles or the operator's own agent uses them. All other servers stay connected. When an agent is garbage collected, the
    /// same happens.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let Caller { core, agent, .. } = self.caller.clone();
        let start = env.create_function_from_closure::<(), Object<'static>, _>("close", move |context| {
            let agent = agent.clone();
            let env = Env::from_raw(context.env.raw());
            // The close begins here, on JavaScript's thread, so that a call that is made after `close()` does not start.
            agent.begin_close();
            let native = promise(&env, &core, async move {
                agent.close().await;
                Reply::new(Ok(()))
            })?;
            Ok(glue::detached(&native))
        })?;
        glue::call(env, "method", FnArgs::from((start, "Agent.close", Vec::<Unknown>::new())))
    }
}

#[napi]
impl Gateway {
    /// Opens an agent: a caller with its own callbacks, `session` answers, sandboxes and subscriptions, and with its model's own decisions.
    /// No agent sees anything of another agent. The methods of the gateway itself belong to the operator. `onInput`, `onAuthorize` and
    /// `onIssuer` are questions about a connection, which all agents share. So they are options of the gateway, and not of an agent. Two
    /// agents with the same name are separate agents.
    ///
    /// Throws `ERR_INVALID_OPTION`, `ERR_PROFILE_CONFLICT`, `ERR_CLOSED`.
    ///
    /// ```js
    /// const agent = gateway.agent('support-desk', { onApproval: () => 'once' })
    /// await agent.callTool('everything', 'echo', { message: 'hi' })
    /// await agent.close()
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string, options?: AgentOptions", ts_return_type = "Agent")]
    pub fn agent<'env>(&self, env: &'env Env, name: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let (core, gateway, events) = (self.caller.core.clone(), self.inner.clone(), self.caller.events.clone());
        let make = env.create_function_from_closure::<(), Agent, _>("make", move |context| {
            let env = Env::from_raw(context.env.raw());
            let (label, data, names): (String, String, String) = (context.get(0)?, context.get(1)?, context.get(2)?);
            let read = options::read::<AgentOptions>(AGENT, &data, &names, CallbackOwner::Agent);
            let AgentOptions { profiles } = read.map_err(|error| glue::thrown(&env, &error))?;
            let own = EventSink::new(context.get(3)?)?;
            let options = IdentityOptions {
                code_owner: None,
                callbacks: callbacks(&env, context.get(4)?)?,
                on_event: own.clone().map(EventSink::event_listener),
                profiles,
                ..IdentityOptions::default()
            };
            let agent = gateway.agent(&label, options).map_err(|error| glue::thrown(&env, &error))?;
            Ok(Agent { caller: Caller { core: core.clone(), agent, events: own.or_else(|| events.clone()) } })
        })?;
        glue::call(env, "agent", FnArgs::from((make, AGENT, name, options)))
    }
}
