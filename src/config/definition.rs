//! A server as the config defines it: still with its `${…}` placeholders, which are replaced when it is started.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// When a call asks a person first: `confirm` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confirm {
    Never,
    #[default]
    Writes,
    Always,
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
        working_directory: Option<String>,
        environment_file: Option<String>,
    },
    /// Streamable HTTP.
    Http { url: String, headers: Vec<(String, SecretString)> },
}

/// Which of a server's tools exist, by their raw names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// With a list, only these; an empty one allows nothing.
    pub allow: Option<Vec<String>>,
    /// Taken away from what is allowed.
    pub deny: Vec<String>,
}

impl ToolFilter {
    /// Whether the filter lets a tool through.
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
}

/// One server of the config.
#[derive(Debug, Clone)]
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
}
