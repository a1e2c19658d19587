//! Bad files on the disk do not block a gateway: entries that name devices and pipes, locks that a server holds, and a state folder that
//! others could access. Tests through the crate's own API.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyperlight_mcp::gateway::{ApprovalRead, CallOptions};
use hyperlight_mcp::registry::ServerState;
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::trust::ApprovalRequest;
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Map, Value as Json, json};

use crate::store::{begin_change, hold_command, hold_if_asked};
use crate::support::{FIXTURE, TestFolder, guest_choice, patience, within, write_script};

fn options(test_folder: &TestFolder, servers: &Json) -> GatewayOptions {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": servers }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    options
}

fn server(test_folder: &TestFolder, name: &str) -> Json {
    json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(name, &[]), "confirm": "never" })
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn state(gateway: &Gateway, look: ApprovalRead) -> ServerState {
    gateway.servers_by(look).unwrap()[0].state
}

async fn blocking<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    within(patience(), what, tokio::task::spawn_blocking(work)).await.unwrap()
}

async fn call(gateway: &Gateway, name: &str) -> &'static str {
    let outcome = gateway.call_tool(name, "pid", Map::new(), CallOptions::default(), &Stop::new()).await;
    outcome.err().map_or("no error", |error| error.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_names_a_device_or_a_pipe_holds_nobody_up() {
    let test_folder = TestFolder::new();
    pipe(&test_folder.path("pipe"));
    std::os::unix::fs::symlink(test_folder.path("pipe"), test_folder.path("link")).unwrap();
    let entry = |command: &str| json!({ "command": command, "box": "off", "pinExecutable": true, "envFile": "pipe", "pinValues": true });
    let servers = json!({ "zero": entry("/dev/zero"), "pipe": entry("./pipe"), "link": entry("./link"), "folder": entry("./") });
    let gateway = Gateway::open(options(&test_folder, &servers)).unwrap();
    let clone = gateway.clone();
    let states = blocking("the servers", move || clone.servers()).await.unwrap();
    assert!(states.len() == 4 && states.iter().all(|status| status.state == ServerState::Unapproved));
    for name in ["zero", "pipe", "link", "folder"] {
        let request = within(patience(), "the request", gateway.approval_request(name)).await.unwrap();
        let ApprovalRequest::Command(request) = request else { panic!("stage manifest") };
        assert!(request.executable.is_none());
        within(patience(), "the approval", gateway.approve(name, Some(&request.digest), None)).await.unwrap();
        let error = within(patience(), "the refusal", gateway.test(name)).await.unwrap_err();
        assert!(error.code() == "ERR_NOT_APPROVED" && error.to_string().contains("not a regular file"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_a_pipe_is_an_error_and_not_waited_for() {
    let test_folder = TestFolder::new();
    pipe(&test_folder.path("config.json"));
    let mut options = options(&test_folder, &json!({}));
    (options.config, options.config_path) = (None, Some(test_folder.path("config.json")));
    let error = blocking("the gateway", move || Gateway::open(options)).await.err().unwrap();
    assert!(error.code() == "ERR_CONFIG_UNREADABLE" && error.to_string().contains("not a regular file"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_holds_the_lock_of_the_store_is_ended_and_its_revocation_recorded() {
    hold_if_asked();
    let test_folder = TestFolder::new();
    let (database, held) = (test_folder.path("state/store.sqlite3"), test_folder.path("hold"));
    let fixture = format!("{FIXTURE} {}", test_folder.arguments("one", &[]).join(" "));
    let test = "disk::a_server_that_holds_the_lock_of_the_store_is_ended_and_its_revocation_recorded";
    let holding = hold_command(test, &database, &test_folder.path("holds"));
    let script = format!(
        "if [ -e {0} ]; then {holding} & while [ ! -e {1} ]; do sleep 0.01; done; fi; exec {fixture}",
        held.display(),
        test_folder.path("holds").display()
    );
    write_script(&test_folder.path("server"), &script);
    let servers = json!({ "one": { "command": test_folder.path("server"), "confirm": "never" } });
    let gateway = Gateway::open(options(&test_folder, &servers)).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    fs::write(&held, "").unwrap();
    gateway.test("one").await.unwrap();
    assert!(begin_change(&database).is_err(), "the server holds the lock");

    within(patience(), "the revocation", gateway.revoke("one")).await.unwrap();
    assert_eq!(test_folder.servers_running(), [""; 0]);
    assert_eq!(state(&Gateway::open(options(&test_folder, &servers)).unwrap(), ApprovalRead::Fresh), ServerState::Unapproved);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_that_cannot_be_recorded_ends_the_server_says_so_and_holds_here() {
    let test_folder = TestFolder::new();
    let servers = json!({ "one": server(&test_folder, "one") });
    let gateway = Gateway::open(options(&test_folder, &servers)).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    assert_eq!(call(&gateway, "one").await, "no error");
    // Another program begins a change of the store, and does not end it.
    let lock = begin_change(&test_folder.path("state/store.sqlite3")).unwrap();

    let error = within(patience(), "the revocation", gateway.revoke("one")).await.unwrap_err();
    assert!(error.code() == "ERR_APPROVAL_STORE" && error.to_string().contains("could not be recorded"), "{error}");
    assert!(error.to_string().contains("revoke again"), "{error}");
    assert_eq!(test_folder.servers_running(), [""; 0]);
    assert_eq!(
        (state(&gateway, ApprovalRead::Cached), state(&gateway, ApprovalRead::Fresh)),
        (ServerState::Unapproved, ServerState::Unapproved)
    );
    assert_eq!(call(&gateway, "one").await, "ERR_NOT_APPROVED");
    assert_eq!(gateway.enable("one").unwrap_err().code(), "ERR_NOT_APPROVED");

    drop(lock);
    gateway.revoke("one").await.unwrap();
    assert_eq!(state(&Gateway::open(options(&test_folder, &servers)).unwrap(), ApprovalRead::Fresh), ServerState::Unapproved);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_lock_holds_up_nobody_else() {
    let test_folder = TestFolder::new();
    let servers = json!({ "one": server(&test_folder, "one"), "two": server(&test_folder, "two") });
    let gateway = Gateway::open(options(&test_folder, &servers)).unwrap();
    for name in ["one", "two"] {
        gateway.approve(name, None, None).await.unwrap();
        gateway.enable(name).unwrap();
    }
    let lock = begin_change(&test_folder.path("state/store.sqlite3")).unwrap();
    // There are more of them than the runtime has threads.
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn({
                let gateway = gateway.clone();
                async move { gateway.revoke("one").await }
            })
        })
        .collect();
    within(patience(), "its end", async {
        while !test_folder.servers_running().iter().all(|line| line.contains("log-two")) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(within(Duration::from_secs(8), "a call", call(&gateway, "two")).await, "no error");
    drop(lock);
    for revocation in waiting {
        within(patience(), "a revocation", revocation).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_last_is_told_without_reading_and_looked_at_again_soon() {
    let test_folder = TestFolder::new();
    let servers = json!({ "one": server(&test_folder, "one") });
    let (here, there) = (Gateway::open(options(&test_folder, &servers)).unwrap(), Gateway::open(options(&test_folder, &servers)).unwrap());
    there.approve("one", None, None).await.unwrap();
    assert_eq!(state(&here, ApprovalRead::Cached), ServerState::Unapproved);
    within(patience(), "the approval", async {
        while state(&here, ApprovalRead::Cached) != ServerState::Idle {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The pipe must not be opened: opening it would be an error.
    let path = test_folder.path("state/store.sqlite3");
    fs::remove_file(&path).unwrap();
    pipe(&path);
    assert_eq!(state(&there, ApprovalRead::Cached), ServerState::Connected);
    assert_eq!(here.servers().unwrap_err().code(), "ERR_APPROVAL_STORE");
    assert_eq!(here.servers_by(ApprovalRead::Cached).unwrap_err().code(), "ERR_APPROVAL_STORE", "it is known by now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_folder_that_others_see_is_closed_with_a_warning_and_one_that_they_write_is_refused() {
    let test_folder = TestFolder::new();
    let folder = test_folder.path("state");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let heard: Arc<Mutex<Vec<Json>>> = Arc::default();
    let mut given = options(&test_folder, &json!({}));
    let listener = Arc::clone(&heard);
    given.on_event = Some(Arc::new(move |event| listener.lock().unwrap().push(event)));
    Gateway::open(given).unwrap();
    assert_eq!(mode(&folder), 0o700);
    let heard = heard.lock().unwrap().clone();
    assert!(heard.len() == 1 && heard[0]["message"].as_str().unwrap().contains("mode 755"), "{heard:?}");

    fs::set_permissions(&folder, Permissions::from_mode(0o775)).unwrap();
    let error = Gateway::open(options(&test_folder, &json!({}))).err().unwrap();
    assert!(error.code() == "ERR_STORE" && error.to_string().contains("chmod 700"), "{error}");
    assert_eq!(mode(&folder), 0o775);
}
