//! An agent: one caller of the gateway, and everything that belongs to this caller alone.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::callbacks::{CallbackChain, Callbacks};
use super::core::Core;
use super::events::EventListener;
use super::grants::Grants;
use crate::error::{Error, Result};
use crate::registry::AgentId;
use crate::results::SavedValues;
use crate::sandbox::ParseOwner;

/// Longest name of an agent, in characters.
const MAX_NAME_CHARS: usize = 64;
/// The operator's own agent.
const OPERATOR: AgentId = AgentId(0);

/// Options of an agent.
#[derive(Default)]
pub struct IdentityOptions {
    /// Callbacks for the questions about the agent's calls. The gateway's are not asked in their place: they belong to the operator.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The listener of events of the agent's calls, and of resources to which it has subscribed. Default: the gateway's.
    pub on_event: Option<EventListener>,
}

/// One caller of a gateway. It sees the servers that are approved and enabled. Its session grants, its sandboxes with their saved values, its
/// callbacks, its subscriptions and its model's decisions to enable or disable a server are its own, and end with it. Connections and approvals
/// are shared with all other agents. All clones are one agent.
///
/// ```no_run
/// # async fn example(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
/// use hyperlight_mcp::gateway::IdentityOptions;
///
/// let researcher = gateway.agent("researcher", IdentityOptions::default())?;
/// println!("{}", researcher.declarations(None, Default::default())?);
/// researcher.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Agent {
    pub(super) core: Arc<Core>,
    pub(super) identity: Arc<Identity>,
}

/// The part of an agent that its sandboxes and calls share.
pub(super) struct Identity {
    pub(super) id: AgentId,
    pub(super) name: Option<Arc<str>>,
    pub(super) callbacks: CallbackChain,
    pub(super) listener: Option<EventListener>,
    /// Answers "for the session".
    pub(super) grants: Grants,
    /// Values that the agent's sandboxes have saved.
    saved: Mutex<Vec<Weak<Mutex<SavedValues>>>>,
    /// Identifies the agent to the code parser where it has no sandbox.
    pub(super) parse_owner: ParseOwner,
    pub(super) closed: CancellationToken,
    /// Its runs and calls, for which its end waits.
    pub(super) work: TaskTracker,
    core: Weak<Core>,
}

/// The agents of one gateway that have not ended, and the number of the next.
pub(super) struct Agents {
    open: Mutex<BTreeMap<AgentId, Weak<Identity>>>,
    next: AtomicU64,
}

impl Default for Agents {
    fn default() -> Self {
        Self { open: Mutex::default(), next: AtomicU64::new(OPERATOR.0 + 1) }
    }
}

impl Agents {
    fn add(&self, identity: &Arc<Identity>) {
        self.open.lock().insert(identity.id, Arc::downgrade(identity));
    }

    fn remove(&self, id: AgentId) {
        self.open.lock().remove(&id);
    }

    /// Returns the agent of this number, if it has not ended.
    pub(super) fn get(&self, id: AgentId) -> Option<Arc<Identity>> {
        self.open.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Returns the oldest agent of this name that has not ended.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Identity>> {
        let all: Vec<_> = self.open.lock().values().filter_map(Weak::upgrade).collect();
        all.into_iter().find(|identity| identity.name() == Some(name))
    }

    /// Returns the numbers of all agents that have not ended, the operator's own among them.
    pub(super) fn ids(&self) -> Vec<AgentId> {
        std::iter::once(OPERATOR).chain(self.open.lock().keys().copied()).collect()
    }

    /// Takes back what persons have allowed any agent for the session, of one server.
    pub(super) fn forget_grants(&self, server: &str) {
        // Not while the list is locked: the last handle of an agent may be dropped here, and that removes it from the list.
        let all: Vec<_> = self.open.lock().values().filter_map(Weak::upgrade).collect();
        for identity in &all {
            identity.grants.forget(server);
        }
    }
}

impl Identity {
    /// Makes the operator's own agent, whose callbacks are the gateway's.
    pub(super) fn operator(core: Weak<Core>, callbacks: CallbackChain, closed: &CancellationToken) -> Arc<Self> {
        Arc::new(Self::new(OPERATOR, None, core, callbacks, None, closed))
    }

    fn new(
        id: AgentId,
        name: Option<Arc<str>>,
        core: Weak<Core>,
        callbacks: CallbackChain,
        listener: Option<EventListener>,
        closed: &CancellationToken,
    ) -> Self {
        let (grants, saved, parse_owner, work) = (Grants::default(), Mutex::default(), ParseOwner::default(), TaskTracker::new());
        Self { id, name, callbacks, listener, grants, saved, parse_owner, closed: closed.child_token(), work, core }
    }

    /// Notes the saved values of a sandbox, which end with the agent.
    pub(super) fn keep_saved(&self, of_sandbox: &Arc<Mutex<SavedValues>>) {
        let mut all = self.saved.lock();
        all.retain(|saved| saved.strong_count() > 0);
        all.push(Arc::downgrade(of_sandbox));
    }

    /// Returns the size of the values that the agent's sandboxes have saved.
    fn saved_bytes(&self, now: Instant) -> usize {
        let all: Vec<_> = self.saved.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().map(|saved| saved.lock().size(now)).sum()
    }

    /// Forgets the grants and the saved values.
    fn forget(&self) {
        self.grants.forget_all();
        self.forget_saved();
        self.saved.lock().clear();
    }

    /// Forgets the saved values. Runs can save others.
    fn forget_saved(&self) {
        let all: Vec<_> = self.saved.lock().iter().filter_map(Weak::upgrade).collect();
        for saved in all {
            saved.lock().clear();
        }
    }

    /// Returns the name that the agent was given. The operator's own agent has none.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether this is the operator's own agent.
    pub(super) fn is_operator(&self) -> bool {
        self.id == OPERATOR
    }

    /// Fails once the agent, or its gateway, is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.is_cancelled() { Err(self.closed_error()) } else { Ok(()) }
    }

    /// The error of whatever is asked of an agent that is closed.
    pub(super) fn closed_error(&self) -> Error {
        let gateway_is_open = self.core.upgrade().is_some_and(|core| core.check_open().is_ok());
        Error::Closed { what: if gateway_is_open { "agent" } else { "gateway" } }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.forget_agent(self.id);
        }
    }
}

impl Core {
    /// Forgets what was kept for an agent. Servers are asked in the background to send no more updates that only this agent wanted.
    fn forget_agent(self: &Arc<Self>, id: AgentId) {
        self.agents.remove(id);
        self.registry.forget_agent(id);
        self.end_subscriptions_of(id);
    }
}

impl Agent {
    /// Makes an agent of a gateway.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a name that is not well-formed, `ERR_CLOSED`.
    pub(super) fn open(core: &Arc<Core>, name: &str, options: IdentityOptions) -> Result<Self> {
        core.check_open()?;
        check_name(name)?;
        let IdentityOptions { callbacks, on_event } = options;
        let id = AgentId(core.agents.next.fetch_add(1, Ordering::Relaxed));
        let callbacks = core.people.callbacks.for_agent(callbacks);
        let identity = Arc::new(Identity::new(id, Some(name.into()), Arc::downgrade(core), callbacks, on_event, &core.closed));
        core.agents.add(&identity);
        Ok(Self { core: Arc::clone(core), identity })
    }

    /// Returns the name that the agent was given. The operator's own agent has none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.identity.name()
    }

    /// Returns the size of the values that the agent's sandboxes have saved and still hold.
    pub(crate) fn saved_bytes(&self, now: Instant) -> usize {
        self.identity.saved_bytes(now)
    }

    /// Forgets the values that the agent's sandboxes have saved.
    pub(crate) fn forget_saved(&self) {
        self.identity.forget_saved();
    }

    /// Returns the limits of the saved values of one sandbox: their size and their age.
    pub(crate) fn saved_limits(&self) -> (usize, Duration) {
        (self.core.limits.max_saved_bytes, Duration::from_millis(self.core.limits.max_saved_age_ms))
    }

    /// Returns the limit on the values in one value (`limits.maxValueParts`).
    pub(crate) fn max_value_parts(&self) -> usize {
        self.core.limits.max_value_parts
    }

    /// Begins to close: what is asked of the agent from now on fails, and pending requests end.
    pub fn begin_close(&self) {
        self.identity.closed.cancel();
    }

    /// Ends the runs, calls and sandboxes of the agent with `ERR_CLOSED`, waits for that, and forgets its grants, saved values and
    /// subscriptions. Servers stay connected for other agents.
    pub async fn close(&self) {
        self.begin_close();
        self.identity.work.close();
        self.identity.work.wait().await;
        self.core.forget_agent(self.identity.id);
        self.identity.forget();
    }

    /// Does work that ends with the agent, and for which the agent's end waits.
    pub(crate) async fn unless_closed<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let _work = self.identity.work.token();
        tokio::select! {
            biased;
            () = self.identity.closed.cancelled() => Err(self.identity.closed_error()),
            outcome = work => outcome,
        }
    }
}

/// Refuses a name that could not stand in a log line or a file name.
fn check_name(name: &str) -> Result<()> {
    let is_well_formed = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|next| next.is_ascii_alphanumeric() || matches!(next, '-' | '_' | '.'))
        && name.len() <= MAX_NAME_CHARS;
    if is_well_formed {
        return Ok(());
    }
    let problem = format!("name must match ^[A-Za-z0-9][A-Za-z0-9._-]*$ and have at most {MAX_NAME_CHARS} characters, not \"{name}\"");
    Err(Error::InvalidOption { method: "Gateway.agent", problem: problem.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_name_can_stand_in_a_line_of_a_log() {
        assert!(["researcher", "a", "0.b-c_D", &"n".repeat(64)].into_iter().all(|name| check_name(name).is_ok()));
        for name in ["", "-a", ".a", "a b", "a\nb", "é", "a/b", &"n".repeat(65)] {
            assert_eq!(check_name(name).unwrap_err().code(), "ERR_INVALID_OPTION", "{name}");
        }
    }
}
