//! Serves the gateway as an MCP server: a host such as VS Code or Claude Code can use all approved servers through a few tools.
//!
//! Each client of the server has its own [`Agent`](crate::gateway::Agent). Questions about its calls are sent only to this client.

#![allow(
    deprecated,
    reason = "hosts of protocol 2025-11-25 and older have sampling, logs and subscriptions, which rmcp marks for the newest one"
)]

mod answers;
mod asking;
mod backpressure;
mod call_ids;
mod changes;
mod cited;
mod direct;
mod drain;
mod handler;
mod handles;
mod held_agents;
mod held_arguments;
mod held_questions;
pub mod http;
mod instructions;
mod items;
mod lacking;
mod large_answers;
mod links;
mod listeners;
mod misfits;
mod own_tools;
mod paused_calls;
mod places;
mod prompts;
mod request_ids;
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
mod task_entry;
mod task_view;
mod tasks;
mod traced;
mod unanswered;
mod unreadable;
mod waiting_calls;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use crate::agent::MAX_CALLS;
use crate::bridge::ToolErrors;
use crate::error::{Error, Result};
use crate::gateway::{Agent, Gateway, IdentityOptions};
use crate::trust::AllowedWrites;
use crate::turns::Turns;

pub use crate::catalog::NameStyle;
pub use direct::Direct;
pub use drain::Drain;
pub use handler::Handler;
pub use served::{ServedGateway, Transport, serve};
pub use stdio::serve_stdio;

use self::changes::Changes;
use self::handles::Handles;
use self::held_agents::HeldAgents;
use self::held_arguments::ArgumentMemory;
use self::held_questions::QuestionMemory;
use self::http::{Metrics, Principal};
use self::items::ItemLists;
use self::large_answers::LargeAnswers;
use self::paused_calls::PausedCalls;
use self::run_limits::{CodeOwners, Runs};
use self::saved_shares::SavedShares;
use self::session::Session;
use self::tasks::Tasks;
use self::waiting_calls::WaitingCalls;

/// Options of a served gateway.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// Tools that may be called without asking a person before each call.
    pub allow_writes: AllowedWrites,
    /// The only servers that clients can see. The list also applies to servers that are approved later. Default: all servers.
    pub servers: Option<Arc<BTreeSet<String>>>,
    /// The name that the agents of all clients have. Default: the name that each client reports.
    pub agent: Option<String>,
    /// The servers whose tools are listed directly, each under its own name, together with this program's tools.
    pub direct: Direct,
    /// The form of the names of tools that are listed directly: `mcp_<server>_<tool>` or `<server>-<tool>`.
    pub names: NameStyle,
    /// The form in which errors of calls appear in the code of models, and in the declarations for this code. Default:
    /// [`ToolErrors::FOR_MODELS`].
    pub tool_errors: Option<ToolErrors>,
    /// The hint for a model about a server to which a person has to sign in. Default: a sentence without a command.
    pub sign_in: Option<String>,
}

/// A served gateway: the state that all its clients share. Clones are cheap.
#[derive(Clone)]
pub struct Served(Arc<Shared>);

struct Shared {
    gateway: Gateway,
    options: ServeOptions,
    changes: Changes,
    paused_calls: PausedCalls,
    /// Sessions of callers without a protocol session. A later run finds its session, and the values in it, by a handle.
    handles: Handles<Session>,
    /// Open agents of callers without a session.
    held_agents: HeldAgents<Agent>,
    /// The limits on the total size of the values that sessions have saved.
    saved_shares: SavedShares<Session>,
    tasks: Tasks,
    arguments: ArgumentMemory,
    questions: QuestionMemory,
    waiting_calls: Arc<WaitingCalls>,
    metrics: Arc<Metrics>,
    runs: Runs,
    code_owners: CodeOwners,
    items: ItemLists,
    /// The turns of calls of this program's tools that run no code and make no list.
    tool_calls: Arc<Turns>,
    large_answers: LargeAnswers,
    runtime: tokio::runtime::Handle,
    closed: CancellationToken,
}

impl Served {
    /// Starts to serve a gateway. Enables every approved server, including those that are approved later.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for an agent name that is not well-formed, `ERR_CLOSED`, `ERR_APPROVAL_STORE`, `ERR_IO` if the system provides
    /// no random key.
    pub fn new(gateway: Gateway, options: ServeOptions, runtime: &tokio::runtime::Handle) -> Result<Self> {
        if let Some(name) = &options.agent {
            // Opening an agent checks the name. So an invalid name is reported now, and not at the first request.
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
            questions: QuestionMemory::default(),
            waiting_calls: Arc::default(),
            runs: Runs::new(Arc::clone(&metrics)),
            code_owners: CodeOwners::new(Arc::clone(&metrics)),
            items: ItemLists::default(),
            tool_calls: Arc::new(Turns::new(MAX_CALLS)),
            large_answers: LargeAnswers::default(),
            metrics,
            runtime: runtime.clone(),
            closed,
        };
        let served = Self(Arc::new(shared));
        let seen = served.0.enable_approved()?;
        runtime.spawn(changes::watch(Arc::downgrade(&served.0), seen, served.0.closed.clone()));
        Ok(served)
    }

    /// Returns the handler of one connection. If the caller has a name, the agent of the connection has this name.
    #[must_use]
    pub fn handler(&self, caller: &Principal) -> Handler {
        Handler::new(self.clone(), caller.clone())
    }

    /// Returns the counters of the server. The handlers count their runs there.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// Stops watching for changes, ends the calls that wait for an answer, and removes the values that callers without a session have
    /// saved. Connections end when their transports end.
    pub fn close(&self) {
        self.0.closed.cancel();
        self.0.paused_calls.clear();
        self.0.handles.clear();
        self.0.held_agents.clear();
    }
}

impl ServeOptions {
    fn errors(&self) -> ToolErrors {
        self.tool_errors.unwrap_or(ToolErrors::FOR_MODELS)
    }
}

impl Shared {
    /// Keeps open the connections to those servers that the agent of a caller without a session has through its profiles. Otherwise these
    /// connections would end with the request, because the agent ends with the request.
    fn hold_servers_of(&self, agent: &Agent) -> Result<()> {
        let Some(name) = agent.granted_name().filter(|_| agent.has_servers_by_profiles()) else { return Ok(()) };
        let options = || IdentityOptions { only: self.options.servers.clone(), ..IdentityOptions::default() };
        self.held_agents.hold(name, Instant::now(), || self.gateway.agent(name, options()))
    }

    /// Enables the approved servers that no person has disabled. Returns a text that is different whenever the information about the
    /// servers that clients see is different.
    fn enable_approved(&self) -> Result<String> {
        let gateway = &self.gateway;
        // A server that a person or the config disables must disappear from the lists, although its approval and its manifest stay.
        let mut enabled = BTreeSet::new();
        for status in gateway.servers()? {
            let server = status.variant_of.as_ref().unwrap_or(&status.name);
            let is_served = self.options.servers.as_ref().is_none_or(|servers| servers.contains(server));
            if status.enabled {
                enabled.insert(status.name);
            } else if status.approved && !status.disabled_by_person && is_served {
                // A variant follows its server, so that a person who disables the server disables both.
                let outcome = match &status.variant_of {
                    Some(server) => {
                        gateway.enable_variants(server);
                        Ok(())
                    }
                    None => gateway.enable(&status.name),
                };
                match outcome {
                    Ok(()) => {
                        enabled.insert(status.name);
                    }
                    Err(Error::ServerDisabled { .. } | Error::NotApproved { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let seen = gateway.approved_manifests()?;
        // If the grants are damaged, agents see nothing.
        let grants = gateway.toolboxes().ok();
        Ok(format!("{seen:?} {grants:?} {enabled:?}"))
    }
}
