//! Finds a secret that is encoded as base64, either alone or inside a larger encoded text. In a larger text, the first and the last digit
//! may also contain bits of the neighbouring bytes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

/// Base64 digits that are allowed directly before and after an encoded secret, as bit masks. Bit N allows the digit with the value N. The
/// mask 0 allows any byte. These edge digits contain some bits of the secret. If they were not checked, a text without these bits would
/// also match. An attacker could then find the secret without knowing all of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edges {
    before: u64,
    after: u64,
}

impl Edges {
    /// Returns the range of a form that is at `start..end` of a text, extended by its edge digits. Returns `None` if the edge digits are
    /// not allowed.
    pub(super) fn around(self, text: &[u8], start: usize, end: usize) -> Option<(usize, usize)> {
        let is_one = |allowed: u64, byte: Option<&u8>| byte.and_then(|byte| value(*byte)).is_some_and(|value| allowed >> value & 1 == 1);
        let before = start.checked_sub(1).and_then(|before| text.get(before));
        let fits = (self.before == 0 || is_one(self.before, before)) && (self.after == 0 || is_one(self.after, text.get(end)));
        fits.then(|| (start - usize::from(self.before != 0), end + usize::from(self.after != 0)))
    }
}

/// Returns the value of a base64 digit in the standard or the URL-safe alphabet. Returns `None` for other bytes.
fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

pub(super) fn on_its_own(plain: &[u8]) -> [String; 4] {
    [STANDARD.encode(plain), STANDARD_NO_PAD.encode(plain), URL_SAFE.encode(plain), URL_SAFE_NO_PAD.encode(plain)]
}

/// Returns the forms of a secret inside a larger text. Each consists of the digits that only contain bits of the secret, and the allowed
/// edge digits.
pub(super) fn within(plain: &[u8]) -> Vec<(String, Edges)> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let shifted = [&[0; 3][..before], plain].concat();
        let (first_bit, last_bit) = (before * 8, shifted.len() * 8);
        let certain = first_bit.div_ceil(6)..last_bit / 6;
        for digits in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
            let own = |index: usize| digits.as_bytes().get(index).and_then(|digit| value(*digit)).unwrap_or_default();
            // In the encoded sample, the bits of the neighbouring byte are zero. In a text they can have any value, so all values are
            // allowed.
            let edge =
                |own: u8, others: usize, at: usize| (0..1_u64 << others).fold(0, |all, bits| all | 1 << (u64::from(own) | bits << at));
            let edges = Edges {
                before: if first_bit % 6 == 0 { 0 } else { edge(own(certain.start - 1), first_bit % 6, 6 - first_bit % 6) },
                after: if last_bit % 6 == 0 { 0 } else { edge(own(certain.end), 6 - last_bit % 6, 0) },
            };
            forms.push((digits[certain.clone()].to_owned(), edges));
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_within_others_are_found_and_others_are_not(plain in prop::collection::vec(any::<u8>(), 8..30), before in prop::collection::vec(any::<u8>(), 0..5), after in prop::collection::vec(any::<u8>(), 0..5), bit in 0_usize..240) {
            let is_in = |plain: &[u8]| {
                let text = STANDARD.encode([&before, plain, &after].concat());
                within(plain).iter().any(|(form, edges)| text.match_indices(form).any(|(at, _)| edges.around(text.as_bytes(), at, at + form.len()).is_some()))
            };
            prop_assert!(is_in(&plain));
            let mut other = plain.clone();
            other[bit / 8 % plain.len()] ^= 1 << (bit % 8);
            let text = STANDARD.encode([&before[..], &other, &after].concat());
            let found = within(&plain).iter().any(|(form, edges)| text.match_indices(form).any(|(at, _)| edges.around(text.as_bytes(), at, at + form.len()).is_some()));
            prop_assert!(!found);
        }
    }
}
