//! Tests of servers that run in boxes: what a person is shown, how they start and end, and what happens if a box cannot be made.

mod apart;
mod changes;
mod entries;
mod homes;
mod links;
mod named;
mod refused;
mod same_name;
mod strangers;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};

use hyperlight_mcp::command::{CommandOptions, Speaker, Style, execute, request_text};
use hyperlight_mcp::gateway::CallOptions;
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::serve::http::HttpOptions;
use hyperlight_mcp::serve::{ServeOptions, Transport, serve};
use hyperlight_mcp::trust::{ApprovalRequest, CommandRequest};
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Map, Value as Json, json};

use crate::support::{FIXTURE, TestFolder, guest_choice, told, until};

fn open(test_folder: &TestFolder, server: &Json) -> Gateway {
    Gateway::open(options(test_folder, server)).unwrap()
}

fn options(test_folder: &TestFolder, server: &Json) -> GatewayOptions {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "one": server } }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    options
}

/// Returns the entry of a fixture whose log exists, so that the box has it.
fn entry(test_folder: &TestFolder, in_box: &Json) -> Json {
    let log = test_folder.path("log-one");
    fs::write(&log, "").unwrap();
    json!({ "command": FIXTURE, "args": ["--log", log, "--env-dump"], "box": in_box })
}

async fn shown(gateway: &Gateway) -> Box<CommandRequest> {
    let ApprovalRequest::Command(request) = gateway.approval_request("one").await.unwrap() else { panic!("stage manifest") };
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_names_the_folders_of_the_program_and_sockets_in_given_folders() {
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("shared/app")).unwrap();
    let socket = test_folder.path("shared/app/app.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let gateway = open(&test_folder, &entry(&test_folder, &json!({ "read": [test_folder.path("shared")] })));
    let allows = shown(&gateway).await.in_box.unwrap().allows;
    let program = std::path::Path::new(FIXTURE);
    let folders = allows.iter().find_map(|said| said.strip_prefix("its program, runtime and package are in ")).unwrap();
    assert!(program.starts_with(folders), "{folders}");
    let told = allows.iter().find(|said| said.starts_with("reaches the services behind the sockets in ")).unwrap();
    assert!(told.ends_with(&format!(": {}", socket.display())), "{told}");
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_file_writes_no_sentence_of_its_own() {
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("shared")).unwrap();
    let name = "x\n  reaches no network\u{1b}[2J\u{202e}";
    let _listener = std::os::unix::net::UnixListener::bind(test_folder.path("shared").join(name)).unwrap();
    let gateway = open(&test_folder, &entry(&test_folder, &json!({ "read": [test_folder.path("shared")] })));
    let allows = shown(&gateway).await.in_box.unwrap().allows;
    let told = allows.iter().find(|said| said.starts_with("reaches the services behind the sockets in ")).unwrap();
    assert!(told.ends_with("x\\n  reaches no network\\u{1b}[2J\\u{202e}\""), "{told}");
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_a_box_is_shown_as_such_serves_and_ends() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, &entry(&test_folder, &json!({ "network": "none", "read": ["/opt"] })));
    fs::write(test_folder.path("state/secret"), "").unwrap();
    let request = shown(&gateway).await;
    let in_box = request.in_box.as_ref().unwrap();
    for sentence in ["may read /opt", "reaches no network", "may use 4096 MiB of memory and 256 processes"] {
        assert!(in_box.allows.iter().any(|said| said == sentence), "{sentence}: {:?}", in_box.allows);
    }
    assert!(request.warning.contains("runs in a box"), "{}", request.warning);
    let text = request_text(&ApprovalRequest::Command(request), &Style::default());
    assert!(text.contains("reaches no network"), "{text}");

    gateway.approve("one", None, None).await.unwrap();
    let spawn = test_folder.logged("one", "spawn", |_| true).await;
    // The first process of the box is init, which is no part of the server.
    assert_eq!(spawn["pid"], 2);
    let homes: Vec<_> = fs::read_dir(test_folder.path("state/boxes")).unwrap().collect();
    assert_eq!(homes.len(), 1);
    gateway.close().await;
    until("the end of all of the box", || test_folder.running().is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_word_about_boxes_an_entry_has_the_standard_one_and_off_is_said_first() {
    let test_folder = TestFolder::new();
    let mut server = entry(&test_folder, &Json::Null);
    server.as_object_mut().unwrap().remove("box");
    let gateway = open(&test_folder, &server);
    let request = shown(&gateway).await;
    let in_box = request.in_box.as_ref().unwrap();
    assert!(in_box.allows.iter().any(|said| said == "reaches no network"), "{:?}", in_box.allows);
    let digest = request.digest.clone();
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(test_folder.logged("one", "spawn", |_| true).await["pid"], 2);
    gateway.close().await;

    let gateway = open(&test_folder, &entry(&test_folder, &json!("standard")));
    // What was approved without a word is approved.
    assert!(matches!(gateway.approval_request("one").await.unwrap(), ApprovalRequest::Manifest(_)));
    gateway.close().await;

    let gateway = open(&test_folder, &entry(&test_folder, &json!("off")));
    let request = shown(&gateway).await;
    assert_ne!(request.digest, digest);
    assert!(request.in_box.is_none() && request.warning.contains("with your full permissions"), "{}", request.warning);
    let text = request_text(&ApprovalRequest::Command(request), &Style::default());
    assert!(text.find("box is off") < text.find("runs ") && text.contains("box is off"), "{text}");
    gateway.close().await;
}

/// The paths in the entry are within the workspace, because the entry has no `cwd` and depends on the workspace. The box has nothing else
/// of the workspace.
#[tokio::test(flavor = "multi_thread")]
async fn relative_paths_are_those_of_the_workspace() {
    let test_folder = TestFolder::new();
    fs::create_dir(test_folder.path("data")).unwrap();
    fs::write(test_folder.path("data/log-one"), "").unwrap();
    fs::write(test_folder.path("secret"), "").unwrap();
    let script = "ls > data/listing; exec \"$0\" --log data/log-one";
    let gateway = open(&test_folder, &json!({ "command": "/bin/sh", "args": ["-c", script, FIXTURE, "./data"] }));
    let request = shown(&gateway).await;
    assert!(request.in_box.as_ref().unwrap().allows.iter().any(|said| said.contains("./data")));
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(test_folder.path("data/listing")).unwrap(), "data\n");
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_cannot_be_made_starts_nothing() {
    let test_folder = TestFolder::new();
    for (in_box, problem) in [
        (json!({ "write": ["/no/such/folder"] }), "such/folder: No such file"),
        (json!({ "read": ["/proc"] }), "/proc cannot be given"),
        (json!({ "read": ["/"] }), "cannot be given whole"),
        (json!({ "write": [test_folder.path("state")] }), "this gateway's own folder"),
    ] {
        let gateway = open(&test_folder, &entry(&test_folder, &in_box));
        let error = gateway.approve("one", None, None).await.unwrap_err();
        assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains(problem), "{in_box}: {}", told(&error));
        assert_eq!(test_folder.count("one", "spawn"), 0);
        gateway.close().await;
    }
    until("the end of all", || test_folder.running().is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_of_the_workspace_ties_the_approval_to_it() {
    let test_folder = TestFolder::new();
    for (path, is_tied) in [("data", true), ("${workspaceFolder}/data", true), ("/opt", false)] {
        let gateway = open(&test_folder, &json!({ "command": "node", "box": { "read": [path] } }));
        let request = shown(&gateway).await;
        assert_eq!(request.workspace_folder.is_some(), is_tied, "{path}");
        assert_eq!(request.cwd.as_deref(), Some("/box/home"), "the command itself does not depend on it");
        gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_a_box_gives_ties_the_approval_to_the_workspace() {
    let test_folder = TestFolder::new();
    for (in_box, is_tied) in [("standard", true), ("strict", true), ("off", false)] {
        let entry = json!({ "command": FIXTURE, "roots": ["${workspaceFolder}"], "box": in_box });
        let gateway = open(&test_folder, &entry);
        let request = shown(&gateway).await;
        assert_eq!(request.workspace_folder.is_some(), is_tied, "{in_box}");
        gateway.close().await;
    }
}

/// A second command gets an empty home, because files that the first command left there would run with the rights of the second.
#[tokio::test(flavor = "multi_thread")]
async fn another_command_of_the_same_name_finds_a_home_of_its_own() {
    let test_folder = TestFolder::new();
    let mut homes = Vec::new();
    for (arguments, environment) in [
        (json!(["--env-dump"]), json!({})),
        (json!(["--env-dump", "--noise"]), json!({})),
        (json!(["--env-dump"]), json!({ "NODE_OPTIONS": "--no-warnings" })),
        (json!(["--env-dump"]), json!({ "TOKEN": "another-token" })),
    ] {
        let entry = json!({ "command": FIXTURE, "args": arguments, "env": environment, "box": "standard" });
        let gateway = open(&test_folder, &entry);
        gateway.approve("one", None, None).await.unwrap();
        gateway.close().await;
        homes.push(fs::read_dir(test_folder.path("state/boxes")).unwrap().count());
    }
    assert_eq!(homes, [1, 2, 3, 3], "a token decides nothing about the code");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_box_has_the_snapshot_of_the_guest() {
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("cache/snapshots")).unwrap();
    for (path, is_made) in [("cache", false), ("cache/snapshots", false), ("other", true)] {
        fs::create_dir_all(test_folder.path(path)).unwrap();
        let mut options = options(&test_folder, &json!({ "command": FIXTURE, "box": { "write": [test_folder.path(path)] } }));
        options.snapshot_dir = Some(test_folder.path("cache/snapshots"));
        let gateway = Gateway::open(options).unwrap();
        let outcome = gateway.approve("one", None, None).await;
        assert_eq!(outcome.as_ref().err().map(hyperlight_mcp::Error::code), (!is_made).then_some("ERR_BOX_FAILED"), "{path}");
        gateway.close().await;
    }
}

/// Returns a gateway whose config lies in its workspace, which the box of server `one` has as an argument. The server first runs a script.
fn in_workspace(test_folder: &TestFolder, script: &str, change: impl FnOnce(&mut GatewayOptions)) -> Gateway {
    let workspace = test_folder.path("ws");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(test_folder.path("log-one"), "").unwrap();
    fs::write(workspace.join(".env"), "TOKEN=of-another-server\n").unwrap();
    fs::write(workspace.join("mcp.json"), config_of(test_folder, script, "two")).unwrap();
    let mut options = options(test_folder, &Json::Null);
    (options.config, options.config_path) = (None, Some(workspace.join("mcp.json")));
    options.workspace_folder = Some(workspace);
    change(&mut options);
    Gateway::open(options).unwrap()
}

/// Returns a config with the server `one`, and with another server that has an environment file.
fn config_of(test_folder: &TestFolder, script: &str, other: &str) -> String {
    let one = json!({ "command": "/bin/sh", "args": ["-c", format!("{script}exec \"$0\" --log \"$1\""), FIXTURE, test_folder.path("log-one"), "."] });
    json!({ "mcpServers": { "one": one, other: { "command": FIXTURE, "envFile": ".env" } } }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_in_the_workspace_of_a_box_is_neither_read_nor_changed() {
    let test_folder = TestFolder::new();
    let script =
        "(cat mcp.json .env; echo evil > mcp.json; echo evil > .env; mv -f out mcp.json; mv -f out .env) > out 2> errors; echo ran > ran; ";
    let gateway = in_workspace(&test_folder, script, |_| {});
    let before = fs::read_to_string(test_folder.path("ws/mcp.json")).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    let read = |name: &str| fs::read_to_string(test_folder.path("ws").join(name)).unwrap();
    assert_eq!([read("out"), read("ran")], ["", "ran\n"], "{}", read("errors"));
    assert_eq!([read("mcp.json"), read(".env")], [before.as_str(), "TOKEN=of-another-server\n"]);
    gateway.close().await;
}

/// Replaces a file by another one that was written beside it, as some editors do.
fn move_upon(path: &Path, text: &str) {
    fs::write(path.with_extension("new"), text).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

/// Removes a file, and makes another one in its place, as `git checkout` does. Many file systems give it the number of the first one.
fn make_again(path: &Path, text: &str) {
    fs::remove_file(path).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the gateway of [`in_workspace`] that watches its config, and the texts of its events.
fn watching(test_folder: &TestFolder, script: &str) -> (Gateway, Arc<Mutex<String>>) {
    let events: Arc<Mutex<String>> = Arc::default();
    let told = Arc::clone(&events);
    let gateway = in_workspace(test_folder, script, |options| {
        options.watch = true;
        options.on_event = Some(Arc::new(move |event| told.lock().unwrap().push_str(&event.to_string())));
    });
    (gateway, events)
}

/// When the config is replaced, the kernel uncovers it in the box. So the server is ended, and a config that it may have written is not
/// used automatically.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_replaced_outside_is_covered_again_and_read_when_a_person_asks() {
    for replace in [move_upon, make_again] {
        let test_folder = TestFolder::new();
        let (gateway, events) = watching(&test_folder, "");
        gateway.approve("one", None, None).await.unwrap();
        assert_eq!(test_folder.count("one", "spawn"), 1);
        replace(&test_folder.path("ws/mcp.json"), &config_of(&test_folder, "", "three"));
        until("the end of the server", || test_folder.servers_running().is_empty().then_some(())).await;
        until("the warning", || events.lock().unwrap().contains("look at it").then_some(())).await;
        assert_eq!(gateway.reload_for_model().await.unwrap_err().code(), "ERR_OPERATOR_ONLY");
        let by_model = CommandOptions { speaker: Speaker::Model, ..CommandOptions::default() };
        let outcome = execute(&gateway, "/mcp reload", &by_model).await;
        assert_eq!(outcome.data["error"]["code"], "ERR_OPERATOR_ONLY", "{}", outcome.text);
        assert!(gateway.server_info("three").is_err());
        gateway.reload().await.unwrap();
        assert!(gateway.server_info("three").is_ok());
        gateway.reload_for_model().await.unwrap();
        gateway.close().await;
    }
}

/// A server can write the uncovered config and end immediately. This config is not used either.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_a_server_may_have_written_before_its_end_is_not_read_by_itself() {
    let test_folder = TestFolder::new();
    let script = "(until grep -q three mcp.json; do :; done; echo written > out; kill -9 $$) 2> /dev/null & ";
    let (gateway, events) = watching(&test_folder, script);
    gateway.approve("one", None, None).await.unwrap();
    make_again(&test_folder.path("ws/mcp.json"), &config_of(&test_folder, script, "three"));
    until("the warning", || events.lock().unwrap().contains("look at it").then_some(())).await;
    until("the end of the box", || test_folder.servers_running().is_empty().then_some(())).await;
    assert!(gateway.server_info("three").is_err());
    gateway.close().await;
}

/// A config that a person writes is read if no box can write there at that time.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_replaced_after_the_end_of_a_box_is_read_by_itself() {
    let test_folder = TestFolder::new();
    let (gateway, _) = watching(&test_folder, "");
    gateway.approve("one", None, None).await.unwrap();
    gateway.disable("one").await.unwrap();
    // The gateway looks at its boxes again before it reads a config for a model.
    gateway.reload_for_model().await.unwrap();
    make_again(&test_folder.path("ws/mcp.json"), &config_of(&test_folder, "", "three"));
    until("the new server", || gateway.server_info("three").ok().map(drop)).await;
    gateway.close().await;
}

/// Returns a gateway with the server `one`, whose program is a script of its workspace that it could write, and with other servers.
fn with_script(test_folder: &TestFolder, script: &str, others: &Json, change: impl FnOnce(&mut GatewayOptions)) -> Gateway {
    let workspace = test_folder.path("ws");
    fs::create_dir_all(workspace.join("tools")).unwrap();
    fs::create_dir_all(workspace.join("data")).unwrap();
    fs::write(workspace.join("data/log"), "").unwrap();
    write_script(test_folder, "/bin/sh", script);
    let mut servers = json!({ "one": { "command": "./tools/server.sh", "args": ["./", FIXTURE], "confirm": "never" } });
    servers.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    let mut options = options(test_folder, &Json::Null);
    options.config = Some(json!({ "mcpServers": servers }));
    options.workspace_folder = Some(workspace);
    change(&mut options);
    Gateway::open(options).unwrap()
}

fn write_script(test_folder: &TestFolder, interpreter: &str, script: &str) {
    let path = test_folder.path("ws/tools/server.sh");
    fs::write(&path, format!("#!{interpreter}\n{script}\nexec \"$2\" --log data/log\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A server cannot write its own program, and a program that was changed otherwise gets no other files than those that were approved.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_a_written_folder_does_not_choose_what_its_box_has() {
    let test_folder = TestFolder::new();
    let script = "(: >> tools/server.sh; mv tools moved; rm -f tools/server.sh) 2> errors; echo ran > ran";
    let gateway = with_script(&test_folder, script, &json!({}), |_| {});
    let before = fs::read_to_string(test_folder.path("ws/tools/server.sh")).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(test_folder.path("ws/ran")).unwrap(), "ran\n");
    assert_eq!(fs::read_to_string(test_folder.path("ws/tools/server.sh")).unwrap(), before);
    gateway.close().await;
    let gateway = with_script(&test_folder, "", &json!({}), |_| {});
    gateway.enable("one").unwrap();
    let stop = Stop::new();
    let call = || gateway.call_tool("one", "pid", Map::new(), CallOptions::default(), &stop);
    call().await.unwrap();
    gateway.close().await;

    // Another folder that the box did not have at the approval, by a link that leads out of the workspace.
    fs::create_dir_all(test_folder.path("secret/bin")).unwrap();
    fs::copy("/bin/sh", test_folder.path("secret/bin/sh")).unwrap();
    let gateway = with_script(&test_folder, "", &json!({}), |_| {});
    gateway.enable("one").unwrap();
    write_script(&test_folder, &test_folder.path("secret/bin/sh").display().to_string(), "");
    let stop = Stop::new();
    let call = || gateway.call_tool("one", "pid", Map::new(), CallOptions::default(), &stop);
    let error = call().await.unwrap_err();
    assert!(error.code() == "ERR_NOT_APPROVED" && told(&error).contains("other folders"), "{}", told(&error));
    let request = shown(&gateway).await;
    assert!(request.in_box.unwrap().allows.iter().any(|said| said.contains("/secret/bin")));
    gateway.approve("one", None, None).await.unwrap();
    call().await.unwrap();
    gateway.close().await;
}

/// Programs of the gateway and of other servers are in the folder of a box, and the box cannot write them.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_does_not_change_what_runs_outside_of_it() {
    let test_folder = TestFolder::new();
    let files = ["tools/other.mjs", "node_modules/hyperlight-mcp/index.js", "node_modules/ai/index.js"];
    let script =
        format!("for file in {}; do (echo evil > $file; mv -f ran $file) 2> errors; done; echo ran > ran; mkdir new", files.join(" "));
    let modules = test_folder.path("ws/node_modules");
    for file in files {
        let path = test_folder.path("ws").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "good").unwrap();
    }
    fs::write(test_folder.path("ws/package.json"), "{}").unwrap();
    let watchdog = modules.join("hyperlight-mcp-linux-x64-gnu/hyperlight-mcp-watchdog");
    fs::create_dir_all(watchdog.parent().unwrap()).unwrap();
    fs::copy(test_folder.watchdog_program(), &watchdog).unwrap();
    let others = json!({ "two": { "command": "node", "args": ["./tools/other.mjs"], "box": "off" } });
    let gateway = with_script(&test_folder, &script, &others, |options| options.watchdog = watchdog);
    let allows = shown(&gateway).await.in_box.unwrap().allows;
    let workspace = test_folder.path("ws").canonicalize().unwrap();
    for sentence in [
        format!("can change {}, and so can change what the server \"two\" runs", workspace.display()),
        format!("can change package.json in {}: ", workspace.display()),
    ] {
        assert!(allows.iter().any(|said| said.starts_with(&sentence)), "{sentence}: {allows:?}");
    }
    gateway.approve("one", None, None).await.unwrap();
    assert!(workspace.join("new").is_dir());
    for file in files {
        assert_eq!(fs::read_to_string(workspace.join(file)).unwrap(), "good", "{file}");
    }
    gateway.close().await;

    // A folder within what the gateway is loaded from is not given at all.
    let named = json!({ "one": { "command": FIXTURE, "box": { "write": [modules.canonicalize().unwrap().join("ai")] } } });
    let watchdog = modules.join("hyperlight-mcp-linux-x64-gnu/hyperlight-mcp-watchdog");
    let gateway = with_script(&test_folder, "", &named, |options| options.watchdog = watchdog);
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert!(told(&error).contains("this gateway's own program"), "{}", told(&error));
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_is_served_only_where_no_box_has_it() {
    let test_folder = TestFolder::new();
    let gateway = in_workspace(&test_folder, "", |_| {});
    let tokens = test_folder.path("ws/tokens");
    fs::write(&tokens, "reader:0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    let served = || {
        let http = HttpOptions { token_file: Some(tokens.clone()), ..HttpOptions::default() };
        serve(gateway.clone(), ServeOptions::default(), Transport::Http(Box::new(http)))
    };
    gateway.approve("one", None, None).await.unwrap();
    let error = served().await.unwrap_err();
    assert!(error.code() == "ERR_INVALID_OPTION" && error.to_string().contains("put it outside"), "{error}");
    gateway.revoke("one").await.unwrap();
    let server = served().await.unwrap();
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert!(error.code() == "ERR_BOX_FAILED" && error.to_string().contains("tokens or a key"), "{error}");
    server.close().await;
    gateway.close().await;
}

/// A link in a folder that a box may write can be replaced, and with it the file to which it leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_is_not_served_through_a_link_that_a_box_can_replace() {
    let test_folder = TestFolder::new();
    let gateway = in_workspace(&test_folder, "", |_| {});
    fs::create_dir(test_folder.path("keys")).unwrap();
    let tokens = test_folder.path("keys/tokens");
    fs::write(&tokens, "reader:0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&tokens, test_folder.path("ws/tokens")).unwrap();
    symlink(test_folder.path("keys"), test_folder.path("ws/keys")).unwrap();
    fs::create_dir(test_folder.path("ws/folder")).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    for path in ["ws/tokens", "ws/keys/tokens", "ws/folder/../../keys/tokens"] {
        let http = HttpOptions { token_file: Some(test_folder.path(path)), ..HttpOptions::default() };
        let error = serve(gateway.clone(), ServeOptions::default(), Transport::Http(Box::new(http))).await.unwrap_err();
        assert!(error.code() == "ERR_INVALID_OPTION" && error.to_string().contains("could replace"), "{path}: {error}");
    }
    let http = HttpOptions { token_file: Some(tokens), ..HttpOptions::default() };
    serve(gateway.clone(), ServeOptions::default(), Transport::Http(Box::new(http))).await.unwrap().close().await;
    gateway.close().await;
}

/// The next gateway would take a folder in place of the link for its state, with the approvals in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_could_replace_a_link_to_the_state_is_not_made() {
    let test_folder = TestFolder::new();
    fs::create_dir(test_folder.path("state")).unwrap();
    fs::set_permissions(test_folder.path("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let gateway = in_workspace(&test_folder, "", |options| {
        symlink(test_folder.path("state"), test_folder.path("ws/state")).unwrap();
        options.state_dir = Some(test_folder.path("ws/state"));
    });
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert!(error.code() == "ERR_BOX_FAILED" && error.to_string().contains("could replace"), "{error}");
    gateway.close().await;
}
