//! The outcome of a request: either the server's unchanged result, or a failure. A failure contains the information whether the server
//! may have acted on the request.

use rmcp::model::{ErrorCode, ErrorData};
use rmcp::service::ServiceError;
use serde_json::Value as Json;

use crate::error::{Error, ForeignText};
use crate::limits::{MAX_MESSAGE_MEMORY_BYTES, MAX_WIRE_MESSAGE_BYTES};

const MAX_ERROR_BYTES: usize = 4 * 1024;

/// Prefix of all keys that this client puts into an error's data. Keys with this prefix are removed from the errors of a server, so that a
/// server cannot set such a key itself.
const MARKS: &str = "hyperlight-mcp/";
/// Key in the data of an error that this client made because the answer was too long.
pub(in crate::client) const OVERSIZE_MARK: &str = "hyperlight-mcp/oversize";
/// Key in the data of an error that this client made because the parsed answer would need too much memory.
pub(in crate::client) const DENSE_MARK: &str = "hyperlight-mcp/dense";
/// Key in the data of an error that this client made because the answer cannot be read. The value of this key is the reason.
pub(in crate::client) const MALFORMED_MARK: &str = "hyperlight-mcp/malformed";

/// The problem of an answer for which [`is_answer_without_content`] returns true.
pub(in crate::client) const NO_CONTENT: &str = "it has neither a result nor an error";

/// Returns whether a message that has neither a method nor a result nor an error is nevertheless an answer. Other JSON, such as the debug
/// output of a server, is not an answer.
pub(in crate::client) fn is_answer_without_content(message: &Json) -> bool {
    message.get("jsonrpc").is_some()
}

/// Converts an error of any JSON type, because the errors of some servers do not follow the JSON-RPC format.
pub(in crate::client) fn error_of(error: &Json) -> ErrorData {
    let code = error.get("code").and_then(Json::as_i64).and_then(|code| i32::try_from(code).ok());
    let message = match error.get("message") {
        Some(Json::String(message)) => message.clone(),
        _ => error.to_string(),
    };
    let mut data = error.get("data").cloned().filter(|data| !data.is_null());
    if let Some(Json::Object(fields)) = &mut data {
        fields.retain(|key, _| !key.starts_with(MARKS));
    }
    ErrorData::new(code.map_or(ErrorCode::INTERNAL_ERROR, ErrorCode), message, data)
}

/// States whether a request may have reached its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The request was certainly not sent, so sending it again is safe.
    No,
    /// The server may have acted on the request.
    Maybe,
}

/// The failure of a request that got no usable answer, and whether the request may have reached the server.
#[derive(Debug)]
pub struct CallFailure {
    pub error: Error,
    pub sent: Sent,
}

impl CallFailure {
    pub(in crate::client) fn unsent(error: Error) -> Self {
        Self { error, sent: Sent::No }
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        Self { error, sent: Sent::Maybe }
    }
}

/// Converts a JSON-RPC error into an [`Error`]. The JSON-RPC error comes either from the server or from the transport. The transport
/// makes one itself when it cannot read an answer.
pub(in crate::client) fn protocol_error(server: &str, what: &str, error: &ErrorData) -> Error {
    let mark = |name: &str| error.data.as_ref().and_then(|data| data.get(name));
    if let Some(bytes) = mark(OVERSIZE_MARK) {
        let what = format!("the answer of {server}.{what}");
        return Error::ResponseTooLarge {
            what: what.into(),
            size: bytes.to_string().into(),
            limit: MAX_WIRE_MESSAGE_BYTES,
            limit_name: "one message on the wire",
        };
    }
    if mark(DENSE_MARK).is_some() {
        return too_dense(format!("the answer of {server}.{what}"));
    }
    let (server, tool) = (server.to_owned(), what.into());
    if let Some(problem) = mark(MALFORMED_MARK).and_then(Json::as_str) {
        return Error::UnusableAnswer { server, tool, problem: in_error(problem).into() };
    }
    Error::Protocol { server, tool, code: i64::from(error.code.0), message: in_error(&error.message).into() }
}

/// Makes the error for a message whose parsed form needs more than [`MAX_MESSAGE_MEMORY_BYTES`] of memory.
pub(in crate::client) fn too_dense(what: String) -> Error {
    let limit = MAX_MESSAGE_MEMORY_BYTES;
    let size = format!("when parsed, more than {limit}").into();
    Error::ResponseTooLarge { what: what.into(), size, limit, limit_name: "memory of one parsed message" }
}

/// Returns the JSON-RPC error if the server answered with one, and `None` otherwise.
pub(in crate::client) fn error_data(error: &ServiceError) -> Option<&ErrorData> {
    if let ServiceError::McpError(error) = error { Some(error) } else { None }
}

/// Cuts a text from the server to the length that an error message may quote.
pub(in crate::client) fn in_error(text: &str) -> ForeignText {
    ForeignText::cut(text, MAX_ERROR_BYTES)
}
