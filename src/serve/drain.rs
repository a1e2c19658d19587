//! The outcome for the requests that were in progress when serving was closed.

/// The outcome for the requests that were in progress when serving was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// All requests have ended by themselves.
    Complete,
    /// At least one request was cancelled, as the time for it was over or the gateway was closed.
    CutOff,
}
