//! The end of all that is live of a server: pending requests, grants, subscriptions, its process.

use std::future::Future;

use super::core::Core;
use crate::registry::Decider;
use crate::trust::Standing;

/// The reason for which a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// Its approval was taken back, or its entry in the config is gone.
    Retired,
    /// Its approval was taken back by another process, or has expired: what it does no longer holds here either.
    ApprovalLost,
    /// Somebody has disabled it.
    Disabled(Decider),
    /// Its entry in the config is another. Its subscriptions stay: they are asked for again where they are approved still.
    Reconfigured,
    /// The plugin was switched off.
    SwitchedOff,
}

impl Core {
    /// Ends what is live of a server. Everything but its process has ended when this returns; the future waits for the process.
    pub(super) fn end(&self, name: &str, why: EndReason) -> impl Future<Output = ()> {
        match why {
            EndReason::Retired => self.registry.retire(name),
            // Requests under way end with the connection, and find out why.
            EndReason::ApprovalLost => {}
            EndReason::Disabled(decider) => self.registry.disable(name, decider),
            EndReason::Reconfigured | EndReason::SwitchedOff => self.registry.interrupt(name),
        }
        self.people.session.grants.forget(name);
        if why != EndReason::Reconfigured {
            self.requests.subscriptions.forget(name);
        }
        self.connections.close(name)
    }

    /// Ends what is still live here of a server whose approval another process took back, or has expired.
    pub(super) async fn end_if_unapproved(&self, name: &str) {
        let standing = self.registry.server(name).and_then(|server| self.standing(&server));
        if matches!(standing, Ok(Standing::Unapproved(_))) {
            self.end(name, EndReason::ApprovalLost).await;
        }
    }
}
