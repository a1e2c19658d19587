//! What the commands share: the options, the terminal, the gateway that is open.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value as Json;

use super::Surroundings;
use super::again::Again;
use super::args::Global;
use super::ask::Person;
use super::fault::{Fault, NO_CONFIG};
use super::terminal::Terminal;
use super::values::AllowedWrites;
use crate::command::Tone;
use crate::error::{Error, Result};
use crate::gateway::{Callbacks, EventListener, Gateway, GatewayOptions};
use crate::registry::ServerStatus;
use crate::sandbox::Stop;
use crate::text::sanitise_text;

const MAX_EVENT_CHARS: usize = 1_000;
/// A first config, for people who have none.
const EXAMPLE: &str =
    r#"{ "mcpServers": { "everything": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"] } } }"#;

/// One run of the program.
pub(super) struct Session {
    global: Global,
    pub(super) again: Again,
    pub(super) surroundings: Surroundings,
    pub(super) terminal: Arc<Terminal>,
    pub(super) stop: Stop,
    gateway: OnceLock<Gateway>,
}

impl Session {
    pub(super) fn new(global: Global, surroundings: Surroundings, stop: Stop) -> Self {
        let terminal = Arc::new(Terminal::new(surroundings.screens, global.color, &surroundings.environment));
        Self { again: Again::new(&global), global, surroundings, terminal, stop, gateway: OnceLock::new() }
    }

    pub(super) fn json(&self) -> bool {
        self.global.json
    }

    /// Whether somebody is there who can be asked, and wants to be.
    pub(super) fn can_ask(&self) -> bool {
        self.surroundings.screens.can_ask() && !self.json()
    }

    pub(super) fn options(&self) -> GatewayOptions {
        let mut options = GatewayOptions::new(&self.surroundings.watchdog, self.surroundings.runtime.clone());
        options.environment.clone_from(&self.surroundings.environment);
        options.config_path.clone_from(&self.global.config);
        options.state_dir.clone_from(&self.global.state);
        options
    }

    /// Without a config there is nothing to be done: says how to make one.
    pub(super) fn check_config(&self) -> std::result::Result<(), Fault> {
        let path = self.options().default_config();
        if self.global.config.is_some() || path.exists() {
            return Ok(());
        }
        Err(Fault::Message(
            NO_CONFIG,
            format!(
                "there is no config {}. To make one:\n  hyperlight-mcp import --write   takes over the servers of VS Code, Claude, Cursor and Codex\nor write it, like this, or name another with --config FILE:\n  {EXAMPLE}",
                path.display()
            ),
        ))
    }

    /// The config as it is, with no server enabled but those that are approved.
    pub(super) fn open(&self) -> Result<Gateway> {
        self.open_with(None, None, true)
    }

    /// The same with only these servers enabled; each must be approved.
    pub(super) fn open_for(&self, servers: Option<&[String]>, allowed: Option<AllowedWrites>) -> Result<Gateway> {
        self.open_with(servers, allowed, true)
    }

    fn open_with(&self, servers: Option<&[String]>, allowed: Option<AllowedWrites>, asks: bool) -> Result<Gateway> {
        let mut options = self.options();
        options.trace = true;
        options.on_event = Some(self.listener());
        options.callbacks = asks.then(|| {
            let person = Person { terminal: Arc::clone(&self.terminal), can_ask: self.can_ask(), allowed: allowed.unwrap_or_default() };
            Arc::new(person) as Arc<dyn Callbacks>
        });
        let gateway = Gateway::open(options)?;
        let known: Vec<ServerStatus> = gateway.servers()?;
        match servers {
            Some(names) => names.iter().try_for_each(|name| gateway.enable(name))?,
            None => known.iter().filter(|server| server.approved).try_for_each(|server| match gateway.enable(&server.name) {
                Err(Error::ServerDisabled { .. }) => Ok(()),
                other => other,
            })?,
        }
        let _ = self.gateway.set(gateway.clone());
        Ok(gateway)
    }

    /// What happens, on standard error: warnings as lines, calls as progress.
    fn listener(&self) -> EventListener {
        let (terminal, again) = (Arc::clone(&self.terminal), self.again.clone());
        Arc::new(move |event| tell(&terminal, &again, &event))
    }

    /// Ends what is live. What does not end in time is killed.
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

fn tell(terminal: &Terminal, again: &Again, event: &Json) {
    let text = |key: &str| sanitise_text(event[key].as_str().unwrap_or_default(), MAX_EVENT_CHARS);
    let warn = |message: String| terminal.note(Tone::Warning, "warning:", &message);
    let server = || text("server");
    match event["type"].as_str().unwrap_or_default() {
        "warning" | "approvals-damaged" => warn(text("message")),
        "executable-changed" => warn(format!("the program of server \"{}\" is not the one that was approved: {}", server(), text("path"))),
        "tools-changed" => {
            warn(format!(
                "server \"{0}\" has changed since its approval: {1} shows how",
                server(),
                again.with(&format!("approve {}", server()))
            ));
        }
        "elicitation-cancelled" => warn(format!("a question of server \"{}\" reached nobody: {}", server(), text("reason"))),
        "connection-lost" => {
            warn(format!("server \"{}\" was lost: {} ({})", server(), text("reason"), again.with(&format!("logs {}", server()))));
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
