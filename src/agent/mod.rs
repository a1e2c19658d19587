//! What an agent gives to its model: tools with their definitions, and the whole as one gate.
//!
//! A model's arguments are anything, and so is what it was talked into: nothing here approves, every call goes the way that agent code
//! goes, and every answer is plain JSON within a budget of tokens.

mod advice;
mod arguments;
mod definitions;
mod manage;
mod options;
mod plugin;
mod proposed;
mod servers;
mod tools;

pub use definitions::{Tool, ToolDefinition};
pub use options::{AgentOptions, RunSetup};
pub use plugin::{Plugin, PluginManifest, PluginModule, PluginPart};
pub use tools::AgentTools;
