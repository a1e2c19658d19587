//! The name server of a box, for UDP and TCP. It knows the names in the list of hosts, and asks no other name server.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::message::{MAX_QUERY_BYTES, Query, error_response, read_query};
use super::pace;
use super::packet_info::DatagramSocket;
use super::shared::Shared;
use super::streams::accepted;

/// Maximum number of simultaneous connections for questions. Further connections are closed at once.
const MAX_CONNECTIONS: usize = 16;
/// Time within which a connection must ask its next question.
const QUESTION_TIME: Duration = Duration::from_secs(10);

/// Answers datagrams until the border is dropped.
pub(super) async fn serve_datagrams(socket: &DatagramSocket, shared: &Shared) {
    let mut buffer = [0; MAX_QUERY_BYTES];
    loop {
        let Some(received) = socket.receive(&mut buffer).await else { return };
        pace::wait(&shared.asking).await;
        if let Some(response) = response(&buffer[..received.length], shared) {
            // A program that does not read its answers loses them.
            let _ = socket.send(&response, &received);
        }
    }
}

/// Answers connections until the border is dropped.
pub(super) async fn serve_streams(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            stream = accepted(listener) => {
                if open.len() < MAX_CONNECTIONS && let Some(place) = shared.descriptors.take(1) {
                    let shared = Arc::clone(shared);
                    open.spawn(async move {
                        converse(stream, &shared).await;
                        drop(place);
                    });
                }
                pace::wait(&shared.asking).await;
            }
            _ = open.join_next(), if !open.is_empty() => {}
        }
    }
}

/// Answers the questions of one TCP connection. There, the length of each message precedes the message.
async fn converse(mut stream: TcpStream, shared: &Shared) {
    let mut buffer = [0; MAX_QUERY_BYTES];
    loop {
        let asked = tokio::time::timeout(QUESTION_TIME, async {
            let length = usize::from(stream.read_u16().await.ok()?);
            let message = buffer.get_mut(..length)?;
            stream.read_exact(message).await.ok()?;
            Some(length)
        });
        let Ok(Some(length)) = asked.await else { return };
        pace::wait(&shared.asking).await;
        let Some(response) = response(&buffer[..length], shared) else { return };
        let Ok(length) = u16::try_from(response.len()) else { return };
        let framed = [&length.to_be_bytes()[..], &response].concat();
        let written = tokio::time::timeout(QUESTION_TIME, stream.write_all(&framed));
        if !matches!(written.await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Returns the response to a query. `None` if the query gets no response.
fn response(message: &[u8], shared: &Shared) -> Option<Vec<u8>> {
    match read_query(message) {
        Query::Question(question) => Some(question.response(shared.answer(&question.name, question.wanted))),
        Query::Wrong { id, flags, code } => Some(error_response(id, flags, code)),
        Query::Nothing => None,
    }
}
