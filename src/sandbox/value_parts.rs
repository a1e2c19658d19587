//! Counts those parts of a value that take time on Node's main thread. Node reads a value in one turn of its event loop. So a short text
//! with a large number of lists, objects, keys and texts would block that thread for a long time.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// The cost of a key if no earlier object had this key after the same preceding keys. JavaScript engines create a hidden class for such a
/// key.
const NEW_KEY: usize = 3;
/// The cost of an entry of an escaped record, in addition to the cost of its key. Node reads the entry as a list, and then creates a field
/// from it.
const ENTRY: usize = 2;
/// The maximum number of characters of a text that is costly. Node looks up each such text in a table of all texts, to store equal texts
/// once.
const SHORT_TEXT_CHARS: usize = 10;

/// The error for a value with more parts than the limit.
pub(super) struct TooMany;

/// A hash of the keys that an object has had up to some point, in their order. Objects with the same keys in the same order have the same
/// shape.
#[derive(Clone, Copy, Default, Hash, PartialEq, Eq)]
pub(super) struct Shape(u64);

/// Counts parts against a limit.
pub(super) struct Parts {
    left: usize,
    is_exceeded: bool,
    seen: Option<Seen>,
}

/// The hashes of the parts that were counted. They use a random key, so that nobody can construct two parts with equal hashes.
#[derive(Default)]
struct Seen {
    hasher: RandomState,
    shapes: HashSet<u64>,
    texts: HashSet<u64>,
}

impl Parts {
    /// Starts to count the parts of a value whose JSON text has this length. A value has fewer parts than its text has bytes. So if the
    /// text is shorter than the limit, the parts need not be counted.
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

    /// Counts the list in an escaped record, and the object that Node creates from it.
    pub(super) fn escaped_record(&mut self) -> Result<(), TooMany> {
        self.take(2)
    }

    /// Counts an entry of an escaped record.
    pub(super) fn entry(&mut self) -> Result<(), TooMany> {
        self.take(ENTRY)
    }

    /// Counts a text that is not a key, if the text is short and was not counted before.
    pub(super) fn text(&mut self, text: &str) -> Result<(), TooMany> {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let is_new = text.chars().nth(SHORT_TEXT_CHARS).is_none() && seen.texts.insert(seen.hasher.hash_one(text));
        if is_new { self.take(1) } else { Ok(()) }
    }

    /// Counts the next key of an object, if the shape with this key is new. Returns the shape of the object with this key.
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
