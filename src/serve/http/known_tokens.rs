//! Remembers the digests of tokens that have identified a caller. For an address with too many failed attempts, only these tokens are
//! checked.

use std::collections::HashSet;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// The maximum number of tokens that are remembered. If there are more, older tokens are forgotten. A forgotten token is checked again once
/// its address may try again.
const MAX_TOKENS: usize = 4096;

type Digest = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct KnownTokens(Mutex<Generations>);

/// The tokens of the present generation, and of the generation before it. When the present generation is full, a new generation begins.
#[derive(Debug, Default)]
struct Generations {
    present: HashSet<Digest>,
    previous: HashSet<Digest>,
}

impl KnownTokens {
    pub(super) fn contains(&self, token: &str) -> bool {
        let (digest, known) = (digest_of(token), self.0.lock());
        known.present.contains(&digest) || known.previous.contains(&digest)
    }

    pub(super) fn add(&self, token: &str) {
        let mut known = self.0.lock();
        if known.present.insert(digest_of(token)) && known.present.len() > MAX_TOKENS / 2 {
            known.previous = std::mem::take(&mut known.present);
        }
    }

    /// Forgets a token that identifies no caller any more.
    pub(super) fn remove(&self, token: &str) {
        let (digest, mut known) = (digest_of(token), self.0.lock());
        known.present.remove(&digest);
        known.previous.remove(&digest);
    }
}

fn digest_of(token: &str) -> Digest {
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_is_removed_or_many_others_came() {
        let known = KnownTokens::default();
        known.add("used");
        known.add("withdrawn");
        known.remove("withdrawn");
        for number in 0..10 * MAX_TOKENS {
            known.add(&number.to_string());
            if number % 1000 == 0 {
                known.add("used");
            }
        }
        assert!(known.contains("used") && !known.contains("withdrawn") && !known.contains("0") && !known.contains("never"));
        let kept = known.0.lock();
        assert!(kept.present.len() + kept.previous.len() <= MAX_TOKENS + 1);
    }
}
