//! The calls in flight of a connection. When the server sends a question or a notification, this module finds the call to which
//! the question or notification belongs, and with the call its caller.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rmcp::RoleClient;
use rmcp::model::{GetExtensions as _, JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;
use serde_json::Value as Json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::caller::{Caller, GoneCaller};
use super::question_candidates::QuestionCandidates;
use super::rate_limit::{NOTICES, RateDecision, RateLimiter, Share};
use super::routing::{Candidate, Origin, Route, route};
use crate::client::clock::CallClock;

/// Maximum number of questions for one call. It is also the maximum number of open questions that belong to no call. Questions above the
/// maximum are cancelled.
const MAX_QUESTIONS: u32 = 20;
/// Key of a call. The request carries the key to the transport, so that the request's id is recorded before the server can answer.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct CallKey(u64);

impl CallKey {
    /// Returns the origin of a question that came in the result of this call.
    pub(in crate::client) fn origin(self) -> Origin {
        Origin::Call(self.0)
    }
}

/// A call in flight.
#[derive(Clone)]
pub(in crate::client) struct InFlight {
    pub(in crate::client) tool: String,
    pub(in crate::client) caller: Arc<dyn Caller>,
    pub(in crate::client) clock: CallClock,
    /// Token that is cancelled when the call is over.
    pub(in crate::client) over: CancellationToken,
    /// Token that is cancelled once the server knows that the call is over. The server knows it when it has received the cancellation or
    /// has answered the call.
    server_knows: CancellationToken,
}

impl InFlight {
    /// Waits, if the call is over, until the server knows that the call is over. Answers to the call's questions may be sent only after
    /// this wait. Otherwise the server could read such an answer first, complete an abandoned call, and read the cancellation too late.
    pub(super) async fn end_reported(&self) {
        if self.over.is_cancelled() {
            self.server_knows.cancelled().await;
        }
    }
}

struct Entry {
    call: InFlight,
    id: Option<RequestId>,
    progress_token: Option<Json>,
    questions: u32,
    notices: Share,
}

/// Callback that receives the number of a call's dropped notices. It is called before the result of the call is returned to the caller.
pub(in crate::client) type LeftOut = Box<dyn Fn(&InFlight, u64) + Send + Sync>;

/// The rule by which a notice is matched with its call.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) enum CallMatch<'a> {
    /// Matches the call that has this progress token. If no call has it, the notice is ignored.
    Token(&'a Json),
    /// Matches the first call in flight if all calls in flight belong to one caller. If there are several callers, the notice belongs to
    /// no call.
    OnlyCaller,
}

/// A notice that passed the rate limit.
pub(in crate::client) struct Admitted {
    /// The call to which the notice belongs, if any.
    pub(in crate::client) call: Option<InFlight>,
    /// Number of notices of this call that were dropped before this notice and have not been reported yet.
    pub(in crate::client) left_out: u64,
    /// Number of notices without a call that were dropped before this notice and have not been reported yet.
    pub(in crate::client) left_out_of_nobody: u64,
}

/// The calls in flight of one connection.
pub(in crate::client) struct Calls {
    entries: Mutex<BTreeMap<u64, Entry>>,
    next_key: AtomicU64,
    /// Rate limiter of all notices. It counts the dropped notices that belong to no call. Each call counts its own dropped notices.
    notices: Mutex<RateLimiter>,
    left_out: LeftOut,
    /// True if the server has sent a question that does not name a call.
    asks_anybody: AtomicBool,
    outside: Mutex<Outside>,
    question_candidates: QuestionCandidates,
}

/// Guard of a call in flight. Dropping it removes the call and ends the waiting for answers to the call's questions.
pub(in crate::client) struct CallGuard {
    key: u64,
    calls: Arc<Calls>,
    over: CancellationToken,
    server_knows: CancellationToken,
}

impl CallGuard {
    pub(in crate::client) fn key(&self) -> CallKey {
        CallKey(self.key)
    }

    /// Marks the call as over for its caller. The server's questions may still be matched with the call until the guard is dropped.
    pub(in crate::client) fn give_up(&self) {
        self.calls.tell_left_out(self.key);
        self.over.cancel();
        self.calls.let_caller_go(self.key);
    }

    /// Returns the token that must be cancelled once the server has received the call's cancellation.
    pub(in crate::client) fn server_knows(&self) -> CancellationToken {
        self.server_knows.clone()
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.calls.remove(self.key);
        self.over.cancel();
        self.server_knows.cancel();
    }
}

/// The kind of a question: either a person or a model has to answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum QuestionKind {
    Person,
    Model,
}

impl QuestionKind {
    fn can_be_had_of(self, caller: &dyn Caller) -> bool {
        match self {
            Self::Person => caller.can_elicit(),
            Self::Model => caller.can_sample(),
        }
    }
}

/// The recipient of a question.
pub(in crate::client) enum QuestionRecipient {
    Call(InFlight),
    Outside(OutsideQuestion),
    /// No possible recipient can be asked.
    Nobody,
    Ambiguous,
    /// The server has exceeded the limit of questions, either for a call of this tool or for questions that belong to no call. `is_first`
    /// is true for the first question over the limit, which must be reported.
    TooMany {
        tool: Option<String>,
        is_first: bool,
    },
}

/// Guard of an open question that belongs to no call.
pub(in crate::client) struct OutsideQuestion(Arc<Calls>);

impl Drop for OutsideQuestion {
    fn drop(&mut self) {
        let mut outside = self.0.outside();
        outside.open -= 1;
        outside.is_reported &= outside.open > 0;
    }
}

/// Number of open questions that belong to no call. `is_reported` is true if it has been reported that the limit was exceeded.
#[derive(Default)]
struct Outside {
    open: u32,
    is_reported: bool,
}

impl Calls {
    pub(in crate::client) fn new(asks_anybody: bool, left_out: LeftOut) -> Self {
        let notices = Mutex::new(RateLimiter::new(NOTICES, Instant::now()));
        let asks_anybody = AtomicBool::new(asks_anybody);
        Self {
            entries: Mutex::default(),
            next_key: AtomicU64::new(1),
            notices,
            left_out,
            asks_anybody,
            outside: Mutex::default(),
            question_candidates: QuestionCandidates::default(),
        }
    }

    /// Returns whether the server has sent a question that does not name a call.
    pub(in crate::client) fn asks_anybody(&self) -> bool {
        self.asks_anybody.load(Ordering::Acquire)
    }

    pub(in crate::client) fn enter(self: &Arc<Self>, tool: &str, caller: &Arc<dyn Caller>, clock: &CallClock) -> CallGuard {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let (over, server_knows) = (CancellationToken::new(), CancellationToken::new());
        let (tool, caller, clock) = (tool.to_owned(), Arc::clone(caller), clock.clone());
        let call = InFlight { tool, caller, clock, over: over.clone(), server_knows: server_knows.clone() };
        self.entries().insert(key, Entry { call, id: None, progress_token: None, questions: 0, notices: Share::default() });
        CallGuard { key, calls: Arc::clone(self), over, server_knows }
    }

    /// Records the id and the progress token of a call that rmcp will now send.
    pub(in crate::client) fn sent(&self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        let extensions = request.request.extensions();
        let Some(key) = extensions.get::<CallKey>().copied() else { return };
        let meta = extensions.get::<rmcp::model::RequestMetaObject>();
        let token = meta.and_then(rmcp::model::RequestMetaObject::get_progress_token);
        self.note(key, &request.id, token.and_then(|token| serde_json::to_value(token).ok()));
    }

    /// Records the id and the progress token of a call that is sent without rmcp.
    pub(in crate::client) fn note(&self, CallKey(key): CallKey, id: &RequestId, progress_token: Option<Json>) {
        if let Some(entry) = self.entries().get_mut(&key) {
            (entry.id, entry.progress_token) = (Some(id.clone()), progress_token);
        }
    }

    /// Returns the call whose request has this id.
    pub(in crate::client) fn with_id(&self, request: &RequestId) -> Option<InFlight> {
        let entries = self.entries();
        entries.values().find(|entry| entry.id.as_ref() == Some(request)).map(|entry| entry.call.clone())
    }

    /// Returns the origin of a question that came on the HTTP stream of this request: the request's call, or no call.
    pub(in crate::client) fn origin(&self, request: &RequestId) -> Origin {
        let entries = self.entries();
        let found = entries.iter().find(|(_, entry)| entry.id.as_ref() == Some(request));
        found.map_or(Origin::NoCall, |(key, _)| Origin::Call(*key))
    }

    /// Records which calls are in flight when a question is read. Only these calls can have caused the question.
    pub(in crate::client) fn note_question(&self, question: RequestId) {
        let candidates = candidates(&self.entries());
        self.question_candidates.note(question, candidates);
    }

    /// Removes the record of a question about which nobody will be asked.
    pub(super) fn forget_question(&self, question: &RequestId) {
        self.question_candidates.take(question);
    }

    /// Finds the recipient of a question, and counts the question. `question` is the id of a question that came as a separate request.
    pub(in crate::client) fn ask(self: &Arc<Self>, origin: Origin, kind: QuestionKind, question: Option<&RequestId>) -> QuestionRecipient {
        let noted = question.map(|question| self.question_candidates.take(question));
        let mut entries = self.entries();
        let candidates = noted.unwrap_or_else(|| Some(candidates(&entries)));
        let route = candidates.as_ref().map_or(origin.known(), |candidates| route(origin, candidates));
        if origin == Origin::Unknown && route != Route::Outside {
            // The flag is set while the entries are locked, so that it already applies to the next caller.
            self.asks_anybody.store(true, Ordering::Release);
        }
        let entry = match route {
            Route::Call(key) => match the_same_callers(key, origin, candidates, &entries) {
                Some(key) => entries.get_mut(&key),
                // The call that caused the question is over, so nobody is asked.
                None if origin == Origin::Unknown => return QuestionRecipient::Nobody,
                None => None,
            },
            Route::Outside => None,
            Route::Ambiguous => {
                let mut calls = entries.values().map(|entry| &entry.call);
                let can_any = calls.any(|call| kind.can_be_had_of(call.caller.as_ref()));
                return if can_any { QuestionRecipient::Ambiguous } else { QuestionRecipient::Nobody };
            }
        };
        let Some(entry) = entry else { return self.ask_outside() };
        entry.questions = entry.questions.saturating_add(1);
        if entry.questions > MAX_QUESTIONS {
            let is_first = entry.questions == MAX_QUESTIONS + 1;
            return QuestionRecipient::TooMany { tool: Some(entry.call.tool.clone()), is_first };
        }
        QuestionRecipient::Call(entry.call.clone())
    }

    fn ask_outside(self: &Arc<Self>) -> QuestionRecipient {
        let mut outside = self.outside();
        if outside.open < MAX_QUESTIONS {
            outside.open += 1;
            return QuestionRecipient::Outside(OutsideQuestion(Arc::clone(self)));
        }
        QuestionRecipient::TooMany { tool: None, is_first: !std::mem::replace(&mut outside.is_reported, true) }
    }

    /// Returns a notice's call if the notice passes the rate limit. For a progress notification, also restarts the time-out of its call's
    /// clock. A dropped notice is counted for its call, or for the connection if the notice belongs to no call.
    pub(in crate::client) fn admit(&self, of: CallMatch<'_>, now: Instant) -> Option<Admitted> {
        let mut entries = self.entries();
        let entry = match of {
            CallMatch::Token(token) => {
                let entry = entries.values_mut().find(|entry| entry.progress_token.as_ref() == Some(token))?;
                entry.call.clock.progress();
                Some(entry)
            }
            CallMatch::OnlyCaller => of_only_caller(&mut entries),
        };
        let mut limiter = self.notices.lock();
        let Some(entry) = entry else {
            let RateDecision::Pass(left_out_of_nobody) = limiter.next(now) else { return None };
            return Some(Admitted { call: None, left_out: 0, left_out_of_nobody });
        };
        let RateDecision::Pass(left_out) = entry.notices.next(&mut limiter, now) else { return None };
        Some(Admitted { call: Some(entry.call.clone()), left_out, left_out_of_nobody: limiter.dropped() })
    }

    /// Returns the number of dropped notices without a call that have not been reported yet, and resets this number.
    pub(in crate::client) fn left_out_of_nobody(&self) -> u64 {
        self.notices.lock().dropped()
    }

    /// Reports to a call's caller how many notices were dropped since the last report.
    fn tell_left_out(&self, key: u64) {
        let server_knows = self.entries().get_mut(&key).map(|entry| (entry.call.clone(), entry.notices.dropped()));
        if let Some((call, dropped @ 1..)) = server_knows {
            (self.left_out)(&call, dropped);
        }
    }

    /// Drops the caller of a call that is over, and with it everything that the caller owns. A [`GoneCaller`] replaces the caller, so that
    /// questions can still be matched with the call.
    fn let_caller_go(&self, key: u64) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&key) else { return };
        let gone = GoneCaller::of(entry.call.caller.as_ref());
        let caller = std::mem::replace(&mut entry.call.caller, Arc::new(gone));
        drop(entries);
        // The lock is released first, because dropping the caller may run the caller's own code.
        drop(caller);
    }

    /// Removes a call, and reports its dropped notices. Removing and counting use the same lock, so the reported number is complete.
    fn remove(&self, key: u64) {
        let entry = self.entries().remove(&key);
        if let Some(mut entry) = entry
            && let dropped @ 1.. = entry.notices.dropped()
        {
            (self.left_out)(&entry.call, dropped);
        }
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock()
    }
}

/// Returns the call's key if the call is still in flight. If it is over and the question's origin is unknown, returns the latest other
/// candidate that is still in flight.
fn the_same_callers(key: u64, origin: Origin, candidates: Option<Vec<Candidate>>, entries: &BTreeMap<u64, Entry>) -> Option<u64> {
    let others = candidates.filter(|_| origin == Origin::Unknown).unwrap_or_default();
    let keys = std::iter::once(key).chain(others.into_iter().rev().map(|other| other.key));
    keys.into_iter().find(|key| entries.contains_key(key))
}

/// Returns the first call in flight if all calls in flight belong to one caller. In that case, a notice without a token must be for this
/// caller.
fn of_only_caller(entries: &mut BTreeMap<u64, Entry>) -> Option<&mut Entry> {
    let first = entries.values().next()?.call.caller.identity();
    let is_alone = entries.values().all(|entry| entry.call.caller.identity() == first);
    entries.values_mut().next().filter(|_| is_alone)
}

fn candidates(entries: &BTreeMap<u64, Entry>) -> Vec<Candidate> {
    entries.iter().map(|(key, entry)| Candidate { key: *key, caller: entry.call.caller.identity() }).collect()
}

#[cfg(test)]
#[path = "calls_tests.rs"]
pub(in crate::client) mod tests;
