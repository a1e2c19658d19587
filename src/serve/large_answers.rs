//! Answers that may be large. A large answer is converted to the types of the protocol outside of the runtime's threads, one of each caller
//! at a time, and its memory is reserved until it has been sent.

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use super::answers::{data, refused};
use super::handler::Handler;
use super::http::Slots;
use crate::caller_memory::{CallerMemory, HeldMemory};
use crate::off_runtime::{MAX_BYTES_AT_ONCE, off_the_runtime};
use crate::text::json::{memory_bytes, takes_more_than};
use crate::turns::Turns;

/// The turns of callers for their large answers.
pub(super) struct LargeAnswers(Turns);

/// The request that an answer is for.
pub(super) struct AnsweredRequest {
    caller: String,
    memory: CallerMemory,
    /// The slots of the request. `None` over standard input and output.
    slots: Option<Arc<Slots>>,
    /// Cancelled when the client cancels the request.
    cancelled: CancellationToken,
}

/// The place of an answer before it is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerOrigin {
    /// The answer was made for this request. Its memory is reserved before it waits for its turn.
    OfRequest,
    /// The answer is kept for several requests, and has memory of its own. The copy for this request is made within the turn.
    Kept,
}

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Turns::new(1))
    }
}

impl LargeAnswers {
    /// Converts an answer with this memory in bytes. A large answer waits for the turn of its caller. The turn lasts until the answer is
    /// written as JSON, and its memory is reserved until it has been sent.
    ///
    /// # Errors
    /// `ERR_BUSY` if too much of the caller, or of all callers, is not sent yet, and the errors of `convert`.
    pub(super) async fn convert<T>(
        &self,
        request: &AnsweredRequest,
        (bytes, origin): (usize, AnswerOrigin),
        convert: impl FnOnce() -> Result<T, ErrorData>,
    ) -> Result<T, ErrorData> {
        if bytes <= MAX_BYTES_AT_ONCE {
            return convert();
        }
        let hold = || request.memory.hold(&request.caller, bytes).map_err(|error| refused(&error));
        let of_request = if origin == AnswerOrigin::OfRequest { Some(hold()?) } else { None };
        let turn = tokio::select! {
            biased;
            () = request.cancelled.cancelled() => {
                return Err(ErrorData::internal_error("the request was cancelled", Some(data("ERR_ABORTED"))));
            }
            turn = self.0.wait(&request.caller) => turn,
        };
        let memory: HeldMemory = of_request.map_or_else(hold, Ok)?;
        let converted = off_the_runtime(convert)?;
        if let Some(slots) = &request.slots {
            slots.hold_answer(memory, turn);
        }
        Ok(converted)
    }
}

impl Handler {
    /// Returns the recipient of the answer to a request.
    pub(super) fn answered_request(&self, context: &RequestContext<RoleServer>) -> AnsweredRequest {
        let shared = &self.served.0;
        // The same memory is used for answers that wait for their redaction, where all code of a caller has one owner.
        let caller = shared.code_owners.of(&self.caller.key).parse.key().to_string();
        let parts = context.extensions.get::<http::request::Parts>();
        let slots = parts.and_then(|parts| parts.extensions.get::<Arc<Slots>>()).cloned();
        AnsweredRequest { caller, memory: shared.gateway.answer_memory(), slots, cancelled: context.ct.clone() }
    }
}

/// Returns the memory of a value in bytes. Much of it is counted outside of the runtime's threads.
pub(super) fn bytes_of(value: &Json) -> usize {
    if takes_more_than(value, MAX_BYTES_AT_ONCE) { off_the_runtime(|| memory_bytes(value)) } else { memory_bytes(value) }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::caller_memory::MemoryLimits;

    /// Makes a request of a caller, whose unsent answers may take this memory.
    pub(in crate::serve) fn request(caller: &str, memory: &CallerMemory, slots: Option<Arc<Slots>>) -> AnsweredRequest {
        AnsweredRequest { caller: caller.to_owned(), memory: memory.clone(), slots, cancelled: CancellationToken::new() }
    }

    pub(in crate::serve) fn memory(of_caller: usize) -> CallerMemory {
        let (what_of_caller, what_of_all) = ("of the caller", "of all");
        CallerMemory::new(MemoryLimits { of_caller, of_all: 8 * of_caller, reserved: 0, least_of_caller: 0, what_of_caller, what_of_all })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::testing::{memory, request};
    use super::*;
    use crate::off_runtime::testing::{one_worker, until_another_task_runs};

    const LARGE: usize = MAX_BYTES_AT_ONCE + 1;
    const ORIGINS: [AnswerOrigin; 2] = [AnswerOrigin::OfRequest, AnswerOrigin::Kept];

    fn slots() -> Arc<Slots> {
        Slots::new(None, CancellationToken::new())
    }

    #[test]
    fn a_large_answer_leaves_the_thread_to_other_callers_while_it_is_converted() {
        for origin in ORIGINS {
            let runtime = one_worker();
            let (waits, other) = until_another_task_runs();
            let converting = runtime.spawn(async move {
                let request = request("one", &memory(LARGE), None);
                LargeAnswers::default()
                    .convert(&request, (LARGE, origin), move || {
                        waits();
                        Ok(())
                    })
                    .await
            });
            runtime.spawn(other);
            runtime.block_on(converting).unwrap().unwrap();
        }
    }

    #[test]
    fn the_next_large_answer_of_a_caller_waits_until_the_last_one_is_written_and_those_of_others_do_not() {
        let (answers, memory) = (LargeAnswers::default(), memory(2 * LARGE));
        let convert = |caller: &str, slots: &Arc<Slots>, bytes: usize, origin: AnswerOrigin| {
            let request = request(caller, &memory, Some(Arc::clone(slots)));
            async { answers.convert(&request, (bytes, origin), || Ok(())).await }.now_or_never()
        };
        for origin in ORIGINS {
            let (first, second) = (slots(), slots());
            convert("loud", &first, LARGE, origin).unwrap().unwrap();
            assert!(first.has_large_answer());
            assert!(convert("loud", &second, LARGE, origin).is_none());
            convert("loud", &second, MAX_BYTES_AT_ONCE, origin).unwrap().unwrap();
            convert("quiet", &slots(), LARGE, origin).unwrap().unwrap();
            first.answer_written();
            convert("loud", &second, LARGE, origin).unwrap().unwrap();
            second.answer_written();
            let refused = convert("loud", &slots(), LARGE, origin).unwrap().unwrap_err();
            assert_eq!(refused.data, Some(data("ERR_BUSY")), "two answers are not sent yet");
            drop(first);
            convert("loud", &slots(), LARGE, origin).unwrap().unwrap();
            drop(second);
            assert!(memory.is_free());
        }
    }

    #[tokio::test]
    async fn a_request_that_is_cancelled_does_not_wait_for_its_turn() {
        let (answers, memory) = (LargeAnswers::default(), memory(4 * LARGE));
        let first = slots();
        let holding = request("one", &memory, Some(Arc::clone(&first)));
        answers.convert(&holding, (LARGE, AnswerOrigin::Kept), || Ok(())).await.unwrap();
        let cancelled = request("one", &memory, None);
        cancelled.cancelled.cancel();
        let outcome = answers.convert(&cancelled, (LARGE, AnswerOrigin::OfRequest), || Ok(())).await;
        assert_eq!(outcome.unwrap_err().data, Some(data("ERR_ABORTED")));
    }
}
