//! The command `boot`: makes tools from a prompt, lets a person approve them, and serves them.

mod args;
mod display;
mod entry;
mod model;
mod review;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value as Json, json};

pub use args::Boot;
pub use model::{ModelClient, ModelSettings};

use super::access::warn_without_token;
use super::error::CliError;
use super::serve::until_ended;
use super::session::Session;
use super::{Exit, files};
use crate::boot::{Plan, Progress};
use crate::booted::{BootOptions, Booted};
use crate::cli::json_text;
use crate::command::{Tone, one_line};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::serve::http::Listen;
use crate::serve::{Direct, ServeOptions, Transport};
use crate::trust::AllowedWrites;
use display::{Display, shown_hosts};
use model::CliModel;

/// Makes the tools, asks a person about new ones, and serves them until a host or a signal ends it.
pub(super) async fn boot(session: &Session, arguments: &Boot) -> Result<Exit, CliError> {
    let options = options(session, arguments).await?;
    let settings = ModelSettings::of(arguments, &session.context.environment);
    settings.check_given().map_err(CliError::Usage)?;
    let transport = transport(arguments)?;
    // Problems that would keep the tools from being served are reported before a model costs money and a person reads the tools.
    if let Transport::Http(http) = &transport
        && !arguments.dry_run
    {
        crate::serve::http::check(http).await?;
    }
    let gateway = session.open_boot()?;
    let making = make(session, settings, arguments.verbose, &gateway, options);
    let booted = tokio::select! {
        biased;
        () = session.stop.stopped() => return Err(CliError::Interrupted),
        booted = making => booted?,
    };
    if arguments.dry_run {
        show_plan(session, &booted);
        return Ok(Exit::Done);
    }
    let reviewing = review::review(session, &gateway, &booted, arguments);
    let is_approved = tokio::select! {
        biased;
        () = session.stop.stopped() => return Err(CliError::Interrupted),
        is_approved = reviewing => is_approved?,
    };
    if !is_approved {
        return Ok(Exit::Failed);
    }
    serve(session, arguments, gateway, &booted, transport).await
}

async fn options(session: &Session, arguments: &Boot) -> Result<BootOptions, CliError> {
    let Boot { prompt, prompt_file, name, cache_dir, no_cache, locked, dry_run, secrets, allow_hosts, .. } = arguments;
    let (prompt, from) = match (prompt, prompt_file) {
        (Some(prompt), _) => (prompt.clone(), "--prompt".to_owned()),
        (None, Some(file)) if arguments.stdio && file == Path::new("-") => {
            let text = "--prompt-file - cannot be used with --stdio, as standard input belongs to the host: name a file";
            return Err(CliError::Usage(text.to_owned()));
        }
        (None, Some(file)) => (files::read_until(file, &session.stop).await?, file.display().to_string()),
        (None, None) => return Err(CliError::Usage("boot needs --prompt TEXT or --prompt-file FILE".to_owned())),
    };
    if prompt.trim().is_empty() {
        return Err(CliError::Usage(format!("{from} is empty: describe the tools, with the URLs of their documentation")));
    }
    Ok(BootOptions {
        prompt,
        name: name.clone(),
        cache: (!no_cache).then(|| cache_dir.clone()),
        locked: *locked,
        dry_run: *dry_run,
        secrets: secrets.clone(),
        allow_hosts: allow_hosts.clone(),
    })
}

fn transport(arguments: &Boot) -> Result<Transport, CliError> {
    let Boot { stdio, host, port, access, .. } = arguments;
    if *stdio {
        return Ok(Transport::Stdio);
    }
    let address = if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let listen = Listen::parse(&address).map_err(|error| CliError::Usage(format!("--host: {error}")))?;
    Ok(access.transport(listen))
}

async fn make(
    session: &Session,
    settings: ModelSettings,
    verbose: bool,
    gateway: &Gateway,
    options: BootOptions,
) -> Result<Booted, CliError> {
    if let Some(key) = settings.api_key() {
        gateway.keep_secret(key);
    }
    let model = CliModel { settings, client: session.context.model.clone(), misses: OnceLock::new() };
    let display = Display::new(&session.terminal, verbose);
    let progress = move |step: Progress| display.show(&step);
    let made = gateway.boot(options, &model, &progress).await;
    if made.is_err()
        && let Some(problem) = model.misses.into_inner()
    {
        return Err(CliError::Usage(problem));
    }
    made.map_err(|error| match error {
        Error::InvalidOption { problem, .. } => CliError::Usage(as_options(&problem)),
        error => error.into(),
    })
}

/// Replaces a gateway option's name at the beginning of a problem by the option of the command line.
fn as_options(problem: &str) -> String {
    let names = [("secrets: ", "--secret: "), ("allowHosts: ", "--allow-host: "), ("name: ", "--name: ")];
    let found = names.iter().find_map(|(option, own)| Some((own, problem.strip_prefix(option)?)));
    found.map_or_else(|| problem.to_owned(), |(own, rest)| format!("{own}{rest}"))
}

async fn serve(session: &Session, arguments: &Boot, gateway: Gateway, booted: &Booted, transport: Transport) -> Result<Exit, CliError> {
    let name = &booted.name;
    // A person has read the code of these tools and has approved it, so no call is asked about again. The host knows which tools only read.
    let allow_writes = AllowedWrites::read(std::slice::from_ref(name));
    gateway.enable(name)?;
    warn_without_token(session, &transport);
    let options = ServeOptions { allow_writes, direct: Direct::Only(name.clone()), ..ServeOptions::default() };
    let served = Box::pin(crate::serve::serve(gateway, options, transport)).await?;
    if let Some(url) = served.url() {
        let mut entry = json!({ "type": "http", "url": url });
        if arguments.access.token_file.is_some() {
            entry["headers"] = json!({ "Authorization": "Bearer <a token of the file>" });
        }
        session.terminal.note(Tone::Good, "serving", &format!("{} at {url}", counted(&booted.plan)));
        session.terminal.print_json(&json!({ "mcpServers": Json::from_iter([(name.clone(), entry)]) }));
    } else {
        session.terminal.note(Tone::Good, "serving", &format!("{} on standard input and output", counted(&booted.plan)));
        // Standard output belongs to the host.
        if let Some(entry) = entry::of(session, arguments) {
            let entry = json!({ "mcpServers": Json::from_iter([(name.clone(), entry)]) });
            session.terminal.say(&format!("{}\n", session.terminal.broken(&json_text(&entry))));
        }
    }
    until_ended(session, &served).await
}

fn counted(plan: &Plan) -> String {
    match plan.tools.as_slice() {
        [only] => format!("the tool {}", only.name),
        tools => format!("{} tools", tools.len()),
    }
}

/// Prints the plan and what the tools could reach.
fn show_plan(session: &Session, booted: &Booted) {
    if session.json() {
        return session.terminal.print_json(&json!(booted));
    }
    let (mut text, style) = (String::new(), session.terminal.unbroken());
    let line = |text: &str| style.marked("  ", &one_line(text));
    for tool in &booted.plan.tools {
        let network = match (tool.needs_network, tool.read_only_hint) {
            (false, _) => "no network",
            (true, true) => "requests that only read",
            (true, false) => "requests of any kind",
        };
        let _ = writeln!(text, "{} ({network})", tool.name);
        text += &line(&format!("description: {}", tool.description));
        text += &line(&format!("arguments: {}", tool.input_schema));
        text.extend(tool.endpoints.iter().map(|endpoint| line(&format!("endpoint: {} {}", endpoint.method, endpoint.url))));
        if !tool.implementation_notes.is_empty() {
            text += &line(&format!("notes: {}", tool.implementation_notes));
        }
    }
    let hosts = if booted.hosts.is_empty() { "nothing".to_owned() } else { shown_hosts(&booted.hosts) };
    let _ = writeln!(text, "may reach: {hosts}");
    for secret in &booted.secrets {
        let places = if secret.in_body { ", also in bodies" } else { "" };
        let _ = writeln!(text, "sends: the value of {} to {}{places}", secret.name, secret.host);
    }
    session.terminal.print(&text);
}
