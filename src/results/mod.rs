//! Results of runs for a model, within a budget of tokens: values are cut by their structure, and kept for later runs.
//!
//! All decisions here are pure: time and randomness are handed in. A value is counted as a model would read it: JSON, bytes as base64 text,
//! tokens by [`crate::catalog::estimate_tokens`].

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

/// The least that `maxResultTokens` may be: below it, little more than marks would be left.
pub const MIN_RESULT_TOKENS: usize = 100;

/// Levels of lists and records that are looked into. What crosses the VM has no more.
const MAX_DEPTH: usize = 128;
