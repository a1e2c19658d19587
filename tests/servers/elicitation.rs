//! Each question of a server reaches the person of the call that caused it, and nobody else.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hyperlight_mcp::client::ElicitationAnswer;
use hyperlight_mcp::sandbox::{Stop, StopReason};
use serde_json::{Value as Json, json};
use tokio::sync::Barrier;

use crate::support::asking::{ONE, Person, Setup, accepted, cancel, decline, for_person, ready};
use crate::support::{patience, send, until, within};

const MANY: usize = 50;

/// Makes many calls at the same time. Each has a different person, who answers with their number. Checks that nobody was asked the question
/// of another call, and returns the results.
async fn ask_many(setup: &Setup, many: usize, delay_ms: u64) -> Vec<Json> {
    let people: Vec<_> = (0..many).map(|number| Person::answering(&number.to_string())).collect();
    let calls = people.iter().enumerate().map(|(number, person)| async move {
        let arguments = json!({ "message": format!("question {number}"), "delay_ms": delay_ms });
        setup.ask(person, "elicit", arguments).await
    });
    let results = within(patience(), "all answers", join_all(calls)).await;
    for (number, person) in people.iter().enumerate() {
        let own = format!("question {number}");
        assert!(person.messages().iter().all(|message| *message == own), "{number} was asked {:?}", person.messages());
    }
    results
}

fn assert_each_got_its_own(results: &[Json]) {
    for (number, result) in results.iter().enumerate() {
        assert_eq!(*result, accepted(&number.to_string()));
    }
}

/// Asks many people at the same time. They answer only after all of them were asked, so no question may wait for another person's answer.
async fn ask_all_at_once(setup: &Setup, many: usize) {
    let barrier = Arc::new(Barrier::new(many));
    let calls = (0..many).map(|number| {
        let barrier = Arc::clone(&barrier);
        let person = Person::reacting(move |question| {
            let barrier = Arc::clone(&barrier);
            let message = json!(question)["message"].clone();
            Box::pin(async move {
                barrier.wait().await;
                Ok(ElicitationAnswer::Accept(Some(json!({ "answer": message }))))
            })
        });
        async move { setup.ask(&person, "elicit", json!({ "message": number.to_string() })).await }
    });
    let results = within(patience(), "all to be asked at once", join_all(calls)).await;
    assert_each_got_its_own(&results);
    assert_eq!(setup.told.cancelled(), [""; 0]);
}

/// Starts a call with this person. It stays pending until it is stopped.
fn hold<'a>(setup: &'a Setup, person: Option<&Arc<Person>>, stop: &'a Stop) -> impl Future<Output = ()> + use<'a> {
    let options = person.map(for_person).unwrap_or_default();
    async move {
        let outcome = setup.call_with("hang", json!({}), options, stop).await;
        assert_eq!(outcome.unwrap_err().code(), "ERR_ABORTED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_callers_that_share_an_old_server_never_get_each_others_questions_or_answers() {
    let setup = Setup::open(&[]).await;
    let mut cancelled = 0;
    for (number, result) in ask_many(&setup, MANY, 100).await.into_iter().enumerate() {
        if result == cancel() {
            cancelled += 1;
        } else {
            assert_eq!(result, accepted(&number.to_string()));
        }
    }
    // For each caller that was not asked, the reason was reported.
    let reasons = setup.told.cancelled();
    assert_eq!(reasons.len(), cancelled);
    assert!(reasons.iter().all(|reason| reason.contains("several callers") && reason.contains("take turns")), "{reasons:?}");

    // From now on, the gateway knows that this server asks questions.
    assert_each_got_its_own(&ask_many(&setup, MANY, 0).await);
    assert_eq!(setup.told.cancelled().len(), cancelled);
    assert_eq!(setup.test_folder.count(ONE, "spawn"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_not_certain_whose_question_it_is_nobody_is_asked() {
    let setup = Setup::open(&[]).await;
    let (first, second, stop) = (Person::answering("first"), Person::answering("second"), Stop::new());
    let asking = async {
        setup.test_folder.called(ONE, "hang").await;
        assert_eq!(setup.ask(&second, "elicit", json!({})).await, cancel());
        stop.stop(StopReason::Aborted);
    };
    tokio::join!(hold(&setup, Some(&first), &stop), asking);
    assert_eq!((first.asked().len(), second.asked().len(), setup.told.cancelled().len()), (0, 0, 1));
    // The reported reason says to call again, and that succeeds.
    assert_eq!(setup.ask(&second, "elicit", json!({})).await, accepted("second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_question_of_a_server_reaches_the_only_caller() {
    let setup = Setup::open(&[]).await;
    let person = Person::answering("42");
    assert_eq!(setup.ask(&person, "elicit", json!({ "message": "What is six by seven?" })).await, accepted("42"));
    let [question] = person.asked().try_into().unwrap();
    assert_eq!((&question["server"], &question["tool"], &question["mode"]), (&json!(ONE), &json!("elicit"), &json!("form")));
    assert_eq!(question["requestedSchema"]["required"], json!(["answer"]));
    assert_eq!(question.get("runId"), None);
    assert_eq!(setup.told.cancelled(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_asked_is_remembered_with_its_definition() {
    let setup = Setup::open(&[]).await;
    assert_eq!(setup.ask(&Person::answering("yes"), "elicit", json!({})).await, accepted("yes"));

    let setup = setup.reopened(&[]).await;
    assert_each_got_its_own(&ask_many(&setup, 10, 20).await);
    assert_eq!(setup.told.cancelled(), [""; 0]);

    // Nothing is known about a changed server, even though it has the same name.
    let setup = setup.reopened(&["--blank-lines"]).await;
    let (holder, asked, stop) = (Person::answering("holder"), Person::answering("asked"), Stop::new());
    let asking = async {
        setup.test_folder.called(ONE, "hang").await;
        assert_eq!(setup.ask(&asked, "elicit", json!({})).await, cancel());
        stop.stop(StopReason::Aborted);
    };
    tokio::join!(hold(&setup, Some(&holder), &stop), asking);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_server_that_elicits_by_its_config_are_apart_from_the_start() {
    let setup = Setup::with(&[], &json!({ "elicits": true }), None).await;
    assert_each_got_its_own(&ask_many(&setup, MANY, 5).await);
    assert_eq!(setup.told.cancelled(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_cannot_be_asked_do_not_wait_for_one_another_and_decline() {
    let setup = Setup::with(&[], &json!({ "elicits": true }), None).await;
    let stop = Stop::new();
    let others = async {
        setup.test_folder.called(ONE, "hang").await;
        assert_eq!(setup.call("echo", json!({ "value": 1 })).await.unwrap()["structuredContent"]["value"], 1);
        // It does not matter which caller the server means, because nobody can be asked.
        assert_eq!(setup.call("elicit", json!({})).await.unwrap()["structuredContent"], decline());
        stop.stop(StopReason::Aborted);
    };
    let ((), ()) = within(patience(), "the others", Box::pin(async { tokio::join!(hold(&setup, None, &stop), others) })).await;
    assert_eq!(setup.told.cancelled(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_can_be_asked_has_the_connection_to_itself() {
    let setup = Setup::with(&[], &json!({ "elicits": true }), None).await;
    let (person, stop) = (Person::answering("mine"), Stop::new());
    let asking = async {
        setup.test_folder.called(ONE, "hang").await;
        assert_eq!(setup.ask_after(&person, &stop).await, accepted("mine"));
    };
    tokio::join!(hold(&setup, None, &stop), asking);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_were_in_flight_when_a_server_was_first_heard_asking_count_as_well() {
    let setup = Setup::open(&[]).await;
    let (holder, person, stop) = (Person::answering("holder"), Person::answering("mine"), Stop::new());
    let asking = async {
        setup.test_folder.called(ONE, "hang").await;
        assert_eq!(setup.ask(&person, "elicit", json!({})).await, cancel());
        // From now on, the calls take turns. This call waits for the one that began before.
        assert_eq!(setup.ask_after(&person, &stop).await, accepted("mine"));
    };
    tokio::join!(hold(&setup, Some(&holder), &stop), asking);
    assert_eq!(holder.asked().len(), 0);
    assert_eq!(setup.told.cancelled().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_aborted_call_still_asks_reaches_nobody_else() {
    let setup = Setup::with(&[], &json!({ "elicits": true }), None).await;
    setup.call("echo", json!({ "value": 1 })).await.unwrap();
    let server = setup.test_folder.pid(ONE).await;
    let calls = || setup.test_folder.events(ONE).iter().filter(|event| event["name"] == "elicit").count();
    for round in 0..10 {
        let (stop, next) = (Stop::new(), Person::answering("next"));
        let gone = Person::answering("gone");
        let aborted = async {
            let arguments = json!({ "message": "for the one that is gone", "delay_ms": 50 });
            let outcome = setup.call_with("elicit", arguments, for_person(&gone), &stop).await;
            assert_eq!(outcome.unwrap_err().code(), "ERR_ABORTED");
            let message = format!("question {round}");
            assert_eq!(setup.ask(&next, "elicit", json!({ "message": message, "delay_ms": 50 })).await, accepted("next"));
            assert_eq!(next.messages(), [message]);
        };
        // The server is stopped while the call is aborted. When it continues, it may read the cancellation first or ask first.
        let aborting = async {
            until("the call to arrive", || (calls() > 2 * round).then_some(())).await;
            send(libc::SIGSTOP, server);
            stop.stop(StopReason::Aborted);
            tokio::time::sleep(Duration::from_millis(100)).await;
            send(libc::SIGCONT, server);
        };
        within(patience(), "the next answer", Box::pin(async { tokio::join!(aborted, aborting) })).await;
        assert_eq!(gone.asked().len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_innermost_that_can_answer_is_asked() {
    let outer = Person::answering("outer");
    let setup = Setup::with(&[], &json!({}), Some(&outer)).await;
    let inner = Person::answering("inner");
    assert_eq!(setup.ask(&inner, "elicit", json!({})).await, accepted("inner"));
    assert_eq!((inner.asked().len(), outer.asked().len()), (1, 0));
    let only_a_model = Person::modelling(|_| unreachable!("nobody asks it"));
    assert_eq!(setup.ask(&only_a_model, "elicit", json!({})).await, accepted("outer"));
    assert_eq!(setup.call("elicit", json!({})).await.unwrap()["structuredContent"], accepted("outer"));
    assert_eq!((inner.asked().len(), outer.asked().len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_anybody_to_ask_a_server_is_told_decline() {
    for flags in [&[] as &[_], &["--era", "2026"]] {
        let setup = Setup::open(flags).await;
        assert_eq!(setup.call("elicit", json!({})).await.unwrap()["structuredContent"], decline(), "{flags:?}");
        assert_eq!(setup.told.cancelled(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_a_call_the_gateways_person_is_asked_and_no_callers() {
    let keeper = Person::answering("keeper");
    for (gateways, expected) in [(Some(&keeper), accepted("keeper")), (None, decline())] {
        let setup = Setup::with(&[], &json!({}), gateways).await;
        let caller = Person::answering("caller");
        setup.call_for(&caller, "elicit_outside", json!({ "delay_ms": 100 })).await.unwrap();
        let answer = setup.test_folder.logged(ONE, "outside-answer", |_| true).await["answer"].clone();
        assert_eq!(answer, expected);
        assert_eq!(caller.asked().len(), 0);
    }
    let [question] = keeper.asked().try_into().unwrap();
    assert_eq!((&question["server"], question.get("tool")), (&json!(ONE), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn since_2026_fifty_callers_are_asked_at_once_and_none_waits_for_a_turn() {
    let setup = Setup::open(&["--era", "2026"]).await;
    ask_all_at_once(&setup, MANY).await;
    assert_eq!(setup.test_folder.count(ONE, "request-state-mismatch") + setup.test_folder.count(ONE, "input-responses-mismatch"), 0);
    assert_eq!(setup.test_folder.count(ONE, "spawn"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_the_stream_tells_whose_question_it_is() {
    for flags in [&[] as &[_], &["--http-sse"], &["--era", "2026"]] {
        let setup = Setup::remote(flags, None).await;
        ask_all_at_once(&setup, 20).await;
        // The earlier questions change nothing.
        ask_all_at_once(&setup, 20).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_question_outside_of_a_call_reaches_the_gateways_person_as_well() {
    let keeper = Person::answering("keeper");
    let setup = Setup::remote(&[], Some(&keeper)).await;
    let caller = Person::answering("caller");
    setup.call_for(&caller, "elicit_outside", json!({ "delay_ms": 100 })).await.unwrap();
    assert_eq!(setup.test_folder.logged(ONE, "outside-answer", |_| true).await["answer"], accepted("keeper"));
    assert_eq!((caller.asked().len(), keeper.asked().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_questions_of_one_call_go_to_its_person_one_after_the_other() {
    for flags in [&[] as &[_], &["--era", "2026"]] {
        let setup = Setup::open(flags).await;
        let person = Person::reacting(|question| {
            let answer = if json!(question)["message"] == "The first question" { "one" } else { "two" };
            ready(Ok(ElicitationAnswer::Accept(Some(json!({ "answer": answer })))))
        });
        let answers = setup.ask(&person, "elicit_twice", json!({})).await;
        assert_eq!(answers, json!({ "first": accepted("one"), "second": accepted("two") }), "{flags:?}");
        assert_eq!(person.messages(), ["The first question", "The second question, after one"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_asks_without_end_is_answered_no_more_and_that_is_told_once() {
    for flags in [&[] as &[_], &["--era", "2026"]] {
        let setup = Setup::open(flags).await;
        let person = Person::answering("yes");
        let counts = setup.ask(&person, "elicit_flood", json!({ "count": 1_000 })).await;
        // Questions that come too fast to be answered are refused when they are read.
        let not_asked = counts["cancelled"].as_u64().unwrap() + counts["errors"].as_u64().unwrap();
        assert_eq!((&counts["accepted"], &counts["declined"], not_asked), (&json!(20), &json!(0), 980), "{flags:?}: {counts}");
        assert_eq!(person.asked().len(), 20);
        let [reason] = setup.told.cancelled().try_into().unwrap();
        assert!(reason.contains("elicit_flood") && reason.contains("too many"), "{reason}");
        // The next call may ask questions again.
        assert_eq!(setup.ask(&person, "elicit", json!({})).await, accepted("yes"));
    }
}
