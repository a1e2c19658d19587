//! The command `serve`: provides the approved servers as one MCP server, for a host that starts this program.

use super::Exit;
use super::args::Serve;
use super::error::CliError;
use super::run::check_allowed;
use super::session::Session;
use crate::command::Tone;
use crate::serve::http::{HttpOptions, Listen, ProtectedResource, TlsFiles};
use crate::serve::{Direct, Drain, ServeOptions, ServedGateway, Transport};
use crate::trust::AllowedWrites;

const NO_TOKEN: &str = "no token is required: every program on this machine that can reach the port can call the approved tools, \
                        as far as the system does not show that it runs as another user. --token-file FILE requires one";

const CUT_OFF: &str = "a request was still running when the time to end was over, and was cancelled: it may have been carried out in part";

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
    if let Transport::Http(http) = &transport
        && http.token_file.is_none()
        && http.oauth.is_none()
    {
        session.terminal.note(Tone::Warning, "warning:", NO_TOKEN);
    }
    let options = ServeOptions {
        allow_writes,
        agent: arguments.agent.clone(),
        direct: direct(arguments),
        names: arguments.names.into(),
        tool_errors: Some(arguments.tool_errors.into()),
    };
    let served = Box::pin(crate::serve::serve(gateway, options, transport)).await?;
    if let Some(url) = served.url() {
        session.terminal.note(Tone::Good, "serving", url);
    }
    until_ended(session, &served).await
}

/// Serves until the host or a signal ends it. After a signal, the current requests have some time to end. If one did not, this is told, and
/// the exit code is that of a program that was interrupted.
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
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate: certificate.clone(), key: key.clone() }),
        _ => None,
    };
    let oauth = match (&arguments.oauth_issuer, &arguments.oauth_resource) {
        (Some(issuer), Some(resource)) => Some(ProtectedResource {
            resource: resource.clone(),
            issuer: issuer.clone(),
            jwks_url: arguments.oauth_jwks.clone(),
            scopes: arguments.oauth_scopes.clone(),
        }),
        _ => None,
    };
    Ok(Transport::Http(Box::new(HttpOptions {
        listen,
        token_file: arguments.token_file.clone(),
        tls,
        oauth,
        allowed_hosts: arguments.allowed_hosts.clone(),
        allowed_origins: arguments.allowed_origins.clone(),
        ..HttpOptions::default()
    })))
}
