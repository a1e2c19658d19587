//! Tests of text that a server may write around, before and in place of its answers.

use std::time::Duration;

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{Era, Launch};
use hyperlight_mcp::config::ResolvedCommand;
use serde_json::json;

use crate::support::calling::{call, call_for, echoes};
use crate::support::{FIXTURE, TestFolder, patience, said, write_script};

/// The maximum nesting of the JSON of a message.
const DEPTH: usize = 128;

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_around_a_message_disturbs_nothing() {
    let cases: [&[&str]; 10] = [
        &["--batch", "--protocol", "2025-03-26"],
        &["--bom"],
        &["--crlf"],
        &["--binary-noise"],
        &["--blank-lines"],
        &["--noise"],
        &["--stray-answers"],
        &["--stray-answers", "--binary-noise", "--blank-lines", "--bom", "--crlf", "--batch"],
        &["--stray-answers", "--noise", "--era", "2026"],
        &["--stray-answers", "--discover", "silent"],
    ];
    for flags in cases {
        let test_folder = TestFolder::new();
        let era = if flags.contains(&"2026") { Era::Discover } else { Era::Initialize };
        let era = (!flags.contains(&"--discover")).then_some(era);
        let launch = Launch { era, ..test_folder.launch("s", flags) };
        let connection = test_folder.open_launch(&launch).await.unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        assert!(connection.manifest().await.unwrap().tools.len() > 40, "{flags:?}");
        for _ in 0..3 {
            echoes(&connection).await;
        }
        let error = call(&connection, "protocol_error", json!({})).await.unwrap_err();
        assert!(matches!(&error, Error::Protocol { code: -32602, .. }), "{flags:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_the_first_counts() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    for _ in 0..20 {
        assert_eq!(call(&connection, "twice", json!({})).await.unwrap()["content"][0]["text"], "first");
    }
    echoes(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_request_that_nobody_made_ends_no_call_but_by_its_own_time() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let error = call_for(&connection, "wrong_id", json!({}), Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(&error, Error::CallTimeout { limit_ms: 200, .. }), "{error}");
    echoes(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_read_as_deep_as_it_can_be_and_fails_its_call_at_once_where_it_is_deeper() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    // The message itself adds three levels.
    let answer = call(&connection, "deep", json!({ "depth": DEPTH - 4 })).await.unwrap();
    assert_eq!(answer["structuredContent"]["deep"].to_string().matches('[').count(), DEPTH - 4);
    for depth in [DEPTH, 1_000, 100_000] {
        let error = call(&connection, "deep", json!({ "depth": depth })).await.unwrap_err();
        assert!(matches!(&error, Error::UnusableAnswer { problem, .. } if said(problem).contains("not valid JSON")), "{depth}: {error}");
    }
    echoes(&connection).await;
    assert!(connection.is_live());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_with_much_in_it_comes_through_whole() {
    let test_folder = TestFolder::new();
    let connection = test_folder.open(&[]).await.unwrap();
    let answer = call(&connection, "big_structured", json!({ "bytes": 1_000_000 })).await.unwrap();
    assert_eq!(answer["structuredContent"].to_string().len(), 1_000_000);
    let many: Vec<_> = (0..100_000).collect();
    let answer = call(&connection, "echo", json!({ "value": many })).await.unwrap();
    assert_eq!(answer["structuredContent"]["value"].as_array().unwrap().len(), 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_prints_is_not_taken_for_an_answer() {
    let test_folder = TestFolder::new();
    let (program, log) = (test_folder.path("server"), test_folder.path("log-s"));
    // Before each line of the fixture, the program prints an object in a form that some programs use.
    let fixture = format!("{FIXTURE} --log {}", log.display());
    write_script(
        &program,
        &format!("{fixture} | while IFS= read -r line; do echo '{{ level: \"info\" }}'; printf '%s\\n' \"$line\"; done"),
    );
    let command = ResolvedCommand { command: program.display().to_string(), arguments: Vec::new(), ..test_folder.command("s", &[]) };
    let connection = test_folder.open_launch(&test_folder.launch_command("s", command, patience())).await.unwrap();
    for _ in 0..3 {
        echoes(&connection).await;
    }
}
