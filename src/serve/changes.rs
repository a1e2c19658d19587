//! Notifies clients when the served tools, resources or prompts change because a person approves or revokes something while a host is
//! connected.

use std::sync::Weak;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::blocking::blocking;

/// The time between two reads of the approvals. If nothing has changed, a read only checks the stamps of files and compares digests. The
/// files are those of the approvals, and those that approved entries name.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of changes that a slow client may miss. A client that misses more gets one notification for all of them.
const BACKLOG: usize = 16;

/// Notifies the connections that tools, resources and prompts have changed.
pub(super) struct Changes(broadcast::Sender<()>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::channel(BACKLOG).0)
    }
}

impl Changes {
    pub(super) fn subscribe(&self) -> broadcast::Receiver<()> {
        self.0.subscribe()
    }

    pub(super) fn tell(&self) {
        // Sending fails only if there is no client.
        let _ = self.0.send(());
    }
}

/// Waits for the next change. Returns `false` if no further change can follow.
pub(super) async fn next(changes: &mut broadcast::Receiver<()>) -> bool {
    !matches!(changes.recv().await, Err(broadcast::error::RecvError::Closed))
}

/// Reads the approvals regularly while the gateway is served, and notifies the clients of changes. `before` is the result of the first
/// read, which was made before any client could connect.
pub(super) async fn watch(shared: Weak<Shared>, mut before: String, closed: CancellationToken) {
    while let Some(served) = shared.upgrade() {
        let seen = {
            let served = std::sync::Arc::clone(&served);
            blocking(move || served.enable_approved()).await
        };
        match seen {
            Ok(seen) => {
                if before != seen {
                    before = seen;
                    served.changes.tell();
                }
            }
            Err(error) => tracing::warn!(code = error.code(), "the approvals could not be read"),
        }
        served.handles.end_left(Instant::now());
        served.held_agents.end_left(Instant::now());
        served.paused_calls.end_left();
        drop(served);
        tokio::select! {
            () = closed.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
