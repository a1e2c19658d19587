//! A server with a small MCP handler, and a client for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyperlight_mcp::serve::http::{HttpLimits, HttpOptions, HttpServer, Metrics, listen};
use reqwest::{RequestBuilder, Response, StatusCode};
use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, SubscriptionFilter};
use rmcp::service::{RequestContext, RoleServer};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const ONE: &str = "0123456789abcdef0123456789abcdef";
pub const TWO: &str = "fedcba9876543210fedcba9876543210";
const ERA: &str = "2026-07-28";

/// Signals of calls that have started, and permits that let calls end.
#[derive(Debug)]
pub struct Probe {
    pub started: Semaphore,
    pub release: Semaphore,
    pub cancelled: Semaphore,
}

#[derive(Debug, Clone)]
struct Handler {
    agent: Option<String>,
    probe: Arc<Probe>,
}

impl ServerHandler for Handler {
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let text = match &*request.name {
            "whoami" => self.agent.clone().unwrap_or_else(|| "nobody".to_owned()),
            "large" => "x".repeat(32 * 1024 * 1024),
            "wait" => {
                self.probe.started.add_permits(1);
                tokio::select! {
                    released = self.probe.release.acquire() => released.unwrap().forget(),
                    () = context.ct.cancelled() => self.probe.cancelled.add_permits(1),
                }
                "waited".to_owned()
            }
            other => return Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// A server on a local port.
pub struct Server {
    pub http: Arc<HttpServer>,
    pub metrics: Arc<Metrics>,
    pub probe: Arc<Probe>,
    pub client: reqwest::Client,
    pub closed: CancellationToken,
}

pub async fn start(options: HttpOptions) -> Server {
    let probe = Arc::new(Probe { started: Semaphore::new(0), release: Semaphore::new(0), cancelled: Semaphore::new(0) });
    let (metrics, closed) = (Arc::new(Metrics::default()), CancellationToken::new());
    let made = probe.clone();
    let make = move |principal: &hyperlight_mcp::serve::http::Principal| Handler { agent: principal.agent.clone(), probe: made.clone() };
    let http = Arc::new(listen(options, make, metrics.clone(), closed.clone()).await.unwrap());
    Server { http, metrics, probe, client: client(None), closed }
}

pub fn limited(limits: HttpLimits) -> HttpOptions {
    HttpOptions { limits, ..HttpOptions::default() }
}

/// Returns a client that trusts this certificate alone.
pub fn client(trusted: Option<CertificateDer<'static>>) -> reqwest::Client {
    let mut roots = RootCertStore::empty();
    if let Some(certificate) = trusted {
        roots.add(certificate).unwrap();
    }
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    reqwest::Client::builder().tls_backend_preconfigured(config).no_proxy().build().unwrap()
}

pub fn token_file(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("tokens");
    fs::write(&path, lines).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Waits until the condition is true.
pub async fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let polling = async {
        while !ready() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub async fn taken(semaphore: &Semaphore, what: &str) {
    timeout(PATIENCE, semaphore.acquire()).await.unwrap_or_else(|_| panic!("never: {what}")).unwrap().forget();
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub session: Option<String>,
    pub retry_after: Option<String>,
    pub challenge: Option<String>,
    pub text: String,
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (session, retry_after, challenge) = (header("mcp-session-id"), header("retry-after"), header("www-authenticate"));
        Self { status: response.status(), session, retry_after, challenge, text: response.text().await.unwrap() }
    }

    /// Returns the text of a tool's result, from a body of JSON or from a stream.
    pub fn result(&self) -> String {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data:")).chain([self.text.as_str()]);
        let message = data.filter_map(|text| serde_json::from_str::<Json>(text).ok()).find(|message| !message["result"].is_null());
        let message = message.unwrap_or_else(|| panic!("no result: {self:?}"));
        message["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }
}

pub fn initialize() -> Json {
    let client = json!({ "name": "test", "version": "1" });
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }
    })
}

/// Returns a call by the protocol with sessions.
pub fn session_call(tool: &str) -> Json {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": tool, "arguments": {} } })
}

/// Returns a call by the protocol without sessions.
pub fn stateless_call(tool: &str) -> Json {
    let mut call = session_call(tool);
    call["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": ERA,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    call
}

impl Server {
    pub fn base(&self) -> &str {
        self.http.url().strip_suffix("/mcp").unwrap()
    }

    pub fn post(&self, token: Option<&str>, body: &Json) -> RequestBuilder {
        let request = self.client.post(self.http.url()).header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json").body(body.to_string());
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn open(&self, token: Option<&str>) -> Answer {
        Answer::of(self.post(token, &initialize()).send().await.unwrap()).await
    }

    /// Opens a session up to the point where tools can be called.
    pub async fn session(&self, token: Option<&str>) -> String {
        let opened = self.open(token).await;
        assert_eq!(opened.status, 200, "{opened:?}");
        let id = opened.session.unwrap();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(token, &ready).header("mcp-session-id", &id).send().await.unwrap().status(), 202);
        id
    }

    pub async fn call_in(&self, session: &str, token: Option<&str>, tool: &str) -> Answer {
        Answer::of(self.post(token, &session_call(tool)).header("mcp-session-id", session).send().await.unwrap()).await
    }

    pub fn stateless(&self, token: Option<&str>, tool: &str) -> RequestBuilder {
        let request = self.post(token, &stateless_call(tool)).header("mcp-protocol-version", ERA);
        request.header("mcp-method", "tools/call").header("mcp-name", tool)
    }

    /// Opens a stream of notifications by the protocol without sessions.
    pub async fn listen(&self, token: &str) -> Response {
        let mut request = stateless_call("");
        request["method"] = json!("subscriptions/listen");
        request["params"] = json!({ "_meta": request["params"]["_meta"], "notifications": { "toolsListChanged": true } });
        let request = self.post(Some(token), &request).header("mcp-protocol-version", ERA).header("mcp-method", "subscriptions/listen");
        request.send().await.unwrap()
    }

    pub async fn call(&self, token: Option<&str>, tool: &str) -> Answer {
        Answer::of(self.stateless(token, tool).send().await.unwrap()).await
    }

    /// Returns a connection on which the test writes the bytes itself.
    pub async fn raw(&self) -> TcpStream {
        TcpStream::connect(self.http.address()).await.unwrap()
    }

    /// Returns the value of a line of the metrics.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

/// Returns the bytes of a call that is not sent by a client of HTTP.
pub fn raw_call(tool: &str) -> Vec<u8> {
    let body = stateless_call(tool).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
         mcp-protocol-version: {ERA}\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Returns the bytes of a call in a session.
pub fn raw_session_call(tool: &str, token: &str, session: &str) -> Vec<u8> {
    let body = session_call(tool).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
         authorization: Bearer {token}\r\nmcp-session-id: {session}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Sends bytes, and returns everything that comes until the server ends the connection.
pub async fn exchange(server: &Server, bytes: &[u8]) -> String {
    let mut stream = server.raw().await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // The server may end the connection before it has read everything.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}
