//! Detects servers with the HTTP+SSE transport of MCP 2024-11-05. On such a server, a GET request opens a stream whose first event is
//! named `endpoint`.

use http::{Method, StatusCode};

use super::body::{EVENT_STREAM, content_type, is_event_stream};
use super::client::{HttpClient, protocol_headers};
use super::exchange::Outgoing;
use super::retry::RetryPolicy;
use super::sse::Parser;

/// Maximum size of the first event. It usually has a single line.
const FIRST_EVENT_BYTES: usize = 64 * 1024;

impl HttpClient {
    /// Returns whether the server uses the HTTP+SSE transport. This method is only called after the server has refused `initialize`.
    pub(super) async fn is_legacy(&self) -> bool {
        let headers = protocol_headers(EVENT_STREAM, None, &std::collections::HashMap::new());
        let request = Outgoing { id: None, method: Method::GET, body: None, headers, retry: RetryPolicy::Unsent, within: None };
        let asking = async {
            let mut response = self.send_once(&request).await.ok()?;
            if response.status() != StatusCode::OK || !is_event_stream(&content_type(&response)) {
                return None;
            }
            let mut parser = Parser::new(FIRST_EVENT_BYTES);
            while let Some(chunk) = response.chunk().await.ok()? {
                if let Some(event) = parser.push(&chunk).ok()?.first() {
                    return Some(event.kind == "endpoint");
                }
            }
            None
        };
        matches!(tokio::time::timeout(self.limits.discover, asking).await, Ok(Some(true)))
    }
}
