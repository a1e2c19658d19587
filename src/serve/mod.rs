//! The gateway as an MCP server: a host such as VS Code or Claude Code uses all approved servers through a few tools.
//!
//! Each client of the server is an [`Agent`](crate::gateway::Agent) of its own. Questions about its calls go back to it, and to no other.

#![allow(
    deprecated,
    reason = "hosts of protocol 2025-11-25 and older have sampling, logs and subscriptions, which rmcp marks for the newest one"
)]

mod answers;
mod asking;
mod backpressure;
mod changes;
mod direct;
mod handler;
mod handles;
mod held_agents;
mod held_arguments;
pub mod http;
mod listeners;
mod paused_calls;
mod resources_and_prompts;
mod rounds;
mod run_limits;
mod saved_shares;
mod served;
mod session;
mod standard;
mod stateless;
mod stdio;
mod subscriptions;
mod tasks;
mod unreadable;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::gateway::{Agent, Gateway, IdentityOptions};
use crate::trust::AllowedWrites;

pub use crate::catalog::NameStyle;
pub use direct::Direct;
pub use handler::Handler;
pub use served::{ServedGateway, Transport, serve};
pub use stdio::serve_stdio;

use self::changes::Changes;
use self::handles::Handles;
use self::held_agents::HeldAgents;
use self::held_arguments::ArgumentMemory;
use self::http::{Metrics, Principal};
use self::paused_calls::PausedCalls;
use self::run_limits::{ParseOwners, Runs};
use self::saved_shares::SavedShares;
use self::session::Session;
use self::tasks::Tasks;

/// Options of a served gateway.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// Tools that need no answer of a person before each call.
    pub allow_writes: AllowedWrites,
    /// The name of the agents of all clients. Default: the name that each client gives itself.
    pub agent: Option<String>,
    /// The servers whose tools are listed under names of their own, beside the tools of this program.
    pub direct: Direct,
    /// The form of these names.
    pub names: NameStyle,
}

/// A gateway that is served: the part that all its clients share. Cheap to clone.
#[derive(Clone)]
pub struct Served(Arc<Shared>);

struct Shared {
    gateway: Gateway,
    options: ServeOptions,
    changes: Changes,
    paused_calls: PausedCalls,
    /// Sessions that callers without one have left, for their saved values.
    handles: Handles<Session>,
    /// Agents of callers without a session.
    held_agents: HeldAgents<Agent>,
    /// What the sessions have saved.
    saved_shares: SavedShares<Session>,
    tasks: Tasks,
    arguments: ArgumentMemory,
    metrics: Arc<Metrics>,
    runs: Runs,
    parse_owners: ParseOwners,
    /// The number of the next run, in events and questions.
    next_run: AtomicU64,
    runtime: tokio::runtime::Handle,
    closed: CancellationToken,
}

impl Served {
    /// Begins to serve a gateway: enables every approved server, and each that is approved later.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for the name of an agent that is not well-formed, `ERR_CLOSED`, `ERR_APPROVAL_STORE`, `ERR_IO` where the system gives no random key.
    pub fn new(gateway: Gateway, options: ServeOptions, runtime: &tokio::runtime::Handle) -> Result<Self> {
        if let Some(name) = &options.agent {
            // Checks the name now, and not at the first request.
            drop(gateway.agent(name, IdentityOptions::default())?);
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| Error::Io { what: "a key for the state of requests".into(), problem: error.to_string().into() })?;
        let (max_bytes, max_age) = gateway.saved_limits();
        let (closed, metrics) = (CancellationToken::new(), Arc::<Metrics>::default());
        let shared = Shared {
            gateway,
            options,
            changes: Changes::default(),
            paused_calls: PausedCalls::new(&key, &closed),
            handles: Handles::new(&key, max_bytes, max_age),
            held_agents: HeldAgents::default(),
            saved_shares: SavedShares::new(max_bytes),
            tasks: Tasks::new(runtime, &closed),
            arguments: ArgumentMemory::default(),
            runs: Runs::new(Arc::clone(&metrics)),
            parse_owners: ParseOwners::default(),
            metrics,
            next_run: AtomicU64::new(1),
            runtime: runtime.clone(),
            closed,
        };
        let served = Self(Arc::new(shared));
        served.enable_approved()?;
        runtime.spawn(changes::watch(Arc::downgrade(&served.0), served.0.closed.clone()));
        Ok(served)
    }

    /// Returns the handler of one connection. Its agent has the caller's name, if the caller has one.
    #[must_use]
    pub fn handler(&self, caller: &Principal) -> Handler {
        Handler::new(self.clone(), caller.clone())
    }

    /// Returns the counters of the server. The handlers count the runs in it.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    fn next_run(&self) -> u64 {
        self.0.next_run.fetch_add(1, Ordering::Relaxed)
    }

    /// Stops looking for changes, ends the calls that wait for an answer, and forgets what callers without a session have saved. Connections end with
    /// their transports.
    pub fn close(&self) {
        self.0.closed.cancel();
        self.0.paused_calls.clear();
        self.0.handles.clear();
        self.0.held_agents.clear();
    }

    fn enable_approved(&self) -> Result<()> {
        self.0.enable_approved().map(drop)
    }
}

impl Shared {
    /// Keeps the servers connected that the agent of a caller without a session has by its profiles. The agent itself ends with the request.
    fn hold_servers_of(&self, agent: &Agent) -> Result<()> {
        let Some(name) = agent.granted_name().filter(|_| agent.has_servers_by_profiles()) else { return Ok(()) };
        self.held_agents.hold(name, Instant::now(), || self.gateway.agent(name, IdentityOptions::default()))
    }

    /// Enables the approved servers that no person has disabled. Returns what clients can see of all servers, as one text that changes with it.
    fn enable_approved(&self) -> Result<String> {
        let gateway = &self.gateway;
        for status in gateway.servers()? {
            if status.approved && !status.enabled && !status.disabled_by_person {
                match gateway.enable(&status.name) {
                    Ok(()) | Err(Error::ServerDisabled { .. } | Error::NotApproved { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let seen = gateway.approved_manifests()?;
        // With damaged grants, agents see nothing.
        let grants = gateway.toolboxes().ok();
        Ok(format!("{seen:?} {grants:?}"))
    }
}
