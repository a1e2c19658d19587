use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::sandbox::compute_slots::ComputeSlots;
use crate::sandbox::compute_time::ComputeTime;
use crate::sandbox::deadline::Deadline;
use crate::sandbox::run_binding::RunBinding;
use crate::sandbox::stop::{Stop, StopReason};
use crate::sandbox::{GuestModule, Value};

const LONG: Duration = Duration::from_hours(1);

/// A function that returns the answer to the nth call.
type Answer = Box<dyn Fn(usize) -> HostAnswer + Send + Sync>;

/// A host that counts the calls it receives.
struct Host {
    looked_at: AtomicUsize,
    answer: Answer,
}

impl HostFunctions for Host {
    fn start(self: Arc<Self>, _: HostCall, _: &RunControl) -> HostAnswer {
        (self.answer)(self.looked_at.fetch_add(1, Ordering::SeqCst))
    }
}

/// A run without a VM. The tests send it messages that a hostile guest could send.
struct Rig {
    _runtime: Runtime,
    stop: Stop,
    host: Arc<Host>,
    run: Arc<RunState>,
    binding: RunBinding,
}

const CAPACITY: usize = 30_000;

fn rig_of(stop: Stop, timeout: Duration, answer: impl Fn(usize) -> HostAnswer + Send + Sync + 'static) -> Rig {
    rig_in(ComputeSlots::default(), stop, timeout, answer)
}

fn slot_of(slots: ComputeSlots) -> ComputeSlot {
    ComputeSlot::new(slots, Arc::new(ComputeTime::new(LONG)))
}

/// Makes a run that uses these slots of its owner. The run does not hold a slot yet.
fn rig_in(slots: ComputeSlots, stop: Stop, timeout: Duration, answer: impl Fn(usize) -> HostAnswer + Send + Sync + 'static) -> Rig {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let control = RunControl::new(stop.clone(), Deadline::after(timeout), runtime.handle().clone());
    let host = Arc::new(Host { looked_at: AtomicUsize::new(0), answer: Box::new(answer) });
    let sources = Sources::new(String::new(), Arc::new(Vec::<GuestModule>::new()));
    let limits = Arc::new(Limits { max_log_bytes: 256, ..Limits::default() });
    let run =
        RunState::new(Instant::now(), control, slot_of(slots), limits, CAPACITY, Arc::clone(&host) as Arc<_>, Wire::null(), sources, None);
    let (run, binding) = (Arc::new(run), RunBinding::default());
    binding.bind(Arc::clone(&run) as Arc<_>);
    Rig { _runtime: runtime, stop, host, run, binding }
}

fn rig(answer: impl Fn(usize) -> HostAnswer + Send + Sync + 'static) -> Rig {
    rig_of(Stop::new(), LONG, answer)
}

fn null() -> HostReply {
    HostReply::Value(Value::Null)
}

fn frame_of(parts: &[&[u8]]) -> Vec<u8> {
    hyperlight_js_common::encode_binaries(parts).unwrap()
}

/// Returns the frame of an exchange that submits `count` calls and waits for no call.
fn exchange_of(count: usize) -> Vec<u8> {
    let numbers: Vec<_> = (0..count).map(|number| json!([number, 3])).collect();
    let header = json!({ "wait": 0, "until": [], "calls": numbers }).to_string();
    let mut parts: Vec<&[u8]> = vec![header.as_bytes()];
    parts.extend([&b"m"[..], b"f", b"[]"].into_iter().cycle().take(3 * count));
    frame_of(&parts)
}

impl Rig {
    fn looked_at(&self) -> usize {
        self.host.looked_at.load(Ordering::SeqCst)
    }

    fn call(&self) -> Option<Vec<u8>> {
        self.binding.dispatch(|run| run.call("m".into(), "f".into(), &frame_of(&[b"[]"]))).ok()
    }

    /// Returns the number of calls that were not accepted, and the number of calls that have ended.
    fn exchange(&self, count: usize) -> Option<(usize, usize)> {
        let answer = self.binding.dispatch(|run| run.exchange(&exchange_of(count))).ok()?;
        let parts = hyperlight_js_common::decode_binaries(&answer).unwrap();
        let header: Json = serde_json::from_slice(&parts[0]).unwrap();
        let left = usize::try_from(header["left"].as_u64().unwrap()).unwrap();
        Some((left, header["ended"].as_array().unwrap().len()))
    }
}

#[test]
fn nothing_that_a_guest_asks_after_its_last_word_is_answered_or_started() {
    let rig = rig(|_| HostAnswer::Ready(null()));
    assert!(rig.call().is_some());
    assert!(rig.binding.dispatch(|run| run.finish(b"the first".to_vec())).is_err(), "the guest does not go on");
    assert!(rig.call().is_none() && rig.exchange(9).is_none());
    assert!(rig.binding.dispatch(|run| run.finish(b"the second".to_vec())).is_err());
    assert!(rig.binding.dispatch(|run| run.log(LogLevel::Log, "late".into())).is_err());
    assert!(rig.binding.dispatch(|run| run.random(8)).is_err() && rig.binding.dispatch(|run| run.load("agent:code")).is_err());
    assert_eq!((rig.looked_at(), rig.run.take_log().len(), rig.run.take_finished().unwrap()), (1, 0, b"the first".to_vec()));
}

#[test]
fn a_guest_whose_run_was_stopped_gets_no_answer_and_has_no_last_word() {
    let rig = rig(|_| HostAnswer::Ready(null()));
    rig.stop.stop(StopReason::Aborted);
    assert!(rig.call().is_none() && rig.exchange(1).is_none());
    assert!(
        rig.binding.dispatch(|run| run.sleep(LONG)).is_err()
            && rig.binding.dispatch(<dyn crate::sandbox::run_binding::GuestCalls>::elapsed).is_err()
    );
    assert!(rig.binding.dispatch(|run| run.finish(b"too late".to_vec())).is_err());
    assert_eq!((rig.looked_at(), rig.run.take_finished()), (0, None));
}

#[test]
fn a_stop_during_a_call_keeps_its_answer_from_the_guest() {
    let stop = Stop::new();
    let stopping = stop.clone();
    let rig = rig_of(stop, LONG, move |number| {
        let stopping = stopping.clone();
        // The first call is answered by the runtime, and the second immediately.
        if number == 0 {
            return HostAnswer::Later(Box::pin(async { null() }));
        }
        stopping.stop(StopReason::Aborted);
        HostAnswer::Ready(null())
    });
    assert!(rig.call().is_some());
    assert!(rig.call().is_none());
    assert_eq!(rig.looked_at(), 2);
}

#[test]
fn calls_that_were_given_up_with_their_run_are_no_answers() {
    for _ in 0..50 {
        let rig = rig(|_| HostAnswer::Later(Box::pin(std::future::pending())));
        assert_eq!(rig.exchange(3), Some((0, 0)));
        rig.stop.stop(StopReason::Aborted);
        // The runtime may be dropping its tasks at this time.
        assert_eq!(rig.exchange(0), None);
    }
}

#[test]
fn a_stop_and_the_deadline_end_an_exchange_between_two_of_its_calls() {
    let stop = Stop::new();
    let stopping = stop.clone();
    let stopped = rig_of(stop, LONG, move |number| {
        if number == 2 {
            stopping.stop(StopReason::Aborted);
        }
        HostAnswer::Ready(null())
    });
    assert_eq!((stopped.exchange(40), stopped.looked_at()), (None, 3));
    let timeout = Duration::from_millis(30);
    let slow = rig_of(Stop::new(), timeout, move |_| {
        std::thread::sleep(timeout);
        HostAnswer::Ready(null())
    });
    assert_eq!((slow.exchange(40), slow.looked_at()), (None, 1));
}

#[test]
fn calls_wait_in_the_guest_while_it_has_not_taken_an_answers_worth_of_replies() {
    let rig = rig(|_| HostAnswer::Ready(HostReply::Value(Value::from("x".repeat(CAPACITY / 3)))));
    // Three replies do not fit into one answer. An answer has room for two replies and their headers.
    assert_eq!((rig.exchange(255), rig.looked_at()), (Some((252, 2)), 3));
    assert_eq!((rig.exchange(252), rig.looked_at()), (Some((250, 2)), 5));
}

#[test]
fn calls_are_handed_over_in_their_order_and_not_before_they_are_polled() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let sending = Arc::clone(&sent);
    let rig = rig(move |number| {
        let sending = Arc::clone(&sending);
        HostAnswer::Later(Box::pin(async move {
            lock(&sending).push((number, std::thread::current().id()));
            std::future::pending().await
        }))
    });
    rig.exchange(100);
    let here = std::thread::current().id();
    assert_eq!(*lock(&sent), (0..100).map(|number| (number, here)).collect::<Vec<_>>());
}

#[test]
fn a_name_or_an_argument_as_long_as_a_guest_likes_is_refused_unread() {
    let rig = rig(|_| HostAnswer::Ready(null()));
    let long = "n".repeat(MAX_NAME_BYTES + 1);
    for (module, function) in [(long.clone(), "f".to_owned()), ("m".to_owned(), long)] {
        let answer = rig.binding.dispatch(|run| run.call(module, function, &frame_of(&[b"[]"]))).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("ERR_INVALID_ARGUMENTS") && answer.len() < 500, "{answer}");
    }
    assert_eq!(rig.looked_at(), 0);
    let size = 2 * Limits::default().max_argument_bytes + 1;
    let read = rig.run.arguments(size, || panic!("it was read"));
    assert!(matches!(read, Arguments::Oversize(oversize) if oversize == size));
}

#[test]
fn a_log_of_any_levels_is_within_its_limit() {
    let rig = rig(|_| HostAnswer::Ready(null()));
    for _ in 0..10_000 {
        rig.binding.dispatch(|run| run.log(LogLevel::named(&"\u{1b}[2J".repeat(1000)), String::new())).unwrap();
    }
    let log = rig.run.take_log();
    assert!(log.len() <= 9 && log.iter().all(|entry| entry.level == LogLevel::Log), "{}", log.len());
}

/// Returns the slots of an owner, with room for one guest, and the counter of guests that are executing.
fn one_slot() -> (ComputeSlots, Arc<AtomicUsize>) {
    let executing = Arc::<AtomicUsize>::default();
    (ComputeSlots::new(1, Arc::clone(&executing)), executing)
}

#[test]
fn a_guest_that_waits_for_a_call_does_not_count_as_executing() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (slots, executing) = one_slot();
    let (counter, seeing) = (Arc::clone(&executing), Arc::clone(&seen));
    let rig = rig_in(slots, Stop::new(), LONG, move |_| {
        let (executing, seen) = (Arc::clone(&counter), Arc::clone(&seeing));
        HostAnswer::Later(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            lock(&seen).push(executing.load(Ordering::SeqCst));
            null()
        }))
    });
    let _in_guest = rig.run.slot.enter(&rig.run.control).unwrap();
    assert!(rig.call().is_some());
    assert_eq!((lock(&seen).clone(), executing.load(Ordering::SeqCst)), (vec![0], 1));
    let all = json!({ "wait": null, "until": [0], "calls": [[0, 3]] }).to_string();
    assert!(rig.binding.dispatch(|run| run.exchange(&frame_of(&[all.as_bytes(), b"m", b"f", b"[]"]))).is_ok());
    assert_eq!((lock(&seen).clone(), executing.load(Ordering::SeqCst)), (vec![0, 0], 1));
}

#[test]
fn a_guest_that_sleeps_lets_another_run_of_its_owner_execute() {
    let (slots, _) = one_slot();
    let rig = rig_in(slots.clone(), Stop::new(), LONG, |_| HostAnswer::Ready(null()));
    let _in_guest = rig.run.slot.enter(&rig.run.control).unwrap();
    let (other, control) = (slot_of(slots), rig.run.control.clone());
    let waiting = std::thread::spawn(move || other.enter(&control).is_ok());
    let until = Instant::now() + Duration::from_mins(1);
    while !waiting.is_finished() && Instant::now() < until {
        assert!(rig.binding.dispatch(|run| run.sleep(Duration::from_millis(1))).is_ok());
    }
    assert!(waiting.is_finished() && waiting.join().unwrap());
}

#[test]
fn a_guest_whose_time_ends_before_it_has_a_slot_again_is_not_entered() {
    let (slots, executing) = one_slot();
    let taking = Arc::new(slot_of(slots.clone()));
    let rig = rig_in(slots, Stop::new(), Duration::from_millis(200), move |_| {
        let other = Arc::clone(&taking);
        HostAnswer::Later(Box::pin(async move {
            // From this line on, another run of the owner executes.
            let runtime = tokio::runtime::Handle::current();
            std::mem::forget(other.enter(&RunControl::new(Stop::new(), Deadline::after(LONG), runtime)));
            null()
        }))
    });
    let in_guest = rig.run.slot.enter(&rig.run.control).unwrap();
    assert!(rig.call().is_none() && rig.run.control.is_over());
    drop(in_guest);
    assert_eq!(executing.load(Ordering::SeqCst), 1, "only the other executes");
}
