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
        Ok(self.inner.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }
}

#[cfg(test)]
mod tests {
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
