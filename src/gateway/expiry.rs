//! Ends servers at the moment when their approval expires. Also checks whether other processes have changed approvals.

use std::sync::Weak;
use std::time::{Duration, SystemTime};

use super::core::Core;
use crate::blocking::blocking;

/// The longest time until approvals are read again while servers are connected. Another process can revoke an approval, or shorten its
/// time.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

impl Core {
    /// Waits until the next approval ends, and then ends the servers that have no valid approval any more. Repeats this until the gateway
    /// closes. Each new approval and each new connection to a server restart the wait (`approvals_may_end`).
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

    /// Restarts the wait for the next end of an approval.
    pub(super) fn approvals_may_end(&self) {
        self.trust.approvals_may_end.notify_one();
    }

    /// Returns the time to wait until the approvals are checked again. Returns `None` while no server is connected. Reads the approvals.
    fn time_to_next_look(&self, now: SystemTime) -> Option<Duration> {
        if self.connections.used().is_empty() {
            return None;
        }
        Some(wait(self.trust.approvals.snapshot().ok().and_then(|approvals| approvals.next_end(now)), now))
    }

    async fn end_expired(&self) {
        for name in self.connections.used() {
            self.end_if_unapproved(&name).await;
        }
    }
}

/// Returns the time until the next approval ends, but at most `LONGEST_WAIT`, because another process may change this end.
fn wait(next_end: Option<SystemTime>, now: SystemTime) -> Duration {
    next_end.map_or(LONGEST_WAIT, |end| end.duration_since(now).unwrap_or_default().min(LONGEST_WAIT))
}

async fn watch(core: Weak<Core>) {
    loop {
        let Some(open) = core.upgrade() else { return };
        let changed = std::sync::Arc::clone(&open.trust.approvals_may_end);
        let Ok(wait) = blocking(move || Ok(open.time_to_next_look(SystemTime::now()))).await else { return };
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
        open.end_boxes_of_changes(None).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approvals_are_read_again_when_one_ends_and_at_least_each_minute() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        let of = |seconds| wait(Some(now + Duration::from_secs(seconds)), now).as_secs();
        assert_eq!([of(0), of(5), of(60), of(3_600)], [0, 5, 60, 60]);
        assert_eq!(wait(None, now), LONGEST_WAIT);
    }
}
