//! Scope of one request. It begins when the request gets its turn, and ends when no question of the server can belong to the request.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, PingRequest, RequestId, ServerResult};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, ServiceError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::Connection;
use super::era::Era;
use super::link::Link;
use crate::client::clock::{CallClock, CallLimits};
use crate::client::inbound::caller::Caller;
use crate::client::inbound::calls::{CallGuard, CallKey};
use crate::client::stdio::requests::DirectLine;
use crate::client::wire::answer::CallFailure;

/// Longest time that other callers wait until the server shows that it has read a cancellation.
const TURN_ENDS: Duration = Duration::from_secs(1);
/// Longest time that questions of the server may still belong to a cancelled call.
const PLACE_ENDS: Duration = Duration::from_mins(1);
/// Time to wait for a question that another thread of the server was about to send when the server read the cancellation.
const SETTLE: Duration = Duration::from_millis(200);
const NOBODY_WAITS: &str = "the caller no longer waits";

/// Makes callers take turns on a server whose questions do not name a call.
enum Turn {
    /// A turn that several callers hold together. Used for callers that cannot be asked, and for all callers until the server sends a question.
    Shared(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>),
    Alone(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>),
}

/// Scope of one request with all its rounds of input.
pub(in crate::client) struct RequestScope<'a> {
    pub(in crate::client) what: &'a str,
    pub(in crate::client) clock: CallClock,
    key: CallKey,
    /// Entry among the calls in flight. It is taken out when the scope ends.
    registration: Option<Registration>,
    /// A sent request whose answer the caller no longer awaits.
    unanswered: Mutex<Option<Request>>,
    peer: Peer<RoleClient>,
    runtime: Handle,
}

/// A request that was sent by rmcp (`Typed`) or without rmcp (`Direct`).
enum Request {
    Typed(Box<RequestHandle<RoleClient>>),
    Direct(Arc<DirectLine>, RequestId),
}

impl Request {
    async fn cancel(self) {
        match self {
            Self::Typed(handle) => handle.cancel(Some(NOBODY_WAITS.to_owned())).await.unwrap_or_default(),
            Self::Direct(line, id) => line.cancel(&id, NOBODY_WAITS).await,
        }
    }
}

struct Registration {
    place: CallGuard,
    turn: Option<Turn>,
    /// True if only the order of messages tells which question belongs to a call.
    by_order: bool,
}

impl Connection {
    /// Registers a request among the calls in flight. May wait for the request's turn.
    pub(in crate::client) async fn enter<'a>(
        &self,
        what: &'a str,
        limits: CallLimits,
        caller: &Arc<dyn Caller>,
    ) -> std::result::Result<RequestScope<'a>, CallFailure> {
        let clock = CallClock::start(limits);
        let turn = tokio::select! {
            biased;
            turn = self.turn(caller.as_ref()) => turn,
            expired = clock.expired() => return Err(CallFailure::unsent(self.expired(what, expired))),
        };
        let by_order = self.era == Era::Initialize && matches!(self.link, Link::Process(_));
        let place = self.calls.enter(what, caller, &clock);
        let key = place.key();
        let registration = Some(Registration { place, turn, by_order });
        Ok(RequestScope {
            what,
            clock,
            key,
            registration,
            unanswered: Mutex::default(),
            peer: self.peer.clone(),
            runtime: self.runtime.clone(),
        })
    }

    async fn turn(&self, caller: &dyn Caller) -> Option<Turn> {
        // Since MCP 2026-07-28 a call's questions come in its own result, so callers need no turns.
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

    /// Makes the guard of a request that is about to be sent.
    pub(in crate::client) fn pending(&self) -> Pending<'_> {
        Pending { request: None, unanswered: &self.unanswered }
    }
}

impl Drop for RequestScope<'_> {
    fn drop(&mut self) {
        let request = self.unanswered.get_mut().take();
        if let (Some(registration), Some(request)) = (self.registration.take(), request) {
            registration.place.give_up();
            self.runtime.spawn(leave(registration, request, self.peer.clone()));
        }
    }
}

/// Cancels a request at the server. Keeps the call registered until the server shows that it has read the cancellation. Until then, a
/// question of the server may belong to this call, and must not be put to the next caller.
async fn leave(registration: Registration, request: Request, peer: Peer<RoleClient>) {
    request.cancel().await;
    let Registration { place, turn, by_order } = registration;
    place.has_told();
    if by_order {
        let settled = async {
            answer_to_ping(&peer).await;
            tokio::time::sleep(SETTLE).await;
        };
        tokio::pin!(settled);
        if tokio::time::timeout(TURN_ENDS, &mut settled).await.is_err() {
            drop(turn);
            let _ = tokio::time::timeout(PLACE_ENDS, settled).await;
        }
    }
    drop(place);
}

/// Sends a ping, and resolves once the server has answered it, even with an error, or the connection has ended.
async fn answer_to_ping(peer: &Peer<RoleClient>) {
    let ping = ClientRequest::PingRequest(PingRequest::default());
    if let Ok(handle) = peer.send_cancellable_request(ping, PeerRequestOptions::no_options()).await {
        let _ = handle.rx.await;
    }
}

/// A sent request. If it is dropped before its answer, the request is cancelled at the server when the scope ends.
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

    /// Records that the request was sent without rmcp. From then on the server may know the request.
    pub(in crate::client) fn direct(&mut self, line: &Arc<DirectLine>, id: &RequestId) {
        self.request = Some(Request::Direct(Arc::clone(line), id.clone()));
    }

    /// Records that the answer came, so that no cancellation is sent.
    pub(in crate::client) fn settle(&mut self) {
        self.request = None;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            *self.unanswered.lock() = Some(request);
        }
    }
}
