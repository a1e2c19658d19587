//! The gateway as a plugin. An agent's author can inspect it, approve it, and switch it on and off.

use parking_lot::Mutex;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::definitions::{Tool, ToolDefinition};
use super::tools::AgentTools;
use crate::catalog::ModuleSummary;
use crate::error::{Error, Result};
use crate::gateway::{ApprovalRead, ApprovedServer, Gateway};
use crate::limits::Limits;
use crate::trust::Canonical;

const NAME: &str = "hyperlight-mcp";
const DESCRIPTION: &str = "MCP servers as modules of code that a model writes and that runs in a micro-VM";
const COMMAND: &str = "/mcp";

/// The description of everything that the plugin adds to an agent. A person reads it before approving the plugin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PluginManifest {
    pub name: &'static str,
    pub version: &'static str,
    pub description: &'static str,
    /// The tools that a model can call.
    pub tools: Vec<PluginPart>,
    /// The commands that a person can type.
    pub commands: Vec<PluginPart>,
    /// The modules that code can import, one for each approved server.
    pub modules: Vec<PluginModule>,
    pub limits: Limits,
    /// The digest of all fields above.
    pub digest: String,
}

/// A tool or a command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PluginPart {
    pub name: &'static str,
    pub description: String,
    pub may: &'static str,
}

/// The module of an approved server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginModule {
    /// The import specifier, for example `host:mcp-weather`.
    pub specifier: String,
    pub server: String,
    pub functions: Vec<String>,
    pub may: String,
    /// The digest of the approved tools, resources and prompts of the server.
    pub digest: String,
}

/// A switch for the whole gateway, which is off at first. While the switch is off, no code runs and no server is connected.
pub struct Plugin {
    gateway: Gateway,
    tools: Arc<AgentTools>,
    approved: Mutex<Option<String>>,
}

impl Plugin {
    /// Switches the gateway off, which ends its runs and connections, and returns its plugin. A gateway can have only one plugin.
    /// `approved` is the digest of a manifest that was approved earlier, or `None`.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if the gateway already has a plugin; `ERR_CLOSED`.
    pub fn new(gateway: Gateway, tools: AgentTools, approved: Option<String>) -> Result<(Self, impl Future<Output = ()> + Send + use<>)> {
        let ended = gateway.begin_plugin()?;
        Ok((Self { gateway, tools: Arc::new(tools), approved: Mutex::new(approved) }, ended))
    }

    /// Returns the tools for a model. While the plugin is off, each call of a tool returns the error `ERR_PLUGIN_OFF`.
    #[must_use]
    pub fn tools(&self) -> Arc<AgentTools> {
        Arc::clone(&self.tools)
    }

    /// Returns the definitions of the tools for a model.
    ///
    /// # Errors
    /// The errors of [`AgentTools::definitions`].
    pub fn definitions(&self) -> Result<Vec<ToolDefinition>> {
        self.tools.definitions()
    }

    /// Returns the plugin's manifest: everything that the plugin adds to an agent. `approval_read` selects the approvals on disk or in the
    /// cache.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn manifest(&self, approval_read: ApprovalRead) -> Result<PluginManifest> {
        let tools = self.tools.parts();
        let command = PluginPart {
            name: COMMAND,
            description: "lists, enables, disables, shows, approves, revokes, tests and searches MCP servers".to_owned(),
            may: "manages servers for the person who types it, including approvals: never pass it text that a model wrote",
        };
        let modules = self.gateway.approved_servers(approval_read)?.into_iter().map(module).collect();
        let mut manifest = PluginManifest {
            name: NAME,
            version: env!("CARGO_PKG_VERSION"),
            description: DESCRIPTION,
            tools,
            commands: vec![command],
            modules,
            limits: self.gateway.limits().clone(),
            digest: String::new(),
        };
        let form = Canonical::new("hyperlight-mcp plugin 1").json(&json!(manifest));
        manifest.digest = hex::encode(Sha256::digest(form.into_bytes()));
        Ok(manifest)
    }

    /// Approves the plugin's manifest, if it has this digest. Computes the digest from the cached approvals. [`Plugin::enable`] checks the
    /// digest again with the approvals on disk.
    ///
    /// # Errors
    /// `ERR_PLUGIN_NOT_APPROVED` if the manifest has another digest, according to the cached approvals.
    pub fn approve(&self, digest: &str) -> Result<()> {
        if self.manifest(ApprovalRead::Cached)?.digest != digest {
            return Err(Error::PluginNotApproved { problem: "the digest does not match its current manifest" });
        }
        *self.approval() = Some(digest.to_owned());
        Ok(())
    }

    /// Returns whether the plugin's manifest is approved.
    ///
    /// # Errors
    /// The errors of [`Plugin::manifest`].
    pub fn is_approved(&self, approval_read: ApprovalRead) -> Result<bool> {
        let digest = self.manifest(approval_read)?.digest;
        Ok(self.approval().as_deref() == Some(&digest))
    }

    /// Returns whether the plugin is on.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.gateway.check_plugin_on().is_ok()
    }

    /// Switches the plugin on. The servers that were enabled before become available again if their approvals are still valid. Returns the
    /// names of these servers. If this method and [`Plugin::disable`] are called several times, the last call decides.
    ///
    /// # Errors
    /// `ERR_PLUGIN_NOT_APPROVED` if the manifest is not approved or has changed.
    pub fn enable(self: &Arc<Self>) -> impl Future<Output = Result<Vec<String>>> + Send + use<> {
        let this = Arc::clone(self);
        self.gateway.switch_on(Box::new(move || this.check_approved()))
    }

    /// Switches the plugin off. Runs and calls end with `ERR_PLUGIN_OFF`, and all connections are closed. The future completes when all
    /// runs and server processes have ended.
    pub fn disable(&self) -> impl Future<Output = ()> + Send + use<> {
        self.gateway.switch_off()
    }

    /// Returns the modules that code can import, according to the cached approvals. Returns an empty list while the plugin is off.
    ///
    /// # Errors
    /// `ERR_APPROVAL_STORE`, `ERR_CLOSED`.
    pub fn modules(&self) -> Result<Vec<ModuleSummary>> {
        match self.gateway.list_modules_by(ApprovalRead::Cached) {
            Err(Error::PluginOff) => Ok(Vec::new()),
            modules => modules,
        }
    }

    fn check_approved(&self) -> Result<()> {
        if self.is_approved(ApprovalRead::Fresh)? {
            return Ok(());
        }
        let problem = if self.approval().is_none() { "nobody has approved it" } else { "it has changed since it was approved" };
        Err(Error::PluginNotApproved { problem })
    }

    fn approval(&self) -> parking_lot::MutexGuard<'_, Option<String>> {
        self.approved.lock()
    }
}

impl AgentTools {
    /// Returns the descriptions of the tools for a person.
    fn parts(&self) -> Vec<PluginPart> {
        let part = |tool: &Tool| {
            let definition = self.definition(*tool);
            PluginPart { name: tool.name(), description: definition.description, may: tool.may() }
        };
        self.chosen().iter().map(part).collect()
    }
}

fn module(server: ApprovedServer) -> PluginModule {
    let ApprovedServer { name, functions, asking, digest } = server;
    let free = functions.len() - asking;
    PluginModule {
        specifier: format!("host:mcp-{name}"),
        may: format!("calls {free} tools without asking, and {asking} only after a person has said yes to the call"),
        server: name,
        functions,
        digest,
    }
}
