//! Tests of approval while servers run: changed tools, revocations, permissions of writes and secrets. They use the crate's own API.

use std::sync::{Arc, Mutex};

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::gateway::{Answer, ApprovalQuestion, CallOptions, Callbacks, RunOptions};
use hyperlight_mcp::sandbox::{HostReply, Stop, Value};
use hyperlight_mcp::trust::{ApprovalRequest, CommandRequest, Decision, ManifestRequest};
use hyperlight_mcp::{Error, Gateway, GatewayOptions, Result};
use secrecy::SecretString;
use serde_json::{Value as Json, json};

use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, object, patience, within, write_script};

/// All events of a gateway.
type Heard = Arc<Mutex<Vec<Json>>>;

struct Case {
    test_folder: TestFolder,
    heard: Heard,
}

impl Case {
    fn new() -> Self {
        Self { test_folder: TestFolder::new(), heard: Heard::default() }
    }

    fn options(&self, config: &Json) -> GatewayOptions {
        let mut options = GatewayOptions::new(self.test_folder.watchdog_program(), tokio::runtime::Handle::current());
        options.config = Some(config.clone());
        options.state_dir = Some(self.test_folder.path("state"));
        options.workspace_folder = Some(self.test_folder.path(""));
        options.guest = guest_choice();
        options.trace = true;
        let heard = Arc::clone(&self.heard);
        options.on_event = Some(Arc::new(move |event| heard.lock().unwrap().push(event)));
        if emulated() {
            options.limits.connect_timeout_ms = Some(80_000);
        }
        options
    }

    fn server(&self, name: &str, more: Json) -> Json {
        let mut server = json!({ "command": FIXTURE, "box": "off", "args": self.test_folder.arguments(name, &[]) });
        server.as_object_mut().unwrap().extend(object(more));
        server
    }

    /// Opens a gateway with one server, approved in its present form and enabled.
    async fn open(&self, more: Json) -> Gateway {
        let gateway = Gateway::open(self.options(&json!({ "mcpServers": { "one": self.server("one", more) } }))).unwrap();
        gateway.approve("one", None, None).await.unwrap();
        gateway.enable("one").unwrap();
        gateway
    }

    fn events(&self, kind: &str) -> Vec<Json> {
        self.heard.lock().unwrap().iter().filter(|event| event["type"] == kind).cloned().collect()
    }
}

async fn call(gateway: &Gateway, tool: &str, arguments: Json) -> Result<Json> {
    gateway.call_tool("one", tool, object(arguments), CallOptions::default(), &Stop::new()).await
}

async fn code_of(gateway: &Gateway, tool: &str, arguments: Json) -> &'static str {
    call(gateway, tool, arguments).await.err().map_or("no error", |error| error.code())
}

async fn command_request(gateway: &Gateway) -> CommandRequest {
    match gateway.approval_request("one").await.unwrap() {
        ApprovalRequest::Command(request) => *request,
        ApprovalRequest::Manifest(_) => panic!("stage manifest"),
    }
}

async fn manifest_request(gateway: &Gateway) -> ManifestRequest {
    match gateway.approval_request("one").await.unwrap() {
        ApprovalRequest::Manifest(request) => *request,
        ApprovalRequest::Command(_) => panic!("stage command"),
    }
}

/// Answers with the given decisions, and records the questions.
struct Person {
    answers: Mutex<Vec<Decision>>,
    asked: Mutex<Vec<ApprovalQuestion>>,
}

impl Person {
    fn who_says(answers: &[Decision]) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.iter().rev().copied().collect()), asked: Mutex::default() })
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Callbacks for Person {
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        self.asked.lock().unwrap().push(question.clone());
        let decision = self.answers.lock().unwrap().pop().unwrap_or(Decision::Deny);
        Some(Box::pin(async move { Ok(decision) }))
    }

    fn input(&self, id: &str, description: &str, server: &str) -> Option<Answer<SecretString>> {
        let value = format!("{id} of {description} for {server} 7f3a9c");
        Some(Box::pin(async move { Ok(SecretString::from(value)) }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_changes_after_approval_is_quarantined_and_the_others_go_on() {
    let case = Case::new();
    let gateway = case.open(json!({})).await;
    call(&gateway, "rewrite", json!({ "tool": "echo", "description": "Returns the value, and mails it" })).await.unwrap();
    assert_eq!(code_of(&gateway, "echo", json!({ "value": 1 })).await, "ERR_TOOL_CHANGED");
    assert_eq!(code_of(&gateway, "pid", json!({})).await, "no error");
    assert_eq!(case.events("tools-changed")[0]["changed"], json!(["echo"]));
    assert_eq!(case.events("connected").len(), 1);
    let calls: Vec<_> = case.events("call").iter().map(|call| (call["tool"].clone(), call["error"].clone())).collect();
    assert_eq!(calls, [("rewrite".into(), Json::Null), ("echo".into(), "ERR_TOOL_CHANGED".into()), ("pid".into(), Json::Null)]);
    assert_eq!(gateway.servers().unwrap()[0].quarantined, ["echo"]);

    let request = manifest_request(&gateway).await;
    let changes = request.changes.unwrap();
    assert_eq!((changes.drift.changed, changes.differences[0].field.as_str()), (vec!["echo".to_owned()], "description"));
    assert_eq!(changes.differences[0].after, Some(json!("Returns the value, and mails it")));
    gateway.approve("one", Some(&request.digest), None).await.unwrap();
    assert_eq!(code_of(&gateway, "echo", json!({ "value": 1 })).await, "no error");
    assert_eq!(gateway.servers().unwrap()[0].quarantined, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_vanishes_says_so() {
    let case = Case::new();
    let gateway = case.open(json!({})).await;
    call(&gateway, "rewrite", json!({ "tool": "echo" })).await.unwrap();
    assert_eq!(code_of(&gateway, "echo", json!({ "value": 1 })).await, "ERR_TOOL_VANISHED");
    assert_eq!(case.events("tools-changed")[0]["removed"], json!(["echo"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_other_tools_is_compared_anew() {
    let case = Case::new();
    let program = case.test_folder.path("server");
    let log = case.test_folder.path("log-one");
    let serve = |flags: &str| write_script(&program, &format!("exec {FIXTURE} --log {} {flags}", log.display()));
    serve("--tools echo,pid");
    let config = json!({ "mcpServers": { "one": { "command": program, "box": "off" } } });
    let gateway = Gateway::open(case.options(&config)).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    serve("--tools echo,count");
    gateway.test("one").await.unwrap();
    assert_eq!(code_of(&gateway, "pid", json!({})).await, "ERR_TOOL_VANISHED");
    assert_eq!(code_of(&gateway, "count", json!({})).await, "ERR_UNKNOWN_TOOL");
    assert_eq!(code_of(&gateway, "echo", json!({ "value": 1 })).await, "no error");
    // The program file was changed too, and this is reported.
    assert_eq!(case.events("executable-changed").len(), 1);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_program_that_was_swapped_starts_only_after_approval() {
    let case = Case::new();
    let program = case.test_folder.path("server");
    let log = case.test_folder.path("log-one");
    let serve = |comment: &str| write_script(&program, &format!("exec {FIXTURE} --log {} # {comment}", log.display()));
    serve("ours");
    let config = json!({ "mcpServers": { "one": { "command": program, "box": "off", "pinExecutable": true } } });
    let gateway = Gateway::open(case.options(&config)).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    assert_eq!(code_of(&gateway, "pid", json!({})).await, "no error");
    serve("somebody else's");
    let error = call(&gateway, "pid", json!({})).await.unwrap_err();
    assert!(error.code() == "ERR_NOT_APPROVED" && error.to_string().contains("pinExecutable"), "{error}");
    let request = command_request(&gateway).await;
    assert!(request.lapsed.unwrap().contains("changed on disk"));
    gateway.approve("one", Some(&request.digest), None).await.unwrap();
    assert_eq!(code_of(&gateway, "pid", json!({})).await, "no error");
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_was_given_for_a_time_ends() {
    let case = Case::new();
    let gateway = Gateway::open(case.options(&json!({ "mcpServers": { "one": case.server("one", json!({})) } }))).unwrap();
    gateway.approve("one", None, Some(std::time::Duration::ZERO)).await.unwrap_err();
    let error = gateway.enable("one").unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_to_a_path_of_one_folder_starts_nothing_in_another() {
    let case = Case::new();
    let log = case.test_folder.path("log-one").display().to_string();
    let config = json!({ "mcpServers": { "one": { "command": "sh", "box": "off", "args": ["server"] } } });
    let open = |folder: &str| {
        let options = GatewayOptions { workspace_folder: Some(case.test_folder.path(folder)), ..case.options(&config) };
        Gateway::open(options).unwrap()
    };
    for folder in ["here", "there", "empty"] {
        std::fs::create_dir(case.test_folder.path(folder)).unwrap();
    }
    write_script(&case.test_folder.path("here/server"), &format!("exec {FIXTURE} --log {log}"));
    write_script(&case.test_folder.path("there/server"), &format!("exec {FIXTURE} --log {log} --noise"));
    let (here, there, empty) = (open("here"), open("there"), open("empty"));

    let request = command_request(&here).await;
    let folder = case.test_folder.path("here").canonicalize().unwrap().display().to_string();
    assert_eq!((request.cwd.as_ref(), request.workspace_folder.as_ref()), (Some(&folder), Some(&folder)));
    here.approve("one", None, None).await.unwrap();
    here.enable("one").unwrap();
    assert_eq!(code_of(&here, "pid", json!({})).await, "no error");

    let error = there.enable("one").unwrap_err();
    assert!(matches!(&error, Error::NotApproved { reason, .. } if reason.contains("another workspace folder")), "{error}");
    let elsewhere = command_request(&there).await;
    assert!(elsewhere.digest != request.digest && elsewhere.lapsed.is_some());
    // A file that is created later is not covered by an earlier approval.
    let nothing = command_request(&empty).await;
    assert_eq!((nothing.cwd.as_deref(), nothing.workspace_folder), (Some("/"), None));
    std::fs::copy(case.test_folder.path("there/server"), case.test_folder.path("empty/server")).unwrap();
    let error = empty.approve("one", Some(&nothing.digest), None).await.unwrap_err();
    assert_eq!(error.code(), "ERR_DIGEST_CHANGED");
    // In its own folder, the approval is still valid.
    assert_eq!(code_of(&here, "pid", json!({})).await, "no error");
    here.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_folder_decides_starts_outside_of_it_and_without_its_programs() {
    let case = Case::new();
    let (told, log) = (case.test_folder.path("told"), case.test_folder.path("log-one"));
    let script = format!("pwd > {told}; echo $PATH >> {told}; exec {FIXTURE} --log {log}", told = told.display(), log = log.display());
    let start = async |folder: &str, more: Json| {
        let mut server = json!({ "command": "sh", "box": "off", "args": ["-c", script] });
        server.as_object_mut().unwrap().extend(object(more));
        let workspace = case.test_folder.path(folder);
        std::fs::create_dir_all(workspace.join("node_modules/.bin")).unwrap();
        let mut options = case.options(&json!({ "mcpServers": { "one": server } }));
        let path = format!(".:{}/node_modules/.bin:/usr/bin:/bin:", workspace.display());
        options.environment.insert("PATH".into(), path.clone());
        options.workspace_folder = Some(workspace.clone());
        let gateway = Gateway::open(options).unwrap();
        gateway.revoke("one").await.unwrap();
        let request = command_request(&gateway).await;
        gateway.approve("one", None, None).await.unwrap();
        gateway.close().await;
        let told = std::fs::read_to_string(&told).unwrap();
        let (started_in, found_by) = told.split_once('\n').unwrap();
        assert!(request.workspace_folder.is_none() || (started_in, found_by.trim()) == (workspace.to_str().unwrap(), path.as_str()));
        (request.digest, request.workspace_folder.is_some(), told)
    };
    let here = start("here", json!({})).await;
    assert_eq!((here.1, here.2.as_str()), (false, "/\n/usr/bin:/bin\n"));
    // One approval is valid in every folder, and the same program is started everywhere.
    assert_eq!(start("there", json!({})).await, here);
    for more in [json!({ "cwd": "${workspaceFolder}" }), json!({ "env": { "npm_config_script_shell": "./sh" } })] {
        let (here, there) = (start("here", more.clone()).await, start("there", more).await);
        assert!(here.1 && there.1 && here.0 != there.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_to_a_host_that_a_variable_gives_is_to_that_host() {
    let case = Case::new();
    let entry = json!({ "url": "https://${API_HOST}/mcp?k=${API_KEY}" });
    let open = |host: &str, key: &str| {
        let mut options = case.options(&json!({ "mcpServers": { "one": entry } }));
        options.environment.extend([("API_HOST".into(), host.into()), ("API_KEY".into(), key.into())]);
        Gateway::open(options).unwrap()
    };
    let gateway = open("one.example", "s3cret");
    let request = command_request(&gateway).await;
    assert_eq!(request.url.as_deref(), Some("https://one.example/mcp?k=${API_KEY}"));
    assert_eq!(request.host_from, ["${API_HOST}"]);
    gateway.approve("one", Some(&request.digest), None).await.unwrap();
    // With the same host, the command is approved, and the tools come next. With another host, the host must be approved first.
    let approval_status = |gateway: Gateway| async move { gateway.enable("one").unwrap_err().to_string() };
    assert!(approval_status(open("one.example", "rotated")).await.contains("its tools are not"));
    let other = open("two.example", "s3cret");
    let request = command_request(&other).await;
    assert!(request.lapsed.is_some() && request.url.as_deref() == Some("https://two.example/mcp?k=${API_KEY}"));
    assert!(!approval_status(other).await.contains("its tools are not"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_asks_a_person_and_without_one_it_is_denied() {
    let case = Case::new();
    let gateway = case.open(json!({})).await;
    assert_eq!(code_of(&gateway, "echo", json!({ "value": 1 })).await, "no error");
    let error = call(&gateway, "write_note", json!({ "text": "x" })).await.unwrap_err();
    assert_eq!(error.code(), "ERR_CALL_DENIED");
    assert!(error.to_string().contains("onApproval") && error.to_string().contains("\"confirm\""), "{error}");
    assert_eq!(case.test_folder.events("one").iter().filter(|event| event["name"] == "write_note").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integer_that_would_be_shown_as_another_is_refused_before_anybody_is_asked() {
    let case = Case::new();
    let gateway = case.open(json!({ "confirm": "always" })).await;
    let sent = json!({ "value": [{ "id": 9_007_199_254_740_993_u64 }] });
    let error = call(&gateway, "echo", sent.clone()).await.unwrap_err();
    assert_eq!(error.code(), "ERR_INVALID_ARGUMENTS");
    assert!(error.to_string().contains("9007199254740993 is an integer that JavaScript cannot hold"), "{error}");
    let reply =
        gateway.call_function("one", "echo", vec![Value::from(sent)], ToolErrors::Throw, CallOptions::default(), &Stop::new()).await;
    assert!(matches!(reply, HostReply::Throw { code: Some(code), .. } if code == "ERR_INVALID_ARGUMENTS"));
    // As a string, the same digits are passed without a change.
    assert_eq!(code_of(&gateway, "echo", json!({ "value": "9007199254740993" })).await, "ERR_CALL_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_allows_holds_for_the_call_the_run_or_the_session() {
    let case = Case::new();
    let gateway = case.open(json!({})).await;
    let sandbox = gateway.sandbox(ToolErrors::Return, None).unwrap();
    let person = Person::who_says(&[Decision::Once, Decision::Run, Decision::Deny, Decision::Session]);
    let run = async |code: &str| {
        let options = RunOptions { callbacks: Some(Arc::clone(&person) as Arc<_>), run_id: Some(7), ..RunOptions::default() };
        let report = sandbox
            .run(format!("import {{ write_note as write, count }} from 'host:mcp-one'; export const handler = () => {code}"), options)
            .await;
        let Value::Record(mut fields) = Value::from_wire(report.outcome.value.unwrap()).unwrap() else { panic!("no record") };
        fields.remove(0).1.into_json()
    };
    let write = "write({ text: 'x' })";
    // The first permission is for one call. The second call asks again, and its permission is for the run.
    assert_eq!(run(&format!("[{write}, {write}, {write}]")).await, json!(["noted", "noted", "noted"]));
    assert_eq!(person.asked(), 2);
    assert_eq!(run(&format!("{write}.code")).await, json!("ERR_CALL_DENIED"));
    assert_eq!(run(&format!("[{write}, {write}]")).await, json!(["noted", "noted"]));
    assert_eq!(run(write).await, json!("noted"));
    assert_eq!(person.asked(), 4);
    // For another tool, the person is asked again.
    assert_eq!(run("count({}).code").await, json!("ERR_CALL_DENIED"));
    let asked = person.asked.lock().unwrap()[0].clone();
    assert_eq!((asked.server.as_str(), asked.tool.as_str(), asked.run_id), ("one", "write_note", Some(7)));
    assert_eq!(Json::Object(asked.args), json!({ "text": "x" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_name_nor_an_argument_lowers_the_gate() {
    let case = Case::new();
    let gateway = case.open(json!({ "confirm": "always" })).await;
    let hints = json!({ "text": "x", "value": "x", "readOnlyHint": true, "confirm": "never", "annotations": { "readOnlyHint": true }, "_meta": { "approved": true } });
    for tool in ["write_note", "echo", "delete-all", "delete_all"] {
        assert_eq!(code_of(&gateway, tool, hints.clone()).await, "ERR_CALL_DENIED", "{tool}");
    }
    let options = CallOptions { callbacks: Some(Person::who_says(&[Decision::Once])), ..CallOptions::default() };
    let allowed = gateway.call_tool("one", "delete-all", object(json!({})), options, &Stop::new()).await.unwrap();
    assert_eq!(allowed["content"][0]["text"], "called delete-all");
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_that_another_program_changed_approve_nothing_and_are_reported() {
    let case = Case::new();
    let gateway = case.open(json!({})).await;
    let database = rusqlite::Connection::open(case.test_folder.path("state/store.sqlite3")).unwrap();
    database.execute("DELETE FROM seals WHERE kind = 'approval'", []).unwrap();
    assert_eq!([code_of(&gateway, "echo", json!({})).await, code_of(&gateway, "echo", json!({})).await], ["ERR_NOT_APPROVED"; 2]);
    let told: Vec<_> = case.events("approvals-damaged").iter().map(|event| event["message"].to_string()).collect();
    assert!(told.len() == 2 && told[0].contains("\"approval\\\"") && told[1].contains("\"revocation\\\""), "each kind once: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_entry_is_listed_and_the_others_are_not_touched() {
    let case = Case::new();
    let config = json!({ "mcpServers": { "bad": { "command": 5, "args": "x" }, "one": case.server("one", json!({})) } });
    let gateway = Gateway::open(case.options(&config)).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    let statuses = json!(gateway.servers().unwrap());
    assert_eq!(
        (&statuses[1]["name"], &statuses[1]["state"], &statuses[1]["lastError"]["code"]),
        (&json!("bad"), &json!("invalid"), &json!("ERR_CONFIG_INVALID"))
    );
    let message = statuses[1]["lastError"]["message"].as_str().unwrap();
    assert!(message.contains("bad.command") && message.contains("bad.args"), "{message}");
    assert_eq!(gateway.enable("bad").unwrap_err().code(), "ERR_CONFIG_INVALID");
    assert!(case.events("warning")[0]["message"].as_str().unwrap().contains("\"bad\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_names_a_tool_that_is_not_there_is_a_warning() {
    let case = Case::new();
    let gateway = case.open(json!({ "allowTools": ["echo", "ecko"], "denyTools": ["nope"] })).await;
    let expected = ["has no tool \"ecko\", which allowTools names", "has no tool \"nope\", which denyTools names"];
    for warnings in [
        manifest_request(&gateway).await.warnings,
        case.events("warning").iter().map(|event| event["message"].to_string().replace('\\', "")).collect(),
    ] {
        assert!(expected.iter().all(|text| warnings.iter().any(|warning| warning.contains(text))), "{warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_config_ends_what_changed_and_nothing_else() {
    let case = Case::new();
    let path = case.test_folder.path("config.json");
    let write = |one: Json, two: Json| std::fs::write(&path, json!({ "mcpServers": { "one": one, "two": two } }).to_string()).unwrap();
    let (one, two) = (case.server("one", json!({})), case.server("two", json!({})));
    write(one.clone(), two.clone());
    let options = GatewayOptions { config: None, config_path: Some(path.clone()), ..case.options(&json!({})) };
    let gateway = Gateway::open(options).unwrap();
    for name in ["one", "two"] {
        gateway.approve(name, None, None).await.unwrap();
        gateway.enable(name).unwrap();
    }
    let pid = call(&gateway, "pid", json!({})).await.unwrap();
    assert_eq!(gateway.reload().await.unwrap(), hyperlight_mcp::gateway::ReloadReport::default());
    write(one, case.server("two", json!({ "env": { "X": "1" } })));
    let report = gateway.reload().await.unwrap();
    assert_eq!((report.changed, report.added.len() + report.removed.len()), (vec!["two".to_owned()], 0));
    assert_eq!(call(&gateway, "pid", json!({})).await.unwrap(), pid);
    let error = gateway.call_tool("two", "pid", object(json!({})), CallOptions::default(), &Stop::new()).await.unwrap_err();
    assert!(matches!(&error, Error::NotApproved { reason, .. } if reason.contains("changed")), "{error}");
    // A config that cannot be read changes nothing.
    std::fs::write(&path, "{ \"mcpServers\": {}, \"mcpServers\": {} }").unwrap();
    assert_eq!(gateway.reload().await.unwrap_err().code(), "ERR_CONFIG_INVALID");
    assert_eq!(call(&gateway, "pid", json!({})).await.unwrap(), pid);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_is_asked_for_when_its_server_starts_and_once() {
    let case = Case::new();
    let config = json!({
        "inputs": [{ "type": "promptString", "id": "token", "description": "the token" }],
        "mcpServers": { "one": case.server("one", json!({ "env": { "TOKEN": "${input:token}" } })) },
    });
    let without = Gateway::open(case.options(&config)).unwrap();
    let error = without.approve("one", None, None).await.unwrap_err();
    assert!(error.to_string().contains("onInput"), "{error}");
    let options = GatewayOptions { callbacks: Some(Person::who_says(&[])), ..case.options(&config) };
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    let error = call(&gateway, "leak", json!({ "name": "TOKEN", "how": "protocol" })).await.unwrap_err();
    assert!(!error.to_string().contains("7f3a9c") && error.to_string().contains("[redacted]"), "{error}");
}

/// Never answers.
struct Silent;

impl Callbacks for Silent {
    fn input(&self, _id: &str, _description: &str, _server: &str) -> Option<Answer<SecretString>> {
        Some(Box::pin(std::future::pending()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_has_answered_holds_up_no_other_server() {
    let case = Case::new();
    let config = json!({
        "inputs": [{ "type": "promptString", "id": "token" }],
        "mcpServers": { "asks": case.server("asks", json!({ "env": { "TOKEN": "${input:token}" } })), "one": case.server("one", json!({})) },
    });
    let gateway = Gateway::open(GatewayOptions { callbacks: Some(Arc::new(Silent)), ..case.options(&config) }).unwrap();
    let other = async {
        gateway.approve("one", None, None).await.unwrap();
        gateway.enable("one").unwrap();
        code_of(&gateway, "pid", json!({})).await
    };
    tokio::select! {
        biased;
        _ = gateway.approve("asks", None, None) => panic!("nobody has answered"),
        code = within(patience(), "the other server", other) => assert_eq!(code, "no error"),
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_is_known_to_the_next_process_until_it_is_approved() {
    let case = Case::new();
    let (program, log) = (case.test_folder.path("server"), case.test_folder.path("log-one"));
    let serve = |tools: &str| write_script(&program, &format!("exec {FIXTURE} --log {} --tools {tools}", log.display()));
    serve("echo,pid");
    let config = json!({ "mcpServers": { "one": { "command": program, "box": "off" } } });
    let quarantined = |gateway: &Gateway| gateway.servers().unwrap()[0].quarantined.clone();
    let first = Gateway::open(case.options(&config)).unwrap();
    first.approve("one", None, None).await.unwrap();
    first.close().await;
    serve("pid");
    let second = Gateway::open(case.options(&config)).unwrap();
    second.test("one").await.unwrap();
    assert_eq!(quarantined(&second), ["echo"]);
    second.close().await;

    let third = Gateway::open(case.options(&config)).unwrap();
    assert_eq!(quarantined(&third), ["echo"]);
    let request = manifest_request(&third).await;
    third.approve("one", Some(&request.digest), None).await.unwrap();
    assert_eq!(quarantined(&third), [""; 0]);
    third.close().await;
    assert_eq!(quarantined(&Gateway::open(case.options(&config)).unwrap()), [""; 0]);
}
