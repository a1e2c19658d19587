//! Bounds the look-up of files before a server starts. The entries of other programs' configs, which anybody can commit, decide how long
//! this takes.

use std::time::{Duration, Instant};

use super::core::Core;
use crate::blocking::blocking;
use crate::client::CallLimits;
use crate::error::{Error, Result};

/// The moment at which a call with a time limit of its own no longer waits for the look-up of its server's files.
#[derive(Debug, Clone)]
pub(super) struct CallDeadline {
    at: Instant,
    error: Error,
}

impl CallDeadline {
    /// Returns the deadline of a call that began at `started`. `None` if the call has no time limit of its own.
    pub(super) fn of(started: Instant, (server, tool): (&str, &str), limits: CallLimits, timeout_ms: Option<u64>) -> Option<Self> {
        timeout_ms?;
        let limit_ms = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
        let error = Error::CallTimeout { server: server.to_owned(), tool: tool.into(), limit_ms, limit_name: "timeoutMs" };
        Some(Self { at: started.checked_add(limits.timeout)?, error })
    }

    /// Returns the deadline after a wait that does not count, because a person was asked.
    pub(super) fn after_wait(self, wait: Duration) -> Option<Self> {
        Some(Self { at: self.at.checked_add(wait)?, ..self })
    }
}

/// Waits for work until the deadline of the call.
///
/// # Errors
/// The errors of the work, and `ERR_CALL_TIMEOUT`.
pub(super) async fn until<T>(deadline: Option<&CallDeadline>, work: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(CallDeadline { at, error }) = deadline else { return work.await };
    tokio::time::timeout_at((*at).into(), work).await.unwrap_or_else(|_| Err(error.clone()))
}

impl Core {
    /// Runs work that reads files. No thread of the runtime waits for it, so all deadlines are on time. Use it only for work without other
    /// effects, because nobody waits for its end when the gateway is closed.
    ///
    /// # Errors
    /// The errors of the work, and `ERR_CLOSED` as soon as the gateway is closed.
    pub(super) async fn reading<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> Result<T> + Send + 'static) -> Result<T> {
        let closed = || Error::Closed { what: "gateway" };
        let core = self.weak.upgrade().ok_or_else(closed)?;
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(closed()),
            outcome = blocking(move || work(&core)) => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_time_limit_of_the_call_itself_ends_the_look_up() {
        let limits = CallLimits::fixed(Duration::from_millis(50));
        let deadline = |timeout_ms| CallDeadline::of(Instant::now(), ("weather", "forecast"), limits, timeout_ms);
        assert!(deadline(None).is_none());
        let own = deadline(Some(50)).unwrap();
        let error = until::<()>(Some(&own), std::future::pending()).await.unwrap_err();
        assert_eq!(error.in_full(), "weather.forecast did not answer within 50 ms (timeoutMs); the call was cancelled");
        assert!(own.clone().after_wait(Duration::from_secs(1)).unwrap().at == own.at + Duration::from_secs(1));
    }
}
