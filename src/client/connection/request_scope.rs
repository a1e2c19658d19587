//! Scope of one request. It begins when the request may be sent, and ends when no question of the server can belong to the request any
//! more.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{RequestId, ServerResult};
use rmcp::service::{Peer, RequestHandle, ServiceError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, oneshot};

use super::Connection;
use super::era::Era;
use super::link::Link;
use super::read_check::ReadCheck;
use crate::client::clock::{CallClock, CallLimits};
use crate::client::inbound::caller::{Caller, TraceFields};
use crate::client::inbound::calls::{CallGuard, CallKey};
use crate::client::stdio::requests::DirectLine;
use crate::client::wire::answer::CallFailure;
use crate::error::Error;

/// Longest time that other callers wait for the proof that the server has read a cancellation.
const TURN_ENDS: Duration = Duration::from_secs(1);
/// Longest time for which questions of the server are still assigned to a cancelled call.
const PLACE_ENDS: Duration = Duration::from_mins(1);
/// Time to wait for a late question. Another thread of the server may have been about to send it when the server read the cancellation.
const SETTLE: Duration = Duration::from_millis(200);
/// Maximum number of open requests on a connection. A request is open while it waits for its answer, and until the server has accepted its
/// cancellation. Further requests wait, and this wait counts against their own time limits. Without this limit, abandoned requests would
/// fill the memory if a server accepts no cancellations.
pub(super) const MAX_OPEN_REQUESTS: usize = 1_024;
const NOBODY_WAITS: &str = "the caller no longer waits";

/// Right to send a request to a server whose questions do not name a call. While one caller holds the right alone, such a question can
/// only be meant for this caller.
enum Turn {
    /// A right that several callers share. Used for callers that cannot be asked, and for all callers until the server sends its first
    /// question.
    Shared(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>),
    Alone(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>),
}

/// Scope of one request, including all its rounds of input.
pub(in crate::client) struct RequestScope<'a> {
    pub(in crate::client) what: &'a str,
    pub(in crate::client) clock: CallClock,
    /// The trace of the caller, for `_meta` of each request.
    pub(in crate::client) trace: Option<ScopeTrace>,
    key: CallKey,
    /// Entry among the calls in flight. It is removed when the scope ends.
    registration: Option<Registration>,
    /// A sent request whose answer the caller no longer awaits.
    unanswered: Mutex<Option<Request>>,
    parting: Option<Parting>,
}

/// The trace of a scope, and the caller that notes how requests were sent.
pub(in crate::client) struct ScopeTrace {
    pub(in crate::client) fields: TraceFields,
    pub(in crate::client) caller: Arc<dyn Caller>,
}

/// A request that was sent by rmcp (`Typed`) or without rmcp (`Direct`).
enum Request {
    Typed(Box<RequestHandle<RoleClient>>),
    Direct(Arc<DirectLine>, RequestId),
    /// A direct request of which nothing has been written yet. The server does not know it.
    Unwritten(Arc<DirectLine>, RequestId),
}

impl Request {
    async fn cancel(self) {
        match self {
            Self::Typed(handle) => handle.cancel(Some(NOBODY_WAITS.to_owned())).await.unwrap_or_default(),
            Self::Direct(line, id) => line.cancel(&id, NOBODY_WAITS).await,
            Self::Unwritten(line, id) => line.forget(&id),
        }
    }
}

struct Registration {
    place: CallGuard,
    turn: Option<Turn>,
    /// True if only the order of messages shows which question belongs to a call.
    by_order: bool,
    /// Permit for one of the connection's open requests.
    room: OwnedSemaphorePermit,
}

impl Connection {
    /// Registers a request among the calls in flight. First waits until the request may be sent.
    pub(in crate::client) async fn enter<'a>(
        &self,
        what: &'a str,
        limits: CallLimits,
        caller: &Arc<dyn Caller>,
    ) -> std::result::Result<RequestScope<'a>, CallFailure> {
        let clock = CallClock::start(limits);
        let admitted = async { (Arc::clone(&self.room).acquire_owned().await, self.turn(caller.as_ref()).await) };
        let (room, turn) = tokio::select! {
            biased;
            admitted = admitted => admitted,
            expired = clock.expired() => return Err(CallFailure::unsent(self.expired(what, expired))),
        };
        // This error cannot occur, because the semaphore is never closed.
        let room = room.map_err(|error| CallFailure::unsent(Error::Internal(error.to_string().into())))?;
        let by_order = self.era == Era::Initialize && matches!(self.link, Link::Process(_));
        let place = self.calls.enter(what, caller, &clock);
        let key = place.key();
        let registration = Some(Registration { place, turn, by_order, room });
        let parting = Parting { peer: self.peer.clone(), check: Arc::clone(&self.read_check), runtime: self.runtime.clone() };
        Ok(RequestScope {
            what,
            clock,
            trace: caller.trace().map(|fields| ScopeTrace { fields, caller: Arc::clone(caller) }),
            key,
            registration,
            unanswered: Mutex::default(),
            parting: Some(parting),
        })
    }

    async fn turn(&self, caller: &dyn Caller) -> Option<Turn> {
        // Since MCP 2026-07-28, a call's questions come in its own result, so callers need not wait for each other.
        if self.era == Era::Discover {
            return None;
        }
        let can_be_asked = caller.can_elicit() || caller.can_sample();
        if !(self.calls.asks_anybody() && can_be_asked) {
            let shared = Arc::clone(&self.turns).read_owned().await;
            // The server may have sent its first question while this caller waited.
            if !(self.calls.asks_anybody() && can_be_asked) {
                return Some(Turn::Shared(shared));
            }
        }
        Some(Turn::Alone(Arc::clone(&self.turns).write_owned().await))
    }
}

impl RequestScope<'_> {
    pub(in crate::client) fn key(&self) -> CallKey {
        self.key
    }

    /// Makes the guard of a request that will be sent.
    pub(in crate::client) fn pending(&self) -> Pending<'_> {
        Pending { request: None, unanswered: &self.unanswered }
    }
}

impl Drop for RequestScope<'_> {
    fn drop(&mut self) {
        let request = self.unanswered.get_mut().take();
        if let (Some(registration), Some(request), Some(parting)) = (self.registration.take(), request, self.parting.take()) {
            registration.place.give_up();
            parting.runtime.clone().spawn(leave(registration, request, parting));
        }
    }
}

/// Values that are needed to end an abandoned request.
struct Parting {
    peer: Peer<RoleClient>,
    check: Arc<ReadCheck>,
    runtime: Handle,
}

/// Cancels a request at the server. The call stays registered until the server shows that it has read the cancellation. Until then, a
/// question of the server may belong to this call, and must not go to the next caller.
async fn leave(registration: Registration, request: Request, parting: Parting) {
    let Registration { place, turn, by_order, room } = registration;
    let (server_knows, (cancelled, is_cancelled)) = (place.server_knows(), oneshot::channel());
    let cancelling = async {
        // A cancellation takes memory until it has been sent. The wait for the sending therefore has no time limit, and the request keeps
        // its permit.
        request.cancel().await;
        server_knows.cancel();
        let _ = cancelled.send(());
    };
    let settled = async {
        if is_cancelled.await.is_ok() && by_order {
            parting.check.passed(&parting.peer, &parting.runtime).await;
            tokio::time::sleep(SETTLE).await;
        }
    };
    // The time limits for other callers include the sending of the cancellation, because a server may read nothing, or confirm
    // cancellations slowly.
    tokio::join!(cancelling, until_settled(settled, turn, place));
    drop(room);
}

async fn until_settled(settled: impl Future<Output = ()>, turn: Option<Turn>, place: CallGuard) {
    tokio::pin!(settled);
    if tokio::time::timeout(TURN_ENDS, &mut settled).await.is_err() {
        drop(turn);
        let _ = tokio::time::timeout(PLACE_ENDS, settled).await;
    }
    drop(place);
}

/// Guard of a sent request. If the guard is dropped before the answer arrives, the request is cancelled at the server when the scope
/// ends.
pub(in crate::client) struct Pending<'a> {
    request: Option<Request>,
    unanswered: &'a Mutex<Option<Request>>,
}

impl Pending<'_> {
    pub(in crate::client) async fn answer(&mut self, handle: RequestHandle<RoleClient>) -> std::result::Result<ServerResult, ServiceError> {
        let Request::Typed(handle) = self.request.insert(Request::Typed(Box::new(handle))) else {
            return Err(ServiceError::TransportClosed);
        };
        (&mut handle.rx).await.map_err(|_| ServiceError::TransportClosed)?
    }

    /// Records that the request will now be written without rmcp.
    pub(in crate::client) fn unwritten(&mut self, line: &Arc<DirectLine>, id: &RequestId) {
        self.request = Some(Request::Unwritten(Arc::clone(line), id.clone()));
    }

    /// Records that the request was handed to the writer. From now on, the server may know the request.
    pub(in crate::client) fn written(&mut self) {
        self.request = match self.request.take() {
            Some(Request::Unwritten(line, id)) => Some(Request::Direct(line, id)),
            other => other,
        };
    }

    /// Records that no cancellation is needed, because the answer arrived or the server has ended.
    pub(in crate::client) fn settle(&mut self) {
        self.request = None;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(Request::Unwritten(line, id)) = &self.request {
            line.forget(id);
        } else if let Some(request) = self.request.take() {
            *self.unanswered.lock() = Some(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::stdio::outbox::Outbox;
    use crate::client::stdio::requests::SharedRequests;

    #[tokio::test]
    async fn a_request_of_which_nothing_was_written_is_forgotten_and_needs_no_cancellation() {
        let requests = SharedRequests::default();
        let (outbox, _sender, _writing) = Outbox::new(tokio::io::sink(), 1);
        let line = Arc::new(DirectLine::new(Arc::clone(&requests), outbox));
        let unanswered = Mutex::default();
        for is_written in [false, true] {
            let request = line.open().unwrap();
            let mut pending = Pending { request: None, unanswered: &unanswered };
            pending.unwritten(&line, &request.id);
            if is_written {
                pending.written();
            }
            drop(pending);
            let open = requests.lock().pending.len();
            assert_eq!((unanswered.lock().take().is_some(), open), (is_written, usize::from(is_written)));
        }
    }
}
