//! Ends a run from outside, with a reason.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// The names of the limits in the error of a run that took too long.
const RUN_LIMIT: &str = "timeoutMs, limits.runTimeoutMs";
const COMPUTE_LIMIT: &str = "its own work, without the time of its calls: limits.computeTimeoutMs";

/// The reason why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The time of the run is over.
    Deadline,
    /// The guest has worked for the maximum time. The time of its calls and timers is not counted.
    Compute { limit_ms: u64 },
    /// The caller aborted its `AbortSignal`.
    Aborted,
    /// The sandbox or gateway was closed with `close()`.
    Closed,
    /// The plugin of the gateway was switched off with `disable()`.
    SwitchedOff,
}

/// A handle that ends a run. If a run is ended for several reasons, only the first reason is recorded.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    reason: Arc<OnceLock<StopReason>>,
}

impl Stop {
    /// Returns a handle for one run.
    ///
    /// ```
    /// use hyperlight_mcp::sandbox::{Stop, StopReason};
    /// let stop = Stop::new();
    /// stop.stop(StopReason::Aborted);
    /// stop.stop(StopReason::Closed);
    /// assert_eq!(stop.reason(), Some(StopReason::Aborted));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the run.
    pub fn stop(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    /// Returns the reason why the run was ended. Returns `None` if it was not ended.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    /// Resolves when the run is ended.
    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }

    /// Returns the error for the caller of a run or call that was ended. `what` is `"run"` or `"call"`.
    #[must_use]
    pub fn error(&self, what: &'static str, limit_ms: u64) -> Error {
        match self.reason() {
            Some(StopReason::Aborted) => Error::Aborted { what },
            Some(StopReason::Closed) => Error::Closed { what: "sandbox" },
            Some(StopReason::SwitchedOff) => Error::PluginOff,
            Some(StopReason::Deadline) | None => Error::RunTimeout { limit_ms, limit: RUN_LIMIT },
            Some(StopReason::Compute { limit_ms }) => Error::RunTimeout { limit_ms, limit: COMPUTE_LIMIT },
        }
    }
}
