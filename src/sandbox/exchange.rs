//! The outstanding calls of a run. The guest submits several calls at a time, the calls run concurrently on the runtime, and their replies
//! are returned as the calls end.
//!
//! One host call (an "exchange") submits calls and returns replies, so that a batch costs one VM exit and entry. Calls stay in the guest's
//! own queue if more than [`MAX_OUTSTANDING`] are outstanding, if their arguments exceed the buffer, or if the guest has yet to take as
//! many replies as fit into one answer.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{fitting, frame_size, thrown_by};
use super::host::{HostAnswer, RunControl};
use super::in_flight::InFlightCalls;
use super::value::Wire;
use crate::error::{Error, ErrorText};

/// The largest number of outstanding calls of a run. `calls.js` has the same limit.
const MAX_OUTSTANDING: usize = 256;
/// Determines the quiet period: the time from the start of the wait to the last ended call, divided by this number. A guest that waits for
/// any call gets the replies once no other call ends during this period. So a batch of similar calls returns together, and the first call
/// of a race does not wait for the last.
const QUIET_DIVISOR: u32 = 4;
/// The shortest quiet period.
const QUIET_MIN: Duration = Duration::from_millis(3);

/// A call that the guest submits in an exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutstandingCall {
    /// The guest's own number for the call.
    pub(super) number: u32,
    pub(super) module: String,
    pub(super) function: String,
    pub(super) arguments: Wire,
}

/// The content of the guest's frame in an exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) calls: Vec<OutstandingCall>,
    pub(super) wait: Wait,
}

/// The condition on which the guest continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// The longest time to wait.
    most: Option<Duration>,
    /// The calls that must have ended. If the list is empty, the guest waits for any call, see [`QUIET_DIVISOR`].
    until: Vec<u32>,
}

/// The frame's first part. It has numbers only; names and arguments are separate parts.
#[derive(Deserialize)]
struct RequestHeader {
    /// The longest time to wait, in microseconds.
    wait: Option<u64>,
    until: Vec<u32>,
    /// For each call, its number and its count of parts: module, function, JSON, blobs.
    calls: Vec<(u32, usize)>,
}

/// The answer's first part, before the replies.
#[derive(Serialize)]
struct ReplyHeader {
    /// The number of calls at the end of the request that were not accepted. The guest submits them again later.
    left: usize,
    ended: Vec<(u32, usize)>,
}

impl Request {
    /// Parses the guest's frame. Returns `None` if it is malformed.
    pub(super) fn from_frame(frame: &[u8]) -> Option<Self> {
        let mut parts = hyperlight_js_common::decode_binaries(frame).ok()?.into_iter();
        let header: RequestHeader = serde_json::from_slice(&parts.next()?).ok()?;
        // The guest's own code never sends more numbers. The limit matters because each number is looked up whenever a call ends.
        if header.calls.len() > MAX_OUTSTANDING || header.until.len() > MAX_OUTSTANDING {
            return None;
        }
        let mut calls = Vec::new();
        for (number, count) in header.calls {
            let mut own = parts.by_ref().take(count);
            let mut text = || String::from_utf8(own.next()?).ok();
            let (module, function, json) = (text()?, text()?, text()?);
            calls.push(OutstandingCall { number, module, function, arguments: Wire { json, blobs: own.collect() } });
        }
        Some(Self { calls, wait: Wait { most: header.wait.map(Duration::from_micros), until: header.until } })
    }
}

/// The bytes that a run's outstanding calls may take on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExchangeLimits {
    /// The arguments of outstanding calls together.
    pub(super) arguments: usize,
    /// One answer to the guest. While replies of this size wait, no further call is started.
    pub(super) answer: usize,
    /// All replies that the guest has not taken. The guest's heap could not hold more.
    pub(super) replies: usize,
}

/// The outstanding calls of one run. Dropping it cancels them.
pub(super) struct Exchange {
    shared: Arc<SharedState>,
    in_flight: InFlightCalls,
    ended: CancellationToken,
    limits: ExchangeLimits,
}

impl Exchange {
    pub(super) fn new(limits: ExchangeLimits) -> Self {
        Self { shared: Arc::new(SharedState::new(limits)), in_flight: InFlightCalls::default(), ended: CancellationToken::new(), limits }
    }

    /// Returns whether there is room for a call with arguments of `load` bytes, and for its reply.
    pub(super) fn admits(&self, load: usize) -> bool {
        let state = self.shared.state();
        let outstanding = state.running + state.done.len();
        let has_room = outstanding < MAX_OUTSTANDING && state.load + load <= self.limits.arguments && !state.fills_an_answer();
        outstanding == 0 || has_room
    }

    /// Registers a call and starts it.
    pub(super) fn add(&self, control: &RunControl, number: u32, load: usize, answer: HostAnswer) {
        let running_call = RunningCall::take(Arc::clone(&self.shared), number, load);
        let capacity = self.limits.answer;
        let mut answer = match answer {
            HostAnswer::Ready(reply) => return running_call.give(fitting(reply, capacity)),
            HostAnswer::Later(answer) => answer,
        };
        // The first poll happens here and not in the task, so that calls are sent in the order of the agent's code.
        if let Poll::Ready(reply) = control.poll_once(&mut answer) {
            return running_call.give(fitting(reply, capacity));
        }
        let (call, ended) = (self.in_flight.add(answer), self.ended.clone());
        control.spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                // The reply is serialized here, because a value takes more memory than its text, and many calls may end at the same time.
                Some(reply) = call.reply() => running_call.give(fitting(reply, capacity)),
            }
        });
    }

    /// Waits as the guest requested, and returns the ended calls in the order of their numbers, as many as fit into the guest's buffer. The
    /// buffer has extra room for the answer's header. `left` is the number of calls that were not accepted.
    pub(super) fn collect(&self, control: &RunControl, wait: Wait, left: usize) -> Vec<u8> {
        let began = Instant::now();
        let goes_on = matches!(self.shared.state().decision(&wait, began, began), WaitDecision::Continue);
        let shared = Arc::clone(&self.shared);
        // If a timer of the guest can end this wait, the time counts as the guest's own time.
        let _outside = wait.most.is_none().then(|| control.outside());
        // An error means that the run was stopped meanwhile. The run records the reason, and the guest is being stopped.
        if !goes_on && control.wait(async move { shared.wait(&wait, began).await }).is_err() {
            return Vec::new();
        }
        to_frame(left, &self.shared.state().take())
    }

    /// Cancels all outstanding calls. When this returns, none is in progress.
    pub(super) fn end(&self) {
        self.ended.cancel();
        self.in_flight.end();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end();
    }
}

struct SharedState {
    state: Mutex<State>,
    changed: Notify,
}

impl SharedState {
    fn new(limits: ExchangeLimits) -> Self {
        Self { state: Mutex::new(State::new(limits)), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    async fn wait(&self, wait: &Wait, began: Instant) {
        loop {
            let decision = self.state().decision(wait, began, Instant::now());
            match decision {
                WaitDecision::Continue => return,
                WaitDecision::Wait(None) => self.changed.notified().await,
                WaitDecision::Wait(Some(end)) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(end) => {}
                },
            }
        }
    }
}

struct State {
    limits: ExchangeLimits,
    running: usize,
    /// The bytes of the arguments of all outstanding calls.
    load: usize,
    /// The ended calls whose replies the guest has not taken, by the guest's numbers.
    done: BTreeMap<u32, EndedCall>,
    /// The bytes of the replies in `done`.
    held: usize,
    /// The time at which the last call ended.
    last: Option<Instant>,
}

struct EndedCall {
    load: usize,
    reply: Wire,
}

/// The decision whether a waiting guest continues now.
#[derive(Debug, PartialEq, Eq)]
enum WaitDecision {
    Continue,
    /// Wait for another call to end, or until this time.
    Wait(Option<Instant>),
}

impl State {
    fn new(limits: ExchangeLimits) -> Self {
        Self { limits, running: 0, load: 0, done: BTreeMap::new(), held: 0, last: None }
    }

    /// Returns whether the waiting replies fill one answer.
    fn fills_an_answer(&self) -> bool {
        self.held >= self.limits.answer
    }

    fn decision(&self, wait: &Wait, began: Instant, now: Instant) -> WaitDecision {
        // On `Instant` overflow, there is no limit.
        let most = wait.most.and_then(|most| began.checked_add(most));
        let wanted = if wait.until.is_empty() {
            self.last
                .filter(|_| !self.done.is_empty())
                .map(|last| last + (last.saturating_duration_since(began) / QUIET_DIVISOR).max(QUIET_MIN))
        } else {
            wait.until.iter().all(|number| self.done.contains_key(number)).then_some(now)
        };
        let end = [most, wanted].into_iter().flatten().min();
        if self.running == 0 || self.fills_an_answer() || end.is_some_and(|end| end <= now) {
            WaitDecision::Continue
        } else {
            WaitDecision::Wait(end)
        }
    }

    fn take(&mut self) -> Vec<(u32, Wire)> {
        let mut taken = Vec::new();
        let mut size = 0;
        while let Some(entry) = self.done.first_entry() {
            size += frame_size(&entry.get().reply);
            if size > self.limits.answer && !taken.is_empty() {
                break;
            }
            let (number, done) = entry.remove_entry();
            self.load -= done.load;
            self.held -= footprint(&done.reply);
            taken.push((number, done.reply));
        }
        taken
    }

    /// Records that a call has ended.
    fn put(&mut self, number: u32, load: usize, reply: Wire, now: Instant) {
        let reply = self.within_limits(reply);
        self.running -= 1;
        self.last = Some(now);
        self.held += footprint(&reply);
        // If the number already exists, the guest has forged it.
        if let Some(before) = self.done.insert(number, EndedCall { load, reply }) {
            self.load -= before.load;
            self.held -= footprint(&before.reply);
        }
    }

    /// Returns the reply, or an error reply if there is no room for it beside the replies that the guest has not taken.
    fn within_limits(&self, reply: Wire) -> Wire {
        let size = self.held + footprint(&reply);
        if self.held == 0 || size <= self.limits.replies {
            return reply;
        }
        let what = "the replies that this run has not read yet, with this reply (await fewer calls at a time),".to_owned();
        let (size, limit) = (size.to_string(), self.limits.replies);
        let error = Error::ResponseTooLarge { what: ErrorText::own(what), size: size.into(), limit, limit_name: "limits.guestHeapBytes" };
        fitting(thrown_by(&error), usize::MAX)
    }
}

/// Returns the memory that a reply takes. Each blob has an overhead, so many small blobs take more than their bytes.
fn footprint(reply: &Wire) -> usize {
    const BLOB: usize = 64;
    reply.size() + BLOB * (1 + reply.blobs.len())
}

/// The registration of a running call. Dropping it records the end of the call, for whatever reason the call ended.
struct RunningCall {
    shared: Arc<SharedState>,
    number: u32,
    load: usize,
    reply: Option<Wire>,
}

impl RunningCall {
    fn take(shared: Arc<SharedState>, number: u32, load: usize) -> Self {
        let mut state = shared.state();
        state.running += 1;
        state.load += load;
        drop(state);
        Self { shared, number, load, reply: None }
    }

    fn give(mut self, reply: Wire) {
        self.reply = Some(reply);
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // A slot without a reply has two possible reasons: the run has ended, and its guest gets no more answers (`RunBinding::dispatch`),
        // or the call's task has panicked.
        let reply = self.reply.take().unwrap_or_else(|| {
            let error = Error::Internal("a call ended without an answer".into());
            fitting(thrown_by(&error), usize::MAX)
        });
        self.shared.state().put(self.number, self.load, reply, Instant::now());
        self.shared.changed.notify_one();
    }
}

/// Encodes the answer: `{"left":number,"ended":[[number, parts], …]}`, then the JSON and the blobs of each reply.
fn to_frame(left: usize, replies: &[(u32, Wire)]) -> Vec<u8> {
    let ended: Vec<(u32, usize)> = replies.iter().map(|(number, reply)| (*number, 1 + reply.blobs.len())).collect();
    let header = serde_json::to_vec(&ReplyHeader { left, ended }).unwrap_or_default();
    let mut parts: Vec<&[u8]> = vec![&header];
    for (_, reply) in replies {
        parts.push(reply.json.as_bytes());
        parts.extend(reply.blobs.iter().map(Vec::as_slice));
    }
    // Encoding only fails beyond 4 GiB.
    hyperlight_js_common::encode_binaries(&parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LIMITS: ExchangeLimits = ExchangeLimits { arguments: 100, answer: 1000, replies: 2000 };

    fn reply(text: &str) -> Wire {
        Wire { json: text.to_owned(), blobs: Vec::new() }
    }

    fn state(running: usize, done: &[u32], last: Option<Instant>) -> State {
        let mut state = State { running: running + done.len(), load: running + done.len(), ..State::new(LIMITS) };
        for number in done {
            state.put(*number, 1, reply("{}"), Instant::now());
        }
        State { last, ..state }
    }

    fn wait(most: Option<Duration>, until: &[u32]) -> Wait {
        Wait { most, until: until.to_vec() }
    }

    #[test]
    fn a_batch_comes_back_whole_unless_its_last_calls_are_much_slower() {
        let began = Instant::now();
        let (all, any) = (state(0, &[1, 2], Some(began + 40 * MS)), wait(None, &[]));
        assert_eq!(all.decision(&any, began, began + 40 * MS), WaitDecision::Continue);
        assert_eq!(state(2, &[], None).decision(&any, began, began + 40 * MS), WaitDecision::Wait(None));
        let some = state(1, &[1], Some(began + 40 * MS));
        assert_eq!(some.decision(&any, began, began + 41 * MS), WaitDecision::Wait(Some(began + 50 * MS)));
        assert_eq!(some.decision(&any, began, began + 50 * MS), WaitDecision::Continue);
        let fast = state(1, &[1], Some(began));
        assert_eq!(fast.decision(&any, began, began), WaitDecision::Wait(Some(began + QUIET_MIN)));
    }

    #[test]
    fn a_guest_that_waits_for_some_calls_waits_for_no_others_and_for_all_of_these() {
        let began = Instant::now();
        let some = state(1, &[1, 2], Some(began));
        assert_eq!(some.decision(&wait(None, &[1, 2]), began, began), WaitDecision::Continue);
        assert_eq!(some.decision(&wait(None, &[1, 3]), began, began + 99 * MS), WaitDecision::Wait(None));
        // The guest does not wait for a number that is not outstanding.
        assert_eq!(state(0, &[], None).decision(&wait(None, &[7]), began, began), WaitDecision::Continue);
    }

    #[test]
    fn a_timer_ends_the_wait_whatever_else_it_is_for() {
        let began = Instant::now();
        let none = state(1, &[], None);
        assert_eq!(none.decision(&wait(Some(5 * MS), &[]), began, began), WaitDecision::Wait(Some(began + 5 * MS)));
        assert_eq!(none.decision(&wait(Some(5 * MS), &[1]), began, began + 5 * MS), WaitDecision::Continue);
        assert_eq!(none.decision(&wait(Some(Duration::ZERO), &[]), began, began), WaitDecision::Continue);
        assert_eq!(none.decision(&wait(Some(Duration::MAX), &[]), began, began), WaitDecision::Wait(None));
    }

    #[test]
    fn replies_that_do_not_fit_together_come_one_after_the_other_in_the_order_of_the_calls() {
        let mut state = state(0, &[3, 1, 2], None);
        let numbers = |taken: Vec<(u32, Wire)>| taken.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        // Each reply has six bytes: two of JSON and four for its length.
        state.limits.answer = 12;
        assert_eq!(numbers(state.take()), [1, 2]);
        assert_eq!(state.load, 1);
        state.limits.answer = 1;
        assert_eq!(numbers(state.take()), [3]);
        assert_eq!((state.load, state.held, state.take().len()), (0, 0, 0));
    }

    #[test]
    fn a_request_is_read_as_the_guest_writes_it_or_not_at_all() {
        let header = br#"{"wait":1500,"until":[4],"calls":[[4,4],[5,3]]}"#;
        let parts: [&[u8]; 8] = [header, b"mcp-a", b"get", b"[]", &[7, 8], b"m", b"f", b"[1]"];
        let frame = hyperlight_js_common::encode_binaries(&parts).unwrap();
        let call = |number, module: &str, function: &str, json: &str, blobs| OutstandingCall {
            number,
            module: module.to_owned(),
            function: function.to_owned(),
            arguments: Wire { json: json.to_owned(), blobs },
        };
        let calls = vec![call(4, "mcp-a", "get", "[]", vec![vec![7, 8]]), call(5, "m", "f", "[1]", Vec::new())];
        assert_eq!(Request::from_frame(&frame), Some(Request { calls, wait: wait(Some(Duration::from_micros(1500)), &[4]) }));
        for end in 0..frame.len() {
            assert_eq!(Request::from_frame(&frame[..end]), None, "{end}");
        }
    }

    #[test]
    fn no_request_names_more_calls_than_can_be_outstanding() {
        let asked = |until: usize| {
            let header = format!(r#"{{"wait":0,"until":{:?},"calls":[]}}"#, vec![7; until]);
            Request::from_frame(&hyperlight_js_common::encode_binaries(&[header.as_bytes()]).unwrap())
        };
        assert!(asked(MAX_OUTSTANDING).is_some() && asked(MAX_OUTSTANDING + 1).is_none());
    }

    #[test]
    fn while_an_answers_worth_of_replies_waits_no_call_is_started_and_the_guest_goes_on() {
        let exchange = Exchange::new(LIMITS);
        let running_calls = [1, 2].map(|number| RunningCall::take(Arc::clone(&exchange.shared), number, 0));
        let [first, _running] = running_calls;
        assert!(exchange.admits(0));
        first.give(reply(&"x".repeat(1000)));
        assert!(!exchange.admits(0));
        let now = Instant::now();
        assert_eq!(exchange.shared.state().decision(&wait(None, &[2]), now, now), WaitDecision::Continue);
        assert_eq!(exchange.shared.state().take().len(), 1);
        assert!(exchange.admits(0));
        assert_eq!(exchange.shared.state().decision(&wait(None, &[2]), now, now), WaitDecision::Wait(None));
    }

    #[test]
    fn replies_that_nobody_takes_are_bounded_in_bytes_and_blobs() {
        for reply in [reply(&"x".repeat(500)), Wire { json: "{}".to_owned(), blobs: vec![Vec::new(); 8] }] {
            let mut state = State { running: 256, ..State::new(LIMITS) };
            for number in 0..256 {
                state.put(number, 0, reply.clone(), Instant::now());
            }
            let whole = state.done.values().filter(|done| done.reply == reply).count();
            assert!(whole > 0 && whole * footprint(&reply) <= LIMITS.replies, "{whole}");
            let refused = &state.done[&255].reply.json;
            assert!(refused.contains("ERR_RESPONSE_TOO_LARGE") && refused.contains("await fewer"), "{refused}");
            assert!(state.held <= LIMITS.replies + 256 * (refused.len() + 128));
        }
    }

    #[test]
    fn there_is_room_for_so_many_calls_and_so_much_of_arguments_and_always_for_one() {
        let exchange = Exchange::new(ExchangeLimits { answer: 1 << 20, replies: 1 << 20, ..LIMITS });
        assert!(exchange.admits(101));
        let first = RunningCall::take(Arc::clone(&exchange.shared), 0, 60);
        assert!(exchange.admits(40) && !exchange.admits(41));
        let others: Vec<_> = (1..256).map(|number| RunningCall::take(Arc::clone(&exchange.shared), number, 0)).collect();
        assert!(!exchange.admits(0));
        drop((first, others));
        // The calls have ended, but the guest has not taken their replies.
        assert!(!exchange.admits(0));
        assert_eq!(exchange.shared.state().take().len(), 256);
        assert!(exchange.admits(100));
    }
}
