//! Tests of resources and prompts through the gateway: agents and guests can read and fill in what was approved, and nothing else. Results
//! are checked against the schemas of their tools.

use std::sync::Arc;

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::client::Completed;
use hyperlight_mcp::gateway::{Answer, ApprovalQuestion, CallOptions, Callbacks, RunOptions};
use hyperlight_mcp::sandbox::{Stop, Value};
use hyperlight_mcp::trust::{ApprovalRequest, Decision};
use hyperlight_mcp::{Error, Result};
use serde_json::{Value as Json, json};

use crate::store::approvals_in;
use crate::support::asking::{ONE, Person, Setup, for_person};
use crate::support::{FIXTURE, TestFolder, object, patience, pid_of, said, send, told, until, within, write_script};

const BOTH: [&str; 2] = ["--resources", "--prompts"];
const BOTH_2026: [&str; 4] = ["--resources", "--prompts", "--era", "2026"];

async fn read(setup: &Setup, uri: &str) -> Result<Json> {
    setup.gateway.read_resource(ONE, uri, CallOptions::default(), &Stop::new()).await
}

async fn prompt(setup: &Setup, name: &str, arguments: Json) -> Result<Json> {
    setup.gateway.get_prompt(ONE, name, object(arguments), CallOptions::default(), &Stop::new()).await
}

fn code<T>(outcome: Result<T>) -> &'static str {
    outcome.err().map_or("no error", |error| error.code())
}

/// Returns how many requests with this method have reached the server.
fn requests(test_folder: &TestFolder, method: &str) -> usize {
    test_folder.events(ONE).iter().filter(|event| event["event"] == "request" && event["method"] == method).count()
}

/// Returns the value of an expression in a guest that imports everything of `host:mcp`, and the run's warnings.
async fn evaluate(setup: &Setup, expression: &str) -> (Json, Vec<String>) {
    let sandbox = setup.gateway.sandbox(ToolErrors::Return, None).unwrap();
    let caught = "(work) => { try { return work() } catch (error) { return { code: error.code, message: error.message } } }";
    let code = format!(
        r#"import {{ call, resources, read, prompts, prompt }} from "host:mcp"; const caught = {caught};
        export const handler = () => ({{ value: {expression} }});"#
    );
    let report = within(patience(), "a run", sandbox.run(code, RunOptions::default())).await;
    let Value::Record(mut fields) = Value::from_wire(report.outcome.value.unwrap()).unwrap() else { panic!("no record") };
    let value = fields.remove(0).1.into_json();
    (value["value"].clone(), report.warnings)
}

#[tokio::test]
async fn all_pages_of_all_lists_are_part_of_what_is_approved() {
    for era in [&[][..], &["--era", "2026"]] {
        let flags = [&BOTH[..], &["--paginate", "1"], era].concat();
        let setup = Setup::open(&flags).await;
        let entries = json!(setup.gateway.resources(ONE).unwrap());
        let uris: Vec<_> = entries.as_array().unwrap().iter().map(|entry| entry["uri"].as_str().unwrap_or("template")).collect();
        assert_eq!(uris, ["fixture://note.txt", "fixture://blob", "fixture://folder", "fixture://large", "template"]);
        assert_eq!(entries[4]["uriTemplate"], "fixture://item/{id}");
        assert_eq!((&entries[0]["title"], &entries[0]["mimeType"]), (&json!("A note"), &json!("text/plain")));
        let prompts = json!(setup.gateway.prompts(ONE).unwrap());
        assert_eq!((prompts.as_array().unwrap().len(), &prompts[1]["arguments"][0]["name"]), (2, &json!("place")));
        let ApprovalRequest::Manifest(shown) = setup.gateway.approval_request(ONE).await.unwrap() else { panic!("stage command") };
        assert!(shown.approved && shown.resources.len() == 4 && shown.prompts.len() == 2 && shown.resource_templates[0].usable);
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn a_server_without_resources_and_prompts_has_none() {
    let setup = Setup::open(&[]).await;
    assert!(setup.gateway.resources(ONE).unwrap().is_empty() && setup.gateway.prompts(ONE).unwrap().is_empty());
    assert_eq!(code(read(&setup, "fixture://note.txt").await), "ERR_UNKNOWN_RESOURCE");
    assert_eq!(requests(&setup.test_folder, "resources/list"), 0);
    setup.gateway.close().await;
}

#[tokio::test]
async fn what_is_listed_or_follows_a_template_is_read_and_nothing_else_reaches_the_server() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let setup = Setup::open(flags).await;
        let note = read(&setup, "fixture://note.txt").await.unwrap();
        assert_eq!(note["contents"], json!([{ "uri": "fixture://note.txt", "mimeType": "text/plain", "text": "a note" }]));
        assert_eq!(read(&setup, "fixture://folder").await.unwrap()["contents"].as_array().unwrap().len(), 2);
        assert_eq!(read(&setup, "fixture://item/7").await.unwrap()["contents"][0]["text"], "item 7");
        let reads = requests(&setup.test_folder, "resources/read");
        for uri in ["fixture://ask", "fixture://text/5", "fixture://item/", "fixture://item/..", "fixture://item/a/b", "file:///etc/passwd"]
        {
            let error = read(&setup, uri).await.unwrap_err();
            assert_eq!(error.code(), "ERR_UNKNOWN_RESOURCE", "{uri}");
            assert!(told(&error).contains("fixture://item/{id}"), "{error}");
        }
        assert_eq!(requests(&setup.test_folder, "resources/read"), reads);
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn filters_hide_resources_and_prompts() {
    let filters = json!({ "denyResources": ["fixture://item/1*", "fixture://blob"], "allowPrompts": ["plain", "no-such"] });
    let setup = Setup::with(&BOTH, &filters, None).await;
    assert_eq!(setup.gateway.resources(ONE).unwrap().len(), 4);
    for (uri, expected) in [
        ("fixture://item/2", "no error"),
        ("fixture://item/12", "ERR_UNKNOWN_RESOURCE"),
        ("fixture://item/%312", "ERR_UNKNOWN_RESOURCE"),
        ("fixture://blob", "ERR_UNKNOWN_RESOURCE"),
    ] {
        assert_eq!(code(read(&setup, uri).await), expected, "{uri}");
    }
    assert_eq!(setup.gateway.prompts(ONE).unwrap().len(), 1);
    assert_eq!(code(prompt(&setup, "travel", json!({ "place": "Rome" })).await), "ERR_UNKNOWN_PROMPT");
    assert!(
        setup.told.all("warning").iter().any(|event| event["message"].as_str().unwrap().contains("\"no-such\", which allowPrompts names"))
    );
    setup.gateway.close().await;
}

#[tokio::test]
async fn a_prompt_is_filled_in_with_texts() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let setup = Setup::open(flags).await;
        let filled = prompt(&setup, "travel", json!({ "place": "Rome", "days": 3 })).await.unwrap();
        assert_eq!(filled["description"], "A journey to Rome");
        assert_eq!(filled["messages"][0], json!({ "role": "user", "content": { "type": "text", "text": "Plan 3 days in Rome." } }));
        assert_eq!(prompt(&setup, "plain", json!({})).await.unwrap()["messages"].as_array().unwrap().len(), 1);
        assert_eq!(code(prompt(&setup, "travel", json!({})).await), "ERR_PROTOCOL");
        assert_eq!(code(prompt(&setup, "travel", json!({ "place": ["Rome"] })).await), "ERR_INVALID_ARGUMENTS");
        assert_eq!(code(prompt(&setup, "other", json!({})).await), "ERR_UNKNOWN_PROMPT");
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn a_prompt_that_asks_asks_the_person_of_its_call() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let (setup, person) = (Setup::open(flags).await, Person::answering("Parma"));
        let filled =
            setup.gateway.get_prompt(ONE, "travel", object(json!({ "place": "?" })), for_person(&person), &Stop::new()).await.unwrap();
        assert_eq!(filled["description"], "A journey to Parma");
        assert_eq!(person.messages(), ["Where to?"]);
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn arguments_are_completed_at_most_a_hundred_ways() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let setup = Setup::open(flags).await;
        let complete = async |of: Completed, argument: &str, value: &str, context: Json| {
            let argument = (argument.to_owned(), value.to_owned());
            setup.gateway.complete(ONE, of, argument, object(context), CallOptions::default(), &Stop::new()).await
        };
        let travel = || Completed::Prompt("travel".into());
        let places = complete(travel(), "place", "Pa", json!({})).await.unwrap();
        assert_eq!(places, json!({ "values": ["Paris", "Parma"], "total": 2, "hasMore": false }));
        assert_eq!(complete(travel(), "days", "", json!({ "place": "Rome" })).await.unwrap()["values"], json!(["1"]));
        let items = complete(Completed::Template("fixture://item/{id}".into()), "id", "", json!({})).await.unwrap();
        assert_eq!((items["values"].as_array().unwrap().len(), &items["total"]), (100, &json!(250)));
        assert_eq!(code(complete(Completed::Prompt("x".into()), "a", "", json!({})).await), "ERR_UNKNOWN_PROMPT");
        assert_eq!(code(complete(Completed::Template("x:{y}".into()), "y", "", json!({})).await), "ERR_UNKNOWN_RESOURCE");
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn a_change_of_a_watched_resource_is_an_event_also_after_a_crash() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let setup = Setup::open(flags).await;
        let updates = || setup.told.all("resource-updated").len();
        setup.gateway.subscribe(ONE, "fixture://note.txt").await.unwrap();
        setup.call("touch", json!({})).await.unwrap();
        until("the event", || (updates() == 1).then_some(())).await;
        assert_eq!(setup.told.all("resource-updated")[0]["uri"], "fixture://note.txt");
        // The server's session ends, and with it the server's list of subscriptions.
        assert_eq!(code(setup.call("crash", json!({})).await), "ERR_SERVER_EXITED");
        setup.call("touch", json!({})).await.unwrap();
        until("the event of the next connection", || (updates() == 2).then_some(())).await;
        assert_eq!(code(setup.gateway.subscribe(ONE, "fixture://ask").await), "ERR_UNKNOWN_RESOURCE");
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn a_resource_that_is_no_longer_watched_tells_nothing() {
    for (flags, method) in [(&BOTH[..], "resources/unsubscribe"), (&BOTH_2026, "notifications/cancelled")] {
        let setup = Setup::open(flags).await;
        setup.gateway.subscribe(ONE, "fixture://note.txt").await.unwrap();
        setup.gateway.subscribe(ONE, "fixture://blob").await.unwrap();
        setup.gateway.unsubscribe(ONE, "fixture://note.txt").await.unwrap();
        let told = || setup.test_folder.events(ONE).iter().any(|event| event["method"] == method);
        until("the server to be told", || told().then_some(())).await;
        setup.call("touch", json!({})).await.unwrap();
        setup.call("touch", json!({ "uri": "fixture://blob" })).await.unwrap();
        until("the event", || setup.told.all("resource-updated").first().cloned()).await;
        let uris: Vec<_> = setup.told.all("resource-updated").iter().map(|event| event["uri"].clone()).collect();
        assert_eq!(uris, ["fixture://blob"]);
        setup.gateway.close().await;
    }
}

#[tokio::test]
async fn what_the_server_changed_since_is_refused_until_it_is_approved() {
    let test_folder = TestFolder::new();
    let (program, log) = (test_folder.path("server"), test_folder.path("log-one"));
    let serve = |flags: &str| write_script(&program, &format!("exec {FIXTURE} --log {} {flags}", log.display()));
    serve("--resources --prompts");
    let setup = Setup::with(&[], &json!({ "command": program, "box": "off", "args": [] }), None).await;
    assert_eq!(code(read(&setup, "fixture://note.txt").await), "no error");
    setup.gateway.disable(ONE).await.unwrap();
    serve("--tools echo");
    setup.gateway.enable(ONE).unwrap();
    assert_eq!(code(read(&setup, "fixture://note.txt").await), "ERR_RESOURCE_CHANGED");
    assert_eq!(code(read(&setup, "fixture://item/1").await), "ERR_RESOURCE_CHANGED");
    assert_eq!(code(prompt(&setup, "plain", json!({})).await), "ERR_PROMPT_CHANGED");
    let event = setup.told.all("tools-changed").remove(0);
    assert_eq!(event["prompts"], json!({ "added": [], "removed": ["plain", "travel"], "changed": [] }));
    assert_eq!(event["resources"]["removed"].as_array().unwrap().len(), 4);
    assert_eq!(event["resourceTemplates"]["removed"], json!(["fixture://item/{id}"]));
    let ApprovalRequest::Manifest(request) = setup.gateway.approval_request(ONE).await.unwrap() else { panic!("stage command") };
    assert_eq!(request.changes.unwrap().drift.prompts.removed, ["plain", "travel"]);
    setup.gateway.approve(ONE, Some(&request.digest), None).await.unwrap();
    assert_eq!(code(read(&setup, "fixture://note.txt").await), "ERR_UNKNOWN_RESOURCE");
    setup.gateway.close().await;
}

#[tokio::test]
async fn a_server_that_is_not_enabled_or_revoked_offers_nothing() {
    let setup = Setup::open(&BOTH).await;
    setup.gateway.disable(ONE).await.unwrap();
    assert_eq!(code(setup.gateway.resources(ONE)), "ERR_NOT_ENABLED");
    assert_eq!(code(read(&setup, "fixture://note.txt").await), "ERR_NOT_ENABLED");
    setup.gateway.enable(ONE).unwrap();
    setup.gateway.revoke(ONE).await.unwrap();
    assert_eq!(code(prompt(&setup, "plain", json!({})).await), "ERR_NOT_APPROVED");
    assert_eq!(code(setup.gateway.subscribe(ONE, "fixture://note.txt").await), "ERR_NOT_APPROVED");
    setup.gateway.close().await;
}

/// Records each question, and answers with the given decision.
struct Gatekeeper(std::sync::Mutex<Vec<ApprovalQuestion>>, Decision);

impl Callbacks for Gatekeeper {
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        self.0.lock().unwrap().push(question.clone());
        let decision = self.1;
        Some(Box::pin(async move { Ok(decision) }))
    }
}

#[tokio::test]
async fn where_all_is_confirmed_reading_is_as_well() {
    let setup = Setup::with(&BOTH, &json!({ "confirm": "always" }), None).await;
    assert_eq!(code(read(&setup, "fixture://note.txt").await), "ERR_CALL_DENIED");
    let keeper = |decision| Arc::new(Gatekeeper(std::sync::Mutex::default(), decision));
    let options = |keeper: &Arc<Gatekeeper>| CallOptions { callbacks: Some(Arc::clone(keeper) as _), ..CallOptions::default() };
    let (once, session) = (keeper(Decision::Once), keeper(Decision::Session));
    for keeper in [&once, &session, &session] {
        setup.gateway.read_resource(ONE, "fixture://note.txt", options(keeper), &Stop::new()).await.unwrap();
    }
    let asked = once.0.lock().unwrap().clone();
    assert_eq!((asked.len(), asked[0].tool.as_str(), &asked[0].args["uri"]), (1, "resources/read", &json!("fixture://note.txt")));
    assert_eq!(session.0.lock().unwrap().len(), 1, "it was allowed for the session");
    assert_eq!(code(prompt(&setup, "plain", json!({})).await), "ERR_CALL_DENIED");
    assert_eq!(requests(&setup.test_folder, "prompts/get"), 0);
    setup.gateway.close().await;
}

/// Kills the server's last process.
fn kill_server(test_folder: &TestFolder) {
    let spawned = test_folder.events(ONE).into_iter().rfind(|event| event["event"] == "spawn").unwrap();
    send(libc::SIGKILL, pid_of(&spawned));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_its_server_may_have_filled_in_is_not_asked_for_again() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let (setup, stop) = (Setup::open(flags).await, Stop::new());
        let (person, _waited_for) = Person::silent();
        let filling = setup.gateway.get_prompt(ONE, "travel", object(json!({ "place": "?" })), for_person(&person), &stop);
        let killing = async {
            until("the question", || (person.asked().len() == 1).then_some(())).await;
            kill_server(&setup.test_folder);
        };
        let both = Box::pin(async { tokio::join!(filling, killing) });
        let (filled, ()) = within(patience(), "the end", both).await;
        assert_eq!((code(filled), person.asked().len()), ("ERR_SERVER_EXITED", 1), "{flags:?}");
        assert_eq!(requests(&setup.test_folder, "prompts/get"), 1, "{flags:?}");
        setup.gateway.close().await;
    }
}

/// Decides when the test sends the decision.
struct Undecided(std::sync::Mutex<Option<tokio::sync::oneshot::Receiver<Decision>>>);

impl Callbacks for Undecided {
    fn approve_call(&self, _question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        let decision = self.0.lock().unwrap().take()?;
        Some(Box::pin(async move { Ok(decision.await.unwrap()) }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_was_approved_in_another_form_while_a_person_was_asked_is_refused() {
    let test_folder = TestFolder::new();
    let (program, log) = (test_folder.path("server"), test_folder.path("log-one"));
    let serve = |title: &str| {
        let script = format!("{FIXTURE} --log {} --resources | sed -u 's/A note/{title}/'", log.display());
        write_script(&program, &script);
    };
    serve("A note");
    let setup = Setup::with(&[], &json!({ "command": program, "box": "off", "args": [], "confirm": "always" }), None).await;
    let (decide, decision) = tokio::sync::oneshot::channel();
    let (person, stop) = (Arc::new(Undecided(std::sync::Mutex::new(Some(decision)))), Stop::new());
    let options = CallOptions { callbacks: Some(Arc::clone(&person) as _), ..CallOptions::default() };
    let reading = setup.gateway.read_resource(ONE, "fixture://note.txt", options, &stop);
    let approving = async {
        until("the question", || person.0.lock().unwrap().is_none().then_some(())).await;
        kill_server(&test_folder);
        until("the end of its process", || setup.told.all("connection-lost").first().cloned()).await;
        serve("Another note");
        setup.gateway.approve(ONE, None, None).await.unwrap();
        decide.send(Decision::Once).unwrap();
    };
    let both = Box::pin(async { tokio::join!(reading, approving) });
    let (read, ()) = within(patience(), "the answer", both).await;
    assert_eq!((code(read), requests(&test_folder, "resources/read")), ("ERR_RESOURCE_CHANGED", 0));
    setup.gateway.close().await;
}

#[tokio::test]
async fn subscriptions_end_with_an_approval_whoever_takes_it_back() {
    let setup = Setup::open(&BOTH).await;
    setup.gateway.subscribe(ONE, "fixture://note.txt").await.unwrap();
    // Another process revokes the approval.
    approvals_in(&setup.test_folder.path("state")).revoke(ONE).unwrap();
    assert_eq!(code(setup.call("touch", json!({})).await), "ERR_NOT_APPROVED");
    setup.gateway.approve(ONE, None, None).await.unwrap();
    setup.call("touch", json!({})).await.unwrap();
    assert_eq!(requests(&setup.test_folder, "resources/subscribe"), 1);
    // The next connection had no subscription to restore.
    let refused = |event: &Json| event["message"].as_str().is_some_and(|message| message.contains("no longer watched"));
    assert!(!setup.told.all("warning").iter().any(refused));
    setup.gateway.close().await;
}

#[tokio::test]
async fn a_guest_lists_reads_and_fills_in() {
    let setup = Setup::open(&BOTH).await;
    let (listed, _) =
        evaluate(&setup, r#"[resources("one").length, resources()[4].uriTemplate, prompts().map((entry) => entry.name)]"#).await;
    assert_eq!(listed, json!([5, "fixture://item/{id}", ["plain", "travel"]]));
    let (note, _) = evaluate(&setup, r#"read("one", "fixture://note.txt")"#).await;
    assert_eq!(note, json!({ "uri": "fixture://note.txt", "mimeType": "text/plain", "text": "a note" }));
    let (folder, _) = evaluate(&setup, r#"read("one", "fixture://folder").map((part) => part.text ?? part.data.length)"#).await;
    assert_eq!(folder, json!(["a", 4]));
    let (filled, warnings) = evaluate(&setup, r#"prompt("one", "travel", { place: "Rome", days: 3 })"#).await;
    assert_eq!((&filled["description"], &filled["messages"][0]["content"]), (&json!("A journey to Rome"), &json!("Plan 3 days in Rome.")));
    assert_eq!(filled["messages"][2]["content"]["uri"], "fixture://note.txt");
    assert_eq!(warnings, [""; 0]);
    setup.gateway.close().await;
}

#[tokio::test]
async fn what_a_guest_may_not_have_is_an_exception_with_a_code() {
    let setup = Setup::open(&BOTH).await;
    for (expression, expected) in [
        (r#"read("one", "fixture://ask")"#, "ERR_UNKNOWN_RESOURCE"),
        (r#"read("two", "fixture://note.txt")"#, "ERR_UNKNOWN_SERVER"),
        (r#"read("one")"#, "ERR_INVALID_ARGUMENTS"),
        (r#"read("one", "fixture://note.txt", 1)"#, "ERR_INVALID_ARGUMENTS"),
        (r#"prompt("one", "other")"#, "ERR_UNKNOWN_PROMPT"),
        (r#"prompt("one", "travel")"#, "ERR_PROTOCOL"),
        (r#"prompt("one", "travel", ["Rome"])"#, "ERR_INVALID_ARGUMENTS"),
        (r#"resources("two")"#, "ERR_UNKNOWN_SERVER"),
        (r"prompts({})", "ERR_INVALID_ARGUMENTS"),
    ] {
        let (value, _) = evaluate(&setup, &format!("caught(() => {expression})")).await;
        assert_eq!(value["code"], expected, "{expression}: {value}");
    }
    setup.gateway.close().await;
}

#[tokio::test]
async fn text_of_just_the_limit_reaches_a_guest_whole() {
    let setup = Setup::open(&BOTH).await;
    let (length, warnings) = evaluate(&setup, r#"read("one", "fixture://large").text.length"#).await;
    assert_eq!((length, warnings.len()), (json!(1_048_576), 0), "the limit holds to the byte");
    assert!(
        matches!(read(&setup, "fixture://large").await, Ok(large) if large["contents"][0]["text"].as_str().unwrap().len() == 1_048_576)
    );
    setup.gateway.close().await;
}

#[tokio::test]
async fn a_result_that_breaks_its_schema_is_returned_with_a_warning_or_refused() {
    let setup = Setup::open(&[]).await;
    let result = setup.call("bad_output", json!({})).await.unwrap();
    assert_eq!(result["structuredContent"]["number"], "seven");
    let warnings: Vec<_> = setup.told.all("warning").iter().map(|event| event["message"].as_str().unwrap().to_owned()).collect();
    assert!(warnings.iter().any(|text| text.contains("one.bad_output") && text.contains("structuredContent/number")), "{warnings:?}");
    let (value, warnings) = evaluate(&setup, r#"call("one", "bad_output").structuredContent.number"#).await;
    assert_eq!((value, warnings.len()), (json!("seven"), 1));
    assert!(!warnings[0].contains("seven"), "{warnings:?}");
    setup.gateway.close().await;

    let setup = Setup::with(&[], &json!({ "schemaViolations": "error" }), None).await;
    let error = setup.call("bad_output", json!({})).await.unwrap_err();
    assert!(matches!(&error, Error::OutputSchema { server, tool, .. } if server == ONE && said(tool) == "bad_output"), "{error}");
    let (value, _) = evaluate(&setup, r#"caught(() => call("one", "bad_output"))"#).await;
    assert_eq!(value["code"], "ERR_OUTPUT_SCHEMA");
    let fitting = setup.call("structured", json!({ "name": "x" })).await.unwrap();
    assert_eq!(fitting["structuredContent"]["name"], "x");
    // A result with `isError` is not checked against the schema.
    assert_eq!(setup.call("error_structured", json!({ "message": "no" })).await.unwrap()["isError"], true);
    setup.gateway.close().await;
}

#[tokio::test]
async fn a_list_without_an_end_keeps_the_server_from_being_used() {
    let test_folder = TestFolder::new();
    let error = test_folder.open(&["--resources", "--repeat-cursor"]).await.err().unwrap();
    assert!(told(&error).contains("repeats a cursor"), "{error}");
    let error = test_folder.open(&["--prompts", "--tools", "echo", "--endless-pages"]).await.err().unwrap();
    assert!(told(&error).contains("list of"), "{error}");
}

#[tokio::test]
async fn servers_over_http_offer_the_same() {
    for flags in [&BOTH[..], &BOTH_2026] {
        let setup = Setup::remote(flags, None).await;
        assert_eq!(setup.gateway.resources(ONE).unwrap().len(), 5);
        assert_eq!(read(&setup, "fixture://item/a%20b").await.unwrap()["contents"][0]["uri"], "fixture://item/a%20b");
        assert_eq!(prompt(&setup, "travel", json!({ "place": "Rome" })).await.unwrap()["description"], "A journey to Rome");
        setup.gateway.subscribe(ONE, "fixture://note.txt").await.unwrap();
        setup.call("touch", json!({})).await.unwrap();
        until("the event", || setup.told.all("resource-updated").first().cloned()).await;
        setup.gateway.unsubscribe(ONE, "fixture://note.txt").await.unwrap();
        setup.gateway.close().await;
    }
}
