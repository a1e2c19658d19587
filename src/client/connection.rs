//! One live connection: its handshake, the discovery of its tools, its calls, its end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, ClientRequest, ListToolsRequest, PaginatedRequestParams, Request, ServerResult};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions, RequestHandle, RunningService,
    ServiceError,
};
use serde_json::{Map, Value as Json};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::handler::Handler;
use super::process::{Launch, ServerProcess};
use super::transport::{MALFORMED_MARK, OVERSIZE_MARK, StdioTransport};
use super::watchdog::Watchdog;
use crate::catalog::{Manifest, Tool};
use crate::error::{Error, Result};
use crate::limits::{MAX_WIRE_MESSAGE_BYTES, PACKAGE_RUNNER_CONNECT_TIMEOUT_MS};

/// A server that lists more is not listed at all.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 2_000;
/// A longer name is none; the protocol's own advice is 64 characters.
const MAX_TOOL_NAME_BYTES: usize = 1_024;
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// How long the process's end may take to be known, once its pipe is closed.
const EXIT_NOTICE: Duration = Duration::from_millis(40);
/// How long rmcp may take to let go of a connection that is being ended.
const SERVICE_CLOSE: Duration = Duration::from_millis(200);

/// How long one call may take.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    pub timeout: Duration,
}

/// A connected server.
pub struct Connection {
    server: String,
    peer: Peer<RoleClient>,
    service: Mutex<RunningService<RoleClient, Handler>>,
    process: ServerProcess,
    /// As the server last told it.
    manifest: RwLock<Arc<Manifest>>,
    tools_changed: Arc<AtomicBool>,
    /// Held while the tools are read again: calls wait for that.
    reading: Mutex<()>,
    read_timeout: Duration,
    connect_time: Duration,
    runtime: Handle,
}

impl Connection {
    /// Starts the server and reads its tools. When that fails, nothing is left running.
    ///
    /// # Errors
    /// `ERR_SPAWN_FAILED`, `ERR_CONNECT_TIMEOUT`, `ERR_CONNECT_FAILED`, `ERR_SERVER_EXITED`.
    pub async fn open(launch: &Launch, watchdog: &Arc<Watchdog>, timeout: Duration) -> Result<Self> {
        let started = Instant::now();
        let (process, pipes) = ServerProcess::start(launch, watchdog).await?;
        let handler = Handler::default();
        let tools_changed = Arc::clone(&handler.tools_changed);
        let handshake = async {
            let transport = StdioTransport::new(pipes.stdout, pipes.stdin, MAX_WIRE_MESSAGE_BYTES);
            let service = handler.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await;
            let service = service.map_err(|error| Failure::of_handshake(&launch.server, &error))?;
            let manifest = discover(&launch.server, service.peer()).await.map_err(Failure::Lost)?;
            Ok((service, manifest))
        };
        let outcome = tokio::select! {
            biased;
            outcome = tokio::time::timeout(timeout, handshake) => outcome,
            status = process.exited() => Ok(Err(Failure::Told(exited(&launch.server, "before it was ready", status, &process)))),
        };
        let (service, manifest) = match outcome {
            Ok(Ok(connected)) => connected,
            Ok(Err(failure)) => return Err(failed_to_connect(&launch.server, failure, &process).await),
            Err(_) => {
                process.kill();
                process.end().await;
                return Err(Error::ConnectTimeout { server: launch.server.clone(), limit_ms: millis(timeout), hint: runner_hint(launch) });
            }
        };
        let peer = service.peer().clone();
        let (server, service) = (launch.server.clone(), Mutex::new(service));
        Ok(Self {
            server,
            peer,
            service,
            process,
            manifest: RwLock::new(Arc::new(manifest)),
            tools_changed,
            reading: Mutex::default(),
            read_timeout: timeout,
            connect_time: started.elapsed(),
            runtime: Handle::current(),
        })
    }

    /// What the server says of itself, unfiltered. Where it has announced that its tools changed, they are read again first.
    ///
    /// # Errors
    /// `ERR_CONNECT_FAILED`, `ERR_CONNECT_TIMEOUT` where they cannot be read: nothing is known of them then.
    pub async fn manifest(&self) -> Result<Arc<Manifest>> {
        if self.tools_changed.load(Ordering::Acquire) {
            let _reading = self.reading.lock().await;
            // Cleared before the reading: what is announced during it is read once more. A reading that is given up must not count.
            if self.tools_changed.swap(false, Ordering::AcqRel) {
                let unread = Unread(Some(&self.tools_changed));
                let reading = tokio::time::timeout(self.read_timeout, discover(&self.server, &self.peer)).await;
                let limit_ms = millis(self.read_timeout);
                let hint = " when it was asked for its changed tools".to_owned();
                let manifest = reading.map_err(|_| Error::ConnectTimeout { server: self.server.clone(), limit_ms, hint })??;
                *self.manifest.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(manifest);
                unread.settle();
            }
        }
        Ok(Arc::clone(&self.manifest.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// From the process's start to its list of tools.
    #[must_use]
    pub fn connect_time(&self) -> Duration {
        self.connect_time
    }

    /// Whether calls can still be sent.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.process.has_exited() && !self.peer.is_transport_closed()
    }

    /// Calls a tool by its raw name. The result is the server's, unparsed. Dropping the future cancels the call.
    ///
    /// # Errors
    /// `ERR_CALL_TIMEOUT`, `ERR_SERVER_EXITED`, `ERR_PROTOCOL`, `ERR_RESPONSE_TOO_LARGE`.
    pub async fn call(&self, tool: &str, arguments: Map<String, Json>, limits: CallLimits) -> Result<Json> {
        let parameters = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(Request::new(parameters));
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let Ok(handle) = sent else { return Err(self.ended(tool).await) };
        let mut pending = Pending { handle: Some(handle), runtime: self.runtime.clone() };
        let answer = tokio::select! {
            biased;
            answer = pending.answer() => answer,
            status = self.process.exited() => {
                pending.settle();
                return Err(exited(&self.server, &format!("during {}.{tool}", self.server), status, &self.process));
            }
            () = tokio::time::sleep(limits.timeout) => {
                // Dropping `pending` tells the server.
                return Err(Error::CallTimeout { server: self.server.clone(), tool: tool.to_owned(), limit_ms: millis(limits.timeout) });
            }
        };
        pending.settle();
        match answer {
            Ok(ServerResult::CustomResult(result)) => Ok(result.0),
            Ok(other) => serde_json::to_value(&other).map_err(|error| Error::Internal(error.to_string())),
            Err(error) => Err(self.call_error(tool, error).await),
        }
    }

    /// Ends the connection and its process, with all that it started.
    pub async fn close(&self) {
        let mut service = self.service.lock().await;
        let _ = service.close_with_timeout(SERVICE_CLOSE).await;
        self.process.end().await;
    }

    /// SIGKILL to the server's process group, at once.
    pub fn kill(&self) {
        self.process.kill();
    }

    async fn call_error(&self, tool: &str, error: ServiceError) -> Error {
        let (server, tool) = (self.server.clone(), tool.to_owned());
        let ServiceError::McpError(error) = error else { return self.ended(&tool).await };
        if let Some(bytes) = error.data.as_ref().and_then(|data| data.get(OVERSIZE_MARK)) {
            let what = format!("the answer of {server}.{tool}");
            return Error::ResponseTooLarge {
                what,
                size: bytes.to_string(),
                limit: MAX_WIRE_MESSAGE_BYTES,
                limit_name: "one message on the wire",
            };
        }
        let malformed = error.data.as_ref().and_then(|data| data.get(MALFORMED_MARK)).and_then(Json::as_str);
        let message = malformed.map_or_else(|| error.message.to_string(), |problem| format!("its answer is no valid JSON: {problem}"));
        Error::Protocol { server, tool, code: i64::from(error.code.0), message: cut(message) }
    }

    /// The connection is gone: says how the process ended, if that becomes known in time.
    async fn ended(&self, tool: &str) -> Error {
        let exit = tokio::time::timeout(EXIT_NOTICE, self.process.exited()).await;
        let status = exit.unwrap_or_else(|_| "it closed its output, but still runs".to_owned());
        exited(&self.server, &format!("during {}.{tool}", self.server), status, &self.process)
    }
}

/// Tools that are being read again. Dropped before they were, they still have to be.
struct Unread<'a>(Option<&'a AtomicBool>);

impl Unread<'_> {
    fn settle(mut self) {
        self.0 = None;
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if let Some(changed) = self.0 {
            changed.store(true, Ordering::Release);
        }
    }
}

/// A call that was sent. Dropped before its answer, it is cancelled at the server.
struct Pending {
    handle: Option<RequestHandle<RoleClient>>,
    runtime: Handle,
}

impl Pending {
    async fn answer(&mut self) -> std::result::Result<ServerResult, ServiceError> {
        match &mut self.handle {
            Some(handle) => (&mut handle.rx).await.map_err(|_| ServiceError::TransportClosed)?,
            None => Err(ServiceError::TransportClosed),
        }
    }

    /// There is nothing left to cancel.
    fn settle(&mut self) {
        self.handle = None;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.runtime.spawn(async move { handle.cancel(Some("the caller no longer waits".to_owned())).await });
        }
    }
}

/// A server's own words in an error of ours.
fn cut(text: String) -> String {
    let end = text.floor_char_boundary(MAX_ERROR_BYTES);
    if end < text.len() { format!("{}… [cut]", &text[..end]) } else { text }
}

async fn discover(server: &str, peer: &Peer<RoleClient>) -> Result<Manifest> {
    let info = peer.peer_info().ok_or_else(|| connect_failed(server, "it did not introduce itself"))?;
    let implementation = info.server_info.as_ref();
    let mut manifest = Manifest {
        protocol_version: info.protocol_version.to_string(),
        server_name: implementation.map(|about| about.name.clone()).unwrap_or_default(),
        server_version: implementation.map(|about| about.version.clone()).unwrap_or_default(),
        instructions: info.instructions.clone(),
        ..Manifest::default()
    };
    if info.capabilities.tools.is_none() {
        return Ok(manifest);
    }
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let page = list_page(server, peer, cursor).await?;
        manifest.tools.extend(tools_of(server, &page));
        if manifest.tools.len() > MAX_TOOLS {
            return Err(connect_failed(server, &format!("it lists more than {MAX_TOOLS} tools")));
        }
        let Some(next) = page.get("nextCursor").and_then(Json::as_str) else { return Ok(manifest) };
        if !cursors.insert(next.to_owned()) {
            return Err(connect_failed(server, "its list of tools repeats a cursor, so it has no end"));
        }
        cursor = Some(next.to_owned());
    }
    Err(connect_failed(server, &format!("its list of tools has more than {MAX_PAGES} pages")))
}

async fn list_page(server: &str, peer: &Peer<RoleClient>, cursor: Option<String>) -> Result<Json> {
    let parameters = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
    let request = ClientRequest::ListToolsRequest(ListToolsRequest { params: parameters, ..ListToolsRequest::default() });
    let handle = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
    let answer = match handle {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(ServerResult::CustomResult(page)) => Ok(page.0),
        Ok(other) => serde_json::to_value(&other).map_err(|error| Error::Internal(error.to_string())),
        Err(error) => Err(connect_failed(server, &format!("its tools cannot be listed: {error}"))),
    }
}

/// A malformed tool is left out; the others stay.
fn tools_of(server: &str, page: &Json) -> Vec<Tool> {
    let listed = page.get("tools").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let parse = |tool: &Json| {
        let parsed = serde_json::from_value::<Tool>(tool.clone())
            .ok()
            .filter(|tool| tool.input_schema.is_object() && tool.name.len() <= MAX_TOOL_NAME_BYTES);
        if parsed.is_none() {
            tracing::warn!(server, "a malformed tool was left out");
        }
        parsed
    };
    listed.iter().filter_map(parse).collect()
}

/// Why a server was not connected.
enum Failure {
    /// The pipe closed, or nothing came of it: how the process ended says more, where it has.
    Lost(Error),
    /// This says it.
    Told(Error),
}

impl Failure {
    fn of_handshake(server: &str, error: &ClientInitializeError) -> Self {
        let described = connect_failed(server, &error.to_string());
        match error {
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => Self::Lost(described),
            // A server that refuses mostly ends as well: its own words are the reason.
            _ => Self::Told(described),
        }
    }
}

async fn failed_to_connect(server: &str, failure: Failure, process: &ServerProcess) -> Error {
    let status = tokio::time::timeout(EXIT_NOTICE, process.exited()).await;
    process.kill();
    process.end().await;
    match (failure, status) {
        (Failure::Told(error), _) | (Failure::Lost(error), Err(_)) => error,
        (Failure::Lost(_), Ok(status)) => exited(server, "before it was ready", status, process),
    }
}

fn exited(server: &str, during: &str, status: String, process: &ServerProcess) -> Error {
    Error::ServerExited { server: server.to_owned(), during: during.to_owned(), status, stderr: process.stderr_text() }
}

fn connect_failed(server: &str, problem: &str) -> Error {
    Error::ConnectFailed { server: server.to_owned(), problem: problem.to_owned() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time-out of a server's connection: longer for a command that may have to fetch a package first.
pub(super) fn connect_timeout(command: &str, configured: Option<u64>, default_ms: u64) -> Duration {
    let default = if is_package_runner(command) { PACKAGE_RUNNER_CONNECT_TIMEOUT_MS.max(default_ms) } else { default_ms };
    Duration::from_millis(configured.unwrap_or(default))
}

fn is_package_runner(command: &str) -> bool {
    let name = command.rsplit('/').next().unwrap_or(command);
    matches!(name, "npx" | "uvx" | "pipx" | "bunx" | "docker" | "podman")
}

fn runner_hint(launch: &Launch) -> String {
    let command = &launch.command.command;
    let package = launch.command.arguments.iter().find(|argument| !argument.starts_with('-'));
    match (command.rsplit('/').next(), package) {
        (Some("npx"), Some(package)) => format!("; install the package first: npm install --global {package}"),
        (Some("uvx"), Some(package)) => format!("; install the package first: uv tool install {package}"),
        (Some("docker" | "podman"), _) => format!("; pull the image first: {command} pull IMAGE"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_package_runner_gets_more_time_unless_the_config_says_otherwise() {
        assert_eq!(connect_timeout("/usr/bin/npx", None, 10_000), Duration::from_mins(2));
        assert_eq!(connect_timeout("node", None, 10_000), Duration::from_secs(10));
        assert_eq!(connect_timeout("npx", Some(50), 10_000), Duration::from_millis(50));
    }

    #[test]
    fn a_malformed_tool_is_left_out_and_the_others_stay() {
        let page = json!({ "tools": [{ "name": 1 }, { "name": "ok", "inputSchema": {} }, { "name": "no-schema" }, { "name": "x", "inputSchema": 3 }] });
        let names: Vec<_> = tools_of("s", &page).into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["ok"]);
    }
}
