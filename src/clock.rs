//! A clock that can be paused. It reads no system clock. Each caller passes the current time.

use std::time::Duration;

use tokio::time::Instant;

/// A clock that measures the total time during which it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PausableClock {
    /// Time that was measured before `running_since`.
    passed: Duration,
    /// `None` while the clock is paused.
    running_since: Option<Instant>,
}

impl PausableClock {
    /// Starts a clock.
    pub(crate) fn start(now: Instant) -> Self {
        Self { passed: Duration::ZERO, running_since: Some(now) }
    }

    /// Returns the total time during which the clock has run.
    pub(crate) fn passed(&self, now: Instant) -> Duration {
        self.passed + self.running_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running_since.is_some()
    }

    /// Returns the time at which the clock will have run for `time` in total. Returns `None` while the clock is paused, and if the result
    /// is too large for an `Instant`.
    pub(crate) fn reaches(&self, time: Duration) -> Option<Instant> {
        self.running_since?.checked_add(time.saturating_sub(self.passed))
    }

    /// Pauses the clock. A paused clock stays paused.
    pub(crate) fn pause(&mut self, now: Instant) {
        *self = Self { passed: self.passed(now), running_since: None };
    }

    /// Resumes the clock. If the clock is running, nothing changes.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.running_since.get_or_insert(now);
    }

    /// Sets the measured time to zero. The clock stays in its state, running or paused.
    pub(crate) fn reset(&mut self, now: Instant) {
        *self = Self { passed: Duration::ZERO, running_since: self.running_since.map(|_| now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_counts_only_while_the_clock_runs() {
        let start = Instant::now();
        let mut clock = PausableClock::start(start);
        assert_eq!(clock.passed(start + 2 * SECOND), 2 * SECOND);
        clock.pause(start + 2 * SECOND);
        clock.pause(start + 5 * SECOND);
        assert!(!clock.is_running() && clock.reaches(10 * SECOND).is_none());
        assert_eq!(clock.passed(start + 100 * SECOND), 2 * SECOND);
        clock.resume(start + 100 * SECOND);
        clock.resume(start + 101 * SECOND);
        assert_eq!(clock.passed(start + 103 * SECOND), 5 * SECOND);
        assert_eq!(clock.reaches(10 * SECOND), Some(start + 108 * SECOND));
    }

    #[test]
    fn a_clock_that_is_reset_runs_only_if_it_ran() {
        let start = Instant::now();
        let mut clock = PausableClock::start(start);
        clock.reset(start + 5 * SECOND);
        assert_eq!(clock.passed(start + 6 * SECOND), SECOND);
        clock.pause(start + 6 * SECOND);
        clock.reset(start + 7 * SECOND);
        assert!(!clock.is_running());
        assert_eq!(clock.passed(start + 8 * SECOND), Duration::ZERO);
    }

    #[test]
    fn a_time_beyond_what_a_clock_can_show_is_never_reached() {
        assert!(PausableClock::start(Instant::now()).reaches(Duration::MAX).is_none());
    }
}
