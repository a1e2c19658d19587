//! The events that a gateway reports to the audit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::text::json::object_bytes;

/// An event for the audit. If the `agent` of an event is `None`, the event is about the operator's own agent, except in a `GrantRecord`.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditEvent {
    /// A stage of a server was approved.
    Approval { server: String, stage: ApprovalStage, digest: String, by: AuditParty },
    /// A server's approval was revoked.
    Revocation { server: String, by: AuditParty },
    /// The code of a provider package (a package that brings servers) was approved, or its approval was revoked.
    Provider { package: String, decision: ProviderDecision, by: AuditParty },
    /// A server was added, changed, removed, enabled or disabled. `source` names where the server came from.
    Server { server: String, change: ServerChange, agent: Option<Arc<str>>, source: Option<String>, by: AuditParty },
    /// A grant, a toolbox, a profile or the default for agents without a grant was changed.
    Grant(GrantRecord),
    /// The grants of the config were read, because the gateway was opened or because the grants have changed.
    ConfigGrants(ConfigGrants),
    /// A connection to a server has begun or ended.
    Connection { server: String, change: ConnectionChange, agent: Option<Arc<str>>, duration: Option<Duration> },
    /// A request to a server has ended.
    Call(CallRecord),
    /// The hosts that code of an agent may fetch from were approved, or their approval was revoked (`digest` is `None`).
    FetchApproval { agent: Option<Arc<str>>, hosts: Vec<String>, digest: Option<String>, by: AuditParty },
    /// Code has fetched something, or was refused.
    Fetch(FetchEntry),
}

/// A fetch of agent code that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchEntry {
    pub agent: Option<Arc<str>>,
    /// The generated server and its tool, if the tool's code has fetched. `None` if the code of a run has fetched.
    pub tool: Option<(Arc<str>, Arc<str>)>,
    pub run_id: Option<u64>,
    /// Scheme, host and port of the fetch. If a whole run was refused, all hosts that the run asked for.
    pub host: String,
    pub method: Option<String>,
    pub status: Option<u16>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub duration: Duration,
    /// `ok`, `redirected`, `cancelled`, or the code of the error.
    pub outcome: &'static str,
    /// The private address that was refused, with the purpose for which the address was used.
    pub refused_address: Option<String>,
}

/// A change of an agent's grants, of a toolbox, of a profile or of the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    /// The agent. `None` if the record is about a toolbox, a profile or the default.
    pub agent: Option<String>,
    /// The name of the toolbox, or `profile:` followed by the name of the profile. For a change of the default: `all` or `none`. `None` if
    /// the agent's list of toolboxes is empty or was removed.
    pub subject: Option<String>,
    /// The patterns of the toolbox after the change. For a profile, its servers.
    pub patterns: Option<Vec<String>>,
    pub change: GrantChange,
    pub by: AuditParty,
}

/// The grants of a config that was just read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigGrants {
    /// All grants of the config.
    pub listing: Vec<GrantRecord>,
    /// The differences from the config that was read before. `None` if the gateway has just been opened.
    pub changes: Option<Vec<GrantRecord>>,
}

/// A request to a server that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    pub agent: Option<Arc<str>>,
    /// The number of the run in its process. `None` for a call without a run.
    pub run_id: Option<u64>,
    pub server: Arc<str>,
    /// A tool's raw name, or the method of another request.
    pub tool: Arc<str>,
    /// The arguments, shared with the request. Their digest is computed after the request, on another thread.
    pub arguments: Arc<Map<String, Json>>,
    pub outcome: CallOutcome,
    pub started: Instant,
    pub ended: Instant,
    /// Approximate size of the result in bytes.
    pub result_bytes: Option<usize>,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    Ok,
    /// The tool returned a result with `isError: true`.
    ToolError,
    /// The caller stopped waiting: because of an abort, a deadline, or the end of a run. The server may have executed the request.
    Cancelled,
    /// The request failed with this error code.
    Failed(&'static str),
}

impl CallOutcome {
    /// Returns the word for this outcome in a row.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool-error",
            Self::Cancelled => "cancelled",
            Self::Failed(code) => code,
        }
    }
}

/// The stage of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalStage {
    Command,
    Manifest,
}

/// The decision about the code of a provider package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderDecision {
    /// The package was approved with this digest.
    Approved {
        digest: String,
    },
    Revoked,
}

/// The change of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerChange {
    Added,
    Changed,
    Removed,
    Enabled,
    Disabled,
}

/// The change of a grant, a toolbox, a profile or the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantChange {
    /// The agent was granted the toolbox.
    Granted,
    Ungranted,
    /// The toolbox or profile is new.
    Added,
    Changed,
    Removed,
    /// The default for agents without a grant was changed.
    Default,
}

/// The change of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionChange {
    Opened,
    /// The connection could not be opened, because of the error with this code.
    Failed(&'static str),
    /// The connection ended without a request to close it.
    Lost,
    /// The connection was closed because it was unused.
    Idle,
    /// The connection was closed to make room for another server.
    Evicted,
    /// The gateway closed the connection: the server was disabled, revoked or changed, nobody needs it any more, or the gateway was closed.
    Closed,
}

/// The party that made a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditParty {
    /// A person, or the author of the agent.
    Person,
    /// A model, through a tool.
    Model,
    /// An agent's own code.
    Agent,
    /// A change of the config.
    Config,
    /// A setting that permits the decision without a person.
    Setting,
}

impl AuditEvent {
    /// Returns the time of the event, for an event that is recorded now.
    pub(super) fn at(&self) -> Instant {
        // A call already contains the time of its end, so the clock is not read again.
        if let Self::Call(call) = self { call.ended } else { Instant::now() }
    }

    /// Returns whether the event uses little memory, so that the event may stay in memory for some time after it is written.
    pub(super) fn is_light(&self) -> bool {
        const LIGHT_BYTES: usize = 1024;
        match self {
            Self::Call(call) => object_bytes(&call.arguments) <= LIGHT_BYTES,
            Self::ConfigGrants(_) => false,
            _ => true,
        }
    }

    /// Returns the approximate size in bytes of the event's texts.
    pub(super) fn weight(&self) -> usize {
        // Only the first eight arguments are measured, because this function runs during each call.
        let text = |value: &Json| value.as_str().map_or(0, str::len);
        match self {
            Self::Call(call) => call.arguments.values().take(8).map(text).sum(),
            _ => 0,
        }
    }
}
