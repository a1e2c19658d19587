//! Servers that agents add at run time. The store keeps them, and the servers of each agent form a layer of the registry. Such a server
//! runs only after a person has approved it, unless the operator has set `requireApproval` to false.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::granted::OwnServers;
use super::{Agent, Gateway};
use crate::blocking::blocking;
use crate::config::{ServerDefinition, ServerSource, SourceKind};
use crate::error::{Error, Result};
use crate::registry::{AddedServer, Decider, Entry, MAX_ADDED_SERVERS, Registry, ServerChange, ServerStatus, source_of, take_proposal};
use crate::store::{Kind, Rows, audit};
use crate::text::{server_name_for, server_name_of};

const ADD: &str = "Agent.addServer";
const UPDATE: &str = "Agent.updateServer";

/// Added servers by their names.
type ByName = BTreeMap<String, Arc<AddedServer>>;

/// The servers that agents have added, as the last read of the store returned them.
pub(super) struct AddedServers {
    servers: Mutex<HashMap<String, Arc<AddedServer>>>,
    /// False if the servers that agents add are approved without a person.
    pub(super) require_approval: bool,
}

impl AddedServers {
    pub(super) fn new(require_approval: bool) -> Self {
        Self { servers: Mutex::default(), require_approval }
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<AddedServer>> {
        self.servers.lock().get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<AddedServer>> {
        let mut all: Vec<_> = self.servers.lock().values().cloned().collect();
        all.sort_unstable_by(|one, other| one.definition.name.cmp(&other.definition.name));
        all
    }
}

impl Core {
    /// Loads the added servers from the store into the registry. Returns a warning for each row that cannot be read; the server of such a
    /// row does not exist for this gateway. Blocks.
    pub(super) fn load_added(&self) -> Result<Vec<String>> {
        let (servers, warnings) = self.read_added()?;
        self.set_added(&servers, &self.registry);
        Ok(warnings)
    }

    /// Returns the servers that agents of this name have added. Leaves out servers whose name now belongs to a server of another source.
    pub(super) fn added_by(&self, agent: &str) -> OwnServers {
        let is_own = |server: &&Arc<AddedServer>| server.owner.as_deref() == Some(agent) && self.is_in_force(server);
        let names: BTreeSet<String> = self.added.all().iter().filter(is_own).map(|server| server.definition.name.clone()).collect();
        // Agents that have added no servers share one value, so that the views of the registry are computed once for all of them.
        if names.is_empty() { OwnServers::default() } else { OwnServers { agent: Some(agent.to_owned()), names } }
    }

    /// Reads the added servers from the store. Returns them with warnings about unreadable rows. Blocks.
    pub(super) fn read_added(&self) -> Result<(ByName, Vec<String>)> {
        Ok(read(&*self.store.rows(Kind::Server)?))
    }

    /// Replaces all layers of added servers in the registry: each agent has one layer.
    pub(super) fn set_added(&self, servers: &ByName, registry: &Registry) {
        let before = std::mem::replace(&mut *self.added.servers.lock(), servers.clone().into_iter().collect());
        let sources: BTreeSet<ServerSource> =
            before.values().chain(servers.values()).map(|server| source_of(server.owner.as_deref())).collect();
        for source in sources {
            let own = servers.values().filter(|server| server.definition.source == source);
            let entries = own.map(|server| Entry::Valid(Arc::new(server.definition.clone()))).collect();
            registry.set_layer(source, entries);
        }
    }

    /// Changes the rows of added servers in the store, and closes the servers that the change affects. `proposal` is the agent whose model
    /// proposes the change, if a model does. The store records the change and the proposal together, or neither of them.
    async fn change_added<T: Send + 'static>(
        self: &Arc<Self>,
        proposal: Option<Proposal>,
        change: impl FnOnce(&mut Rows, &Registry) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _one_at_a_time = self.reloading.lock().await;
        let core = Arc::clone(self);
        let (outcome, (servers, warnings)) = blocking(move || {
            let outcome = core.store.change_all([Kind::Server, Kind::Proposal], |[servers, proposals]| {
                if let Some(Proposal { owner }) = &proposal {
                    take_proposal(proposals, owner.as_deref(), SystemTime::now())?;
                }
                change(servers, &core.registry)
            })?;
            Ok((outcome, core.read_added()?))
        })
        .await?;
        self.apply_layers(|registry| self.set_added(&servers, registry)).await?;
        for warning in warnings {
            self.events.warn(warning);
        }
        Ok(outcome)
    }

    /// Returns the display name that an agent gave to its added server.
    pub(super) fn display_name(&self, server: &ServerDefinition) -> Option<String> {
        if server.source.kind != SourceKind::Agent {
            return None;
        }
        self.added.get(&server.name).filter(|added| added.definition.source == server.source).map(|added| added.display_name.clone())
    }

    /// Returns whether a toolbox names this added server, so that other agents can use it too. Returns true if the grants cannot be read.
    pub(super) fn is_granted_by_name(&self, server: &AddedServer) -> bool {
        self.grants_now(ApprovalRead::Fresh).map_or(true, |grants| grants.names_addition(server.definition.as_granted()))
    }

    /// Returns whether this added server is the one that its name refers to now. Returns false if a server of another source has the name.
    pub(super) fn is_in_force(&self, server: &AddedServer) -> bool {
        let definition = &server.definition;
        self.registry.server(&definition.name).is_ok_and(|found| found.source == definition.source)
    }
}

/// A proposal of an agent's model.
struct Proposal {
    /// The name of the agent. `None` for the operator's own agent.
    owner: Option<String>,
}

fn read(rows: &Rows) -> (ByName, Vec<String>) {
    let (mut servers, mut warnings) = (BTreeMap::new(), Vec::new());
    for (name, body) in rows {
        match AddedServer::from_row(name, body) {
            Ok(server) => drop(servers.insert(name.clone(), Arc::new(server))),
            Err(problem) => warnings.push(format!("server \"{name}\", which an agent has added, cannot be used: {problem}")),
        }
    }
    (servers, warnings)
}

impl Agent {
    /// Adds a server only for this agent, and returns its status. The server's name is derived from the display name, and differs from the
    /// names of all sources and of the catalogue. The store keeps the server for the next gateway with the same state folder and for the
    /// next agent of this name. The server runs only after a person has approved it. An event `server-proposed` contains everything that
    /// the person must see.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an entry that could not be used, `ERR_TOO_MANY_PROPOSALS` for more than 20 servers, `ERR_STORE`, `ERR_CLOSED`.
    ///
    /// ```no_run
    /// # async fn example(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
    /// use hyperlight_mcp::gateway::IdentityOptions;
    /// use hyperlight_mcp::registry::ServerChange;
    ///
    /// let agent = gateway.agent("researcher", IdentityOptions::default())?;
    /// let files = ServerChange { name: Some("My Files".into()), command: Some("server-files".into()), ..ServerChange::default() };
    /// let status = agent.add_server(files).await?;
    /// assert_eq!(status.name, "my-files");
    /// # Ok(()) }
    /// ```
    pub async fn add_server(&self, server: ServerChange) -> Result<ServerStatus> {
        self.add_server_as(server, Decider::Person).await
    }

    /// Adds a server on behalf of the agent's code or of its model. A model can set fewer options, and is limited to 20 additions and
    /// changes an hour. The name of a server that a model adds always ends with a digest, as in `my-files-3f9a2c41`, so that the model
    /// cannot find out which names other agents have used.
    ///
    /// # Errors
    /// The errors of [`Self::add_server`].
    pub async fn add_server_as(&self, server: ServerChange, author: Decider) -> Result<ServerStatus> {
        let owner = self.owner()?;
        let added = self.core.change_added(proposal(author, owner.as_deref()), move |rows, registry| {
            let (known, _) = read(rows);
            if known.values().filter(|server| server.owner == owner).count() >= MAX_ADDED_SERVERS {
                return Err(Error::TooManyProposals { what: "servers of its own. Remove one of them first", limit: MAX_ADDED_SERVERS });
            }
            let name = free_name(server.name.as_deref().unwrap_or_default(), owner.as_deref(), author, |name| {
                rows.contains_key(name) || registry.has_name(name)
            });
            let added = AddedServer::new(&name, owner.as_deref(), &server, author).map_err(|problem| invalid(ADD, problem))?;
            rows.insert(name.clone(), added.to_row().into());
            Ok(name)
        });
        let name = added.await.map_err(|error| self.core.redacted(error))?;
        self.record(&name, audit::ServerChange::Added, author);
        // A new server inherits no errors from an earlier server of the same name.
        self.core.registry.record(&name, &Ok(()));
        self.core.connections.forget_failures(&name);
        self.gateway().decide_about_added(&name, &self.identity).await?;
        self.status_of(&name)
    }

    /// Changes a server that this agent has added, and returns its status. The name stays the same, even if the display name changes. The
    /// new environment variables are merged with the old. If the change affects what is executed, a person has to approve the server again.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`; `ERR_OPERATOR_ONLY` for a server that this agent has not added; and the errors of [`Self::add_server`].
    pub async fn update_server(&self, name: &str, change: ServerChange) -> Result<ServerStatus> {
        self.update_server_as(name, change, Decider::Person).await
    }

    /// Changes a server on behalf of the agent's code or of its model.
    ///
    /// # Errors
    /// The errors of [`Self::update_server`].
    pub async fn update_server_as(&self, name: &str, change: ServerChange, author: Decider) -> Result<ServerStatus> {
        self.own_server(name, Rights::Change)?;
        let owner = self.owner()?;
        let wanted = name.to_owned();
        let changed = self.core.change_added(proposal(author, owner.as_deref()), move |rows, _| {
            let body = rows.get(&wanted).ok_or_else(|| gone(&wanted))?;
            let server = AddedServer::from_row(&wanted, body).map_err(|problem| invalid(UPDATE, problem))?;
            // Another process may have removed the server, and then another agent may have added one of the same name.
            if server.owner != owner {
                return Err(gone(&wanted));
            }
            let changed = server.changed(&change, author).map_err(|problem| invalid(UPDATE, problem))?;
            rows.insert(wanted, changed.to_row().into());
            Ok(())
        });
        changed.await.map_err(|error| self.core.redacted(error))?;
        self.record(name, audit::ServerChange::Changed, author);
        self.gateway().propose_added(name).await?;
        self.status_of(name)
    }

    /// Removes a server that this agent has added. Before that, ends its process and removes its approval, its tokens, its call permissions
    /// and the grant patterns that name this server for other agents. The operator's own agent can remove the servers of all agents. A
    /// server that is added later under this name inherits nothing.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_OPERATOR_ONLY`, `ERR_APPROVAL_STORE`, `ERR_STORE`, `ERR_CLOSED`.
    pub async fn remove_server(&self, name: &str) -> Result<()> {
        self.remove_server_as(name, Decider::Person).await
    }

    /// Removes a server on behalf of the agent's code or of its model. A model can remove only servers of its own agent.
    ///
    /// # Errors
    /// The errors of [`Self::remove_server`].
    pub async fn remove_server_as(&self, name: &str, author: Decider) -> Result<()> {
        self.identity.check_open()?;
        let rights = if self.is_operator() && author == Decider::Person { Rights::RemoveAll } else { Rights::Change };
        let server = self.own_server(name, rights)?;
        // The approval is removed first. If this function is interrupted afterwards, the server still exists but is not approved.
        if self.core.is_in_force(&server) {
            self.gateway().revoke_by(party_of(author), name).await?;
        } else {
            // A server of another source has this name now. That server's connection stays open; only the approval of the added server is
            // revoked.
            let (core, key) = (Arc::clone(&self.core), server.definition.key());
            let revoked = move || core.trust.approvals.revoke(&key).map(|()| core.box_maker.remove_homes(&key));
            blocking(revoked).await.map_err(|error| self.core.redacted(error))?;
        }
        let (core, definition) = (Arc::clone(&self.core), server.definition.clone());
        let dropped = blocking(move || core.drop_grants_of(&definition, party_of(author)));
        dropped.await.map_err(|error| self.core.redacted(error))?;
        let (wanted, owner) = (name.to_owned(), server.owner.clone());
        let removed = self.core.change_added(None, move |rows, _| {
            let is_same = |body: &Arc<[u8]>| AddedServer::from_row(&wanted, body).is_ok_and(|server| server.owner == owner);
            if rows.get(&wanted).is_some_and(is_same) {
                rows.remove(&wanted);
            }
            Ok(())
        });
        removed.await.map_err(|error| self.core.redacted(error))?;
        self.record(name, audit::ServerChange::Removed, author);
        Ok(())
    }

    fn record(&self, server: &str, change: audit::ServerChange, author: Decider) {
        let (by, source) = (party_of(author), Some(SourceKind::Agent.as_str().to_owned()));
        self.core.audit.record(audit::AuditEvent::Server {
            server: server.to_owned(),
            change,
            agent: self.identity.audit_name(),
            source,
            by,
        });
    }

    /// Returns the name of the agent as the owner of added servers. Returns an error if the agent may not own added servers.
    fn owner(&self) -> Result<Option<String>> {
        self.identity.check_open()?;
        let Some(source) = self.identity.own_source() else {
            return Err(invalid(ADD, "an agent whose name the operator has not chosen cannot add servers".to_owned()));
        };
        Ok(source.name.clone())
    }

    /// Returns an added server that the agent may change or remove.
    fn own_server(&self, name: &str, rights: Rights) -> Result<Arc<AddedServer>> {
        self.identity.check_open()?;
        let server = self.core.added.get(name);
        match server {
            Some(server) if rights == Rights::RemoveAll || Some(&server.definition.source) == self.identity.own_source() => Ok(server),
            _ if self.exists(name)? => {
                let problem =
                    "this agent has not added it. Servers of the config are changed by the user, with the commands `set` and `remove`";
                Err(Error::OperatorOnly { what: "this server", problem })
            }
            _ => Err(self.unknown(name)?),
        }
    }

    fn status_of(&self, name: &str) -> Result<ServerStatus> {
        self.server_offer(name).map(|info| info.status)
    }
}

/// Returns a free name for a server that is added now. If a model adds it, the name does not reveal which names other agents have used.
fn free_name(display_name: &str, owner: Option<&str>, author: Decider, is_taken: impl Fn(&str) -> bool) -> String {
    match author {
        Decider::Person => server_name_for(display_name, is_taken),
        Decider::Model => server_name_of(owner, display_name, is_taken),
    }
}

/// Returns the proposal that a change by this author is. Returns `None` unless the author is a model.
fn proposal(author: Decider, owner: Option<&str>) -> Option<Proposal> {
    (author == Decider::Model).then(|| Proposal { owner: owner.map(str::to_owned) })
}

/// Returns the audit's word for the author of a change to an added server.
fn party_of(author: Decider) -> audit::AuditParty {
    match author {
        Decider::Model => audit::AuditParty::Model,
        Decider::Person => audit::AuditParty::Agent,
    }
}

/// The added servers that an agent may change or remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    /// Only the servers that the agent has added.
    Change,
    /// The servers that any agent has added.
    RemoveAll,
}

fn invalid(method: &'static str, problem: String) -> Error {
    Error::InvalidOption { method, problem: problem.into() }
}

fn gone(name: &str) -> Error {
    Error::UnknownServer { server: name.to_owned(), place: "of this agent", known: Vec::new() }
}

impl Gateway {
    /// Returns whether an agent has added this server, and no server of another source has its name.
    #[must_use]
    pub fn is_added(&self, name: &str) -> bool {
        self.core.added.get(name).is_some_and(|server| self.core.is_in_force(&server))
    }
}
