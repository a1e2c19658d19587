//! The end of a run from outside: who asked for it, and once.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its time was up.
    Deadline,
    /// The caller's `AbortSignal`.
    Aborted,
    /// `close()` of its sandbox or gateway.
    Closed,
    /// `disable()` of the plugin that its gateway is.
    SwitchedOff,
}

/// A handle that ends a run. The first reason given is the one that counts.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    token: CancellationToken,
    reason: Arc<OnceLock<StopReason>>,
}

impl Stop {
    /// A handle for one run.
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

    /// Why it was ended, if it was.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    /// Resolves when it was ended.
    pub async fn stopped(&self) {
        self.token.cancelled().await;
    }

    /// The error that the caller of something that was ended gets. `what` is "run" or "call".
    #[must_use]
    pub fn error(&self, what: &'static str, limit_ms: u64) -> Error {
        match self.reason() {
            Some(StopReason::Aborted) => Error::Aborted { what },
            Some(StopReason::Closed) => Error::Closed { what: "sandbox" },
            Some(StopReason::SwitchedOff) => Error::PluginOff,
            Some(StopReason::Deadline) | None => Error::RunTimeout { limit_ms },
        }
    }
}
