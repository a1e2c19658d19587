//! Describes the tools, resources and prompts of servers, for agent code and for a model.

mod declarations;
mod direct_names;
mod direct_tools;
mod hints;
mod icons;
mod known_declarations;
mod manifest;
mod module_names;
mod names;
mod offered;
mod resources_and_prompts;
mod search;
mod shapes;
mod system_message;
mod tokens;
mod type_names;
mod uri_template;
mod view;
mod wording;

pub use declarations::{
    AgentFunction, DeclarationStyle, Failures, declare_agent_module, declare_mcp, declare_server, declare_tool, signature,
};
pub use direct_names::{DirectNames, MAX_DIRECT_NAME_CHARS, NameStyle, RESERVED_NAMES, TakenNames, source};
pub use direct_tools::DirectTool;
pub(crate) use direct_tools::{drop_reserved_keys, drop_reserved_keys_within};
pub use hints::{AgentModuleInfo, FunctionInfo, ModuleInfo, ModuleKind, ModuleSummary, ParameterInfo};
pub(crate) use icons::{enclosed_icons, kept_icons};
pub use known_declarations::KnownDeclarations;
pub use manifest::{Kept, Manifest, Readable, Tool, ToolIndex};
pub use module_names::module_name;
pub(crate) use module_names::{MODULE_PREFIX, module_specifier};
pub use names::{assign_identifiers, is_identifier};
pub use offered::{
    MAX_SHOWN_META_CHARS, MAX_SHOWN_NAME_CHARS, MAX_SHOWN_URI_CHARS, Unshown, shown_literal_chars, unshown_prompt, unshown_tool,
    unshown_uri,
};
pub use resources_and_prompts::{FieldsForReads, HostFields, Prompt, PromptArgument, Resource, ResourceTemplate};
pub use search::{Hit, Meaning, SearchIndex, SearchOptions, ToolText, has_words};
pub use shapes::{Learnt, Sample, SeenResults, SeenTool, Shape, is_shown_key};
pub use tokens::estimate_tokens;
pub use uri_template::{TemplateMatcher, UriTemplate, literal_start, readings};
pub use view::{Catalog, ServerOffer, ToolInfo, ToolLine};
pub use wording::Wording;
