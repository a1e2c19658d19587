//! Events for the operator or for an agent's program.

use std::sync::Arc;

use serde::Serialize;

use super::reload::ReloadReport;
use super::server_logs::ServerLogs;
use crate::boxes::border::RefusalReason;
use crate::redact::Redactor;
use crate::store::audit::ApprovalStage;
use crate::trust::Drift;

/// An event. Its texts are redacted before a listener gets them. The exceptions are events whose texts a listener needs unchanged
/// ([`Event::is_exact`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// A warning about something unusual that is not an error.
    Warning { message: String },
    /// The config changed and was read again automatically. Sent only with `watch`.
    ConfigReloaded {
        #[serde(flatten)]
        report: Box<ReloadReport>,
    },
    /// All stored decisions of one kind are ignored, because another program modified the store, or because the approval file of an earlier
    /// version was damaged. Sent once for each kind that is read.
    ApprovalsDamaged { message: String },
    /// A model requests that a person approve a server. The request contains everything that the person must see.
    ApprovalProposed { request: serde_json::Value },
    /// An agent has added or changed a server, and a person must decide about it. Sent again each time a gateway opens, until a person has
    /// decided. The request contains everything that the person must see.
    ServerProposed {
        server: String,
        display_name: String,
        /// The name of the agent. Absent for the operator's own agent.
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// True if the server was approved without a person, because `requireApproval` is false.
        approved: bool,
        /// The stage that a person must decide about. Stage `manifest`: the command is approved, and the request shows it. The tools are read
        /// from the started server, so no event contains them.
        stage: ApprovalStage,
        request: serde_json::Value,
    },
    /// The program file of a server has changed since its command was approved.
    ExecutableChanged { server: String, path: String, before: String, now: String },
    /// An agent requested something that its grants do not include. Sent once for each agent and item, and only to the operator. `agent` is the
    /// name in the audit.
    NotGranted { agent: String, server: String, item: String, reason: String },
    /// A run does not have a server of the config, although nobody has disabled the server. Sent to the operator once for each server and
    /// reason, before a run.
    ServerUnavailable { server: String, reason: String },
    /// A server's tools, resources or prompts differ from the approved ones.
    ToolsChanged {
        server: String,
        #[serde(flatten)]
        drift: Box<Drift>,
    },
    /// A progress report that a server sent about a call.
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
    /// A log message of a server.
    ServerLog {
        server: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<u64>,
        level: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logger: Option<String>,
        data: serde_json::Value,
    },
    /// A connection was closed to make room for another server. The server's session state is lost.
    ConnectionEvicted { server: String, made_room_for: String },
    /// A connection was closed because it was not used for `idleTimeoutMs`.
    ConnectionIdle { server: String },
    /// A connection ended without a request to close it.
    ConnectionLost { server: String, reason: String },
    /// A server has tried to reach a host that its box may not reach.
    BoxRefused {
        server: String,
        /// The host name or the address that the server has tried to reach.
        host: String,
        /// The port. Absent if the server has only tried to resolve the name.
        #[serde(skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        reason: RefusalReason,
    },
    /// A server's question was cancelled without being shown.
    ElicitationCancelled { server: String, reason: String },
    /// A subscribed resource has changed.
    ResourceUpdated {
        server: String,
        uri: String,
        /// True if an agent has subscribed to this URI. Then the agent knows the URI already.
        #[serde(skip)]
        is_subscribed: bool,
    },
    /// A server was connected. Sent only with `trace`.
    Connected { server: String, connect_ms: f64 },
    /// A call has ended. Sent only with `trace`. Contains sizes, never contents.
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

impl Event {
    /// Returns whether a listener gets the event unchanged. A person approves exactly the command that was shown, so a request must not
    /// differ from the one that its digest approves. A listener compares the URI of an update with the URI to which it has subscribed.
    fn is_exact(&self) -> bool {
        match self {
            Self::ApprovalProposed { .. } | Self::ServerProposed { .. } => true,
            Self::ResourceUpdated { is_subscribed, .. } => *is_subscribed,
            Self::Warning { .. }
            | Self::ApprovalsDamaged { .. }
            | Self::ExecutableChanged { .. }
            | Self::NotGranted { .. }
            | Self::ServerUnavailable { .. }
            | Self::ToolsChanged { .. }
            | Self::Progress { .. }
            | Self::ServerLog { .. }
            | Self::ConnectionEvicted { .. }
            | Self::ConnectionIdle { .. }
            | Self::ConnectionLost { .. }
            | Self::BoxRefused { .. }
            | Self::ElicitationCancelled { .. }
            | Self::Connected { .. }
            | Self::Call { .. }
            | Self::ConfigReloaded { .. } => false,
        }
    }
}

/// A function that receives each event as JSON, on the thread on which the event occurs.
pub type EventListener = Arc<dyn Fn(serde_json::Value) + Send + Sync>;

/// Redacts events and sends them to listeners and log files.
#[derive(Clone)]
pub(super) struct Events {
    pub(super) listener: Option<EventListener>,
    pub(super) redactor: Arc<Redactor>,
    /// True if an event is also sent for each connection and each call.
    pub(super) trace: bool,
    /// The log files for events about a server.
    pub(super) server_logs: ServerLogs,
}

impl Events {
    pub(super) fn send(&self, event: &Event) {
        self.send_to(None, event);
    }

    /// Sends an event to this listener. Without one, sends it to the gateway's listener.
    pub(super) fn send_to(&self, listener: Option<&EventListener>, event: &Event) {
        self.server_logs.event(event.clone());
        self.tell(listener, event);
    }

    fn tell(&self, listener: Option<&EventListener>, event: &Event) {
        if let Some(listener) = listener.or(self.listener.as_ref()) {
            match serde_json::to_value(event) {
                Ok(json) => listener(if event.is_exact() { json } else { self.redactor.visible_json(&json) }),
                Err(error) => tracing::error!(%error, "an event cannot be serialised"),
            }
        }
    }

    pub(super) fn warn(&self, message: impl Into<String>) {
        let message = message.into();
        tracing::warn!("{}", self.redactor.readable(&message));
        self.send(&Event::Warning { message });
    }

    /// Returns whether a listener gets events about connections and calls.
    pub(super) fn traces(&self) -> bool {
        self.trace && self.listener.is_some()
    }

    /// Writes an event about a connection or a call to the server's log. Also sends the event to the gateway's listener, if the listener
    /// gets such events.
    pub(super) fn trace(&self, event: Event) {
        if self.traces() {
            self.tell(None, &event);
        }
        self.server_logs.event(event);
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// Returns the event as a listener gets it. `correct-horse` is a secret.
    fn told(event: &Event) -> serde_json::Value {
        let folder = tempfile::tempdir().unwrap();
        let redactor = Arc::new(Redactor::new(None, None));
        redactor.add([&"correct-horse".to_owned().into()]);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener: EventListener = Arc::new({
            let heard = Arc::clone(&heard);
            move |event| heard.lock().push(event)
        });
        let server_logs = ServerLogs::new(folder.path(), Arc::clone(&redactor));
        Events { listener: Some(listener), redactor, trace: false, server_logs }.send(event);
        let mut heard = heard.lock();
        heard.remove(0)
    }

    #[test]
    fn a_request_is_told_as_it_is_approved_and_a_uri_as_it_was_subscribed_to() {
        let request = json!({ "args": ["/tmp/attacker/evil/index.js", "a\u{200b}b", "correct-horse"], "cwd": "/tmp/evil/else/where" });
        assert_eq!(told(&Event::ApprovalProposed { request: request.clone() })["request"], request);
        let updated = |is_subscribed| {
            let uri = "file:///srv/data/prod/db".to_owned();
            told(&Event::ResourceUpdated { server: "a".to_owned(), uri, is_subscribed })
        };
        assert_eq!(updated(true), json!({ "type": "resource-updated", "server": "a", "uri": "file:///srv/data/prod/db" }));
        assert_eq!(updated(false)["uri"], "file://…/prod/db");
        let warning = told(&Event::Warning { message: "a\u{200b}b of correct-horse".to_owned() });
        assert_eq!(warning["message"], "ab of [redacted]");
    }
}
