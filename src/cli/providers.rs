//! The command `providers`, and the approval of a package's code: `approve --provider` and `revoke --provider`.

use serde_json::json;

use super::Exit;
use super::error::CliError;
use super::session::Session;
use crate::command::{provider_approved_text, provider_list_text, provider_request_text};
use crate::gateway::{Gateway, ProviderRequest, ProviderState, ProviderStatus};

/// Lists the providers.
pub(super) fn providers(session: &Session) -> Result<Exit, CliError> {
    session.check_config()?;
    let all = session.open()?.providers();
    if session.json() {
        session.terminal.print_json(&json!({ "providers": all }));
    } else {
        session.terminal.print(&provider_list_text(&all, &session.terminal.out, &|name| {
            session.next_command.with(&format!("approve --provider {name}"))
        }));
    }
    Ok(Exit::Done)
}

/// Shows the approval request for a package's code, and asks the person. With a digest, approves exactly the request with that digest.
pub(super) async fn approve(session: &Session, name: &str, digest: Option<&str>) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open()?;
    if let Some(digest) = digest {
        return Ok(tell(session, &gateway.approve_provider(name, digest).await?));
    }
    let request = gateway.provider_request(name).await?;
    if request.approved {
        return Ok(tell_present(session, &gateway, &request));
    }
    if !session.can_ask() {
        show(session, &request);
        return Ok(Exit::Failed);
    }
    let dialog = session.terminal.dialog().await;
    dialog.say(&provider_request_text(&request, &session.terminal.err));
    let is_approved = dialog.confirm("Approve?").await;
    drop(dialog);
    if !is_approved {
        session.terminal.print(&format!("{}: not approved\n", request.name));
        return Ok(Exit::Failed);
    }
    Ok(tell(session, &gateway.approve_provider(&request.package, &request.digest).await?))
}

/// Revokes the approval of a package's code.
pub(super) async fn revoke(session: &Session, name: &str) -> Result<Exit, CliError> {
    session.check_config()?;
    let status = session.open()?.revoke_provider(name).await?;
    if session.json() {
        session.terminal.print_json(&json!({ "provider": status }));
    } else {
        session.terminal.print(&format!("{}: its code is not approved any more\n", status.name));
    }
    Ok(Exit::Done)
}

/// Prints a request that no person can answer here, and the command that approves it.
fn show(session: &Session, request: &ProviderRequest) {
    if session.json() {
        return session.terminal.print_json(&json!({ "provider": request.name, "approved": false, "request": request }));
    }
    let terminal = &session.terminal;
    terminal.print(provider_request_text(request, &terminal.out).trim_start());
    let sentence = "Not approved yet. After reading this, a person approves it with:";
    let command = session.next_command.with(&format!("approve --provider {} --digest {}", request.name, request.digest));
    terminal.print(&format!("\n{}  {command}\n", terminal.out.wrapped("", sentence)));
}

/// Prints the status of a provider whose code is already approved.
fn tell_present(session: &Session, gateway: &Gateway, request: &ProviderRequest) -> Exit {
    match gateway.providers().iter().find(|status| status.package.as_deref() == Some(&request.package)) {
        Some(status) => tell(session, status),
        None => Exit::Failed,
    }
}

/// Prints the status of a provider after its approval.
fn tell(session: &Session, status: &ProviderStatus) -> Exit {
    let is_ready = status.state == ProviderState::Ready;
    if session.json() {
        session.terminal.print_json(&json!({ "provider": status.name, "approved": is_ready, "status": status }));
    } else {
        let approve = |server: &str| session.next_command.with(&format!("approve {server}"));
        session.terminal.print(&provider_approved_text(status, &session.terminal.out, &approve));
    }
    if is_ready { Exit::Done } else { Exit::Failed }
}
