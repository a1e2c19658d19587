//! What a gateway and its sandboxes share: the rooms, wired. Calls pass from here to the servers.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;

use crate::bridge::ToolCaller;
use crate::catalog::Manifest;
use crate::client::{CallLimits, Connection, Connections, Launch};
use crate::config::{ServerDefinition, Surroundings, Transport, resolve_command};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::registry::Registry;
use crate::sandbox::Sandboxes;
use crate::trust::{ApprovalStore, Standing};

pub(super) struct Core {
    pub(super) registry: Registry,
    pub(super) approvals: ApprovalStore,
    pub(super) connections: Connections,
    pub(super) sandboxes: Sandboxes,
    pub(super) limits: Arc<Limits>,
    pub(super) surroundings: Surroundings,
    /// Manifests that a person was shown, until they are approved.
    pub(super) shown: Mutex<HashMap<String, Manifest>>,
    pub(super) closed: CancellationToken,
    /// What was odd about the config.
    pub(super) warnings: Vec<String>,
    /// For calls that a run's thread sends off.
    pub(super) this: std::sync::Weak<Core>,
}

impl Core {
    /// Fails once the gateway is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.is_cancelled() { Err(Error::Closed { what: "gateway" }) } else { Ok(()) }
    }

    /// The live connection of a server whose command is approved. Reads the approval again before it starts a process.
    pub(super) async fn connect(&self, server: &ServerDefinition) -> Result<Arc<Connection>> {
        self.check_open()?;
        let launch = || {
            if self.approvals.standing(server)? == Standing::Unapproved {
                return Err(Error::NotApproved { server: server.name.clone() });
            }
            self.launch(server)
        };
        let connecting = self.connections.get(&server.name, server.connect_timeout_ms, launch);
        let outcome = tokio::select! {
            biased;
            () = self.closed.cancelled() => return Err(Error::Closed { what: "gateway" }),
            outcome = connecting => outcome,
        };
        self.registry.record(&server.name, &outcome);
        outcome
    }

    /// How far the approval on disk holds, with the tools that the config's filter lets through now.
    pub(super) fn standing(&self, server: &ServerDefinition) -> Result<Standing> {
        Ok(match self.approvals.standing(server)? {
            Standing::Full(manifest) => Standing::Full(Box::new(filtered(server, &manifest))),
            other => other,
        })
    }

    /// The approved manifests that a run sees which starts now.
    pub(super) fn visible_servers(&self) -> Result<BTreeMap<String, Manifest>> {
        self.check_open()?;
        let mut visible = BTreeMap::new();
        for server in self.registry.servers().iter().filter(|server| self.registry.is_enabled(&server.name)) {
            if let Standing::Full(manifest) = self.standing(server)? {
                visible.insert(server.name.clone(), *manifest);
            }
        }
        Ok(visible)
    }

    /// Calls a tool of an approved and enabled server.
    pub(super) async fn call_tool(&self, name: &str, tool: &str, arguments: Map<String, Json>, timeout_ms: Option<u64>) -> Result<Json> {
        let server = self.registry.server(name)?;
        if !self.registry.is_enabled(name) {
            return Err(match self.approvals.standing(&server)? {
                Standing::Full(_) => Error::NotEnabled { server: name.to_owned() },
                _ => Error::NotApproved { server: name.to_owned() },
            });
        }
        if !server.filter.admits(tool) {
            return Err(Error::UnknownTool { server: name.to_owned(), tool: tool.to_owned(), known: Vec::new() });
        }
        let limit_ms = server.call_timeout_ms.unwrap_or(self.limits.call_timeout_ms);
        let timeout = Duration::from_millis(timeout_ms.unwrap_or(limit_ms).min(limit_ms));
        let connection = self.connect(&server).await?;
        tracing::debug!(server = name, tool, "call");
        connection.call(tool, arguments, CallLimits { timeout }).await
    }

    fn launch(&self, server: &ServerDefinition) -> Result<Launch> {
        let unsupported = |problem: &str| Error::UnsupportedTransport { server: server.name.clone(), problem: problem.to_owned() };
        match (&server.transport, resolve_command(&server.name, &server.transport, &self.surroundings)?) {
            (Transport::Stdio { .. }, Some(command)) => Ok(Launch { server: server.name.clone(), command }),
            _ => Err(unsupported("servers over HTTP cannot be connected by this version; use one with a command")),
        }
    }
}

/// A manifest without the tools that the config hides.
pub(super) fn filtered(server: &ServerDefinition, manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.tools.retain(|tool| server.filter.admits(&tool.name));
    manifest
}

impl ToolCaller for Core {
    fn call(&self, server: String, tool: String, arguments: Map<String, Json>) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let core = self.this.upgrade();
        Box::pin(async move {
            let outcome = match core {
                Some(core) => core.call_tool(&server, &tool, arguments, None).await,
                None => Err(Error::Closed { what: "gateway" }),
            };
            match outcome {
                // The run is being ended for the same reason: its guest must not have the last word.
                Err(Error::Closed { .. }) => std::future::pending().await,
                outcome => outcome,
            }
        })
    }
}
