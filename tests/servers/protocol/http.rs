//! Tests of Streamable HTTP through the client's own connections: sessions, streams, redirects, refusals.

use std::time::{Duration, Instant};

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{Connection, Era};
use serde_json::json;

use crate::support::calling::{call, call_by, call_for, echoes};
use crate::support::http::Remote;
use crate::support::recording_observer::{Behaviour, Person};
use crate::support::{TestFolder, patience, scaled, told};

const OLD: Option<Era> = Some(Era::Initialize);
const NEW: Option<Era> = Some(Era::Discover);
const BOTH: [(&str, Option<Era>); 2] = [("old", OLD), ("2026", NEW)];

async fn refused(remote: &Remote<'_>, era: Option<Era>, code: &str) -> String {
    let error = remote.open(era).await.err().expect("a refusal");
    assert_eq!(error.code(), code, "{error}");
    told(&error)
}

async fn fails(connection: &Connection, tool: &str) -> Error {
    call_for(connection, tool, json!({}), scaled(Duration::from_millis(500))).await.unwrap_err()
}

fn ledger(test_folder: &TestFolder) -> Vec<String> {
    let text = std::fs::read_to_string(test_folder.path("ledger")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

// The beginning of a connection

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_either_era_is_connected_without_a_long_wait() {
    let cases: [(&[&str], Era); 7] = [
        (&[], Era::Initialize),
        (&["--era", "2026"], Era::Discover),
        (&["--era", "both"], Era::Discover),
        (&["--http-sse"], Era::Initialize),
        (&["--no-get"], Era::Initialize),
        (&["--discover", "silent"], Era::Initialize),
        (&["--discover", "error"], Era::Initialize),
    ];
    for (flags, era) in cases {
        let test_folder = TestFolder::new();
        let remote = Remote::start(&test_folder, "s", flags);
        let started = Instant::now();
        let connection = remote.open(None).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        assert!(started.elapsed() < scaled(Duration::from_secs(4)), "{flags:?}: {:?}", started.elapsed());
        assert_eq!(connection.era(), era, "{flags:?}");
        echoes(&connection).await;
        connection.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_era_that_is_remembered_is_not_probed_again() {
    for (flag, era) in BOTH {
        let test_folder = TestFolder::new();
        let remote = Remote::start(&test_folder, "s", &["--era", flag]);
        let connection = remote.open(era).await.unwrap();
        echoes(&connection).await;
        let beginnings = |method: &str| test_folder.events("s").iter().filter(|entry| entry["method"] == method).count();
        let expected = if era == NEW { (1, 0) } else { (0, 1) };
        assert_eq!((beginnings("server/discover"), beginnings("initialize")), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_older_transport_is_named_as_such() {
    let test_folder = TestFolder::new();
    let remote = Remote::start(&test_folder, "s", &["--legacy-sse"]);
    for era in [None, OLD] {
        let error = refused(&remote, era, "ERR_UNSUPPORTED_TRANSPORT").await;
        assert!(error.contains("HTTP+SSE transport of MCP 2024-11-05") && error.contains("Streamable HTTP"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_at_home_and_nowhere_else() {
    for (flag, era) in BOTH {
        let test_folder = TestFolder::new();
        let same = Remote::start(&test_folder, "same", &["--redirect", "same", "--era", flag]);
        echoes(&same.open(era).await.unwrap()).await;
        let elsewhere = Remote::start(&test_folder, "elsewhere", &["--era", flag]);
        let other = Remote::start(&test_folder, "other", &["--redirect", &format!("other:{}", elsewhere.url), "--era", flag]);
        let error = refused(&other, era, "ERR_CONNECT_FAILED").await;
        assert!(error.contains("another origin"), "{error}");
        assert_eq!(elsewhere.requests("POST") + elsewhere.requests("GET"), 0);
        let circle = Remote::start(&test_folder, "circle", &["--redirect", "loop", "--era", flag]);
        let error = refused(&circle, era, "ERR_CONNECT_FAILED").await;
        assert!(error.contains("redirects in a loop"), "{error}");
        assert!(circle.requests("POST") <= 3, "{}", circle.requests("POST"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_to_wait_is_waited_for_where_nothing_is_lost_by_that() {
    for (flag, era) in BOTH {
        let test_folder = TestFolder::new();
        let remote = Remote::start(&test_folder, "s", &["--retry-after", "1", "--era", flag]);
        let started = Instant::now();
        echoes(&remote.open(era).await.unwrap()).await;
        assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
        let remote = Remote::start(&test_folder, "call", &["--retry-after", "1", "--retry-at", "call", "--era", flag]);
        let connection = remote.open(era).await.unwrap();
        let error = call(&connection, "empty", json!({})).await.unwrap_err();
        assert!(error.code() == "ERR_REQUEST_FAILED" && told(&error).contains("wait 1 s"), "{error}");
        echoes(&connection).await;
    }
}

// Sessions and streams

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_expires_is_renewed_and_nobody_notices() {
    let test_folder = TestFolder::new();
    let remote = Remote::start(&test_folder, "s", &["--expire-session", "2"]);
    let connection = remote.open(OLD).await.unwrap();
    for _ in 0..7 {
        echoes(&connection).await;
    }
    let begun = test_folder.events("s").iter().filter(|entry| entry["method"] == "initialize").count();
    assert_eq!((begun, test_folder.count("s", "session-end")), (4, 3));
    assert!(connection.manifest().await.unwrap().tools.len() > 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_never_lasts_is_renewed_once_a_call() {
    let test_folder = TestFolder::new();
    let remote = Remote::start(&test_folder, "s", &["--expire-session", "0"]);
    let connection = remote.open(OLD).await.unwrap();
    let error = call(&connection, "empty", json!({})).await.unwrap_err();
    assert!(error.code() == "ERR_REQUEST_FAILED" && told(&error).contains("session"), "{error}");
    let begun = test_folder.events("s").iter().filter(|entry| entry["method"] == "initialize").count();
    assert_eq!(begun, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_is_resumed_and_the_call_made_once() {
    let test_folder = TestFolder::new();
    let ledger_path = test_folder.path("ledger").display().to_string();
    let remote = Remote::start(&test_folder, "s", &["--sse-break", "--ledger", &ledger_path]);
    let connection = remote.open(OLD).await.unwrap();
    let person = Person::new(1, Behaviour::Answers);
    for key in ["a", "b"] {
        let answer = call_by(&person.caller(), &connection, "counted", json!({ "key": key, "ms": 50 })).await.unwrap();
        assert_eq!(answer["structuredContent"]["key"], key);
    }
    call_by(&person.caller(), &connection, "progress", json!({ "steps": 200 })).await.unwrap();
    assert_eq!((ledger(&test_folder), test_folder.count("s", "sse-break")), (vec!["a".to_owned(), "b".to_owned()], 3));
    assert_eq!(person.told().len(), 200);
    let resumed = |entry: &&serde_json::Value| entry["event"] == "http" && entry["headers"].get("last-event-id").is_some();
    assert_eq!(test_folder.events("s").iter().filter(resumed).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_connection_breaks_is_never_posted_again() {
    for (flag, era) in BOTH {
        let test_folder = TestFolder::new();
        let ledger_path = test_folder.path("ledger").display().to_string();
        let remote = Remote::start(&test_folder, "s", &["--drop-post", "--ledger", &ledger_path, "--era", flag]);
        let connection = remote.open(era).await.unwrap();
        for (tool, key) in [("counted", "a"), ("counted_read", "b"), ("counted_idempotent", "c")] {
            let error = call(&connection, tool, json!({ "key": key })).await.unwrap_err();
            assert!(error.code() == "ERR_REQUEST_FAILED" && told(&error).contains("not sent again"), "{error}");
        }
        assert_eq!(ledger(&test_folder), ["a", "b", "c"], "{flag}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_in_its_order_over_streams_too() {
    for (flag, era) in BOTH {
        let test_folder = TestFolder::new();
        let remote = Remote::start(&test_folder, "s", &["--era", flag]);
        let connection = remote.open(era).await.unwrap();
        let person = Person::new(1, Behaviour::Answers);
        call_by(&person.caller(), &connection, "progress", json!({ "steps": 1000 })).await.unwrap();
        let told = person.told();
        let in_order = told.iter().zip(1_u32..).all(|(notice, step)| {
            matches!(notice, hyperlight_mcp::client::Notice::Progress { progress, .. } if (*progress - f64::from(step)).abs() < 0.5)
        });
        assert!(in_order && told.len() == 1000, "{flag}: {}", told.len());
    }
}

// Answers that never end or are invalid

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_never_comes_costs_its_call_and_the_server_is_told() {
    let cases: [(&[&str], &str); 7] = [
        (&["--endless-sse", "comments"], "ERR_CALL_TIMEOUT"),
        (&["--endless-sse", "events"], "ERR_CALL_TIMEOUT"),
        (&["--endless-sse", "silent"], "ERR_CALL_TIMEOUT"),
        (&["--endless-sse", "line"], "ERR_RESPONSE_TOO_LARGE"),
        (&["--http-drip"], "ERR_CALL_TIMEOUT"),
        (&["--slow-headers", "5000"], "ERR_CALL_TIMEOUT"),
        (&["--huge-content-length"], "ERR_RESPONSE_TOO_LARGE"),
    ];
    for (flag, era) in BOTH {
        for (flags, code) in cases {
            let test_folder = TestFolder::new();
            let flags: Vec<_> = flags.iter().chain(&["--era", flag]).copied().collect();
            let remote = Remote::start(&test_folder, "s", &flags);
            let connection = remote.open(era).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
            let error = if code == "ERR_CALL_TIMEOUT" {
                fails(&connection, "empty").await
            } else {
                call_for(&connection, "empty", json!({}), patience()).await.unwrap_err()
            };
            assert_eq!(error.code(), code, "{flags:?}: {error}");
            // Messages that are not calls are still answered.
            connection.ping().await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
            assert!(connection.is_live(), "{flags:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    for (flag, era) in BOTH {
        let test_folder = TestFolder::new();
        let remote = Remote::start(&test_folder, "s", &["--era", flag]);
        let connection = remote.open(era).await.unwrap();
        assert_eq!(fails(&connection, "hang").await.code(), "ERR_CALL_TIMEOUT");
        let id = test_folder.called("s", "hang").await;
        test_folder.logged("s", "cancelled", |entry| entry["id"] == id).await;
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_says_goodbye_to_the_session() {
    let test_folder = TestFolder::new();
    let remote = Remote::start(&test_folder, "s", &[]);
    let connection = remote.open(OLD).await.unwrap();
    connection.close().await;
    assert_eq!((remote.requests("DELETE"), test_folder.count("s", "session-end")), (1, 1));
    assert!(!connection.is_live());
}
