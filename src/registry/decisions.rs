//! The decisions of persons and models to enable or disable each server, and the rule that decides which of them counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{AgentId, LastError};
use crate::catalog::Manifest;
use crate::text::variant_of;

/// A person's decision whether agents may see a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PersonDecision {
    On,
    /// No person has decided. A model may enable the server for its agent.
    #[default]
    Undecided,
    /// No model can enable the server.
    Off,
}

/// The decisions of one agent's model about one server.
#[derive(Debug, Default)]
pub(super) struct AgentState {
    /// The model's decision. `None` if the decision of a person applies.
    pub(super) enabled: Option<bool>,
    /// Cancelled when the model disables the server, or when the server ends for all agents. This ends the agent's pending calls.
    pub(super) ended: CancellationToken,
    /// Number of times that the model has disabled the server. After each of these decisions, permissions that people gave for calls are no
    /// longer valid.
    pub(super) decisions: u64,
}

/// The state of one server, without its definition.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) decision: PersonDecision,
    /// The decision for the server's variants about which no person has decided. It is separate from `decision`, because a variant may be
    /// approved although the server is not.
    pub(super) variants: PersonDecision,
    pub(super) agents: BTreeMap<AgentId, AgentState>,
    pub(super) last_error: Option<LastError>,
    /// Cancelled when the server is revoked, disabled by a person, or configured differently. This ends the pending calls of all agents.
    pub(super) ended: CancellationToken,
    /// Number of times that the server was revoked, disabled or configured differently, or that another approval was given. After each of
    /// these events, earlier permissions of people are no longer valid.
    pub(super) decisions: u64,
    /// The manifest that was last compared with the approved one.
    pub(super) compared: Option<Arc<Manifest>>,
    /// Raw names of approved tools that differ from their approved form.
    pub(super) quarantined: BTreeSet<String>,
}

impl Live {
    /// Returns the decisions of one agent's model.
    pub(super) fn agent(&mut self, agent: AgentId) -> &mut AgentState {
        let ended = &self.ended;
        self.agents.entry(agent).or_insert_with(|| AgentState { ended: ended.child_token(), ..AgentState::default() })
    }

    /// Ends the pending calls and resets the state. Keeps only the decision for variants, the last error, and the number of decisions, which must
    /// never decrease.
    pub(super) fn end(&mut self, decision: PersonDecision) {
        self.ended.cancel();
        let of_agents = self.agents.values().map(|state| state.decisions).max().unwrap_or(0);
        let decisions = self.decisions + of_agents + 1;
        *self = Self { decision, variants: self.variants, last_error: self.last_error.take(), decisions, ..Self::default() };
    }
}

/// The states of all servers about which anybody has decided, by the registry's names.
pub(super) type AllLive = BTreeMap<String, Live>;

/// Returns the decision of a person that applies to a server. For a variant without its own decision, this is the decision about its server.
pub(super) fn decision_of(all: &AllLive, name: &str) -> PersonDecision {
    let own = all.get(name).map_or_else(PersonDecision::default, |live| live.decision);
    match variant_of(name).filter(|_| own == PersonDecision::Undecided) {
        Some(server) => all.get(server).map_or_else(PersonDecision::default, |live| live.variants),
        None => own,
    }
}

/// Returns whether the decisions of persons and of the agent's model let the agent see a server.
pub(super) fn is_enabled(all: &AllLive, name: &str, agent: AgentId) -> bool {
    let of_model = all.get(name).and_then(|live| live.agents.get(&agent)).and_then(|state| state.enabled);
    match (decision_of(all, name), of_model) {
        (PersonDecision::Off, _) => false,
        (_, Some(enabled)) => enabled,
        (decision, None) => decision == PersonDecision::On,
    }
}
