//! Formats the results of commands for people. The texts of servers are already sanitised. Errors are sanitised here.

use std::time::Duration;

use super::request::quoted;
use super::text::{MARK, Style, Tone, columns_in, date_time, joined, one_line};
use crate::bridge::ToolMatch;
use crate::config::ServerSource;
use crate::gateway::{ConnectionReport, LogLine, ReloadReport, ServerDetails, ServerInfo, ServerLimits, ToolDetails};
use crate::registry::{ServerState, ServerStatus};
use crate::sandbox::Problem;
use crate::text::sanitise_line;

/// Length limit of an error in a table.
const MAX_ERROR_CHARS: usize = 300;
/// Length limit of the word that says what a line of a log is.
const MAX_KIND_CHARS: usize = 40;
/// Width of the column with the field names.
const NAMES: usize = 16;

/// Returns the name of a state as `servers()` in Node returns it.
fn state_name(state: ServerState) -> &'static str {
    match state {
        ServerState::Invalid => "invalid",
        ServerState::Disabled => "disabled",
        ServerState::PendingApproval => "pending-approval",
        ServerState::NotReady => "not-ready",
        ServerState::Unapproved => "unapproved",
        ServerState::CommandApproved => "command-approved",
        ServerState::Idle => "idle",
        ServerState::Connecting => "connecting",
        ServerState::Connected => "connected",
        ServerState::Error => "error",
    }
}

fn tone_of(state: ServerState) -> Tone {
    match state {
        ServerState::Invalid | ServerState::Error => Tone::Bad,
        ServerState::PendingApproval | ServerState::NotReady | ServerState::Unapproved | ServerState::CommandApproved => Tone::Warning,
        ServerState::Connected | ServerState::Idle | ServerState::Connecting => Tone::Good,
        ServerState::Disabled => Tone::Quiet,
    }
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn source_text(source: &ServerSource) -> String {
    sanitise_line(&source.to_string(), MAX_ERROR_CHARS)
}

/// Returns a text that names the sources whose servers of the same name this server hides.
fn hidden_text(server: &ServerStatus) -> Option<String> {
    let hidden: Vec<_> = server.hides.iter().map(source_text).collect();
    (!hidden.is_empty()).then(|| format!("hides the server with this name that comes from {}", hidden.join(", and from ")))
}

/// Returns a text that names the missing variables without which the server cannot be started.
fn missing_text(server: &ServerStatus) -> Option<String> {
    (!server.missing.is_empty()).then(|| format!("not ready, as these variables are not set: {}", joined(&server.missing)))
}

pub(super) fn list_text(servers: &[ServerStatus], style: &Style) -> String {
    if servers.is_empty() {
        return "no servers are configured\n".to_owned();
    }
    // If all servers are from the operator's config, the column with the source is omitted.
    let has_sources = servers.iter().any(|server| !server.source.is_operators_config());
    let row = |server: &ServerStatus| {
        let columns = vec![
            server.name.clone(),
            state_name(server.state).to_owned(),
            yes_or_no(server.approved),
            yes_or_no(server.enabled),
            server.tools.len().to_string(),
        ];
        columns.into_iter().chain(has_sources.then(|| source_text(&server.source))).collect()
    };
    let columns = ["SERVER", "STATE", "APPROVED", "ENABLED", "TOOLS", "SOURCE"];
    let columns = if has_sources { &columns[..] } else { &columns[..5] };
    let mut text = style.table(columns, servers.iter().map(row).collect());
    for server in servers {
        for line in [hidden_text(server), missing_text(server)].into_iter().flatten() {
            text.push('\n');
            text.push_str(&style.marked("", &format!("{}: {line}", server.name)));
        }
        if let Some(error) = &server.last_error {
            text.push('\n');
            text.push_str(&style.paint(Tone::Bad, &format!("{}: {}", server.name, error.code)));
            text.push('\n');
            text.push_str(&style.quoted("  ", &sanitise_line(&error.message, MAX_ERROR_CHARS)));
        }
        if !server.quarantined.is_empty() {
            let names: Vec<_> = server.quarantined.iter().map(|tool| sanitise_line(tool, MAX_ERROR_CHARS)).collect();
            text.push('\n');
            text.push_str(&style.marked("", &format!("{}: changed since their approval: {}", server.name, joined(&names))));
        }
    }
    text
}

pub(super) fn info_text(info: &ServerInfo, style: &Style) -> String {
    let status = &info.status;
    let mut text = format!("{}\n", style.paint(Tone::Heading, &status.name));
    let state = style.paint(tone_of(status.state), state_name(status.state));
    text.push_str(&style.field("  state", NAMES, &state));
    text.push_str(&style.field("  approved", NAMES, &yes_or_no(status.approved)));
    text.push_str(&style.field("  enabled", NAMES, &yes_or_no(status.enabled)));
    text.push_str(&style.field("  source", NAMES, &source_text(&status.source)));
    let described = status.description.as_deref().map(|text| format!("\"{}\"", sanitise_line(text, MAX_ERROR_CHARS)));
    let lines = [
        ("  description", described),
        ("  variant of", status.variant_of.clone()),
        ("  hidden", hidden_text(status)),
        ("  readiness", missing_text(status)),
    ];
    for (name, line) in lines {
        if let Some(line) = line {
            text.push_str(&style.field(name, NAMES, &line));
        }
    }
    if let Some(error) = &status.last_error {
        text.push_str(&style.field("  last error", NAMES, &format!("{}: {}", error.code, sanitise_line(&error.message, MAX_ERROR_CHARS))));
    }
    text.extend(info.details.iter().map(|details| details_text(details, style)));
    let Some(offer) = &info.offer else {
        text.push_str("  The tools are shown after the server is approved.\n");
        return text;
    };
    text.push_str(&style.field("  module", NAMES, &offer.specifier));
    text.push_str(&style.field("  calls itself", NAMES, &format!("{} {}", one_line(&offer.server_name), one_line(&offer.server_version))));
    text.push_str(&style.field("  protocol", NAMES, &offer.protocol_version));
    let counts = [(offer.resources, "resources"), (offer.resource_templates, "resource templates"), (offer.prompts, "prompts")];
    let counts: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !counts.is_empty() {
        text.push_str(&style.field("  also", NAMES, &counts.join(", ")));
    }
    text.push('\n');
    let quarantined = |tool: &str| status.quarantined.iter().any(|name| name == tool);
    let rows = offer.functions.iter().map(|function| {
        let purpose = if quarantined(&function.tool) { "changed since its approval: calls fail" } else { &function.purpose };
        vec![function.name.clone(), purpose.to_owned()]
    });
    text.push_str(&style.table(&["FUNCTION", "PURPOSE"], rows.collect()));
    if let Some(details) = info.details.as_ref().filter(|details| !details.tools.is_empty()) {
        text.push('\n');
        text.push_str(&tools_text(details, style));
    }
    text
}

/// Formats the command or address of a server, its filters and its limits.
fn details_text(details: &ServerDetails, style: &Style) -> String {
    let field = |name: &str, text: &str| style.field(name, NAMES, &one_line(text));
    let mut text = field("  transport", details.transport.as_str());
    if let Some(command) = &details.command {
        let words: Vec<String> = std::iter::once(command).chain(details.args.iter().flatten()).map(|word| quoted(word)).collect();
        text += &field("  command", &words.join(" "));
    }
    let given = [("  folder", &details.cwd), ("  variables of", &details.env_file), ("  address", &details.url)];
    text.extend(given.into_iter().filter_map(|(name, value)| Some(field(name, value.as_deref()?))));
    let lists = [
        ("  variables", Some(&details.variables)),
        ("  headers", Some(&details.headers)),
        ("  only tools", details.allow_tools.as_ref()),
        ("  without tools", Some(&details.deny_tools)),
        ("  reads", Some(&details.reads)),
        ("  only resources", details.allow_resources.as_ref()),
        ("  no resources", Some(&details.deny_resources)),
        ("  only prompts", details.allow_prompts.as_ref()),
        ("  no prompts", Some(&details.deny_prompts)),
    ];
    for (name, list) in lists {
        // An empty list of allowed names is shown as well, because an empty list means that nothing is allowed.
        if let Some(list) = list.filter(|list| !list.is_empty() || name.contains("only")) {
            let names = if list.is_empty() { "none".to_owned() } else { joined(list) };
            text += &field(name, &names);
        }
    }
    let ServerLimits { connect_timeout_ms, call_timeout_ms, max_call_timeout_ms, max_parallel_calls, idle_timeout_ms, keep_alive_ms } =
        &details.limits;
    let seconds = |time: u64| format!("{} s", Duration::from_millis(time).as_secs_f64());
    let mut limits = format!(
        "connect {}, call {} (at most {}), {max_parallel_calls} calls at a time",
        seconds(*connect_timeout_ms),
        seconds(*call_timeout_ms),
        seconds(*max_call_timeout_ms)
    );
    limits.extend(idle_timeout_ms.map(|time| format!(", closed after {} without use", seconds(time))));
    limits.extend(keep_alive_ms.map(|time| format!(", pinged every {}", seconds(time))));
    text + &field("  limits", &limits)
}

/// Formats the tools with their signatures and direct names.
fn tools_text(details: &ServerDetails, style: &Style) -> String {
    let tool = |tool: &ToolDetails| {
        let names = tool.direct_names.as_ref().map(|names| format!("{}, {}", names.underscore, names.hyphen));
        let signature = style.marked("  ", &one_line(&tool.signature));
        format!("{signature}{}", names.map(|names| style.wrapped("    ", &format!("direct: {names}"))).unwrap_or_default())
    };
    details.tools.iter().map(tool).collect()
}

pub(super) fn test_text(report: &ConnectionReport, changed: &[String], style: &Style) -> String {
    let what = format!(
        "{}: {} in {:.0} ms, {} {}, protocol {}, {} tools",
        report.server,
        style.paint(Tone::Good, "connected"),
        report.connect_ms,
        one_line(&report.server_name),
        one_line(&report.server_version),
        report.era,
        report.tools.len()
    );
    let warnings = report.warnings.iter().map(|warning| style.marked("  ", &format!("warning: {}", one_line(warning))));
    let names: Vec<_> = changed.iter().map(|tool| sanitise_line(tool, MAX_ERROR_CHARS)).collect();
    let changed = (!names.is_empty()).then(|| style.marked("  ", &format!("changed since their approval: {}", joined(&names))));
    [style.marked("", &what)].into_iter().chain(changed).chain(warnings).collect()
}

pub(super) fn search_text(matches: &[ToolMatch], style: &Style) -> String {
    if matches.is_empty() {
        return "no tool was found; only approved and enabled servers are searched\n".to_owned();
    }
    let row = |found: &ToolMatch| vec![format!("{}.{}", found.server, found.identifier), found.purpose.clone()];
    style.table(&["TOOL", "PURPOSE"], matches.iter().map(row).collect())
}

pub(super) fn reload_text(report: &ReloadReport, style: &Style) -> String {
    let kinds = [("added", &report.added), ("removed", &report.removed), ("changed", &report.changed), ("invalid", &report.invalid)];
    let lines: String = kinds
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("{kind}: {}", joined(names)))
        .chain(report.warnings.iter().map(|warning| format!("warning: {warning}")))
        .map(|line| style.marked("", &one_line(&line)))
        .collect();
    if lines.is_empty() { "nothing has changed\n".to_owned() } else { lines }
}

/// Formats the lines of a server's log, each with its time (UTC). A line that is too long for the width continues in rows with a mark.
///
/// ```
/// use hyperlight_mcp::command::{Style, logs_text};
/// use hyperlight_mcp::gateway::LogLine;
/// let line = LogLine { at: 0, pid: 7, kind: "stderr".into(), text: "hello".into(), error: None };
/// assert_eq!(logs_text(&[line], &Style::default()), "1970-01-01 00:00:00 stderr hello\n");
/// ```
#[must_use]
pub fn logs_text(lines: &[LogLine], style: &Style) -> String {
    let line = |line: &LogLine| {
        let tone = match line.kind.as_str() {
            "failed" | "connection-lost" => Tone::Bad,
            _ if line.error.is_some() => Tone::Bad,
            "connected" => Tone::Good,
            _ => Tone::Quiet,
        };
        // Another version or another program may have written the log file, so its text is sanitised again.
        let (kind, text) = (sanitise_line(&line.kind, MAX_KIND_CHARS), sanitise_line(&line.text, 10 * MAX_ERROR_CHARS));
        let at = date_time(line.at);
        let rows = style.rows(columns_in(&at) + columns_in(&kind) + 2, &format!("  {MARK}"), &text).join("\n");
        format!("{} {} {rows}\n", style.paint(Tone::Quiet, &at), style.paint(tone, &kind))
    };
    lines.iter().map(line).collect()
}

/// Formats a problem in code with its position and the line of code.
///
/// ```
/// use hyperlight_mcp::command::problem_text;
/// use hyperlight_mcp::sandbox::check;
/// let text = problem_text("a.js", &check("const = 1", &[])[0]);
/// assert!(text.starts_with("a.js:1:7: ") && text.contains("const = 1"), "{text}");
/// ```
#[must_use]
pub fn problem_text(file: &str, problem: &Problem) -> String {
    let excerpt: String = problem.excerpt.lines().flat_map(|line| ["  ", line, "\n"]).collect();
    format!("{file}:{}:{}: {}\n{excerpt}", problem.line, problem.column, problem.message)
}
