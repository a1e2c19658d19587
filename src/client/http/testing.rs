//! Test server that uses real sockets and answers as a script defines, and a client for it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, ClientRequest, Request};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions, RunningService, ServiceError,
};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{HttpFailure, HttpLimits, HttpTarget, failure_of, http_transport, raw_result};
use crate::client::inbound::notification::Interceptor;
use crate::client::inbound::owner::RequestOwner;
use crate::client::network;

/// A request that the test server received.
#[derive(Debug, Clone)]
pub(in crate::client) struct Seen {
    pub(in crate::client) method: String,
    pub(in crate::client) path: String,
    headers: Vec<(String, String)>,
    pub(in crate::client) body: Json,
    /// Number of earlier requests on the same connection.
    pub(in crate::client) before: usize,
}

impl Seen {
    pub(in crate::client) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the JSON-RPC method, or the HTTP method if the request has no message.
    pub(in crate::client) fn what(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.method)
    }

    pub(in crate::client) fn result(&self, result: &Json) -> Json {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }
}

/// A part of the server's answer. The parts are sent in order.
#[derive(Debug, Clone)]
pub(in crate::client) enum Piece {
    /// Bytes that are sent unchanged.
    Bytes(Vec<u8>),
    /// A chunk of a body with chunked encoding.
    Chunk(Vec<u8>),
    /// The end of a chunked body.
    End,
    /// Sends nothing until the client closes the connection.
    Hold,
    /// Sends the same chunk repeatedly until the client closes the connection.
    Forever(Vec<u8>),
    /// Closes the connection.
    Close,
}

pub(in crate::client) type Reply = Vec<Piece>;

/// Makes a complete answer. The connection can be used again after it.
pub(in crate::client) fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
    let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n{}\r\n", body.as_ref().len(), headers.concat());
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body.as_ref());
    vec![Piece::Bytes(bytes)]
}

pub(in crate::client) fn json_answer(message: &Json) -> Reply {
    answer(200, &[("content-type", "application/json")], message.to_string())
}

pub(in crate::client) fn stream(pieces: impl IntoIterator<Item = Piece>) -> Reply {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    [Piece::Bytes(head.into())].into_iter().chain(pieces).collect()
}

pub(in crate::client) fn event(text: &str) -> Piece {
    Piece::Chunk(text.as_bytes().to_vec())
}

pub(in crate::client) fn data(message: &Json) -> Piece {
    event(&format!("data: {message}\n\n"))
}

type Script = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

pub(in crate::client) struct Server {
    pub(in crate::client) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Number of requests that have arrived.
    came: watch::Receiver<usize>,
    /// Number of connections that the client has closed.
    left: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Host {
    script: Box<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    came: watch::Sender<usize>,
    left: watch::Sender<usize>,
}

impl Server {
    /// Starts a server. `script` gets each request and the number of earlier requests with the same `what`, and returns the answer.
    pub(in crate::client) async fn start(script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub(in crate::client) fn on(listener: TcpListener, script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let ((came, came_receiver), (left, left_receiver)) = (watch::channel(0), watch::channel(0));
        let host = Arc::new(Host { script: Box::new(script), seen: Arc::clone(&seen), came, left });
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let host = Arc::clone(&host);
                tokio::spawn(async move {
                    host.serve(socket).await;
                    host.left.send_modify(|left| *left += 1);
                });
            }
        });
        Self { url, seen, came: came_receiver, left: left_receiver, task }
    }

    /// Starts a server with sessions and the `initialize` handshake. If `script` returns `None` for a request, the standard answer is
    /// sent.
    pub(in crate::client) async fn mcp(script: impl Fn(&Seen, usize) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start(move |seen, nth| script(seen, nth).unwrap_or_else(|| usual(seen))).await
    }

    pub(in crate::client) fn seen(&self, what: &str) -> Vec<Seen> {
        self.seen.lock().iter().filter(|seen| seen.what() == what).cloned().collect()
    }

    /// Waits until `times` requests of the kind `what` have arrived.
    pub(in crate::client) async fn until_seen_times(&self, what: &str, times: usize) {
        let mut came = self.came.clone();
        patiently(came.wait_for(|_| self.seen(what).len() >= times)).await.unwrap();
    }

    pub(super) async fn until_seen(&self, what: &str) {
        let mut came = self.came.clone();
        patiently(came.wait_for(|_| !self.seen(what).is_empty())).await.unwrap();
    }

    /// Waits until the client has closed at least `connections` connections.
    pub(super) async fn until_left(&self, connections: usize) {
        let mut left = self.left.clone();
        patiently(left.wait_for(|left| *left >= connections)).await.unwrap();
    }
}

/// Waits for a future. Fails the test after 20 seconds.
pub(in crate::client) async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("the awaited event comes within 20 s")
}

pub(in crate::client) fn usual(seen: &Seen) -> Reply {
    let session = [("content-type", "application/json"), ("mcp-session-id", "s1")];
    match seen.what() {
        "initialize" => {
            let info =
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "n", "version": "1" } });
            answer(200, &session, seen.result(&info).to_string())
        }
        "tools/list" => json_answer(&seen.result(&json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }))),
        "tools/call" => json_answer(&seen.result(&json!({ "content": [] }))),
        "GET" => answer(405, &[], ""),
        "DELETE" => answer(200, &[], ""),
        what if what.starts_with("notifications/") => answer(202, &[], ""),
        _ => json_answer(&json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": { "code": -32601, "message": "unknown" } })),
    }
}

impl Host {
    async fn serve(&self, mut socket: TcpStream) -> Option<()> {
        let mut before = 0;
        loop {
            let seen = read_request(&mut socket, before).await?;
            before += 1;
            let nth = {
                let mut all = self.seen.lock();
                all.push(seen.clone());
                all.iter().filter(|other| other.what() == seen.what()).count() - 1
            };
            self.came.send_modify(|came| *came += 1);
            for piece in (self.script)(&seen, nth) {
                send(&mut socket, piece).await?;
            }
        }
    }
}

async fn send(socket: &mut TcpStream, piece: Piece) -> Option<()> {
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    match piece {
        Piece::Bytes(bytes) => socket.write_all(&bytes).await.ok(),
        Piece::Chunk(bytes) => socket.write_all(&chunk(&bytes)).await.ok(),
        Piece::End => socket.write_all(b"0\r\n\r\n").await.ok(),
        Piece::Close => None,
        Piece::Hold => {
            let _ = socket.read(&mut [0; 16]).await;
            None
        }
        Piece::Forever(bytes) => loop {
            socket.write_all(&chunk(&bytes)).await.ok()?;
        },
    }
}

async fn read_request(socket: &mut TcpStream, before: usize) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut start = lines.next()?.split(' ').map(str::to_owned);
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < end + 4 + length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default();
    Some(Seen { method: start.next()?, path: start.next()?, headers, body, before })
}

pub(in crate::client) fn target(url: &str) -> HttpTarget {
    HttpTarget {
        server: "remote".into(),
        url: url.to_owned().into(),
        headers: Vec::new(),
        allow_insecure: false,
        tokens: None,
        network: Arc::new(network()),
    }
}

/// Returns limits whose delays are short enough for tests.
pub(in crate::client) fn quick() -> HttpLimits {
    let short = Duration::from_millis(5);
    HttpLimits {
        retry: short,
        resume: short,
        longest_resume: short,
        discover: Duration::from_millis(200),
        delete: Duration::from_millis(200),
        ..HttpLimits::default()
    }
}

/// Opens a connection with a handshake of one kind.
pub(in crate::client) async fn start(
    target: &HttpTarget,
    interceptor: Interceptor,
    limits: HttpLimits,
    era: ClientLifecycleMode,
) -> Started {
    let transport = http_transport(target, interceptor, Arc::new(|_| RequestOwner::default()), limits).unwrap().0;
    Box::pin(patiently(().serve_with_lifecycle(transport, era))).await
}

type Started = Result<RunningService<RoleClient, ()>, ClientInitializeError>;

pub(super) fn no_interceptor() -> Interceptor {
    Arc::new(|_| false)
}

/// Makes an interceptor that handles all notifications. Also returns the list in which the interceptor stores all messages.
pub(in crate::client) fn listening() -> (Interceptor, Arc<Mutex<Vec<Json>>>) {
    let heard = Arc::<Mutex<Vec<Json>>>::default();
    let shown = Arc::clone(&heard);
    let interceptor: Interceptor = Arc::new(move |message| {
        shown.lock().push(message.clone());
        message.get("id").is_none()
    });
    (interceptor, heard)
}

pub(in crate::client) struct Client {
    pub(in crate::client) service: RunningService<RoleClient, ()>,
}

impl Client {
    pub(in crate::client) async fn of(server: &Server) -> Self {
        Self::with(&target(&server.url), no_interceptor(), quick()).await
    }

    pub(in crate::client) async fn with(target: &HttpTarget, interceptor: Interceptor, limits: HttpLimits) -> Self {
        Self { service: start(target, interceptor, limits, ClientLifecycleMode::Initialize).await.unwrap() }
    }

    pub(in crate::client) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub(in crate::client) async fn ask(&self, request: ClientRequest) -> Result<Json, ServiceError> {
        let handle = self.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        patiently(handle.await_response()).await.map(raw_result)
    }

    pub(in crate::client) async fn call(&self, tool: &'static str) -> Result<Json, ServiceError> {
        self.ask(tool_call(tool, Json::Null)).await
    }

    /// Makes a call that must fail, and returns the transport's failure.
    pub(super) async fn failed_call(&self) -> HttpFailure {
        let error = self.call("t").await.expect_err("the call fails");
        failure_of(&error).unwrap_or_else(|| panic!("the error has no failure of the HTTP transport: {error}"))
    }
}

pub(in crate::client) fn tool_call(tool: &'static str, arguments: Json) -> ClientRequest {
    let mut parameters = CallToolRequestParams::new(tool);
    if let Json::Object(arguments) = arguments {
        parameters = parameters.with_arguments(arguments);
    }
    ClientRequest::CallToolRequest(Request::new(parameters))
}
