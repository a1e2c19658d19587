//! The prepared statuses of all servers, as JSON texts. With 10,000 servers, computing all statuses takes longer than Node's main thread
//! may be blocked, so a background thread does it. A prepared text is used only as long as everything that it was made from is unchanged.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Listing;
use crate::config::server_of_key;
use crate::error::Result;
use crate::gateway::Agent;
use crate::gateway::approval_cache::ApprovalRead;
use crate::gateway::core::Core;
use crate::redact::RedactorState;
use crate::registry::{Entry, RegistryView, ServerStatus};
use crate::trust::ApprovalSnapshot;

/// The maximum number of servers that may have changed since the texts were prepared. If more have changed, the texts are prepared again.
const MAX_CHANGED: usize = 100;

/// The prepared statuses of one gateway, as the operator sees them.
#[derive(Default)]
pub(in crate::gateway) struct PreparedStatuses(Mutex<Option<Arc<Prepared>>>);

/// Everything that the statuses of all servers together depend on. The statuses of single servers also depend on [`Core::moving`] and on
/// the changes of the registry's states.
struct Basis {
    view: RegistryView,
    approvals: ApprovalSnapshot,
    /// Number of changes of the subjects with which approvals are compared.
    subjects: u64,
    is_on: bool,
}

struct Prepared {
    basis: Basis,
    /// Number of changes of servers' states until the moment before the texts were made.
    state_changes: u64,
    /// The secrets that were known before the texts were made.
    secrets: RedactorState,
    /// The texts of all rows, one after another.
    texts: String,
    /// One row for each entry of the view.
    rows: Vec<Row>,
}

/// The prepared status of one server.
#[derive(Default)]
struct Row {
    /// The place of the row's text. `None` if the status must be computed for each list.
    text: Option<Range<usize>>,
    awaits_decision: bool,
    /// True if secrets were removed from the text. Then it is used only as long as no further secret is known.
    is_redacted: bool,
}

impl Basis {
    /// Returns the present basis. Each part is read before the statuses are computed. So if a part changes later, the basis differs from
    /// the present one, and the prepared texts are not used.
    fn now(agent: &Agent) -> Result<Self> {
        let core = &agent.core;
        let subjects = core.trust.approval_cache.changes();
        let approvals = core.trust.approvals.last_snapshot()?;
        Ok(Self { view: core.registry.view(), approvals, subjects, is_on: agent.check_plugin_on().is_ok() })
    }

    fn is(&self, other: &Self) -> bool {
        let Self { view, approvals, subjects, is_on } = self;
        view.is(&other.view) && approvals.is(&other.approvals) && (subjects, is_on) == (&other.subjects, &other.is_on)
    }
}

impl Prepared {
    /// Computes the statuses of all servers for the operator's own agent.
    fn new(agent: &Agent) -> Result<Self> {
        let core = &agent.core;
        let (state_changes, secrets, basis) = (core.registry.state_changes(), core.redactor.state(), Basis::now(agent)?);
        let reading = core.cached_approvals(basis.approvals.clone());
        let listing = Listing { agent, granted: &core.grants.everything, reading: &reading, is_on: basis.is_on };
        let (mut moving, mut texts) = (core.moving(), String::new());
        let row = |entry: &Entry| {
            let status = listing.status(entry).filter(|_| is_still(entry, &basis));
            status.map(|status| Row { is_redacted: is_redacted(entry), ..Row::written(&status, &mut texts) }).unwrap_or_default()
        };
        let mut rows: Vec<Row> = basis.view.entries().iter().map(row).collect();
        // A server that was added to `Core::moving` in the meantime may have an outdated status in its text.
        moving.append(&mut core.moving());
        for position in moving.iter().filter_map(|name| basis.view.position(name)) {
            rows[position] = Row::default();
        }
        Ok(Self { basis, state_changes, secrets, texts, rows })
    }

    /// Returns the positions of the rows that must be computed for a list.
    fn changed(&self, core: &Core) -> BTreeSet<usize> {
        let moving = core.moving().into_iter().chain(core.registry.changed_since(self.state_changes));
        let mut changed: BTreeSet<usize> = moving.filter_map(|name| self.basis.view.position(&name)).collect();
        if !self.secrets.is(&core.redactor.state()) {
            changed.extend(self.rows.iter().enumerate().filter(|(_, row)| row.is_redacted).map(|(position, _)| position));
        }
        changed
    }

    /// Returns the statuses of all servers as a JSON array, first those of servers that await a decision.
    fn list(&self, agent: &Agent) -> String {
        let core = &agent.core;
        let reading = core.cached_approvals(self.basis.approvals.clone());
        let listing = Listing { agent, granted: &core.grants.everything, reading: &reading, is_on: self.basis.is_on };
        let changed = self.changed(core);
        let mut computed = String::new();
        let row = |(position, (row, entry)): (usize, (&Row, &Entry))| match &row.text {
            Some(text) if !changed.contains(&position) => Some((row.awaits_decision, Text::Prepared(text.clone()))),
            _ => listing.status(entry).map(|status| {
                let row = Row::written(&status, &mut computed);
                (row.awaits_decision, Text::Computed(row.text.unwrap_or_default()))
            }),
        };
        let rows: Vec<_> = self.rows.iter().zip(self.basis.view.entries()).enumerate().filter_map(row).collect();
        let mut list = String::with_capacity(self.texts.len() + computed.len() + rows.len() + 2);
        for is_first in [true, false] {
            for (_, text) in rows.iter().filter(|(awaits_decision, _)| *awaits_decision == is_first) {
                list.push(if list.is_empty() { '[' } else { ',' });
                list.push_str(match text {
                    Text::Prepared(range) => &self.texts[range.clone()],
                    Text::Computed(range) => &computed[range.clone()],
                });
            }
        }
        list.push_str(if list.is_empty() { "[]" } else { "]" });
        list
    }
}

/// The place of a row's text: in the prepared texts, or in the texts that were computed for this list.
enum Text {
    Prepared(Range<usize>),
    Computed(Range<usize>),
}

impl Row {
    /// Appends the text of a status to `texts`.
    fn written(status: &ServerStatus, texts: &mut String) -> Self {
        let start = texts.len();
        texts.push_str(&json(status));
        Self { text: Some(start..texts.len()), awaits_decision: status.awaits_decision(), is_redacted: false }
    }
}

impl Core {
    /// Prepares the statuses of all servers for the next lists. The approvals must have been read.
    pub(in crate::gateway) fn prepare_statuses(self: &Arc<Self>) {
        let agent = Agent { core: Arc::clone(self), identity: Arc::clone(&self.people.operator) };
        let is_current = self.prepared(&agent).is_some_and(|prepared| prepared.changed(self).len() <= MAX_CHANGED);
        if !is_current && let Ok(prepared) = Prepared::new(&agent) {
            *self.statuses.0.lock() = Some(Arc::new(prepared));
        }
    }

    /// Prepares the statuses again in the background, if a secret has become known that could be in one of them. A server that starts can
    /// bring secrets, and the next list must not compute the texts of very many entries.
    pub(in crate::gateway) fn prepare_redacted_soon(self: &Arc<Self>) {
        let has_redacted = |prepared: &Arc<Prepared>| prepared.rows.iter().any(|row| row.is_redacted);
        let prepared = self.statuses.0.lock().clone().filter(has_redacted);
        if prepared.is_some_and(|prepared| !prepared.secrets.is(&self.redactor.state())) {
            self.read_approvals_soon();
        }
    }

    /// Returns the prepared statuses, if everything that they were made from is unchanged.
    fn prepared(&self, agent: &Agent) -> Option<Arc<Prepared>> {
        let prepared = self.statuses.0.lock().clone()?;
        let now = Basis::now(agent).ok()?;
        prepared.basis.is(&now).then_some(prepared)
    }

    /// Returns the names of the servers whose status changes without a change of their entry, their approval or their state in the
    /// registry: those with a connection, with changed tools, or with an approval that is withheld at present.
    fn moving(&self) -> BTreeSet<String> {
        let keys = self.server_facts.with_changes().into_iter().chain(self.trust.approvals.withheld());
        let named = keys.map(|key| server_of_key(&key).to_owned());
        named.chain(self.connections.used()).collect()
    }
}

impl Agent {
    /// Reads the approvals of all servers, and prepares the next lists of [`Agent::servers_as_json`]. Each of these lists prepares the next
    /// list in the background. Blocks.
    pub fn prepare_servers(&self) {
        self.core.read_all_approvals();
        self.core.prepare_statuses();
    }

    /// Lists the present status of all servers that exist for the agent, as [`Agent::servers`] does, as a JSON array. Uses the approvals
    /// that were last read, and starts a new read for later callers. Reads no file.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn servers_as_json(&self) -> Result<String> {
        let prepared = if self.identity.is_operator() { self.core.prepared(self) } else { None };
        match prepared {
            Some(prepared) => {
                let list = prepared.list(self);
                self.core.refresh_if_cached(ApprovalRead::Cached);
                Ok(list)
            }
            None => self.servers_by(ApprovalRead::Cached).map(|statuses| json(&statuses)),
        }
    }
}

/// Returns whether the status of a server stays the same as long as the basis does. This is false for an approval with an end.
fn is_still(entry: &Entry, basis: &Basis) -> bool {
    match entry {
        Entry::Valid(server) => !basis.approvals.expires(&server.key()),
        Entry::Invalid(_) => true,
    }
}

/// Returns whether the status of a server has texts that are redacted with the secrets that are known when it is made: the error of an
/// invalid entry, or a description.
fn is_redacted(entry: &Entry) -> bool {
    match entry {
        Entry::Valid(server) => server.description.is_some(),
        Entry::Invalid(_) => true,
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a status has only keys that are texts")
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use serde_json::json;

    use crate::gateway::{Gateway, GatewayOptions};

    /// With very many such entries, computing their texts for each list would block Node's main thread.
    #[tokio::test]
    async fn the_text_of_an_invalid_entry_is_prepared_until_a_further_secret_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        options.config = Some(json!({ "mcpServers": { "a": { "command": "x" }, "b": { "command": "x", "timeoutMs": "?" } } }));
        options.state_dir = Some(folder.path().join("state"));
        let gateway = Gateway::open(options).unwrap();
        let core = &gateway.core;
        gateway.prepare_servers();
        let prepared = || core.prepared(&gateway).unwrap();
        let rows: Vec<_> = prepared().rows.iter().map(|row| (row.text.is_some(), row.is_redacted)).collect();
        assert_eq!(rows, [(true, false), (true, true)]);
        assert!(prepared().changed(core).is_empty());
        core.redactor.add([&SecretString::from("correct-horse")]);
        assert_eq!(prepared().changed(core), [1].into());
        gateway.close().await;
    }
}
