//! Writes JSON text with `serde_json`, or only counts the bytes of it.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::{Map, Number, Value as Json};

/// A destination for JSON text in memory. Writing to it never fails.
pub(crate) trait Sink: Write + Sized {
    fn put(&mut self, text: &[u8]) {
        let _ = self.write_all(text);
    }

    /// Writes a value as JSON without whitespace.
    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        let _ = serde_json::to_writer(self, value);
    }

    /// Writes a comma before every item except the first.
    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.put(b",");
        }
    }
}

impl Sink for Vec<u8> {}
impl Sink for Counter {}

/// A sink that only counts the bytes that are written to it.
#[derive(Default)]
pub(crate) struct Counter(pub(crate) usize);

impl Write for Counter {
    fn write(&mut self, text: &[u8]) -> Result<usize> {
        self.0 += text.len();
        Ok(text.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Returns the number of bytes in a value that is written as JSON without whitespace.
pub(crate) fn json_bytes(value: &Json) -> usize {
    bytes_of(value)
}

/// Returns the number of bytes in an object that is written as JSON without whitespace.
pub(crate) fn object_bytes(fields: &Map<String, Json>) -> usize {
    bytes_of(fields)
}

/// Returns the approximate size of a value in bytes. It is the total length of its texts and keys, and 8 for each other value. The texts
/// are not read, so a long text does not take more time.
pub(crate) fn approximate_bytes(value: &Json) -> usize {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(approximate_bytes).sum(),
        Json::Object(fields) => fields.iter().map(|(key, value)| key.len() + approximate_bytes(value)).sum(),
    }
}

/// Returns the approximate memory in bytes of a JSON value.
pub(crate) fn memory_bytes(value: &Json) -> usize {
    text_bytes(value).saturating_add(parts(value).saturating_mul(size_of::<Json>()))
}

/// Returns whether a JSON value takes more than this memory in bytes. Only a part of a larger value is read.
pub(crate) fn takes_more_than(value: &Json, bytes: usize) -> bool {
    fn left(value: &Json, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_sub(size_of::<Json>())?;
        match value {
            Json::Null | Json::Bool(_) | Json::Number(_) => Some(bytes),
            Json::String(text) => bytes.checked_sub(text.len()),
            Json::Array(items) => items.iter().try_fold(bytes, |bytes, item| left(item, bytes)),
            Json::Object(fields) => fields.iter().try_fold(bytes, |bytes, (key, value)| left(value, bytes.checked_sub(key.len())?)),
        }
    }
    left(value, bytes).is_none()
}

/// Returns the number of values in a JSON value. The value itself is counted too.
pub(crate) fn parts(value: &Json) -> usize {
    1 + match value {
        Json::Array(items) => items.iter().map(parts).sum(),
        Json::Object(fields) => fields.values().map(parts).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// Returns the total length in bytes of all texts and keys.
pub(crate) fn text_bytes(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(text_bytes).sum(),
        Json::Object(fields) => fields.iter().map(|(key, value)| key.len() + text_bytes(value)).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
    }
}

fn bytes_of(value: &impl Serialize) -> usize {
    let mut counter = Counter::default();
    counter.json(value);
    counter.0
}

/// Returns the first integer whose digits change when JavaScript reads it. If JavaScript shows such a value to a person, the person sees
/// other digits than those that are sent. An integer that JavaScript itself wrote does not change, however large it is.
pub(crate) fn inexact_integer(value: &Json) -> Option<&Number> {
    match value {
        Json::Number(number) => (!is_exact(number)).then_some(number),
        Json::Array(items) => items.iter().find_map(inexact_integer),
        Json::Object(fields) => fields.values().find_map(inexact_integer),
        Json::Null | Json::Bool(_) | Json::String(_) => None,
    }
}

/// Returns whether JavaScript writes a number with the same digits. This is always true for a number that is not an integer, because it
/// is also stored as a double here.
fn is_exact(number: &Number) -> bool {
    const SAFE: u64 = 1 << 53;
    let magnitude = match (number.as_u64(), number.as_i64()) {
        (Some(magnitude), _) => magnitude,
        (None, Some(negative)) => negative.unsigned_abs(),
        (None, None) => return true,
    };
    // Rust and JavaScript both write the fewest digits that identify the double, and then add zeros.
    #[allow(clippy::cast_precision_loss, reason = "this conversion must lose what JavaScript loses")]
    let is_kept = || (magnitude as f64).to_string() == magnitude.to_string();
    magnitude <= SAFE || is_kept()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_more_than_each_number_below_its_memory() {
        for value in [serde_json::json!({ "a": [[], {}, "text", null, 1], "key": "x" }), Json::Null, serde_json::json!("x")] {
            let bytes = memory_bytes(&value);
            assert!(!takes_more_than(&value, bytes) && takes_more_than(&value, bytes - 1), "{value}");
        }
    }

    #[test]
    fn an_integer_is_exact_where_javascript_writes_the_same_digits() {
        let exact = |text: &str| inexact_integer(&serde_json::from_str(text).unwrap()).is_none();
        // The larger integers are the output of JSON.stringify for 2 ** 53, 2 ** 53 + 2, 2 ** 60, 2 ** 63, -(2 ** 63), a time in
        // nanoseconds, 2 ** 64 and 1e21.
        for text in [
            "0",
            "-9007199254740992",
            "9007199254740992",
            "9007199254740994",
            "1152921504606847000",
            "9223372036854776000",
            "-9223372036854776000",
            "1769950812345678000",
            "18446744073709552000",
            "1e21",
            "0.1",
            "-0",
        ] {
            assert!(exact(text), "{text}");
        }
        for text in [
            "9007199254740993",
            "-9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "1152921504606846976",
            "18446744073709551615",
        ] {
            assert!(!exact(text), "{text}");
        }
        let nested: Json = serde_json::from_str(r#"{"a":[1,{"b":9007199254740993}]}"#).unwrap();
        assert_eq!(inexact_integer(&nested).map(ToString::to_string).as_deref(), Some("9007199254740993"));
    }

    #[test]
    fn values_are_counted_as_they_are_written() {
        let value = serde_json::json!({ "a": ["ß\u{1}\"", 1.5, -7, 1e300, u64::MAX, null, true, false, [], {}], "": { "b\n": "" } });
        let mut text = Vec::new();
        text.json(&value);
        assert_eq!(String::from_utf8(text).unwrap(), value.to_string());
        assert_eq!(json_bytes(&value), value.to_string().len());
        assert_eq!(object_bytes(value.as_object().unwrap()), value.to_string().len());
    }
}
