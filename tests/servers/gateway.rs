//! Tests of the gateway through the crate's own API, with real servers and real guests: what may run, and when it may no longer run.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::gateway::{AgentModule, CallOptions, EnableAtOpen, RunOptions, RunReport, Sandbox};
use hyperlight_mcp::registry::ServerState;
use hyperlight_mcp::sandbox::{Stop, StopReason, Value};
use hyperlight_mcp::trust::{ApprovalRequest, ManifestRequest, NamedFiles, Subject};
use hyperlight_mcp::{Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::store::approvals_in;
use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, object, patience, scaled, until, within, write_script};

/// The longest time until a run or call ends after it was stopped from outside.
const STOP_LIMIT: Duration = Duration::from_millis(100);

fn options(test_folder: &TestFolder, servers: &Json) -> GatewayOptions {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": servers }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    if emulated() {
        options.limits.connect_timeout_ms = Some(80_000);
    }
    options
}

fn server(test_folder: &TestFolder, name: &str, flags: &[&str]) -> Json {
    json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(name, flags), "confirm": "never" })
}

/// Opens a gateway with the servers `one` and `two`.
fn open(test_folder: &TestFolder) -> Gateway {
    Gateway::open(options(test_folder, &json!({ "one": server(test_folder, "one", &[]), "two": server(test_folder, "two", &[]) }))).unwrap()
}

/// Opens the same gateway, with `one` approved and enabled.
async fn open_with_one(test_folder: &TestFolder) -> Gateway {
    let gateway = open(test_folder);
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway
}

async fn call(gateway: &Gateway, server: &str, tool: &str, arguments: Json) -> Result<Json> {
    gateway.call_tool(server, tool, object(arguments), CallOptions::default(), &Stop::new()).await
}

async fn code_of<T>(outcome: impl Future<Output = Result<T>>) -> &'static str {
    outcome.await.err().map_or("no error", |error| error.code())
}

async fn run(sandbox: &Arc<Sandbox>, code: &str) -> RunReport {
    sandbox.run(code.to_owned(), RunOptions::default()).await
}

fn value(report: RunReport) -> Json {
    let Value::Record(mut fields) = Value::from_wire(report.outcome.value.unwrap()).unwrap() else { panic!("no record") };
    fields.remove(0).1.into_json()
}

fn state(gateway: &Gateway, server: &str) -> (ServerState, bool, bool) {
    let status = gateway.servers().unwrap().into_iter().find(|status| status.name == server).unwrap();
    (status.state, status.approved, status.enabled)
}

async fn command_digest(gateway: &Gateway, server: &str) -> String {
    match gateway.approval_request(server).await.unwrap() {
        ApprovalRequest::Command(request) => request.digest,
        ApprovalRequest::Manifest(_) => panic!("stage manifest"),
    }
}

async fn manifest_request(gateway: &Gateway, server: &str) -> ManifestRequest {
    match gateway.approval_request(server).await.unwrap() {
        ApprovalRequest::Manifest(request) => *request,
        ApprovalRequest::Command(_) => panic!("stage command"),
    }
}

/// An agent's module with which a test can act in the middle of a run.
#[derive(Clone, Default)]
struct Gate {
    reached: Arc<Notify>,
    opened: Arc<Notify>,
}

impl AgentModule for Gate {
    fn functions(&self) -> Vec<String> {
        vec!["pass".to_owned()]
    }

    fn call(&self, _: &str, _: Vec<Value>) -> Pin<Box<dyn Future<Output = Result<Value>> + Send>> {
        let Self { reached, opened } = self.clone();
        Box::pin(async move {
            reached.notify_one();
            opened.notified().await;
            Ok(Value::Null)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_before_its_command_is_approved() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder);
    let digest = command_digest(&gateway, "one").await;
    assert_eq!(code_of(gateway.test("one")).await, "ERR_NOT_APPROVED");
    assert_eq!(gateway.enable("one").unwrap_err().code(), "ERR_NOT_APPROVED");
    assert_eq!(code_of(call(&gateway, "one", "echo", json!({ "value": 1 }))).await, "ERR_NOT_APPROVED");
    let other = command_digest(&gateway, "two").await;
    assert_ne!(digest, other);
    for wrong in [other.as_str(), "", &digest.to_uppercase(), &digest[1..]] {
        assert_eq!(code_of(gateway.approve("one", Some(wrong), None)).await, "ERR_DIGEST_CHANGED", "{wrong}");
    }
    let sandbox = gateway.sandbox(ToolErrors::Throw, None).unwrap();
    let report = run(&sandbox, "import { echo } from 'host:mcp-one'; export const handler = () => echo({ value: 1 })").await;
    assert_eq!(report.outcome.value.unwrap_err().code(), "ERR_CODE_SYNTAX");
    let code = "import { call, tools } from 'host:mcp'; export const handler = () => { try { call('one', 'echo', { value: 1 }) } catch (e) { return [tools(), e.code] } }";
    assert_eq!(value(run(&sandbox, code).await), json!([[], "ERR_UNKNOWN_SERVER"]));
    assert_eq!(state(&gateway, "one"), (ServerState::Unapproved, false, false));
    assert_eq!((test_folder.events("one"), test_folder.running()), (Vec::new(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_has_two_stages_and_a_digest_starts_nothing() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder);
    let command = command_digest(&gateway, "one").await;
    gateway.approve("one", Some(&command), None).await.unwrap();
    assert_eq!(state(&gateway, "one"), (ServerState::CommandApproved, false, false));
    assert_eq!(test_folder.events("one"), Vec::<Json>::new());

    let request = manifest_request(&gateway, "one").await;
    assert!(!request.approved && request.changes.is_none());
    assert!(request.tools.iter().any(|tool| tool.name == "get-forecast" && tool.identifier == "get_forecast"));
    assert_eq!(gateway.enable("one").unwrap_err().code(), "ERR_NOT_APPROVED");
    assert_eq!(code_of(call(&gateway, "one", "echo", json!({ "value": 1 }))).await, "ERR_NOT_APPROVED");
    gateway.approve("one", Some(&request.digest), None).await.unwrap();
    assert!(manifest_request(&gateway, "one").await.approved);

    assert_eq!(code_of(call(&gateway, "one", "echo", json!({ "value": 1 }))).await, "ERR_NOT_ENABLED");
    gateway.enable("one").unwrap();
    assert_eq!(call(&gateway, "one", "echo", json!({ "value": 1 })).await.unwrap()["structuredContent"], json!({ "value": 1 }));
    assert_eq!(state(&gateway, "one"), (ServerState::Connected, true, true));
    assert_eq!((test_folder.count("one", "spawn"), test_folder.count("two", "spawn")), (1, 0));
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_that_is_under_way_does_not_undo_a_revocation_whichever_process_revokes() {
    for stage in ["command", "tools", "both"] {
        for is_elsewhere in [false, true] {
            let test_folder = TestFolder::new();
            let (gateway, elsewhere) = (open_with_one(&test_folder).await, open(&test_folder));
            let digest = match stage {
                "command" => Some(command_digest(&open(&test_folder), "two").await),
                "tools" => Some(manifest_request(&gateway, "one").await.digest),
                _ => None,
            };
            // For the stage `command`, the server is approved in the meantime, because the digest of a command is shown only before the
            // approval.
            let name = if stage == "command" { "two" } else { "one" };
            if stage == "command" {
                gateway.approve(name, None, None).await.unwrap();
            }
            let mut yes = Box::pin(gateway.approve(name, digest.as_deref(), None));
            // The approval has begun, and continues only after the revocation.
            assert!(futures::poll!(yes.as_mut()).is_pending());
            if is_elsewhere { elsewhere.revoke(name).await } else { gateway.revoke(name).await }.unwrap();
            if let Err(error) = yes.await {
                assert!(["ERR_NOT_APPROVED", "ERR_DIGEST_CHANGED"].contains(&error.code()), "{stage}: {error}");
            }
            assert!(!state(&gateway, name).1, "{stage}");
            assert_eq!(gateway.enable(name).unwrap_err().code(), "ERR_NOT_APPROVED", "{stage}");
            assert!(!state(&open(&test_folder), name).1, "{stage}");
            gateway.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_of_the_command_as_it_was_shown() {
    let test_folder = TestFolder::new();
    let before = open_with_one(&test_folder).await;
    let shown = command_digest(&before, "two").await;
    let changed = json!({ "one": server(&test_folder, "one", &["--noise"]), "two": server(&test_folder, "two", &["--noise"]) });
    let after = Gateway::open(options(&test_folder, &changed)).unwrap();
    assert_eq!(state(&after, "one"), (ServerState::Unapproved, false, false));
    assert_eq!(after.enable("one").unwrap_err().code(), "ERR_NOT_APPROVED");
    assert_eq!(code_of(after.approve("two", Some(&shown), None)).await, "ERR_DIGEST_CHANGED");
    assert_ne!(command_digest(&after, "two").await, shown);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tools_than_those_approved_are_shown_as_changes() {
    let test_folder = TestFolder::new();
    let (program, log) = (test_folder.path("server"), test_folder.path("log-one"));
    let serve = |flags: &str| write_script(&program, &format!("exec {FIXTURE} --log {} {flags}", log.display()));
    serve("--tools echo,pid");
    let gateway =
        Gateway::open(options(&test_folder, &json!({ "one": { "command": program, "box": "off", "confirm": "never" } }))).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    let first = manifest_request(&gateway, "one").await;
    assert!(first.approved);

    serve("--tools echo,count");
    gateway.test("one").await.unwrap();
    let second = manifest_request(&gateway, "one").await;
    let changes = second.changes.clone().unwrap();
    assert!(!second.approved && second.digest != first.digest);
    let drift = changes.drift;
    assert_eq!((drift.added, drift.removed, drift.changed.len()), (vec!["count".to_owned()], vec!["pid".to_owned()], 0));
    assert_eq!(code_of(gateway.approve("one", Some(&first.digest), None)).await, "ERR_DIGEST_CHANGED");
    gateway.enable("one").unwrap();
    assert_eq!(code_of(call(&gateway, "one", "count", json!({}))).await, "ERR_UNKNOWN_TOOL");
    gateway.approve("one", Some(&second.digest), None).await.unwrap();
    assert_eq!(call(&gateway, "one", "count", json!({})).await.unwrap()["structuredContent"], json!({ "count": 1 }));
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_lasts_and_a_revocation_elsewhere_ends_it() {
    let test_folder = TestFolder::new();
    let elsewhere = open_with_one(&test_folder).await;
    let mut options = options(&test_folder, &json!({ "one": server(&test_folder, "one", &[]), "two": server(&test_folder, "two", &[]) }));
    options.enable = EnableAtOpen::Approved;
    let here = Gateway::open(options).unwrap();
    assert_eq!(state(&here, "one"), (ServerState::Idle, true, true));
    elsewhere.revoke("one").await.unwrap();
    assert_eq!(state(&here, "one").0, ServerState::Unapproved);
    assert_eq!(code_of(call(&here, "one", "echo", json!({ "value": 1 }))).await, "ERR_NOT_APPROVED");
    let sandbox = here.sandbox(ToolErrors::Return, None).unwrap();
    let code = "import { tools } from 'host:mcp'; export const handler = () => tools().length";
    assert_eq!(value(run(&sandbox, code).await), json!(0));
    test_folder.all_servers_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_elsewhere_counts_while_a_connection_lives() {
    let test_folder = TestFolder::new();
    let here = open_with_one(&test_folder).await;
    call(&here, "one", "echo", json!({ "value": 1 })).await.unwrap();
    open(&test_folder).revoke("one").await.unwrap();
    assert_eq!(code_of(call(&here, "one", "echo", json!({ "value": 1 }))).await, "ERR_NOT_APPROVED");
    assert_eq!(test_folder.servers_running(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_command_alone_lets_no_tool_be_called() {
    let test_folder = TestFolder::new();
    let (here, elsewhere) = (open_with_one(&test_folder).await, open(&test_folder));
    elsewhere.revoke("one").await.unwrap();
    elsewhere.approve("one", Some(&command_digest(&elsewhere, "one").await), None).await.unwrap();
    // The server was enabled here while its tools were still approved.
    assert_eq!(state(&here, "one"), (ServerState::Connected, false, true));
    assert_eq!(code_of(call(&here, "one", "echo", json!({ "value": 1 }))).await, "ERR_NOT_APPROVED");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_and_disabling_end_what_is_live() {
    let test_folder = TestFolder::new();
    let gateway = open_with_one(&test_folder).await;
    for revoked in [false, true] {
        let pending = call(&gateway, "one", "hang", json!({}));
        let ending = async {
            test_folder.called("one", "hang").await;
            if revoked { gateway.revoke("one").await } else { gateway.disable("one").await }
        };
        let (outcome, ended) = within(scaled(Duration::from_secs(5)), "the end", Box::pin(async { tokio::join!(pending, ending) })).await;
        ended.unwrap();
        let expected = if revoked { "ERR_NOT_APPROVED" } else { "ERR_NOT_ENABLED" };
        assert_eq!(outcome.unwrap_err().code(), expected);
        assert_eq!(test_folder.servers_running(), [""; 0]);
        assert_eq!(code_of(call(&gateway, "one", "hang", json!({}))).await, expected);
        std::fs::remove_file(test_folder.path("log-one")).unwrap();
        if !revoked {
            gateway.enable("one").unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_names_what_is_not_there() {
    let test_folder = TestFolder::new();
    let mut filtered = server(&test_folder, "one", &[]);
    filtered["allowTools"] = json!(["echo", "pid"]);
    filtered["denyTools"] = json!(["pid"]);
    let gateway = Gateway::open(options(&test_folder, &json!({ "one": filtered }))).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    assert_eq!(gateway.test("one").await.unwrap().tools, ["echo"]);
    for tool in ["pid", "count", "nope"] {
        let error = call(&gateway, "one", tool, json!({})).await.unwrap_err();
        assert_eq!(error.code(), "ERR_UNKNOWN_TOOL");
        assert!(error.to_string().contains(tool) && error.to_string().contains("echo"), "{error}");
    }
    let error = call(&gateway, "three", "echo", json!({})).await.unwrap_err();
    assert!(error.code() == "ERR_UNKNOWN_SERVER" && error.to_string().contains("there are: one"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_uses_servers_as_modules_and_an_import_starts_nothing() {
    let test_folder = TestFolder::new();
    open_with_one(&test_folder).await.close().await;
    let gateway = open(&test_folder);
    gateway.enable("one").unwrap();
    let sandbox = gateway.sandbox(ToolErrors::Return, None).unwrap();
    let import = "import { get_forecast, image, error, crash } from 'host:mcp-one'; import { call, tools } from 'host:mcp';";
    let idle = format!("{import} export const handler = () => [typeof get_forecast, tools('one').length > 20]");
    assert_eq!(value(run(&sandbox, &idle).await), json!(["function", true]));
    assert_eq!(test_folder.count("one", "spawn"), 1);
    let code = format!(
        "{import} export const handler = () => [get_forecast({{ location: 'Austin, TX' }}), image().data.length, error({{ message: 'no' }}),
        call('one', 'get-forecast', {{ location: 'x' }}).isError, crash({{ code: 5 }}).code, get_forecast({{ location: 'again' }}).temperature]"
    );
    let report = run(&sandbox, &code).await;
    assert_eq!(report.outcome.stats.calls, 6);
    let sky = json!({ "temperature": 93, "conditions": "sunny" });
    assert_eq!(value(report), json!([sky, 16, { "error": "no" }, false, "ERR_SERVER_EXITED", 93]));
    assert_eq!(test_folder.count("one", "spawn"), 3);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sees_the_servers_that_were_approved_and_enabled_when_it_started() {
    let test_folder = TestFolder::new();
    let gateway = open_with_one(&test_folder).await;
    let sandbox = gateway.sandbox(ToolErrors::Return, None).unwrap();
    let gate = Gate::default();
    sandbox.host_module("gate", Arc::new(gate.clone())).unwrap();
    let code = "import { call, tools } from 'host:mcp'; import { pass } from 'host:gate';
        const seen = () => [...new Set(tools().map((tool) => tool.server))].join();
        const attempt = (server) => { try { return call(server, 'echo_text', { text: 'hi' }).content[0].text } catch (e) { return e.code } };
        export const handler = () => { const before = seen(); pass(); return [before, seen(), attempt('one'), attempt('two')] }";
    let meanwhile = async {
        gate.reached.notified().await;
        gateway.approve("two", None, None).await.unwrap();
        gateway.enable("two").unwrap();
        gate.opened.notify_one();
    };
    let (report, ()) = tokio::join!(run(&sandbox, code), meanwhile);
    assert_eq!(value(report), json!(["one", "one", "hi", "ERR_UNKNOWN_SERVER"]));
    gate.opened.notify_one();
    assert_eq!(value(run(&sandbox, code).await), json!(["one,two", "one,two", "hi", "hi"]));
    // Consumes the second run's notification, because nothing has waited for it.
    gate.reached.notified().await;
    // A tool whose approval is revoked in the middle of a run can no longer be called.
    let meanwhile = async {
        gate.reached.notified().await;
        gateway.revoke("one").await.unwrap();
        gate.opened.notify_one();
    };
    let (report, ()) = tokio::join!(run(&sandbox, code), meanwhile);
    assert_eq!(value(report), json!(["one,two", "one,two", "ERR_NOT_APPROVED", "hi"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_ends_a_call_at_once_and_the_server_is_told() {
    let test_folder = TestFolder::new();
    let gateway = open_with_one(&test_folder).await;
    let stop = Stop::new();
    let pending = async {
        let outcome = gateway.call_tool("one", "hang", object(json!({})), CallOptions::default(), &stop).await;
        (outcome.unwrap_err().code(), Instant::now())
    };
    let aborting = async {
        let id = test_folder.called("one", "hang").await;
        stop.stop(StopReason::Aborted);
        (id, Instant::now())
    };
    let ((code, ended), (id, aborted)) = tokio::join!(pending, aborting);
    assert_eq!(code, "ERR_ABORTED");
    assert!(ended.saturating_duration_since(aborted) < scaled(STOP_LIMIT));
    test_folder.cancelled("one", &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_end_ends_its_pending_call_and_the_sandbox_goes_on() {
    let test_folder = TestFolder::new();
    let gateway = open_with_one(&test_folder).await;
    let sandbox = gateway.sandbox(ToolErrors::Return, None).unwrap();
    let code = "import { hang } from 'host:mcp-one'; export const handler = () => hang({})";
    let limit = scaled(Duration::from_millis(500));
    let timeout_ms = u64::try_from(limit.as_millis()).ok();
    let started = Instant::now();
    let report = sandbox.run(code.to_owned(), RunOptions { timeout_ms, ..RunOptions::default() }).await;
    assert_eq!(report.outcome.value.unwrap_err().code(), "ERR_RUN_TIMEOUT");
    // The promised time is 100 ms. The rest is for a machine that is busy with other tests.
    assert!(started.elapsed() < limit + scaled(STOP_LIMIT * 3), "{:?}", started.elapsed());
    test_folder.cancelled("one", &test_folder.called("one", "hang").await).await;
    assert_eq!(value(run(&sandbox, "export const handler = () => 1").await), json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_everything_and_leaves_nothing_running() {
    let test_folder = TestFolder::new();
    let gateway = open_with_one(&test_folder).await;
    gateway.approve("two", None, None).await.unwrap();
    let sandbox = gateway.sandbox(ToolErrors::Return, None).unwrap();
    let gate = Gate::default();
    sandbox.host_module("gate", Arc::new(gate.clone())).unwrap();
    let code = "import { pass } from 'host:gate'; export const handler = () => { pass(); for (;;) {} }";
    let closing = async {
        gate.reached.notified().await;
        gate.opened.notify_one();
        test_folder.called("one", "hang").await;
        within(scaled(Duration::from_millis(4500)), "close", gateway.close()).await;
    };
    let pending = call(&gateway, "one", "hang", json!({}));
    let (looping, queued, called, ()) =
        tokio::join!(run(&sandbox, code), run(&sandbox, "export const handler = () => 1"), pending, closing);
    for error in [looping.outcome.value.unwrap_err(), queued.outcome.value.unwrap_err(), called.unwrap_err()] {
        assert_eq!(error.code(), "ERR_CLOSED", "{error}");
    }
    assert_eq!(test_folder.running(), [""; 0]);
    assert_eq!(code_of(gateway.test("one")).await, "ERR_CLOSED");
    assert_eq!(code_of(gateway.approve("one", None, None)).await, "ERR_CLOSED");
    assert_eq!(code_of(call(&gateway, "one", "echo", json!({}))).await, "ERR_CLOSED");
    assert_eq!(gateway.sandbox(ToolErrors::Return, None).err().unwrap().code(), "ERR_CLOSED");
    assert_eq!(test_folder.running(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_approved_in_another_form_while_its_server_connected_is_refused() {
    let test_folder = TestFolder::new();
    let (program, started, may_go_on, log) =
        (test_folder.path("server"), test_folder.path("started"), test_folder.path("may-go-on"), test_folder.path("log-one"));
    let script = format!(
        "touch {}; until [ -e {} ]; do sleep 0.01; done; exec {FIXTURE} --log {}",
        started.display(),
        may_go_on.display(),
        log.display()
    );
    write_script(&program, &script);
    let options = || options(&test_folder, &json!({ "one": { "command": program, "box": "off", "args": [], "confirm": "never" } }));
    std::fs::write(&may_go_on, "").unwrap();
    let first = Gateway::open(options()).unwrap();
    first.approve("one", None, None).await.unwrap();
    first.close().await;
    for file in [&started, &may_go_on, &log] {
        std::fs::remove_file(file).unwrap();
    }
    let gateway = Gateway::open(options()).unwrap();
    gateway.enable("one").unwrap();
    let approving = async {
        until("the start of its process", || started.exists().then_some(())).await;
        // Changes the approval like another process for which the tool has another description.
        let store = approvals_in(&test_folder.path("state"));
        let approval = store.approval("one").unwrap().unwrap();
        let mut manifest = (**approval.manifest.as_ref().unwrap()).clone();
        manifest.tools.iter_mut().find(|tool| tool.name == "echo").unwrap().description = Some("Deletes all.".to_owned());
        let subject = Subject {
            server: "one".to_owned(),
            key: "one".to_owned(),
            digest: approval.command_digest.clone(),
            shown_digest: String::new(),
            executable: None,
            places: None,
            linked: Vec::new(),
            present: hyperlight_mcp::boxes::Present::default(),
            changeable_by: hyperlight_mcp::boxes::ChangeableBy::default(),
            named: NamedFiles::default(),
            pin_executable: false,
            folder: None,
            addresses: Vec::new(),
            registry: hyperlight_mcp::boxes::Registry::default(),
        };
        store.approve_manifest(&subject, Arc::new(manifest), None, &store.basis("one").unwrap()).unwrap();
        std::fs::write(&may_go_on, "").unwrap();
    };
    let calling = code_of(call(&gateway, "one", "echo", json!({ "value": 1 })));
    let both = Box::pin(async { tokio::join!(calling, approving) });
    let (code, ()) = within(patience(), "the answer", both).await;
    assert_eq!(code, "ERR_TOOL_CHANGED");
    assert!(!std::fs::read_to_string(&log).unwrap_or_default().contains("tools/call"));
    gateway.close().await;
}
