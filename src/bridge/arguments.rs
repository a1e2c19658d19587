//! Converts the values that a guest passes to the single arguments object that an MCP tool expects.

use serde_json::{Map, Number, Value as Json};

use crate::error::{Error, Result};
use crate::limits::MAX_ARGUMENT_LEVELS;
use crate::sandbox::{Arguments, Value};
use crate::text::json::{inexact_integer, object_bytes};

/// Returns the arguments of a tool call. A call without arguments gets an empty object. Bytes become base64 text.
///
/// # Errors
/// `ERR_INVALID_ARGUMENTS` for arguments other than one object, for a value that JSON cannot represent, for lists and objects that are
/// nested more than [`MAX_ARGUMENT_LEVELS`] levels deep, and for an integer that JavaScript would round. `ERR_ARGUMENTS_TOO_LARGE` if the
/// JSON exceeds the limit.
pub fn tool_arguments(what: &str, arguments: Arguments, limit: usize) -> Result<Map<String, Json>> {
    let mut given = match arguments {
        Arguments::Given(given) => given,
        Arguments::Oversize(size) => return Err(too_large(what, size, limit)),
        Arguments::Invalid(problem) => {
            return Err(Error::InvalidArguments {
                what: what.into(),
                problem: format!("expected values that JSON can represent: {problem}").into(),
            });
        }
    };
    let invalid = |problem: String| Err(Error::InvalidArguments { what: what.into(), problem: problem.into() });
    if given.len() > 1 {
        return invalid(format!("expected one object, got {} values", given.len()));
    }
    let object = match given.pop() {
        None => Map::new(),
        Some(Value::Record(fields)) => fields.into_iter().map(|(key, value)| (key, value.into_json())).collect(),
        Some(other) => return invalid(format!("expected one object, got {}", kind(&other))),
    };
    check_sendable(what, &object, limit)?;
    Ok(object)
}

/// Returns an error for arguments that are too large or nested more than [`MAX_ARGUMENT_LEVELS`] levels deep. Also returns an error for
/// integers that JavaScript would round, because a person who confirms the call would see other digits.
///
/// # Errors
/// `ERR_ARGUMENTS_TOO_LARGE`, `ERR_INVALID_ARGUMENTS`.
pub(crate) fn check_sendable(what: &str, object: &Map<String, Json>, limit: usize) -> Result<()> {
    let size = object_bytes(object);
    if size > limit {
        return Err(too_large(what, size, limit));
    }
    let problem = if 1 + object.values().map(levels).max().unwrap_or(0) > MAX_ARGUMENT_LEVELS {
        format!(
            "they have more than {MAX_ARGUMENT_LEVELS} levels of lists and objects, and many servers cannot read such a message: pass the inner levels as a text, if the tool accepts a text"
        )
    } else if let Some(number) = object.values().find_map(inexact_integer) {
        inexact(number)
    } else {
        return Ok(());
    };
    Err(Error::InvalidArguments { what: what.into(), problem: problem.into() })
}

/// Returns how many levels deep lists and objects are nested in a value. A text or a number has the depth 0.
fn levels(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Json::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// Returns the error message for an integer that JavaScript would round.
pub(crate) fn inexact(number: &Number) -> String {
    format!("{number} is an integer that JavaScript cannot hold exactly: pass it as a text, if the tool accepts a text")
}

fn too_large(what: &str, size: usize, limit: usize) -> Error {
    Error::ArgumentsTooLarge { what: what.into(), size, limit }
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
    use crate::sandbox::{Wire, parse_arguments, value_frame};
    use proptest::prelude::*;
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
            assert!(error.in_full().contains(word), "{error}");
        }
        assert!(arguments(vec![Value::Null, Value::Null]).unwrap_err().in_full().contains("2 values"));
    }

    /// Converts JSON text from a guest to arguments.
    fn of_text(json: &str) -> Result<Map<String, Json>> {
        let frame = Wire { json: json.to_owned(), blobs: Vec::new() }.to_frame().unwrap();
        tool_arguments("s.t", parse_arguments(&frame), 1 << 20)
    }

    /// Returns the value that a JavaScript callback receives, where all numbers are doubles.
    fn as_javascript_reads(value: &Json) -> Json {
        match value {
            Json::Number(number) => json!(number.as_f64().unwrap()),
            Json::Array(items) => items.iter().map(as_javascript_reads).collect(),
            Json::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), as_javascript_reads(value))).collect(),
            other => other.clone(),
        }
    }

    /// Generates JSON text that a hostile guest could write, with duplicate keys, long numbers and escapes.
    fn texts() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            any::<u64>().prop_map(|number| number.to_string()),
            (9_007_199_254_740_980_u64..9_007_199_254_741_010).prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| format!("{number:e}")),
            "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
            Just("-0".to_owned()),
            any::<String>().prop_map(|text| json!(text).to_string()),
            Just(r#""\ud83d\ude00""#.to_owned()),
            Just("null".to_owned()),
        ];
        let key = prop_oneof![Just("a"), Just("__proto__"), Just("constructor"), Just("toJSON"), Just("1"), Just("0"), Just("$ref")];
        leaf.prop_recursive(3, 20, 4, move |inner| {
            let field = (key.clone(), inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec(field, 0..4).prop_map(|fields| format!("{{{}}}", fields.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_a_person_is_shown_in_javascript_is_what_is_sent(text in texts()) {
            let Ok(sent) = of_text(&format!("[{{\"x\":{text}}}]")) else { return Ok(()) };
            let sent = Json::Object(sent);
            // The message to the server and the value for the callback are both made from `sent`.
            let line = sent.to_string();
            let shown: Json = serde_json::from_str(&Value::from(sent.clone()).to_wire().json).unwrap();
            prop_assert_eq!(as_javascript_reads(&shown), as_javascript_reads(&serde_json::from_str(&line).unwrap()));
            prop_assert!(inexact_integer(&sent).is_none(), "{}", line);
        }
    }

    #[test]
    fn an_integer_that_would_be_shown_as_another_is_refused_and_named() {
        for text in ["[{\"id\":9007199254740993}]", "[{\"list\":[{\"id\":-9007199254740993}]}]", "[{\"id\":9223372036854775807}]"] {
            let error = of_text(text).unwrap_err();
            assert_eq!(error.code(), "ERR_INVALID_ARGUMENTS");
            assert!(error.in_full().contains("s.t") && error.in_full().contains("pass it as a text"), "{error}");
        }
        // The guest's own code writes a large number with the same digits as JavaScript.
        let nanoseconds = of_text("[{\"start\":1769950812345678000}]").unwrap();
        assert_eq!(Json::Object(nanoseconds).to_string(), "{\"start\":1769950812345678000}");
        // The first and the last text contain an invalid number. The second contains an invalid string.
        for text in ["[{\"n\":1e400}]", "[{\"text\":\"\\ud800\"}]", "[{\"n\":NaN}]"] {
            assert_eq!(of_text(text).unwrap_err().code(), "ERR_INVALID_ARGUMENTS");
        }
        // If two fields have the same name, the last one is both shown and sent.
        assert_eq!(Json::Object(of_text("[{\"a\":1,\"a\":2}]").unwrap()).to_string(), "{\"a\":2}");
    }

    #[test]
    fn as_many_levels_are_sent_as_servers_can_read() {
        let nested = |levels: usize| of_text(&format!("[{{\"a\":{}{}}}]", "[".repeat(levels - 1), "]".repeat(levels - 1)));
        let message = json!({ "jsonrpc": "2.0", "params": { "arguments": nested(MAX_ARGUMENT_LEVELS).unwrap() } });
        assert!(serde_json::from_str::<Json>(&message.to_string()).is_ok());
        let error = nested(MAX_ARGUMENT_LEVELS + 1).unwrap_err();
        assert!(error.code() == "ERR_INVALID_ARGUMENTS" && error.in_full().contains("more than 125 levels"), "{error}");
        // With one more level, a server whose parser reads 128 levels cannot read the message.
        let message = message.to_string().replacen("[]", "[[]]", 1);
        assert!(serde_json::from_str::<Json>(&message).is_err());
    }

    #[test]
    fn more_bytes_than_cross_together_are_refused() {
        let bytes: Vec<Value> = vec![Value::Bytes(Vec::new()); crate::limits::MAX_BLOBS + 1];
        let frame = value_frame(&Value::List(vec![Value::record([("all", Value::List(bytes))])])).unwrap();
        let error = tool_arguments("s.t", parse_arguments(&frame), 1 << 20).unwrap_err();
        assert!(error.code() == "ERR_INVALID_ARGUMENTS" && error.in_full().contains("10001 Uint8Arrays"), "{error}");
    }

    #[test]
    fn the_limit_counts_the_json_and_holds_to_the_byte() {
        let sized = |bytes: usize| vec![Value::record([("x", Value::from("a".repeat(bytes - r#"{"x":""}"#.len())))])];
        assert!(arguments(sized(32)).is_ok());
        let error = arguments(sized(33)).unwrap_err();
        assert_eq!(error.in_full(), "the arguments of s.t have 33 bytes; the limit maxArgumentBytes is 32");
    }
}
