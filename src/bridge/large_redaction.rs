//! Redaction of values that a server may have made large. Large values are redacted on separate threads, so that deadlines and other
//! callers do not have to wait. Each caller has its own turn, so that the large values of one caller do not delay those of another.

use std::sync::Arc;

use serde_json::Value as Json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::blocking;
use crate::caller_memory::{CallerMemory, MemoryLimits};
use crate::error::Result;
use crate::redact::{Redactor, WrittenPaths};
use crate::text::json::{approximate_bytes, memory_bytes};
use crate::turns::Turns;

/// Maximum size in bytes of a value that is redacted directly on the caller's thread. The redaction of such a value takes a few
/// milliseconds.
const MAX_BYTES_AT_ONCE: usize = 64 * 1024;
/// Maximum memory in bytes of a value that is redacted directly on the caller's thread. A value can consist of very many empty lists.
const MAX_MEMORY_AT_ONCE: usize = MIB;
/// Maximum number of large values that are redacted at a time, for all callers of a gateway together.
const MAX_OF_ALL: usize = 2;
/// Maximum number of large values of one caller that are redacted or wait for the turn of all. It is less than [`MAX_OF_ALL`], so another
/// caller does not wait for a single busy one.
const MAX_OF_CALLER: usize = 1;
const MIB: usize = 1024 * 1024;
const MEMORY: MemoryLimits = MemoryLimits {
    of_caller: 512 * MIB,
    of_all: 1024 * MIB,
    reserved: 256 * MIB,
    least_of_caller: 64 * MIB,
    what_of_caller: "bytes of this caller's answers that wait to be redacted or sent (the limit can be reached a little earlier)",
    what_of_all: "bytes of answers that wait to be redacted or sent (the limit can be reached up to a quarter earlier)",
};

/// The turns of large values for all callers of a gateway, and the memory of the values that wait. Turns are given in the order in which
/// they are asked for.
pub(crate) struct LargeTurns {
    all: Arc<Semaphore>,
    of_callers: Turns,
    memory: CallerMemory,
}

/// The redactor of a gateway with the turns of one caller. Clones are the same caller.
#[derive(Clone)]
pub(crate) struct CallerRedaction {
    redactor: Arc<Redactor>,
    turns: Arc<LargeTurns>,
    caller: Arc<str>,
}

impl Default for LargeTurns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_OF_ALL)), of_callers: Turns::new(MAX_OF_CALLER), memory: CallerMemory::new(MEMORY) }
    }
}

impl LargeTurns {
    /// Returns the memory of the values that wait, for other places where they wait.
    pub(crate) fn memory(&self) -> CallerMemory {
        self.memory.clone()
    }

    /// Waits first for other values of the same caller, then for those of all. So each caller has at most a few in the queue of all.
    async fn wait(&self, caller: &str) -> [Option<OwnedSemaphorePermit>; 2] {
        let of_caller = self.of_callers.wait(caller).await;
        [of_caller, Arc::clone(&self.all).acquire_owned().await.ok()]
    }
}

impl CallerRedaction {
    /// Makes the redaction for the values of a caller. `caller` is the same for all agents and runs of the caller.
    pub(crate) fn new(redactor: Arc<Redactor>, turns: Arc<LargeTurns>, caller: &str) -> Self {
        Self { redactor, turns, caller: caller.into() }
    }

    /// Redacts a value for a reader who wrote the paths in `written`. These paths stay whole (see [`Redactor::for_reader`]).
    ///
    /// # Errors
    /// The errors of [`Self::in_turn`].
    pub(crate) async fn redact_for(&self, json: Json, written: WrittenPaths) -> Result<Json> {
        self.in_turn(json, move |redactor, json| redactor.for_reader(written.texts()).redact_json(&json)).await
    }

    /// Calls `redact` for a value. For a large value, waits until it is this caller's turn, and then calls `redact` on a thread for
    /// blocking work. If the caller drops the future before that, `redact` is not called.
    ///
    /// # Errors
    /// `ERR_BUSY` if too much of the caller, or of all callers, already waits. `ERR_INTERNAL` if the thread has failed.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        value: Json,
        redact: impl FnOnce(&Redactor, Json) -> T + Send + 'static,
    ) -> Result<T> {
        let memory = memory_bytes(&value);
        if memory <= MAX_MEMORY_AT_ONCE && approximate_bytes(&value) <= MAX_BYTES_AT_ONCE {
            return Ok(redact(&self.redactor, value));
        }
        let held = self.turns.memory.hold(&self.caller, memory)?;
        let turn = self.turns.wait(&self.caller).await;
        let redactor = Arc::clone(&self.redactor);
        blocking(move || {
            let redacted = redact(&redactor, value);
            drop((turn, held));
            Ok(redacted)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    fn caller(turns: &Arc<LargeTurns>, name: &str) -> CallerRedaction {
        CallerRedaction::new(Arc::new(Redactor::new(Some(std::path::Path::new("/home/ada")), None)), Arc::clone(turns), name)
    }

    /// Makes a failed result whose text has about this many bytes.
    fn failed(bytes: usize) -> Json {
        json!({ "isError": true, "content": [{ "type": "text", "text": format!("/home/ada/x {}", "y".repeat(bytes)) }] })
    }

    fn redact(caller: &CallerRedaction, bytes: usize) -> impl Future<Output = Result<Json>> + Send + use<> {
        let caller = caller.clone();
        async move { caller.redact_for(failed(bytes), WrittenPaths::default()).await }
    }

    #[tokio::test]
    async fn a_value_of_any_size_is_redacted_in_the_same_way() {
        for bytes in [0, MAX_BYTES_AT_ONCE, MIB] {
            let redacted = redact(&caller(&Arc::default(), "a"), bytes).await.unwrap();
            assert!(redacted["content"][0]["text"].as_str().unwrap().starts_with("~/x "), "{bytes}");
        }
    }

    /// The runtime of this test has one thread. While this thread redacts a value, no other task can run.
    #[tokio::test]
    async fn a_large_value_leaves_the_thread_of_the_runtime_and_a_small_one_does_not() {
        let turns = Arc::new(LargeTurns::default());
        let caller = caller(&turns, "a");
        let turn = turns.wait("a").await;
        redact(&caller, 0).now_or_never().unwrap().unwrap();
        let waiting = [failed(MIB), json!(vec![json!([]); 64 * 1024])].map(|large| {
            let caller = caller.clone();
            tokio::spawn(async move { caller.redact_for(large, WrittenPaths::default()).await })
        });
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "they wait for their turn");
        drop(turn);
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
        assert!(turns.memory.is_free());
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_takes_no_turn() {
        let turns = Arc::new(LargeTurns::default());
        let turn = turns.wait("a").await;
        let waiting = tokio::spawn(redact(&caller(&turns, "a"), MIB));
        tokio::task::yield_now().await;
        assert!(!turns.memory.is_free());
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        drop(turn);
        assert!(turns.all.available_permits() == MAX_OF_ALL && turns.memory.is_free());
    }

    #[tokio::test]
    async fn a_caller_with_many_large_values_does_not_delay_those_of_another() {
        let turns = Arc::new(LargeTurns::default());
        // The value of the loud caller that has the turn is not redacted before the test ends.
        let turn = turns.wait("loud").await;
        let loud = caller(&turns, "loud");
        let mut waiting: Vec<_> = (0..9).map(|_| Box::pin(redact(&loud, MIB))).collect();
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        redact(&caller(&turns, "quiet"), MIB).await.unwrap();
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        drop(turn);
    }

    #[tokio::test]
    async fn what_waits_of_one_caller_has_a_limit_and_leaves_memory_for_another() {
        let turns = Arc::new(LargeTurns::default());
        let _turn = turns.wait("loud").await;
        let loud = caller(&turns, "loud");
        let held = turns.memory.hold("loud", MEMORY.of_caller - MIB / 2).unwrap();
        let refused = redact(&loud, MIB).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code(), "ERR_BUSY");
        assert!(redact(&loud, 0).now_or_never().unwrap().is_ok(), "a small value needs no turn");
        redact(&caller(&turns, "quiet"), MIB).await.unwrap();
        drop(held);
        assert!(redact(&loud, MIB).now_or_never().is_none());
    }
}
