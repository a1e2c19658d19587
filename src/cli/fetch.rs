//! The approval of hosts that agent code may fetch from: `approve --fetch` and `revoke --fetch`.

use std::fmt::Write as _;

use serde_json::json;

use super::Exit;
use super::error::CliError;
use super::session::Session;
use crate::command::LOOKALIKE;
use crate::fetch::shown_host_entry;
use crate::trust::FetchApproval;

/// Shows the hosts, and asks the person to approve them. With a digest, approves exactly that request without a question.
pub(super) async fn approve(
    session: &Session,
    agent: Option<&str>,
    hosts: &[String],
    private_hosts: &[String],
    digest: Option<&str>,
) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open_with_private_hosts(private_hosts)?;
    let hosts = (!hosts.is_empty()).then_some(hosts);
    if let Some(digest) = digest {
        return Ok(tell(session, &gateway.approve_fetch(agent, hosts, digest)?));
    }
    let request = gateway.fetch_approval(agent, hosts)?;
    if request.approved {
        return Ok(tell(session, &request));
    }
    if !session.can_ask() {
        show(session, &request);
        return Ok(Exit::Failed);
    }
    let dialog = session.terminal.dialog().await;
    dialog.say(&request_text(&request));
    let is_approved = dialog.confirm("Approve?").await;
    drop(dialog);
    if !is_approved {
        session.terminal.print("not approved\n");
        return Ok(Exit::Failed);
    }
    Ok(tell(session, &gateway.approve_fetch(agent, Some(&texts(&request)), &request.digest)?))
}

/// Revokes the approval of an agent's hosts.
pub(super) fn revoke(session: &Session, agent: Option<&str>) -> Result<Exit, CliError> {
    session.check_config()?;
    let revoked = session.open()?.revoke_fetch(agent)?;
    if session.json() {
        session.terminal.print_json(&json!({ "agent": agent, "revoked": revoked }));
    } else {
        let what = if revoked { "no host is approved any more" } else { "no host was approved" };
        session.terminal.print(&format!("fetch of {}: {what}\n", whose(agent)));
    }
    Ok(Exit::Done)
}

/// Explains the meaning of an approval. Hosts and names contain only characters that a terminal shows unchanged.
fn request_text(request: &FetchApproval) -> String {
    let FetchApproval { agent, shown, unicode_hosts, hosts_of_strangers, digest, approved: _, approved_hosts } = request;
    let mut text = format!("\nCode of {} asks to fetch from:\n", whose(agent.as_deref()));
    for host in &shown.hosts {
        let subdomains = if host.contains("*.") { " (with all subdomains)" } else { "" };
        let plain = if host.starts_with("http://") { " (without TLS: others on the way can read and change it)" } else { "" };
        let private = if shown.private_hosts.contains(host) { " (may be a private address of this network)" } else { "" };
        // Writing to a String cannot fail.
        let host = shown_host_entry(host);
        let _ = writeln!(text, "  {host}{subdomains}{plain}{private}");
    }
    if !unicode_hosts.is_empty() {
        let _ = writeln!(text, "note: {LOOKALIKE}");
    }
    for host in hosts_of_strangers {
        let _ = writeln!(text, "note: anybody can register a host name that is covered by {host}: the code may reach these hosts too");
    }
    text += "A yes means: code that a model writes may send any data that it has to these hosts, and read their answers. It may make any request \
             there, including requests that change or delete something, without asking again.\n";
    let gone: Vec<_> = approved_hosts.difference(&shown.hosts).map(String::as_str).collect();
    if !gone.is_empty() {
        let _ = writeln!(text, "These hosts are approved now, and would lose their approval: {}", gone.join(", "));
    }
    text + &format!("digest {digest}\n")
}

fn whose(agent: Option<&str>) -> String {
    agent.map_or_else(|| "the operator's own agent".to_owned(), |agent| format!("agent \"{agent}\""))
}

fn texts(request: &FetchApproval) -> Vec<String> {
    request.shown.hosts.iter().cloned().collect()
}

/// Prints a request for which nobody can be asked here, and the command that approves it.
fn show(session: &Session, request: &FetchApproval) {
    if session.json() {
        return session.terminal.print_json(&json!(request));
    }
    let terminal = &session.terminal;
    terminal.print(request_text(request).trim_start());
    let agent = request.agent.as_ref().map_or_else(String::new, |agent| format!(" --agent {agent}"));
    let private: Vec<_> = request.shown.private_hosts.iter().map(String::as_str).collect();
    let private = if private.is_empty() { String::new() } else { format!(" --private-hosts '{}'", private.join(",")) };
    let command = format!("approve --fetch '{}'{private}{agent} --digest {}", texts(request).join(","), request.digest);
    let sentence = "Not approved yet. After reading this, a person approves it with:";
    terminal.print(&format!("\n{}  {}\n", terminal.out.wrapped("", sentence), session.next_command.with(&command)));
}

fn tell(session: &Session, request: &FetchApproval) -> Exit {
    if session.json() {
        session.terminal.print_json(&json!(request));
    } else {
        let text = format!("fetch of {}: approved: {}\n", whose(request.agent.as_deref()), texts(request).join(", "));
        session.terminal.print(&text);
    }
    Exit::Done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::FetchHosts;

    fn text(host: &str) -> String {
        let shown = FetchHosts { hosts: [host.to_owned()].into(), ..FetchHosts::default() };
        let (unicode_hosts, hosts_of_strangers, approved_hosts) = (shown.in_unicode(), shown.of_strangers(), shown.hosts.clone());
        let digest = shown.digest(None);
        request_text(&FetchApproval { agent: None, digest, approved: false, approved_hosts, unicode_hosts, hosts_of_strangers, shown })
    }

    #[test]
    fn a_host_below_which_strangers_have_hosts_is_shown_as_such() {
        for host in ["*.github.io", "*.co.uk", "*.amazonaws.com"] {
            assert!(text(host).contains(&format!("anybody can register a host name that is covered by {host}")), "{}", text(host));
        }
        assert!(!text("*.example.com").contains("strangers") && !text("user.github.io").contains("strangers"));
    }

    #[test]
    fn a_host_with_letters_outside_of_ascii_is_shown_in_both_forms_with_a_warning() {
        let shown = text("*.xn--pple-43d.com");
        assert!(
            shown.contains("*.xn--pple-43d.com (in Unicode: *.\u{430}pple.com) (with all subdomains)\n") && shown.contains(LOOKALIKE),
            "{shown}"
        );
        assert!(!text("apple.com").contains("Unicode") && !text("apple.com").contains(LOOKALIKE));
    }
}
