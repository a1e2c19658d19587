//! Checks the shape of a body before it is parsed. A body of a few megabytes can have a million values, which take much time to parse and much memory
//! afterwards.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum number of values in a body. A host's requests have far fewer: code is one text, and large data comes from the servers and not
/// from the host.
const MAX_VALUES: usize = 100_000;
/// Number of values for which a body counts as one more request of its client. Parsing a value takes some hundred times as long as reading
/// its bytes.
const VALUES_OF_REQUEST: usize = 250;
/// Maximum size in bytes of an `initialize` request. Its contents are kept as long as its session exists.
const MAX_INITIALIZE_BYTES: usize = 64 * 1024;
/// Maximum size in bytes of `_meta` of a request. The `_meta` is kept until the call ends.
const MAX_META_BYTES: usize = 16 * 1024;

/// The parts of a request that are checked.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta", default)]
    meta: Option<&'a RawValue>,
}

/// The kind of a body, as far as it can be determined before the body is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A request, or something else that is left to the parser.
    Request,
    /// An answer to a question of this server, a notification such as a cancellation, or an empty body, as in a request that ends a
    /// session. Such a message can end a request in progress, so it needs no slot of its own.
    Message,
    /// The body has too many values, or a part of it is too large. It is not parsed.
    TooLarge,
}

/// Returns the number of requests as which a body counts in addition to its own, because it has many values.
pub(super) fn further_requests(body: &[u8]) -> u32 {
    u32::try_from(values_in(body) / VALUES_OF_REQUEST).unwrap_or(u32::MAX)
}

/// Returns the kind of a body before the body is parsed. If the body is not a JSON object of the expected form, only the number of its values is
/// checked, and the parser refuses it later if it is invalid.
pub(super) fn shape(body: &[u8]) -> Shape {
    if body.is_empty() {
        return Shape::Message;
    }
    if values_in(body) > MAX_VALUES {
        return Shape::TooLarge;
    }
    // serde would parse a JSON list as the fields of `Head` in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Shape::Request;
    }
    let Ok(Head { method, params, id }) = serde_json::from_slice(body) else { return Shape::Request };
    let is_initialize = method.as_deref() == Some("initialize");
    let meta_bytes = params.and_then(|params| params.meta).map_or(0, |meta| meta.get().len());
    if is_initialize && body.len() > MAX_INITIALIZE_BYTES || meta_bytes > MAX_META_BYTES {
        return Shape::TooLarge;
    }
    match method {
        None => Shape::Message,
        Some(method) if method.starts_with("notifications/") && id.is_none() => Shape::Message,
        Some(_) => Shape::Request,
    }
}

/// Returns the number of values in a JSON text: the outermost value, each item of a list, and each value of an object. Keys are not counted.
/// For a text that is not JSON, the number is at least the number of its commas outside of strings.
fn values_in(body: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped, mut is_opened) = (1, false, false, false);
    for byte in body {
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            b']' | b'}' => {}
            // This is the first item of a list, or the first key of an object.
            _ if is_opened => count += 1,
            _ => {}
        }
        is_opened = matches!(byte, b'[' | b'{');
        match byte {
            b',' => count += 1,
            b'"' => in_string = true,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn accepts(body: &serde_json::Value) -> bool {
        shape(body.to_string().as_bytes()) != Shape::TooLarge
    }

    fn values(json: &serde_json::Value) -> usize {
        1 + match json {
            serde_json::Value::Array(items) => items.iter().map(values).sum::<usize>(),
            serde_json::Value::Object(fields) => fields.values().map(values).sum(),
            _ => 0,
        }
    }

    #[test]
    fn a_body_with_very_many_values_counts_as_many_requests() {
        let body = |values: usize| format!("{{\"params\":[{}0]}}", "0,".repeat(values));
        assert_eq!([10, 400, 99_000].map(|values| further_requests(body(values).as_bytes())), [0, 1, 396]);
        assert_eq!(further_requests(format!("\"{}\"", "0,".repeat(99_000)).as_bytes()), 0);
    }

    #[test]
    fn values_are_counted_and_neither_keys_nor_what_stands_in_texts() {
        for json in [
            json!(null),
            json!([]),
            json!({}),
            json!([1]),
            json!([[]]),
            json!([[], {}, [[{}]], "[{,:\"\\", { "a": 1, "b,[": { "c": [] } }]),
            json!({ "a": [1, 2, 3], "b": "x" }),
        ] {
            for text in [json.to_string(), format!("{json:#}"), format!(" \n{json}\t")] {
                assert_eq!(values_in(text.as_bytes()), values(&json), "{text}");
            }
        }
    }

    #[test]
    fn answers_and_notifications_are_told_from_requests() {
        for (body, expected) in [
            (json!({ "jsonrpc": "2.0", "id": 1, "result": {} }), Shape::Message),
            (json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "x" } }), Shape::Message),
            (json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" }), Shape::Message),
            (json!({ "jsonrpc": "2.0", "id": 1, "method": "notifications/cancelled" }), Shape::Request),
            (json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call" }), Shape::Request),
            (json!({ "jsonrpc": "2.0", "method": "tools/call" }), Shape::Request),
            (json!([{ "jsonrpc": "2.0", "id": 1, "result": {} }]), Shape::Request),
        ] {
            assert_eq!(shape(body.to_string().as_bytes()), expected, "{body}");
        }
        assert_eq!(shape(b""), Shape::Message);
        // If a body has two methods, the parser may use either of them.
        assert_eq!(shape(br#"{"id":1,"method":"notifications/x","method":"tools/call"}"#), Shape::Request);
        assert_eq!(shape(br#"{"id":1,"m\u0065thod":"tools/call"}"#), Shape::Request);
    }

    #[test]
    fn long_texts_are_accepted_and_very_many_values_are_not() {
        let call = |value: serde_json::Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a", "arguments": { "x": value } } });
        assert!(accepts(&call(json!("[{,:\"\\".repeat(100_000)))));
        assert!(accepts(&call(json!(vec![1; 90_000]))));
        assert!(!accepts(&call(json!(vec![1; 110_000]))));
        assert!(accepts(&call(json!(vec![json!({}); 60_000]))));
        assert!(accepts(&call(json!(vec![json!({ "key": 1 }); 49_000]))));
        assert!(!accepts(&call(json!(vec![json!({ "key": 1 }); 51_000]))));
    }

    #[test]
    fn an_initialize_that_a_session_would_keep_and_a_meta_that_a_call_would_keep_are_bounded() {
        let large = "x".repeat(70_000);
        assert!(accepts(&json!({ "method": "initialize", "params": { "clientInfo": { "name": "host" } } })));
        assert!(!accepts(&json!({ "method": "initialize", "params": { "clientInfo": { "name": large } } })));
        assert!(accepts(&json!({ "method": "tools/call", "params": { "arguments": { "text": large }, "_meta": { "progressToken": 1 } } })));
        assert!(!accepts(&json!({ "method": "tools/call", "params": { "_meta": { "x": large } } })));
    }

    #[test]
    fn a_body_that_is_no_request_is_left_to_the_parser() {
        for body in [&b"nonsense"[..], b"[1]", b"{\"method\":5}"] {
            assert_eq!(shape(body), Shape::Request);
        }
    }
}
