//! Methods of the gateway for the tools of a model.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::availability::Viewer;
use super::events::Event;
use super::{Agent, ApprovalRead, ConnectionReport, Gateway, Reconnect, Sandbox};
use crate::bridge::{ToolErrors, server_module};
use crate::error::Result;
use crate::limits::Limits;
use crate::registry::Decider;
use crate::trust::{ApprovalRequest, ApprovalStatus, Gate, gate, manifest_digest};

/// A server whose command and manifest a person has approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedServer {
    pub name: String,
    /// The names under which code imports the functions.
    pub functions: Vec<String>,
    /// The number of functions for which a person is asked before each call.
    pub asking: usize,
    /// The digest of the approved manifest.
    pub digest: String,
}

impl Agent {
    /// Returns the TypeScript declarations of modules and single tools, for example of `weather` and `weather.get_forecast`. Stops early
    /// when `wanted` returns false.
    ///
    /// # Errors
    /// The errors of [`Catalog::describe_all`](crate::catalog::Catalog::describe_all) and of [`Agent::declarations`].
    pub fn describe(&self, names: &[String], errors: ToolErrors, wanted: &dyn Fn() -> bool) -> Result<String> {
        let described = self.catalog(errors)?.describe_all(names.iter().map(String::as_str), wanted);
        described.map_err(|error| self.core.redacted(error))
    }

    /// Returns all approved servers, enabled or not. `approval_read` selects the approvals on disk or in the cache.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn approved_servers(&self, approval_read: ApprovalRead) -> Result<Vec<ApprovedServer>> {
        self.identity.check_open()?;
        let granted = self.granted(approval_read)?;
        let viewer = Viewer { id: self.identity.id, granted: &granted };
        let approval_statuses: Vec<_> = self
            .core
            .registry
            .servers()
            .into_iter()
            .filter(|server| self.core.may_use(server, &viewer))
            .map(|server| (self.core.approval_status_by(&server, approval_read), server))
            .collect();
        self.core.refresh_if_cached(approval_read);
        let mut approved = Vec::new();
        for (approval_status, server) in approval_statuses {
            let ApprovalStatus::Full(whole) = approval_status.map_err(|error| self.core.redacted(error))? else { continue };
            let Some(manifest) = granted.manifest(&server, &whole) else { continue };
            // Variants of other agents, and servers that a variant of this agent replaces, are not modules of its code.
            let Some(name) = granted.name_in_code(server.as_granted()) else { continue };
            let asks =
                |name: &str| manifest.tool(name).is_some_and(|tool| gate(granted.confirm(&server), tool, &server.reads) != Gate::Open);
            let functions = server_module(name, &manifest).functions;
            approved.push(ApprovedServer {
                asking: functions.iter().filter(|function| asks(&function.target)).count(),
                functions: functions.into_iter().map(|function| function.name).collect(),
                digest: manifest_digest(&manifest),
                name: name.to_owned(),
            });
        }
        Ok(approved)
    }

    /// Returns the digests of all approved manifests, by the servers' names in the registry. Includes variants, although only some agents
    /// see them.
    pub(crate) fn approved_manifests(&self) -> Result<BTreeMap<String, String>> {
        let mut approved = BTreeMap::new();
        for server in self.core.registry.servers() {
            if let ApprovalStatus::Full(manifest) = self.core.approval_status(&server).map_err(|error| self.core.redacted(error))? {
                approved.insert(server.name.clone(), manifest_digest(&manifest));
            }
        }
        Ok(approved)
    }

    /// Sends an approval request as an event to the gateway's `onEvent`.
    pub(crate) fn tell_proposed(&self, request: &ApprovalRequest) {
        match serde_json::to_value(request) {
            Ok(request) => self.core.events.send(&Event::ApprovalProposed { request }),
            Err(error) => tracing::error!(%error, "an approval request cannot be serialised"),
        }
    }

    /// Prepares JSON for a model: redacts it, and removes invisible characters.
    pub(crate) fn shown_to_model(&self, json: &Json) -> Json {
        self.core.redactor.readable_json(json, self.core.limits.max_description_chars)
    }

    /// Returns whether a sandbox belongs to this agent.
    pub(crate) fn owns(&self, sandbox: &Sandbox) -> bool {
        std::sync::Arc::ptr_eq(&self.identity, &sandbox.identity)
    }

    /// Returns the warning about this machine's ability to run guests, if there is one. Blocks while a guest boots for the first time.
    pub fn guest_warning(&self) -> Option<String> {
        self.core.sandboxes.report(&self.core.redactor).warning
    }

    /// Returns whether this is the operator's own agent.
    pub fn is_operator(&self) -> bool {
        self.identity.is_operator()
    }

    /// Connects to a server on behalf of the agent's model, and reports the result. For the operator's model, an open connection is
    /// replaced. For the model of another agent, an open connection is used, because other agents may have pending calls on it.
    ///
    /// # Errors
    /// The errors of [`Gateway::test_as`].
    pub(crate) async fn test_for_model(&self, name: &str) -> Result<ConnectionReport> {
        let server = self.known_server(name)?;
        let reconnect = if self.is_operator() { Reconnect::Yes } else { Reconnect::No };
        self.gateway().connected_as(&server.name, Decider::Model, reconnect).await
    }

    /// Returns the approval request of a server, for the agent's model.
    ///
    /// # Errors
    /// The errors of [`Gateway::approval_request_as`].
    pub(crate) async fn request_for_model(&self, name: &str) -> Result<ApprovalRequest> {
        let server = self.known_server(name)?;
        self.gateway().approval_request_as(&server.name, Decider::Model).await
    }

    /// Returns the gateway, for those actions of a model's tools that need the operator's decision.
    pub(crate) fn gateway(&self) -> Gateway {
        Gateway::of(&self.core)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.core.limits
    }
}

impl Sandbox {
    /// Returns the same as `Agent::describe`, with the agent's own modules.
    ///
    /// # Errors
    /// The errors of `Agent::describe`.
    pub fn describe(&self, names: &[String], errors: Option<ToolErrors>, wanted: &dyn Fn() -> bool) -> Result<String> {
        let described = self.catalog(errors)?.describe_all(names.iter().map(String::as_str), wanted);
        described.map_err(|error| self.core.redacted(error))
    }
}
