//! The stdio transport of MCP for rmcp: one JSON-RPC message in each line.
//!
//! rmcp's own stdio transport is not used, for three reasons. First, tool results must stay unparsed, because rmcp's result type is an
//! untagged union and may parse a result with an unknown content block or an extra key as another type. Second, a line that exceeds the
//! limit must make its call fail instead of being ignored. Third, a server that does not read its input must not delay closing.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, CustomResult, ErrorCode, ErrorData, GetExtensions as _, JsonRpcError, JsonRpcMessage, JsonRpcResponse,
    JsonRpcVersion2_0, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::lines::{ID_WINDOW, Line, Lines};
use super::outbox::{Outbox, Queued};
use super::requests::{DirectLine, ResultRecipient, SharedRequests, lock};
use crate::client::inbound::notification::Interceptor;
use crate::client::inbound::rate_limit::{MESSAGE, Pace, REQUEST, UNSOLICITED};
use crate::client::inbound::server_requests::{Admission, MAX_REFUSALS};
use crate::client::wire::answer::{DENSE_MARK, MALFORMED_MARK, NO_CONTENT, OVERSIZE_MARK, error_of, is_answer_without_content};
use crate::client::wire::json::{self, ParseFailure};
use crate::off_runtime::off_the_runtime_if_long;

/// Number of messages that may wait to be handled or written. A server that sends more messages must wait.
const QUEUE: usize = 64;

pub(in crate::client) struct StdioTransport {
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    outgoing: Option<mpsc::Sender<Queued>>,
    outbox: Outbox,
    requests: SharedRequests,
    messages: mpsc::WeakSender<RxJsonRpcMessage<RoleClient>>,
    /// Longest wait for an answer to `server/discover`. If this is `None`, there is no limit.
    patience: Option<Duration>,
    tasks: [JoinHandle<()>; 2],
}

impl StdioTransport {
    pub(in crate::client) fn new<R, W>(
        read: R,
        write: W,
        max_message_bytes: usize,
        interceptor: Interceptor,
        patience: Option<Duration>,
    ) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (message_sender, incoming) = mpsc::channel(QUEUE);
        let (outbox, outgoing, writing) = Outbox::new(write, QUEUE);
        let requests = SharedRequests::default();
        let messages = message_sender.downgrade();
        let reader = Reader {
            lines: Lines::new(read, max_message_bytes),
            max_message_bytes,
            requests: Arc::clone(&requests),
            interceptor,
            messages: message_sender,
            outgoing: outgoing.downgrade(),
            pace: Pace::new(UNSOLICITED, Instant::now()),
            content: Content::Notice,
        };
        let tasks = [tokio::spawn(reader.run()), tokio::spawn(writing)];
        Self { incoming, outgoing: Some(outgoing), outbox, requests, messages, patience, tasks }
    }

    /// Makes a [`DirectLine`]. It sends requests without rmcp while the transport exists.
    pub(in crate::client) fn direct(&self) -> DirectLine {
        DirectLine::new(Arc::clone(&self.requests), self.outbox.clone())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        lock(&self.requests).close();
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = std::io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (outgoing, requests) = (self.outgoing.clone(), Arc::clone(&self.requests));
        let answers = self.note(&message);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let closed = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
            let sent = outgoing.ok_or_else(closed)?.send(line.into()).await.map_err(|_| closed());
            if let Some(id) = answers {
                lock(&requests).inbound.end(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // The writing task ends after the queue is written, or when it is aborted. The server's input then reaches its end.
        self.outgoing = None;
        Ok(())
    }
}

impl StdioTransport {
    /// Records an outgoing message. If the message is an answer, returns the id of the server's request that the message answers.
    fn note(&self, message: &TxJsonRpcMessage<RoleClient>) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(request) => {
                let recipient = match request.request.method() {
                    "initialize" | "server/discover" | "ping" | "subscriptions/listen" => ResultRecipient::Typed,
                    _ => ResultRecipient::Raw,
                };
                {
                    let mut requests = lock(&self.requests);
                    requests.pending.insert(request.id.clone(), recipient);
                    if let Some(meta) = request.request.extensions().get::<RequestMetaObject>() {
                        requests.learn(&meta.0);
                    }
                }
                if request.request.method() == "server/discover" {
                    self.probe(&request.id);
                }
                None
            }
            JsonRpcMessage::Notification(sent) => {
                if let ClientNotification::CancelledNotification(cancelled) = &sent.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    lock(&self.requests).take(id);
                }
                None
            }
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
        }
    }

    /// Starts a timer for `server/discover`. If the server does not answer in time, rmcp gets an error as the answer. An older server may
    /// ignore the unknown method, and rmcp alone would wait for 10 s.
    fn probe(&self, id: &RequestId) {
        let Some(patience) = self.patience else { return };
        lock(&self.requests).probe = Some(id.clone());
        let (id, requests, messages) = (id.clone(), Arc::clone(&self.requests), self.messages.clone());
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if lock(&requests).take(&id).is_none() {
                return;
            }
            let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "server/discover was not answered", None);
            if let Some(messages) = messages.upgrade() {
                let _ = messages.send(JsonRpcMessage::Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(id), error })).await;
            }
        });
    }
}

/// The kind of content of a line. It determines how the line counts against the rate limit.
enum Content {
    /// An answer to a request of this client. It is not counted, because the client requested it.
    Answer,
    Notice,
    Requests(usize),
}

struct Reader<R> {
    lines: Lines<R>,
    max_message_bytes: usize,
    requests: SharedRequests,
    interceptor: Interceptor,
    messages: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    /// Sender of outgoing lines. It is a weak reference, so that the server's input closes when the transport drops its own sender.
    outgoing: mpsc::WeakSender<Queued>,
    /// Rate limit for lines that are not answers.
    pace: Pace,
    /// The kind of content of the line that was read last.
    content: Content,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    async fn run(mut self) {
        // When the reader ends, callers that wait without rmcp get an error.
        let _ends = Ends(Arc::clone(&self.requests));
        while let Some(line) = self.lines.next().await {
            // The bytes of an oversized line have already been counted while the line was skipped.
            let bytes = if let Line::Whole(line) = &line { line.len() } else { 0 };
            self.content = Content::Notice;
            let messages = off_the_runtime_if_long(bytes, || self.messages_of(line));
            for message in messages {
                if self.messages.send(message).await.is_err() {
                    return;
                }
            }
            match self.content {
                Content::Answer => {}
                Content::Notice => self.rest_after(bytes + MESSAGE).await,
                Content::Requests(count) => self.rest_after(bytes + count * REQUEST).await,
            }
        }
    }

    /// Pauses if the server sends more unrequested output than the rate allows. The server then blocks on its full pipe, and other
    /// servers get processor time.
    async fn rest_after(&mut self, bytes: usize) {
        let rest = self.pace.spend(bytes, Instant::now());
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }

    fn messages_of(&mut self, line: Line) -> Vec<RxJsonRpcMessage<RoleClient>> {
        match line {
            Line::Oversize { head, tail, bytes } => {
                tracing::warn!(bytes, limit = self.max_message_bytes, "a message over the limit was dropped");
                self.fail(&head, &tail, &json!({ OVERSIZE_MARK: bytes, "limit": self.max_message_bytes }))
            }
            Line::Whole(line) => {
                let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
                if text.is_empty() {
                    return Vec::new();
                }
                match json::read(text) {
                    // MCP 2025-03-26 allowed batches of messages.
                    Ok(Json::Array(batch)) => batch.into_iter().filter_map(|message| self.message(message)).collect(),
                    Ok(message) => self.message(message).into_iter().collect(),
                    Err(error) => {
                        tracing::debug!(%error, bytes = text.len(), "a line that cannot be used was skipped");
                        let tail = &text[text.len().saturating_sub(ID_WINDOW)..];
                        let mark = if matches!(error, ParseFailure::TooLarge) { DENSE_MARK } else { MALFORMED_MARK };
                        let problem = format!("it is not valid JSON: {error}");
                        if text[0] == b'{' { self.fail(text, tail, &json!({ mark: problem })) } else { Vec::new() }
                    }
                }
            }
        }
    }

    fn message(&mut self, message: Json) -> Option<RxJsonRpcMessage<RoleClient>> {
        let (has_method, id) = (message.get("method").is_some_and(Json::is_string), message.get("id"));
        if has_method && id.is_some() {
            match &mut self.content {
                Content::Requests(count) => *count += 1,
                other => *other = Content::Requests(1),
            }
            return self.question(message);
        }
        if (self.interceptor)(&message) {
            return None;
        }
        match (has_method, message.get("id")) {
            (true, _) => {
                self.withdraw(&message);
                parsed(message)
            }
            (false, Some(id)) => self.answer(serde_json::from_value(id.clone()).ok(), message),
            (false, None) => self.answer(None, message),
        }
    }

    /// Handles a request of the server.
    fn question(&self, message: Json) -> Option<RxJsonRpcMessage<RoleClient>> {
        let id: RequestId = serde_json::from_value(message["id"].clone()).ok()?;
        let admission = lock(&self.requests).inbound.admit(&id);
        match admission {
            // The interceptor only gets requests that are admitted, because nobody is asked about repeated or refused requests.
            Admission::HandOn => {
                let handed_on = if (self.interceptor)(&message) { None } else { parsed(message) };
                if handed_on.is_none() {
                    lock(&self.requests).inbound.end(&id);
                }
                return handed_on;
            }
            Admission::Skip => tracing::debug!("a request of the server was skipped: its id is not usable or is still in use"),
            Admission::Refuse => {
                let error = json!({ "code": -32000, "message": "this client does not answer so many requests at once" });
                let refusal = json!({ "jsonrpc": "2.0", "id": id, "error": error });
                self.refuse(format!("{refusal}\n").into_bytes().into());
            }
        }
        None
    }

    /// Refuses a request of the server, because the server waits for an answer. If the writer is slow, the refusal is sent later. The
    /// number of refusals that are sent later is limited.
    fn refuse(&self, refusal: Queued) {
        let Some(outgoing) = self.outgoing.upgrade() else { return };
        let Err(TrySendError::Full(refusal)) = outgoing.try_send(refusal) else { return };
        {
            let mut requests = lock(&self.requests);
            if requests.refusals >= MAX_REFUSALS {
                return;
            }
            requests.refusals += 1;
        }
        let requests = Arc::clone(&self.requests);
        tokio::spawn(async move {
            // A failure is ignored, because the transport may have ended.
            let _ = outgoing.send(refusal).await;
            lock(&requests).refusals -= 1;
        });
    }

    /// Removes a request that the server has cancelled, because rmcp will not answer it.
    fn withdraw(&self, message: &Json) {
        if message["method"] == "notifications/cancelled"
            && let Ok(id) = serde_json::from_value::<RequestId>(message["params"]["requestId"].clone())
        {
            lock(&self.requests).inbound.end(&id);
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the caller takes the id out of the same message")]
    fn answer(&mut self, id: Option<RequestId>, mut message: Json) -> Option<RxJsonRpcMessage<RoleClient>> {
        let error = message.get("error").filter(|error| !error.is_null()).map(error_of);
        let error = match (error, message.get("result")) {
            (None, None) if id.is_some() && is_answer_without_content(&message) => Some(unusable(&json!({ MALFORMED_MARK: NO_CONTENT }))),
            (None, None) => {
                tracing::debug!("JSON that is not a message was skipped");
                return None;
            }
            (error, _) => error,
        };
        let (id, recipient) = {
            let mut requests = lock(&self.requests);
            let found = match (&id, &error) {
                (Some(id), _) => requests.answered(id),
                // A server that does not know `server/discover` may answer with an error that has no id. All other answers without an id
                // are dropped.
                (None, Some(_)) => requests.probe.clone(),
                (None, None) => None,
            };
            let Some(id) = found else {
                tracing::debug!(?id, "an answer to an unknown request was skipped");
                return None;
            };
            let recipient = requests.take(&id)?;
            (id, recipient)
        };
        self.content = Content::Answer;
        match (recipient, error) {
            // Sending fails if the caller no longer waits. This failure is ignored.
            (ResultRecipient::Direct(caller), Some(error)) => drop(caller.send(Err(error))),
            (ResultRecipient::Direct(caller), None) => drop(caller.send(Ok(message["result"].take()))),
            (_, Some(error)) => return Some(failed(id, error)),
            (ResultRecipient::Raw, None) => return Some(response(id, message["result"].take())),
            (ResultRecipient::Typed, None) => {
                message["id"] = json!(id);
                return parsed(message);
            }
        }
        None
    }

    /// Makes a call fail because its answer cannot be used. If the answer's id cannot be found, all waiting calls fail, because the
    /// answer may belong to any of them.
    fn fail(&mut self, head: &[u8], tail: &[u8], data: &Json) -> Vec<RxJsonRpcMessage<RoleClient>> {
        let head = &head[..head.len().min(ID_WINDOW)];
        let mut requests = lock(&self.requests);
        let found = [find_id(tail), find_id(head)].into_iter().flatten().find(|id| requests.pending.contains_key(id));
        let failed: Vec<RequestId> = match found {
            Some(id) => vec![id],
            // A line without the key "jsonrpc" is probably debug output of the server and not an answer.
            None if !is_message_like(head) && !is_message_like(tail) => Vec::new(),
            None => requests
                .pending
                .iter()
                .filter(|(_, recipient)| !matches!(recipient, ResultRecipient::Typed))
                .map(|(id, _)| id.clone())
                .collect(),
        };
        let error = || unusable(data);
        let fail = |id: RequestId| match requests.take(&id)? {
            ResultRecipient::Direct(caller) => {
                drop(caller.send(Err(error())));
                None
            }
            ResultRecipient::Raw | ResultRecipient::Typed => Some(self::failed(id, error())),
        };
        if !failed.is_empty() {
            self.content = Content::Answer;
        }
        failed.into_iter().filter_map(fail).collect()
    }
}

/// Guard that closes the state of the open requests when the reader ends, for whatever reason.
struct Ends(SharedRequests);

impl Drop for Ends {
    fn drop(&mut self) {
        lock(&self.0).close();
    }
}

/// Makes the error of a call whose answer cannot be used. `data` has the key that names the reason.
fn unusable(data: &Json) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, "the answer cannot be used", Some(data.clone()))
}

fn failed(id: RequestId, error: ErrorData) -> RxJsonRpcMessage<RoleClient> {
    JsonRpcMessage::Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(id), error })
}

fn response(id: RequestId, result: Json) -> RxJsonRpcMessage<RoleClient> {
    let result = ServerResult::CustomResult(CustomResult::new(result));
    JsonRpcMessage::Response(JsonRpcResponse { jsonrpc: JsonRpcVersion2_0, id, result })
}

fn parsed(message: Json) -> Option<RxJsonRpcMessage<RoleClient>> {
    let parsed = serde_json::from_value(message);
    parsed.inspect_err(|error| tracing::debug!(%error, "JSON that is not a message was skipped")).ok()
}

/// Returns whether a part of a line contains the key "jsonrpc", which every message contains.
fn is_message_like(piece: &[u8]) -> bool {
    const MARK: &[u8] = b"\"jsonrpc\"";
    piece.windows(MARK.len()).any(|window| window == MARK)
}

/// Returns the number of the last `"id"` in a part of a message. The ids of this client's own requests are numbers.
fn find_id(piece: &[u8]) -> Option<RequestId> {
    let text = String::from_utf8_lossy(piece);
    let after = text.rsplit_once("\"id\"")?.1.trim_start().strip_prefix(':')?.trim_start();
    let digits = &after[..after.find(|character: char| !character.is_ascii_digit())?];
    digits.parse().ok().map(RequestId::Number)
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
