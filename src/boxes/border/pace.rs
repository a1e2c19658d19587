//! A rate limit.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A rate limit that allows a burst of uses, and then one use in each interval.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    burst: Duration,
    /// The time at which the whole burst can be used again.
    free: Instant,
}

impl Pace {
    pub(super) fn new(burst: u32, interval: Duration, now: Instant) -> Self {
        Self { interval, burst: interval * burst, free: now }
    }

    /// Takes one use, if the limit allows it now.
    ///
    /// # Errors
    /// The time to wait for the next use. No use is taken.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let next = self.free.max(now) + self.interval;
        let ahead = next.duration_since(now);
        let rest = ahead.saturating_sub(self.burst);
        if !rest.is_zero() {
            return Err(rest);
        }
        self.free = next;
        Ok(())
    }
}

/// Takes one use, and waits for it if necessary.
pub(super) async fn wait(pace: &Mutex<Pace>) {
    loop {
        let taken = pace.lock().take(Instant::now());
        match taken {
            Ok(()) => return,
            Err(rest) => tokio::time::sleep(rest).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_one_use_in_each_interval() {
        let (begin, interval) = (Instant::now(), Duration::from_secs(1));
        let mut pace = Pace::new(3, interval, begin);
        assert_eq!([0; 4].map(|_| pace.take(begin)), [Ok(()), Ok(()), Ok(()), Err(interval)]);
        assert_eq!(pace.take(begin + interval), Ok(()));
        assert!(pace.take(begin + interval).is_err());
        assert_eq!([0; 4].map(|_| pace.take(begin + 10 * interval).is_ok()), [true, true, true, false]);
    }
}
