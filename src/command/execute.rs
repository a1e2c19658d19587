//! Carries out commands.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::args::{Approve, Command, Logs, Search};
use super::parse::{METHOD, Parsed, parse};
use super::providers::providers;
use super::render;
use super::request::{request_text, stage_of};
use super::text::Style;
use crate::bridge::{ToolErrors, ToolQuery};
use crate::error::{Error, Result};
use crate::gateway::{Agent, Gateway};
use crate::registry::{Decider, ServerStatus};
use crate::text::sanitise_text;

/// Length limit of an error message.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// Author of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// A person. If the person types a digest, the request with this digest is approved.
    #[default]
    Person,
    /// A model, or an unknown author. The command can neither approve nor revoke anything, cannot enable or start a server that a person
    /// has disabled, and cannot read a config that a server may have written. The outcome does not contain text of a server or a config
    /// that a person has not approved.
    Model,
}

impl Speaker {
    fn decider(self) -> Decider {
        match self {
            Self::Person => Decider::Person,
            Self::Model => Decider::Model,
        }
    }

    fn message(self, error: &Error) -> String {
        match self {
            Self::Person => error.to_string(),
            Self::Model => error.for_model(),
        }
    }

    fn status(self, status: ServerStatus) -> ServerStatus {
        match self {
            Self::Person => status,
            Self::Model => status.for_model(),
        }
    }
}

/// Options of a command and of its text output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandOptions {
    /// Adds ANSI colours to the text. Default: no colours.
    pub color: bool,
    /// Width of the text in columns, 40 to 200. Default: 80.
    pub width: Option<usize>,
    pub speaker: Speaker,
}

/// Outcome of a command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub ok: bool,
    /// Data for programs. After a failure: `{ error: { code, message } }`.
    pub data: Json,
    /// Text for people.
    pub text: String,
}

impl Outcome {
    /// Returns a successful outcome whose text is the same as its data, written as JSON.
    pub(super) fn for_model(data: &Json) -> Result<Self> {
        Self::of(data, format!("{data}\n"))
    }

    pub(super) fn of(data: &impl Serialize, text: String) -> Result<Self> {
        let data = serde_json::to_value(data).map_err(|error| Error::Internal(error.to_string().into()))?;
        Ok(Self { ok: true, data, text })
    }

    /// Returns the outcome of a failure, for a person.
    #[must_use]
    pub fn failed(error: &Error) -> Self {
        Self::failed_for(Speaker::Person, error)
    }

    fn failed_for(speaker: Speaker, error: &Error) -> Self {
        let message = sanitise_text(&speaker.message(error), MAX_MESSAGE_CHARS);
        Self { ok: false, data: json!({ "error": { "code": error.code(), "message": message } }), text: format!("{message}\n") }
    }
}

/// Carries out a command line: `/mcp list`, or `list`. Never fails: returns an error as an outcome with `ok: false`.
pub async fn execute(gateway: &Gateway, line: &str, options: &CommandOptions) -> Outcome {
    match parse(line) {
        Ok(Parsed::Help(text)) => Outcome { ok: true, data: json!({ "help": text }), text },
        Ok(Parsed::Command(command)) => {
            let style = Style::new(options.color, options.width);
            let outcome = perform(gateway, &command, &style, options.speaker).await;
            outcome.unwrap_or_else(|error| Outcome::failed_for(options.speaker, &error))
        }
        Err(error) => Outcome::failed_for(options.speaker, &error),
    }
}

/// Carries out a parsed command.
///
/// # Errors
/// The errors of the gateway's method for the command.
pub async fn perform(gateway: &Gateway, command: &Command, style: &Style, speaker: Speaker) -> Result<Outcome> {
    perform_as(gateway, gateway, command, style, speaker).await
}

/// Carries out a parsed command. `list` and `search` show what `agent` sees. All other commands use the gateway of the operator.
///
/// # Errors
/// The errors of the gateway's method for the command.
pub async fn perform_as(gateway: &Gateway, agent: &Agent, command: &Command, style: &Style, speaker: Speaker) -> Result<Outcome> {
    match command {
        Command::List => {
            // A variant is only for agents with profiles: the operator's code cannot import it.
            let is_there = |status: &ServerStatus| speaker == Speaker::Person || !agent.is_operator() || status.variant_of.is_none();
            let servers: Vec<_> = agent.servers()?.into_iter().filter(is_there).map(|status| speaker.status(status)).collect();
            let text = render::list_text(&servers, style);
            Outcome::of(&json!({ "servers": servers }), text)
        }
        Command::Info(server) => {
            let mut info = match speaker {
                Speaker::Person => gateway.server_info(&server.server)?,
                Speaker::Model => gateway.server_offer(&server.server)?,
            };
            info.status = speaker.status(info.status);
            let text = render::info_text(&info, style);
            Outcome::of(&info, text)
        }
        Command::Enable(enable) => enable_or_show(gateway, enable, style, speaker).await,
        Command::Disable(server) => {
            gateway.disable_as(&server.server, speaker.decider()).await?;
            done(gateway, &server.server, speaker, "is disabled: new runs cannot use it")
        }
        Command::Approve(approve) => approve_or_show(gateway, approve, style, speaker).await,
        Command::Revoke(server) if speaker == Speaker::Model => {
            let problem = format!("only a person can revoke an approval: ask the person to type /mcp revoke {}", server.server);
            Err(Error::InvalidOption { method: METHOD, problem: problem.into() })
        }
        Command::Revoke(server) => {
            gateway.revoke(&server.server).await?;
            done(gateway, &server.server, speaker, "is no longer approved")
        }
        Command::Test(server) => {
            let report = gateway.test_as(&server.server, speaker.decider()).await?;
            if speaker == Speaker::Model {
                return Outcome::for_model(&report.for_model());
            }
            let changed = gateway.server_info(&server.server)?.status.quarantined;
            let text = render::test_text(&report, &changed, style);
            Outcome::of(&report, text)
        }
        Command::Search(search) => search_tools(agent, search, style),
        Command::Reload if speaker == Speaker::Model => Outcome::for_model(&gateway.reload_for_model().await?.for_model()),
        Command::Reload => {
            let report = gateway.reload().await?;
            let text = render::reload_text(&report, style);
            Outcome::of(&report, text)
        }
        Command::Logs(logs) if speaker == Speaker::Model => {
            let problem = format!("only a person may read a server's log: ask the person to type /mcp logs {}", logs.server);
            Err(Error::InvalidOption { method: METHOD, problem: problem.into() })
        }
        Command::Logs(logs) => show_logs(gateway, logs, style),
        Command::Providers(arguments) => providers(gateway, arguments, style, speaker).await,
    }
}

/// Returns the outcome of a command that has changed a server: the server's new status, and a line of text.
fn done(gateway: &Gateway, server: &str, speaker: Speaker, what: &str) -> Result<Outcome> {
    let status = speaker.status(gateway.server_info(server)?.status);
    Outcome::of(&status, format!("{server} {what}\n"))
}

fn search_tools(agent: &Agent, search: &Search, style: &Style) -> Result<Outcome> {
    let servers = (!search.servers.is_empty()).then(|| search.servers.clone());
    let query = ToolQuery { query: search.words.join(" "), limit: Some(usize::from(search.limit)), servers };
    let matches = agent.search_tools(&query, ToolErrors::default())?;
    let text = render::search_text(&matches, style);
    Outcome::of(&json!({ "matches": matches }), text)
}

fn show_logs(gateway: &Gateway, logs: &Logs, style: &Style) -> Result<Outcome> {
    let lines = gateway.logs(&logs.server, usize::from(logs.lines))?;
    let text = if lines.is_empty() { format!("the log of {} is empty\n", logs.server) } else { render::logs_text(&lines, style) };
    Outcome::of(&json!({ "server": logs.server, "lines": lines }), text)
}

/// Enables a server. If the server is not approved and the command comes from a person, returns the next approval request. If the person
/// has typed a digest, approves the request with this digest first.
async fn enable_or_show(gateway: &Gateway, enable: &Approve, style: &Style, speaker: Speaker) -> Result<Outcome> {
    const ENABLED: &str = "is enabled: new runs can use it";
    let Approve { server, digest } = enable;
    match (speaker, digest) {
        (Speaker::Model, Some(_)) => return Err(only_a_person(server)),
        (Speaker::Model, None) => {
            gateway.enable_as(server, Decider::Model)?;
            return done(gateway, server, speaker, ENABLED);
        }
        (Speaker::Person, Some(digest)) => gateway.approve(server, Some(digest), None).await?,
        (Speaker::Person, None) => {}
    }
    match gateway.enable_asking(server).await {
        Ok(()) => done(gateway, server, speaker, ENABLED),
        Err(error @ Error::NotApproved { .. }) => {
            let failed = Outcome::failed(&error);
            let mut request = show_request(gateway, server, style, speaker, "enable").await?;
            request.data["error"] = failed.data["error"].clone();
            Ok(Outcome { ok: false, text: format!("{server} is not enabled, as it is not approved.\n\n{}", request.text), ..request })
        }
        Err(error) => Err(error),
    }
}

fn only_a_person(server: &str) -> Error {
    let problem =
        format!("only a person can approve: ask the person to type /mcp approve {server}, to read the request, and to approve it");
    Error::InvalidOption { method: METHOD, problem: problem.into() }
}

async fn approve_or_show(gateway: &Gateway, approve: &Approve, style: &Style, speaker: Speaker) -> Result<Outcome> {
    let Approve { server, digest } = approve;
    let Some(digest) = digest else { return show_request(gateway, server, style, speaker, "approve").await };
    if speaker == Speaker::Model {
        return Err(only_a_person(server));
    }
    gateway.approve(server, Some(digest), None).await?;
    let status = gateway.server_info(server)?.status;
    let text = if status.approved {
        format!("{server} is approved; to let new runs use the server: /mcp enable {server}\n")
    } else {
        format!("the command of {server} is approved, but not its tools; to see them: /mcp approve {server}\n")
    };
    Outcome::of(&status, text)
}

/// Returns a server's approval request. `command` is the command that approves the request if the digest is added to it.
async fn show_request(gateway: &Gateway, server: &str, style: &Style, speaker: Speaker, command: &str) -> Result<Outcome> {
    let request = gateway.approval_request_as(server, speaker.decider()).await?;
    let (approved, digest) = (request.is_approved(), request.digest());
    if speaker == Speaker::Model {
        let note = format!("only a person may read and approve the request: ask the person to type /mcp approve {server}");
        let request = json!({ "server": server, "stage": stage_of(&request), "approved": approved, "digest": digest });
        return Outcome::for_model(&json!({ "request": request, "note": note }));
    }
    let mut text = request_text(&request, style);
    if approved {
        text.push_str("\nAll of this is approved already.\n");
    } else {
        let parts = ["\nTo approve exactly this (", stage_of(&request), "), type:\n  /mcp ", command, " ", server, " ", digest, "\n"];
        text.extend(parts);
    }
    let text = text.trim_start().to_owned();
    Outcome::of(&json!({ "request": request }), text)
}

#[cfg(test)]
#[path = "execute_tests.rs"]
mod tests;
