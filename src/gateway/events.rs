//! Events: facts that an operator may want to know, as they happen.

use std::sync::Arc;

use serde::Serialize;

use super::journal::Journal;
use crate::redact::Redactor;
use crate::trust::Drift;

/// An event. Its texts are redacted before it is handed on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// Something is odd, but it is not an error.
    Warning { message: String },
    /// The approval file was damaged or tampered with: it was kept aside.
    ApprovalsDamaged { message: String },
    /// A model wants a person to approve a server. The request has all that they must see.
    ApprovalProposed { request: serde_json::Value },
    /// A server's program is not the one that was there when its command was approved.
    ExecutableChanged { server: String, path: String, before: String, now: String },
    /// A server's tools are not as they were approved.
    ToolsChanged {
        server: String,
        #[serde(flatten)]
        drift: Box<Drift>,
    },
    /// A server tells how far a call is.
    #[serde(rename = "progress")]
    Progress {
        server: String,
        tool: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<u64>,
        progress: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A server's own log.
    ServerLog {
        server: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<u64>,
        level: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logger: Option<String>,
        data: serde_json::Value,
    },
    /// A connection gave way to another server's: what the server knew of this session is gone.
    ConnectionEvicted { server: String, made_room_for: String },
    /// A connection was not used for as long as `idleTimeoutMs` says.
    ConnectionIdle { server: String },
    /// A connection ended without anybody having asked for it.
    ConnectionLost { server: String, reason: String },
    /// A server's question reached nobody.
    ElicitationCancelled { server: String, reason: String },
    /// A resource that was subscribed to has changed.
    ResourceUpdated { server: String, uri: String },
    /// With `trace`: a server was connected.
    Connected { server: String, connect_ms: f64 },
    /// With `trace`: a call has ended. Sizes, never contents.
    Call {
        server: String,
        tool: String,
        duration_ms: f64,
        argument_bytes: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        result_bytes: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'static str>,
    },
}

/// A function that is called with each event as JSON, on whatever thread it happens.
pub type EventListener = Arc<dyn Fn(serde_json::Value) + Send + Sync>;

/// Hands events on, redacted.
#[derive(Clone)]
pub(super) struct Events {
    pub(super) listener: Option<EventListener>,
    pub(super) redactor: Arc<Redactor>,
    /// True where each connection and call is an event as well.
    pub(super) trace: bool,
    /// The journal of events that are about a server.
    pub(super) journal: Journal,
}

impl Events {
    pub(super) fn send(&self, event: &Event) {
        self.send_to(None, event);
    }

    /// Sends to this listener, or to the gateway's where there is none.
    pub(super) fn send_to(&self, listener: Option<&EventListener>, event: &Event) {
        self.journal.event(event.clone());
        self.tell(listener, event);
    }

    fn tell(&self, listener: Option<&EventListener>, event: &Event) {
        if let Some(listener) = listener.or(self.listener.as_ref()) {
            match serde_json::to_value(event) {
                Ok(json) => listener(self.redactor.visible_json(&json)),
                Err(error) => tracing::error!(%error, "an event without a form"),
            }
        }
    }

    pub(super) fn warn(&self, message: impl Into<String>) {
        let message = message.into();
        tracing::warn!("{}", self.redactor.readable(&message));
        self.send(&Event::Warning { message });
    }

    /// Returns whether a listener wants each connection and call.
    pub(super) fn traces(&self) -> bool {
        self.trace && self.listener.is_some()
    }

    /// Writes a connection or call into the journal, and sends it where a listener wants it.
    pub(super) fn trace(&self, event: Event) {
        if self.traces() {
            self.tell(None, &event);
        }
        self.journal.event(event);
    }
}
