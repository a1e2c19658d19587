//! Answers lines of a host that are not JSON. rmcp drops such lines, so a host would wait forever for the answer to such a request.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::RoleServer;
use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize as _;
use serde_json as json;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::answers::data;

/// The maximum number of unsent answers. If a host only sends invalid lines and does not read, it misses further answers.
const MAX_WAITING: usize = 64;

/// A line that is not JSON or is too long.
#[derive(Debug, PartialEq)]
pub(super) struct Unreadable {
    /// The id of the request, if it was found.
    id: Option<RequestId>,
    problem: String,
}

/// An input that checks each line of it that is read.
pub(super) struct Watched<R> {
    input: R,
    line: Vec<u8>,
    /// The number of bytes of the current line that have been read. At most `most` of them are stored.
    length: usize,
    most: usize,
    told: mpsc::Sender<Unreadable>,
}

impl<R> Watched<R> {
    /// Watches the lines of an input. Returns the watched input, and a receiver for the unreadable lines. `most` is the maximum length of a
    /// line in bytes.
    pub(super) fn new(input: R, most: usize) -> (Self, mpsc::Receiver<Unreadable>) {
        let (told, found) = mpsc::channel(MAX_WAITING);
        (Self { input, line: Vec::new(), length: 0, most, told }, found)
    }

    fn pass(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = self.most.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            self.length += piece.len();
            if piece.ends_with(b"\n") {
                if let Some(found) = self.unreadable() {
                    let _ = self.told.try_send(found);
                }
                self.line.clear();
                self.length = 0;
            }
        }
    }

    fn unreadable(&self) -> Option<Unreadable> {
        let id = || id_within(&self.line);
        if self.length > self.most {
            let problem = format!("the line has {} bytes, and at most {} are read", self.length, self.most);
            return Some(Unreadable { id: id(), problem });
        }
        if self.line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        let error = json::from_slice::<json::Value>(&self.line).err()?;
        Some(Unreadable { id: id(), problem: format!("the line is not JSON: {error}") })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.input).poll_read(context, buffer))?;
        self.pass(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
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

/// A transport that also answers the unreadable lines of its input.
pub(super) struct Answering<T> {
    pub(super) transport: T,
    pub(super) found: mpsc::Receiver<Unreadable>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Answering<T> {
    type Error = T::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            tokio::select! {
                biased;
                Some(Unreadable { id, problem }) = self.found.recv() => {
                    let sending = self.transport.send(ServerJsonRpcMessage::error(ErrorData::parse_error(problem, Some(data("ERR_INVALID_REQUEST"))), id));
                    // The answer is sent in a separate task, because this future may be dropped before sending ends.
                    tokio::spawn(async move { drop(sending.await) });
                }
                message = self.transport.receive() => return message,
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
    use tokio::io::AsyncReadExt as _;

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
    async fn a_line_that_is_no_json_or_too_long_is_told_of_and_every_line_passes() {
        let deep = format!("{{\"id\":4,\"params\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let long = format!("{{\"id\":5,\"x\":\"{}\"}}", "y".repeat(1000));
        let text = format!("{{\"id\":1}}\n\n{{\"id\":2,}}\nnonsense\n{deep}\n{long}\n{{\"id\":6}}\nend without a newline");
        let (mut watched, mut found) = Watched::new(text.as_bytes(), 1000);
        let mut passed = String::new();
        watched.read_to_string(&mut passed).await.unwrap();
        assert_eq!(passed, text);
        let mut ids = Vec::new();
        while let Ok(Unreadable { id, .. }) = found.try_recv() {
            ids.push(id);
        }
        assert_eq!(ids, [Some(number(2)), None, Some(number(4)), Some(number(5))]);
    }
}
