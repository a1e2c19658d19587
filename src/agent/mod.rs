//! Tools that an agent offers to its model, with their definitions, and the gateway as a plugin.
//!
//! A model may pass any arguments, and untrusted text may have influenced the model. Therefore nothing in this module approves a server,
//! each call passes the same checks as a call by agent code, and each answer is plain JSON within a budget of tokens.

mod advice;
mod arguments;
mod definitions;
mod manage;
mod options;
mod own_servers;
mod plugin;
mod proposed;
mod servers;
mod tools;
mod views;

pub use definitions::{Tool, ToolDefinition};
pub use options::{AgentOptions, ExecuteOptions, RunSetup};
pub use plugin::{Plugin, PluginManifest, PluginModule, PluginPart};
pub use tools::AgentTools;
pub(crate) use tools::MAX_CALLS;
