//! The command `approve`: shows the approval requests of the two stages to a person, one after the other.

use serde_json::{Value as Json, json};

use super::Exit;
use super::args::Approve;
use super::error::{CliError, WORD, message, told};
use super::own::{add_reads, not_writable};
use super::pages;
use super::reads::{chosen_reads, tell_reads};
use super::session::Session;
use super::terminal::Dialog;
use super::wanted::offer_hosts;
use crate::command::{Tone, one_line, printable, request_text, stage_of};
use crate::config::{ServerSource, SourceKind};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::registry::ServerStatus;
use crate::text::NextCommand;
use crate::trust::ApprovalRequest;

/// Result of the command for one server.
struct Reviewed {
    server: String,
    approved: bool,
    /// The request that a person has not approved yet.
    request: Option<ApprovalRequest>,
    error: Option<Error>,
}

pub(super) async fn approve(session: &Session, arguments: &Approve) -> Result<Exit, CliError> {
    if arguments.digest.is_some() && arguments.servers.len() != 1 {
        return Err(CliError::Usage("--digest approves the request of one server: name exactly one server".to_owned()));
    }
    session.check_config()?;
    let gateway = session.open()?;
    let names = if arguments.servers.is_empty() { unapproved(session, &gateway)? } else { arguments.servers.clone() };
    reviewed(session, &gateway, &names, arguments.digest.as_deref(), arguments.all).await
}

/// Asks the person to approve one server.
pub(super) async fn review_one(session: &Session, gateway: &Gateway, name: &str) -> Result<Exit, CliError> {
    reviewed(session, gateway, &[name.to_owned()], None, false).await
}

async fn reviewed(session: &Session, gateway: &Gateway, names: &[String], digest: Option<&str>, all: bool) -> Result<Exit, CliError> {
    let mut outcomes = Vec::new();
    for name in names {
        let reviewed = match digest {
            Some(digest) => with_digest(gateway, name, digest).await,
            None => review(session, gateway, name, all).await,
        };
        let failed = |error| Reviewed { server: name.clone(), approved: false, request: None, error: Some(error) };
        let reviewed = reviewed.unwrap_or_else(failed);
        if !session.json() {
            tell(session, &reviewed);
        }
        if reviewed.error.is_some() && Box::pin(offer_hosts(session, gateway, name)).await? {
            outcomes.push(Reviewed { server: name.clone(), approved: true, request: None, error: None });
            continue;
        }
        outcomes.push(reviewed);
    }
    if session.json() {
        session.terminal.print_json(
            &json!({ "servers": outcomes.iter().map(|reviewed| as_json(reviewed, &session.next_command)).collect::<Vec<_>>() }),
        );
    }
    Ok(if outcomes.iter().all(|reviewed| reviewed.approved) { Exit::Done } else { Exit::Failed })
}

/// Returns the names of the servers that need approval. If there are none, prints a message.
fn unapproved(session: &Session, gateway: &Gateway) -> Result<Vec<String>, CliError> {
    let servers = gateway.servers()?;
    // The servers of the catalogue are left out, because nobody has asked for them.
    let is_asked_for = |server: &ServerStatus| server.source.kind != SourceKind::Catalogue;
    let is_wanting = |server: &ServerStatus| is_asked_for(server) && (!server.approved || !server.quarantined.is_empty());
    let wanting: Vec<String> = servers.into_iter().filter(is_wanting).map(|server| server.name).collect();
    if wanting.is_empty() && !session.json() {
        session.terminal.print("all servers are approved\n");
    }
    Ok(wanting)
}

fn is_approved(request: &ApprovalRequest) -> (bool, &str) {
    (request.is_approved(), request.digest())
}

/// Approves the request with this digest. Another process may have shown the request.
async fn with_digest(gateway: &Gateway, name: &str, digest: &str) -> crate::error::Result<Reviewed> {
    let request = gateway.approval_request(name).await?;
    if is_approved(&request) == (true, digest) {
        return Ok(Reviewed { server: name.to_owned(), approved: true, request: None, error: None });
    }
    gateway.approve(name, Some(digest), None).await?;
    if matches!(request, ApprovalRequest::Manifest(_)) && request.digest() == digest {
        return Ok(Reviewed { server: name.to_owned(), approved: true, request: None, error: None });
    }
    // The digest was for the first stage. A person can approve next what is still open.
    let open = Some(gateway.approval_request(name).await?).filter(|request| !request.is_approved());
    Ok(Reviewed { server: name.to_owned(), approved: open.is_none(), request: open, error: None })
}

/// Asks a person at each stage. If no person can be asked, returns the request, so that the caller can print it.
async fn review(session: &Session, gateway: &Gateway, name: &str, all: bool) -> crate::error::Result<Reviewed> {
    let mut shown: Vec<String> = Vec::new();
    let mut is_offered = false;
    loop {
        let request = gateway.approval_request(name).await?;
        let (approved, digest) = is_approved(&request);
        if approved {
            return Ok(Reviewed { server: name.to_owned(), approved: true, request: None, error: None });
        }
        // If a request that was just approved is still open, it would be shown endlessly. So the loop ends with an error.
        if shown.iter().any(|known| known == digest) {
            return Err(Error::DigestChanged { server: name.to_owned() });
        }
        if !session.can_ask() {
            return Ok(Reviewed { server: name.to_owned(), approved: false, request: Some(request), error: None });
        }
        let status = gateway.server_info(name)?.status;
        let dialog = session.terminal.dialog().await;
        pages::show(&dialog, &request_text(&request, &session.terminal.err), all).await;
        if let ApprovalRequest::Manifest(manifest) = &request
            && !std::mem::replace(&mut is_offered, true)
            && let reads = offered_reads(session, &dialog, &status.source, &manifest.sounding_like_reads).await
            && !reads.is_empty()
            && written_reads(session, &dialog, name, &reads)
        {
            drop(dialog);
            // The entry has changed, so its approval begins again.
            gateway.reload().await?;
            continue;
        }
        let is_approved = dialog.confirm("Approve?").await;
        drop(dialog);
        if !is_approved {
            return Ok(Reviewed { server: name.to_owned(), approved: false, request: None, error: None });
        }
        let digest = digest.to_owned();
        gateway.approve(name, Some(&digest), None).await?;
        shown.push(digest);
    }
}

/// Asks a person which tools are reads. If no command can write their names into the server's entry, says so instead and returns no names.
async fn offered_reads(session: &Session, dialog: &Dialog<'_>, source: &ServerSource, names: &[String]) -> Vec<String> {
    let style = &session.terminal.err;
    match not_writable(session, source) {
        None => chosen_reads(dialog, names, style).await,
        Some(_) if names.is_empty() => Vec::new(),
        Some(way_out) => {
            tell_reads(dialog, names, &way_out, style);
            Vec::new()
        }
    }
}

/// Writes the reads that a person has chosen into the config. Returns whether this succeeded.
fn written_reads(session: &Session, dialog: &Dialog<'_>, name: &str, reads: &[String]) -> bool {
    let (is_written, told) = match add_reads(session, name, reads) {
        Ok(path) => (
            true,
            format!("the setting \"reads\" of {name} was written into {}. The entry has changed, so it is shown again.", path.display()),
        ),
        Err(error) => (false, format!("the setting \"reads\" was not written: {}", error.sentence(&session.next_command))),
    };
    dialog.say(&session.terminal.err.marked("", &one_line(&told)));
    is_written
}

fn tell(session: &Session, reviewed: &Reviewed) {
    let Reviewed { server, approved, request, error } = reviewed;
    let terminal = &session.terminal;
    if let Some(error) = error {
        return terminal.note_own(Tone::Bad, WORD, &printable(&told(error, &session.next_command, terminal), &['\n']));
    }
    if let Some(request) = request {
        let digest = is_approved(request).1;
        terminal.print(request_text(request, &terminal.out).trim_start());
        let sentence = format!("Not approved yet. After reading this ({}), a person approves it with:", stage_of(request));
        // The command is not wrapped, so that it can be copied.
        terminal.print(&format!(
            "\n{}  {}\n",
            terminal.out.wrapped("", &sentence),
            session.next_command.with(&format!("approve {server} --digest {digest}"))
        ));
    } else {
        terminal.print(&format!("{server}: {}\n", if *approved { "approved" } else { "not approved" }));
    }
}

fn as_json(reviewed: &Reviewed, next_command: &NextCommand) -> Json {
    let Reviewed { server, approved, request, error } = reviewed;
    let mut json = json!({ "server": server, "approved": approved });
    if let Some(request) = request {
        json["request"] = json!(request);
    }
    if let Some(error) = error {
        json["error"] = json!({ "code": error.code(), "message": message(error, next_command) });
    }
    json
}
