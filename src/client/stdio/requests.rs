//! State of the requests on their way to a process and from it, and the requests of ours that go past rmcp.
//!
//! A tool call has no need of rmcp's own tasks: each of them is a change of threads. Whoever calls writes the line, and whoever reads
//! the answer hands it over. What rmcp says of us in each request is said in these as well.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rmcp::model::{ErrorData, RequestId};
use serde_json::{Map, Value as Json, json};
use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::client::inbound::server_requests::ServerRequests;
use crate::text::json::Sink as _;

/// Ids of requests that go past rmcp, apart from its own, which begin at 0. Any server can read them: they fit into 32 bits.
const FIRST_ID: i64 = 1_000_000_000;
const IDS: i64 = 1_000_000_000;
/// Bytes of the JSON-RPC envelope around `params`.
const ENVELOPE_BYTES: usize = 512;

/// A request's result as the server wrote it, or its error.
pub(in crate::client) type Answer = std::result::Result<Json, ErrorData>;

/// The way of a request's result to its caller.
#[derive(Debug)]
pub(in crate::client) enum Passage {
    /// To rmcp, as it is.
    Raw,
    /// To rmcp, whose own handshake reads it.
    Typed,
    /// To the waiting caller, past rmcp.
    Direct(oneshot::Sender<Answer>),
}

/// State of the requests on their way.
#[derive(Default)]
pub(in crate::client) struct Requests {
    /// Our requests, until they are answered, cancelled, or answered in the server's place. rmcp ends at an answer to no request while it
    /// begins, so such answers never reach it.
    pub(in crate::client) pending: HashMap<RequestId, Passage>,
    /// `server/discover`, while the wait for its answer is bounded.
    pub(in crate::client) probe: Option<RequestId>,
    /// The server's requests, until the answer is on its way.
    pub(in crate::client) inbound: ServerRequests,
    /// Refusals that wait to be written.
    pub(in crate::client) refusals: usize,
    /// Last `_meta` that rmcp sent with a request (since 2026-07-28).
    meta: Map<String, Json>,
    /// True once no answer can come any more.
    is_closed: bool,
}

impl Requests {
    /// Finds our request with this id; some servers turn a number into a text.
    pub(in crate::client) fn answered(&self, id: &RequestId) -> Option<RequestId> {
        if self.pending.contains_key(id) {
            return Some(id.clone());
        }
        let RequestId::String(text) = id else { return None };
        text.parse().ok().map(RequestId::Number).filter(|id| self.pending.contains_key(id))
    }

    pub(in crate::client) fn take(&mut self, id: &RequestId) -> Option<Passage> {
        self.probe.take_if(|probe| probe == id);
        self.pending.remove(id)
    }

    /// Keeps the `_meta` that rmcp sends.
    pub(in crate::client) fn learn(&mut self, meta: &Map<String, Json>) {
        let about_us = meta.iter().filter(|(key, _)| *key != PROGRESS_TOKEN);
        self.meta = about_us.map(|(key, value)| (key.clone(), value.clone())).collect();
    }

    /// Closes the state: callers past rmcp learn that no answer comes; rmcp sees that itself.
    pub(in crate::client) fn close(&mut self) {
        self.is_closed = true;
        self.pending.retain(|_, passage| !matches!(passage, Passage::Direct(_)));
    }
}

const PROGRESS_TOKEN: &str = "progressToken";

/// Shared by the transport, its reader, and those who send past rmcp.
pub(in crate::client) type SharedRequests = Arc<Mutex<Requests>>;

pub(in crate::client) fn lock(requests: &SharedRequests) -> MutexGuard<'_, Requests> {
    requests.lock()
}

/// The way past rmcp.
pub(in crate::client) struct DirectLine {
    requests: SharedRequests,
    outbox: Outbox,
    next: AtomicI64,
}

/// A request that is about to be sent. Its id is its progress token as well.
pub(in crate::client) struct DirectRequest {
    pub(in crate::client) id: RequestId,
    pub(in crate::client) progress_token: Json,
    /// The server's answer; an error where the connection has ended.
    pub(in crate::client) answer: oneshot::Receiver<Answer>,
    meta: Map<String, Json>,
}

/// A parameter, written into the request as it is.
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
    fn line(&self, method: &str, params: &[(&str, Param<'_>)]) -> Vec<u8> {
        // A long text is not to be moved while the line grows.
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

    /// Opens a request; `None` where no answer can come any more.
    pub(in crate::client) fn open(&self) -> Option<DirectRequest> {
        let id = FIRST_ID + self.next.fetch_add(1, Ordering::Relaxed) % IDS;
        let (sender, answer) = oneshot::channel();
        let mut requests = lock(&self.requests);
        if requests.is_closed {
            return None;
        }
        let progress_token = Json::from(id);
        let mut meta = requests.meta.clone();
        meta.insert(PROGRESS_TOKEN.to_owned(), progress_token.clone());
        let id = RequestId::Number(id);
        requests.pending.insert(id.clone(), Passage::Direct(sender));
        drop(requests);
        Some(DirectRequest { id, progress_token, answer, meta })
    }

    /// Sends a request with `params` and the `_meta` of rmcp.
    pub(in crate::client) async fn send(&self, request: &DirectRequest, method: &str, params: &[(&str, Param<'_>)]) -> Result<()> {
        self.outbox.send(request.line(method, params)).await
    }

    /// Cancels a request at the server.
    pub(in crate::client) async fn cancel(&self, id: &RequestId, reason: &str) {
        // Answered, or gone, meanwhile.
        if lock(&self.requests).take(id).is_none() {
            return;
        }
        let params = json!({ "requestId": id, "reason": reason });
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        // A server that is gone needs no word.
        let _ = self.outbox.send(format!("{message}\n").into_bytes()).await;
    }
}
