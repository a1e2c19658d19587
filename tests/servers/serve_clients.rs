//! rmcp's own client drives every tool of a served gateway: over two streams and over HTTP, in both eras of the protocol.

#![allow(deprecated, reason = "clients of protocol 2025-11-25 are asked by requests, which rmcp marks for the newest one")]

use std::sync::Arc;

use hyperlight_mcp::serve::http::{HttpOptions, listen};
use hyperlight_mcp::serve::{Direct, ServeOptions, Served, serve_stdio};
use hyperlight_mcp::{Gateway, GatewayOptions};
use rmcp::model::{
    ArgumentInfo, CallToolRequestParams, ClientCapabilities, ClientConfig, CompleteRequestParams, ElicitRequestParams, ElicitResult,
    ElicitationAction, GetPromptRequestParams, Implementation, ProtocolVersion, ReadResourceRequestParams, Reference,
};
use rmcp::service::{RequestContext, RunningService};
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

/// The ways in which a client begins: of both eras.
fn eras() -> [ClientLifecycleMode; 2] {
    [ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }]
}

async fn served(test_folder: &TestFolder) -> Served {
    let runtime = tokio::runtime::Handle::current();
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), runtime.clone());
    let fixture = json!({ "command": FIXTURE, "args": test_folder.arguments("fixture", &["--tools", "get-forecast,write_note"]) });
    options.config = Some(json!({ "mcpServers": { "fixture": fixture } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("fixture", None, None).await.unwrap();
    Served::new(gateway, ServeOptions::default(), &runtime).unwrap()
}

/// A secret of the server's config, which the server repeats in each of its answers.
const SECRET: &str = "correct-horse-battery";

/// Serves the tools of a server, each under a name of its own, with its prompts and resources.
async fn served_directly(test_folder: &TestFolder) -> Served {
    let runtime = tokio::runtime::Handle::current();
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), runtime.clone());
    let args = test_folder.arguments("fixture", &["--tools", "args,echo_text", "--prompts", "--resources"]);
    let fixture = json!({ "command": FIXTURE, "args": args, "env": { "API_KEY": format!("${{NOPE:-{SECRET}}}") } });
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
        // The model's next call may need the path.
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

/// Calls each of the tools once, one of them with a write that asks.
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
