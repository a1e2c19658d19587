//! The interface of the pipeline to the model that plans the tools and writes their code.

use futures::future::BoxFuture;

use crate::error::Result;

/// The largest number of tokens that a model may answer with.
pub const MAX_OUTPUT_TOKENS: u32 = 16_384;

/// A request to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateRequest {
    pub system: String,
    pub user: String,
    /// The largest number of tokens of the answer.
    pub max_tokens: u32,
}

impl GenerateRequest {
    pub(super) fn new(system: String, user: String) -> Self {
        Self { system, user, max_tokens: MAX_OUTPUT_TOKENS }
    }

    /// Returns the number of bytes in the request's texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.system.len() + self.user.len()
    }

    /// Returns this request, with the answer that could not be used and its problems added.
    pub(super) fn again(&self, answer: &str, problems: &[String]) -> Self {
        const SHOWN_BYTES: usize = 20_000;
        let shown = &answer[..answer.floor_char_boundary(SHOWN_BYTES)];
        let cut = if shown.len() < answer.len() { "\n[… cut]" } else { "" };
        let problems: Vec<_> = problems.iter().map(|problem| format!("- {problem}")).collect();
        let user = format!(
            "{}\n\n# Your answer before\n\nYou have answered this already, and the answer could not be used:\n{}\n\nIt was:\n\n{shown}{cut}\n\nAnswer again, completely and in the form that is asked for.",
            self.user,
            problems.join("\n"),
        );
        Self { user, ..self.clone() }
    }
}

/// A model. The pipeline uses the model of the command line and an agent's own model in the same way.
pub trait Generate: Send + Sync {
    /// Answers a request with a text. Dropping the future ends the request.
    ///
    /// # Errors
    /// `ERR_BOOT_MODEL` if the model cannot be reached or answers with an error, `ERR_BOOT_REFUSED` if the model says that it refuses.
    fn generate<'a>(&'a self, request: &'a GenerateRequest) -> BoxFuture<'a, Result<String>>;
}
