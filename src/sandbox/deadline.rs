//! The deadline of a run. Its clock stops while a person is asked, because that time does not count for the run.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::PausableClock;

/// The deadline of a run. Clones are cheap and share one clock.
#[derive(Debug, Clone)]
pub struct Deadline(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Mutex<Clock>,
    /// Notified when the clock stops or starts.
    changes: watch::Sender<()>,
}

/// The clock of a run. It stops while a person is asked and the guest waits for nothing else. While the guest or one of its calls works,
/// the clock runs. Methods take the current time as a parameter, so that tests can control it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Clock {
    passed: PausableClock,
    limit: Duration,
    questions: usize,
    guest: GuestActivity,
    /// For each call of the run, the number of its current waits for a person or for other calls. A call that has no such wait is working.
    calls: BTreeMap<CallKey, usize>,
    next: CallKey,
}

/// Identifies one call of a run.
type CallKey = u64;

/// The guest's activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestActivity {
    /// The guest waits for its calls, and has no timer of its own.
    Waiting,
    /// The guest runs in its VM, the host works for it, or it waits for a timer.
    Working,
}

/// The reason why a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitReason {
    Person,
    /// The call waits for other calls of the same run.
    Turn,
}

impl Clock {
    fn start(limit: Duration, now: Instant) -> Self {
        Self { passed: PausableClock::start(now), limit, questions: 0, guest: GuestActivity::Working, calls: BTreeMap::new(), next: 0 }
    }

    fn remaining(&self, now: Instant) -> Duration {
        self.limit.saturating_sub(self.passed.passed(now))
    }

    fn begin(&mut self, now: Instant) -> CallKey {
        let key = self.next;
        self.next += 1;
        self.calls.insert(key, 0);
        self.set(now);
        key
    }

    fn end(&mut self, call: CallKey, now: Instant) {
        self.calls.remove(&call);
        self.set(now);
    }

    /// Starts a wait of a call, or of the whole run if `call` is `None`.
    fn pause(&mut self, call: Option<CallKey>, what: WaitReason, now: Instant) {
        self.questions += usize::from(what == WaitReason::Person);
        if let Some(waits) = call.and_then(|call| self.calls.get_mut(&call)) {
            *waits += 1;
        }
        self.set(now);
    }

    fn resume(&mut self, call: Option<CallKey>, what: WaitReason, now: Instant) {
        self.questions = self.questions.saturating_sub(usize::from(what == WaitReason::Person));
        // A wait may end after its call has ended.
        if let Some(waits) = call.and_then(|call| self.calls.get_mut(&call)) {
            *waits = waits.saturating_sub(1);
        }
        self.set(now);
    }

    fn guest(&mut self, guest: GuestActivity, now: Instant) {
        self.guest = guest;
        self.set(now);
    }

    fn set(&mut self, now: Instant) {
        let stands = self.questions > 0 && self.guest == GuestActivity::Waiting && self.calls.values().all(|waits| *waits > 0);
        if stands { self.passed.pause(now) } else { self.passed.resume(now) }
    }
}

impl Deadline {
    /// Returns a deadline that is reached after the time `timeout`.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        // `tokio` cannot wait until a time that an `Instant` cannot represent.
        let limit = timeout.min(Duration::from_hours(24 * 365));
        Self(Arc::new(Shared { clock: Mutex::new(Clock::start(limit, Instant::now())), changes: watch::Sender::new(()) }))
    }

    /// Returns the remaining time.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.clock().remaining(Instant::now())
    }

    /// Stops the clock while a person is asked about this call, until the returned value is dropped. The clock continues while the guest or
    /// another call of the run works. Several pauses may overlap.
    pub(super) fn pause_of(&self, call: Option<CallKey>) -> Pause {
        self.waiting(call, WaitReason::Person)
    }

    /// Marks the call as waiting for other calls of its run, until the returned value is dropped.
    pub(super) fn turn_of(&self, call: Option<CallKey>) -> Pause {
        self.waiting(call, WaitReason::Turn)
    }

    fn waiting(&self, call: Option<CallKey>, what: WaitReason) -> Pause {
        self.change(|clock, now| clock.pause(call, what, now));
        Pause { deadline: self.clone(), call, what }
    }

    /// Registers a call of the run until the returned guard is dropped.
    pub(super) fn call(&self) -> CallTime {
        CallTime { key: self.change(Clock::begin), deadline: self.clone() }
    }

    /// Marks the guest as waiting only for its calls, until the returned guard is dropped.
    pub(super) fn outside(&self) -> GuestWaiting<'_> {
        self.change(|clock, now| clock.guest(GuestActivity::Waiting, now));
        GuestWaiting(self)
    }

    /// Returns the time at which the deadline is reached. Returns `None` while the clock is stopped.
    pub(super) fn until(&self) -> Option<Instant> {
        let clock = self.clock();
        clock.passed.reaches(clock.limit)
    }

    /// Wakes the polling task each time the clock stops or starts. Never resolves.
    pub(super) async fn changing(&self) {
        let mut changes = self.0.changes.subscribe();
        // The loop never ends, because the sender lives as long as `self`.
        while changes.changed().await.is_ok() {}
    }

    /// Resolves when the deadline is reached.
    pub async fn passed(&self) {
        let mut changes = self.0.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let until = self.until();
            let changed = changes.changed();
            match until {
                Some(until) => tokio::select! {
                    () = tokio::time::sleep_until(until) => return,
                    _ = changed => {}
                },
                // `changed` cannot fail, because the sender lives as long as `self`.
                None => drop(changed.await),
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Clock, Instant) -> T) -> T {
        let mut clock = self.clock();
        let was_running = clock.passed.is_running();
        let changed = change(&mut clock, Instant::now());
        let has_changed = clock.passed.is_running() != was_running;
        drop(clock);
        // This code runs for every host call. To save time, it wakes waiting tasks only if the clock has just stopped or started.
        if has_changed {
            self.0.changes.send_replace(());
        }
        changed
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.0.clock.lock()
    }
}

/// A guard for a wait: a person is being asked, or a call waits for other calls.
#[derive(Debug)]
pub struct Pause {
    deadline: Deadline,
    call: Option<CallKey>,
    what: WaitReason,
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.deadline.change(|clock, now| clock.resume(self.call, self.what, now));
    }
}

/// A guard that marks a call as running.
#[derive(Debug)]
pub(super) struct CallTime {
    deadline: Deadline,
    key: CallKey,
}

impl CallTime {
    pub(super) fn key(&self) -> CallKey {
        self.key
    }
}

impl Drop for CallTime {
    fn drop(&mut self) {
        self.deadline.change(|clock, now| clock.end(self.key, now));
    }
}

/// A guard that marks the guest as waiting for its calls.
#[derive(Debug)]
pub(super) struct GuestWaiting<'a>(&'a Deadline);

impl Drop for GuestWaiting<'_> {
    fn drop(&mut self) {
        self.0.change(|clock, now| clock.guest(GuestActivity::Working, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the clock of a run whose guest waits for its calls.
    fn waiting_for(limit: Duration, start: Instant) -> Clock {
        Clock { guest: GuestActivity::Waiting, ..Clock::start(limit, start) }
    }

    #[test]
    fn a_guest_that_has_never_waited_for_a_call_works() {
        let start = Instant::now();
        let mut clock = Clock::start(10 * SECOND, start);
        clock.pause(None, WaitReason::Person, start);
        assert_eq!(clock.remaining(start + 3 * SECOND), 7 * SECOND);
    }

    #[test]
    fn time_that_a_person_takes_is_not_counted() {
        let start = Instant::now();
        let mut clock = waiting_for(10 * SECOND, start);
        clock.pause(None, WaitReason::Person, start + 4 * SECOND);
        clock.pause(None, WaitReason::Person, start + 5 * SECOND);
        assert_eq!(clock.remaining(start + 3600 * SECOND), 6 * SECOND);
        clock.resume(None, WaitReason::Person, start + 100 * SECOND);
        assert_eq!(clock.remaining(start + 200 * SECOND), 6 * SECOND);
        clock.resume(None, WaitReason::Person, start + 1000 * SECOND);
        assert_eq!(clock.remaining(start + 1004 * SECOND), 2 * SECOND);
        assert_eq!(clock.remaining(start + 1007 * SECOND), Duration::ZERO);
    }

    #[test]
    fn what_the_guest_does_while_a_person_is_asked_is_its_own_time() {
        let start = Instant::now();
        let mut clock = waiting_for(10 * SECOND, start);
        clock.pause(None, WaitReason::Person, start);
        clock.guest(GuestActivity::Working, start + 100 * SECOND);
        assert_eq!(clock.remaining(start + 103 * SECOND), 7 * SECOND);
        clock.guest(GuestActivity::Waiting, start + 104 * SECOND);
        assert_eq!(clock.remaining(start + 200 * SECOND), 6 * SECOND);
        clock.resume(None, WaitReason::Person, start + 200 * SECOND);
        assert_eq!(clock.remaining(start + 201 * SECOND), 5 * SECOND);
        clock.guest(GuestActivity::Working, start + 201 * SECOND);
        assert_eq!(clock.remaining(start + 202 * SECOND), 4 * SECOND);
    }

    #[test]
    fn what_another_call_does_while_a_person_is_asked_about_one_is_the_runs_time() {
        let start = Instant::now();
        let mut clock = waiting_for(10 * SECOND, start);
        let asking = clock.begin(start);
        clock.pause(Some(asking), WaitReason::Person, start);
        assert_eq!(clock.remaining(start + 100 * SECOND), 10 * SECOND);
        let working = clock.begin(start + 100 * SECOND);
        assert_eq!(clock.remaining(start + 103 * SECOND), 7 * SECOND);
        clock.end(working, start + 103 * SECOND);
        assert_eq!(clock.remaining(start + 200 * SECOND), 7 * SECOND);
        // A wait of a cancelled call may end later than the call. The end of this wait does not affect the clock.
        clock.end(asking, start + 200 * SECOND);
        clock.resume(Some(asking), WaitReason::Person, start + 200 * SECOND);
        assert_eq!(clock.remaining(start + 201 * SECOND), 6 * SECOND);
    }

    #[test]
    fn a_call_that_waits_for_its_turn_takes_no_time_of_its_own_and_stops_no_clock() {
        let start = Instant::now();
        let mut clock = waiting_for(10 * SECOND, start);
        let (first, behind) = (clock.begin(start), clock.begin(start));
        clock.pause(Some(behind), WaitReason::Turn, start);
        assert_eq!(clock.remaining(start + SECOND), 9 * SECOND);
        clock.pause(Some(first), WaitReason::Person, start + SECOND);
        assert_eq!(clock.remaining(start + 100 * SECOND), 9 * SECOND);
        clock.resume(Some(first), WaitReason::Person, start + 100 * SECOND);
        clock.end(first, start + 101 * SECOND);
        clock.resume(Some(behind), WaitReason::Turn, start + 101 * SECOND);
        assert_eq!(clock.remaining(start + 102 * SECOND), 7 * SECOND);
    }

    #[test]
    fn a_deadline_that_has_passed_is_passed_for_all_who_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let deadline = Deadline::after(Duration::from_millis(20));
            let (outside, pause) = (deadline.outside(), deadline.pause_of(None));
            let waiting = deadline.clone();
            let waiting = tokio::spawn(async move { waiting.passed().await });
            tokio::task::yield_now().await;
            drop(pause);
            drop(outside);
            waiting.await.unwrap();
            assert_eq!(deadline.remaining(), Duration::ZERO);
            deadline.passed().await;
        });
    }
}
