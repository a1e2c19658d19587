//! The approval status of servers: whether they are approved, enabled and unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::added_servers;
use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::core::Core;
use crate::catalog::Manifest;
use crate::config::{ServerDefinition, ServerSource, SourceKind};
use crate::error::{Error, Result};
use crate::registry::{AgentId, Presence};
use crate::trust::ApprovalStatus;

/// Number of names that an error for an unknown server gets.
const KNOWN_NAMES: usize = 100;

impl Core {
    /// The approved manifest of a server that is enabled for an agent.
    pub(super) fn usable(&self, server: &ServerDefinition, agent: AgentId) -> Result<Arc<Manifest>> {
        self.check_plugin_on()?;
        if !self.may_use(server, agent) {
            return Err(self.unknown_server(&server.name, agent));
        }
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

    /// Returns whether an agent may use a server, as far as that depends on who brought it.
    pub(super) fn may_use(&self, server: &ServerDefinition, agent: AgentId) -> bool {
        let may_use = |identity: &Identity| added_servers::may_use(&server.source, identity.name());
        if agent == self.people.operator.id {
            return may_use(&self.people.operator);
        }
        server.source.kind != SourceKind::Agent || self.agents.get(agent).is_some_and(|identity| may_use(&identity))
    }

    /// Returns whether the servers of a source exist for an agent.
    pub(super) fn exists_for(&self, source: &ServerSource, identity: &Identity) -> bool {
        added_servers::exists_for(source, identity.name(), identity.is_operator())
    }

    /// Returns the error for a server that does not exist for an agent, with the names of those that do.
    pub(super) fn unknown_to(&self, name: &str, identity: &Identity) -> Error {
        let known = self.registry.servers().into_iter().filter(|server| self.exists_for(&server.source, identity));
        let known = known.take(KNOWN_NAMES).map(|server| server.name.as_str().into()).collect();
        Error::UnknownServer { server: name.to_owned(), place: "for this agent", known }
    }

    fn unknown_server(&self, name: &str, agent: AgentId) -> Error {
        let identity = self.agents.get(agent).unwrap_or_else(|| Arc::clone(&self.people.operator));
        self.unknown_to(name, &identity)
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
        let all = always.chain(attached.filter_map(|(name, known)| Some((name.clone(), self.registry.server(known).ok()?))));
        all.filter(|(_, server)| self.may_use(server, agent)).collect()
    }
}

/// The servers that a task attaches: the names by which its runs know them, with their names in the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AttachedServers(pub(super) BTreeMap<String, String>);

/// Returns whether a server of this source is there without a task, for an agent of this name; `None` is the operator's own agent.
pub(super) fn presence(source: &ServerSource, agent: Option<&str>) -> Presence {
    match source.kind {
        SourceKind::Config => Presence::Always,
        SourceKind::Agent if added_servers::may_use(source, agent) => Presence::Always,
        SourceKind::Agent | SourceKind::Task | SourceKind::Provider | SourceKind::Generated | SourceKind::Catalogue => Presence::OnRequest,
    }
}
