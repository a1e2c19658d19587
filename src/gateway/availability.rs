//! The availability of servers: whether they are approved, enabled, and visible to an agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::granted::Granted;
use crate::catalog::Manifest;
use crate::config::{ServerDefinition, ServerRef, ServerSource, SourceKind};
use crate::error::{Error, ErrorText, Result};
use crate::registry::{AgentId, Presence};
use crate::text::{NameMark, marked_name};
use crate::trust::ApprovalStatus;

/// An agent, and its grants.
#[derive(Clone, Copy)]
pub(super) struct Viewer<'a> {
    pub(super) id: AgentId,
    pub(super) granted: &'a Granted,
}

impl Core {
    /// Returns the part of a server's approved manifest that an agent may use. Returns an error if the server is not enabled for the agent.
    pub(super) fn usable(&self, server: &ServerDefinition, viewer: &Viewer<'_>) -> Result<Arc<Manifest>> {
        self.check_plugin_on()?;
        // A server of another source may have taken the name of an added server. Grants for the added server do not apply to the other
        // server.
        if viewer.granted.has_lost_name_to(server.as_granted()) || !self.may_use(server, viewer) {
            return Err(self.unknown_server(&server.name, viewer.granted));
        }
        let approved = match self.approval_status(server)? {
            ApprovalStatus::Full(approved) => approved,
            // Another agent chose the server's name, and nobody has approved the server. So the error must not reveal that the server
            // exists.
            _ if viewer.granted.is_of_another(server.as_granted()) => return Err(self.unknown_server(&server.name, viewer.granted)),
            other => other.require_full(&server.name)?,
        };
        let manifest = viewer.granted.manifest(server, &approved).ok_or_else(|| self.unknown_server(&server.name, viewer.granted))?;
        if self.registry.is_enabled(&server.name, viewer.id) { Ok(manifest) } else { Err(self.not_enabled(&server.name)) }
    }

    /// Returns the operator's own agent as a viewer. It is granted everything.
    pub(super) fn operator_viewer(&self) -> Viewer<'_> {
        Viewer { id: self.people.operator.id, granted: &self.grants.everything }
    }

    /// Returns the approved manifest of a server from the cache. Reads no files.
    pub(super) fn last_approved(&self, server: &ServerDefinition) -> Option<Arc<Manifest>> {
        match self.approval_status_by(server, ApprovalRead::Cached) {
            Ok(ApprovalStatus::Full(manifest)) => Some(manifest),
            _ => None,
        }
    }

    /// Returns whether a server's questions and messages may reach a person or a model: both stages are approved, and the server is enabled
    /// for at least one agent.
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

    /// Returns whether an agent may use a server. Here, only the origin of the server decides this. Its approval is not checked.
    pub(super) fn may_use(&self, server: &ServerDefinition, viewer: &Viewer<'_>) -> bool {
        let server = server.as_granted();
        if viewer.id == self.people.operator.id {
            return is_for(server, &self.people.operator, viewer.granted);
        }
        match self.agents.get(viewer.id) {
            Some(identity) => is_for(server, &identity, viewer.granted),
            None => server.added_by.is_none() && !is_of_task(server),
        }
    }

    /// Returns whether the server is enabled for at least one open agent.
    pub(super) fn is_enabled_for_any(&self, name: &str) -> bool {
        self.registry.is_enabled_for_any(name, &self.agents.ids())
    }

    /// Returns the reason why a request was ended. If the server is approved and `is_enabled` is true, the reason is that its process was
    /// ended.
    pub(super) fn refusal(&self, name: &str, is_enabled: bool) -> Error {
        let approval_status =
            self.check_plugin_on().and_then(|_| self.registry.server(name)).and_then(|server| self.approval_status(&server));
        match approval_status.and_then(|approval_status| approval_status.require_full(name)) {
            Ok(_) if is_enabled => restarted(name),
            Ok(_) => self.not_enabled(name),
            Err(error) => error,
        }
    }

    /// Returns the reason why a request of an agent was ended. The error is safe for the agent: the error for an unknown server lists only
    /// names that the agent may see.
    pub(super) fn refusal_for(&self, name: &str, viewer: &Viewer<'_>) -> Error {
        match self.refusal(name, self.registry.is_enabled(name, viewer.id)) {
            Error::UnknownServer { .. } => self.unknown_server(name, viewer.granted),
            other => other,
        }
    }

    fn not_enabled(&self, name: &str) -> Error {
        let server = name.to_owned();
        let disabled = self.registry.server(name).is_ok_and(|server| server.disabled);
        if disabled { Error::ServerDisabled { server } } else { Error::NotEnabled { server } }
    }

    /// Returns the manifests of the servers that a run sees if an agent starts it now, by the names that the code of the run uses. Each
    /// manifest contains only items that are both approved and granted. `attached` are the servers that a task adds to the servers that are
    /// available without a task.
    pub(super) fn visible_servers(&self, viewer: &Viewer<'_>, attached: &AttachedServers) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.visible_servers_by(viewer, attached, ApprovalRead::Fresh)
    }

    pub(super) fn visible_servers_by(
        &self,
        viewer: &Viewer<'_>,
        attached: &AttachedServers,
        approval_read: ApprovalRead,
    ) -> Result<BTreeMap<String, Arc<Manifest>>> {
        self.check_open()?;
        self.check_plugin_on()?;
        self.approved_manifests(self.servers_of(viewer, attached).iter(), viewer.granted, approval_read)
    }

    /// Returns the parts of the servers' approved manifests that an agent is granted. Leaves out servers with no item that the agent is
    /// granted.
    pub(super) fn approved_manifests<'a>(
        &self,
        servers: impl Iterator<Item = (&'a String, &'a Arc<ServerDefinition>)>,
        granted: &Granted,
        approval_read: ApprovalRead,
    ) -> Result<BTreeMap<String, Arc<Manifest>>> {
        let reading = self.read_approvals(approval_read)?;
        let manifest = |server: &ServerDefinition| match reading.status(server) {
            ApprovalStatus::Full(approved) => granted.manifest(server, &approved),
            _ => None,
        };
        Ok(servers.filter_map(|(name, server)| Some((name.clone(), manifest(server)?))).collect())
    }

    /// Returns the enabled servers of an agent, by the names that its code uses. These are the servers that are available without a task,
    /// and the servers that the agent's task attaches. An attached server replaces another server of the same name.
    pub(super) fn servers_of(&self, viewer: &Viewer<'_>, attached: &AttachedServers) -> BTreeMap<String, Arc<ServerDefinition>> {
        let Viewer { id, granted } = *viewer;
        let operator = &self.people.operator;
        let identity = if id == operator.id { Some(Arc::clone(operator)) } else { self.agents.get(id) };
        let own = identity.as_ref().and_then(|identity| identity.own_source());
        let is_there = |server: &Arc<ServerDefinition>| presence(&server.name, &server.source, own, granted) == Presence::Always;
        let always = self.registry.enabled_servers(id).into_iter().filter(is_there);
        let always = always.filter_map(|server| Some((granted.name_in_code(server.as_granted())?.to_owned(), server)));
        let attached = attached.0.iter().filter(|(_, known)| self.registry.is_enabled(known, id));
        let attached = attached.filter_map(|(name, known)| Some((name.clone(), self.registry.server(known).ok()?)));
        let all = always.chain(attached.filter(|(_, server)| granted.reaches(server.as_granted())));
        all.filter(|(_, server)| self.may_use(server, viewer)).collect()
    }
}

/// Returns whether a server exists for an agent, according to its origin. For the operator, the servers of all agents exist.
pub(super) fn exists_for(server: ServerRef<'_>, identity: &Identity, granted: &Granted) -> bool {
    identity.is_operator() || is_for(server, identity, granted)
}

/// Returns the error for a request during which the server's process was ended, and which the server may have answered already.
fn restarted(name: &str) -> Error {
    let status = "the gateway has ended it, because its entry, its box or its state was changed";
    Error::ServerExited { server: name.to_owned(), during: "during a call".into(), status: status.into(), stderr: ErrorText::own("") }
}

/// Returns whether an agent may use a server, according to its origin. A server that an agent has added is for agents of that name, and for
/// agents to which the operator has granted it by name. A server that a task defines is only for the agent that has the task. Grants do not
/// change this.
fn is_for(server: ServerRef<'_>, identity: &Identity, granted: &Granted) -> bool {
    if is_of_task(server) {
        return identity.is_operator() || identity.task_servers.has(server.registry_name);
    }
    let own = if identity.is_operator() { Some("") } else { identity.granted_name.as_deref() };
    server.added_by.is_none() || server.added_by == own || granted.has_addition(server)
}

/// Returns whether a task defines the server.
pub(super) fn is_of_task(server: ServerRef<'_>) -> bool {
    marked_name(server.registry_name).1 == NameMark::Task
}

/// The servers that a task attaches: maps the names that its runs use to the names in the registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AttachedServers(pub(super) BTreeMap<String, String>);

/// Returns whether a server of this source is available without a task, for an agent. `own` is the source of the servers that the agent
/// adds.
pub(super) fn presence(server: &str, source: &ServerSource, own: Option<&ServerSource>, granted: &Granted) -> Presence {
    match source.kind {
        SourceKind::Config | SourceKind::Generated => Presence::Always,
        SourceKind::Agent if Some(source) == own || granted.has_addition(ServerRef::of(server, source)) => Presence::Always,
        SourceKind::Agent | SourceKind::Task | SourceKind::Registered | SourceKind::Provider | SourceKind::Catalogue => Presence::OnRequest,
    }
}
