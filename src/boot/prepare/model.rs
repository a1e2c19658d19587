//! Asks a model, within a time limit.

use std::sync::Arc;

use super::reading::Material;
use super::{BootParts, PrepareOptions};
use crate::boot::generate::GenerateRequest;
use crate::error::{Error, ErrorText, Result};
use crate::text::sanitise_line;

/// Maximum total size, in bytes, of the problems that an error lists.
const MAX_PROBLEM_BYTES: usize = 1_000;

/// The data from which all requests to the model in one call of `prepare` are made.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) prompt: &'a str,
    /// Shared with threads for blocking work.
    pub(super) material: &'a Arc<Material>,
    pub(super) options: &'a PrepareOptions,
    pub(super) parts: BootParts<'a>,
}

/// An answer, and the milliseconds that it took.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) ms: u64,
}

/// Sends one request.
pub(super) async fn ask(asking: Asking<'_>, request: &GenerateRequest) -> Result<Answer> {
    let start = asking.parts.clock.now_ms();
    let limit = asking.options.model_time;
    let answer = tokio::time::timeout(limit, asking.parts.model.generate(request)).await;
    let late = |_| Error::BootModel { problem: ErrorText::own(format!("it did not answer within {} s", limit.as_secs())) };
    Ok(Answer { text: answer.map_err(late)??, ms: asking.parts.clock.now_ms().saturating_sub(start) })
}

/// Returns problems as a field of an error, in one line. They quote the model, so they are redacted before they are shown.
pub(super) fn joined(problems: &[String]) -> ErrorText {
    crate::error::ForeignText::cut(&sanitise_line(&problems.join("; "), MAX_PROBLEM_BYTES), MAX_PROBLEM_BYTES).into()
}
