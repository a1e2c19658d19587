//! Fits the results of runs into a token budget for a model. Values are cut by their structure, and the whole values are kept for later runs.
//!
//! All functions here are pure: the caller passes in the time and the random bytes. A value is counted in the form that a model reads: JSON, with
//! bytes as base64 text. Tokens are counted by [`crate::catalog::estimate_tokens`].

mod cut;
mod excerpt;
mod fit;
mod json_walk;
mod mark;
mod measure;
mod omission;
mod plain;
mod pointer;
mod report;
mod saved;
mod share;
#[cfg(test)]
mod tests;
mod text;

pub use fit::{Fitted, fit, fit_json, fits};
pub use mark::Handle;
pub use omission::{Omission, OmissionKind};
pub use pointer::{PointerError, part};
pub use report::{ModelError, ModelReport, for_model};
pub use saved::{SAVED_ID_BYTES, SavedValues, saved_id};

/// The lowest allowed `maxResultTokens`. With less, a cut value would hold little more than marks.
pub const MIN_RESULT_TOKENS: usize = 100;

/// The nesting levels of lists and records that are read. A value that crosses the VM boundary has no more levels.
const MAX_DEPTH: usize = 128;
