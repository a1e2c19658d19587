//! The bridge between guests and MCP servers: offers the servers as host modules. Converts values of the guest to tool calls, and results
//! of tools to values for the guest.
//!
//! Only this module depends on both the sandbox and MCP. A call arrives on the run's thread. The tool is looked up in the approved
//! manifest, and the call is sent within the run's deadline. The result is converted, and its size is limited, before the guest gets it.

mod answer_form;
mod arguments;
mod discovery;
mod fetch;
mod large_redaction;
mod modules;
mod parallel;
mod resources_and_prompts;
mod saved;
mod schemas;
mod server_calls;
mod shape;
mod warnings;

pub use crate::catalog::module_name;
pub(crate) use answer_form::AnswerKind;
pub use arguments::tool_arguments;
pub(crate) use arguments::{check_sendable, inexact};
pub use discovery::{ToolFinder, ToolMatch, ToolQuery, ToolSearch};
pub use fetch::{FETCH_MODULE, FetchCalls};
pub(crate) use large_redaction::{CallerRedaction, LargeTurns};
pub(crate) use modules::guest_modules;
pub use modules::{CatalogEntry, MCP_MODULE, server_module};
pub use resources_and_prompts::{
    PromptEntry, ResourceEntry, ResourceOrPromptCall, ResourceOrPromptCaller, prompt_arguments, prompt_entries, resource_entries,
};
pub use schemas::{ArgumentChecks, OutputChecks, ToolSchemas};
pub use server_calls::{Checks, ServerCalls, ToolCall, ToolCaller};
pub(crate) use shape::tool_result;
pub use shape::{Shaped, ToolErrors, shape};
