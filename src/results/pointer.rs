//! A part of a value, by a JSON Pointer (RFC 6901).

use crate::sandbox::Value;

/// What of a pointer or of a value's own keys a message quotes.
const MAX_QUOTED_CHARS: usize = 100;

/// Why there is no such part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerError(pub String);

/// The part of a value that a pointer names; `""` is all of it.
///
/// # Errors
/// What is wrong with the pointer, or how far into the value it goes.
///
/// ```
/// use hyperlight_mcp::{results::part, sandbox::Value};
///
/// let value = || Value::from(serde_json::json!({ "rows": [{ "city": "Rome" }] }));
/// assert_eq!(part(value(), "/rows/0/city").unwrap(), Value::from("Rome"));
/// assert_eq!(part(value(), "/rows/7").unwrap_err().0, "there is nothing at \"/rows/7\": \"/rows\" has 1 item");
/// ```
pub fn part(value: Value, pointer: &str) -> Result<Value, PointerError> {
    let Some(steps) = pointer.strip_prefix('/') else {
        let wrong = || PointerError(format!("{:?} is no JSON Pointer: it begins with a slash, as in \"/rows/0\"", short(pointer)));
        return if pointer.is_empty() { Ok(value) } else { Err(wrong()) };
    };
    let (mut here, mut walked) = (value, 0);
    for step in steps.split('/') {
        let name = step.replace("~1", "/").replace("~0", "~");
        here = match step_into(here, &name) {
            Ok(inner) => inner,
            Err(what) => {
                let (there, all) = (short(&pointer[..walked]), short(pointer));
                return Err(PointerError(format!("there is nothing at {all:?}: {there:?} {what}")));
            }
        };
        walked += 1 + step.len();
    }
    Ok(here)
}

/// One level in; or what there is instead.
fn step_into(value: Value, name: &str) -> Result<Value, String> {
    match value {
        Value::List(mut items) => match index(name).filter(|index| *index < items.len()) {
            Some(index) => Ok(items.swap_remove(index)),
            None => Err(format!("has {} item{}", items.len(), if items.len() == 1 { "" } else { "s" })),
        },
        Value::Record(fields) => {
            let keys = || fields.iter().take(10).map(|(key, _)| short(key)).collect::<Vec<_>>().join(", ");
            let others = match (keys(), fields.len()) {
                (_, 0) => "has no keys".to_owned(),
                (keys, count @ 1..=10) => format!("has {count} key{}: {keys}", if count == 1 { "" } else { "s" }),
                (keys, count) => format!("has {count} keys: {keys}, …"),
            };
            // The last of the same name is what JSON.parse would have kept.
            fields.into_iter().rev().find(|(key, _)| key == name).map(|(_, value)| value).ok_or(others)
        }
        Value::Text(_) => Err("is a text".to_owned()),
        Value::Bytes(_) => Err("is bytes".to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Err("is no list or object".to_owned()),
    }
}

/// An index as the RFC writes it: no sign, no leading zero.
fn index(name: &str) -> Option<usize> {
    let plain = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    plain.then(|| name.parse().ok())?
}

fn short(text: &str) -> String {
    let end = text.char_indices().nth(MAX_QUOTED_CHARS).map(|(end, _)| end);
    end.map_or_else(|| text.to_owned(), |end| format!("{}…", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(pointer: &str) -> Result<serde_json::Value, String> {
        let value = json!({ "a/b": { "c~d": [10, 20] }, "": { "": 1 }, "text": "x", "0": true });
        part(Value::from(value), pointer).map(Value::into_json).map_err(|error| error.0)
    }

    #[test]
    fn a_pointer_names_a_part() {
        assert_eq!(at("/a~1b/c~0d/1"), Ok(json!(20)));
        assert_eq!(at("//"), Ok(json!(1)));
        assert_eq!(at("/0"), Ok(json!(true)));
        assert_eq!(at("").unwrap()["text"], "x");
    }

    #[test]
    fn what_is_not_there_says_how_far_it_goes_and_what_there_is() {
        for (pointer, expected) in [
            ("text", "\"text\" is no JSON Pointer: it begins with a slash, as in \"/rows/0\""),
            ("/a~1b/x", "there is nothing at \"/a~1b/x\": \"/a~1b\" has 1 key: c~d"),
            ("/a~1b/c~0d/2", "there is nothing at \"/a~1b/c~0d/2\": \"/a~1b/c~0d\" has 2 items"),
            ("/a~1b/c~0d/-", "there is nothing at \"/a~1b/c~0d/-\": \"/a~1b/c~0d\" has 2 items"),
            ("/a~1b/c~0d/01", "there is nothing at \"/a~1b/c~0d/01\": \"/a~1b/c~0d\" has 2 items"),
            ("/text/0", "there is nothing at \"/text/0\": \"/text\" is a text"),
            ("/nope", "there is nothing at \"/nope\": \"\" has 4 keys: a/b, , text, 0"),
        ] {
            assert_eq!(at(pointer), Err(expected.to_owned()), "{pointer}");
        }
        assert!(at(&format!("/{}", "x".repeat(9_000))).unwrap_err().len() < 500);
    }
}
