//! Checks the shape of a body before it is parsed. A body of a few megabytes can have a million values, which take much time to parse and much memory
//! afterwards.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum number of values in a body. A host's requests have far fewer: code is one text, and large data comes from the servers.
const MAX_VALUES: usize = 100_000;
/// Maximum size in bytes of an `initialize` request. What it says is kept as long as its session.
const MAX_INITIALIZE_BYTES: usize = 64 * 1024;
/// Maximum size in bytes of `_meta` of a request. It is kept as long as its call.
const MAX_META_BYTES: usize = 16 * 1024;

/// The parts of a request that are checked.
#[derive(Deserialize)]
struct Head<'a> {
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

/// Returns whether a body may be parsed. A body that is not a request is judged by its number of values alone: parsing refuses it, if it must.
pub(super) fn is_acceptable(body: &[u8]) -> bool {
    if values_in(body) > MAX_VALUES {
        return false;
    }
    let Ok(Head { method, params }) = serde_json::from_slice(body) else { return true };
    let is_initialize = method.as_deref() == Some("initialize");
    let meta_bytes = params.and_then(|params| params.meta).map_or(0, |meta| meta.get().len());
    (!is_initialize || body.len() <= MAX_INITIALIZE_BYTES) && meta_bytes <= MAX_META_BYTES
}

/// Returns an upper limit of the number of values in a JSON text: its commas, brackets and colons outside of strings.
fn values_in(body: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' | b':' if !in_string => count += 1,
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
        is_acceptable(body.to_string().as_bytes())
    }

    #[test]
    fn long_texts_are_accepted_and_very_many_values_are_not() {
        let call = |value: serde_json::Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a", "arguments": { "x": value } } });
        assert!(accepts(&call(json!("[{,:\"\\".repeat(100_000)))));
        assert!(accepts(&call(json!(vec![1; 90_000]))));
        assert!(!accepts(&call(json!(vec![1; 110_000]))));
        assert!(!accepts(&call(json!(vec![json!({}); 60_000]))));
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
        assert!(is_acceptable(b"nonsense") && is_acceptable(b"[1]") && is_acceptable(b"{\"method\":5}"));
    }
}
