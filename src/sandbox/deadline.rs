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

/// Told the time, so that it can be tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Running { until: Instant },
    Stopped { left: Duration, pauses: usize },
}

impl Clock {
    fn remaining(self, now: Instant) -> Duration {
        match self {
            Self::Running { until } => until.saturating_duration_since(now),
            Self::Stopped { left, .. } => left,
        }
    }

    fn pause(self, now: Instant) -> Self {
        match self {
            Self::Running { .. } => Self::Stopped { left: self.remaining(now), pauses: 1 },
            Self::Stopped { left, pauses } => Self::Stopped { left, pauses: pauses + 1 },
        }
    }

    fn resume(self, now: Instant) -> Self {
        match self {
            Self::Stopped { left, pauses: 0 | 1 } => Self::Running { until: now + left },
            Self::Stopped { left, pauses } => Self::Stopped { left, pauses: pauses - 1 },
            running @ Self::Running { .. } => running,
        }
    }
}

impl Deadline {
    /// So long from now.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        let now = Instant::now();
        // A time that no clock can show is as good as none.
        let until = now.checked_add(timeout).unwrap_or(now + Duration::from_hours(24 * 365));
        Self(Arc::new(Shared { clock: Mutex::new(Clock::Running { until }), changes: watch::Sender::new(()) }))
    }

    /// What is left.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.clock().remaining(Instant::now())
    }

    /// Stops the clock until the pause is dropped. Pauses may overlap.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.change(Clock::pause);
        Pause(self.clone())
    }

    /// When the time is up; `None` while the clock stands.
    pub(super) fn until(&self) -> Option<Instant> {
        match *self.clock() {
            Clock::Running { until } => Some(until),
            Clock::Stopped { .. } => None,
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
        *clock = change(*clock, Instant::now());
        drop(clock);
        self.0.changes.send_replace(());
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_that_a_person_takes_is_not_counted() {
        let start = Instant::now();
        let clock = Clock::Running { until: start + 10 * SECOND };
        let asked = clock.pause(start + 4 * SECOND).pause(start + 5 * SECOND);
        assert_eq!(asked.remaining(start + 3600 * SECOND), 6 * SECOND);
        let answered_one = asked.resume(start + 100 * SECOND);
        assert_eq!(answered_one.remaining(start + 200 * SECOND), 6 * SECOND);
        let answered = answered_one.resume(start + 1000 * SECOND);
        assert_eq!(answered.remaining(start + 1004 * SECOND), 2 * SECOND);
        assert_eq!(answered.remaining(start + 1007 * SECOND), Duration::ZERO);
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
