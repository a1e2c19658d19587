//! A server is a host module: guest value → tool call → guest value.
//!
//! This room alone knows both the sandbox and MCP. A call comes off the run's thread, finds its tool in the approved
//! manifest, goes out under the run's deadline, and its result is shaped and capped before it enters the guest.

mod arguments;
mod discovery;
mod modules;
mod offers;
mod parallel;
mod saved;
mod schemas;
mod server_calls;
mod shape;
mod warnings;

pub use arguments::tool_arguments;
pub(crate) use arguments::{check_sendable, inexact};
pub use discovery::{Finding, ToolMatch, ToolQuery, ToolSearch};
pub(crate) use modules::guest_modules;
pub use modules::{CatalogEntry, MCP_MODULE, module_name, server_module};
pub use offers::{OfferCall, OfferCaller, PromptEntry, ResourceEntry, prompt_arguments, prompt_entries, resource_entries};
pub use schemas::{ArgumentChecks, OutputChecks, ToolSchemas};
pub use server_calls::{Checks, ServerCalls, ToolCall, ToolCaller};
pub(crate) use shape::tool_result;
pub use shape::{Shaped, ToolErrors, shape};
