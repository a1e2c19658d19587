//! Reads the bodies of answers within size and time limits.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value as Json;

use super::budget::Reservation;
use super::failure::HttpFailure;
use super::target::HttpLimits;

/// Maximum size of the body of an answer whose status is not 2xx.
const REFUSAL_BYTES: usize = 64 * 1024;
/// Longest time to read the body of an answer whose status is not 2xx.
const REFUSAL_TIME: Duration = Duration::from_secs(3);

/// Reads a whole JSON answer. Reading pauses while the memory budget is used up. This pause counts against the call's time limit.
pub(super) async fn read_answer(mut response: Response, limits: &HttpLimits, place: &mut Reservation) -> Result<Vec<u8>, HttpFailure> {
    let limit = limits.message_bytes;
    if let Some(bytes) = response.content_length().filter(|bytes| *bytes > limit as u64) {
        return Err(HttpFailure::TooLarge { bytes, limit });
    }
    let mut body = Vec::new();
    loop {
        let waiting_for = "the rest of the answer";
        let chunk = tokio::time::timeout(limits.body_idle, response.chunk()).await;
        match chunk.map_err(|_| HttpFailure::TimedOut { waiting_for, after: limits.body_idle })? {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if chunk.len() > limit - body.len() => {
                return Err(HttpFailure::TooLarge { bytes: (body.len() + chunk.len()) as u64, limit });
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => {
                return Err(HttpFailure::Interrupted {
                    problem: format!("the connection broke while its answer was read: {}", reason(&error)),
                });
            }
        }
        place.hold(body.len()).await;
    }
}

/// Reads the body of an answer whose status is not 2xx. Returns an empty body if the body is too large, arrives too slowly, or is
/// incomplete.
pub(super) async fn read_refusal(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let reading = async {
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() < REFUSAL_BYTES => body.extend_from_slice(&chunk),
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    // A truncated body is dropped. A cut could split a secret, and the redactor would not recognise the remaining part.
    let is_whole = tokio::time::timeout(REFUSAL_TIME, reading).await.unwrap_or(false);
    if is_whole { body } else { Vec::new() }
}

/// Returns the text of a refusal. Returns an empty text if the refusal is HTML.
pub(super) fn detail_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.starts_with('<') { String::new() } else { text.split_whitespace().collect::<Vec<_>>().join(" ") }
}

/// Returns whether a refusal reports an unknown session. Some servers answer 400 instead of 404, with an error that has no id.
pub(super) fn names_a_session(body: &[u8]) -> bool {
    let Ok(message) = serde_json::from_slice::<Json>(body) else { return false };
    let says = message.pointer("/error/message").and_then(Json::as_str).unwrap_or_default();
    message.get("id").is_none_or(Json::is_null) && says.to_ascii_lowercase().contains("session")
}

/// Returns a description of an error without its URL, because the URL may contain a secret.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if innermost.is::<reqwest::Error>() { "the request failed".to_owned() } else { innermost.to_string() }
}

/// Returns the media type of a body, for example `application/json`. Its case is not changed, because redaction would not recognise a
/// secret in another case.
pub(super) fn content_type(response: &Response) -> String {
    let header = response.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    header.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned()
}

pub(super) fn is_json(content_type: &str) -> bool {
    let lower = content_type.to_ascii_lowercase();
    lower == "application/json" || (lower.starts_with("application/") && lower.ends_with("+json"))
}

pub(super) fn is_event_stream(content_type: &str) -> bool {
    content_type.eq_ignore_ascii_case(EVENT_STREAM)
}

pub(super) const EVENT_STREAM: &str = "text/event-stream";

#[cfg(test)]
mod refusal_tests {
    use super::*;

    /// Returns a response whose body arrives in the given parts.
    fn response(parts: Vec<Result<&'static str, std::io::Error>>) -> Response {
        http::Response::new(reqwest::Body::wrap_stream(futures::stream::iter(parts))).into()
    }

    #[tokio::test]
    async fn a_refusal_is_read_whole_or_not_at_all() {
        assert_eq!(read_refusal(response(vec![Ok("not "), Ok("here")])).await, b"not here");
        let broken = vec![Ok("token=sec"), Err(std::io::Error::other("the connection broke"))];
        assert!(read_refusal(response(broken)).await.is_empty());
        let large = (0..=REFUSAL_BYTES / 4).map(|_| Ok("1234")).collect();
        assert!(read_refusal(response(large)).await.is_empty());
    }
}
