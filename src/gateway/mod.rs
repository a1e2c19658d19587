//! The gateway: the object that an agent's program uses. It owns the objects of the other modules and connects them.

mod absent_paths;
mod added_servers;
mod agent;
mod agent_modules;
mod agent_names;
mod allowed_calls;
mod approval;
mod approval_cache;
mod audit;
mod availability;
mod boxes;
mod callbacks;
mod caller;
mod catalog;
mod checks;
mod code_problems;
mod config_servers;
mod config_source;
mod connect;
mod core;
mod direct;
mod drift;
mod ending;
mod events;
mod expiry;
mod fetch;
mod form;
mod generated;
mod grant_records;
mod grant_rows;
mod granted;
mod grants;
mod inputs;
mod launch;
mod look_up;
mod model_tools;
mod observer;
mod open_gateways;
mod options;
mod plugin_switch;
mod proposals;
mod providers;
mod readiness;
mod registration;
mod reload;
mod request;
mod resolve;
mod resolved_entry;
mod resources_and_prompts;
mod result_shapes;
mod results;
mod run_end;
mod run_ids;
mod sandbox;
mod server_approval;
mod server_details;
mod server_facts;
mod server_logs;
mod slots;
mod spans;
mod status;
mod subject;
mod tasks;
mod tool_calls;
mod variants;
mod watch;

use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use crate::client::REQUEST_METHODS;
pub use crate::client::{Completed, Credential, Elicitation, ElicitationAnswer, Form, Question, Sampling};
pub use agent::{Agent, IdentityOptions};
pub use agent_modules::AgentModule;
pub use agent_names::NameOrigin;
pub use approval_cache::ApprovalRead;
pub use boxes::{HomeUse, HomesToRemove, PrivateHome, RemovedHomes};
pub use callbacks::{
    Answer, ApprovalQuestion, AuthorizationQuestion, CallbackChain, Callbacks, ElicitationQuestion, IssuerQuestion, SamplingQuestion,
};
pub use catalog::{CodeReport, ServerInfo};
pub(crate) use ending::Attached;
pub use events::{Event, EventListener};
pub use fetch::RunFetch;
pub(crate) use launch::MISSING_FOLDER;
pub use model_tools::ApprovedServer;
pub use open_gateways::OpenGateways;
pub use options::{EnableAtOpen, GatewayOptions};
pub use providers::{NodeLoader, Provider, ProviderCode, ProviderLoader, ProviderOrigin, ProviderRequest, ProviderState, ProviderStatus};
pub use reload::ReloadReport;
pub use resolve::{Resolution, ResolveOptions, ResolvedServer};
pub use results::{CONTENT, ModelRun};
pub use run_ids::next_run_id;
pub use sandbox::{RunOptions, RunReport, Sandbox, SandboxOptions};
pub use server_details::{ServerDetails, ServerLimits, ToolDetails, TransportKind};
pub use server_logs::LogLine;
pub use tasks::{Task, TaskServer, TaskServers};

use self::added_servers::AddedServers;
use self::agent::Agents;
use self::approval_cache::ApprovalCache;
use self::core::{Core, People, RequestState, RunDefaults, TrustState};
use self::events::Events;
use self::fetch::FetchState;
use self::granted::GrantState;
use self::observer::CoreObserver;
use self::plugin_switch::PluginSwitch;
use self::providers::Providers;
use self::server_facts::ServerFactsStore;
use self::server_logs::ServerLogs;
use self::status::PreparedStatuses;
use crate::bridge::ToolErrors;
use crate::client::{Connections, Lease, TokenStore, Watchdog};
use crate::config::{ServerDefinition, Surroundings};
use crate::error::{Error, Result};
use crate::redact::Redactor;
use crate::registry::{Decider, Registry};
use crate::sandbox::HypervisorReport;
use crate::store::audit::AuditParty;
use crate::store::{Kind, Store};
use crate::telemetry::{Telemetry, TraceContext};
use crate::text::{marked_name, sanitise_line, variant_of};
use crate::trust::{ApprovalStore, Executables, IncidentListener, filter_warnings};

const MAX_NAME_CHARS: usize = 200;
/// The name of the folder for OAuth tokens within the state folder.
const TOKENS: &str = "tokens";

/// The result of `test(name)`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionReport {
    pub server: String,
    /// The time in milliseconds from the start of the server's process until its list of tools is complete.
    pub connect_ms: f64,
    /// The protocol version that was negotiated.
    pub era: String,
    pub server_name: String,
    pub server_version: String,
    /// The names of the tools as the server defines them, after the config's filters.
    pub tools: Vec<String>,
    /// Warnings about names in the config's filters that match nothing in the server.
    pub warnings: Vec<String>,
}

impl ConnectionReport {
    /// Returns the report for a model. It contains the number of tools but not their names, because no person has approved the names.
    #[must_use]
    pub fn for_model(&self) -> Json {
        let Self { server, connect_ms, era, server_name: _, server_version: _, tools, warnings: _ } = self;
        json!({ "server": marked_name(server).0, "connected": true, "connectMs": connect_ms.round(), "protocolVersion": era, "tools": tools.len() })
    }
}

/// The choice whether a connection test replaces a connection that is already open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reconnect {
    Yes,
    /// Keeps the open connection, because calls may be pending on it.
    No,
}

/// The reader of a request's error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Audience {
    /// A model, or code that a model wrote. For this reader, items that are not granted do not exist.
    #[default]
    Model,
    /// The author of the agent. Errors say which items are not granted, and which toolbox contains them.
    Author,
}

/// Options of a request that is made without a run.
#[derive(Default)]
pub struct CallOptions {
    /// The time limit. The default, which is also the maximum, is the server's `callTimeoutMs`. If the server has none, it is
    /// `limits.callTimeoutMs`. A profile can make the limit shorter.
    pub timeout_ms: Option<u64>,
    /// Callbacks that are tried before the agent's.
    pub callbacks: Option<Arc<dyn Callbacks>>,
    /// The listener for this call's events, which is used instead of the agent's listener.
    pub on_event: Option<EventListener>,
    /// The trace context of the call. The trace context is also sent to the server.
    pub trace: Option<TraceContext>,
    pub audience: Audience,
}

/// MCP servers and their approvals, for the operator: the person or program that decides what may run. Dereferences to the operator's own
/// agent, so that all methods of [`Agent`] can be called. Clones are cheap, and all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway {
    own: Agent,
}

impl Deref for Gateway {
    type Target = Agent;

    fn deref(&self) -> &Agent {
        &self.own
    }
}

impl From<Gateway> for Agent {
    /// Returns the operator's own agent.
    fn from(gateway: Gateway) -> Self {
        gateway.own
    }
}

/// A weak reference to a gateway.
pub struct WeakGateway(Weak<Core>);

impl WeakGateway {
    /// Returns the gateway, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Gateway> {
        self.0.upgrade().map(|core| Gateway::of(&core))
    }

    /// Returns whether the gateway no longer exists. The memory of the gateway is kept until this handle is dropped.
    fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl Gateway {
    /// Opens a gateway: reads the config and the approvals. Starts no server. Runs the code of approved provider packages.
    ///
    /// # Errors
    /// `ERR_CONFIG_…`, `ERR_INVALID_OPTION`, `ERR_UNKNOWN_SERVER` for a name in `enable`, `ERR_STORE`, `ERR_APPROVAL_STORE`.
    pub fn open(options: GatewayOptions) -> Result<Self> {
        // No secret is known yet, so the redactor of these errors has no secrets.
        let options = options.in_place().map_err(|error| error.redacted(&Redactor::new(None, None)))?;
        let surroundings = options.surroundings().map_err(|error| error.redacted(&Redactor::new(None, None)))?;
        let redactor = Arc::new(Redactor::new(Some(&surroundings.user_home), Some(&surroundings.workspace_folder)));
        Self::open_with(&options, surroundings, &redactor).map_err(|error| error.redacted(&redactor))
    }

    fn open_with(options: &GatewayOptions, surroundings: Surroundings, redactor: &Arc<Redactor>) -> Result<Self> {
        results::check_budget("Gateway.open", options.max_result_tokens)?;
        let source = options.source(&surroundings)?;
        let config = source.read()?;
        let mut warnings = config.warnings.clone();
        let (providers, with_catalogue) = (config.providers.clone(), config.catalogue);
        let limits = Arc::new(source.limits(&config)?);
        let server_logs = ServerLogs::new(&options.state_folder(), Arc::clone(redactor));
        let events = Events { listener: options.on_event.clone(), redactor: Arc::clone(redactor), trace: options.trace, server_logs };
        let (store, trust) = open_store(options, &events)?;
        warnings.extend(store.warning().map(str::to_owned));
        let (telemetry, unexported) = Telemetry::begin(&options.environment, &options.runtime, redactor);
        warnings.extend(unexported);
        let closed = CancellationToken::new();
        let grants = GrantState::new(config.grants.clone());
        let core = Arc::new_cyclic(|core| Core {
            weak: Weak::clone(core),
            runs: RunDefaults::new(options, &config),
            embedder: options.embedder(&config, &events),
            registry: Registry::limited_to(options.only.as_deref(), config),
            source,
            reloading: tokio::sync::Mutex::default(),
            audit: audit::open(&store, options, &limits, &grants.settings(), &events),
            telemetry,
            store,
            trust,
            added: AddedServers::new(options.requires_approval()),
            connections: Connections::new(
                Watchdog::new(options.watchdog.clone()),
                Arc::new(CoreObserver(Weak::clone(core))),
                limits.max_connections,
                limits.max_reconnects,
            ),
            network: Arc::new(crate::client::network()),
            requests: RequestState::default(),
            people: People::new(core, CallbackChain::default().within(options.callbacks.clone()), &grants.everything, &closed),
            grants,
            fetch: FetchState::new(options.fetch_private_hosts.clone()),
            agents: Agents::default(),
            used_by_operator: Mutex::default(),
            sandboxes: options.sandboxes(&limits),
            box_maker: boxes::BoxMaker::new(options),
            limits,
            surroundings,
            closed,
            attached: TaskTracker::new(),
            plugin_switch: PluginSwitch::default(),
            redactor: Arc::clone(redactor),
            events,
            server_facts: ServerFactsStore::open(&options.state_folder()),
            statuses: PreparedStatuses::default(),
            tokens: TokenStore::new(options.state_folder().join(TOKENS)),
            providers: Providers::new(options.provider_loader.clone()),
        });
        let gateway = Self::of(&core);
        gateway.open_providers(providers, with_catalogue)?;
        gateway.begin(options, warnings)?;
        Ok(gateway)
    }

    /// Completes the opening of a gateway after its config was read.
    fn begin(&self, options: &GatewayOptions, mut warnings: Vec<String>) -> Result<()> {
        warnings.extend(self.core.audit.warning().map(str::to_owned));
        let core = Arc::downgrade(&self.core);
        self.core.events.server_logs.find_keys_by(move |name| Some(core.upgrade()?.registry.entry(name).ok()?.source().key(name)));
        self.warn_at_open(warnings);
        self.warn_of(self.core.load_added()?);
        self.core.note_config_servers(Some(AuditParty::Config));
        self.core.read_all_approvals();
        if let Err(error) = self.core.grants_now(ApprovalRead::Fresh) {
            self.core.events.warn(format!("agents can use nothing, as the grants cannot be read: {}", self.core.redacted(error)));
        }
        // The rows stay in memory, where texts for a model use them later. An error is ignored here, because the store itself reports it.
        let _ = self.core.store.rows(Kind::Fetch);
        self.enable_at_open(&options.enable)?;
        self.propose_at_open();
        self.core.prepare_statuses();
        self.core.watch_expiry();
        if options.watch {
            self.core.watch_config();
        }
        Ok(())
    }

    /// Returns a handle of an open gateway.
    fn of(core: &Arc<Core>) -> Self {
        Self { own: Agent { core: Arc::clone(core), identity: Arc::clone(&core.people.operator) } }
    }

    /// Opens an agent: a caller with its own callbacks, session permissions, sandboxes, subscriptions and decisions. Two agents with the
    /// same name are separate agents.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a name that is not well-formed or a profile that the config does not have, `ERR_PROFILE_CONFLICT` if two
    /// profiles contain different values of one setting of a server, `ERR_GRANT_IN_CONFIG` if the profiles differ from those in the agent's
    /// entry, `ERR_CLOSED`.
    pub fn agent(&self, name: &str, options: IdentityOptions) -> Result<Agent> {
        Agent::open(&self.core, name, options)
    }

    /// Reports whether this machine can run a guest, and the reason if it cannot. Boots a guest to find out. Blocks.
    #[must_use]
    pub fn hypervisor(&self) -> HypervisorReport {
        self.core.sandboxes.report(&self.core.redactor)
    }

    /// Returns a reference that does not keep the gateway alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakGateway {
        WeakGateway(Arc::downgrade(&self.core))
    }

    /// Closes the connection to the server, connects again and reports the result.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED`, `ERR_SERVER_DISABLED`, and the errors of connecting.
    pub async fn test(&self, name: &str) -> Result<ConnectionReport> {
        self.test_as(name, Decider::Person).await
    }

    /// Connects again on behalf of a person or a model. On behalf of a model, does not start a server that a person has disabled.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and `ERR_DISABLED_BY_PERSON` for a model.
    pub async fn test_as(&self, name: &str, decider: Decider) -> Result<ConnectionReport> {
        self.connected_as(name, decider, Reconnect::Yes).await
    }

    /// Connects on behalf of a person or a model. `reconnect` selects whether an open connection is replaced.
    async fn connected_as(&self, name: &str, decider: Decider, reconnect: Reconnect) -> Result<ConnectionReport> {
        let report = self.unless_disabled(name, decider, self.connection_report(name, reconnect));
        report.await.map_err(|error| self.core.redacted(error))
    }

    async fn connection_report(&self, name: &str, reconnect: Reconnect) -> Result<ConnectionReport> {
        let server = self.server(name)?;
        self.check_startable(&server)?;
        if reconnect == Reconnect::Yes {
            self.core.connections.renew(name).await;
        }
        let connection = self.connect(&server).await?;
        let live = connection.manifest().await?;
        let manifest = approval::filtered(&server, &live).await?;
        let line = |text: &str| sanitise_line(text, MAX_NAME_CHARS);
        Ok(ConnectionReport {
            server: name.to_owned(),
            connect_ms: connection.connect_time().as_secs_f64() * 1000.0,
            era: line(&manifest.protocol_version),
            server_name: line(&manifest.server_name),
            server_version: line(&manifest.server_version),
            tools: manifest.tool_names(),
            warnings: filter_warnings(&server, &live),
        })
    }

    /// Reads the last lines of a server's log, oldest first, from all gateways with the same state folder. The log contains the server's
    /// standard error, its connections and its calls, but no arguments or results.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`.
    pub fn logs(&self, name: &str, lines: usize) -> Result<Vec<LogLine>> {
        self.core.registry.make_variant_named(name);
        let entry = self.core.registry.entry(name).map_err(|error| self.core.redacted(error))?;
        Ok(self.core.events.server_logs.read(&entry.source().key(name), lines))
    }

    fn enable_at_open(&self, enable: &EnableAtOpen) -> Result<()> {
        let names: Vec<String> = match enable {
            EnableAtOpen::None => return Ok(()),
            EnableAtOpen::Named(names) => names.clone(),
            // Variants are left out here: they are enabled together with their servers below.
            EnableAtOpen::Approved => {
                let names = self.core.registry.servers().into_iter().map(|server| server.name.clone());
                names.filter(|name| variant_of(name).is_none()).collect()
            }
        };
        for name in names {
            // A variant may be approved even if the server itself is not.
            self.enable_variants(&name);
            match self.enable(&name) {
                Err(error @ (Error::NotApproved { .. } | Error::ServerDisabled { .. } | Error::ConfigInvalid { .. })) => {
                    tracing::info!("{error}");
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn connect(&self, server: &Arc<ServerDefinition>) -> Result<Lease> {
        if server.disabled {
            return Err(Error::ServerDisabled { server: server.name.clone() });
        }
        let patience = Duration::from_millis(self.core.limits.call_timeout_ms);
        self.core.connect(server, &self.core.people.session, None, patience, None).await
    }

    /// Returns the definition of a server, while the gateway is open.
    fn server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        self.core.open_server(name)
    }
}

/// Opens the store, and the approvals in it.
fn open_store(options: &GatewayOptions, events: &Events) -> Result<(Arc<Store>, TrustState)> {
    let incidents = events.clone();
    let on_incident: IncidentListener = Arc::new(move |message| incidents.send(&Event::ApprovalsDamaged { message }));
    let store = Arc::new(Store::open(&options.state_folder(), Arc::clone(&on_incident))?);
    let trust = TrustState {
        approvals: ApprovalStore::open(Arc::clone(&store), on_incident),
        approval_cache: ApprovalCache::new(options.runtime.clone()),
        executables: Arc::new(Executables::default()),
        approvals_may_end: Arc::default(),
        shown: Mutex::default(),
        approving: tokio::sync::Mutex::default(),
    };
    Ok((store, trust))
}

impl Agent {
    /// Creates a sandbox. The first call boots the guest. Blocks.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR`, `ERR_CLOSED`.
    pub fn sandbox(&self, tool_errors: ToolErrors, callbacks: Option<Arc<dyn Callbacks>>) -> Result<Arc<Sandbox>> {
        self.sandbox_with(SandboxOptions { tool_errors, callbacks, ..SandboxOptions::default() })
    }

    /// Creates a sandbox, with all options. The first call boots the guest. Blocks.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION`, `ERR_NO_HYPERVISOR`, `ERR_CLOSED`.
    pub fn sandbox_with(&self, options: SandboxOptions) -> Result<Arc<Sandbox>> {
        results::check_budget("Gateway.sandbox", options.max_result_tokens)?;
        self.check_plugin_on()?;
        self.core.sandboxes.boot().map_err(|error| self.core.redacted(error))?;
        Sandbox::new(self, options).map(Arc::new).map_err(|error| self.core.redacted(error))
    }
}
