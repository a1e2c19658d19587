//! The status of servers that cannot be used.

use super::Agent;
use crate::config::InvalidServer;
use crate::registry::{LastError, ServerState, ServerStatus};

impl Agent {
    /// Returns the status of a server whose entry has an error.
    pub(super) fn invalid_status(&self, server: &InvalidServer) -> ServerStatus {
        let error = self.core.redacted(server.error.clone());
        ServerStatus {
            name: server.name.clone(),
            state: ServerState::Invalid,
            approved: false,
            enabled: false,
            disabled_by_person: false,
            source: server.source.clone(),
            hides: self.core.registry.hidden_by(&server.name),
            missing: Vec::new(),
            tools: Vec::new(),
            quarantined: Vec::new(),
            last_error: Some(LastError::from(&error)),
        }
    }
}
