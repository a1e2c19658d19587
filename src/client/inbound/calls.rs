//! The calls that a connection has in flight: what the server asks or tells while they last finds its caller here.

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

use super::caller::Caller;
use super::question_candidates::QuestionCandidates;
use super::rate_limit::{NOTICES, Passage, RateLimiter, Share};
use super::routing::{Candidate, Origin, Route, route};
use crate::client::clock::CallClock;

/// Most questions of one call in all, and most open questions outside of calls: further ones are not answered.
const MAX_QUESTIONS: u32 = 20;
/// Key of a call. It travels with the request to the transport, where the request's id becomes known before the server can answer.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct CallKey(u64);

impl CallKey {
    /// Origin of a question that came with this call's own answer.
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
    /// Cancelled when the call is over.
    pub(in crate::client) over: CancellationToken,
    /// Cancelled once the server has been told that the call is over, or has answered it.
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
    notices: Share,
}

/// Callback with the number of a call's notices that were left out, called before the call's outcome is known.
pub(in crate::client) type LeftOut = Box<dyn Fn(&InFlight, u64) + Send + Sync>;

/// The sign by which a notice finds its call.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) enum Of<'a> {
    /// The call's with this progress token. Without such a call nobody is told.
    Token(&'a Json),
    /// The call of the only caller that has calls in flight, or no call.
    OnlyCaller,
}

/// A notice that the rate allows.
pub(in crate::client) struct Admitted {
    /// The call to which the notice belongs; `None`: to no call.
    pub(in crate::client) call: Option<InFlight>,
    /// Number of this call's notices that were left out before it.
    pub(in crate::client) left_out: u64,
    /// Number of notices of no call that were left out before it.
    pub(in crate::client) left_out_of_nobody: u64,
}

/// The calls in flight of one connection.
pub(in crate::client) struct Calls {
    entries: Mutex<BTreeMap<u64, Entry>>,
    next_key: AtomicU64,
    /// Rate limit of notices that belong to no call; each call counts its own.
    notices: Mutex<RateLimiter>,
    left_out: LeftOut,
    /// True where the server sends elicitations that name no call.
    asks_anybody: AtomicBool,
    outside: Mutex<Outside>,
    question_candidates: QuestionCandidates,
}

/// Guard of a call in flight. Dropped, it ends the call and its questions.
pub(in crate::client) struct CallGuard {
    key: u64,
    calls: Arc<Calls>,
    over: CancellationToken,
    told: CancellationToken,
}

impl CallGuard {
    pub(in crate::client) fn key(&self) -> CallKey {
        CallKey(self.key)
    }

    /// Ends the call for its caller. Until this is dropped, a question of the server may still be meant for it.
    pub(in crate::client) fn give_up(&self) {
        self.calls.tell_left_out(self.key);
        self.over.cancel();
    }

    /// The server has been told that nobody waits for the call any more.
    pub(in crate::client) fn has_told(&self) {
        self.told.cancel();
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.calls.remove(self.key);
        self.over.cancel();
        self.told.cancel();
    }
}

/// The kind of a question: who has to answer it.
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
    /// None of the possible recipients can be asked.
    Nobody,
    Ambiguous,
    /// The server has more questions open than are answered, for this tool's call or outside of any call. Reported once.
    TooMany {
        tool: Option<String>,
        is_first: bool,
    },
}

/// A question outside of any call, as long as it is open.
pub(in crate::client) struct OutsideQuestion(Arc<Calls>);

impl Drop for OutsideQuestion {
    fn drop(&mut self) {
        let mut outside = self.0.outside();
        outside.open -= 1;
        outside.is_told &= outside.open > 0;
    }
}

/// Number of open questions that belong to no call, and whether it was reported that there are too many.
#[derive(Default)]
struct Outside {
    open: u32,
    is_told: bool,
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

    /// Returns whether the server asks questions of which nothing says whose they are.
    pub(in crate::client) fn asks_anybody(&self) -> bool {
        self.asks_anybody.load(Ordering::Acquire)
    }

    pub(in crate::client) fn enter(self: &Arc<Self>, tool: &str, caller: &Arc<dyn Caller>, clock: &CallClock) -> CallGuard {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let (over, told) = (CancellationToken::new(), CancellationToken::new());
        let (tool, caller, clock) = (tool.to_owned(), Arc::clone(caller), clock.clone());
        let call = InFlight { tool, caller, clock, over: over.clone(), told: told.clone() };
        self.entries().insert(key, Entry { call, id: None, progress_token: None, questions: 0, notices: Share::default() });
        CallGuard { key, calls: Arc::clone(self), over, told }
    }

    /// Notes the id and the progress token of a call that is about to be written.
    pub(in crate::client) fn sent(&self, message: &TxJsonRpcMessage<RoleClient>) {
        let JsonRpcMessage::Request(request) = message else { return };
        let extensions = request.request.extensions();
        let Some(key) = extensions.get::<CallKey>().copied() else { return };
        let meta = extensions.get::<rmcp::model::RequestMetaObject>();
        let token = meta.and_then(rmcp::model::RequestMetaObject::get_progress_token);
        self.note(key, &request.id, token.and_then(|token| serde_json::to_value(token).ok()));
    }

    /// Notes the id and the progress token of a call that goes past rmcp.
    pub(in crate::client) fn note(&self, CallKey(key): CallKey, id: &RequestId, progress_token: Option<Json>) {
        if let Some(entry) = self.entries().get_mut(&key) {
            (entry.id, entry.progress_token) = (Some(id.clone()), progress_token);
        }
    }

    /// The call on whose stream a question came.
    pub(in crate::client) fn origin(&self, request: &RequestId) -> Origin {
        let entries = self.entries();
        let found = entries.iter().find(|(_, entry)| entry.id.as_ref() == Some(request));
        found.map_or(Origin::NoCall, |(key, _)| Origin::Call(*key))
    }

    /// Notes the calls that can be meant by a question, as it is read.
    pub(in crate::client) fn hear(&self, question: RequestId) {
        let candidates = candidates(&self.entries());
        self.question_candidates.note(question, candidates);
    }

    /// Forgets a question that is put to nobody.
    pub(super) fn unheard(&self, question: &RequestId) {
        self.question_candidates.take(question);
    }

    /// Finds the recipient of a question, by its id where it came as a request, and counts the question.
    pub(in crate::client) fn ask(self: &Arc<Self>, origin: Origin, kind: QuestionKind, question: Option<&RequestId>) -> QuestionRecipient {
        let noted = question.map(|question| self.question_candidates.take(question));
        let mut entries = self.entries();
        let candidates = noted.unwrap_or_else(|| Some(candidates(&entries)));
        let route = candidates.as_ref().map_or(origin.known(), |candidates| route(origin, candidates));
        if origin == Origin::Unknown && route != Route::Outside {
            // Before anybody else can enter: whoever comes next waits for those who are in.
            self.asks_anybody.store(true, Ordering::Release);
        }
        let entry = match route {
            Route::Call(key) => match the_same_callers(key, origin, candidates, &entries) {
                Some(key) => entries.get_mut(&key),
                // What it was about is over.
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
        QuestionRecipient::TooMany { tool: None, is_first: !std::mem::replace(&mut outside.is_told, true) }
    }

    /// Takes a notice in as far as the rate allows, and shows the clock of its call that it progresses. One that is left out costs a
    /// count: its call's, where it has one.
    pub(in crate::client) fn admit(&self, of: Of<'_>, now: Instant) -> Option<Admitted> {
        let mut entries = self.entries();
        let entry = match of {
            Of::Token(token) => {
                let entry = entries.values_mut().find(|entry| entry.progress_token.as_ref() == Some(token))?;
                entry.call.clock.progress();
                Some(entry)
            }
            Of::OnlyCaller => of_only_caller(&mut entries),
        };
        let mut limiter = self.notices.lock();
        let Some(entry) = entry else {
            let Passage::Pass(left_out_of_nobody) = limiter.next(now) else { return None };
            return Some(Admitted { call: None, left_out: 0, left_out_of_nobody });
        };
        let Passage::Pass(left_out) = entry.notices.next(&mut limiter, now) else { return None };
        Some(Admitted { call: Some(entry.call.clone()), left_out, left_out_of_nobody: limiter.dropped() })
    }

    /// Takes the number of notices of no call that were left out and not reported yet.
    pub(in crate::client) fn left_out_of_nobody(&self) -> u64 {
        self.notices.lock().dropped()
    }

    /// Reports to a call's caller the number of notices that were left out so far.
    fn tell_left_out(&self, key: u64) {
        let told = self.entries().get_mut(&key).map(|entry| (entry.call.clone(), entry.notices.dropped()));
        if let Some((call, dropped @ 1..)) = told {
            (self.left_out)(&call, dropped);
        }
    }

    /// Removes a call. Left-out notices are counted under the same lock, so that none is missing.
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

/// The call, or where it is over and only its caller is known, the latest of that caller's which could be meant as well.
fn the_same_callers(key: u64, origin: Origin, candidates: Option<Vec<Candidate>>, entries: &BTreeMap<u64, Entry>) -> Option<u64> {
    let others = candidates.filter(|_| origin == Origin::Unknown).unwrap_or_default();
    let keys = std::iter::once(key).chain(others.into_iter().rev().map(|other| other.key));
    keys.into_iter().find(|key| entries.contains_key(key))
}

/// The first call of the one caller that has calls in flight, if there is just one: what the server tells is meant for it.
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
