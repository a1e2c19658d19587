//! The slots of a request in the limits. They stay occupied until the handler of the request has ended and its answer has been sent.
//!
//! In a session, a call continues after its connection has ended. So the handler and the answer both hold the slots. The handler holds the
//! slots in the extensions of the request until the handler has ended. Otherwise a caller that closes its connections could have any number
//! of calls in progress.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::caller_memory::HeldMemory;
use crate::off_runtime::off_the_runtime;
use crate::serve::places::Place;

/// The slots of one request, until the last holder drops them.
pub(in crate::serve) struct Slots {
    /// The place in the limits of the caller and of all callers. `None` for a request that needs no place.
    place: Option<Place>,
    answer: Mutex<Option<LargeAnswer>>,
    /// The time for which the place and the memory of the answer stay occupied after the last holder has dropped the slots. In a session, a
    /// copy of the answer is kept for this time.
    kept_for: OnceLock<Duration>,
    /// Cancelled when nobody can request the copy of the answer any more.
    draining: CancellationToken,
}

/// A large answer that has not been sent yet.
struct LargeAnswer {
    memory: HeldMemory,
    /// The turn of the caller, until the answer is written as JSON.
    turn: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(in crate::serve) fn new(place: Option<Place>, draining: CancellationToken) -> Arc<Self> {
        Arc::new(Self { place, answer: Mutex::default(), kept_for: OnceLock::new(), draining })
    }

    /// Keeps the slots occupied for some time after the last holder has dropped them.
    pub(super) fn keep_for(&self, time: Duration) {
        // Only the answer calls this method, and only once.
        let _ = self.kept_for.set(time);
    }

    /// Keeps the memory of the request's large answer reserved until the answer has been sent, and the turn of the caller until the answer is
    /// written as JSON.
    pub(in crate::serve) fn hold_answer(&self, memory: HeldMemory, turn: Option<OwnedSemaphorePermit>) {
        let before = self.answer.lock().replace(LargeAnswer { memory, turn });
        drop(before);
    }

    pub(in crate::serve) fn has_large_answer(&self) -> bool {
        self.answer.lock().is_some()
    }

    /// Gives back the turn of the caller for its large answers.
    pub(in crate::serve) fn answer_written(&self) {
        let turn = self.answer.lock().as_mut().and_then(|answer| answer.turn.take());
        drop(turn);
    }

    /// Does work in which the answer of the request may be written as JSON. For a large answer, this is outside of the runtime's threads.
    pub(super) fn writing<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.has_large_answer() { off_the_runtime(work) } else { work() }
    }

    /// Waits for a response. rmcp may write the answer as JSON in the last step.
    pub(super) async fn written<T>(&self, response: impl Future<Output = T>) -> T {
        let mut response = pin!(response);
        poll_fn(|context| self.writing(|| response.as_mut().poll(context))).await
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.answer_written();
        let Some(kept_for) = self.kept_for.get().copied() else { return };
        // Without a runtime, the server has ended.
        if let Ok(runtime) = Handle::try_current() {
            let (place, draining) = (self.place.take(), self.draining.clone());
            let memory = self.answer.get_mut().take().map(|answer| answer.memory);
            runtime.spawn(async move {
                draining.run_until_cancelled(sleep(kept_for)).await;
                drop((place, memory));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::off_runtime::testing::{one_worker, until_another_task_runs};
    use crate::serve::large_answers::testing::memory;

    #[test]
    fn a_large_answer_leaves_the_thread_to_other_callers_while_it_is_written() {
        let runtime = one_worker();
        let (waits, other) = until_another_task_runs();
        let slots = Slots::new(None, CancellationToken::new());
        slots.hold_answer(memory(8).hold("one", 8).unwrap(), None);
        let writing = runtime.spawn(async move { slots.written(async { waits() }).await });
        runtime.spawn(other);
        runtime.block_on(writing).unwrap();
    }
}
