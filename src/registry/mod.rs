//! Holds the servers that exist now, of all sources, their state, and whether this gateway has enabled them.

mod added;
mod attach;
mod catalogue;
mod grants;
mod merged;
mod profiles;
pub mod providers;
mod status;
mod variants;

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use added::{AddedServer, MAX_ADDED_SERVERS, ServerChange, ValueChanges, source_of};
pub use attach::{AttachDecision, AttachReason, Candidate, Obstacle, Presence, TaskWishes, attach};
pub use catalogue::{catalogue, catalogue_source};
pub use grants::{Access, GrantInfo, GrantList, GrantSource, Grants, Patterns, ToolboxInfo, Verdict};
pub use merged::Hidden;
pub use profiles::Stack;
pub use status::{LastError, ServerState, ServerStatus};

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

    /// Returns the server as patterns of grants know it.
    #[must_use]
    pub fn as_granted(&self) -> ServerRef<'_> {
        match self {
            Self::Valid(server) => server.as_granted(),
            Self::Invalid(server) => ServerRef::of(&server.name, &server.source),
        }
    }

    /// Returns who brought the server.
    #[must_use]
    pub fn source(&self) -> &ServerSource {
        match self {
            Self::Valid(server) => &server.source,
            Self::Invalid(server) => &server.source,
        }
    }
}

/// The party that enables or disables a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    /// A person, or the author of the agent. The decision is for all agents.
    Person,
    /// A model. It decides for its own agent, and cannot undo the decision of a person to disable a server.
    Model,
}

/// Identifies an agent within its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u64);

/// The decision of a person whether agents see a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PersonDecision {
    On,
    /// No person has decided. A model may enable the server for its agent.
    #[default]
    Undecided,
    /// No model can enable the server.
    Off,
}

/// The decisions of one agent's model about one server.
#[derive(Debug, Default)]
struct AgentState {
    /// `None`: the decision of a person holds.
    enabled: Option<bool>,
    /// Cancelled when the model disables the server, and when the server ends for all: pending calls of the agent end.
    ended: CancellationToken,
    /// Number of times that the model has disabled the server: what people allowed its calls before no longer holds.
    decisions: u64,
}

/// The state of one server besides its definition.
#[derive(Debug, Default)]
struct Live {
    decision: PersonDecision,
    agents: BTreeMap<AgentId, AgentState>,
    last_error: Option<LastError>,
    /// Cancelled when the server is revoked, disabled by a person, or configured in another way: pending calls of all agents end.
    ended: CancellationToken,
    /// Number of times that this happened, or that another approval was given: what people allowed earlier no longer holds.
    decisions: u64,
    /// The manifest that was last compared with the approved one.
    compared: Option<Arc<Manifest>>,
    /// Raw names of approved tools that differ from their approved form.
    quarantined: BTreeSet<String>,
}

impl Live {
    /// The decisions of one agent's model.
    fn agent(&mut self, agent: AgentId) -> &mut AgentState {
        let ended = &self.ended;
        self.agents.entry(agent).or_insert_with(|| AgentState { ended: ended.child_token(), ..AgentState::default() })
    }

    fn is_enabled(&self, agent: AgentId) -> bool {
        match (self.decision, self.agents.get(&agent).and_then(|state| state.enabled)) {
            (PersonDecision::Off, _) => false,
            (_, Some(enabled)) => enabled,
            (decision, None) => decision == PersonDecision::On,
        }
    }

    /// Ends what is pending, and forgets all but the last error and the number of decisions, which only ever grows.
    fn end(&mut self, decision: PersonDecision) {
        self.ended.cancel();
        let of_agents = self.agents.values().map(|state| state.decisions).max().unwrap_or(0);
        let decisions = self.decisions + of_agents + 1;
        *self = Self { decision, last_error: self.last_error.take(), decisions, ..Self::default() };
    }
}

/// The servers of one gateway.
#[derive(Debug)]
pub struct Registry {
    /// The servers of each source. Locked while one changes, so that two changes do not lose each other.
    layers: Mutex<Layers>,
    /// The view that follows from the layers, replaced as a whole.
    merged: RwLock<Arc<Merged>>,
    live: Mutex<BTreeMap<String, Live>>,
    /// The only servers that may be enabled, if a person has limited them.
    only: Option<BTreeSet<String>>,
}

impl Registry {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::limited_to(None, config)
    }

    /// Makes a registry in which all servers but these count as disabled by a person, also those that a later config adds.
    #[must_use]
    pub fn limited_to(only: Option<&[String]>, config: Config) -> Self {
        let only = only.map(|names| names.iter().cloned().collect());
        let registry = Self { layers: Mutex::default(), merged: RwLock::default(), live: Mutex::default(), only };
        registry.replace(config);
        registry
    }

    /// Replaces the operator's config, and the base layers under it, with others.
    pub fn replace(&self, mut config: Config) {
        let (inputs, bases) = (std::mem::take(&mut config.inputs), std::mem::take(&mut config.bases));
        let settings = std::mem::take(&mut config.grants);
        self.change(|layers| {
            (layers.inputs, layers.variants.settings) = (inputs, settings);
            layers.by_rank.retain(|rank, _| !rank.is_config());
            layers.by_rank.insert(Rank::of(ServerSource::default()), entries_of(config.servers, config.invalid));
            for (position, base) in bases.into_iter().enumerate() {
                layers.inputs.extend(base.inputs);
                layers.by_rank.insert(Rank::at(base.source, position + 1), entries_of(base.servers, base.invalid));
            }
        });
    }

    /// Replaces the servers of one source. Without entries, the source has none any more. The caller ends the servers that are no longer the same:
    /// it compares [`Self::entries`] before and after.
    pub fn set_layer(&self, source: ServerSource, entries: Vec<Entry>) {
        self.change(|layers| {
            if entries.is_empty() {
                layers.by_rank.remove(&Rank::of(source));
            } else {
                layers.by_rank.insert(Rank::of(source), entries);
            }
        });
    }

    /// Makes the variants of profiles that are taken up together. They stay, as a person may decide about them later.
    pub fn make_variants(&self, profiles: &[String]) {
        self.make_variants_of(|_| Some(profiles.iter().cloned().collect()));
    }

    /// Makes the variant of this name, if it names profiles of the config. Returns whether anything was made.
    pub fn make_variant_named(&self, name: &str) -> bool {
        self.make_variants_of(|variants| variants.stack_in(name))
    }

    fn make_variants_of(&self, stack: impl FnOnce(&Variants) -> Option<BTreeSet<String>>) -> bool {
        let stack = {
            let layers = self.layers.lock();
            // The variants of one profile are always there.
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
        let merged = layers.merged();
        if let Some(only) = &self.only {
            // Before anybody can find the new servers.
            // Who limits servers names them as code does.
            let is_named = |name: &str| only.contains(name) || variant_of(name).is_some_and(|server| only.contains(server));
            for entry in merged.entries.iter().filter(|entry| !is_named(entry.name())) {
                self.live().entry(entry.name().to_owned()).or_default().decision = PersonDecision::Off;
            }
        }
        *self.merged.write() = Arc::new(merged);
    }

    /// Returns the entries of all sources, each name once: the sources in their precedence, each in its own order. Entries with an error come
    /// last.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.merged().entries.clone()
    }

    /// Returns the entry of this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, which names the existing servers.
    pub fn entry(&self, name: &str) -> Result<Entry> {
        let merged = self.merged();
        merged.get(name).cloned().ok_or_else(|| merged.unknown(name))
    }

    /// Returns whether a source has a server of this name, or could have one later without a change of the config's own servers: the catalogue counts
    /// also where it is switched off.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.merged().get(name).is_some() || catalogue().iter().any(|entry| entry.name() == name)
    }

    /// Returns the sources of a name, and the entries of lower precedence that it hides.
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

    /// Returns the server of this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, which names the existing servers. For an invalid entry, the entry's own error.
    pub fn server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        let merged = self.merged();
        match merged.get(name) {
            Some(Entry::Valid(server)) => Ok(Arc::clone(server)),
            Some(Entry::Invalid(server)) => Err(server.error.clone()),
            None => Err(merged.unknown(name)),
        }
    }

    /// Returns the config's description of the input with this id, as in `${input:id}`.
    #[must_use]
    pub fn input(&self, id: &str) -> Option<InputDefinition> {
        self.merged().inputs.iter().find(|input| input.id == id).cloned()
    }

    /// Lets runs see the server from now on: those of all agents where a person decides, those of one agent where its model does.
    ///
    /// # Errors
    /// `ERR_DISABLED_BY_PERSON` where a model enables a server that a person has disabled.
    pub fn enable(&self, name: &str, decider: Decider, agent: AgentId) -> Result<()> {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        match decider {
            Decider::Person => {
                live.decision = PersonDecision::On;
                live.agents.values_mut().for_each(|state| state.enabled = None);
            }
            Decider::Model if live.decision == PersonDecision::Off => return Err(Error::DisabledByPerson { server: name.to_owned() }),
            Decider::Model => live.agent(agent).enabled = Some(true),
        }
        Ok(())
    }

    /// Hides the server from the runs of all agents, for a person, and ends what is pending.
    pub fn disable(&self, name: &str) {
        self.end(name, |_| PersonDecision::Off);
    }

    /// Hides the server from the runs of one agent, for its model, and ends the agent's pending calls.
    pub fn disable_for(&self, name: &str, agent: AgentId) {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        let decisions = live.agents.get(&agent).map_or(0, |state| state.decisions) + 1;
        if let Some(before) = live.agents.insert(agent, AgentState { enabled: Some(false), ended: live.ended.child_token(), decisions }) {
            before.ended.cancel();
        }
    }

    /// Forgets an agent that has ended.
    pub fn forget_agent(&self, agent: AgentId) {
        for live in self.live().values_mut() {
            live.agents.remove(&agent);
        }
    }

    /// Ends what is pending where the server lost its approval, or its entry. A server that a person had disabled stays disabled.
    pub fn retire(&self, name: &str) {
        self.end(name, |before| if before == PersonDecision::Off { before } else { PersonDecision::Undecided });
    }

    /// Ends the server's pending calls. An enabled server stays enabled.
    pub fn interrupt(&self, name: &str) {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        let kept: Vec<_> = live.agents.iter().filter_map(|(agent, state)| state.enabled.map(|enabled| (*agent, enabled))).collect();
        live.end(live.decision);
        for (agent, enabled) in kept {
            live.agent(agent).enabled = Some(enabled);
        }
    }

    fn end(&self, name: &str, decision: impl FnOnce(PersonDecision) -> PersonDecision) {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        live.end(decision(live.decision));
    }

    /// Returns whether the runs of an agent see the server: it is enabled, and the config does not say `disabled: true` by now.
    #[must_use]
    pub fn is_enabled(&self, name: &str, agent: AgentId) -> bool {
        self.live().get(name).is_some_and(|live| live.is_enabled(agent)) && !self.is_disabled_by_config(name)
    }

    /// Returns whether the runs of at least one of these agents see the server.
    #[must_use]
    pub fn is_enabled_for_any(&self, name: &str, agents: &[AgentId]) -> bool {
        let is_enabled = |live: &Live| agents.iter().any(|agent| live.is_enabled(*agent));
        self.live().get(name).is_some_and(is_enabled) && !self.is_disabled_by_config(name)
    }

    /// Returns the servers that are enabled for an agent, by name. Looks only at servers about which anybody has decided.
    #[must_use]
    pub fn enabled_servers(&self, agent: AgentId) -> Vec<Arc<ServerDefinition>> {
        let merged = self.merged();
        let enabled: Vec<_> = self.live().iter().filter(|(_, live)| live.is_enabled(agent)).map(|(name, _)| name.clone()).collect();
        let usable = |name: &String| match merged.get(name) {
            Some(Entry::Valid(server)) if !server.disabled => Some(Arc::clone(server)),
            _ => None,
        };
        enabled.iter().filter_map(usable).collect()
    }

    fn is_disabled_by_config(&self, name: &str) -> bool {
        matches!(self.merged().get(name), Some(Entry::Valid(server)) if server.disabled)
    }

    /// Number of decisions about the server that concern an agent: revocations, disablings, other configs, other approvals.
    #[must_use]
    pub fn decisions(&self, name: &str, agent: AgentId) -> u64 {
        self.live().get(name).map_or(0, |live| live.decisions + live.agents.get(&agent).map_or(0, |state| state.decisions))
    }

    /// Returns whether a person has disabled the server here, so that no model can enable it.
    #[must_use]
    pub fn is_disabled_by_person(&self, name: &str) -> bool {
        self.live().get(name).is_some_and(|live| live.decision == PersonDecision::Off)
    }

    /// Returns the token that is cancelled when the server is revoked, disabled by a person, or changed.
    #[must_use]
    pub fn ended(&self, name: &str) -> CancellationToken {
        self.live().entry(name.to_owned()).or_default().ended.clone()
    }

    /// Returns the token that is cancelled when [`Self::ended`] is, and when the agent's model disables the server.
    #[must_use]
    pub fn ended_for(&self, name: &str, agent: AgentId) -> CancellationToken {
        self.live().entry(name.to_owned()).or_default().agent(agent).ended.clone()
    }

    /// Returns whether a manifest has not been compared yet, and marks it as compared.
    #[must_use]
    pub fn is_new_manifest(&self, name: &str, manifest: &Arc<Manifest>) -> bool {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        let is_new = live.compared.as_ref().is_none_or(|known| !Arc::ptr_eq(known, manifest));
        live.compared = Some(Arc::clone(manifest));
        is_new
    }

    /// Forgets the last comparison, because the approval has changed.
    pub fn approval_changed(&self, name: &str) {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        (live.compared, live.quarantined) = (None, BTreeSet::new());
        live.decisions += 1;
    }

    /// Returns whether the server has been compared with its approval since the gateway was opened or the approval last changed.
    #[must_use]
    pub fn is_compared(&self, name: &str) -> bool {
        self.live().get(name).is_some_and(|live| live.compared.is_some())
    }

    pub fn set_quarantined(&self, name: &str, tools: BTreeSet<String>) {
        self.live().entry(name.to_owned()).or_default().quarantined = tools;
    }

    #[must_use]
    pub fn quarantined(&self, name: &str) -> Vec<String> {
        self.live().get(name).map_or_else(Vec::new, |live| live.quarantined.iter().cloned().collect())
    }

    /// Records the outcome of the last attempt to reach a server.
    pub fn record<T>(&self, name: &str, outcome: &Result<T>) {
        let last_error = outcome.as_ref().err().map(LastError::from);
        self.live().entry(name.to_owned()).or_default().last_error = last_error;
    }

    #[must_use]
    pub fn last_error(&self, name: &str) -> Option<LastError> {
        self.live().get(name).and_then(|live| live.last_error.clone())
    }

    fn merged(&self) -> Arc<Merged> {
        Arc::clone(&self.merged.read())
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
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
