//! The state that a gateway shares with its agents and sandboxes.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::added_servers::AddedServers;
use super::agent::{Agents, Identity};
use super::approval_cache::ApprovalCache;
use super::boxes::BoxMaker;
use super::callbacks::{CallScope, CallbackChain};
use super::checks::CheckDefaults;
use super::config_source::ConfigSource;
use super::events::Events;
use super::fetch::FetchState;
use super::granted::{GrantState, Granted};
use super::inputs::InputQuestions;
use super::observer::session;
use super::options::GatewayOptions;
use super::plugin_switch::PluginSwitch;
use super::providers::Providers;
use super::readiness::ReportedUnavailable;
use super::request::Subscriptions;
use super::server_facts::ServerFactsStore;
use super::slots::CallSlots;
use super::status::PreparedStatuses;
use super::tasks::BroughtServers;
use crate::bridge::LargeTurns;
use crate::catalog::{KnownDeclarations, Manifest};
use crate::client::{Connections, TokenStore};
use crate::config::{Config, ServerDefinition, Surroundings};
use crate::embedding::Embedder;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::network::NetworkRuntime;
use crate::redact::Redactor;
use crate::registry::Registry;
use crate::sandbox::{CodeOwner, Sandboxes};
use crate::store::Store;
use crate::store::audit::Audit;
use crate::telemetry::Telemetry;
use crate::text::NextCommand;
use crate::trust::{ApprovalStore, Executables};

/// The values of one server's inputs, by input id.
pub(super) type Inputs = BTreeMap<String, SecretString>;

/// The shared state of one gateway.
pub(super) struct Core {
    pub(super) registry: Registry,
    /// The source of the config. Each reload reads it again.
    pub(super) source: ConfigSource,
    /// Locked during a reload of the config, so that an older config never replaces a newer one.
    pub(super) reloading: tokio::sync::Mutex<()>,
    /// The database of all decisions that must be remembered.
    pub(super) store: Arc<Store>,
    /// The record of events: `core.audit.record(…)`.
    pub(super) audit: Audit,
    pub(super) telemetry: Telemetry,
    pub(super) trust: TrustState,
    pub(super) added: AddedServers,
    pub(super) grants: GrantState,
    pub(super) fetch: FetchState,
    pub(super) connections: Connections,
    pub(super) box_maker: BoxMaker,
    /// The threads for servers over HTTP.
    pub(super) network: Arc<NetworkRuntime>,
    pub(super) requests: RequestState,
    pub(super) people: People,
    /// The open agents, without the operator's own.
    pub(super) agents: Agents,
    /// Servers that the operator's own runs and calls have used. They stay connected even if no agent has them any more.
    pub(super) used_by_operator: Mutex<BTreeSet<String>>,
    pub(super) sandboxes: Sandboxes,
    pub(super) runs: RunDefaults,
    pub(super) limits: Arc<Limits>,
    pub(super) surroundings: Surroundings,
    pub(super) closed: CancellationToken,
    /// Work outside of the gateway that must end with the gateway. `close` waits for this work.
    pub(super) attached: TaskTracker,
    pub(super) plugin_switch: PluginSwitch,
    pub(super) redactor: Arc<Redactor>,
    pub(super) events: Events,
    pub(super) server_facts: ServerFactsStore,
    pub(super) statuses: PreparedStatuses,
    /// Computes the vectors for `"search": "hybrid"`. `None`: a search ranks by words.
    pub(super) embedder: Option<Arc<Embedder>>,
    pub(super) tokens: TokenStore,
    pub(super) providers: Providers,
    /// A weak reference to this core, for work that must not keep the gateway alive.
    pub(super) weak: Weak<Core>,
}

/// The approvals with their cache, the programs with which they are compared, and manifests that a person has seen but not approved.
pub(super) struct TrustState {
    pub(super) approvals: ApprovalStore,
    pub(super) approval_cache: ApprovalCache,
    pub(super) executables: Arc<Executables>,
    /// Notified when this gateway may depend on an approval that has an end ([`Core::approvals_may_end`]).
    pub(super) approvals_may_end: Arc<tokio::sync::Notify>,
    /// Manifests that a person has seen but not yet approved, by server. With each manifest: the digest of the command that was running
    /// when the manifest was read.
    pub(super) shown: Mutex<HashMap<String, (String, Arc<Manifest>)>>,
    /// Locked while a command is approved. Each request depends on which other servers are approved.
    pub(super) approving: tokio::sync::Mutex<()>,
}

/// The pending requests, the subscriptions, and the servers that tasks have added.
#[derive(Default)]
pub(super) struct RequestState {
    pub(super) slots: CallSlots,
    pub(super) subscriptions: Subscriptions,
    /// The servers that tasks have added.
    pub(super) tasks: BroughtServers,
    pub(super) unavailable: ReportedUnavailable,
    /// The owner of generated code that is checked and tried before a person is asked about it.
    pub(super) trial_owner: CodeOwner,
}

/// The callbacks with which this gateway asks people, and their answers.
pub(super) struct People {
    pub(super) callbacks: CallbackChain,
    /// The operator's own agent.
    pub(super) operator: Arc<Identity>,
    /// The scope for work that belongs to no call, such as connection tests and questions of a server outside of calls.
    pub(super) session: Arc<CallScope>,
    /// Questions for `${input:…}`, and the answers.
    pub(super) inputs: InputQuestions,
}

/// Defaults for runs, and the checks that runs share.
pub(super) struct RunDefaults {
    pub(super) checks: CheckDefaults,
    /// The turns in which large answers are redacted.
    pub(super) large_turns: Arc<LargeTurns>,
    pub(super) max_result_tokens: Option<usize>,
    /// True if shapes of results are learnt.
    pub(super) learn_results: bool,
    /// The commands that messages suggest to a person.
    pub(super) next_command: NextCommand,
    /// The declarations of servers that were made last, for all agents.
    pub(super) declarations: Arc<KnownDeclarations>,
}

impl RunDefaults {
    pub(super) fn new(options: &GatewayOptions, config: &Config) -> Self {
        let (checks, max_result_tokens) = (CheckDefaults::new(options), options.max_result_tokens);
        let learn_results = options.learn_results.or(config.learn_results).unwrap_or(true);
        Self {
            checks,
            large_turns: Arc::default(),
            max_result_tokens,
            learn_results,
            next_command: options.next_command(),
            declarations: Arc::default(),
        }
    }
}

impl People {
    pub(super) fn new(core: &Weak<Core>, callbacks: CallbackChain, everything: &Arc<Granted>, closed: &CancellationToken) -> Self {
        let operator = Identity::operator(Weak::clone(core), callbacks.clone(), closed);
        Self { session: session(&operator, everything), operator, callbacks, inputs: InputQuestions::default() }
    }
}

impl Core {
    /// Returns the definition of a server, while the gateway is open.
    pub(super) fn open_server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        self.check_open()?;
        self.registry.make_variant_named(name);
        self.registry.server(name).map_err(|error| self.redacted(error))
    }

    /// Returns an error if the gateway is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.is_cancelled() { Err(Error::Closed { what: "gateway" }) } else { Ok(()) }
    }

    /// Redacts an error before it leaves the crate.
    pub(super) fn redacted(&self, error: Error) -> Error {
        error.redacted(&self.redactor)
    }
}
