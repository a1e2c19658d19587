//! The command `run`: runs a script in a micro-VM. Prints the returned value on standard output, and everything else on standard error.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::args::Run;
use super::error::{CliError, WORD, told_at};
use super::resolve::{show_for_run, task_of};
use super::session::{Opening, Session, hosts_of, name_in_code};
use super::terminal::Terminal;
use super::{Exit, files};
use crate::bridge::{ToolErrors, inexact};

use crate::command::{Tone, columns_in, printable};
use crate::error::Error;
use crate::gateway::{Agent, Gateway, REQUEST_METHODS, RunFetch, RunOptions, RunReport, Sandbox};
use crate::limits::LimitChanges;
use crate::redact::Redactor;
use crate::registry::ServerStatus;
use crate::sandbox::{LogEntry, Stop, Value};
use crate::text::json::inexact_integer;
use crate::text::{NextCommand, sanitise_text};
use crate::trust::AllowedWrites;

const MAX_LOG_CHARS: usize = 256 * 1024;
/// Maximum length of a line of code in an error message, in characters.
const MAX_LINE_CHARS: usize = 160;

pub(super) async fn run(session: &Session, arguments: &Run) -> Result<Exit, CliError> {
    let code = files::read_until(&arguments.file, &session.stop).await?;
    let input = read_input(&arguments.input, &session.stop).await?;
    let allowed = AllowedWrites::read(&arguments.allow_writes);
    let needs = |server: &str| imports(&code, server);
    let (fetch, private_hosts) = (hosts_of("--fetch", &arguments.fetch)?, hosts_of("--private-hosts", &arguments.private_hosts)?);
    let changes = Opening { allowed: allowed.clone(), private_hosts, limits: limits_of(arguments)? };
    let servers = arguments.servers.as_deref();
    if arguments.resolve_only {
        let gateway = session.open_to_resolve(servers, changes, &arguments.as_agent)?;
        check_allowed(session, &gateway, &allowed)?;
        return show_for_run(session, &gateway, &arguments.as_agent, arguments.task.as_deref()).await;
    }
    let (gateway, agent) = session.open_for_script(servers, changes, &arguments.as_agent, needs).await?;
    check_allowed(session, &gateway, &allowed)?;
    let sandbox = boot(&agent, arguments.tool_errors.into()).await?;
    let logs = Arc::clone(&session.terminal);
    let options = RunOptions {
        input: Some(Value::from(input).to_wire()),
        timeout_ms: arguments.timeout,
        max_result_tokens: arguments.max_result_tokens,
        stop: session.stop.clone(),
        task: arguments.task.as_deref().map(task_of),
        fetch: if fetch.is_empty() { RunFetch::OfAgent } else { RunFetch::Hosts(fetch) },
        on_log: (!session.json()).then(|| Arc::new(move |entry: &LogEntry| tell(&logs, entry)) as Arc<_>),
        ..RunOptions::default()
    };
    let RunReport { outcome, warnings, omitted, .. } = sandbox.run(code.clone(), options).await;
    if !session.json() {
        for warning in &warnings {
            session.terminal.note(Tone::Warning, "warning:", &sanitise_text(warning, MAX_LOG_CHARS));
        }
        if let (Some(tokens), false) = (arguments.max_result_tokens, omitted.is_empty()) {
            // A cut value mentions `saved`, with which a model can read the rest in a later run. This is not possible here, because this
            // sandbox ends with this run.
            let text = format!("the value was cut to {tokens} tokens, as for a model (--max-result-tokens)");
            session.terminal.note(Tone::Warning, "warning:", &text);
        }
    }
    let mut more = json!({ "logs": outcome.logs, "warnings": warnings, "stats": outcome.stats });
    if arguments.max_result_tokens.is_some() {
        more["omitted"] = json!(omitted);
    }
    match outcome.value.and_then(Value::from_wire) {
        Ok(value) => {
            let value = value.into_json().get_mut("value").map(Json::take).unwrap_or_default();
            print(session, arguments.raw, value, more);
            Ok(Exit::Done)
        }
        Err(Error::Aborted { .. }) => Ok(Exit::Interrupted),
        Err(error) => Err(explained(&agent, session, error, (&arguments.file, &code), more)),
    }
}

/// Returns the limits that the arguments set. `--timeout` is the limit of the run, whatever the config or `--limit` says.
fn limits_of(arguments: &Run) -> Result<LimitChanges, CliError> {
    let mut limits = LimitChanges::default();
    for (name, value) in &arguments.limits {
        limits.set(name, *value).map_err(|problem| CliError::Usage(format!("--limit {name}: {problem}")))?;
    }
    limits.run_timeout_ms = arguments.timeout.or(limits.run_timeout_ms);
    Ok(limits)
}

/// Checks that the servers in `--allow-writes` exist, and warns about tools that do not exist. A mistyped name would allow nothing.
pub(super) fn check_allowed(session: &Session, gateway: &Gateway, allowed: &AllowedWrites) -> Result<(), CliError> {
    for name in allowed.servers() {
        gateway.server_info(name)?;
    }
    for (server, tool) in allowed.tools() {
        let Some(offer) = gateway.server_info(server)?.offer else { continue };
        if !REQUEST_METHODS.contains(&tool) && offer.functions.iter().all(|function| function.tool != tool) {
            let known = offer.functions.iter().map(|function| (function.tool.as_str(), function.name.as_str()));
            let error = Error::unknown_tool(server, tool, known).redacted(&Redactor::new(None, None));
            session.terminal.note(Tone::Warning, "warning:", &format!("--allow-writes: {error}"));
        }
    }
    Ok(())
}

/// Boots the guest on a thread that may be blocked.
async fn boot(agent: &Agent, errors: ToolErrors) -> Result<Arc<Sandbox>, CliError> {
    let agent = agent.clone();
    let booted = tokio::task::spawn_blocking(move || agent.sandbox(errors, None)).await;
    Ok(booted.map_err(|error| Error::Internal(error.to_string().into()))??)
}

/// Reads the value of `--input`: JSON, or `@FILE` for a file with JSON.
async fn read_input(given: &str, stop: &Stop) -> Result<Json, CliError> {
    match given.strip_prefix('@') {
        Some(path) => parsed(path, &files::read_until(Path::new(path), stop).await?),
        None => parsed("--input", given),
    }
}

fn parsed(name: &str, text: &str) -> Result<Json, CliError> {
    let value = serde_json::from_str(text)
        .map_err(|error| CliError::Usage(format!("{name} is not JSON: {error}. A string needs quotes: --input '\"text\"'")))?;
    match inexact_integer(&value) {
        Some(number) => Err(CliError::Usage(format!("{name}: {}", inexact(number)))),
        None => Ok(value),
    }
}

fn tell(terminal: &Terminal, entry: &LogEntry) {
    let tone = match entry.level.as_str() {
        "error" => Tone::Bad,
        "warn" => Tone::Warning,
        _ => Tone::Quiet,
    };
    terminal.note(tone, &format!("{}:", entry.level), &sanitise_text(&entry.text, MAX_LOG_CHARS));
}

fn print(session: &Session, raw: bool, value: Json, more: Json) {
    let terminal = &session.terminal;
    if session.json() {
        let mut document = json!({ "value": value });
        if let (Some(document), Json::Object(more)) = (document.as_object_mut(), more) {
            document.extend(more);
        }
        return terminal.print_json(&document);
    }
    match value {
        // If the output is a file or another program, it gets the text unchanged. If it is a terminal, control characters are removed.
        Json::String(text) if raw && terminal.screens.output => terminal.print(&format!("{}\n", sanitise_text(&text, usize::MAX))),
        Json::String(text) if raw => terminal.print(&format!("{text}\n")),
        value => terminal.print_json(&value),
    }
}

/// Adds the line of the script to an error, and hints about servers that are not approved.
fn explained(agent: &Agent, session: &Session, error: Error, (file, code): (&Path, &str), mut more: Json) -> CliError {
    let (terminal, next_command) = (&session.terminal, &session.next_command);
    let place = match &error {
        Error::GuestThrew { line: Some(line), column, .. } | Error::CodeSyntax { line: Some(line), column, .. } => Some((*line, *column)),
        _ => None,
    };
    let at = match place {
        Some((line, column)) => format!("{}:{line}{}: ", file.display(), column.map(|column| format!(":{column}")).unwrap_or_default()),
        None => format!("{}: ", file.display()),
    };
    let marked = |text: &str| terminal.after_word(WORD, &printable(&format!("{at}{text}"), &['\n']));
    let mut text = match &error {
        Error::GuestThrew { name, message, .. } => marked(&format!("{}: {}", name.shown(), message.shown())),
        Error::CodeSyntax { message, .. } => marked(message.shown()),
        other => told_at(&at, other, next_command, terminal),
    };
    if let Some((line, column)) = place {
        let columns = terminal.screens.error.then_some(terminal.err.width);
        text.extend(["\n", &excerpt(code, line, column, columns)]);
    }
    if let Some((line, column)) = place {
        more["line"] = line.into();
        more["column"] = column.into();
    }
    text.push_str(&unapproved_module(agent, next_command, code, &error));
    CliError::Explained { error: Box::new(error), text, more }
}

/// Returns a hint for each server that the script imports but that is not approved.
fn unapproved_module(agent: &Agent, next_command: &NextCommand, code: &str, error: &Error) -> String {
    if !matches!(error, Error::CodeSyntax { .. } | Error::GuestThrew { .. }) {
        return String::new();
    }
    let servers = agent.servers().unwrap_or_default();
    let is_missing = |server: &&ServerStatus| !server.approved && name_in_code(agent, server).is_some_and(|name| imports(code, name));
    let missing = servers.iter().filter(is_missing);
    let line = |name: &str| format!("\nserver \"{name}\" is not approved: {}", next_command.with(&format!("approve {name}")));
    missing.map(|server| line(&server.name)).collect::<Vec<_>>().concat()
}

/// Returns whether a script seems to import a server's module.
fn imports(code: &str, server: &str) -> bool {
    ["\"", "'", "`"].iter().any(|quote| code.contains(&format!("host:mcp-{server}{quote}")))
}

/// Formats a line of code with its number, and a caret under the column.
fn excerpt(code: &str, line: u32, column: Option<u32>, columns: Option<usize>) -> String {
    let Some(text) = code.lines().nth((line as usize).saturating_sub(1)) else { return String::new() };
    // A tab would be wider than one column and move the caret to a wrong place, so it is replaced.
    let text = text.replace('\t', " ");
    let number = line.to_string();
    // A terminal would break a longer line, and the rest of it could look like a line of this program.
    let mut room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(number.len() + 5));
    let fits = |character: &char| {
        let needed = columns_in(&printable(&character.to_string(), &[]));
        needed <= room && {
            room -= needed;
            true
        }
    };
    let shown: String = text.chars().take(MAX_LINE_CHARS).take_while(fits).collect();
    // An escaped character is longer than the original and would move the caret to a wrong place, so then there is no caret.
    let same = printable(&shown, &[]) == shown;
    let column = column.filter(|column| same && (1..=shown.chars().count() + 1).contains(&(*column as usize)));
    let caret = column.map(|column| format!("\n  {} | {}^", " ".repeat(number.len()), " ".repeat(column as usize - 1)));
    format!("  {number} | {shown}{}", caret.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_shown_with_a_caret_under_the_place() {
        assert_eq!(excerpt("a\n\tfoo.bar()", 2, Some(6), None), "  2 |  foo.bar()\n    |      ^");
        assert_eq!(excerpt("a", 1, None, None), "  1 | a");
        assert_eq!(excerpt("a", 9, Some(1), None), "");
        assert!(!excerpt(&"x".repeat(500), 1, Some(400), None).contains('^'));
        let narrow = excerpt(&"天".repeat(500), 1, Some(17), Some(40));
        assert_eq!(narrow, format!("  1 | {}\n    | {}^", "天".repeat(17), " ".repeat(16)));
        assert!(!excerpt(&"天".repeat(500), 1, Some(30), Some(40)).contains('^'));
    }

    #[test]
    fn input_is_json_and_says_so() {
        assert_eq!(parsed("--input", "[1]").ok(), Some(json!([1])));
        assert!(matches!(parsed("--input", "9007199254740993"), Err(CliError::Usage(text)) if text.contains("9007199254740993")));
        assert!(matches!(parsed("--input", "text"), Err(CliError::Usage(text)) if text.contains("quotes")));
        assert!(matches!(files::read(Path::new("/nowhere")), Err(CliError::Message(_, text)) if text.contains("no file")));
    }
}
