//! Reads the operator's config. The result is a list of [`ServerDefinition`]s, or errors that name file, line, column and field.
//!
//! The module `tree` parses the text and keeps the position of each value. The modules `parse`, `server`, `inputs` and `rules` read servers
//! and inputs from the tree, and report all problems of each server and input. Placeholders are parsed at the same time ([`Template`]), but
//! replaced only when a server is started ([`resolve_command`], [`resolve_http`]).

mod address;
mod as_written;
mod boxes;
mod definition;
mod env_file;
mod filters;
mod generated;
mod grants;
mod inputs;
mod inserted_value;
mod limits;
mod lists;
mod loaders;
mod oauth;
mod parse;
mod pattern;
mod profiles;
mod program_files;
mod programs;
mod providers;
mod ranking;
mod readiness;
mod redirectors;
mod rules;
mod sections;
mod server;
mod source;
mod substitute;
mod template;
mod tree;
mod uri_forms;
mod user_folders;
mod variant;
mod workspace;
mod yaml;

#[cfg(test)]
mod env_file_tests;
#[cfg(test)]
mod oauth_tests;
#[cfg(test)]
mod properties;

pub use address::Address;
pub(crate) use address::{masked_path, shown_placeholder, shown_url};
pub(crate) use as_written::out_of_force;
pub(crate) use boxes::shipped_box;
pub use boxes::{BoxBase, BoxDefinition, BoxHost, BoxNetwork, BoxSettings};
pub use definition::{
    ArgumentCheck, Confirm, InputDefinition, InvalidServer, Origin, Parallel, ProtocolVersion, SchemaViolations, ServerDefinition,
    ToolFilter, Transport, inputs_of,
};
pub(crate) use definition::{inputs_of_text, variables_of_text};
pub use env_file::{MAX_ENV_FILE_BYTES, parse_env_file, read_env_file};
pub use filters::{UriFilter, UriMatcher, covers};
pub use generated::{CodeProblem, GeneratedSecret, GeneratedTool, GeneratedTools};
pub use grants::{
    AgentDefinition, DefaultGrant, GrantSettings, MAX_FETCH_HOSTS, MAX_PATTERNS, ToolboxDefinition, check_label, parse_patterns,
};
pub use inserted_value::{InsertedValue, Source};
pub use loaders::loads_code;
pub(crate) use loaders::loads_code_by_its_start;
pub use oauth::{Grant, OAuthDefinition, OAuthSettings, SigningAlgorithm};
pub use parse::{Config, parse_object, parse_text};
pub(crate) use pattern::matches_name;
pub use pattern::{Item, Pattern, ServerRef};
pub use profiles::{Overrides, ProfileDefinition, least};
pub use program_files::is_program_file;
pub use programs::{BaseFile, BaseLayer, Program, base_layer};
pub(crate) use programs::{
    ProgramServer, config_paths, converted as converted_entry, inputs_in, inputs_of_entry, renamed_inputs, servers_in, starts_gateway,
    valid_name,
};
pub use providers::{ProviderPatterns, ProviderPolicy, ProviderSettings};
pub use ranking::SearchRanking;
pub use readiness::missing_variables;
pub use redirectors::redirects_traffic;
pub use rules::is_package_name;
pub(crate) use sections::{SectionPath, section_for_new, servers_of};
pub(crate) use server::{URL_KEYS, is_setting};
pub use source::{ServerSource, SourceKind, server_of_key, source_of_key};
pub use substitute::{
    BoxPaths, ResolvedCommand, ResolvedHttp, Surroundings, resolve_box_paths, resolve_command, resolve_http, resolve_roots,
};
pub(crate) use substitute::{
    INPUT_ADVICE, MAX_KNOWN_BYTES, TOO_LONG_PATH, environment_file, known_box_paths, led_out_problem, with_known_values,
};
pub use template::{Part, Placeholder, Template};
pub(crate) use user_folders::{folder_of_variable, user_home};
pub use variant::{Changes, ProfileConflict, SetValue, Setting, Variant, variants_of};
pub use workspace::{Locality, NEUTRAL_FOLDER};
pub(crate) use workspace::{is_of_workspace, mentions_workspace};
pub use yaml::is_yaml;
