//! Records which calls were in flight when a server's question was read. rmcp may deliver a call's answer before a question that arrived
//! earlier, so the calls in flight at delivery can differ.

use parking_lot::Mutex;
use std::collections::VecDeque;

use rmcp::model::RequestId;

use super::routing::Candidate;

/// Maximum number of questions that were read and not yet put to anybody. The transport hands on at most half this number.
const MAX_NOTES: usize = 512;
/// Longest id of a question for which calls are recorded. The server chooses the id.
const MAX_ID_BYTES: usize = 256;

#[derive(Default)]
pub(in crate::client) struct QuestionCandidates(Mutex<VecDeque<Note>>);

struct Note {
    question: RequestId,
    /// Calls in flight when the question was read. `None` if two questions have this id.
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

    /// Takes the calls that were recorded for a question. Returns `None` if nothing was recorded, or two questions have this id.
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
