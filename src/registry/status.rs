//! A server as `servers()` reports it.

use serde::Serialize;

use crate::error::Error;
use crate::text::is_server_name;

/// A server of the config, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    pub state: ServerState,
    /// True where both stages are approved, as the server is configured now.
    pub approved: bool,
    pub enabled: bool,
    /// True where a person, or the agent's own code, has disabled it here: no model can enable it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled_by_person: bool,
    pub source: &'static str,
    /// Raw names of the approved tools.
    pub tools: Vec<String>,
    /// Approved tools that the server has changed or taken away since: calls of them fail.
    pub quarantined: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// Replaces a name that is not valid.
const NO_NAME: &str = "(a server whose name is not valid)";

impl ServerStatus {
    /// The status for a model: the name of an invalid entry may be any text, and an error may quote a server.
    #[must_use]
    pub fn for_model(&self) -> Self {
        let mut status = self.clone();
        if !is_server_name(&self.name) {
            NO_NAME.clone_into(&mut status.name);
        }
        if let Some(error) = &mut status.last_error {
            error.message.clone_from(&error.for_model);
        }
        status
    }
}

/// The state of a server, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// Its entry in the config has an error.
    Invalid,
    /// `disabled: true` in the config.
    Disabled,
    /// Nothing may run.
    Unapproved,
    /// Its command is approved, its tools are not yet.
    CommandApproved,
    /// Both stages are approved; there is no process.
    Idle,
    /// Its process is being started, or its address reached.
    Connecting,
    /// There is a live connection.
    Connected,
    /// The last attempt to connect failed.
    Error,
}

/// The last error of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    pub code: &'static str,
    pub message: String,
    /// The message for a model.
    #[serde(skip)]
    pub for_model: String,
}

impl From<&Error> for LastError {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), message: error.to_string(), for_model: error.for_model() }
    }
}
