//! Options of a gateway, and the objects that are made from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::runtime::Handle;

use super::callbacks::Callbacks;
use super::config_source::{ConfigContent, ConfigSource};
use super::events::EventListener;
use super::providers::ProviderLoader;
use crate::config::{ArgumentCheck, SchemaViolations, Surroundings};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::sandbox::{GuestChoice, Sandboxes, WarmVms};

/// The servers that are enabled when the gateway opens, if their approval is valid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EnableAtOpen {
    #[default]
    None,
    Named(Vec<String>),
    /// All approved servers.
    Approved,
}

/// Options of [`super::Gateway::open`].
#[derive(Clone)]
pub struct GatewayOptions {
    /// The path of the config file. Default `~/.hyperagent/config.json`; if that file does not exist, there are no servers.
    pub config_path: Option<PathBuf>,
    /// The content of the config, instead of a file.
    pub config: Option<Json>,
    /// True if a config file that has changed is read again by itself.
    pub watch: bool,
    /// The only servers that may be enabled, also after a change of the config: all others count as disabled by a person. `None`: any server.
    pub only: Option<Vec<String>>,
    /// The folder for approvals, tokens and logs. Default `~/.hyperagent/hyperlight-mcp`.
    pub state_dir: Option<PathBuf>,
    /// The folder that `${workspaceFolder}` stands for. Default: the working directory.
    pub workspace_folder: Option<PathBuf>,
    pub enable: EnableAtOpen,
    pub limits: Limits,
    pub guest: GuestChoice,
    /// VMs that are started in advance for the next runs.
    pub warm: WarmVms,
    /// The folder that keeps the guest's snapshot between processes, created with mode 0700. With `None`, no snapshot is kept. Default
    /// `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`; `None` without a home folder.
    pub snapshot_dir: Option<PathBuf>,
    /// The path of the program `hyperlight-mcp-watchdog`.
    pub watchdog: PathBuf,
    /// The path of the program `hyperlight-mcp-reader`. Default: in the watchdog's folder.
    pub reader: PathBuf,
    /// The environment of this process, from which placeholders get their values.
    pub environment: BTreeMap<String, String>,
    /// The tokio runtime of all asynchronous work.
    pub runtime: Handle,
    /// The listener of events.
    pub on_event: Option<EventListener>,
    /// The handling of results that do not match their tool's outputSchema, for servers whose config does not set it.
    pub schema_violations: SchemaViolations,
    /// The handling of calls whose arguments do not match the tool's inputSchema, for servers whose config does not set it.
    pub argument_checks: ArgumentCheck,
    /// The budget of a run's value in tokens, at least 100. A larger value is cut and saved. With `None`, values are not cut.
    pub max_result_tokens: Option<usize>,
    /// True if each connection and each call is an event as well.
    pub trace: bool,
    /// False if the command and the first manifest of a server that an agent adds are approved without a person. `None`: true, unless the variable
    /// `MCP_REQUIRE_APPROVAL` is `false` or `0`.
    pub require_approval: Option<bool>,
    /// True if the audit keeps the arguments of calls as they are, without secrets, and not only their digests.
    pub audit_content: bool,
    /// Runs the code of provider packages. `None`: there is nothing that could run it.
    pub provider_loader: Option<Arc<dyn ProviderLoader>>,
    /// Callbacks that are used if neither the run nor the sandbox has them.
    pub callbacks: Option<Arc<dyn Callbacks>>,
}

impl GatewayOptions {
    /// Returns options with their defaults.
    ///
    /// ```no_run
    /// # fn open() -> hyperlight_mcp::Result<()> {
    /// use hyperlight_mcp::{Gateway, GatewayOptions};
    /// let options = GatewayOptions::new("/opt/agent/hyperlight-mcp-watchdog", tokio::runtime::Handle::current());
    /// let gateway = Gateway::open(options)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(watchdog: impl Into<PathBuf>, runtime: Handle) -> Self {
        let watchdog = watchdog.into();
        // Values that are not UTF-8 are left out, because neither a config nor a placeholder can use them.
        let environment: BTreeMap<_, _> =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
        Self {
            config_path: None,
            config: None,
            watch: false,
            only: None,
            state_dir: None,
            workspace_folder: None,
            enable: EnableAtOpen::None,
            limits: Limits::default(),
            guest: GuestChoice::default(),
            warm: WarmVms::default(),
            reader: watchdog.with_file_name("hyperlight-mcp-reader"),
            watchdog,
            snapshot_dir: cache_folder(&environment),
            environment,
            runtime,
            on_event: None,
            schema_violations: SchemaViolations::default(),
            argument_checks: ArgumentCheck::default(),
            max_result_tokens: None,
            trace: false,
            require_approval: None,
            audit_content: false,
            provider_loader: None,
            callbacks: None,
        }
    }

    pub(super) fn source(&self, surroundings: &Surroundings) -> Result<ConfigSource> {
        let content = match (&self.config, &self.config_path) {
            (Some(_), Some(_)) => {
                let problem = "config and configPath cannot both be set".to_owned();
                return Err(Error::InvalidOption { method: "Gateway.open", problem: problem.into() });
            }
            (Some(config), None) => ConfigContent::Given(config.clone()),
            (None, Some(path)) => ConfigContent::File(path.clone()),
            (None, None) => ConfigContent::DefaultFile(self.default_config()),
        };
        Ok(ConfigSource::new(content, self.limits.max_servers, surroundings.clone()))
    }

    /// Returns the default path of the config: `~/.hyperagent/config.json`.
    ///
    /// ```
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// let mut options = hyperlight_mcp::GatewayOptions::new("watchdog", runtime.handle().clone());
    /// options.environment.insert("HOME".into(), "/home/ada".into());
    /// assert_eq!(options.default_config().to_str(), Some("/home/ada/.hyperagent/config.json"));
    /// assert_eq!(options.state_folder().to_str(), Some("/home/ada/.hyperagent/hyperlight-mcp"));
    /// ```
    #[must_use]
    pub fn default_config(&self) -> PathBuf {
        self.agent_folder().join("config.json")
    }

    /// Returns the folder of approvals, tokens and logs.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| self.agent_folder().join("hyperlight-mcp"))
    }

    /// Returns whether a person must approve what an agent adds. Any other text in the variable than the two for no means yes.
    pub(super) fn requires_approval(&self) -> bool {
        let by_variable = || !self.environment.get("MCP_REQUIRE_APPROVAL").is_some_and(|value| matches!(value.as_str(), "false" | "0"));
        self.require_approval.unwrap_or_else(by_variable)
    }

    pub(super) fn surroundings(&self) -> Result<Surroundings> {
        let folder = self.workspace_folder.as_deref().unwrap_or(Path::new("."));
        let workspace_folder = std::path::absolute(folder).map_err(|error| Error::io("the workspace folder", &error))?;
        Ok(Surroundings { environment: self.environment.clone(), workspace_folder, user_home: self.home() })
    }

    pub(super) fn sandboxes(&self, limits: &Arc<Limits>) -> Sandboxes {
        let sandboxes = Sandboxes::new(self.guest, Arc::clone(limits), self.runtime.clone(), self.reader.clone());
        let sandboxes = sandboxes.with_warm_vms(self.warm);
        match &self.snapshot_dir {
            Some(folder) => sandboxes.with_snapshots(folder),
            None => sandboxes,
        }
    }

    fn agent_folder(&self) -> PathBuf {
        self.home().join(".hyperagent")
    }

    fn home(&self) -> PathBuf {
        self.environment.get("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
    }
}

/// Returns the user's cache folder. The XDG Base Directory Specification requires absolute paths, so relative ones are ignored.
fn cache_folder(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("hyperlight-mcp/snapshots"))
}
