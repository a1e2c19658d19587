//! Questions of a model's tools to the gateway, beside those of an agent's author.

use serde_json::Value as Json;

use super::events::Event;
use super::{Agent, Gateway, Look, Sandbox};
use crate::bridge::{ToolErrors, server_module};
use crate::error::Result;
use crate::limits::Limits;
use crate::trust::{ApprovalRequest, Gate, Standing, gate, manifest_digest};

/// A server whose two stages a person has approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedServer {
    pub name: String,
    /// Names that code imports.
    pub functions: Vec<String>,
    /// Number of functions that ask a person before each call.
    pub asking: usize,
    /// Digest of the approved manifest.
    pub digest: String,
}

impl Agent {
    /// Returns the TypeScript declarations of a module, or of one tool: `weather`, `weather.get_forecast`.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_MODULE`, `ERR_UNKNOWN_TOOL`, and as [`Agent::declarations`].
    pub fn describe(&self, what: &str, errors: ToolErrors) -> Result<String> {
        self.catalog(errors)?.describe(what).map_err(|error| self.core.redacted(error))
    }

    /// Returns all servers that are approved, now or when they were last looked at, enabled or not.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn approved_servers(&self, look: Look) -> Result<Vec<ApprovedServer>> {
        self.identity.check_open()?;
        let standings: Vec<_> =
            self.core.registry.servers().into_iter().map(|server| (self.core.standing_by(&server, look), server)).collect();
        self.core.asked_by(look);
        let mut approved = Vec::new();
        for (standing, server) in standings {
            let Standing::Full(manifest) = standing.map_err(|error| self.core.redacted(error))? else { continue };
            let asks = |name: &str| manifest.tool(name).is_some_and(|tool| gate(server.confirm, tool) != Gate::Open);
            let functions = server_module(&server.name, &manifest).functions;
            approved.push(ApprovedServer {
                asking: functions.iter().filter(|function| asks(&function.target)).count(),
                functions: functions.into_iter().map(|function| function.name).collect(),
                digest: manifest_digest(&manifest),
                name: server.name.clone(),
            });
        }
        Ok(approved)
    }

    /// Sends the agent's author a request for an approval, as an event.
    pub(crate) fn tell_proposed(&self, request: &ApprovalRequest) {
        match serde_json::to_value(request) {
            Ok(request) => self.core.events.send(&Event::ApprovalProposed { request }),
            Err(error) => tracing::error!(%error, "a request without a form"),
        }
    }

    /// Returns JSON as a model may read it: redacted, and without invisible characters.
    pub(crate) fn shown_to_model(&self, json: &Json) -> Json {
        self.core.redactor.readable_json(json, self.core.limits.max_description_chars)
    }

    /// Returns whether a sandbox is one of this agent's.
    pub(crate) fn owns(&self, sandbox: &Sandbox) -> bool {
        std::sync::Arc::ptr_eq(&self.identity, &sandbox.identity)
    }

    /// Returns whether this is the operator's own agent.
    pub(crate) fn is_operator(&self) -> bool {
        self.identity.is_operator()
    }

    /// Returns the gateway, for the part of a model's tools that the operator has to decide.
    pub(crate) fn gateway(&self) -> Gateway {
        Gateway::of(&self.core)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.core.limits
    }
}

impl Sandbox {
    /// Returns the same as [`Agent::describe`], with the agent's own modules.
    ///
    /// # Errors
    /// As [`Agent::describe`].
    pub fn describe(&self, what: &str) -> Result<String> {
        self.catalog(None)?.describe(what).map_err(|error| self.core.redacted(error))
    }

    /// The form in which a failed call shows in code, where a run names no other.
    #[must_use]
    pub fn tool_errors(&self) -> ToolErrors {
        self.tool_errors
    }
}
