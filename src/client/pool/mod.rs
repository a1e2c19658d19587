//! The live connections. Each server has at most one connection, which is made when it is first needed. The number of connections is
//! limited.

#[cfg(test)]
mod ended_tests;
pub(in crate::client) mod keeper;
pub(in crate::client) mod lease;
pub(in crate::client) mod lifecycle;
pub(in crate::client) mod room;
pub(in crate::client) mod use_count;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::open::Launch;
use super::connection::{Connection, Ending};
use super::inbound::caller::Observer;
use super::pool::lease::Use;
pub use super::pool::lease::{Lease, LeaseOrigin};
use super::pool::lifecycle::{Closed, ConnectDecision, ConnectionState, Lifecycle, Transition};
pub use super::pool::room::Hold;
use super::pool::room::{ConnectionPlace, ExtraPlace, Holders};
use super::pool::use_count::UseCount;
use super::stdio::watchdog::Watchdog;
use crate::error::{Error, Result};

/// The requirements that a caller has for the connection to a server.
#[derive(Debug, Clone)]
pub struct ConnectionRequest {
    pub server: String,
    /// True if the connection must never be closed to make room for another server.
    pub pinned: bool,
    /// Idle time after which the connection is closed. If this is `None`, the connection stays open until the gateway closes.
    pub idle_timeout: Option<Duration>,
    /// Interval between pings. If this is `None`, no pings are sent.
    pub keep_alive: Option<Duration>,
    /// Longest wait for a free connection slot.
    pub patience: Duration,
}

/// The connections of a gateway.
pub struct Connections {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    watchdog: Arc<Watchdog>,
    pub(super) observer: Arc<dyn Observer>,
    limit: usize,
    max_reconnects: u32,
    /// Permits for open connections. Waiting callers get the permits in order.
    permits: Arc<Semaphore>,
    /// The extra places that were opened beyond the limit of connections.
    extra: Mutex<Vec<ExtraPlace>>,
    waiting: AtomicUsize,
    /// Number of connections that are being closed.
    giving_way: AtomicUsize,
    /// Notified when a connection becomes idle or has been closed.
    freed: Notify,
    /// Background tasks that close connections.
    pub(super) closings: TaskTracker,
    /// The runtime for the tasks that close connections. It is stored, because the last use of a connection may end on a thread that has no
    /// runtime. `None` once all connections are closed, because a handle keeps the descriptors of its runtime open.
    runtime: Mutex<Option<Handle>>,
    clock: AtomicU64,
}

/// State of one server: its connection slot, its failures and its uses.
pub(super) struct Entry {
    pub(super) server: String,
    /// The live connection. A caller holds the lock while it connects, so many simultaneous first calls start only one process.
    held: tokio::sync::Mutex<Option<LiveConnection>>,
    lifecycle: Mutex<Lifecycle>,
    pub(super) uses: UseCount,
    /// The runs that keep the connection open.
    holders: Holders,
    /// Token with which an attempt to connect is cancelled.
    interrupt: Mutex<CancellationToken>,
}

/// A live connection in its slot.
struct LiveConnection {
    connection: Arc<Connection>,
    /// Id of the approval under which the connection was opened ([`Observer::approval`]).
    approval: String,
    pinned: bool,
    keeper: AbortHandle,
    _place: ConnectionPlace,
}

impl LiveConnection {
    /// Closes the connection. Before that, stops the keeper (the maintenance task), because the next connection of this slot gets its own
    /// keeper.
    async fn close(&self, ending: Ending) {
        self.keeper.abort();
        self.connection.close_by(ending).await;
    }
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Guard of an attempt to connect. If the guard is dropped before the attempt has succeeded or failed, the state becomes idle again.
struct Attempt<'a>(&'a Entry);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.0.state() == ConnectionState::Connecting {
            self.0.on(Transition::GivenUp);
        }
    }
}

/// Guard that increments a counter, and decrements the counter when it is dropped.
struct CountGuard<'a>(&'a AtomicUsize);

impl<'a> CountGuard<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::AcqRel);
        Self(counter)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Entry {
    /// Returns whether the slot holds a connection that has ended.
    fn has_ended(&self) -> bool {
        self.held.try_lock().is_ok_and(|held| held.as_ref().is_some_and(|held| !held.connection.is_live()))
    }

    fn state(&self) -> ConnectionState {
        self.lifecycle().state()
    }

    fn on(&self, transition: Transition) {
        self.lifecycle().on(transition, Instant::now());
    }

    fn lifecycle(&self) -> MutexGuard<'_, Lifecycle> {
        self.lifecycle.lock()
    }

    fn interrupted(&self) -> CancellationToken {
        self.interrupt.lock().clone()
    }

    fn interrupt(&self) {
        std::mem::take(&mut *self.interrupt.lock()).cancel();
    }

    /// Closes the connection. Also cancels an attempt to connect, and the calls of all callers that wait for the connection.
    async fn end(&self, observer: &dyn Observer, ending: Ending) {
        let taking = self.held.lock();
        tokio::pin!(taking);
        let mut place = tokio::select! {
            biased;
            place = &mut taking => place,
            // The request for the lock is already queued, so no other caller can begin an attempt before this one gets the lock.
            () = async { self.interrupt() } => taking.await,
        };
        let held = place.take();
        drop(place);
        if let Some(held) = held {
            self.on(Transition::Close(Closed::Ended));
            observer.closed(&self.server);
            held.close(ending).await;
        }
    }

    /// Waits until enough time has passed since earlier failures. Fails with `ERR_SERVER_UNAVAILABLE` while the circuit breaker refuses
    /// attempts.
    async fn connect_decision(&self) -> Result<()> {
        loop {
            let (permit, failures) = {
                let lifecycle = self.lifecycle();
                (lifecycle.connect_decision(Instant::now()), lifecycle.failures())
            };
            match permit {
                ConnectDecision::Now => return Ok(()),
                ConnectDecision::Wait(left) => tokio::time::sleep(left).await,
                ConnectDecision::Refused(left) => {
                    return Err(Error::ServerUnavailable {
                        server: self.server.clone(),
                        failures,
                        retry_in_ms: crate::client::connection::millis(left),
                    });
                }
            }
        }
    }
}

impl Connections {
    #[must_use]
    pub fn new(watchdog: Watchdog, observer: Arc<dyn Observer>, max_connections: usize, max_reconnects: u32) -> Self {
        let shared = Shared {
            entries: Mutex::default(),
            watchdog: Arc::new(watchdog),
            observer,
            limit: max_connections,
            max_reconnects,
            permits: Arc::new(Semaphore::new(max_connections)),
            extra: Mutex::default(),
            waiting: AtomicUsize::new(0),
            giving_way: AtomicUsize::new(0),
            freed: Notify::new(),
            closings: TaskTracker::new(),
            runtime: Mutex::default(),
            clock: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the live connection of a server, or makes a new connection. A connection that was opened under an approval that was revoked
    /// since is closed first. `launch` is only awaited for a new connection, because it may ask a person.
    ///
    /// # Errors
    /// The errors of `launch` and of [`Observer::approval`], `ERR_TOO_MANY_CONNECTIONS`, `ERR_SERVER_UNAVAILABLE`, and the errors of
    /// [`Connection::open`].
    pub async fn get(&self, wanted: &ConnectionRequest, launch: impl Future<Output = Result<Launch>>) -> Result<Lease> {
        let entry = self.entry(&wanted.server);
        // The token is read before the wait, so that a close cancels all waiting callers and not only the first.
        let interrupted = entry.interrupted();
        tokio::select! {
            biased;
            () = interrupted.cancelled() => {
                let problem = "it was revoked, disabled or changed while this call waited for it".to_owned();
                Err(Error::ConnectFailed { server: wanted.server.clone(), problem: problem.into() })
            }
            lease = self.lease(&entry, wanted, launch) => lease,
        }
    }

    /// Returns the live connection of a server. Returns `None` if the server has none.
    pub async fn live(&self, server: &str) -> Option<Lease> {
        let entry = self.shared.entries().get(server).cloned()?;
        let in_use = Use::new(&entry, &self.shared);
        let place = entry.held.lock().await;
        let connection = place.as_ref().map(|held| &held.connection).filter(|connection| connection.is_live()).cloned()?;
        Some(Lease { connection, origin: LeaseOrigin::Shared, in_use })
    }

    async fn lease(&self, entry: &Arc<Entry>, wanted: &ConnectionRequest, launch: impl Future<Output = Result<Launch>>) -> Result<Lease> {
        let in_use = Use::new(entry, &self.shared);
        let mut place = entry.held.lock().await;
        // The approval is read under the lock, so that no caller can compare an older approval with a newer connection. The approval is
        // read before `launch` checks it, so in the worst case a connection is treated as older than it is.
        let approval = self.shared.observer.approval(&entry.server)?;
        if let Some(held) = place.as_ref().filter(|held| held.connection.is_live() && held.approval == approval) {
            return Ok(Lease { connection: Arc::clone(&held.connection), origin: LeaseOrigin::Shared, in_use });
        }
        if let Some(old) = place.take() {
            let reason = if old.connection.is_live() { Closed::Revoked } else { Closed::Lost };
            // The old connection is closed first, because its process may still hold resources that the new process needs.
            let _ = self.shared.let_go(entry, old, reason, None).await;
        }
        let (held, before) = self.connect(entry, wanted, approval, launch).await?;
        let connection = Arc::clone(&held.connection);
        *place = Some(held);
        Ok(Lease { connection, origin: before.map_or(LeaseOrigin::First, LeaseOrigin::After), in_use })
    }

    async fn connect(
        &self,
        entry: &Arc<Entry>,
        wanted: &ConnectionRequest,
        approval: String,
        launch: impl Future<Output = Result<Launch>>,
    ) -> Result<(LiveConnection, Option<Closed>)> {
        entry.connect_decision().await?;
        let before = if let ConnectionState::Closed(reason) = entry.state() { Some(reason) } else { None };
        let launch = launch.await?;
        let place = launch.clock.without(self.connection_permit(wanted)).await?;
        entry.on(Transition::Connect);
        let attempt = Attempt(entry);
        let opened = Connection::open(&launch, &self.shared.watchdog, Arc::clone(&self.shared.observer)).await;
        entry.on(if opened.is_ok() { Transition::Ready } else { Transition::Failed });
        drop(attempt);
        let connection = Arc::new(opened?);
        let (of_entry, of_shared) = (Arc::downgrade(entry), Arc::downgrade(&self.shared));
        let keeper = tokio::spawn(keeper::keep(of_entry, of_shared, Arc::clone(&connection), wanted.clone(), approval.clone()));
        Ok((LiveConnection { connection, approval, pinned: wanted.pinned, keeper: keeper.abort_handle(), _place: place }, before))
    }

    /// Closes a server's connection if it was opened under an approval that was revoked since, and the server has another approval now. If
    /// a caller is connecting at this time, this method does not wait for the caller, because each caller makes the same comparison.
    pub async fn close_revoked(&self, server: &str) {
        let Some(entry) = self.shared.entries().get(server).cloned() else { return };
        let is_revoked = |held: &mut LiveConnection| self.shared.observer.approval(server).is_ok_and(|now| now != held.approval);
        let revoked = entry.held.try_lock().ok().and_then(|mut place| place.take_if(is_revoked));
        if let Some(revoked) = revoked {
            let _ = self.shared.let_go(&entry, revoked, Closed::Revoked, None).await;
        }
    }

    /// Closes a server's connection, and cancels an attempt to connect. Used when the server was revoked, disabled or changed.
    pub async fn close(&self, server: &str) {
        let Some(entry) = self.shared.entries().get(server).cloned() else { return };
        self.close_by(&entry, Ending::Orderly).await;
    }

    /// Closes a server's connection like [`Self::close`], but gives a process in a box no time to end by itself. Used when a person no longer
    /// trusts the server, or when the box gives the server access to a file that the server must no longer access.
    pub async fn close_at_once(&self, server: &str) {
        let Some(entry) = self.shared.entries().get(server).cloned() else { return };
        self.close_by(&entry, Ending::AtOnce).await;
    }

    async fn close_by(&self, entry: &Entry, ending: Ending) {
        entry.end(&*self.shared.observer, ending).await;
        entry.lifecycle().reset();
    }

    /// Closes a server's connection, so that the next call makes a new one. First waits until a running attempt to connect has ended.
    pub async fn renew(&self, server: &str) {
        let Some(entry) = self.shared.entries().get(server).cloned() else { return };
        let held = entry.held.lock().await.take();
        if let Some(held) = held {
            entry.on(Transition::Close(Closed::Ended));
            self.shared.observer.closed(server);
            held.close(Ending::Orderly).await;
        }
        entry.lifecycle().reset();
    }

    /// Closes all connections in parallel, and then the watchdog. After this, no new connection can be made.
    pub async fn close_all(&self) {
        self.shared.permits.close();
        *self.shared.runtime.lock() = None;
        let entries: Vec<_> = self.shared.entries().drain().map(|(_, entry)| entry).collect();
        for entry in entries {
            let observer = Arc::clone(&self.shared.observer);
            self.shared.closings.spawn(async move { entry.end(&*observer, Ending::Orderly).await });
        }
        self.shared.closings.close();
        self.shared.closings.wait().await;
        self.shared.watchdog.close().await;
    }

    /// Sends SIGKILL to every server whose slot is not locked. Used when a Node environment ends, because waiting is not possible then.
    pub fn kill_all(&self) {
        for entry in self.shared.entries().values() {
            if let Ok(place) = entry.held.try_lock()
                && let Some(held) = place.as_ref()
            {
                held.connection.kill();
                self.shared.observer.closed(&entry.server);
            }
        }
    }

    /// Deletes the record of a server's failures. Used when a person wants to connect without waiting.
    pub fn forget_failures(&self, server: &str) {
        if let Some(entry) = self.shared.entries().get(server) {
            entry.lifecycle().reset();
        }
    }

    /// Returns the state of a server's connection.
    #[must_use]
    pub fn state(&self, server: &str) -> ConnectionState {
        let entry = self.shared.entries().get(server).cloned();
        entry.map_or(ConnectionState::Idle, |entry| match entry.state() {
            // The connection has ended, but the keeper has not noticed it yet.
            ConnectionState::Connected if entry.has_ended() => ConnectionState::Closed(Closed::Lost),
            state => state,
        })
    }

    /// Returns the servers to which there has been a connection, or an attempt to connect. All other servers are idle.
    #[must_use]
    pub fn used(&self) -> Vec<String> {
        self.shared.entries().keys().cloned().collect()
    }

    fn entry(&self, server: &str) -> Arc<Entry> {
        let mut entries = self.shared.entries();
        let new = || {
            Arc::new(Entry {
                server: server.to_owned(),
                held: tokio::sync::Mutex::default(),
                lifecycle: Mutex::new(Lifecycle::new(self.shared.max_reconnects)),
                uses: UseCount::new(Instant::now()),
                holders: Holders::default(),
                interrupt: Mutex::default(),
            })
        };
        Arc::clone(entries.entry(server.to_owned()).or_insert_with(new))
    }
}

impl Shared {
    /// Closes the connection that has been idle for the longest time, if the limit of connections is reached. For each waiting caller, at
    /// most one connection is closed. Returns whether a place for a connection becomes free.
    fn make_room(self: &Arc<Self>, server: &str) -> bool {
        // A connection that has ended releases its own permit, so no live connection must be closed for it.
        let ended = self.entries().values().filter(|entry| entry.has_ended()).count();
        if self.giving_way.load(Ordering::Acquire) + ended >= self.waiting.load(Ordering::Acquire) {
            return true;
        }
        let others: Vec<_> = self.entries().values().filter(|entry| entry.server != server).cloned().collect();
        // If the server of a connection has died, the connection is useless even to the callers that hold it. Such a connection is
        // therefore closed first.
        if let Some((entry, dead)) = take_first(&others, |_, held| !held.connection.is_live()) {
            self.let_go(&entry, dead, Closed::Lost, None);
            return true;
        }
        self.evict_idle(server)
    }

    /// Closes the first connection in the order of giving way, so that `server` can be connected. Returns whether a connection was closed.
    fn evict_idle(self: &Arc<Self>, server: &str) -> bool {
        let is_other = |entry: &&Arc<Entry>| entry.server != server && entry.can_give_way();
        let mut idle: Vec<_> = self.entries().values().filter(is_other).cloned().collect();
        idle.sort_by_key(|entry| entry.order_of_giving_way());
        // The slot is checked again under its lock, so that no caller can get a connection that is being closed.
        let Some((entry, held)) = take_first(&idle, |entry, held| !held.pinned && entry.can_give_way()) else { return false };
        tracing::info!(server = entry.server, made_room_for = server, "connection closed to make room");
        self.observer.evicted(&entry.server, server);
        self.let_go(&entry, held, Closed::Evicted, None);
        true
    }

    /// Removes a failed or idle connection from its slot, and closes the connection. Returns whether the connection was removed. `why`
    /// describes the failure.
    pub(super) async fn retire(self: &Arc<Self>, entry: &Entry, connection: &Arc<Connection>, reason: Closed, why: Option<String>) -> bool {
        let held = entry.held.lock().await.take_if(|held| {
            // A connection that is in use again must not be closed for being idle.
            Arc::ptr_eq(&held.connection, connection) && (reason != Closed::IdledOut || entry.uses.is_idle())
        });
        held.map(|held| self.let_go(entry, held, reason, why)).is_some()
    }

    /// Closes a connection that was taken out of its slot. The closing runs in a separate task. Until this task has ended, the connection
    /// is counted as being closed.
    fn let_go(self: &Arc<Self>, entry: &Entry, held: LiveConnection, reason: Closed, why: Option<String>) -> JoinHandle<()> {
        entry.on(Transition::Close(reason));
        if reason == Closed::Revoked {
            self.observer.revoked(&entry.server);
        }
        // The keeper is stopped before the slot gets a new connection. If the keeper itself called this method, the keeper has nothing left
        // to do.
        held.keeper.abort();
        self.giving_way.fetch_add(1, Ordering::AcqRel);
        let (shared, server) = (Arc::clone(self), entry.server.clone());
        self.closings.spawn(async move {
            if reason == Closed::Lost {
                let why = match why {
                    Some(why) => why,
                    None => held.connection.ended().await,
                };
                shared.observer.lost(&server, &why);
            }
            held.connection.close_by(if reason == Closed::Revoked { Ending::AtOnce } else { Ending::Orderly }).await;
            drop(held);
            shared.giving_way.fetch_sub(1, Ordering::AcqRel);
            shared.freed.notify_waiters();
        })
    }

    /// Returns the names of the servers that are connected or being connected, in alphabetical order.
    fn holders(&self) -> Vec<String> {
        let holds = |entry: &&Arc<Entry>| matches!(entry.state(), ConnectionState::Connected | ConnectionState::Connecting);
        let mut holders: Vec<_> = self.entries().values().filter(holds).map(|entry| entry.server.clone()).collect();
        holders.sort();
        holders
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.entries.lock()
    }
}

/// Removes the first suitable connection from its slot, and returns it. A connection whose slot is locked is treated as in use.
fn take_first(entries: &[Arc<Entry>], fits: impl Fn(&Entry, &LiveConnection) -> bool) -> Option<(Arc<Entry>, LiveConnection)> {
    entries.iter().find_map(|entry| {
        let held = entry.held.try_lock().ok()?.take_if(|held| fits(entry, held))?;
        Some((Arc::clone(entry), held))
    })
}
