//! The command `test`, and the question that may follow it: whether a server may reach a host that its box has refused.

use super::Exit;
use super::approve::review_one;
use super::error::{CliError, told};
use super::grants::{self, AsAgent};
use super::own::{add_hosts, is_own};
use super::session::Session;
use crate::boxes::border::{Refusal, RefusalReason};
use crate::command::{self, Command, Server, Speaker, one_line};
use crate::config::BoxHost;
use crate::gateway::Gateway;

/// Maximum number of hosts that a person is asked about.
const MAX_QUESTIONS: usize = 5;

/// Tests a server. At a terminal, asks about the hosts that the server wanted to reach and that its box has refused.
pub(super) async fn test(session: &Session, server: &Server) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open()?;
    let agent = grants::agent_of(session, &gateway, &AsAgent::default())?;
    let tested = command::perform_as(&gateway, &agent, &Command::Test(server.clone()), &session.terminal.unbroken(), Speaker::Person).await;
    match &tested {
        Ok(outcome) if session.json() => session.terminal.print_json(&outcome.data),
        Ok(outcome) => session.terminal.print(&outcome.text),
        // The reason is printed below, before the questions about the refused hosts.
        Err(_) => {}
    }
    let Err(error) = tested else {
        offer_hosts(session, &gateway, &server.server).await?;
        return Ok(Exit::Done);
    };
    if !wanted_by(session, &gateway, &server.server).is_empty() {
        session.terminal.say(&format!("{}\n", told(&error, &session.next_command, &session.terminal)));
        if offer_hosts(session, &gateway, &server.server).await? {
            return Ok(Exit::Done);
        }
    }
    Err(error.into())
}

/// Asks about each host that the box of a server has refused. If the person allows a host, changes the config and asks for approval of the
/// changed entry. Returns whether the person has approved the entry.
pub(super) async fn offer_hosts(session: &Session, gateway: &Gateway, name: &str) -> Result<bool, CliError> {
    let wanted = wanted_by(session, gateway, name);
    if wanted.is_empty() {
        return Ok(false);
    }
    let dialog = session.terminal.dialog().await;
    let mut allowed = Vec::new();
    for host in wanted {
        if dialog.confirm(&format!("It tried to reach {}, which its box does not allow. Allow it?", one_line(&host))).await {
            allowed.push(host);
        }
    }
    if allowed.is_empty() {
        return Ok(false);
    }
    let config = add_hosts(session, name, &allowed)?;
    dialog.say(&format!("written into {}\n", one_line(&config.display().to_string())));
    drop(dialog);
    gateway.reload().await?;
    Ok(matches!(review_one(session, gateway, name).await?, Exit::Done))
}

/// Returns the hosts to ask about. Empty if nobody can be asked, or if the entry is not in the person's own config.
fn wanted_by(session: &Session, gateway: &Gateway, name: &str) -> Vec<String> {
    let is_theirs = gateway.server_info(name).is_ok_and(|info| is_own(&info.status.source));
    if session.json() || !session.can_ask() || !is_theirs {
        return Vec::new();
    }
    hosts_of(&gateway.refused_hosts(name).unwrap_or_default())
}

/// Returns the refused hosts that a list of hosts can contain, in the form in which a person would write them. A wildcard is left out,
/// because a server can look up the name `*`.
fn hosts_of(refused: &[Refusal]) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for Refusal { host, port, reason } in refused {
        // If only a name was looked up, the server most likely wanted to use HTTPS.
        let target = port.filter(|port| *port != 443).map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        if *reason == RefusalReason::NotAllowed
            && target.parse::<BoxHost>().is_ok_and(|host| !host.host().has_subdomains())
            && !hosts.contains(&target)
            && hosts.len() < MAX_QUESTIONS
        {
            hosts.push(target);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_list_can_have_is_asked_about_and_once() {
        let refusal = |host: &str, port, reason| Refusal { host: host.to_owned(), port, reason };
        let refused = [
            refusal("api.example.org", None, RefusalReason::NotAllowed),
            refusal("api.example.org", Some(443), RefusalReason::NotAllowed),
            refusal("db.example", Some(5432), RefusalReason::NotAllowed),
            refusal("[2001:db8::1]", Some(443), RefusalReason::NotAllowed),
            refusal("inner.example", Some(443), RefusalReason::PrivateAddress),
            refusal("198.18.7.7, which no name has", Some(443), RefusalReason::NotAllowed),
            refusal("x y\u{fffd}", None, RefusalReason::NotAllowed),
            refusal("*.example.com", None, RefusalReason::NotAllowed),
        ];
        assert_eq!(hosts_of(&refused), ["api.example.org", "db.example:5432", "[2001:db8::1]"]);
    }
}
