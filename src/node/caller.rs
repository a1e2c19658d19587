//! A caller of the gateway. It implements the methods that the classes `Gateway` and `Agent` share.

use std::num::NonZeroU64;

use napi::Env;
use napi::bindgen_prelude::{Either, FnArgs, Object, Unknown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::callbacks::callbacks;
use super::events::{EventSink, after_events};
use super::host_module::wire_of;
use super::options::CallbackOwner;
use super::reply::{Parts, Reply, method, promise, promise_of};
use super::runtime::GatewayRuntime;
use super::sandbox::{Sandbox, started};
use super::{glue, options};
use hyperlight_mcp::blocking::blocking;
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::gateway::{Agent, Audience, CallOptions};
use hyperlight_mcp::sandbox::{Stop, Wire};

/// The operator's own agent, or a named agent. Each function gets the name of the JavaScript method that was called, for error messages.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) core: GatewayRuntime,
    pub(super) agent: Agent,
    /// The listener for the agent's events. Default: the listener of the gateway.
    pub(super) events: Option<EventSink>,
}

/// The parts of a call from the glue code, as JSON texts. The arguments may also contain bytes.
pub(super) struct CallParts {
    pub(super) names: String,
    pub(super) arguments: Wire,
    data: String,
    callbacks: String,
    callback_owner: CallbackOwner,
}

impl CallParts {
    pub(super) fn options<T: DeserializeOwned>(&self, method: &'static str) -> Result<T> {
        options::read(method, &self.data, &self.callbacks, self.callback_owner)
    }

    /// Parses the options that are common to all calls, and adds them to `listeners`, which contains the callbacks of the call.
    pub(super) fn call_options(&self, method: &'static str, listeners: CallOptions) -> Result<CallOptions> {
        let options::CallOptions { timeout_ms, traceparent, tracestate } = self.options(method)?;
        let trace = options::trace_of(method, traceparent.as_deref(), tracestate.as_deref())?;
        Ok(CallOptions { trace, ..timed(listeners, timeout_ms) })
    }
}

/// Returns the error for a name that is not the name of a tool. If it is the name of a server, the error says that the name of the tool is
/// missing.
fn meant_server(method: &'static str, agent: &Agent, name: &str, error: Error) -> Error {
    if matches!(error, Error::UnknownDirectName { .. }) && agent.server_info(name).is_ok() {
        let problem = format!("argument 2: \"{name}\" is a server, so the name of its tool is needed");
        return Error::InvalidOption { method, problem: problem.into() };
    }
    error
}

/// Sets the time limit of call options.
pub(super) fn timed(options: CallOptions, timeout_ms: Option<NonZeroU64>) -> CallOptions {
    CallOptions { timeout_ms: timeout_ms.map(NonZeroU64::get), ..options }
}

impl Caller {
    /// Returns the party whose callbacks this caller may pass.
    pub(super) fn callback_owner(&self) -> CallbackOwner {
        CallbackOwner::of(&self.agent)
    }

    /// Runs a method whose arguments and result are plain data.
    pub(super) fn method<'env, const N: usize, A, T, F, W>(
        &self,
        env: &'env Env,
        name: &'static str,
        args: [Option<Unknown<'env>>; N],
        work: F,
    ) -> napi::Result<Object<'env>>
    where
        A: DeserializeOwned + Send + 'static,
        T: Serialize + Send + 'static,
        F: Fn(Agent, A) -> W + Send + Clone + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let events = self.events.clone();
        method(env, &self.core, &self.agent, name, args, move |agent, arguments| after_events(events.clone(), work(agent, arguments)))
    }

    /// Runs a call that can be aborted and during which the server may ask questions. The array is `[server, what, arguments, options]`.
    pub(super) fn call<'env, W>(
        &self,
        env: &'env Env,
        name: &'static str,
        [server, what, args, options]: [Option<Unknown<'env>>; 4],
        work: impl Fn(Agent, CallParts, CallOptions, Stop) -> W + Send + Clone + 'static,
    ) -> napi::Result<Object<'env>>
    where
        W: Future<Output = Result<Json>> + Send + 'static,
    {
        let caller = self.clone();
        let start = env.create_function_from_closure::<(), Vec<Object<'static>>, _>(name, move |context| {
            let env = Env::from_raw(context.env.raw());
            let (arguments, callback_owner) = (wire_of(&context, 1)?, caller.callback_owner());
            let parts = CallParts { names: context.get(0)?, arguments, data: context.get(3)?, callbacks: context.get(4)?, callback_owner };
            let asked = callbacks(&env, context.get(5)?)?;
            let events = EventSink::new(context.get(6)?)?;
            let on_event = events.clone().map(EventSink::event_listener);
            let listeners = CallOptions { callbacks: asked, on_event, audience: Audience::Author, ..CallOptions::default() };
            let (stop, work) = (Stop::new(), work.clone());
            let running = work(caller.agent.clone(), parts, listeners, stop.clone());
            let events = events.or_else(|| caller.events.clone());
            let native = promise(&env, &caller.core, after_events(events, async move { Reply::new(running.await) }))?;
            started(&env, native, stop)
        })?;
        glue::call(env, "callTool", FnArgs::from((start, name, server, what, args, options)))
    }

    pub(super) fn call_tool<'env>(
        &self,
        env: &'env Env,
        method: &'static str,
        parameters: [Option<Unknown<'env>>; 4],
    ) -> napi::Result<Object<'env>> {
        self.call(env, method, parameters, move |agent, parts, listeners, stop| async move {
            let options = parts.call_options(method, listeners)?;
            if let Ok((name,)) = options::arguments::<(String,)>(method, &parts.names) {
                let (server, tool) = agent.tool_named(&name).map_err(|error| meant_server(method, &agent, &name, error))?;
                let arguments = options::tool_arguments(name, parts.arguments)?;
                return agent.call_tool(&server, &tool, arguments, options, &stop).await;
            }
            let (server, tool): (String, String) = options::arguments(method, &parts.names)?;
            let arguments = options::tool_arguments(format!("{server}.{tool}"), parts.arguments)?;
            agent.call_tool(&server, &tool, arguments, options, &stop).await
        })
    }

    pub(super) fn sandbox<'env>(&self, env: &'env Env, method: &'static str, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let caller = self.clone();
        let start = env.create_function_from_closure::<(), Object<'static>, _>("sandbox", move |context| {
            let env = Env::from_raw(context.env.raw());
            let (data, names): (String, String) = (context.get(0)?, context.get(1)?);
            let read = options::read::<options::SandboxOptions>(method, &data, &names, caller.callback_owner());
            let events = EventSink::new(context.get(2)?)?.or_else(|| caller.events.clone());
            let asked = callbacks(&env, context.get(3)?)?;
            let (agent, owner, told) = (caller.agent.clone(), caller.clone(), events.clone());
            let work = async move {
                let options::SandboxOptions { tool_errors, max_result_tokens, task } = read?;
                let options = hyperlight_mcp::gateway::SandboxOptions { tool_errors, max_result_tokens, callbacks: asked, task };
                let making = blocking(move || Ok((agent.sandbox_with(options)?, agent.guest_warning())));
                let (made, warning) = making.await?;
                if let (Some(warning), Some(told)) = (warning, told) {
                    told.warn(&warning);
                }
                Ok(made)
            };
            let work = after_events(events.clone(), work);
            let native = promise_of(
                &env,
                &caller.core,
                work,
                |_| 0,
                move |made, _| {
                    Ok(match made {
                        Ok(inner) => Either::B(Sandbox::new(&owner, inner, events)),
                        Err(error) => Either::<Parts, _>::A(Reply::failure(&error, Json::Object(Map::new())).into_parts()),
                    })
                },
            )?;
            Ok(glue::detached(&native))
        })?;
        glue::call(env, "open", FnArgs::from((start, method, options)))
    }
}
