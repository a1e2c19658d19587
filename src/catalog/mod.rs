//! Tools as a guest and a model see them, and what else a server offers.

mod declarations;
mod manifest;
mod names;
mod offers;
mod search;
mod uri_template;
mod wording;

pub use declarations::{
    AgentFunction, DeclarationStyle, Failures, declare_agent_module, declare_mcp, declare_server, declare_tool, signature,
};
pub use manifest::{Manifest, Readable, Tool};
pub use names::{assign_identifiers, is_identifier};
pub use offers::{Prompt, PromptArgument, Resource, ResourceTemplate};
pub use search::{Hit, SearchIndex, SearchOptions, has_words};
pub use uri_template::{UriTemplate, readings};
pub use wording::Wording;
