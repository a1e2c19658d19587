//! Tests of what boxes can change that runs outside of them: what is shown, what cannot be written, and what happens when servers are added.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use hyperlight_mcp::gateway::CallOptions;
use hyperlight_mcp::registry::ServerState;
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::trust::{ApprovalRequest, CommandRequest};
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Map, Value as Json, json};

use super::{options, with_script};
use crate::support::{FIXTURE, TestFolder, told, until};

pub(super) async fn request_of(gateway: &Gateway, name: &str) -> Box<CommandRequest> {
    let ApprovalRequest::Command(request) = gateway.approval_request(name).await.unwrap() else { panic!("stage manifest") };
    request
}

pub(super) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

pub(super) fn put_program(path: &Path, text: &str) {
    put(path, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Opens a gateway with these servers, whose state is elsewhere than the folder `data` of the test.
pub(super) fn with_servers(test_folder: &TestFolder, servers: &Json) -> Gateway {
    let mut options: GatewayOptions = options(test_folder, &Json::Null);
    options.config = Some(json!({ "mcpServers": servers }));
    fs::create_dir_all(test_folder.path("elsewhere")).unwrap();
    options.workspace_folder = Some(test_folder.path("elsewhere"));
    Gateway::open(options).unwrap()
}

pub(super) fn data_of(test_folder: &TestFolder) -> PathBuf {
    fs::create_dir_all(test_folder.path("data")).unwrap();
    test_folder.path("data").canonicalize().unwrap()
}

// long: one line for each form of a command.
/// The request of the server that is approved later names both servers. Of these sentences, the digest has the names of the servers.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_both_servers_say_that_one_can_change_what_the_other_runs() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let at = |name: &str| data.join(name).display().to_string();
    for name in ["uv/server.py", "shell/server.mjs", "flag/load.mjs", "module/srv/__main__.py", "alone/server.mjs", "linked/v1/server.mjs"]
    {
        put(&data.join(name), "");
    }
    symlink("v1", data.join("linked/now")).unwrap();
    let one = json!({ "command": FIXTURE, "box": { "write": [data] } });
    let shell = format!("cd {} && exec node server.mjs", at("shell"));
    let mut servers = json!({
        "one": one,
        "uv": { "command": "/bin/sh", "args": ["--directory", at("uv"), "run", "server.py"] },
        "shell": { "command": "/bin/sh", "args": ["-c", shell], "box": "off" },
        "flag": { "command": "/bin/sh", "args": [format!("--import={}", at("flag/load.mjs"))] },
        "module": { "command": "/bin/sh", "args": ["-m", "srv"], "cwd": at("module") },
        "path": { "command": "/bin/sh", "env": { "PYTHONPATH": at("module") } },
        "search": { "command": "sh", "env": { "PATH": format!("{}:/usr/bin:/bin", at("none")) }, "box": "off" },
        "alone": { "command": "/bin/sh", "args": [at("alone/server.mjs")] },
        "linked": { "command": "/bin/sh", "args": [at("linked/now/server.mjs")], "box": "off" },
        "later": { "command": "/bin/sh", "args": [at("later.mjs")], "box": "off" },
        "other": { "command": "/bin/sh", "args": ["-c", "true"], "box": "off" },
    });
    let gateway = with_servers(&test_folder, &servers);
    let request = request_of(&gateway, "one").await;
    let allows = request.in_box.unwrap().allows;
    assert!(allows.iter().any(|said| said.starts_with("what it writes there may be run outside of the box")), "{allows:?}");
    let changes = |name: &str, place: &str| {
        (
            name.to_owned(),
            format!("can change files in {}, from which the server \"{name}\" may run code", at(place)),
            format!("the server \"one\" may write in {}, from which this server may run code", at(place)),
        )
    };
    let mut pairs: Vec<_> = [
        ("uv", "uv"),
        ("shell", "shell"),
        ("flag", "flag"),
        ("module", "module"),
        ("path", "module"),
        ("search", "none"),
        ("alone", "alone"),
    ]
    .iter()
    .map(|(name, place)| changes(name, place))
    .collect();
    pairs.push((
        "linked".to_owned(),
        format!("can change {}, and so can change what the server \"linked\" runs", at("linked/now")),
        format!("the server \"one\" may write {}, and so change what this server runs", at("linked/now")),
    ));
    pairs.push((
        "later".to_owned(),
        format!("can make {}, which the server \"later\" runs", at("later.mjs")),
        format!("the server \"one\" may make {}, which this server runs", at("later.mjs")),
    ));
    for (name, sentence, reverse) in &pairs {
        assert!(allows.contains(sentence), "{sentence}: {allows:#?}");
        let said = request_of(&gateway, name).await.changeable_by;
        assert!(said.contains(reverse), "{reverse}: {said:#?}");
    }
    assert_eq!(request_of(&gateway, "other").await.changeable_by, [] as [String; 0]);
    let with_one = request_of(&gateway, "shell").await.digest;
    put(&data.join("shell/another.mjs"), "");
    assert_eq!(request_of(&gateway, "shell").await.digest, with_one);
    gateway.close().await;

    servers.as_object_mut().unwrap().remove("one");
    let gateway = with_servers(&test_folder, &servers);
    let request = request_of(&gateway, "shell").await;
    assert!(request.changeable_by.is_empty() && request.digest != with_one, "{request:?}");
    gateway.close().await;
}

/// Programs in other forms than a file with a known package are kept too: other extensions, flags, folders beside `bin`.
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_other_servers_are_kept_in_all_their_forms() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    let files = ["perl/server.pl", "lua/server.lua", "flag/load.mjs", "package/dist/main.mjs"];
    for file in files {
        put(&workspace.join(file), "good");
    }
    put(&workspace.join("package/package.json"), "{}");
    put_program(&workspace.join("package/bin/tool"), "#!/bin/sh\n");
    let at = |name: &str| workspace.join(name).display().to_string();
    let others = json!({
        "perl": { "command": "/bin/sh", "args": [at("perl/server.pl")], "box": "off" },
        "lua": { "command": "/bin/sh", "args": ["-x", at("lua/server.lua")], "box": "off" },
        "flag": { "command": "/bin/sh", "args": [format!("--import={}", at("flag/load.mjs"))], "box": "off" },
        "package": { "command": at("package/bin/tool"), "box": "off" },
    });
    let script = format!("for file in {}; do echo evil > $file; done 2> errors; echo ran > ran", files.join(" "));
    let gateway = with_script(&test_folder, &script, &others, |_| {});
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(workspace.join("ran")).unwrap(), "ran\n");
    for file in files {
        assert_eq!(fs::read_to_string(workspace.join(file)).unwrap(), "good", "{file}");
    }
    gateway.close().await;
}

/// A box that could write the program of a server that was added since its start ends, and its next one cannot.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_ends_when_a_server_is_approved_whose_program_it_could_write() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    put(&workspace.join("later/server.mjs"), "");
    put(&workspace.join("later/package.json"), "{}");
    let gateway = with_script(&test_folder, "echo x 2> errors >> later/server.mjs", &json!({}), |_| {});
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    let stop = Stop::new();
    let call = || gateway.call_tool("one", "pid", Map::new(), CallOptions::default(), &stop);
    call().await.unwrap();
    let started = || fs::read_to_string(workspace.join("data/log")).unwrap().matches("\"spawn\"").count();
    let (before, written) = (started(), fs::read_to_string(workspace.join("later/server.mjs")).unwrap());
    assert!(!written.is_empty());
    let added = json!({ "name": "two", "command": "node", "args": [workspace.join("later/server.mjs")] });
    gateway.add_server(serde_json::from_value(added).unwrap()).await.unwrap();
    call().await.unwrap();
    assert_eq!(started(), before, "a proposal that nobody has approved ends nothing");
    let request = request_of(&gateway, "two").await;
    gateway.approve("two", Some(&request.digest), None).await.unwrap();
    call().await.unwrap();
    assert_eq!((started(), fs::read_to_string(workspace.join("later/server.mjs")).unwrap()), (before + 1, written));
    // A server whose program it cannot write leaves the box alone.
    let added = json!({ "name": "three", "command": FIXTURE });
    gateway.add_server(serde_json::from_value(added).unwrap()).await.unwrap();
    call().await.unwrap();
    assert_eq!(started(), before + 1);
    gateway.close().await;
}

/// The command line approves a server in a process of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_ends_when_another_process_approves_a_server_whose_program_it_could_write() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    put(&workspace.join("later/server.mjs"), "");
    put(&workspace.join("later/package.json"), "{}");
    let open = || with_script(&test_folder, "echo x 2> errors >> later/server.mjs", &json!({}), |_| {});
    let gateway = open();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    let stop = Stop::new();
    let call = || gateway.call_tool("one", "pid", Map::new(), CallOptions::default(), &stop);
    call().await.unwrap();
    let read = |name: &str| fs::read_to_string(workspace.join(name)).unwrap();
    let started = || read("data/log").matches("\"spawn\"").count();
    let written = read("later/server.mjs");
    assert!(!written.is_empty());
    let added = json!({ "name": "two", "command": "node", "args": [workspace.join("later/server.mjs")] });
    gateway.add_server(serde_json::from_value(added).unwrap()).await.unwrap();
    // This empties the log.
    let other = open();
    call().await.unwrap();
    assert_eq!(started(), 0, "a proposal that nobody has approved ends nothing");
    let request = request_of(&other, "two").await;
    other.approve("two", Some(&request.digest), None).await.unwrap();
    other.close().await;
    // Nothing is called in the meantime.
    let state = || gateway.server_info("one").unwrap().status.state;
    until("the end of the box", || (state() != ServerState::Connected).then_some(())).await;
    call().await.unwrap();
    assert_eq!((started(), read("later/server.mjs")), (1, written), "the next box cannot write it");
    gateway.close().await;
}

/// A program that is found by its name decides which folders its box has. A server that may write a folder of `PATH` does not choose them.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_may_write_a_folder_of_the_search_path_does_not_choose_its_next_folders() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    for is_inherited in [true, false] {
        let tools = test_folder.path("tools/bin");
        put_program(&tools.join("mytool"), &format!("#!/bin/sh\nexec {FIXTURE}\n"));
        put(&test_folder.path("private/package.json"), "{}");
        put_program(&test_folder.path("private/job"), &format!("#!/bin/sh\nexec {FIXTURE}\n"));
        let _ = fs::remove_file(data.join("bin/mytool"));
        fs::create_dir_all(data.join("bin")).unwrap();
        let path = format!("{}:{}:/usr/bin:/bin", data.join("bin").display(), tools.display());
        let folder = std::path::Path::new(FIXTURE).parent().unwrap();
        let mut entry = json!({ "command": "mytool", "box": { "write": [data], "read": [folder] }, "confirm": "never" });
        let mut options = options(&test_folder, &Json::Null);
        options.state_dir = Some(test_folder.path(if is_inherited { "state-a" } else { "state-b" }));
        options.workspace_folder = Some(test_folder.path("elsewhere"));
        fs::create_dir_all(test_folder.path("elsewhere")).unwrap();
        if is_inherited {
            options.environment.insert("PATH".to_owned(), path);
        } else {
            entry["env"] = json!({ "PATH": path });
        }
        options.config = Some(json!({ "mcpServers": { "one": entry } }));
        let gateway = Gateway::open(options).unwrap();
        gateway.approve("one", None, None).await.unwrap();
        gateway.enable("one").unwrap();
        let stop = Stop::new();
        let call = || gateway.call_tool("one", "pid", Map::new(), CallOptions::default(), &stop);
        call().await.unwrap();
        // What the server could do itself.
        symlink(test_folder.path("private/job"), data.join("bin/mytool")).unwrap();
        gateway.disable("one").await.unwrap();
        gateway.enable("one").unwrap();
        let error = call().await.unwrap_err();
        // A link that the box may write leads to the program.
        assert!(matches!(error.code(), "ERR_NOT_APPROVED" | "ERR_BOX_FAILED"), "{}", told(&error));
        fs::remove_file(data.join("bin/mytool")).unwrap();
        put_program(&data.join("bin/mytool"), &format!("#!/bin/sh\nexec {FIXTURE}\n"));
        let error = call().await.unwrap_err();
        assert!(error.code() == "ERR_NOT_APPROVED" && told(&error).contains("other folders"), "{}", told(&error));
        gateway.close().await;
    }
}

/// The config of a host in a project is read-only in boxes, but the gateway's own config is covered, whichever path leads to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_found_by_a_link_is_the_gateways_own_and_not_a_hosts() {
    let test_folder = TestFolder::new();
    let workspace = test_folder.path("ws");
    put(&workspace.join("log"), "");
    let server =
        json!({ "command": FIXTURE, "args": ["--log", workspace.join("log")], "box": { "write": [workspace] }, "confirm": "never" });
    put(&workspace.join(".mcp.json"), &json!({ "mcpServers": { "one": server } }).to_string());
    symlink(&workspace, test_folder.path("link")).unwrap();
    let gateway = Gateway::open(GatewayOptions {
        config: None,
        config_path: Some(test_folder.path("link/.mcp.json")),
        workspace_folder: Some(workspace),
        ..options(&test_folder, &json!({}))
    });
    let gateway = gateway.unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.close().await;
}
