//! A server as the config defines it. It still contains its `${…}` placeholders, which are replaced when the server is started.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::boxes::BoxDefinition;
use super::filters::UriFilter;
use super::generated::GeneratedTools;
use super::oauth::OAuthDefinition;
use super::pattern::ServerRef;
use super::source::{ServerSource, SourceKind};
use super::template::{Placeholder, Template};
use super::variant::SettingPlace;
use crate::error::Error;
use crate::text::{Position, Problem, displayed, marked_name};

/// Decides which calls need a person's permission: `confirm` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confirm {
    Never,
    #[default]
    Writes,
    Always,
}

/// Decides how to treat a result that breaks its tool's own outputSchema: `schemaViolations` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaViolations {
    /// The result is returned with a warning.
    #[default]
    Warn,
    /// The call fails with `ERR_OUTPUT_SCHEMA`.
    Error,
}

/// Decides how to treat a call whose arguments break the tool's inputSchema: `argumentChecks` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentCheck {
    /// The call is not sent, and fails with `ERR_INVALID_ARGUMENTS`.
    #[default]
    Error,
    /// The call is sent, with a warning.
    Warn,
    /// The call is sent without a check.
    Off,
}

impl ArgumentCheck {
    /// Returns the word for this value in the config.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::config::ArgumentCheck::default().as_str(), "error");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Off => "off",
        }
    }
}

/// Limits how many calls of a server may run at the same time: `parallel` and `maxParallelCalls` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parallel {
    /// The gateway's limit `limits.maxParallelCalls` applies.
    #[default]
    AsLimited,
    AtMost(usize),
    /// Calls run one at a time, in the order in which the code makes them.
    No,
}

impl Parallel {
    /// Returns the maximum number of concurrent calls. `limit` is the gateway's limit.
    ///
    /// ```
    /// use hyperlight_mcp::config::Parallel;
    /// assert_eq!([Parallel::AsLimited, Parallel::AtMost(4), Parallel::No].map(|parallel| parallel.at_most(128)), [128, 4, 1]);
    /// ```
    #[must_use]
    pub fn at_most(self, limit: usize) -> usize {
        match self {
            Self::AsLimited => limit,
            Self::AtMost(number) => number,
            Self::No => 1,
        }
    }
}

/// A version of the MCP protocol: `protocolVersion` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProtocolVersion {
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

impl ProtocolVersion {
    /// Returns the version's text in MCP messages.
    ///
    /// ```
    /// assert_eq!(hyperlight_mcp::config::ProtocolVersion::V2025_11_25.as_str(), "2025-11-25");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }
}

/// The transport over which a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A child process that exchanges messages on its standard input and output.
    Stdio {
        command: String,
        arguments: Vec<String>,
        /// Names and values as they are in the config. Values may be secrets.
        environment: Vec<(String, SecretString)>,
        /// Variables that are `null` in the config. The child process gets none of them, whatever other source sets them.
        removed_environment: Vec<String>,
        working_directory: Option<String>,
        environment_file: Option<String>,
    },
    /// Streamable HTTP.
    Http {
        url: String,
        headers: Vec<(String, SecretString)>,
        /// The settings for access tokens, if the config has any.
        oauth: Option<Box<OAuthDefinition>>,
    },
    /// Tools that were made from a prompt. They run in micro-VMs of this process.
    Generated(Arc<GeneratedTools>),
}

/// Selects the server's tools, or its prompts, by their raw names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// The only names that exist. `None` admits all names, and an empty list admits none.
    pub allow: Option<Vec<String>>,
    /// Names that are hidden even if `allow` contains them.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Returns whether the filter admits a tool.
    ///
    /// ```
    /// use hyperlight_mcp::config::ToolFilter;
    /// let filter = ToolFilter { allow: Some(vec!["read".into(), "write".into()]), deny: vec!["write".into()] };
    /// assert!(filter.admits("read") && !filter.admits("write") && !filter.admits("other"));
    /// ```
    #[must_use]
    pub fn admits(&self, tool: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|allow| allow.iter().any(|name| name == tool));
        allowed && !self.deny.iter().any(|name| name == tool)
    }

    /// Returns whether the filter admits everything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

/// One server of the config.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent setting of the config")]
pub struct ServerDefinition {
    pub name: String,
    /// The source that added the server. It is part of the approval.
    pub source: ServerSource,
    pub transport: Transport,
    pub filter: ToolFilter,
    /// Overrides `limits.callTimeoutMs`.
    pub call_timeout_ms: Option<u64>,
    /// Overrides `limits.connectTimeoutMs`.
    pub connect_timeout_ms: Option<u64>,
    pub disabled: bool,
    pub confirm: Confirm,
    /// Patterns of the names of tools that only read, although their annotations do not say so. `*` means any text.
    pub reads: Vec<String>,
    /// True if the approval also covers the content of the executable.
    pub pin_executable: bool,
    /// True if the approval also covers the values of the environment and the headers.
    pub pin_values: bool,
    /// True if the connection is never closed to make room for the connection of another server.
    pub pinned: bool,
    /// Overrides the gateway's `schemaViolations`.
    pub schema_violations: Option<SchemaViolations>,
    /// Overrides the gateway's `argumentChecks`.
    pub argument_checks: Option<ArgumentCheck>,
    pub parallel: Parallel,
    pub resource_filter: UriFilter,
    pub prompt_filter: ToolFilter,
    /// True if `http://` to machines other than this one is permitted.
    pub allow_insecure_http: bool,
    /// True if the server asks questions to people. During a call of a caller that can answer, the connection serves only that caller.
    pub elicits: bool,
    /// Idle time in milliseconds after which the connection is closed. `None` keeps the connection open as long as the gateway.
    pub idle_timeout_ms: Option<u64>,
    /// Interval of the keep-alive pings in milliseconds. `None` sends no pings.
    pub keep_alive_ms: Option<u64>,
    /// Overrides `limits.maxCallTimeoutMs`.
    pub max_call_timeout_ms: Option<u64>,
    /// The protocol version to use. `None` negotiates the version with the server.
    pub protocol_version: Option<ProtocolVersion>,
    /// Files that the server's process may read and write, and hosts that it may reach: `box` in the config. `None` for a server that is
    /// not a process.
    pub in_box: Option<BoxDefinition>,
    /// Folders that the server receives when it asks for roots. If empty, the server receives an empty list.
    pub roots: Vec<String>,
    /// Default answers for this server's `${input:…}` placeholders, by the input's id. A default applies if nobody answers.
    pub input_defaults: Vec<(String, SecretString)>,
    /// The questions of this server's `${input:…}` placeholders: the input's id and its `description`.
    pub input_descriptions: Vec<(String, String)>,
    /// Ids of the inputs that must not be shown while a person types them.
    pub secret_inputs: Vec<String>,
    /// Words that select the server if they are in the text of a task: `keywords` in the config. Each word is unique, and spelled as in the
    /// config.
    pub keywords: Vec<String>,
    /// Abilities of the server: `capabilities` in the config. A task can request a server by them, and the policy of providers checks them.
    /// Each ability is unique.
    pub capabilities: Vec<String>,
    /// Variables of this process that the server needs: `envRequired` in a provider's definition. Always empty for an entry of the config.
    /// If one of the variables is not set, the server is not ready.
    pub required_environment: Vec<String>,
    /// The description of the server from a provider's definition or from the catalogue. It is for people and decides nothing.
    pub description: Option<String>,
    pub origin: Origin,
}

impl ServerDefinition {
    /// Returns the name by which runs know the server: the name in the registry without its mark (the suffix that distinguishes variants
    /// and servers of tasks).
    #[must_use]
    pub fn given_name(&self) -> &str {
        marked_name(&self.name).0
    }

    /// Returns the server in the form that patterns of grants use. Patterns match its name without the part from `@` on, which
    /// distinguishes variants and servers of tasks.
    #[must_use]
    pub fn as_granted(&self) -> ServerRef<'_> {
        ServerRef::of(&self.name, &self.source)
    }

    /// Returns the key under which approvals, tokens and other data of the server are stored: [`ServerSource::key`].
    #[must_use]
    pub fn key(&self) -> String {
        self.source.key(&self.name)
    }
}

/// The position of a server in its config. Needed for problems that are found only when the server is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    file: String,
    field: String,
    /// Positions of the fields, by their paths below the server: `env.TOKEN`, `args[1]`.
    positions: BTreeMap<String, (usize, usize)>,
    /// The places of values that a profile sets. The keys are paths below the server, as in `positions`.
    pub(super) elsewhere: BTreeMap<String, SettingPlace>,
}

impl Origin {
    /// Creates the origin of a server that has no config file, for example one that the agent provides. Errors contain `file` and `field`.
    ///
    /// ```
    /// let origin = hyperlight_mcp::config::Origin::new("config", "mcpServers.weather");
    /// assert_eq!(origin.field(), "mcpServers.weather");
    /// ```
    #[must_use]
    pub fn new(file: impl Into<String>, field: impl Into<String>) -> Self {
        Self { file: file.into(), field: field.into(), ..Self::default() }
    }

    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the server's path in its config.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    pub(super) fn place(&mut self, key: &str, position: Option<Position>) {
        if let Some(position) = position {
            self.positions.insert(key.to_owned(), (position.line, position.column));
        }
    }

    pub(crate) fn problem(&self, key: &str, problem: impl Into<String>) -> Problem {
        match self.elsewhere.get(key) {
            Some(place) if place.file == self.file => return Problem::new(&place.field, place.position, problem),
            // The profile is in another file, whose name is written before the problem.
            Some(place) => return Problem::new(Problem::new("", place.position, &place.field).in_file(&place.file), None, problem),
            None => {}
        }
        let position = self.positions.get(key).map(|&(line, column)| Position { line, column });
        Problem::new(format!("{}.{}", self.field, displayed(key)), position, problem)
    }

    pub(crate) fn error(&self, problems: Vec<Problem>) -> Error {
        Error::ConfigInvalid { file: self.file.clone().into(), problems: problems.into() }
    }
}

/// A server whose entry has errors. It is listed, but cannot run.
#[derive(Debug, Clone)]
pub struct InvalidServer {
    /// The name for display: cut to 64 characters, with marks in place of invisible characters. It never equals the name of a valid server.
    pub name: String,
    /// The source that added the server.
    pub source: ServerSource,
    /// `ERR_CONFIG_INVALID` with all problems of the entry.
    pub error: Error,
    /// The server without a box, if the entry has only one problem: the server's program cannot be in a box. If the server comes from
    /// another source than the config, the operator can set `"off"` for it in `boxes`.
    pub without_box: Option<Arc<ServerDefinition>>,
    /// The server that the entry names, as far as it can be read. Nothing may start it: it only says which files belong to the entry.
    pub as_written: Option<Arc<ServerDefinition>>,
}

/// The definition of a value that a person is asked for: `${input:id}`.
#[derive(Debug, Clone)]
pub struct InputDefinition {
    pub id: String,
    pub description: Option<String>,
    /// `password` in the config. The value must not be shown while a person types it.
    pub secret: bool,
    /// The default answer that the question suggests.
    pub default: Option<SecretString>,
}

/// Returns the ids of the inputs that a server needs when it is started. Each id appears once, in the order of the config.
///
/// ```
/// use hyperlight_mcp::config::{inputs_of, parse_text};
/// let text = r#"{
///     "inputs": [{ "type": "promptString", "id": "token", "description": "The API's token", "password": true }],
///     "servers": { "a": { "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer ${input:token}" } } }
/// }"#;
/// let config = parse_text(text, "mcp.json", 20).unwrap();
/// assert_eq!(inputs_of(&config.servers[0]), ["token"]);
/// assert!(config.inputs[0].secret);
/// ```
#[must_use]
pub fn inputs_of(server: &ServerDefinition) -> Vec<String> {
    inputs_in(&server.transport)
}

impl ServerDefinition {
    /// Returns whether the server comes from the config of another program.
    pub(crate) fn is_of_base(&self) -> bool {
        self.source.kind == SourceKind::Config && self.source.name.is_some()
    }
}

/// Returns the ids of the inputs in one text, in their order.
pub(crate) fn inputs_of_text(text: &str) -> Vec<String> {
    Template::parse(text).map(|template| template.inputs().map(ToOwned::to_owned).collect()).unwrap_or_default()
}

/// Returns the names of the variables in one text, in their order.
pub(crate) fn variables_of_text(text: &str) -> Vec<String> {
    let variable = |placeholder| if let Placeholder::Variable { name, .. } = placeholder { Some(name.to_owned()) } else { None };
    Template::lenient(text).placeholders().filter_map(variable).collect()
}

/// Returns the ids of the inputs in a transport. Each id appears once.
pub(super) fn inputs_in(transport: &Transport) -> Vec<String> {
    let texts: Vec<&str> = match transport {
        Transport::Stdio { environment, .. } => environment.iter().map(|(_, value)| value.expose_secret()).collect(),
        Transport::Http { url, headers, oauth } => {
            let headers = headers.iter().map(|(_, value)| value.expose_secret());
            let oauth = oauth.iter().flat_map(|oauth| oauth.texts());
            [url.as_str()].into_iter().chain(headers).chain(oauth).collect()
        }
        Transport::Generated(_) => Vec::new(),
    };
    let mut seen = HashSet::new();
    texts.into_iter().flat_map(inputs_of_text).filter(|id| seen.insert(id.clone())).collect()
}
