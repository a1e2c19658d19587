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

/// In the place of a name that the config gives to no server.
const NO_NAME: &str = "(a server whose name is not valid)";

impl ServerStatus {
    /// The same as a model may read it: the name of an entry that is wrong may be any text, and what went wrong may be told in a server's
    /// own words.
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
    /// The same as a model may read it.
    #[serde(skip)]
    pub for_model: String,
}

impl From<&Error> for LastError {
    fn from(error: &Error) -> Self {
        Self { code: error.code(), message: error.to_string(), for_model: error.for_model() }
    }
}
