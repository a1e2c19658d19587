//! Limits how many requests of a server are answered at the same time. rmcp starts a task for each request, so an unlimited number of
//! requests would fill the memory. This happens mainly if the server does not read the answers.

use std::collections::HashSet;

use rmcp::model::RequestId;

/// Maximum number of requests that are answered at the same time.
const MAX_REQUESTS: usize = 256;
/// Maximum number of refusals that wait because the server or the writer is slow. Each refusal takes a few hundred bytes.
pub(in crate::client) const MAX_REFUSALS: usize = 4_096;
/// Maximum length in bytes of a request's id. The answer repeats the id, and no server needs a longer one.
const MAX_ID_BYTES: usize = 256;

#[derive(Default)]
pub(in crate::client) struct ServerRequests(HashSet<RequestId>);

/// The decision about a server's request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum Admission {
    HandOn,
    /// The request is already being answered, or its id is not valid. It is ignored.
    Skip,
    /// Too many requests are being answered.
    Refuse,
}

impl ServerRequests {
    pub(in crate::client) fn admit(&mut self, id: &RequestId) -> Admission {
        if self.0.contains(id) || matches!(id, RequestId::String(id) if id.len() > MAX_ID_BYTES) {
            return Admission::Skip;
        }
        if self.0.len() >= MAX_REQUESTS {
            return Admission::Refuse;
        }
        self.0.insert(id.clone());
        Admission::HandOn
    }

    /// Removes a request that has been answered or cancelled.
    pub(in crate::client) fn end(&mut self, id: &RequestId) {
        self.0.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_handed_on_at_once_and_none_twice() {
        let mut asked = ServerRequests::default();
        for number in 0..256 {
            assert_eq!(asked.admit(&RequestId::Number(number)), Admission::HandOn);
        }
        assert_eq!(asked.admit(&RequestId::Number(7)), Admission::Skip);
        assert_eq!(asked.admit(&RequestId::Number(300)), Admission::Refuse);
        asked.end(&RequestId::Number(7));
        assert_eq!(asked.admit(&RequestId::String("x".repeat(257).into())), Admission::Skip);
        assert_eq!(asked.admit(&RequestId::Number(300)), Admission::HandOn);
    }
}
