//! A live connection: it sends requests to the server, answers requests from the server, and can be closed.

pub(in crate::client) mod discovery;
pub(in crate::client) mod era;
mod host_fields;
pub(in crate::client) mod link;
pub(in crate::client) mod list_changes;
pub(in crate::client) mod listening;
pub(in crate::client) mod open;
pub(in crate::client) mod paging;
pub(in crate::client) mod read_check;
pub(in crate::client) mod request_scope;
pub(in crate::client) mod resource_changes;
pub(in crate::client) mod resources_and_prompts;
pub(in crate::client) mod rounds;
pub(in crate::client) mod tasks;
pub(in crate::client) mod tools;

use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, GetExtensions as _, PingRequest, RequestId, RequestMetaObject};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use serde_json::Value as Json;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, Semaphore};

use super::clock::{CallClock, CallLimits, Expired};
use super::connection::discovery::discover;
use super::connection::era::Era;
use super::connection::link::Link;
use super::connection::read_check::ReadCheck;
use super::connection::request_scope::{Pending, RequestScope};
use super::http::raw_result;
use super::inbound::caller::{Caller, SentRequest, TraceFields};
use super::inbound::calls::Calls;
use super::inbound::handler::Handler;
use super::inbound::owner::{RequestOwner, RequestOwners};
use super::inbound::questions::Questions;
use super::inbound::updates::Updates;
use super::stdio::requests::{DirectLine, Param, TRACEPARENT, TRACESTATE};
use super::wire::answer::{CallFailure, Sent, error_data, protocol_error};
use crate::catalog::Manifest;
use crate::error::{Error, ErrorText, Result};

const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connected server.
pub struct Connection {
    pub(super) server: String,
    pub(super) peer: Peer<RoleClient>,
    pub(super) service: Mutex<RunningService<RoleClient, Handler>>,
    pub(super) link: Link,
    /// Line that sends calls to a server process without rmcp. `None` for a server over HTTP.
    pub(super) direct: Option<Arc<DirectLine>>,
    pub(super) era: Era,
    pub(super) calls: Arc<Calls>,
    pub(super) questions: Questions,
    pub(super) owners: Arc<RequestOwners>,
    pub(super) updates: Arc<Updates>,
    pub(super) lists: Arc<Lists>,
    /// The manifest from the last complete reading of the server's lists.
    pub(super) manifest: RwLock<Arc<Manifest>>,
    /// Lock that is held while the lists are read again. Meanwhile, callers that need the manifest wait for it.
    pub(super) reading: Mutex<()>,
    pub(super) read_timeout: Duration,
    pub(super) connect_time: Duration,
    pub(super) turns: Arc<tokio::sync::RwLock<()>>,
    /// Semaphore that limits the number of open requests.
    pub(super) room: Arc<Semaphore>,
    pub(super) read_check: Arc<ReadCheck>,
    pub(super) runtime: Handle,
}

/// The way in which a server's process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Ending {
    /// The server gets time to end by itself (MCP 2025-11-25, lifecycle, "Shutdown").
    Orderly,
    /// A process in a box is killed at once. A process without a box gets time to end by itself, because it may have started other
    /// processes that only it can end, such as a container.
    AtOnce,
}

/// Counters of list changes. They show whether the server announced changes since its lists were last read.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Number of changes that the server has announced.
    announced: AtomicU64,
    /// Number of announced changes that a complete reading of the lists has covered.
    read: AtomicU64,
    /// Notification for the task that reads changed lists. With it, the lists are read even if no call is made.
    pub(super) news: Notify,
}

impl Lists {
    pub(super) fn changed(&self) {
        self.announced.fetch_add(1, Ordering::AcqRel);
        self.news.notify_one();
    }

    /// Returns the number of announced changes if the lists must be read again, and `None` if all changes have been read.
    fn unread(&self) -> Option<u64> {
        let announced = self.announced.load(Ordering::Acquire);
        (self.read.load(Ordering::Acquire) != announced).then_some(announced)
    }

    fn have_read(&self, announced: u64) {
        self.read.store(announced, Ordering::Release);
    }
}

impl Connection {
    /// Returns the server's manifest, unfiltered. If the server has announced changes of its lists, this method first reads the lists
    /// again.
    ///
    /// # Errors
    /// `ERR_CONNECT_FAILED` or `ERR_CONNECT_TIMEOUT` if the lists cannot be read.
    pub async fn manifest(&self) -> Result<Arc<Manifest>> {
        self.manifest_for(|| self.questions.observer.nobody_in_particular()).await
    }

    /// Returns the manifest on behalf of a caller. The lists may have to be read again, and the server may require an authorization for
    /// this. In that case, the person behind this caller is asked.
    ///
    /// # Errors
    /// The errors of [`Self::manifest`].
    pub async fn manifest_for(&self, caller: impl FnOnce() -> Arc<dyn Caller>) -> Result<Arc<Manifest>> {
        // All callers wait until the reading has ended, so that none gets a manifest that is known to be outdated.
        if self.lists.unread().is_some() {
            let _reading = self.reading.lock().await;
            // The number of announced changes is taken before the lists are read. So a change that is announced during the reading causes
            // another reading.
            if let Some(announced) = self.lists.unread() {
                *self.manifest.write() = Arc::new(self.read_lists(caller()).await?);
                self.lists.have_read(announced);
            }
        }
        Ok(Arc::clone(&self.manifest.read()))
    }

    /// Reads all lists within the time limit. Time in which a person is asked does not count.
    async fn read_lists(&self, caller: Arc<dyn Caller>) -> Result<Manifest> {
        let clock = CallClock::start(CallLimits::fixed(self.read_timeout));
        let _owner = self.owners.set_temporary(RequestOwner::new(caller, Some(clock.clone())));
        tokio::select! {
            biased;
            manifest = Box::pin(discover(&self.server, &self.peer)) => manifest,
            _ = clock.expired() => {
                let (server, limit_ms) = (self.server.clone(), millis(self.read_timeout));
                Err(Error::ConnectTimeout { server, limit_ms, hint: " when it was asked for its changed lists".to_owned().into() })
            }
        }
    }

    /// Returns the time that connecting took, from the first attempt until all lists were read.
    #[must_use]
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// Returns the MCP version that the server uses.
    #[must_use]
    pub fn protocol_version(&self) -> String {
        self.manifest.read().protocol_version.clone()
    }

    /// Returns the kind of handshake that the server uses.
    #[must_use]
    pub fn era(&self) -> Era {
        self.era
    }

    /// Returns whether requests can still be sent.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.link.has_ended() && !self.peer.is_transport_closed() && !self.has_closed_input()
    }

    /// Returns whether the server's process has closed its input. A closed input is noticed only when a line is written. The process may
    /// still run.
    fn has_closed_input(&self) -> bool {
        self.direct.as_ref().is_some_and(|line| line.is_broken())
    }

    /// Sends a request on behalf of a caller, and returns the result as the server wrote it. `what` names the request in errors: a tool's raw
    /// name, or a method such as `resources/read`. Dropping the future cancels the request at the server.
    ///
    /// # Errors
    /// `ERR_CALL_TIMEOUT`, `ERR_SERVER_EXITED`, `ERR_PROTOCOL`, `ERR_RESPONSE_TOO_LARGE`, and the errors of the HTTP transport.
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
            let handle = self.peer.send_cancellable_request(request, traced(scope)).await.map_err(Unsent)?;
            self.note_sent(scope, &handle.id);
            Ok(pending.answer(handle).await.map(raw_result))
        };
        let answer = self.awaited(scope, answer).await;
        self.settled(scope, pending, answer).await
    }

    /// Tells the caller how a request was sent, if the request has a trace.
    fn note_sent(&self, scope: &RequestScope<'_>, id: &RequestId) {
        if let Some(trace) = &scope.trace {
            trace.caller.sent(SentRequest { id: id.to_string(), session: self.link.session() });
        }
    }

    /// Sends a request without rmcp, and returns its answer. Without rmcp a request is faster, because rmcp's tasks move it between
    /// threads.
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
            if let Some(trace) = &scope.trace {
                request.trace(&trace.fields);
            }
            self.note_sent(scope, &request.id);
            self.calls.note(scope.key(), &request.id, Some(request.progress_token.clone()));
            pending.unwritten(line, &request.id);
            let sent = line.send(&request, method, params).await;
            pending.written();
            if let Err(unwritten) = sent {
                let closed = ServiceError::TransportClosed;
                return if unwritten.is_begun { Ok(Err(closed)) } else { Err(Unsent(closed)) };
            }
            Ok(match (&mut request.answer).await {
                Ok(answer) => answer.map_err(ServiceError::McpError),
                Err(_) => Err(ServiceError::TransportClosed),
            })
        };
        let answer = self.awaited(scope, answer).await;
        self.settled(scope, pending, answer).await
    }

    /// Waits for the first of three events: the answer arrives, the server's process ends, or the call's time limit expires.
    async fn awaited(&self, scope: &RequestScope<'_>, answer: impl Future<Output = Outcome>) -> Awaited {
        let ended = async {
            let status = self.link.ended().await;
            // The server may have written an answer before its end. The future therefore resolves only after such an answer has reached
            // its caller.
            self.link.answers_delivered(&self.peer).await;
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
            // Dropping `pending` makes the request scope send a cancellation to the server when it ends.
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

    /// Checks that the server still answers.
    ///
    /// # Errors
    /// The error that explains why the server did not answer.
    pub async fn ping(&self) -> Result<()> {
        // MCP 2026-07-28 has no ping request, so only the state of the transport can be checked.
        if self.era == Era::Discover {
            return if self.is_live() { Ok(()) } else { Err(self.lost("between calls").await) };
        }
        let request = ClientRequest::PingRequest(PingRequest::default());
        let caller = self.questions.observer.nobody_in_particular();
        match self.request("ping", request, CallLimits::fixed(PING_TIMEOUT), &caller).await {
            // A JSON-RPC error, or an answer that cannot be used, also shows that the server answers.
            Ok(_) | Err(CallFailure { error: Error::Protocol { .. } | Error::UnusableAnswer { .. }, .. }) => Ok(()),
            Err(CallFailure { error: Error::CallTimeout { server, limit_ms, limit_name, .. }, .. }) => {
                Err(Error::CallTimeout { server, tool: ErrorText::own("ping"), limit_ms, limit_name })
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// Closes the connection, and ends the server's process with all its children.
    pub async fn close(&self) {
        self.close_by(Ending::Orderly).await;
    }

    /// Closes the connection, and ends the server's process in the way that `ending` names.
    pub(in crate::client) async fn close_by(&self, ending: Ending) {
        if ending == Ending::AtOnce && self.link.is_in_box() {
            self.link.kill();
        }
        self.link.cancel_all().await;
        let mut service = self.service.lock().await;
        let _ = service.close_with_timeout(self.link.close_timeout()).await;
        self.link.end().await;
        // No later event can report the notifications that still wait or were dropped, so they are reported now.
        self.updates.end();
        self.questions.tell_left_out(None, self.calls.left_out_of_nobody());
        self.questions.end();
    }

    /// Sends SIGKILL to the server's process group, without waiting for the server to end by itself.
    pub fn kill(&self) {
        self.link.kill();
    }

    /// Resolves with the reason once the connection can no longer be used.
    pub(super) async fn ended(&self) -> String {
        let reason = self.link.lost(&self.peer, || self.has_closed_input()).await;
        // The connection is closed after this method returns. Without this wait, calls would lose the last answers.
        self.link.answers_delivered(&self.peer).await;
        reason
    }

    pub(super) fn expired(&self, what: &str, expired: Expired) -> Error {
        let (limit, limit_name) = match expired {
            Expired::Idle(limit) => (limit, "callTimeoutMs"),
            Expired::Total(limit) => (limit, "maxCallTimeoutMs, which progress does not extend"),
        };
        Error::CallTimeout { server: self.server.clone(), tool: what.into(), limit_ms: millis(limit), limit_name }
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

    /// Makes the error for a lost connection. The error contains the exit status of the process if the status becomes known in time.
    async fn lost(&self, during: &str) -> Error {
        let exit = self.link.ended_soon().await;
        let closed = if self.has_closed_input() { "input" } else { "output" };
        let status = exit.unwrap_or_else(|| format!("it closed its {closed}, which ends the connection, and its process still runs"));
        self.link.exited(&self.server, during, status)
    }
}

/// Returns the options of a request. They contain the trace to which the request belongs (SEP-414).
fn traced(scope: &RequestScope<'_>) -> PeerRequestOptions {
    let mut options = PeerRequestOptions::no_options();
    options.meta = scope.trace.as_ref().map(|trace| {
        let TraceFields { traceparent, tracestate } = &trace.fields;
        let mut meta = RequestMetaObject::default();
        meta.insert(TRACEPARENT.to_owned(), traceparent.as_str().into());
        if let Some(tracestate) = tracestate {
            meta.insert(TRACESTATE.to_owned(), tracestate.as_str().into());
        }
        meta
    });
    options
}

/// The error of a request that was certainly not sent.
struct Unsent(ServiceError);

/// The result as the server wrote it, the error of a request that was sent, or the error of a request that was not sent.
type Outcome = std::result::Result<std::result::Result<Json, ServiceError>, Unsent>;

/// The reason why waiting for an answer ended.
enum Awaited {
    Answer(Outcome),
    /// The server's process ended. The text describes the end, for example by the exit code.
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
        // A second caller that comes during the reading still sees that the changes are unread.
        assert!(lists.unread().is_some());
        lists.changed();
        lists.have_read(reading);
        let again = lists.unread().unwrap();
        lists.have_read(again);
        assert_eq!(lists.unread(), None);
    }
}
