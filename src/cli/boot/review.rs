//! Lets a person approve made tools: with a question at a terminal, otherwise with a digest.

use serde_json::json;

use super::args::Boot;
use crate::booted::Booted;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::command::request_text;
use crate::error::Error;
use crate::gateway::Gateway;
use crate::trust::ApprovalRequest;

/// Returns whether the tools are approved. Tools that were approved before are not asked about. The page for the person shows plan, code,
/// hosts and secrets.
pub(super) async fn review(session: &Session, gateway: &Gateway, booted: &Booted, arguments: &Boot) -> Result<bool, CliError> {
    let digest = arguments.digest.as_deref();
    let name = &booted.name;
    let mut last = String::new();
    loop {
        let request = gateway.approval_request(name).await?;
        if request.is_approved() {
            return Ok(true);
        }
        // A request that was just approved must not be shown endlessly.
        if last == request.digest() {
            return Err(Error::DigestChanged { server: name.clone() }.into());
        }
        request.digest().clone_into(&mut last);
        if !(is_implied(&request) || digest == Some(request.digest()) || asked(session, &request, arguments).await) {
            return Ok(false);
        }
        gateway.approve(name, Some(request.digest()), None).await?;
    }
}

/// Returns whether the approval of the code also covers this request: the descriptions and schemas were part of it, and nothing in them is
/// suspicious.
fn is_implied(request: &ApprovalRequest) -> bool {
    match request {
        ApprovalRequest::Command(_) => false,
        ApprovalRequest::Manifest(request) => request.findings.is_empty(),
    }
}

/// Shows the request on standard error, as standard output may belong to a host. Returns whether a person says yes.
async fn asked(session: &Session, request: &ApprovalRequest, arguments: &Boot) -> bool {
    let terminal = &session.terminal;
    if session.can_ask() && arguments.digest.is_none() {
        let dialog = terminal.dialog().await;
        dialog.say(&request_text(request, &terminal.err));
        return dialog.confirm("Approve and serve?").await;
    }
    if session.json() {
        terminal.print_json(&json!({ "request": request }));
    } else {
        terminal.say(request_text(request, &terminal.err).trim_start());
    }
    terminal.say(&format!("\n{}\n", advice(arguments, request.digest())));
    false
}

/// Returns the advice for a person who cannot be asked here. With `--no-cache`, the next start has other tools, because the model makes
/// them again.
fn advice(arguments: &Boot, digest: &str) -> String {
    let why = if arguments.digest.is_some() { "The digest is not that of these tools" } else { "These tools are new" };
    if arguments.no_cache {
        return format!(
            "{why}, and --no-cache makes other ones at each start, with other digests. Leave --no-cache out, so that the tools that a person has read are \
             those that are served."
        );
    }
    format!("{why}. After reading this, a person starts the same command with:\n  --digest {digest}")
}
