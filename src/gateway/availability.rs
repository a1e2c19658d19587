//! The approval status of servers: whether they are approved, enabled and unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::approval_cache::ApprovalRead;
use super::core::Core;
use crate::catalog::Manifest;
use crate::config::{ServerDefinition, ServerSource, SourceKind};
use crate::error::{Error, Result};
use crate::registry::{AgentId, Presence};
use crate::trust::ApprovalStatus;

impl Core {
    /// The approved manifest of a server that is enabled for an agent.
    pub(super) fn usable(&self, server: &ServerDefinition, agent: AgentId) -> Result<Arc<Manifest>> {
        self.check_plugin_on()?;
        let manifest = self.approval_status(server)?.require_full(&server.name)?;
        if self.registry.is_enabled(&server.name, agent) { Ok(manifest) } else { Err(self.not_enabled(&server.name)) }
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

    /// The approved manifests of the servers that a run of an agent sees which starts now, by the names that the run has for them. `attached` are the
    /// servers that a task adds to those that are always there.
    pub(super) fn visible_servers(&self, agent: AgentId, attached: &AttachedServers) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.visible_servers_by(agent, attached, ApprovalRead::Fresh)
    }

    pub(super) fn visible_servers_by(
        &self,
        agent: AgentId,
        attached: &AttachedServers,
        approval_read: ApprovalRead,
    ) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.check_open()?;
        self.check_plugin_on()?;
        let mut visible = BTreeMap::new();
        for (name, server) in self.servers_of(agent, attached) {
            if let ApprovalStatus::Full(manifest) = self.approval_status_by(&server, approval_read)? {
                visible.insert(name, manifest);
            }
        }
        Ok(visible)
    }

    /// The enabled servers that an agent has: those that are always there, and those that its task attaches, which take the place of others of their
    /// name.
    fn servers_of(&self, agent: AgentId, attached: &AttachedServers) -> BTreeMap<String, Arc<ServerDefinition>> {
        let identity = self.agents.get(agent);
        let name = identity.as_ref().and_then(|identity| identity.name());
        let always = self.registry.enabled_servers(agent).into_iter();
        let always = always.filter(|server| presence(&server.source, name) == Presence::Always).map(|server| (server.name.clone(), server));
        let attached = attached.0.iter().filter(|(_, known)| self.registry.is_enabled(known, agent));
        always.chain(attached.filter_map(|(name, known)| Some((name.clone(), self.registry.server(known).ok()?)))).collect()
    }
}

/// The servers that a task attaches: the names by which its runs know them, with their names in the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AttachedServers(pub(super) BTreeMap<String, String>);

/// Returns whether a server of this source is there without a task, for an agent of this name; `None` is the operator's own agent.
pub(super) fn presence(source: &ServerSource, agent: Option<&str>) -> Presence {
    match source.kind {
        SourceKind::Config => Presence::Always,
        // The operator's own agent sees what any agent has added.
        SourceKind::Agent if agent.is_none() || source.name.as_deref() == agent => Presence::Always,
        SourceKind::Agent | SourceKind::Task | SourceKind::Provider | SourceKind::Generated | SourceKind::Catalogue => Presence::OnRequest,
    }
}
