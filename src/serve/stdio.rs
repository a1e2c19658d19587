//! The transport over standard input and output. Only messages of the protocol are written to standard output.

use rmcp::ServiceExt as _;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::backpressure::Backpressure;
use super::http::Principal;
use super::unanswered::{Counting, Unanswered};
use super::unreadable::{Answering, Watched};
use super::{Drain, Served};
use crate::error::{Error, Result};

/// The maximum length of a line from the host, in bytes. It is sufficient for a script of 1 MiB as a JSON string, together with the rest of
/// its message.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Serves one host over two streams, until the host closes its end or `stop` is cancelled. After the host has closed its end, the requests
/// in progress have 5 s to finish. Returns whether all requests were answered.
///
/// # Errors
/// `ERR_IO` if the host does not use the MCP protocol.
pub async fn serve_stdio<R, W>(served: &Served, input: R, output: W, stop: CancellationToken) -> Result<Drain>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (input, found) = Watched::new(input, MAX_LINE_BYTES);
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_LINE_BYTES);
    let transport = Answering::new(transport, found);
    let handler = served.handler(&Principal::default());
    let session = handler.session_cell();
    let unanswered = Unanswered::default();
    let transport = Counting { transport: Backpressure::new(transport), unanswered: unanswered.clone() };
    let running = match handler.serve_with_ct(transport, stop.clone()).await {
        Ok(running) => running,
        Err(_) if stop.is_cancelled() => return Ok(unanswered.drain()),
        Err(error) => {
            return Err(Error::Io {
                what: "the connection to the host".into(),
                problem: format!("the protocol did not begin: {error}").into(),
            });
        }
    };
    let ended = running.waiting().await;
    if let Some(session) = session.get() {
        session.agent.close().await;
    }
    match ended {
        Ok(_) => Ok(unanswered.drain()),
        Err(error) => Err(Error::Internal(format!("the connection to the host ended: {error}").into())),
    }
}
