//! What can happen that the audit records, as a gateway tells it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::text::json::object_bytes;

/// An event for the audit. An agent of `None` is the operator's own.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditEvent {
    /// A stage of a server was approved.
    Approval { server: String, stage: ApprovalStage, digest: String, by: AuditParty },
    /// A server's approval was revoked.
    Revocation { server: String, by: AuditParty },
    /// The code of a package that brings servers was approved, or its approval was revoked.
    Provider { package: String, decision: ProviderDecision, by: AuditParty },
    /// A server was added, changed, removed, enabled or disabled. `source` is who brought it.
    Server { server: String, change: ServerChange, agent: Option<Arc<str>>, source: Option<String>, by: AuditParty },
    /// Something that decides who may call what has changed.
    Grant(GrantRecord),
    /// The config says something else about grants than before.
    ConfigGrants(ConfigGrants),
    /// A connection to a server has begun or ended.
    Connection { server: String, change: ConnectionChange, agent: Option<Arc<str>>, duration: Option<Duration> },
    /// A request to a server has ended.
    Call(CallRecord),
}

/// A change of what an agent is granted, or of a toolbox or profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    /// The agent. `None`: the record is about a toolbox, a profile or the default.
    pub agent: Option<String>,
    /// The toolbox, or `profile:` with the name of a profile; of a default, `all` or `none`. `None` if the agent has an empty list.
    pub subject: Option<String>,
    /// The toolbox's patterns after the change; of a profile, its servers.
    pub patterns: Option<Vec<String>>,
    pub change: GrantChange,
    pub by: AuditParty,
}

/// The grants of a config that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigGrants {
    /// All of them.
    pub listing: Vec<GrantRecord>,
    /// The differences from the config that was read before. `None` if the gateway was just opened.
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
    /// Shared with the request, so that their digest is made after it, on another thread.
    pub arguments: Arc<Map<String, Json>>,
    pub outcome: CallOutcome,
    pub started: Instant,
    pub ended: Instant,
    /// Approximate size of the result.
    pub result_bytes: Option<usize>,
}

/// How a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    Ok,
    /// The tool answered with `isError: true`.
    ToolError,
    /// Its caller has given it up: an abort, a deadline, the end of a run. The server may have carried it out.
    Cancelled,
    /// The error's code.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalStage {
    Command,
    Manifest,
}

/// The decision about the code of a package that brings servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderDecision {
    /// The package was approved with this digest.
    Approved {
        digest: String,
    },
    Revoked,
}

/// How a server has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerChange {
    Added,
    Changed,
    Removed,
    Enabled,
    Disabled,
}

/// How something that decides who may call what has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantChange {
    /// An agent was given the toolbox.
    Granted,
    Ungranted,
    /// The toolbox is new.
    Added,
    Changed,
    Removed,
    /// What agents without an entry get.
    Default,
}

/// How a connection has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionChange {
    Opened,
    /// It could not be opened; the error's code.
    Failed(&'static str),
    /// It ended without a request to close it.
    Lost,
    /// It was closed because it was not used.
    Idle,
    /// It was closed to make room for another server.
    Evicted,
}

/// The party that has decided something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditParty {
    /// A person, or the author of the agent.
    Person,
    /// A model, through a tool.
    Model,
    /// An agent's own code.
    Agent,
    /// A changed config.
    Config,
    /// A setting that decides without a person.
    Setting,
}

impl AuditEvent {
    /// Returns when the event has happened, if it is recorded now.
    pub(super) fn at(&self) -> Instant {
        // A clock is read once for a call.
        if let Self::Call(call) = self { call.ended } else { Instant::now() }
    }

    /// Returns whether so little memory belongs to the event that it may stay after the event is written.
    pub(super) fn is_light(&self) -> bool {
        const LIGHT_BYTES: usize = 1024;
        match self {
            Self::Call(call) => object_bytes(&call.arguments) <= LIGHT_BYTES,
            Self::ConfigGrants(_) => false,
            _ => true,
        }
    }

    /// Returns whether the event is heavy: its arguments should not wait in memory for others.
    pub(super) fn is_heavy(&self) -> bool {
        // A few of the first texts are looked at, as this runs on the path of a call.
        const HEAVY_BYTES: usize = 64 * 1024;
        let text = |value: &Json| value.as_str().map_or(0, str::len);
        match self {
            Self::Call(call) => call.arguments.values().take(8).map(text).sum::<usize>() > HEAVY_BYTES,
            _ => false,
        }
    }
}
