//! The one object that an agent holds. It owns the rooms and wires them.

mod agent_modules;
mod core;
mod options;
mod sandbox;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::Serialize;
use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;

pub use agent_modules::AgentModule;
pub use options::{EnableAtOpen, GatewayOptions};
pub use sandbox::{RunOptions, RunReport, Sandbox};

use self::core::{Core, filtered};
use crate::bridge::{ToolErrors, check_arguments_size, tool_result};
use crate::catalog::Manifest;
use crate::client::{Connections, Watchdog};
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::registry::{Registry, ServerState, ServerStatus};
use crate::sandbox::{HypervisorReport, Sandboxes, Stop};
use crate::trust::{ApprovalRequest, ApprovalStore, Standing, command_digest, manifest_digest};

/// What `test(name)` found.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionReport {
    pub server: String,
    /// From the start of the process to its list of tools, in milliseconds.
    pub connect_ms: f64,
    /// The protocol version that was negotiated.
    pub era: String,
    pub server_name: String,
    pub server_version: String,
    /// Raw names, filtered.
    pub tools: Vec<String>,
}

/// MCP servers, approvals and sandboxes of one agent. Cheap to clone: all clones are one gateway.
#[derive(Clone)]
pub struct Gateway {
    core: Arc<Core>,
}

/// A gateway that may be gone.
pub struct WeakGateway(Weak<Core>);

impl WeakGateway {
    /// The gateway, if it is still there.
    #[must_use]
    pub fn upgrade(&self) -> Option<Gateway> {
        self.0.upgrade().map(|core| Gateway { core })
    }
}

impl Gateway {
    /// Reads the config and the approvals. Starts nothing.
    ///
    /// # Errors
    /// `ERR_CONFIG_…`, `ERR_INVALID_OPTION`, `ERR_UNKNOWN_SERVER` for a name in `enable`, `ERR_APPROVAL_STORE`.
    pub fn open(options: GatewayOptions) -> Result<Self> {
        options.limits.validate()?;
        let config = options.read_config()?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        let limits = Arc::new(options.limits.clone());
        let approvals = ApprovalStore::open(&options.state_folder())?;
        let surroundings = options.surroundings()?;
        let warnings = config.warnings.clone();
        let core = Arc::new_cyclic(|this| Core {
            warnings,
            registry: Registry::new(config),
            approvals,
            connections: Connections::new(Watchdog::new(options.watchdog), limits.max_connections, limits.connect_timeout_ms),
            sandboxes: Sandboxes::new(options.guest, Arc::clone(&limits), options.runtime.clone()),
            limits,
            surroundings,
            shown: Mutex::default(),
            closed: CancellationToken::new(),
            this: this.clone(),
        });
        let gateway = Self { core };
        gateway.enable_at_open(&options.enable)?;
        Ok(gateway)
    }

    /// Can this machine run a guest, and if not, why. Boots one to find out; blocks for that.
    #[must_use]
    pub fn hypervisor(&self) -> HypervisorReport {
        self.core.sandboxes.report()
    }

    /// What was odd about the config, but no error.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.core.warnings
    }

    /// A handle that does not keep the gateway.
    #[must_use]
    pub fn downgrade(&self) -> WeakGateway {
        WeakGateway(Arc::downgrade(&self.core))
    }

    /// All servers, in the config's order.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`.
    pub fn servers(&self) -> Result<Vec<ServerStatus>> {
        self.core.registry.servers().iter().map(|server| self.status(server)).collect()
    }

    /// All that a person must see before yes. At stage `manifest` the server is started and its tools are read.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`, and at stage `manifest` what connecting gives.
    pub async fn approval_request(&self, name: &str) -> Result<ApprovalRequest> {
        let server = self.server(name)?;
        let standing = self.core.approvals.standing(&server)?;
        if standing == Standing::Unapproved {
            return Ok(ApprovalRequest::command(&server, false));
        }
        let manifest = self.discover(&server).await?;
        let approved = matches!(&standing, Standing::Full(known) if manifest_digest(known) == manifest_digest(&manifest));
        let before = self.core.approvals.approved_manifest(name)?;
        let request = ApprovalRequest::manifest(name, &manifest, before.as_ref(), approved);
        self.shown().insert(name.to_owned(), manifest);
        Ok(request)
    }

    /// Says yes: with a digest to exactly what that was shown for, starting nothing; without, to both stages as they stand.
    ///
    /// # Errors
    /// `ERR_DIGEST_CHANGED` where the digest is of nothing that was shown or is so still; without one, what connecting gives.
    pub async fn approve(&self, name: &str, digest: Option<&str>) -> Result<()> {
        let server = self.server(name)?;
        let Some(digest) = digest else {
            self.core.approvals.approve_command(&server)?;
            let manifest = self.discover(&server).await?;
            return self.core.approvals.approve_manifest(&server, &manifest);
        };
        if digest == command_digest(&server) {
            return self.core.approvals.approve_command(&server);
        }
        let shown = self.shown().get(name).filter(|manifest| manifest_digest(manifest) == digest).cloned();
        let command_holds = self.core.approvals.standing(&server)? != Standing::Unapproved;
        match shown {
            Some(manifest) if command_holds => self.core.approvals.approve_manifest(&server, &manifest),
            _ => Err(Error::DigestChanged { server: name.to_owned() }),
        }
    }

    /// Takes the approval back, and ends what is live.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`.
    pub async fn revoke(&self, name: &str) -> Result<()> {
        self.server(name)?;
        self.core.approvals.revoke(name)?;
        self.shown().remove(name);
        self.end(name).await;
        Ok(())
    }

    /// Lets runs that start from now on see the server.
    ///
    /// # Errors
    /// `ERR_SERVER_DISABLED`, `ERR_NOT_APPROVED`.
    pub fn enable(&self, name: &str) -> Result<()> {
        let server = self.server(name)?;
        if server.disabled {
            return Err(Error::ServerDisabled { server: name.to_owned() });
        }
        match self.core.approvals.standing(&server)? {
            Standing::Full(_) => self.core.registry.set_enabled(name, true),
            _ => return Err(Error::NotApproved { server: name.to_owned() }),
        }
        Ok(())
    }

    /// Hides the server, and ends what is live.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`.
    pub async fn disable(&self, name: &str) -> Result<()> {
        self.server(name)?;
        self.end(name).await;
        Ok(())
    }

    /// Connects anew and reports.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED`, `ERR_SERVER_DISABLED`, and what connecting gives.
    pub async fn test(&self, name: &str) -> Result<ConnectionReport> {
        let server = self.server(name)?;
        if self.core.approvals.standing(&server)? == Standing::Unapproved {
            return Err(Error::NotApproved { server: name.to_owned() });
        }
        self.core.connections.close(name).await;
        let connection = self.connect(&server).await?;
        let manifest = filtered(&server, connection.manifest());
        Ok(ConnectionReport {
            server: name.to_owned(),
            connect_ms: connection.connect_time().as_secs_f64() * 1000.0,
            era: manifest.protocol_version.clone(),
            server_name: manifest.server_name.clone(),
            server_version: manifest.server_version.clone(),
            tools: manifest.tool_names(),
        })
    }

    /// A sandbox. Boots the guest, the first time; blocks for that.
    ///
    /// # Errors
    /// `ERR_NO_HYPERVISOR`, `ERR_CLOSED`.
    pub fn sandbox(&self, tool_errors: ToolErrors) -> Result<Arc<Sandbox>> {
        self.core.check_open()?;
        self.core.sandboxes.boot()?;
        Ok(Arc::new(Sandbox::new(Arc::clone(&self.core), tool_errors)))
    }

    /// Calls a tool without a guest: a `ToolResult`, whatever the server answered.
    ///
    /// # Errors
    /// Everything but an answer: refusals, time-outs, crashes, protocol errors.
    pub async fn call_tool(
        &self,
        name: &str,
        tool: &str,
        arguments: Map<String, Json>,
        timeout_ms: Option<u64>,
        stop: &Stop,
    ) -> Result<Json> {
        self.core.check_open()?;
        let server = self.core.registry.server(name)?;
        check_arguments_size(&format!("{name}.{tool}"), &arguments, self.core.limits.max_argument_bytes)?;
        match self.core.standing(&server)? {
            Standing::Full(manifest) if manifest.tool(tool).is_none() => {
                return Err(Error::UnknownTool { server: name.to_owned(), tool: tool.to_owned(), known: manifest.tool_names() });
            }
            Standing::Full(_) => {}
            // Another process may have taken it back while the connection lives.
            _ => return Err(Error::NotApproved { server: name.to_owned() }),
        }
        tokio::select! {
            biased;
            () = stop.stopped() => Err(stop.error("call", 0)),
            () = self.core.closed.cancelled() => Err(Error::Closed { what: "gateway" }),
            result = self.core.call_tool(name, tool, arguments, timeout_ms) => Ok(tool_result(&result?)),
        }
    }

    /// Refuses what is new, and ends what is pending.
    pub fn begin_close(&self) {
        self.core.closed.cancel();
    }

    /// Ends everything: runs, calls, connections, processes.
    pub async fn close(&self) {
        self.begin_close();
        self.core.connections.close_all().await;
    }

    /// SIGKILL to every server, without waiting: for an environment that is being torn down.
    pub fn kill(&self) {
        self.begin_close();
        self.core.connections.kill_all();
    }

    fn enable_at_open(&self, enable: &EnableAtOpen) -> Result<()> {
        let names: Vec<String> = match enable {
            EnableAtOpen::None => return Ok(()),
            EnableAtOpen::Named(names) => names.clone(),
            EnableAtOpen::Approved => self.core.registry.servers().iter().map(|server| server.name.clone()).collect(),
        };
        for name in names {
            match self.enable(&name) {
                Err(error @ (Error::NotApproved { .. } | Error::ServerDisabled { .. })) => tracing::info!("{error}"),
                other => other?,
            }
        }
        Ok(())
    }

    async fn connect(&self, server: &ServerDefinition) -> Result<Arc<crate::client::Connection>> {
        if server.disabled {
            return Err(Error::ServerDisabled { server: server.name.clone() });
        }
        self.core.connect(server).await
    }

    async fn discover(&self, server: &ServerDefinition) -> Result<Manifest> {
        Ok(filtered(server, self.connect(server).await?.manifest()))
    }

    async fn end(&self, name: &str) {
        self.core.registry.set_enabled(name, false);
        self.core.connections.close(name).await;
    }

    fn server(&self, name: &str) -> Result<Arc<ServerDefinition>> {
        self.core.check_open()?;
        self.core.registry.server(name)
    }

    fn status(&self, server: &ServerDefinition) -> Result<ServerStatus> {
        let standing = self.core.standing(server)?;
        let last_error = self.core.registry.last_error(&server.name);
        let state = match &standing {
            _ if server.disabled => ServerState::Disabled,
            _ if self.core.connections.is_connected(&server.name) => ServerState::Connected,
            _ if last_error.is_some() => ServerState::Error,
            Standing::Unapproved => ServerState::Unapproved,
            Standing::Command => ServerState::CommandApproved,
            Standing::Full(_) => ServerState::Idle,
        };
        let tools = if let Standing::Full(manifest) = &standing { manifest.tool_names() } else { Vec::new() };
        Ok(ServerStatus {
            name: server.name.clone(),
            state,
            approved: matches!(standing, Standing::Full(_)),
            enabled: self.core.registry.is_enabled(&server.name),
            source: "config",
            tools,
            last_error,
        })
    }

    fn shown(&self) -> MutexGuard<'_, HashMap<String, Manifest>> {
        self.core.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
