//! Tasks: the purpose of a run, as described by the agent's author. A task attaches servers in addition to those that are always available,
//! and may define its own servers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::availability::{AttachedServers, presence};
use super::core::Core;
use super::ending::EndReason;
use super::granted::Granted;
use crate::config::{ServerDefinition, ServerSource, SourceKind, parse_object};
use crate::error::{Error, Result};
use crate::registry::{AgentId, AttachDecision, AttachReason, Candidate, Decider, Entry, Obstacle, Presence, TaskWishes, attach};
use crate::text::variant_of;
use crate::trust::ApprovalStatus;

/// The maximum length of a task's text, in bytes.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The maximum number of servers that a task names or defines. Also the maximum number of capabilities of a task.
const MAX_WISHES: usize = 256;
/// The number of hex digits of the entry's digest in the name of a task's own server.
const DIGEST_DIGITS: usize = 16;

/// A task, as described by the agent's author. A model never creates one.
///
/// ```
/// use hyperlight_mcp::gateway::{Task, TaskServer};
/// let task = Task { text: Some("Compare tomorrow's forecasts".to_owned()), servers: vec![TaskServer::named("weather")].into(), ..Task::default() };
/// assert!(task.capabilities.is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Task {
    /// The task as text, at most 64 KiB. Servers are attached if their keywords or capabilities occur in this text.
    pub text: Option<String>,
    /// The servers that the task needs: names of other servers, or entries of the task's own servers.
    pub servers: TaskServers,
    /// Servers with at least one of these capabilities are attached.
    pub capabilities: Vec<String>,
}

/// Servers that a task requests explicitly.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be a list of names, or of objects like { name: entry }")]
pub enum TaskServer {
    /// A server of another source, by its name.
    Named(String),
    /// Servers that the task defines, by name. The entries have the form of the config. The servers exist as long as the sandbox or run has
    /// the task.
    Own(BTreeMap<String, Json>),
}

/// The servers of a task, as a list, or as one object that maps names to entries.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "must be a list of names, or of objects like { name: entry }")]
pub enum TaskServers {
    Listed(Vec<TaskServer>),
    Own(BTreeMap<String, Json>),
}

impl Default for TaskServers {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl From<Vec<TaskServer>> for TaskServers {
    fn from(servers: Vec<TaskServer>) -> Self {
        Self::Listed(servers)
    }
}

impl TaskServers {
    /// Returns the servers as a list.
    fn listed(&self) -> Vec<TaskServer> {
        match self {
            Self::Listed(servers) => servers.clone(),
            Self::Own(entries) => vec![TaskServer::Own(entries.clone())],
        }
    }
}

impl TaskServer {
    /// Requests a server by its name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }
}

/// A parsed task: its wishes, which decide which servers are attached, and the servers that it defines.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadTask {
    wishes: TaskWishes,
    /// The task's own servers, by the names that the task uses. Their definitions contain the names in the registry.
    own: BTreeMap<String, Arc<ServerDefinition>>,
}

impl ReadTask {
    /// Combines this task with a wider task. The wishes of this task come first. Its servers hide servers of the wider task with the same
    /// name.
    fn within(&self, wider: &Self) -> Self {
        let mut all = self.clone();
        all.wishes.text = [self.wishes.text.as_str(), wider.wishes.text.as_str()].join("\n");
        all.wishes.servers.extend(wider.wishes.servers.iter().cloned());
        all.wishes.capabilities.extend(wider.wishes.capabilities.iter().cloned());
        for (name, server) in &wider.own {
            all.own.entry(name.clone()).or_insert_with(|| Arc::clone(server));
        }
        all
    }
}

/// A task whose own servers are in the registry until it is released or dropped.
pub(super) struct TakenTask {
    read: ReadTask,
    is_released: AtomicBool,
    /// The agent that has the task.
    identity: Arc<Identity>,
    core: Weak<Core>,
}

impl TakenTask {
    /// Removes the task's own servers from the registry immediately.
    pub(super) fn release(&self) {
        if let Some(core) = self.core.upgrade().filter(|_| !self.is_released.swap(true, Ordering::Relaxed)) {
            self.identity.task_servers.remove(self.read.own.values());
            core.let_go(self.read.own.values());
        }
    }
}

impl Drop for TakenTask {
    /// Releases the task on another thread, because the JavaScript thread may be the one that drops it.
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else { return };
        if self.read.own.is_empty() || self.is_released.swap(true, Ordering::Relaxed) {
            return;
        }
        let own = std::mem::take(&mut self.read.own);
        self.identity.task_servers.remove(own.values());
        // If there is no runtime, the gateway is closed and its servers have ended.
        if let Some(runtime) = core.trust.approval_cache.runtime() {
            drop(runtime.spawn(async move { core.let_go(own.values()) }));
        }
    }
}

/// The servers that tasks define, each with the number of tasks that define it. Two tasks that define the same entry share one server.
#[derive(Default)]
pub(super) struct BroughtServers(Mutex<BTreeMap<String, (Arc<ServerDefinition>, usize)>>);

/// The servers that the tasks of one agent define, by their names in the registry, each with the number of tasks that define it. For all
/// other agents, these servers do not exist.
#[derive(Default)]
pub(super) struct AgentTaskServers(Mutex<BTreeMap<String, usize>>);

impl AgentTaskServers {
    pub(super) fn has(&self, registry_name: &str) -> bool {
        self.0.lock().contains_key(registry_name)
    }

    fn add<'s>(&self, servers: impl Iterator<Item = &'s Arc<ServerDefinition>>) {
        let mut all = self.0.lock();
        for server in servers {
            *all.entry(server.name.clone()).or_default() += 1;
        }
    }

    fn remove<'s>(&self, servers: impl Iterator<Item = &'s Arc<ServerDefinition>>) {
        let mut all = self.0.lock();
        for server in servers {
            let Some(tasks) = all.get_mut(&server.name) else { continue };
            *tasks -= 1;
            if *tasks == 0 {
                all.remove(&server.name);
            }
        }
    }
}

/// A server, and the decision whether it is attached.
pub(super) struct DecidedServer {
    /// The decision. The decision contains the name that runs use for the server.
    pub(super) decision: AttachDecision,
    /// The entry. `None` if no server has this name.
    pub(super) entry: Option<Entry>,
}

impl DecidedServer {
    /// Returns the definition, unless the entry has an error.
    pub(super) fn definition(&self) -> Option<&Arc<ServerDefinition>> {
        if let Some(Entry::Valid(server)) = &self.entry { Some(server) } else { None }
    }
}

/// The agent for which servers are considered.
#[derive(Clone, Copy)]
pub(super) struct AgentView<'a> {
    pub(super) id: AgentId,
    /// The source of the servers that the agent adds.
    own: Option<&'a ServerSource>,
    granted: &'a Granted,
}

impl<'a> AgentView<'a> {
    pub(super) fn of(identity: &'a Identity, granted: &'a Granted) -> Self {
        Self { id: identity.id, own: identity.own_source(), granted }
    }

    /// Returns the view of an agent that is not open. Such an agent has no decisions of a model.
    /// `own` is the source of the servers that agents of its name add.
    pub(super) fn unopened(own: &'a ServerSource, granted: &'a Granted) -> Self {
        Self { id: AgentId(u64::MAX), own: Some(own), granted }
    }
}

/// The servers that a run gets because of its tasks.
#[derive(Default)]
pub(super) struct Attachment {
    pub(super) servers: AttachedServers,
    /// Sentences about servers that a task requests but does not get.
    pub(super) warnings: Vec<String>,
}

impl Core {
    /// Parses a task. Has no side effects.
    pub(super) fn read_task(&self, method: &'static str, task: &Task) -> Result<ReadTask> {
        let invalid = |problem: String| Error::InvalidOption { method, problem: problem.into() };
        let Task { text, servers, capabilities } = task;
        let text = text.clone().unwrap_or_default();
        if text.len() > MAX_TEXT_BYTES {
            return Err(invalid(format!("task.text: has {} bytes, and at most {MAX_TEXT_BYTES} are permitted", text.len())));
        }
        let mut read =
            ReadTask { wishes: TaskWishes { text, servers: Vec::new(), capabilities: capabilities.clone() }, own: BTreeMap::new() };
        for server in &servers.listed() {
            match server {
                TaskServer::Named(name) => read.wishes.servers.push(name.clone()),
                TaskServer::Own(entries) => {
                    for (name, entry) in entries {
                        read.wishes.servers.push(name.clone());
                        let server = Arc::new(self.own_server(name, entry)?);
                        if read.own.insert(name.clone(), server).is_some() {
                            return Err(invalid(format!("task.servers: has the server \"{name}\" twice")));
                        }
                    }
                }
            }
        }
        if read.wishes.servers.len() > MAX_WISHES || capabilities.len() > MAX_WISHES {
            return Err(invalid(format!("task: at most {MAX_WISHES} servers and {MAX_WISHES} capabilities are permitted")));
        }
        Ok(read)
    }

    /// Parses an entry of a server that a task defines. The server's name in the registry contains a digest of the entry. So the server
    /// cannot be confused with another one, and its approval is found again when another task defines the same entry.
    fn own_server(&self, name: &str, entry: &Json) -> Result<ServerDefinition> {
        let config = parse_object(&json!({ "mcpServers": { name: entry } }), "task", 1)?;
        if let Some(invalid) = config.invalid.into_iter().next() {
            return Err(invalid.error);
        }
        let server = config.servers.into_iter().next().ok_or_else(|| Error::Internal("a task's entry was not read".into()))?;
        let server = ServerDefinition { source: ServerSource { kind: SourceKind::Task, name: None }, ..server };
        let digest: String = self.fingerprint(&server).chars().take(DIGEST_DIGITS).collect();
        Ok(ServerDefinition { name: format!("{name}@task-{digest}"), ..server })
    }

    /// Parses a task of an agent, and adds the task's own servers to the registry until the result is released or dropped.
    pub(super) fn take_up(&self, identity: &Arc<Identity>, method: &'static str, task: &Task) -> Result<Arc<TakenTask>> {
        let read = self.read_task(method, task)?;
        if !read.own.is_empty() {
            let mut all = self.requests.tasks.0.lock();
            for server in read.own.values() {
                all.entry(server.name.clone()).or_insert_with(|| (Arc::clone(server), 0)).1 += 1;
            }
            self.set_task_layer(&all);
            identity.task_servers.add(read.own.values());
        }
        let (identity, core) = (Arc::clone(identity), Weak::clone(&self.weak));
        Ok(Arc::new(TakenTask { read, is_released: AtomicBool::new(false), identity, core }))
    }

    /// Removes the servers of a task from the registry, and ends the servers that no other task has.
    fn let_go<'s>(&self, servers: impl Iterator<Item = &'s Arc<ServerDefinition>>) {
        let mut all = self.requests.tasks.0.lock();
        let mut ended = Vec::new();
        for server in servers {
            let Some((_, tasks)) = all.get_mut(&server.name) else { continue };
            *tasks -= 1;
            if *tasks == 0 {
                all.remove(&server.name);
                ended.push(server.name.clone());
            }
        }
        if ended.is_empty() {
            return;
        }
        self.set_task_layer(&all);
        drop(all);
        for name in ended {
            let closing = self.end(&name, EndReason::Retired);
            // If there is no runtime, the gateway is closed and its servers have ended.
            if let Some(runtime) = self.trust.approval_cache.runtime() {
                let core = self.weak.upgrade();
                drop(closing);
                drop(runtime.spawn(async move {
                    if let Some(core) = core {
                        core.connections.close(&name).await;
                    }
                }));
            }
        }
    }

    fn set_task_layer(&self, all: &BTreeMap<String, (Arc<ServerDefinition>, usize)>) {
        let entries = all.values().map(|(server, _)| Entry::Valid(Arc::clone(server))).collect();
        self.registry.set_layer(ServerSource { kind: SourceKind::Task, name: None }, entries);
    }

    /// Decides for each server whether it is attached for a task of an agent. First come the servers that the task names, then the servers
    /// that need no task or match the task's text or capabilities. Each decision has a reason. Changes nothing.
    pub(super) fn decide(&self, agent: AgentView<'_>, task: &ReadTask, approval_read: ApprovalRead) -> Result<Vec<DecidedServer>> {
        let others = self.registry.entries();
        // An agent has either a server or one of its variants, under the name of the server. So variants are left out here.
        let is_another = |entry: &&Entry| {
            let is_of_registry = entry.source().kind != SourceKind::Task && variant_of(entry.name()).is_none();
            is_of_registry && !task.own.contains_key(entry.name())
        };
        let own = task.own.keys().map(|name| Candidate { name, presence: Presence::OnRequest, keywords: &[], capabilities: &[] });
        let candidates: Vec<_> = own.chain(others.iter().filter(is_another).map(|entry| candidate(entry, agent))).collect();
        let entry = |name: &str| match task.own.get(name) {
            Some(server) => Some(Entry::Valid(Arc::clone(server))),
            None => self.registry.entry(agent.granted.registry_name(name)).ok().filter(|entry| entry.source().kind != SourceKind::Task),
        };
        let named: BTreeSet<&str> = task.wishes.servers.iter().map(String::as_str).collect();
        let failure = RefCell::new(None);
        let decisions = attach(&candidates, &task.wishes, |name| {
            let outcome = match entry(name) {
                Some(entry) => self.obstacle(agent, &entry, named.contains(name), approval_read),
                None => Ok(Some(Obstacle::Unknown)),
            };
            outcome.unwrap_or_else(|error| {
                failure.borrow_mut().get_or_insert(error);
                Some(Obstacle::NotApproved)
            })
        });
        match failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(decisions
                .into_iter()
                .map(|decision| DecidedServer { entry: entry(&decision.server), decision: self.with_denial(agent, decision) })
                .collect()),
        }
    }

    /// If the policy for providers denies the server, replaces the obstacle "unknown" with the rule that denies the server.
    fn with_denial(&self, agent: AgentView<'_>, decision: AttachDecision) -> AttachDecision {
        let is_told = decision.obstacle == Some(Obstacle::Unknown) && agent.granted.reaches(decision.server.as_str().into());
        match self.providers.denial_of(&decision.server).filter(|_| is_told) {
            Some(rule) => AttachDecision { obstacle: Some(Obstacle::Denied(rule)), ..decision },
            None => decision,
        }
    }

    /// Returns the reason why an agent may not use a server. A server that is available only on request, or that the task names, need not
    /// be enabled beforehand.
    pub(super) fn obstacle(
        &self,
        agent: AgentView<'_>,
        entry: &Entry,
        is_named: bool,
        approval_read: ApprovalRead,
    ) -> Result<Option<Obstacle>> {
        // This check comes first, so that no other reason reveals a server that does not exist for the agent.
        if !agent.granted.reaches(entry.as_granted()) {
            return Ok(Some(Obstacle::NotGranted));
        }
        let Entry::Valid(server) = entry else { return Ok(Some(Obstacle::Invalid)) };
        if server.disabled {
            return Ok(Some(Obstacle::Disabled));
        }
        if self.registry.is_disabled_by_person(&server.name) {
            return Ok(Some(Obstacle::DisabledByPerson));
        }
        // A server that another agent has added belongs to that agent, so a task cannot attach it.
        let presence = presence(&server.name, &server.source, agent.own, agent.granted);
        if server.source.kind == SourceKind::Agent && presence == Presence::OnRequest {
            return Ok(Some(Obstacle::NotGranted));
        }
        let is_enabled = is_named || presence == Presence::OnRequest || self.registry.is_enabled(&server.name, agent.id);
        Ok(match self.approval_status_by(server, approval_read)? {
            ApprovalStatus::Unapproved(_) => Some(Obstacle::NotApproved),
            ApprovalStatus::Command => Some(Obstacle::ToolsNotApproved),
            ApprovalStatus::Full(approved) if agent.granted.manifest(server, &approved).is_none() => Some(Obstacle::NotGranted),
            ApprovalStatus::Full(_) if !is_enabled => Some(Obstacle::NotEnabled),
            ApprovalStatus::Full(_) => None,
        })
    }

    /// Attaches the servers for the tasks of a run or a sandbox, and enables them for the agent. The innermost task comes first.
    pub(super) fn attach(&self, identity: &Identity, tasks: &[Arc<TakenTask>], approval_read: ApprovalRead) -> Result<Attachment> {
        let Some((first, wider)) = tasks.split_first() else { return Ok(Attachment::default()) };
        let task = wider.iter().fold(first.read.clone(), |task, wider| task.within(&wider.read));
        let mut attachment = Attachment::default();
        let granted = self.granted(identity, approval_read)?;
        for mut decided in self.decide(AgentView::of(identity, &granted), &task, approval_read)? {
            // A server that is not granted does not exist for a run. If the task itself names the server, it is reported as unknown.
            if decided.decision.obstacle == Some(Obstacle::NotGranted) {
                if decided.decision.reason != AttachReason::Named {
                    continue;
                }
                decided = DecidedServer { decision: AttachDecision { obstacle: Some(Obstacle::Unknown), ..decided.decision }, entry: None };
            }
            let AttachDecision { server: name, reason, obstacle } = &decided.decision;
            let known = decided.definition().map(|server| server.name.clone());
            let is_enabled = known.as_ref().is_some_and(|known| self.registry.is_enabled(known, identity.id));
            let obstacle = obstacle.clone().or_else(|| {
                let known = known.as_ref().filter(|_| !is_enabled)?;
                // A person may have disabled the server a moment ago.
                self.registry.enable(known, Decider::Model, identity.id).err().map(|_| Obstacle::DisabledByPerson)
            });
            match (obstacle, known) {
                (None, Some(known)) => {
                    attachment.servers.0.insert(name.clone(), known);
                }
                (Some(obstacle), known) if *reason != AttachReason::Always => {
                    let alias =
                        known.filter(|known| known != name).map(|known| format!(" (in approvals: \"{known}\")")).unwrap_or_default();
                    attachment.warnings.push(format!("server \"{name}\"{alias} is not attached: {obstacle} ({reason})"));
                }
                _ => {}
            }
        }
        Ok(attachment)
    }
}

/// Returns a server of another source as a candidate for attachment.
fn candidate<'e>(entry: &'e Entry, agent: AgentView<'_>) -> Candidate<'e> {
    let (keywords, capabilities) = match entry {
        Entry::Valid(server) => (&server.keywords[..], &server.capabilities[..]),
        Entry::Invalid(_) => (&[][..], &[][..]),
    };
    Candidate { name: entry.name(), presence: presence(entry.name(), entry.source(), agent.own, agent.granted), keywords, capabilities }
}

#[cfg(test)]
#[path = "tasks_tests.rs"]
mod tests;
