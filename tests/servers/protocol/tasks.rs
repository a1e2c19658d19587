//! Tests of tasks in both forms: they are followed until their end, and cancelled with their call.

use std::sync::Arc;
use std::time::Duration;

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{CallLimits, Caller, Connection, Era, Launch, ToolRequest};
use serde_json::{Value as Json, json};

use crate::support::calling::{call, echoes};
use crate::support::recording_observer::{Behaviour, Person};
use crate::support::{SilentObserver, TestFolder, object, patience, said};

const ERAS: [(&str, Era); 2] = [("old", Era::Initialize), ("2026", Era::Discover)];

async fn open(test_folder: &TestFolder, era: (&str, Era)) -> Connection {
    let launch = Launch { era: Some(era.1), ..test_folder.launch("s", &["--era", era.0]) };
    test_folder.open_launch(&launch).await.unwrap()
}

async fn run(connection: &Connection, arguments: Json, timeout: Duration, caller: Arc<dyn Caller>) -> hyperlight_mcp::Result<Json> {
    let (tool, limits) = ("slow_task".to_owned(), CallLimits::fixed(timeout));
    let request = ToolRequest { tool, arguments: object(arguments).into(), as_task: true, limits, caller };
    connection.call(request).await.map_err(|failure| failure.error)
}

async fn outcome(connection: &Connection, outcome: &str) -> hyperlight_mcp::Result<Json> {
    run(connection, json!({ "ms": 60, "outcome": outcome }), patience(), Arc::new(SilentObserver)).await
}

fn asked(test_folder: &TestFolder, method: &str) -> usize {
    test_folder.events("s").iter().filter(|entry| entry["method"] == method).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_followed_to_its_result() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        assert_eq!(outcome(&connection, "done").await.unwrap()["content"][0]["text"], "done", "{era:?}");
        assert!(asked(&test_folder, "tasks/get") >= 1 && asked(&test_folder, "tasks/cancel") == 0, "{era:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_gives_its_own_reason() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let failed = outcome(&connection, "fail").await.unwrap();
        assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("the task failed")), "{era:?}");
        let error = outcome(&connection, "error").await.unwrap_err();
        assert!(matches!(&error, Error::Protocol { code: -32603, message, .. } if said(message) == "the task broke"), "{era:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_asks_asks_the_person_behind_its_call() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let person = Person::new(3, Behaviour::Answers);
        let answer = run(&connection, json!({ "ms": 20, "outcome": "ask" }), patience(), person.caller()).await.unwrap();
        let said = json!({ "action": "accept", "content": { "answer": "person 3" } });
        assert_eq!((&answer["structuredContent"], person.asked()), (&said, vec!["The task asks".to_owned()]), "{era:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_caller_gives_up_is_cancelled_at_the_server() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let hanging = json!({ "ms": 0, "outcome": "hang" });
        tokio::select! {
            biased;
            outcome = run(&connection, hanging.clone(), patience(), Arc::new(SilentObserver)) => panic!("{outcome:?}"),
            _ = test_folder.logged("s", "request", |entry| entry["method"] == "tasks/get") => {}
        }
        test_folder.logged("s", "request", |entry| entry["method"] == "tasks/cancel").await;
        let error = run(&connection, hanging, Duration::from_millis(200), Arc::new(SilentObserver)).await.unwrap_err();
        assert_eq!(error.code(), "ERR_CALL_TIMEOUT", "{era:?}: {error}");
        let cancels = || (asked(&test_folder, "tasks/cancel") == 2).then_some(());
        crate::support::until("the second cancellation", cancels).await;
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_the_server_forgot_ends_with_what_it_says() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let error = outcome(&connection, "lost").await.unwrap_err();
        assert!(matches!(&error, Error::Protocol { message, .. } if said(message).contains("Task not found")), "{era:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_nobody_asked_for_fails_its_call() {
    let problems = [("task", "it is a task, but the request did not ask for a task"), ("type", "its resultType \"partial\" is not known")];
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        for (kind, problem) in problems {
            let error = call(&connection, "odd_answer", json!({ "kind": kind })).await.unwrap_err();
            assert!(matches!(&error, Error::UnusableAnswer { problem: told, .. } if said(told) == problem), "{era:?} {kind}: {error}");
        }
        echoes(&connection).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_neither_a_result_nor_an_error_ends_its_call_at_once() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let error = call(&connection, "odd_answer", json!({ "kind": "empty" })).await.unwrap_err();
        let problem = "it has neither a result nor an error";
        assert!(matches!(&error, Error::UnusableAnswer { problem: told, .. } if said(told) == problem), "{era:?}: {error}");
        echoes(&connection).await;
    }
}
