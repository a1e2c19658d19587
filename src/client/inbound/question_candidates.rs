//! Records which calls were in flight when a server's question was read. They can differ from the calls in flight when rmcp delivers the
//! question. The reason is that rmcp may deliver a call's answer before a question that arrived earlier.

use parking_lot::Mutex;
use std::collections::VecDeque;

use rmcp::model::RequestId;

use super::routing::Candidate;

/// Maximum number of recorded questions. A question is recorded from the time when it is read until a person or a model is asked. The
/// transport forwards at most half this number at the same time.
const MAX_NOTES: usize = 512;
/// Maximum length in bytes of a question's id. For a question with a longer id, nothing is recorded. The limit is needed because the server
/// chooses the id.
const MAX_ID_BYTES: usize = 256;

#[derive(Default)]
pub(in crate::client) struct QuestionCandidates(Mutex<VecDeque<Note>>);

struct Note {
    question: RequestId,
    /// Calls that were in flight when the question was read. `None` if two questions have this id.
    candidates: Option<Vec<Candidate>>,
}

impl QuestionCandidates {
    pub(in crate::client) fn note(&self, question: RequestId, candidates: Vec<Candidate>) {
        if matches!(&question, RequestId::String(id) if id.len() > MAX_ID_BYTES) {
            return;
        }
        let mut notes = self.0.lock();
        if let Some(known) = notes.iter_mut().find(|known| known.question == question) {
            known.candidates = None;
            return;
        }
        if notes.len() >= MAX_NOTES {
            notes.pop_front();
        }
        notes.push_back(Note { question, candidates: Some(candidates) });
    }

    /// Returns the calls that were recorded for a question, and removes the record. Returns `None` if nothing was recorded, or if two
    /// questions have this id.
    pub(in crate::client) fn take(&self, question: &RequestId) -> Option<Vec<Candidate>> {
        let mut notes = self.0.lock();
        let position = notes.iter().position(|known| known.question == *question)?;
        notes.remove(position)?.candidates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> RequestId {
        RequestId::Number(number)
    }

    #[test]
    fn of_two_questions_with_one_id_nothing_is_certain() {
        let (heard, one) = (QuestionCandidates::default(), vec![Candidate { key: 1, caller: 1 }]);
        heard.note(id(1), one.clone());
        heard.note(id(2), one.clone());
        heard.note(id(2), Vec::new());
        assert_eq!(heard.take(&id(1)), Some(one));
        assert_eq!([heard.take(&id(2)), heard.take(&id(2)), heard.take(&id(1))], [None, None, None]);
    }

    #[test]
    fn what_was_read_and_never_put_is_kept_within_limits() {
        let heard = QuestionCandidates::default();
        let long = RequestId::String("x".repeat(MAX_ID_BYTES + 1).into());
        heard.note(long.clone(), Vec::new());
        assert_eq!(heard.take(&long), None);
        (0..10_000).for_each(|number| heard.note(id(number), Vec::new()));
        assert_eq!(heard.0.lock().len(), MAX_NOTES);
        assert_eq!(heard.take(&id(9_999)), Some(Vec::new()));
    }
}
