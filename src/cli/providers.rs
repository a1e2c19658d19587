//! The command `providers`, and the approval of a package's code: `approve --provider` and `revoke --provider`.

use serde_json::json;

use super::Exit;
use super::error::CliError;
use super::next_command::NextCommand;
use super::session::Session;
use crate::command::{Style, Tone, one_line};
use crate::gateway::{Gateway, ProviderRequest, ProviderState, ProviderStatus};

/// Width of the column with the field names.
const NAMES: usize = 16;
const WARNING: &str = "The code of a package runs with all rights of this program, at each start. Approve it only if you trust who made it. \
    The servers that it brings do not start until you approve each of them.";

/// Lists the providers.
pub(super) fn providers(session: &Session) -> Result<Exit, CliError> {
    session.check_config()?;
    let all = session.open()?.providers();
    if session.json() {
        session.terminal.print_json(&json!({ "providers": all }));
    } else {
        session.terminal.print(&list_text(&all, &session.next_command, &session.terminal.out));
    }
    Ok(Exit::Done)
}

/// Shows what the approval of a package's code is about, and asks. With a digest, approves exactly that request.
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
    dialog.say(&request_text(&request, &session.terminal.err));
    let is_approved = dialog.confirm("Approve?").await;
    drop(dialog);
    if !is_approved {
        session.terminal.print(&format!("{}: not approved\n", request.name));
        return Ok(Exit::Failed);
    }
    Ok(tell(session, &gateway.approve_provider(&request.package, &request.digest).await?))
}

/// Takes back the approval of a package's code.
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

/// Prints a request for which nobody can be asked here, and the command that approves it.
fn show(session: &Session, request: &ProviderRequest) {
    if session.json() {
        return session.terminal.print_json(&json!({ "provider": request.name, "approved": false, "request": request }));
    }
    let terminal = &session.terminal;
    terminal.print(request_text(request, &terminal.out).trim_start());
    let sentence = "Not approved yet. After reading this, a person approves it with:";
    let command = session.next_command.with(&format!("approve --provider {} --digest {}", request.name, request.digest));
    terminal.print(&format!("\n{}  {command}\n", terminal.out.wrapped("", sentence)));
}

/// Tells the status of a provider whose code is approved already.
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
    } else if let Some(problem) = &status.problem {
        session.terminal.print(&format!("{}: {}: {problem}\n", status.name, status.state.as_str()));
    } else {
        session.terminal.print(&format!("{}: approved. It brings: {}\n", status.name, names_of(&status.servers)));
        if !status.servers.is_empty() {
            let advice = session.next_command.with(&format!("approve {}", status.servers[0]));
            session.terminal.print(&format!("Each server needs its own approval: {advice}\n"));
        }
    }
    if is_ready { Exit::Done } else { Exit::Failed }
}

fn names_of(servers: &[String]) -> String {
    if servers.is_empty() { "no servers".to_owned() } else { one_line(&servers.join(", ")) }
}

fn list_text(all: &[ProviderStatus], next_command: &NextCommand, style: &Style) -> String {
    if all.is_empty() {
        return "the config names no providers, and none was found\n".to_owned();
    }
    let row = |status: &ProviderStatus| {
        let package = status.package.iter().chain(&status.version).cloned().collect::<Vec<_>>().join("@");
        vec![status.name.clone(), status.state.as_str().to_owned(), one_line(&package), status.servers.len().to_string()]
    };
    let mut text = style.table(&["PROVIDER", "STATE", "PACKAGE", "SERVERS"], all.iter().map(row).collect());
    for status in all {
        if let Some(description) = &status.description {
            text.push_str(&style.wrapped("", &format!("\n{} says of itself: \"{}\"", status.name, one_line(description))));
        }
        if let Some(problem) = &status.problem {
            let title = style.paint(Tone::Warning, &format!("{}: {}", status.name, status.state.as_str()));
            text.extend(["\n", &title, "\n"]);
            text.push_str(&style.wrapped("  ", problem));
        }
        if status.state == ProviderState::Unapproved {
            // The command is not wrapped, so that it can be copied.
            text.extend(["  ", &next_command.with(&format!("approve --provider {}", status.name)), "\n"]);
        }
        for refused in &status.refused {
            text.push_str(&style.wrapped("  ", &one_line(&format!("{} is denied: {}", refused.name, refused.reason))));
        }
    }
    text
}

/// Formats everything that a person must see before the code of a package runs.
fn request_text(request: &ProviderRequest, style: &Style) -> String {
    let ProviderRequest { name, package, version, folder, file, files, bytes, digest, approved: _, approved_before } = request;
    let mut text = format!("\n{}\n", style.paint(Tone::Warning, &format!("Provider {name}: the code of a package")));
    let mut field = |name: &str, value: &str| text.push_str(&style.field(name, NAMES, value));
    field("package", package);
    field("version", version);
    if let Some(before) = approved_before {
        field("approved before", &format!("version {before}, with other files"));
    }
    field("folder", folder);
    field("runs", file);
    field("covers", &format!("all files of the folder: {files}, {bytes} bytes. What they import from elsewhere is refused"));
    field("digest", digest);
    text.push_str(&style.wrapped("", WARNING));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style() -> Style {
        Style::new(false, Some(80))
    }

    #[test]
    fn a_request_shows_all_that_is_approved() {
        let request = ProviderRequest {
            name: "acme-mcp".into(),
            package: "acme-mcp".into(),
            version: "1.2.0".into(),
            folder: "/project/node_modules/acme-mcp".into(),
            file: "provider.js".into(),
            files: 2,
            bytes: 512,
            digest: "d".repeat(64),
            approved: false,
            approved_before: Some("1.1.0".into()),
        };
        let text = request_text(&request, &style());
        for part in ["1.2.0", "1.1.0", "/project/node_modules/acme-mcp", "provider.js", "512 bytes", &"d".repeat(64), "all rights"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
