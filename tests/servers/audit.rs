//! Tests of the audit through the crate's own API, with real servers, runs and processes: what is recorded, and what is reported about lost
//! rows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::gateway::{CallOptions, IdentityOptions, NameOrigin, RunOptions};
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::{Stop, StopReason};
use hyperlight_mcp::store::audit::{
    Audit, AuditAction, AuditDetails, AuditEvent, AuditKind, AuditOptions, AuditParty, AuditQuery, AuditRow,
};
use hyperlight_mcp::store::{Kind, Store};
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, object, patience, until, within};

fn options(test_folder: &TestFolder, more: Json) -> GatewayOptions {
    let mut server = json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments("one", &[]) });
    server.as_object_mut().unwrap().extend(object(more));
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "one": server } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    if emulated() {
        options.limits.connect_timeout_ms = Some(80_000);
    }
    options
}

async fn open(test_folder: &TestFolder, more: Json) -> Gateway {
    let gateway = Gateway::open(options(test_folder, more)).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    gateway
}

async fn rows(gateway: &Gateway, kind: AuditKind) -> Vec<AuditRow> {
    gateway.audit(AuditQuery { kind: Some(kind), ..AuditQuery::default() }).await.unwrap()
}

fn outcome(row: &AuditRow) -> (&str, &str) {
    (row.tool.as_deref().unwrap(), row.details.outcome.as_deref().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_the_operator_has_not_chosen_is_not_that_of_an_agent() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, json!({})).await;
    for name_origin in [NameOrigin::Operator, NameOrigin::Client, NameOrigin::Subject] {
        let agent = gateway.agent("alice", IdentityOptions { name_origin, ..IdentityOptions::default() }).unwrap();
        // Without grants in the config, each has all servers.
        let arguments = json!({ "value": 1 }).as_object().unwrap().clone();
        agent.call_tool("one", "echo", arguments, CallOptions::default(), &Stop::new()).await.unwrap();
        assert_eq!(
            agent.call_direct("no_such_tool", object(json!({})), CallOptions::default(), &Stop::new()).await.unwrap_err().code(),
            "ERR_UNKNOWN_TOOL"
        );
        agent.close().await;
    }
    let told: Vec<_> = rows(&gateway, AuditKind::Call).await.iter().map(|row| json!([row.agent, row.server, row.tool])).collect();
    assert_eq!(
        json!(told),
        json!([
            ["alice", "one", "echo"],
            ["alice", "", "no_such_tool"],
            ["client:alice", "one", "echo"],
            ["client:alice", "", "no_such_tool"],
            ["subject:alice", "one", "echo"],
            ["subject:alice", "", "no_such_tool"],
        ])
    );
    let of_alice = AuditQuery { agent: Some("alice".into()), kind: Some(AuditKind::Call), ..AuditQuery::default() };
    assert_eq!(gateway.audit(of_alice).await.unwrap().len(), 2);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_connections_and_revocations_are_recorded_with_what_was_approved() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, json!({})).await;
    gateway.disable("one").await.unwrap();
    gateway.enable("one").unwrap();
    gateway.revoke("one").await.unwrap();
    let all = gateway.audit(AuditQuery::default()).await.unwrap();
    let told: Vec<_> = all.iter().map(|row| json!([row.kind, row.details.action, row.details.by, row.server])).collect();
    assert_eq!(
        json!(told),
        json!([
            ["approval", "command", "person", "one"],
            ["connection", "opened", null, "one"],
            ["approval", "manifest", "person", "one"],
            ["connection", "closed", null, "one"],
            ["server", "disabled", "person", "one"],
            ["server", "enabled", "person", "one"],
            ["revocation", "revoked", "person", "one"],
        ])
    );
    let digests: Vec<_> = all.iter().filter_map(|row| row.details.subject.as_ref()).collect();
    assert!(digests.len() == 2 && digests[0] != digests[1] && digests.iter().all(|digest| digest.len() == 64), "{digests:?}");
    assert!(gateway.verify_audit().await.unwrap().whole);
    gateway.close().await;
    assert_eq!(gateway.audit(AuditQuery::default()).await.unwrap_err().code(), "ERR_CLOSED");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_is_granted_is_recorded() {
    let test_folder = TestFolder::new();
    let gateway = Gateway::open(options(&test_folder, json!({}))).unwrap();
    for patterns in [["one/*"], ["one/*"], ["one/echo"]] {
        gateway.set_toolbox("readers", Some(&patterns.map(str::to_owned))).unwrap();
    }
    gateway.grant("researcher", &["readers".to_owned()]).unwrap();
    gateway.ungrant("researcher", &[]).unwrap();
    gateway.set_toolbox("readers", None).unwrap();
    assert_eq!(
        grants(&gateway).await,
        json!([
            [null, "added", "readers", ["one/*"], "person"],
            [null, "changed", "readers", ["one/echo"], "person"],
            ["researcher", "granted", "readers", ["one/echo"], "person"],
            ["researcher", "ungranted", "readers", null, "person"],
            [null, "removed", "readers", null, "person"],
        ])
    );
    gateway.close().await;
}

/// Returns the rows about grants: agent, action, toolbox, patterns, and who made the change. Omits the digest of a config's grants.
async fn grants(gateway: &Gateway) -> Json {
    let rows = rows(gateway, AuditKind::Grant).await;
    let told = |row: &AuditRow| {
        let AuditDetails { action, subject, patterns, by, .. } = &row.details;
        let subject = subject.as_ref().filter(|_| *action != Some(AuditAction::Config));
        json!([row.agent, action, subject, patterns, by])
    };
    rows.iter().map(told).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grants_of_the_config_are_recorded_and_what_a_reload_changes_in_them() {
    let test_folder = TestFolder::new();
    let write = |patterns: Json| {
        let config =
            json!({ "mcpServers": {}, "toolboxes": { "readers": patterns }, "agents": { "researcher": { "toolboxes": ["readers"] } } });
        std::fs::write(test_folder.path("config.json"), config.to_string()).unwrap();
    };
    write(json!(["one/*"]));
    let open = || {
        let options = options(&test_folder, json!({}));
        Gateway::open(GatewayOptions { config: None, config_path: Some(test_folder.path("config.json")), ..options }).unwrap()
    };
    let gateway = open();
    gateway.set_toolbox("other", Some(&[])).unwrap();
    write(json!(["one/echo"]));
    gateway.reload().await.unwrap();
    gateway.reload().await.unwrap();
    let told = json!([
        [null, "config", null, null, "config"],
        [null, "added", "readers", ["one/*"], "config"],
        ["researcher", "granted", "readers", ["one/*"], "config"],
        [null, "added", "other", [], "person"],
        [null, "config", null, null, "config"],
        [null, "changed", "readers", ["one/echo"], "config"],
    ]);
    assert_eq!(grants(&gateway).await, told);
    gateway.close().await;
    let gateway = open();
    gateway.set_toolbox("other", None).unwrap();
    let rows = grants(&gateway).await;
    assert_eq!(rows.as_array().unwrap().len(), told.as_array().unwrap().len() + 1, "the same grants are not told again: {rows}");
    assert!(gateway.verify_audit().await.unwrap().whole);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_recorded_once_whoever_makes_it_and_however_it_ends() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, json!({ "confirm": "never" })).await;
    let agent = gateway.agent("researcher", IdentityOptions::default()).unwrap();
    let stop = Stop::new();
    let call = |tool: &'static str, arguments: Json| agent.call_tool("one", tool, object(arguments), CallOptions::default(), &stop);
    call("echo", json!({ "value": "hello" })).await.unwrap();
    // This is the same call by the tool's direct name, without an agent.
    gateway.call_direct("mcp_one_echo", object(json!({ "value": "hello" })), CallOptions::default(), &Stop::new()).await.unwrap();
    let sandbox = agent.sandbox(ToolErrors::Return, None).unwrap();
    let code = "import { echo } from 'host:mcp-one'; export const handler = () => echo({ value: 'hello' })";
    let options = RunOptions { run_id: Some(41), ..RunOptions::default() };
    sandbox.run(code.to_owned(), options).await.outcome.value.unwrap();
    assert_eq!(call("vanished", json!({})).await.unwrap_err().code(), "ERR_UNKNOWN_TOOL");
    call("error", json!({ "message": "m" })).await.unwrap();
    let calls = rows(&gateway, AuditKind::Call).await;
    let outcomes: Vec<_> = calls.iter().map(outcome).collect();
    assert_eq!(outcomes, [("echo", "ok"), ("echo", "ok"), ("echo", "ok"), ("vanished", "ERR_UNKNOWN_TOOL"), ("error", "tool-error")]);
    let calls = &calls[..3];
    let who: Vec<_> = calls.iter().map(|row| (row.agent.as_deref(), row.details.run_id)).collect();
    assert_eq!(who, [(Some("researcher"), None), (None, None), (Some("researcher"), Some(41))]);
    let digests: Vec<_> = calls.iter().map(|row| row.details.arguments_digest.as_deref().unwrap()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    let text = json!(calls).to_string();
    assert!(!text.contains("hello"), "{text}");
    for row in calls {
        assert!(row.details.duration_ms.unwrap() > 0.0 && row.details.argument_bytes == Some(17) && row.details.result_bytes.unwrap() > 4);
    }
    agent.close().await;
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_allows_or_waits_for_is_recorded_too() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, json!({})).await;
    let note = object(json!({ "text": "a" }));
    let denied = gateway.call_tool("one", "write_note", note, CallOptions::default(), &Stop::new()).await;
    assert_eq!(denied.unwrap_err().code(), "ERR_CALL_DENIED");
    gateway.close().await;
    let call = |gateway: Gateway, stop: Stop| async move {
        gateway.call_tool("one", "sleep", object(json!({ "ms": 600_000 })), CallOptions::default(), &stop).await
    };
    let gateway = open(&test_folder, json!({ "confirm": "never" })).await;
    let stop = Stop::new();
    let calling = tokio::spawn(call(gateway.clone(), stop.clone()));
    test_folder.called("one", "sleep").await;
    stop.stop(StopReason::Aborted);
    assert_eq!(within(patience(), "the abort", calling).await.unwrap().unwrap_err().code(), "ERR_ABORTED");
    let revoked = tokio::spawn(call(gateway.clone(), Stop::new()));
    let calls = || test_folder.events("one").iter().filter(|entry| entry["event"] == "request" && entry["name"] == "sleep").count();
    until("the second call", || (calls() == 2).then_some(())).await;
    gateway.revoke("one").await.unwrap();
    assert_eq!(within(patience(), "the revocation", revoked).await.unwrap().unwrap_err().code(), "ERR_NOT_APPROVED");
    let calls = rows(&gateway, AuditKind::Call).await;
    let told: Vec<_> = calls.iter().map(outcome).collect();
    assert_eq!(told, [("write_note", "ERR_CALL_DENIED"), ("sleep", "cancelled"), ("sleep", "ERR_NOT_APPROVED")]);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_are_kept_only_where_the_option_says_so_and_without_secrets() {
    let test_folder = TestFolder::new();
    let more = json!({ "confirm": "never", "env": { "API_KEY": "correct-horse-battery" } });
    let mut with_content = options(&test_folder, more);
    with_content.audit_content = true;
    let gateway = Gateway::open(with_content).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    let arguments = object(json!({ "value": "a correct-horse-battery b" }));
    gateway.call_tool("one", "echo", arguments, CallOptions::default(), &Stop::new()).await.unwrap();
    let calls = rows(&gateway, AuditKind::Call).await;
    assert_eq!(json!(calls[0].details.arguments), json!({ "value": "a [redacted] b" }));
    gateway.close().await;
}

/// The variable that contains the folder, the name and the kind of end of a process that records, for the test below.
const ROLE: &str = "HYPERLIGHT_MCP_TEST_RECORDS";

fn open_store(folder: &str) -> (Arc<Store>, Audit) {
    let store = Arc::new(Store::open(folder.as_ref(), Arc::new(|problem| panic!("{problem}"))).unwrap());
    let options = AuditOptions {
        max_bytes: 1 << 30,
        max_age: Duration::from_hours(1),
        content: false,
        config_grants: Vec::new(),
        redactor: Arc::new(Redactor::new(None, None)),
        on_problem: Arc::new(|error| eprintln!("{error:?}")),
    };
    let audit = Audit::open(&store, options);
    (store, audit)
}

/// Records numbered events as `name`, and prints each number, until the process is killed. Writes a decision into the same store after each
/// hundred events, and prints its number once it is written. If it has to close, it records a hundred events and closes the audit.
#[test]
fn a_process_that_records() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let Ok([folder, name, end]) = <[&str; 3]>::try_from(role.split('|').collect::<Vec<_>>()) else { return };
    let (store, audit) = open_store(folder);
    let most = if end == "closes" { 100 } else { u64::MAX };
    for number in 1..=most {
        audit.record(AuditEvent::Revocation { server: format!("{name}-{number}"), by: AuditParty::Person });
        println!("said {number}");
        std::io::stdout().flush().unwrap();
        if number % 100 == 0 {
            let decision = Arc::from(number.to_string().into_bytes());
            store.change(Kind::Grant, |rows| Ok(rows.insert(format!("{name}-{number}"), decision))).unwrap();
            println!("decided {number}");
            std::io::stdout().flush().unwrap();
        }
        if number % 20 == 0 {
            // The queue can follow this pace.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    audit.close(Duration::from_mins(1));
    println!("closed");
}

/// Records a hundred events, waits for as long as the writer may take, says so, and waits for its end.
#[test]
fn a_process_that_waits() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let Some(folder) = role.strip_suffix("|waits") else { return };
    let (_store, audit) = open_store(folder);
    for number in 1..=100 {
        audit.record(AuditEvent::Revocation { server: format!("one-{number}"), by: AuditParty::Person });
    }
    std::thread::sleep(LONGEST_LOSS);
    println!("waited");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_mins(10));
}

/// The greatest age at which an event may be lost: the 100 ms of the documents, and half as much for the commit.
const LONGEST_LOSS: Duration = Duration::from_millis(150);

#[test]
fn what_is_older_than_a_tenth_of_a_second_survives_a_kill() {
    // On a busy machine the writer may get no processor in this time, so one attempt of several has to succeed.
    let survived = (0..8).any(|_| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "audit::a_process_that_waits", "--nocapture"]).env(ROLE, format!("{}|waits", folder.path().display()));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("waited")), "it ended before");
        child.kill().unwrap();
        child.wait().unwrap();
        let (_store, audit) = open_store(folder.path().to_str().unwrap());
        let rows = audit.rows(&AuditQuery::default()).unwrap();
        audit.close(Duration::from_mins(1));
        rows.iter().filter(|row| row.server.is_some()).count() == 100
    });
    assert!(survived, "events that are older than {LONGEST_LOSS:?} were lost each time");
}

/// A process that records events.
struct Recording {
    name: String,
    child: Child,
    output: BufReader<ChildStdout>,
    /// The decisions that the process has reported as written.
    decided: Vec<String>,
}

impl Recording {
    fn start(folder: &TempDir, name: String, end: &str) -> Self {
        let role = format!("{}|{name}|{end}", folder.path().display());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "audit::a_process_that_records", "--nocapture"]).env(ROLE, role);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { name, child, output, decided: Vec::new() }
    }

    /// Reads the printed numbers until `number`, or until the process has ended. Returns the last number.
    fn read_to(&mut self, number: u64) -> u64 {
        let mut last = 0;
        let mut line = String::new();
        while last < number && self.output.read_line(&mut line).unwrap() > 0 {
            if let Some(said) = line.trim_end().rsplit("said ").next().filter(|_| line.contains("said ") && line.ends_with('\n')) {
                last = said.parse().unwrap();
            }
            if let Some(decided) = line.trim_end().strip_prefix("decided ").filter(|_| line.ends_with('\n')) {
                self.decided.push(format!("{}-{decided}", self.name));
            }
            line.clear();
        }
        last
    }

    /// Kills the process, and returns the last number that it has printed.
    fn kill(&mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.read_to(u64::MAX)
    }
}

fn random(below: u64) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) % below
}

/// Checks the rows of one process: its first events without a gap, and a row about the events that are missing.
fn check(all: &[AuditRow], name: &str, pid: u32, said: u64, is_killed: bool) {
    let prefix = format!("{name}-");
    let numbers: Vec<u64> =
        all.iter().filter_map(|row| row.server.as_deref()?.strip_prefix(&prefix)).map(|number| number.parse().unwrap()).collect();
    let written = numbers.len() as u64;
    assert_eq!(numbers, (1..=written).collect::<Vec<_>>(), "{name}");
    let gaps: Vec<_> = all.iter().filter(|row| row.kind == AuditKind::Gap && row.details.pid == pid).collect();
    let lost: u64 = gaps.iter().map(|row| row.details.lost.unwrap()).sum();
    assert!(gaps.len() <= 1 && (is_killed || gaps.is_empty()), "{name}: {gaps:?}");
    // The process may have recorded an event whose number it has not printed.
    assert!((said..=said + 1).contains(&(written + lost)), "{name}: {written} written, {lost} lost, {said} said");
}

#[test]
fn processes_that_are_killed_at_random_leave_a_whole_chain_that_says_how_much_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ended, mut decided) = (Vec::new(), Vec::new());
    for round in 0..2 {
        let start = |number: usize| {
            let end = if number == 0 { "closes" } else { "killed" };
            Recording::start(&folder, format!("{round}-{number}"), end)
        };
        let mut recordings: Vec<_> = (0..8).map(start).collect();
        for (number, recording) in recordings.iter_mut().enumerate() {
            let is_killed = number > 0;
            let before = recording.read_to(if is_killed { 1 + random(600) } else { u64::MAX });
            assert!(before > 0, "{} said nothing", recording.name);
            let said = if is_killed { recording.kill().max(before) } else { before };
            recording.child.wait().unwrap();
            decided.append(&mut recording.decided);
            ended.push((recording.name.clone(), recording.child.id(), said, is_killed));
        }
    }
    // Opening the store panics if it finds rows that are torn or that nobody has sealed.
    let (store, audit) = open_store(folder.path().to_str().unwrap());
    let report = audit.verify().unwrap();
    assert!(report.whole, "{report:?}");
    let all = audit.rows(&AuditQuery::default()).unwrap();
    for (name, pid, said, is_killed) in &ended {
        check(&all, name, *pid, *said, *is_killed);
    }
    let rows = store.rows(Kind::Grant).unwrap();
    assert!(!decided.is_empty() && store.damage(Kind::Grant).is_none());
    assert!(decided.iter().all(|decision| rows.contains_key(decision)), "{decided:?}\n{:?}", rows.keys());
    assert!(rows.iter().all(|(name, body)| name.ends_with(std::str::from_utf8(body).unwrap())));
    // A gap that was reported once is not reported again.
    assert_eq!(audit.verify().unwrap().gaps, report.gaps);
    audit.close(Duration::from_mins(1));
    assert_eq!(std::fs::read_dir(folder.path().join("audit")).unwrap().count(), 0);
}
