//! Counts the uses of a connection, and records when the last use ended.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Number of uses of one connection. Each lease counts as a use, and so does each caller that waits for a lease.
pub(in crate::client) struct UseCount {
    count: AtomicUsize,
    /// Sequence number of the use that ended last. The numbers are shared by all connections.
    last: AtomicU64,
    ended_at: Mutex<Instant>,
    /// True while the keeper must be notified when the last use ends. The keeper sets this flag only if the connection is in use when an
    /// action of the keeper is due. Notifying the keeper after each call would make a guest's call 15 % slower.
    end_awaited: AtomicBool,
    ended: Notify,
}

impl UseCount {
    pub(in crate::client) fn new(now: Instant) -> Self {
        Self {
            count: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            ended_at: Mutex::new(now),
            end_awaited: AtomicBool::new(false),
            ended: Notify::new(),
        }
    }

    pub(in crate::client) fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a use, and stores its sequence number. Returns whether no other use is left.
    pub(in crate::client) fn end(&self, number: u64, now: Instant) -> bool {
        self.last.store(number, Ordering::Relaxed);
        *self.ended_at.lock() = now;
        let is_last = self.count.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.end_awaited.swap(false, Ordering::SeqCst) {
            self.ended.notify_one();
        }
        is_last
    }

    pub(in crate::client) fn is_idle(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Returns whether nobody uses the connection. If somebody uses it, [`UseCount::ended`] resolves when the last use ends.
    pub(super) fn is_idle_or_notifies(&self) -> bool {
        // The flag is set before the count is read, so that a use that ends between these two steps is not missed.
        self.end_awaited.store(true, Ordering::SeqCst);
        let is_idle = self.is_idle();
        if is_idle {
            self.end_awaited.store(false, Ordering::SeqCst);
        }
        is_idle
    }

    /// Resolves when the last use ends, if [`UseCount::is_idle_or_notifies`] returned false before.
    pub(in crate::client) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Returns the time at which the last use ended. If there was no use, returns the time at which the count was created.
    pub(super) fn ended_at(&self) -> Instant {
        *self.ended_at.lock()
    }

    /// Returns the sequence number of the use that ended last.
    pub(in crate::client) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_end_of_the_last_use_is_told_to_whoever_asked_and_else_to_nobody() {
        let now = Instant::now();
        let uses = UseCount::new(now);
        assert!(uses.is_idle_or_notifies() && uses.ended_at() == now);
        uses.begin();
        assert!(uses.end(1, now));
        assert!(uses.ended().now_or_never().is_none(), "no notification was requested");
        uses.begin();
        uses.begin();
        assert!(!uses.is_idle_or_notifies());
        assert!(!uses.end(2, now));
        assert!(uses.ended().now_or_never().is_none(), "the connection is still in use");
        let then = now + Duration::from_secs(5);
        assert!(uses.end(3, then));
        assert!(uses.ended().now_or_never().is_some());
        assert!(uses.is_idle() && uses.last() == 3 && uses.ended_at() == then);
    }
}
