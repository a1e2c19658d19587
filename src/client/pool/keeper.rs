//! Task that looks after a connection while nobody calls: its end, its changed lists, its idleness, its pings.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::lifecycle::Closed;
use super::{ConnectionRequest, Shared, Slot};
use crate::client::connection::Connection;

/// Pause before changed lists are read again: a server changes several at once, and they are read once for all.
const SETTLE: Duration = Duration::from_millis(200);
/// Shortest time between two readings of the lists, whatever the server announces.
const LEAST_BETWEEN: Duration = Duration::from_secs(1);
/// Time that stands for never.
const FAR: Duration = Duration::from_hours(24 * 365);

enum Due {
    Ended(String),
    ListsChanged,
    Read,
    Idle,
    SignOfLife,
    Used,
}

/// Runs until the connection is given up.
pub(in crate::client) async fn keep(slot: Weak<Slot>, shared: Weak<Shared>, connection: Arc<Connection>, wanted: ConnectionRequest) {
    let mut times = Times::new(&wanted);
    loop {
        let Some(place) = slot.upgrade() else { return };
        let is_idle = place.uses.is_idle_or_tells();
        let due = tokio::select! {
            biased;
            reason = connection.ended() => Due::Ended(reason),
            () = connection.lists.news.notified() => Due::ListsChanged,
            () = sleep_until(times.read) => Due::Read,
            () = sleep_until(times.idle), if is_idle => Due::Idle,
            () = sleep_until(times.sign_of_life), if is_idle => Due::SignOfLife,
            () = place.uses.ended() => Due::Used,
        };
        let Some(shared) = shared.upgrade() else { return };
        let now = Instant::now();
        match due {
            Due::Ended(reason) => {
                // Where a call found it dead before, that has told of it.
                shared.retire(&place, &connection, Closed::Lost, Some(reason)).await;
                return;
            }
            Due::ListsChanged => times.read = times.read.min(times.earliest_read.max(now + SETTLE)),
            Due::Read => {
                times.read = now + FAR;
                // A call may have read them already; then nothing is sent.
                match connection.manifest().await {
                    Ok(manifest) => shared.observer.manifest_read(&place.server, &manifest),
                    Err(error) => tracing::warn!(server = place.server, %error, "changed lists could not be read"),
                }
                times.earliest_read = Instant::now() + LEAST_BETWEEN;
            }
            // In use: then its end is told.
            Due::Idle | Due::SignOfLife if !place.uses.is_idle() => {}
            Due::Idle => {
                // It was used since that time was set.
                if times.used(&place, &wanted) > now {
                    continue;
                }
                if shared.retire(&place, &connection, Closed::IdledOut, None).await {
                    return shared.observer.idled_out(&place.server);
                }
                times.used(&place, &wanted);
            }
            Due::SignOfLife => match connection.ping().await {
                Ok(()) => times.alive(&wanted),
                Err(error) => {
                    let why = format!("it gave no sign of life: {error}");
                    shared.retire(&place, &connection, Closed::Lost, Some(why)).await;
                    return;
                }
            },
            Due::Used => {
                times.used(&place, &wanted);
            }
        }
    }
}

/// Times at which the keeper has something to do.
struct Times {
    read: Instant,
    earliest_read: Instant,
    idle: Instant,
    sign_of_life: Instant,
}

impl Times {
    fn new(wanted: &ConnectionRequest) -> Self {
        let now = Instant::now();
        let mut times = Self { read: now + FAR, earliest_read: now, idle: now, sign_of_life: now };
        times.idle = now + wanted.idle_timeout.unwrap_or(FAR);
        times.alive(wanted);
        times
    }

    /// Returns the time at which the idle time-out ends, counted from the last use.
    fn used(&mut self, place: &Slot, wanted: &ConnectionRequest) -> Instant {
        self.idle = place.uses.ended_at() + wanted.idle_timeout.unwrap_or(FAR);
        self.idle
    }

    fn alive(&mut self, wanted: &ConnectionRequest) {
        self.sign_of_life = Instant::now() + wanted.keep_alive.unwrap_or(FAR);
    }
}
