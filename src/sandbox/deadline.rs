//! A run's deadline, which stands still while a person is asked: their time is not the run's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Shared by all that watch a run. Cheap to clone: all clones are one deadline.
#[derive(Debug, Clone)]
pub struct Deadline(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Mutex<Clock>,
    /// Moves when the clock stops or starts.
    changes: watch::Sender<()>,
}

/// Stands while a person is asked, as long as the guest waits as well: what it does meanwhile is its own time. Told the time, so that it
/// can be tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clock {
    face: Face,
    pauses: usize,
    guest: Guest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Face {
    Running { until: Instant },
    Stopped { left: Duration },
}

/// What the guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    /// It has left the VM by a host call, or is not in it yet.
    Waits,
    Works,
}

impl Clock {
    fn until(until: Instant) -> Self {
        Self { face: Face::Running { until }, pauses: 0, guest: Guest::Waits }
    }

    fn remaining(self, now: Instant) -> Duration {
        match self.face {
            Face::Running { until } => until.saturating_duration_since(now),
            Face::Stopped { left } => left,
        }
    }

    fn pause(self, now: Instant) -> Self {
        Self { pauses: self.pauses + 1, ..self }.set(now)
    }

    fn resume(self, now: Instant) -> Self {
        Self { pauses: self.pauses.saturating_sub(1), ..self }.set(now)
    }

    fn guest_waits(self, now: Instant) -> Self {
        Self { guest: Guest::Waits, ..self }.set(now)
    }

    fn guest_works(self, now: Instant) -> Self {
        Self { guest: Guest::Works, ..self }.set(now)
    }

    fn set(self, now: Instant) -> Self {
        let stands = self.pauses > 0 && self.guest == Guest::Waits;
        let face = match self.face {
            Face::Running { .. } if stands => Face::Stopped { left: self.remaining(now) },
            Face::Stopped { left } if !stands => Face::Running { until: now + left },
            face => face,
        };
        Self { face, ..self }
    }
}

impl Deadline {
    /// So long from now.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        let now = Instant::now();
        // A time that no clock can show is as good as none.
        let until = now.checked_add(timeout).unwrap_or(now + Duration::from_hours(24 * 365));
        Self(Arc::new(Shared { clock: Mutex::new(Clock::until(until)), changes: watch::Sender::new(()) }))
    }

    /// What is left.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.clock().remaining(Instant::now())
    }

    /// Stops the clock until the pause is dropped, except while the guest works. Pauses may overlap.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.change(Clock::pause);
        Pause(self.clone())
    }

    /// The guest waits outside of its VM, until this is dropped.
    pub(super) fn outside(&self) -> Outside<'_> {
        self.change(Clock::guest_waits);
        Outside(self)
    }

    /// When the time is up; `None` while the clock stands.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.clock().face {
            Face::Running { until } => Some(until),
            Face::Stopped { .. } => None,
        }
    }

    /// Wakes whoever polls it whenever the clock stops or starts. Never resolves.
    pub(super) async fn changing(&self) {
        let mut changes = self.0.changes.subscribe();
        // The sender lives as long as this does.
        while changes.changed().await.is_ok() {}
    }

    /// Resolves when the time is up.
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
                // The sender lives as long as this does.
                None => drop(changed.await),
            }
        }
    }

    fn change(&self, change: fn(Clock, Instant) -> Clock) {
        let mut clock = self.clock();
        let before = clock.face;
        *clock = change(*clock, Instant::now());
        let has_changed = clock.face != before;
        drop(clock);
        // Every host call comes by here: nobody is woken for nothing.
        if has_changed {
            self.0.changes.send_replace(());
        }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.0.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While this lives, the clock stands.
#[derive(Debug)]
pub struct Pause(Deadline);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.change(Clock::resume);
    }
}

/// While this lives, the guest waits.
#[derive(Debug)]
pub(super) struct Outside<'a>(&'a Deadline);

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.change(Clock::guest_works);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_that_a_person_takes_is_not_counted() {
        let start = Instant::now();
        let clock = Clock::until(start + 10 * SECOND);
        let asked = clock.pause(start + 4 * SECOND).pause(start + 5 * SECOND);
        assert_eq!(asked.remaining(start + 3600 * SECOND), 6 * SECOND);
        let answered_one = asked.resume(start + 100 * SECOND);
        assert_eq!(answered_one.remaining(start + 200 * SECOND), 6 * SECOND);
        let answered = answered_one.resume(start + 1000 * SECOND);
        assert_eq!(answered.remaining(start + 1004 * SECOND), 2 * SECOND);
        assert_eq!(answered.remaining(start + 1007 * SECOND), Duration::ZERO);
    }

    #[test]
    fn what_the_guest_does_while_a_person_is_asked_is_its_own_time() {
        let start = Instant::now();
        let asked = Clock::until(start + 10 * SECOND).pause(start);
        let working = asked.guest_works(start + 100 * SECOND);
        assert_eq!(working.remaining(start + 103 * SECOND), 7 * SECOND);
        let waiting = working.guest_waits(start + 104 * SECOND);
        assert_eq!(waiting.remaining(start + 200 * SECOND), 6 * SECOND);
        let answered = waiting.resume(start + 200 * SECOND);
        assert_eq!(answered.remaining(start + 201 * SECOND), 5 * SECOND);
        assert_eq!(answered.guest_works(start + 201 * SECOND).remaining(start + 202 * SECOND), 4 * SECOND);
    }

    #[test]
    fn a_deadline_that_has_passed_is_passed_for_all_who_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let deadline = Deadline::after(Duration::from_millis(20));
            let pause = deadline.pause();
            let waiting = deadline.clone();
            let waiting = tokio::spawn(async move { waiting.passed().await });
            tokio::task::yield_now().await;
            drop(pause);
            waiting.await.unwrap();
            assert_eq!(deadline.remaining(), Duration::ZERO);
            deadline.passed().await;
        });
    }
}
