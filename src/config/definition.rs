//! A server as the config defines it. It still contains its `${…}` placeholders, which are replaced when the server is started.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::filters::UriFilter;
use super::oauth::OAuthDefinition;
use super::pattern::ServerRef;
use super::source::ServerSource;
use super::template::Template;
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

/// Limits the concurrent calls of a server: `parallel` and `maxParallelCalls` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parallel {
    /// The gateway's limit `limits.maxParallelCalls` applies.
    #[default]
    AsLimited,
    AtMost(usize),
    /// One call at a time, in the order in which the code makes them.
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
        /// Names and values as the config contains them. Values may be secrets.
        environment: Vec<(String, SecretString)>,
        /// Variables that are `null` in the config. The child gets none of them, from any source.
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
}

/// Selects the server's tools, or its prompts, by their raw names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// If there is a list, only these names exist. An empty list allows nothing.
    pub allow: Option<Vec<String>>,
    /// Names that do not exist even if `allow` contains them.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Returns whether the filter lets a tool through.
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
    /// Who brought the server. It is part of the approval.
    pub source: ServerSource,
    pub transport: Transport,
    pub filter: ToolFilter,
    /// Overrides `limits.callTimeoutMs`.
    pub call_timeout_ms: Option<u64>,
    /// Overrides `limits.connectTimeoutMs`.
    pub connect_timeout_ms: Option<u64>,
    pub disabled: bool,
    pub confirm: Confirm,
    /// The approval covers the executable's content too.
    pub pin_executable: bool,
    /// The approval covers the values of the environment and the headers too.
    pub pin_values: bool,
    /// The connection is never closed to make room for another server's.
    pub pinned: bool,
    /// Overrides the gateway's `schemaViolations`.
    pub schema_violations: Option<SchemaViolations>,
    /// Overrides the gateway's `argumentChecks`.
    pub argument_checks: Option<ArgumentCheck>,
    pub parallel: Parallel,
    pub resource_filter: UriFilter,
    pub prompt_filter: ToolFilter,
    /// Permits `http://` to other machines than this one.
    pub allow_insecure_http: bool,
    /// The server asks people. While a caller that can answer makes a call, the connection serves only that caller.
    pub elicits: bool,
    /// Idle time after which the connection is closed. `None` keeps the connection open as long as the gateway.
    pub idle_timeout_ms: Option<u64>,
    /// Interval of the keep-alive pings. `None` sends no pings.
    pub keep_alive_ms: Option<u64>,
    /// Overrides `limits.maxCallTimeoutMs`.
    pub max_call_timeout_ms: Option<u64>,
    /// The protocol version to use. `None` negotiates the version.
    pub protocol_version: Option<ProtocolVersion>,
    /// Folders that the server receives when it asks for roots. If empty, the server receives an empty list.
    pub roots: Vec<String>,
    /// Default answers for this server's `${input:…}` placeholders, by the input's id. They apply if nobody answers.
    pub input_defaults: Vec<(String, SecretString)>,
    /// The questions of this server's `${input:…}` placeholders: the input's id and its `description`.
    pub input_descriptions: Vec<(String, String)>,
    /// Ids of the inputs that must not be shown while a person types them.
    pub secret_inputs: Vec<String>,
    /// Words in the text of a task that ask for the server: `keywords` in the config. Each is unique, as the config writes it.
    pub keywords: Vec<String>,
    /// Abilities of the server, for tasks that ask for it and for the policy of providers: `capabilities` in the config. Each is unique.
    pub capabilities: Vec<String>,
    /// Variables of this process that the server needs: `envRequired` of a provider's definition, always empty for an entry of the config. A
    /// server that lacks one is not ready.
    pub required_environment: Vec<String>,
    /// The words of a provider's definition about the server, or of the catalogue's. They are for people and decide nothing.
    pub description: Option<String>,
    pub origin: Origin,
}

impl ServerDefinition {
    /// Returns the name by which runs know the server: the registry's name without its mark.
    #[must_use]
    pub fn given_name(&self) -> &str {
        marked_name(&self.name).0
    }

    /// Returns the server as patterns of grants know it. The name of a server that a task brings has a mark behind it, which is not a part of it.
    #[must_use]
    pub fn as_granted(&self) -> ServerRef<'_> {
        ServerRef::of(&self.name, &self.source)
    }

    /// Returns the key under which approvals, tokens and facts of the server are kept: [`ServerSource::key`].
    #[must_use]
    pub fn key(&self) -> String {
        self.source.key(&self.name)
    }
}

/// The position of a server in its config, for problems that appear only when the server is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    file: String,
    field: String,
    /// Positions by the field's path below the server: `env.TOKEN`, `args[1]`.
    positions: BTreeMap<String, (usize, usize)>,
    /// The places of values that a profile sets, by the same paths.
    pub(super) elsewhere: BTreeMap<String, SettingPlace>,
}

impl Origin {
    /// Creates the origin of a server that has no config file, such as one that the agent provides. Errors contain `file` and `field`.
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

    pub(super) fn problem(&self, key: &str, problem: impl Into<String>) -> Problem {
        match self.elsewhere.get(key) {
            Some(place) if place.file == self.file => return Problem::new(&place.field, place.position, problem),
            // The entry is in another file, whose name stands before the problem.
            Some(place) => return Problem::new(Problem::new("", place.position, &place.field).in_file(&place.file), None, problem),
            None => {}
        }
        let position = self.positions.get(key).map(|&(line, column)| Position { line, column });
        Problem::new(format!("{}.{}", self.field, displayed(key)), position, problem)
    }

    pub(super) fn error(&self, problems: Vec<Problem>) -> Error {
        Error::ConfigInvalid { file: self.file.clone().into(), problems: problems.into() }
    }
}

/// A server whose entry has errors. It is listed and cannot run.
#[derive(Debug, Clone)]
pub struct InvalidServer {
    /// The name for display: cut to 64 characters, with marks in place of invisible characters. It never equals the name of a valid server.
    pub name: String,
    /// Who brought the server.
    pub source: ServerSource,
    /// `ERR_CONFIG_INVALID` with all problems of the entry.
    pub error: Error,
}

/// The definition of a value that a person is asked for: `${input:id}`.
#[derive(Debug, Clone)]
pub struct InputDefinition {
    pub id: String,
    pub description: Option<String>,
    /// `password` in the config. The value must not be shown while a person types it.
    pub secret: bool,
    /// The value that the question suggests.
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

/// Returns the ids of the inputs in one text, in their order.
pub(crate) fn inputs_of_text(text: &str) -> Vec<String> {
    Template::parse(text).map(|template| template.inputs().map(ToOwned::to_owned).collect()).unwrap_or_default()
}

/// Returns the ids of the inputs in a transport, each once.
pub(super) fn inputs_in(transport: &Transport) -> Vec<String> {
    let texts: Vec<&str> = match transport {
        Transport::Stdio { environment, .. } => environment.iter().map(|(_, value)| value.expose_secret()).collect(),
        Transport::Http { url, headers, oauth } => {
            let headers = headers.iter().map(|(_, value)| value.expose_secret());
            let oauth = oauth.iter().flat_map(|oauth| oauth.texts());
            [url.as_str()].into_iter().chain(headers).chain(oauth).collect()
        }
    };
    let mut ids: Vec<String> = Vec::new();
    for id in texts.into_iter().flat_map(inputs_of_text) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}
