//! Clock of one call. It pauses while a person is asked. Each progress notification restarts the time-out.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::PausableClock;

/// Time limits of one call.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Longest time without a progress notification.
    pub timeout: Duration,
    /// Longest total time, even if the server reports progress.
    pub most: Duration,
}

impl CallLimits {
    /// Makes limits for a call whose time limit is not extended by progress notifications.
    #[must_use]
    pub fn fixed(timeout: Duration) -> Self {
        Self { timeout, most: timeout }
    }
}

/// The limit that a call has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    Idle(Duration),
    Total(Duration),
}

/// Clock of one call. Clones share the same clock.
#[derive(Clone)]
pub(super) struct CallClock(Arc<Shared>);

struct Shared {
    limits: CallLimits,
    time: Mutex<Time>,
    changed: Notify,
}

/// The time that a call has taken so far.
#[derive(Debug, Clone, Copy)]
struct Time {
    since_progress: PausableClock,
    total: PausableClock,
    pauses: u32,
}

impl Time {
    fn each(&mut self, change: impl Fn(&mut PausableClock)) {
        change(&mut self.since_progress);
        change(&mut self.total);
    }
}

impl CallClock {
    pub(super) fn start(limits: CallLimits) -> Self {
        let clock = PausableClock::start(Instant::now());
        let time = Time { since_progress: clock, total: clock, pauses: 0 };
        Self(Arc::new(Shared { limits, time: Mutex::new(time), changed: Notify::new() }))
    }

    /// Records a progress notification, which restarts the time-out.
    pub(super) fn progress(&self) {
        self.time().since_progress.reset(Instant::now());
        self.0.changed.notify_waiters();
    }

    /// Pauses the clock until the returned value is dropped.
    pub(super) fn pause(&self) -> ClockPause {
        let mut time = self.time();
        let now = Instant::now();
        time.pauses += 1;
        time.each(|clock| clock.pause(now));
        drop(time);
        self.0.changed.notify_waiters();
        ClockPause(self.clone())
    }

    /// Resolves when a limit is reached.
    pub(super) async fn expired(&self) -> Expired {
        loop {
            // The notification is enabled before the time is read, so that a change between these two steps is not missed.
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.left() {
                RemainingTime::Expired(expired) => return expired,
                RemainingTime::Paused => changed.await,
                RemainingTime::Running(left) => drop(tokio::time::timeout(left, changed).await),
            }
        }
    }

    fn left(&self) -> RemainingTime {
        let (time, now) = (*self.time(), Instant::now());
        let CallLimits { timeout, most } = self.0.limits;
        let (since_progress, total) = (time.since_progress.passed(now), time.total.passed(now));
        if !time.total.is_running() {
            RemainingTime::Paused
        // The time-out is checked first. If both limits are equal, the error then names the time-out.
        } else if since_progress >= timeout {
            RemainingTime::Expired(Expired::Idle(timeout))
        } else if total >= most {
            RemainingTime::Expired(Expired::Total(most))
        } else {
            RemainingTime::Running(most.saturating_sub(total).min(timeout.saturating_sub(since_progress)))
        }
    }

    fn time(&self) -> MutexGuard<'_, Time> {
        self.0.time.lock()
    }
}

enum RemainingTime {
    Expired(Expired),
    Paused,
    Running(Duration),
}

/// Guard that pauses the clock until it is dropped.
pub(super) struct ClockPause(CallClock);

impl Drop for ClockPause {
    fn drop(&mut self) {
        let mut time = self.0.time();
        time.pauses -= 1;
        if time.pauses == 0 {
            let now = Instant::now();
            time.each(|clock| clock.resume(now));
        }
        drop(time);
        self.0.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    #[tokio::test]
    async fn a_call_without_progress_expires() {
        let clock = CallClock::start(CallLimits { timeout: Duration::from_millis(1), most: LONG });
        assert_eq!(clock.expired().await, Expired::Idle(Duration::from_millis(1)));
    }

    #[tokio::test]
    async fn a_call_that_progress_cannot_prolong_expires_by_its_own_time() {
        let clock = CallClock::start(CallLimits::fixed(Duration::from_millis(1)));
        assert_eq!(clock.expired().await, Expired::Idle(Duration::from_millis(1)));
    }

    #[tokio::test]
    async fn progress_prolongs_a_call_up_to_its_most() {
        // The times are long enough for a machine that gives this thread no processor for most of a second.
        let most = Duration::from_millis(1_050);
        let clock = CallClock::start(CallLimits { timeout: Duration::from_secs(1), most });
        let expired = clock.expired();
        tokio::pin!(expired);
        loop {
            tokio::select! {
                expired = &mut expired => return assert_eq!(expired, Expired::Total(most)),
                () = tokio::task::yield_now() => clock.progress(),
            }
        }
    }

    #[tokio::test]
    async fn a_clock_that_stands_does_not_expire() {
        let clock = CallClock::start(CallLimits::fixed(Duration::from_millis(1)));
        let (first, second) = (clock.pause(), clock.pause());
        drop(first);
        assert!(tokio::time::timeout(Duration::from_millis(10), clock.expired()).await.is_err());
        drop(second);
        clock.expired().await;
    }
}
