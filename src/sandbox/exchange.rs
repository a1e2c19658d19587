//! The outstanding calls of a run. The guest submits several calls at a time, the calls run concurrently on the runtime, and their replies
//! are returned as the calls end.
//!
//! One host call (an "exchange") submits calls and returns replies, so that a batch needs only one VM exit and entry. In three cases, calls
//! stay in the guest's own queue: if more than [`MAX_OUTSTANDING`] calls are outstanding, if their arguments exceed the buffer, or if so
//! many replies wait for the guest that they fill an answer.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::compute_slots::ComputeSlot;
use super::frame::{fitting, frame_size, thrown_by};
use super::host::{HostAnswer, RunControl};
use super::in_flight::InFlightCalls;
use super::value::Wire;
use crate::error::{Error, ErrorText};

/// The maximum number of outstanding calls for a run. `calls.js` has the same limit.
const MAX_OUTSTANDING: usize = 256;
/// Divisor that determines the quiet period: the time from the start of the wait to the last ended call, divided by this number. If a guest
/// waits for any one call, it gets the replies when no further call has ended during the quiet period. So a batch of similar calls returns
/// together. But in a race, the reply to the first call does not wait for the last call.
const QUIET_DIVISOR: u32 = 4;
/// The minimum quiet period.
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

/// The condition under which a waiting guest continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// The maximum time to wait.
    most: Option<Duration>,
    /// The calls that must have ended. If the list is empty, the guest waits for at least one call, see [`QUIET_DIVISOR`].
    until: Vec<u32>,
}

/// The first part of the frame. It contains only numbers. Names and arguments are separate parts.
#[derive(Deserialize)]
struct RequestHeader {
    /// The maximum time to wait, in microseconds.
    wait: Option<u64>,
    until: Vec<u32>,
    /// For each call, its number and the number of its parts. The parts are: module, function, JSON, blobs.
    calls: Vec<(u32, usize)>,
}

/// The first part of the answer. The replies follow it.
#[derive(Serialize)]
struct ReplyHeader {
    /// The number of calls that were not accepted. These are the last calls of the request. The guest submits them again later.
    left: usize,
    ended: Vec<(u32, usize)>,
}

impl Request {
    /// Parses the guest's frame. Returns `None` if it is malformed.
    pub(super) fn from_frame(frame: &[u8]) -> Option<Self> {
        let mut parts = hyperlight_js_common::decode_binaries(frame).ok()?.into_iter();
        let header: RequestHeader = serde_json::from_slice(&parts.next()?).ok()?;
        // The guest's own code never sends more numbers. The limit is needed because each number is searched each time a call ends.
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

/// The maximum sizes in bytes that a run's outstanding calls may use on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExchangeLimits {
    /// The maximum size of the arguments of all outstanding calls together.
    pub(super) arguments: usize,
    /// The maximum size of one answer to the guest. While replies with this total size wait for the guest, no further call is started.
    pub(super) answer: usize,
    /// The maximum total size of the replies that the guest has not taken. The guest's heap could not contain more.
    pub(super) replies: usize,
}

/// The outstanding calls of one run. Dropping this value cancels the calls.
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

    /// Returns whether there is room for a call whose arguments have `load` bytes, and for its reply.
    pub(super) fn admits(&self, load: usize) -> bool {
        let state = self.shared.state();
        let outstanding = state.running + state.done.len();
        let has_room = outstanding < MAX_OUTSTANDING && state.load + load <= self.limits.arguments && !state.fills_an_answer();
        outstanding == 0 || has_room
    }

    /// Registers a call that has been started, and runs it to its end.
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

    /// Waits as the guest requested, and returns as many ended calls as fit into the guest's buffer, in the order of their numbers. The
    /// buffer has extra room for the answer's header. `left` is the number of calls that were not accepted.
    pub(super) fn collect(&self, control: &RunControl, slot: &ComputeSlot, wait: Wait, left: usize) -> Vec<u8> {
        let began = Instant::now();
        let goes_on = matches!(self.shared.state().decision(&wait, began, began), WaitDecision::Continue);
        let shared = Arc::clone(&self.shared);
        let outside = || {
            // If a timer of the guest can end this wait, the time of the wait counts as the guest's own time.
            let _outside = wait.most.is_none().then(|| control.outside());
            control.wait(async move { shared.wait(&wait, began).await })
        };
        // An error means that the run was stopped during the wait. The run records the reason, and its guest is being stopped.
        if !goes_on && slot.without(control, outside).is_err() {
            return Vec::new();
        }
        to_frame(left, &self.shared.state().take())
    }

    /// Cancels all outstanding calls. When this function returns, no call is in progress.
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
    /// The total size in bytes of the arguments of all outstanding calls.
    load: usize,
    /// The ended calls whose replies the guest has not taken yet. The keys are the guest's numbers of the calls.
    done: BTreeMap<u32, EndedCall>,
    /// The total size in bytes of the replies in `done`.
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

    /// Returns whether the replies that wait for the guest fill one answer.
    fn fills_an_answer(&self) -> bool {
        self.held >= self.limits.answer
    }

    fn decision(&self, wait: &Wait, began: Instant, now: Instant) -> WaitDecision {
        // If the sum is too large for an `Instant`, there is no limit.
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

    /// Returns the reply. If there is no room for the reply, because of the replies that the guest has not taken yet, returns an error
    /// reply instead.
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

/// Returns the memory that a reply uses. Each blob has an overhead, so many small blobs use more memory than the sum of their lengths.
fn footprint(reply: &Wire) -> usize {
    const BLOB: usize = 64;
    reply.size() + BLOB * (1 + reply.blobs.len())
}

/// The registration of a running call. Dropping this value records the end of the call, for whatever reason the call ended.
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
        // A call has no reply for one of two reasons. Either the run has ended, so that its guest gets no more answers
        // (`RunBinding::dispatch`), or the call's task has panicked.
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
    // Encoding fails only above 4 GiB.
    hyperlight_js_common::encode_binaries(&parts).unwrap_or_default()
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
