//! The methods of the classes `Gateway` and `Agent` for resources and prompts.

use std::num::NonZeroU64;

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::caller::{Caller, timed};
use super::gateway::Gateway;
use super::identity::Agent;
use super::options;
use hyperlight_mcp::gateway::{CallOptions, Completed};

/// The prompt or resource template for which a completion is requested.
#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields, expecting = "must be { type: \"ref/prompt\", name } or { type: \"ref/resource\", uri }")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

/// The argument to complete, and the value that it has up to now.
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
    traceparent: Option<String>,
    tracestate: Option<String>,
    context: Map<String, Json>,
}

impl Caller {
    fn resources<'env>(&self, env: &'env Env, method: &'static str, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(server)], |agent, (server,): (String,)| async move { agent.resources(&server) })
    }

    fn read_resource<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 4]) -> napi::Result<Object<'env>> {
        self.call(env, method, args, move |agent, parts, listeners, stop| async move {
            let (server, uri): (String, String) = options::arguments(method, &parts.names)?;
            agent.read_resource(&server, &uri, parts.call_options(method, listeners)?, &stop).await
        })
    }

    fn prompts<'env>(&self, env: &'env Env, method: &'static str, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, method, [Some(server)], |agent, (server,): (String,)| async move { agent.prompts(&server) })
    }

    fn get_prompt<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 4]) -> napi::Result<Object<'env>> {
        self.call(env, method, args, move |agent, parts, listeners, stop| async move {
            let (server, name): (String, String) = options::arguments(method, &parts.names)?;
            let options = parts.call_options(method, listeners)?;
            let arguments = options::tool_arguments(format!("{server}.{name}"), parts.arguments)?;
            agent.get_prompt(&server, &name, arguments, options, &stop).await
        })
    }

    fn complete<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 4]) -> napi::Result<Object<'env>> {
        self.call(env, method, args, move |agent, parts, listeners, stop| async move {
            let (server, reference): (String, Reference) = options::arguments(method, &parts.names)?;
            let CompleteOptions { timeout_ms, traceparent, tracestate, context } = parts.options(method)?;
            let listeners = CallOptions { trace: options::trace_of(method, traceparent.as_deref(), tracestate.as_deref())?, ..listeners };
            let Argument { name, value } = options::arguments(method, &parts.arguments.json)?;
            let of = match reference {
                Reference::Prompt { name } => Completed::Prompt(name),
                Reference::Resource { uri } => Completed::Template(uri),
            };
            agent.complete(&server, of, (name, value), context, timed(listeners, timeout_ms), &stop).await
        })
    }

    fn subscribe<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 2]) -> napi::Result<Object<'env>> {
        self.method(env, method, args, |agent, (server, uri): (String, String)| async move { agent.subscribe(&server, &uri).await })
    }

    fn unsubscribe<'env>(&self, env: &'env Env, method: &'static str, args: [Option<Unknown<'env>>; 2]) -> napi::Result<Object<'env>> {
        self.method(env, method, args, |agent, (server, uri): (String, String)| async move { agent.unsubscribe(&server, &uri).await })
    }
}

#[napi]
impl Gateway {
    /// Returns the approved resources of a server, followed by its approved resource templates. Leaves out an item if the approval request
    /// shows only a part of the item's URI. Starts no server.
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, `ERR_NOT_APPROVED`, `ERR_NOT_ENABLED`.
    #[napi(catch_unwind, ts_args_type = "server: string", ts_return_type = "Promise<ResourceEntry[]>")]
    pub fn resources<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.resources(env, "Gateway.resources", server)
    }

    /// Reads a resource that is listed, or whose URI matches an approved template. `blob` in the result is base64 text.
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
        self.caller.read_resource(env, "Gateway.readResource", [Some(server), Some(uri), None, options])
    }

    /// Returns the approved prompts of a server. Leaves out a prompt if the approval request shows only a part of the prompt's name. Starts
    /// no server.
    ///
    /// Rejects with the same errors as `resources`.
    #[napi(catch_unwind, ts_args_type = "server: string", ts_return_type = "Promise<PromptEntry[]>")]
    pub fn prompts<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.prompts(env, "Gateway.prompts", server)
    }

    /// Returns a prompt with its arguments inserted. Arguments are texts. Numbers and booleans are converted to text.
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
        self.caller.get_prompt(env, "Gateway.getPrompt", [Some(server), Some(name), args, options])
    }

    /// Completes an argument of a prompt, or a variable of a resource template (`uri` is the URI template). `options.context` contains the
    /// values of arguments that were already chosen. The keys are the names of the arguments.
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
        self.caller.complete(env, "Gateway.complete", [Some(server), Some(reference), Some(argument), options])
    }

    /// Subscribes to a resource: an event `resource-updated` is sent when the resource changes, even after the server was connected again.
    ///
    /// Rejects with the same errors as `readResource`, and with `ERR_PROTOCOL` if the server does not support subscriptions.
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string", ts_return_type = "Promise<void>")]
    pub fn subscribe<'env>(&self, env: &'env Env, server: Unknown<'env>, uri: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.subscribe(env, "Gateway.subscribe", [Some(server), Some(uri)])
    }

    /// Ends a subscription. Rejects with the same errors as `readResource`.
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string", ts_return_type = "Promise<void>")]
    pub fn unsubscribe<'env>(&self, env: &'env Env, server: Unknown<'env>, uri: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.unsubscribe(env, "Gateway.unsubscribe", [Some(server), Some(uri)])
    }
}

#[napi]
impl Agent {
    /// Does the same as `Gateway.resources`, for the resources that the agent sees.
    #[napi(catch_unwind, ts_args_type = "server: string", ts_return_type = "Promise<ResourceEntry[]>")]
    pub fn resources<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.resources(env, "Agent.resources", server)
    }

    /// Does the same as `Gateway.readResource`, on behalf of the agent.
    #[napi(
        catch_unwind,
        ts_args_type = "server: string, uri: string, options?: OfAgent<CallOptions>",
        ts_return_type = "Promise<ReadResult>"
    )]
    pub fn read_resource<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        uri: Unknown<'env>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        self.caller.read_resource(env, "Agent.readResource", [Some(server), Some(uri), None, options])
    }

    /// Does the same as `Gateway.prompts`, for the prompts that the agent sees.
    #[napi(catch_unwind, ts_args_type = "server: string", ts_return_type = "Promise<PromptEntry[]>")]
    pub fn prompts<'env>(&self, env: &'env Env, server: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.prompts(env, "Agent.prompts", server)
    }

    /// Does the same as `Gateway.getPrompt`, on behalf of the agent.
    #[napi(
        catch_unwind,
        ts_args_type = "server: string, name: string, args?: Record<string, string | number | boolean>, options?: OfAgent<CallOptions>",
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
        self.caller.get_prompt(env, "Agent.getPrompt", [Some(server), Some(name), args, options])
    }

    /// Does the same as `Gateway.complete`, on behalf of the agent.
    #[napi(
        catch_unwind,
        ts_args_type = "server: string, ref: CompletionReference, argument: { name: string; value: string }, options?: OfAgent<CompleteOptions>",
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
        self.caller.complete(env, "Agent.complete", [Some(server), Some(reference), Some(argument), options])
    }

    /// Does the same as `Gateway.subscribe`. The event is sent only to the agent's `onEvent`. If the agent has none, it is sent to the
    /// gateway's `onEvent`.
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string", ts_return_type = "Promise<void>")]
    pub fn subscribe<'env>(&self, env: &'env Env, server: Unknown<'env>, uri: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.subscribe(env, "Agent.subscribe", [Some(server), Some(uri)])
    }

    /// Ends a subscription of the agent. Subscriptions of other agents to the same resource continue.
    #[napi(catch_unwind, ts_args_type = "server: string, uri: string", ts_return_type = "Promise<void>")]
    pub fn unsubscribe<'env>(&self, env: &'env Env, server: Unknown<'env>, uri: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.caller.unsubscribe(env, "Agent.unsubscribe", [Some(server), Some(uri)])
    }
}
