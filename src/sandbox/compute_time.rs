//! Bounds the time that the guest of a run works itself, apart from the time in which it waits for calls, timers and compute slots.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::PausableClock;

/// The shortest time between two looks at the clock. A run ends at most this long after its limit.
const LEAST_WAIT: Duration = Duration::from_millis(20);

/// The guest's own time of one run. Its clock runs while the guest works, and stands at first.
#[derive(Debug)]
pub(super) struct ComputeTime {
    clock: Mutex<PausableClock>,
    limit: Duration,
}

impl ComputeTime {
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        let mut clock = PausableClock::start(now);
        clock.pause(now);
        Self { clock: Mutex::new(clock), limit }
    }

    /// Lets the clock run until the returned guard is dropped.
    pub(super) fn working(&self) -> Working<'_> {
        self.clock.lock().resume(Instant::now());
        Working(self)
    }

    /// Stops the clock until the returned guard is dropped, because the guest waits.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        self.clock.lock().pause(Instant::now());
        Waiting(self)
    }

    /// Returns the limit in milliseconds.
    pub(super) fn limit_ms(&self) -> u64 {
        u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)
    }

    fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.clock.lock().passed(Instant::now()))
    }

    /// Completes when the guest has used up its time. A guest has at least as much time left as its clock shows, so nothing has to wake this
    /// future when the clock stops or runs again. That would cost time in each call.
    pub(super) async fn passed(&self) {
        loop {
            let remaining = self.remaining();
            if remaining.is_zero() {
                return;
            }
            tokio::time::sleep(remaining.max(LEAST_WAIT)).await;
        }
    }
}

/// A guard while the guest works.
#[derive(Debug)]
pub(super) struct Working<'a>(&'a ComputeTime);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.clock.lock().pause(Instant::now());
    }
}

/// A guard while the guest waits.
#[derive(Debug)]
pub(super) struct Waiting<'a>(&'a ComputeTime);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.clock.lock().resume(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_running(time: &ComputeTime) -> bool {
        time.clock.lock().is_running()
    }

    #[test]
    fn the_clock_runs_only_while_the_guest_works() {
        let time = ComputeTime::new(Duration::from_secs(5));
        assert!(!is_running(&time));
        let working = time.working();
        assert!(is_running(&time));
        let waiting = time.waiting();
        assert!(!is_running(&time));
        drop(waiting);
        assert!(is_running(&time));
        drop(working);
        assert!(!is_running(&time) && time.limit_ms() == 5_000);
    }

    #[test]
    fn the_time_is_over_when_the_guest_has_worked_for_as_long_as_it_may_and_not_while_it_does_not_work() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let limit = Duration::from_millis(30);
            let time = ComputeTime::new(limit);
            let begun = Instant::now();
            assert!(tokio::time::timeout(2 * limit, time.passed()).await.is_err());
            let working = time.working();
            time.passed().await;
            assert!(begun.elapsed() >= 3 * limit && time.remaining().is_zero());
            drop(working);
        });
    }
}
