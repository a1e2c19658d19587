//! One rmcp service for each caller. This binds a session to the caller that opened it, because the services of other callers do not know
//! the session.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::access::Principal;
use super::metrics::Metrics;
use super::options::HttpLimits;
use super::sessions::Sessions;
use super::streams::MAX_STREAMS_PER_CALLER;
use crate::serve::places::{PlaceLimits, Places, Share};

/// The number of callers above which idle callers are removed. A caller is also kept if it has a task, a handle or a waiting call.
/// Together, tasks, handles and waiting calls can keep fewer callers than this number.
const MAX_CALLERS: usize = 4096;

/// Creates the MCP handler of a session, or of a request without a session.
pub(super) type MakeHandler<H> = dyn Fn(&Principal) -> H + Send + Sync;

/// The caller of a request without a session. It is stored in the extensions of the request.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Owner {
    pub(in crate::serve) key: String,
    /// Cancelled when the caller's token is withdrawn or the server closes. The service of the caller counts the references to this token.
    /// A caller for which something is kept holds such a reference, and is therefore not treated as idle.
    pub(in crate::serve) ended: Arc<CancellationToken>,
}

/// The services of all callers.
pub(super) struct Callers<H> {
    make: Arc<MakeHandler<H>>,
    limits: HttpLimits,
    metrics: Arc<Metrics>,
    pub(super) places: AllPlaces,
    services: Mutex<HashMap<String, Arc<Service<H>>>>,
    /// Cancelled to end all sessions and streams.
    ended: CancellationToken,
}

/// The places that all callers share, for each limited resource.
pub(super) struct AllPlaces {
    /// Requests in progress.
    pub(super) slots: Arc<Places>,
    /// Bytes of request bodies in memory.
    buffers: Arc<Places>,
    /// Streams without a session.
    streams: Arc<Places>,
    sessions: Arc<Places>,
}

impl AllPlaces {
    fn new(limits: &HttpLimits) -> Self {
        let places = |of_all, of_caller, least_of_caller| Places::new(PlaceLimits { of_all, of_caller, least_of_caller });
        Self {
            slots: places(limits.max_requests, limits.max_requests_per_client, 1),
            buffers: places(limits.max_buffered_bytes, limits.max_buffered_bytes_per_client(), limits.max_body_bytes),
            streams: places(limits.max_sessions, MAX_STREAMS_PER_CALLER, 1),
            sessions: places(limits.max_sessions, limits.max_sessions_per_client, 1),
        }
    }
}

/// The service of one caller.
pub(super) struct Service<H> {
    pub(super) mcp: StreamableHttpService<H, Sessions>,
    pub(super) sessions: Arc<Sessions>,
    /// Limits the number of requests in progress.
    pub(super) slots: Arc<Share>,
    /// Limits the number of bytes of request bodies in memory.
    pub(super) buffers: Arc<Share>,
    /// Limits the number of streams without a session.
    pub(super) streams: Arc<Share>,
    /// The latest expiry of the caller's OAuth access tokens, in seconds since 1970.
    expires: AtomicU64,
    ended: Arc<CancellationToken>,
}

impl<H: ServerHandler> Callers<H> {
    pub(super) fn new(make: Arc<MakeHandler<H>>, limits: &HttpLimits, metrics: Arc<Metrics>, ended: CancellationToken) -> Self {
        let places = AllPlaces::new(limits);
        Self { make, limits: limits.clone(), metrics, places, services: Mutex::default(), ended }
    }

    /// Returns the caller's service. Returns `None` if there are too many busy callers.
    pub(super) fn service(&self, caller: &Principal) -> Option<Arc<Service<H>>> {
        let mut services = self.services.lock();
        if let Some(service) = services.get(&caller.key) {
            service.expires.fetch_max(end_of(caller), Ordering::AcqRel);
            return Some(service.clone());
        }
        if services.len() >= MAX_CALLERS {
            services.retain(|_, service| Arc::strong_count(service) > 1 || !service.is_idle());
            if services.len() >= MAX_CALLERS {
                return None;
            }
        }
        let service = Arc::new(self.start(caller));
        services.insert(caller.key.clone(), service.clone());
        Some(service)
    }

    fn start(&self, caller: &Principal) -> Service<H> {
        let AllPlaces { slots, buffers, streams, sessions } = &self.places;
        let ended = self.ended.child_token();
        let sessions = Arc::new(Sessions::new(sessions.share(), self.metrics.clone(), ended.clone()));
        // The guards have already checked `Host` and `Origin`.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_json_response(true)
            .with_max_request_body_bytes(self.limits.max_body_bytes)
            .with_cancellation_token(ended.clone());
        let (make, principal) = (self.make.clone(), caller.clone());
        let mcp = StreamableHttpService::new(move || Ok(make(&principal)), sessions.clone(), config);
        Service {
            mcp,
            sessions,
            slots: slots.share(),
            buffers: buffers.share(),
            streams: streams.share(),
            expires: AtomicU64::new(end_of(caller)),
            ended: Arc::new(ended),
        }
    }

    /// Ends the sessions of callers whose tokens were removed from the token file.
    pub(super) fn keep(&self, owners: &HashSet<String>) {
        self.services.lock().retain(|key, service| {
            let of_file = key.starts_with("name:") || key.starts_with("token:");
            let keeps = !of_file || owners.contains(key);
            if !keeps {
                service.ended.cancel();
            }
            keeps
        });
    }

    /// Ends the sessions of callers whose OAuth access tokens have all expired. `now` is in seconds since 1970.
    pub(super) fn end_expired(&self, now: u64) {
        self.services.lock().retain(|_, service| {
            let keeps = now < service.expires.load(Ordering::Acquire);
            if !keeps {
                service.ended.cancel();
            }
            keeps
        });
    }

    /// Ends the sessions that have been idle for too long.
    pub(super) async fn end_left(&self, now: Instant) {
        let all: Vec<_> = self.services.lock().values().map(|service| service.sessions.clone()).collect();
        for sessions in all {
            sessions.end_left(self.limits.session_idle, now).await;
        }
    }
}

/// Returns the expiry of the caller's token. A token in the token file has no expiry. If it is removed from the file, `keep` ends the
/// sessions of its caller.
fn end_of(caller: &Principal) -> u64 {
    caller.expires.unwrap_or(u64::MAX)
}

impl<H> Drop for Service<H> {
    /// Ends the sessions of a removed caller now. They would not be ended later if the caller's token is withdrawn, because the caller is
    /// no longer in the list.
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl<H> Service<H> {
    /// Returns the owner for everything that requests of this caller store in this program.
    pub(super) fn owner(&self, caller: &Principal) -> Owner {
        Owner { key: caller.key.clone(), ended: Arc::clone(&self.ended) }
    }

    /// Returns whether the caller has neither a session nor a request in progress, and nothing is kept for it: no task, no handle and no call
    /// that waits for an answer. Removing the caller would end these.
    fn is_idle(&self) -> bool {
        let keeps_nothing = Arc::strong_count(&self.ended) == 1;
        keeps_nothing && self.sessions.is_empty() && self.slots.is_free() && self.streams.is_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;
    impl ServerHandler for Silent {}

    #[test]
    fn a_caller_of_whom_something_is_kept_is_not_removed_for_another() {
        let callers = Callers::new(Arc::new(|_: &Principal| Silent), &HttpLimits::default(), Arc::default(), CancellationToken::new());
        let caller = |number: usize| Principal { key: format!("oauth:{number}"), ..Principal::default() };
        let owner = |number| callers.service(&caller(number)).unwrap().owner(&caller(number));
        let (kept, left) = (owner(0), owner(1).ended.as_ref().clone());
        for number in 2..=MAX_CALLERS {
            assert!(callers.service(&caller(number)).is_some());
        }
        assert!(left.is_cancelled(), "an idle caller is removed");
        assert!(!kept.ended.is_cancelled());
        assert!(Arc::ptr_eq(&kept.ended, &owner(0).ended), "and is still the same caller");
        callers.keep(&HashSet::new());
        callers.end_expired(u64::MAX);
        assert!(kept.ended.is_cancelled(), "the end of its token is its end");
    }
}
