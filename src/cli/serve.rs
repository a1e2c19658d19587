//! The command `serve`: provides the approved servers as one MCP server, for a host that starts this program.

use super::Exit;
use super::access::warn_without_token;
use super::args::Serve;
use super::error::CliError;
use super::run::check_allowed;
use super::session::Session;
use crate::command::{Tone, one_line};
use crate::gateway::Gateway;
use crate::registry::{ServerState, ServerStatus};
use crate::serve::http::Listen;
use crate::serve::{Direct, Drain, ServeOptions, ServedGateway, Transport};
use crate::trust::AllowedWrites;

const CUT_OFF: &str = "a request did not end in the time after the signal, and was cancelled: it may have been carried out in part";

/// Serves until the host or a signal ends it. Then waits for the current requests.
pub(super) async fn serve(session: &Session, arguments: &Serve) -> Result<Exit, CliError> {
    let transport = transport(arguments)?;
    session.check_config()?;
    let allow_writes = AllowedWrites::read(&arguments.allow_writes);
    let gateway = session.open_served(arguments.servers.as_deref(), arguments.watches(), arguments.no_learn_results.then_some(false))?;
    check_allowed(session, &gateway, &allow_writes)?;
    let waiting: Vec<_> = gateway.servers()?.into_iter().filter(|status| !status.approved && !status.disabled_by_person).collect();
    for status in waiting {
        let text = format!(
            "server \"{}\" is not approved, and is not served until it is: {}",
            status.name,
            session.next_command.with(&format!("approve {}", status.name))
        );
        session.terminal.note(Tone::Warning, "warning:", &text);
    }
    warn_of_questions(session, &gateway)?;
    warn_without_token(session, &transport);
    let options = ServeOptions {
        allow_writes,
        agent: arguments.agent.clone(),
        direct: direct(arguments),
        names: arguments.names.into(),
        tool_errors: Some(arguments.tool_errors.into()),
        sign_in: Some(format!(
            "the user has to sign in to the server, by this command in a terminal: {}",
            session.next_command.with("test SERVER")
        )),
        servers: None,
    };
    let served = Box::pin(crate::serve::serve(gateway, options, transport)).await?;
    if let Some(url) = served.url() {
        session.terminal.note(Tone::Good, "serving", url);
    }
    until_ended(session, &served).await
}

/// Warns of servers that cannot be started, because a person would have to type a value and there is no terminal.
fn warn_of_questions(session: &Session, gateway: &Gateway) -> Result<(), CliError> {
    let asked = gateway.inputs_without_default();
    let is_served = |status: &ServerStatus| status.state != ServerState::Disabled && !status.disabled_by_person;
    for status in gateway.servers()?.iter().filter(|status| is_served(status)) {
        if let Some(id) = asked.get(&status.name).and_then(|ids| ids.first()) {
            let text = format!(
                "server \"{}\" asks for its input \"{}\" when it starts, and there is no terminal here, so it cannot be started. Write a variable (${{NAME}}) or envFile in place of ${{input:…}} in its entry",
                status.name,
                one_line(id)
            );
            session.terminal.note(Tone::Warning, "warning:", &text);
        }
    }
    Ok(())
}

/// Serves until the host or a signal ends it. After a signal, the current requests have some time to end. If a request does not end in this
/// time, this is reported, and the exit code is 130, as for a program that was interrupted.
pub(super) async fn until_ended(session: &Session, served: &ServedGateway) -> Result<Exit, CliError> {
    tokio::select! {
        outcome = served.ended() => outcome?,
        () = session.stop.stopped() => {
            if served.close().await == Drain::CutOff {
                session.terminal.note(Tone::Warning, "warning:", CUT_OFF);
                return Ok(Exit::Interrupted);
            }
        }
    }
    Ok(Exit::Done)
}

/// Reads `--direct`. If it names no servers, it means all servers.
fn direct(arguments: &Serve) -> Direct {
    match &arguments.direct {
        None => Direct::Off,
        Some(servers) if servers.is_empty() => Direct::All,
        Some(servers) => Direct::Of(servers.clone()),
    }
}

fn transport(arguments: &Serve) -> Result<Transport, CliError> {
    let Some(listen) = &arguments.http else { return Ok(Transport::Stdio) };
    let listen = Listen::parse(listen).map_err(|error| CliError::Usage(format!("--http: {error}")))?;
    Ok(arguments.access.transport(listen))
}
