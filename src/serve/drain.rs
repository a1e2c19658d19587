//! The result of closing: whether the requests that were in progress have ended by themselves.

/// The result of closing for the requests that were in progress at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// All requests have ended by themselves.
    Complete,
    /// At least one request was cancelled, because the time for draining was over or the gateway was closed.
    CutOff,
}
