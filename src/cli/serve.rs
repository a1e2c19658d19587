//! The command `serve`: the approved servers as one MCP server, for a host that starts this program.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::args::Serve;
use super::error::CliError;
use super::run::check_allowed;
use super::session::Session;
use super::{Exit, is_interrupted};
use crate::command::Tone;
use crate::error::Error;
use crate::serve::http::{self, HttpOptions, Listen, TlsFiles};
use crate::serve::{ServeOptions, Served, serve_stdio};
use crate::trust::AllowedWrites;

pub(super) async fn serve(session: &Session, arguments: &Serve) -> Result<Exit, CliError> {
    session.check_config()?;
    let allow_writes = AllowedWrites::read(&arguments.allow_writes);
    let gateway = session.open_served(arguments.servers.as_deref())?;
    check_allowed(session, &gateway, &allow_writes)?;
    if let Some(names) = &arguments.servers {
        // As a person's decision, which no model takes back.
        for status in gateway.servers()?.iter().filter(|status| !names.contains(&status.name)) {
            gateway.disable(&status.name).await?;
        }
    }
    let waiting: Vec<_> = gateway.servers()?.into_iter().filter(|status| !status.approved && !status.disabled_by_person).collect();
    for status in waiting {
        let text = format!(
            "server \"{}\" is not approved, and is not served until it is: {}",
            status.name,
            session.next_command.with(&format!("approve {}", status.name))
        );
        session.terminal.note(Tone::Warning, "warning:", &text);
    }
    let options = ServeOptions { allow_writes, agent: arguments.agent.clone() };
    let served = Served::new(gateway, options, &tokio::runtime::Handle::current())?;
    let (ended, stop) = (CancellationToken::new(), session.stop.clone());
    let interrupted = ended.clone();
    tokio::spawn(async move {
        stop.stopped().await;
        interrupted.cancel();
    });
    let outcome = match &arguments.http {
        Some(listen) => serve_http(session, &served, http_options(listen, arguments)?, ended).await,
        None => Box::pin(serve_stdio(&served, tokio::io::stdin(), tokio::io::stdout(), ended)).await,
    };
    served.close();
    outcome?;
    Ok(if is_interrupted(&session.stop) { Exit::Interrupted } else { Exit::Done })
}

fn http_options(listen: &str, arguments: &Serve) -> Result<HttpOptions, CliError> {
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate: certificate.clone(), key: key.clone() }),
        _ => None,
    };
    let listen = Listen::parse(listen).map_err(|error| CliError::Usage(format!("--http: {error}")))?;
    Ok(HttpOptions { listen, token_file: arguments.token_file.clone(), tls, ..HttpOptions::default() })
}

/// Serves until the program is stopped. Then, requests under way may end.
async fn serve_http(session: &Session, served: &Served, options: HttpOptions, stop: CancellationToken) -> Result<(), Error> {
    let (metrics, killed) = (Arc::clone(served.metrics()), CancellationToken::new());
    let handlers = served.clone();
    let server = http::listen(options, move |principal| handlers.handler(principal), metrics, killed).await?;
    session.terminal.note(Tone::Good, "serving", server.url());
    stop.cancelled().await;
    server.close().await;
    Ok(())
}
