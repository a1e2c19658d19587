//! Finds the part of a value that a JSON Pointer (RFC 6901) refers to. The value is given as JSON text, and the text is not parsed into a
//! value.

use super::json_walk::{Kind, Walk};

/// Maximum number of characters in a pointer or a key that a message quotes.
const MAX_QUOTED_CHARS: usize = 100;
/// Maximum number of keys that a message lists.
const MAX_LISTED_KEYS: usize = 10;

/// The reason why a pointer does not refer to a part of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerError(pub String);

/// Returns the JSON text of the part to which a pointer refers. `""` refers to the whole value. The text before the part is read at most
/// once. For an error message, it is read once more.
///
/// # Errors
/// A message. It says that the pointer is invalid, or where the pointer leads to nothing and what is there instead.
///
/// ```
/// use hyperlight_mcp::results::part;
///
/// let value = r#"{"rows":[{"city":"Rome"}]}"#;
/// assert_eq!(part(value, "/rows/0/city").unwrap(), r#""Rome""#);
/// assert_eq!(part(value, "/rows/7").unwrap_err().0, "there is nothing at \"/rows/7\": \"/rows\" has 1 item");
/// ```
pub fn part<'a>(json: &'a str, pointer: &str) -> Result<&'a str, PointerError> {
    let mut here = Walk::new(json);
    let Some(steps) = pointer.strip_prefix('/') else {
        let wrong = || PointerError(format!("{:?} is not a JSON Pointer, which begins with a slash, as in \"/rows/0\"", short(pointer)));
        return if pointer.is_empty() { Ok(here.text()) } else { Err(wrong()) };
    };
    let mut walked = 0;
    for step in steps.split('/') {
        let name = step.replace("~1", "/").replace("~0", "~");
        let Some(inner) = step_into(here, &name) else {
            let (there, all) = (short(&pointer[..walked]), short(pointer));
            return Err(PointerError(format!("there is nothing at {all:?}: {there:?} {}", what_there_is(here))));
        };
        here = inner;
        walked += 1 + step.len();
    }
    Ok(here.text())
}

/// Returns the item or field `name` of a value. Returns `None` if there is none.
fn step_into<'a>(value: Walk<'a>, name: &str) -> Option<Walk<'a>> {
    match value.kind() {
        Kind::List => value.children().nth(index(name)?).map(|(_, item)| item),
        Kind::Record => value.children().find(|(key, _)| key.as_deref() == Some(name)).map(|(_, field)| field),
        Kind::Text | Kind::Bytes | Kind::Other => None,
    }
}

fn what_there_is(value: Walk<'_>) -> String {
    match value.kind() {
        Kind::List => {
            let count = value.children().count();
            format!("has {count} item{}", if count == 1 { "" } else { "s" })
        }
        Kind::Record => {
            let first: Vec<_> = value.children().take(MAX_LISTED_KEYS).filter_map(|(key, _)| Some(short(&key?))).collect();
            let keys = first.join(", ");
            match value.children().count() {
                0 => "has no keys".to_owned(),
                count @ 1..=MAX_LISTED_KEYS => format!("has {count} key{}: {keys}", if count == 1 { "" } else { "s" }),
                count => format!("has {count} keys: {keys}, …"),
            }
        }
        Kind::Text => "is a text".to_owned(),
        Kind::Bytes => "is bytes".to_owned(),
        Kind::Other => "is neither a list nor an object".to_owned(),
    }
}

/// Parses a list index as defined by RFC 6901: without a sign and without leading zeros.
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

    const VALUE: &str = r#"{"a/b":{"c~d":[10,20]},"":{"":1},"text":"x","0":true,"bytes":{"$bytes":0},"n":null}"#;

    fn at(pointer: &str) -> Result<&'static str, String> {
        part(VALUE, pointer).map_err(|error| error.0)
    }

    #[test]
    fn a_pointer_names_a_part() {
        assert_eq!(at("/a~1b/c~0d/1"), Ok("20"));
        assert_eq!(at("//"), Ok("1"));
        assert_eq!(at("/0"), Ok("true"));
        assert_eq!(at("/bytes"), Ok(r#"{"$bytes":0}"#));
        assert_eq!(at(""), Ok(VALUE));
    }

    #[test]
    fn an_object_with_a_key_like_that_of_bytes_is_walked_as_the_object_that_it_is() {
        let escaped = r#"[{"$bytes":[["$bytes",[1,2]],["x",{"$bytes":[["y","z"]]}]]}]"#;
        assert_eq!(part(escaped, "/0/$bytes/1").unwrap(), "2");
        assert_eq!(part(escaped, "/0/x/y").unwrap(), "\"z\"");
        assert_eq!(part(escaped, "/0/q").unwrap_err().0, "there is nothing at \"/0/q\": \"/0\" has 2 keys: $bytes, x");
    }

    #[test]
    fn what_is_not_there_says_how_far_it_goes_and_what_there_is() {
        for (pointer, expected) in [
            ("text", "\"text\" is not a JSON Pointer, which begins with a slash, as in \"/rows/0\""),
            ("/a~1b/x", "there is nothing at \"/a~1b/x\": \"/a~1b\" has 1 key: c~d"),
            ("/a~1b/c~0d/2", "there is nothing at \"/a~1b/c~0d/2\": \"/a~1b/c~0d\" has 2 items"),
            ("/a~1b/c~0d/-", "there is nothing at \"/a~1b/c~0d/-\": \"/a~1b/c~0d\" has 2 items"),
            ("/a~1b/c~0d/01", "there is nothing at \"/a~1b/c~0d/01\": \"/a~1b/c~0d\" has 2 items"),
            ("/text/0", "there is nothing at \"/text/0\": \"/text\" is a text"),
            ("/bytes/0", "there is nothing at \"/bytes/0\": \"/bytes\" is bytes"),
            ("/n/0", "there is nothing at \"/n/0\": \"/n\" is neither a list nor an object"),
            ("/nope", "there is nothing at \"/nope\": \"\" has 6 keys: a/b, , text, 0, bytes, n"),
        ] {
            assert_eq!(at(pointer), Err(expected.to_owned()), "{pointer}");
        }
        assert!(at(&format!("/{}", "x".repeat(9_000))).unwrap_err().len() < 500);
    }
}
