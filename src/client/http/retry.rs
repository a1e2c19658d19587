//! Decides whether and when a failed request is sent again.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// Maximum number of retries for one request, after failures of any kind.
const MORE_TRIES: u32 = 2;

/// The failures after which a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryPolicy {
    /// Retries a request only if it was certainly not sent. Used for requests that may change something at the server.
    Unsent,
    /// Retries a request if it was certainly not sent, or if the server refused it with 429 or 503. Used for requests that change nothing.
    Refused,
    /// Retries a request in the cases of [`Self::Refused`], and also if the connection broke before an answer arrived.
    Broken,
}

/// The failure of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// No connection was made.
    Unsent,
    /// The connection broke before an answer arrived.
    Broken,
    /// The server answered 429 or 503. Holds the delay of its `Retry-After` header.
    TooEarly(Option<Duration>),
}

/// Counts the retries of one request.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    made: u32,
}

impl Attempts {
    /// Returns the delay before the next attempt. Returns `None` if no further attempt is allowed. `random` spreads the retries of many
    /// clients over time.
    pub(super) fn next(
        &mut self,
        retry: RetryPolicy,
        outcome: Outcome,
        base: Duration,
        longest: Duration,
        random: u32,
    ) -> Option<Duration> {
        let delay = match (outcome, retry) {
            (Outcome::Unsent, _) | (Outcome::Broken, RetryPolicy::Broken) => backoff(base, self.made, longest, random),
            (Outcome::TooEarly(Some(delay)), RetryPolicy::Refused | RetryPolicy::Broken) if delay <= longest => delay,
            _ => return None,
        };
        if self.made >= MORE_TRIES {
            return None;
        }
        self.made += 1;
        Some(delay)
    }
}

/// Returns a delay that doubles with each attempt, and varies randomly by up to 25 % in both directions.
pub(super) fn backoff(base: Duration, tries: u32, longest: Duration, random: u32) -> Duration {
    let delay = base.saturating_mul(2_u32.saturating_pow(tries)).min(longest);
    let share = 0.75 + f64::from(random) / f64::from(u32::MAX) * 0.5;
    delay.mul_f64(share)
}

/// Returns the delay in an answer's `Retry-After` header.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    // A date in the past gives no delay.
    httpdate::parse_http_date(text).ok().map(|date| date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const BASE: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);
    const MIDDLE: u32 = u32::MAX / 2;

    fn asked(value: &str) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
        retry_after(&headers, UNIX_EPOCH + Duration::from_secs(784_111_777 - 30))
    }

    #[test]
    fn a_delay_is_understood_in_seconds_and_as_a_date() {
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Sat, 05 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        for nonsense in ["soon", "-3", "Sun, 06 Nov 1994 08:49:37 PST", "Sun, 99 Nov 1994 08:49:37 GMT", "99999999999"] {
            assert_eq!(asked(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_date_is_understood_in_each_form_that_http_has() {
        for date in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(asked(date), Some(Duration::from_secs(30)), "{date}");
        }
    }

    #[test]
    fn what_may_change_something_goes_out_again_only_if_it_never_left() {
        let next = |retry, outcome| Attempts::default().next(retry, outcome, BASE, LONGEST, MIDDLE);
        let soon = Some(Duration::from_secs(1));
        assert!(next(RetryPolicy::Unsent, Outcome::Unsent).is_some());
        assert_eq!(next(RetryPolicy::Unsent, Outcome::Broken), None);
        assert_eq!(next(RetryPolicy::Unsent, Outcome::TooEarly(soon)), None);
        assert_eq!(next(RetryPolicy::Refused, Outcome::TooEarly(soon)), soon);
        assert_eq!(next(RetryPolicy::Refused, Outcome::Broken), None);
        assert!(next(RetryPolicy::Broken, Outcome::Broken).is_some());
    }

    #[test]
    fn a_long_delay_is_not_waited_for_and_one_that_nobody_named_is_not_guessed() {
        let next = |delay| Attempts::default().next(RetryPolicy::Broken, Outcome::TooEarly(delay), BASE, LONGEST, MIDDLE);
        assert_eq!(next(Some(Duration::from_secs(6))), None);
        assert_eq!(next(None), None);
    }

    #[test]
    fn there_are_two_more_tries_with_growing_delays() {
        let mut tries = Attempts::default();
        let mut next = || tries.next(RetryPolicy::Unsent, Outcome::Unsent, BASE, LONGEST, MIDDLE);
        let (first, second) = (next().unwrap(), next().unwrap());
        assert!(first >= BASE.mul_f64(0.75) && second > first, "{first:?} {second:?}");
        assert_eq!(next(), None);
    }
}
