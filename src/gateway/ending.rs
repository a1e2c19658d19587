//! Ends everything that is live for a server: pending requests, permissions for more calls, subscriptions and its process.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Gateway;
use super::agent::Identity;
use super::core::Core;
use crate::blocking::blocking;
use crate::error::{Error, Result};
use crate::trust::ApprovalStatus;

/// The time for which the end of a gateway waits until the audit is written.
const AUDIT_ENDING: Duration = Duration::from_secs(2);
/// The time for which it waits until the last spans are exported.
const TELEMETRY_ENDING: Duration = Duration::from_secs(1);
/// The same for the audit where the JavaScript environment is torn down, which blocks the end of the process.
const AUDIT_KILLING: Duration = Duration::from_millis(500);

/// The reason why a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The approval was revoked, or the server's entry was removed from the config.
    Retired,
    /// Another process revoked the approval, or the approval has expired.
    ApprovalLost,
    /// A person has disabled it.
    Disabled,
    /// The server's entry in the config changed. Its subscriptions are kept, and are renewed if they are still approved.
    Reconfigured,
    /// The plugin was switched off.
    SwitchedOff,
}

impl Core {
    /// Ends what is live for a server. When this function returns, everything but the process has ended; the returned future waits for the process.
    pub(super) fn end(&self, name: &str, why: EndReason) -> impl Future<Output = ()> {
        match why {
            EndReason::Retired => self.registry.retire(name),
            // Requests under way end with the connection and then check the approval themselves.
            EndReason::ApprovalLost => {}
            EndReason::Disabled => self.registry.disable(name),
            EndReason::Reconfigured | EndReason::SwitchedOff => self.registry.interrupt(name),
        }
        self.forget_allowed_calls(name);
        if why != EndReason::Reconfigured {
            self.requests.subscriptions.forget(name);
        }
        self.connections.close(name)
    }

    /// Takes back what persons have allowed agents for the session.
    pub(super) fn forget_allowed_calls(&self, name: &str) {
        self.people.operator.allowed_calls.forget(name);
        self.agents.forget_allowed_calls(name);
    }

    /// Ends what is live of a server for one agent, whose model has disabled it. The process ends with the last agent that sees the server.
    pub(super) async fn end_for(self: &Arc<Self>, name: &str, identity: &Identity) {
        self.registry.disable_for(name, identity.id);
        identity.allowed_calls.forget(name);
        self.end_subscriptions_to(name, identity.id);
        if !self.is_enabled_for_any(name) {
            self.connections.close(name).await;
        }
    }

    /// Ends what is live for a server whose approval has expired or was revoked by another process.
    pub(super) async fn end_if_unapproved(&self, name: &str) {
        if self.is_unapproved(name) {
            self.end(name, EndReason::ApprovalLost).await;
        }
    }

    /// Returns whether no stage of a server's approval is valid. Reads the approval again.
    pub(super) fn is_unapproved(&self, name: &str) -> bool {
        let approval_status = self.registry.server(name).and_then(|server| self.approval_status(&server));
        matches!(approval_status, Ok(ApprovalStatus::Unapproved(_)))
    }
}

/// The bond of other work to a gateway.
pub(crate) struct Attached {
    /// Cancelled when the gateway closes. The work must end soon after.
    pub(crate) closed: CancellationToken,
    /// The end of the gateway waits until this is dropped.
    pub(crate) until_dropped: TaskTrackerToken,
}

impl Core {
    /// Waits for the work of others that ends with the gateway.
    pub(super) async fn end_attached(&self) {
        self.attached.close();
        self.attached.wait().await;
    }
}

impl Gateway {
    /// Attaches work of others that ends with the gateway.
    ///
    /// # Errors
    /// `ERR_CLOSED`.
    pub(crate) fn attach(&self) -> Result<Attached> {
        let until_dropped = self.core.attached.token();
        self.core.check_open()?;
        Ok(Attached { closed: self.core.closed.clone(), until_dropped })
    }

    /// Redacts an error of other work for this gateway.
    pub(crate) fn redacted(&self, error: Error) -> Error {
        self.core.redacted(error)
    }

    /// Begins to close: new requests are refused, and pending requests end.
    pub fn begin_close(&self) {
        self.core.closed.cancel();
        self.core.sandboxes.close();
    }

    /// Closes the gateway: ends its runs, calls, connections and processes, and writes what is left of the audit.
    pub async fn close(&self) {
        self.begin_close();
        self.core.end_attached().await;
        self.core.connections.close_all().await;
        self.core.events.server_logs.close().await;
        self.core.trust.approval_cache.end();
        self.core.telemetry.close(TELEMETRY_ENDING).await;
        let core = Arc::clone(&self.core);
        let closed = blocking(move || {
            core.audit.close(AUDIT_ENDING);
            // The last connection merges the journal into the database, which takes a moment.
            core.store.close();
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::warn!(%error, "the store was not closed");
        }
    }

    /// Releases resources that the last run still used. Must be called when nothing of the gateway runs any more.
    pub fn release(&self) {
        self.core.sandboxes.end();
    }

    /// Sends SIGKILL to every server without waiting. It is used when the JavaScript environment is torn down. Only the audit may take a moment.
    pub fn kill(&self) {
        self.begin_close();
        self.core.connections.kill_all();
        self.core.audit.close(AUDIT_KILLING);
    }
}
