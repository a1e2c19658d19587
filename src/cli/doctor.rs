//! The command `doctor`: finds problems in this installation and explains how to fix them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::Exit;
use super::error::{CliError, message};
use super::session::Session;
use crate::boxes::{BoxPart, BoxPartName, BoxesReport, HOME};
use crate::command::{MARK, Style, Tone, joined, one_line, quoted};
use crate::config::SourceKind;
use crate::error::Error;
use crate::gateway::{Gateway, MISSING_FOLDER, ProviderState, ProviderStatus};
use crate::registry::{ServerState, ServerStatus};
use crate::text::{NextCommand, sanitise_text, shell_word};
use crate::trust::ApprovalRequest;

const MAX_TEXT_CHARS: usize = 2_000;
/// Column at which the text of a finding begins.
const TEXT_COLUMN: usize = 8;
/// The sticky bit in the mode of a folder.
const STICKY: u32 = 0o1000;
/// The remedy for a server without its folder.
const MAKE_FOLDER: &str = "make the folder, or fix cwd of its entry in the config";

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warning,
    Problem,
}

/// A check with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    what: String,
    status: Status,
    text: String,
    /// The action that fixes the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    /// Creates a finding. Puts each of its texts on one line, because they may contain names and commands of a config that nobody has approved,
    /// and messages of servers and packages.
    fn new(what: &str, status: Status, text: impl Into<String>, remedy: Option<String>) -> Self {
        let (remedy, text) = (remedy.map(|remedy| one_line(&remedy)), sanitise_text(&text.into(), MAX_TEXT_CHARS));
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Self { what: one_line(what), status, text: one_line(&lines.join(" | ")), remedy }
    }

    fn ok(what: &str, text: impl Into<String>) -> Self {
        Self::new(what, Status::Ok, text, None)
    }
}

pub(super) async fn doctor(session: &Session) -> Result<Exit, CliError> {
    let mut findings = vec![platform(), watchdog(&session.context.watchdog)];
    findings.push(state_folder(&session.options().state_folder()));
    match session.open() {
        // If a folder cannot be used, there is already a finding for it, and it is also the reason for this error.
        Err(error) if is_of_config(&error) || !has_problem(&findings) => findings.push(not_opened(&error, &session.next_command)),
        Err(_) => {}
        Ok(gateway) => {
            findings.push(hypervisor(&gateway).await);
            findings.extend(boxes(&gateway).await);
            findings.extend(old_homes(&gateway, &session.next_command)?);
            let servers = gateway.servers()?;
            findings.push(config(session, servers.len()));
            findings.extend(gateway.base_files().iter().filter_map(|base| others_may_change(base)));
            // Servers that wait for a decision are shown first.
            let is_pending = |server: &&ServerStatus| server.awaits_decision();
            findings.splice(0..0, servers.iter().filter(is_pending).map(|server| proposed(server, &session.next_command)));
            findings.extend(gateway.providers().iter().map(|provider| look_at_provider(provider, &session.next_command)));
            // Servers of the catalogue that are not approved are skipped, because nobody has asked for them.
            let is_asked_for = |server: &&ServerStatus| server.approved || server.source.kind != SourceKind::Catalogue;
            for server in servers.iter().filter(|server| is_asked_for(server) && !is_pending(server)) {
                findings.push(look_at(&gateway, server, &session.next_command).await);
                findings.extend(readiness(server));
            }
        }
    }
    let problems = findings.iter().filter(|finding| finding.status == Status::Problem).count();
    if session.json() {
        session.terminal.print_json(&json!({ "ok": problems == 0, "checks": findings }));
    } else {
        let style = session.terminal.unbroken();
        let text: String = findings.iter().map(|finding| shown(finding, &style)).collect();
        session.terminal.print(&text);
        let end = if problems == 0 { "no problems found\n".to_owned() } else { format!("{}\n", counted(problems, "problem")) };
        session.terminal.print(&end);
    }
    Ok(if problems == 0 { Exit::Done } else { Exit::Failed })
}

/// Formats a finding. Each row that continues it or its remedy has a mark, because both may contain texts of a server, a package or a config.
fn shown(finding: &Finding, style: &Style) -> String {
    let (word, tone) = match finding.status {
        Status::Ok => ("ok", Tone::Good),
        Status::Warning => ("warning", Tone::Warning),
        Status::Problem => ("PROBLEM", Tone::Bad),
    };
    let further = format!("{:TEXT_COLUMN$}{MARK}", "");
    let rows = style.rows(TEXT_COLUMN, &further, &format!("{}: {}", finding.what, finding.text));
    let gap = " ".repeat(TEXT_COLUMN - word.len());
    let remedy = finding.remedy.as_ref().map(|remedy| style.marked("          ", &format!("→ {remedy}"))).unwrap_or_default();
    format!("{}{gap}{}\n{remedy}", style.paint(tone, word), rows.join("\n"))
}

fn platform() -> Finding {
    Finding::ok(
        "platform",
        format!(
            "{} {}; the addon and its guest are built already, so no toolchain is needed",
            std::env::consts::OS,
            std::env::consts::ARCH
        ),
    )
}

/// Checks the watchdog, the program that ends the servers when `hyperlight-mcp` ends for any reason.
fn watchdog(path: &Path) -> Finding {
    match fs::metadata(path) {
        Ok(file) if file.permissions().mode() & 0o111 != 0 => Finding::ok("watchdog", path.display().to_string()),
        Ok(_) => {
            let remedy = format!("chmod +x {}", path.display());
            Finding::new("watchdog", Status::Problem, "the watchdog program is not executable", Some(remedy))
        }
        Err(error) => {
            let remedy = "install hyperlight-mcp again, without omitting optional dependencies".to_owned();
            Finding::new("watchdog", Status::Problem, format!("{}: {error}", path.display()), Some(remedy))
        }
    }
}

fn state_folder(path: &Path) -> Finding {
    let name = path.display();
    let Ok(folder) = fs::metadata(path) else { return state_folder_to_come(path) };
    let mode = folder.permissions().mode() & 0o777;
    if !folder.is_dir() {
        return Finding::new(
            "state folder",
            Status::Problem,
            format!("{name} is not a folder"),
            Some("move the file away, or name another folder with --state".to_owned()),
        );
    }
    let (owner, us) = (folder.uid(), rustix::process::geteuid().as_raw());
    if owner != us {
        let remedy = format!("chown {us} {} if you trust its contents, or name another folder with --state", shell_word(&name.to_string()));
        return Finding::new(
            "state folder",
            Status::Problem,
            format!("{name} belongs to another user (uid {owner}, not {us})"),
            Some(remedy),
        );
    }
    if mode & 0o022 != 0 {
        let remedy = format!("chmod 700 {name} if you trust its contents, or name another folder with --state");
        return Finding::new("state folder", Status::Problem, format!("other users may write to {name} (mode {mode:o})"), Some(remedy));
    }
    if mode & 0o077 != 0 {
        let remedy = format!("chmod 700 {name}");
        return Finding::new("state folder", Status::Warning, format!("other users can read {name} (mode {mode:o})"), Some(remedy));
    }
    match tempfile::tempfile_in(path) {
        Ok(_) => Finding::ok("state folder", name.to_string()),
        Err(error) => Finding::new(
            "state folder",
            Status::Problem,
            format!("{name} cannot be written: {error}"),
            Some(format!("change the owner of {name} to your user (chown), or name another folder with --state")),
        ),
    }
}

/// Checks that a state folder which does not exist yet can be created.
fn state_folder_to_come(path: &Path) -> Finding {
    let name = path.display();
    let parent = path.ancestors().skip(1).find(|parent| fs::symlink_metadata(parent).is_ok()).unwrap_or(Path::new("/"));
    match tempfile::tempfile_in(parent) {
        Ok(_) => Finding::ok("state folder", format!("{name} (does not exist yet; it is created when it is needed)")),
        Err(error) => Finding::new(
            "state folder",
            Status::Problem,
            format!("{name} cannot be created, as nothing can be written into {}: {error}", parent.display()),
            Some(format!(
                "make {} a folder that your user may write to, set HOME to one, or name another folder with --state",
                parent.display()
            )),
        ),
    }
}

async fn hypervisor(gateway: &Gateway) -> Finding {
    let gateway = gateway.clone();
    let Ok(report) = tokio::task::spawn_blocking(move || gateway.hypervisor()).await else {
        return Finding::new("hypervisor", Status::Problem, "the check of the hypervisor failed unexpectedly; run doctor again", None);
    };
    if !report.available {
        return Finding::new("hypervisor", Status::Problem, report.problem.unwrap_or_default(), report.remedy);
    }
    let text = format!("a guest boots here in {:.0} ms", report.boot_ms.unwrap_or_default());
    // The report's warning is about the isolation of the guest. It is shown as information, because a person cannot fix it.
    Finding::ok("hypervisor", report.warning.map_or_else(|| text.clone(), |warning| format!("{text}; {warning}")))
}

/// Finds out whether boxes can be made, and which parts of them this machine does not have.
async fn boxes(gateway: &Gateway) -> Vec<Finding> {
    let gateway = gateway.clone();
    match tokio::task::spawn_blocking(move || gateway.boxes()).await {
        Ok(report) => of_boxes(&report),
        Err(_) => vec![Finding::new("boxes", Status::Problem, "the check of boxes failed unexpectedly; run doctor again", None)],
    }
}

/// Returns a finding about private homes that no server can get any more.
fn old_homes(gateway: &Gateway, next_command: &NextCommand) -> Result<Option<Finding>, CliError> {
    let unused = gateway.unused_private_homes()?;
    let text = format!("{} of servers that are gone", counted(unused, "private home"));
    let remedy = format!("{} lists them, and {} removes them", next_command.with("boxes"), next_command.with("boxes remove --unused"));
    Ok((unused > 0).then(|| Finding::new("boxes: private homes", Status::Warning, text, Some(remedy))))
}

fn of_boxes(report: &BoxesReport) -> Vec<Finding> {
    let BoxesReport { available, landlock_alone, parts, problem } = report;
    if let Some(problem) = problem {
        let remedy = "install hyperlight-mcp again, without omitting optional dependencies".to_owned();
        return vec![Finding::new("boxes", Status::Problem, problem, Some(remedy))];
    }
    let said =
        |part: &BoxPart| part.detail.as_ref().map_or(part.name.text().to_owned(), |detail| format!("{} ({detail})", part.name.text()));
    let there: Vec<String> = parts.iter().filter(|part| part.available).map(said).collect();
    let summary = if *available {
        Finding::ok("boxes", format!("boxes can be made: {}", there.join(", ")))
    } else if *landlock_alone {
        let text = "boxes are made only with Landlock here, so a server sees which paths and processes exist, and what needs namespaces is refused";
        Finding::new("boxes", Status::Warning, text, Some("follow the advice below for each missing part".to_owned()))
    } else {
        let text = "no box can be made here, so only servers with \"box\": \"off\" start";
        Finding::new("boxes", Status::Problem, text, Some("follow the advice below for each missing part".to_owned()))
    };
    let missing = parts.iter().filter(|part| !part.available).map(|part| {
        let (status, effect) = match part.name {
            BoxPartName::Scopes => (Status::Warning, "servers with network \"any\" reach the abstract sockets of this machine"),
            BoxPartName::Cgroup => (Status::Ok, "memory and processes are counted instead, and cpuPercent is refused"),
            _ if *landlock_alone => (Status::Warning, "boxes are made without this part"),
            _ => (Status::Problem, "no box is made without this part"),
        };
        let text = format!("{effect}: {}", part.problem.as_deref().unwrap_or_default());
        Finding::new(&format!("boxes: {}", part.name.text()), status, text, part.remedy.clone())
    });
    std::iter::once(summary).chain(missing).collect()
}

fn config(session: &Session, servers: usize) -> Finding {
    let path = session.options().config_path.unwrap_or_else(|| session.options().default_config());
    if !path.exists() {
        let remedy =
            format!("{} copies the servers of other programs; or write the file yourself", session.next_command.with("import --write"));
        return Finding::new("config", Status::Warning, format!("there is no config file {}", path.display()), Some(remedy));
    }
    others_may_change(&path).unwrap_or_else(|| Finding::ok("config", format!("{}, {}", path.display(), counted(servers, "server"))))
}

/// Returns a warning if other users may change or replace a config. They cannot approve a server, but they decide about toolboxes, agents and
/// limits.
fn others_may_change(path: &Path) -> Option<Finding> {
    let real = path.canonicalize().ok();
    let files = [Some(path), real.as_deref()].into_iter().flatten();
    files.clone().chain(files.filter_map(Path::parent)).find_map(others_may_write)
}

/// Returns a warning if other users may write a config, or a folder that has one.
fn others_may_write(path: &Path) -> Option<Finding> {
    let status = fs::metadata(path).ok()?;
    let own = rustix::process::geteuid().as_raw();
    // In a sticky folder, such as `/tmp`, other users replace only their own files.
    let is_open = status.mode() & 0o022 != 0 && !(status.is_dir() && status.mode() & STICKY != 0);
    let (text, remedy) = if status.uid() != own && status.uid() != 0 {
        (format!("belongs to another user (uid {}), who may change it", status.uid()), format!("make it yours: chown {own}"))
    } else if is_open {
        ("may be changed by other users".to_owned(), "take this right away: chmod go-w".to_owned())
    } else {
        return None;
    };
    let path = path.display().to_string();
    Some(Finding::new("config", Status::Warning, format!("{path} {text}"), Some(format!("{remedy} {}", shell_word(&path)))))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn has_problem(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.status == Status::Problem)
}

/// Returns whether the config is the reason why nothing could be opened.
fn is_of_config(error: &Error) -> bool {
    error.code().starts_with("ERR_CONFIG") || matches!(error, Error::TooManyServers { .. } | Error::InvalidOption { .. })
}

/// Returns the finding for an error that kept the gateway from being opened.
fn not_opened(error: &Error, next_command: &NextCommand) -> Finding {
    let again = next_command.with("doctor");
    let (what, remedy) = match error {
        error if is_of_config(error) => ("config", format!("fix this in the file, then run {again} again")),
        Error::ApprovalStore { .. } | Error::Store { .. } | Error::Io { .. } => {
            ("state folder", format!("look at the folder, or name another one with --state, then run {again} again"))
        }
        _ => ("gateway", format!("fix this, then run {again} again")),
    };
    Finding::new(what, Status::Problem, message(error, next_command), Some(remedy))
}

fn look_at_provider(provider: &ProviderStatus, next_command: &NextCommand) -> Finding {
    let what = format!("provider {}", provider.name);
    let problem = provider.problem.clone().unwrap_or_default();
    match provider.state {
        ProviderState::Ready => Finding::ok(&what, format!("it brings {}", counted(provider.servers.len(), "server"))),
        ProviderState::Unapproved => {
            let remedy = next_command.with(&format!("approve --provider {}", provider.name));
            Finding::new(&what, Status::Warning, problem, Some(remedy))
        }
        ProviderState::Denied => Finding::new(&what, Status::Warning, format!("the config denies it: {problem}"), None),
        ProviderState::Failed => {
            Finding::new(&what, Status::Problem, problem, Some("install it again, or remove it from the config".to_owned()))
        }
    }
}

/// Checks one server. Connects only to an approved server, because `doctor` must not start any other.
async fn look_at(gateway: &Gateway, server: &ServerStatus, next_command: &NextCommand) -> Finding {
    let what = format!("server {}", server.name);
    let name = &server.name;
    match (server.state, &server.last_error) {
        (ServerState::Invalid, error) => {
            let text = error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
            Finding::new(&what, Status::Problem, text, Some("fix its entry in the config".to_owned()))
        }
        (ServerState::Disabled, _) => {
            Finding::new(&what, Status::Warning, "it is disabled in the config", Some("remove \"disabled\": true to use it".to_owned()))
        }
        (ServerState::NotReady, _) => {
            let text = format!("variables that it needs are not set: {}", joined(&server.missing));
            Finding::new(&what, Status::Problem, text, Some("set them in the environment of this program".to_owned()))
        }
        _ if !server.approved => unapproved(gateway, name, &what, next_command).await,
        _ => connected(gateway, name, &what, next_command).await,
    }
}

/// Returns the finding for a server that an agent has added or changed.
fn proposed(server: &ServerStatus, next_command: &NextCommand) -> Finding {
    let what = format!("server {}", server.name);
    let undecided = if server.state == ServerState::PendingApproval { "it" } else { "its tools" };
    let text = format!("{} has added or changed it, and nobody has decided about {undecided}", server.source);
    let remedy = format!(
        "to read what would run, and approve it: {}; to refuse it: {}",
        next_command.with(&format!("approve {}", server.name)),
        next_command.with(&format!("remove {}", server.name))
    );
    Finding::new(&what, Status::Warning, text, Some(remedy))
}

/// Returns a warning with the missing variables of a server that is not approved yet. For an approved server, the attempt to connect
/// reports them.
fn readiness(server: &ServerStatus) -> Option<Finding> {
    let is_told = server.approved || server.state == ServerState::Disabled || server.missing.is_empty();
    let text = format!("it is not ready: not set: {}", joined(&server.missing));
    let remedy = "set the variable, or write a default in its entry like ${NAME:-default}".to_owned();
    (!is_told).then(|| Finding::new(&format!("server {}", server.name), Status::Warning, text, Some(remedy)))
}

async fn unapproved(gateway: &Gateway, name: &str, what: &str, next_command: &NextCommand) -> Finding {
    let details = gateway.server_info(name).ok().and_then(|info| info.details);
    let folder = details.and_then(|details| details.cwd);
    // The private home of a box exists only within it. The value of a placeholder is not known here; the start of the server checks it.
    let is_checked = |folder: &String| folder.starts_with('/') && folder != HOME && !folder.contains("${");
    if let Some(folder) = folder.filter(|folder| is_checked(folder) && !Path::new(folder).is_dir()) {
        return Finding::new(what, Status::Problem, format!("{MISSING_FOLDER}: {folder}"), Some(MAKE_FOLDER.to_owned()));
    }
    // At stage 2 (tools), an approval request would start the server. `doctor` must not do this.
    let stage =
        gateway.servers().ok().and_then(|servers| servers.into_iter().find(|server| server.name == name)).map(|server| server.state);
    if stage == Some(ServerState::Unapproved)
        && let Ok(ApprovalRequest::Command(request)) = gateway.approval_request(name).await
        && let (Some(command), None) = (&request.command, &request.executable)
    {
        let text = format!("its program \"{command}\" was not found in PATH");
        return Finding::new(
            what,
            Status::Problem,
            text,
            Some(format!("install {}, or write its full path into the config", quoted(command))),
        );
    }
    Finding::new(what, Status::Warning, "it is not approved", Some(next_command.with(&format!("approve {name}"))))
}

async fn connected(gateway: &Gateway, name: &str, what: &str, next_command: &NextCommand) -> Finding {
    match gateway.test(name).await {
        Err(error) => {
            let text = if matches!(error, Error::ConfigInvalid { .. }) { message(&error, next_command) } else { error.summary() };
            let remedy = match error {
                Error::ConfigInvalid { .. } => "set the variable, or fix the server's entry in the config".to_owned(),
                Error::SpawnFailed { .. } if text.contains(MISSING_FOLDER) => MAKE_FOLDER.to_owned(),
                Error::SpawnFailed { .. } => "install its program, or fix its command in the config".to_owned(),
                Error::BoxFailed { .. } => "do what the error says, or change its box in the config".to_owned(),
                _ => format!("read its log: {}", next_command.with(&format!("logs {name}"))),
            };
            Finding::new(what, Status::Problem, text, Some(remedy))
        }
        Ok(report) => {
            let changed = gateway.server_info(name).map(|info| info.status.quarantined).unwrap_or_default();
            if !changed.is_empty() {
                let text = format!("it has changed since its approval: {}", joined(&changed));
                return Finding::new(
                    what,
                    Status::Warning,
                    text,
                    Some(format!("read the changes: {}", next_command.with(&format!("approve {name}")))),
                );
            }
            Finding::ok(what, format!("connected in {:.0} ms, {}", report.connect_ms, counted(report.tools.len(), "tool")))
        }
    }
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
