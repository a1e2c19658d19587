//! Holds the servers that exist now, their state, and whether this gateway has enabled them.

mod status;

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use status::{LastError, ServerState, ServerStatus};

use crate::catalog::Manifest;
use crate::config::{Config, InputDefinition, InvalidServer, ServerDefinition};
use crate::error::{Error, Result};

/// An entry of the config.
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
}

/// The content of the config, which is replaced as a whole.
#[derive(Debug, Default)]
struct Configured {
    entries: Vec<Entry>,
    inputs: Vec<InputDefinition>,
}

/// The party that enables or disables a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    /// A person, or the agent's own code.
    Person,
    /// A model. It cannot reverse the decision of a person.
    Model,
}

/// Decides whether runs see a server, and records who disabled it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Switch {
    On,
    /// Nobody has enabled the server, or a model has disabled it. A model or a person may enable it.
    #[default]
    Off,
    /// A person has disabled the server. Only a person may enable it again.
    OffByPerson,
}

/// The state of one server besides its definition.
#[derive(Debug, Default)]
struct Live {
    switch: Switch,
    last_error: Option<LastError>,
    /// Cancelled when the server is revoked or disabled, or when its config changes. Pending calls then end.
    ended: CancellationToken,
    /// Number of such changes and of new approvals. A grant is valid only while this number is unchanged.
    decisions: u64,
    /// The manifest that was last compared with the approved one.
    compared: Option<Arc<Manifest>>,
    /// Raw names of approved tools that differ from their approved form.
    quarantined: BTreeSet<String>,
}

/// The servers of one gateway.
#[derive(Debug)]
pub struct Registry {
    configured: RwLock<Arc<Configured>>,
    live: Mutex<BTreeMap<String, Live>>,
}

impl Registry {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { configured: RwLock::new(Arc::new(configured(config))), live: Mutex::default() }
    }

    /// Replaces the config with another one.
    pub fn replace(&self, config: Config) {
        *self.configured.write() = Arc::new(configured(config));
    }

    /// Returns all entries in the config's order. Entries with an error come last.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.configured().entries.clone()
    }

    /// Returns the entry of this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, which names the existing servers.
    pub fn entry(&self, name: &str) -> Result<Entry> {
        let configured = self.configured();
        let found = configured.entries.iter().find(|entry| entry.name() == name).cloned();
        found.ok_or_else(|| unknown(name, &configured))
    }

    /// Returns the servers that can be used, in the config's order.
    #[must_use]
    pub fn servers(&self) -> Vec<Arc<ServerDefinition>> {
        let valid = |entry: &Entry| if let Entry::Valid(server) = entry { Some(Arc::clone(server)) } else { None };
        self.configured().entries.iter().filter_map(valid).collect()
    }

    /// Returns the server of this name.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, which names the existing servers. For an invalid entry, the entry's own error.
    pub fn server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        let configured = self.configured();
        match configured.entries.iter().find(|entry| entry.name() == name) {
            Some(Entry::Valid(server)) => Ok(Arc::clone(server)),
            Some(Entry::Invalid(server)) => Err(server.error.clone()),
            None => Err(unknown(name, &configured)),
        }
    }

    /// Returns the config's description of the input with this id, as in `${input:id}`.
    #[must_use]
    pub fn input(&self, id: &str) -> Option<InputDefinition> {
        self.configured().inputs.iter().find(|input| input.id == id).cloned()
    }

    /// Lets runs see the server from now on.
    ///
    /// # Errors
    /// `ERR_DISABLED_BY_PERSON` if a model enables a server that a person has disabled.
    pub fn enable(&self, name: &str, decider: Decider) -> Result<()> {
        let mut all = self.live();
        let switch = &mut all.entry(name.to_owned()).or_default().switch;
        if decider == Decider::Model && *switch == Switch::OffByPerson {
            return Err(Error::DisabledByPerson { server: name.to_owned() });
        }
        *switch = Switch::On;
        Ok(())
    }

    /// Ends the server's pending calls, and hides the server from runs.
    pub fn disable(&self, name: &str, decider: Decider) {
        self.end(name, |before| match (decider, before) {
            (Decider::Person, _) | (Decider::Model, Switch::OffByPerson) => Switch::OffByPerson,
            (Decider::Model, Switch::On | Switch::Off) => Switch::Off,
        });
    }

    /// Ends the pending calls of a server that lost its approval or its config entry, and disables it. A server that a person had disabled stays
    /// disabled by a person.
    pub fn retire(&self, name: &str) {
        self.end(name, |before| if before == Switch::OffByPerson { before } else { Switch::Off });
    }

    /// Ends the server's pending calls. An enabled server stays enabled.
    pub fn interrupt(&self, name: &str) {
        self.end(name, |before| before);
    }

    fn end(&self, name: &str, switch: impl FnOnce(Switch) -> Switch) {
        let mut all = self.live();
        let live = all.entry(name.to_owned()).or_default();
        live.ended.cancel();
        let (switch, last_error) = (switch(live.switch), live.last_error.take());
        *live = Live { switch, last_error, decisions: live.decisions + 1, ..Live::default() };
    }

    /// Returns whether runs see the server: it was enabled, and the current config does not say `disabled: true`.
    #[must_use]
    pub fn is_enabled(&self, name: &str) -> bool {
        let disabled = |entry: &Entry| matches!(entry, Entry::Valid(server) if server.name == name && server.disabled);
        let enabled = self.live().get(name).is_some_and(|live| live.switch == Switch::On);
        enabled && !self.configured().entries.iter().any(disabled)
    }

    /// Returns the number of decisions about the server in this gateway: revocations, disablings, changes of its config, new approvals.
    #[must_use]
    pub fn decisions(&self, name: &str) -> u64 {
        self.live().get(name).map_or(0, |live| live.decisions)
    }

    /// Returns whether a person has disabled the server in this gateway, so that no model can enable it.
    #[must_use]
    pub fn is_disabled_by_person(&self, name: &str) -> bool {
        self.live().get(name).is_some_and(|live| live.switch == Switch::OffByPerson)
    }

    /// Returns the token that is cancelled when the server is revoked or disabled, or when its config changes.
    #[must_use]
    pub fn ended(&self, name: &str) -> CancellationToken {
        self.live().entry(name.to_owned()).or_default().ended.clone()
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

    fn configured(&self) -> Arc<Configured> {
        Arc::clone(&self.configured.read())
    }

    fn live(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock()
    }
}

fn unknown(name: &str, configured: &Configured) -> Error {
    Error::UnknownServer {
        server: name.to_owned(),
        place: "in the config",
        known: configured.entries.iter().map(|entry| entry.name().into()).collect(),
    }
}

fn configured(config: Config) -> Configured {
    let valid = config.servers.into_iter().map(|server| Entry::Valid(Arc::new(server)));
    let invalid = config.invalid.into_iter().map(|server| Entry::Invalid(Arc::new(server)));
    Configured { entries: valid.chain(invalid).collect(), inputs: config.inputs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_brings_back_what_a_model_took_and_nothing_that_a_person_did() {
        let registry = Registry::new(Config::default());
        registry.enable("a", Decider::Model).unwrap();
        registry.disable("a", Decider::Model);
        registry.enable("a", Decider::Model).unwrap();
        assert!(registry.is_enabled("a") && !registry.is_disabled_by_person("a"));

        registry.disable("a", Decider::Person);
        // None of these events lets a model enable the server again.
        let between: [fn(&Registry); 3] = [|_| {}, |registry| registry.disable("a", Decider::Model), |registry| registry.retire("a")];
        for happens in between {
            happens(&registry);
            let error = registry.enable("a", Decider::Model).unwrap_err();
            assert_eq!(error.code(), "ERR_DISABLED_BY_PERSON");
            assert!(!registry.is_enabled("a") && registry.is_disabled_by_person("a"), "{error}");
        }
        registry.interrupt("a");
        assert!(registry.is_disabled_by_person("a"));
        registry.enable("a", Decider::Person).unwrap();
        assert!(registry.is_enabled("a"));
    }

    #[test]
    fn what_the_config_disables_is_not_enabled_whoever_enabled_it_before() {
        let config = |disabled: bool| {
            let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "disabled": {disabled} }} }} }}"#);
            crate::config::parse_text(&text, "c", 9).unwrap()
        };
        let registry = Registry::new(config(false));
        registry.enable("a", Decider::Person).unwrap();
        assert!(registry.is_enabled("a"));
        registry.replace(config(true));
        assert!(!registry.is_enabled("a"));
    }

    #[test]
    fn every_decision_about_a_server_counts() {
        let registry = Registry::new(Config::default());
        let decide: [fn(&Registry); 4] = [
            |registry| registry.disable("a", Decider::Person),
            |registry| registry.retire("a"),
            |registry| registry.interrupt("a"),
            |registry| registry.approval_changed("a"),
        ];
        for (number, decide) in (1..).zip(decide) {
            decide(&registry);
            assert_eq!((registry.decisions("a"), registry.decisions("b")), (number, 0));
        }
    }

    #[test]
    fn what_lost_its_approval_can_be_enabled_by_whoever_may_once_it_is_approved_again() {
        let registry = Registry::new(Config::default());
        registry.enable("a", Decider::Person).unwrap();
        registry.retire("a");
        assert!(!registry.is_enabled("a"));
        registry.enable("a", Decider::Model).unwrap();
    }
}
