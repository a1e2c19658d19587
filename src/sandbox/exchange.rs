//! Calls that are outstanding: handed over by a guest several at a time, done side by side on the runtime, and given back as they end.
//!
//! One host call does both, so that a batch costs one way out of the VM and back. What is beyond [`MAX_OUTSTANDING`], a buffer's worth of
//! arguments, or an answer's worth of replies that the guest has not taken, waits in the guest, which has a heap of its own for it.

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
use super::underway::Underway;
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

/// Before the replies.
#[derive(Serialize)]
struct Answered {
    /// So many of the last calls were not taken in: the guest hands them over later.
    left: usize,
    ended: Vec<(u32, usize)>,
}

impl Request {
    /// Nothing, where what the guest hands over is malformed.
    pub(super) fn from_frame(frame: &[u8]) -> Option<Self> {
        let mut parts = hyperlight_js_common::decode_binaries(frame).ok()?.into_iter();
        let header: Header = serde_json::from_slice(&parts.next()?).ok()?;
        // An honest guest asks for no more: each number is looked up whenever a call ends.
        if header.calls.len() > MAX_OUTSTANDING || header.until.len() > MAX_OUTSTANDING {
            return None;
        }
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

/// What a run's calls may have on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// The arguments of outstanding calls together.
    pub(super) arguments: usize,
    /// An answer to the guest. While replies of as much wait, no further call is started.
    pub(super) answer: usize,
    /// All replies that the guest has not taken: a guest that does not come for them could not hold more.
    pub(super) replies: usize,
}

/// The outstanding calls of one run. Dropping it gives them up.
pub(super) struct Exchange {
    board: Arc<Board>,
    underway: Underway,
    ended: CancellationToken,
    room: Room,
}

impl Exchange {
    pub(super) fn new(room: Room) -> Self {
        Self { board: Arc::new(Board::new(room)), underway: Underway::default(), ended: CancellationToken::new(), room }
    }

    /// Returns whether there is room for a call with such arguments, and for its reply.
    pub(super) fn admits(&self, load: usize) -> bool {
        let state = self.board.state();
        let outstanding = state.running + state.done.len();
        let has_room = outstanding < MAX_OUTSTANDING && state.load + load <= self.room.arguments && !state.fills_an_answer();
        outstanding == 0 || has_room
    }

    /// Takes in a call and hands it over.
    pub(super) fn add(&self, control: &RunControl, number: u32, load: usize, answer: HostAnswer) {
        let slot = Slot::take(Arc::clone(&self.board), number, load);
        let capacity = self.room.answer;
        let mut answer = match answer {
            HostAnswer::Ready(reply) => return slot.give(fitting(reply, capacity)),
            HostAnswer::Later(answer) => answer,
        };
        // Polled here first, not when its task happens to start: calls are handed over in the order of the code.
        if let Poll::Ready(reply) = control.poll_once(&mut answer) {
            return slot.give(fitting(reply, capacity));
        }
        let (call, ended) = (self.underway.add(answer), self.ended.clone());
        control.spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                // Written out here: a value takes more memory than its text, and many may end at once.
                Some(reply) = call.reply() => slot.give(fitting(reply, capacity)),
            }
        });
    }

    /// Waits as the guest wants it, and gives what has ended, in the order of the calls: as much as the guest's buffer has room for. The
    /// numbers before them are within the framing that it has room for besides. `left` says how many calls were not taken in.
    pub(super) fn collect(&self, control: &RunControl, wait: Wait, left: usize) -> Vec<u8> {
        let began = Instant::now();
        let goes_on = matches!(self.board.state().outlook(&wait, began, began), Outlook::GoOn);
        let board = Arc::clone(&self.board);
        // Where a timer of the guest's ends the wait, it is the guest that lets time pass.
        let _outside = wait.most.is_none().then(|| control.outside());
        // A run that was stopped meanwhile has remembered it, and its guest is being ended.
        if !goes_on && control.wait(async move { board.wait(&wait, began).await }).is_err() {
            return Vec::new();
        }
        to_frame(left, &self.board.state().take())
    }

    /// Gives up all that is outstanding. When this returns, none of it is under way any more.
    pub(super) fn end(&self) {
        self.ended.cancel();
        self.underway.end();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end();
    }
}

struct Board {
    state: Mutex<State>,
    changed: Notify,
}

impl Board {
    fn new(room: Room) -> Self {
        Self { state: Mutex::new(State::new(room)), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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

struct State {
    room: Room,
    running: usize,
    /// The arguments of all that is outstanding.
    load: usize,
    /// What the guest does not know of yet, by its own numbers.
    done: BTreeMap<u32, Done>,
    /// The bytes of their replies.
    held: usize,
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
    fn new(room: Room) -> Self {
        Self { room, running: 0, load: 0, done: BTreeMap::new(), held: 0, last: None }
    }

    /// Returns whether as much waits for the guest as one answer takes.
    fn fills_an_answer(&self) -> bool {
        self.held >= self.room.answer
    }

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
        if self.running == 0 || self.fills_an_answer() || end.is_some_and(|end| end <= now) { Outlook::GoOn } else { Outlook::Wait(end) }
    }

    fn take(&mut self) -> Vec<(u32, Wire)> {
        let mut taken = Vec::new();
        let mut size = 0;
        while let Some(entry) = self.done.first_entry() {
            size += frame_size(&entry.get().reply);
            if size > self.room.answer && !taken.is_empty() {
                break;
            }
            let (number, done) = entry.remove_entry();
            self.load -= done.load;
            self.held -= footprint(&done.reply);
            taken.push((number, done.reply));
        }
        taken
    }

    /// A call has ended.
    fn put(&mut self, number: u32, load: usize, reply: Wire, now: Instant) {
        let reply = self.within_room(reply);
        self.running -= 1;
        self.last = Some(now);
        self.held += footprint(&reply);
        // A number that is there already is a forged one.
        if let Some(before) = self.done.insert(number, Done { load, reply }) {
            self.load -= before.load;
            self.held -= footprint(&before.reply);
        }
    }

    /// The reply, or that there is no room for it beside all that the guest has not come for.
    fn within_room(&self, reply: Wire) -> Wire {
        let size = self.held + footprint(&reply);
        if self.held == 0 || size <= self.room.replies {
            return reply;
        }
        let what = "the replies that this run has not taken yet, this one included (await fewer calls at a time),".to_owned();
        let (size, limit) = (size.to_string(), self.room.replies);
        let error = Error::ResponseTooLarge { what, size, limit, limit_name: "limits.guestHeapBytes" };
        fitting(thrown_by(&error), usize::MAX)
    }
}

/// What a reply takes here: many blobs take more than their bytes.
fn footprint(reply: &Wire) -> usize {
    const BLOB: usize = 64;
    reply.size() + BLOB * (1 + reply.blobs.len())
}

/// A call's slot on the board, which somebody waits for: however the call ends, it is given up.
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
        // Without one the call was given up with its run, whose guest hears no more (`Seat::ask`), or its task has panicked.
        let reply = self.reply.take().unwrap_or_else(|| {
            let error = Error::Internal("a call ended without an answer".to_owned());
            fitting(thrown_by(&error), usize::MAX)
        });
        self.board.state().put(self.number, self.load, reply, Instant::now());
        self.board.changed.notify_one();
    }
}

/// `{"left":number,"ended":[[number, parts], …]}`, then the parts: a reply's JSON, its blobs.
fn to_frame(left: usize, replies: &[(u32, Wire)]) -> Vec<u8> {
    let ended: Vec<(u32, usize)> = replies.iter().map(|(number, reply)| (*number, 1 + reply.blobs.len())).collect();
    let header = serde_json::to_vec(&Answered { left, ended }).unwrap_or_default();
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
    const ROOM: Room = Room { arguments: 100, answer: 1000, replies: 2000 };

    fn reply(text: &str) -> Wire {
        Wire { json: text.to_owned(), blobs: Vec::new() }
    }

    fn state(running: usize, done: &[u32], last: Option<Instant>) -> State {
        let mut state = State { running: running + done.len(), load: running + done.len(), ..State::new(ROOM) };
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
        state.room.answer = 12;
        assert_eq!(numbers(state.take()), [1, 2]);
        assert_eq!(state.load, 1);
        state.room.answer = 1;
        assert_eq!(numbers(state.take()), [3]);
        assert_eq!((state.load, state.held, state.take().len()), (0, 0, 0));
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
    fn no_request_names_more_calls_than_can_be_outstanding() {
        let asked = |until: usize| {
            let header = format!(r#"{{"wait":0,"until":{:?},"calls":[]}}"#, vec![7; until]);
            Request::from_frame(&hyperlight_js_common::encode_binaries(&[header.as_bytes()]).unwrap())
        };
        assert!(asked(MAX_OUTSTANDING).is_some() && asked(MAX_OUTSTANDING + 1).is_none());
    }

    #[test]
    fn while_an_answers_worth_of_replies_waits_no_call_is_started_and_the_guest_goes_on() {
        let exchange = Exchange::new(ROOM);
        let slots = [1, 2].map(|number| Slot::take(Arc::clone(&exchange.board), number, 0));
        let [first, _running] = slots;
        assert!(exchange.admits(0));
        first.give(reply(&"x".repeat(1000)));
        assert!(!exchange.admits(0));
        let now = Instant::now();
        assert_eq!(exchange.board.state().outlook(&wait(None, &[2]), now, now), Outlook::GoOn);
        assert_eq!(exchange.board.state().take().len(), 1);
        assert!(exchange.admits(0));
        assert_eq!(exchange.board.state().outlook(&wait(None, &[2]), now, now), Outlook::Wait(None));
    }

    #[test]
    fn replies_that_nobody_takes_are_bounded_in_bytes_and_blobs() {
        for reply in [reply(&"x".repeat(500)), Wire { json: "{}".to_owned(), blobs: vec![Vec::new(); 8] }] {
            let mut state = State { running: 256, ..State::new(ROOM) };
            for number in 0..256 {
                state.put(number, 0, reply.clone(), Instant::now());
            }
            let whole = state.done.values().filter(|done| done.reply == reply).count();
            assert!(whole > 0 && whole * footprint(&reply) <= ROOM.replies, "{whole}");
            let refused = &state.done[&255].reply.json;
            assert!(refused.contains("ERR_RESPONSE_TOO_LARGE") && refused.contains("await fewer"), "{refused}");
            assert!(state.held <= ROOM.replies + 256 * (refused.len() + 128));
        }
    }

    #[test]
    fn there_is_room_for_so_many_calls_and_so_much_of_arguments_and_always_for_one() {
        let exchange = Exchange::new(Room { answer: 1 << 20, replies: 1 << 20, ..ROOM });
        assert!(exchange.admits(101));
        let first = Slot::take(Arc::clone(&exchange.board), 0, 60);
        assert!(exchange.admits(40) && !exchange.admits(41));
        let others: Vec<_> = (1..256).map(|number| Slot::take(Arc::clone(&exchange.board), number, 0)).collect();
        assert!(!exchange.admits(0));
        drop((first, others));
        // They have ended, and the guest does not know yet.
        assert!(!exchange.admits(0));
        assert_eq!(exchange.board.state().take().len(), 256);
        assert!(exchange.admits(100));
    }
}
