//! The commands `add`, `set`, `unset`, `remove` and `enable`, with which a person changes their own config. The comments and the format of
//! the config are kept. Only `enable` can approve a server, and only if the person accepts the request.

pub(super) mod args;
mod change;

use std::path::PathBuf;

use serde_json::json;

use self::change::{Change, Changed};
use super::approve::review_one;
use super::config_lock::lock_configs;
use super::error::{CliError, FILE};
use super::import::READ_ONLY;
use super::session::Session;
use super::{Exit, files};
use crate::command::{Tone, one_line};
use crate::config::{ServerSource, SourceKind, inputs_in, is_yaml};
use crate::error::Error;
use crate::files::{replace_kept, target_of_user};
use crate::gateway::Gateway;
use args::{Add, Set, Unset};

const NEW_MODE: u32 = 0o600;

pub(super) fn add(session: &Session, arguments: &Add) -> Result<Exit, CliError> {
    let changed = written(session, Change::Add(arguments))?;
    record(session)?;
    tell(session, &arguments.name, &changed);
    Ok(Exit::Done)
}

pub(super) fn set(session: &Session, arguments: &Set) -> Result<Exit, CliError> {
    let changed = written(session, Change::Set(arguments))?;
    record(session)?;
    tell(session, &arguments.name, &changed);
    Ok(Exit::Done)
}

pub(super) fn unset(session: &Session, arguments: &Unset) -> Result<Exit, CliError> {
    let changed = written(session, Change::Unset(arguments))?;
    record(session)?;
    tell(session, &arguments.name, &changed);
    Ok(Exit::Done)
}

/// Removes a server from the config and revokes its approval, so that a later server with this name inherits nothing.
pub(super) async fn remove(session: &Session, name: &str) -> Result<Exit, CliError> {
    let gateway = session.open()?;
    if gateway.is_added(name) {
        gateway.remove_server(name).await?;
        if session.json() {
            session.terminal.print_json(&json!({ "config": null, "server": name, "written": true, "entry": null }));
        } else {
            session.terminal.print(&format!("{name}, which an agent had added, is removed\n"));
        }
        return Ok(Exit::Done);
    }
    let file = ConfigFile::of(session)?;
    // The change is tried first. If the config cannot be changed, nothing is revoked.
    file.changed(Change::Remove(name))?;
    gateway.revoke(name).await?;
    written(session, Change::Remove(name))?;
    record_with(session, &gateway, &file.path);
    let config = file.path.display().to_string();
    if session.json() {
        session.terminal.print_json(&json!({ "config": config, "server": name, "written": true, "entry": null }));
    } else {
        session.terminal.print(&one_line(&format!("{name} is removed from {config}, and its approval is revoked")));
        session.terminal.print("\n");
    }
    Ok(Exit::Done)
}

/// Removes `disabled` from a server's entry. Then asks the person for the approval that the server needs.
pub(super) async fn enable(session: &Session, name: &str) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open()?;
    if is_disabled(&gateway, name)? {
        written(session, Change::Enable(name))?;
        gateway.reload().await?;
    }
    review_one(session, &gateway, name).await
}

/// Adds names of tools to `reads` of a server's entry. Returns the path of the config.
pub(super) fn add_reads(session: &Session, name: &str, tools: &[String]) -> Result<PathBuf, CliError> {
    written(session, Change::Reads(name, tools))?;
    Ok(ConfigFile::of(session)?.path)
}

/// Adds hosts to the box of a server. Returns the path of the config.
pub(super) fn add_hosts(session: &Session, name: &str, hosts: &[String]) -> Result<PathBuf, CliError> {
    written(session, Change::Hosts(name, hosts))?;
    Ok(ConfigFile::of(session)?.path)
}

/// Returns whether the entry of a server is in the operator's config, where a command of the person can change it.
pub(super) fn is_own(source: &ServerSource) -> bool {
    source.kind == SourceKind::Config && source.name.is_none()
}

/// Returns the reason why a command cannot write into the entry of a server, as a sentence that says where a person can write. `None` if a
/// command can write there.
pub(super) fn not_writable(session: &Session, source: &ServerSource) -> Option<String> {
    let options = session.options();
    let path = options.config_path.clone().unwrap_or_else(|| options.default_config()).display().to_string();
    if !is_own(source) {
        return Some(format!("Its entry is in {source}, which this command does not change. Copy the entry into {path}, with this line"));
    }
    is_yaml(&path).then(|| format!("To change that, write this line into its entry in {path}, which is not changed as it is YAML"))
}

/// Returns whether the config contains `disabled: true` for a server.
fn is_disabled(gateway: &Gateway, name: &str) -> Result<bool, CliError> {
    let status = gateway.server_info(name)?.status;
    Ok(status.state == crate::registry::ServerState::Disabled && is_own(&status.source))
}

/// The operator's config.
struct ConfigFile {
    path: PathBuf,
    /// The path of the real file, if `path` is a symbolic link.
    target: PathBuf,
    text: Option<String>,
}

impl ConfigFile {
    fn of(session: &Session) -> Result<Self, CliError> {
        let options = session.options();
        let path = options.config_path.clone().unwrap_or_else(|| options.default_config());
        let failed = |problem: String| not_changed(&path, &problem);
        let target = target_of_user(&path).map_err(|problem| failed(problem.to_string()))?;
        let text = files::read_config(&target).map_err(failed)?;
        Ok(Self { path, target, text })
    }

    fn changed(&self, change: Change<'_>) -> Result<Changed, CliError> {
        let file = self.path.display().to_string();
        if is_yaml(&file) {
            return Err(CliError::Message(FILE, one_line(&format!("{file} {READ_ONLY}"))));
        }
        let text = self.text.as_deref().unwrap_or_default();
        let changed = change.made(text, &file);
        changed.map_err(|problem| not_changed(&self.path, &problem))
    }
}

fn not_changed(path: &std::path::Path, problem: &str) -> CliError {
    CliError::Message(FILE, one_line(&format!("{} was not changed: {problem}", path.display())))
}

/// Makes a change of the config and writes the whole file or nothing. A lock ensures that no other command changes the config at the same
/// time.
fn written(session: &Session, change: Change<'_>) -> Result<Changed, CliError> {
    let path = ConfigFile::of(session)?.path;
    let failed = |problem: std::io::Error| not_changed(&path, &problem.to_string());
    let lock = lock_configs(&session.options().state_folder()).map_err(failed)?;
    let file = ConfigFile::of(session)?;
    let changed = file.changed(change)?;
    if file.text.as_ref() != Some(&changed.text) {
        if let Some(folder) = file.target.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        replace_kept(&file.target, changed.text.as_bytes(), NEW_MODE).map_err(failed)?;
    }
    drop(lock);
    Ok(changed)
}

/// Records the change of the config in the audit.
fn record(session: &Session) -> Result<(), CliError> {
    let path = ConfigFile::of(session)?.path;
    // A gateway without the config's servers is enough to write the audit, and runs no code of providers.
    match session.open_state() {
        Ok(gateway) => record_with(session, &gateway, &path),
        Err(error) => not_recorded(session, &error),
    }
    Ok(())
}

fn record_with(session: &Session, gateway: &Gateway, path: &std::path::Path) {
    if let Err(error) = gateway.record_config_file(path) {
        not_recorded(session, &error);
    }
}

/// Warns that the audit lacks a change. The change itself is made.
fn not_recorded(session: &Session, error: &Error) {
    session.terminal.note(Tone::Warning, "warning:", &format!("the change was made, but it could not be recorded in the audit: {error}"));
}

/// Prints the change that was written, and suggests the next command.
fn tell(session: &Session, name: &str, changed: &Changed) {
    let options = session.options();
    let config = options.config_path.clone().unwrap_or_else(|| options.default_config()).display().to_string();
    let Some(entry) = &changed.entry else { return };
    let addition = change::shown(name, &config, entry.clone());
    let next = session.next_command.with(&format!("approve {name}"));
    if session.json() {
        let document = json!({ "config": config, "server": name, "written": true, "entry": addition.shown_entry(),
            "loaders": addition.loaders, "hiddenInCode": addition.hidden_in_code, "redirectors": addition.redirectors, "secrets": addition.secrets, "warnings": changed.warnings, "next": next });
        return session.terminal.print_json(&document);
    }
    let inputs = crate::cli::import::parsed(&changed.text).map(|root| inputs_in(&root)).unwrap_or_default();
    session.terminal.print(&crate::cli::import::shown(&addition, &inputs, &session.terminal.out));
    for warning in &changed.warnings {
        session.terminal.note(Tone::Warning, "warning:", &one_line(warning));
    }
    crate::cli::import::warn_of_readers(
        session,
        &crate::cli::import::Plan { additions: vec![addition], ..Default::default() },
        config.as_ref(),
    );
    session.terminal.print(&format!("written into {}. To read what would run, and approve it: {next}\n", one_line(&config)));
}
