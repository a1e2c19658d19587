//! The decisions of persons and models to enable or disable each server, and the rule that determines which of these decisions is used.

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
    /// The model's decision. `None` if the model has made no decision, so that the decision of a person is used.
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
    /// A person's decision for all variants of the server about which no person has decided individually. It is separate from `decision`,
    /// because a variant may be approved although the server is not.
    pub(super) variants: PersonDecision,
    pub(super) agents: BTreeMap<AgentId, AgentState>,
    pub(super) last_error: Option<LastError>,
    /// Cancelled when the server is revoked, disabled by a person, or configured differently. This ends the pending calls of all agents.
    pub(super) ended: CancellationToken,
    /// Number of times that the server was revoked, disabled or configured differently, or that another approval was given. After each of
    /// these events, earlier permissions of people are no longer valid.
    pub(super) decisions: u64,
    /// The manifest that was last compared with the approved manifest.
    pub(super) compared: Option<Arc<Manifest>>,
    /// Raw names of approved tools whose present description differs from the approved one.
    pub(super) quarantined: BTreeSet<String>,
    /// The number of the last change of this state, counted over the changes of all states.
    changed_at: u64,
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
        let (variants, last_error, changed_at) = (self.variants, self.last_error.take(), self.changed_at);
        *self = Self { decision, variants, last_error, decisions, changed_at, ..Self::default() };
    }
}

/// The states of all servers that have a state, by the registry's names. A server without a state has default values.
#[derive(Debug, Default)]
pub(super) struct AllLive {
    by_name: BTreeMap<String, Live>,
    /// Number of changes of states until now.
    changes: u64,
}

impl AllLive {
    pub(super) fn get(&self, name: &str) -> Option<&Live> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Live)> {
        self.by_name.iter().map(|(name, live)| (name.as_str(), live))
    }

    /// Returns the state of a server for a change.
    pub(super) fn changing(&mut self, name: &str) -> &mut Live {
        self.changes += 1;
        let live = self.by_name.entry(name.to_owned()).or_default();
        live.changed_at = self.changes;
        live
    }

    /// Returns the token that ends the server's pending calls. If the server has no state, creates one. This is not counted as a change.
    pub(super) fn ended(&mut self, name: &str) -> CancellationToken {
        self.by_name.entry(name.to_owned()).or_default().ended.clone()
    }

    /// Returns the token that ends the pending calls of one agent. If the server or the agent has no state, creates one. This is not
    /// counted as a change.
    pub(super) fn ended_for(&mut self, name: &str, agent: AgentId) -> CancellationToken {
        self.by_name.entry(name.to_owned()).or_default().agent(agent).ended.clone()
    }

    /// Removes the decisions for an agent that has ended. Nobody asks for the view of this agent any more, so this is not counted as a
    /// change.
    pub(super) fn forget_agent(&mut self, agent: AgentId) {
        for live in self.by_name.values_mut() {
            live.agents.remove(&agent);
        }
    }

    /// Returns the number of changes of states until now.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the servers whose state has changed after this number of changes.
    pub(super) fn changed_since(&self, changes: u64) -> impl Iterator<Item = &str> {
        self.iter().filter(move |(_, live)| live.changed_at > changes).map(|(name, _)| name)
    }
}

/// Returns a person's decision about a server. For a variant without its own decision, returns the decision about the variants of its
/// server.
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

/// The state of one server at one moment, as one agent sees it.
#[derive(Debug, Default)]
pub struct LiveStatus {
    /// True if the decisions of persons and of the agent's model let the agent see the server. `disabled: true` in the config is not included.
    pub is_enabled: bool,
    pub is_disabled_by_person: bool,
    /// True if the server has been compared with its approval since the gateway was opened or the approval last changed.
    pub is_compared: bool,
    /// Raw names of approved tools that differed at the last comparison.
    pub quarantined: Vec<String>,
    pub last_error: Option<LastError>,
}

impl LiveStatus {
    pub(super) fn of(all: &AllLive, name: &str, agent: AgentId) -> Self {
        let status = Self {
            is_enabled: is_enabled(all, name, agent),
            is_disabled_by_person: decision_of(all, name) == PersonDecision::Off,
            ..Self::default()
        };
        match all.get(name) {
            Some(live) => Self {
                is_compared: live.compared.is_some(),
                quarantined: live.quarantined.iter().cloned().collect(),
                last_error: live.last_error.clone(),
                ..status
            },
            None => status,
        }
    }
}
