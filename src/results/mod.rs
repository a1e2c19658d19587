//! Fits the results of runs into a token budget for a model. Values are cut according to their structure, and the whole values are saved
//! for later runs.
//!
//! All functions here are pure: the caller passes in the time and the random bytes. The tokens of a value are counted in the text that a
//! model reads, which is JSON with bytes as base64. [`crate::catalog::estimate_tokens`] counts them.

mod cut;
mod excerpt;
mod fit;
mod json_walk;
mod mark;
mod measure;
mod media;
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
pub use media::{Media, MediaKind, take_media};
pub use omission::{Omission, OmissionKind};
pub use pointer::{PointerError, part};
pub use report::{ModelError, ModelReport, for_model};
pub use saved::{SAVED_ID_BYTES, SavedValues, saved_id};

/// Minimum value of `maxResultTokens`. With fewer tokens, a cut value would contain little more than marks.
pub const MIN_RESULT_TOKENS: usize = 100;

/// Maximum nesting depth of lists and records that is supported. A value that crosses the VM boundary is never nested deeper.
const MAX_DEPTH: usize = 128;
