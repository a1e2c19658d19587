//! The slots of a request in the limits. They stay occupied until the handler of the request has ended and its answer has been sent.
//!
//! In a session, a call continues after its connection has ended. So the handler and the answer both hold the slots. The handler holds the
//! slots in the extensions of the request until the handler has ended. Otherwise a caller that closes its connections could have any number
//! of calls in progress.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::serve::places::Place;

/// The slots of one request, until the last holder drops them.
pub(super) struct Slots {
    /// The place in the limits of the caller and of all callers. `None` for a request that needs no place.
    place: Option<Place>,
    /// The time for which the place stays occupied after the last holder has dropped the slots. In a session, a copy of the answer is kept
    /// for this time.
    kept_for: OnceLock<Duration>,
    /// Cancelled when nobody can request the copy of the answer any more.
    draining: CancellationToken,
}

impl Slots {
    pub(super) fn new(place: Option<Place>, draining: CancellationToken) -> Arc<Self> {
        Arc::new(Self { place, kept_for: OnceLock::new(), draining })
    }

    /// Keeps the slots occupied for some time after the last holder has dropped them.
    pub(super) fn keep_for(&self, time: Duration) {
        // Only the answer calls this method, and only once.
        let _ = self.kept_for.set(time);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let Some(kept_for) = self.kept_for.get().copied() else { return };
        // Without a runtime, the server has ended.
        if let Ok(runtime) = Handle::try_current() {
            let (place, draining) = (self.place.take(), self.draining.clone());
            runtime.spawn(async move {
                draining.run_until_cancelled(sleep(kept_for)).await;
                drop(place);
            });
        }
    }
}
