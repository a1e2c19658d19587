//! What a connection hangs on: a process of ours, or an address.

use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{Peer, ServiceError};

use super::answer::CallFailure;
use super::process::ServerProcess;
use crate::error::Error;

/// How often a transport without a process is looked at.
const LOOK: Duration = Duration::from_millis(500);

pub(super) enum Link {
    Process(ServerProcess),
    /// Streamable HTTP.
    Remote,
}

impl Link {
    /// Whether the server's requests say to which call they belong.
    pub(super) fn has_streams(&self) -> bool {
        false
    }

    /// Resolves with how the process ended, once it has.
    pub(super) async fn ended(&self) -> String {
        match self {
            Self::Process(process) => process.exited().await,
            Self::Remote => std::future::pending().await,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Process(process) => process.has_exited(),
            Self::Remote => false,
        }
    }

    /// Resolves with the reason once nothing can be sent any more.
    pub(super) async fn lost(&self, peer: &Peer<RoleClient>) -> String {
        let closed = async {
            while !peer.is_transport_closed() {
                tokio::time::sleep(LOOK).await;
            }
        };
        match self {
            Self::Process(process) => {
                let status = tokio::select! {
                    biased;
                    status = process.exited() => status,
                    () = closed => "it closed its output".to_owned(),
                };
                format!("{status}{}", process.stderr_text())
            }
            Self::Remote => {
                closed.await;
                "its connection ended".to_owned()
            }
        }
    }

    /// The error of a server that is gone.
    pub(super) fn exited(&self, server: &str, during: &str, status: String) -> Error {
        let stderr = match self {
            Self::Process(process) => process.stderr_text(),
            Self::Remote => String::new(),
        };
        Error::ServerExited { server: server.to_owned(), during: during.to_owned(), status, stderr }
    }

    /// What the transport itself says of a request that failed.
    #[expect(clippy::unused_self, reason = "HTTP has much to say")]
    pub(super) fn failure(&self, _server: &str, _what: &str, _error: &ServiceError) -> Option<CallFailure> {
        None
    }

    pub(super) async fn end(&self) {
        match self {
            Self::Process(process) => process.end().await,
            Self::Remote => {}
        }
    }

    pub(super) fn kill(&self) {
        match self {
            Self::Process(process) => process.kill(),
            Self::Remote => {}
        }
    }
}
