//! A server as `servers()` reports it.

use serde::Serialize;

use crate::error::Error;

/// A server of the config, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    pub state: ServerState,
    /// Both stages, as the server is configured now.
    pub approved: bool,
    pub enabled: bool,
    /// A person, or the agent's own code, has disabled it here: no model can enable it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled_by_person: bool,
    pub source: &'static str,
    /// Raw names of the approved tools.
    pub tools: Vec<String>,
    /// Those of them that the server has changed or taken away since: calls of them fail.
    pub quarantined: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// What a person would say of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// Its entry in the config has an error.
    Invalid,
    /// `disabled: true` in the config.
    Disabled,
    /// Nothing may run.
    Unapproved,
    /// The command is approved, its tools are not.
    CommandApproved,
    /// Both stages are; there is no process.
    Idle,
    /// Its process is being started, or its address reached.
    Connecting,
    /// There is a live connection.
    Connected,
    /// The last attempt to connect failed.
    Error,
}

/// The last thing that went wrong with a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    pub code: &'static str,
    pub message: String,
}

impl From<&Error> for LastError {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), message: error.to_string() }
    }
}
