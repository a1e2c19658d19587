//! Rate limits for messages that a server sends without a request. They prevent a flood from one server from taking processor time from the
//! other servers. This module itself never waits. It only returns the time that its caller must wait.

use std::time::Duration;

use tokio::time::Instant;

/// A rate limit: the amount that is allowed for each second, and the amount that may pass at once (the burst).
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct Rate {
    pub(in crate::client) burst: u32,
    pub(in crate::client) per_second: u32,
}

/// Rate limit in bytes for messages that are not answers. If a server writes more, the client reads more slowly, and the full pipe makes
/// the server wait.
pub(in crate::client) const UNSOLICITED: Rate = Rate { burst: 2 << 20, per_second: 2 << 20 };
/// Rate limit in bytes for oversized lines. Such a line is discarded, and is only read to find its end.
pub(in crate::client) const SKIPPED: Rate = Rate { burst: 32 << 20, per_second: 128 << 20 };
/// Rate limit for lines of standard error, which are redacted, stored and logged. A long line counts as several lines.
pub(in crate::client) const STDERR: Rate = Rate { burst: 512, per_second: 100 };
/// Rate limit for notices that a listener receives.
pub(super) const NOTICES: Rate = Rate { burst: 4096, per_second: 100 };
/// Number of notices of each call that are reported even if other calls have used up the rate limit.
const OWN_NOTICES: u32 = 64;

/// Number of bytes that are counted for each message in addition to its length. This also limits the number of short messages.
pub(in crate::client) const MESSAGE: usize = 512;
/// Number of bytes that are counted for each request in addition to its length, because the client must answer it.
pub(in crate::client) const REQUEST: usize = 4096;

/// Computes the pauses between reads with which a reader stays within a rate.
#[derive(Debug)]
pub(in crate::client) struct Pace {
    rate: Rate,
    /// The time at which the bytes that were read so far are within the rate again.
    paid_at: Instant,
}

impl Pace {
    pub(in crate::client) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, paid_at: now }
    }

    /// Counts bytes that were read. Returns the pause that is needed before the next read.
    pub(in crate::client) fn spend(&mut self, bytes: usize, now: Instant) -> Duration {
        self.paid_at = self.paid_at.max(now) + self.time_of(bytes as u64);
        self.paid_at.saturating_duration_since(now + self.time_of(u64::from(self.rate.burst)))
    }

    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / u64::from(self.rate.per_second))
    }

    /// Ignores all bytes that were counted before this call.
    pub(in crate::client) fn forgive(&mut self, now: Instant) {
        self.paid_at = now;
    }
}

/// Lets items pass within a rate, and counts the items that it drops.
#[derive(Debug)]
pub(in crate::client) struct RateLimiter {
    rate: Rate,
    left: u32,
    filled: Instant,
    dropped: u64,
}

/// A rate limiter's decision about one item.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum RateDecision {
    /// The item passes. The number says how many items were dropped since the last report.
    Pass(u64),
    Drop,
}

impl RateLimiter {
    pub(in crate::client) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, filled: now, dropped: 0 }
    }

    pub(in crate::client) fn next(&mut self, now: Instant) -> RateDecision {
        self.take(1, now)
    }

    /// Decides whether an item that counts as `amount` items passes. If `amount` exceeds the burst, the item passes when the whole burst is
    /// available.
    pub(in crate::client) fn take(&mut self, amount: u32, now: Instant) -> RateDecision {
        if self.admits(amount, now) {
            return RateDecision::Pass(self.dropped());
        }
        self.dropped += 1;
        RateDecision::Drop
    }

    /// Returns whether `amount` items pass. Does not count dropped items, because the caller of this method counts them or keeps them for
    /// later.
    pub(in crate::client) fn admits(&mut self, amount: u32, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            let gained = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(self.rate.per_second);
            self.left = self.left.saturating_add(gained).min(self.rate.burst);
            self.filled += Duration::from_secs(seconds);
        }
        let left = self.left.checked_sub(amount.min(self.rate.burst));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Returns the time at which the limiter gains new capacity.
    pub(super) fn refills_at(&self) -> Instant {
        self.filled + Duration::from_secs(1)
    }

    /// Returns the number of dropped items that have not been reported yet, and resets this number.
    pub(in crate::client) fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

/// The part of a connection's limiter that belongs to one call. Each call has its own burst, and counts its own dropped items.
#[derive(Debug)]
pub(in crate::client) struct Share {
    own: u32,
    dropped: u64,
}

impl Default for Share {
    fn default() -> Self {
        Self { own: OWN_NOTICES, dropped: 0 }
    }
}

impl Share {
    pub(in crate::client) fn next(&mut self, limiter: &mut RateLimiter, now: Instant) -> RateDecision {
        let own = self.own.checked_sub(1);
        self.own = own.unwrap_or_default();
        if own.is_some() || limiter.admits(1, now) {
            return RateDecision::Pass(self.dropped());
        }
        self.dropped += 1;
        RateDecision::Drop
    }

    /// Returns the number of dropped items that have not been reported yet, and resets this number.
    pub(in crate::client) fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_counts_its_own_and_begins_with_what_no_other_can_take() {
        let start = Instant::now();
        let (mut limiter, mut flood, mut other) = (RateLimiter::new(NOTICES, start), Share::default(), Share::default());
        let mut passed =
            |share: &mut Share, times: u32| (0..times).filter(|_| share.next(&mut limiter, start) != RateDecision::Drop).count();
        assert_eq!(passed(&mut flood, 10_000), (NOTICES.burst + OWN_NOTICES) as usize);
        assert_eq!(passed(&mut other, 70), OWN_NOTICES as usize);
        assert_eq!(flood.dropped(), u64::from(10_000 - NOTICES.burst - OWN_NOTICES));
        assert_eq!((other.dropped(), flood.dropped()), (6, 0));
        assert_eq!(limiter.dropped(), 0, "all dropped notices are counted for their calls");
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_flood_is_thinned_and_what_was_left_out_is_counted() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(NOTICES, start);
        let passed = (0..10_000).filter(|_| limiter.next(start) != RateDecision::Drop).count();
        assert_eq!(passed, NOTICES.burst as usize);
        assert_eq!(limiter.next(start + SECOND), RateDecision::Pass(10_000 - u64::from(NOTICES.burst)));
        assert_eq!(limiter.next(start + SECOND), RateDecision::Pass(0));
        assert_eq!((0..100).filter(|_| limiter.next(start + SECOND) != RateDecision::Drop).count(), 98);
        assert_eq!(limiter.dropped(), 2);
    }

    #[test]
    fn what_counts_as_several_takes_the_room_of_several_and_the_largest_passes_as_well() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(Rate { burst: 10, per_second: 5 }, start);
        assert_eq!(limiter.take(u32::MAX, start), RateDecision::Pass(0));
        assert_eq!(limiter.take(6, start + SECOND), RateDecision::Drop);
        assert_eq!(limiter.take(5, start + SECOND), RateDecision::Pass(1));
    }

    #[test]
    fn whoever_reads_more_than_was_saved_up_rests_until_it_is_paid_for() {
        let start = Instant::now();
        let mut pace = Pace::new(Rate { burst: 2_000, per_second: 1_000 }, start);
        assert_eq!(pace.spend(2_000, start), Duration::ZERO);
        assert_eq!(pace.spend(500, start), SECOND / 2);
        assert_eq!(pace.spend(0, start + SECOND / 2), Duration::ZERO);
        // After a long pause, no more than the burst is available.
        let later = start + SECOND * 100;
        assert_eq!(pace.spend(3_000, later), SECOND);
        pace.forgive(later);
        assert_eq!(pace.spend(2_000, later), Duration::ZERO);
    }

    #[test]
    fn over_a_long_time_no_more_is_read_than_the_rate() {
        let start = Instant::now();
        let (mut pace, mut now, mut bytes) = (Pace::new(UNSOLICITED, start), start, 0_u64);
        while now < start + SECOND * 10 {
            now += pace.spend(64 * 1024, now) + Duration::from_micros(10);
            bytes += 64 * 1024;
        }
        assert!(bytes <= 11 * u64::from(UNSOLICITED.per_second) + 128 * 1024, "{bytes}");
    }
}
