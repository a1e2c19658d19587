//! State of the open requests to and from a server process, and the requests that are sent without rmcp.
//!
//! Tool calls are sent without rmcp, because rmcp's tasks would move each call between threads. Here the caller's thread writes the request,
//! and the reader passes the answer directly to the caller. Such requests carry the same `_meta` as those of rmcp.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rmcp::model::{ErrorData, RequestId};
use serde_json::{Map, Value as Json, json};
use tokio::sync::oneshot;

use super::outbox::{Outbox, Unwritten};
use crate::client::inbound::server_requests::ServerRequests;
use crate::text::json::Sink as _;

/// First id of requests that are sent without rmcp. rmcp's own ids begin at 0. The ids fit into 32 bits, so that any server can parse them.
const FIRST_ID: i64 = 1_000_000_000;
/// Number of ids before they repeat.
const IDS: i64 = 1_000_000_000;
/// Bytes of the JSON-RPC envelope around `params`.
const ENVELOPE_BYTES: usize = 512;

/// The result of a request as the server wrote it, or the server's error.
pub(in crate::client) type Answer = std::result::Result<Json, ErrorData>;

/// The recipient of a request's result.
#[derive(Debug)]
pub(in crate::client) enum ResultRecipient {
    /// rmcp gets the result unparsed.
    Raw,
    /// rmcp gets the result in its own type, because rmcp itself uses the result.
    Typed,
    /// The waiting caller gets the result, without rmcp.
    Direct(oneshot::Sender<Answer>),
}

/// State of the open requests.
#[derive(Default)]
pub(in crate::client) struct Requests {
    /// The client's requests, until they are answered or cancelled. Answers to other ids are dropped, because rmcp fails on them during the
    /// handshake.
    pub(in crate::client) pending: HashMap<RequestId, ResultRecipient>,
    /// Id of the `server/discover` request, while the wait for its answer has a time limit.
    pub(in crate::client) probe: Option<RequestId>,
    /// The server's requests, until their answers are queued.
    pub(in crate::client) inbound: ServerRequests,
    /// Number of refusals that wait to be written.
    pub(in crate::client) refusals: usize,
    /// Last `_meta` that rmcp sent with a request (since MCP 2026-07-28).
    meta: Map<String, Json>,
    /// True once no more answers can arrive.
    is_closed: bool,
}

impl Requests {
    /// Finds the client's request with this id. Some servers return a number as a string.
    pub(in crate::client) fn answered(&self, id: &RequestId) -> Option<RequestId> {
        if self.pending.contains_key(id) {
            return Some(id.clone());
        }
        let RequestId::String(text) = id else { return None };
        text.parse().ok().map(RequestId::Number).filter(|id| self.pending.contains_key(id))
    }

    pub(in crate::client) fn take(&mut self, id: &RequestId) -> Option<ResultRecipient> {
        self.probe.take_if(|probe| probe == id);
        self.pending.remove(id)
    }

    /// Stores the `_meta` that rmcp sends.
    pub(in crate::client) fn learn(&mut self, meta: &Map<String, Json>) {
        let about_us = meta.iter().filter(|(key, _)| *key != PROGRESS_TOKEN && *key != TRACEPARENT);
        self.meta = about_us.map(|(key, value)| (key.clone(), value.clone())).collect();
    }

    /// Closes the state. Callers that wait without rmcp get an error; rmcp notices the end by itself.
    pub(in crate::client) fn close(&mut self) {
        self.is_closed = true;
        self.pending.retain(|_, recipient| !matches!(recipient, ResultRecipient::Direct(_)));
    }
}

const PROGRESS_TOKEN: &str = "progressToken";
/// The key of `_meta` for the trace of a request (SEP-414).
pub(in crate::client) const TRACEPARENT: &str = "traceparent";

/// Open requests, shared by the transport, its reader, and the [`DirectLine`].
pub(in crate::client) type SharedRequests = Arc<Mutex<Requests>>;

pub(in crate::client) fn lock(requests: &SharedRequests) -> MutexGuard<'_, Requests> {
    requests.lock()
}

/// Sends requests to a server process without rmcp.
pub(in crate::client) struct DirectLine {
    requests: SharedRequests,
    outbox: Outbox,
    next: AtomicI64,
}

/// A request that is about to be sent. Its id is also its progress token.
pub(in crate::client) struct DirectRequest {
    pub(in crate::client) id: RequestId,
    pub(in crate::client) progress_token: Json,
    /// The server's answer; an error where the connection has ended.
    pub(in crate::client) answer: oneshot::Receiver<Answer>,
    meta: Map<String, Json>,
}

/// A parameter, which is written into the request unchanged.
pub(in crate::client) enum Param<'a> {
    Text(&'a str),
    Fields(&'a Map<String, Json>),
}

impl Param<'_> {
    fn roughly(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Fields(fields) => fields.values().filter_map(Json::as_str).map(str::len).sum(),
        }
    }

    fn write(&self, line: &mut Vec<u8>) {
        match self {
            Self::Text(text) => line.json(text),
            Self::Fields(fields) => line.json(fields),
        }
    }
}

impl DirectRequest {
    /// Adds the trace that the request belongs to.
    pub(in crate::client) fn trace(&mut self, traceparent: &str) {
        self.meta.insert(TRACEPARENT.to_owned(), traceparent.into());
    }

    fn line(&self, method: &str, params: &[(&str, Param<'_>)]) -> Vec<u8> {
        // The line gets its approximate size at once, so that a long text is not copied while the line grows.
        let mut line = Vec::with_capacity(ENVELOPE_BYTES + params.iter().map(|(_, value)| value.roughly()).sum::<usize>());
        line.put(b"{\"jsonrpc\":\"2.0\",\"id\":");
        line.json(&self.progress_token);
        line.put(b",\"method\":");
        line.json(method);
        line.put(b",\"params\":{\"_meta\":");
        line.json(&self.meta);
        for (name, value) in params {
            line.put(b",");
            line.json(name);
            line.put(b":");
            value.write(&mut line);
        }
        line.put(b"}}\n");
        line
    }
}

impl DirectLine {
    pub(in crate::client) fn new(requests: SharedRequests, outbox: Outbox) -> Self {
        Self { requests, outbox, next: AtomicI64::new(0) }
    }

    /// Returns whether the server has closed its input, so that no more requests can be sent.
    pub(in crate::client) fn is_broken(&self) -> bool {
        self.outbox.is_broken()
    }

    /// Registers a new request. Returns `None` if no more answers can arrive, or no more requests can be sent.
    pub(in crate::client) fn open(&self) -> Option<DirectRequest> {
        let id = FIRST_ID + self.next.fetch_add(1, Ordering::Relaxed) % IDS;
        let (sender, answer) = oneshot::channel();
        let mut requests = lock(&self.requests);
        if requests.is_closed || self.is_broken() {
            return None;
        }
        let progress_token = Json::from(id);
        let mut meta = requests.meta.clone();
        meta.insert(PROGRESS_TOKEN.to_owned(), progress_token.clone());
        let id = RequestId::Number(id);
        requests.pending.insert(id.clone(), ResultRecipient::Direct(sender));
        drop(requests);
        Some(DirectRequest { id, progress_token, answer, meta })
    }

    /// Sends a request with `params` and the `_meta` of rmcp.
    pub(in crate::client) async fn send(
        &self,
        request: &DirectRequest,
        method: &str,
        params: &[(&str, Param<'_>)],
    ) -> Result<(), Unwritten> {
        self.outbox.send(request.line(method, params)).await
    }

    /// Forgets a request of which nothing was written.
    pub(in crate::client) fn forget(&self, id: &RequestId) {
        lock(&self.requests).take(id);
    }

    /// Cancels a request at the server.
    pub(in crate::client) async fn cancel(&self, id: &RequestId, reason: &str) {
        // The request was answered, or the connection has ended.
        if lock(&self.requests).take(id).is_none() {
            return;
        }
        let params = json!({ "requestId": id, "reason": reason });
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        // A failure is ignored, because a server that has ended needs no cancellation.
        let _ = self.outbox.send(format!("{message}\n").into_bytes()).await;
    }
}
