//! An agent: one caller of the gateway, with the state that belongs only to this caller.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent_names::NameOrigin;
use super::allowed_calls::AllowedCalls;
use super::approval_cache::ApprovalRead;
use super::availability::exists_for;
use super::callbacks::{CallbackChain, Callbacks};
use super::core::Core;
use super::events::EventListener;
use super::granted::Granted;
use super::result_shapes::ResultShapes;
use super::tasks::AgentTaskServers;
use crate::config::ServerDefinition;
use crate::config::ServerSource;
use crate::error::{Error, Result};
use crate::registry::{AgentId, source_of};
use crate::results::SavedValues;
use crate::sandbox::CodeOwner;

/// The id of the operator's own agent.
const OPERATOR: AgentId = AgentId(0);

/// Options of an agent.
#[derive(Default)]
pub struct IdentityOptions {
    /// Callbacks that answer questions about the agent's calls. The gateway's callbacks are never used in place of missing ones, because
    /// they belong to the operator.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The listener for events of the agent's calls and of the resources to which it has subscribed. Default: the gateway's listener.
    pub on_event: Option<EventListener>,
    pub name_origin: NameOrigin,
    /// Names of the agent's profiles. If the config has profiles, an agent without a profile has no servers. Default: the profiles in the
    /// agent's entry in the config.
    pub profiles: Option<Vec<String>>,
    /// The names of the only servers that exist for the agent, even if its grants include more servers. Default: no limit except the
    /// grants.
    pub only: Option<Arc<BTreeSet<String>>>,
    /// The owner of the agent's code. Agents with the same owner share one parser share and one set of compute slots. Default: the agent
    /// and each of its sandboxes have their own parser share, and the number of guests that execute at one time is not limited.
    pub code_owner: Option<CodeOwner>,
}

/// One caller of a gateway. An agent sees only the approved and enabled servers that it is granted. It has its own permissions for the
/// session, its own sandboxes with saved values, and its own callbacks and subscriptions. It also has its own model's decisions to enable
/// or disable a server. All of these end with the agent. Connections and approvals are shared with all other agents. Clones of this value
/// are the same agent.
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
    /// The name that was given to the agent. Only [`Agent::name`] returns it: decisions use `granted_name`, and texts `audit_name`.
    name: Option<Arc<str>>,
    /// The name of the agent in texts for the operator. A name that the operator has not chosen is marked. `None` for the operator's own
    /// agent.
    audit_name: Option<Arc<str>>,
    /// The name under which grants apply to the agent. `None` for the operator's own agent, and if the operator has not chosen the name.
    pub(super) granted_name: Option<String>,
    /// The source of the servers that the agent adds.
    own_source: Option<ServerSource>,
    /// Names of the profiles with which the agent was opened.
    pub(super) profiles: Vec<String>,
    /// The names of the only servers that exist for the agent. `None` if the grants alone decide which servers exist.
    pub(super) only: Option<Arc<BTreeSet<String>>>,
    pub(super) callbacks: CallbackChain,
    pub(super) listener: Option<EventListener>,
    /// Calls that a person allowed for the session.
    pub(super) allowed_calls: AllowedCalls,
    /// The shapes of results that the agent has learnt.
    pub(super) shapes: Arc<ResultShapes>,
    /// Servers that tasks of the agent define.
    pub(super) task_servers: AgentTaskServers,
    /// Items that were refused to the agent and reported to the operator, as `server/item`.
    pub(super) refused: Mutex<BTreeSet<String>>,
    /// Values that runs of the agent's sandboxes have saved.
    saved: Mutex<Vec<Weak<Mutex<SavedValues>>>>,
    /// The owner of code that the agent parses outside of a sandbox.
    pub(super) code_owner: CodeOwner,
    /// The owner of code in the agent's sandboxes and tools, if several agents of one caller share the owner. `None`: each sandbox has its
    /// own owner.
    shared_code_owner: Option<CodeOwner>,
    pub(super) closed: CancellationToken,
    /// Runs and calls in progress. `close` waits for their end.
    pub(super) work: TaskTracker,
    core: Weak<Core>,
}

/// The name of a new agent, and its form in texts for the operator. The operator's own agent has neither.
#[derive(Default)]
struct GivenName {
    name: Option<Arc<str>>,
    shown: Option<Arc<str>>,
}

/// The open agents of one gateway, and the number for the next agent.
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

    /// Returns the agent with this number, if it is open.
    pub(super) fn get(&self, id: AgentId) -> Option<Arc<Identity>> {
        self.open.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Returns the oldest open agent to which grants for this name apply. An agent whose client has chosen the same name is another agent.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Identity>> {
        self.all().into_iter().find(|identity| identity.granted_name.as_deref() == Some(name))
    }

    /// Returns the open agents, without the operator's own.
    pub(super) fn all(&self) -> Vec<Arc<Identity>> {
        // The lock must be released before the caller drops these values: if a caller drops the last handle of an agent, the drop locks
        // this list to remove the agent.
        self.open.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the numbers of all open agents, including the operator's own.
    pub(super) fn ids(&self) -> Vec<AgentId> {
        std::iter::once(OPERATOR).chain(self.open.lock().keys().copied()).collect()
    }

    /// Removes the data that agents keep about one server until the server's approval ends: session permissions, and shapes of results.
    pub(super) fn forget_server(&self, server: &str) {
        for identity in &self.all() {
            identity.forget_server(server);
        }
    }
}

impl Identity {
    /// Returns the owner of code for a new sandbox, or for the agent's tools.
    pub(super) fn new_code_owner(&self) -> CodeOwner {
        self.shared_code_owner.clone().unwrap_or_default()
    }

    /// Creates the operator's own agent. This agent uses the gateway's callbacks.
    pub(super) fn operator(core: Weak<Core>, callbacks: CallbackChain, closed: &CancellationToken) -> Arc<Self> {
        let options = IdentityOptions::default();
        Arc::new(Self::new(OPERATOR, GivenName::default(), core, callbacks, options, closed))
    }

    fn new(
        id: AgentId,
        GivenName { name, shown: audit_name }: GivenName,
        core: Weak<Core>,
        callbacks: CallbackChain,
        options: IdentityOptions,
        closed: &CancellationToken,
    ) -> Self {
        let IdentityOptions { callbacks: _, on_event: listener, name_origin, profiles, only, code_owner: shared_code_owner } = options;
        let profiles = profiles.unwrap_or_default();
        let (allowed_calls, saved, code_owner, work) =
            (AllowedCalls::default(), Mutex::default(), shared_code_owner.clone().unwrap_or_default(), TaskTracker::new());
        let granted_name = name.as_deref().and_then(|name| name_origin.granted_name(name)).map(str::to_owned);
        let own_source = (name.is_none() || granted_name.is_some()).then(|| source_of(granted_name.as_deref()));
        Self {
            id,
            name,
            audit_name,
            granted_name,
            own_source,
            profiles,
            only,
            task_servers: AgentTaskServers::default(),
            refused: Mutex::default(),
            callbacks,
            listener,
            allowed_calls,
            shapes: Arc::default(),
            saved,
            code_owner,
            shared_code_owner,
            closed: closed.child_token(),
            work,
            core,
        }
    }

    /// Records the saved values of a sandbox, so that they are cleared when the agent ends.
    pub(super) fn keep_saved(&self, of_sandbox: &Arc<Mutex<SavedValues>>) {
        let mut all = self.saved.lock();
        all.retain(|saved| saved.strong_count() > 0);
        all.push(Arc::downgrade(of_sandbox));
    }

    /// Returns the total size of the values that the agent's sandboxes have saved.
    fn saved_bytes(&self, now: Instant) -> usize {
        let all: Vec<_> = self.saved.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().map(|saved| saved.lock().size(now)).sum()
    }

    /// Removes the data that the agent keeps about one server until the server's approval ends: session permissions, and shapes of results.
    pub(super) fn forget_server(&self, server: &str) {
        self.allowed_calls.forget(server);
        self.shapes.forget(server);
    }

    /// Removes the agent's call permissions, the shapes that it has learnt, and its saved values.
    fn forget(&self) {
        self.allowed_calls.forget_all();
        self.shapes.forget_all();
        self.forget_saved();
        self.saved.lock().clear();
    }

    /// Removes the saved values. Later runs can save new ones.
    fn forget_saved(&self) {
        let all: Vec<_> = self.saved.lock().iter().filter_map(Weak::upgrade).collect();
        for saved in all {
            saved.lock().clear();
        }
    }

    /// Returns the name of the agent in texts for the operator: the audit, events, spans and errors. A name that the operator has not chosen
    /// is marked. The operator's own agent has no name.
    pub(super) fn audit_name(&self) -> Option<Arc<str>> {
        self.audit_name.clone()
    }

    /// Returns the source of the servers that the agent adds. Returns `None` if the agent can add no servers, because the operator has not
    /// chosen the agent's name.
    pub(super) fn own_source(&self) -> Option<&ServerSource> {
        self.own_source.as_ref()
    }

    /// Returns whether this is the operator's own agent.
    pub(super) fn is_operator(&self) -> bool {
        self.id == OPERATOR
    }

    /// Returns an error if the agent or its gateway is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.is_cancelled() { Err(self.closed_error()) } else { Ok(()) }
    }

    /// Returns the error for requests to a closed agent.
    pub(super) fn closed_error(&self) -> Error {
        let gateway_is_open = self.core.upgrade().is_some_and(|core| core.check_open().is_ok());
        Error::Closed { what: if gateway_is_open { "agent" } else { "gateway" } }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            // If the agent was closed, `close` has already closed its servers.
            let servers = if self.closed.is_cancelled() { BTreeSet::new() } else { core.servers_by_profiles(self) };
            core.forget_agent(self.id);
            core.end_left_soon(servers);
        }
    }
}

impl Core {
    /// Removes the state that was kept for an agent. A background task then cancels, at the servers, the subscriptions to resources that no
    /// other agent has subscribed to.
    fn forget_agent(self: &Arc<Self>, id: AgentId) {
        self.agents.remove(id);
        self.registry.forget_agent(id);
        self.end_subscriptions_of(id);
    }
}

impl Agent {
    /// Returns the owner of the code that the agent's tools check.
    pub(crate) fn new_code_owner(&self) -> CodeOwner {
        self.identity.new_code_owner()
    }

    /// Opens an agent of a gateway.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a name that is not well-formed, `ERR_PROFILE_CONFLICT`, `ERR_CLOSED`.
    pub(super) fn open(core: &Arc<Core>, name: &str, options: IdentityOptions) -> Result<Self> {
        core.check_open()?;
        options.name_origin.check(name)?;
        check_profiles(core, name, &options)?;
        if let Some(profiles) = &options.profiles {
            core.take_up_profiles(profiles)?;
        }
        let id = AgentId(core.agents.next.fetch_add(1, Ordering::Relaxed));
        let callbacks = core.people.callbacks.for_agent(options.callbacks.clone());
        let shown = options.name_origin.shown(name, &core.redactor);
        let name = GivenName { name: Some(name.into()), shown: Some(shown.into()) };
        let identity = Arc::new(Identity::new(id, name, Arc::downgrade(core), callbacks, options, &core.closed));
        core.agents.add(&identity);
        Ok(Self { core: Arc::clone(core), identity })
    }

    /// Returns the name that was given to the agent. The agent's client may have chosen it ([`NameOrigin`]). The operator's own agent has no
    /// name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.identity.name.as_deref()
    }

    /// Returns the agent's present grants.
    pub(super) fn granted(&self, read: ApprovalRead) -> Result<Arc<Granted>> {
        self.core.granted(&self.identity, read).map_err(|error| self.core.redacted(error))
    }

    /// Returns the definition of a server that is visible to the agent, while the gateway is open.
    pub(super) fn known_server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        self.core.check_open()?;
        let granted = self.granted(ApprovalRead::Fresh)?;
        let server = self.core.known_server(name, &granted).map_err(|error| self.core.redacted(error))?;
        let exists = exists_for(server.as_granted(), &self.identity, &granted) && self.core.sees(&server, &granted);
        if exists { Ok(server) } else { Err(self.core.redacted(self.core.unknown_server(name, &granted))) }
    }

    /// Returns the total size of the values that the agent's sandboxes have saved and not yet dropped.
    pub(crate) fn saved_bytes(&self, now: Instant) -> usize {
        self.identity.saved_bytes(now)
    }

    /// Removes the values that the agent's sandboxes have saved.
    pub(crate) fn forget_saved(&self) {
        self.identity.forget_saved();
    }

    /// Returns the maximum size and the maximum age of the saved values of one sandbox.
    pub(crate) fn saved_limits(&self) -> (usize, Duration) {
        (self.core.limits.max_saved_bytes, Duration::from_millis(self.core.limits.max_saved_age_ms))
    }

    /// Returns the maximum number of parts in one value (`limits.maxValueParts`).
    pub(crate) fn max_value_parts(&self) -> usize {
        self.core.limits.max_value_parts
    }

    /// Starts to close the agent: new requests fail, and pending requests end.
    pub fn begin_close(&self) {
        self.identity.closed.cancel();
    }

    /// Ends the runs, calls and sandboxes of the agent with `ERR_CLOSED`, and waits until they have ended. Then discards the agent's call
    /// permissions, saved values and subscriptions. Closes each server that the agent had through profiles, unless another open agent has
    /// the server through profiles or the operator's own agent uses it. All other servers stay connected.
    pub async fn close(&self) {
        self.begin_close();
        self.identity.work.close();
        self.identity.work.wait().await;
        let servers = self.core.servers_by_profiles(&self.identity);
        self.core.forget_agent(self.identity.id);
        self.identity.forget();
        self.core.end_left(servers).await;
    }

    /// Runs `work` until it is done or the agent is closed. `close` waits until the work has ended.
    pub(crate) async fn unless_closed<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let _work = self.identity.work.token();
        tokio::select! {
            biased;
            () = self.identity.closed.cancelled() => Err(self.identity.closed_error()),
            outcome = work => outcome,
        }
    }
}

/// Refuses profiles that do not exist, and profiles that differ from those in the agent's entry in the config.
fn check_profiles(core: &Core, name: &str, options: &IdentityOptions) -> Result<()> {
    let Some(profiles) = &options.profiles else { return Ok(()) };
    let settings = core.grants.settings();
    if let Some(unknown) = profiles.iter().find(|profile| !settings.profiles.contains_key(*profile)) {
        let known = settings.profiles.keys().cloned().collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        let problem = format!("profiles: the config has no profile \"{unknown}\"; there are: {known}");
        return Err(core.redacted(Error::InvalidOption { method: "Gateway.agent", problem: problem.into() }));
    }
    match options.name_origin.granted_name(name).and_then(|name| settings.agents.get(name)) {
        Some(entry) if entry.profiles.as_ref().is_some_and(|own| own != profiles) => Err(core.redacted(Error::GrantInConfig {
            what: format!("the profile list of agent \"{name}\"").into(),
            place: entry.place.as_str().into(),
        })),
        _ => Ok(()),
    }
}
