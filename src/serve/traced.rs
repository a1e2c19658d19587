//! The trace information in a host's request.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::Value as Json;

use super::stateless;
use crate::telemetry::{ReceivedRequest, TraceContext};

const SESSION: &str = "mcp-session-id";

/// The trace context of a host's request, the id of the request, and the id of its session.
#[derive(Clone)]
pub(super) struct HostTrace {
    pub(super) context: Option<TraceContext>,
    pub(super) request: ReceivedRequest,
}

impl HostTrace {
    pub(super) fn of(request: &RequestContext<RoleServer>) -> Self {
        let field = |key: &str| request.meta.get(key).and_then(Json::as_str);
        let context = field("traceparent").and_then(TraceContext::parse);
        // The headers of a stateless request may contain a session id, although the request has no session.
        let parts = request.extensions.get::<http::request::Parts>().filter(|_| stateless::owner(request).is_none());
        let session = parts.and_then(|parts| parts.headers.get(SESSION)?.to_str().ok()).map(Arc::from);
        Self {
            context: context.map(|context| context.with_state(field("tracestate").unwrap_or_default())),
            request: ReceivedRequest { id: request.id.to_string(), session },
        }
    }
}
