//! The observer that reports events of connections to the gateway.

use std::sync::{Arc, Weak};

use super::agent::Identity;
use super::callbacks::CallScope;
use super::caller::event_of;
use super::core::Core;
use super::events::Event;
use super::granted::Granted;
use crate::catalog::Manifest;
use crate::client::{Caller, Notice, Observer};
use crate::error::{Error, Result};
use crate::store::audit::ConnectionChange;

/// The reason that is shown for a lost connection if the server's messages may not be shown.
const ENDED: &str = "the connection ended. The server is not fully approved and enabled, so its last output is only in its log";

pub(super) struct CoreObserver(pub(super) Weak<Core>);

impl CoreObserver {
    fn record(&self, server: &str, change: ConnectionChange) {
        if let Some(core) = self.0.upgrade() {
            core.record_connection(server, change, None, None);
        }
    }

    fn send(&self, event: &Event) {
        if let Some(core) = self.0.upgrade() {
            core.events.send(event);
        }
    }
}

impl Observer for CoreObserver {
    fn lost(&self, server: &str, reason: &str) {
        self.record(server, ConnectionChange::Lost);
        // The reason contains the last lines of the server's standard error.
        let reason = if self.may_send_messages(server) { reason } else { ENDED };
        self.send(&Event::ConnectionLost { server: server.to_owned(), reason: reason.to_owned() });
    }

    fn evicted(&self, server: &str, made_room_for: &str) {
        self.record(server, ConnectionChange::Evicted);
        self.send(&Event::ConnectionEvicted { server: server.to_owned(), made_room_for: made_room_for.to_owned() });
    }

    fn idled_out(&self, server: &str) {
        self.record(server, ConnectionChange::Idle);
        self.send(&Event::ConnectionIdle { server: server.to_owned() });
    }

    fn closed(&self, server: &str) {
        self.record(server, ConnectionChange::Closed);
    }

    fn manifest_read(&self, server: &str, manifest: &Arc<Manifest>) {
        let Some(core) = self.0.upgrade() else { return };
        if let Ok(definition) = core.registry.server(server)
            && let Err(error) = core.report_drift(&definition, manifest)
        {
            tracing::warn!(server, %error, "the changed lists could not be compared with the approved ones");
        }
    }

    fn notice(&self, server: &str, notice: &Notice) {
        let Some(core) = self.0.upgrade() else { return };
        if let Some(event) = event_of(&core.redactor, server, None, None, notice) {
            core.events.send(&event);
        }
    }

    fn resource_updated(&self, server: &str, uri: &str) {
        if let Some(core) = self.0.upgrade() {
            core.tell_resource_updated(server, uri);
        }
    }

    fn elicited(&self, server: &str) {
        if let Some(core) = self.0.upgrade() {
            core.remember_elicits(server);
        }
    }

    fn question_cancelled(&self, server: &str, reason: &str) {
        self.send(&Event::ElicitationCancelled { server: server.to_owned(), reason: reason.to_owned() });
    }

    fn may_send_messages(&self, server: &str) -> bool {
        self.0.upgrade().is_some_and(|core| core.may_send_messages(server))
    }

    fn approval(&self, server: &str) -> Result<String> {
        let core = self.0.upgrade().ok_or(Error::Closed { what: "gateway" })?;
        core.approval_id(&*core.registry.server(server)?)
    }

    fn revoked(&self, server: &str) {
        let Some(core) = self.0.upgrade() else { return };
        core.record_connection(server, ConnectionChange::Closed, None, None);
        core.forget_revoked(server);
    }

    fn ends_unapproved(&self, server: &str, approval: &str) -> bool {
        let Some(core) = self.0.upgrade() else { return false };
        let ends = core.is_unapproved(server) || self.approval(server).is_ok_and(|now| now != approval);
        if ends {
            let server = server.to_owned();
            // This function may run on a network thread, which other work must not wait for. So a task of the runtime does the work.
            if let Some(runtime) = core.trust.approval_cache.runtime() {
                runtime.spawn(async move { core.end_if_unapproved(&server).await });
            }
        }
        ends
    }

    fn nobody_in_particular(&self) -> Arc<dyn Caller> {
        match self.0.upgrade() {
            Some(core) => core.caller(&core.people.session, None),
            None => Arc::new(Nobody),
        }
    }
}

/// The caller that is used after the gateway was dropped.
struct Nobody;

impl Caller for Nobody {
    fn identity(&self) -> u64 {
        0
    }

    fn can_elicit(&self) -> bool {
        false
    }

    fn elicit(&self, _elicitation: crate::client::Elicitation) -> Option<crate::client::Reply<crate::client::ElicitationAnswer>> {
        None
    }

    fn sample(&self, _sampling: crate::client::Sampling) -> Option<crate::client::Reply<serde_json::Value>> {
        None
    }

    fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}

    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }
}

/// Returns the operator's own scope, for questions outside of any call.
pub(super) fn session(operator: &Arc<Identity>, everything: &Arc<Granted>) -> Arc<CallScope> {
    Arc::new(CallScope::new(operator, Arc::clone(everything), &operator.callbacks, None, None, None))
}
