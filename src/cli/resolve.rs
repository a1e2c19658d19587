//! The command `resolve`: shows which servers would be in effect for a task, and writes their entries for a program that is started next.
//! Starts no server.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::args::Resolve;
use super::error::CliError;
use super::grants::AsAgent;
use super::session::Session;
use super::terminal::json_text;
use super::{Exit, files};
use crate::command::{Tone, one_line};
use crate::gateway::{Gateway, Resolution, ResolveOptions, Task};

pub(super) async fn resolve(session: &Session, arguments: &Resolve) -> Result<Exit, CliError> {
    let Resolve { task, agent, dry_run, out } = arguments;
    session.check_config()?;
    let gateway = session.open()?;
    let options = ResolveOptions { agent: agent.clone(), task: task.as_deref().map(task_of), dry_run: *dry_run };
    let resolution = gateway.resolve(options).await?;
    let entries = resolution.mcp_servers.as_ref().map(|servers| json!({ "mcpServers": servers }));
    let written = match (out, &entries) {
        (Some(path), Some(entries)) => {
            files::write_private(path, &format!("{}\n", json_text(entries)))?;
            Some(path.as_path())
        }
        _ => None,
    };
    show(session, &resolution, entries.as_ref(), written);
    Ok(Exit::Done)
}

/// Prints the servers that a script of an agent would get for a task.
pub(super) async fn show_for_run(session: &Session, gateway: &Gateway, as_agent: &AsAgent, text: Option<&str>) -> Result<Exit, CliError> {
    let options = ResolveOptions { agent: as_agent.agent.clone(), task: text.map(task_of), dry_run: true };
    show(session, &gateway.resolve(options).await?, None, None);
    Ok(Exit::Done)
}

/// Returns a task with this text.
pub(super) fn task_of(text: &str) -> Task {
    Task { text: Some(text.to_owned()), ..Task::default() }
}

/// Prints the servers' config entries on standard output, and on standard error the reason why each server is used or not. If no entries
/// are printed (a dry run, or they were written to a file), the reasons go to standard output.
fn show(session: &Session, resolution: &Resolution, entries: Option<&Json>, written: Option<&Path>) {
    let terminal = &session.terminal;
    if session.json() {
        let mut document = json!(resolution);
        if let Some(path) = written {
            document["file"] = json!(path.display().to_string());
        }
        return terminal.print_json(&document);
    }
    let mut text = String::new();
    for server in &resolution.servers {
        text.push_str(&terminal.out.marked("", &one_line(&server.reason)));
    }
    if resolution.servers.is_empty() {
        text.push_str("no server is in force\n");
    }
    match (entries, written) {
        (Some(entries), None) => {
            terminal.say(&text);
            terminal.print_json(entries);
        }
        (_, written) => {
            terminal.print(&text);
            if let Some(path) = written {
                terminal.print(&format!("written to {}\n", path.display()));
            }
        }
    }
    for warning in &resolution.warnings {
        terminal.note(Tone::Warning, "warning:", &one_line(warning));
    }
}
