//! Ends everything that is active for a server: pending requests, call permissions, subscriptions and its process.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Gateway;
use super::agent::Identity;
use super::core::Core;
use crate::blocking::blocking;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::trust::{ApprovalStatus, NotApprovedReason};

/// The maximum time that `close` waits until the audit is written.
const AUDIT_ENDING: Duration = Duration::from_secs(2);
/// The maximum time that `close` waits until the last spans are exported.
const TELEMETRY_ENDING: Duration = Duration::from_secs(1);
/// The maximum time that `kill` waits until the audit is written. This wait delays the end of the process when the JavaScript environment
/// is torn down. Two seconds after that, no process of a server may be left. On a machine without other work, writing takes a few
/// milliseconds.
const AUDIT_KILLING: Duration = Duration::from_millis(1500);

/// The reason why a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The server's entry was removed from the config, or the last task that defines it has ended.
    Retired,
    /// A person revoked the approval, or a model removed the server of its own agent.
    Revoked,
    /// Another process revoked the approval, or the approval has expired.
    ApprovalLost,
    /// A person has disabled the server, or the server of which it is a variant. The registry has already recorded this.
    Disabled,
    /// The server's entry in the config changed. Its subscriptions are kept, and are renewed if they are still approved.
    Reconfigured,
    /// The server's box has a file that it must not have, or could write the program of a server that was added since the start. The next
    /// call starts the server again.
    BoxOutdated,
    /// The plugin was switched off.
    SwitchedOff,
}

impl EndReason {
    /// Returns whether the server must stop at once. In this case, its box gets no time to end by itself.
    fn is_urgent(self) -> bool {
        match self {
            Self::Revoked | Self::ApprovalLost | Self::BoxOutdated => true,
            Self::Retired | Self::Disabled | Self::Reconfigured | Self::SwitchedOff => false,
        }
    }
}

impl Core {
    /// Ends everything that is active for a server. When this function returns, everything except the process has ended. The returned
    /// future waits until the process has ended.
    pub(super) fn end(&self, name: &str, why: EndReason) -> impl Future<Output = ()> {
        match why {
            EndReason::Retired | EndReason::Revoked => self.registry.retire(name),
            // Pending requests end with the connection. Then they check the approval themselves.
            EndReason::ApprovalLost | EndReason::Disabled => {}
            EndReason::Reconfigured | EndReason::BoxOutdated | EndReason::SwitchedOff => self.registry.interrupt(name),
        }
        match why {
            EndReason::Reconfigured | EndReason::BoxOutdated => self.forget_server(name),
            EndReason::Retired | EndReason::Revoked | EndReason::ApprovalLost | EndReason::Disabled | EndReason::SwitchedOff => {
                self.forget_revoked(name);
            }
        }
        async move { if why.is_urgent() { self.connections.close_at_once(name).await } else { self.connections.close(name).await } }
    }

    /// Removes the data that ends with a server's approval: the data that agents keep about the server, and the subscriptions to its
    /// resources.
    pub(super) fn forget_revoked(&self, name: &str) {
        self.forget_server(name);
        self.requests.subscriptions.forget(name);
    }

    /// Disables a server because a person has decided so. Also disables its variants, except those that a person has enabled or disabled
    /// separately. Returns when their processes have ended.
    pub(super) async fn disable(&self, name: &str) {
        let hidden = self.registry.disable(name);
        let ended: Vec<_> = hidden.iter().map(|name| self.end(name, EndReason::Disabled)).collect();
        futures::future::join_all(ended).await;
    }

    /// Removes the data that agents keep about a server until the server's approval ends: session permissions, and shapes of results.
    pub(super) fn forget_server(&self, name: &str) {
        self.people.operator.forget_server(name);
        self.agents.forget_server(name);
    }

    /// Ends everything that is active for a server and one agent, because the agent's model has disabled the server. The process is ended
    /// if the server is not enabled for any other agent.
    pub(super) async fn end_for(self: &Arc<Self>, name: &str, identity: &Identity) {
        self.registry.disable_for(name, identity.id);
        identity.forget_server(name);
        self.end_subscriptions_to(name, identity.id);
        if !self.is_enabled_for_any(name) {
            self.connections.close(name).await;
        }
    }

    /// Ends everything that is active for a server, if its approval has expired or another process has revoked it. If the server has been
    /// approved again since, ends the work that began under the revoked approval.
    pub(super) async fn end_if_unapproved(&self, name: &str) {
        if self.is_unapproved(name) {
            self.end(name, EndReason::ApprovalLost).await;
        } else {
            self.connections.close_revoked(name).await;
        }
    }

    /// Returns the id of a server's approval. Renewals of the approval keep this id. After a revocation, a new approval has a new id. Reads
    /// the approval again.
    pub(super) fn approval_id(&self, server: &ServerDefinition) -> Result<String> {
        let id = self.trust.approvals.first_approval_id(&server.key())?;
        id.ok_or_else(|| NotApprovedReason::Never.refusal(&server.name))
    }

    /// Returns whether no stage of a server's approval is valid. Reads the approval again.
    pub(super) fn is_unapproved(&self, name: &str) -> bool {
        let approval_status = self.registry.server(name).and_then(|server| self.approval_status(&server));
        matches!(approval_status, Ok(ApprovalStatus::Unapproved(_)))
    }
}

/// A link between a gateway and other work that must end with it.
pub(crate) struct Attached {
    /// Cancelled when the gateway closes. The work must end soon after.
    pub(crate) closed: CancellationToken,
    /// The gateway's `close` waits until this value is dropped.
    pub(crate) until_dropped: TaskTrackerToken,
}

impl Core {
    /// Waits until the work that is attached to the gateway has ended.
    pub(super) async fn end_attached(&self) {
        self.attached.close();
        self.attached.wait().await;
    }
}

impl Gateway {
    /// Attaches other work to the gateway. `close` ends this work, and waits for its end.
    ///
    /// # Errors
    /// `ERR_CLOSED`.
    pub(crate) fn attach(&self) -> Result<Attached> {
        let until_dropped = self.core.attached.token();
        self.core.check_open()?;
        Ok(Attached { closed: self.core.closed.clone(), until_dropped })
    }

    /// Redacts an error of work that is attached to the gateway ([`Gateway::attach`]).
    pub(crate) fn redacted(&self, error: Error) -> Error {
        self.core.redacted(error)
    }

    /// Registers a secret of work that is attached to the gateway ([`Gateway::attach`]) for redaction.
    pub(crate) fn keep_secret(&self, secret: &SecretString) {
        self.core.redactor.add([secret]);
    }

    /// Starts to close the gateway: new requests are refused, and pending requests end.
    pub fn begin_close(&self) {
        self.core.closed.cancel();
        self.core.sandboxes.close();
        if let Some(embedder) = &self.core.embedder {
            embedder.begin_close();
        }
    }

    /// Closes the gateway: ends its runs, calls, connections and processes, and writes the rest of the audit.
    pub async fn close(&self) {
        self.begin_close();
        self.core.end_attached().await;
        self.core.connections.close_all().await;
        self.core.events.server_logs.close().await;
        self.core.trust.approval_cache.end();
        self.core.telemetry.close(TELEMETRY_ENDING).await;
        let core = Arc::clone(&self.core);
        let closed = blocking(move || {
            core.embedder.iter().for_each(|embedder| embedder.close());
            core.audit.close(AUDIT_ENDING);
            // Closing the last connection to the database merges the journal into it, which takes noticeable time.
            core.store.close();
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::warn!(%error, "the store was not closed");
        }
    }

    /// Releases the resources that the last run still used. Call this only when no work of the gateway is running.
    pub fn release(&self) {
        self.core.sandboxes.end();
        self.core.fetch.fetcher().end();
        self.core.network.end();
    }

    /// Sends SIGKILL to every server without waiting for its end. Used when the JavaScript environment is torn down. Only writing the audit
    /// can take a short time.
    pub fn kill(&self) {
        self.begin_close();
        self.core.connections.kill_all();
        self.core.embedder.iter().for_each(|embedder| embedder.close());
        self.core.audit.close(AUDIT_KILLING);
    }
}
