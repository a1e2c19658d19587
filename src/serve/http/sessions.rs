//! Sessions of one caller: rmcp's session manager with limits, and an end for idle sessions.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};

use super::metrics::Metrics;
use super::request_ids::{Answering, RequestIds};

tokio::task_local! {
    /// Set to true while a request is handled that needs a session, if there are too many. A flag is needed because rmcp answers every
    /// failure with status 500.
    pub(super) static NO_SESSION_LEFT: Cell<bool>;
}

/// The time for which rmcp keeps a copy of each answer, for a client that lost its connection and requests the answer again. It is longer
/// than the three seconds after which a client does so (`retry` of the stream).
pub(super) const ANSWER_KEPT: Duration = Duration::from_secs(5);

/// The maximum numbers of sessions.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLimits {
    pub(super) of_all: usize,
    pub(super) of_caller: usize,
}

/// Sessions of one caller.
#[derive(Debug)]
pub(super) struct Sessions {
    inner: LocalSessionManager,
    open: Mutex<HashMap<SessionId, Use>>,
    count: Arc<AtomicUsize>,
    most: SessionLimits,
    metrics: Arc<Metrics>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionFailure {
    #[error("there are too many sessions")]
    Full,
    #[error(transparent)]
    Session(#[from] LocalSessionManagerError),
}

/// The use of a session. It determines whether the session is idle.
#[derive(Debug)]
struct Use {
    requests: usize,
    last: Instant,
    ids: RequestIds,
    _session_slot: SessionSlot,
}

/// One counted session, until this value is dropped.
#[derive(Debug)]
struct SessionSlot {
    count: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.metrics.remove_session();
    }
}

/// Marks a session as in use until this value is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    sessions: Arc<Sessions>,
    id: SessionId,
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
    pub(super) fn new(most: SessionLimits, metrics: Arc<Metrics>) -> Self {
        let mut inner = LocalSessionManager::default();
        // rmcp's own idle time-out does not consider open streams and running calls, so `end_left` ends idle sessions instead.
        inner.session_config.keep_alive = None;
        inner.session_config.completed_cache_ttl = ANSWER_KEPT;
        Self { inner, open: Mutex::default(), count: Arc::default(), most, metrics }
    }

    /// Marks a session as in use. Returns `None` if the caller has no such session.
    pub(super) fn enter(self: &Arc<Self>, id: &str) -> Option<InUse> {
        let mut open = self.open.lock();
        let (id, session) = open.get_key_value(id).map(|(id, _)| id.clone()).and_then(|id| Some((id.clone(), open.get_mut(&id)?)))?;
        session.requests += 1;
        Some(InUse { sessions: self.clone(), id })
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
        let added = |count| (count < self.most.of_caller).then_some(count + 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, added).ok()?;
        if self.metrics.add_session(self.most.of_all) {
            return Some(SessionSlot { count: self.count.clone(), metrics: self.metrics.clone() });
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        None
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
        let session = Use { requests: 0, last: Instant::now(), ids: ids.clone(), _session_slot: session_slot };
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

    fn sessions(of_all: usize, of_caller: usize, metrics: &Arc<Metrics>) -> Arc<Sessions> {
        Arc::new(Sessions::new(SessionLimits { of_all, of_caller }, metrics.clone()))
    }

    #[tokio::test]
    async fn a_caller_and_all_callers_together_have_limits() {
        let metrics = Arc::default();
        let (one, other) = (sessions(3, 2, &metrics), sessions(3, 2, &metrics));
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
        let sessions = sessions(9, 9, &metrics);
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
}
