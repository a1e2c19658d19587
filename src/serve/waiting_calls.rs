//! Limits the number of calls that wait for an answer of their client, if the question is a request to the client (up to protocol
//! 2025-11-25). Such a call waits for as long as its client does not answer the question. Since protocol 2026-07-28, `paused_calls` limits
//! the waiting calls.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rmcp::model::InputRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::held_questions::{CallerQuestions, RepeatedQuestions};
use crate::caller_memory::HeldMemory;
use crate::error::{Error, Result};

/// The maximum number of waiting calls for one caller. It is smaller than the default limit of the caller's requests in progress, so that
/// calls that do not wait can still start.
const MAX_OF_CALLER: usize = 64;
/// The maximum number of waiting calls for all callers. It is smaller than the default limit of all requests in progress.
const MAX_OF_ALL: usize = 256;

/// The calls of all callers that wait for an answer.
pub(super) struct WaitingCalls {
    all: Arc<Semaphore>,
    of_callers: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// One call, while it waits for the answer to at least one question.
pub(super) struct WaitingCall {
    _of_caller: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// A call that may ask questions. All its questions that wait at the same time count as one waiting call.
pub(super) struct AskingCall {
    calls: Arc<WaitingCalls>,
    caller: String,
    waiting: Mutex<Weak<WaitingCall>>,
    memory: CallerQuestions,
    /// The memory of questions that are kept for a client that asks for its stream again. `None` without streams.
    repeated: Option<RepeatedQuestions>,
}

impl Default for WaitingCalls {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_OF_ALL)), of_callers: Mutex::default() }
    }
}

impl WaitingCalls {
    fn begin(&self, caller: &str) -> Result<WaitingCall> {
        let busy = |what, limit| Error::Busy { what, limit };
        let of_caller = self.of_caller(caller).try_acquire_owned();
        let of_caller = of_caller.map_err(|_| busy("calls of this caller that wait for an answer to a question", MAX_OF_CALLER))?;
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let of_all = of_all.map_err(|_| busy("calls of all callers that wait for an answer to a question", MAX_OF_ALL))?;
        Ok(WaitingCall { _of_caller: of_caller, _of_all: of_all })
    }

    fn of_caller(&self, caller: &str) -> Arc<Semaphore> {
        let mut all = self.of_callers.lock();
        if let Some(known) = all.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(MAX_OF_CALLER));
        all.insert(caller.to_owned(), Arc::downgrade(&own));
        own
    }
}

impl AskingCall {
    /// Creates a call that has asked nothing. `has_stream` is true if its questions are sent on a stream over HTTP.
    pub(super) fn new(calls: &Arc<WaitingCalls>, caller: &str, memory: CallerQuestions, has_stream: bool) -> Self {
        let repeated = has_stream.then(RepeatedQuestions::default);
        Self { calls: Arc::clone(calls), caller: caller.to_owned(), waiting: Mutex::default(), memory, repeated }
    }

    /// Reserves the memory of a question until it is answered, and on a stream for as long as the stream keeps the question.
    ///
    /// # Errors
    /// `ERR_BUSY` if the questions of this caller, or of all callers together, already use too much memory.
    pub(super) fn hold(&self, question: &InputRequest) -> Result<Arc<HeldMemory>> {
        let held = Arc::new(self.memory.hold(question)?);
        if let Some(repeated) = &self.repeated {
            repeated.add(&held);
        }
        Ok(held)
    }

    /// Counts the call as waiting until the returned value is dropped.
    ///
    /// # Errors
    /// `ERR_BUSY` if too many calls of this caller, or of all callers together, wait already.
    pub(super) fn wait(&self) -> Result<Arc<WaitingCall>> {
        let mut waiting = self.waiting.lock();
        if let Some(already) = waiting.upgrade() {
            return Ok(already);
        }
        let begun = Arc::new(self.calls.begin(&self.caller)?);
        *waiting = Arc::downgrade(&begun);
        Ok(begun)
    }
}

#[cfg(test)]
mod tests {
    use super::super::held_questions::QuestionMemory;
    use super::*;

    #[test]
    fn a_caller_whose_calls_all_wait_leaves_room_for_others_and_a_call_counts_once() {
        let (calls, memory) = (Arc::<WaitingCalls>::default(), QuestionMemory::default());
        let call = |caller: &str| AskingCall::new(&calls, caller, memory.of(caller), false);
        let first = call("loud");
        let questions: Vec<_> = (0..2 * MAX_OF_ALL).map(|_| first.wait().unwrap()).collect();
        let waiting: Vec<_> = (1..MAX_OF_CALLER).map(|_| call("loud").wait().unwrap()).collect();
        assert_eq!(call("loud").wait().err().unwrap().code(), "ERR_BUSY");
        let others: Vec<_> = (0..MAX_OF_ALL - MAX_OF_CALLER).map(|number| call(&number.to_string()).wait().unwrap()).collect();
        assert_eq!(call("last").wait().err().unwrap().code(), "ERR_BUSY");
        drop(questions);
        assert!(call("last").wait().is_ok() && first.wait().is_ok());
        drop((waiting, others));
        let _again = call("last").wait().unwrap();
        assert_eq!(calls.of_callers.lock().len(), 1, "no caller is kept that has no such call");
    }
}
