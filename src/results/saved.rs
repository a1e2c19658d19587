//! Saved values, which later runs of the same sandbox can read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sandbox::Wire;

/// Number of random bytes from which a handle is made.
pub const SAVED_ID_BYTES: usize = 16;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Number of base 36 digits that are needed for 128 bits.
const ID_LENGTH: usize = 25;

/// Returns a handle: a number of 128 bits in base 36, written with 25 digits and lowercase letters.
///
/// ```
/// use hyperlight_mcp::results::saved_id;
///
/// assert_eq!(saved_id([255; 16]), "f5lxx1zz5pnorynqglhzmsp33");
/// assert_eq!(saved_id([0; 16]).len(), 25);
/// ```
#[must_use]
pub fn saved_id(random: [u8; SAVED_ID_BYTES]) -> String {
    let mut rest = u128::from_le_bytes(random);
    let mut id = [b'0'; ID_LENGTH];
    for digit in id.iter_mut().rev() {
        *digit = usize::try_from(rest % 36).map_or(b'0', |value| DIGITS[value]);
        rest /= 36;
    }
    id.iter().map(|digit| char::from(*digit)).collect()
}

/// The saved values of one sandbox. Their total size and their age are limited. The oldest values are removed first.
#[derive(Debug)]
pub struct SavedValues {
    max_bytes: usize,
    max_age: Duration,
    /// The saved values, with the oldest first.
    entries: VecDeque<Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    id: String,
    value: Wire,
    saved_at: Instant,
}

impl Entry {
    fn size(&self) -> usize {
        self.id.len() + self.value.size()
    }
}

impl SavedValues {
    /// Makes an empty store. `max_bytes` limits the total size of all values, counted as JSON and bytes.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use hyperlight_mcp::{results::SavedValues, sandbox::Value};
    ///
    /// let (mut saved, now) = (SavedValues::new(1_000, Duration::from_secs(60)), Instant::now());
    /// assert!(saved.save("k3".into(), Value::from("a value").to_wire(), now));
    /// assert!(saved.get("k3", now).is_some());
    /// assert!(saved.get("k3", now + Duration::from_secs(61)).is_none());
    /// ```
    #[must_use]
    pub fn new(max_bytes: usize, max_age: Duration) -> Self {
        Self { max_bytes, max_age, entries: VecDeque::new(), bytes: 0 }
    }

    /// Saves a value. The oldest values are removed if their space is needed. If the value is larger than `max_bytes`, changes nothing
    /// and returns `false`.
    #[must_use]
    pub fn save(&mut self, id: String, value: Wire, now: Instant) -> bool {
        let entry = Entry { id, value, saved_at: now };
        let size = entry.size();
        if size > self.max_bytes {
            return false;
        }
        self.forget_old(now);
        while self.bytes + size > self.max_bytes {
            self.forget_oldest();
        }
        self.bytes += size;
        self.entries.push_back(entry);
        true
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Returns a saved value. Returns `None` if no value with this handle was saved, or if it was removed since.
    pub fn get(&mut self, id: &str, now: Instant) -> Option<&Wire> {
        self.forget_old(now);
        self.entries.iter().find(|entry| entry.id == id).map(|entry| &entry.value)
    }

    /// Returns the total size of the values that are still saved.
    pub fn size(&mut self, now: Instant) -> usize {
        self.forget_old(now);
        self.bytes
    }

    /// Returns the limits in bytes and in milliseconds. The limits are part of error messages about a missing value.
    #[must_use]
    pub fn limits(&self) -> (usize, u64) {
        (self.max_bytes, u64::try_from(self.max_age.as_millis()).unwrap_or(u64::MAX))
    }

    fn forget_old(&mut self, now: Instant) {
        while self.entries.front().is_some_and(|oldest| now.saturating_duration_since(oldest.saved_at) > self.max_age) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.bytes -= self.entries.pop_front().map_or(0, |oldest| oldest.size());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Value;

    fn value(bytes: usize) -> Wire {
        Value::Bytes(vec![7; bytes]).to_wire()
    }

    fn there(saved: &mut SavedValues, now: Instant) -> Vec<&'static str> {
        ["a", "b", "c"].into_iter().filter(|id| saved.get(id, now).is_some()).collect()
    }

    #[test]
    fn the_oldest_make_room_and_what_has_none_is_not_kept() {
        let (mut saved, now) = (SavedValues::new(1_000, Duration::from_mins(1)), Instant::now());
        assert!(saved.save("a".into(), value(400), now) && saved.save("b".into(), value(400), now));
        assert!(!saved.save("c".into(), value(1_000), now));
        assert_eq!(there(&mut saved, now), ["a", "b"]);
        assert!(saved.save("c".into(), value(500), now));
        assert_eq!(there(&mut saved, now), ["b", "c"]);
        assert_eq!(saved.get("c", now), Some(&value(500)));
        assert!(saved.save("a".into(), value(980), now));
        assert_eq!(there(&mut saved, now), ["a"]);
    }

    #[test]
    fn what_is_too_old_is_gone_and_leaves_its_room() {
        let (mut saved, start) = (SavedValues::new(1_000, Duration::from_mins(1)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(saved.save("a".into(), value(400), start) && saved.save("b".into(), value(400), at(30)));
        assert_eq!(there(&mut saved, at(60)), ["a", "b"]);
        assert_eq!(there(&mut saved, at(61)), ["b"]);
        assert!(saved.save("c".into(), value(400), at(61)));
        assert_eq!(there(&mut saved, at(90)), ["b", "c"]);
        assert_eq!(saved.bytes, saved.entries.iter().map(Entry::size).sum::<usize>());
    }

    #[test]
    fn handles_differ_where_their_randomness_does() {
        let ids: std::collections::BTreeSet<_> =
            (0..128_u32).map(|bit| saved_id((1_u128 << bit).to_le_bytes())).chain([saved_id([0; 16])]).collect();
        assert_eq!(ids.len(), 129);
        assert!(ids.iter().all(|id| id.len() == ID_LENGTH && id.bytes().all(|digit| DIGITS.contains(&digit))));
    }
}
