//! Tests of lists: in pages, endless, malformed, and changing.

use std::sync::Arc;

use hyperlight_mcp::catalog::Manifest;
use hyperlight_mcp::client::{ConnectionState, Connections, Era, Launch, Lease};
use serde_json::json;

use crate::support::calling::{call, connections, echoes, get, wanted};
use crate::support::recording_observer::RecordingObserver;
use crate::support::{TestFolder, told, until};

const ERAS: [(&str, Era); 2] = [("old", Era::Initialize), ("2026", Era::Discover)];

async fn names(test_folder: &TestFolder, flags: &[&str], era: Era) -> Vec<String> {
    let launch = Launch { era: Some(era), ..test_folder.launch("s", flags) };
    let connection = test_folder.open_launch(&launch).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
    connection.manifest().await.unwrap().tool_names()
}

fn lists(test_folder: &TestFolder) -> usize {
    test_folder.events("s").iter().filter(|entry| entry["method"] == "tools/list").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_in_pages_is_the_list() {
    for (flag, era) in ERAS {
        let whole = names(&TestFolder::new(), &["--era", flag], era).await;
        let test_folder = TestFolder::new();
        assert_eq!(names(&test_folder, &["--era", flag, "--paginate", "7"], era).await, whole);
        assert_eq!(lists(&test_folder), whole.len().div_ceil(7));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_without_an_end_is_refused_and_the_server_ended() {
    let cases: [(&[&str], &str); 4] = [
        (&["--repeat-cursor"], "its list of tools repeats a cursor, so reading it would never end"),
        (&["--endless-pages"], "its list of tools has more than 100 pages"),
        (&["--many-tools", "3000"], "its list of tools has more than 2000 entries"),
        (&["--many-tools", "3000", "--paginate", "100"], "its list of tools has more than 2000 entries"),
    ];
    for (flag, era) in ERAS {
        for (flags, problem) in cases {
            let test_folder = TestFolder::new();
            let flags: Vec<_> = flags.iter().chain(&["--era", flag]).copied().collect();
            let launch = Launch { era: Some(era), ..test_folder.launch("s", &flags) };
            let error = test_folder.open_launch(&launch).await.err().unwrap();
            assert!(error.code() == "ERR_CONNECT_FAILED" && told(&error).contains(problem), "{flags:?}: {error}");
            assert_eq!((test_folder.servers_running(), test_folder.count("s", "spawn")), (Vec::new(), 1), "{flags:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_tool_is_left_out_and_the_others_stay() {
    for (flag, era) in ERAS {
        let mut whole = names(&TestFolder::new(), &["--era", flag], era).await;
        // A tool without a schema is valid: it accepts any object.
        whole.push("no_input_schema".to_owned());
        assert_eq!(names(&TestFolder::new(), &["--era", flag, "--malformed-tools"], era).await, whole);
    }
}

/// Opens a connection whose events are recorded.
async fn kept(test_folder: &TestFolder, flags: &[&str], era: Era, observer: &Arc<RecordingObserver>) -> (Connections, Lease) {
    let connections = connections(test_folder, observer.clone(), 5);
    let launch = Launch { era: Some(era), ..test_folder.launch("s", flags) };
    let lease = get(&connections, &wanted("s"), launch).await.unwrap();
    if era == Era::Discover {
        // The server notifies only clients that have subscribed, so this waits for the subscription.
        test_folder.logged("s", "request", |entry| entry["method"] == "subscriptions/listen").await;
    }
    (connections, lease)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_list_is_read_again_without_a_call() {
    for (flag, era) in ERAS {
        let (test_folder, observer) = (TestFolder::new(), RecordingObserver::new());
        let (_connections, lease) = kept(&test_folder, &["--era", flag], era, &observer).await;
        call(&lease, "rewrite", json!({ "tool": "echo", "description": "another" })).await.unwrap();
        let manifest = until("the changed list", || observer.manifests("s").pop()).await;
        assert_eq!(manifest.tool("echo").unwrap().description.as_deref(), Some("another"), "{flag}");
        assert_eq!(lists(&test_folder), 2, "{flag}");
        call(&lease, "rewrite", json!({ "tool": "echo" })).await.unwrap();
        until("the shorter list", || observer.manifests("s").pop().filter(|manifest| manifest.tool("echo").is_none())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_changes_at_once_are_read_once() {
    for (flag, era) in ERAS {
        let (test_folder, observer) = (TestFolder::new(), RecordingObserver::new());
        let (_connections, lease) = kept(&test_folder, &["--era", flag], era, &observer).await;
        let change = |number: u32| {
            let lease = &lease;
            async move {
                let description = format!("change {number}");
                call(lease, "rewrite", json!({ "tool": format!("many_{number}"), "description": description })).await.unwrap();
            }
        };
        futures::future::join_all((0..50).map(change)).await;
        call(&lease, "rewrite", json!({ "tool": "echo", "description": "the last" })).await.unwrap();
        let is_last = |manifest: &Arc<Manifest>| manifest.tool("echo").is_some_and(|tool| tool.description.as_deref() == Some("the last"));
        until("the last change", || observer.manifests("s").pop().filter(is_last)).await;
        // The list is usually read once. On a machine that pauses in between, it may be read twice.
        assert!(lists(&test_folder) <= 3, "{flag}: {} readings of 51 changes", lists(&test_folder));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_changes_its_list_whenever_it_is_read_is_not_read_without_pause() {
    for (flag, era) in ERAS {
        let (test_folder, observer) = (TestFolder::new(), RecordingObserver::new());
        let (connections, lease) = kept(&test_folder, &["--restless-tools", "--era", flag], era, &observer).await;
        if era == Era::Discover {
            // No client was notified when the list was read first, so a change is announced here.
            call(&lease, "change_list", json!({ "kind": "tools" })).await.unwrap();
        }
        drop(lease);
        until("three lists", || (lists(&test_folder) >= 3).then_some(())).await;
        let at: Vec<_> =
            test_folder.events("s").iter().filter(|entry| entry["method"] == "tools/list").map(|entry| entry["at_ms"].clone()).collect();
        let pause = at[2].as_u64().unwrap() - at[1].as_u64().unwrap();
        assert!(pause >= 900, "{flag}: {pause} ms between two readings that nobody asked for");
        assert_eq!(connections.state("s"), ConnectionState::Connected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_the_server_ends_takes_nothing_with_it() {
    for how in ["result", "cancelled"] {
        let (test_folder, observer) = (TestFolder::new(), RecordingObserver::new());
        let (_connections, lease) = kept(&test_folder, &["--era", "2026"], Era::Discover, &observer).await;
        call(&lease, "end_subscriptions", json!({ "how": how })).await.unwrap();
        echoes(&lease).await;
        assert!(lease.is_live());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_for_the_manifest_after_a_change_gets_the_changed_one() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    for number in 1..=5 {
        // The notification comes before the answer.
        let description = format!("number {number}");
        call(&connection, "rewrite", json!({ "tool": "echo", "description": description })).await.unwrap();
        for _ in 0..3 {
            assert_eq!(connection.manifest().await.unwrap().tool("echo").unwrap().description, Some(description.clone()));
        }
    }
    assert_eq!(lists(&test_folder), 6);
}
