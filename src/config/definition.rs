//! A server as the config defines it: still with its `${…}` placeholders, which are replaced when it is started.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::filters::UriFilter;
use super::oauth::OAuthDefinition;
use super::template::Template;
use crate::error::Error;
use crate::text::{Position, Problem, displayed};

/// When a call asks a person first: `confirm` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confirm {
    Never,
    #[default]
    Writes,
    Always,
}

/// What becomes of a result that breaks its tool's own outputSchema: `schemaViolations` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaViolations {
    /// It is returned, with a warning.
    #[default]
    Warn,
    /// It is refused: `ERR_OUTPUT_SCHEMA`.
    Error,
}

/// What becomes of a call whose arguments break the tool's inputSchema: `argumentChecks` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentCheck {
    /// It is not sent: `ERR_INVALID_ARGUMENTS`.
    #[default]
    Error,
    /// It is sent, with a warning.
    Warn,
    /// It is sent: nothing is looked at.
    Off,
}

impl ArgumentCheck {
    /// As it is written in the config.
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

/// How many calls of a server may be under way at once: `parallel` and `maxParallelCalls` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parallel {
    /// As many as `limits.maxParallelCalls` says.
    #[default]
    AsLimited,
    AtMost(usize),
    /// One at a time, in the order of the code that makes them.
    No,
}

impl Parallel {
    /// How many, where the gateway's limit is this one.
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

/// A version of the protocol: `protocolVersion` in the config.
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
    /// As it is written on the wire.
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

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A child process that speaks on its standard input and output.
    Stdio {
        command: String,
        arguments: Vec<String>,
        /// Names and values as the config writes them. Values may be secrets.
        environment: Vec<(String, SecretString)>,
        /// Written as `null`: the child gets none of these, wherever they would come from.
        removed_environment: Vec<String>,
        working_directory: Option<String>,
        environment_file: Option<String>,
    },
    /// Streamable HTTP.
    Http {
        url: String,
        headers: Vec<(String, SecretString)>,
        /// How tokens are got, where the config says so.
        oauth: Option<Box<OAuthDefinition>>,
    },
}

/// Which of a server's tools, or prompts, exist, by their raw names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// With a list, only these; an empty one allows nothing.
    pub allow: Option<Vec<String>>,
    /// Taken away from what is allowed.
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

    /// Returns whether it lets everything through.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

/// One server of the config.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "they are the config's own, and no states of one thing")]
pub struct ServerDefinition {
    pub name: String,
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
    /// Its connection is never given up to make room for another server's.
    pub pinned: bool,
    /// Overrides the gateway's `schemaViolations`.
    pub schema_violations: Option<SchemaViolations>,
    /// Overrides the gateway's `argumentChecks`.
    pub argument_checks: Option<ArgumentCheck>,
    pub parallel: Parallel,
    pub resource_filter: UriFilter,
    pub prompt_filter: ToolFilter,
    /// `http://` to more than this machine.
    pub allow_insecure_http: bool,
    /// It asks people: whoever can answer has the connection to itself while it calls.
    pub elicits: bool,
    /// After this long without a call its connection is closed. Missing: it stays as long as the gateway.
    pub idle_timeout_ms: Option<u64>,
    /// How often it is asked whether it is still there. Missing: never.
    pub keep_alive_ms: Option<u64>,
    /// Overrides `limits.maxCallTimeoutMs`.
    pub max_call_timeout_ms: Option<u64>,
    /// Missing: it is negotiated.
    pub protocol_version: Option<ProtocolVersion>,
    /// Folders that the server is told of when it asks for roots. None: it is told that there are no such.
    pub roots: Vec<String>,
    /// What stands in for the answer to an `${input:…}` of this server that nobody gives, by the input's id.
    pub input_defaults: Vec<(String, SecretString)>,
    /// Ids of those of its inputs that are not to be shown while they are typed.
    pub secret_inputs: Vec<String>,
    pub origin: Origin,
}

/// Where a server stands in its config, for problems that come up only when it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    file: String,
    field: String,
    /// By field below the server: `env.TOKEN`, `args[1]`.
    positions: BTreeMap<String, (usize, usize)>,
}

impl Origin {
    /// The origin of a server that no file has, such as one that the agent gives: `file` and `field` name it in errors.
    ///
    /// ```
    /// let origin = hyperlight_mcp::config::Origin::new("config", "mcpServers.weather");
    /// assert_eq!(origin.field(), "mcpServers.weather");
    /// ```
    #[must_use]
    pub fn new(file: impl Into<String>, field: impl Into<String>) -> Self {
        Self { file: file.into(), field: field.into(), positions: BTreeMap::new() }
    }

    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The server's own path in its config.
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
        let position = self.positions.get(key).map(|&(line, column)| Position { line, column });
        Problem::new(format!("{}.{}", self.field, displayed(key)), position, problem)
    }

    pub(super) fn error(&self, problems: Vec<Problem>) -> Error {
        Error::ConfigInvalid { file: self.file.clone().into(), problems: problems.into() }
    }
}

/// A server whose entry is wrong: it is listed, and cannot run.
#[derive(Debug, Clone)]
pub struct InvalidServer {
    /// For display: cut to 64 characters, with marks for what cannot be shown. Never the name of a valid server.
    pub name: String,
    /// `ERR_CONFIG_INVALID` with all that is wrong with it.
    pub error: Error,
}

/// A value that a person is asked for: `${input:id}`.
#[derive(Debug, Clone)]
pub struct InputDefinition {
    pub id: String,
    pub description: Option<String>,
    /// `password` in the config: not to be shown while it is typed.
    pub secret: bool,
    /// What the question starts with.
    pub default: Option<SecretString>,
}

/// The inputs that a server needs when it is started: each id once, in the order of the config.
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

/// The inputs in one text, in their order.
pub(crate) fn inputs_of_text(text: &str) -> Vec<String> {
    Template::parse(text).map(|template| template.inputs().map(ToOwned::to_owned).collect()).unwrap_or_default()
}

/// The same, of a transport alone.
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
