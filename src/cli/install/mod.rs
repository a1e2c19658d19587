//! The command `install`: replaces the servers in a host's config with one entry that starts `hyperlight-mcp serve`. The replaced servers
//! are moved into the config of hyperlight-mcp. Approves nothing.

mod hosts;
mod install_record;
mod other_configs;
mod ours;
mod shown;
mod undo;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::args::{Install, Program, Scope};
use super::config_lock::lock_configs;
use super::edit::{self, Piece, RemovedServer, Shape};
use super::error::{CliError, FILE};
use super::import::{self, Plan, Skipped, converted, edited, plan_named, warn_of_readers};
use super::session::Session;
use super::{Exit, files};
use crate::command::{Tone, one_line, quoted};
use crate::config::{inputs_in, inputs_of_entry, servers_of, starts_gateway};
use crate::files::{replace_kept, target_in_project, target_of_user};

use hosts::{HostFile, NAME, NoFile, ServeOptions};
use install_record::InstallRecord;

const USER_MODE: u32 = 0o600;
/// The mode of a new config in a project. Everybody who works on the project uses this file, so others may read it.
const PROJECT_MODE: u32 = 0o644;

pub(super) fn install(session: &Session, arguments: &Install) -> Result<Exit, CliError> {
    let target_config = TargetConfig::of(session, arguments)?;
    if arguments.undo { undo::undo(session, arguments, &target_config) } else { take_over(session, arguments, &target_config) }
}

/// The host's config file and its text, and the paths of our own files.
struct TargetConfig {
    host: HostFile,
    /// The path of the real file, if the path that the host uses is a symbolic link.
    target: PathBuf,
    text: Option<String>,
    state: PathBuf,
    /// The config of hyperlight-mcp.
    config: PathBuf,
}

impl TargetConfig {
    fn of(session: &Session, arguments: &Install) -> Result<Self, CliError> {
        let (program, scope) = (arguments.program, arguments.scope);
        let workspace = std::env::current_dir().map_err(|error| CliError::Message(FILE, format!("this folder cannot be read: {error}")))?;
        let no_home = || CliError::Message(FILE, "there is no home folder: set HOME to its absolute path".to_owned());
        let environment = &session.context.environment;
        let host = hosts::host_file(program, scope, environment, &workspace, Path::is_dir).map_err(|problem| match problem {
            NoFile::NoProjectScope => {
                CliError::Usage(format!("{} has no config for a project: leave out --scope project", program.title()))
            }
            NoFile::NoHome => no_home(),
        })?;
        let options = session.options();
        if !environment.get("HOME").is_some_and(|home| Path::new(home).is_absolute())
            && (options.config_path.is_none() || options.state_dir.is_none())
        {
            return Err(no_home());
        }
        let state = absolute(options.state_folder());
        let config = absolute(options.config_path.clone().unwrap_or_else(|| options.default_config()));
        let target = match &host.project {
            Some(project) => target_in_project(&host.path, project),
            None => target_of_user(&host.path),
        };
        let target = target.map_err(|problem| not_changed(&host, &problem.to_string()))?;
        let text = files::read_config(&target)
            .map_err(|problem| CliError::Message(FILE, format!("{} cannot be read: {problem}", host.path.display())))?;
        Ok(Self { host, target, text, state, config })
    }

    /// Text of the file. Empty if there is no file.
    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Returns the content of the file.
    fn parsed(&self) -> Result<Json, CliError> {
        edit::parsed(self.host.shape, self.text()).map_err(|problem| self.unusable(&problem))
    }

    fn servers(&self) -> Result<Map<String, Json>, CliError> {
        edit::servers(self.host.shape, self.text()).map_err(|problem| self.unusable(&problem))
    }

    fn unusable(&self, problem: &edit::Problem) -> CliError {
        let format = if self.host.shape == Shape::Toml { "TOML" } else { "JSON" };
        match problem {
            edit::Problem::Syntax { .. } => not_changed(&self.host, &format!("it is not valid {format}: {problem}")),
            edit::Problem::Shape(_) => not_changed(&self.host, &problem.to_string()),
        }
    }

    fn record(&self) -> Result<Option<InstallRecord>, CliError> {
        install_record::read(&self.state, &self.target).map_err(|problem| not_changed(&self.host, &problem.to_string()))
    }

    /// Fails if somebody has changed the file since this program read it.
    fn check_unchanged(&self) -> Result<(), CliError> {
        if files::read_config(&self.target).is_ok_and(|text| text == self.text) {
            return Ok(());
        }
        Err(not_changed(&self.host, &format!("another program has changed it just now: close {} and try again", self.host.program.title())))
    }

    /// Runs `work` while no other process of hyperlight-mcp changes a host's config or the config of hyperlight-mcp.
    fn locked<T>(&self, work: impl FnOnce() -> Result<T, CliError>) -> Result<T, CliError> {
        let failed = |problem: std::io::Error| not_changed(&self.host, &format!("{}: {problem}", self.state.display()));
        let lock = lock_configs(&self.state).map_err(failed)?;
        self.check_unchanged()?;
        let done = work();
        drop(lock);
        done
    }
}

/// Returns the absolute path of a file that may not exist yet. If the last part is a symbolic link, it is not resolved, because a person
/// may change it.
fn absolute(path: PathBuf) -> PathBuf {
    let path = std::path::absolute(&path).unwrap_or(path);
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path,
    }
}

fn not_changed(host: &HostFile, problem: &str) -> CliError {
    CliError::Message(FILE, one_line(&format!("{} was not changed: {problem}", host.path.display())))
}

/// Returns the command that writes the change, or reverses it.
fn command(session: &Session, host: &HostFile, options: &str) -> String {
    let scope = if host.scope == Scope::Project { " --scope project" } else { "" };
    session.next_command.with(&format!("install {}{scope}{options}", host.program.word()))
}

/// Changes that an installation makes.
#[derive(PartialEq)]
struct Change {
    /// The servers that are added to the config of hyperlight-mcp.
    plan: Plan,
    /// Name of our entry, and the entry.
    name: String,
    entry: Json,
    /// True if the host's config already contained our entry.
    was_there: bool,
    /// The names of the servers that are removed from the host's config, each with its name in the config of hyperlight-mcp.
    moved: Vec<(String, String)>,
    /// The new text of the host's config.
    text: String,
    /// The names of the variables that the config of hyperlight-mcp uses after the change.
    used_variables: BTreeSet<String>,
}

/// Moves the servers of the host into the config of hyperlight-mcp, and inserts our entry in their place.
fn take_over(session: &Session, arguments: &Install, target_config: &TargetConfig) -> Result<Exit, CliError> {
    let config = &target_config.config;
    let entry = entry(session, arguments, target_config)?;
    let change = planned(arguments, target_config, &import::text_of(config)?, &entry)?;
    let changes = change.text != target_config.text();
    if !session.json() {
        show(session, target_config, &change, changes)?;
    }
    let written = changes && arguments.write;
    if written {
        target_config.locked(|| {
            // Somebody may have changed the config since it was read.
            let text = import::text_of(config)?;
            if planned(arguments, target_config, &text, &entry)? != change {
                let problem = format!("{}{}", import::CHANGED_MEANWHILE, "install again");
                return Err(CliError::Message(FILE, one_line(&format!("{} was not changed: {problem}", config.display()))));
            }
            write(target_config, &change, &text)
        })?;
        warn_of_readers(session, &change.plan, config);
    }
    tell(session, target_config, &change, (changes, written), arguments.servers.as_deref());
    Ok(Exit::Done)
}

/// Computes the changes without writing anything. `config_text` is the config of hyperlight-mcp, and `new` the entry that starts it.
fn planned(arguments: &Install, target_config: &TargetConfig, config_text: &str, new: &Json) -> Result<Change, CliError> {
    let existing = &import::existing(&target_config.config, config_text)?;
    let host = &target_config.host;
    let root = target_config.parsed()?;
    let servers = target_config.servers()?;
    let inputs = inputs_in(&root);
    let ours = servers.iter().find(|(_, entry)| starts_gateway(entry));
    let (names, found): (Vec<&String>, Vec<_>) = servers
        .iter()
        .filter(|(name, _)| ours.is_none_or(|(ours, _)| ours != *name))
        .map(|(name, entry)| (name, converted(host.program, name, entry)))
        .filter(|(_, found)| asked_inputs(&found.entry, &inputs).is_empty())
        .unzip();
    let from = format!("{} ({})", host.program.title(), host.path.display());
    let (mut plan, new_names) = plan_named(existing, vec![(from.clone(), found, inputs.clone())]);
    plan.skipped.extend(asking(host, &servers, &inputs, &from));
    let moved: Vec<(String, String)> = names.into_iter().zip(new_names).filter_map(|(name, new)| Some((name.clone(), new?))).collect();
    check_servers(arguments, existing, &plan)?;
    let left = |name: &str| servers.contains_key(name) && !moved.iter().any(|(moved, _)| moved == name);
    let numbered = |number: usize| if number == 1 { NAME.to_owned() } else { format!("{NAME}-{number}") };
    // One more name is tried than there are servers, so one of the names is free.
    let free = || (1..=servers.len() + 1).map(numbered).find(|name| !left(name));
    let name = ours.map(|(name, _)| name.clone()).or_else(free).unwrap_or_default();
    let (was_there, entry) = match ours {
        // A person may have added keys to our entry, such as a timeout. These keys are kept.
        Some((_, old)) => (true, ours::merged(old, new)),
        None => (false, new.clone()),
    };
    let is_same = ours.is_some_and(|(_, old)| *old == entry);
    let mut remove: Vec<String> = moved.iter().map(|(name, _)| name.clone()).collect();
    if was_there && !is_same {
        remove.push(name.clone());
    }
    let insert = if is_same { Vec::new() } else { vec![Piece::Entry { name: name.clone(), entry: entry.clone() }] };
    let text = if remove.is_empty() && insert.is_empty() {
        target_config.text().to_owned()
    } else {
        edit::replaced(host.shape, target_config.text(), &remove, &insert).map_err(|problem| target_config.unusable(&problem))?
    };
    let added = plan.additions.iter().flat_map(|addition| ours::variables_in(&addition.entry));
    let used_variables = ours::variables_in(existing).into_iter().chain(added).collect();
    Ok(Change { plan, name, entry, was_there, moved, text, used_variables })
}

/// Returns the inputs of an entry for which its host asks a person, because they have no default.
fn asked_inputs(entry: &Json, inputs: &[Json]) -> Vec<String> {
    let has_default = |id: &String| inputs.iter().any(|input| input["id"] == id.as_str() && input["default"].is_string());
    inputs_of_entry(entry).into_iter().filter(|id| !has_default(id)).collect()
}

/// Returns the servers that stay in the host's config because a person must type a value when they start. The host can ask for it; `serve`
/// cannot, because the host uses its standard input and output.
fn asking(host: &HostFile, servers: &Map<String, Json>, inputs: &[Json], from: &str) -> Vec<Skipped> {
    let asking = servers.iter().filter_map(|(name, entry)| {
        let found = converted(host.program, name, entry);
        let asked = asked_inputs(&found.entry, inputs);
        let first = asked.first().map(|id| one_line(id))?;
        let why = format!(
            "it asks for \"{first}\" when it starts, which serve cannot ask for. To move it, write a variable (${{NAME}}) or envFile in place of ${{input:{first}}}"
        );
        Some(Skipped { name: found.name, from: from.to_owned(), why })
    });
    asking.collect()
}

/// Fails if `--servers` names a server that is not in the config.
fn check_servers(arguments: &Install, existing: &Json, plan: &Plan) -> Result<(), CliError> {
    let known =
        |name: &str| plan.additions.iter().any(|addition| addition.name == name) || servers_of(existing).any(|(_, known, _)| known == name);
    match arguments.servers.iter().flatten().find(|name| !known(name)) {
        Some(name) => Err(CliError::Usage(format!("--servers names \"{}\", which is not in the config", one_line(name)))),
        None => Ok(()),
    }
}

/// Returns the entry that starts this copy of hyperlight-mcp.
fn entry(session: &Session, arguments: &Install, target_config: &TargetConfig) -> Result<Json, CliError> {
    let host = &target_config.host;
    let launch = session.context.launch.as_ref();
    let launch = launch.ok_or_else(|| not_changed(host, "the path of hyperlight-mcp is not known: start it with npx or node"))?;
    let npx = hosts::npx_paths(launch, &session.context.environment).into_iter().find(|path| path.is_file());
    if hosts::is_in_npx_cache(&launch.script) && npx.is_none() {
        let text = "npm may remove this copy of hyperlight-mcp, as npx downloaded it for one command: install it with npm install -g hyperlight-mcp, then repeat this command";
        session.terminal.note(Tone::Warning, "warning:", text);
    }
    let given = session.options();
    let options = ServeOptions {
        config: given.config_path.as_ref().map(|_| target_config.config.as_path()),
        state: given.state_dir.as_ref().map(|_| target_config.state.as_path()),
        servers: arguments.servers.as_deref(),
        agent: arguments.agent.as_deref(),
    };
    Ok(hosts::entry(host.program, launch, npx.as_deref(), &options))
}

/// Writes our config first, then the facts for an undo, and the host's config last. So nothing is lost if the writing is interrupted.
fn write(target_config: &TargetConfig, change: &Change, config_text: &str) -> Result<(), CliError> {
    let host = &target_config.host;
    let failed = |problem: std::io::Error| not_changed(host, &problem.to_string());
    check_writable(target_config).map_err(failed)?;
    if !change.plan.additions.is_empty() {
        let config = target_config.config.display();
        let new =
            edited(config_text, &change.plan).map_err(|problem| CliError::Message(FILE, format!("{config} was not changed: {problem}")))?;
        files::write(&target_config.config, &new, USER_MODE)?;
    }
    let folder = target_config.target.parent().unwrap_or(Path::new("/"));
    let made_folder = !folder.is_dir();
    install_record::write(&target_config.state, &record_of(target_config, change, made_folder)?).map_err(failed)?;
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mode = if host.scope == Scope::User { USER_MODE } else { PROJECT_MODE };
    replace_kept(&target_config.target, change.text.as_bytes(), mode).map_err(failed)
}

/// Fails if the file is read-only. This is checked before anything is written.
fn check_writable(target_config: &TargetConfig) -> std::io::Result<()> {
    let is_read_only = std::fs::metadata(&target_config.target).is_ok_and(|file| file.permissions().readonly());
    if is_read_only { Err(std::io::Error::other("it is read-only")) } else { Ok(()) }
}

/// Returns the facts that are needed to undo this installation and all earlier ones.
fn record_of(target_config: &TargetConfig, change: &Change, made_folder: bool) -> Result<InstallRecord, CliError> {
    let shape = target_config.host.shape;
    let unusable = |problem: edit::Problem| target_config.unusable(&problem);
    let previous = target_config.record()?.filter(|_| change.was_there);
    let moved: Vec<String> = change.moved.iter().map(|(name, _)| name.clone()).collect();
    let Some(previous) = previous else {
        // If there are no facts, somebody has written our entry by hand, so the undo restores that entry as well.
        let mut names = moved;
        names.extend(change.was_there.then(|| change.name.clone()));
        let taken = edit::sources(shape, target_config.text(), &names).map_err(unusable)?;
        return Ok(InstallRecord::new(
            &target_config.target,
            target_config.text.as_deref(),
            &change.text,
            &change.name,
            taken,
            made_folder,
        ));
    };
    let before = previous.before().map_err(|problem| not_changed(&target_config.host, &problem.to_string()))?;
    let undone = edit::undone(shape, target_config.text(), &previous.done(&before)).map_err(unusable)?;
    let existed = previous.existed || !undone.exact;
    let mut taken: Vec<RemovedServer> = previous.taken;
    taken.retain(|taken| !moved.contains(&taken.name));
    taken.extend(edit::sources(shape, target_config.text(), &moved).map_err(unusable)?);
    let text = existed.then_some(undone.text.as_str());
    Ok(InstallRecord::new(&target_config.target, text, &change.text, &change.name, taken, previous.made_folder))
}

fn show(session: &Session, target_config: &TargetConfig, change: &Change, changes: bool) -> Result<(), CliError> {
    let style = session.terminal.out;
    for addition in &change.plan.additions {
        session.terminal.print(&import::shown(addition, &change.plan.inputs, &style));
    }
    for (name, why) in stays(target_config, change)? {
        let text = format!("{} stays in {}: {why}", quoted(&name), target_config.host.path.display());
        session.terminal.print(&style.marked("", &one_line(&text)));
    }
    for (file, names) in other_configs::servers(session, target_config) {
        let text = format!(
            "{} also starts servers from {file} itself, without hyperlight-mcp: {}",
            target_config.host.program.title(),
            names.join(", ")
        );
        session.terminal.print(&style.marked("", &one_line(&text)));
    }
    if changes {
        let after = edit::servers(target_config.host.shape, &change.text).map_err(|problem| target_config.unusable(&problem))?;
        session.terminal.print(&shown::difference(&target_config.host, &target_config.servers()?, &after, &session.terminal.unbroken()));
    }
    Ok(())
}

/// Returns the servers that stay in the host's config, each with the reason.
fn stays(target_config: &TargetConfig, change: &Change) -> Result<Vec<(String, String)>, CliError> {
    let servers = target_config.servers()?;
    let stays = servers.keys().filter(|name| **name != change.name && !change.moved.iter().any(|(moved, _)| moved == *name));
    let why = |name: &str| {
        let shown = converted(target_config.host.program, name, &servers[name]).name;
        let skipped = change.plan.skipped.iter().find(|skipped| skipped.name == shown);
        skipped.map_or_else(|| "it cannot be used".to_owned(), |skipped| skipped.why.clone())
    };
    Ok(stays.map(|name| (name.clone(), why(name))).collect())
}

fn tell(session: &Session, target_config: &TargetConfig, change: &Change, (changes, written): (bool, bool), servers: Option<&[String]>) {
    let (host, plan) = (&target_config.host, &change.plan);
    let (file, config) = (host.path.display().to_string(), target_config.config.display().to_string());
    let to_check = if change.was_there { ours::to_check(&change.entry, &change.used_variables) } else { Vec::new() };
    if session.json() {
        let moved: Vec<Json> = change.moved.iter().map(|(name, new)| json!({ "name": name, "as": new })).collect();
        let stays: Vec<Json> =
            stays(target_config, change).unwrap_or_default().into_iter().map(|(name, why)| json!({ "name": name, "why": why })).collect();
        let other_configs: Vec<Json> = other_configs::servers(session, target_config)
            .into_iter()
            .map(|(file, servers)| json!({ "file": file, "servers": servers }))
            .collect();
        let document = json!({
            "program": host.program.word(), "scope": host.scope.word(), "file": file, "config": config, "changes": changes, "written": written,
            "name": change.name, "entry": shown_entry(host.program, change), "check": to_check, "moved": moved, "stays": stays, "elsewhere": other_configs,
            "additions": plan.shown_additions(), "inputs": plan.shown_inputs(),
        });
        return session.terminal.print_json(&document);
    }
    let title = host.program.title();
    for problem in &to_check {
        let text = format!("the entry \"{}\" in {file}: {problem}", change.name);
        session.terminal.note(Tone::Warning, "warning:", &one_line(&text));
    }
    let text = if !changes && to_check.is_empty() {
        format!("nothing to change: {title} already starts hyperlight-mcp serve\n")
    } else if !changes {
        format!("nothing was changed. What {title} starts depends on the parts of the entry that the warnings name\n")
    } else if written {
        let approve = session.next_command.with("approve");
        let undo = command(session, host, " --undo --write");
        format!("written into {file} and {config}. Approve the servers: {approve}\nthen start {title} again. To take this back: {undo}\n")
    } else {
        let servers = servers.map(|servers| format!(" --servers {}", servers.join(","))).unwrap_or_default();
        format!("nothing was written. To write this into {file} and {config}: {}\n", command(session, host, &format!("{servers} --write")))
    };
    session.terminal.print(&text);
}

/// Returns our entry for printing. Only keys that a person has added can be secret.
fn shown_entry(program: Program, change: &Change) -> Json {
    if change.was_there { shown::masked(program, &change.name, &change.entry) } else { change.entry.clone() }
}

#[cfg(test)]
mod tests;
