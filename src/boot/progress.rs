//! The steps of the pipeline, for a display.

use serde::Serialize;

use super::pages::PageKind;

/// A step of the pipeline, with counts and times. Times are in milliseconds. URLs have no query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Progress {
    /// Pages are read.
    Reading { pages: usize },
    /// A page was read.
    PageRead { url: String, kind: PageKind, chars: usize, ms: u64 },
    /// A page has not changed since the tools in the cache were made.
    PageUnchanged { url: String, ms: u64 },
    /// A problem does not stop the pipeline, but a person should know about it.
    Warning { text: String },
    /// Parts of a page were left out, because the pages are too long.
    PageCut { url: String, chars: usize, kept_chars: usize },
    /// The hosts that the tools may reach.
    Hosts { hosts: Vec<String>, left_out: usize },
    /// The cache contains the tools, so no model is asked.
    FromCache { tools: usize, created_at_ms: u64 },
    /// A model is asked for the plan.
    Planning { attempt: u32, request_bytes: usize },
    /// The model has answered the request for the code of `tool`, or for the plan if `tool` is `None`. The answer has not been checked yet.
    Answered {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        attempt: u32,
        answer_bytes: usize,
        ms: u64,
    },
    /// The model has returned a plan that can be used.
    Planned { tools: usize, answer_bytes: usize, ms: u64 },
    /// The plan cannot be used, and the model is asked again.
    PlanRefused { problems: Vec<String> },
    /// Code is written for the tools.
    Compiling { tools: usize },
    /// A model is asked for the code of a tool.
    Writing { tool: String, attempt: u32, request_bytes: usize },
    /// The code of a tool cannot be used, and the model is asked again.
    CodeRefused { tool: String, problems: Vec<String> },
    /// The code of a tool has been written. `done` is the number of finished tools, and `tools` the number of all tools.
    Written { tool: String, done: usize, tools: usize, lines: usize, ms: u64 },
    /// The tools are in the cache.
    Stored,
}

/// Receives the steps. It is called often, from several tasks, and must not block.
pub type ProgressListener = dyn Fn(Progress) + Send + Sync;

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// Returns the milliseconds since 1970.
    fn now_ms(&self) -> u64;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
