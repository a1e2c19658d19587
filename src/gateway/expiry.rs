//! Ends servers at the moment at which their approval expires.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use super::core::Core;
use crate::blocking::blocking;

impl Core {
    /// Waits until the next approval ends, ends the servers that then have no valid approval, and repeats this until the gateway closes. Waits without a limit while no
    /// approval ends: a new approval, and a new connection to a server, start the wait again (`approvals_may_end`).
    pub(super) fn watch_expiry(&self) {
        let Some(runtime) = self.trust.approval_cache.runtime() else { return };
        let (core, closed) = (Weak::clone(&self.weak), self.closed.clone());
        drop(runtime.spawn(async move {
            tokio::select! {
                () = closed.cancelled() => {}
                () = watch(core) => {}
            }
        }));
    }

    /// Starts the wait for the next end of an approval again.
    pub(super) fn approvals_may_end(&self) {
        self.trust.approvals_may_end.notify_one();
    }

    /// Returns the time until the next approval ends. Reads the approvals.
    fn time_to_next_end(&self, now: SystemTime) -> Option<Duration> {
        let end = self.trust.approvals.snapshot().ok()?.next_end(now)?;
        Some(end.duration_since(now).unwrap_or_default())
    }

    async fn end_expired(&self) {
        for name in self.connections.used() {
            self.end_if_unapproved(&name).await;
        }
    }
}

async fn watch(core: Weak<Core>) {
    loop {
        let Some(open) = core.upgrade() else { return };
        let changed = std::sync::Arc::clone(&open.trust.approvals_may_end);
        let Ok(wait) = blocking(move || Ok(open.time_to_next_end(SystemTime::now()))).await else { return };
        let expired = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => continue,
            () = expired => {}
        }
        let Some(open) = core.upgrade() else { return };
        open.end_expired().await;
    }
}
