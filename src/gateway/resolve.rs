//! Reports which servers would be available to an agent and a task, with the reasons, and does not attach or start a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::Gateway;
use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::resolved_entry::{SecretNames, resolved_entry};
use super::tasks::{AgentView, DecidedServer, Task};
use crate::blocking::blocking;
use crate::config::{ServerSource, missing_variables};
use crate::error::Result;
use crate::redact::Redactor;
use crate::registry::{AttachReason, Entry, Hidden, source_of};

/// Options of [`Gateway::resolve`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResolveOptions {
    /// The name of the agent. Default: the operator's own agent.
    pub agent: Option<String>,
    /// The task. Default: none. Without a task, only the servers that need no task are available.
    pub task: Option<Task>,
    /// True to return only the list of servers, without `mcpServers`.
    pub dry_run: bool,
}

/// The servers that would be available.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolution {
    /// The entries, under keys that other programs accept. Secrets are replaced by variables: `${NAME}`. Absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Map<String, Json>>,
    /// One line for each server that would be available, and for each server that was requested but is left out.
    pub servers: Vec<ResolvedServer>,
    pub warnings: Vec<String>,
}

/// The line of one server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedServer {
    pub name: String,
    /// The key in `mcpServers`: `acme__shared-fs` for `acme--shared-fs`.
    pub key: String,
    pub in_force: bool,
    /// The reason why the server is available or left out, as a sentence.
    pub reason: String,
    /// The source of the server. Absent if no server has the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ServerSource>,
    /// Other sources with a server of this name, which is therefore not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hides: Vec<ServerSource>,
    /// Variables that the server needs but that are not set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Gateway {
    /// Returns the merged `mcpServers` that would be available to an agent and a task, with a reason for each server. Changes nothing, and
    /// starts nothing.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION`, `ERR_CONFIG_INVALID` for an entry that the task defines, `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    ///
    /// ```no_run
    /// # async fn example(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
    /// for server in gateway.resolve(Default::default()).await?.servers {
    ///     println!("{}", server.reason);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn resolve(&self, options: ResolveOptions) -> Result<Resolution> {
        let gateway = self.clone();
        blocking(move || gateway.core.resolve(&options).map_err(|error| gateway.core.redacted(error))).await
    }
}

impl Core {
    fn resolve(&self, options: &ResolveOptions) -> Result<Resolution> {
        self.check_open()?;
        let ResolveOptions { agent, task, dry_run } = options;
        let identity = agent.as_deref().and_then(|name| self.agents.named(name));
        let granted = match (agent, &identity) {
            (_, Some(identity)) => self.granted(identity, ApprovalRead::Fresh)?,
            (Some(name), None) => self.granted_to(Some(name), &[], None, ApprovalRead::Fresh)?,
            (None, None) => Arc::clone(&self.grants.everything),
        };
        let source = source_of(agent.as_deref());
        let view = match (agent, &identity) {
            (_, Some(identity)) => AgentView::of(identity, &granted),
            (Some(_), None) => AgentView::unopened(&source, &granted),
            (None, None) => AgentView::of(&self.people.operator, &granted),
        };
        let task = self.read_task("Gateway.resolve", task.as_ref().unwrap_or(&Task::default()))?;
        let decided = self.decide(view, &task, ApprovalRead::Fresh)?;
        let mut resolution = Resolution { servers: decided.iter().map(|decided| self.line(decided)).collect(), ..Resolution::default() };
        let mut secrets = SecretNames::new(&self.surroundings.environment);
        let mut entries = Map::new();
        for (decided, line) in decided.iter().zip(&resolution.servers).filter(|(_, line)| line.in_force) {
            let Some(server) = decided.definition() else { continue };
            let Some(entry) = resolved_entry(&line.name, server, &self.surroundings, &mut secrets) else {
                let problem = "its tools were made from a prompt and run here; another program reaches them through hyperlight-mcp serve";
                resolution.warnings.push(format!("\"{}\" has no entry for another program: {problem}", line.name));
                continue;
            };
            resolution.warnings.extend(entry.warnings);
            resolution.warnings.extend(self.readiness_warnings([(line.name.as_str(), &**server)].into_iter()));
            entries.insert(line.key.clone(), without_secrets(&entry.json, &self.redactor));
        }
        resolution.warnings.iter_mut().for_each(|warning| *warning = self.redactor.readable(warning));
        resolution.mcp_servers = (!dry_run).then_some(entries);
        Ok(resolution)
    }

    fn line(&self, decided: &DecidedServer) -> ResolvedServer {
        let name = &decided.decision.server;
        let source = decided.entry.as_ref().map(|entry| entry.source().clone());
        let hides = source.as_ref().map(|source| self.hidden_by(name, source)).unwrap_or_default();
        let missing = match &decided.entry {
            Some(Entry::Valid(server)) => missing_variables(server, &self.surroundings.environment),
            _ => Vec::new(),
        };
        let reason = self.redactor.readable(&sentence(decided, source.as_ref(), &hides));
        let key = name.replace("--", "__");
        ResolvedServer { name: name.clone(), key, in_force: decided.decision.is_attached(), reason, source, hides, missing }
    }
}

/// Returns a sentence that says why a server is available or left out, which source it comes from, and which other servers of its name it
/// hides.
fn sentence(decided: &DecidedServer, source: Option<&ServerSource>, hides: &[Hidden]) -> String {
    let decision = &decided.decision;
    let origin = source.map(|source| format!("it comes from {source}"));
    let wanted = match decision.reason {
        AttachReason::Always => None,
        _ => Some(decision.reason.to_string()),
    };
    let hidden: Vec<String> = hides.iter().map(ToString::to_string).collect();
    let hidden = (!hidden.is_empty()).then(|| format!("it hides the server with this name that comes from {}", hidden.join(", and from ")));
    let state = match &decision.obstacle {
        Some(obstacle) => format!("\"{}\" is left out: {obstacle}", decision.server),
        None => format!("\"{}\" is in force", decision.server),
    };
    let more: Vec<String> = wanted.into_iter().chain(origin).chain(hidden).collect();
    match (&decision.obstacle, more.is_empty()) {
        (_, true) => format!("{state}."),
        (Some(_), false) => format!("{state}; {}.", more.join("; ")),
        (None, false) => format!("{state}: {}.", more.join("; ")),
    }
}

/// Replaces known secrets in all texts, in case the rules for secrets have missed one.
fn without_secrets(json: &Json, redactor: &Redactor) -> Json {
    match json {
        Json::String(text) => Json::String(redactor.without_secrets(text).into_owned()),
        Json::Array(items) => items.iter().map(|item| without_secrets(item, redactor)).collect(),
        Json::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().map(|(key, value)| (key.clone(), without_secrets(value, redactor))).collect();
            Json::Object(fields.into_iter().collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
    }
}
