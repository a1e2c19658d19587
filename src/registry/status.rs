//! The status of a server, as `servers()` returns it.

use serde::Serialize;

use crate::config::{ServerSource, SourceKind};
use crate::error::Error;
use crate::text::is_registry_name;

/// The current status of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    pub state: ServerState,
    /// True if the command and the tools are approved for the server's current config.
    pub approved: bool,
    pub enabled: bool,
    /// True if a person or the agent's own code has disabled the server in this gateway. Then a model cannot enable it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled_by_person: bool,
    /// The name that an agent gave to the server that it added. It may be any text, and does not prove what the server is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The name of the server that this variant is based on. The code of an agent that has the variant uses this name for the variant.
    /// Absent if the server is not a variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<String>,
    /// The description of the server from a provider or the catalogue, in one line. It is not part of any approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The source that the server comes from.
    pub source: ServerSource,
    /// Other sources with a server of the same name. Those servers are not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hides: Vec<ServerSource>,
    /// Variables that the server needs but that are not set. The server cannot be started without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Raw names of the approved tools.
    pub tools: Vec<String>,
    /// Approved tools that the server has since changed or removed. Calls of these tools fail.
    pub quarantined: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// The text that a model gets in place of a name that is not valid.
const NO_NAME: &str = "(a server whose name is not valid)";

impl ServerStatus {
    /// Returns whether an agent has added or changed the server, and a person has to decide about its command or its tools.
    #[must_use]
    pub fn awaits_decision(&self) -> bool {
        let may_be_used = !matches!(self.state, ServerState::Disabled | ServerState::Invalid);
        !self.approved && self.source.kind == SourceKind::Agent && may_be_used
    }

    /// Returns the status for a model. A variant of a server has the name that code imports. Texts that a person's approval does not cover
    /// are removed. The name of an invalid entry is replaced, because it may be any text. The error message is replaced, because it may
    /// quote a server.
    #[must_use]
    pub fn for_model(&self) -> Self {
        let mut status = self.clone();
        (status.display_name, status.description) = (None, None);
        match self.variant_of.clone() {
            _ if !is_registry_name(&self.name) => NO_NAME.clone_into(&mut status.name),
            Some(server) => (status.name, status.variant_of) = (server, None),
            None => {}
        }
        if !self.approved {
            // The names of the variables come from an entry that nobody has approved.
            status.missing.clear();
        }
        if let Some(error) = &mut status.last_error {
            error.message.clone_from(&error.for_model);
        }
        status
    }
}

/// The state of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// The server's entry in the config has an error.
    Invalid,
    /// The config contains `disabled: true`.
    Disabled,
    /// An agent has added or changed the server, and nobody has decided about it yet. The server may not be started.
    PendingApproval,
    /// A variable that the server needs is not set: [`ServerStatus::missing`]. The server can be approved, but not started.
    NotReady,
    /// The server's command is not approved, so the server may not be started.
    Unapproved,
    /// The server's command is approved, but its tools are not.
    CommandApproved,
    /// The command and the tools are approved. The server has no process and no connection.
    Idle,
    /// The gateway is starting the server's process or connecting to its address.
    Connecting,
    /// The server has a live connection.
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
        let log = error.server_with_log().map(|server| format!(". Its log has more: logs {server}")).unwrap_or_default();
        Self { code: error.code(), message: error.summary() + &log, for_model: error.for_model() }
    }
}
