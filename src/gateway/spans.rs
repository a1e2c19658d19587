//! The spans of runs, requests and connections, with the attributes of OpenTelemetry's conventions for MCP.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use super::callbacks::CallScope;
use super::core::Core;
use super::request::Request;
use crate::client::{Completed, ResourceOrPromptRequest, SentRequest};
use crate::config::{ServerDefinition, Transport};
use crate::error::{Error, Result};
use crate::telemetry::{ReceivedRequest, Span, SpanKind, TraceContext};

const METHOD: &str = "mcp.method.name";
const PROTOCOL: &str = "mcp.protocol.version";
const REQUEST_ID: &str = "jsonrpc.request.id";
const SESSION_ID: &str = "mcp.session.id";
const SERVER: &str = "hyperlight_mcp.server";
const AGENT: &str = "gen_ai.agent.name";
const RUN: &str = "hyperlight_mcp.run.id";
const TRANSPORT: &str = "network.transport";

/// A piece of work that may have a span, with the trace context for the work within it.
pub(super) struct Traced {
    span: Option<Span>,
    /// The context of the span. If there is no span, this is the caller's context, which is passed on unchanged.
    pub(super) context: Option<TraceContext>,
}

impl Traced {
    fn new(span: Option<Span>, parent: Option<TraceContext>) -> Self {
        Self { context: span.as_ref().and_then(Span::context).or(parent), span }
    }

    /// Sets the protocol version of the connection that a request used, and the names under which it was sent, if the request got that far.
    pub(super) fn with_exchange(mut self, (version, sent): (Option<String>, Option<SentRequest>)) -> Self {
        let Some(span) = &mut self.span else { return self };
        if let Some(version) = version {
            span.set(PROTOCOL, version);
        }
        if let Some(SentRequest { id, session }) = sent {
            name_request(span, id, session);
        }
        self
    }

    /// Sets the error, if there was one, and ends the span.
    pub(super) fn end(mut self, error: Option<&str>) {
        if let (Some(span), Some(error)) = (&mut self.span, error) {
            span.fail(error);
        }
    }
}

impl Core {
    /// Starts the span of a run. `request` is the request of the MCP host that has started this run.
    pub(super) fn trace_run(
        &self,
        agent: Option<&str>,
        run_id: Option<u64>,
        request: Option<ReceivedRequest>,
        parent: Option<TraceContext>,
    ) -> Traced {
        let mut span = self.telemetry.span(SpanKind::Internal, parent.clone(), || "run".to_owned());
        if let Some(span) = &mut span {
            describe_caller(span, agent, run_id);
            if let Some(ReceivedRequest { id, session }) = request {
                name_request(span, id, session);
            }
        }
        Traced::new(span, parent)
    }

    /// Starts the span of a request. The span also ends if the request's future is dropped.
    pub(super) fn trace_request(&self, server: &str, request: &Request, scope: &CallScope) -> Traced {
        let target = target(request);
        let name = || target.map_or_else(|| request.method().to_owned(), |(_, target)| format!("{} {target}", request.method()));
        let mut span = self.telemetry.span(SpanKind::Client, scope.trace.clone(), name);
        if let Some(span) = &mut span {
            span.set(METHOD, request.method());
            span.set(SERVER, server);
            if let Request::CallTool { .. } = request {
                span.set("gen_ai.operation.name", "execute_tool");
            }
            if let Some((key, target)) = target {
                span.set(key, target);
            }
            if let Request::ResourceOrPrompt(ResourceOrPromptRequest::Read { uri }) | Request::Subscribe(uri) | Request::Unsubscribe(uri) =
                request
            {
                span.set("mcp.resource.uri", uri.as_str());
            }
            if let Ok(server) = self.registry.server(server) {
                span.set(TRANSPORT, transport(&server));
            }
            describe_caller(span, scope.identity.audit_name().as_deref(), scope.run_id);
        }
        Traced::new(span, scope.trace.clone())
    }

    /// Records the span of a connection attempt that has just ended, after it has taken `time`. `outcome` is the protocol version, or the
    /// error.
    pub(super) fn trace_connection(
        &self,
        server: &ServerDefinition,
        scope: &CallScope,
        time: Duration,
        outcome: std::result::Result<String, &Error>,
    ) {
        let Some(mut span) = self.telemetry.span(SpanKind::Client, scope.trace.clone(), || "initialize".to_owned()) else { return };
        span.began(time);
        span.set(METHOD, "initialize");
        span.set(SERVER, server.name.as_str());
        span.set(TRANSPORT, transport(server));
        describe_caller(&mut span, scope.identity.audit_name().as_deref(), scope.run_id);
        match outcome {
            Ok(version) => span.set(PROTOCOL, version),
            Err(error) => span.fail(error.code()),
        }
    }
}

/// Returns the error type of a failed request.
pub(super) fn error_type(outcome: &Result<Json>) -> Option<&str> {
    match outcome {
        Ok(result) => (result.get("isError").and_then(Json::as_bool) == Some(true)).then_some("tool_error"),
        Err(error) => Some(error.code()),
    }
}

/// Sets the ids by which other processes know a request: the request id and the session id.
fn name_request(span: &mut Span, id: String, session: Option<Arc<str>>) {
    span.set(REQUEST_ID, id);
    if let Some(session) = session {
        span.set(SESSION_ID, &*session);
    }
}

fn describe_caller(span: &mut Span, agent: Option<&str>, run_id: Option<u64>) {
    if let Some(agent) = agent {
        span.set(AGENT, agent);
    }
    if let Some(run_id) = run_id {
        span.set(RUN, run_id);
    }
}

/// Returns the span attribute that names the tool or the prompt of a request, and the value of this attribute. Returns `None` for other
/// requests: URIs of resources have too many different values for an attribute.
fn target(request: &Request) -> Option<(&'static str, &str)> {
    match request {
        Request::CallTool { tool, .. } => Some(("gen_ai.tool.name", tool)),
        Request::ResourceOrPrompt(
            ResourceOrPromptRequest::Prompt { name, .. } | ResourceOrPromptRequest::Complete { of: Completed::Prompt(name), .. },
        ) => Some(("gen_ai.prompt.name", name)),
        Request::ResourceOrPrompt(_) | Request::Subscribe(_) | Request::Unsubscribe(_) => None,
    }
}

fn transport(server: &ServerDefinition) -> &'static str {
    match &server.transport {
        Transport::Stdio { .. } => "pipe",
        Transport::Http { .. } => "tcp",
        Transport::Generated(_) => "inproc",
    }
}
