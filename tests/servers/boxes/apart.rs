//! Tests of two servers that are approved at different times, of which one has no entry, or no approval, when the other one is approved.

use hyperlight_mcp::Gateway;
use serde_json::{Value as Json, json};

use super::changes::{data_of, put, request_of, with_servers};
use crate::support::{FIXTURE, TestFolder};

async fn approve_command(gateway: &Gateway, name: &str) {
    let digest = request_of(gateway, name).await.digest;
    gateway.approve(name, Some(&digest), None).await.unwrap();
}

/// Branches of a repository have different entries. When both are merged, no request has shown the two servers together.
#[tokio::test(flavor = "multi_thread")]
async fn the_request_of_the_later_server_names_an_approved_server_whose_entry_is_gone() {
    for (first, later) in [("one", "two"), ("two", "one")] {
        let test_folder = TestFolder::new();
        let data = data_of(&test_folder);
        for name in ["bin/run.mjs", "notes.yml"] {
            put(&data.join(name), "");
        }
        let arguments = [data.join("bin/run.mjs"), data.join("notes.yml"), data.join("later.yml"), data.join("files")];
        let servers = json!({
            "one": { "command": FIXTURE, "box": { "write": [data] } },
            "two": { "command": "/bin/sh", "args": arguments, "box": "off" },
        });
        let alone = |name: &str| json!({ name: servers[name] });
        let said = async |gateway: &Gateway| {
            let request = request_of(gateway, later).await;
            let of_box = request.in_box.map(|in_box| in_box.allows).unwrap_or_default();
            of_box.into_iter().filter(|said| said.contains("the server \"two\"")).chain(request.changeable_by).collect::<Vec<_>>()
        };
        let gateway = with_servers(&test_folder, &servers);
        let together = said(&gateway).await;
        gateway.close().await;
        assert!(together.len() >= 3, "{together:#?}");

        let gateway = with_servers(&test_folder, &alone(first));
        approve_command(&gateway, first).await;
        gateway.close().await;
        let gateway = with_servers(&test_folder, &alone(later));
        assert_eq!(said(&gateway).await, together, "{first} before {later}");
        approve_command(&gateway, later).await;
        gateway.close().await;
        // An approval that was revoked counts no more.
        let gateway = with_servers(&test_folder, &servers);
        gateway.revoke(first).await.unwrap();
        gateway.revoke(later).await.unwrap();
        gateway.close().await;
        let gateway = with_servers(&test_folder, &alone(later));
        assert_eq!(said(&gateway).await, [] as [String; 0]);
        gateway.close().await;
    }
}

/// A person can look at several requests before the first decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_shown_before_another_proposal_was_approved_is_shown_again() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    put(&data.join("server.mjs"), "");
    let gateway = with_servers(&test_folder, &json!({}));
    let propose = async |name: &str, arguments: Json| {
        let entry = json!({ "name": name, "command": "/bin/sh", "args": arguments });
        gateway.add_server(serde_json::from_value(entry).unwrap()).await.unwrap();
        request_of(&gateway, name).await
    };
    let writer = propose("writer", json!([data])).await;
    let runner = propose("runner", json!([data.join("server.mjs"), data.join("x.yml")])).await;
    assert!(runner.changeable_by.is_empty(), "{:#?}", runner.changeable_by);
    gateway.approve("writer", Some(&writer.digest), None).await.unwrap();
    let error = gateway.approve("runner", Some(&runner.digest), None).await.unwrap_err();
    assert_eq!(error.code(), "ERR_DIGEST_CHANGED");
    let runner = request_of(&gateway, "runner").await;
    assert!(runner.changeable_by.iter().any(|said| said.starts_with("the server \"writer\" may ")), "{:#?}", runner.changeable_by);
    gateway.approve("runner", Some(&runner.digest), None).await.unwrap();
    gateway.close().await;
}

/// A program can approve several servers at once.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_proposals_that_are_approved_at_once_one_is_shown_again() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let gateway = with_servers(&test_folder, &json!({}));
    for attempt in 0..5 {
        let mut digests = Vec::new();
        let names = ["writer", "runner"].map(|name| format!("{name}-{attempt}"));
        for (name, path) in names.iter().zip([format!("d{attempt}"), format!("d{attempt}/server.mjs")]) {
            put(&data.join(format!("d{attempt}/server.mjs")), "");
            let entry = json!({ "name": name, "command": "/bin/sh", "args": [data.join(path)] });
            gateway.add_server(serde_json::from_value(entry).unwrap()).await.unwrap();
            digests.push(request_of(&gateway, name).await.digest);
        }
        let approve = |index: usize| gateway.approve(&names[index], Some(&digests[index]), None);
        let outcomes = tokio::join!(approve(0), approve(1));
        let codes: Vec<_> =
            [outcomes.0, outcomes.1].iter().filter_map(|outcome| outcome.as_ref().err().map(hyperlight_mcp::Error::code)).collect();
        assert_eq!(codes, ["ERR_DIGEST_CHANGED"], "{attempt}");
    }
    gateway.close().await;
}
