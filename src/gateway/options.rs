//! Options of a gateway, and what follows from them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::runtime::Handle;

use super::callbacks::Callbacks;
use super::events::EventListener;
use crate::config::{ArgumentCheck, Config, SchemaViolations, Surroundings, parse_object, parse_text};
use crate::error::{Error, Result};
use crate::files::{Links, read_bounded};
use crate::limits::Limits;
use crate::sandbox::{GuestChoice, Sandboxes, WarmVms};

/// Size of the largest config.
const MAX_CONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// Servers that are enabled at once, where their approval holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EnableAtOpen {
    #[default]
    None,
    Named(Vec<String>),
    /// All that are approved.
    Approved,
}

/// Options of [`super::Gateway::open`].
#[derive(Clone)]
pub struct GatewayOptions {
    /// Default `~/.hyperagent/config.json`; missing there: no servers.
    pub config_path: Option<PathBuf>,
    /// The config itself, instead of a file.
    pub config: Option<Json>,
    /// Default `~/.hyperagent/hyperlight-mcp`.
    pub state_dir: Option<PathBuf>,
    /// Default: the working directory.
    pub workspace_folder: Option<PathBuf>,
    pub enable: EnableAtOpen,
    pub limits: Limits,
    pub guest: GuestChoice,
    /// VMs that wait for the next run.
    pub warm: WarmVms,
    /// The folder that keeps the guest's snapshot between processes, created with mode 0700. `None`: it is not kept. Default
    /// `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`; none without a home.
    pub snapshot_dir: Option<PathBuf>,
    /// The program `hyperlight-mcp-watchdog`.
    pub watchdog: PathBuf,
    /// The program `hyperlight-mcp-reader`. Default: beside the watchdog.
    pub reader: PathBuf,
    /// Our own environment, from which placeholders are replaced.
    pub environment: BTreeMap<String, String>,
    /// The runtime of everything asynchronous.
    pub runtime: Handle,
    /// The listener of events.
    pub on_event: Option<EventListener>,
    /// Treatment of results that break their tool's outputSchema, for servers whose config names none.
    pub schema_violations: SchemaViolations,
    /// Treatment of calls whose arguments break their tool's inputSchema, for servers whose config names none.
    pub argument_checks: ArgumentCheck,
    /// Budget of a run's value, in tokens; more is cut, and saved. `None`: values come whole. At least 100.
    pub max_result_tokens: Option<usize>,
    /// True where each connection and call is to be an event as well.
    pub trace: bool,
    /// Callbacks that are asked where neither the run nor the sandbox has an answer.
    pub callbacks: Option<Arc<dyn Callbacks>>,
}

/// The source of the config.
pub(super) struct ConfigSource {
    content: ConfigContent,
    max_servers: usize,
}

enum ConfigContent {
    Given(Json),
    File(PathBuf),
    /// Missing, it means no servers.
    DefaultFile(PathBuf),
}

impl ConfigSource {
    /// Reads the config as it is now.
    pub(super) fn read(&self) -> Result<Config> {
        let path = match &self.content {
            ConfigContent::Given(config) => return parse_object(config, "config", self.max_servers),
            ConfigContent::File(path) | ConfigContent::DefaultFile(path) => path,
        };
        let unreadable = |problem: String| Error::ConfigUnreadable { path: path.clone().into(), problem: problem.into() };
        match read_bounded(path, Links::Follow, MAX_CONFIG_BYTES).map(String::from_utf8) {
            Ok(Err(_)) => Err(unreadable("it is not text in UTF-8".to_owned())),
            Ok(Ok(text)) => parse_text(&text, &path.display().to_string(), self.max_servers),
            Err(error) if error.kind() == ErrorKind::NotFound && matches!(self.content, ConfigContent::DefaultFile(_)) => {
                Ok(Config::default())
            }
            Err(error) => Err(unreadable(error.to_string())),
        }
    }
}

impl GatewayOptions {
    /// Defaults for all that has one.
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
        // Values that are no UTF-8 cannot stand in a config, and are of no use to a placeholder.
        let environment: BTreeMap<_, _> =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect();
        Self {
            config_path: None,
            config: None,
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
            callbacks: None,
        }
    }

    pub(super) fn source(&self) -> Result<ConfigSource> {
        let max_servers = self.limits.max_servers;
        let content = match (&self.config, &self.config_path) {
            (Some(_), Some(_)) => {
                let problem = "config and configPath exclude each other".to_owned();
                return Err(Error::InvalidOption { method: "Gateway.open", problem: problem.into() });
            }
            (Some(config), None) => ConfigContent::Given(config.clone()),
            (None, Some(path)) => ConfigContent::File(path.clone()),
            (None, None) => ConfigContent::DefaultFile(self.default_config()),
        };
        Ok(ConfigSource { content, max_servers })
    }

    /// The default path of the config: `~/.hyperagent/config.json`.
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

    /// The folder of approvals, tokens and logs.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| self.agent_folder().join("hyperlight-mcp"))
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

/// The user's folder for what can be made anew, as the XDG Base Directory Specification has it: a path that is not absolute is none.
fn cache_folder(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("hyperlight-mcp/snapshots"))
}
