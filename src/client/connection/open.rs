//! Opens a connection: starts the process or the HTTP transport, does the handshake, and reads the lists. On failure, it ends the
//! process.

use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::RequestId;
use rmcp::service::{ClientInitializeError, ClientServiceExt as _, RunningService};
use rmcp::transport::Transport;
use serde_json::Value as Json;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};

use super::discovery::{connect_failed, discover};
use super::era::{Era, Plan, Refusal};
use super::link::{EXIT_NOTICE, Link};
use super::read_check::ReadCheck;
use super::request_scope::MAX_OPEN_REQUESTS;
use super::{Connection, Lists, list_changes, millis};
use crate::catalog::Manifest;
use crate::client::clock::{CallClock, CallLimits};
use crate::client::http::{HttpLimits, HttpTarget, SESSION_RENEWED, failure_of_start, http_transport};
use crate::client::inbound::caller::{Caller, Observer};
use crate::client::inbound::calls::{CallMatch, Calls, InFlight};
use crate::client::inbound::handler::Handler;
use crate::client::inbound::notification::{self, Interceptor, Notification};
use crate::client::inbound::observed::Observed;
use crate::client::inbound::owner::{RequestOwner, RequestOwners};
use crate::client::inbound::questions::Questions;
use crate::client::inbound::updates::Updates;
use crate::client::local::{LocalServer, LocalTools};
use crate::client::stdio::boxed::Boxed;
use crate::client::stdio::process::ServerProcess;
use crate::client::stdio::requests::DirectLine;
use crate::client::stdio::stderr::{Redact, StderrListener};
use crate::client::stdio::transport::StdioTransport;
use crate::client::stdio::watchdog::Watchdog;
use crate::config::ResolvedCommand;
use crate::error::{Error, Result};
use crate::limits::{MAX_WIRE_MESSAGE_BYTES, PACKAGE_RUNNER_CONNECT_TIMEOUT_MS};

/// Longest wait for the exit of a process after a failed handshake or after lists that could not be read. If the lists could not be read
/// and the process exits in time, its exit is reported as the reason.
const REFUSAL_NOTICE: Duration = Duration::from_millis(40);
/// Longest wait for an answer to `server/discover` while it is not known which handshake the server understands (its era). After this time,
/// `initialize` is tried.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(1);

const CALLS_OWN_AFFAIR: Duration = Duration::from_hours(24);

/// The server to connect to, with all placeholders replaced.
pub struct Launch {
    pub server: String,
    pub target: Target,
    /// Redactor for the server's standard error. It is applied before a line is kept or logged.
    pub redact: Redact,
    /// Listener that gets each redacted line of standard error.
    pub on_stderr: StderrListener,
    /// Caller for whom the connection is made. If the server requires an authorization while the connection is made, the person behind this
    /// caller is asked.
    pub caller: Arc<dyn Caller>,
    /// Clock of the connection attempt. It starts when it is created, and pauses while a person is asked.
    pub clock: ConnectClock,
    /// The protocol version that the config requires. `None` if the config requires no version.
    pub protocol_version: Option<String>,
    /// The kind of handshake that the server used at an earlier connection.
    pub era: Option<Era>,
    /// MCP roots that the server may ask for: folders, as URIs.
    pub roots: Vec<String>,
    /// True if the server is known to send questions without the id of the call to which they belong.
    pub elicits: bool,
}

/// The address of a server: a command or a URL.
pub enum Target {
    Process {
        command: ResolvedCommand,
        /// The file that was found for the command. It is started, and no other file of the same name is tried.
        program: PathBuf,
        /// The box in which the process is started. `None` if the process runs without a box, with the user's full rights.
        in_box: Option<Box<Boxed>>,
    },
    /// Streamable HTTP.
    Http(HttpTarget),
    /// A server within this process.
    Local(Arc<dyn LocalTools>),
}

/// Time limit for connecting to a server.
#[derive(Clone)]
pub struct ConnectClock {
    clock: CallClock,
    limit: Duration,
}

impl ConnectClock {
    /// Starts the clock. `configured` is the server's own `connectTimeoutMs`. Without that setting, a package runner such as `npx` gets more
    /// time than other commands, because it may have to download a package first.
    #[must_use]
    pub fn start(command: Option<&str>, configured: Option<u64>, default_ms: u64) -> Self {
        let default = if command.is_some_and(is_package_runner) { PACKAGE_RUNNER_CONNECT_TIMEOUT_MS.max(default_ms) } else { default_ms };
        let limit = Duration::from_millis(configured.unwrap_or(default));
        Self { clock: CallClock::start(CallLimits::fixed(limit)), limit }
    }

    /// Waits for work whose time does not count, such as the wait for a free place.
    pub(in crate::client) async fn without<T>(&self, work: impl Future<Output = T>) -> T {
        let _pause = self.pause();
        work.await
    }

    /// Waits for work that belongs to the attempt to connect, at most until the time of the attempt has passed.
    ///
    /// # Errors
    /// The errors of the work, and `ERR_CONNECT_TIMEOUT`.
    pub async fn within<T>(&self, server: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            _ = self.clock.expired() => {
                let hint = "; its files were still being looked up".to_owned().into();
                Err(Error::ConnectTimeout { server: server.to_owned(), limit_ms: millis(self.limit), hint })
            }
        }
    }

    /// Pauses the clock until the returned value is dropped. Used while a person is asked.
    #[must_use]
    pub fn pause(&self) -> impl Send + Sync + use<> {
        self.clock.pause()
    }
}

/// A connection whose handshake is done and whose lists are read.
struct EstablishedConnection {
    service: RunningService<RoleClient, Handler>,
    manifest: Manifest,
    link: Link,
    direct: Option<Arc<DirectLine>>,
}

/// A failed attempt: its error, and the class of the failure. The class decides which handshake is tried next.
struct FailedAttempt {
    error: Error,
    refusal: Refusal,
    /// The service that was started. Dropping it ends the server, so it is kept until the code has checked whether the process exited by
    /// itself.
    #[expect(dead_code, reason = "held")]
    established: Option<RunningService<RoleClient, Handler>>,
}

impl FailedAttempt {
    fn new(error: Error, refusal: Refusal) -> Self {
        Self { error, refusal, established: None }
    }
}

/// State that all attempts of one connection share.
struct Opening<'a> {
    launch: &'a Launch,
    watchdog: &'a Arc<Watchdog>,
    calls: Arc<Calls>,
    lists: Arc<Lists>,
    questions: Questions,
    updates: Arc<Updates>,
    owners: Arc<RequestOwners>,
}

impl Connection {
    /// Connects and reads all lists. On failure, no process keeps running.
    ///
    /// # Errors
    /// `ERR_SPAWN_FAILED`, `ERR_CONNECT_TIMEOUT`, `ERR_CONNECT_FAILED`, `ERR_SERVER_EXITED`, and the errors of HTTP and authorization.
    pub async fn open(launch: &Launch, watchdog: &Arc<Watchdog>, observer: Arc<dyn Observer>) -> Result<Self> {
        let started = Instant::now();
        let questions = Questions::new(&launch.server, observer, launch.roots.clone());
        let telling = questions.clone();
        let left_out = move |call: &InFlight, count| telling.tell_left_out(Some(call), count);
        let calls = Arc::new(Calls::new(launch.elicits, Box::new(left_out)));
        let updates = Updates::new(questions.clone());
        let owners = RequestOwners::new(&calls, &questions.observer);
        // This owner is used only while the connection is opened. Later requests have their own owners.
        let opener = owners.set_temporary(RequestOwner::new(Arc::clone(&launch.caller), Some(launch.clock.clock.clone())));
        let opening = Opening { launch, watchdog, calls, lists: Arc::default(), questions, updates, owners };
        let is_remote = matches!(launch.target, Target::Http(_));
        let plan = Plan::new(launch.protocol_version.as_deref(), launch.era);
        let mut plan = if is_remote { plan.over_http() } else { plan };
        let established = loop {
            // The future is boxed because it is large, and would otherwise be part of each future that awaits this one.
            match Box::pin(opening.attempt(&plan)).await {
                Ok(established) => break established,
                Err(FailedAttempt { error, refusal, .. }) => match plan.after(refusal) {
                    Some(next) => {
                        let next = if is_remote { next.over_http() } else { next };
                        tracing::debug!(server = launch.server, ?plan, %error, "the handshake failed; another one is tried");
                        plan = next;
                    }
                    None => return Err(error),
                },
            }
        };
        let peer = established.service.peer().clone();
        drop(opener);
        let Opening { calls, lists, questions, updates, owners, .. } = opening;
        Ok(Self {
            server: launch.server.clone(),
            peer,
            service: Mutex::new(established.service),
            link: established.link,
            direct: established.direct,
            era: Era::of(&established.manifest.protocol_version),
            calls,
            questions,
            owners,
            updates,
            lists,
            manifest: RwLock::new(Arc::new(established.manifest)),
            reading: Mutex::default(),
            read_timeout: launch.clock.limit,
            connect_time: started.elapsed(),
            turns: Arc::default(),
            room: Arc::new(Semaphore::new(MAX_OPEN_REQUESTS)),
            read_check: ReadCheck::new(),
            runtime: Handle::current(),
        })
    }
}

impl Opening<'_> {
    async fn attempt(&self, plan: &Plan) -> std::result::Result<EstablishedConnection, FailedAttempt> {
        match &self.launch.target {
            Target::Process { command, program, in_box } => self.attempt_process((command, program, in_box.as_deref()), plan).await,
            Target::Http(target) => self.attempt_http(target, plan).await,
            Target::Local(tools) => self.attempt_local(tools, plan).await,
        }
    }

    async fn attempt_http(&self, target: &HttpTarget, plan: &Plan) -> std::result::Result<EstablishedConnection, FailedAttempt> {
        let unrelated = |error| FailedAttempt::new(error, Refusal::Unrelated);
        let Launch { server, clock, .. } = self.launch;
        // An HTTP server that answers with JSON sends no headers until its tool has finished. So only the call's own time limit applies.
        let mut limits = HttpLimits { headers: CALLS_OWN_AFFAIR, ..HttpLimits::default() };
        if *plan != Plan::ProbeApart {
            // `server/discover` may use the whole connect time, because no other handshake is tried after it.
            limits.discover = CALLS_OWN_AFFAIR;
        }
        let owners = Arc::clone(&self.owners);
        let owner_of = Arc::new(move |request: Option<&RequestId>| owners.owner(request));
        let (transport, farewell) = http_transport(target, self.interceptor(), owner_of, limits).map_err(unrelated)?;
        let (service, manifest) = tokio::select! {
            biased;
            outcome = Box::pin(self.begin(transport, plan, || {})) => outcome?,
            _ = clock.clock.expired() => {
                let (server, limit_ms) = (server.clone(), millis(clock.limit));
                return Err(unrelated(Error::ConnectTimeout { server, limit_ms, hint: String::new().into() }));
            }
        };
        Ok(EstablishedConnection { service, manifest, link: Link::Remote(farewell), direct: None })
    }

    async fn attempt_local(&self, tools: &Arc<dyn LocalTools>, plan: &Plan) -> std::result::Result<EstablishedConnection, FailedAttempt> {
        let Launch { server, clock, .. } = self.launch;
        let (local, read, write) = LocalServer::start(server, Arc::clone(tools), Arc::clone(&self.calls));
        let transport = StdioTransport::new(read, write, MAX_WIRE_MESSAGE_BYTES, self.interceptor(), None);
        let direct = Some(Arc::new(transport.direct()));
        let (service, manifest) = tokio::select! {
            biased;
            outcome = Box::pin(self.begin(transport, plan, || {})) => outcome?,
            _ = clock.clock.expired() => {
                let (server, limit_ms) = (server.clone(), millis(clock.limit));
                return Err(FailedAttempt::new(Error::ConnectTimeout { server, limit_ms, hint: String::new().into() }, Refusal::Unrelated));
            }
        };
        Ok(EstablishedConnection { service, manifest, link: Link::Local(local), direct })
    }

    async fn attempt_process(
        &self,
        (command, program, in_box): (&ResolvedCommand, &Path, Option<&Boxed>),
        plan: &Plan,
    ) -> std::result::Result<EstablishedConnection, FailedAttempt> {
        let unrelated = |error| FailedAttempt::new(error, Refusal::Unrelated);
        let Launch { server, redact, on_stderr, clock, .. } = self.launch;
        let (process, pipes) =
            ServerProcess::start(server, (command, program, in_box), (redact, on_stderr), self.watchdog).await.map_err(unrelated)?;
        let patience = plan.probes().then_some(DISCOVER_PATIENCE);
        let transport = StdioTransport::new(pipes.stdout, pipes.stdin, MAX_WIRE_MESSAGE_BYTES, self.interceptor(), patience);
        let direct = Some(Arc::new(transport.direct()));
        let outcome = tokio::select! {
            biased;
            outcome = Box::pin(self.begin(transport, plan, || process.started())) => Ok(outcome),
            status = process.exited() => {
                Err(FailedAttempt::new(exited(server, status, &process), Refusal::Ended))
            }
            _ = clock.clock.expired() => Err(unrelated(self.timeout(command, &process))),
        };
        let (error, refusal) = match outcome {
            Ok(Ok((service, manifest))) => {
                return Ok(EstablishedConnection { service, manifest, link: Link::Process(process), direct });
            }
            Ok(Err(failed)) => {
                let patience = if failed.refusal == Refusal::Ended { EXIT_NOTICE } else { REFUSAL_NOTICE };
                let status = tokio::time::timeout(patience, process.exited()).await;
                match (failed.refusal, status) {
                    // The pipe closed. The exit status of the process explains more than the closed pipe.
                    (Refusal::Ended | Refusal::Unlisted, Ok(status)) => (exited(server, status, &process), failed.refusal),
                    _ => (failed.error, failed.refusal),
                }
            }
            Err(failed) => (failed.error, failed.refusal),
        };
        process.kill();
        process.end().await;
        Err(FailedAttempt::new(error, refusal))
    }

    /// Does the handshake, calls `on_handshake` when the handshake has succeeded, and reads the lists.
    async fn begin<T>(
        &self,
        transport: T,
        plan: &Plan,
        on_handshake: impl FnOnce(),
    ) -> std::result::Result<(RunningService<RoleClient, Handler>, Manifest), FailedAttempt>
    where
        T: Transport<RoleClient> + 'static,
    {
        let server = &self.launch.server;
        let handler = Handler { questions: self.questions.clone(), calls: Arc::clone(&self.calls), version: plan.version() };
        let transport = Observed { transport, calls: Arc::clone(&self.calls) };
        let service = handler.serve_with_lifecycle(transport, plan.lifecycle()).await.map_err(|error| refused(server, &error))?;
        on_handshake();
        // rmcp's response cache returns outdated answers when a request fails, so it is disabled.
        service.peer().set_response_cache_config(rmcp::service::ClientCacheConfig::disabled()).await;
        match discover(server, service.peer()).await {
            Ok(manifest) => {
                list_changes::listen(service.peer());
                Ok((service, manifest))
            }
            Err(error) => Err(FailedAttempt { error, refusal: Refusal::Unlisted, established: Some(service) }),
        }
    }

    /// Makes the interceptor. It handles notifications before rmcp does, so that their order is kept, and it limits their number.
    fn interceptor(&self) -> Interceptor {
        let (calls, lists, questions) = (Arc::clone(&self.calls), Arc::clone(&self.lists), self.questions.clone());
        let updates = Arc::clone(&self.updates);
        Arc::new(move |message: &Json| {
            if message["method"] == SESSION_RENEWED {
                // The lists may differ in the new session.
                lists.changed();
                return true;
            }
            if let Some(question) = notification::question(message) {
                calls.note_question(question);
                return false;
            }
            let Some(told) = notification::read(message) else { return false };
            // The rate limit is applied before the approval check, so that a flood of notifications does not cause a flood of approval checks.
            let now = tokio::time::Instant::now();
            match told {
                Notification::Progress { token, progress, params } => {
                    if let Some(admitted) = calls.admit(CallMatch::Token(token), now) {
                        questions.tell(&admitted, || notification::progress(progress, params));
                    }
                }
                Notification::Log { level, data, params } => {
                    if let Some(admitted) = calls.admit(CallMatch::OnlyCaller, now) {
                        questions.tell(&admitted, || notification::log(level, data, params));
                    }
                }
                Notification::ListChanged => lists.changed(),
                Notification::ResourceUpdated(uri) => updates.note(uri),
                Notification::Nothing => {}
            }
            true
        })
    }

    fn timeout(&self, command: &ResolvedCommand, process: &ServerProcess) -> Error {
        // The names of the hosts come from the server, and this field must not contain texts of the server.
        let refused = if process.has_refused() { "; its box has refused hosts, which its log names" } else { "" };
        let (server, limit_ms) = (self.launch.server.clone(), millis(self.launch.clock.limit));
        Error::ConnectTimeout { server, limit_ms, hint: format!("{}{refused}; its process was ended", runner_hint(command)).into() }
    }
}

/// Converts the error of a handshake to a failed attempt. The class of the attempt decides which handshake is tried next.
fn refused(server: &str, error: &ClientInitializeError) -> FailedAttempt {
    if let Some(failure) = failure_of_start(error) {
        // Over HTTP each request is independent, so a refused request does not show that another handshake would succeed.
        return FailedAttempt::new(failure.connect_error(server), Refusal::Unrelated);
    }
    // If both handshakes failed on the same connection, the second error describes the server's current state.
    let last = if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error { fallback } else { error };
    let refusal = match last {
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => Refusal::Ended,
        ClientInitializeError::Cancelled => Refusal::Unrelated,
        // Most servers that refuse a handshake also exit. The error that the server sent explains the refusal better than the exit
        // status.
        _ => Refusal::Answered,
    };
    FailedAttempt::new(connect_failed(server, &error.to_string()), refusal)
}

fn exited(server: &str, status: String, process: &ServerProcess) -> Error {
    Error::ServerExited {
        server: server.to_owned(),
        during: "before it was ready".into(),
        status: status.into(),
        stderr: process.stderr_text().into(),
    }
}

fn is_package_runner(command: &str) -> bool {
    let name = command.rsplit('/').next().unwrap_or(command);
    matches!(name, "npx" | "uvx" | "pipx" | "bunx" | "docker" | "podman")
}

fn runner_hint(command: &ResolvedCommand) -> String {
    let package = command.arguments.iter().find(|argument| !argument.starts_with('-'));
    match (command.command.rsplit('/').next(), package) {
        (Some("npx"), Some(package)) => format!("; install the package first: npm install --global {package}"),
        (Some("uvx"), Some(package)) => format!("; install the package first: uv tool install {package}"),
        (Some("docker" | "podman"), _) => format!("; pull the image first: {} pull IMAGE", command.command),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_runner_gets_more_time_unless_the_config_says_otherwise() {
        let limit = |command, configured| ConnectClock::start(Some(command), configured, 10_000).limit;
        assert_eq!(limit("/usr/bin/npx", None), Duration::from_mins(2));
        assert_eq!(limit("node", None), Duration::from_secs(10));
        assert_eq!(limit("npx", Some(50)), Duration::from_millis(50));
    }
}
