//! The handlers: the code of each tool, as a model wrote it once.

mod budget;
mod example;
mod generated;
mod openapi;
mod parse;
mod pattern;
mod relevant;
mod request;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use example::example_of;
pub use generated::generated_tool;
pub use parse::{ParsedCode, parse_code};
pub(super) use request::{HandlerMaterial, cut_prompt, handler_request};

use super::plan::PlannedTool;
use super::secrets::SecretName;
use crate::config::CodeProblem;
use crate::error::Result;

/// The largest handler, in bytes.
pub const MAX_HANDLER_BYTES: usize = 64 * 1024;

/// The code of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handler {
    /// The name of its tool.
    pub tool: String,
    /// The body of an async function with the parameter `args`, and also `fetch` if the plan says that the tool needs the network.
    pub body: String,
}

/// A handler that is checked and tried before it is kept.
#[derive(Debug, Clone, Copy)]
pub struct HandlerTrial<'a> {
    pub tool: &'a PlannedTool,
    pub body: &'a str,
    /// The module that the VM would run. Its first line is the body's first line.
    pub module: &'a str,
    /// The secrets that the code may use. A trial gives it made-up placeholders.
    pub secrets: &'a [SecretName],
    /// Arguments that the tool's schema allows, or `None` if none could be made.
    pub arguments: Option<&'a Json>,
}

/// Checks code, and tries it without network.
pub trait CodeCheck: Send + Sync {
    /// Returns the problem of a handler, for the model that wrote it, or `None` if the handler can be kept.
    ///
    /// # Errors
    /// Fails if the code cannot be judged at all, for example if no VM starts.
    fn check<'a>(&'a self, trial: HandlerTrial<'a>) -> BoxFuture<'a, Result<Option<CodeProblem>>>;
}
