//! Compares a long form of a secret with a part of a text by a hash. The time of a comparison does not depend on the number of equal
//! bytes. So no text can slow the comparison down, and its time does not reveal how similar a text is to the secret.
//!
//! The hash is a polynomial over the field of 2^61 - 1 elements, evaluated at a random secret point. Two different texts of one megabyte have the
//! same hash with a probability below 2^-40.

const PRIME: u64 = (1 << 61) - 1;
/// Distance in bytes between two prefixes whose hashes are stored.
const STEP: usize = 32;

/// Point at which the polynomials are evaluated.
#[derive(Clone, Copy)]
pub(super) struct Base(u64);

/// Hash of a text. `weight` is the evaluation point raised to the power of the text's length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fingerprint {
    value: u64,
    weight: u64,
}

impl Base {
    pub(super) fn new(random: u64) -> Self {
        // A small evaluation point could be guessed.
        Self((random & PRIME).clamp(1 << 32, PRIME - 1))
    }

    pub(super) fn of(self, text: &[u8]) -> Fingerprint {
        Fingerprint { value: self.extend(0, text), weight: self.weight(text.len()) }
    }

    fn extend(self, value: u64, text: &[u8]) -> u64 {
        text.iter().fold(value, |value, byte| reduce(u128::from(value) * u128::from(self.0) + u128::from(*byte) + 1))
    }

    fn weight(self, length: usize) -> u64 {
        let (mut weight, mut square, mut left) = (1, self.0, length);
        while left > 0 {
            if left % 2 == 1 {
                weight = multiplied(weight, square);
            }
            square = multiplied(square, square);
            left /= 2;
        }
        weight
    }
}

fn multiplied(one: u64, other: u64) -> u64 {
    reduce(u128::from(one) * u128::from(other))
}

/// Returns `number` modulo [`PRIME`]. The number must be below 2^123.
fn reduce(number: u128) -> u64 {
    // The conversion cannot fail, because the sum is below 2^63.
    u64::try_from((number & u128::from(PRIME)) + (number >> 61)).unwrap_or_default() % PRIME
}

/// Hashes of a text's prefixes.
pub(super) struct Prefixes<'a> {
    base: Base,
    text: &'a [u8],
    kept: Vec<u64>,
}

impl<'a> Prefixes<'a> {
    pub(super) fn new(base: Base, text: &'a [u8]) -> Self {
        let beginnings = text.chunks_exact(STEP).scan(0, |value, chunk| {
            *value = base.extend(*value, chunk);
            Some(*value)
        });
        let kept = std::iter::once(0).chain(beginnings).collect();
        Self { base, text, kept }
    }

    fn at(&self, end: usize) -> u64 {
        self.base.extend(self.kept[end / STEP], &self.text[end / STEP * STEP..end])
    }

    /// Returns the fingerprint of the bytes from `start` to `end`. Both must be within the text.
    pub(super) fn between(&self, start: usize, end: usize) -> Fingerprint {
        let weight = self.base.weight(end - start);
        let before = multiplied(self.at(start), weight);
        Fingerprint { value: reduce(u128::from(self.at(end)) + u128::from(PRIME - before)), weight }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_place_in_a_text_has_the_fingerprint_of_what_stands_there(text in prop::collection::vec(any::<u8>(), 0..300), random: u64, a in 0_usize..300, b in 0_usize..300) {
            let base = Base::new(random);
            let (a, b) = (a.min(text.len()), b.min(text.len()));
            let (start, end) = (a.min(b), a.max(b));
            prop_assert!(Prefixes::new(base, &text).between(start, end) == base.of(&text[start..end]));
        }

        #[test]
        fn texts_that_differ_have_different_fingerprints(one in prop::collection::vec(any::<u8>(), 0..100), other in prop::collection::vec(any::<u8>(), 0..100), random: u64) {
            let base = Base::new(random);
            prop_assert_eq!(base.of(&one) == base.of(&other), one == other);
        }
    }
}
