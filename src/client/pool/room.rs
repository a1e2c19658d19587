//! Room for connections: the connections that runs hold, and the extra places that are opened beyond the limit while runs hold connections.
//! A place is the right to have one open connection.
//!
//! A server that was called in a run keeps its connection, and so its session, while the run lasts. If a new connection is needed and only
//! connections of such servers could be closed, an extra place is opened. There are at most as many extra places as normal places. Each
//! extra place is removed when a connection can be closed. While a run waits for a person, the connections of its servers may be closed
//! too, but only if no other connection can be closed. Otherwise an unanswered question would hold places for ever.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::lifecycle::ConnectionState;
use super::{ConnectionRequest, Connections, CountGuard, Entry, Shared};
use crate::error::{Error, OwnText, Result};

/// Interval at which a caller that waits for a place looks for one again. When a run begins to wait for a person, the connections of its
/// servers may be closed, but the waiting callers are not notified of this.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A function that returns whether a run is active. It returns false while the run waits for a person. This wait can take long, so the idle
/// connections of the run may be closed during the wait.
type GoesOn = Arc<dyn Fn() -> bool + Send + Sync>;

/// The hold of a run on a server's connection. While this value exists and the run is active, the connection is not closed to make room for
/// another server. The connection can still end for other reasons.
///
/// The references are weak: a run that outlives its gateway must not keep a server's process.
pub struct Hold {
    entry: Weak<Entry>,
    shared: Weak<Shared>,
    goes_on: GoesOn,
}

/// The runs that hold the connection of one server.
#[derive(Default)]
pub(super) struct Holders(Mutex<Vec<GoesOn>>);

impl Holders {
    /// Returns whether an active run holds the connection.
    fn keep(&self) -> bool {
        self.0.lock().iter().any(|goes_on| goes_on())
    }

    /// Returns whether any run holds the connection. A run that waits for a person counts too.
    fn is_held(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Removes a run. Returns true if no other run holds the connection.
    fn remove(&self, ended: &GoesOn) -> bool {
        let mut holders = self.0.lock();
        holders.retain(|holder| !std::ptr::addr_eq(Arc::as_ptr(holder), Arc::as_ptr(ended)));
        holders.is_empty()
    }
}

impl Hold {
    pub(super) fn new(entry: &Arc<Entry>, shared: &Arc<Shared>, goes_on: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let goes_on: GoesOn = Arc::new(goes_on);
        entry.holders.0.lock().push(Arc::clone(&goes_on));
        Self { entry: Arc::downgrade(entry), shared: Arc::downgrade(shared), goes_on }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(entry) = self.entry.upgrade() else { return };
        if entry.holders.remove(&self.goes_on)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.close_extra();
            shared.freed.notify_waiters();
        }
    }
}

/// A connection place beyond the limit of connections: the name of the server for which the place was opened.
pub(super) type ExtraPlace = Arc<str>;

/// The place of one open connection. `shared` owns the connections, so the reference back to `shared` is weak.
pub(super) struct ConnectionPlace {
    permit: Option<OwnedSemaphorePermit>,
    shared: Weak<Shared>,
}

impl ConnectionPlace {
    pub(super) fn new(permit: OwnedSemaphorePermit, shared: &Arc<Shared>) -> Self {
        Self { permit: Some(permit), shared: Arc::downgrade(shared) }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        // When a place becomes free, the extra places are removed first.
        if self.shared.upgrade().is_some_and(|shared| shared.extra.lock().pop().is_some())
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
        }
    }
}

impl Connections {
    /// Waits for a permit to open a connection.
    pub(super) async fn connection_permit(&self, wanted: &ConnectionRequest) -> Result<ConnectionPlace> {
        let shared = &self.shared;
        let closed = || Error::Closed { what: "gateway" };
        {
            let mut runtime = shared.runtime.lock();
            // `close_all` closes the permits before it removes the runtime's handle. So a handle that is stored here is still removed
            // later.
            if shared.permits.is_closed() {
                return Err(closed());
            }
            runtime.get_or_insert_with(Handle::current);
        }
        if let Ok(place) = Arc::clone(&shared.permits).try_acquire_owned() {
            return Ok(ConnectionPlace::new(place, shared));
        }
        let _waiting = CountGuard::new(&shared.waiting);
        let place = Arc::clone(&shared.permits).acquire_owned();
        let too_late = tokio::time::sleep(wanted.patience);
        tokio::pin!(place, too_late);
        let mut extra: Option<ExtraPlace> = None;
        loop {
            // The notification is enabled before the connections are checked, so that a connection that becomes idle between these two
            // steps is not missed.
            let freed = shared.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            // Each waiting caller opens at most one extra place at a time. Another caller may get this place, because all callers wait in
            // one queue.
            if !shared.make_room(&wanted.server) && !extra.as_ref().is_some_and(|place| shared.has_extra(place)) {
                extra = shared.open_extra(&wanted.server);
            }
            tokio::select! {
                biased;
                place = &mut place => return place.map(|place| ConnectionPlace::new(place, shared)).map_err(|_| closed()),
                () = &mut freed => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = &mut too_late => {
                    let holders = shared.holders().into_iter().map(OwnText::from).collect();
                    let limit = shared.limit + shared.extra.lock().len();
                    return Err(Error::TooManyConnections { server: wanted.server.clone(), limit, holders });
                }
            }
        }
    }
}

impl Entry {
    /// Returns whether the connection may be closed to make room: nobody uses it, and each run that holds it waits for a person.
    pub(super) fn can_give_way(&self) -> bool {
        self.uses.is_idle() && !self.holders.keep()
    }

    /// Returns the key by which the connections that may give way are sorted. Connections that no run holds come first. Among them, the
    /// connection that has been idle for the longest time comes first.
    pub(super) fn order_of_giving_way(&self) -> (bool, u64) {
        (self.holders.is_held(), self.uses.last())
    }

    /// Returns whether only active runs keep the connection open: at least one run holds it, and without these runs it could be closed.
    fn is_kept_by_runs(&self) -> bool {
        let could_give_way = || self.held.try_lock().is_ok_and(|held| held.as_ref().is_some_and(|held| !held.pinned));
        self.state() == ConnectionState::Connected && self.uses.is_idle() && self.holders.keep() && could_give_way()
    }
}

impl Shared {
    /// Opens an extra place for a server, if the connection of another server could be closed but a run holds it. Returns `None` if no
    /// place was opened.
    pub(super) fn open_extra(&self, server: &str) -> Option<ExtraPlace> {
        if !self.entries().values().any(|entry| entry.server != server && entry.is_kept_by_runs()) {
            return None;
        }
        let mut extra = self.extra.lock();
        if extra.len() >= self.limit {
            return None;
        }
        let place = ExtraPlace::from(server);
        extra.push(Arc::clone(&place));
        self.permits.add_permits(1);
        Some(place)
    }

    /// Returns whether an extra place still exists.
    pub(super) fn has_extra(&self, place: &ExtraPlace) -> bool {
        self.extra.lock().iter().any(|extra| Arc::ptr_eq(extra, place))
    }

    /// Closes connections that are idle and held by no run, until there is no extra place or no such connection.
    pub(super) fn close_extra(self: &Arc<Self>) {
        let extra = self.extra.lock().clone();
        // After the end of all connections there is no runtime, and nothing to close.
        let Some(runtime) = self.runtime.lock().clone().filter(|_| !extra.is_empty()) else { return };
        let _entered = runtime.enter();
        // Extra places whose connections are already being closed are skipped.
        let closing = self.giving_way.load(Ordering::Acquire);
        for server in extra.iter().skip(closing) {
            if !self.evict_idle(server) {
                return;
            }
        }
    }
}
