//! A deterministic mutation loop, for machines without a coverage-guided fuzzer. The same seed gives the same inputs.

use std::fs;
use std::path::{Path, PathBuf};

/// Inputs that often break parsers.
const WORDS: [&str; 32] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "//",
    "/*",
    "*/",
    "\\",
    "${",
    "${VAR}",
    "${env:A:-x}",
    "${input:a}",
    "\\${A}",
    "mcpServers",
    "servers",
    "\"command\": \"x\"",
    "null",
    "1e999",
    "-0",
    "\u{1b}[31m",
    "\u{1b}]0;",
    "\u{202e}",
    "\u{200b}",
    "\u{e0041}",
    "\0",
    "\r\n",
    "'",
    "export A=",
    "hyperlight-mcp approvals",
];
const MAX_BYTES: usize = 64 * 1024;

/// Xorshift (Marsaglia, 2003). It is good enough to choose mutations.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or(0)
    }
}

/// Returns an input that is derived from one of the seeds.
pub fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let word = WORDS[random.below(WORDS.len())].bytes();
                bytes.splice(at..at, word);
            }
            2 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).unwrap_or(0),
            3 if at < bytes.len() => {
                bytes.remove(at);
            }
            4 => {
                let end = (at + random.below(64)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

/// Returns the files of a target's corpus, sorted by name.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().filter_map(|file| fs::read(file).ok()).collect();
    assert!(!seeds.is_empty(), "{} has no corpus", folder.display());
    seeds
}
