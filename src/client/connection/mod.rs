//! A live connection: its requests, the server's requests meanwhile, and its end.

pub(in crate::client) mod discovery;
pub(in crate::client) mod era;
pub(in crate::client) mod link;
pub(in crate::client) mod list_changes;
pub(in crate::client) mod listening;
pub(in crate::client) mod offers;
pub(in crate::client) mod open;
pub(in crate::client) mod paging;
pub(in crate::client) mod request_scope;
pub(in crate::client) mod resource_changes;
pub(in crate::client) mod rounds;
pub(in crate::client) mod tasks;
pub(in crate::client) mod tools;

use parking_lot::RwLock;
use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, GetExtensions as _, PingRequest};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::DynamicTransportError;
use serde_json::Value as Json;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};

use super::clock::{CallLimits, Expired};
use super::connection::discovery::discover;
use super::connection::era::Era;
use super::connection::link::Link;
use super::connection::request_scope::{Pending, RequestScope};
use super::http::raw_result;
use super::inbound::caller::Caller;
use super::inbound::calls::Calls;
use super::inbound::handler::Handler;
use super::inbound::questions::Questions;
use super::inbound::updates::Updates;
use super::stdio::requests::{DirectLine, Param};
use super::wire::answer::{CallFailure, Sent, error_data, protocol_error};
use crate::catalog::Manifest;
use crate::error::{Error, Result};

const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connected server.
pub struct Connection {
    pub(super) server: String,
    pub(super) peer: Peer<RoleClient>,
    pub(super) service: Mutex<RunningService<RoleClient, Handler>>,
    pub(super) link: Link,
    /// The way past rmcp for calls, where the server is a process.
    pub(super) direct: Option<Arc<DirectLine>>,
    pub(super) era: Era,
    pub(super) calls: Arc<Calls>,
    pub(super) questions: Questions,
    pub(super) updates: Arc<Updates>,
    pub(super) lists: Arc<Lists>,
    /// The manifest as the server listed it last.
    pub(super) manifest: RwLock<Arc<Manifest>>,
    /// Guards the rereading of the lists: calls wait for it.
    pub(super) reading: Mutex<()>,
    pub(super) read_timeout: Duration,
    pub(super) connect_time: Duration,
    pub(super) turns: Arc<tokio::sync::RwLock<()>>,
    pub(super) runtime: Handle,
}

/// State that tells whether the server's lists are still as they were read.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Number of changes that the server has announced, and of those that a complete reading has covered. A reading that is under way, or
    /// was given up, covers none.
    announced: AtomicU64,
    read: AtomicU64,
    /// Wakes the keeper, which reads the lists again without waiting for a call.
    pub(super) news: Notify,
}

impl Lists {
    pub(super) fn changed(&self) {
        self.announced.fetch_add(1, Ordering::AcqRel);
        self.news.notify_one();
    }

    /// The changes that a reading has to cover which begins now; `None` where all of them are read.
    fn unread(&self) -> Option<u64> {
        let announced = self.announced.load(Ordering::Acquire);
        (self.read.load(Ordering::Acquire) != announced).then_some(announced)
    }

    fn have_read(&self, announced: u64) {
        self.read.store(announced, Ordering::Release);
    }
}

impl Connection {
    /// Returns the server's manifest, unfiltered. Where the server has announced that its lists changed, they are read again first.
    ///
    /// # Errors
    /// `ERR_CONNECT_FAILED`, `ERR_CONNECT_TIMEOUT` where they cannot be read: nothing is known of them then.
    pub async fn manifest(&self) -> Result<Arc<Manifest>> {
        // Until a reading has ended: whoever comes meanwhile waits for it, and is given nothing that is known to be old.
        if self.lists.unread().is_some() {
            let _reading = self.reading.lock().await;
            // Noted before the reading: what is announced during it is read once more.
            if let Some(announced) = self.lists.unread() {
                let reading = tokio::time::timeout(self.read_timeout, Box::pin(discover(&self.server, &self.peer))).await;
                let limit_ms = millis(self.read_timeout);
                let hint = " when it was asked for its changed lists".to_owned();
                let manifest = reading.map_err(|_| Error::ConnectTimeout { server: self.server.clone(), limit_ms, hint })??;
                *self.manifest.write() = Arc::new(manifest);
                self.lists.have_read(announced);
            }
        }
        Ok(Arc::clone(&self.manifest.read()))
    }

    /// Returns the time from the first attempt to the complete lists.
    #[must_use]
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// Returns the handshake that the server understands.
    #[must_use]
    pub fn era(&self) -> Era {
        self.era
    }

    /// Returns whether requests can still be sent.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.link.has_ended() && !self.peer.is_transport_closed()
    }

    /// Sends a request for a caller, and gives the result as the server wrote it. `what` names it in errors: a tool's raw name,
    /// `resources/read`. Dropping the future cancels the request at the server.
    ///
    /// # Errors
    /// `ERR_CALL_TIMEOUT`, `ERR_SERVER_EXITED`, `ERR_PROTOCOL`, `ERR_RESPONSE_TOO_LARGE`, and what HTTP gives.
    pub(crate) async fn request(
        &self,
        what: &str,
        request: ClientRequest,
        limits: CallLimits,
        caller: &Arc<dyn Caller>,
    ) -> std::result::Result<Json, CallFailure> {
        let scope = self.enter(what, limits, caller).await?;
        self.exchange(&scope, request).await
    }

    /// Sends a request and returns its answer.
    pub(super) async fn exchange(&self, scope: &RequestScope<'_>, mut request: ClientRequest) -> std::result::Result<Json, CallFailure> {
        request.extensions_mut().insert(scope.key());
        let mut pending = scope.pending();
        let answer = async {
            let handle = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await.map_err(Unsent)?;
            Ok(pending.answer(handle).await.map(raw_result))
        };
        let answer = self.awaited(scope, answer).await;
        self.settled(scope, pending, answer).await
    }

    /// The same past rmcp, whose tasks would each cost a change of threads.
    pub(super) async fn exchange_directly(
        &self,
        scope: &RequestScope<'_>,
        line: &Arc<DirectLine>,
        method: &str,
        params: &[(&str, Param<'_>)],
    ) -> std::result::Result<Json, CallFailure> {
        let mut pending = scope.pending();
        let answer = async {
            let mut request = line.open().ok_or(Unsent(ServiceError::TransportClosed))?;
            self.calls.note(scope.key(), &request.id, Some(request.progress_token.clone()));
            pending.direct(line, &request.id);
            if let Err(error) = line.send(&request, method, params).await {
                return Ok(Err(ServiceError::TransportSend(DynamicTransportError::from_parts(
                    "stdio",
                    TypeId::of::<DirectLine>(),
                    error.into(),
                ))));
            }
            Ok(match (&mut request.answer).await {
                Ok(answer) => answer.map_err(ServiceError::McpError),
                Err(_) => Err(ServiceError::TransportClosed),
            })
        };
        let answer = self.awaited(scope, answer).await;
        self.settled(scope, pending, answer).await
    }

    /// Waits for the first of three: the answer, the server's end, or the end of the caller's patience.
    async fn awaited(&self, scope: &RequestScope<'_>, answer: impl Future<Output = Outcome>) -> Awaited {
        let ended = async {
            let status = self.link.ended().await;
            // An answer that was written before the end counts. Where the output is at its end, too, rmcp has ended the call.
            self.link.last_words(&self.peer).await;
            status
        };
        tokio::select! {
            biased;
            answer = answer => Awaited::Answer(answer),
            status = ended => Awaited::Ended(status),
            expired = scope.clock.expired() => Awaited::Expired(expired),
        }
    }

    async fn settled(
        &self,
        scope: &RequestScope<'_>,
        mut pending: Pending<'_>,
        awaited: Awaited,
    ) -> std::result::Result<Json, CallFailure> {
        let what = scope.what;
        match awaited {
            // Dropping `pending` has the server told.
            Awaited::Expired(expired) => Err(self.expired(what, expired).into()),
            Awaited::Ended(status) => {
                pending.settle();
                Err(self.link.exited(&self.server, &self.during(what), status).into())
            }
            Awaited::Answer(answer) => {
                pending.settle();
                match answer {
                    Ok(Ok(result)) => Ok(result),
                    Ok(Err(error)) => Err(self.failure(what, &error).await),
                    Err(Unsent(error)) => Err(CallFailure { sent: Sent::No, ..self.failure(what, &error).await }),
                }
            }
        }
    }

    /// Returns whether the server still answers.
    ///
    /// # Errors
    /// The reason why no answer came.
    pub async fn ping(&self) -> Result<()> {
        // Since 2026-07-28 there is none; that the transport stands is all that can be known.
        if self.era == Era::Discover {
            return if self.is_live() { Ok(()) } else { Err(self.lost("between calls").await) };
        }
        let request = ClientRequest::PingRequest(PingRequest::default());
        let caller = self.questions.observer.nobody_in_particular();
        match self.request("ping", request, CallLimits::fixed(PING_TIMEOUT), &caller).await {
            // An error is an answer, too.
            Ok(_) | Err(CallFailure { error: Error::Protocol { .. }, .. }) => Ok(()),
            Err(failure) => Err(failure.error),
        }
    }

    /// Ends the connection and its process, with all that it started.
    pub async fn close(&self) {
        let mut service = self.service.lock().await;
        let _ = service.close_with_timeout(self.link.goodbye()).await;
        self.link.end().await;
        // Nothing comes after this that could tell what was held back or left out.
        self.updates.end();
        self.questions.tell_left_out(None, self.calls.left_out_of_nobody());
        self.questions.end();
    }

    /// Sends SIGKILL to the server's process group, at once.
    pub fn kill(&self) {
        self.link.kill();
    }

    /// Resolves with the reason once the connection is of no more use.
    pub(super) async fn ended(&self) -> String {
        let reason = self.link.lost(&self.peer).await;
        // Whoever closes it now would take the last answers with it.
        self.link.last_words(&self.peer).await;
        reason
    }

    pub(super) fn expired(&self, what: &str, expired: Expired) -> Error {
        let (limit, limit_name) = match expired {
            Expired::Idle(limit) => (limit, "callTimeoutMs"),
            Expired::Total(limit) => (limit, "maxCallTimeoutMs, however much progress it reports"),
        };
        Error::CallTimeout { server: self.server.clone(), tool: what.to_owned(), limit_ms: millis(limit), limit_name }
    }

    pub(super) async fn failure(&self, what: &str, error: &ServiceError) -> CallFailure {
        if let Some(failure) = self.link.failure(&self.server, what, error) {
            return failure;
        }
        if let Some(error) = error_data(error) {
            return protocol_error(&self.server, what, error).into();
        }
        self.lost(&self.during(what)).await.into()
    }

    pub(super) fn during(&self, what: &str) -> String {
        format!("during {}.{what}", self.server)
    }

    /// The connection is gone: says how the process ended, if that becomes known in time.
    async fn lost(&self, during: &str) -> Error {
        let exit = self.link.ended_soon().await;
        let status = exit.unwrap_or_else(|| "it closed its output, but still runs".to_owned());
        self.link.exited(&self.server, during, status)
    }
}

/// A request that certainly never left.
struct Unsent(ServiceError);

/// A result as the server wrote it, or the reason why there is none.
type Outcome = std::result::Result<std::result::Result<Json, ServiceError>, Unsent>;

/// The way in which waiting for an answer ended.
enum Awaited {
    Answer(Outcome),
    /// The server ended; the text says how its process ended.
    Ended(String),
    Expired(Expired),
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_announced_is_unread_until_a_reading_that_began_after_it_has_ended() {
        let lists = Lists::default();
        assert_eq!(lists.unread(), None);
        lists.changed();
        let reading = lists.unread().unwrap();
        // Somebody else comes while it is under way.
        assert!(lists.unread().is_some());
        lists.changed();
        lists.have_read(reading);
        let again = lists.unread().unwrap();
        lists.have_read(again);
        assert_eq!(lists.unread(), None);
    }
}
