//! The command `boxes`: lists the private homes of servers in boxes, and removes old ones.

use clap::{Args, Subcommand};
use serde_json::json;

use super::Exit;
use super::error::{CliError, USAGE};
use super::session::Session;
use crate::command::{date_time, one_line};
use crate::error::Error;
use crate::gateway::{HomeUse, HomesToRemove, PrivateHome, RemovedHomes};

const MIB: f64 = 1_048_576.0;

/// Arguments of `boxes`.
#[derive(Debug, Clone, Args)]
pub struct Boxes {
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// Changes to the private homes.
#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Remove private homes that no configured server uses
    Remove(Remove),
}

/// Arguments of `boxes remove`.
#[derive(Debug, Clone, Args)]
pub struct Remove {
    /// Server whose homes to remove, or the id of a home
    #[arg(value_name = "NAME", required_unless_present = "unused")]
    pub names: Vec<String>,
    /// Remove all homes that no server can get any more
    #[arg(long, conflicts_with = "names")]
    pub unused: bool,
}

pub(super) fn boxes(session: &Session, arguments: &Boxes) -> Result<Exit, CliError> {
    let gateway = session.open()?;
    let Some(Action::Remove(remove)) = &arguments.action else {
        let homes = gateway.private_homes()?;
        if session.json() {
            session.terminal.print_json(&json!(homes));
        } else {
            session.terminal.print(&list_text(session, &homes));
        }
        return Ok(Exit::Done);
    };
    let which = if remove.unused { HomesToRemove::Unused } else { HomesToRemove::Named(remove.names.clone()) };
    let outcome = gateway.remove_private_homes(&which).map_err(|error| told(session, error))?;
    if session.json() {
        session.terminal.print_json(&json!(outcome));
    } else {
        session.terminal.print(&removed_text(session, &outcome));
    }
    Ok(if outcome.kept.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Converts an error so that its advice names a command.
fn told(session: &Session, error: Error) -> CliError {
    match error {
        Error::InvalidOption { problem, .. } => {
            CliError::Message(USAGE, format!("{}; to list all: {}", problem.as_str(), session.next_command.with("boxes")))
        }
        other => other.into(),
    }
}

fn list_text(session: &Session, homes: &[PrivateHome]) -> String {
    if homes.is_empty() {
        return "no server has a private home\n".to_owned();
    }
    let row = |home: &PrivateHome| vec![name_of(home), home.id.clone(), size_of(home), start_of(home), use_of(home).to_owned()];
    let mut text = session.terminal.out.table(&["server", "id", "size", "last start (UTC)", "used by"], homes.iter().map(row).collect());
    if homes.iter().any(|home| home.used == HomeUse::Unused) {
        text.extend(["\nto remove the homes that no server uses: ", &session.next_command.with("boxes remove --unused"), "\n"]);
    }
    text
}

fn removed_text(session: &Session, RemovedHomes { removed, kept }: &RemovedHomes) -> String {
    let mut text = String::new();
    for home in removed {
        text.extend(["removed ", &name_of(home), " ", &home.id, ": ", &size_of(home), "\n"]);
    }
    for home in kept {
        let remedy = match (&home.server, home.used) {
            (_, HomeUse::Running) => "a server runs in it; end the server first".to_owned(),
            (server, _) => {
                let revoke = session.next_command.with(&format!("revoke {}", server.as_deref().unwrap_or("SERVER")));
                format!("a configured server uses it; to remove it with the approval: {revoke}")
            }
        };
        text.extend(["kept ", &name_of(home), " ", &home.id, ": ", &one_line(&remedy), "\n"]);
    }
    if text.is_empty() { "there is nothing to remove\n".to_owned() } else { text }
}

fn name_of(home: &PrivateHome) -> String {
    home.server.as_deref().map_or_else(|| "(unknown)".to_owned(), one_line)
}

fn use_of(home: &PrivateHome) -> &'static str {
    match home.used {
        HomeUse::Running => "a running server",
        HomeUse::Configured => "a configured server",
        HomeUse::Approved => "an approved server that is not in this config, or was changed",
        HomeUse::Unused => "no server",
    }
}

#[expect(clippy::cast_precision_loss, reason = "the number is rounded to a tenth of a MiB")]
fn size_of(home: &PrivateHome) -> String {
    let at_least = if home.is_complete { "" } else { "at least " };
    format!("{at_least}{:.1} MiB", home.bytes as f64 / MIB)
}

fn start_of(home: &PrivateHome) -> String {
    home.last_used_ms.map_or_else(|| "unknown".to_owned(), date_time)
}
