//! Tests of events during a call: notifications and questions of the server, and cancellation by either side.

use std::sync::Arc;

use hyperlight_mcp::Error;
use hyperlight_mcp::client::{Caller, Connection, Era, Launch, LogData, Notice};
use serde_json::{Value as Json, json};

use crate::support::calling::{call, call_by, echoes};
use crate::support::recording_observer::{Behaviour, Person, RecordingObserver, Seen};
use crate::support::{TestFolder, opened, said, until};

const ERAS: [(&str, Era); 2] = [("old", Era::Initialize), ("2026", Era::Discover)];

async fn open(test_folder: &TestFolder, era: (&str, Era)) -> Connection {
    let launch = Launch { era: Some(era.1), ..test_folder.launch("s", &["--era", era.0]) };
    test_folder.open_launch(&launch).await.unwrap()
}

fn steps(person: &Person) -> Vec<f64> {
    let step = |notice| match notice {
        Notice::Progress { progress, .. } => Some(progress),
        _ => None,
    };
    person.told().into_iter().filter_map(step).collect()
}

fn lines(notices: &[Notice]) -> Vec<u64> {
    let number = |notice: &Notice| match notice {
        Notice::Log { data: LogData::Whole(data), .. } => data["number"].as_u64(),
        _ => None,
    };
    notices.iter().filter_map(number).collect()
}

// Notifications of the server

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_signs_of_progress_arrive_in_their_order() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let person = Person::new(1, Behaviour::Answers);
        call_by(&person.caller(), &connection, "progress", json!({ "steps": 2000 })).await.unwrap();
        assert!(steps(&person).into_iter().eq((1..=2000).map(f64::from)), "{era:?}");
        let Notice::Progress { total, message, .. } = &person.told()[41] else { panic!() };
        assert_eq!((*total, message.as_ref().map(opened)), (Some(2000.0), Some("step 42".to_owned())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_goes_to_the_call_that_makes_it() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let people: Vec<_> = (1..=8).map(|number| Person::new(number, Behaviour::Answers)).collect();
        let calls = people.iter().map(|person| {
            let (caller, connection) = (person.caller(), &connection);
            async move { call_by(&caller, connection, "progress", json!({ "steps": 100 })).await }
        });
        for outcome in futures::future::join_all(calls).await {
            outcome.unwrap();
        }
        for person in people {
            assert!(steps(&person).into_iter().eq((1..=100).map(f64::from)), "{era:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_log_reaches_the_only_caller_in_its_order() {
    let test_folder = TestFolder::new();
    let connection = open(&test_folder, ERAS[0]).await;
    let person = Person::new(1, Behaviour::Answers);
    call_by(&person.caller(), &connection, "log_lines", json!({ "count": 2000, "level": "warning" })).await.unwrap();
    let told = person.told();
    assert!(lines(&told).into_iter().eq(1..=2000));
    assert!(
        matches!(&told[0], Notice::Log { level, logger: Some(logger), .. } if opened(level) == "warning" && opened(logger) == "fixture")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_line_that_could_be_anybodys_reaches_no_caller() {
    let test_folder = TestFolder::new();
    let observer = RecordingObserver::new();
    let watchdog = Arc::new(hyperlight_mcp::client::Watchdog::new(test_folder.watchdog_program()));
    let connection = Connection::open(&test_folder.launch("s", &[]), &watchdog, observer.clone()).await.unwrap();
    let (one, other) = (Person::new(1, Behaviour::Answers), Person::new(2, Behaviour::Answers));
    let logging = async {
        test_folder.called("s", "hang").await;
        call_by(&other.caller(), &connection, "log_lines", json!({ "count": 100 })).await.unwrap();
    };
    let caller = one.caller();
    tokio::select! {
        biased;
        outcome = call_by(&caller, &connection, "hang", json!({})) => panic!("{outcome:?}"),
        () = logging => {}
    }
    let told: Vec<_> =
        observer.seen().into_iter().filter_map(|seen| if let Seen::Notice(_, notice) = seen { Some(notice) } else { None }).collect();
    assert!(lines(&told).into_iter().eq(1..=100), "{told:?}");
    assert_eq!((one.told().len(), other.told().len()), (0, 0));
}

// Calls that are cancelled

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_the_server_withdraws_is_asked_no_longer() {
    let test_folder = TestFolder::new();
    let connection = open(&test_folder, ERAS[0]).await;
    let person = Person::new(1, Behaviour::NeverAnswers);
    let answer = call_by(&person.caller(), &connection, "elicit_withdrawn", json!({ "ms": 100 })).await.unwrap();
    assert_eq!((answer["structuredContent"]["answer"].clone(), person.asked()), (Json::Null, vec!["Never mind".to_owned()]));
    until("the question's end", || (person.pondering() == 0).then_some(())).await;
    echoes(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_takes_its_question_with_it() {
    for era in ERAS {
        let test_folder = TestFolder::new();
        let connection = open(&test_folder, era).await;
        let person = Person::new(1, Behaviour::NeverAnswers);
        let caller = person.caller();
        tokio::select! {
            biased;
            outcome = call_by(&caller, &connection, "elicit", json!({})) => panic!("{outcome:?}"),
            () = until("the question", || (person.pondering() == 1).then_some(())) => {}
        }
        until("the question's end", || (person.pondering() == 0).then_some(())).await;
        if era.1 == Era::Initialize {
            let id = test_folder.called("s", "elicit").await;
            let cancels = |entry: &Json| entry["method"] == "notifications/cancelled" && entry["params"]["requestId"] == id;
            test_folder.logged("s", "notification", cancels).await;
        }
        echoes(&connection).await;
    }
}

// Rounds of input (since 2026-07-28)

fn calls(test_folder: &TestFolder, tool: &str) -> usize {
    test_folder.events("s").iter().filter(|entry| entry["method"] == "tools/call" && entry["name"] == tool).count()
}

fn assert_untouched(test_folder: &TestFolder) {
    let mismatches = ["request-state-mismatch", "input-responses-mismatch"].map(|event| test_folder.count("s", event));
    assert_eq!(mismatches, [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_needs_input_comes_again_with_it_and_with_the_servers_state_byte_for_byte() {
    let test_folder = TestFolder::new();
    let connection = open(&test_folder, ERAS[1]).await;
    let person = Person::new(7, Behaviour::Answers);
    let caller: Arc<dyn Caller> = person.caller();
    let answer = call_by(&caller, &connection, "elicit_twice", json!({})).await.unwrap();
    let said = json!({ "action": "accept", "content": { "answer": "person 7" } });
    assert_eq!(answer["structuredContent"], json!({ "first": said, "second": said }));
    assert_eq!(person.asked(), ["The first question", "The second question, after person 7"]);
    assert_eq!(calls(&test_folder, "elicit_twice"), 3);
    assert_untouched(&test_folder);
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_without_a_question_bring_the_state_alone() {
    let test_folder = TestFolder::new();
    let connection = open(&test_folder, ERAS[1]).await;
    let answer = call(&connection, "state_only", json!({ "rounds": 9 })).await.unwrap();
    assert_eq!(answer["content"][0]["text"], "after 9 rounds");
    assert_eq!(calls(&test_folder, "state_only"), 10);
    assert_untouched(&test_folder);
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_without_an_end_are_ended() {
    let test_folder = TestFolder::new();
    let connection = open(&test_folder, ERAS[1]).await;
    let error = call(&connection, "state_only", json!({ "rounds": 1_000 })).await.unwrap_err();
    assert!(matches!(&error, Error::UnusableAnswer { problem, .. } if said(problem).contains("after 10 rounds")), "{error}");
    assert_eq!(calls(&test_folder, "state_only"), 10);
    echoes(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_questions_of_one_round_are_all_answered() {
    let test_folder = TestFolder::new();
    let connection = open(&test_folder, ERAS[1]).await;
    let person = Person::new(1, Behaviour::Answers);
    let answer = call_by(&person.caller(), &connection, "elicit_flood", json!({ "count": 5 })).await.unwrap();
    assert_eq!(answer["structuredContent"]["accepted"], 5);
    assert_untouched(&test_folder);
}
