//! The calls that a connection has in flight: what the server asks or tells while they last finds its caller here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{GetExtensions as _, JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;
use serde_json::Value as Json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::clock::CallClock;
use super::heard::Heard;
use super::pace::{NOTICES, Passage, Valve};
use super::routing::{Candidate, Origin, Route, route};
use super::tap::Notice;

/// Questions that one call may ask, all in all, and that may be open outside of calls: a server that asks more is not answered.
const MAX_QUESTIONS: u32 = 20;
/// Travels with a request to the transport, which is where its id becomes known before the server can answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallKey(u64);

impl CallKey {
    /// A question that came with this call's own answer.
    pub(super) fn origin(self) -> Origin {
        Origin::Call(self.0)
    }
}

/// A call in flight.
#[derive(Clone)]
pub(super) struct InFlight {
    pub(super) tool: String,
    pub(super) caller: Arc<dyn Caller>,
    pub(super) clock: CallClock,
    /// Cancelled when the call is over.
    pub(super) over: CancellationToken,
    /// Cancelled once the server has been told of that, or has answered the call.
    told: CancellationToken,
}

impl InFlight {
    /// Waits until the server has been told that the call is over, where it is. What answers the call's own questions is sent after that:
    /// a server that got such an answer first would finish a call that nobody waits for, and never hear that it was cancelled.
    pub(super) async fn end_is_told(&self) {
        if self.over.is_cancelled() {
            self.told.cancelled().await;
        }
    }
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
    notices: Mutex<Valve>,
    /// Whether the server asks questions of which nothing says whose they are.
    asks_anybody: AtomicBool,
    outside: Mutex<Outside>,
    heard: Heard,
}

/// A call's place; dropped, the call is over, and so is what it asked.
pub(super) struct Place {
    key: u64,
    calls: Arc<Calls>,
    over: CancellationToken,
    told: CancellationToken,
}

impl Place {
    pub(super) fn key(&self) -> CallKey {
        CallKey(self.key)
    }

    /// Nobody waits for the call any more. Until this is dropped, what the server asks may still be meant for it.
    pub(super) fn give_up(&self) {
        self.over.cancel();
    }

    /// The server has been told that nobody waits for the call any more.
    pub(super) fn has_told(&self) {
        self.told.cancel();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.calls.entries().remove(&self.key);
        self.over.cancel();
        self.told.cancel();
    }
}

/// What a question needs: somebody who can answer that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    Person,
    Model,
}

impl Wants {
    fn can_be_had_of(self, caller: &dyn Caller) -> bool {
        match self {
            Self::Person => caller.can_elicit(),
            Self::Model => caller.can_sample(),
        }
    }
}

/// Whom a question may be put to.
pub(super) enum Asked {
    Call(InFlight),
    Outside(OutsideQuestion),
    /// Whoever is meant, there is nobody to ask.
    Nobody,
    Ambiguous,
    /// More is asked than is answered, by this tool's call or outside of any. Told once.
    TooMany {
        tool: Option<String>,
        is_first: bool,
    },
}

/// A question outside of any call, as long as it is open.
pub(super) struct OutsideQuestion(Arc<Calls>);

impl Drop for OutsideQuestion {
    fn drop(&mut self) {
        let mut outside = self.0.outside();
        outside.open -= 1;
        outside.is_told &= outside.open > 0;
    }
}

/// Questions that are open and belong to no call, and whether it was told that there are too many of them.
#[derive(Default)]
struct Outside {
    open: u32,
    is_told: bool,
}

impl Calls {
    pub(super) fn new(asks_anybody: bool) -> Self {
        let notices = Mutex::new(Valve::new(NOTICES, Instant::now()));
        let asks_anybody = AtomicBool::new(asks_anybody);
        Self {
            entries: Mutex::default(),
            next_key: AtomicU64::new(1),
            notices,
            asks_anybody,
            outside: Mutex::default(),
            heard: Heard::default(),
        }
    }

    /// Whether the server asks questions of which nothing says whose they are.
    pub(super) fn asks_anybody(&self) -> bool {
        self.asks_anybody.load(Ordering::Acquire)
    }

    pub(super) fn enter(self: &Arc<Self>, tool: &str, caller: &Arc<dyn Caller>, clock: &CallClock) -> Place {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let (over, told) = (CancellationToken::new(), CancellationToken::new());
        let (tool, caller, clock) = (tool.to_owned(), Arc::clone(caller), clock.clone());
        let call = InFlight { tool, caller, clock, over: over.clone(), told: told.clone() };
        self.entries().insert(key, Entry { call, id: None, progress_token: None, questions: 0 });
        Place { key, calls: Arc::clone(self), over, told }
    }

    /// Notes the id and the progress token of a call that is about to be written.
    pub(super) fn sent(&self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        let extensions = request.request.extensions();
        let Some(key) = extensions.get::<CallKey>().copied() else { return };
        let meta = extensions.get::<rmcp::model::RequestMetaObject>();
        let token = meta.and_then(rmcp::model::RequestMetaObject::get_progress_token);
        self.note(key, &request.id, token.and_then(|token| serde_json::to_value(token).ok()));
    }

    /// The same of one that goes past rmcp.
    pub(super) fn note(&self, CallKey(key): CallKey, id: &RequestId, progress_token: Option<Json>) {
        if let Some(entry) = self.entries().get_mut(&key) {
            (entry.id, entry.progress_token) = (Some(id.clone()), progress_token);
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

    /// Notes who can be meant by a question, as it is read.
    pub(super) fn hear(&self, question: RequestId) {
        let candidates = candidates(&self.entries());
        self.heard.note(question, candidates);
    }

    /// Forgets a question that is put to nobody.
    pub(super) fn unheard(&self, question: &RequestId) {
        self.heard.take(question);
    }

    /// Whom a question is put to, by its id where it came as a request. Counts it.
    pub(super) fn ask(self: &Arc<Self>, origin: Origin, wants: Wants, question: Option<&RequestId>) -> Asked {
        let heard = question.map(|question| self.heard.take(question));
        let mut entries = self.entries();
        let candidates = heard.unwrap_or_else(|| Some(candidates(&entries)));
        let route = candidates.as_ref().map_or(origin.known(), |candidates| route(origin, candidates));
        if origin == Origin::Unknown && route != Route::Outside {
            // Before anybody else can enter: whoever comes next waits for those who are in.
            self.asks_anybody.store(true, Ordering::Release);
        }
        let entry = match route {
            Route::Call(key) => match the_same_callers(key, origin, candidates, &entries) {
                Some(key) => entries.get_mut(&key),
                // What it was about is over.
                None if origin == Origin::Unknown => return Asked::Nobody,
                None => None,
            },
            Route::Outside => None,
            Route::Ambiguous => {
                let mut calls = entries.values().map(|entry| &entry.call);
                let can_any = calls.any(|call| wants.can_be_had_of(call.caller.as_ref()));
                return if can_any { Asked::Ambiguous } else { Asked::Nobody };
            }
        };
        let Some(entry) = entry else { return self.ask_outside() };
        entry.questions = entry.questions.saturating_add(1);
        if entry.questions > MAX_QUESTIONS {
            let is_first = entry.questions == MAX_QUESTIONS + 1;
            return Asked::TooMany { tool: Some(entry.call.tool.clone()), is_first };
        }
        Asked::Call(entry.call.clone())
    }

    fn ask_outside(self: &Arc<Self>) -> Asked {
        let mut outside = self.outside();
        if outside.open < MAX_QUESTIONS {
            outside.open += 1;
            return Asked::Outside(OutsideQuestion(Arc::clone(self)));
        }
        Asked::TooMany { tool: None, is_first: !std::mem::replace(&mut outside.is_told, true) }
    }

    /// The one caller that has calls in flight, if there is just one: what the server tells is meant for it.
    pub(super) fn only_caller(&self) -> Option<InFlight> {
        let entries = self.entries();
        let first = &entries.values().next()?.call;
        let alone = entries.values().all(|entry| entry.call.caller.identity() == first.caller.identity());
        alone.then(|| first.clone())
    }

    /// Tells a listener what `notice` gives, as far as the rate allows: of what nobody is told, nothing is made.
    pub(super) fn tell(&self, listener: impl Fn(&Notice), notice: impl FnOnce() -> Notice) {
        if self.admits_notice(&listener) {
            listener(&notice());
        }
    }

    /// Returns whether the rate allows one more notice; the listener is told first how many were left out before it.
    pub(super) fn admits_notice(&self, listener: impl Fn(&Notice)) -> bool {
        let passage = self.notices.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now());
        if let Passage::Pass(dropped @ 1..) = passage {
            listener(&Notice::Dropped(dropped));
        }
        passage != Passage::Drop
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The call, or where it is over and only its caller is known, the latest of that caller's which could be meant as well.
fn the_same_callers(key: u64, origin: Origin, candidates: Option<Vec<Candidate>>, entries: &BTreeMap<u64, Entry>) -> Option<u64> {
    let others = candidates.filter(|_| origin == Origin::Unknown).unwrap_or_default();
    let keys = std::iter::once(key).chain(others.into_iter().rev().map(|other| other.key));
    keys.into_iter().find(|key| entries.contains_key(key))
}

fn candidates(entries: &BTreeMap<u64, Entry>) -> Vec<Candidate> {
    entries.iter().map(|(key, entry)| Candidate { key: *key, caller: entry.call.caller.identity() }).collect()
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
            true
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
        let calls = Arc::new(Calls::new(false));
        let place = enter(&calls, 1);
        let Asked::Call(call) = calls.ask(Origin::Unknown, Wants::Person, None) else { panic!("its caller is the only one") };
        assert!(!call.over.is_cancelled());
        drop(place);
        assert!(call.over.is_cancelled());
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, None), Asked::Outside(_)));
    }

    #[tokio::test]
    async fn what_answers_a_question_of_a_call_that_is_over_waits_until_its_server_was_told() {
        let calls = Arc::new(Calls::new(false));
        let place = enter(&calls, 1);
        let Asked::Call(call) = calls.ask(Origin::Unknown, Wants::Person, None) else { panic!("its caller is the only one") };
        let is_told = || futures::FutureExt::now_or_never(call.end_is_told()).is_some();
        assert!(is_told(), "nothing is to be told as long as it is in flight");
        place.give_up();
        assert!(!is_told());
        place.has_told();
        assert!(is_told());
        let second = enter(&calls, 1);
        let Asked::Call(answered) = calls.ask(Origin::Call(second.key), Wants::Person, None) else { panic!("it is its own") };
        drop(second);
        answered.end_is_told().await;
    }

    #[test]
    fn a_question_is_of_those_who_were_in_flight_when_it_was_read_however_late_it_is_put() {
        let calls = Arc::new(Calls::new(false));
        let first = enter(&calls, 1);
        let (late, after) = (RequestId::Number(7), RequestId::Number(8));
        calls.hear(late.clone());
        // Its call's answer was read next, and handed over before it; somebody else has come meanwhile.
        drop(first);
        let _second = enter(&calls, 2);
        calls.hear(after.clone());
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, Some(&late)), Asked::Nobody));
        let Asked::Call(call) = calls.ask(Origin::Unknown, Wants::Person, Some(&after)) else { panic!("the second is the only caller") };
        assert_eq!(call.caller.identity(), 2);
    }

    #[test]
    fn a_question_of_one_of_a_callers_calls_is_put_to_that_caller_as_long_as_any_of_them_is_in_flight() {
        let calls = Arc::new(Calls::new(false));
        let (first, second) = (enter(&calls, 1), enter(&calls, 1));
        let question = RequestId::Number(1);
        calls.hear(question.clone());
        drop(second);
        let _other = enter(&calls, 2);
        let Asked::Call(call) = calls.ask(Origin::Unknown, Wants::Person, Some(&question)) else { panic!("it is the first caller's") };
        assert_eq!(call.caller.identity(), 1);
        drop(first);
    }

    #[test]
    fn where_it_was_not_noted_who_can_be_meant_nobody_is_asked() {
        let calls = Arc::new(Calls::new(false));
        let place = enter(&calls, 1);
        let question = RequestId::Number(1);
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, Some(&question)), Asked::Ambiguous));
        // Unless something else says whose it is.
        assert!(matches!(calls.ask(place.key().origin(), Wants::Person, Some(&question)), Asked::Call(_)));
    }

    #[test]
    fn two_callers_are_never_mixed_up() {
        let calls = Arc::new(Calls::new(false));
        let _places = [enter(&calls, 1), enter(&calls, 2)];
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, None), Asked::Ambiguous));
        assert!(calls.only_caller().is_none());
    }

    #[test]
    fn where_nobody_can_be_asked_it_does_not_matter_who_is_meant() {
        let calls = Arc::new(Calls::new(false));
        let _places = [enter(&calls, 1), enter(&calls, 2)];
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Model, None), Asked::Nobody));
    }

    #[test]
    fn only_a_server_of_whose_questions_nothing_says_whose_they_are_keeps_its_callers_apart() {
        let calls = Arc::new(Calls::new(false));
        let place = enter(&calls, 1);
        assert!(matches!(calls.ask(place.key().origin(), Wants::Person, None), Asked::Call(_)));
        assert!(matches!(calls.ask(Origin::NoCall, Wants::Person, None), Asked::Outside(_)));
        assert!(!calls.asks_anybody());
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, None), Asked::Call(_)));
        assert!(calls.asks_anybody());
    }

    #[test]
    fn a_call_that_was_given_up_may_still_be_meant() {
        let calls = Arc::new(Calls::new(false));
        let places = [enter(&calls, 1), enter(&calls, 2)];
        places[0].give_up();
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, None), Asked::Ambiguous));
        let [given_up, _] = places;
        drop(given_up);
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, None), Asked::Call(_)));
    }

    #[test]
    fn a_call_that_asks_without_end_is_answered_no_more_and_that_is_told_once() {
        let calls = Arc::new(Calls::new(false));
        let _place = enter(&calls, 1);
        let asked: Vec<_> = (0..1_000).map(|_| calls.ask(Origin::Unknown, Wants::Person, None)).collect();
        assert_eq!(asked.iter().filter(|asked| matches!(asked, Asked::Call(_))).count(), MAX_QUESTIONS as usize);
        assert_eq!(asked.iter().filter(|asked| matches!(asked, Asked::TooMany { is_first: true, .. })).count(), 1);
    }

    #[test]
    fn so_many_questions_outside_of_calls_are_open_and_no_more() {
        let calls = Arc::new(Calls::new(false));
        let mut asked: Vec<_> = (0..1_000).map(|_| calls.ask(Origin::Unknown, Wants::Person, None)).collect();
        assert_eq!(asked.iter().filter(|asked| matches!(asked, Asked::Outside(_))).count(), MAX_QUESTIONS as usize);
        assert_eq!(asked.iter().filter(|asked| matches!(asked, Asked::TooMany { tool: None, is_first: true })).count(), 1);
        asked.clear();
        assert!(matches!(calls.ask(Origin::Unknown, Wants::Person, None), Asked::Outside(_)));
    }
}
