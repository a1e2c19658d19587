//! Tests of spans that are exported over OTLP, with a small receiver, real servers and a real run.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::gateway::{CallOptions, IdentityOptions, NameOrigin, RunOptions};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::serve::{ServeOptions, Served, Transport, serve, serve_stdio};
use hyperlight_mcp::telemetry::TraceContext;
use hyperlight_mcp::{Gateway, GatewayOptions};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ProtocolVersion, RequestMetaObject};
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient, ServiceExt as _};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::support::http::Remote;
use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, object};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";
const STATE: &str = "vendor=a1,tenant@system=b 2";

fn parent() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

/// A receiver of traces on a local port. It keeps the headers and the body of each request.
struct Receiver {
    url: String,
    requests: Arc<Mutex<Vec<(String, Json)>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/otlp", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, received) = (stream.unwrap(), Arc::clone(&received));
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(request) = read_request(&mut reader) {
                        received.lock().unwrap().push(request);
                        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                        reader.get_mut().write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        Self { url, requests }
    }

    /// Returns all spans that were received so far.
    fn spans(&self) -> Vec<Json> {
        let requests = self.requests.lock().unwrap();
        requests.iter().flat_map(|(_, body)| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()).collect()
    }
}

fn read_request(reader: &mut BufReader<std::net::TcpStream>) -> Option<(String, Json)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).unwrap()))
}

async fn open(test_folder: &TestFolder, variables: &[(&str, &str)]) -> Gateway {
    open_with(
        test_folder,
        &json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments("one", &[]), "confirm": "never" }),
        variables,
    )
    .await
}

async fn open_with(test_folder: &TestFolder, server: &Json, variables: &[(&str, &str)]) -> Gateway {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "one": server } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    options.environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    if emulated() {
        options.limits.connect_timeout_ms = Some(80_000);
    }
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway
}

fn attribute<'s>(span: &'s Json, key: &str) -> Option<&'s str> {
    let found = span["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    found["value"]["stringValue"].as_str()
}

fn named<'s>(spans: &'s [Json], name: &str) -> &'s Json {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no span {name} in {spans:#?}"))
}

/// Returns the `traceparent`s that the server received with calls of a tool.
fn told(test_folder: &TestFolder, tool: &str) -> Vec<Option<TraceContext>> {
    let calls = test_folder.events("one").into_iter().filter(|entry| entry["event"] == "request" && entry["name"] == tool);
    calls.map(|entry| TraceContext::parse(entry["meta"]["traceparent"].as_str()?)).collect()
}

/// The `tracestate`s that calls of a tool had at the server.
fn told_state(test_folder: &TestFolder, tool: &str) -> Vec<Option<String>> {
    let calls = test_folder.events("one").into_iter().filter(|entry| entry["event"] == "request" && entry["name"] == tool);
    calls.map(|entry| entry["meta"]["tracestate"].as_str().map(str::to_owned)).collect()
}

fn traced(trace: Option<&str>) -> CallOptions {
    CallOptions { trace: trace.and_then(TraceContext::parse).map(|trace| trace.with_state(STATE)), ..CallOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_calls_and_connections_are_exported_within_the_callers_trace_and_servers_are_told() {
    let test_folder = TestFolder::new();
    let receiver = Receiver::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b"),
        ("OTEL_SERVICE_NAME", "mine"),
    ];
    let gateway = open(&test_folder, &variables).await;
    let sandbox = gateway.sandbox(ToolErrors::Throw, None).unwrap();
    let code = "import { echo } from 'host:mcp-one'; export const handler = () => echo({ value: 'a secret value' })";
    let options = RunOptions { trace: TraceContext::parse(&parent()), run_id: Some(7), ..RunOptions::default() };
    sandbox.run(code.to_owned(), options).await.outcome.value.unwrap();
    let stop = Stop::new();
    gateway.call_tool("one", "error", object(json!({ "message": "m" })), traced(Some(&parent())), &stop).await.unwrap();
    gateway.call_tool("one", "vanished", object(json!({})), traced(None), &stop).await.unwrap_err();
    gateway.read_resource("one", "nothing://here", traced(None), &stop).await.unwrap_err();
    gateway.close().await;

    let (head, body) = receiver.requests.lock().unwrap()[0].clone();
    assert!(head.starts_with("POST /otlp/v1/traces ") && head.contains("x-key: a b"), "{head}");
    assert_eq!(body["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"], "mine");
    let spans = receiver.spans();
    assert!(!json!(spans).to_string().contains("secret value"));
    let run = named(&spans, "run");
    assert_eq!((run["traceId"].as_str(), run["parentSpanId"].as_str(), run["kind"].as_u64()), (Some(TRACE), Some(SPAN), Some(1)));
    let call = named(&spans, "tools/call echo");
    assert!(attribute(call, "jsonrpc.request.id").is_some_and(|id| id.parse::<u64>().is_ok()), "{call}");
    assert_eq!(attribute(call, "mcp.session.id"), None, "a server on standard input has none");
    assert_eq!((&call["traceId"], &call["parentSpanId"], call["kind"].as_u64()), (&run["traceId"], &run["spanId"], Some(3)));
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "echo"),
        ("network.transport", "pipe"),
        ("hyperlight_mcp.server", "one"),
    ] {
        assert_eq!(attribute(call, key), Some(value), "{key}");
    }
    let protocol = attribute(call, "mcp.protocol.version");
    assert!(protocol.is_some_and(|version| version.starts_with("20")), "{protocol:?}");
    assert_eq!(attribute(named(&spans, "initialize"), "mcp.protocol.version"), protocol);
    assert!(call.get("status").is_none());
    // The server gets the span of the call itself.
    let at_server = told(&test_folder, "echo")[0].clone().unwrap().to_string();
    assert_eq!(at_server, format!("00-{TRACE}-{}-01", call["spanId"].as_str().unwrap()));
    let failed = named(&spans, "tools/call error");
    assert_eq!((failed["parentSpanId"].as_str(), attribute(failed, "error.type")), (Some(SPAN), Some("tool_error")));
    assert_eq!(failed["status"]["code"], 2);
    assert_ne!(attribute(failed, "jsonrpc.request.id"), attribute(call, "jsonrpc.request.id"));
    assert_eq!((failed["traceState"].as_str(), told_state(&test_folder, "error")), (Some(STATE), vec![Some(STATE.to_owned())]));
    assert_eq!((call.get("traceState"), told_state(&test_folder, "echo")), (None, vec![None]), "this caller gave none");
    let unknown = named(&spans, "tools/call vanished");
    assert_eq!(attribute(unknown, "error.type"), Some("ERR_UNKNOWN_TOOL"));
    assert_eq!(attribute(unknown, "jsonrpc.request.id"), None, "nothing was sent");
    assert!(unknown["traceId"] != TRACE && unknown.get("parentSpanId").is_none());
    assert_eq!(attribute(named(&spans, "resources/read"), "mcp.resource.uri"), Some("nothing://here"));
    assert_eq!(attribute(named(&spans, "initialize"), "mcp.method.name"), Some("initialize"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_over_http_has_the_session_and_the_id_that_the_server_has_seen() {
    let (test_folder, of_server) = (TestFolder::new(), TestFolder::new());
    let (receiver, remote) = (Receiver::start(), Remote::start(&of_server, "one", &[]));
    let server = json!({ "url": remote.url, "confirm": "never" });
    let gateway = open_with(&test_folder, &server, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]).await;
    gateway.call_tool("one", "echo", object(json!({ "value": 1 })), traced(Some(&parent())), &Stop::new()).await.unwrap();
    gateway.close().await;
    assert_eq!(told_state(&of_server, "echo"), [Some(STATE.to_owned())]);
    let spans = receiver.spans();
    let call = named(&spans, "tools/call echo");
    assert!(attribute(call, "jsonrpc.request.id").is_some(), "{call}");
    let sessions: Vec<_> =
        of_server.events("one").iter().filter_map(|entry| Some(entry["headers"]["mcp-session-id"].as_str()?.to_owned())).collect();
    assert!(attribute(call, "mcp.session.id").is_some_and(|session| sessions.iter().any(|seen| seen == session)), "{call} {sessions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_endpoint_nothing_is_made_and_a_callers_trace_is_passed_on_as_it_is() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, &[]).await;
    let stop = Stop::new();
    for trace in [None, Some(parent())] {
        let arguments = object(json!({ "value": 1 }));
        gateway.call_tool("one", "echo", arguments, traced(trace.as_deref()), &stop).await.unwrap();
    }
    assert_eq!(told(&test_folder, "echo"), [None, TraceContext::parse(&parent())]);
    assert_eq!(told_state(&test_folder, "echo"), [None, Some(STATE.to_owned())]);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_shows_that_only_a_client_has_given_the_name_of_its_agent() {
    let test_folder = TestFolder::new();
    let receiver = Receiver::start();
    let gateway = open(&test_folder, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]).await;
    gateway.disable("one").await.unwrap();
    gateway.enable("one").unwrap();
    let agent = gateway.agent("alice", IdentityOptions { name_origin: NameOrigin::Client, ..IdentityOptions::default() }).unwrap();
    let sandbox = agent.sandbox(ToolErrors::Throw, None).unwrap();
    let code = "import { echo } from 'host:mcp-one'; export const handler = () => echo({ value: 1 })";
    sandbox.run(code.to_owned(), RunOptions::default()).await.outcome.value.unwrap();
    gateway.close().await;
    let spans = receiver.spans();
    let of_agent: Vec<_> = spans.iter().filter_map(|span| Some((span["name"].as_str()?, attribute(span, "gen_ai.agent.name")?))).collect();
    assert_eq!(of_agent.len(), 3, "{of_agent:?}");
    assert!(of_agent.iter().all(|(_, name)| *name == "client:alice"), "{of_agent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_is_not_sampled_is_passed_on_and_not_exported() {
    let test_folder = TestFolder::new();
    let receiver = Receiver::start();
    let gateway = open(&test_folder, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]).await;
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    gateway.call_tool("one", "echo", object(json!({ "value": 1 })), traced(Some(&unsampled)), &Stop::new()).await.unwrap();
    gateway.close().await;
    assert_eq!(told(&test_folder, "echo"), [TraceContext::parse(&unsampled)]);
    assert!(receiver.spans().iter().all(|span| span["name"] != "tools/call echo"));
}

/// Runs code as a host does, in the trace of the tests.
async fn run_as_host(client: &RunningService<RoleClient, ()>) -> String {
    let code = "import { echo } from 'host:mcp-one'; export const handler = () => echo({ value: 1 })";
    let params =
        CallToolRequestParams::new("run_javascript").with_arguments(object(json!({ "code": code, "input": null, "timeoutMs": null })));
    let mut options = PeerRequestOptions::no_options();
    let mut meta = RequestMetaObject::default();
    meta.insert("traceparent".to_owned(), parent().into());
    meta.insert("tracestate".to_owned(), STATE.into());
    options.meta = Some(meta);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let handle = client.send_cancellable_request(request, options).await.unwrap();
    let id = handle.id.to_string();
    handle.await_response().await.unwrap();
    id
}

/// Checks that the run of a host's request has the request's place in the trace and its id, and that its call is within the run.
fn check_run(spans: &[Json], id: &str, test_folder: &TestFolder) {
    let run = named(spans, "run");
    assert_eq!((run["traceId"].as_str(), run["parentSpanId"].as_str()), (Some(TRACE), Some(SPAN)));
    assert_eq!((attribute(run, "jsonrpc.request.id"), run["traceState"].as_str()), (Some(id), Some(STATE)));
    let call = named(spans, "tools/call echo");
    assert_eq!(call["parentSpanId"], run["spanId"]);
    assert_eq!((call["traceState"].as_str(), told_state(test_folder, "echo")), (Some(STATE), vec![Some(STATE.to_owned())]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_hosts_request_is_the_parent_of_its_run() {
    let test_folder = TestFolder::new();
    let receiver = Receiver::start();
    let gateway = open(&test_folder, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]).await;
    let runtime = tokio::runtime::Handle::current();
    let served = Served::new(gateway.clone(), ServeOptions::default(), &runtime).unwrap();
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(theirs);
    let host = served.clone();
    let serving = tokio::spawn(async move { serve_stdio(&host, input, output, CancellationToken::new()).await });
    let client = ().serve(ours).await.unwrap();
    let id = run_as_host(&client).await;
    client.cancel().await.unwrap();
    serving.await.unwrap().unwrap();
    served.close();
    gateway.close().await;
    let spans = receiver.spans();
    check_run(&spans, &id, &test_folder);
    assert_eq!(attribute(named(&spans, "run"), "mcp.session.id"), None, "there is no session on standard input");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_host_over_http_has_the_session_and_the_id_of_its_request() {
    // reqwest needs a provider, although the address has no TLS. Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    for version in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
        let test_folder = TestFolder::new();
        let receiver = Receiver::start();
        let gateway = open(&test_folder, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)]).await;
        let has_sessions = version == ProtocolVersion::V_2025_11_25;
        let served = serve(gateway.clone(), ServeOptions::default(), Transport::Http(Box::default())).await.unwrap();
        let config = StreamableHttpClientTransportConfig::with_uri(served.url().unwrap().to_owned());
        let transport = StreamableHttpClientTransport::from_config(config);
        let lifecycle = if has_sessions {
            ClientLifecycleMode::Initialize
        } else {
            ClientLifecycleMode::Discover { preferred_versions: vec![version] }
        };
        let client = ().serve_with_lifecycle(transport, lifecycle).await.unwrap();
        let id = run_as_host(&client).await;
        client.cancel().await.unwrap();
        served.close().await;
        gateway.close().await;
        let spans = receiver.spans();
        check_run(&spans, &id, &test_folder);
        let session = attribute(named(&spans, "run"), "mcp.session.id");
        assert_eq!(session.is_some_and(|session| session.len() >= 16), has_sessions, "{session:?}");
    }
}
