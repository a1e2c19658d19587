//! Tests of direct tool names through the crate's own API, with real servers.

use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::gateway::{CallOptions, IdentityOptions};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::{Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};

use crate::support::{FIXTURE, TestFolder, guest_choice, object};

/// Opens a gateway with two servers whose tools would have the same direct name: `c_d` of `b`, and `d` of `b-c`.
fn open(test_folder: &TestFolder, order: [&str; 2]) -> Gateway {
    let server = |name: &str| {
        let tool = if name == "b" { "c_d" } else { "d" };
        json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(name, &["--tools", "none", "--extra-tool", tool]), "confirm": "never" })
    };
    let servers: serde_json::Map<String, Json> = order.iter().map(|name| ((*name).to_owned(), server(name))).collect();
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": servers }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    Gateway::open(options).unwrap()
}

async fn approve(gateway: &Gateway, name: &str) {
    gateway.approve(name, None, None).await.unwrap();
    gateway.enable(name).unwrap();
}

fn listed(gateway: &Gateway, style: NameStyle) -> Vec<(String, String, String)> {
    let tools = gateway.direct_tools(style).unwrap();
    tools.into_iter().map(|tool| (tool.server, tool.tool, tool.name)).collect()
}

async fn call(gateway: &Gateway, name: &str) -> Result<Json> {
    gateway.call_direct(name, object(json!({})), CallOptions::default(), &Stop::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tool_that_was_approved_first_keeps_the_name_in_each_process_and_each_order() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, ["b-c", "b"]);
    approve(&gateway, "b").await;
    approve(&gateway, "b-c").await;
    let first = listed(&gateway, NameStyle::Underscore);
    assert_eq!(first[0], ("b".to_owned(), "c_d".to_owned(), "mcp_b_c_d".to_owned()));
    assert!(first[1].2.starts_with("mcp_b_c_d_"), "{first:?}");
    let other = first[1].2.clone();
    gateway.close().await;
    let later = open(&test_folder, ["b", "b-c"]);
    for name in ["b-c", "b"] {
        later.enable(name).unwrap();
    }
    assert_eq!(listed(&later, NameStyle::Underscore), first);
    let answer = |result: Json| result["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(answer(call(&later, "mcp_b_c_d").await.unwrap()), "called c_d");
    assert_eq!(answer(call(&later, &other).await.unwrap()), "called d");
    assert_eq!(answer(call(&later, "b-c-d").await.unwrap()), "called c_d");
    later.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_known_while_its_tool_is_approved_and_called_while_its_server_is_enabled() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, ["b", "b-c"]);
    assert_eq!(call(&gateway, "mcp_b_c_d").await.unwrap_err().code(), "ERR_UNKNOWN_TOOL");
    approve(&gateway, "b").await;
    let agent = gateway.agent("reader", IdentityOptions::default()).unwrap();
    assert_eq!(agent.tool_named("b-c-d").unwrap(), ("b".to_owned(), "c_d".to_owned()));
    let unknown = agent.tool_named("b-c-e").unwrap_err();
    assert_eq!(unknown.to_string(), "no approved tool has the name \"b-c-e\": did you mean \"b-c-d\"? There are: b-c-d");
    assert_eq!(unknown.for_model(), unknown.to_string());
    gateway.disable("b").await.unwrap();
    assert_eq!(call(&gateway, "mcp_b_c_d").await.unwrap_err().code(), "ERR_NOT_ENABLED");
    assert!(listed(&gateway, NameStyle::Hyphen).is_empty());
    gateway.revoke("b").await.unwrap();
    assert_eq!(call(&gateway, "mcp_b_c_d").await.unwrap_err().code(), "ERR_UNKNOWN_TOOL");
    gateway.close().await;
}

/// A host's list leaves out a tool whose name the approval request could not show whole. A model must not reach it by a name that it guesses.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_no_list_contains_is_not_called_by_its_direct_name() {
    let test_folder = TestFolder::new();
    let hidden = "a\u{200b}b";
    let arguments = test_folder.arguments("s", &["--tools", "echo", "--extra-tool", hidden]);
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "s": { "command": FIXTURE, "box": "off", "args": arguments, "confirm": "never" } } }));
    options.state_dir = Some(test_folder.path("state"));
    let gateway = Gateway::open(options).unwrap();
    approve(&gateway, "s").await;
    let names = gateway.names_of("s", hidden).unwrap().expect("the tool is approved");
    assert!(listed(&gateway, NameStyle::Underscore).iter().all(|(_, tool, _)| tool != hidden));
    for style in [NameStyle::Underscore, NameStyle::Hyphen] {
        assert_eq!(call(&gateway, names.in_style(style)).await.unwrap_err().code(), "ERR_UNKNOWN_TOOL");
    }
    assert!(test_folder.events("s").iter().all(|entry| entry["name"] != hidden), "the server gets no call");
    gateway.close().await;
}
