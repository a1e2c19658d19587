//! The events that wait to be written. A call only pushes an event. One thread takes the events out and writes them.
//!
//! Written events are dropped on the threads that push: each push drops one of them. Otherwise the writing thread would free memory that
//! the calling threads have allocated. The next allocations of a call would then take the slow path of the allocator. In a measurement,
//! that was two thirds of the time for recording a call.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::event::{AuditEvent, CallOutcome, CallRecord};

/// The maximum number of waiting events. Further events are dropped, and a row reports how many were lost.
pub(super) const MAX_WAITING: usize = 8192;
/// The maximum total size in bytes of the texts of waiting events. Further events are dropped, and a row reports how many were lost.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// The size in bytes above which an event's texts make the writer write at once, so that large arguments do not wait in memory for other
/// events.
const HEAVY_BYTES: usize = 64 << 10;
/// The time that the writer waits for further events after the first one. Together with the time for writing, this is less than 100 ms.
const GATHERING: Duration = Duration::from_millis(50);
/// The maximum number of written events that are kept until a push drops them.
const MAX_SPENT: usize = 4096;

/// An event with the time when it happened.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Noted {
    pub(super) at: Instant,
    pub(super) event: AuditEvent,
}

/// One moment, as a time of the monotonic clock and as a time of the wall clock.
pub(super) struct Moment {
    monotonic: Instant,
    /// Milliseconds since 1970.
    wall: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { monotonic: Instant::now(), wall: milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()) }
    }

    /// Returns the wall time of an earlier moment, in milliseconds since 1970.
    pub(super) fn wall_time_of(&self, earlier: Instant) -> u64 {
        self.wall.saturating_sub(milliseconds(self.monotonic.saturating_duration_since(earlier)))
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The events that the writer takes from the queue at once.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Noted>,
    /// The number of events since the last batch that were dropped because the queue was full.
    pub(super) dropped: u64,
    /// The number of all events so far, including dropped events.
    pub(super) told: u64,
    /// Senders that are notified when the batch is written.
    pub(super) flushed: Vec<Sender<()>>,
    /// True if no other batch follows.
    pub(super) is_last: bool,
}

#[derive(Default)]
struct Waiting {
    events: Vec<Noted>,
    /// The approximate size in bytes of the texts of these events.
    weight: usize,
    /// Written events. Each of the next pushes drops one of them.
    spent: Vec<Noted>,
    dropped: u64,
    told: u64,
    /// The calls that have begun and have not ended, in the order in which they began.
    calls: BTreeMap<u64, CallRecord>,
    begun: u64,
    flushed: Vec<Sender<()>>,
    /// True if the events must be written without waiting for further events.
    is_urgent: bool,
    /// True while the writer waits for events.
    is_idle: bool,
    /// True once the gateway is closed or dropped.
    is_closed: bool,
}

impl Waiting {
    /// Adds an event, if there is room. Returns whether the writer has to be woken.
    fn add(&mut self, event: AuditEvent) -> bool {
        let (at, weight) = (event.at(), event.weight());
        self.told += 1;
        if self.events.len() < MAX_WAITING && self.weight + weight <= MAX_WAITING_BYTES {
            self.weight += weight;
            self.events.push(Noted { at, event });
        } else {
            self.dropped += 1;
        }
        // `truncate` drops the event in place, because moving it out of the vector takes longer.
        self.spent.truncate(self.spent.len().saturating_sub(1));
        self.is_urgent |= weight > HEAVY_BYTES || self.events.len() >= MAX_WAITING / 2;
        // A writer that is already gathering events is not woken for each further event.
        self.is_urgent || self.is_idle
    }

    /// Returns the number of events that other processes must know in case this process is killed: all events so far, and one event for
    /// each call in progress.
    fn expected(&self) -> u64 {
        self.told + self.calls.len() as u64
    }
}

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    /// Adds an event. Returns the number of all events so far plus the number of calls in progress. Returns `None` if the queue is closed.
    #[inline]
    pub(super) fn push(&self, event: AuditEvent) -> Option<u64> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return None;
        }
        let wakes = waiting.add(event);
        let expected = waiting.expected();
        drop(waiting);
        if wakes {
            self.changed.notify_one();
        }
        Some(expected)
    }

    /// Keeps a call that has begun. Returns the number of the call, and the same number as [`Queue::push`]. Returns `None` if the queue is
    /// closed.
    pub(super) fn begin_call(&self, call: CallRecord) -> Option<(u64, u64)> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return None;
        }
        waiting.begun += 1;
        let number = waiting.begun;
        waiting.calls.insert(number, call);
        Some((number, waiting.expected()))
    }

    /// Adds the event of a call that has ended. Does nothing if the queue was closed before, because closing has already added the event.
    #[inline]
    pub(super) fn end_call(&self, number: u64, outcome: CallOutcome, result_bytes: Option<usize>) {
        let ended = Instant::now();
        let mut waiting = self.waiting.lock();
        let Some(call) = waiting.calls.remove(&number) else { return };
        let wakes = waiting.add(AuditEvent::Call(CallRecord { outcome, ended, result_bytes, ..call }));
        drop(waiting);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Asks the writer to write the waiting events at once. Returns false if the writer has ended, so that nothing will be written any
    /// more.
    pub(super) fn flush(&self, done: Sender<()>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return false;
        }
        waiting.flushed.push(done);
        waiting.is_urgent = true;
        drop(waiting);
        self.changed.notify_one();
        true
    }

    /// Closes the queue. The writer writes the waiting events and ends. Calls in progress are recorded with the outcome `cancelled`,
    /// because nobody waits for their results any more.
    pub(super) fn close(&self) {
        let ended = Instant::now();
        let mut waiting = self.waiting.lock();
        for call in std::mem::take(&mut waiting.calls).into_values() {
            waiting.add(AuditEvent::Call(CallRecord { outcome: CallOutcome::Cancelled, ended, ..call }));
        }
        waiting.is_closed = true;
        drop(waiting);
        self.changed.notify_one();
    }

    /// Returns the number of all events so far, including dropped ones.
    pub(super) fn told(&self) -> u64 {
        self.waiting.lock().told
    }

    /// Waits for the next batch. `written` are the events of the previous batch, which have been written. Returns an empty batch if no
    /// event is added within `patience`. After the last batch, each call returns another batch that is marked as the last.
    pub(super) fn next(&self, mut written: Vec<Noted>, patience: Option<Duration>) -> Batch {
        written.truncate(MAX_SPENT);
        written.retain(|noted| noted.event.is_light());
        let mut waiting = self.waiting.lock();
        let mut spare = std::mem::replace(&mut waiting.spent, written);
        MutexGuard::unlocked(&mut waiting, || spare.clear());
        waiting.is_idle = true;
        let has_work = |now: &Waiting| !now.events.is_empty() || !now.flushed.is_empty() || now.is_closed;
        match patience {
            Some(patience) => drop(self.changed.wait_while_for(&mut waiting, |now| !has_work(now), patience)),
            None => self.changed.wait_while(&mut waiting, |now| !has_work(now)),
        }
        waiting.is_idle = false;
        if has_work(&waiting) {
            self.changed.wait_while_for(&mut waiting, |now| !now.is_urgent && !now.is_closed, GATHERING);
        }
        waiting.is_urgent = false;
        waiting.weight = 0;
        Batch {
            events: std::mem::replace(&mut waiting.events, spare),
            dropped: std::mem::take(&mut waiting.dropped),
            told: waiting.told,
            flushed: std::mem::take(&mut waiting.flushed),
            is_last: waiting.is_closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::AuditParty;

    fn event(name: &str) -> AuditEvent {
        AuditEvent::Revocation { server: name.to_owned(), by: AuditParty::Person }
    }

    #[test]
    fn what_has_no_room_is_counted_and_what_has_comes_in_order() {
        let queue = Queue::default();
        for number in 0..MAX_WAITING + 5 {
            queue.push(event(&number.to_string()));
        }
        let batch = queue.next(Vec::new(), None);
        assert_eq!((batch.events.len(), batch.dropped, batch.told), (MAX_WAITING, 5, MAX_WAITING as u64 + 5));
        assert_eq!([&batch.events[0], &batch.events[MAX_WAITING - 1]].map(|noted| &noted.event), [&event("0"), &event("8191")]);
        queue.push(event("later"));
        let batch = queue.next(Vec::new(), None);
        assert_eq!((batch.events.len(), batch.dropped), (1, 0));
    }

    #[test]
    fn a_writer_that_has_something_else_to_do_waits_no_longer_than_it_may() {
        let batch = Queue::default().next(Vec::new(), Some(Duration::from_millis(1)));
        assert!(batch.events.is_empty() && !batch.is_last);
    }

    #[test]
    fn a_call_in_progress_is_expected_and_recorded_once() {
        let AuditEvent::Call(call) = crate::store::audit::tests::call(serde_json::json!({})) else { panic!("no call") };
        let queue = Queue::default();
        assert_eq!(queue.push(event("a")), Some(1));
        let (first, expected) = queue.begin_call(call.clone()).unwrap();
        assert_eq!((expected, queue.told()), (2, 1));
        let (second, expected) = queue.begin_call(call.clone()).unwrap();
        assert_eq!(expected, 3);
        queue.end_call(second, CallOutcome::Ok, Some(7));
        assert_eq!((queue.push(event("b")), queue.told()), (Some(4), 3));
        queue.close();
        queue.end_call(first, CallOutcome::Ok, None);
        assert_eq!(queue.begin_call(call), None);
        let batch = queue.next(Vec::new(), None);
        let outcomes: Vec<_> = batch
            .events
            .iter()
            .map(|noted| if let AuditEvent::Call(call) = &noted.event { Some((call.outcome, call.result_bytes)) } else { None })
            .collect();
        assert_eq!(outcomes, [None, Some((CallOutcome::Ok, Some(7))), None, Some((CallOutcome::Cancelled, Some(12)))]);
        assert!(batch.is_last && batch.told == 4);
    }

    #[test]
    fn a_closed_queue_gives_what_waits_and_takes_no_more() {
        let queue = Queue::default();
        queue.push(event("a"));
        queue.close();
        assert_eq!(queue.push(event("b")), None);
        let batch = queue.next(Vec::new(), None);
        assert!(batch.is_last && batch.events.len() == 1);
        assert!(queue.next(Vec::new(), None).is_last);
    }
}
