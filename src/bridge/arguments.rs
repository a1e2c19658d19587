//! What a guest passes becomes the one object that MCP knows as arguments.

use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};
use crate::json_text::object_bytes;
use crate::sandbox::{Arguments, Value};

/// The arguments of a tool call. No argument at all is an empty object; bytes become base64 text.
///
/// # Errors
/// `ERR_INVALID_ARGUMENTS` for anything but one object; `ERR_ARGUMENTS_TOO_LARGE` over the limit, counted as JSON.
pub fn tool_arguments(what: &str, arguments: Arguments, limit: usize) -> Result<Map<String, Json>> {
    let mut given = match arguments {
        Arguments::Given(given) => given,
        Arguments::Oversize(size) => return Err(too_large(what, size, limit)),
        Arguments::Invalid(problem) => {
            return Err(Error::InvalidArguments { what: what.to_owned(), problem: format!("expected what JSON can carry: {problem}") });
        }
    };
    let invalid = |problem: String| Err(Error::InvalidArguments { what: what.to_owned(), problem });
    if given.len() > 1 {
        return invalid(format!("expected one object, got {} values", given.len()));
    }
    let object = match given.pop() {
        None => Map::new(),
        Some(Value::Record(fields)) => fields.into_iter().map(|(key, value)| (key, value.into_json())).collect(),
        Some(other) => return invalid(format!("expected one object, got {}", kind(&other))),
    };
    check_size(what, &object, limit)?;
    Ok(object)
}

/// Refuses arguments over the limit.
///
/// # Errors
/// `ERR_ARGUMENTS_TOO_LARGE`.
pub(crate) fn check_size(what: &str, object: &Map<String, Json>, limit: usize) -> Result<()> {
    let size = object_bytes(object);
    if size > limit { Err(too_large(what, size, limit)) } else { Ok(()) }
}

fn too_large(what: &str, size: usize, limit: usize) -> Error {
    Error::ArgumentsTooLarge { what: what.to_owned(), size, limit }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::Text(_) => "a string",
        Value::Bytes(_) => "bytes",
        Value::List(_) => "a list",
        Value::Record(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(given: Vec<Value>) -> Result<Map<String, Json>> {
        tool_arguments("s.t", Arguments::Given(given), 32)
    }

    #[test]
    fn one_object_or_nothing_is_what_a_tool_takes() {
        assert_eq!(arguments(Vec::new()).unwrap(), Map::new());
        let bytes = Value::record([("data", Value::Bytes(vec![1, 2]))]);
        assert_eq!(Json::Object(arguments(vec![bytes]).unwrap()), json!({ "data": "AQI=" }));
        for (wrong, word) in [(Value::Null, "null"), (Value::from("x"), "a string"), (Value::List(Vec::new()), "a list")] {
            let error = arguments(vec![wrong]).unwrap_err();
            assert_eq!(error.code(), "ERR_INVALID_ARGUMENTS");
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(arguments(vec![Value::Null, Value::Null]).unwrap_err().to_string().contains("2 values"));
    }

    #[test]
    fn the_limit_counts_the_json_and_holds_to_the_byte() {
        let sized = |bytes: usize| vec![Value::record([("x", Value::from("a".repeat(bytes - r#"{"x":""}"#.len())))])];
        assert!(arguments(sized(32)).is_ok());
        let error = arguments(sized(33)).unwrap_err();
        assert_eq!(error.to_string(), "the arguments of s.t have 33 bytes; the limit maxArgumentBytes is 32");
    }
}
