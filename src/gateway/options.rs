//! Options of a gateway, and the objects that are created from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::runtime::Handle;

use super::callbacks::Callbacks;
use super::config_source::{ConfigContent, ConfigSource};
use super::events::{EventListener, Events};
use super::providers::ProviderLoader;
use crate::config::{ArgumentCheck, Config, SchemaViolations, SearchRanking, Surroundings, folder_of_variable, user_home};
use crate::embedding::{Embedder, EmbedderOptions};
use crate::error::{Error, Result};
use crate::fetch::AllowedHosts;
use crate::limits::{LimitChanges, Limits};
use crate::sandbox::{GuestChoice, Sandboxes, WarmVms};
use crate::text::NextCommand;

/// The file in the state folder with the vectors of tools.
const VECTORS: &str = "search-vectors";

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
    /// The path of the config file. Default: `~/.hyperagent/config.json`. If the default file does not exist, there are no servers.
    pub config_path: Option<PathBuf>,
    /// The content of the config. If it is set, no config file is read.
    pub config: Option<Json>,
    /// True if a changed config file is read again automatically.
    pub watch: bool,
    /// The names of the only servers that may be enabled, even after the config changes. All other servers are treated as disabled by a
    /// person. `None`: any server may be enabled.
    pub only: Option<Vec<String>>,
    /// The folder for approvals, tokens and logs. Default: `~/.hyperagent/hyperlight-mcp`.
    pub state_dir: Option<PathBuf>,
    /// The folder that replaces `${workspaceFolder}`. Default: the working directory.
    pub workspace_folder: Option<PathBuf>,
    pub enable: EnableAtOpen,
    /// Limits that differ from the default. They have priority over `limits` of the config.
    pub limits: LimitChanges,
    pub guest: GuestChoice,
    /// The VMs that are started in advance for later runs.
    pub warm: WarmVms,
    /// The folder that stores the guest's snapshot between processes, created with mode 0700. `None`: no snapshot is stored. Default:
    /// `$XDG_CACHE_HOME/hyperlight-mcp/snapshots`, or `~/.cache/hyperlight-mcp/snapshots`; `None` if there is no home folder.
    pub snapshot_dir: Option<PathBuf>,
    /// The path of the program `hyperlight-mcp-watchdog`.
    pub watchdog: PathBuf,
    /// The path of the program `hyperlight-mcp-reader`. Default: in the watchdog's folder.
    pub reader: PathBuf,
    /// The path of the program `hyperlight-mcp-box`. Default: in the watchdog's folder.
    pub box_program: PathBuf,
    /// The environment of this process. Placeholders get their values from it.
    pub environment: BTreeMap<String, String>,
    /// The commands that messages suggest to a person. `None`: `npx hyperlight-mcp` with the config and the state folder of these options.
    pub next_command: Option<NextCommand>,
    /// The tokio runtime for all asynchronous work.
    pub runtime: Handle,
    /// The listener for events.
    pub on_event: Option<EventListener>,
    /// The handling of results that do not match their tool's `outputSchema`, for servers whose config does not set it.
    pub schema_violations: SchemaViolations,
    /// The handling of calls whose arguments do not match the tool's `inputSchema`, for servers whose config does not set it.
    pub argument_checks: ArgumentCheck,
    /// The maximum size of a run's value in tokens, at least 100. A larger value is shortened, and the whole value is saved for later runs
    /// of the sandbox. `None`: values are not shortened.
    pub max_result_tokens: Option<usize>,
    /// True if the gateway learns the shapes of results of tools that have no `outputSchema`. A learnt shape is shown only to the agent
    /// that got the results. `None`: `learnResults` of the config when the gateway is opened, or true.
    pub learn_results: Option<bool>,
    /// The ranking of a search for tools. `None`: `search` of the config when the gateway is opened, or by words.
    pub search: Option<SearchRanking>,
    /// The folder of the package `hyperlight-mcp-search-model`, for the ranking by meaning. If `None`, the package is used that was
    /// installed together with the package of the watchdog program.
    pub search_model: Option<PathBuf>,
    /// True if an event is also sent for each connection and each call.
    pub trace: bool,
    /// True if a person must approve servers that agents add. False: the command and the first manifest of such a server are approved
    /// without a person. `None`: true, unless the variable `MCP_REQUIRE_APPROVAL` is `false` or `0`.
    pub require_approval: Option<bool>,
    /// True if the audit stores the arguments of calls, with secrets removed. False: it stores only their digests.
    pub audit_content: bool,
    /// Hosts that may have private addresses and need no TLS, if code may fetch from them. Default: none.
    pub fetch_private_hosts: AllowedHosts,
    /// The loader that runs the code of provider packages. `None`: such code cannot run.
    pub provider_loader: Option<Arc<dyn ProviderLoader>>,
    /// Callbacks that are tried if neither the run nor the sandbox has any.
    pub callbacks: Option<Arc<dyn Callbacks>>,
}

impl GatewayOptions {
    /// Returns options with default values.
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
            limits: LimitChanges::default(),
            guest: GuestChoice::default(),
            warm: WarmVms::default(),
            reader: watchdog.with_file_name("hyperlight-mcp-reader"),
            box_program: watchdog.with_file_name("hyperlight-mcp-box"),
            watchdog,
            snapshot_dir: cache_folder(&environment),
            environment,
            next_command: None,
            runtime,
            on_event: None,
            schema_violations: SchemaViolations::default(),
            argument_checks: ArgumentCheck::default(),
            max_result_tokens: None,
            learn_results: None,
            search: None,
            search_model: None,
            trace: false,
            require_approval: None,
            audit_content: false,
            fetch_private_hosts: AllowedHosts::none(),
            provider_loader: None,
            callbacks: None,
        }
    }

    /// Returns the options with absolute paths of the config, the state and the snapshot, so that a later change of the working folder does
    /// not change their meaning. The commands that messages suggest contain the paths as they were given.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if a path is empty.
    pub(super) fn in_place(mut self) -> Result<Self> {
        self.next_command = Some(self.next_command());
        let Self { config_path, state_dir, workspace_folder, snapshot_dir, search_model, .. } = &mut self;
        for (name, path) in [
            ("configPath", config_path),
            ("stateDir", state_dir),
            ("workspaceFolder", workspace_folder),
            ("snapshotDir", snapshot_dir),
            ("searchModel", search_model),
        ] {
            if let Some(path) = path {
                let problem = |error: std::io::Error| format!("{name}: {error}");
                *path = std::path::absolute(&*path)
                    .map_err(|error| Error::InvalidOption { method: "Gateway.open", problem: problem(error).into() })?;
            }
        }
        Ok(self)
    }

    pub(super) fn next_command(&self) -> NextCommand {
        let of_library = || NextCommand::of_library(self.config_path.as_deref(), self.state_dir.as_deref());
        self.next_command.clone().unwrap_or_else(of_library)
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
        Ok(ConfigSource::new(content, self.limits.clone(), surroundings.clone()))
    }

    /// Returns the names of all servers in the config and its bases, without opening a gateway.
    ///
    /// # Errors
    /// The errors of reading the config.
    pub(crate) fn server_names(&self) -> Result<Vec<String>> {
        let config = self.source(&self.surroundings()?)?.read()?;
        let valid = config.servers.into_iter().map(|server| server.name);
        Ok(valid.chain(config.invalid.into_iter().map(|server| server.name)).collect())
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

    /// Returns the folder for approvals, tokens and logs.
    #[must_use]
    pub fn state_folder(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| self.agent_folder().join("hyperlight-mcp"))
    }

    /// Returns whether a person must approve servers that agents add. If the option is not set, the variable `MCP_REQUIRE_APPROVAL`
    /// decides: every value except `false` and `0` means yes.
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

    /// Returns the object that computes vectors, if searches rank by meaning. This object starts no thread before the first search.
    pub(super) fn embedder(&self, config: &Config, events: &Events) -> Option<Arc<Embedder>> {
        let ranking = self.search.or(config.search).unwrap_or_default();
        let events = events.clone();
        let embedder = || {
            Arc::new(Embedder::new(EmbedderOptions {
                package: self.search_model.clone(),
                start: self.watchdog.parent().unwrap_or(Path::new("/")).to_owned(),
                file: Some(self.state_folder().join(VECTORS)),
                warn: Box::new(move |warning| events.warn(warning)),
            }))
        };
        (ranking == SearchRanking::Hybrid).then(embedder)
    }

    fn agent_folder(&self) -> PathBuf {
        self.home().join(".hyperagent")
    }

    fn home(&self) -> PathBuf {
        user_home(&self.environment)
    }
}

/// Returns the default folder for snapshots in the user's cache folder.
fn cache_folder(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let folder = |name: &str| folder_of_variable(environment, name);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("hyperlight-mcp/snapshots"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn paths_stay_where_they_are_and_messages_keep_them_as_they_were_given() {
        let mut options = GatewayOptions::new("watchdog", Handle::current());
        (options.config_path, options.state_dir) = (Some("mcp.json".into()), Some("state".into()));
        let options = options.in_place().unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!((options.config_path.as_ref(), options.state_folder()), (Some(&here.join("mcp.json")), here.join("state")));
        assert_eq!(options.next_command().with("list"), "npx hyperlight-mcp list --config mcp.json --state state");
        let empty = GatewayOptions { state_dir: Some(PathBuf::new()), ..GatewayOptions::new("watchdog", Handle::current()) };
        assert_eq!(empty.in_place().map(drop).unwrap_err().code(), "ERR_INVALID_OPTION");
    }
}
