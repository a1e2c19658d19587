//! The grants of each agent, and the views of servers for agents that are not granted everything.

use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::availability::{exists_for, is_of_task};
use super::core::Core;
use super::grant_rows;
use crate::bridge::ToolSearch;
use crate::catalog::{Kept, Manifest};
use crate::config::{Confirm, GrantSettings, Item, ProfileConflict, ServerDefinition, ServerRef};
use crate::error::{Error, ErrorText, OwnText, Result};
use crate::registry::{Access, Grants, Stack};
use crate::store::{Kind, Rows};
use crate::text::{NameMark, marked_name};

const STORE: &str = "store.sqlite3";
/// The maximum number of server names in an error about an unknown server.
const KNOWN_NAMES: usize = 100;

/// The grants of an agent at one moment. A run keeps its grants until it ends, so a change takes effect with the next run.
pub(super) struct Granted {
    access: Access,
    /// The servers of the agent's profiles. `None` if the config has no profiles.
    stack: Option<Stack>,
    /// Servers that agents of this name have added. The agent may use them even if its toolboxes and profiles do not allow them.
    own: OwnServers,
    /// The names of the only servers that exist for the agent. `None` if there is no such limit.
    only: Option<Arc<BTreeSet<String>>>,
    /// The search index of what the agent sees. Agents with the same grants share one index, so that it is not built for each of them.
    pub(super) search: Arc<ToolSearch>,
    /// The parts of manifests that the agent sees, by server.
    reduced: Mutex<HashMap<String, Reduced>>,
}

/// An approved manifest, and the part of it that an agent sees. `None` if the agent sees no part of it.
type Reduced = (Arc<Manifest>, Option<Arc<Manifest>>);

/// The servers that agents of one name have added. A name alone does not identify such a server, because another source may have a server
/// of the same name, for example the config after a reload, or a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnServers {
    /// The agent's name. `None` for an agent that cannot add servers.
    pub(super) agent: Option<String>,
    /// The registry's names of the servers. Leaves out servers whose name now belongs to a server of another source.
    pub(super) names: BTreeSet<String>,
}

impl OwnServers {
    /// Returns whether this server is one of the agent's own servers.
    fn has(&self, server: ServerRef<'_>) -> bool {
        server.added_by.is_some() && server.added_by == self.agent.as_deref() && self.names.contains(server.registry_name)
    }

    /// Returns whether this server has the name of one of the agent's own servers, but is a different server.
    fn has_lost(&self, server: ServerRef<'_>) -> bool {
        self.names.contains(server.registry_name) && !self.has(server)
    }
}

impl Granted {
    pub(super) fn new(access: Access, stack: Option<Stack>, own: OwnServers) -> Self {
        Self { access, stack, own, only: None, search: Arc::default(), reduced: Mutex::default() }
    }

    /// Returns these grants for an agent for which only the servers in `only` exist. With `None`, there is no such limit.
    pub(super) fn limited_to(self, only: Option<Arc<BTreeSet<String>>>) -> Self {
        Self { only, ..self }
    }

    /// Returns the grants of the operator's own agent.
    pub(super) fn everything() -> Self {
        Self::new(Access::All, None, OwnServers::default())
    }

    /// Returns whether the agent may use everything that is approved and enabled.
    pub(super) fn is_everything(&self) -> bool {
        self.access == Access::All && self.stack.is_none() && self.only.is_none()
    }

    /// Returns whether this server has taken the name of a server that the agent has added.
    pub(super) fn has_lost_name_to(&self, server: ServerRef<'_>) -> bool {
        self.own.has_lost(server)
    }

    /// Returns the registry's name for a server, given the agent's name for it. This is the name of a variant if the agent's profiles
    /// create one.
    pub(super) fn registry_name<'s>(&'s self, server: &'s str) -> &'s str {
        match &self.stack {
            Some(stack) if !self.own.names.contains(server) => stack.registry_name(server),
            _ => server,
        }
    }

    /// Returns the name that the agent's code uses for a server of the registry. Returns `None` if the server is not a module of the agent:
    /// because the server is a variant for other agents, or because the agent has a variant instead of this server.
    pub(super) fn name_in_code<'s>(&self, server: ServerRef<'s>) -> Option<&'s str> {
        let name = match marked_name(server.registry_name) {
            (_, NameMark::Task) => server.registry_name,
            (name, NameMark::None | NameMark::Variant(_)) => name,
        };
        (self.registry_name(name) == server.registry_name && self.reaches(server)).then_some(name)
    }

    /// Returns whether the agent itself has added this server.
    fn has_added(&self, server: ServerRef<'_>) -> bool {
        self.is_within_limit(server) && self.own.has(server)
    }

    /// Returns whether another agent has added this server, and the operator has granted it to this agent by name.
    pub(super) fn has_addition(&self, server: ServerRef<'_>) -> bool {
        self.access.reaches_by_name(server) && self.is_of_profiles(server)
    }

    /// Returns whether another agent has added this server, so that this agent may use the server only because of a grant.
    pub(super) fn is_of_another(&self, server: ServerRef<'_>) -> bool {
        !self.has_added(server) && self.has_addition(server)
    }

    /// Returns whether the agent may know that this server exists in the registry.
    pub(super) fn reaches(&self, server: ServerRef<'_>) -> bool {
        self.has_added(server) || self.access.reaches(server) && self.is_of_profiles(server)
    }

    /// Returns whether the agent's profiles contain a server of the registry. If the config has no profiles, this is true of every server.
    fn is_of_profiles(&self, server: ServerRef<'_>) -> bool {
        self.is_within_limit(server) && self.stack.as_ref().is_none_or(|stack| stack.reaches(server.registry_name))
    }

    /// Returns whether a server is one of the only servers that exist for the agent (`only`). For a variant, compares the name of the
    /// server that it is a variant of.
    fn is_within_limit(&self, server: ServerRef<'_>) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(server.name))
    }

    /// Returns the registry's names of the servers that the agent may use through its profiles.
    pub(super) fn by_profiles(&self) -> impl Iterator<Item = &str> {
        self.stack.iter().flat_map(Stack::registry_names).filter(|server| self.reaches((*server).into()))
    }

    /// Returns whether the agent may use an item of a server.
    pub(super) fn allows(&self, server: ServerRef<'_>, item: Item<'_>) -> bool {
        let in_stack = || self.stack.as_ref().is_none_or(|stack| stack.allows(server.name, item));
        self.has_added(server) || self.access.allows(server, item) && self.is_of_profiles(server) && in_stack()
    }

    /// Returns which calls of a server need a person's confirmation. Profiles can only make the setting of the server's entry stricter.
    pub(super) fn confirm(&self, server: &ServerDefinition) -> Confirm {
        self.stack.as_ref().map_or(server.confirm, |stack| stack.stricter_confirm(granted_name(&server.name), server.confirm))
    }

    /// Returns the time limit of a call and the maximum time limit, in milliseconds. Profiles can only make the server's limits shorter.
    pub(super) fn limits_ms(&self, server: &str, (limit_ms, most_ms): (u64, u64)) -> (u64, u64) {
        let Some(stack) = &self.stack else { return (limit_ms, most_ms) };
        let server = granted_name(server);
        (stack.stricter_timeout_ms(server, limit_ms), stack.stricter_max_timeout_ms(server, most_ms))
    }

    /// Returns the limit that the agent's profiles set for simultaneous calls of a server. Returns `None` if they set no limit.
    pub(super) fn max_parallel_calls(&self, server: &str) -> Option<usize> {
        let limit = self.stack.as_ref()?.max_parallel_calls(granted_name(server))?;
        Some(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Returns a server with the limits for a connection that is opened for this agent. Profiles can only make the server's limits shorter.
    pub(super) fn with_connection_limits(&self, server: &Arc<ServerDefinition>, connect_timeout_ms: u64) -> Arc<ServerDefinition> {
        let Some(stack) = &self.stack else { return Arc::clone(server) };
        let name = granted_name(&server.name);
        let connect_ms = server.connect_timeout_ms.unwrap_or(connect_timeout_ms);
        let (stricter_ms, idle_timeout_ms) =
            (stack.stricter_connect_ms(name, connect_ms), stack.stricter_idle_ms(name, server.idle_timeout_ms));
        if (stricter_ms, idle_timeout_ms) == (connect_ms, server.idle_timeout_ms) {
            return Arc::clone(server);
        }
        Arc::new(ServerDefinition { connect_timeout_ms: Some(stricter_ms), idle_timeout_ms, ..ServerDefinition::clone(server) })
    }

    /// Returns the part of an approved manifest that the agent sees. Returns `None` if the agent sees nothing of the server.
    pub(super) fn manifest(&self, server: &ServerDefinition, approved: &Arc<Manifest>) -> Option<Arc<Manifest>> {
        if self.is_everything() {
            return Some(Arc::clone(approved));
        }
        let mut all = self.reduced.lock();
        if let Some((_, reduced)) = all.get(&server.name).filter(|(known, _)| Arc::ptr_eq(known, approved)) {
            return reduced.clone();
        }
        let reduced = self.reduce(server.as_granted(), approved);
        all.insert(server.name.clone(), (Arc::clone(approved), reduced.clone()));
        reduced
    }

    fn reduce(&self, server: ServerRef<'_>, approved: &Arc<Manifest>) -> Option<Arc<Manifest>> {
        if !self.reaches(server) {
            return None;
        }
        let allows = |item: Kept<'_>| {
            let item = match item {
                Kept::Tool(name) => Item::Tool(name),
                Kept::Resource(uri) => Item::Resource(uri),
                Kept::Prompt(name) => Item::Prompt(name),
            };
            self.allows(server, item)
        };
        let reduced = approved.reduced(allows);
        match (reduced.item_count(), approved.item_count()) {
            // If nothing was removed, the approved manifest is used unchanged. This is also true of a server that offers nothing.
            (kept, all) if kept == all => Some(Arc::clone(approved)),
            (0, _) => None,
            _ => Some(Arc::new(reduced)),
        }
    }

    /// Returns whether the agent may read a URI. It does not matter which entry of the manifest describes the URI.
    pub(super) fn may_read(&self, server: &ServerDefinition, uri: &str) -> bool {
        self.allows(server.as_granted(), Item::Resource(uri))
    }
}

/// Returns the name that grants use for a server of the registry. This is the registry's name without the mark of a variant or task, which
/// is the part from `@` on.
pub(super) fn granted_name(server: &str) -> &str {
    marked_name(server).0
}

/// Returns the error for profiles that contradict each other.
pub(super) fn profile_conflict(conflict: &ProfileConflict) -> Error {
    Error::ProfileConflict { problem: conflict.to_string().into() }
}

/// The grants of a gateway, and the views that were computed from them.
pub(super) struct GrantState {
    settings: RwLock<Arc<GrantSettings>>,
    loaded: Mutex<Option<Loaded>>,
    /// The grants of the operator's own agent.
    pub(super) everything: Arc<Granted>,
}

/// Everything that determines the grants of an agent: its name if it has an entry, its profiles, the servers that it has added, and the only
/// servers that exist for it.
type GrantedKey = (Option<String>, Vec<String>, OwnServers, Option<Arc<BTreeSet<String>>>);

/// The grants as they were last read. The store returns the same rows (by pointer) until they change.
struct Loaded {
    settings: Arc<GrantSettings>,
    toolbox_rows: Arc<Rows>,
    grant_rows: Arc<Rows>,
    grants: Arc<Grants>,
    /// The grants by agent. All agents without an entry share the name `None`.
    granted: HashMap<GrantedKey, Arc<Granted>>,
}

impl GrantState {
    pub(super) fn new(settings: GrantSettings) -> Self {
        let everything = Arc::new(Granted::everything());
        Self { settings: RwLock::new(Arc::new(settings)), loaded: Mutex::default(), everything }
    }

    /// Returns the grant settings of the config that was read last.
    pub(super) fn settings(&self) -> Arc<GrantSettings> {
        Arc::clone(&self.settings.read())
    }

    /// Replaces the settings after a reload of the config. If the settings have not changed, keeps the views that were computed from them.
    pub(super) fn replace(&self, settings: GrantSettings) {
        let mut current = self.settings.write();
        if **current != settings {
            *current = Arc::new(settings);
        }
    }
}

impl Core {
    /// Returns the present grants of an agent.
    pub(super) fn granted(&self, identity: &Identity, read: ApprovalRead) -> Result<Arc<Granted>> {
        if identity.is_operator() {
            return Ok(Arc::clone(&self.grants.everything));
        }
        self.granted_to(identity.granted_name.as_deref(), &identity.profiles, identity.only.as_ref(), read)
    }

    /// Returns the present grants of an agent of this name that was opened with these profiles, and for which only these servers exist.
    pub(super) fn granted_to(
        &self,
        granted_name: Option<&str>,
        own_profiles: &[String],
        only: Option<&Arc<BTreeSet<String>>>,
        read: ApprovalRead,
    ) -> Result<Arc<Granted>> {
        let own = granted_name.map(|name| self.added_by(name)).unwrap_or_default();
        let granted = self.with_loaded(read, |loaded| {
            let name = granted_name.filter(|name| loaded.grants.toolboxes_of(name).is_some());
            let profiles = loaded.grants.profiles_of(granted_name, own_profiles);
            let key = (name.map(str::to_owned), profiles.to_vec(), own.clone(), only.cloned());
            if let Some(known) = loaded.granted.get(&key) {
                return Ok(Arc::clone(known));
            }
            let stack = loaded.grants.stack(profiles).map_err(|conflict| profile_conflict(&conflict))?;
            let granted = match (loaded.grants.access(name), stack) {
                (Access::All, None) if own.names.is_empty() && only.is_none() => Arc::clone(&self.grants.everything),
                (access, stack) => Arc::new(Granted::new(access, stack, own).limited_to(only.cloned())),
            };
            loaded.granted.insert(key, Arc::clone(&granted));
            Ok(granted)
        });
        granted?
    }

    /// Returns the present grants of all agents.
    pub(super) fn grants_now(&self, read: ApprovalRead) -> Result<Arc<Grants>> {
        self.with_loaded(read, |loaded| Arc::clone(&loaded.grants))
    }

    /// Returns the grants to which a change is applied. Rows that another program has modified are ignored, because the change replaces
    /// them.
    pub(super) fn grants_to_change(&self) -> Result<Grants> {
        let (toolbox_rows, grant_rows) = (self.store.rows(Kind::Toolbox)?, self.store.rows(Kind::Grant)?);
        let settings = Arc::clone(&self.grants.settings.read());
        Ok(Grants::new(settings, grant_rows::toolboxes(&toolbox_rows)?, grant_rows::agents(&grant_rows)?))
    }

    fn with_loaded<T>(&self, read: ApprovalRead, work: impl FnOnce(&mut Loaded) -> T) -> Result<T> {
        // Damaged rows are an error. If they were ignored, a restricted agent would get the grants of an agent without an entry.
        let rows = |kind| {
            let rows = match read {
                ApprovalRead::Fresh | ApprovalRead::Store => self.store.rows(kind)?,
                ApprovalRead::Cached => self.store.last_rows(kind)?,
            };
            match self.store.damage(kind) {
                None => Ok(rows),
                Some(problem) => Err(Error::Store { path: STORE.into(), problem: problem.into() }),
            }
        };
        // Toolboxes are read first, because a grant is always written after its toolbox.
        let (toolbox_rows, grant_rows) = (rows(Kind::Toolbox)?, rows(Kind::Grant)?);
        let settings = Arc::clone(&self.grants.settings.read());
        let mut slot = self.grants.loaded.lock();
        let is_same = |loaded: &&mut Loaded| {
            Arc::ptr_eq(&loaded.settings, &settings)
                && Arc::ptr_eq(&loaded.toolbox_rows, &toolbox_rows)
                && Arc::ptr_eq(&loaded.grant_rows, &grant_rows)
        };
        if let Some(loaded) = slot.as_mut().filter(is_same) {
            return Ok(work(loaded));
        }
        let grants = Grants::new(Arc::clone(&settings), grant_rows::toolboxes(&toolbox_rows)?, grant_rows::agents(&grant_rows)?);
        let loaded = Loaded { settings, toolbox_rows, grant_rows, grants: Arc::new(grants), granted: HashMap::new() };
        Ok(work(slot.insert(loaded)))
    }

    /// Returns the definition of a server that the agent may know. `name` is the agent's name for the server, or the registry's name. If
    /// the agent may not know the server, the error is the same as for a server that does not exist.
    pub(super) fn known_server(&self, name: &str, granted: &Granted) -> Result<Arc<ServerDefinition>> {
        let name = granted.registry_name(name);
        if granted.is_everything() {
            self.registry.make_variant_named(name);
        }
        match self.registry.entry(name) {
            Ok(entry) if granted.reaches(entry.as_granted()) => self.registry.server(name).map_err(|error| match error {
                Error::UnknownServer { .. } => self.unknown_server(name, granted),
                other => other,
            }),
            _ => Err(self.unknown_server(name, granted)),
        }
    }

    /// Removes names of servers from an error, if the agent must not know them.
    pub(super) fn screened(&self, identity: &Identity, granted: &Granted, error: Error) -> Error {
        let Error::TooManyConnections { server, limit, holders } = error else { return error };
        let is_known = |holder: &OwnText| {
            let entry = self.registry.entry(holder.as_str());
            entry.is_ok_and(|entry| granted.reaches(entry.as_granted()) && exists_for(entry.as_granted(), identity, granted))
        };
        let (known, others): (Vec<_>, Vec<_>) = holders.into_iter().partition(is_known);
        let more = (!others.is_empty()).then(|| OwnText::from(format!("{} of other agents", others.len())));
        Error::TooManyConnections { server, limit, holders: known.into_iter().chain(more).collect() }
    }

    /// Returns the error for a server that does not exist for an agent. The error lists the servers that exist for the agent.
    pub(super) fn unknown_server(&self, name: &str, granted: &Granted) -> Error {
        // A server that another agent has added exists for this agent only if it was granted. Servers of tasks are left out: the gateway
        // makes their names, and they exist only for the agent that has the task.
        let is_named = |server: &ServerDefinition| {
            let server = server.as_granted();
            !is_of_task(server) && server.added_by.is_none() || granted.has_added(server) || granted.has_addition(server)
        };
        let seen = |server: &Arc<ServerDefinition>| is_named(server) && self.sees(server, granted);
        let known = self.registry.servers().into_iter().filter(seen).take(KNOWN_NAMES);
        // The name is not looked up: the text must be the same whether or not another agent has a server of this name.
        let place = if granted.is_everything() { self.registry.searched_place() } else { "in the config" };
        let name_of = |server: &ServerDefinition| ErrorText::from(granted.name_in_code(server.as_granted()).unwrap_or(&server.name));
        Error::UnknownServer { server: name.to_owned(), place, known: known.map(|server| name_of(&server)).collect() }
    }

    /// Returns whether a server exists for an agent. If the server is not approved, its items are unknown. Then the grant patterns alone
    /// decide. A server that another agent has added does not exist before it is approved, because that agent has chosen its name.
    pub(super) fn sees(&self, server: &ServerDefinition, granted: &Granted) -> bool {
        let known = server.as_granted();
        granted.is_everything()
            || granted.reaches(known)
                && match self.last_approved(server) {
                    Some(manifest) => granted.manifest(server, &manifest).is_some(),
                    None => !granted.is_of_another(known),
                }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerSource, SourceKind};
    use crate::registry::source_of;

    #[test]
    fn an_agent_has_by_adding_it_the_server_that_it_has_added_and_no_other_of_the_name() {
        let own = OwnServers { agent: Some("a".to_owned()), names: BTreeSet::from(["extra".to_owned()]) };
        let [task, config] = [SourceKind::Task, SourceKind::Config].map(|kind| ServerSource { kind, name: None });
        for (name, source, has, has_lost) in [
            ("extra", source_of(Some("a")), true, false),
            ("extra", source_of(Some("b")), false, true),
            ("extra", source_of(None), false, true),
            ("extra", config, false, true),
            ("extra@task-0f", task, false, false),
            ("other", source_of(Some("a")), false, false),
        ] {
            let server = ServerRef::of(name, &source);
            assert_eq!((own.has(server), own.has_lost(server)), (has, has_lost), "{name} of {source}");
        }
        assert!(!OwnServers::default().has(ServerRef::of("extra", &source_of(None))));
    }
}
