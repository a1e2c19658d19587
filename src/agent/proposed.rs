//! What was proposed to an agent's author: of each request they are told once, as long as it is remembered.

use std::collections::VecDeque;

/// Requests that are remembered. A model that makes more of them, by a server that changes each time, tells of the oldest once more.
const MAX_REMEMBERED: usize = 256;

/// Servers and digests, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Proposed(VecDeque<(String, String)>);

impl Proposed {
    /// Whether a request is new; from now on it is not.
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
