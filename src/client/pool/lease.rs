//! Lease of a connection to one caller.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::lifecycle::Closed;
use super::room::Hold;
use super::{Entry, Shared};
use crate::client::connection::Connection;

/// Lease of a connection. While the lease exists, the connection is not closed to make room for another connection.
pub struct Lease {
    pub(in crate::client) connection: Arc<Connection>,
    pub(super) origin: LeaseOrigin,
    pub(super) in_use: Use,
}

/// Origin of a lease's connection: it already existed, or it was made for the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseOrigin {
    /// The connection already existed.
    Shared,
    /// The connection was made for this lease, and is the first connection to the server.
    First,
    /// The connection was made for this lease. The value is the reason why the previous connection ended.
    After(Closed),
}

impl Lease {
    /// Prevents the server's connection from being closed to make room for another server. This ends when the returned value is dropped,
    /// and has no effect while `goes_on` returns false.
    #[must_use]
    pub fn hold(&self, goes_on: impl Fn() -> bool + Send + Sync + 'static) -> Hold {
        Hold::new(&self.in_use.entry, &self.in_use.shared, goes_on)
    }

    /// Returns whether the connection already existed, or was made for this lease.
    #[must_use]
    pub fn origin(&self) -> LeaseOrigin {
        self.origin
    }
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// A counted use of a server's connection slot.
pub(super) struct Use {
    entry: Arc<Entry>,
    shared: Arc<Shared>,
}

impl Use {
    pub(super) fn new(entry: &Arc<Entry>, shared: &Arc<Shared>) -> Self {
        entry.uses.begin();
        Self { entry: Arc::clone(entry), shared: Arc::clone(shared) }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if self.entry.uses.end(self.shared.clock.fetch_add(1, Ordering::Relaxed), Instant::now()) {
            self.shared.close_extra();
            self.shared.freed.notify_waiters();
        }
    }
}
