//! Failures of requests over HTTP. Each message names the problem and the solution.

use std::fmt;
use std::time::Duration;

use rmcp::model::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value as Json;

use crate::client::wire::answer::{DENSE_MARK, MALFORMED_MARK, OVERSIZE_MARK, in_error};
use crate::client::wire::json::ParseFailure;
use crate::error::Error;

/// Key that this client puts into an error's data if the stream broke off before the end of the answer.
pub(super) const INTERRUPTED_MARK: &str = "hyperlight-mcp/interrupted";

/// The reason why a request over HTTP got no usable answer.
#[derive(Debug, Clone)]
pub(in crate::client) enum HttpFailure {
    /// No connection was made, so the request was certainly not sent.
    NotSent { origin: String, problem: String },
    /// The connection broke after the request was sent, so the server may have acted on it.
    Interrupted { problem: String },
    /// The server refused the request with this HTTP status.
    Status { status: u16, retry_after: Option<Duration>, detail: String },
    /// The answer is larger than `limit`. It has at least `bytes` bytes.
    TooLarge { bytes: u64, limit: usize },
    /// The parsed answer would need more memory than one message may take.
    TooDense,
    /// `waiting_for` did not arrive in time.
    TimedOut { waiting_for: &'static str, after: Duration },
    /// The server requires an authorization, or refused the authorization that was sent.
    Unauthorized { status: u16, given: Credentials },
    /// The token source could not provide a token. Holds the error of the token source.
    Token(Box<Error>),
    /// The server redirected the request to an address that this client does not follow.
    Redirect { problem: String },
    /// The session ended, and could not be renewed. If `sent` is true, the server may have acted on the request before the session ended.
    SessionLost { problem: String, sent: bool },
    /// The answer is not a valid MCP message.
    Malformed(String),
    /// The server uses the HTTP+SSE transport of MCP 2024-11-05, which is not supported.
    LegacySse,
    /// This client closed the connection.
    Closed,
}

/// The kind of credentials that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Credentials {
    Nothing,
    /// The `Authorization` header that the config contains.
    Configured,
    /// A token from the server's `TokenSource`.
    Token,
}

impl HttpFailure {
    /// Returns true if the server certainly did not act on the request.
    pub(in crate::client) fn never_acted_on(&self) -> bool {
        match self {
            Self::NotSent { .. } | Self::Unauthorized { .. } | Self::Token(_) | Self::Redirect { .. } | Self::LegacySse => true,
            Self::SessionLost { sent, .. } => !sent,
            Self::Status { status, .. } => matches!(status, 404 | 405 | 429),
            _ => false,
        }
    }

    /// Converts the reason why an answer cannot be parsed.
    pub(super) fn of_parse_failure(unread: &ParseFailure) -> Self {
        match unread {
            ParseFailure::TooLarge => Self::TooDense,
            ParseFailure::Invalid(error) => Self::Malformed(format!("its answer is not valid JSON: {error}")),
        }
    }

    /// Adds the text of the server's answer to a failure with an HTTP status.
    pub(super) fn with_detail(self, detail: String) -> Self {
        match self {
            Self::Status { status, retry_after, .. } => Self::Status { status, retry_after, detail },
            other => other,
        }
    }

    /// Converts the failure to the error that a failed attempt to connect returns.
    pub(in crate::client) fn connect_error(self, server: &str) -> Error {
        let server = server.to_owned();
        match self {
            Self::Token(error) => *error,
            Self::LegacySse => Error::UnsupportedTransport { server, problem: self.to_string().into() },
            other => Error::ConnectFailed { server, problem: in_error(&other.to_string()).into() },
        }
    }

    /// Converts the failure to a JSON-RPC error that replaces the answer.
    pub(super) fn to_error_data(&self) -> ErrorData {
        let data = match self {
            Self::TooLarge { bytes, limit } => serde_json::json!({ OVERSIZE_MARK: bytes, "limit": limit }),
            Self::TooDense => serde_json::json!({ DENSE_MARK: true }),
            Self::Malformed(problem) => serde_json::json!({ MALFORMED_MARK: problem }),
            other => serde_json::json!({ INTERRUPTED_MARK: other.to_string() }),
        };
        ErrorData::internal_error(self.to_string(), Some(data))
    }

    fn of_error_data(error: &ErrorData) -> Option<Self> {
        // rmcp reports these two failures only by their message.
        match error.message.as_ref() {
            "streamable HTTP session was re-initialized before the response arrived" => {
                return Some(Self::SessionLost {
                    problem: "it ended before this request was answered; a new session was started".into(),
                    sent: true,
                });
            }
            "streamable HTTP response stream closed before its final response" => {
                return Some(Self::Interrupted { problem: "the stream ended before the answer came".into() });
            }
            _ => {}
        }
        let data = error.data.as_ref()?;
        let text = |mark| data.get(mark).and_then(Json::as_str).map(str::to_owned);
        if let Some(bytes) = data.get(OVERSIZE_MARK).and_then(Json::as_u64) {
            let limit = data.get("limit").and_then(Json::as_u64).and_then(|limit| usize::try_from(limit).ok());
            return Some(Self::TooLarge { bytes, limit: limit.unwrap_or(crate::limits::MAX_WIRE_MESSAGE_BYTES) });
        }
        if data.get(DENSE_MARK).is_some() {
            return Some(Self::TooDense);
        }
        if let Some(problem) = text(MALFORMED_MARK) {
            return Some(Self::Malformed(problem));
        }
        text(INTERRUPTED_MARK).map(|problem| Self::Interrupted { problem })
    }
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent { origin, problem } => {
                write!(out, "{origin} cannot be reached: {problem}. Nothing was sent; check that the server runs and that url is right")
            }
            Self::Interrupted { problem } => write!(out, "{problem}. The server may have acted on the request, so it was not sent again"),
            Self::Status { status, retry_after, detail } => write_status(out, *status, *retry_after, detail),
            Self::TooLarge { bytes, limit } => write!(out, "its answer has at least {bytes} bytes; one message may have at most {limit}"),
            Self::TooDense => write!(out, "its answer cannot be used: {}", ParseFailure::TooLarge),
            Self::TimedOut { waiting_for, after } => write!(out, "{waiting_for} did not arrive within {} ms", after.as_millis()),
            Self::Unauthorized { status, given, .. } => write_unauthorized(out, *status, *given),
            Self::Token(error) => error.fmt(out),
            Self::Redirect { problem } | Self::Malformed(problem) => out.write_str(problem),
            Self::SessionLost { problem, sent } => {
                let acted = if *sent { ". The server may have acted on the request, so it was not sent again" } else { "" };
                write!(out, "its session is lost: {problem}{acted}")
            }
            Self::LegacySse => out.write_str(
                "it uses the HTTP+SSE transport of MCP 2024-11-05, which is not supported. Give the server's Streamable HTTP address as url: \
                 often it is this url with /mcp in place of /sse",
            ),
            Self::Closed => out.write_str("the connection was closed"),
        }
    }
}

impl std::error::Error for HttpFailure {}

fn write_status(out: &mut fmt::Formatter<'_>, status: u16, retry_after: Option<Duration>, detail: &str) -> fmt::Result {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    write!(out, "it answered with HTTP {status} {reason}")?;
    if !detail.is_empty() {
        write!(out, ": {detail}")?;
    }
    match (status, retry_after) {
        (_, Some(delay)) => write!(out, "; it asks to wait {} s (Retry-After) before the next request", delay.as_secs()),
        (404 | 405, None) => out.write_str("; check that url is the address of its MCP endpoint"),
        _ => Ok(()),
    }
}

fn write_unauthorized(out: &mut fmt::Formatter<'_>, status: u16, given: Credentials) -> fmt::Result {
    match (given, status) {
        (Credentials::Nothing, _) => write!(
            out,
            "it requires authorization (HTTP {status}): put a token into headers.Authorization of this server's config, or set oauth if the server supports it"
        ),
        (Credentials::Configured, _) => {
            write!(
                out,
                "it refused the Authorization header of its config (HTTP {status}): check that the token is right, has not expired, and has the permissions that the server requires"
            )
        }
        (Credentials::Token, 403) => {
            write!(out, "its token lacks a permission that this request needs, and requesting more scopes did not help (HTTP 403)")
        }
        (Credentials::Token, _) => write!(out, "it refused the token that was obtained for it (HTTP {status}): authorize the server again"),
    }
}

impl From<StreamableHttpError<HttpFailure>> for HttpFailure {
    fn from(error: StreamableHttpError<HttpFailure>) -> Self {
        match error {
            StreamableHttpError::Client(failure) => failure,
            StreamableHttpError::SessionExpired => {
                Self::SessionLost { problem: "it has expired, and the server does not accept the new session either".into(), sent: false }
            }
            StreamableHttpError::SessionRecoveryTimeout => {
                Self::SessionLost { problem: "it has expired, and was not renewed in time".into(), sent: true }
            }
            StreamableHttpError::ReinitializationFailed(error) => Self::SessionLost {
                problem: format!("it has expired, and the server refused to start a new session: {}", error.message),
                sent: false,
            },
            StreamableHttpError::ControlRequestTimeout => {
                Self::TimedOut { waiting_for: "the answer to a notification", after: crate::client::http::target::CONTROL_TIMEOUT }
            }
            StreamableHttpError::TransportChannelClosed | StreamableHttpError::TokioJoinError(_) => Self::Closed,
            other => Self::Malformed(other.to_string()),
        }
    }
}

/// Returns the HTTP failure that caused a request to fail. Returns `None` if the server itself answered with an error.
pub(in crate::client) fn failure_of(error: &ServiceError) -> Option<HttpFailure> {
    match error {
        ServiceError::TransportSend(error) => failure_of_transport(error),
        ServiceError::McpError(error) => HttpFailure::of_error_data(error),
        _ => None,
    }
}

/// Returns the HTTP failure that a transport error contains.
pub(super) fn failure_of_transport(error: &DynamicTransportError) -> Option<HttpFailure> {
    error.error.downcast_ref::<HttpFailure>().cloned()
}

/// Returns the HTTP failure that caused a handshake to fail.
pub(in crate::client) fn failure_of_start(error: &ClientInitializeError) -> Option<HttpFailure> {
    match error {
        ClientInitializeError::TransportError { error, .. } => failure_of_transport(error),
        ClientInitializeError::JsonRpcError(error) => HttpFailure::of_error_data(error),
        ClientInitializeError::LegacyFallbackFailed { discover, fallback } => {
            failure_of_start(fallback).or_else(|| failure_of_start(discover))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_its_way_through_a_json_rpc_error() {
        for failure in [
            HttpFailure::TooLarge { bytes: 17, limit: 16 },
            HttpFailure::TooDense,
            HttpFailure::Malformed("no JSON".into()),
            HttpFailure::Interrupted { problem: "gone".into() },
        ] {
            let back = HttpFailure::of_error_data(&failure.to_error_data()).unwrap();
            assert_eq!(std::mem::discriminant(&back), std::mem::discriminant(&failure));
        }
    }

    #[test]
    fn a_refused_request_tells_how_long_to_wait() {
        let failure = HttpFailure::Status { status: 429, retry_after: Some(Duration::from_secs(40)), detail: String::new() };
        assert!(failure.to_string().contains("wait 40 s (Retry-After)"), "{failure}");
    }

    #[test]
    fn whoever_has_no_credentials_is_told_where_to_put_them() {
        let failure = HttpFailure::Unauthorized { status: 401, given: Credentials::Nothing };
        let text = failure.to_string();
        assert!(text.contains("headers.Authorization") && text.contains("oauth"), "{text}");
    }
}
