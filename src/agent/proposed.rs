//! The approval requests that were reported to an agent's author. The requests are remembered so that each request is reported only once.

use std::collections::VecDeque;

/// The maximum number of remembered requests. If there are more, the oldest request is forgotten, and may be reported again.
const MAX_REMEMBERED: usize = 256;

/// The server and digest of each request, oldest first.
#[derive(Debug, Default)]
pub(super) struct Proposed(VecDeque<(String, String)>);

impl Proposed {
    /// Returns whether a request is new, and remembers it.
    pub(super) fn is_new(&mut self, server: &str, digest: &str) -> bool {
        if self.0.iter().any(|(known, of)| known == server && of == digest) {
            return false;
        }
        if self.0.len() >= MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((server.to_owned(), digest.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_told_once_and_no_more_are_kept_than_the_limit() {
        let mut proposed = Proposed::default();
        assert!(proposed.is_new("a", "1") && !proposed.is_new("a", "1") && proposed.is_new("b", "1"));
        for number in 0..10_000 {
            assert!(proposed.is_new("c", &number.to_string()));
            assert!(!proposed.is_new("c", &number.to_string()));
        }
        assert_eq!(proposed.0.len(), MAX_REMEMBERED);
    }
}
