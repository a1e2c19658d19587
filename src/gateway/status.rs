//! The status of servers, in the form that `servers()` returns to an agent.

mod prepared;

pub(super) use prepared::PreparedStatuses;

use super::Agent;
use super::approval_cache::{ApprovalRead, ApprovalReading};
use super::availability::exists_for;
use super::core::Core;
use super::granted::Granted;
use crate::client::ConnectionState;
use crate::config::{InvalidServer, Item, ServerDefinition, ServerSource, SourceKind, missing_variables};
use crate::error::Result;
use crate::registry::{Entry, Hidden, LastError, LiveStatus, ServerState, ServerStatus};
use crate::text::{marked_name, variant_of};
use crate::trust::ApprovalStatus;

/// The maximum length of the description of a server or a provider. A longer description is cut.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 300;

impl Core {
    /// Returns the sources whose servers are hidden by the server of this name and source. A server that a task defines has two names: the
    /// name that the task uses, and the name in the registry. `name` may be either of these. In runs of the task, such a server hides all
    /// other servers that have the name that the task uses.
    pub(super) fn hidden_by(&self, name: &str, source: &ServerSource) -> Vec<Hidden> {
        if source.kind != SourceKind::Task {
            return self.registry.hidden_by(name);
        }
        let given = marked_name(name).0;
        let first = self.registry.entry(given).ok().map(|entry| entry.source().clone());
        first.into_iter().chain(self.registry.hidden_by(given)).collect()
    }
}

impl Agent {
    /// Lists the present status of all servers that exist for the agent. First come servers that agents have added and that await a
    /// decision, then the others in the order of the config. Servers whose entry has an error are last. Blocks.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn servers(&self) -> Result<Vec<ServerStatus>> {
        self.servers_by(ApprovalRead::Fresh)
    }

    /// Lists the status of all servers. `approval_read` selects the approvals on disk or in the cache.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn servers_by(&self, approval_read: ApprovalRead) -> Result<Vec<ServerStatus>> {
        let granted = self.granted(approval_read)?;
        let reading = self.core.read_approvals(approval_read);
        let statuses = reading.map(|reading| {
            let listing = Listing::new(self, &granted, &reading);
            self.core.registry.view().entries().iter().filter_map(|entry| listing.status(entry)).collect::<Vec<_>>()
        });
        self.core.refresh_if_cached(approval_read);
        let mut statuses = statuses.map_err(|error| self.core.redacted(error))?;
        // Servers that await a decision come first.
        statuses.sort_by_key(|status| !status.awaits_decision());
        Ok(statuses)
    }

    /// Returns the status of one server in the agent's view. Returns `None` if the server does not exist for the agent.
    pub(super) fn status(&self, entry: &Entry, granted: &Granted, reading: &ApprovalReading<'_>) -> Option<ServerStatus> {
        Listing::new(self, granted, reading).status(entry)
    }

    /// Returns the description of a server. Only the operator's own agent sees the description before the server is approved.
    fn description(&self, server: &ServerDefinition, approval_status: &ApprovalStatus) -> Option<String> {
        let may_see = self.identity.is_operator() || matches!(approval_status, ApprovalStatus::Full(_));
        let description = server.description.as_deref().filter(|_| may_see)?;
        Some(self.core.redactor.readable_line(description, MAX_DESCRIPTION_CHARS)).filter(|text| !text.is_empty())
    }

    /// Returns the other sources that have a server of this name. Only the operator sees servers of this name that other agents have added.
    fn hidden_by(&self, name: &str, source: &ServerSource) -> Vec<Hidden> {
        let own = self.identity.own_source();
        let may_know = |source: &Hidden| source.kind != SourceKind::Agent || self.identity.is_operator() || Some(source) == own;
        // The agent itself has chosen the name of its task's server. So the agent need not be granted a server of another source with this
        // name, and must not learn of it.
        let is_hidden = source.kind == SourceKind::Task && !self.identity.is_operator();
        if is_hidden { Vec::new() } else { self.core.hidden_by(name, source).into_iter().filter(may_know).collect() }
    }

    fn invalid_status(&self, server: &InvalidServer) -> ServerStatus {
        ServerStatus {
            name: server.name.clone(),
            state: ServerState::Invalid,
            approved: false,
            enabled: false,
            disabled_by_person: false,
            display_name: None,
            // An entry with an error may have any text as its name.
            variant_of: None,
            description: None,
            source: server.source.clone(),
            hides: self.hidden_by(&server.name, &server.source),
            tools: Vec::new(),
            quarantined: Vec::new(),
            missing: Vec::new(),
            last_error: Some(LastError::from(&self.core.redacted(server.error.clone()))),
        }
    }
}

/// The values that all statuses in one list share.
struct Listing<'a> {
    agent: &'a Agent,
    granted: &'a Granted,
    reading: &'a ApprovalReading<'a>,
    /// False while a plugin is off, or the agent or the gateway is closed.
    is_on: bool,
}

/// A valid server, with its approval and the state that this gateway has for it.
struct Found<'a> {
    server: &'a ServerDefinition,
    key: &'a str,
    approval: ApprovalStatus,
    live: LiveStatus,
    missing: Vec<String>,
}

impl<'a> Listing<'a> {
    fn new(agent: &'a Agent, granted: &'a Granted, reading: &'a ApprovalReading<'a>) -> Self {
        Self { agent, granted, reading, is_on: agent.check_plugin_on().is_ok() }
    }

    /// Returns the status of a server in the agent's view. Returns `None` if the server does not exist for the agent.
    fn status(&self, entry: &Entry) -> Option<ServerStatus> {
        let Self { agent, granted, reading, .. } = self;
        let known = entry.as_granted();
        if !granted.reaches(known) || !exists_for(known, &agent.identity, granted) {
            return None;
        }
        let is_of_another = granted.is_of_another(known);
        let server = match entry {
            Entry::Valid(server) => server,
            Entry::Invalid(_) if is_of_another => return None,
            Entry::Invalid(server) => return Some(agent.invalid_status(server)),
        };
        let key = server.key();
        let approval = match reading.status_of(server, &key) {
            ApprovalStatus::Full(approved) => ApprovalStatus::Full(granted.manifest(server, &approved)?),
            // Another agent chose the server's name, and nobody has approved the server.
            _ if is_of_another => return None,
            other => other,
        };
        let core = &agent.core;
        let live = core.registry.live_status(&server.name, agent.identity.id);
        let missing = missing_variables(server, &core.surroundings.environment);
        Some(self.status_of(Found { server, key: &key, approval, live, missing }))
    }

    fn status_of(&self, found: Found<'_>) -> ServerStatus {
        let (agent, core, server) = (self.agent, &self.agent.core, found.server);
        let known = server.as_granted();
        let (state, mut quarantined) = (self.state(&found), self.quarantined(&found));
        quarantined.retain(|tool| self.granted.allows(known, Item::Tool(tool)));
        ServerStatus {
            name: server.name.clone(),
            state,
            approved: matches!(found.approval, ApprovalStatus::Full(_)),
            // While a plugin is off, enabled servers are reported as not enabled; they become enabled again when the plugin is switched on.
            enabled: found.live.is_enabled && !server.disabled && self.is_on,
            disabled_by_person: found.live.is_disabled_by_person,
            // A display name is chosen by the agent that added the server, and no person approves it. So other agents do not see it.
            description: agent.description(server, &found.approval),
            display_name: core.display_name(server).filter(|_| !self.granted.is_of_another(known)),
            variant_of: variant_of(&server.name).map(str::to_owned),
            source: server.source.clone(),
            hides: agent.hidden_by(&server.name, &server.source),
            tools: if let ApprovalStatus::Full(manifest) = &found.approval { manifest.tool_names() } else { Vec::new() },
            quarantined,
            missing: found.missing,
            last_error: found.live.last_error,
        }
    }

    fn state(&self, found: &Found<'_>) -> ServerState {
        let server = found.server;
        let connection = self.agent.core.connections.state(&server.name);
        let is_ready = !found.missing.iter().any(|name| server.required_environment.contains(name));
        match &found.approval {
            _ if server.disabled => ServerState::Disabled,
            ApprovalStatus::Unapproved(_) if server.source.kind == SourceKind::Agent => ServerState::PendingApproval,
            _ if connection == ConnectionState::Connected => ServerState::Connected,
            _ if connection == ConnectionState::Connecting => ServerState::Connecting,
            _ if !is_ready => ServerState::NotReady,
            _ if found.live.last_error.is_some() => ServerState::Error,
            ApprovalStatus::Unapproved(_) => ServerState::Unapproved,
            ApprovalStatus::Command => ServerState::CommandApproved,
            ApprovalStatus::Full(_) => ServerState::Idle,
        }
    }

    /// Returns the approved tools that the server has changed or removed. Until this gateway connects to the server, returns the result of
    /// the last connection of any process.
    fn quarantined(&self, found: &Found<'_>) -> Vec<String> {
        match found.approval {
            ApprovalStatus::Full(_) if !found.live.is_compared => {
                self.agent.core.server_facts.changed(found.key, || self.reading.digest(found.server, found.key))
            }
            _ => found.live.quarantined.clone(),
        }
    }
}
