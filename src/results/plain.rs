//! Counts the tokens of a value in the text that a model reads, which is JSON with bytes as base64.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value as Json};

use super::MAX_DEPTH;
use crate::catalog::estimate_tokens;
use crate::sandbox::Value;

/// Maximum number of bytes of text that are estimated as one token: one space before a word, together with sixteen spaces or six letters.
const MAX_BYTES_PER_TOKEN: usize = 17;

/// Returns the number of tokens of a value. Returns `None` if the number exceeds `budget`, or if the value is nested more than
/// [`MAX_DEPTH`] levels deep.
pub(super) fn tokens_within(value: &Value, budget: usize) -> Option<usize> {
    let limit = budget.saturating_mul(MAX_BYTES_PER_TOKEN).saturating_add(MAX_BYTES_PER_TOKEN);
    let mut writer = Writer { text: String::new(), limit };
    writer.write(value, 0)?;
    Some(estimate_tokens(&writer.text)).filter(|tokens| *tokens <= budget)
}

/// Returns a string as JSON text.
pub(super) fn quoted(text: &str) -> String {
    Json::String(text.to_owned()).to_string()
}

/// Returns whether a text can be written as a JSON string without escapes.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

/// Returns the length of the base64 text for `bytes` bytes.
fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Writes a value as JSON text. Stops if the text becomes too long, or if the value is nested too deeply.
struct Writer {
    text: String,
    limit: usize,
}

impl Writer {
    fn write(&mut self, value: &Value, depth: usize) -> Option<()> {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(true) => self.push("true"),
            Value::Bool(false) => self.push("false"),
            Value::Number(number) => self.number(number),
            Value::Text(text) => self.string(text),
            Value::Bytes(bytes) => {
                self.room(base64_length(bytes.len()))?;
                self.string(&STANDARD.encode(bytes))
            }
            Value::List(_) | Value::Record(_) if depth >= MAX_DEPTH => None,
            Value::List(items) => {
                self.push("[")?;
                for (index, item) in items.iter().enumerate() {
                    self.push(if index > 0 { "," } else { "" })?;
                    self.write(item, depth + 1)?;
                }
                self.push("]")
            }
            Value::Record(fields) => {
                self.push("{")?;
                for (index, (key, value)) in fields.iter().enumerate() {
                    self.push(if index > 0 { "," } else { "" })?;
                    self.string(key)?;
                    self.push(":")?;
                    self.write(value, depth + 1)?;
                }
                self.push("}")
            }
        }
    }

    fn string(&mut self, text: &str) -> Option<()> {
        self.room(text.len())?;
        if is_plain(text) {
            self.push("\"")?;
            self.push(text)?;
            return self.push("\"");
        }
        self.push(&quoted(text))
    }

    fn number(&mut self, number: &Number) -> Option<()> {
        self.room(1)?;
        // The number is written directly into the text, because there may be a million numbers. Writing to a `String` cannot fail.
        let _ = write!(self.text, "{number}");
        Some(())
    }

    fn push(&mut self, text: &str) -> Option<()> {
        self.room(text.len())?;
        self.text.push_str(text);
        Some(())
    }

    fn room(&self, more: usize) -> Option<()> {
        (more <= self.limit.saturating_sub(self.text.len())).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_as_its_json_text() {
        for json in [serde_json::json!({ "a": [1, "x\n", null, true], "b": {} }), serde_json::json!("getForecast"), serde_json::json!([])] {
            let tokens = estimate_tokens(&json.to_string());
            assert_eq!(tokens_within(&Value::from(json.clone()), 99), Some(tokens), "{json}");
            assert_eq!(tokens_within(&Value::from(json), tokens - 1), None);
        }
        assert_eq!(tokens_within(&Value::Bytes(b"hello".to_vec()), 99), Some(estimate_tokens("\"aGVsbG8=\"")));
    }

    #[test]
    fn no_text_has_more_bytes_for_a_token_than_is_assumed() {
        for text in [" ".repeat(9_000), "a ".repeat(500), "abcdef ".repeat(99), "\n".repeat(999), "ß".repeat(99), "12345".repeat(99)] {
            assert!(text.len() <= MAX_BYTES_PER_TOKEN * (estimate_tokens(&text) + 1), "{text:.20}");
        }
    }

    #[test]
    fn what_has_too_many_levels_fits_no_budget() {
        let deep = |levels| (0..levels).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        assert!(tokens_within(&deep(MAX_DEPTH), 9_999).is_some());
        assert!(tokens_within(&deep(MAX_DEPTH + 1), 9_999).is_none());
    }
}
