//! How many bytes a value has as JSON, counted without writing them anywhere.

use std::io::{Result, Write};

use serde::Serialize;

/// Counts what is written.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, text: &[u8]) -> Result<usize> {
        self.0 += text.len();
        Ok(text.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The bytes of a value's JSON, without blanks; 0 for what has none.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(0, |()| counter.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_what_would_be_written() {
        for value in [serde_json::json!({ "a": ["ß\u{1}\"", 1.5, null, true], "": {} }), serde_json::Value::Null] {
            assert_eq!(json_bytes(&value), value.to_string().len());
        }
    }
}
