//! The approval status of servers: whether they are approved, enabled and unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::granted::Granted;
use crate::catalog::Manifest;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::registry::AgentId;
use crate::trust::ApprovalStatus;

/// An agent, and what it is granted.
#[derive(Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) id: AgentId,
    pub(super) granted: &'a Granted,
}

impl Core {
    /// The part of a server's approved manifest that an agent may use, if the server is enabled for the agent.
    pub(super) fn usable(&self, server: &ServerDefinition, viewer: &Viewer<'_>) -> Result<Arc<Manifest>> {
        self.check_plugin_on()?;
        let approved = self.approval_status(server)?.require_full(&server.name)?;
        let manifest = viewer.granted.manifest(&server.name, &approved).ok_or_else(|| self.unknown_server(&server.name, viewer.granted))?;
        if self.registry.is_enabled(&server.name, viewer.id) { Ok(manifest) } else { Err(self.not_enabled(&server.name)) }
    }

    /// The operator's own agent, which is granted everything.
    pub(super) fn operator_viewer(&self) -> Viewer<'_> {
        Viewer { id: self.people.operator.id, granted: &self.grants.everything }
    }

    /// Returns the approved manifest of a server as it was read last. Reads nothing.
    pub(super) fn last_approved(&self, server: &ServerDefinition) -> Option<Arc<Manifest>> {
        match self.approval_status_by(server, ApprovalRead::Cached) {
            Ok(ApprovalStatus::Full(manifest)) => Some(manifest),
            _ => None,
        }
    }

    /// Returns whether a person or a model may hear what the server asks and tells: both stages are approved, and it is enabled for at least
    /// one agent.
    pub(super) fn may_send_messages(&self, name: &str) -> bool {
        // The cheapest check comes first.
        self.is_enabled_for_any(name)
            && self.check_plugin_on().is_ok()
            && self
                .registry
                .server(name)
                .and_then(|server| self.approval_status(&server))
                .is_ok_and(|approval_status| matches!(approval_status, ApprovalStatus::Full(_)))
    }

    /// Returns whether at least one agent that has not ended sees the server.
    pub(super) fn is_enabled_for_any(&self, name: &str) -> bool {
        self.registry.is_enabled_for_any(name, &self.agents.ids())
    }

    /// Returns the reason why a server is no longer available.
    pub(super) fn refusal(&self, name: &str) -> Error {
        let approval_status =
            self.check_plugin_on().and_then(|_| self.registry.server(name)).and_then(|server| self.approval_status(&server));
        match approval_status.and_then(|approval_status| approval_status.require_full(name)) {
            Ok(_) => self.not_enabled(name),
            Err(error) => error,
        }
    }

    fn not_enabled(&self, name: &str) -> Error {
        let server = name.to_owned();
        let disabled = self.registry.server(name).is_ok_and(|server| server.disabled);
        if disabled { Error::ServerDisabled { server } } else { Error::NotEnabled { server } }
    }

    /// The manifests of the servers that a run of an agent sees which starts now: of each, what is approved and granted.
    pub(super) fn visible_servers(&self, viewer: &Viewer<'_>) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.visible_servers_by(viewer, ApprovalRead::Fresh)
    }

    pub(super) fn visible_servers_by(&self, viewer: &Viewer<'_>, approval_read: ApprovalRead) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.check_open()?;
        self.check_plugin_on()?;
        let mut visible = BTreeMap::new();
        let granted = viewer.granted;
        let is_candidate = |name: &str| granted.reaches(name) && self.registry.is_enabled(name, viewer.id);
        for server in self.registry.servers().iter().filter(|server| is_candidate(&server.name)) {
            if let ApprovalStatus::Full(approved) = self.approval_status_by(server, approval_read)?
                && let Some(manifest) = granted.manifest(&server.name, &approved)
            {
                visible.insert(server.name.clone(), manifest);
            }
        }
        Ok(visible)
    }
}
