//! Sends all requests to servers: calls of tools, reads of resources, prompts, completions and subscriptions.
//!
//! Each request takes the same steps (`pipeline`):
//! 1. Its item (`item`: a tool, resource, template or prompt) is found in the approved manifest of an enabled server.
//! 2. The server is connected, and the live item is compared with the approved one.
//! 3. If the item needs a permission, a person is asked (`permission`). Then steps 1 and 2 are repeated, and the item must be unchanged.
//! 4. The request takes one of the server's slots. If the request had to wait for a slot, steps 1 and 2 are repeated.
//! 5. The request is sent. The request is sent a second time only if it certainly did not reach the server, or if a person approved the
//!    tool as read-only or idempotent. Before that, steps 1 and 2 are repeated.

mod item;
mod permission;
mod pipeline;
mod run;
mod subscriptions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json, json};

use self::item::Target;
use self::pipeline::Pipeline;
pub(super) use self::run::RunRequests;
pub(super) use self::subscriptions::Subscriptions;
use super::audit::RecordedRequest;
use super::callbacks::CallScope;
use super::core::Core;
use super::events::Event;
use super::granted::Granted;
use super::grants::is_unknown;
use super::run_end::unless_ended;
use super::spans::error_type;
use super::{Agent, ApprovalRead, Audience, CallOptions};
use crate::bridge::AnswerKind;
use crate::client::{CallLimits, Completed, ResourceOrPromptRequest};
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::sandbox::{RunControl, Stop};
use crate::text::json::{json_bytes, object_bytes};

/// A request to a server. Contains the names and URIs that the server uses.
#[derive(Debug, Clone)]
pub(super) enum Request {
    CallTool {
        tool: Arc<str>,
        /// The arguments. They are shared because the request may be sent a second time.
        arguments: Arc<Map<String, Json>>,
    },
    ResourceOrPrompt(ResourceOrPromptRequest),
    /// Subscribes to a resource, and returns `null`. The gateway stores the subscription.
    Subscribe(String),
    /// Ends a subscription. Returns `null`.
    Unsubscribe(String),
}

impl Request {
    /// Returns the MCP method of the request.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::CallTool { .. } => "tools/call",
            Self::ResourceOrPrompt(request) => request.method(),
            Self::Subscribe(_) => "resources/subscribe",
            Self::Unsubscribe(_) => "resources/unsubscribe",
        }
    }

    /// Returns the name that questions, events and errors use: the name that the server gives the tool, or the method.
    pub(super) fn label(&self) -> &str {
        match self {
            Self::CallTool { tool, .. } => tool,
            _ => self.method(),
        }
    }

    /// Returns [`Self::label`] as a shared string, because the audit keeps it after the request has ended.
    pub(super) fn shared_label(&self) -> Arc<str> {
        match self {
            Self::CallTool { tool, .. } => Arc::clone(tool),
            _ => self.method().into(),
        }
    }

    /// Returns the kind of answer that the server must give. Returns `None` if the answer is not used.
    fn answer_kind(&self) -> Option<AnswerKind> {
        match self {
            Self::CallTool { .. } => Some(AnswerKind::ToolResult),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Read { .. }) => Some(AnswerKind::ResourceContents),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Prompt { .. }) => Some(AnswerKind::Prompt),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Complete { .. }) => Some(AnswerKind::Completion),
            Self::Subscribe(_) | Self::Unsubscribe(_) => None,
        }
    }

    /// Returns an error for an answer that is not a valid result of this request.
    fn checked(&self, server: &str, answer: Json) -> Result<Json> {
        let malformed =
            |problem: String| Error::MalformedAnswer { server: server.to_owned(), request: self.label().into(), problem: problem.into() };
        match self.answer_kind() {
            Some(kind) => kind.check(&answer).map_err(malformed).map(|()| answer),
            None => Ok(answer),
        }
    }

    /// Returns the item that must be approved.
    fn target(&self) -> Target<'_> {
        match self {
            Self::CallTool { tool, .. } => Target::Tool(tool),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Read { uri }) | Self::Subscribe(uri) | Self::Unsubscribe(uri) => {
                Target::Resource(uri)
            }
            Self::ResourceOrPrompt(
                ResourceOrPromptRequest::Prompt { name, .. } | ResourceOrPromptRequest::Complete { of: Completed::Prompt(name), .. },
            ) => Target::Prompt(name),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Complete { of: Completed::Template(text), .. }) => Target::Template(text),
        }
    }

    /// Returns the arguments that are shown to a person.
    fn shown(&self) -> Map<String, Json> {
        let shown = match self {
            Self::CallTool { arguments, .. } => return (**arguments).clone(),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Read { uri }) | Self::Subscribe(uri) | Self::Unsubscribe(uri) => {
                json!({ "uri": uri })
            }
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Prompt { name, arguments }) => json!({ "name": name, "arguments": arguments }),
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Complete { of: Completed::Prompt(name), argument, value, context }) => {
                json!({ "name": name, "argument": argument, "value": value, "context": context })
            }
            Self::ResourceOrPrompt(ResourceOrPromptRequest::Complete { of: Completed::Template(text), argument, value, context }) => {
                json!({ "uriTemplate": text, "argument": argument, "value": value, "context": context })
            }
        };
        shown.as_object().cloned().unwrap_or_default()
    }

    /// Returns the arguments for the audit.
    pub(super) fn arguments(&self) -> Arc<Map<String, Json>> {
        match self {
            Self::CallTool { arguments, .. } => Arc::clone(arguments),
            _ => Arc::new(self.shown()),
        }
    }

    /// Returns the size of the arguments as JSON, in bytes.
    fn argument_bytes(&self) -> usize {
        match self {
            Self::CallTool { arguments, .. } => object_bytes(arguments),
            _ => object_bytes(&self.shown()),
        }
    }
}

/// The scope, run and time limit of a request.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a> {
    pub(super) scope: &'a Arc<CallScope>,
    /// The run. Its clock is paused while a person is asked.
    pub(super) control: Option<&'a RunControl>,
    /// The time limit. The default, which is also the maximum, is the server's `callTimeoutMs`. If the server has none, it is
    /// `limits.callTimeoutMs`. A profile can make the limit shorter.
    pub(super) timeout_ms: Option<u64>,
}

impl Core {
    /// Sends a request to an approved and enabled server. Fails immediately if the server's approval is revoked or the server is disabled
    /// during the request.
    pub(super) async fn request(&self, server: &Arc<str>, request: &Request, requester: Requester<'_>) -> Result<Json> {
        let started = Instant::now();
        // The record covers all steps, so that refused and abandoned requests are recorded too.
        let basis = self.basis_of_shape(server, request);
        let recorded = RecordedRequest::begin(self, server, request, requester, started);
        let ended = self.registry.ended_for(server, requester.scope.identity.id);
        let traced = self.trace_request(server, request, requester.scope);
        let pipeline = Pipeline::new(self, server, request, requester).with_trace(traced.context.clone());
        let outcome = tokio::select! {
            biased;
            () = ended.cancelled() => Err(self.refusal_for(server, &pipeline.viewer())),
            outcome = pipeline.run() => outcome.and_then(|answer| request.checked(server, answer)),
        };
        match &outcome {
            Err(Error::NotApproved { .. }) => self.end_if_unapproved(server).await,
            Err(error) if is_unknown(error) => self.tell_if_not_granted(requester.scope, server, Some(request.target().item())),
            _ => {}
        }
        let outcome = outcome.map_err(|error| self.redacted(self.screened(&requester.scope.identity, &requester.scope.granted, error)));
        recorded.end(&outcome);
        traced.with_exchange(pipeline.into_exchange()).end(error_type(&outcome));
        let (tool, error) = (request.label(), outcome.as_ref().err().map(Error::code));
        tracing::debug!(server = &**server, tool, error, "call");
        // Sizes are only computed if a listener gets them, because computing them means to serialise large values again.
        let traced = self.events.traces();
        self.events.trace(Event::Call {
            server: server.to_string(),
            tool: tool.to_owned(),
            duration_ms: started.elapsed().as_secs_f64() * 1000.0,
            argument_bytes: if traced { request.argument_bytes() } else { 0 },
            result_bytes: outcome.as_ref().ok().filter(|result| traced && !result.is_null()).map(json_bytes),
            error,
        });
        if let (Some(basis), Ok(answer)) = (&basis, &outcome) {
            self.learn(&requester.scope.identity, server, request, basis, answer);
        }
        outcome
    }

    /// Returns the time limits of one request of an agent.
    pub(super) fn call_limits(&self, server: &ServerDefinition, granted: &Granted, timeout_ms: Option<u64>) -> CallLimits {
        let limit_ms = server.call_timeout_ms.unwrap_or(self.limits.call_timeout_ms);
        let most_ms = server.max_call_timeout_ms.unwrap_or(self.limits.max_call_timeout_ms);
        let (limit_ms, most_ms) = granted.limits_ms(&server.name, (limit_ms, most_ms));
        let timeout = Duration::from_millis(timeout_ms.unwrap_or(limit_ms).min(limit_ms));
        CallLimits { timeout, most: Duration::from_millis(most_ms).max(timeout) }
    }
}

impl Agent {
    /// Sends a request that belongs to no run. The request ends when `stop` is triggered or the agent ends. Warnings of the request are
    /// sent as events.
    pub(super) async fn request_without_run(&self, server: &str, request: &Request, options: CallOptions, stop: &Stop) -> Result<Json> {
        let CallOptions { timeout_ms, callbacks, on_event, trace, audience } = options;
        let (core, identity) = (&self.core, &self.identity);
        identity.check_open()?;
        let _work = identity.work.token();
        let granted = self.granted(ApprovalRead::Fresh)?;
        let server: Arc<str> = granted.registry_name(server).into();
        let scope = CallScope::new(identity, granted, &identity.callbacks, callbacks, None, on_event);
        let scope = Arc::new(scope.with_trace(trace));
        let outcome = tokio::select! {
            biased;
            () = stop.stopped() => Err(stop.error("call", 0)),
            () = identity.closed.cancelled() => Err(identity.closed_error()),
            outcome = core.request(&server, request, Requester { scope: &scope, control: None, timeout_ms }) => outcome,
        };
        scope.take_warnings().into_iter().for_each(|warning| core.events.warn(warning));
        let outcome = match audience {
            Audience::Model => outcome,
            Audience::Author => outcome.map_err(|error| core.explained(identity, &server, request.target().item(), error)),
        };
        unless_ended(identity, stop, outcome)
    }
}
