//! Tests of questions and notifications of a server that works correctly: the parts that a person or a model sees, and the end of a
//! question.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;
use hyperlight_mcp::Error;
use hyperlight_mcp::client::ElicitationAnswer;
use hyperlight_mcp::gateway::CallOptions;
use hyperlight_mcp::sandbox::{Stop, StopReason};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::support::asking::{ONE, Person, RecordedEvents, Setup, accepted, cancel, decline, for_person, ready};
use crate::support::{patience, pid_of, scaled, send, until, within};

const ERAS: [&[&str]; 2] = [&[], &["--era", "2026"]];

fn accept(content: Json) -> Arc<Person> {
    Person::saying(ElicitationAnswer::Accept(Some(content)))
}

/// Returns a form with a single field.
fn form(field: &Json) -> Json {
    json!({ "schema": { "type": "object", "properties": { "field": field } } })
}

fn only_reason(setup: &Setup) -> String {
    let [reason] = setup.told.cancelled().try_into().unwrap();
    reason
}

async fn until_asked(person: &Person) {
    until("the question", || (!person.asked().is_empty()).then_some(())).await;
}

async fn until_let_go(waited_for: &Weak<()>) {
    until("the question's end", || waited_for.upgrade().is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_time_is_not_counted() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        let release = Arc::new(Notify::new());
        let person = Person::reacting({
            let release = Arc::clone(&release);
            move |_| {
                let release = Arc::clone(&release);
                Box::pin(async move {
                    release.notified().await;
                    Ok(ElicitationAnswer::Accept(Some(json!({ "answer": "late" }))))
                })
            }
        });
        let options = || CallOptions { timeout_ms: Some(300), ..for_person(&person) };
        let stop = Stop::new();
        let answering = async {
            until_asked(&person).await;
            tokio::time::sleep(Duration::from_millis(600)).await;
            release.notify_one();
        };
        let (result, ()) = tokio::join!(setup.call_with("elicit", json!({}), options(), &stop), answering);
        assert_eq!(result.unwrap()["structuredContent"], accepted("late"), "{flags:?}");

        // The time that the server itself needs still counts.
        let error = setup.call_with("hang", json!({}), options(), &stop).await.unwrap_err();
        assert_eq!(error.code(), "ERR_CALL_TIMEOUT");
    }
}

/// Waits until the server has received the answer to the question of a cancelled call, or has withdrawn the question.
async fn until_question_ended(setup: &Setup, call: &Json) {
    let is_end = |entry: &Json| entry["event"] == "response" || entry["event"] == "cancelled" && entry["id"] == *call;
    until("the end of the question", || setup.test_folder.events(ONE).iter().any(is_end).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_the_question_and_the_server_hears_of_it() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        let (person, waited_for) = Person::silent();
        let stop = Stop::new();
        let aborting = async {
            until_asked(&person).await;
            let aborted = Instant::now();
            stop.stop(StopReason::Aborted);
            until_let_go(&waited_for).await;
            aborted.elapsed()
        };
        let (result, took) = tokio::join!(setup.call_with("elicit", json!({}), for_person(&person), &stop), aborting);
        assert_eq!(result.unwrap_err().code(), "ERR_ABORTED", "{flags:?}");
        assert!(took < scaled(Duration::from_millis(100)), "{took:?}");
        if flags.is_empty() {
            let id = setup.test_folder.called(ONE, "elicit").await;
            setup.test_folder.logged(ONE, "notification", |told| told["params"]["requestId"] == id).await;
            until_question_ended(&setup, &id).await;
            let answers = setup.test_folder.events(ONE).into_iter().filter(|entry| entry["event"] == "response");
            assert!(answers.map(|answer| answer["message"]["result"].clone()).all(|answer| answer == cancel()));
        } else {
            // Since 2026-07-28, the call was answered with the question, so nothing is pending at the server that could be cancelled.
            assert_eq!(setup.test_folder.count(ONE, "notification"), 0);
        }
        assert_eq!(setup.told.cancelled(), [""; 0]);
        assert_eq!(setup.ask(&accept(json!({ "answer": "next" })), "elicit", json!({})).await, accepted("next"));
    }
}

/// The runtime has one worker. An abort wakes the task of the question before the task that notifies the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_hears_of_an_abort_before_the_answer_to_what_the_call_asked() {
    let asked_of = [("elicit", Person::silent().0), ("sample", Person::modelling(|_| Box::pin(std::future::pending())))];
    for (tool, person) in asked_of {
        let setup = Setup::open(&[]).await;
        let stop = Stop::new();
        let aborting = async {
            until_asked(&person).await;
            stop.stop(StopReason::Aborted);
        };
        let arguments = if tool == "sample" { json!({ "prompt": "?" }) } else { json!({}) };
        let (result, ()) = tokio::join!(setup.call_with(tool, arguments, for_person(&person), &stop), aborting);
        assert_eq!(result.unwrap_err().code(), "ERR_ABORTED");
        let id = setup.test_folder.called(ONE, tool).await;
        until_question_ended(&setup, &id).await;
        let told = setup.test_folder.events(ONE).into_iter().filter(|entry| match entry["event"].as_str() {
            Some("response") => true,
            Some("notification") => entry["method"] == "notifications/cancelled",
            _ => false,
        });
        let order: Vec<_> = told.map(|entry| entry["event"].as_str().unwrap().to_owned()).collect();
        // A server that has read the cancellation withdraws its question, and then gets no answer to it (MCP 2025-11-25,
        // basic/utilities/cancellation).
        assert!(order == ["notification", "response"] || order == ["notification"], "{tool}: {order:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_its_server_withdraws_ends() {
    let setup = Setup::open(&[]).await;
    let (person, waited_for) = Person::silent();
    assert_eq!(setup.ask(&person, "elicit_withdrawn", json!({ "ms": 50 })).await, json!({ "answer": null }));
    assert_eq!(person.messages(), ["Never mind"]);
    until_let_go(&waited_for).await;
    // If the person answers before the question is withdrawn, the server gets the answer.
    let quick = accept(json!({ "answer": "quick" }));
    assert_eq!(setup.ask(&quick, "elicit_withdrawn", json!({ "ms": 10_000 })).await, json!({ "answer": accepted("quick") }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_ends_with_its_server() {
    for flags in ERAS {
        let setup = Arc::new(Setup::open(flags).await);
        let (person, waited_for) = Person::silent();
        let killing = async {
            // The tool is approved as read-only, so its call is sent once more, and asks once more.
            for times in 1..=2 {
                until("the question", || (person.asked().len() == times).then_some(())).await;
                let spawned = setup.test_folder.events(ONE).into_iter().rfind(|entry| entry["event"] == "spawn").unwrap();
                send(libc::SIGKILL, pid_of(&spawned));
            }
        };
        let call = setup.call_for(&person, "elicit", json!({}));
        let (result, ()) = within(patience(), "the end", Box::pin(async { tokio::join!(call, killing) })).await;
        assert_eq!(result.unwrap_err().code(), "ERR_SERVER_EXITED", "{flags:?}");
        until_let_go(&waited_for).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_form_is_not_sent_and_the_event_names_the_field() {
    let wrong = [
        (json!({ "type": "integer", "minimum": 18 }), json!({ "field": 17 }), "\"field\" must be at least 18"),
        (json!({ "type": "string", "format": "email" }), json!({ "field": "nobody" }), "\"field\""),
        (json!({ "type": "string", "enum": ["red"] }), json!({ "field": "blue" }), "\"field\" must be one of \"red\""),
        (json!({ "type": "boolean" }), json!({ "field": true, "other": 1 }), "\"other\" is not a field of the form"),
    ];
    for flags in ERAS {
        for (field, content, problem) in &wrong {
            let setup = Setup::open(flags).await;
            assert_eq!(setup.ask(&accept(content.clone()), "elicit", form(field)).await, cancel());
            let reason = only_reason(&setup);
            assert!(reason.contains("does not fit the form") && reason.contains(problem), "{reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_are_filled_in_where_the_answer_leaves_them_out() {
    let schema = json!({ "schema": { "type": "object", "required": ["name"], "properties": {
        "name": { "type": "string", "default": "Ada" }, "age": { "type": "integer", "default": 36 }, "tags": {
            "type": "array", "items": { "type": "string", "enum": ["a", "b"] }, "default": ["a"] }, "note": { "type": "string" } } } });
    let setup = Setup::open(&[]).await;
    let told = setup.ask(&accept(json!({ "age": 37 })), "elicit", schema.clone()).await;
    assert_eq!(told["content"], json!({ "name": "Ada", "age": 37, "tags": ["a"] }));
    let told = setup.ask(&Person::saying(ElicitationAnswer::Accept(None)), "elicit", schema).await;
    assert_eq!(told["content"], json!({ "name": "Ada", "age": 36, "tags": ["a"] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_no_flat_list_of_fields_is_shown_to_nobody() {
    let nested = [
        json!({ "schema": { "type": "object", "properties": { "a": { "type": "object", "properties": {} } } } }),
        json!({ "schema": { "type": "object", "properties": { "a": { "$ref": "#/$defs/a" } } } }),
        json!({ "schema": { "type": "string" } }),
    ];
    for flags in ERAS {
        for arguments in &nested {
            let setup = Setup::open(flags).await;
            let person = accept(json!({}));
            assert_eq!(setup.ask(&person, "elicit", arguments.clone()).await, cancel());
            assert!(only_reason(&setup).contains("its form cannot be shown"), "{arguments}");
            assert_eq!(person.asked().len(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_to_open_is_shown_with_its_address_and_only_if_a_browser_can_open_it() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        let person = Person::saying(ElicitationAnswer::Accept(Some(json!({ "never": "sent" }))));
        // An answer that the person gives on a page is not sent to the server through the gateway.
        assert_eq!(setup.ask(&person, "elicit_url", json!({})).await, json!({ "action": "accept" }));
        let [question] = person.asked().try_into().unwrap();
        assert_eq!(
            (&question["mode"], &question["message"], &question["url"]),
            (&json!("url"), &json!("Please consent"), &json!("https://fixture.invalid/consent?id=7"))
        );
        assert_eq!(question["elicitationId"].is_string(), flags.is_empty());

        for url in ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "ftp://example.com/", "no url"] {
            assert_eq!(setup.ask(&person, "elicit_url", json!({ "url": url })).await, cancel(), "{url}");
        }
        assert_eq!((person.asked().len(), setup.told.cancelled().len()), (1, 5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_a_call_requires_first_is_an_error_that_says_so() {
    let setup = Setup::open(&[]).await;
    let error = setup.call("url_required", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { code: -32042, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_reads_nothing_that_drives_a_terminal_and_no_secret_of_the_config() {
    let secret = "s3cr3t-t0ken-0f-the-c0nfig";
    let person = accept(json!({}));
    let more = json!({ "env": { "API_TOKEN": secret } });
    let setup = Setup::with(&[], &more, Some(&person)).await;
    let message = format!("\u{1b}[2JYour to\u{200b}ken is {secret}\u{202e}");
    let field = json!({ "type": "string", "title": format!("Not {secret}"), "description": "\u{1b}]8;;https://evil.example\u{7}here" });
    setup.call("elicit", json!({ "message": message, "schema": { "type": "object", "properties": { "field": field } } })).await.unwrap();
    setup.call("elicit_url", json!({ "message": message })).await.unwrap();
    for question in person.asked() {
        let text = question.to_string();
        assert!(!text.contains(secret) && text.contains("[redacted]"), "{text}");
        assert!(!text.contains("\\u001b") && !text.contains('\u{200b}') && !text.contains('\u{202e}'), "{text}");
        assert!(question["message"].as_str().unwrap().starts_with("Your token is "), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_sees_of_a_form_is_what_is_sent() {
    let secret = "s3cr3t-t0ken-0f-the-c0nfig";
    for flags in ERAS {
        let person = accept(json!({}));
        let setup = Setup::with(flags, &json!({ "env": { "API_TOKEN": secret } }), Some(&person)).await;
        let field = json!({ "type": "string", "enum": ["/srv/data/prod/db", "/srv/backup/prod/db"], "default": "/srv/backup/prod/db" });
        let answer = setup.ask(&person, "elicit", form(&field)).await;
        let [question] = person.asked().try_into().unwrap();
        assert_eq!(question["requestedSchema"]["properties"]["field"], field);
        assert_eq!(answer["content"]["field"], field["default"]);

        for field in [
            json!({ "type": "string", "default": "a\u{202e}b" }),
            json!({ "type": "string", "enum": ["a", "a\u{200b}"] }),
            json!({ "type": "string", "default": format!("is {secret}") }),
        ] {
            assert_eq!(setup.ask(&person, "elicit", form(&field)).await, cancel(), "{field}");
        }
        assert_eq!((person.asked().len(), setup.told.cancelled().len()), (1, 3));
        for reason in setup.told.cancelled() {
            assert!(
                reason.starts_with("its form cannot be shown: the field \"field\" has a name, a choice or a default with "),
                "{reason}"
            );
            assert!(!reason.contains(secret), "{reason}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_cancels_and_why_is_told_to_the_agent_alone() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        let person = Person::reacting(|_| ready(Err(Error::Internal("the dialog is broken".into()))));
        assert_eq!(setup.ask(&person, "elicit", json!({})).await, cancel());
        let reason = only_reason(&setup);
        assert!(reason.contains("onElicit failed") && reason.contains("the dialog is broken"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_says_reaches_the_server_as_it_is() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        for (answer, expected) in [(ElicitationAnswer::Decline, decline()), (ElicitationAnswer::Cancel, cancel())] {
            assert_eq!(setup.ask(&Person::saying(answer), "elicit", json!({})).await, expected);
        }
        assert_eq!(setup.told.cancelled(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_asked_for_its_own_call() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        let said =
            |text: &str| json!({ "role": "assistant", "content": { "type": "text", "text": text }, "model": "m", "stopReason": "endTurn" });
        let model = Person::modelling(move |question| {
            let prompt = question.sampling.params["messages"][0]["content"]["text"].as_str().unwrap().to_uppercase();
            ready(Ok(said(&prompt)))
        });
        assert_eq!(setup.ask(&model, "sample", json!({ "prompt": "hello" })).await, said("HELLO"), "{flags:?}");
        let [question] = model.asked().try_into().unwrap();
        assert_eq!((&question["server"], &question["tool"]), (&json!(ONE), &json!("sample")));
        assert_eq!((&question["params"]["systemPrompt"], &question["params"]["maxTokens"]), (&json!("Be brief."), &json!(100)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_a_model_are_told_apart_as_well() {
    let setup = Setup::with(&[], &json!({ "elicits": true }), None).await;
    let calls = (0..30).map(|number| {
        let setup = &setup;
        async move {
            let answer = json!({ "role": "assistant", "content": { "type": "text", "text": number.to_string() }, "model": "m" });
            let expected = answer.clone();
            let model = Person::modelling(move |_| ready(Ok(answer.clone())));
            assert_eq!(setup.ask(&model, "sample", json!({ "prompt": "who?" })).await, expected);
        }
    });
    within(patience(), "all models", join_all(calls)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_the_server_is_told_and_a_refusal_keeps_its_reason() {
    let setup = Setup::open(&[]).await;
    let nobody = setup.call("sample", json!({ "prompt": "?" })).await.unwrap()["structuredContent"].take();
    assert!(nobody["error"]["message"].as_str().unwrap().contains("sampling is not offered"), "{nobody}");
    let model = Person::modelling(|_| ready(Err(Error::Internal("the account of alice@example.com is empty".into()))));
    let refused = setup.ask(&model, "sample", json!({ "prompt": "?" })).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("no answer"), "{refused}");
    assert!(!refused.to_string().contains("alice"), "{refused}");
    assert!(only_reason(&setup).contains("alice"));

    let setup = Setup::open(&["--era", "2026"]).await;
    for refused in [setup.call("sample", json!({ "prompt": "?" })).await, setup.call_for(&model, "sample", json!({ "prompt": "?" })).await]
    {
        let refused = refused.unwrap();
        assert!(refused["structuredContent"]["stopReason"] == "refused" && !refused.to_string().contains("alice"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_roots_are_declared_and_none_are_given_where_the_config_has_none() {
    let setup = Setup::open(&[]).await;
    assert_eq!(setup.call("roots", json!({})).await.unwrap()["structuredContent"], json!({ "roots": [] }));
    let setup = Setup::open(&["--era", "2026"]).await;
    let error = setup.call("roots", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::Protocol { code: -32021, .. }), "{error}");
    let declared = setup.test_folder.logged(ONE, "request", |entry| entry["name"] == "roots").await;
    let declared = &declared["meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert!(declared["elicitation"]["url"].is_object() && declared["sampling"].is_object(), "{declared}");
    assert_eq!(declared.get("roots"), None);
}

fn numbers(told: &RecordedEvents, kind: &str, key: &str) -> Vec<u64> {
    let number = |event: &Json| event.pointer(key).and_then(Json::as_f64).map(|number| format!("{number:.0}").parse().unwrap());
    told.all(kind).iter().filter_map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reaches_its_own_calls_listener_in_order() {
    for flags in ERAS {
        let setup = Setup::open(flags).await;
        let steps = 1_u64..=40;
        let calls = (0..10).map(|_| async {
            let told = RecordedEvents::default();
            let options = CallOptions { on_event: Some(told.listener()), ..CallOptions::default() };
            setup.call_with("progress", json!({ "steps": 40, "delay_ms": 1 }), options, &Stop::new()).await.unwrap();
            told
        });
        for told in join_all(calls).await {
            assert_eq!(numbers(&told, "progress", "/progress"), steps.clone().collect::<Vec<_>>(), "{flags:?}");
            let last = told.all("progress").pop().unwrap();
            let expected =
                json!({ "type": "progress", "server": ONE, "tool": "progress", "progress": 40.0, "total": 40.0, "message": "step 40" });
            assert_eq!(last, expected);
        }
        assert_eq!(setup.told.all("progress").len(), 0);
        setup.call("progress", json!({ "steps": 3 })).await.unwrap();
        assert_eq!(numbers(&setup.told, "progress", "/progress"), [1, 2, 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_logs_reaches_the_only_callers_listener_in_order_and_else_the_gateways() {
    let setup = Setup::open(&[]).await;
    let told = RecordedEvents::default();
    let options = || CallOptions { on_event: Some(told.listener()), ..CallOptions::default() };
    setup.call_with("log_lines", json!({ "count": 100, "level": "warning" }), options(), &Stop::new()).await.unwrap();
    assert_eq!(numbers(&told, "server-log", "/data/number"), (1..=100).collect::<Vec<_>>());
    let first = told.all("server-log").swap_remove(0);
    let expected = json!({ "type": "server-log", "server": ONE, "level": "warning", "logger": "fixture",
        "data": { "number": 1, "of": 100, "line": "line 1" } });
    assert_eq!(first, expected);
    assert_eq!(setup.told.all("server-log").len(), 0);
    setup.call("log_lines", json!({ "count": 2 })).await.unwrap();
    assert_eq!(numbers(&setup.told, "server-log", "/data/number"), [1, 2]);

    // With two callers in flight, it is not known which of them this line belongs to.
    let stop = Stop::new();
    let logging = async {
        setup.test_folder.called(ONE, "hang").await;
        setup.call_with("log_lines", json!({ "count": 1 }), options(), &Stop::new()).await.unwrap();
        stop.stop(StopReason::Aborted);
    };
    let (held, ()) = tokio::join!(setup.call_with("hang", json!({}), CallOptions::default(), &stop), logging);
    assert_eq!(held.unwrap_err().code(), "ERR_ABORTED");
    assert_eq!((told.all("server-log").len(), setup.told.all("server-log").len()), (100, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_prolongs_a_call_and_silence_does_not() {
    let setup = Setup::open(&[]).await;
    let options = || CallOptions { timeout_ms: Some(400), ..CallOptions::default() };
    let long = json!({ "steps": 12, "delay_ms": 100 });
    setup.call_with("keep_alive", long, options(), &Stop::new()).await.unwrap();
    let error = setup.call_with("sleep", json!({ "ms": 1_200 }), options(), &Stop::new()).await.unwrap_err();
    assert_eq!(error.code(), "ERR_CALL_TIMEOUT");
}
