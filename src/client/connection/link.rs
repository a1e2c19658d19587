//! The server's process, HTTP address or local server that a connection uses.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{Peer, ServiceError};

use crate::client::http::{Farewell, HttpFailure, failure_of};
use crate::client::local::LocalServer;
use crate::client::stdio::process::{OutputRead, ServerProcess};
use crate::client::wire::answer::{CallFailure, Sent, in_error, too_dense};
use crate::error::Error;

/// Longest time that rmcp may take to close its service on a process.
const SERVICE_CLOSE: Duration = Duration::from_millis(200);
/// Longest time that rmcp may take to close its service on an HTTP server. This includes the request that ends the session.
const SESSION_CLOSE: Duration = Duration::from_millis(2_500);
/// Longest time from the moment an answer is read until its caller has received it.
const HANDED_ON: Duration = Duration::from_millis(30);
/// Longest time until rmcp notices, on a busy machine, that the server's output has ended.
const TRANSPORT_END: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);
/// Longest time from the end of a process's output until its exit is known, on a busy machine.
pub(super) const EXIT_NOTICE: Duration = Duration::from_millis(500);
/// Interval between two checks of the transport's state.
const REMOTE_POLL: Duration = Duration::from_millis(500);

const LOCAL_END: &str = "it was ended";

pub(in crate::client) enum Link {
    Process(ServerProcess),
    /// Streamable HTTP.
    Remote(Farewell),
    /// A server within this process.
    Local(LocalServer),
}

impl Link {
    /// Returns the id of the session that the server has given over HTTP.
    pub(super) fn session(&self) -> Option<Arc<str>> {
        match self {
            Self::Process(_) | Self::Local(_) => None,
            Self::Remote(farewell) => farewell.session(),
        }
    }

    /// Ends all running requests of an HTTP server, and sends their cancellations. A process gets no cancellations, because it ends
    /// together with its connection.
    pub(super) async fn cancel_all(&self) {
        match self {
            Self::Process(_) | Self::Local(_) => {}
            Self::Remote(farewell) => farewell.cancel_all().await,
        }
    }

    /// Returns the time that rmcp may take to close. After it, the process is ended or the session is abandoned.
    pub(in crate::client) fn close_timeout(&self) -> Duration {
        match self {
            Self::Process(_) | Self::Local(_) => SERVICE_CLOSE,
            Self::Remote(_) => SESSION_CLOSE,
        }
    }

    /// Resolves with the exit status, as text, once the process has ended. Never resolves for an HTTP server.
    pub(in crate::client) async fn ended(&self) -> String {
        match self {
            Self::Process(process) => process.exited().await,
            Self::Remote(_) => std::future::pending().await,
            Self::Local(local) => {
                local.ended().await;
                LOCAL_END.to_owned()
            }
        }
    }

    /// Resolves once all answers that the process wrote before its end have reached their callers.
    pub(super) async fn answers_delivered(&self, peer: &Peer<RoleClient>) {
        if let Self::Process(process) = self
            && process.output_read().await == OutputRead::ToItsEnd
        {
            // rmcp notices the end of the output after it has handled all earlier messages. It then fails the requests that are still open.
            let _ = tokio::time::timeout(TRANSPORT_END, closed(peer, POLL)).await;
        }
        tokio::time::sleep(HANDED_ON).await;
    }

    /// Returns the exit status, as text, if it becomes known within [`EXIT_NOTICE`]. Returns `None` otherwise, and for an HTTP server.
    pub(super) async fn ended_soon(&self) -> Option<String> {
        match self {
            Self::Process(process) => tokio::time::timeout(EXIT_NOTICE, process.exited()).await.ok(),
            Self::Remote(_) => None,
            Self::Local(local) => local.has_ended().then(|| LOCAL_END.to_owned()),
        }
    }

    pub(in crate::client) fn has_ended(&self) -> bool {
        match self {
            Self::Process(process) => process.has_exited(),
            Self::Remote(_) => false,
            Self::Local(local) => local.has_ended(),
        }
    }

    /// Resolves with the reason once no more messages can be sent. `has_closed_input` must return whether the server's process has closed
    /// its input.
    pub(in crate::client) async fn lost(&self, peer: &Peer<RoleClient>, has_closed_input: impl Fn() -> bool) -> String {
        let closed = async {
            while !peer.is_transport_closed() && !has_closed_input() {
                tokio::time::sleep(REMOTE_POLL).await;
            }
        };
        match self {
            Self::Process(process) => {
                let status = tokio::select! {
                    biased;
                    status = process.exited() => status,
                    // The closed output is usually noticed before the exit of the process, so the code also waits for the exit status.
                    () = closed => {
                        let status = tokio::time::timeout(EXIT_NOTICE, process.exited()).await;
                        status.unwrap_or_else(|_| format!("it closed its {}", if has_closed_input() { "input" } else { "output" }))
                    }
                };
                format!("{status}{}", process.stderr_text())
            }
            Self::Remote(_) | Self::Local(_) => {
                closed.await;
                "its connection ended".to_owned()
            }
        }
    }

    /// Makes the error for a server whose process or connection has ended.
    pub(in crate::client) fn exited(&self, server: &str, during: &str, status: String) -> Error {
        let stderr = match self {
            Self::Process(process) => process.stderr_text(),
            Self::Remote(_) | Self::Local(_) => String::new(),
        };
        Error::ServerExited { server: server.to_owned(), during: during.into(), status: status.into(), stderr: stderr.into() }
    }

    /// Returns the HTTP failure of a request. Returns `None` for a process, and for errors that do not come from the HTTP transport.
    pub(in crate::client) fn failure(&self, server: &str, what: &str, error: &ServiceError) -> Option<CallFailure> {
        match self {
            Self::Process(_) | Self::Local(_) => None,
            Self::Remote(_) => {
                let failure = failure_of(error)?;
                let sent = if failure.never_acted_on() { Sent::No } else { Sent::Maybe };
                Some(CallFailure { error: http_error(server, what, failure)?, sent })
            }
        }
    }

    pub(in crate::client) async fn end(&self) {
        match self {
            Self::Process(process) => process.end().await,
            Self::Remote(_) => {}
            Self::Local(local) => local.end(),
        }
    }

    /// Returns whether the server is a process in a box.
    pub(super) fn is_in_box(&self) -> bool {
        matches!(self, Self::Process(process) if process.is_in_box())
    }

    pub(in crate::client) fn kill(&self) {
        match self {
            Self::Process(process) => process.kill(),
            Self::Remote(_) => {}
            Self::Local(local) => local.end(),
        }
    }
}

async fn closed(peer: &Peer<RoleClient>, interval: Duration) {
    while !peer.is_transport_closed() {
        tokio::time::sleep(interval).await;
    }
}

/// Converts an HTTP failure into an error. Returns `None` for [`HttpFailure::Closed`], because it gives no reason beyond the closed
/// connection.
fn http_error(server: &str, what: &str, failure: HttpFailure) -> Option<Error> {
    let (server, tool) = (server.to_owned(), what.to_owned());
    Some(match failure {
        HttpFailure::Closed => return None,
        HttpFailure::Token(error) => *error,
        HttpFailure::TooLarge { bytes, limit } => Error::ResponseTooLarge {
            what: format!("the answer of {server}.{tool}").into(),
            size: bytes.to_string().into(),
            limit,
            limit_name: "one message on the wire",
        },
        HttpFailure::TooDense => too_dense(format!("the answer of {server}.{tool}")),
        HttpFailure::Malformed(problem) => Error::UnusableAnswer { server, tool: tool.into(), problem: in_error(&problem).into() },
        other => Error::RequestFailed { server, tool: tool.into(), problem: in_error(&other.to_string()).into() },
    })
}
