//! State of the open requests to and from a server process. This module also sends requests without rmcp.
//!
//! Tool calls are sent without rmcp, because rmcp's tasks would move each call between threads. Without rmcp, the caller's thread writes
//! the request, and the reader passes the answer directly to the caller. Such requests have the same `_meta` as requests of rmcp.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rmcp::model::{ErrorData, RequestId};
use serde_json::{Map, Value as Json, json};
use tokio::sync::oneshot;

use super::outbox::{Outbox, Unwritten};
use crate::client::inbound::caller::TraceFields;
use crate::client::inbound::server_requests::ServerRequests;
use crate::text::json::Sink as _;

/// First id of requests that are sent without rmcp. rmcp's own ids begin at 0. The ids fit into 32 bits, so that any server can parse them.
const FIRST_ID: i64 = 1_000_000_000;
/// Number of different ids, after which the ids repeat.
const IDS: i64 = 1_000_000_000;
/// Bytes of the JSON-RPC envelope around `params`.
const ENVELOPE_BYTES: usize = 512;

/// The result of a request as the server wrote it, or the server's error.
pub(in crate::client) type Answer = std::result::Result<Json, ErrorData>;

/// The recipient of a request's answer.
#[derive(Debug)]
pub(in crate::client) enum ResultRecipient {
    /// rmcp gets the result unparsed.
    Raw,
    /// rmcp gets the result in rmcp's own type, because rmcp itself uses the result.
    Typed,
    /// The waiting caller gets the result directly.
    Direct(oneshot::Sender<Answer>),
}

/// State of the open requests.
#[derive(Default)]
pub(in crate::client) struct Requests {
    /// The client's requests that are neither answered nor cancelled. Answers with other ids are dropped, because rmcp would fail during
    /// the handshake if it got such an answer.
    pub(in crate::client) pending: HashMap<RequestId, ResultRecipient>,
    /// Id of the `server/discover` request while its answer is awaited with a time limit.
    pub(in crate::client) probe: Option<RequestId>,
    /// The server's requests whose answers are not queued yet.
    pub(in crate::client) inbound: ServerRequests,
    /// Number of refusals that have not been written yet.
    pub(in crate::client) refusals: usize,
    /// The `_meta` of rmcp's last request that had one (since MCP 2026-07-28).
    meta: Map<String, Json>,
    /// True once no more answers will arrive.
    is_closed: bool,
}

impl Requests {
    /// Returns the id of the client's open request for which an answer with this id is meant. The two ids may differ, because some
    /// servers return a number as a string.
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

    /// Stores the `_meta` that rmcp sends, without the parts that belong to a single request.
    pub(in crate::client) fn learn(&mut self, meta: &Map<String, Json>) {
        let about_us = meta.iter().filter(|(key, _)| *key != PROGRESS_TOKEN && *key != TRACEPARENT && *key != TRACESTATE);
        self.meta = about_us.map(|(key, value)| (key.clone(), value.clone())).collect();
    }

    /// Marks the state as closed. Callers that wait without rmcp get an error. rmcp itself notices that the connection has ended.
    pub(in crate::client) fn close(&mut self) {
        self.is_closed = true;
        self.pending.retain(|_, recipient| !matches!(recipient, ResultRecipient::Direct(_)));
    }
}

const PROGRESS_TOKEN: &str = "progressToken";
/// Keys in `_meta` for the trace of a request (SEP-414).
pub(in crate::client) const TRACEPARENT: &str = "traceparent";
pub(in crate::client) const TRACESTATE: &str = "tracestate";

/// Open requests. The transport, its reader and the [`DirectLine`] share them.
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

/// A registered request that has not been sent yet. Its id is also its progress token.
pub(in crate::client) struct DirectRequest {
    pub(in crate::client) id: RequestId,
    pub(in crate::client) progress_token: Json,
    /// Receiver for the server's answer. It returns an error if the connection has ended.
    pub(in crate::client) answer: oneshot::Receiver<Answer>,
    meta: Map<String, Json>,
}

/// A parameter of a request. It is written into the request unchanged.
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
    /// Adds the trace to which the request belongs.
    pub(in crate::client) fn trace(&mut self, trace: &TraceFields) {
        let TraceFields { traceparent, tracestate } = trace;
        self.meta.insert(TRACEPARENT.to_owned(), traceparent.as_str().into());
        if let Some(tracestate) = tracestate {
            self.meta.insert(TRACESTATE.to_owned(), tracestate.as_str().into());
        }
    }

    fn line(&self, method: &str, params: &[(&str, Param<'_>)]) -> Vec<u8> {
        // The line's buffer gets its approximate size in advance, so that a long text is not copied while the buffer grows.
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

    /// Returns whether the server has closed its input. No more requests can then be sent.
    pub(in crate::client) fn is_broken(&self) -> bool {
        self.outbox.is_broken()
    }

    /// Registers a new request. Returns `None` if no more answers can arrive or no more requests can be sent.
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

    /// Sends a request with `params` and the request's `_meta`.
    pub(in crate::client) async fn send(
        &self,
        request: &DirectRequest,
        method: &str,
        params: &[(&str, Param<'_>)],
    ) -> Result<(), Unwritten> {
        self.outbox.send(request.line(method, params)).await
    }

    /// Removes a request of which nothing was written.
    pub(in crate::client) fn forget(&self, id: &RequestId) {
        lock(&self.requests).take(id);
    }

    /// Cancels a request at the server.
    pub(in crate::client) async fn cancel(&self, id: &RequestId, reason: &str) {
        // In this case, the request has already been answered, or the connection has ended.
        if lock(&self.requests).take(id).is_none() {
            return;
        }
        let params = json!({ "requestId": id, "reason": reason });
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        // A failure is ignored, because a server that has ended needs no cancellation.
        let _ = self.outbox.send(format!("{message}\n").into_bytes()).await;
    }
}
