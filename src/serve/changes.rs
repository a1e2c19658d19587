//! Changes of what is served: approvals that a person gives or takes back while a host is connected.

use std::sync::Weak;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::blocking::blocking;

/// The time between two reads of the approvals. A read that finds the approvals unchanged reads the stamps of their files and of those that the
/// approved entries name, and compares digests.
const INTERVAL: Duration = Duration::from_secs(1);
/// Changes that a slow client may miss before it is told once for all of them.
const BACKLOG: usize = 16;

/// Tells the clients that tools, resources and prompts have changed.
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
        // Without a client, there is nobody to tell.
        let _ = self.0.send(());
    }
}

/// Waits for the next change. Returns `false` when there will be none.
pub(super) async fn next(changes: &mut broadcast::Receiver<()>) -> bool {
    !matches!(changes.recv().await, Err(broadcast::error::RecvError::Closed))
}

/// Looks at the approvals until the gateway is served no longer, and tells the clients of changes.
pub(super) async fn watch(shared: Weak<Shared>, closed: CancellationToken) {
    let mut before = None;
    while let Some(served) = shared.upgrade() {
        let seen = {
            let served = std::sync::Arc::clone(&served);
            blocking(move || served.enable_approved()).await
        };
        match seen {
            Ok(seen) => {
                if before.replace(seen.clone()).is_some_and(|before| before != seen) {
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
