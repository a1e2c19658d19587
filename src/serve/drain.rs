//! The outcome for the requests that were in progress when serving was closed.

/// The outcome for the requests that were in progress when serving was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// All requests have ended by themselves.
    Complete,
    /// At least one request was cancelled, because its time was over or the gateway was closed.
    CutOff,
}
