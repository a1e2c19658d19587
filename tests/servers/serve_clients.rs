//! The client of the crate rmcp calls every tool of a served gateway: over two streams and over HTTP, with both handshakes of the protocol
//! (`initialize`, `server/discover`).

#![allow(deprecated, reason = "clients of protocol 2025-11-25 are asked by requests, which rmcp marks for the newest one")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyperlight_mcp::serve::http::{HttpOptions, listen};
use hyperlight_mcp::serve::{Direct, ServeOptions, Served, serve_stdio};
use hyperlight_mcp::trust::AllowedWrites;
use hyperlight_mcp::{Gateway, GatewayOptions};
use rmcp::model::{
    ArgumentInfo, CallToolRequestParams, ClientCapabilities, ClientConfig, CompleteRequestParams, ElicitRequestParams, ElicitResult,
    ElicitationAction, GetPromptRequestParams, Implementation, ProtocolVersion, ReadResourceRequestParams, Reference,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::support::{FIXTURE, TestFolder, guest_choice, object};

/// A person who allows each call that asks.
struct Person;

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("rmcp", "1"))
    }

    async fn create_elicitation(&self, _: ElicitRequestParams, _: RequestContext<RoleClient>) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "allow": "this call" })))
    }
}

type Client = RunningService<RoleClient, Person>;

/// Returns the ways to begin a connection, one for each handshake (`initialize`, `server/discover`).
fn eras() -> [ClientLifecycleMode; 2] {
    [ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }]
}

async fn served(test_folder: &TestFolder) -> Served {
    served_with(test_folder, "get-forecast,write_note", ServeOptions::default()).await
}

async fn served_with(test_folder: &TestFolder, tools: &str, serve_options: ServeOptions) -> Served {
    let runtime = tokio::runtime::Handle::current();
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), runtime.clone());
    let fixture = json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments("fixture", &["--tools", tools]) });
    options.config = Some(json!({ "mcpServers": { "fixture": fixture } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("fixture", None, None).await.unwrap();
    Served::new(gateway, serve_options, &runtime).unwrap()
}

/// A secret of the server's config, which the server repeats in each of its answers.
const SECRET: &str = "correct-horse-battery";

/// Serves the tools of a server under direct names, with its prompts and resources.
async fn served_directly(test_folder: &TestFolder) -> Served {
    let runtime = tokio::runtime::Handle::current();
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), runtime.clone());
    let args = test_folder.arguments("fixture", &["--tools", "args,echo_text", "--prompts", "--resources"]);
    let fixture = json!({ "command": FIXTURE, "box": "off", "args": args, "env": { "API_KEY": format!("${{NOPE:-{SECRET}}}") } });
    options.config = Some(json!({ "mcpServers": { "fixture": fixture } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("fixture", None, None).await.unwrap();
    Served::new(gateway, ServeOptions { direct: Direct::All, ..ServeOptions::default() }, &runtime).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_gets_no_secret_of_the_config_in_an_answer_that_succeeds() {
    let test_folder = TestFolder::new();
    let served = served_directly(&test_folder).await;
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(ours);
    let host = served.clone();
    let serving = tokio::spawn(async move { serve_stdio(&host, input, output, CancellationToken::new()).await });
    let client = Person.serve_with_lifecycle(theirs, ClientLifecycleMode::Initialize).await.unwrap();
    let path = "/srv/data/prod/db";
    let text = format!("{path} {SECRET}");
    let tool = |name: &'static str, arguments: Json| client.call_tool(CallToolRequestParams::new(name).with_arguments(object(arguments)));
    let prompt = GetPromptRequestParams::new("travel").with_arguments(object(json!({ "place": text })));
    let completed = CompleteRequestParams::new(Reference::for_prompt("travel"), ArgumentInfo::new("place", format!("!{text}")));
    let answers = [
        json!(tool("mcp_fixture_echo_text", json!({ "text": text })).await.unwrap()),
        json!(tool("mcp_fixture_args", json!({ "key": [text] })).await.unwrap()),
        json!(client.read_resource(ReadResourceRequestParams::new(format!("fixture://item/{SECRET}"))).await.unwrap()),
        json!(client.get_prompt(prompt).await.unwrap()),
        json!(client.complete(completed).await.unwrap()),
    ];
    for answer in answers.map(|answer| answer.to_string()) {
        assert!(!answer.contains(SECRET) && answer.contains("[redacted]"), "{answer}");
        // The path must stay readable, because the model's next call may need it.
        assert!(answer.contains(path) || answer.contains("item [redacted]"), "{answer}");
    }
    client.cancel().await.unwrap();
    serving.await.unwrap().unwrap();
    served.close();
}

/// Calls a tool of the served gateway, and returns its structured content.
async fn call(client: &Client, tool: &'static str, arguments: Json) -> Json {
    let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(object(arguments))).await.unwrap();
    assert_ne!(result.is_error, Some(true), "{tool}: {result:?}");
    assert_eq!(result.content.len(), 1, "{tool}: {result:?}");
    result.structured_content.unwrap()
}

/// Calls each tool once. One of the calls contains a write that asks for permission.
async fn drive(client: &Client) {
    let names: Vec<_> = client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    let code = "import * as fixture from 'host:mcp-fixture'; export const handler = () => \
                [fixture.get_forecast({ location: 'Oslo' }).conditions, fixture.write_note({ text: 'x' })]";
    let calls = [
        ("run_javascript", json!({ "code": code, "input": null, "timeoutMs": null }), r#"["sunny","noted"]"#),
        ("search_mcp_tools", json!({ "query": "forecast", "limit": 1, "servers": null }), r#""function":"get_forecast""#),
        ("describe_mcp_tools", json!({ "names": ["fixture.get_forecast"] }), "export function get_forecast"),
        ("list_mcp_servers", json!({}), r#""name":"fixture""#),
        ("mcp_server_info", json!({ "server": "fixture" }), r#""name":"fixture""#),
        ("manage_mcp", json!({ "action": "test", "server": "fixture" }), "fixture"),
    ];
    for (tool, arguments, expected) in calls {
        assert!(names.iter().any(|name| name == tool), "{names:?}");
        let answer = call(client, tool, arguments).await.to_string();
        assert!(answer.contains(expected), "{tool}: {answer}");
    }
    assert_eq!(names.len(), 6, "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rmcps_client_drives_every_tool_over_two_streams() {
    let test_folder = TestFolder::new();
    let served = served(&test_folder).await;
    for era in eras() {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(ours);
        let host = served.clone();
        let serving = tokio::spawn(async move { serve_stdio(&host, input, output, CancellationToken::new()).await });
        let client = Person.serve_with_lifecycle(theirs, era).await.unwrap();
        drive(&client).await;
        client.cancel().await.unwrap();
        serving.await.unwrap().unwrap();
    }
    served.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn rmcps_client_drives_every_tool_over_http() {
    let test_folder = TestFolder::new();
    let served = served(&test_folder).await;
    let (handlers, metrics) = (served.clone(), Arc::clone(served.metrics()));
    let server = listen(HttpOptions::default(), move |principal| handlers.handler(principal), metrics, CancellationToken::new());
    let server = server.await.unwrap();
    // reqwest needs a provider, although the address has no TLS. Another test may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    for era in eras() {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let transport =
            StreamableHttpClientTransport::with_client(http, StreamableHttpClientTransportConfig::with_uri(server.url().to_owned()));
        let client = Person.serve_with_lifecycle(transport, era).await.unwrap();
        drive(&client).await;
        client.cancel().await.unwrap();
    }
    server.close().await;
    served.close();
}

/// A client that counts the notifications about changed tools.
#[derive(Clone, Default)]
struct Counts(Arc<AtomicUsize>);

impl Counts {
    fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl ClientHandler for Counts {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_changes_its_servers_changes_the_lists_of_its_own_session() {
    let test_folder = TestFolder::new();
    let served = served_with(&test_folder, "get-forecast", ServeOptions { direct: Direct::All, ..ServeOptions::default() }).await;
    let (one, other) = (Counts::default(), Counts::default());
    let mut clients = Vec::new();
    for counts in [&one, &other] {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(ours);
        let host = served.clone();
        tokio::spawn(async move { serve_stdio(&host, input, output, CancellationToken::new()).await });
        clients.push(counts.clone().serve_with_lifecycle(theirs, ClientLifecycleMode::Initialize).await.unwrap());
    }
    let manage = async |arguments: Json| {
        clients[0].call_tool(CallToolRequestParams::new("manage_mcp").with_arguments(object(arguments))).await.unwrap().is_error
    };
    let told = async |count: usize| {
        let told = async {
            while one.so_far() < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
    };
    assert_eq!(manage(json!({ "action": "nonsense" })).await, Some(true));
    assert_ne!(manage(json!({ "action": "enable", "server": "fixture" })).await, Some(true));
    assert_ne!(manage(json!({ "action": "disable", "server": "fixture" })).await, Some(true));
    told(1).await;
    assert!(clients[0].list_all_tools().await.unwrap().iter().all(|tool| !tool.name.contains("fixture")));
    assert!(clients[1].list_all_tools().await.unwrap().iter().any(|tool| tool.name.contains("fixture")));
    assert_ne!(manage(json!({ "action": "enable", "server": "fixture" })).await, Some(true));
    told(2).await;
    for client in &clients {
        client.list_all_tools().await.unwrap();
    }
    assert_eq!((one.so_far(), other.so_far()), (2, 0));
    served.close();
}

/// Sends one request of protocol 2026-07-28, and returns all messages of its answer.
async fn messages(url: &str, token: &str, mut params: Json) -> Vec<Json> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        "progressToken": token,
    });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let request = reqwest::Client::builder().no_proxy().build().unwrap().post(url).body(request.to_string());
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "run_javascript"),
    ];
    let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    let text = request.send().await.unwrap().text().await.unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data:")).chain([text.as_str()]);
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_question_the_progress_goes_to_the_request_that_brought_the_answer() {
    let test_folder = TestFolder::new();
    let options = ServeOptions { allow_writes: AllowedWrites::read(&["fixture.progress".to_owned()]), ..ServeOptions::default() };
    let served = served_with(&test_folder, "progress,write_note", options).await;
    let (handlers, metrics) = (served.clone(), Arc::clone(served.metrics()));
    let server = listen(HttpOptions::default(), move |principal| handlers.handler(principal), metrics, CancellationToken::new());
    let server = server.await.unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let code = "import * as fixture from 'host:mcp-fixture'; \
                export const handler = () => { fixture.write_note({ text: 'x' }); fixture.progress({ steps: 3 }); return 1 }";
    let mut call = json!({ "name": "run_javascript", "arguments": { "code": code, "input": null, "timeoutMs": null } });
    let asked = messages(server.url(), "first", call.clone()).await;
    let state = &asked.last().unwrap()["result"]["requestState"];
    assert!(state.is_string(), "{asked:?}");
    call["requestState"] = state.clone();
    call["inputResponses"] = json!({ "q1": { "action": "accept", "content": { "allow": "this call" } } });
    let answered = messages(server.url(), "second", call).await;
    assert_eq!(answered.last().unwrap()["result"]["structuredContent"]["value"], 1, "{answered:?}");
    let progress: Vec<_> = answered.iter().filter(|message| message["method"] == "notifications/progress").collect();
    assert!(!progress.is_empty() && progress.iter().all(|message| message["params"]["progressToken"] == "second"), "{answered:?}");
    server.close().await;
    served.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_an_answer_is_a_no_that_says_so() {
    let test_folder = TestFolder::new();
    let served = served_with(&test_folder, "write_note", ServeOptions::default()).await;
    let (handlers, metrics) = (served.clone(), Arc::clone(served.metrics()));
    let server = listen(HttpOptions::default(), move |principal| handlers.handler(principal), metrics, CancellationToken::new());
    let server = server.await.unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let code = "import * as fixture from 'host:mcp-fixture'; export const handler = () => fixture.write_note({ text: 'x' })";
    let mut call = json!({ "name": "run_javascript", "arguments": { "code": code, "input": null, "timeoutMs": null } });
    let asked = messages(server.url(), "first", call.clone()).await;
    call["requestState"] = asked.last().unwrap()["result"]["requestState"].clone();
    call["inputResponses"] = json!({});
    let answered = messages(server.url(), "second", call).await;
    let told = answered.last().unwrap()["result"].to_string();
    assert!(told.contains("was not called: the client has not answered the question"), "{told}");
    server.close().await;
    served.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_json_is_answered_with_its_id_and_the_host_goes_on() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let test_folder = TestFolder::new();
    let served = served(&test_folder).await;
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(ours);
    let host = served.clone();
    tokio::spawn(async move { serve_stdio(&host, input, output, CancellationToken::new()).await });
    let (answers, mut lines) = tokio::io::split(theirs);
    let mut answers = BufReader::new(answers).lines();
    let client = json!({ "name": "raw", "version": "1" });
    let parameters = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let broken = r#"{"jsonrpc":"2.0","id":2,"method":"ping",}"#;
    let ping = json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" });
    lines.write_all(format!("{begin}\n{ready}\n{broken}\n{ping}\n").as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let line = tokio::time::timeout(Duration::from_secs(30), answers.next_line()).await.unwrap().unwrap().unwrap();
        let message: Json = serde_json::from_str(&line).unwrap();
        if !message["id"].is_null() {
            seen.push((message["id"].as_i64().unwrap(), message["error"]["code"].as_i64()));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(1, None), (2, Some(-32700)), (3, None)]);
    served.close();
}
