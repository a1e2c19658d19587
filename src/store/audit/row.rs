//! Rows of the audit as they are stored and read, and the conversion of events to rows.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::event::{
    ApprovalStage, AuditEvent, AuditParty, CallRecord, ConfigGrants, ConnectionChange, FetchEntry, GrantChange, GrantRecord,
    ProviderDecision, ServerChange,
};
use crate::redact::Redactor;
use crate::store::{Canonical, MachineKey};
use crate::text::json::object_bytes;

/// The maximum length of a name in a row, in characters.
const MAX_NAME_CHARS: usize = 256;
/// The maximum size in bytes of arguments, or of the patterns of a toolbox. Larger content is left out of the row.
const MAX_CONTENT_BYTES: usize = 64 * 1024;

/// A row of the audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    /// The position in the chain, from 1. The numbers have no gaps, but the first rows may have been removed.
    pub number: u64,
    /// Milliseconds since 1970, UTC.
    pub at: u64,
    pub kind: AuditKind,
    /// The agent's name. A name that the operator has not chosen begins with `client:` or `subject:`. Missing for the operator's own agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The tool's raw name. For a request that is not a tool call, its method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(flatten)]
    pub details: AuditDetails,
    /// The HMAC of this row and of all rows before it, made with the machine's key, in hexadecimal.
    pub digest: String,
}

/// The part of a row that depends on its kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditDetails {
    /// The id of the process that wrote the row.
    pub pid: u32,
    /// The action that the row records. Missing for a call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub action: Option<AuditAction>,
    /// The party that made the decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<AuditParty>,
    /// The name of the provider package, in a row about its code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub provider: Option<String>,
    /// The subject of the row. For an approval: the digest that was approved. For a server: its source. For a grant: the toolbox, or
    /// `profile:` followed by the name of a profile. For the default grant: `all` or `none`. For the grants of a config: the digest of all
    /// its grants. For a fetch that was refused because of an address: the address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    /// The patterns of the toolbox, or the servers of the profile. Missing if they are larger than 64 KiB. For an approval of fetch: the hosts
    /// that were approved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub patterns: Option<Vec<String>>,
    /// The number of the run, different from that of each other run of the process. Missing for a call without a run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_id: Option<u64>,
    /// The scheme, host and port from which code has fetched. If a whole run was refused: all hosts that the run asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The method of a fetch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// The status of the response to a fetch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// The number of bytes in a fetch's body.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
    /// The number of bytes that were read from the response to a fetch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_bytes: Option<u64>,
    /// The outcome of a call: `ok`, `tool-error`, `cancelled`, or the code of the error. The outcome of a fetch: `ok`, `redirected`, `cancelled`, or the
    /// code of the error. For a failed connection: the code of the error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
    /// The duration of a call or a fetch, or of opening a connection, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration_ms: Option<f64>,
    /// The digest of the arguments, made with the machine's key. Equal arguments have equal digests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments_digest: Option<String>,
    /// The arguments without secrets. Present only with `auditContent`, and only if they are at most 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arguments: Option<Map<String, Json>>,
    /// Size of the arguments as JSON, in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub argument_bytes: Option<usize>,
    /// Approximate size of the result in bytes: its texts and keys, and 8 for each other value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub result_bytes: Option<usize>,
    /// In a gap row: the number of lost events. Absent if the number is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<u64>,
}

/// The subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditKind {
    Approval,
    Revocation,
    /// A server was added, changed, removed, enabled or disabled.
    Server,
    Grant,
    Connection,
    /// A tool call, or another request to a server.
    Call,
    /// Code in a sandbox has fetched something, or was refused.
    Fetch,
    /// Events are missing at this place in the chain.
    Gap,
    /// Another program has changed the audit before this row.
    Damage,
}

impl AuditKind {
    /// All kinds.
    pub const ALL: [Self; 9] =
        [Self::Approval, Self::Revocation, Self::Server, Self::Grant, Self::Connection, Self::Call, Self::Fetch, Self::Gap, Self::Damage];

    /// Returns the word for this kind in a row.
    ///
    /// ```
    /// use hyperlight_mcp::store::audit::AuditKind;
    /// assert_eq!(AuditKind::named(AuditKind::Gap.as_str()), Some(AuditKind::Gap));
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Revocation => "revocation",
            Self::Server => "server",
            Self::Grant => "grant",
            Self::Connection => "connection",
            Self::Call => "call",
            Self::Fetch => "fetch",
            Self::Gap => "gap",
            Self::Damage => "damage",
        }
    }

    /// Returns the kind for this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The action that a row records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditAction {
    /// The command was approved.
    Command,
    /// The manifest (tools, resources and prompts) was approved.
    Manifest,
    /// The code of a provider package was approved.
    Provider,
    /// The hosts that code of an agent may fetch from were approved.
    Fetch,
    Revoked,
    Added,
    Changed,
    Removed,
    Enabled,
    Disabled,
    Granted,
    Ungranted,
    /// The default for agents without a grant was changed.
    Default,
    /// The grants of the config were read. The following rows of the same process list the changes. If the gateway was just opened, they
    /// list all grants.
    Config,
    Opened,
    Failed,
    Lost,
    Idle,
    Evicted,
    Closed,
    /// Events were lost, because they were recorded faster than they could be written.
    QueueFull,
    /// A process ended without closing its gateway. The last 100 ms of its events may be missing.
    ProcessEnded,
    /// The head of the chain was changed, or does not match the rows that were written earlier.
    HeadChanged,
}

/// A row without a position in the chain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) kind: AuditKind,
    pub(super) agent: Option<String>,
    pub(super) server: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) body: String,
}

impl Entry {
    pub(super) fn new(at: u64, kind: AuditKind, details: &AuditDetails) -> Self {
        // Serialising texts, numbers and JSON cannot fail.
        let body = serde_json::to_string(details).unwrap_or_default();
        Self { at, kind, agent: None, server: None, tool: None, body }
    }

    /// Returns the approximate size of the row in the database, in bytes.
    pub(super) fn size(&self) -> u64 {
        const FIXED: usize = 80;
        let texts = [&self.agent, &self.server, &self.tool].into_iter().flatten().map(String::len).sum::<usize>();
        (FIXED + texts + self.body.len()) as u64
    }

    /// Returns the digest of a config's grants, if this row has one.
    pub(super) fn digest_of_grants(&self) -> Option<String> {
        if self.kind != AuditKind::Grant || self.agent.is_some() {
            return None;
        }
        let details: AuditDetails = serde_json::from_str(&self.body).ok()?;
        details.subject.filter(|_| details.action == Some(AuditAction::Config))
    }

    /// Returns a row that reports missing events.
    pub(super) fn gap(at: u64, action: AuditAction, pid: u32, lost: Option<u64>) -> Self {
        Self::new(at, AuditKind::Gap, &AuditDetails { pid, action: Some(action), lost, ..AuditDetails::default() })
    }

    /// Returns a row that reports that the audit was changed before this row.
    pub(super) fn damage(at: u64, pid: u32) -> Self {
        Self::new(at, AuditKind::Damage, &AuditDetails { pid, action: Some(AuditAction::HeadChanged), ..AuditDetails::default() })
    }
}

/// Converts events to rows.
pub(super) struct Recorder<'a> {
    pub(super) key: &'a MachineKey,
    pub(super) redactor: &'a Redactor,
    /// True if arguments are kept, without secrets and without values that look like secrets.
    pub(super) content: bool,
    pub(super) pid: u32,
}

impl Recorder<'_> {
    /// Returns the rows for an event.
    pub(super) fn entries(&self, at: u64, event: &AuditEvent) -> Vec<Entry> {
        match event {
            AuditEvent::ConfigGrants(grants) => self.config_grants(at, grants),
            other => vec![self.entry(at, other)],
        }
    }

    fn entry(&self, at: u64, event: &AuditEvent) -> Entry {
        let details = AuditDetails { pid: self.pid, ..AuditDetails::default() };
        match event {
            AuditEvent::Approval { server, stage, digest, by } => {
                let action = match stage {
                    ApprovalStage::Command => AuditAction::Command,
                    ApprovalStage::Manifest => AuditAction::Manifest,
                };
                let details = AuditDetails { action: Some(action), by: Some(*by), subject: Some(digest.clone()), ..details };
                Entry { server: Some(self.name(server)), ..Entry::new(at, AuditKind::Approval, &details) }
            }
            AuditEvent::Revocation { server, by } => {
                let details = AuditDetails { action: Some(AuditAction::Revoked), by: Some(*by), ..details };
                Entry { server: Some(self.name(server)), ..Entry::new(at, AuditKind::Revocation, &details) }
            }
            AuditEvent::Provider { package, decision, by } => {
                let details = AuditDetails { provider: Some(self.name(package)), by: Some(*by), ..details };
                match decision {
                    ProviderDecision::Approved { digest } => {
                        let (action, subject) = (Some(AuditAction::Provider), Some(digest.clone()));
                        Entry::new(at, AuditKind::Approval, &AuditDetails { action, subject, ..details })
                    }
                    ProviderDecision::Revoked => {
                        let action = Some(AuditAction::Revoked);
                        Entry::new(at, AuditKind::Revocation, &AuditDetails { action, ..details })
                    }
                }
            }
            AuditEvent::Server { server, change, agent, source, by } => {
                let subject = source.as_ref().map(|source| self.name(source));
                let details = AuditDetails { action: Some((*change).into()), by: Some(*by), subject, ..details };
                Entry { server: Some(self.name(server)), agent: self.agent(agent.as_ref()), ..Entry::new(at, AuditKind::Server, &details) }
            }
            AuditEvent::Grant(record) => self.grant(at, record),
            // Returns only the row with the digest of all grants. `entries` adds the other rows.
            AuditEvent::ConfigGrants(grants) => self.config_digest(at, &grants.listing),
            AuditEvent::Connection { server, change, agent, duration } => {
                let (action, outcome) = connection_words(*change);
                let details = AuditDetails { action: Some(action), outcome, duration_ms: duration.map(milliseconds), ..details };
                Entry {
                    server: Some(self.name(server)),
                    agent: self.agent(agent.as_ref()),
                    ..Entry::new(at, AuditKind::Connection, &details)
                }
            }
            AuditEvent::Call(call) => self.call(at, call, details),
            AuditEvent::FetchApproval { agent, hosts, digest, by } => self.fetch_approval(at, agent.as_ref(), hosts, digest.as_ref(), *by),
            AuditEvent::Fetch(fetch) => self.fetch(at, fetch, details),
        }
    }

    fn grant(&self, at: u64, record: &GrantRecord) -> Entry {
        let GrantRecord { agent, subject, patterns, change, by } = record;
        let is_kept = |patterns: &&Vec<String>| patterns.iter().map(String::len).sum::<usize>() <= MAX_CONTENT_BYTES;
        let details = AuditDetails {
            pid: self.pid,
            action: Some((*change).into()),
            by: Some(*by),
            subject: subject.as_ref().map(|subject| self.name(subject)),
            patterns: patterns
                .as_ref()
                .filter(is_kept)
                .map(|patterns| patterns.iter().map(|pattern| self.redactor.readable(pattern)).collect()),
            ..AuditDetails::default()
        };
        Entry { agent: agent.as_ref().map(|agent| self.name(agent)), ..Entry::new(at, AuditKind::Grant, &details) }
    }

    /// Returns a row with the digest of the config's grants, and one row for each grant that must be reported: each changed grant, or each
    /// grant after the gateway was opened.
    fn config_grants(&self, at: u64, grants: &ConfigGrants) -> Vec<Entry> {
        let ConfigGrants { listing, changes } = grants;
        let first = self.config_digest(at, listing);
        let others = changes.as_ref().unwrap_or(listing).iter().map(|record| self.grant(at, record));
        std::iter::once(first).chain(others).collect()
    }

    fn config_digest(&self, at: u64, listing: &[GrantRecord]) -> Entry {
        let form = listing.iter().fold(Canonical::new("hyperlight-mcp audit grants 1"), |form, record| {
            let GrantRecord { agent, subject, patterns, change, by: _ } = record;
            let patterns = patterns.as_deref().unwrap_or_default().iter().map(String::as_str);
            form.optional(agent.as_deref()).optional(subject.as_deref()).list(patterns).text(&format!("{change:?}"))
        });
        let (action, by) = (Some(AuditAction::Config), Some(AuditParty::Config));
        let subject = Some(self.key.authenticate(&form));
        Entry::new(at, AuditKind::Grant, &AuditDetails { pid: self.pid, action, by, subject, ..AuditDetails::default() })
    }

    fn call(&self, at: u64, call: &CallRecord, details: AuditDetails) -> Entry {
        let CallRecord { agent, run_id, server, tool, arguments, outcome, started, ended, result_bytes } = call;
        let bytes = object_bytes(arguments);
        let form = Canonical::new("hyperlight-mcp audit arguments 1").fields(arguments);
        let details = AuditDetails {
            run_id: *run_id,
            outcome: Some(outcome.as_str().to_owned()),
            duration_ms: Some(milliseconds(ended.saturating_duration_since(*started))),
            arguments_digest: Some(self.key.authenticate(&form)),
            arguments: (self.content && bytes <= MAX_CONTENT_BYTES).then(|| self.redacted(arguments)),
            argument_bytes: Some(bytes),
            result_bytes: *result_bytes,
            ..details
        };
        let (server, tool) = (Some(self.name(server)), Some(self.name(tool)));
        Entry { agent: self.agent(agent.as_ref()), server, tool, ..Entry::new(at, AuditKind::Call, &details) }
    }

    fn fetch_approval(&self, at: u64, agent: Option<&Arc<str>>, hosts: &[String], digest: Option<&String>, by: AuditParty) -> Entry {
        let (kind, action) = match digest {
            Some(_) => (AuditKind::Approval, AuditAction::Fetch),
            None => (AuditKind::Revocation, AuditAction::Revoked),
        };
        let patterns = Some(hosts.iter().map(|host| self.name(host)).collect());
        let subject = digest.cloned();
        let details = AuditDetails { pid: self.pid, action: Some(action), by: Some(by), subject, patterns, ..AuditDetails::default() };
        Entry { agent: self.agent(agent), ..Entry::new(at, kind, &details) }
    }

    fn fetch(&self, at: u64, fetch: &FetchEntry, details: AuditDetails) -> Entry {
        let FetchEntry { agent, tool, run_id, host, method, status, sent_bytes, received_bytes, duration, outcome, refused_address } =
            fetch;
        let details = AuditDetails {
            run_id: *run_id,
            host: Some(self.name(host)),
            method: method.as_ref().map(|method| self.name(method)),
            status: *status,
            sent_bytes: Some(*sent_bytes),
            received_bytes: Some(*received_bytes),
            duration_ms: Some(milliseconds(*duration)),
            outcome: Some((*outcome).to_owned()),
            subject: refused_address.as_ref().map(|address| self.name(address)),
            ..details
        };
        let (server, tool) = tool.as_ref().map(|(server, tool)| (self.name(server), self.name(tool))).unzip();
        Entry { agent: self.agent(agent.as_ref()), server, tool, ..Entry::new(at, AuditKind::Fetch, &details) }
    }

    fn redacted(&self, arguments: &Map<String, Json>) -> Map<String, Json> {
        match self.redactor.content_json(&Json::Object(arguments.clone())) {
            Json::Object(fields) => fields,
            // The redactor has replaced the whole object with another value.
            other => Map::from_iter([("redacted".to_owned(), other)]),
        }
    }

    fn agent(&self, agent: Option<&Arc<str>>) -> Option<String> {
        agent.map(|agent| self.name(agent))
    }

    /// Returns a name without secrets, in one line of limited length. The limit is needed because a model can request a tool with any name.
    fn name(&self, text: &str) -> String {
        self.redactor.readable_line(text, MAX_NAME_CHARS)
    }
}

impl From<ServerChange> for AuditAction {
    fn from(change: ServerChange) -> Self {
        match change {
            ServerChange::Added => Self::Added,
            ServerChange::Changed => Self::Changed,
            ServerChange::Removed => Self::Removed,
            ServerChange::Enabled => Self::Enabled,
            ServerChange::Disabled => Self::Disabled,
        }
    }
}

impl From<GrantChange> for AuditAction {
    fn from(change: GrantChange) -> Self {
        match change {
            GrantChange::Granted => Self::Granted,
            GrantChange::Ungranted => Self::Ungranted,
            GrantChange::Added => Self::Added,
            GrantChange::Changed => Self::Changed,
            GrantChange::Removed => Self::Removed,
            GrantChange::Default => Self::Default,
        }
    }
}

fn connection_words(change: ConnectionChange) -> (AuditAction, Option<String>) {
    match change {
        ConnectionChange::Opened => (AuditAction::Opened, None),
        ConnectionChange::Failed(code) => (AuditAction::Failed, Some(code.to_owned())),
        ConnectionChange::Lost => (AuditAction::Lost, None),
        ConnectionChange::Idle => (AuditAction::Idle, None),
        ConnectionChange::Evicted => (AuditAction::Evicted, None),
        ConnectionChange::Closed => (AuditAction::Closed, None),
    }
}

/// Returns a duration in milliseconds, rounded to a thousandth.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
