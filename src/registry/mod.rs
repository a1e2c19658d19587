//! The registry: the servers from all sources that exist at present, and the state of each server, such as whether it is enabled in this
//! gateway.

mod added;
mod attach;
mod catalogue;
mod decisions;
mod earlier;
mod grants;
mod merged;
mod profiles;
mod proposal_limit;
pub mod providers;
mod status;
mod variants;

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use added::{AddedServer, MAX_ADDED_SERVERS, ServerChange, ValueChanges, source_of};
pub use attach::{AttachDecision, AttachReason, Candidate, Obstacle, Presence, TaskWishes, attach};
pub use catalogue::{catalogue, catalogue_source};
pub use decisions::LiveStatus;
pub use grants::{Access, GrantInfo, GrantList, GrantSource, Grants, Patterns, ToolboxInfo, Verdict};
pub use merged::{Hidden, RegistryView};
pub use profiles::Stack;
pub(crate) use proposal_limit::take_proposal;
pub use status::{LastError, ServerState, ServerStatus};

use self::decisions::{AgentState, AllLive, PersonDecision, decision_of, is_enabled};
use self::merged::{Layers, Merged, Rank};
use self::variants::Variants;

use crate::catalog::Manifest;
use crate::config::{Config, InputDefinition, InvalidServer, ServerDefinition, ServerRef, ServerSource};
use crate::error::{Error, Result};
use crate::text::variant_of;

/// A server of any source.
#[derive(Debug, Clone)]
pub enum Entry {
    Valid(Arc<ServerDefinition>),
    /// An entry with an error. It is listed with the error and cannot be used.
    Invalid(Arc<InvalidServer>),
}

impl Entry {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Valid(server) => &server.name,
            Self::Invalid(server) => &server.name,
        }
    }

    /// Returns a reference to the server, with which patterns of grants are compared.
    #[must_use]
    pub fn as_granted(&self) -> ServerRef<'_> {
        match self {
            Self::Valid(server) => server.as_granted(),
            Self::Invalid(server) => ServerRef::of(&server.name, &server.source),
        }
    }

    /// Returns the source of the server.
    #[must_use]
    pub fn source(&self) -> &ServerSource {
        match self {
            Self::Valid(server) => &server.source,
            Self::Invalid(server) => &server.source,
        }
    }
}

/// A server whose files must be protected from the boxes of other servers.
#[derive(Debug, Clone)]
pub struct KnownServer {
    pub server: Arc<ServerDefinition>,
    /// True if this definition can be used. Each name has at most one such definition.
    pub is_in_force: bool,
}

/// The party that enables or disables a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    /// A person, or the author of the agent. The decision is for all agents.
    Person,
    /// A model. The decision is only for the model's own agent, and cannot enable a server that a person has disabled.
    Model,
}

/// Identifies an agent within its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u64);

/// The servers of one gateway.
#[derive(Debug)]
pub struct Registry {
    /// The servers of each source. The lock is held during a change, so that two simultaneous changes do not overwrite each other.
    layers: Mutex<Layers>,
    /// The view that is computed from the layers. The view is always replaced as a whole.
    merged: RwLock<Arc<Merged>>,
    live: Mutex<AllLive>,
    /// The only servers that may be enabled. `None` if there is no such limit.
    only: Option<BTreeSet<String>>,
}

impl Registry {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::limited_to(None, config)
    }

    /// Creates a registry that treats all servers except `only` as disabled by a person. This includes servers that a later config adds.
    /// With `None`, there is no limit.
    #[must_use]
    pub fn limited_to(only: Option<&[String]>, config: Config) -> Self {
        let only = only.map(|names| names.iter().cloned().collect());
        let registry = Self { layers: Mutex::default(), merged: RwLock::default(), live: Mutex::default(), only };
        registry.replace(config);
        registry
    }

    /// Replaces the operator's config and the base layers under it.
    pub fn replace(&self, mut config: Config) {
        let (inputs, bases) = (std::mem::take(&mut config.inputs), std::mem::take(&mut config.bases));
        let settings = std::mem::take(&mut config.grants);
        self.change(|layers| {
            (layers.inputs, layers.variants.settings, layers.boxes) = (inputs, settings, config.boxes);
            layers.hidden_in_bases.clear();
            layers.by_rank.retain(|rank, _| !rank.is_config());
            layers.by_rank.insert(Rank::of(ServerSource::default()), entries_of(config.servers, config.invalid));
            for (position, base) in bases.into_iter().enumerate() {
                layers.inputs.extend(base.inputs);
                layers.hidden_in_bases.extend(base.hidden);
                layers.by_rank.insert(Rank::at(base.source, position + 1), entries_of(base.servers, base.invalid));
            }
        });
    }

    /// Replaces the servers of one source. An empty list removes the source. The caller must end the servers that were changed or removed.
    /// To find them, the caller compares [`Self::entries`] before and after this call.
    pub fn set_layer(&self, source: ServerSource, entries: Vec<Entry>) {
        self.change(|layers| {
            if entries.is_empty() {
                layers.by_rank.remove(&Rank::of(source));
            } else {
                layers.by_rank.insert(Rank::of(source), entries);
            }
        });
    }

    /// Creates the variants for a combination of profiles. These variants are never removed, because a person may approve or enable them
    /// later.
    pub fn make_variants(&self, profiles: &[String]) {
        self.make_variants_of(|_| Some(profiles.iter().cloned().collect()));
    }

    /// Creates the variant with this name, if the name consists of a server and profiles of the config. Returns whether it was created.
    pub fn make_variant_named(&self, name: &str) -> bool {
        self.make_variants_of(|variants| variants.stack_in(name))
    }

    fn make_variants_of(&self, stack: impl FnOnce(&Variants) -> Option<BTreeSet<String>>) -> bool {
        let stack = {
            let layers = self.layers.lock();
            // The variants of a single profile always exist.
            stack(&layers.variants).filter(|stack| stack.len() > 1 && !layers.variants.stacks.contains(stack))
        };
        let is_new = stack.is_some();
        if let Some(stack) = stack {
            self.change(|layers| {
                layers.variants.stacks.insert(stack);
            });
        }
        is_new
    }

    fn change(&self, change: impl FnOnce(&mut Layers)) {
        let mut layers = self.layers.lock();
        change(&mut layers);
        let mut merged = layers.merged();
        merged.earlier = layers.earlier.changed(&self.merged(), &merged);
        if let Some(only) = &self.only {
            // This is done before anybody can find the new servers. In `only`, the name of a server also stands for its variants.
            let is_named = |name: &str| only.contains(name) || variant_of(name).is_some_and(|server| only.contains(server));
            for entry in merged.entries.iter().filter(|entry| !is_named(entry.name())) {
                self.live().changing(entry.name()).decision = PersonDecision::Off;
            }
        }
        *self.merged.write() = Arc::new(merged);
    }

    /// Returns the entries of all sources, with each name once. The sources are ordered by precedence, and the entries of a source keep
    /// their order. Entries with an error are last.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.merged().entries.clone()
    }

    /// Returns the present view of all sources.
    #[must_use]
    pub fn view(&self) -> RegistryView {
        RegistryView(self.merged())
    }

    /// Returns the entry with this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, with the names of existing servers.
    pub fn entry(&self, name: &str) -> Result<Entry> {
        let merged = self.merged();
        merged.get(name).cloned().ok_or_else(|| merged.unknown(name))
    }

    /// Returns the sources in which a server is looked up, for an error text that must be the same whether or not another agent has a
    /// server of the name.
    #[must_use]
    pub fn searched_place(&self) -> &'static str {
        self.merged().searched_place()
    }

    /// Returns whether a source has a server of this name, or could have one later without a change of the config's own servers. So returns
    /// true for a name of the catalogue, even if the catalogue is switched off.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.merged().get(name).is_some() || catalogue().iter().any(|entry| entry.name() == name)
    }

    /// Returns the sources whose servers with this name are hidden, because a source of higher precedence has the name.
    #[must_use]
    pub fn hidden_by(&self, name: &str) -> Vec<Hidden> {
        self.merged().hidden.get(name).cloned().unwrap_or_default()
    }

    /// Returns the servers that can be used, in the order of [`Self::entries`].
    #[must_use]
    pub fn servers(&self) -> Vec<Arc<ServerDefinition>> {
        let valid = |entry: &Entry| if let Entry::Valid(server) = entry { Some(Arc::clone(server)) } else { None };
        self.merged().entries.iter().filter_map(valid).collect()
    }

    /// Returns all servers whose files must be protected from boxes. These are the servers that can be used, the servers of entries that
    /// are hidden or have errors, and the servers that existed earlier, because the same entry can come back. Only the servers that can be
    /// used have boxes.
    #[must_use]
    pub fn known_servers(&self) -> Vec<KnownServer> {
        let merged = self.merged();
        let known = |is_in_force: bool| move |server: &Arc<ServerDefinition>| KnownServer { server: Arc::clone(server), is_in_force };
        merged.in_force().map(known(true)).chain(merged.out_of_force().chain(&merged.earlier).map(known(false))).collect()
    }

    /// Returns the server with this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, with the names of existing servers. For an invalid entry, the entry's own error.
    pub fn server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        let merged = self.merged();
        match merged.get(name) {
            Some(Entry::Valid(server)) => Ok(Arc::clone(server)),
            Some(Entry::Invalid(server)) => Err(server.error.clone()),
            None => Err(merged.unknown(name)),
        }
    }

    /// Returns the config's definition of the input with this id, which a placeholder `${input:id}` refers to.
    #[must_use]
    pub fn input(&self, id: &str) -> Option<InputDefinition> {
        self.merged().inputs.iter().find(|input| input.id == id).cloned()
    }

    /// Makes the server visible to runs. If a person decides, this applies to the runs of all agents. If a model decides, it applies to the
    /// runs of its agent.
    ///
    /// # Errors
    /// `ERR_DISABLED_BY_PERSON` if a model enables a server that a person has disabled.
    pub fn enable(&self, name: &str, decider: Decider, agent: AgentId) -> Result<()> {
        let mut all = self.live();
        let decision = decision_of(&all, name);
        let live = all.changing(name);
        match decider {
            Decider::Person => {
                (live.decision, live.variants) = (PersonDecision::On, PersonDecision::On);
                live.agents.values_mut().for_each(|state| state.enabled = None);
            }
            Decider::Model if decision == PersonDecision::Off => return Err(Error::DisabledByPerson { server: name.to_owned() }),
            Decider::Model => live.agent(agent).enabled = Some(true),
        }
        Ok(())
    }

    /// Makes the variants of a server visible to runs, each as soon as it is approved. Does not do this for a variant if a person has
    /// disabled the server or the variant.
    pub fn enable_variants(&self, server: &str) {
        let mut all = self.live();
        let variants = &mut all.changing(server).variants;
        if *variants == PersonDecision::Undecided {
            *variants = PersonDecision::On;
        }
    }

    /// Hides the server from the runs of all agents, because a person has disabled it. Ends the server's pending calls. Also hides the
    /// variants of the server, except those that a person has enabled or disabled by name. Returns the names of all hidden servers.
    pub fn disable(&self, name: &str) -> Vec<String> {
        self.end(name, |_| PersonDecision::Off);
        let mut all = self.live();
        all.changing(name).variants = PersonDecision::Off;
        let mut hidden = vec![name.to_owned()];
        for variant in self.merged().variants_of(name) {
            let live = all.changing(variant);
            if live.decision == PersonDecision::Undecided {
                live.end(PersonDecision::Undecided);
                hidden.push(variant.to_owned());
            }
        }
        hidden
    }

    /// Hides the server from the runs of one agent, because the agent's model has disabled it. Ends the agent's pending calls.
    pub fn disable_for(&self, name: &str, agent: AgentId) {
        let mut all = self.live();
        let live = all.changing(name);
        let decisions = live.agents.get(&agent).map_or(0, |state| state.decisions) + 1;
        if let Some(before) = live.agents.insert(agent, AgentState { enabled: Some(false), ended: live.ended.child_token(), decisions }) {
            before.ended.cancel();
        }
    }

    /// Removes the decisions for an agent that has ended.
    pub fn forget_agent(&self, agent: AgentId) {
        self.live().forget_agent(agent);
    }

    /// Ends the pending calls of a server that has lost its approval or its entry. A server that a person had disabled stays disabled.
    /// Variants have their own approvals, so they stay enabled as long as the entry of the server exists.
    pub fn retire(&self, name: &str) {
        let retired = |before| if before == PersonDecision::Off { before } else { PersonDecision::Undecided };
        self.end(name, retired);
        if self.merged().get(name).is_none() {
            let mut all = self.live();
            let live = all.changing(name);
            live.variants = retired(live.variants);
        }
    }

    /// Ends the server's pending calls. An enabled server stays enabled.
    pub fn interrupt(&self, name: &str) {
        let mut all = self.live();
        let live = all.changing(name);
        let kept: Vec<_> = live.agents.iter().filter_map(|(agent, state)| state.enabled.map(|enabled| (*agent, enabled))).collect();
        live.end(live.decision);
        for (agent, enabled) in kept {
            live.agent(agent).enabled = Some(enabled);
        }
    }

    fn end(&self, name: &str, decision: impl FnOnce(PersonDecision) -> PersonDecision) {
        let mut all = self.live();
        let live = all.changing(name);
        live.end(decision(live.decision));
    }

    /// Returns whether the runs of an agent see the server: it is enabled, and the current config does not contain `disabled: true`.
    #[must_use]
    pub fn is_enabled(&self, name: &str, agent: AgentId) -> bool {
        is_enabled(&self.live(), name, agent) && !self.is_disabled_by_config(name)
    }

    /// Returns whether the runs of at least one of these agents see the server.
    #[must_use]
    pub fn is_enabled_for_any(&self, name: &str, agents: &[AgentId]) -> bool {
        let is_enabled_for_one = |all: &AllLive| agents.iter().any(|agent| is_enabled(all, name, *agent));
        is_enabled_for_one(&self.live()) && !self.is_disabled_by_config(name)
    }

    /// Returns the servers that are enabled for an agent, ordered by name. Only servers with a decision are checked, and the variants of
    /// these servers.
    #[must_use]
    pub fn enabled_servers(&self, agent: AgentId) -> Vec<Arc<ServerDefinition>> {
        let merged = self.merged();
        let all = self.live();
        let decided = all.iter().map(|(name, _)| name);
        // A variant can be enabled without a decision about the variant itself.
        let variants = all.iter().filter(|(_, live)| live.variants == PersonDecision::On).flat_map(|(name, _)| merged.variants_of(name));
        let enabled: BTreeSet<&str> = decided.chain(variants).filter(|name| is_enabled(&all, name, agent)).collect();
        let usable = |name: &str| match merged.get(name) {
            Some(Entry::Valid(server)) if !server.disabled => Some(Arc::clone(server)),
            _ => None,
        };
        enabled.into_iter().filter_map(usable).collect()
    }

    fn is_disabled_by_config(&self, name: &str) -> bool {
        matches!(self.merged().get(name), Some(Entry::Valid(server)) if server.disabled)
    }

    /// Returns the number of decisions about the server that affect an agent: revocations, disabling, changed configs, and new approvals.
    #[must_use]
    pub fn decisions(&self, name: &str, agent: AgentId) -> u64 {
        self.live().get(name).map_or(0, |live| live.decisions + live.agents.get(&agent).map_or(0, |state| state.decisions))
    }

    /// Returns whether a person has disabled the server in this gateway, so that no model can enable it.
    #[must_use]
    pub fn is_disabled_by_person(&self, name: &str) -> bool {
        decision_of(&self.live(), name) == PersonDecision::Off
    }

    /// Returns the token that is cancelled when the server's approval is revoked, a person disables the server, or the server's entry
    /// changes.
    #[must_use]
    pub fn ended(&self, name: &str) -> CancellationToken {
        self.live().ended(name)
    }

    /// Returns the token that is cancelled together with [`Self::ended`], and also when the agent's model disables the server.
    #[must_use]
    pub fn ended_for(&self, name: &str, agent: AgentId) -> CancellationToken {
        self.live().ended_for(name, agent)
    }

    /// Returns whether a manifest has not been compared with the approved one yet. Marks the manifest as compared.
    #[must_use]
    pub fn is_new_manifest(&self, name: &str, manifest: &Arc<Manifest>) -> bool {
        let mut all = self.live();
        let live = all.changing(name);
        let is_new = live.compared.as_ref().is_none_or(|known| !Arc::ptr_eq(known, manifest));
        live.compared = Some(Arc::clone(manifest));
        is_new
    }

    /// Resets the result of the last comparison, because the approval has changed.
    pub fn approval_changed(&self, name: &str) {
        let mut all = self.live();
        let live = all.changing(name);
        (live.compared, live.quarantined) = (None, BTreeSet::new());
        live.decisions += 1;
    }

    pub fn set_quarantined(&self, name: &str, tools: BTreeSet<String>) {
        self.live().changing(name).quarantined = tools;
    }

    #[must_use]
    pub fn quarantined(&self, name: &str) -> Vec<String> {
        self.live().get(name).map_or_else(Vec::new, |live| live.quarantined.iter().cloned().collect())
    }

    /// Records the outcome of the last attempt to reach a server. If the attempt succeeded, removes the recorded error.
    pub fn record<T>(&self, name: &str, outcome: &Result<T>) {
        let last_error = outcome.as_ref().err().map(LastError::from);
        self.live().changing(name).last_error = last_error;
    }

    /// Returns the number of changes of servers' states until now.
    #[must_use]
    pub fn state_changes(&self) -> u64 {
        self.live().changes()
    }

    /// Returns the names of the servers whose state has changed after this number of changes, and the names of their variants.
    #[must_use]
    pub fn changed_since(&self, state_changes: u64) -> BTreeSet<String> {
        let (merged, all) = (self.merged(), self.live());
        let changed = all.changed_since(state_changes);
        changed.flat_map(|name| merged.variants_of(name).chain([name]).map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// Returns the state of a server as an agent sees it. All parts of the state are read at the same moment, under one lock.
    #[must_use]
    pub fn live_status(&self, name: &str, agent: AgentId) -> LiveStatus {
        LiveStatus::of(&self.live(), name, agent)
    }

    #[must_use]
    pub fn last_error(&self, name: &str) -> Option<LastError> {
        self.live().get(name).and_then(|live| live.last_error.clone())
    }

    fn merged(&self) -> Arc<Merged> {
        Arc::clone(&self.merged.read())
    }

    fn live(&self) -> MutexGuard<'_, AllLive> {
        self.live.lock()
    }
}

fn entries_of(valid: Vec<ServerDefinition>, invalid: Vec<InvalidServer>) -> Vec<Entry> {
    let valid = valid.into_iter().map(|server| Entry::Valid(Arc::new(server)));
    let invalid = invalid.into_iter().map(|server| Entry::Invalid(Arc::new(server)));
    valid.chain(invalid).collect()
}

#[cfg(test)]
mod tests;
