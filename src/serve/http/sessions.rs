//! Sessions of one caller: rmcp's session manager, with limits on the number of sessions and an end for idle sessions.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::metrics::Metrics;
use crate::serve::held_questions::MAX_REPEATED;
use crate::serve::places::{Place, Share};
use crate::serve::request_ids::{Answering, RequestIds};

tokio::task_local! {
    /// Set to true if the request that is being handled needs a new session, but there are too many sessions. The flag is needed because
    /// rmcp answers every failure with status 500, without the reason.
    pub(super) static NO_SESSION_LEFT: Cell<bool>;
}

/// The time for which a large answer keeps the slots of its request, and for which rmcp keeps the stream of a cancelled request. A client
/// that has lost its connection can resume the stream of a request that runs. After the answer has been sent to a broken stream, rmcp keeps
/// no copy of it.
pub(super) const ANSWER_KEPT: Duration = Duration::from_secs(5);

/// The end of a session. It is stored in the extensions of each request of the session.
#[derive(Debug, Clone)]
pub(in crate::serve) struct SessionEnd(pub(in crate::serve) CancellationToken);

/// Sessions of one caller.
#[derive(Debug)]
pub(super) struct Sessions {
    inner: LocalSessionManager,
    open: Mutex<HashMap<SessionId, Use>>,
    share: Arc<Share>,
    metrics: Arc<Metrics>,
    /// Cancelled to end all sessions of the caller.
    ended: CancellationToken,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionFailure {
    #[error("there are too many sessions")]
    Full,
    #[error(transparent)]
    Session(#[from] LocalSessionManagerError),
}

/// The present use of a session, from which it is determined whether the session is idle.
#[derive(Debug)]
struct Use {
    requests: usize,
    last: Instant,
    ids: RequestIds,
    /// Cancelled when the session is removed. Requests of the session must end at that time, but rmcp alone would let them continue for
    /// some seconds.
    ended: CancellationToken,
    _ends_with_this: DropGuard,
    _session_slot: SessionSlot,
}

/// One counted session, until this value is dropped.
#[derive(Debug)]
struct SessionSlot {
    _place: Place,
    metrics: Arc<Metrics>,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.metrics.remove_session();
    }
}

/// Marks a session as in use until this value is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    sessions: Arc<Sessions>,
    id: SessionId,
    end: SessionEnd,
}

impl InUse {
    pub(super) fn end(&self) -> SessionEnd {
        self.end.clone()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.open.lock().get_mut(&self.id) {
            session.requests -= 1;
            session.last = Instant::now();
        }
    }
}

impl Sessions {
    pub(super) fn new(share: Arc<Share>, metrics: Arc<Metrics>, ended: CancellationToken) -> Self {
        let mut inner = LocalSessionManager::default();
        // rmcp's own idle time-out does not consider open streams and running calls, so `end_left` ends idle sessions instead.
        inner.session_config.keep_alive = None;
        inner.session_config.completed_cache_ttl = ANSWER_KEPT;
        inner.session_config.channel_capacity = MAX_REPEATED;
        Self { inner, open: Mutex::default(), share, metrics, ended }
    }

    /// Marks a session as in use. Returns `None` if the caller has no such session.
    pub(super) fn enter(self: &Arc<Self>, id: &str) -> Option<InUse> {
        let mut open = self.open.lock();
        let (id, session) = open.get_key_value(id).map(|(id, _)| id.clone()).and_then(|id| Some((id.clone(), open.get_mut(&id)?)))?;
        session.requests += 1;
        let end = SessionEnd(session.ended.clone());
        Some(InUse { sessions: self.clone(), id, end })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().is_empty()
    }

    /// Ends the sessions that have had no request and no stream for the time `idle`.
    pub(super) async fn end_left(&self, idle: Duration, now: Instant) {
        let is_left = |session: &Use| session.requests == 0 && now.saturating_duration_since(session.last) >= idle;
        let left: Vec<_> = self.open.lock().iter().filter(|(_, session)| is_left(session)).map(|(id, _)| id.clone()).collect();
        for id in left {
            // Closing fails if the session has ended in the meantime.
            let _ = self.close_session(&id).await;
        }
    }

    fn ids(&self, id: &SessionId) -> Option<RequestIds> {
        self.open.lock().get(id).map(|session| session.ids.clone())
    }

    fn session_slot(&self) -> Option<SessionSlot> {
        let place = self.share.take(1).ok()?;
        self.metrics.add_session();
        Some(SessionSlot { _place: place, metrics: self.metrics.clone() })
    }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    if let ClientJsonRpcMessage::Request(request) = message { Some(request.id.clone()) } else { None }
}

/// Returns the number of the last event that a client has received. rmcp numbers the events of each stream from 0, and writes a number as
/// `7`, or as `7/3` for the stream of a request. On the stream without a request, 0 is also the number of an empty event before all others,
/// so there it does not mean that the first event was received.
fn last_event(id: &str) -> Option<u64> {
    let (number, is_of_request) = id.split_once('/').map_or((id, false), |(number, _)| (number, true));
    number.parse().ok().filter(|number| is_of_request || *number > 0)
}

/// Leaves out those events of a stream that rmcp repeats although the client does not need them: events up to the last that it has
/// received, and questions that it has answered already.
fn current(
    ids: Option<RequestIds>,
    last: Option<u64>,
    events: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    events.filter(move |event| {
        let number = event.event_id.as_deref().and_then(|id| id.split('/').next()?.parse::<u64>().ok());
        let is_new = last.is_none_or(|last| number.is_none_or(|number| number > last));
        let is_current = event.message.as_ref().is_none_or(|message| ids.as_ref().is_none_or(|ids| ids.is_current(message)));
        std::future::ready(is_new && is_current)
    })
}

impl SessionManager for Sessions {
    type Error = SessionFailure;
    type Transport = Answering<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let Some(session_slot) = self.session_slot() else {
            let _ = NO_SESSION_LEFT.try_with(|full| full.set(true));
            return Err(SessionFailure::Full);
        };
        let (id, transport) = self.inner.create_session().await?;
        let ids = RequestIds::default();
        let ended = self.ended.child_token();
        let session = Use {
            requests: 0,
            last: Instant::now(),
            ids: ids.clone(),
            ended: ended.clone(),
            _ends_with_this: ended.drop_guard(),
            _session_slot: session_slot,
        };
        self.open.lock().insert(id.clone(), session);
        Ok((id, Answering { transport, ids }))
    }

    async fn initialize_session(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.open.lock().remove(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let (ids, request) = (self.ids(id), request_id(&message));
        if let (Some(ids), ClientJsonRpcMessage::Request(request)) = (&ids, &message)
            && let Err(refused) = ids.take(request)
        {
            return Ok(stream::iter([ServerSseMessage::from_message(*refused)]).left_stream());
        }
        let begun = self.inner.create_stream(id, message).await;
        if let (Err(_), Some(ids), Some(request)) = (&begun, &ids, &request) {
            ids.give_back(request);
        }
        Ok(begun?.right_stream())
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        if let Some(ids) = self.ids(id) {
            ids.received(&message);
        }
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let ids = self.ids(id);
        Ok(current(ids, None, self.inner.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let (ids, last) = (self.ids(id), last_event(&last_event_id));
        Ok(current(ids, last, self.inner.resume(id, last_event_id).await?))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{GetExtensions as _, NumberOrString, ServerResult};
    use rmcp::service::OriginatingRequestId;
    use rmcp::transport::Transport as _;
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::serve::places::{PlaceLimits, Places};

    fn places(of_all: usize, of_caller: usize) -> Arc<Places> {
        Places::new(PlaceLimits { of_all, of_caller, least_of_caller: 1 })
    }

    fn sessions(places: &Arc<Places>, metrics: &Arc<Metrics>) -> Arc<Sessions> {
        Arc::new(Sessions::new(places.share(), metrics.clone(), CancellationToken::new()))
    }

    #[tokio::test]
    async fn a_caller_and_all_callers_together_have_limits() {
        let metrics = Arc::default();
        let places = places(3, 2);
        let (one, other) = (sessions(&places, &metrics), sessions(&places, &metrics));
        let opened = async |sessions: &Sessions| sessions.create_session().await.is_ok();
        assert!(opened(&one).await && opened(&one).await && !opened(&one).await);
        assert!(opened(&other).await && !opened(&other).await);
        assert_eq!(metrics.sessions(), 3);
        let id = one.open.lock().keys().next().unwrap().clone();
        one.close_session(&id).await.unwrap();
        one.close_session(&id).await.unwrap();
        assert_eq!(metrics.sessions(), 2);
        assert!(opened(&other).await);
    }

    #[tokio::test]
    async fn a_session_that_was_left_ends_and_one_in_use_does_not() {
        let metrics = Arc::default();
        let sessions = sessions(&places(9, 9), &metrics);
        let (used, _first) = sessions.create_session().await.unwrap();
        let (left, _second) = sessions.create_session().await.unwrap();
        let in_use = sessions.enter(&used).unwrap();
        let (idle, start) = (Duration::from_mins(1), Instant::now());
        sessions.end_left(idle, start + idle / 2).await;
        assert_eq!(metrics.sessions(), 2);
        sessions.end_left(idle, start + idle * 2).await;
        assert!(sessions.enter(&left).is_none() && metrics.sessions() == 1);
        drop(in_use);
        sessions.end_left(idle, Instant::now() + idle * 2).await;
        assert!(sessions.is_empty());
    }

    fn from_client(message: Json) -> ClientJsonRpcMessage {
        serde_json::from_value(message).unwrap()
    }

    /// Returns a question about request 1 of the client.
    fn question(id: i64) -> ServerJsonRpcMessage {
        let mut message = serde_json::from_value(json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" })).unwrap();
        if let ServerJsonRpcMessage::Request(question) = &mut message {
            question.request.extensions_mut().insert(OriginatingRequestId(NumberOrString::Number(1)));
        }
        message
    }

    /// Returns a session that has begun, and its transport.
    async fn begun(sessions: &Arc<Sessions>) -> (SessionId, <Sessions as SessionManager>::Transport) {
        let (id, mut transport) = sessions.create_session().await.unwrap();
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
        let initialize = from_client(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        let answering = async {
            transport.receive().await.unwrap();
            transport.send(ServerJsonRpcMessage::response(ServerResult::empty(()), NumberOrString::Number(0))).await.unwrap();
        };
        let (answer, ()) = tokio::join!(sessions.initialize_session(&id, initialize), answering);
        answer.unwrap();
        (id, transport)
    }

    /// Returns the ids of the next questions of a stream, and the id of the last event.
    async fn questions(events: &mut (impl Stream<Item = ServerSseMessage> + Unpin), count: usize) -> (Vec<i64>, String) {
        let (mut ids, mut last) = (Vec::new(), String::new());
        while ids.len() < count {
            let event = events.next().await.unwrap();
            last = event.event_id.unwrap();
            if let Some(ServerJsonRpcMessage::Request(question)) = event.message.as_deref()
                && let NumberOrString::Number(id) = question.id
            {
                ids.push(id);
            }
        }
        (ids, last)
    }

    #[tokio::test]
    async fn a_stream_that_is_asked_for_again_has_no_question_that_was_answered_and_no_message_that_was_received() {
        let sessions = sessions(&places(9, 9), &Arc::default());
        let (id, mut transport) = begun(&sessions).await;
        let call = from_client(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "t" } }));
        let mut stream = Box::pin(sessions.create_stream(&id, call).await.unwrap());
        transport.receive().await.unwrap();
        for number in [10, 11, 12] {
            transport.send(question(number)).await.unwrap();
        }
        let (asked, first) = questions(&mut stream, 1).await;
        assert_eq!(asked, [10]);
        assert_eq!(questions(&mut stream, 2).await.0, [11, 12]);
        drop(stream);
        let answer = from_client(json!({ "jsonrpc": "2.0", "id": 11, "result": { "roots": [] } }));
        sessions.accept_message(&id, answer.clone()).await.unwrap();
        // The client says that it has received the first question only. It has answered the second.
        let mut again = Box::pin(sessions.resume(&id, first.clone()).await.unwrap());
        transport.send(question(13)).await.unwrap();
        assert_eq!(questions(&mut again, 2).await.0, [12, 13]);
        // A second answer changes nothing.
        sessions.accept_message(&id, answer).await.unwrap();
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
        sessions.accept_message(&id, from_client(cancelled)).await.unwrap();
        drop(again);
        let mut ended = Box::pin(sessions.resume(&id, first).await.unwrap());
        assert!(ended.next().await.is_none(), "nobody waits for an answer any more");
    }

    #[test]
    fn the_first_event_of_a_stream_without_a_request_is_not_taken_for_received() {
        assert_eq!(["0", "7", "0/3", "7/3", "x", ""].map(last_event), [None, Some(7), Some(0), Some(7), None, None]);
    }

    #[tokio::test]
    async fn the_end_of_a_session_is_known_to_its_requests_at_once() {
        let (metrics, caller) = (Arc::default(), CancellationToken::new());
        let sessions = Arc::new(Sessions::new(places(9, 9).share(), metrics, caller.clone()));
        let (one, _first) = sessions.create_session().await.unwrap();
        let (other, _second) = sessions.create_session().await.unwrap();
        let [one_end, other_end] = [&one, &other].map(|id| sessions.enter(id).unwrap().end().0);
        sessions.close_session(&one).await.unwrap();
        assert!(one_end.is_cancelled() && !other_end.is_cancelled());
        caller.cancel();
        assert!(other_end.is_cancelled());
    }
}
