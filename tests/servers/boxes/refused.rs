//! Tests of boxes that cannot be made at the moment of an approval request, and of programs without a digest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use hyperlight_mcp::Gateway;
use serde_json::{Value as Json, json};

use super::changes::{data_of, put, put_program, request_of, with_servers};
use super::{entry, options};
use crate::support::{FIXTURE, TestFolder, told, until};

/// What the server `one` of these tests can change of the server `two`, as both requests say it.
const OF_BOX: &str = "from which the server \"two\" may run code";
const OF_OTHER: &str = "from which this server may run code";

async fn allows(gateway: &Gateway, name: &str) -> Vec<String> {
    request_of(gateway, name).await.in_box.unwrap().allows
}

async fn both_requests_say_it(gateway: &Gateway) {
    let said = allows(gateway, "one").await;
    assert!(said.iter().any(|said| said.ends_with(OF_BOX)) && said.iter().any(|said| said.contains("can change .git in ")), "{said:#?}");
    let said = request_of(gateway, "two").await.changeable_by;
    assert!(said.iter().any(|said| said.starts_with("the server \"one\" may write in ") && said.ends_with(OF_OTHER)), "{said:#?}");
}

/// Returns servers of which `one` may write the working folder of `two`.
fn servers(test_folder: &TestFolder, one: &Json) -> Json {
    let data = data_of(test_folder);
    fs::create_dir_all(data.join("project")).unwrap();
    fs::create_dir_all(data.join(".git")).unwrap();
    let mut one = one.clone();
    one["box"] = json!({ "write": [data] });
    json!({ "one": one, "two": { "command": "/bin/sh", "args": ["-c", "true"], "cwd": data.join("project"), "box": "off" } })
}

/// The reason can be gone a moment after the approval. So nothing is approved that was not shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_cannot_be_made_now_is_shown_whole_and_not_approved() {
    let test_folder = TestFolder::new();
    let mut servers = servers(&test_folder, &json!({ "command": FIXTURE }));
    let file = data_of(&test_folder).join(".env");
    servers["three"] = json!({ "command": "/bin/sh", "envFile": file, "box": "off" });
    let gateway = with_servers(&test_folder, &servers);
    approve_command(&gateway, "three").await;
    both_requests_say_it(&gateway).await;
    let request = request_of(&gateway, "one").await;
    let reason = format!("{}, the envFile of the server \"three\", does not exist, and this box could make it", file.display());
    let said = request.in_box.unwrap().allows;
    assert!(said.iter().any(|said| said.starts_with(&format!("this box cannot be made now: {reason}"))), "{said:#?}");
    for digest in [Some(request.digest.as_str()), Some("another"), None] {
        let error = gateway.approve("one", digest, None).await.unwrap_err();
        assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains("this box could make it"), "{}", told(&error));
        assert!(told(&error).contains("Nothing was approved"), "{}", told(&error));
    }
    put(&file, "X=1\n");
    let error = gateway.approve("one", Some(&request.digest), None).await.unwrap_err();
    assert_eq!(error.code(), "ERR_DIGEST_CHANGED", "{}", told(&error));
    both_requests_say_it(&gateway).await;
    let request = request_of(&gateway, "one").await;
    assert!(request.in_box.unwrap().allows.iter().all(|said| !said.contains("cannot be made")));
    gateway.approve("one", Some(&request.digest), None).await.unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.close().await;
}

async fn approve_command(gateway: &Gateway, name: &str) {
    let request = request_of(gateway, name).await;
    gateway.approve(name, Some(&request.digest), None).await.unwrap();
}

/// Anybody can commit such an entry to a config of another program.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_environment_file_is_named_until_its_entry_is_approved_and_then_no_box_can_make_it() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let file = data.join("three.env");
    let servers = json!({
        "one": entry(&test_folder, &json!({ "write": [data] })),
        "three": { "command": "/bin/sh", "envFile": file, "box": "off" },
    });
    let gateway = with_servers(&test_folder, &servers);
    let can_make = format!("can make {}, which the server \"three\" uses", file.display());
    let said = allows(&gateway, "one").await;
    assert!(said.contains(&can_make) && said.iter().all(|said| !said.contains("cannot be made")), "{said:#?}");
    let may_make = format!("the server \"one\" may make {}, which this server uses", file.display());
    let said = request_of(&gateway, "three").await.changeable_by;
    assert!(said.contains(&may_make), "{said:#?}");
    gateway.approve("one", None, None).await.unwrap();
    let is_ended = || test_folder.servers_running().is_empty().then_some(());
    assert!(is_ended().is_none());
    // The box that made the file ends, and the next one hides it.
    put(&file, "X=1\n");
    until("the end of the box that could make the file", is_ended).await;
    gateway.approval_request("one").await.unwrap();
    let said = request_of(&gateway, "three").await.changeable_by;
    assert!(said.iter().all(|said| !said.contains("three.env")), "{said:#?}");
    fs::remove_file(&file).unwrap();
    until("the end of the box whose file is gone", is_ended).await;
    gateway.approval_request("one").await.unwrap();
    assert!(is_ended().is_none());
    approve_command(&gateway, "three").await;
    until("the end of the box that could make an approved file", is_ended).await;
    let error = gateway.approval_request("one").await.map(drop).unwrap_err();
    let reason = "/data/three.env, the envFile of the server \"three\", does not exist, and this box could make it: make it first";
    assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains(reason), "{}", told(&error));
    put(&file, "");
    gateway.approval_request("one").await.unwrap();
    gateway.close().await;
}

/// The file was shown as existing, so nobody has agreed that a box may make it.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_removed_after_its_request_was_shown_is_not_approved() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let script = data.join("two.mjs");
    put(&script, "");
    let servers = json!({
        "one": { "command": FIXTURE, "box": { "write": [data] } },
        "two": { "command": "true", "args": [script], "box": "off" },
    });
    let gateway = with_servers(&test_folder, &servers);
    for name in ["two", "one"] {
        let request = request_of(&gateway, name).await;
        fs::remove_file(&script).unwrap();
        let error = gateway.approve(name, Some(&request.digest), None).await.unwrap_err();
        assert_eq!(error.code(), "ERR_DIGEST_CHANGED", "{name}: {}", told(&error));
        put(&script, "");
        approve_command(&gateway, name).await;
    }
    gateway.close().await;
}

/// A server that is running can make such a socket at any moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_in_a_folder_hides_nothing_of_the_requests() {
    let test_folder = TestFolder::new();
    let gateway = with_servers(&test_folder, &servers(&test_folder, &json!({ "command": FIXTURE })));
    let socket = data_of(&test_folder).join("project/docker.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    both_requests_say_it(&gateway).await;
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains("the socket of Docker is within"), "{}", told(&error));
    fs::remove_file(socket).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.close().await;
}

/// Somebody can install the program after the approval, which then covers no folders that were not shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_missing_hides_nothing_of_the_requests() {
    let test_folder = TestFolder::new();
    let tools = test_folder.path("tools/bin");
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let servers = servers(&test_folder, &json!({ "command": "mytool", "env": { "PATH": path } }));
    let gateway = with_servers(&test_folder, &servers);
    both_requests_say_it(&gateway).await;
    let said = allows(&gateway, "one").await;
    assert!(said.contains(&"its program mytool was not found now, so the folders of the program are not known".to_owned()), "{said:#?}");
    let error = gateway.approve("one", None, None).await.unwrap_err();
    assert_eq!(error.code(), "ERR_SPAWN_FAILED", "{}", told(&error));
    put_program(&tools.join("mytool"), &format!("#!/bin/sh\nexec {FIXTURE}\n"));
    let error = gateway.approve("one", Some("another"), None).await.unwrap_err();
    assert_eq!(error.code(), "ERR_DIGEST_CHANGED", "{}", told(&error));
    // The approval of the command holds no folder of the program, so the request is shown again.
    let request = request_of(&gateway, "one").await;
    assert!(request.in_box.unwrap().allows.iter().any(|said| said.starts_with("its program, runtime and package are in ")));
    gateway.close().await;
}

/// A program that is too large to be read before each start has no digest.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_digest_hides_nothing_of_the_requests() {
    let test_folder = TestFolder::new();
    let program = test_folder.path("tools/large");
    put(&program, "");
    fs::copy(FIXTURE, &program).unwrap();
    fs::File::options().write(true).open(&program).unwrap().set_len(513 << 20).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = with_servers(&test_folder, &servers(&test_folder, &json!({ "command": program })));
    assert!(request_of(&gateway, "one").await.executable.is_none());
    both_requests_say_it(&gateway).await;
    let said = allows(&gateway, "one").await;
    assert!(said.iter().any(|said| said.starts_with("its program, runtime and package are in ")), "{said:#?}");
    gateway.close().await;
}

/// A file of the gateway can lie outside of all given folders, and have another name within one.
#[tokio::test(flavor = "multi_thread")]
async fn an_environment_file_with_another_name_in_a_given_folder_prevents_the_start() {
    let test_folder = TestFolder::new();
    let file = test_folder.path("conf/two.env");
    put(&file, "TOKEN=of-another-server\n");
    fs::hard_link(&file, data_of(&test_folder).join("notes.txt")).unwrap();
    for access in ["read", "write"] {
        let servers = json!({
            "one": { "command": FIXTURE, "box": { access: [data_of(&test_folder)] } },
            "two": { "command": "/bin/sh", "envFile": file, "box": "off" },
        });
        let gateway = with_servers(&test_folder, &servers);
        let error = gateway.approve("one", None, None).await.unwrap_err();
        assert!(
            error.code() == "ERR_BOX_FAILED" && told(&error).contains("/data/notes.txt, which this box would have"),
            "{}",
            told(&error)
        );
        assert_eq!(test_folder.count("one", "spawn"), 0);
        gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_can_never_be_made_is_not_approved() {
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("elsewhere")).unwrap();
    let mut options = options(&test_folder, &Json::Null);
    options.config = Some(json!({ "mcpServers": { "one": { "command": FIXTURE, "box": { "write": [test_folder.path("state")] } } } }));
    options.workspace_folder = Some(test_folder.path("elsewhere"));
    let gateway = Gateway::open(options).unwrap();
    let request = request_of(&gateway, "one").await;
    let error = gateway.approve("one", Some(&request.digest), None).await.unwrap_err();
    assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains("this gateway's own folder"), "{}", told(&error));
    assert!(!request_of(&gateway, "one").await.approved);
    gateway.close().await;
}

/// A clean build removes a program. Neither request has said that the box could make it.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_removed_since_its_approval_can_be_made_by_no_box() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let program = data.join("project/target/server");
    let put_program = || {
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let mut servers = servers(&test_folder, &json!({ "command": FIXTURE }));
    servers["two"] = json!({ "command": program, "box": "off" });
    put_program();
    let gateway = with_servers(&test_folder, &servers);
    gateway.approve("one", None, None).await.unwrap();
    let request = request_of(&gateway, "two").await;
    gateway.approve("two", Some(&request.digest), None).await.unwrap();
    gateway.close().await;
    fs::remove_dir_all(program.parent().unwrap()).unwrap();
    let gateway = with_servers(&test_folder, &servers);
    let error = gateway.approval_request("one").await.map(drop).unwrap_err();
    let said = "/target/server, which the server \"two\" runs, does not exist now, and this box could make it";
    assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains(said), "{}", told(&error));
    put_program();
    gateway.approval_request("one").await.unwrap();
    gateway.close().await;
    // What a request says is allowed.
    fs::remove_dir_all(program.parent().unwrap()).unwrap();
    let gateway = with_servers(&test_folder, &servers);
    gateway.revoke("one").await.unwrap();
    let request = request_of(&gateway, "one").await;
    let can_make = format!("can make {}, which the server \"two\" runs", program.display());
    assert!(request.in_box.unwrap().allows.iter().any(|said| said.starts_with(&can_make)));
    gateway.approve("one", Some(&request.digest), None).await.unwrap();
    gateway.approval_request("one").await.unwrap();
    gateway.close().await;
}
