//! Task that maintains a connection between calls. It notices the connection's end, reads changed lists, sends pings, and closes an idle
//! connection.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::lifecycle::Closed;
use super::{ConnectionRequest, Entry, Shared};
use crate::client::connection::Connection;

/// Pause before changed lists are read again. A server often announces several changes together, and after the pause one reading covers
/// them all.
const SETTLE: Duration = Duration::from_millis(200);
/// Shortest time between two readings of the lists, even if the server announces more changes.
const LEAST_BETWEEN: Duration = Duration::from_secs(1);
/// Delay that means "never".
const FAR: Duration = Duration::from_hours(24 * 365);

enum Due {
    Ended(String),
    ListsChanged,
    Read,
    Idle,
    Ping,
    Used,
}

/// Waits for the next event or time at which the keeper has something to do.
async fn next_due(entry: &Entry, connection: &Connection, times: &Times) -> Due {
    let is_idle = entry.uses.is_idle_or_notifies();
    tokio::select! {
        biased;
        reason = connection.ended() => Due::Ended(reason),
        () = connection.lists.news.notified() => Due::ListsChanged,
        () = sleep_until(times.read) => Due::Read,
        () = sleep_until(times.idle), if is_idle => Due::Idle,
        () = sleep_until(times.next_ping), if is_idle => Due::Ping,
        () = entry.uses.ended() => Due::Used,
    }
}

/// Maintains a connection until it has ended or has been closed. `approval` is the id of the approval under which the connection was opened.
pub(in crate::client) async fn keep(
    entry: Weak<Entry>,
    shared: Weak<Shared>,
    connection: Arc<Connection>,
    wanted: ConnectionRequest,
    approval: String,
) {
    let mut times = Times::new(&wanted);
    loop {
        let Some(entry) = entry.upgrade() else { return };
        let due = next_due(&entry, &connection, &times).await;
        let Some(shared) = shared.upgrade() else { return };
        let now = Instant::now();
        match due {
            Due::Ended(reason) => {
                // If a call noticed the end before this task, the call has already reported the end, and this line has no effect.
                shared.retire(&entry, &connection, Closed::Lost, Some(reason)).await;
                return;
            }
            Due::ListsChanged => times.read = times.read.min(times.earliest_read.max(now + SETTLE)),
            // The observer closes the connection in another task. When the connection is closed, this task ends too.
            Due::Read if shared.observer.ends_unapproved(&entry.server, &approval) => times.read = now + FAR,
            Due::Read => {
                times.read = now + FAR;
                // If a call has already read the changed lists, this line sends no request.
                match connection.manifest().await {
                    Ok(manifest) => shared.observer.manifest_read(&entry.server, &manifest),
                    Err(error) => tracing::warn!(server = entry.server, %error, "changed lists could not be read"),
                }
                times.earliest_read = Instant::now() + LEAST_BETWEEN;
            }
            // The connection is in use again. This task is woken when the use ends.
            Due::Idle | Due::Ping if !entry.uses.is_idle() => {}
            Due::Idle => {
                // The connection was used after this time limit had been computed.
                if times.used(&entry, &wanted) > now {
                    continue;
                }
                if shared.retire(&entry, &connection, Closed::IdledOut, None).await {
                    return shared.observer.idled_out(&entry.server);
                }
                times.used(&entry, &wanted);
            }
            Due::Ping if shared.observer.ends_unapproved(&entry.server, &approval) => times.schedule_ping(&wanted),
            Due::Ping => match connection.ping().await {
                Ok(()) => times.schedule_ping(&wanted),
                Err(error) => {
                    let why = format!("it did not answer a ping: {error}");
                    shared.retire(&entry, &connection, Closed::Lost, Some(why)).await;
                    return;
                }
            },
            Due::Used => {
                times.used(&entry, &wanted);
            }
        }
    }
}

/// Times of the keeper's next actions.
struct Times {
    read: Instant,
    earliest_read: Instant,
    idle: Instant,
    next_ping: Instant,
}

impl Times {
    fn new(wanted: &ConnectionRequest) -> Self {
        let now = Instant::now();
        let mut times = Self { read: now + FAR, earliest_read: now, idle: now, next_ping: now };
        times.idle = now + wanted.idle_timeout.unwrap_or(FAR);
        times.schedule_ping(wanted);
        times
    }

    /// Restarts the idle time-out from the end of the last use. Returns the time at which the time-out expires.
    fn used(&mut self, entry: &Entry, wanted: &ConnectionRequest) -> Instant {
        self.idle = entry.uses.ended_at() + wanted.idle_timeout.unwrap_or(FAR);
        self.idle
    }

    fn schedule_ping(&mut self, wanted: &ConnectionRequest) {
        self.next_ping = Instant::now() + wanted.keep_alive.unwrap_or(FAR);
    }
}
