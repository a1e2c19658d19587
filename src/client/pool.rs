//! The live connections: one a server, made when it is first needed, and at most as many as the limit says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::connection::{Connection, connect_timeout};
use super::process::Launch;
use super::watchdog::Watchdog;
use crate::error::{Error, Result};

/// A server's place: whoever holds its lock connects, so that fifty first calls start one process.
#[derive(Default)]
struct Slot {
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    last_used: AtomicU64,
}

/// All connections of a gateway.
pub struct Connections {
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    watchdog: Arc<Watchdog>,
    clock: AtomicU64,
    limit: usize,
    connect_timeout_ms: u64,
}

impl Connections {
    #[must_use]
    pub fn new(watchdog: Watchdog, max_connections: usize, connect_timeout_ms: u64) -> Self {
        Self { slots: Mutex::default(), watchdog: Arc::new(watchdog), clock: AtomicU64::new(0), limit: max_connections, connect_timeout_ms }
    }

    /// The live connection of a server; a new one where there is none. `launch` is awaited only then: it may ask a person.
    ///
    /// # Errors
    /// What `launch` refuses; `ERR_TOO_MANY_CONNECTIONS`; what [`Connection::open`] gives.
    pub async fn get(
        &self,
        server: &str,
        timeout_ms: Option<u64>,
        launch: impl Future<Output = Result<Launch>>,
    ) -> Result<Arc<Connection>> {
        let slot = self.slot(server);
        slot.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut place = slot.connection.lock().await;
        if let Some(connection) = place.as_ref().filter(|connection| connection.is_live()) {
            return Ok(Arc::clone(connection));
        }
        if let Some(dead) = place.take() {
            dead.close().await;
        }
        let launch = launch.await?;
        self.make_room(server).await?;
        let timeout = connect_timeout(&launch.command.command, timeout_ms, self.connect_timeout_ms);
        let connection = Arc::new(Connection::open(&launch, &self.watchdog, timeout).await?);
        *place = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Ends a server's connection, if it has one.
    pub async fn close(&self, server: &str) {
        let slot = self.slot(server);
        let connection = slot.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    /// Ends all connections, at the same time, and the watchdog with them.
    pub async fn close_all(&self) {
        let slots: Vec<_> = self.locked().drain().map(|(_, slot)| slot).collect();
        let mut closing = tokio::task::JoinSet::new();
        for slot in slots {
            closing.spawn(async move {
                let connection = slot.connection.lock().await.take();
                if let Some(connection) = connection {
                    connection.close().await;
                }
            });
        }
        closing.join_all().await;
        self.watchdog.close().await;
    }

    /// SIGKILL to every server that can be reached without waiting: for the end of an environment.
    pub fn kill_all(&self) {
        for slot in self.locked().values() {
            if let Ok(place) = slot.connection.try_lock()
                && let Some(connection) = place.as_ref()
            {
                connection.kill();
            }
        }
    }

    /// Whether a server has a live connection. While it is being made, it has none.
    #[must_use]
    pub fn is_connected(&self, server: &str) -> bool {
        let slot = self.locked().get(server).cloned();
        slot.is_some_and(|slot| slot.connection.try_lock().is_ok_and(|place| place.as_ref().is_some_and(|live| live.is_live())))
    }

    /// Where the limit is reached, the connection that has been idle for longest gives way.
    async fn make_room(&self, server: &str) -> Result<()> {
        let mut others: Vec<_> =
            self.locked().iter().filter(|(name, _)| *name != server).map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect();
        others.sort_by_key(|(_, slot)| slot.last_used.load(Ordering::Relaxed));
        let mut holders = Vec::new();
        let mut idle = None;
        for (name, slot) in others {
            // A place that is locked is being connected: it counts, and is not idle.
            let Ok(place) = slot.connection.try_lock() else {
                holders.push(name);
                continue;
            };
            // A connection whose server has died holds nothing.
            let Some(connection) = place.as_ref().filter(|connection| connection.is_live()) else { continue };
            if idle.is_none() && Arc::strong_count(connection) == 1 {
                idle = Some((name.clone(), Arc::clone(&slot)));
            }
            holders.push(name);
        }
        if holders.len() < self.limit {
            return Ok(());
        }
        // Looked at again under its lock: nobody can be handed a connection that is being closed.
        let given_up = match &idle {
            Some((_, slot)) => slot.connection.lock().await.take_if(|connection| Arc::strong_count(connection) == 1),
            None => None,
        };
        let (Some(connection), Some((name, _))) = (given_up, idle) else {
            return Err(Error::TooManyConnections { server: server.to_owned(), limit: self.limit, holders });
        };
        tracing::info!(server = name, "connection closed to make room");
        connection.close().await;
        Ok(())
    }

    fn slot(&self, server: &str) -> Arc<Slot> {
        Arc::clone(self.locked().entry(server.to_owned()).or_default())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
