//! The command `providers`: lists the providers, shows the approval request for a package's code, and approves the request if its digest is
//! given.

use serde_json::json;

use super::args::Providers;
use super::execute::{Outcome, Speaker};
use super::parse::METHOD;
use super::request::bordered;
use super::text::{Style, Tone, joined, one_line, printable};
use crate::error::{Error, Result};
use crate::gateway::{Gateway, ProviderRequest, ProviderState, ProviderStatus};

/// Width of the column with the field names.
const NAMES: usize = 16;
const WARNING: &str = "The code of a package runs with all rights of your user, at each start. Approve it only if you trust who made it. \
    The servers that it brings do not start until you approve each of them.";

/// Carries out `providers`. A model gets only names, states and counts, and cannot approve anything.
pub(super) async fn providers(gateway: &Gateway, arguments: &Providers, style: &Style, speaker: Speaker) -> Result<Outcome> {
    let Providers { provider, digest } = arguments;
    match (speaker, provider, digest) {
        (Speaker::Person, None, _) => {
            let all = gateway.providers();
            let text = provider_list_text(&all, style, &|name| format!("/mcp providers {name}"));
            Outcome::of(&json!({ "providers": all }), text)
        }
        (Speaker::Model, None, _) => {
            let told = |status: &ProviderStatus| json!({ "name": status.name, "state": status.state, "servers": status.servers.len() });
            Outcome::for_model(&json!({ "providers": gateway.providers().iter().map(told).collect::<Vec<_>>() }))
        }
        (Speaker::Model, Some(_), _) => {
            let problem = "only a person may read and approve a provider's code: ask the person to type /mcp providers";
            Err(Error::InvalidOption { method: METHOD, problem: problem.into() })
        }
        (Speaker::Person, Some(name), None) => {
            let request = gateway.provider_request(name).await?;
            let mut text = provider_request_text(&request, style).trim_start().to_owned();
            if request.approved {
                text.push_str("\nAll of this is approved already.\n");
            } else {
                let parts = ["\nTo approve exactly this, type:\n  /mcp providers ", &request.package, " ", &request.digest, "\n"];
                text.extend(parts);
            }
            Outcome::of(&json!({ "request": request }), text)
        }
        (Speaker::Person, Some(name), Some(digest)) => {
            let status = gateway.approve_provider(name, digest).await?;
            let text = provider_approved_text(&status, style, &|server| format!("/mcp approve {server}"));
            Outcome::of(&status, text)
        }
    }
}

/// Formats a provider whose code a person has just approved. `approve` returns the command that approves a server.
pub(crate) fn provider_approved_text(status: &ProviderStatus, style: &Style, approve: &dyn Fn(&str) -> String) -> String {
    if let Some(problem) = &status.problem {
        return style.marked("", &format!("{}: {}: {}", status.name, status.state.as_str(), one_line(problem)));
    }
    let names = if status.servers.is_empty() { "no servers".to_owned() } else { one_line(&joined(&status.servers)) };
    let mut text = style.marked("", &format!("{}: approved. It brings: {names}", status.name));
    if let Some(first) = status.servers.first() {
        text.extend(["Each server needs its own approval: ", &approve(first), "\n"]);
    }
    text
}

/// Formats the list of providers. `approve` returns the command that shows the request of a provider.
pub(crate) fn provider_list_text(all: &[ProviderStatus], style: &Style, approve: &dyn Fn(&str) -> String) -> String {
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
            text.push('\n');
            text.push_str(&style.marked("", &format!("{} describes itself as: \"{}\"", status.name, one_line(description))));
        }
        if let Some(problem) = &status.problem {
            let title = style.paint(Tone::Warning, &format!("{}: {}", status.name, status.state.as_str()));
            text.extend(["\n", &title, "\n"]);
            // The problem can have texts of the package, and the command below is to be copied.
            text.push_str(&style.quoted("  ", &printable(problem, &['\n'])));
        }
        if status.state == ProviderState::Unapproved {
            // The command is not wrapped, so that it can be copied.
            text.extend(["  ", &approve(&status.name), "\n"]);
        }
        for refused in &status.refused {
            text.push_str(&style.marked("  ", &one_line(&format!("{} is denied: {}", refused.name, refused.reason))));
        }
    }
    text
}

/// Formats everything that a person must see before the code of a package runs.
pub(crate) fn provider_request_text(request: &ProviderRequest, style: &Style) -> String {
    let ProviderRequest { name, package, version, folder, file, files, bytes, digest, approved: _, approved_before } = request;
    let mut text = format!("\n{}\n", style.paint(Tone::Warning, &format!("Provider {name}: the code of a package")));
    let mut field = |name: &str, value: &str| text.push_str(&style.field(name, NAMES, &one_line(value)));
    field("package", package);
    field("version", version);
    if let Some(before) = approved_before {
        field("approved before", &format!("version {before}, with other files"));
    }
    field("folder", &bordered(folder));
    field("runs", &bordered(file));
    field("covers", &format!("all {files} files of the folder, {bytes} bytes. Imports from outside of the folder are refused"));
    field("digest", digest);
    text.push_str(&style.wrapped("", WARNING));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let hostile = ProviderRequest { file: "provider\u{200b}.js".into(), folder: "/a\nruns  b ".into(), ..request.clone() };
        let text = provider_request_text(&hostile, &Style::default());
        assert!(text.contains("\nruns            provider\\u{200b}.js\n"), "{text}");
        assert!(text.contains("\nfolder          \"/a\\nruns  b \"\n"), "{text}");
        let text = provider_request_text(&request, &Style::new(false, Some(80)));
        for part in ["1.2.0", "1.1.0", "/project/node_modules/acme-mcp", "provider.js", "512 bytes", &"d".repeat(64), "all rights"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
