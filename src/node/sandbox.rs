//! The class `Sandbox` for Node.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{FnArgs, FunctionCallContext, Object, Unknown};
use napi_derive::napi;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::callbacks::callbacks;
use super::caller::Caller;
use super::events::{EventSink, after_events};
use super::host_module::{JavaScriptModule, wire_of};
use super::options::CallbackOwner;
use super::reply::{Reply, method, promise};
use super::runtime::GatewayRuntime;
use super::{glue, options};
use hyperlight_mcp::agent::RunSetup;
use hyperlight_mcp::error::Error;
use hyperlight_mcp::gateway::{RunOptions, RunReport, next_run_id};
use hyperlight_mcp::sandbox::{Stop, StopReason};

/// Runs agent code, each run in its own micro-VM. The runs of one sandbox execute one after another. The runs of several sandboxes execute
/// in parallel.
///
/// ```js
/// const sandbox = await gateway.sandbox()
/// const { value } = await sandbox.run('export const handler = ({ n }) => n * 2', { input: { n: 21 } })
/// // value === 42
/// ```
#[napi]
pub struct Sandbox {
    core: GatewayRuntime,
    pub(super) inner: Arc<hyperlight_mcp::gateway::Sandbox>,
    pub(super) events: Option<EventSink>,
    /// The party whose callbacks may be passed for the sandbox's runs.
    callback_owner: CallbackOwner,
}

impl Sandbox {
    pub(super) fn new(caller: &Caller, inner: Arc<hyperlight_mcp::gateway::Sandbox>, events: Option<EventSink>) -> Self {
        Self { core: caller.core.clone(), inner, events, callback_owner: caller.callback_owner() }
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
        T: Serialize,
        F: Fn(Arc<hyperlight_mcp::gateway::Sandbox>, A) -> W + Send + Clone + 'static,
        W: Future<Output = hyperlight_mcp::error::Result<T>> + Send + 'static,
    {
        method(env, &self.core, &self.inner, name, args, work)
    }
}

#[napi]
impl Sandbox {
    /// Adds one of the agent's own modules as `host:<name>`, for runs that start later. The functions of the module may be synchronous or
    /// return a promise. The guest calls them synchronously in both cases. Arguments and results are JSON and `Uint8Array`.
    ///
    /// Throws `ERR_NAME_TAKEN` for `mcp`, `mcp-…` and names that are already used, and `ERR_INVALID_OPTION` for names that cannot be
    /// imported.
    ///
    /// ```js
    /// sandbox.hostModule('clock', { now: () => Date.now() })
    /// await sandbox.run('import { now } from "host:clock"; export const handler = () => now()')
    /// ```
    ///
    /// `info` describes the module to models, in `declarations`, `moduleInfo`, `systemMessage` and `describe`.
    #[napi(catch_unwind, ts_args_type = "name: string, functions: { [name: string]: (...args: any[]) => unknown }, info?: HostModuleInfo")]
    pub fn host_module(&self, env: Env, name: Unknown, functions: Unknown, info: Option<Unknown>) -> napi::Result<()> {
        let problem = || Error::InvalidOption { method: "Sandbox.hostModule", problem: "name must be a string".into() };
        let name = glue::string(&name).ok_or_else(|| glue::thrown(&env, &problem()))?;
        let module = JavaScriptModule::new(&env, name.clone(), functions, info)?;
        self.inner.host_module(&name, Arc::new(module)).map_err(|error| glue::thrown(&env, &error))
    }

    /// Runs an ES module or a plain script. The code must define a function `handler(input)`, exported or not, or a default export. This
    /// function may be async. Each run starts with a new state. If the run fails, the error has `logs`, `warnings` and `stats`.
    ///
    /// Rejects with `ERR_CODE_SYNTAX`, `ERR_NO_HANDLER`, `ERR_GUEST_THREW`, `ERR_INVALID_VALUE`, `ERR_NEVER_SETTLES`,
    /// `ERR_RUN_TIMEOUT`, `ERR_ABORTED`, `ERR_CLOSED`, `ERR_GUEST_MEMORY`, and with the code of an exceeded limit, like `ERR_VALUE_TOO_LARGE`.
    ///
    /// ```js
    /// const { value, logs } = await sandbox.run(`
    ///   import { echo } from "host:mcp-everything";
    ///   export const handler = ({ message }) => echo({ message });
    /// `, { input: { message: 'hi' }, timeoutMs: 5000 })
    /// ```
    #[napi(
        catch_unwind,
        ts_generic_types = "T = Value",
        ts_args_type = "code: string, options?: RunOptions",
        ts_return_type = "Promise<RunResult<T>>"
    )]
    pub fn run<'env>(&self, env: &'env Env, code: Unknown<'env>, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let (core, inner, events) = (self.core.clone(), Arc::clone(&self.inner), self.events.clone());
        let callback_owner = self.callback_owner;
        let start = env.create_function_from_closure::<(), Vec<Object<'static>>, _>("run", move |context| {
            let stop = Stop::new();
            let events = EventSink::new(context.get(3)?)?.or_else(|| events.clone());
            let work = prepare(&context, events.clone(), &stop, callback_owner)?;
            // The run is queued here, on JavaScript's thread, so that runs start in the order of the calls.
            let work = work.map(|(code, options)| inner.run(code, options));
            let env = Env::from_raw(context.env.raw());
            let work = async move {
                match work {
                    Ok(run) => reply(run.await),
                    Err(error) => Reply::failure(&error, json!({ "logs": [], "warnings": [] })),
                }
            };
            let native = promise(context.env, &core, after_events(events, work))?;
            started(&env, native, stop)
        })?;
        glue::call(env, "run", FnArgs::from((start, "Sandbox.run", code, options)))
    }

    /// Closes the sandbox: ends pending runs with `ERR_CLOSED`, and waits until they have ended. A sandbox whose callbacks or host modules
    /// refer to it, also indirectly, is never garbage collected: close it, or it and its VMs stay until its gateway is closed or Node ends.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let (core, inner) = (self.core.clone(), Arc::clone(&self.inner));
        let start = env.create_function_from_closure::<(), Object<'static>, _>("close", move |context| {
            let inner = Arc::clone(&inner);
            let env = Env::from_raw(context.env.raw());
            let native = promise(&env, &core, async move {
                inner.close().await;
                Reply::new(Ok(()))
            })?;
            Ok(glue::detached(&native))
        })?;
        glue::call(env, "method", FnArgs::from((start, "Sandbox.close", Vec::<Unknown>::new())))
    }
}

type Prepared = hyperlight_mcp::error::Result<(String, RunOptions)>;

/// Parses the arguments `(code, data, callbackNames, sink, asked, inputJson, inputBlobs)` from the glue code.
fn prepare(context: &FunctionCallContext, events: Option<EventSink>, stop: &Stop, callback_owner: CallbackOwner) -> napi::Result<Prepared> {
    let asked = callbacks(context.env, context.get(4)?)?;
    let input = wire_of(context, 5)?;
    let code: String = context.get(0)?;
    let read = options::read::<options::RunOptions>("Sandbox.run", &context.get::<String>(1)?, &context.get::<String>(2)?, callback_owner);
    let run = next_run_id();
    let traced = read.and_then(|given| {
        let trace = options::trace_of("Sandbox.run", given.traceparent.as_deref(), given.tracestate.as_deref())?;
        let fetch = options::fetch_of("Sandbox.run", given.fetch)?;
        Ok((options::RunOptions { fetch: None, ..given }, trace, fetch))
    });
    Ok(traced.map(|(given, trace, fetch)| {
        let options = RunOptions {
            input: Some(input),
            timeout_ms: given.timeout_ms.map(std::num::NonZeroU64::get),
            tool_errors: given.tool_errors,
            max_result_tokens: given.max_result_tokens,
            stop: stop.clone(),
            on_event: events.clone().map(EventSink::event_listener),
            on_log: events.map(|events| events.log_listener(run)),
            callbacks: asked,
            run_id: Some(run),
            trace,
            request: None,
            task: given.task,
            fetch,
        };
        (code, options)
    }))
}

/// Returns the list `[promise, stop]` for the glue code.
pub(super) fn started(env: &Env, native: Object, stop: Stop) -> napi::Result<Vec<Object<'static>>> {
    let stop = env.create_function_from_closure::<(), (), _>("stop", move |_| {
        stop.stop(StopReason::Aborted);
        Ok(())
    })?;
    Ok(vec![glue::detached(&native), glue::detached(&stop)])
}

fn reply(report: RunReport) -> Reply {
    let RunReport { outcome, warnings, omitted, saved_as } = report;
    let mut fields = json!({ "logs": outcome.logs, "warnings": warnings, "stats": outcome.stats });
    if !omitted.is_empty() {
        fields["omitted"] = json!(omitted);
    }
    if let Some(id) = saved_as {
        fields["savedAs"] = id.into();
    }
    match outcome.value {
        Ok(value) => Reply::with_guest_value(value, &fields),
        Err(error) => Reply::failure(&error, fields),
    }
}

/// Returns a function that sets the number and the listeners of each run that a model's tool starts.
pub(super) fn run_setup(events: Option<EventSink>) -> RunSetup {
    Arc::new(move |options| {
        let run = next_run_id();
        RunOptions {
            run_id: Some(run),
            on_event: events.clone().map(EventSink::event_listener),
            on_log: events.clone().map(|events| events.log_listener(run)),
            ..options
        }
    })
}
