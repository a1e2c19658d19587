//! Position in an event stream, from which the stream is resumed. This module also decides whether and when a stream is resumed.

use std::time::Duration;

use super::retry::backoff;
use super::sse::Event;
use super::target::HttpLimits;

/// Number of consecutive failed attempts after which the stream is not resumed any more.
const MAX_FAILURES: u32 = 5;
/// Number of consecutive streams without data that are resumed with the server's own delay. After this number of streams, the delay grows.
const PATIENCE: u32 = 10;
/// Shortest delay before a stream is resumed, even if the server names a shorter one.
const SHORTEST: Duration = Duration::from_millis(100);
/// Maximum length of an event id that is stored. A longer id may exceed a server's limit for headers.
const MAX_ID_BYTES: usize = 1024;

/// The purpose of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The stream carries the answer to one request. It cannot be resumed without an event id. The caller of the request limits the total
    /// wait.
    Answer,
    /// The stream carries the messages that the server sends without a request, until the connection ends.
    Common,
}

#[derive(Debug)]
pub(super) struct Position {
    purpose: Purpose,
    pub(super) last_id: Option<String>,
    retry: Option<Duration>,
    /// Number of consecutive streams that ended without data.
    quiet: u32,
    /// Number of consecutive failed attempts to resume.
    failures: u32,
}

impl Position {
    pub(super) fn start(purpose: Purpose) -> Self {
        Self { purpose, last_id: None, retry: None, quiet: 0, failures: 0 }
    }

    pub(super) fn note(&mut self, event: &Event) {
        match event.id.as_deref() {
            Some("") => self.last_id = None,
            Some(id) if id.len() <= MAX_ID_BYTES && id.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => {
                self.last_id = Some(id.to_owned());
            }
            _ => {}
        }
        if let Some(milliseconds) = event.retry {
            self.retry = Some(Duration::from_millis(milliseconds));
        }
        if !event.data.is_empty() {
            (self.quiet, self.failures) = (0, 0);
        }
    }

    /// Returns the delay before a stream that has ended is resumed. Returns `None` if the stream cannot be resumed.
    pub(super) fn after_end(&mut self, limits: &HttpLimits, random: u32) -> Option<Duration> {
        if self.purpose == Purpose::Answer && self.last_id.is_none() {
            return None;
        }
        let (quiet, longest) = (self.quiet, limits.longest_resume);
        self.quiet = self.quiet.saturating_add(1);
        let delay = match (self.retry, self.purpose) {
            (Some(asked), Purpose::Common) if quiet > PATIENCE => asked.max(backoff(limits.resume, quiet - PATIENCE, longest, random)),
            (Some(asked), _) => asked,
            (None, _) => backoff(limits.resume, quiet, longest, random),
        };
        Some(delay.clamp(SHORTEST.min(longest), longest))
    }

    /// Returns the delay after a failed attempt to resume. Returns `None` if no further attempt is made.
    pub(super) fn after_failure(&mut self, asked: Option<Duration>, limits: &HttpLimits, random: u32) -> Option<Duration> {
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            return None;
        }
        let delay = backoff(limits.resume, self.failures, limits.longest_resume, random);
        Some(delay.max(asked.or(self.retry).unwrap_or_default()).min(limits.longest_resume))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u32 = u32::MAX / 2;

    fn event(id: Option<&str>, retry: Option<u64>, data: &str) -> Event {
        Event { id: id.map(str::to_owned), retry, data: data.into(), ..Event::default() }
    }

    fn end(position: &mut Position) -> Option<Duration> {
        position.after_end(&HttpLimits::default(), MIDDLE)
    }

    #[test]
    fn an_answers_stream_is_resumed_only_after_an_id() {
        let mut position = Position::start(Purpose::Answer);
        assert_eq!(end(&mut position), None);
        position.note(&event(Some("a"), None, ""));
        assert!(end(&mut position).is_some());
        position.note(&event(Some(""), None, ""));
        assert_eq!(end(&mut position), None, "an empty id clears the last id");
        assert!(end(&mut Position::start(Purpose::Common)).is_some(), "the common stream is resumed without an id");
    }

    #[test]
    fn a_servers_own_delay_is_kept_within_bounds() {
        for (asked, expected) in [(500, 500), (0, 100), (u64::MAX, 30_000)] {
            let mut position = Position::start(Purpose::Answer);
            position.note(&event(Some("a"), Some(asked), ""));
            assert_eq!(end(&mut position), Some(Duration::from_millis(expected)));
        }
    }

    #[test]
    fn an_id_that_is_no_header_is_not_kept() {
        let mut position = Position::start(Purpose::Answer);
        for id in ["a\r\nb", "ü", &"x".repeat(2000)] {
            position.note(&event(Some(id), None, "data"));
            assert_eq!(position.last_id, None);
        }
    }

    #[test]
    fn attempts_that_fail_end_but_news_start_the_count_again() {
        let limits = HttpLimits::default();
        let mut position = Position::start(Purpose::Common);
        let until_given_up =
            |position: &mut Position| (0..20).take_while(|_| position.after_failure(None, &limits, MIDDLE).is_some()).count();
        assert_eq!(until_given_up(&mut position), 4);
        position.note(&event(None, None, "news"));
        assert_eq!(until_given_up(&mut position), 4);
    }

    #[test]
    fn a_common_stream_that_says_nothing_is_asked_for_ever_more_rarely() {
        let mut position = Position::start(Purpose::Common);
        position.note(&event(None, Some(0), ""));
        let delays: Vec<_> = (0..30).map(|_| end(&mut position).unwrap()).collect();
        assert_eq!(delays[0], Duration::from_millis(100));
        assert!(delays[29] > Duration::from_secs(29), "{delays:?}");
    }
}
