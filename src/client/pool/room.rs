//! Room for connections: which servers runs hold, and places beyond the limit while they do.
//!
//! A server that was called in a run keeps its connection, and so its session, while the run lasts. If a connection is needed and only such
//! servers could give way, an extra place is opened, up to as many as the limit itself. Each extra place is taken back as soon as a
//! connection can be closed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::OwnedSemaphorePermit;

use super::lifecycle::ConnectionState;
use super::{Entry, Shared};

/// Keeps a server's connection from being closed to make room, until it is dropped. The connection can still end for other reasons.
///
/// The references are weak: a run that outlives its gateway must not keep a server's process.
pub struct Hold {
    entry: Weak<Entry>,
    shared: Weak<Shared>,
}

impl Hold {
    pub(super) fn new(entry: &Arc<Entry>, shared: &Arc<Shared>) -> Self {
        entry.holds.fetch_add(1, Ordering::SeqCst);
        Self { entry: Arc::downgrade(entry), shared: Arc::downgrade(shared) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(entry) = self.entry.upgrade() else { return };
        if entry.holds.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(shared) = self.shared.upgrade()
        {
            shared.close_extra();
            shared.freed.notify_waiters();
        }
    }
}

/// The place of one open connection. The connections are a part of `shared`, so the reference back is weak.
pub(super) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    shared: Weak<Shared>,
}

impl Place {
    pub(super) fn new(permit: OwnedSemaphorePermit, shared: &Arc<Shared>) -> Self {
        Self { permit: Some(permit), shared: Arc::downgrade(shared) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The first places that become free are the extra ones.
        if self.shared.upgrade().is_some_and(|shared| shared.extra.lock().pop().is_some())
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

impl Entry {
    /// Returns whether the connection may be closed to make room: nobody uses it, and no run holds it.
    pub(super) fn can_give_way(&self) -> bool {
        self.uses.is_idle() && !self.is_held()
    }

    fn is_held(&self) -> bool {
        self.holds.load(Ordering::SeqCst) > 0
    }
}

impl Shared {
    /// Opens an extra place for a server, if a run holds the connection of another server that could give way otherwise. Returns whether
    /// it did.
    pub(super) fn open_extra(&self, server: &str) -> bool {
        let is_kept = |entry: &Arc<Entry>| {
            entry.server != server && entry.state() == ConnectionState::Connected && entry.uses.is_idle() && entry.is_held()
        };
        if !self.entries().values().any(is_kept) {
            return false;
        }
        let mut extra = self.extra.lock();
        if extra.len() >= self.limit {
            return false;
        }
        extra.push(server.to_owned());
        self.permits.add_permits(1);
        true
    }

    /// Closes connections that are idle and held by no run, until there is no extra place or no such connection.
    pub(super) fn close_extra(self: &Arc<Self>) {
        let extra = self.extra.lock().clone();
        // After the end of all connections there is no runtime, and nothing to close.
        let Some(runtime) = self.runtime.lock().clone().filter(|_| !extra.is_empty()) else { return };
        let _entered = runtime.enter();
        // The places that are being given back already are not counted again.
        let closing = self.giving_way.load(Ordering::Acquire);
        for server in extra.iter().skip(closing) {
            if !self.evict_idle(server) {
                return;
            }
        }
    }
}
