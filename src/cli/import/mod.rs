//! The command `import`: shows the servers of other programs, then writes them into the config of hyperlight-mcp. Approves nothing.

mod found;
mod masked;
mod plan;
mod words;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::args::Import;
use super::config_lock::lock_configs;
use super::error::{CliError, FILE};
use super::session::Session;
use super::{Exit, files};
use crate::command::{Style, Tone, bordered, one_line, quoted};
use crate::config::{ServerDefinition, Transport, config_paths, is_yaml};
use crate::text::has_invisible;
use crate::trust::{HIDDEN_IN_CODE, METADATA_FIELD, address_of, addresses_of, input_lines, oauth_lines, shown_header, shown_variable_of};
use masked::{shown_url, words_of};
use plan::{Read, plan, snippet};

pub(super) use found::converted;
pub use found::{FoundServer, Secret, found_in};
pub(super) use plan::{Addition, Plan, Skipped, edited, found_entry, plan_named, readable, shown_found};
pub(super) use words::shown_text;

/// The reason why no command changes a config in YAML: it would lose comments and layout.
pub(super) const READ_ONLY: &str =
    "is YAML, which is read, but not changed by commands: change it by hand, or name a JSON file with --config";

/// The reason why a change is not written. The command follows that would show it as it is now.
pub(super) const CHANGED_MEANWHILE: &str =
    "somebody has changed it meanwhile, so that this would write something else than was shown; run ";

pub(super) async fn import(session: &Session, arguments: &Import) -> Result<Exit, CliError> {
    let Sources { read, looked, unreadable } = read_all(session, arguments)?;
    let path = session.options().config_path.unwrap_or_else(|| session.options().default_config());
    let plan = plan(&existing(&path, &text_of(&path)?)?, read.clone());
    if !session.json() {
        show(session, &plan, &looked);
    }
    let mut written = false;
    if !plan.additions.is_empty() && wanted(session, arguments, &path).await {
        write(session, &path, &plan, read)?;
        written = true;
        warn_of_readers(session, &plan, &path);
    }
    tell(session, &plan, &unreadable, &path, written);
    Ok(Exit::Done)
}

/// Reads the config of hyperlight-mcp. Returns an empty text if there is no file.
pub(super) fn text_of(path: &Path) -> Result<String, CliError> {
    let text = files::read_config(path);
    let text = text.map_err(|problem| CliError::Message(FILE, format!("the config {} cannot be read: {problem}", path.display())))?;
    Ok(text.unwrap_or_default())
}

/// Writes the plan into the config as it is now, because somebody may have changed the config while the question was open.
///
/// # Errors
/// An error, and nothing is written, if the servers or their names would now be others than those that were shown.
fn write(session: &Session, path: &Path, shown: &Plan, read: Vec<Read>) -> Result<(), CliError> {
    let failed = |problem: String| CliError::Message(FILE, one_line(&format!("{} was not changed: {problem}", path.display())));
    let lock = lock_configs(&session.options().state_folder()).map_err(|problem| failed(problem.to_string()))?;
    let text = text_of(path)?;
    if plan(&existing(path, &text)?, read) != *shown {
        return Err(failed(CHANGED_MEANWHILE.to_owned() + "import again"));
    }
    let new = edited(&text, shown).map_err(failed)?;
    files::write(path, &new, 0o600)?;
    drop(lock);
    Ok(())
}

/// Parses the config of hyperlight-mcp.
pub(super) fn parsed(text: &str) -> Result<Json, String> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default()).map_err(|error| error.to_string())
}

/// Parses the config of hyperlight-mcp for a command that changes it.
pub(super) fn existing(path: &Path, text: &str) -> Result<Json, CliError> {
    if is_yaml(&path.display().to_string()) {
        return Err(CliError::Message(FILE, format!("{} {READ_ONLY}", path.display())));
    }
    parsed(text).map_err(|problem| CliError::Message("ERR_CONFIG_SYNTAX", format!("the config {} is not JSON: {problem}", path.display())))
}

/// Returns whether to write the config: true with `--write`, or if the person agrees.
async fn wanted(session: &Session, arguments: &Import, path: &Path) -> bool {
    arguments.write || (session.can_ask() && session.terminal.confirm(&format!("Write this into {}?", path.display())).await)
}

/// Contents of the configs of other programs.
#[derive(Default)]
struct Sources {
    read: Vec<Read>,
    /// The config files that exist.
    looked: Vec<PathBuf>,
    /// The config files that exist but cannot be read, each with the reason.
    unreadable: Vec<Unreadable>,
}

/// A file that exists but cannot be read.
#[derive(Debug, Serialize)]
struct Unreadable {
    from: String,
    why: String,
}

/// Reads the configs of other programs. Skips a file that cannot be read, unless `--from` names it.
fn read_all(session: &Session, arguments: &Import) -> Result<Sources, CliError> {
    let workspace = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let folder = workspace.display().to_string();
    let config_paths = match (&arguments.from, arguments.programs.as_slice()) {
        (Some(path), [program]) => vec![(*program, path.clone())],
        (Some(_), _) => {
            return Err(CliError::Usage("--from reads one program's config: name that program, like import cursor --from FILE".to_owned()));
        }
        (None, programs) => config_paths(programs, &session.context.environment, &workspace),
    };
    let mut sources = Sources::default();
    for (program, path) in config_paths {
        let text = match files::read_config(&path) {
            Ok(Some(text)) => Ok(text),
            Ok(None) if arguments.from.is_some() => return Err(CliError::Message(FILE, format!("there is no file {}", path.display()))),
            Ok(None) => continue,
            Err(problem) if arguments.from.is_some() => {
                return Err(CliError::Message(FILE, format!("{} cannot be read: {problem}", path.display())));
            }
            Err(problem) => Err(problem),
        };
        let from = format!("{} ({})", program.title(), path.display());
        match text.and_then(|text| found_in(program, &text, Some(&folder))) {
            Ok((found, inputs)) => sources.read.push((from, found, inputs)),
            Err(why) => {
                let text = one_line(&format!("{from} cannot be read: {why}"));
                session.terminal.note(Tone::Warning, "warning:", &text);
                sources.unreadable.push(Unreadable { from, why });
            }
        }
        sources.looked.push(path);
    }
    Ok(sources)
}

fn show(session: &Session, plan: &Plan, looked: &[PathBuf]) {
    let style = session.terminal.out;
    if looked.is_empty() {
        session.terminal.print("no config of VS Code, Claude Desktop, Claude Code, Cursor or Codex was found\n");
    } else if plan.additions.is_empty() {
        session.terminal.print("nothing new was found\n");
    }
    for addition in &plan.additions {
        session.terminal.print(&shown(addition, &plan.inputs, &style));
    }
    for skipped in &plan.skipped {
        // The name is any text of another program's config.
        let text = format!("{} from {} is left out: {}", quoted(&skipped.name), skipped.from, skipped.why);
        session.terminal.print(&style.marked("", &one_line(&text)));
    }
}

/// Formats one addition: the command, everything that the server gets, and warnings. Nothing is cut or omitted, because the hidden part
/// could be the one that loads code. Values that may be secret are masked as in an approval request.
pub(super) fn shown(addition: &Addition, inputs: &[Json], style: &Style) -> String {
    let entry = &addition.entry;
    let masked = addition.shown_entry();
    let definition = addition.definition(inputs);
    let what = starts(entry, &masked, definition.as_ref());
    let heading = style.marked("", &one_line(&format!("{} from {}", addition.name, addition.from)));
    let rest = heading.strip_prefix(&addition.name);
    let mut text = rest.map_or_else(|| heading.clone(), |rest| format!("{}{rest}", style.paint(Tone::Heading, &addition.name)));
    let mut line = |tone: Option<Tone>, line: &str| {
        for row in style.marked("  ", &one_line(line)).lines() {
            text.extend([tone.map_or_else(|| row.to_owned(), |tone| style.paint(tone, row)).as_str(), "\n"]);
        }
    };
    line(None, &what);
    for (key, title) in [("cwd", "in the folder"), ("envFile", "with the variables of")] {
        if let Some(value) = masked[key].as_str() {
            line(None, &format!("{title} {}", bordered(value)));
        }
    }
    let (command, arguments) = words_of(entry);
    for (name, value) in entry["env"].as_object().into_iter().flatten() {
        match scalar(value) {
            Some(value) => line(None, &format!("with {}", shown_variable_of(&command, &arguments, name, &value))),
            None => line(None, &format!("without {name}")),
        }
    }
    for (name, value) in entry["headers"].as_object().into_iter().flatten() {
        line(None, &format!("sends {}", shown_header(name, &scalar(value).unwrap_or_default())));
    }
    for setting in definition.as_ref().map(logs_in).unwrap_or_default() {
        line(None, &format!("OAuth {setting}"));
    }
    for default in definition.as_ref().map(input_lines).unwrap_or_default() {
        line(None, &format!("without an answer, the input is {default}"));
    }
    for name in &addition.redirectors {
        line(Some(Tone::Bad), &format!("{name} can send traffic to another machine or weaken its encryption: check its value"));
    }
    for name in &addition.loaders {
        line(Some(Tone::Bad), &format!("{name} can make a program load or run code that the command does not name: check its value"));
    }
    for name in &addition.hidden_in_code {
        line(Some(Tone::Bad), &format!("{name} is named in the code that the arguments run: {HIDDEN_IN_CODE}"));
    }
    for secret in &addition.secrets {
        let advice =
            format!("{} looks like a secret in clear text: put it into a variable, and write {} instead", secret.field, secret.suggestion);
        line(Some(Tone::Warning), &advice);
    }
    for note in &addition.notes {
        line(None, note);
    }
    if has_invisible_text(entry) {
        line(Some(Tone::Bad), "this contains invisible characters, which are shown as numbers");
    }
    text
}

/// Returns whether a string or a key in the JSON contains invisible characters.
fn has_invisible_text(json: &Json) -> bool {
    match json {
        Json::String(text) => has_invisible(text),
        Json::Array(items) => items.iter().any(has_invisible_text),
        Json::Object(fields) => fields.iter().any(|(key, value)| has_invisible(key) || has_invisible_text(value)),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// Describes the program that an entry starts, or the address that it connects to. If an entry has both, its type decides, as when the
/// server is started.
fn starts(entry: &Json, masked: &Json, definition: Option<&ServerDefinition>) -> String {
    let runs = || {
        let arguments = masked["args"].as_array().into_iter().flatten().filter_map(Json::as_str);
        let words: Vec<String> = masked["command"].as_str().into_iter().chain(arguments).map(quoted).collect();
        format!("runs {}", words.join(" "))
    };
    match (definition.map(|definition| &definition.transport), entry["url"].as_str()) {
        (Some(Transport::Http { .. }), Some(url)) => connects(url),
        (Some(Transport::Stdio { .. } | Transport::Generated(_)), _) | (_, None) => runs(),
        (None, Some(url)) if entry["command"].is_null() => connects(url),
        (None, Some(url)) => format!("{}, or {}", runs(), connects(url)),
    }
}

/// Describes the URL of a server and its real host. Does not replace variables.
fn connects(url: &str) -> String {
    let address = address_of(url, None);
    let host = address.unicode_host.map(|host| format!(" (its host in Unicode: {host})")).unwrap_or_default();
    format!("connects to {}{host}", shown_url(url))
}

/// Returns the OAuth settings of a server in the format of an approval request.
fn logs_in(server: &ServerDefinition) -> Vec<String> {
    let Transport::Http { oauth: Some(oauth), .. } = &server.transport else { return Vec::new() };
    let addresses = addresses_of(server, None);
    oauth_lines(oauth, addresses.iter().find(|(field, _)| *field == METADATA_FIELD).map(|(_, address)| address))
}

fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Null => None,
        other => Some(other.to_string()),
    }
}

/// Warns if other users can read secrets in the config. An existing config keeps its permissions.
pub(super) fn warn_of_readers(session: &Session, plan: &Plan, path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode() & 0o777);
    if mode & 0o077 != 0 && plan.additions.iter().any(|addition| !addition.secrets.is_empty()) {
        let file = path.display();
        let text = format!(
            "{file} contains a value that looks like a secret, and other users may read the file (mode {mode:o}): chmod 600 {file}"
        );
        session.terminal.note(Tone::Warning, "warning:", &text);
    }
}

fn tell(session: &Session, plan: &Plan, unreadable: &[Unreadable], path: &Path, written: bool) {
    if session.json() {
        let document = json!({ "config": path.display().to_string(), "written": written, "additions": plan.shown_additions(), "skipped": plan.skipped, "unreadable": unreadable, "inputs": plan.shown_inputs() });
        return session.terminal.print_json(&document);
    }
    if plan.additions.is_empty() {
        return;
    }
    if written {
        session.terminal.print(&format!(
            "written into {}. The new servers are not approved yet: {}\n",
            path.display(),
            session.next_command.with("approve")
        ));
    } else {
        session.terminal.print(&format!(
            "nothing was written. To add this to {}, use --write; or copy it yourself and replace each *** with its value:\n",
            path.display()
        ));
        session.terminal.print_json(&snippet(plan));
    }
}

#[cfg(test)]
mod tests;
