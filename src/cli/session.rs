//! The state that all commands share: the options, the terminal, and the open gateway.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::ProcessContext;
use super::args::Global;
use super::ask::Person;
use super::error::{CliError, NO_CONFIG, TERMINAL};
use super::grants::{AsAgent, agent_of};
use super::terminal::Terminal;
use crate::command::{MIN_WIDTH, Tone};
use crate::error::{Error, Result};
use crate::fetch::AllowedHosts;
use crate::gateway::{Agent, Callbacks, EventListener, Gateway, GatewayOptions};
use crate::limits::LimitChanges;
use crate::registry::ServerStatus;
use crate::sandbox::Stop;
use crate::text::{NextCommand, sanitise_text};
use crate::trust::AllowedWrites;

const MAX_EVENT_CHARS: usize = 1_000;
/// An example of a config. It is shown if there is no config.
const EXAMPLE: &str =
    r#"{ "mcpServers": { "everything": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"] } } }"#;

/// The state of one run of the program.
pub(super) struct Session {
    global: Global,
    pub(super) next_command: NextCommand,
    pub(super) context: ProcessContext,
    pub(super) terminal: Arc<Terminal>,
    pub(super) stop: Stop,
    gateway: OnceLock<Gateway>,
    person: OnceLock<Arc<dyn Callbacks>>,
}

/// Settings of the gateway that the arguments of a script change.
pub(super) struct Opening {
    /// The calls that are allowed without a question.
    pub(super) allowed: AllowedWrites,
    /// The hosts that may have private addresses.
    pub(super) private_hosts: AllowedHosts,
    pub(super) limits: LimitChanges,
}

impl Session {
    pub(super) fn new(global: Global, context: ProcessContext, stop: Stop) -> Self {
        let terminal = Arc::new(Terminal::new(context.screens, global.color, &context.environment));
        let next_command = NextCommand::of_program(&context.environment, global.config.as_deref(), global.state.as_deref());
        Self { next_command, global, context, terminal, stop, gateway: OnceLock::new(), person: OnceLock::new() }
    }

    pub(super) fn json(&self) -> bool {
        self.global.json
    }

    /// Returns the options for a gateway, with the config that `config` names instead of the one of the arguments.
    pub(super) fn with_config(&self, config: Option<PathBuf>) -> GatewayOptions {
        let mut options = self.options();
        options.config_path = config.or(options.config_path);
        options
    }

    /// Returns the state folder that the arguments name.
    pub(super) fn state(&self) -> Option<&Path> {
        self.global.state.as_deref()
    }

    /// Returns whether a person at the terminal can be asked. This is false with `--json`.
    pub(super) fn can_ask(&self) -> bool {
        self.context.screens.can_ask() && !self.json()
    }

    /// Checks that the terminal is wide enough for a request or a question.
    pub(super) fn check_width(&self) -> std::result::Result<(), CliError> {
        let Some(columns) = self.context.screens.too_few_columns().filter(|_| !self.json()) else { return Ok(()) };
        let text = format!(
            "this terminal has {columns} columns, and a question needs at least {MIN_WIDTH}: make it wider, and run the command again"
        );
        Err(CliError::Message(TERMINAL, text))
    }

    pub(super) fn options(&self) -> GatewayOptions {
        let mut options = GatewayOptions::new(&self.context.watchdog, self.context.runtime.clone());
        options.environment.clone_from(&self.context.environment);
        options.config_path.clone_from(&self.global.config);
        options.state_dir.clone_from(&self.global.state);
        options.next_command = Some(self.next_command.clone());
        options.provider_loader.clone_from(&self.context.provider_loader);
        options
    }

    /// Fails if there is no config. The message explains how to create one.
    pub(super) fn check_config(&self) -> std::result::Result<(), CliError> {
        let path = self.options().default_config();
        if self.global.config.is_some() || path.exists() {
            return Ok(());
        }
        Err(CliError::Message(
            NO_CONFIG,
            format!(
                "there is no config {}. To make one:\n  {}   copies the servers of VS Code, Claude, Cursor and Codex\nor write the file yourself as in this example, or name another file with --config FILE:\n  {EXAMPLE}",
                path.display(),
                self.next_command.with("import --write")
            ),
        ))
    }

    /// Opens the gateway with the config, and enables the approved servers.
    pub(super) fn open(&self) -> Result<Gateway> {
        self.open_for(None)
    }

    /// Opens the gateway and enables only these servers. Each of them must be approved.
    pub(super) fn open_for(&self, servers: Option<&[String]>) -> Result<Gateway> {
        self.open_enabled(self.asking(AllowedWrites::default()), servers)
    }

    /// Opens the gateway and the agent of a script. Enables the servers in `servers`, or all approved ones if it is `None`. Before that,
    /// asks the person at the terminal to approve servers that are not approved yet: the servers in `servers`, or the servers for which
    /// `needs` is true if `servers` is `None`. Servers are named as the agent's code names them.
    pub(super) async fn open_for_script(
        &self,
        servers: Option<&[String]>,
        Opening { allowed, private_hosts, limits }: Opening,
        as_agent: &AsAgent,
        needs: impl Fn(&str) -> bool,
    ) -> Result<(Gateway, Agent)> {
        let gateway = self.opened(GatewayOptions { fetch_private_hosts: private_hosts, limits, ..self.asking(allowed) })?;
        let agent = agent_of(self, &gateway, as_agent)?;
        let wanted = |name: &str| servers.map_or_else(|| needs(name), |names| names.iter().any(|wanted| wanted == name));
        let is_wanted = |server: &ServerStatus| name_in_code(&agent, server).is_some_and(wanted);
        for server in agent.servers()?.iter().filter(|server| !server.approved && self.can_ask() && is_wanted(server)) {
            match gateway.enable_asking(&server.name).await {
                Err(error @ (Error::NotApproved { .. } | Error::ServerDisabled { .. })) => tracing::info!("{error}"),
                Err(Error::ConfigInvalid { .. }) if servers.is_none() => {}
                other => other?,
            }
        }
        enable(&gateway, registry_names(&agent, servers).as_deref(), Unapproved::Refuse)?;
        Ok((gateway, agent))
    }

    /// Opens the gateway of a script that is not run, only to resolve what it would have. Asks nobody, so that nothing is approved or
    /// started. Enables the servers that [`Self::open_for_script`] would enable, except servers that it would ask about.
    pub(super) fn open_to_resolve(&self, servers: Option<&[String]>, changes: Opening, as_agent: &AsAgent) -> Result<Gateway> {
        let Opening { allowed: _, private_hosts, limits } = changes;
        let gateway = self.opened(GatewayOptions { fetch_private_hosts: private_hosts, limits, ..self.options() })?;
        let agent = agent_of(self, &gateway, as_agent)?;
        match registry_names(&agent, servers) {
            None => enable(&gateway, None, Unapproved::Wait)?,
            Some(names) => {
                for name in names {
                    match enable(&gateway, Some(&[name]), Unapproved::Refuse) {
                        // The resolution says why the script would not have the server.
                        Err(Error::NotApproved { .. } | Error::ServerDisabled { .. } | Error::ConfigInvalid { .. }) => {}
                        other => other?,
                    }
                }
            }
        }
        Ok(gateway)
    }

    /// Opens the gateway for a host. Nobody is asked at this terminal, because the host uses standard input. If `servers` is given, no
    /// other server is ever enabled. A server that is not approved yet is enabled as soon as a person approves it.
    pub(super) fn open_served(&self, servers: Option<&[String]>, watch: bool, learn_results: Option<bool>) -> Result<Gateway> {
        let mut options = self.options();
        options.watch = watch;
        options.learn_results = learn_results;
        options.only = servers.map(<[String]>::to_vec);
        let gateway = self.opened(options)?;
        enable(&gateway, servers, Unapproved::Wait)?;
        Ok(gateway)
    }

    /// Opens the gateway. The hosts in `hosts` may have private addresses.
    ///
    /// # Errors
    /// A usage error for a text that is not a host.
    pub(super) fn open_with_private_hosts(&self, hosts: &[String]) -> std::result::Result<Gateway, CliError> {
        let options = GatewayOptions { fetch_private_hosts: hosts_of("--private-hosts", hosts)?, ..self.options() };
        Ok(self.open_enabled(options, None)?)
    }

    /// Opens the gateway for the contents of the state folder, without the servers of the config. So it works even if the config has
    /// errors.
    pub(super) fn open_state(&self) -> Result<Gateway> {
        let mut options = self.options();
        options.config_path = None;
        options.config = Some(json!({ "mcpServers": {} }));
        self.open_enabled(options, None)
    }

    /// Opens the gateway for tools that are made from a prompt: without the servers of the config. Prints what the tools' code logs.
    ///
    /// The state folder is shared with other gateways, so it can contain grants of other agents. A caller without a grant gets all tools,
    /// because this gateway has no other servers.
    pub(super) fn open_boot(&self) -> Result<Gateway> {
        let mut options = self.options();
        options.config_path = None;
        options.config = Some(json!({ "mcpServers": {}, "defaultGrant": "all" }));
        options.trace = true;
        let (terminal, next_command) = (Arc::clone(&self.terminal), self.next_command.clone());
        options.on_event = Some(Arc::new(move |event| match event["type"].as_str() {
            Some("server-log") => {
                let text = sanitise_text(event["data"].as_str().unwrap_or_default(), MAX_EVENT_CHARS);
                terminal.note(Tone::Quiet, "log:", &text);
            }
            _ => tell(&terminal, &next_command, &event),
        }));
        let gateway = Gateway::open(options)?;
        let _ = self.gateway.set(gateway.clone());
        Ok(gateway)
    }

    /// Returns options for a gateway that asks the person at the terminal.
    fn asking(&self, allowed: AllowedWrites) -> GatewayOptions {
        let mut options = self.options();
        if let Err(error) = self.check_width() {
            self.terminal.note(Tone::Warning, "warning:", &format!("nobody is asked: {}", error.sentence(&self.next_command)));
        }
        let person = Person { terminal: Arc::clone(&self.terminal), can_ask: self.can_ask(), allowed };
        let person = Arc::new(person) as Arc<dyn Callbacks>;
        let _ = self.person.set(Arc::clone(&person));
        options.callbacks = Some(person);
        options
    }

    /// Returns the person at the terminal, once a gateway is open that may ask this person.
    pub(super) fn person(&self) -> Option<Arc<dyn Callbacks>> {
        self.person.get().cloned()
    }

    fn open_enabled(&self, options: GatewayOptions, servers: Option<&[String]>) -> Result<Gateway> {
        let gateway = self.opened(options)?;
        enable(&gateway, servers, Unapproved::Refuse)?;
        Ok(gateway)
    }

    fn opened(&self, mut options: GatewayOptions) -> Result<Gateway> {
        options.trace = true;
        options.on_event = Some(self.listener());
        let gateway = Gateway::open(options)?;
        let _ = self.gateway.set(gateway.clone());
        Ok(gateway)
    }

    /// Returns a listener that prints events on standard error: warnings as lines, and calls as progress.
    fn listener(&self) -> EventListener {
        let (terminal, next_command) = (Arc::clone(&self.terminal), self.next_command.clone());
        Arc::new(move |event| tell(&terminal, &next_command, &event))
    }

    /// Closes the gateway. If the servers do not end in time, kills them.
    pub(super) async fn end(&self, patience: Duration) {
        if let Some(gateway) = self.gateway.get() {
            let patience = if self.stop.reason().is_some() { patience } else { 3 * patience };
            if tokio::time::timeout(patience, gateway.close()).await.is_err() {
                gateway.kill();
            }
        }
        self.terminal.leave();
    }
}

/// Parses the hosts of an option.
///
/// # Errors
/// A usage error for a text that is not a host.
pub(super) fn hosts_of(option: &str, texts: &[String]) -> std::result::Result<AllowedHosts, CliError> {
    AllowedHosts::parse(texts.iter().map(String::as_str)).map_err(|problem| CliError::Usage(format!("{option}: {problem}")))
}

/// Returns the name by which the agent's code knows a server in the agent's list. Returns `None` for variants of other agents, which are
/// only in the operator's list.
pub(super) fn name_in_code<'s>(agent: &Agent, server: &'s ServerStatus) -> Option<&'s str> {
    match &server.variant_of {
        None => Some(&server.name),
        Some(name) => agent.name().map(|_| name.as_str()),
    }
}

/// The handling of a named server that is not approved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unapproved {
    /// An unapproved server is an error, because a script would not find its server.
    Refuse,
    /// An unapproved server stays as it is, because it is enabled as soon as a person approves it.
    Wait,
}

/// Converts names of servers in the agent's code to their names in the registry, for example `weather` to `weather@staging`. A name that the
/// agent does not know stays unchanged.
fn registry_names(agent: &Agent, servers: Option<&[String]>) -> Option<Vec<String>> {
    let registry_name = |name: &String| agent.server_info(name).map_or_else(|_| name.clone(), |info| info.status.name);
    servers.map(|names| names.iter().map(registry_name).collect())
}

/// Enables these servers, or all approved ones.
fn enable(gateway: &Gateway, servers: Option<&[String]>, unapproved: Unapproved) -> Result<()> {
    let known: Vec<ServerStatus> = gateway.servers()?;
    let has_approved_variant = |name: &String| known.iter().any(|server| server.approved && server.variant_of.as_ref() == Some(name));
    let enable_named = |name: &String| match gateway.enable(name) {
        Err(Error::NotApproved { .. }) if has_approved_variant(name) => {
            gateway.enable_variants(name);
            Ok(())
        }
        Err(Error::NotApproved { .. }) if unapproved == Unapproved::Wait => Ok(()),
        other => other,
    };
    let enable_known = |server: &ServerStatus| match &server.variant_of {
        Some(server) => {
            gateway.enable_variants(server);
            Ok(())
        }
        None => match gateway.enable(&server.name) {
            Err(Error::ServerDisabled { .. }) => Ok(()),
            other => other,
        },
    };
    match servers {
        Some(names) => names.iter().try_for_each(enable_named),
        None => known.iter().filter(|server| server.approved).try_for_each(enable_known),
    }
}

/// Returns the line about a server that an agent has added or changed, and the commands after it.
fn proposed_server(next_command: &NextCommand, event: &Json) -> (String, String) {
    let text = |key: &str| sanitise_text(event[key].as_str().unwrap_or_default(), MAX_EVENT_CHARS);
    let server = text("server");
    let agent = event["agent"].as_str().map_or_else(|| "the operator's own agent".to_owned(), |_| format!("agent \"{}\"", text("agent")));
    if event["approved"] == true {
        let text = format!("{agent} has added server \"{server}\", which is approved without a person, as requireApproval is false");
        return (text, String::new());
    }
    let [approve, remove] = ["approve", "remove"].map(|command| next_command.with(&format!("{command} {server}")));
    (format!("{agent} proposes server \"{server}\". To read what would run, and decide:"), format!("{approve}; to refuse it: {remove}"))
}

/// Returns the line about a server that a model wants to be approved, and the command after it.
fn proposed_approval(next_command: &NextCommand, request: &Json) -> (String, String) {
    let server = sanitise_text(request["server"].as_str().unwrap_or_default(), MAX_EVENT_CHARS);
    let what = if request["stage"] == "manifest" { "what it offers" } else { "what would run" };
    let approve = next_command.with(&format!("approve {server}"));
    (format!("a model asks you to approve server \"{server}\". To read {what}, and decide:"), approve)
}

fn tell(terminal: &Terminal, next_command: &NextCommand, event: &Json) {
    let text = |key: &str| sanitise_text(event[key].as_str().unwrap_or_default(), MAX_EVENT_CHARS);
    let warn = |message: String| terminal.note(Tone::Warning, "warning:", &message);
    // A command is not broken into rows, so that it can be copied.
    let advise = |(message, command): (String, String)| {
        let text = format!("{} {command}", terminal.after_word("warning:", &message));
        terminal.note_own(Tone::Warning, "warning:", text.trim_end());
    };
    let server = || text("server");
    match event["type"].as_str().unwrap_or_default() {
        "warning" | "approvals-damaged" => warn(text("message")),
        "server-proposed" => advise(proposed_server(next_command, event)),
        "approval-proposed" => advise(proposed_approval(next_command, &event["request"])),
        "executable-changed" => warn(format!("the program of server \"{}\" has changed since its approval: {}", server(), text("path"))),
        "tools-changed" => {
            let told = format!("server \"{}\" has changed since its approval. To read the changes:", server());
            advise((told, next_command.with(&format!("approve {}", server()))));
        }
        "elicitation-cancelled" => warn(format!("a question of server \"{}\" was not shown to anybody: {}", server(), text("reason"))),
        "connection-lost" => {
            let told = format!("the connection to server \"{}\" was lost: {}. To read its output:", server(), text("reason"));
            advise((told, next_command.with(&format!("logs {}", server()))));
        }
        "config-reloaded" => {
            let names = |what: &str| match event[what].as_array().map_or(&[][..], Vec::as_slice) {
                [] => None,
                names => Some(format!("{what}: {}", names.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(", "))),
            };
            let changes: Vec<_> = ["added", "changed", "removed", "invalid"].into_iter().filter_map(names).collect();
            if !changes.is_empty() {
                let text = sanitise_text(&changes.join("; "), MAX_EVENT_CHARS);
                let advice = next_command.with("approve");
                terminal.note(Tone::Good, "config:", &format!("read again: {text}. To approve new servers: {advice}"));
            }
        }
        "connected" => terminal.progress(&format!("{}: connected", server())),
        "call" => terminal.progress(&format!("{}.{}: {:.0} ms", server(), text("tool"), event["durationMs"].as_f64().unwrap_or_default())),
        "progress" => {
            let total = event["total"].as_f64().map(|total| format!(" of {total}")).unwrap_or_default();
            let progress = event["progress"].as_f64().unwrap_or_default();
            terminal.progress(&format!("{}.{}: {progress}{total} {}", server(), text("tool"), text("message")));
        }
        _ => {}
    }
}
