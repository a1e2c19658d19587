//! Counts the parts of a value that cost Node's main thread time. Node reads a value in one turn of its event loop, so a small text of very
//! many lists, objects, keys and texts would hold that thread for long.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// Cost of a key that no earlier object had after the same keys. JavaScript engines make a hidden class for it.
const NEW_KEY: usize = 3;
/// Cost of an entry of an escaped record, besides its key: Node reads it as a list, and then makes a field of it.
const ENTRY: usize = 2;
/// Number of characters up to which Node looks up each text in a table of all texts, to keep equal texts once.
const SHORT_TEXT_CHARS: usize = 10;

/// The error that a value has more parts than it may.
pub(super) struct TooMany;

/// The keys of an object so far, in their order, as a hash. Objects with the same keys in the same order have the same shape.
#[derive(Clone, Copy, Default, Hash, PartialEq, Eq)]
pub(super) struct Shape(u64);

/// Counts parts against a limit.
pub(super) struct Parts {
    left: usize,
    is_exceeded: bool,
    seen: Option<Seen>,
}

/// Hashes of what was counted. The hashes have a random key, so no value can make two of them equal on purpose.
#[derive(Default)]
struct Seen {
    hasher: RandomState,
    shapes: HashSet<u64>,
    texts: HashSet<u64>,
}

impl Parts {
    /// Begins to count the parts of a value whose JSON text has this length. A value has fewer parts than its text has bytes, so a short text
    /// needs no count.
    pub(super) fn new(limit: usize, json_bytes: usize) -> Self {
        Self { left: limit, is_exceeded: false, seen: (json_bytes > limit).then(Seen::default) }
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Counts a list or an object.
    pub(super) fn container(&mut self) -> Result<(), TooMany> {
        self.take(1)
    }

    /// Counts the list in an escaped record, and the object that Node makes of it.
    pub(super) fn escaped_record(&mut self) -> Result<(), TooMany> {
        self.take(2)
    }

    /// Counts an entry of an escaped record.
    pub(super) fn entry(&mut self) -> Result<(), TooMany> {
        self.take(ENTRY)
    }

    /// Counts a text that is not a key.
    pub(super) fn text(&mut self, text: &str) -> Result<(), TooMany> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let is_new = text.chars().nth(SHORT_TEXT_CHARS).is_none() && seen.texts.insert(seen.hasher.hash_one(text));
        if is_new { self.take(1) } else { Ok(()) }
    }

    /// Counts the next key of an object, and returns the object's shape with it.
    pub(super) fn key(&mut self, shape: Shape, key: &str) -> Result<Shape, TooMany> {
        let Some(seen) = &mut self.seen else { return Ok(shape) };
        let hash = seen.hasher.hash_one((shape, key));
        if seen.shapes.insert(hash) {
            self.take(NEW_KEY)?;
        }
        Ok(Shape(hash))
    }

    fn take(&mut self, cost: usize) -> Result<(), TooMany> {
        if self.seen.is_none() {
            return Ok(());
        }
        let left = self.left.checked_sub(cost);
        self.is_exceeded |= left.is_none();
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(TooMany)
    }
}
