//! The commands `grant`, `ungrant` and `toolboxes`, and the option `--agent`: the rules that decide which agent may use which servers and
//! tools.

use clap::Args;
use serde_json::json;

use super::Exit;
use super::error::CliError;
use super::session::Session;
use crate::command::{Search, one_line};
use crate::error::Result;
use crate::gateway::{Agent, Gateway, IdentityOptions};
use crate::registry::{GrantInfo, GrantList, GrantSource};

/// The option `--agent`. With it, a command sees and uses only what this agent is granted.
#[derive(Debug, Clone, Default, Args)]
pub struct AsAgent {
    /// See and use only what this agent is granted
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
}

/// Arguments of `search`.
#[derive(Debug, Clone, Args)]
pub struct SearchAs {
    #[command(flatten)]
    pub search: Search,
    #[command(flatten)]
    pub as_agent: AsAgent,
}

/// Arguments of `grant`.
#[derive(Debug, Clone, Args)]
pub struct Grant {
    /// Name of the agent, as its program or --agent gives it
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// Toolboxes to give
    #[arg(value_name = "TOOLBOX", required = true)]
    pub toolboxes: Vec<String>,
}

/// Arguments of `ungrant`.
#[derive(Debug, Clone, Args)]
pub struct Ungrant {
    /// Name of the agent
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// Toolboxes to take [default: all of them]
    #[arg(value_name = "TOOLBOX")]
    pub toolboxes: Vec<String>,
}

/// Arguments of `toolboxes`.
#[derive(Debug, Clone, Args)]
pub struct Toolboxes {
    /// Toolbox to make or replace [default: list all]
    #[arg(value_name = "TOOLBOX")]
    pub toolbox: Option<String>,
    /// Patterns of the toolbox, like 'weather/*' or '!github/delete_*'; the last that matches decides
    #[arg(value_name = "PATTERN", requires = "toolbox", conflicts_with = "remove", required_if_eq("remove", "false"))]
    pub patterns: Vec<String>,
    /// Remove the toolbox
    #[arg(long, requires = "toolbox")]
    pub remove: bool,
}

/// Returns the agent with this name. Its callbacks ask the person at the terminal. Without a name, returns the operator's own agent.
pub(super) fn agent_of(session: &Session, gateway: &Gateway, as_agent: &AsAgent) -> Result<Agent> {
    match &as_agent.agent {
        None => Ok(gateway.clone().into()),
        Some(name) => gateway.agent(name, IdentityOptions { callbacks: session.person(), ..IdentityOptions::default() }),
    }
}

pub(super) fn grant(session: &Session, arguments: &Grant) -> std::result::Result<Exit, CliError> {
    let gateway = session.open()?;
    Ok(show_agent(session, &gateway.grant(&arguments.agent, &arguments.toolboxes)?))
}

pub(super) fn ungrant(session: &Session, arguments: &Ungrant) -> std::result::Result<Exit, CliError> {
    let gateway = session.open()?;
    Ok(show_agent(session, &gateway.ungrant(&arguments.agent, &arguments.toolboxes)?))
}

fn show_agent(session: &Session, grant: &GrantInfo) -> Exit {
    if session.json() {
        session.terminal.print_json(&json!(grant));
    } else {
        session.terminal.print(&format!("agent {} has {}\n", grant.agent, named(&grant.toolboxes)));
    }
    Exit::Done
}

pub(super) fn toolboxes(session: &Session, arguments: &Toolboxes) -> std::result::Result<Exit, CliError> {
    let gateway = session.open()?;
    let list = match &arguments.toolbox {
        None => gateway.toolboxes()?,
        Some(name) if arguments.remove => gateway.set_toolbox(name, None)?,
        Some(name) => gateway.set_toolbox(name, Some(&arguments.patterns))?,
    };
    if session.json() {
        session.terminal.print_json(&json!(list));
    } else {
        session.terminal.print(&list_text(session, &list));
    }
    Ok(Exit::Done)
}

fn list_text(session: &Session, list: &GrantList) -> String {
    let style = &session.terminal.out;
    let source = |source: GrantSource| if source == GrantSource::Config { "config" } else { "made at run time" }.to_owned();
    let toolboxes =
        list.toolboxes.iter().map(|toolbox| vec![toolbox.name.clone(), one_line(&toolbox.patterns.join(" ")), source(toolbox.source)]);
    let agents = list.agents.iter().map(|agent| vec![agent.agent.clone(), named(&agent.toolboxes), source(agent.source)]);
    let mut text = String::new();
    if list.toolboxes.is_empty() {
        let make = session.next_command.with("toolboxes NAME 'weather/*' 'github/list_*'");
        text.extend(["there are no toolboxes; to make one: ", &make, "\n"]);
    } else {
        text.push_str(&style.table(&["toolbox", "patterns", "from"], toolboxes.collect()));
    }
    if !list.agents.is_empty() {
        text.push('\n');
        text.push_str(&style.table(&["agent", "toolboxes", "from"], agents.collect()));
    }
    let others = if list.agents.is_empty() { "agents" } else { "other agents" };
    let get = match list.default_grant {
        crate::config::DefaultGrant::All => "get everything that is approved",
        crate::config::DefaultGrant::Nothing => "get nothing",
    };
    text.extend(["\n", others, " ", get, " (defaultGrant)\n"]);
    text
}

fn named(toolboxes: &[String]) -> String {
    if toolboxes.is_empty() { "no toolbox, and so nothing".to_owned() } else { toolboxes.join(", ") }
}
