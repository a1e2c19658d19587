//! Answers lines of a host that are not messages, and requests whose id is in use or too long. rmcp drops some of these lines, and answers
//! others without the id of the request, so a host would wait forever for the answer to such a request.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize as _;
use serde_json as json;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Semaphore, mpsc};

use super::answers::data;
use super::request_ids::RequestIds;

/// The maximum number of unsent answers. If a host only sends invalid lines and does not read, it misses further answers.
const MAX_WAITING: usize = 64;
/// The maximum number of bytes that are read from the input at once.
const READ_BYTES: usize = 16 * 1024;
/// The mark at the beginning of some texts in UTF-8. A JSON parser may ignore it (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
const CODE: &str = "ERR_INVALID_REQUEST";

/// A line that is not a message or is too long.
#[derive(Debug, PartialEq)]
pub(super) struct Unreadable {
    /// The id of the request, if it was found.
    id: Option<RequestId>,
    error: ErrorData,
}

/// An input without those of its lines that are answered here.
pub(super) struct Watched<R> {
    input: R,
    line: Vec<u8>,
    /// The number of bytes of the current line that have been read. At most `most` of them are stored.
    length: usize,
    most: usize,
    /// The bytes that the reader gets, of which the first `given` were read.
    passed: Vec<u8>,
    given: usize,
    told: mpsc::Sender<Unreadable>,
}

impl<R> Watched<R> {
    /// Watches the lines of an input. Returns the watched input, and a receiver for the unreadable lines. `most` is the maximum length of a
    /// line in bytes.
    pub(super) fn new(input: R, most: usize) -> (Self, mpsc::Receiver<Unreadable>) {
        let (told, found) = mpsc::channel(MAX_WAITING);
        (Self { input, line: Vec::new(), length: 0, most, passed: Vec::new(), given: 0, told }, found)
    }

    fn pass(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = self.most.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            self.length += piece.len();
            if piece.ends_with(b"\n") {
                match self.unreadable() {
                    Some(found) => drop(self.told.try_send(found)),
                    None => self.passed.append(&mut self.line),
                }
                self.line.clear();
                self.length = 0;
            }
        }
    }

    fn unreadable(&self) -> Option<Unreadable> {
        let line = self.line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.line);
        let found = |error: ErrorData| Some(Unreadable { id: id_within(line), error });
        if self.length > self.most {
            let problem = format!("the line has {} bytes, and at most {} are read", self.length, self.most);
            return found(ErrorData::parse_error(problem, Some(data(CODE))));
        }
        if line.iter().all(u8::is_ascii_whitespace) || json::from_slice::<ClientJsonRpcMessage>(line).is_ok() {
            return None;
        }
        match json::from_slice::<json::Value>(line) {
            Ok(message) if is_notification(&message) => None,
            Ok(message) => found(ErrorData::invalid_request(shape_problem(&message), Some(data(CODE)))),
            Err(error) => found(ErrorData::parse_error(format!("the line is not JSON: {error}"), Some(data(CODE)))),
        }
    }
}

/// Returns whether a message is a notification, which must not be answered.
fn is_notification(message: &json::Value) -> bool {
    message.get("method").is_some_and(json::Value::is_string) && message.get("id").is_none()
}

/// Returns why a value is not a message of the protocol.
fn shape_problem(message: &json::Value) -> &'static str {
    let Some(fields) = message.as_object() else {
        return "a message must be one object; several messages in one line are not supported";
    };
    let is_object = |field: &str| fields.get(field).is_none_or(json::Value::is_object);
    if fields.get("jsonrpc").and_then(json::Value::as_str) != Some("2.0") {
        "jsonrpc: must be \"2.0\""
    } else if !fields.get("id").is_none_or(|id| id.is_string() || id.is_i64()) {
        "id: must be a text or a whole number"
    } else if !fields.get("method").is_none_or(json::Value::is_string) {
        "method: must be a text"
    } else if !is_object("params") {
        "params: must be an object"
    } else {
        "the line is not a message of the protocol"
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.given < self.passed.len() {
                let end = self.passed.len().min(self.given + buffer.remaining());
                buffer.put_slice(&self.passed[self.given..end]);
                self.given = end;
                return Poll::Ready(Ok(()));
            }
            self.passed.clear();
            self.given = 0;
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.input).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // The last line has no end, so it is not a message.
                return Poll::Ready(Ok(()));
            }
            self.pass(read.filled());
        }
    }
}

/// Finds the id of a message in a line that is not valid JSON: the value of the first key `id` in the outermost object.
fn id_within(line: &[u8]) -> Option<RequestId> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = line.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = end_of_text(line, at + 1)?;
                let rest = line[end..].trim_ascii_start();
                if depth == 1 && &line[at..end] == b"\"id\"" && rest.starts_with(b":") {
                    return RequestId::deserialize(&mut json::Deserializer::from_slice(&rest[1..])).ok();
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the position after the quotation mark that ends a string.
fn end_of_text(line: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match line.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// A transport that also answers the unreadable lines of its input, and requests whose id is refused.
pub(super) struct Answering<T> {
    transport: T,
    found: mpsc::Receiver<Unreadable>,
    ids: RequestIds,
    waiting: Arc<Semaphore>,
}

impl<T: Transport<RoleServer>> Answering<T> {
    pub(super) fn new(transport: T, found: mpsc::Receiver<Unreadable>) -> Self {
        Self { transport, found, ids: RequestIds::default(), waiting: Arc::new(Semaphore::new(MAX_WAITING)) }
    }

    /// Sends an answer in a separate task, because the future that receives messages may be dropped before sending ends.
    fn answer(&mut self, message: ServerJsonRpcMessage) {
        let Ok(waits) = Arc::clone(&self.waiting).try_acquire_owned() else { return };
        let sending = self.transport.send(message);
        tokio::spawn(async move {
            drop(sending.await);
            drop(waits);
        });
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Answering<T> {
    type Error = T::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sending = self.ids.sent(&message).then(|| self.transport.send(message));
        async move {
            match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            tokio::select! {
                biased;
                Some(Unreadable { id, error }) = self.found.recv() => self.answer(ServerJsonRpcMessage::error(error, id)),
                message = self.transport.receive() => {
                    let message = message?;
                    self.ids.received(&message);
                    match &message {
                        ClientJsonRpcMessage::Request(request) => match self.ids.take(request) {
                            Ok(()) => return Some(message),
                            Err(refused) => self.answer(*refused),
                        },
                        _ => return Some(message),
                    }
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;
    use rmcp::transport::async_rw::AsyncRwTransport;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};

    use super::*;

    fn number(id: i64) -> RequestId {
        NumberOrString::Number(id)
    }

    #[test]
    fn the_id_is_that_of_the_outermost_object() {
        let id = |line: &str| id_within(line.as_bytes());
        assert_eq!(id(r#"{"params":{"id":1,"x":"\"id\":2"},"id" : 3, oops"#), Some(number(3)));
        assert_eq!(id(r#"{"id":"a\"b","x":"\ud800"}"#), Some(NumberOrString::String("a\"b".into())));
        for line in ["", "{", r#"{"id":"#, r#"{"id":{}}"#, r#"{"id"#, "}{\"id\":1", r#"["id",1]"#] {
            assert_eq!(id(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_no_message_or_too_long_is_told_of_and_every_other_line_passes() {
        let deep = format!("{{\"id\":4,\"params\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let long = format!("{{\"id\":5,\"x\":\"{}\"}}", "y".repeat(1000));
        let ping = |id: usize| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
        let (first, last, marked) = (ping(1), ping(6), format!("\u{feff}{}", ping(7)));
        let strange = r#"{"jsonrpc":"2.0","method":"notifications/strange","params":1}"#;
        let text = format!("{first}\n\n{{\"id\":2,}}\nnonsense\n{deep}\n{long}\n{last}\n{marked}\n{strange}\nend without a newline");
        let (mut watched, mut found) = Watched::new(text.as_bytes(), 1000);
        let mut passed = String::new();
        watched.read_to_string(&mut passed).await.unwrap();
        assert_eq!(passed, format!("{first}\n\n{last}\n{marked}\n{strange}\n"));
        let mut ids = Vec::new();
        while let Ok(Unreadable { id, .. }) = found.try_recv() {
            ids.push(id);
        }
        assert_eq!(ids, [Some(number(2)), None, Some(number(4)), Some(number(5))]);
    }

    #[tokio::test]
    async fn a_value_that_is_no_message_is_refused_with_its_id_and_the_reason() {
        for (line, id, problem) in [
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, None, "several messages"),
            ("5", None, "one object"),
            (r#"{"id":2,"method":"ping"}"#, Some(number(2)), "jsonrpc"),
            (r#"{"jsonrpc":"1.0","id":2,"method":"ping"}"#, Some(number(2)), "jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, None, "id: must"),
            (r#"{"jsonrpc":"2.0","id":3,"method":5}"#, Some(number(3)), "method: must"),
            (r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":"x"}"#, Some(number(4)), "params: must"),
            (r#"{"jsonrpc":"2.0","id":5}"#, Some(number(5)), "not a message"),
        ] {
            let text = format!("{line}\n");
            let (mut watched, mut found) = Watched::new(text.as_bytes(), 1000);
            let mut passed = String::new();
            watched.read_to_string(&mut passed).await.unwrap();
            assert_eq!(passed, "", "{line}");
            let found = found.try_recv().unwrap();
            assert_eq!((found.id, found.error.data), (id, Some(data(CODE))), "{line}");
            assert!(found.error.message.contains(problem), "{line}: {}", found.error.message);
        }
    }
    #[tokio::test]
    async fn a_request_whose_id_is_in_use_or_too_long_is_refused_and_the_other_goes_on() {
        let ping = |id: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"ping\"}}\n");
        let lines = [ping("a"), ping("a"), ping(&"x".repeat(300)), ping("b")].concat();
        let (output, written) = tokio::io::duplex(10_000);
        let (input, found) = Watched::new(io::Cursor::new(lines.into_bytes()), 1000);
        let mut transport = Answering::new(AsyncRwTransport::new_server(input, output), found);
        let mut ids = Vec::new();
        while let Some(ClientJsonRpcMessage::Request(request)) = transport.receive().await {
            ids.push(request.id);
        }
        assert_eq!(ids, ["a", "b"].map(|id| NumberOrString::String(id.into())));
        let mut answers = tokio::io::BufReader::new(written).lines();
        for problem in ["another request in progress", "at most 256 bytes"] {
            let answer = answers.next_line().await.unwrap().unwrap();
            assert!(answer.contains(problem) && answer.contains(CODE), "{answer}");
        }
    }
}
