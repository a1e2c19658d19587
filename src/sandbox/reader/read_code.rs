//! A cache of parsed code, because an agent often runs the same script several times.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

/// The maximum number of scripts in the cache.
const MAX_SCRIPTS: usize = 128;
/// The maximum total size of the cached JavaScript. Scripts that are already JavaScript count as zero bytes.
const MAX_BYTES: usize = 4 << 20;

/// The result of converting a script to JavaScript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadCode {
    /// The script is already JavaScript.
    AsItIs,
    /// The JavaScript of the script, without the types.
    Javascript(String),
}

impl ReadCode {
    fn size(&self) -> usize {
        match self {
            Self::AsItIs => 0,
            Self::Javascript(text) => text.len(),
        }
    }
}

/// The results of the most recently used scripts, by digest.
#[derive(Default)]
pub(super) struct ReadCodes {
    known: HashMap<[u8; 32], (ReadCode, u64)>,
    bytes: usize,
    /// The number of uses. The entry with the lowest number is the least recently used one.
    uses: u64,
}

impl ReadCodes {
    pub(super) fn digest(code: &str) -> [u8; 32] {
        Sha256::digest(code.as_bytes()).into()
    }

    pub(super) fn get(&mut self, digest: &[u8; 32]) -> Option<ReadCode> {
        self.uses += 1;
        let (read, used) = self.known.get_mut(digest)?;
        *used = self.uses;
        Some(read.clone())
    }

    pub(super) fn insert(&mut self, digest: [u8; 32], read: ReadCode) {
        if read.size() > MAX_BYTES {
            return;
        }
        self.uses += 1;
        self.bytes += read.size();
        if let Some((replaced, _)) = self.known.insert(digest, (read, self.uses)) {
            self.bytes -= replaced.size();
        }
        while self.known.len() > MAX_SCRIPTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.known.iter().min_by_key(|(_, (_, used))| *used).map(|(digest, _)| *digest) else { return };
            if let Some((removed, _)) = self.known.remove(&oldest) {
                self.bytes -= removed.size();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_the_longest_ago_is_forgotten_first() {
        let mut codes = ReadCodes::default();
        let digest = |index: usize| ReadCodes::digest(&index.to_string());
        (0..MAX_SCRIPTS).for_each(|index| codes.insert(digest(index), ReadCode::AsItIs));
        assert_eq!(codes.get(&digest(0)), Some(ReadCode::AsItIs));
        codes.insert(digest(MAX_SCRIPTS), ReadCode::AsItIs);
        assert!(codes.get(&digest(0)).is_some() && codes.get(&digest(1)).is_none());
    }

    #[test]
    fn long_texts_push_others_out_and_too_long_ones_are_not_kept() {
        let mut codes = ReadCodes::default();
        let text = |bytes: usize| ReadCode::Javascript("x".repeat(bytes));
        codes.insert([1; 32], text(MAX_BYTES / 2));
        codes.insert([2; 32], text(MAX_BYTES / 2));
        codes.insert([2; 32], text(MAX_BYTES / 2));
        assert!(codes.get(&[1; 32]).is_some());
        codes.insert([3; 32], text(1));
        assert!(codes.get(&[2; 32]).is_none() && codes.get(&[1; 32]).is_some());
        codes.insert([4; 32], text(MAX_BYTES + 1));
        assert!(codes.get(&[4; 32]).is_none());
    }
}
