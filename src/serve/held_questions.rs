//! Limits the memory for questions to clients. A server writes most of a question, and a client can leave it without an answer.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::InputRequest;
use serde_json::json;

use crate::caller_memory::{CallerMemory, HeldMemory, MemoryLimits};
use crate::error::Result;
use crate::text::json::memory_bytes;

const MIB: usize = 1024 * 1024;
const LIMITS: MemoryLimits = MemoryLimits {
    of_caller: 32 * MIB,
    of_all: 128 * MIB,
    reserved: 32 * MIB,
    least_of_caller: 4 * MIB,
    what_of_caller: "bytes of open questions of this caller's calls (the limit can be reached a little earlier)",
    what_of_all: "bytes of open questions of all calls (the limit can be reached up to a quarter earlier)",
};
/// The number of messages of a stream over HTTP that are kept, so that a client can ask for the stream again.
pub(super) const MAX_REPEATED: usize = 16;

/// The memory that the questions of all callers use. Clones are cheap.
#[derive(Clone)]
pub(super) struct QuestionMemory(CallerMemory);

/// The memory of one caller's questions.
#[derive(Clone)]
pub(super) struct CallerQuestions {
    memory: QuestionMemory,
    caller: String,
}

/// The memory of the last questions on one stream over HTTP, which are kept until the call ends, whether they are answered or not.
#[derive(Default)]
pub(super) struct RepeatedQuestions(Mutex<VecDeque<Arc<HeldMemory>>>);

impl Default for QuestionMemory {
    fn default() -> Self {
        Self(CallerMemory::new(LIMITS))
    }
}

impl QuestionMemory {
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub(super) fn of(&self, caller: &str) -> CallerQuestions {
        CallerQuestions { memory: self.clone(), caller: caller.to_owned() }
    }
}

impl CallerQuestions {
    /// Reserves the memory of a question.
    ///
    /// # Errors
    /// `ERR_BUSY` if the questions of the caller, or all questions, already use too much.
    pub(super) fn hold(&self, question: &InputRequest) -> Result<HeldMemory> {
        self.memory.0.hold(&self.caller, memory_bytes(&json!(question)))
    }
}

impl RepeatedQuestions {
    /// Keeps the memory of one more question reserved, and releases that of a question that is not kept any more.
    pub(super) fn add(&self, question: &Arc<HeldMemory>) {
        let mut kept = self.0.lock();
        let surplus = (kept.len() >= MAX_REPEATED).then(|| kept.pop_front());
        kept.push_back(Arc::clone(question));
        drop(kept);
        drop(surplus);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ElicitRequest;

    use super::*;

    fn question(bytes: usize) -> InputRequest {
        let form = json!({ "mode": "form", "message": "m".repeat(bytes), "requestedSchema": { "type": "object", "properties": {} } });
        InputRequest::Elicitation(ElicitRequest::new(serde_json::from_value(form).unwrap()))
    }

    #[test]
    fn the_open_questions_of_a_caller_and_of_all_callers_are_bounded_in_bytes() {
        let memory = QuestionMemory::default();
        let mut held = Vec::new();
        let fill = |caller: &str, held: &mut Vec<HeldMemory>| {
            let questions = memory.of(caller);
            let refused =
                std::iter::from_fn(|| Some(questions.hold(&question(MIB)))).find_map(|asked| asked.map(|one| held.push(one)).err());
            refused.unwrap()
        };
        let refused = fill("loud", &mut held);
        assert_eq!((refused.code(), held.len()), ("ERR_BUSY", 31));
        assert!(refused.for_model().contains("open questions of this caller's calls"), "{}", refused.for_model());
        (0..9).for_each(|caller| drop(fill(&caller.to_string(), &mut held)));
        assert!(held.len() < 128 && memory.of("another").hold(&question(1000)).is_ok());
        held.clear();
        assert!(memory.0.is_free());
    }

    #[test]
    fn the_last_questions_of_a_stream_count_until_its_call_ends() {
        let (memory, repeated) = (QuestionMemory::default(), RepeatedQuestions::default());
        let hold = || Arc::new(memory.of("one").hold(&question(MIB)).unwrap());
        (0..40).for_each(|_| repeated.add(&hold()));
        assert_eq!(repeated.0.lock().len(), MAX_REPEATED);
        let more: Vec<_> = (0..31 - MAX_REPEATED).map(|_| hold()).collect();
        assert!(memory.of("one").hold(&question(MIB)).is_err());
        drop((repeated, more));
        assert!(memory.0.is_free());
    }
}
