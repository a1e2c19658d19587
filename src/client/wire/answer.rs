//! The outcome of a request: the server's own result as it is, or a failure and whether the request may have been carried out.

use rmcp::model::ErrorData;
use rmcp::service::ServiceError;
use serde_json::Value as Json;

use crate::client::stdio::transport::{DENSE_MARK, MALFORMED_MARK, OVERSIZE_MARK};
use crate::error::{Error, ForeignText};
use crate::limits::{MAX_MESSAGE_MEMORY_BYTES, MAX_WIRE_MESSAGE_BYTES};

const MAX_ERROR_BYTES: usize = 4 * 1024;

/// Tells whether a request reached its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The request certainly never left: it may be sent again.
    No,
    /// The request may have been carried out.
    Maybe,
}

/// A request without an answer that can be used.
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

/// An answer that is an error: the server's own, or one that the transport put in the place of what cannot be used.
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
    let malformed = mark(MALFORMED_MARK).and_then(Json::as_str);
    let message = malformed.map_or_else(|| error.message.to_string(), |problem| format!("its answer is not valid JSON: {problem}"));
    Error::Protocol { server: server.to_owned(), tool: what.into(), code: i64::from(error.code.0), message: in_error(&message).into() }
}

/// A message that would take more memory than it may.
pub(in crate::client) fn too_dense(what: String) -> Error {
    let limit = MAX_MESSAGE_MEMORY_BYTES;
    Error::ResponseTooLarge { what: what.into(), size: format!("more than {limit}").into(), limit, limit_name: "one message in memory" }
}

/// The JSON-RPC error, if the server answered with one.
pub(in crate::client) fn error_data(error: &ServiceError) -> Option<&ErrorData> {
    if let ServiceError::McpError(error) = error { Some(error) } else { None }
}

/// A server's own words in an error of ours.
pub(in crate::client) fn in_error(text: &str) -> ForeignText {
    ForeignText::cut(text, MAX_ERROR_BYTES)
}
