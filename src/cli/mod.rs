//! The program `hyperlight-mcp` for a person in a shell. It runs in the native addon: `bin/hyperlight-mcp.mjs` passes the arguments to it.

mod access;
mod approve;
mod approve_args;
mod args;
mod ask;
mod audit;
mod boot;
mod boxes;
mod check;
mod completion;
mod config_lock;
mod doctor;
mod edit;
mod error;
mod fetch;
mod files;
mod follow;
mod grants;
mod held_output;
mod import;
mod install;
mod own;
mod pages;
mod providers;
mod reads;
mod resolve;
mod run;
mod serve;
mod session;
mod terminal;
mod typed_line;
mod types;
mod untrusted;
mod usage;
mod values;
mod wanted;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use tokio::runtime::Handle;

use crate::blocking::blocking;
use crate::command::{self, Command, Server, Speaker};
use crate::gateway::ProviderLoader;
use crate::sandbox::{Stop, StopReason};
use args::{Approve, Cli, CliCommand, Revoke};
use error::CliError;
use grants::AsAgent;
use session::Session;

pub use args::Program;
pub use boot::{ModelClient, ModelSettings};
pub use import::{FoundServer, Secret, found_in};
pub use terminal::{Screens, json_text};
pub use values::{limit, milliseconds};

/// Time that servers have to end by themselves after Ctrl-C.
const ENDING: Duration = Duration::from_secs(2);

/// Time that `serve` has to end after a signal, so that current requests can end and the last answers can be sent.
const SERVE_ENDING: Duration = Duration::from_secs(15);
/// The maximum time that `search` waits until the meaning of all tools is known. Only the first search after an approval needs this time:
/// about 25 ms for each tool.
const MEANING_PATIENCE: Duration = Duration::from_secs(30);

/// Result of the program. It decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    Failed,
    /// The command line is wrong.
    Usage,
    /// Ctrl-C or another signal ended the program.
    Interrupted,
}

impl Exit {
    /// Returns the exit code.
    ///
    /// ```
    /// use hyperlight_mcp::cli::Exit;
    /// assert_eq!([Exit::Done, Exit::Failed, Exit::Usage, Exit::Interrupted].map(Exit::code), [0, 1, 2, 130]);
    /// ```
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
        }
    }
}

/// Environment in which the program runs.
#[derive(Clone)]
pub struct ProcessContext {
    pub screens: Screens,
    pub environment: BTreeMap<String, String>,
    /// Path of the program `hyperlight-mcp-watchdog`.
    pub watchdog: PathBuf,
    pub runtime: Handle,
    /// The paths with which this program was started. `None` if the program does not run in Node.
    pub launch: Option<Launch>,
    /// Runs the code of provider packages. `None` if the program does not run in Node.
    pub provider_loader: Option<Arc<dyn ProviderLoader>>,
    /// Asks the model of `boot`. `None` if the program does not run in Node.
    pub model: Option<Arc<dyn ModelClient>>,
}

/// Absolute paths with which this program was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Path of Node.
    pub node: PathBuf,
    /// Path of `bin/hyperlight-mcp.mjs`.
    pub script: PathBuf,
}

/// Runs the command until it ends or is stopped. `words` are the arguments without the program's name.
pub async fn main(words: Vec<String>, context: ProcessContext, stop: Stop) -> Exit {
    let wants_json = words.iter().any(|word| word == "--json");
    let all = std::iter::once("hyperlight-mcp".to_owned()).chain(words.iter().cloned());
    let cli = match Cli::try_parse_from(all) {
        Ok(cli) => cli,
        Err(error) => {
            let terminal = terminal::Terminal::new(context.screens, args::ColorChoice::Never, &context.environment);
            return unparsed(&terminal, &error, &words, wants_json);
        }
    };
    if let CliCommand::Completion(completion) = &cli.command {
        let terminal = terminal::Terminal::new(context.screens, cli.global.color, &context.environment);
        terminal.print(&completion::script(completion.shell));
        return written(&terminal, Exit::Done);
    }
    let session = Session::new(cli.global.clone(), context, stop.clone());
    let outcome = tokio::select! {
        biased;
        outcome = dispatch(&session, &cli.command) => outcome,
        () = stop_of(&cli.command, &stop) => Ok(Exit::Interrupted),
    };
    // A signal is the usual end of a server. So the command has succeeded if it has answered its last requests.
    let is_drained = serves(&cli.command) && matches!(outcome, Ok(Exit::Done));
    let exit = outcome.unwrap_or_else(|error| error.tell(&session));
    session.end(ENDING).await;
    if is_interrupted(&stop) && !is_drained { Exit::Interrupted } else { written(&session.terminal, exit) }
}

/// Returns `Exit::Failed` if standard output could not be written, and otherwise `exit`.
fn written(terminal: &terminal::Terminal, exit: Exit) -> Exit {
    let Some(terminal::OutputEnd::Failed(problem)) = terminal.output_end() else { return exit };
    terminal.note(command::Tone::Bad, "hyperlight-mcp:", &format!("standard output cannot be written: {problem}"));
    if exit == Exit::Done { Exit::Failed } else { exit }
}

/// Prints the help or the version if the person asked for it, and otherwise the usage error.
fn unparsed(terminal: &terminal::Terminal, error: &clap::Error, words: &[String], wants_json: bool) -> Exit {
    if !error.use_stderr() {
        terminal.print(&error.render().to_string());
        return written(terminal, Exit::Done);
    }
    let text = usage::usage_error(error, words);
    if wants_json {
        terminal.print_json(&serde_json::json!({ "error": { "code": error::USAGE, "message": text.trim_end() } }));
    }
    if text.contains('\n') {
        terminal.say(&text);
    } else {
        terminal.note(command::Tone::Bad, "hyperlight-mcp:", &text);
    }
    Exit::Usage
}

/// Waits for a signal that ends the command. A run then gets some time to end by itself, so that its logs are printed. `serve` also gets
/// some time, so that current requests are answered. Other commands end at once.
async fn stop_of(command: &CliCommand, stop: &Stop) {
    stop.stopped().await;
    if !is_interrupted(stop) {
        // Only the deadline of a run has passed. The run itself reports this.
        std::future::pending::<()>().await;
    }
    match command {
        CliCommand::Run(_) => tokio::time::sleep(ENDING).await,
        command if serves(command) => tokio::time::sleep(SERVE_ENDING).await,
        _ => {}
    }
}

/// Returns whether a command shows an approval request to a person. With a digest, the person has read the request before.
fn shows_request(command: &CliCommand) -> bool {
    match command {
        CliCommand::Approve(arguments) => arguments.digest.is_none(),
        CliCommand::Boot(arguments) => arguments.digest.is_none(),
        CliCommand::Enable(_) => true,
        _ => false,
    }
}

/// Returns whether a command serves hosts until it is told to end.
fn serves(command: &CliCommand) -> bool {
    matches!(command, CliCommand::Serve(_) | CliCommand::Boot(_))
}

/// Returns whether a signal stopped the program.
fn is_interrupted(stop: &Stop) -> bool {
    stop.reason().is_some_and(|reason| !matches!(reason, StopReason::Deadline | StopReason::Compute { .. }))
}

async fn dispatch(session: &Session, command: &CliCommand) -> Result<Exit, CliError> {
    if shows_request(command) {
        session.check_width()?;
    }
    match command {
        CliCommand::Add(arguments) => own::add(session, arguments),
        CliCommand::Set(arguments) => own::set(session, arguments),
        CliCommand::Unset(arguments) => own::unset(session, arguments),
        CliCommand::Remove(server) => own::remove(session, &server.server).await,
        CliCommand::Enable(server) => own::enable(session, &server.server).await,
        CliCommand::List(as_agent) => servers_as(session, &Command::List, as_agent).await,
        CliCommand::Info(server) => servers(session, &Command::Info(server.clone())).await,
        CliCommand::Revoke(Revoke { fetch: true, agent, .. }) => fetch::revoke(session, agent.as_deref()),
        CliCommand::Revoke(Revoke { provider: Some(provider), .. }) => providers::revoke(session, provider).await,
        CliCommand::Revoke(Revoke { server, .. }) => {
            servers(session, &Command::Revoke(Server { server: server.clone().unwrap_or_default() })).await
        }
        CliCommand::Providers => providers::providers(session),
        CliCommand::Test(server) => wanted::test(session, server).await,
        CliCommand::Search(search) => servers_as(session, &Command::Search(search.search.clone()), &search.as_agent).await,
        CliCommand::Logs(logs) if logs.follow => follow::follow(session, &logs.logs).await,
        CliCommand::Logs(logs) => servers(session, &Command::Logs(logs.logs.clone())).await,
        CliCommand::Approve(Approve { provider: Some(provider), digest, .. }) => {
            providers::approve(session, provider, digest.as_deref()).await
        }
        CliCommand::Approve(Approve { fetch: Some(hosts), agent, private_hosts, digest, .. }) => {
            fetch::approve(session, agent.as_deref(), hosts, private_hosts, digest.as_deref()).await
        }
        CliCommand::Approve(arguments) => approve::approve(session, arguments).await,
        CliCommand::Audit(arguments) => audit::audit(session, arguments).await,
        CliCommand::Run(arguments) => run::run(session, arguments).await,
        CliCommand::Check(arguments) => check::check(session, arguments).await,
        CliCommand::Resolve(arguments) => resolve::resolve(session, arguments).await,
        CliCommand::Serve(arguments) => Box::pin(serve::serve(session, arguments)).await,
        CliCommand::Boot(arguments) => Box::pin(boot::boot(session, arguments)).await,
        CliCommand::Types(arguments) => types::types(session, arguments),
        CliCommand::Import(arguments) => import::import(session, arguments).await,
        CliCommand::Install(arguments) => install::install(session, arguments),
        CliCommand::Grant(arguments) => grants::grant(session, arguments),
        CliCommand::Ungrant(arguments) => grants::ungrant(session, arguments),
        CliCommand::Toolboxes(arguments) => grants::toolboxes(session, arguments),
        CliCommand::Boxes(arguments) => boxes::boxes(session, arguments),
        CliCommand::Doctor => doctor::doctor(session).await,
        // `main` has already printed the script.
        CliCommand::Completion(_) => Ok(Exit::Done),
        CliCommand::Complete(arguments) => {
            completion::print(session, arguments);
            Ok(Exit::Done)
        }
    }
}

/// Carries out a command that is also available through `gateway.command` in Node.
async fn servers(session: &Session, command: &Command) -> Result<Exit, CliError> {
    servers_as(session, command, &AsAgent::default()).await
}

/// Carries out a command that is also available through `gateway.command` in Node. Shows only what an agent sees.
async fn servers_as(session: &Session, command: &Command, as_agent: &AsAgent) -> Result<Exit, CliError> {
    session.check_config()?;
    let gateway = session.open()?;
    let agent = grants::agent_of(session, &gateway, as_agent)?;
    if matches!(command, Command::Search(_)) && agent.ranks_by_meaning() {
        // This program ends after one search, so it waits for the vectors that the search asks for. The vectors are kept for the next
        // search.
        command::perform_as(&gateway, &agent, command, &session.terminal.out, Speaker::Person).await?;
        let waiting = agent.clone();
        blocking(move || Ok(waiting.wait_for_meaning(MEANING_PATIENCE))).await?;
    }
    let style = if matches!(command, Command::Logs(_)) { session.terminal.unbroken() } else { session.terminal.out };
    let outcome = command::perform_as(&gateway, &agent, command, &style, Speaker::Person).await?;
    if session.json() {
        session.terminal.print_json(&outcome.data);
    } else {
        session.terminal.print(&outcome.text);
    }
    Ok(Exit::Done)
}
