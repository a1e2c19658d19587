//! The class `Agent` for Node, and `Gateway.agent`, which makes one. The methods that it shares with `Gateway` stand beside those.

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
use crate::gateway::IdentityOptions;

const AGENT: &str = "Gateway.agent";

/// Options of `Gateway.agent`, besides its callbacks.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgentOptions {
    profiles: Option<Vec<String>>,
}

/// One caller of a gateway, made by `Gateway.agent`. Its `session` answers, sandboxes with their saved values, callbacks, subscriptions and its
/// model's decisions to enable or disable a server belong to it alone, and end with it. Approvals and connections are shared with the other agents of
/// the gateway.
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
    /// The name that the agent was given. Two agents may have one name.
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.caller.agent.name().unwrap_or_default().to_owned()
    }

    /// Does the same as `Gateway.sandbox`. Questions about the sandbox's runs go to the callbacks of the run, the sandbox and the agent, and never to
    /// the gateway's.
    #[napi(catch_unwind, ts_args_type = "options?: OfAgent<SandboxOptions>", ts_return_type = "Promise<Sandbox>")]
    pub fn sandbox<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.sandbox(env, "Agent.sandbox", options)
    }

    /// Does the same as `Gateway.callTool`, on behalf of the agent.
    #[napi(
        catch_unwind,
        // The second signature, as napi writes only one for each method.
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

    /// Closes the agent: ends its runs, calls and sandboxes with `ERR_CLOSED`, waits for their end, and forgets its `session` answers, saved values
    /// and subscriptions. Servers stay connected, and other agents are not affected; a server that only agents have by their profiles ends with the last
    /// of these agents. An agent that is garbage collected leaves nothing either.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let Caller { core, agent, .. } = self.caller.clone();
        let start = env.create_function_from_closure::<(), Object<'static>, _>("close", move |context| {
            let agent = agent.clone();
            let env = Env::from_raw(context.env.raw());
            // On JavaScript's thread, so that no call that is made afterwards begins.
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
    /// Makes an agent: a caller with callbacks, `session` answers, sandboxes, subscriptions and decisions of its model of its own. Nothing of one agent
    /// is seen by another. The gateway's own methods are those of the operator. `onInput`, `onAuthorize` and `onIssuer` are questions about a
    /// connection, which all agents share: they are the operator's, and not options of an agent. Two agents of one name are two agents.
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
                parse_owner: None,
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
