//! Tests of servers whose approval another process has revoked and given again: nothing that began under the revoked approval goes on.

use std::collections::BTreeSet;
use std::sync::Arc;

use hyperlight_mcp::gateway::{Answer, ApprovalQuestion, CallOptions, Callbacks};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::trust::Decision;
use hyperlight_mcp::{Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::support::http::Remote;
use crate::support::{FIXTURE, TestFolder, guest_choice, object, until};

fn options(test_folder: &TestFolder, server: &Json) -> GatewayOptions {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "one": server } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    options
}

fn process(test_folder: &TestFolder, confirm: &str) -> Json {
    json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments("one", &[]), "confirm": confirm })
}

async fn open_approved(options: GatewayOptions) -> Gateway {
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway
}

/// Revokes and approves the server in another gateway with the same state folder.
async fn approve_again(test_folder: &TestFolder, server: &Json) {
    let elsewhere = Gateway::open(options(test_folder, server)).unwrap();
    elsewhere.revoke("one").await.unwrap();
    elsewhere.approve("one", None, None).await.unwrap();
    elsewhere.close().await;
}

async fn call(gateway: &Gateway, tool: &str) -> Result<Json> {
    gateway.call_tool("one", tool, object(json!({})), CallOptions::default(), &Stop::new()).await
}

async fn count(gateway: &Gateway) -> Json {
    call(gateway, "count").await.unwrap()["structuredContent"]["count"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_the_revoked_approval_is_replaced_once_and_keeps_no_memory() {
    let test_folder = TestFolder::new();
    let server = process(&test_folder, "never");
    let here = open_approved(options(&test_folder, &server)).await;
    assert_eq!((count(&here).await, count(&here).await), (json!(1), json!(2)));
    approve_again(&test_folder, &server).await;
    let spawned = test_folder.count("one", "spawn");
    let mut counts = futures::future::join_all((0..4).map(|_| count(&here))).await;
    counts.sort_by_key(Json::as_u64);
    assert_eq!(counts, [1, 2, 3, 4]);
    assert_eq!((test_folder.count("one", "spawn") - spawned, test_folder.servers_running().len()), (1, 1));
    // A further approval without a revocation ends nothing.
    let elsewhere = Gateway::open(options(&test_folder, &server)).unwrap();
    elsewhere.approve("one", None, None).await.unwrap();
    elsewhere.close().await;
    assert_eq!(count(&here).await, json!(5));
    here.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_http_of_the_revoked_approval_is_replaced() {
    let test_folder = TestFolder::new();
    let remote = Remote::start(&test_folder, "one", &[]);
    let server = json!({ "url": remote.url, "confirm": "never" });
    let here = open_approved(options(&test_folder, &server)).await;
    count(&here).await;
    approve_again(&test_folder, &server).await;
    count(&here).await;
    count(&here).await;
    let events = test_folder.events("one");
    let sessions: BTreeSet<_> = events.iter().filter_map(|entry| entry["headers"]["mcp-session-id"].as_str()).collect();
    // The sessions of the revoked approval and of the other gateway have ended.
    assert_eq!((sessions.len(), remote.requests("DELETE")), (3, 2), "{sessions:?}");
    here.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_of_the_revoked_approval_ends_before_its_next_ping() {
    let test_folder = TestFolder::new();
    let mut server = process(&test_folder, "never");
    server["keepAliveMs"] = json!(1_000);
    let here = open_approved(options(&test_folder, &server)).await;
    count(&here).await;
    approve_again(&test_folder, &server).await;
    until("the end of the process", || test_folder.servers_running().is_empty().then_some(())).await;
    assert_eq!(count(&here).await, json!(1));
    here.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_of_the_command_alone_ends_the_process_of_the_revoked_one() {
    let test_folder = TestFolder::new();
    let server = process(&test_folder, "never");
    let here = open_approved(options(&test_folder, &server)).await;
    count(&here).await;
    let elsewhere = Gateway::open(options(&test_folder, &server)).unwrap();
    elsewhere.revoke("one").await.unwrap();
    let digest = elsewhere.approval_request("one").await.unwrap().digest().to_owned();
    elsewhere.approve("one", Some(&digest), None).await.unwrap();
    assert_eq!(call(&here, "count").await.unwrap_err().code(), "ERR_NOT_APPROVED");
    assert_eq!(test_folder.servers_running(), [""; 0]);
    here.close().await;
}

/// A person who allows each call, after the test has told them to answer.
#[derive(Default)]
struct Slow {
    is_asked: Notify,
    answers: Arc<Notify>,
}

impl Callbacks for Slow {
    fn approve_call(&self, _question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        self.is_asked.notify_one();
        let answers = Arc::clone(&self.answers);
        Some(Box::pin(async move {
            answers.notified().await;
            Ok(Decision::Once)
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_meanwhile_is_not_sent() {
    let test_folder = TestFolder::new();
    let server = process(&test_folder, "always");
    let person = Arc::new(Slow::default());
    let callbacks = Some(Arc::clone(&person) as Arc<dyn Callbacks>);
    let here = open_approved(GatewayOptions { callbacks, ..options(&test_folder, &server) }).await;
    let revoking = async {
        person.is_asked.notified().await;
        approve_again(&test_folder, &server).await;
        person.answers.notify_one();
    };
    let (outcome, ()) = tokio::join!(call(&here, "count"), revoking);
    let error = outcome.unwrap_err();
    assert!(error.code() == "ERR_NOT_APPROVED" && error.to_string().contains("send it again"), "{error}");
    assert!(test_folder.events("one").iter().all(|entry| entry["name"] != "count"));
    assert_eq!(test_folder.servers_running(), [""; 0]);
    here.close().await;
}
