//! Tests of the file that a command starts: it is the one that was shown and compared, it gets the name of the command, and no other file
//! is started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use hyperlight_mcp::bridge::{ToolErrors, ToolQuery};
use hyperlight_mcp::trust::ApprovalRequest;
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Value as Json, json};

use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, patience, told, within, write_script};

fn open(test_folder: &TestFolder, server: &Json) -> Gateway {
    open_with(test_folder, &json!({ "one": server }))
}

fn open_with(test_folder: &TestFolder, servers: &Json) -> Gateway {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": servers }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    if emulated() {
        options.limits.connect_timeout_ms = Some(80_000);
    }
    Gateway::open(options).unwrap()
}

/// Returns a script that writes its own name to the file `told`, and then serves.
fn server_script(test_folder: &TestFolder) -> String {
    let (told, log) = (test_folder.path("told"), test_folder.path("log-one"));
    format!("echo $0 >> {}; exec {FIXTURE} --log {}", told.display(), log.display())
}

fn told_names(test_folder: &TestFolder) -> String {
    fs::read_to_string(test_folder.path("told")).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_the_system_cannot_start_gives_way_to_no_other_of_its_name() {
    let test_folder = TestFolder::new();
    for folder in ["first", "second"] {
        fs::create_dir(test_folder.path(folder)).unwrap();
    }
    let (first, second) = (test_folder.path("first/tool"), test_folder.path("second/tool"));
    write_script(&first, "");
    write_script(&second, &server_script(&test_folder));
    let path = format!("{}:{}:/bin:/usr/bin", test_folder.path("first").display(), test_folder.path("second").display());
    let gateway = open(&test_folder, &json!({ "command": "tool", "box": "off", "env": { "PATH": path }, "pinExecutable": true }));
    // If the interpreter does not exist or none is given, the next program with this name is not started.
    for (text, advice) in [("#!/no/such/interpreter\n", "interpreter that a script names"), ("\u{0}\u{1}", "in its first line")] {
        fs::write(&first, text).unwrap();
        let ApprovalRequest::Command(request) = gateway.approval_request("one").await.unwrap() else { panic!("stage manifest") };
        assert_eq!(request.executable.unwrap().path, first.canonicalize().unwrap());
        let error = gateway.approve("one", None, None).await.unwrap_err();
        assert!(error.code() == "ERR_SPAWN_FAILED" && told(&error).contains(advice), "{}", told(&error));
        assert_eq!(told_names(&test_folder), "");
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_this_user_may_not_start_is_passed_over() {
    let test_folder = TestFolder::new();
    for folder in ["first", "second"] {
        fs::create_dir(test_folder.path(folder)).unwrap();
    }
    fs::write(test_folder.path("first/tool"), "#!/bin/sh\n").unwrap();
    write_script(&test_folder.path("second/tool"), &server_script(&test_folder));
    let path = format!("{}:{}:/bin:/usr/bin", test_folder.path("first").display(), test_folder.path("second").display());
    let gateway = open(&test_folder, &json!({ "command": "tool", "box": "off", "env": { "PATH": path } }));
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(told_names(&test_folder).trim(), test_folder.path("second/tool").display().to_string());
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_no_tool_of_a_pinned_program_that_was_swapped() {
    let test_folder = TestFolder::new();
    let pinned = |name: &str| json!({ "command": test_folder.path(name), "box": "off", "pinExecutable": true });
    let write = |name: &str, comment: &str| {
        let log = test_folder.path(&format!("log-{name}"));
        write_script(&test_folder.path(name), &format!("exec {FIXTURE} --log {} # {comment}", log.display()));
    };
    write("one", "ours");
    write("two", "ours");
    let gateway = open_with(&test_folder, &json!({ "one": pinned("one"), "two": pinned("two") }));
    for server in ["one", "two"] {
        gateway.approve(server, None, None).await.unwrap();
        gateway.enable(server).unwrap();
    }
    let query = ToolQuery { query: "echo text".to_owned(), ..ToolQuery::default() };
    let found = || -> BTreeSet<String> {
        gateway.search_tools(&query, ToolErrors::Return).unwrap().into_iter().map(|found| found.server).collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found(), names(&["one", "two"]));
    write("one", "somebody else's");
    assert_eq!(found(), names(&["two"]), "the file is read before the tool is shown");
    write("one", "ours");
    // The search reads again in the background what it has not shown.
    let found_again = async {
        while found() != names(&["one", "two"]) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(patience(), "the tool of the program that was put back", found_again).await;
    gateway.close().await;
}

/// A program with several functions selects one by its own name, and a script looks for files beside its own path.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_the_name_of_its_command_and_a_script_its_path() {
    let test_folder = TestFolder::new();
    fs::create_dir(test_folder.path("bin")).unwrap();
    let path = format!("{}:/bin:/usr/bin", test_folder.path("bin").display());
    // This is a link to another program, under another name.
    symlink("/bin/sh", test_folder.path("bin/many")).unwrap();
    write_script(&test_folder.path("script"), &server_script(&test_folder));
    symlink(test_folder.path("script"), test_folder.path("bin/linked")).unwrap();
    let linked = test_folder.path("bin/linked").display().to_string();
    let cases = [
        (json!("many"), json!(["-c", server_script(&test_folder)]), "many".to_owned()),
        (json!("./bin/many"), json!(["-c", server_script(&test_folder)]), "./bin/many".to_owned()),
        (json!("linked"), json!([]), linked.clone()),
        (json!(linked), json!([]), linked),
    ];
    for (command, arguments, name) in cases {
        let _ = fs::remove_file(test_folder.path("told"));
        let server = json!({ "command": command, "box": "off", "args": arguments, "env": { "PATH": path }, "pinExecutable": true });
        let gateway = open(&test_folder, &server);
        gateway.approve("one", None, None).await.unwrap();
        gateway.close().await;
        assert_eq!(told_names(&test_folder).trim(), name);
    }
}
