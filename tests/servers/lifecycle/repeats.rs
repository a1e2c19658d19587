//! Calls that a gateway sends a second time. The server counts them.

use hyperlight_mcp::gateway::CallOptions;
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::{Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};

use crate::support::http::Remote;
use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, object, patience, pid_of, send, until, within};

fn options(test_folder: &TestFolder, servers: &Json) -> GatewayOptions {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": servers }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    if emulated() {
        options.limits.connect_timeout_ms = Some(80_000);
    }
    options
}

fn ledger_flag(test_folder: &TestFolder) -> [String; 2] {
    ["--ledger".to_owned(), test_folder.path("ledger").display().to_string()]
}

/// Opens a gateway with one server, approved and enabled.
async fn open(test_folder: &TestFolder, server: Json) -> Gateway {
    let gateway = Gateway::open(options(test_folder, &json!({ "one": server }))).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway
}

async fn open_process(test_folder: &TestFolder) -> Gateway {
    let ledger = ledger_flag(test_folder);
    let arguments = test_folder.arguments("one", &[&ledger[0], &ledger[1]]);
    open(test_folder, json!({ "command": FIXTURE, "box": "off", "args": arguments, "confirm": "never" })).await
}

async fn call(gateway: &Gateway, tool: &str, arguments: Json) -> Result<Json> {
    gateway.call_tool("one", tool, object(arguments), CallOptions::default(), &Stop::new()).await
}

fn counted(test_folder: &TestFolder, key: &str) -> usize {
    let ledger = std::fs::read_to_string(test_folder.path("ledger")).unwrap_or_default();
    ledger.lines().filter(|line| *line == key).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_server_ended_is_sent_again_only_where_twice_is_as_good_as_once() {
    let test_folder = TestFolder::new();
    let gateway = open_process(&test_folder).await;
    let error = call(&gateway, "counted", json!({ "key": "plain", "then": "crash_once" })).await.unwrap_err();
    assert_eq!((error.code(), counted(&test_folder, "plain")), ("ERR_SERVER_EXITED", 1), "{error}");
    for tool in ["counted_read", "counted_idempotent"] {
        let answer = call(&gateway, tool, json!({ "key": tool, "then": "crash_once" })).await.unwrap();
        assert_eq!((&answer["structuredContent"]["key"], counted(&test_folder, tool)), (&json!(tool), 2));
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_its_server_again_is_not_sent_a_third_time() {
    let test_folder = TestFolder::new();
    let gateway = open_process(&test_folder).await;
    for (then, status) in [("crash", "code 3"), ("exit0", "code 0")] {
        for (tool, times) in [("counted", 1), ("counted_read", 2), ("counted_idempotent", 2)] {
            let key = format!("{tool} {then}");
            let error = call(&gateway, tool, json!({ "key": key, "then": then })).await.unwrap_err();
            assert!(error.code() == "ERR_SERVER_EXITED" && error.to_string().contains(status), "{error}");
            assert_eq!(counted(&test_folder, &key), times, "{key}");
        }
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_closed_its_input_but_still_runs_is_replaced_for_the_next_call() {
    let test_folder = TestFolder::new();
    let ledger = ledger_flag(&test_folder);
    let arguments = test_folder.arguments("one", &[&ledger[0], &ledger[1], "--close-input"]);
    let gateway = open(&test_folder, json!({ "command": FIXTURE, "box": "off", "args": arguments, "confirm": "never" })).await;
    let spawned = test_folder.count("one", "spawn");
    for number in 0..3 {
        // No byte of the call has reached the old process, so even a tool that must not be called twice is called again.
        let key = number.to_string();
        call(&gateway, "counted", json!({ "key": key })).await.unwrap();
        assert_eq!(counted(&test_folder, &key), 1);
        until("its input is closed", || (test_folder.count("one", "close-input") == number + 1).then_some(())).await;
    }
    assert_eq!(test_folder.count("one", "spawn"), spawned + 2);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_in_any_other_way_is_sent_once() {
    let test_folder = TestFolder::new();
    let gateway = open_process(&test_folder).await;
    for tool in ["counted", "counted_read", "counted_idempotent"] {
        let hanging = CallOptions { timeout_ms: Some(200), ..CallOptions::default() };
        let arguments = object(json!({ "key": tool, "then": "hang" }));
        let error = gateway.call_tool("one", tool, arguments, hanging, &Stop::new()).await.unwrap_err();
        assert_eq!((error.code(), counted(&test_folder, tool)), ("ERR_CALL_TIMEOUT", 1), "{tool}: {error}");
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_right_after_its_servers_death_is_counted_at_most_once() {
    let test_folder = TestFolder::new();
    let gateway = open_process(&test_folder).await;
    for death in 1..=5 {
        let key = format!("after death {death}");
        let pid = call(&gateway, "pid", json!({})).await.unwrap()["structuredContent"]["pid"].clone();
        send(libc::SIGKILL, pid_of(&json!({ "pid": pid })));
        // The call is made immediately, so the server may or may not be known as dead. An error must mean that the call was not executed.
        match call(&gateway, "counted", json!({ "key": key })).await {
            Ok(_) => assert_eq!(counted(&test_folder, &key), 1),
            Err(error) => assert_eq!((error.code(), counted(&test_folder, &key)), ("ERR_SERVER_EXITED", 0), "{error}"),
        }
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_when_their_server_is_killed_end_once_each() {
    let test_folder = TestFolder::new();
    let gateway = open_process(&test_folder).await;
    let pid = call(&gateway, "pid", json!({})).await.unwrap()["structuredContent"]["pid"].clone();
    let spawned = test_folder.count("one", "spawn");
    let tools = ["counted", "counted_read", "counted_idempotent"];
    let calls = (0..30).map(|number| {
        let (gateway, tool) = (&gateway, tools[number % 3]);
        async move { (number, tool, call(gateway, tool, json!({ "key": number.to_string(), "ms": 1000 })).await) }
    });
    let killing = async {
        let all = || (0..30).all(|number| counted(&test_folder, &number.to_string()) == 1).then_some(());
        until("all calls", all).await;
        send(libc::SIGKILL, pid_of(&json!({ "pid": pid })));
    };
    let both = async { tokio::join!(futures::future::join_all(calls), killing) };
    let (outcomes, ()) = within(patience(), "the calls", both).await;
    for (number, tool, outcome) in outcomes {
        let times = counted(&test_folder, &number.to_string());
        match outcome {
            Ok(_) => assert_eq!((tool == "counted", times), (false, 2), "{number} {tool}"),
            Err(error) => assert_eq!((error.code(), tool, times), ("ERR_SERVER_EXITED", "counted", 1), "{number}"),
        }
    }
    assert_eq!(test_folder.count("one", "spawn"), spawned + 1);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_whose_connection_breaks_is_counted_once() {
    let test_folder = TestFolder::new();
    let ledger = ledger_flag(&test_folder);
    let remote = Remote::start(&test_folder, "one", &["--drop-post", &ledger[0], &ledger[1]]);
    let gateway = open(&test_folder, json!({ "url": remote.url, "confirm": "never" })).await;
    let error = call(&gateway, "counted", json!({ "key": "a" })).await.unwrap_err();
    assert_eq!((error.code(), counted(&test_folder, "a")), ("ERR_REQUEST_FAILED", 1), "{error}");
    gateway.close().await;
}

/// The error of a call during which the gateway has ended the server `one`.
const ENDED: &str = "server \"one\" ended during a call: the gateway has ended it, because its entry, its box or its state was changed. \
                     The next call starts it again";

/// The server may have done it already. The code says that the process ended, and not that the server is disabled.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_with_the_process_of_an_entry_that_changes_and_is_not_sent_again() {
    let test_folder = TestFolder::new();
    let path = test_folder.path("config.json");
    let arguments = test_folder.arguments("one", &[]);
    let mut config = json!({ "mcpServers": { "one": { "command": FIXTURE, "box": "off", "args": arguments, "confirm": "never" } } });
    std::fs::write(&path, config.to_string()).unwrap();
    let options = options(&test_folder, &json!({}));
    let gateway = Gateway::open(GatewayOptions { config: None, config_path: Some(path.clone()), ..options }).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    config["mcpServers"]["one"]["timeoutMs"] = json!(600_000);
    let ending = async {
        test_folder.called("one", "hang").await;
        std::fs::write(&path, config.to_string()).unwrap();
        gateway.reload().await
    };
    let (outcome, reloaded) = tokio::join!(call(&gateway, "hang", json!({})), ending);
    assert!(reloaded.is_ok());
    let error = outcome.unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), ("ERR_SERVER_EXITED", ENDED), "{error}");
    assert_eq!(test_folder.events("one").iter().filter(|entry| entry["name"] == "hang").count(), 1);
    assert!(call(&gateway, "echo", json!({ "value": 1 })).await.is_ok());
    gateway.close().await;
}
