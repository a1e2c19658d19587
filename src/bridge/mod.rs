//! Offers MCP servers as host modules: a value of the guest becomes a tool call, and the tool's result becomes a value of the guest.
//!
//! Only this module depends on both the sandbox and MCP. A call arrives on the run's thread, its tool is looked up in the approved
//! manifest, it is sent within the run's deadline, and its result is converted and limited before it enters the guest.

mod arguments;
mod discovery;
mod modules;
mod parallel;
mod resources_and_prompts;
mod saved;
mod schemas;
mod server_calls;
mod shape;
mod warnings;

pub use arguments::tool_arguments;
pub(crate) use arguments::{check_sendable, inexact};
pub use discovery::{ToolFinder, ToolMatch, ToolQuery, ToolSearch};
pub(crate) use modules::guest_modules;
pub use modules::{CatalogEntry, MCP_MODULE, module_name, server_module};
pub use resources_and_prompts::{
    PromptEntry, ResourceEntry, ResourceOrPromptCall, ResourceOrPromptCaller, prompt_arguments, prompt_entries, resource_entries,
};
pub use schemas::{ArgumentChecks, OutputChecks, ToolSchemas};
pub use server_calls::{Checks, ServerCalls, ToolCall, ToolCaller};
pub(crate) use shape::tool_result;
pub use shape::{Shaped, ToolErrors, shape};
