//! A vector, and the digest of the text that it belongs to.

use sha2::{Digest as _, Sha256};

/// The number of dimensions of a vector.
pub const DIMENSIONS: usize = 384;

/// A vector for the meaning of a text, with whole numbers as components. Texts of similar meaning have vectors of similar direction.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    values: Box<[i8; DIMENSIONS]>,
    length: f32,
}

impl Vector {
    /// Returns a vector with these numbers. Returns `None` if there are not exactly `DIMENSIONS` numbers, or if all are 0, because such a
    /// vector has no direction.
    ///
    /// ```
    /// use hyperlight_mcp::embedding::{DIMENSIONS, Vector};
    /// let vector = Vector::new(&[3; DIMENSIONS]).unwrap();
    /// assert!((vector.cosine(&Vector::new(&[7; DIMENSIONS]).unwrap()) - 1.0).abs() < 1e-6);
    /// assert!(Vector::new(&[3; 2]).is_none() && Vector::new(&[0; DIMENSIONS]).is_none());
    /// ```
    #[must_use]
    pub fn new(values: &[i8]) -> Option<Self> {
        let values: Box<[i8; DIMENSIONS]> = Box::new(values.try_into().ok()?);
        let square = product(&values, &values);
        (square > 0.0).then(|| Self { values, length: square.sqrt() })
    }

    /// Returns the cosine of the angle between two vectors: 1 for the same direction.
    #[must_use]
    pub fn cosine(&self, other: &Self) -> f32 {
        product(&self.values, &other.values) / (self.length * other.length)
    }

    /// Returns the numbers of the vector.
    #[must_use]
    pub fn values(&self) -> &[i8; DIMENSIONS] {
        &self.values
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most 384 * 128 * 128")]
fn product(one: &[i8; DIMENSIONS], other: &[i8; DIMENSIONS]) -> f32 {
    one.iter().zip(other).map(|(one, other)| i32::from(*one) * i32::from(*other)).sum::<i32>() as f32
}

/// SHA-256 of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextDigest(pub(super) [u8; 32]);

impl TextDigest {
    /// Returns the digest of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}
