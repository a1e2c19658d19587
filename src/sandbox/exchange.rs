//! Calls that are outstanding: handed over by a guest several at a time, done side by side on the runtime, and given back as they end.
//!
//! One host call does both, so that a batch costs one way out of the VM and back. What is beyond [`MAX_OUTSTANDING`], or a buffer's worth
//! of arguments, waits in the guest, which has a heap of its own for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{fitting, frame_size};
use super::host::{HostAnswer, HostReply, RunControl};
use super::value::Wire;
use crate::error::Error;

/// The calls that a run can have outstanding. The same number stands in `calls.js`.
const MAX_OUTSTANDING: usize = 256;
/// A guest that waits for no calls in particular gets those that have ended once no others follow for this part of the time that they took:
/// a batch of alike calls comes back whole, and the first of a race is not held up by the last.
const QUIET_PART: u32 = 4;
/// It waits at least so long for others.
const QUIET_LEAST: Duration = Duration::from_millis(3);

/// A call as the guest hands it over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Handed {
    /// The guest's own.
    pub(super) number: u32,
    pub(super) module: String,
    pub(super) function: String,
    pub(super) arguments: Wire,
}

/// What the guest asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) calls: Vec<Handed>,
    pub(super) wait: Wait,
}

/// When the guest goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// At the latest.
    most: Option<Duration>,
    /// Once all of these have ended. Empty: see [`QUIET_PART`].
    until: Vec<u32>,
}

/// How the guest writes it: numbers alone, as all else is in parts of its own.
#[derive(Deserialize)]
struct Header {
    /// Microseconds.
    wait: Option<u64>,
    until: Vec<u32>,
    /// A call's number, and how many parts it has: module, function, JSON, blobs.
    calls: Vec<(u32, usize)>,
}

impl Request {
    /// Nothing, where what the guest hands over is malformed.
    pub(super) fn from_frame(frame: &[u8]) -> Option<Self> {
        let mut parts = hyperlight_js_common::decode_binaries(frame).ok()?.into_iter();
        let header: Header = serde_json::from_slice(&parts.next()?).ok()?;
        let mut calls = Vec::new();
        for (number, count) in header.calls {
            let mut own = parts.by_ref().take(count);
            let mut text = || String::from_utf8(own.next()?).ok();
            let (module, function, json) = (text()?, text()?, text()?);
            calls.push(Handed { number, module, function, arguments: Wire { json, blobs: own.collect() } });
        }
        Some(Self { calls, wait: Wait { most: header.wait.map(Duration::from_micros), until: header.until } })
    }
}

/// The outstanding calls of one run. Dropping it gives them up.
pub(super) struct Exchange {
    board: Arc<Board>,
    ended: CancellationToken,
    /// What the arguments of outstanding calls may have together.
    load_capacity: usize,
    /// What an answer to the guest may have.
    reply_capacity: usize,
}

impl Exchange {
    pub(super) fn new(load_capacity: usize, reply_capacity: usize) -> Self {
        Self { board: Arc::default(), ended: CancellationToken::new(), load_capacity, reply_capacity }
    }

    /// Whether there is room for a call with such arguments; an honest guest has seen to that.
    pub(super) fn admits(&self, load: usize) -> bool {
        let state = self.board.state();
        let outstanding = state.running + state.done.len();
        outstanding == 0 || outstanding < MAX_OUTSTANDING && state.load + load <= self.load_capacity
    }

    /// Takes in a call that was started.
    pub(super) fn add(&self, control: &RunControl, number: u32, load: usize, answer: HostAnswer) {
        let slot = Slot::take(Arc::clone(&self.board), number, load);
        let capacity = self.reply_capacity;
        match answer {
            HostAnswer::Ready(reply) => slot.give(fitting(reply, capacity)),
            HostAnswer::Later(answer) => {
                let ended = self.ended.clone();
                control.spawn(async move {
                    tokio::select! {
                        biased;
                        () = ended.cancelled() => {}
                        // Written out here: a value takes more memory than its text, and many may end at once.
                        reply = answer => slot.give(fitting(reply, capacity)),
                    }
                });
            }
        }
    }

    /// Waits as the guest wants it, and gives what has ended, in the order of the calls: as much as the guest's buffer has room for. The
    /// numbers before them are within the framing that it has room for besides.
    pub(super) fn collect(&self, control: &RunControl, wait: Wait) -> Vec<u8> {
        let began = Instant::now();
        let goes_on = matches!(self.board.state().outlook(&wait, began, began), Outlook::GoOn);
        let board = Arc::clone(&self.board);
        // A run that was stopped meanwhile has remembered it, and its guest is being ended.
        if !goes_on && control.wait(async move { board.wait(&wait, began).await }).is_err() {
            return Vec::new();
        }
        to_frame(&self.board.state().take(self.reply_capacity))
    }

    /// Gives up all that is outstanding.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Default)]
struct Board {
    state: Mutex<State>,
    changed: Notify,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(&self, wait: &Wait, began: Instant) {
        loop {
            let outlook = self.state().outlook(wait, began, Instant::now());
            match outlook {
                Outlook::GoOn => return,
                Outlook::Wait(None) => self.changed.notified().await,
                Outlook::Wait(Some(end)) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(end) => {}
                },
            }
        }
    }
}

#[derive(Default)]
struct State {
    running: usize,
    /// The arguments of all that is outstanding.
    load: usize,
    /// What the guest does not know of yet, by its own numbers.
    done: BTreeMap<u32, Done>,
    /// When the last of them ended.
    last: Option<Instant>,
}

struct Done {
    load: usize,
    reply: Wire,
}

/// What becomes of a guest that waits.
#[derive(Debug, PartialEq, Eq)]
enum Outlook {
    GoOn,
    /// For another call to end, or until then.
    Wait(Option<Instant>),
}

impl State {
    fn outlook(&self, wait: &Wait, began: Instant, now: Instant) -> Outlook {
        // A time that no clock can show is as good as none.
        let most = wait.most.and_then(|most| began.checked_add(most));
        let wanted = if wait.until.is_empty() {
            self.last
                .filter(|_| !self.done.is_empty())
                .map(|last| last + (last.saturating_duration_since(began) / QUIET_PART).max(QUIET_LEAST))
        } else {
            wait.until.iter().all(|number| self.done.contains_key(number)).then_some(now)
        };
        let end = [most, wanted].into_iter().flatten().min();
        if self.running == 0 || end.is_some_and(|end| end <= now) { Outlook::GoOn } else { Outlook::Wait(end) }
    }

    fn take(&mut self, capacity: usize) -> Vec<(u32, Wire)> {
        let mut taken = Vec::new();
        let mut size = 0;
        while let Some(entry) = self.done.first_entry() {
            size += frame_size(&entry.get().reply);
            if size > capacity && !taken.is_empty() {
                break;
            }
            let (number, done) = entry.remove_entry();
            self.load -= done.load;
            taken.push((number, done.reply));
        }
        taken
    }
}

/// A call's slot on the board, which somebody waits for: however the call ends, it is given up with an answer.
struct Slot {
    board: Arc<Board>,
    number: u32,
    load: usize,
    reply: Option<Wire>,
}

impl Slot {
    fn take(board: Arc<Board>, number: u32, load: usize) -> Self {
        let mut state = board.state();
        state.running += 1;
        state.load += load;
        drop(state);
        Self { board, number, load, reply: None }
    }

    fn give(mut self, reply: Wire) {
        self.reply = Some(reply);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let reply = self.reply.take().unwrap_or_else(|| {
            let error = Error::Internal("a call ended without an answer".to_owned());
            fitting(HostReply::Throw { name: None, message: error.to_string(), code: Some(error.code().to_owned()) }, usize::MAX)
        });
        let mut state = self.board.state();
        state.running -= 1;
        state.last = Some(Instant::now());
        // A number that is there already is a forged one.
        if let Some(before) = state.done.insert(self.number, Done { load: self.load, reply }) {
            state.load -= before.load;
        }
        drop(state);
        self.board.changed.notify_one();
    }
}

/// `[[number, parts], …]`, then the parts: a reply's JSON, its blobs.
fn to_frame(replies: &[(u32, Wire)]) -> Vec<u8> {
    let index: Vec<(u32, usize)> = replies.iter().map(|(number, reply)| (*number, 1 + reply.blobs.len())).collect();
    let header = serde_json::to_vec(&index).unwrap_or_default();
    let mut parts: Vec<&[u8]> = vec![&header];
    for (_, reply) in replies {
        parts.push(reply.json.as_bytes());
        parts.extend(reply.blobs.iter().map(Vec::as_slice));
    }
    // A frame fails only beyond 4 GiB.
    hyperlight_js_common::encode_binaries(&parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn reply(text: &str) -> Wire {
        Wire { json: text.to_owned(), blobs: Vec::new() }
    }

    fn state(running: usize, done: &[u32], last: Option<Instant>) -> State {
        let done: BTreeMap<_, _> = done.iter().map(|number| (*number, Done { load: 1, reply: reply("{}") })).collect();
        State { running, load: running + done.len(), done, last }
    }

    fn wait(most: Option<Duration>, until: &[u32]) -> Wait {
        Wait { most, until: until.to_vec() }
    }

    #[test]
    fn a_batch_comes_back_whole_unless_its_last_calls_are_much_slower() {
        let began = Instant::now();
        let (all, any) = (state(0, &[1, 2], Some(began + 40 * MS)), wait(None, &[]));
        assert_eq!(all.outlook(&any, began, began + 40 * MS), Outlook::GoOn);
        assert_eq!(state(2, &[], None).outlook(&any, began, began + 40 * MS), Outlook::Wait(None));
        let some = state(1, &[1], Some(began + 40 * MS));
        assert_eq!(some.outlook(&any, began, began + 41 * MS), Outlook::Wait(Some(began + 50 * MS)));
        assert_eq!(some.outlook(&any, began, began + 50 * MS), Outlook::GoOn);
        let fast = state(1, &[1], Some(began));
        assert_eq!(fast.outlook(&any, began, began), Outlook::Wait(Some(began + QUIET_LEAST)));
    }

    #[test]
    fn a_guest_that_waits_for_some_calls_waits_for_no_others_and_for_all_of_these() {
        let began = Instant::now();
        let some = state(1, &[1, 2], Some(began));
        assert_eq!(some.outlook(&wait(None, &[1, 2]), began, began), Outlook::GoOn);
        assert_eq!(some.outlook(&wait(None, &[1, 3]), began, began + 99 * MS), Outlook::Wait(None));
        // What is outstanding nowhere is not waited for.
        assert_eq!(state(0, &[], None).outlook(&wait(None, &[7]), began, began), Outlook::GoOn);
    }

    #[test]
    fn a_timer_ends_the_wait_whatever_else_it_is_for() {
        let began = Instant::now();
        let none = state(1, &[], None);
        assert_eq!(none.outlook(&wait(Some(5 * MS), &[]), began, began), Outlook::Wait(Some(began + 5 * MS)));
        assert_eq!(none.outlook(&wait(Some(5 * MS), &[1]), began, began + 5 * MS), Outlook::GoOn);
        assert_eq!(none.outlook(&wait(Some(Duration::ZERO), &[]), began, began), Outlook::GoOn);
        assert_eq!(none.outlook(&wait(Some(Duration::MAX), &[]), began, began), Outlook::Wait(None));
    }

    #[test]
    fn replies_that_do_not_fit_together_come_one_after_the_other_in_the_order_of_the_calls() {
        let mut state = state(0, &[3, 1, 2], None);
        let numbers = |taken: Vec<(u32, Wire)>| taken.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        // Each has six bytes: two of JSON, four of length.
        assert_eq!(numbers(state.take(12)), [1, 2]);
        assert_eq!(state.load, 1);
        assert_eq!(numbers(state.take(1)), [3]);
        assert_eq!((state.load, state.take(12).len()), (0, 0));
    }

    #[test]
    fn a_request_is_read_as_the_guest_writes_it_or_not_at_all() {
        let header = br#"{"wait":1500,"until":[4],"calls":[[4,4],[5,3]]}"#;
        let parts: [&[u8]; 8] = [header, b"mcp-a", b"get", b"[]", &[7, 8], b"m", b"f", b"[1]"];
        let frame = hyperlight_js_common::encode_binaries(&parts).unwrap();
        let call = |number, module: &str, function: &str, json: &str, blobs| Handed {
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
    fn there_is_room_for_so_many_calls_and_so_much_of_arguments_and_always_for_one() {
        let exchange = Exchange::new(100, 1000);
        assert!(exchange.admits(101));
        let first = Slot::take(Arc::clone(&exchange.board), 0, 60);
        assert!(exchange.admits(40) && !exchange.admits(41));
        let others: Vec<_> = (1..256).map(|number| Slot::take(Arc::clone(&exchange.board), number, 0)).collect();
        assert!(!exchange.admits(0));
        drop((first, others));
        // They have ended, and the guest does not know yet.
        assert!(!exchange.admits(0));
        assert_eq!(exchange.board.state().take(usize::MAX).len(), 256);
        assert!(exchange.admits(100));
    }
}
