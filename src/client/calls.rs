//! The calls that a connection has in flight: what the server asks or tells while they last finds its caller here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{GetExtensions as _, JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;
use serde_json::Value as Json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::clock::CallClock;
use super::routing::{Candidate, Origin, Route, route};
use super::tap::{Notice, NoticeBudget, Passage};

/// Questions that one call may ask, all in all: a server that asks more is not answered.
const MAX_QUESTIONS: u32 = 20;

/// Travels with a request to the transport, which is where its id becomes known before the server can answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallKey(u64);

/// A call in flight.
#[derive(Clone)]
pub(super) struct InFlight {
    pub(super) tool: String,
    pub(super) caller: Arc<dyn Caller>,
    pub(super) clock: CallClock,
    /// Cancelled when the call is over.
    pub(super) over: CancellationToken,
}

struct Entry {
    call: InFlight,
    id: Option<RequestId>,
    progress_token: Option<Json>,
    questions: u32,
}

/// All calls of one connection.
pub(super) struct Calls {
    entries: Mutex<BTreeMap<u64, Entry>>,
    next_key: AtomicU64,
    budget: Mutex<NoticeBudget>,
}

/// A call's place; dropped, the call is over, and so is what it asked.
pub(super) struct Place {
    key: u64,
    calls: Arc<Calls>,
    over: CancellationToken,
}

impl Place {
    pub(super) fn number(&self) -> u64 {
        self.key
    }

    pub(super) fn key(&self) -> CallKey {
        CallKey(self.key)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.calls.entries().remove(&self.key);
        self.over.cancel();
    }
}

/// Whom a question may be put to.
pub(super) enum Asked {
    Call(InFlight),
    Outside,
    Ambiguous,
    /// The call has asked as much as it may.
    TooMany(InFlight),
}

impl Calls {
    pub(super) fn new() -> Self {
        let budget = Mutex::new(NoticeBudget::new(Instant::now()));
        Self { entries: Mutex::default(), next_key: AtomicU64::new(1), budget }
    }

    pub(super) fn enter(self: &Arc<Self>, tool: &str, caller: &Arc<dyn Caller>, clock: &CallClock) -> Place {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let over = CancellationToken::new();
        let call = InFlight { tool: tool.to_owned(), caller: Arc::clone(caller), clock: clock.clone(), over: over.clone() };
        self.entries().insert(key, Entry { call, id: None, progress_token: None, questions: 0 });
        Place { key, calls: Arc::clone(self), over }
    }

    /// Notes the id and the progress token of a call that is about to be written.
    pub(super) fn sent(&self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        let extensions = request.request.extensions();
        let Some(CallKey(key)) = extensions.get::<CallKey>().copied() else { return };
        let meta = extensions.get::<rmcp::model::RequestMetaObject>();
        let token = meta.and_then(rmcp::model::RequestMetaObject::get_progress_token);
        if let Some(entry) = self.entries().get_mut(&key) {
            entry.id = Some(request.id.clone());
            entry.progress_token = token.and_then(|token| serde_json::to_value(token).ok());
        }
    }

    /// The call that a progress token belongs to.
    pub(super) fn with_token(&self, token: &Json) -> Option<InFlight> {
        let entries = self.entries();
        entries.values().find(|entry| entry.progress_token.as_ref() == Some(token)).map(|entry| entry.call.clone())
    }

    /// The call on whose stream a question came.
    pub(super) fn origin(&self, request: &RequestId) -> Origin {
        let entries = self.entries();
        let found = entries.iter().find(|(_, entry)| entry.id.as_ref() == Some(request));
        found.map_or(Origin::NoCall, |(key, _)| Origin::Call(*key))
    }

    /// Whom a question is put to. Counts it.
    pub(super) fn ask(&self, origin: Origin) -> Asked {
        let mut entries = self.entries();
        let candidates: Vec<_> = entries.iter().map(|(key, entry)| Candidate { key: *key, caller: entry.call.caller.identity() }).collect();
        let entry = match route(origin, &candidates) {
            Route::Call(key) => entries.get_mut(&key),
            Route::Outside => None,
            Route::Ambiguous => return Asked::Ambiguous,
        };
        let Some(entry) = entry else { return Asked::Outside };
        entry.questions += 1;
        if entry.questions > MAX_QUESTIONS { Asked::TooMany(entry.call.clone()) } else { Asked::Call(entry.call.clone()) }
    }

    /// The one caller that has calls in flight, if there is just one: what the server tells is meant for it.
    pub(super) fn only_caller(&self) -> Option<InFlight> {
        let entries = self.entries();
        let first = &entries.values().next()?.call;
        let alone = entries.values().all(|entry| entry.call.caller.identity() == first.caller.identity());
        alone.then(|| first.clone())
    }

    /// Hands a notice on, as far as the budget allows.
    pub(super) fn tell(&self, notice: Notice, mut listener: impl FnMut(&Notice)) {
        let passage = self.budget.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now());
        let Passage::Pass(dropped) = passage else { return };
        if dropped > 0 {
            listener(&Notice::Dropped(dropped));
        }
        listener(&notice);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::client::caller::{Elicitation, ElicitationAnswer, Reply, Sampling};
    use crate::client::clock::CallLimits;
    use std::time::Duration;

    pub(in crate::client) struct Numbered(pub(in crate::client) u64);

    impl Caller for Numbered {
        fn identity(&self) -> u64 {
            self.0
        }
        fn can_elicit(&self) -> bool {
            false
        }
        fn elicit(&self, _elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
            None
        }
        fn sample(&self, _sampling: Sampling) -> Option<Reply<Json>> {
            None
        }
        fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}
        fn pause(&self) -> Option<Box<dyn Send + Sync>> {
            None
        }
    }

    fn enter(calls: &Arc<Calls>, caller: u64) -> Place {
        let caller: Arc<dyn Caller> = Arc::new(Numbered(caller));
        calls.enter("tool", &caller, &CallClock::start(CallLimits::fixed(Duration::from_secs(1))))
    }

    #[test]
    fn a_call_that_is_over_is_asked_nothing_and_what_it_asked_ends() {
        let calls = Arc::new(Calls::new());
        let place = enter(&calls, 1);
        let Asked::Call(call) = calls.ask(Origin::Unknown) else { panic!("its caller is the only one") };
        assert!(!call.over.is_cancelled());
        drop(place);
        assert!(call.over.is_cancelled());
        assert!(matches!(calls.ask(Origin::Unknown), Asked::Outside));
    }

    #[test]
    fn two_callers_are_never_mixed_up() {
        let calls = Arc::new(Calls::new());
        let places = [enter(&calls, 1), enter(&calls, 2)];
        assert!(matches!(calls.ask(Origin::Unknown), Asked::Ambiguous));
        assert!(calls.only_caller().is_none());
        drop(places);
    }

    #[test]
    fn a_call_that_asks_without_end_is_answered_no_more() {
        let calls = Arc::new(Calls::new());
        let _place = enter(&calls, 1);
        let answered = (0..1_000).filter(|_| matches!(calls.ask(Origin::Unknown), Asked::Call(_))).count();
        assert_eq!(answered, MAX_QUESTIONS as usize);
    }
}
