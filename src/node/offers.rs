//! The methods of the class `Gateway` for resources and prompts.

use std::num::NonZeroU64;

use napi::Env;
use napi::bindgen_prelude::{FnArgs, Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use super::callbacks::callbacks;
use super::events::{EventSink, after_events};
use super::gateway::Gateway;
use super::host_module::wire_of;
use super::reply::{Reply, promise};
use super::sandbox::started;
use super::{glue, options};
use crate::error::Result;
use crate::gateway::{CallOptions, Completed};
use crate::sandbox::{Stop, Wire};

/// The prompt or resource template whose completion JavaScript requests.
#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields, expecting = "must be { type: \"ref/prompt\", name } or { type: \"ref/resource\", uri }")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

/// The argument to complete, and its value so far.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct CompleteOptions {
    timeout_ms: Option<NonZeroU64>,
    context: Map<String, Json>,
}

#[napi]
impl Gateway {
    /// Returns the approved resources of a server, and then its approved resource templates. Starts no server.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_NOT_APPROVED`, `ERR_NOT_ENABLED`.
    #[napi(catch_unwind, ts_args_type = "server: string", ts_return_type = "Promise<ResourceEntry[]>")]
    pub fn resources<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.resources", [Some(server)], |gateway, (server,): (String,)| async move { gateway.resources(&server) })
    }

    /// Reads a resource that is listed, or whose URI matches an approved template. `blob` is base64 text.
    ///
    /// Rejects with `ERR_UNKNOWN_RESOURCE`, `ERR_RESOURCE_CHANGED`, and with the errors of `callTool`.
    ///
    /// ```js
    /// const { contents } = await gateway.readResource('notes', 'note://today')
    /// ```
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string, options?: CallOptions", ts_return_type = "Promise<ReadResult>")]
    pub fn read_resource<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        uri: Unknown<'env>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        const METHOD: &str = "Gateway.readResource";
        self.call(env, METHOD, [Some(server), Some(uri), None, options], |gateway, parts, options, stop| async move {
            let (server, uri): (String, String) = options::arguments(METHOD, &parts.names)?;
            let options = parts.options::<options::CallOptions>(METHOD)?.timeout_ms.apply(options);
            gateway.read_resource(&server, &uri, options, &stop).await
        })
    }

    /// Returns the approved prompts of a server. Starts no server.
    ///
    /// Rejects with the same errors as `resources`.
    #[napi(catch_unwind, ts_args_type = "server: string", ts_return_type = "Promise<PromptEntry[]>")]
    pub fn prompts<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.prompts", [Some(server)], |gateway, (server,): (String,)| async move { gateway.prompts(&server) })
    }

    /// Fills in a prompt. Arguments are texts; numbers and booleans are converted to text.
    ///
    /// Rejects with `ERR_UNKNOWN_PROMPT`, `ERR_PROMPT_CHANGED`, and with the errors of `callTool`.
    ///
    /// ```js
    /// const { messages } = await gateway.getPrompt('travel', 'plan', { place: 'Rome' })
    /// ```
    #[napi(
        catch_unwind,
        ts_args_type = "server: string, name: string, args?: Record<string, string | number | boolean>, options?: CallOptions",
        ts_return_type = "Promise<PromptResult>"
    )]
    pub fn get_prompt<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        name: Unknown<'env>,
        args: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        const METHOD: &str = "Gateway.getPrompt";
        self.call(env, METHOD, [Some(server), Some(name), args, options], |gateway, parts, options, stop| async move {
            let (server, name): (String, String) = options::arguments(METHOD, &parts.names)?;
            let options = parts.options::<options::CallOptions>(METHOD)?.timeout_ms.apply(options);
            let arguments = options::tool_arguments(format!("{server}.{name}"), parts.arguments)?;
            gateway.get_prompt(&server, &name, arguments, options, &stop).await
        })
    }

    /// Completes an argument of a prompt, or a variable of a resource template (`uri` is the URI template). `options.context` has the values of
    /// arguments that were already chosen, by argument name.
    ///
    /// Rejects with the same errors as `getPrompt` and `readResource`.
    #[napi(
        catch_unwind,
        ts_args_type = "server: string, ref: CompletionReference, argument: { name: string; value: string }, options?: CompleteOptions",
        ts_return_type = "Promise<Completion>"
    )]
    pub fn complete<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        reference: Unknown<'env>,
        argument: Unknown<'env>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        const METHOD: &str = "Gateway.complete";
        self.call(env, METHOD, [Some(server), Some(reference), Some(argument), options], |gateway, parts, options, stop| async move {
            let (server, reference): (String, Reference) = options::arguments(METHOD, &parts.names)?;
            let CompleteOptions { timeout_ms, context } = parts.options(METHOD)?;
            let Argument { name, value } = options::arguments(METHOD, &parts.arguments.json)?;
            let of = match reference {
                Reference::Prompt { name } => Completed::Prompt(name),
                Reference::Resource { uri } => Completed::Template(uri),
            };
            gateway.complete(&server, of, (name, value), context, timeout_ms.apply(options), &stop).await
        })
    }

    /// Subscribes to a resource: an event `resource-updated` is emitted when the resource changes, also after a reconnect of the server.
    ///
    /// Rejects with the same errors as `readResource`, and with `ERR_PROTOCOL` if the server does not support subscriptions.
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string", ts_return_type = "Promise<void>")]
    pub fn subscribe<'env>(&self, env: &'env Env, server: Unknown<'env>, uri: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.subscribe", [Some(server), Some(uri)], |gateway, (server, uri): (String, String)| async move {
            gateway.subscribe(&server, &uri).await
        })
    }

    /// Ends a subscription. Rejects with the same errors as `readResource`.
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string", ts_return_type = "Promise<void>")]
    pub fn unsubscribe<'env>(&self, env: &'env Env, server: Unknown<'env>, uri: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.unsubscribe", [Some(server), Some(uri)], |gateway, (server, uri): (String, String)| async move {
            gateway.unsubscribe(&server, &uri).await
        })
    }
}

/// The parts of a call from the glue, as JSON texts. Arguments also have bytes.
struct Parts {
    names: String,
    arguments: Wire,
    data: String,
    callbacks: String,
}

impl Parts {
    fn options<T: DeserializeOwned>(&self, method: &'static str) -> Result<T> {
        options::read(method, &self.data, &self.callbacks)
    }
}

/// Sets the time limit of call options.
trait Apply {
    fn apply(self, options: CallOptions) -> CallOptions;
}

impl Apply for Option<NonZeroU64> {
    fn apply(self, options: CallOptions) -> CallOptions {
        CallOptions { timeout_ms: self.map(NonZeroU64::get), ..options }
    }
}

impl Gateway {
    /// Runs a call that can be aborted and in which the server may ask questions. The array is `[server, what, arguments, options]`, as for
    /// `callTool`.
    fn call<'env, W>(
        &self,
        env: &'env Env,
        name: &'static str,
        [server, what, args, options]: [Option<Unknown<'env>>; 4],
        work: impl Fn(crate::gateway::Gateway, Parts, CallOptions, Stop) -> W + Send + Clone + 'static,
    ) -> napi::Result<Object<'env>>
    where
        W: Future<Output = Result<Json>> + Send + 'static,
    {
        let (core, inner) = (self.core.clone(), self.inner.clone());
        let start = env.create_function_from_closure::<(), Vec<Object<'static>>, _>(name, move |context| {
            let env = Env::from_raw(context.env.raw());
            let arguments = wire_of(&context, 1)?;
            let parts = Parts { names: context.get(0)?, arguments, data: context.get(3)?, callbacks: context.get(4)? };
            let asked = callbacks(&env, context.get(5)?)?;
            let events = EventSink::new(context.get(6)?)?;
            let on_event = events.clone().map(EventSink::event_listener);
            let listeners = CallOptions { callbacks: asked, on_event, timeout_ms: None };
            let (stop, work, gateway) = (Stop::new(), work.clone(), inner.clone());
            let running = work(gateway, parts, listeners, stop.clone());
            let native = promise(&env, &core, after_events(events, async move { Reply::new(running.await) }))?;
            started(&env, native, stop)
        })?;
        glue::call(env, "callTool", FnArgs::from((start, name, server, what, args, options)))
    }
}
