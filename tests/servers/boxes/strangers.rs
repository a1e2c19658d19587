//! Tests of entries that are not the user's own, such as those of a project: they take nothing away from boxes until a person approves them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use hyperlight_mcp::Gateway;
use serde_json::json;

use super::changes::{data_of, put, put_program, request_of};
use super::same_name::{read, scripted, with_config};
use crate::support::{TestFolder, told, until};

const FILES: [&str; 3] = ["state.db", "app/server.mjs", "x.env"];

/// Returns the contents of the files after the script of the server `one` has run once more.
async fn written(gateway: &Gateway, data: &Path) -> [String; 3] {
    for name in FILES {
        put(&data.join(name), "good\n");
    }
    gateway.approval_request("one").await.unwrap();
    until("the end of the script", || data.join("ran").exists().then_some(())).await;
    fs::remove_file(data.join("ran")).unwrap();
    FILES.map(|name| read(data.join(name)))
}

/// Anybody can commit such entries to a repository. They name the files of an approved server, and programs of the system.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_the_project_takes_nothing_away_from_a_box_until_it_is_approved() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    for name in FILES {
        put(&data.join(name), "good\n");
    }
    put_program(&data.join("state.db"), "good\n");
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let entries = json!({
        "program": { "command": data.join("state.db"), "box": "off" },
        "script": { "command": "node", "args": [data.join("app/server.mjs")], "box": "off" },
        "variables": { "command": "true", "envFile": data.join("x.env"), "box": "off" },
        "system": { "command": "true", "envFile": shell },
    });
    put(&test_folder.path("elsewhere/.mcp.json"), &json!({ "mcpServers": entries }).to_string());
    fs::create_dir_all(test_folder.path("elsewhere/.vscode")).unwrap();
    symlink(&shell, test_folder.path("elsewhere/.vscode/mcp.json")).unwrap();
    fs::create_dir_all(test_folder.path("elsewhere/.cursor")).unwrap();
    symlink(data.join("state.db"), test_folder.path("elsewhere/.cursor/mcp.json")).unwrap();
    // The user's own entry names a file of the project, where the project has a link.
    symlink(&shell, test_folder.path("elsewhere/.env")).unwrap();
    let own = json!({ "command": "true", "envFile": test_folder.path("elsewhere/.env"), "box": "off" });
    let script = format!("cd {}; for file in {}; do echo evil > $file; done 2> errors; echo ran > ran", data.display(), FILES.join(" "));
    let one = scripted(&test_folder, &script, &[&data]);
    let gateway =
        with_config(&test_folder, &json!({ "base": ["claude-code", "vscode", "cursor"], "mcpServers": { "one": one, "own": own } }));
    let said = request_of(&gateway, "one").await.in_box.unwrap().allows;
    for (file, server) in [("state.db", "program"), ("app/server.mjs", "script")] {
        let expected = format!("can change {}/{file}, and so can change what the server \"{server}\" runs", data.display());
        assert!(said.contains(&expected), "{expected}: {said:#?}");
    }
    let expected = format!("can change {}/x.env, which the server \"variables\" uses", data.display());
    assert!(said.contains(&expected), "{expected}: {said:#?}");
    gateway.approve("one", None, None).await.unwrap();
    until("the end of the script", || data.join("ran").exists().then_some(())).await;
    assert_eq!(FILES.map(|name| read(data.join(name))), ["evil\n", "evil\n", "evil\n"]);
    fs::remove_file(data.join("ran")).unwrap();
    for (approved, expected) in [("script", ["evil\n", "good\n", "evil\n"]), ("variables", ["evil\n", "good\n", "good\n"])] {
        let request = request_of(&gateway, approved).await;
        let said = &request.changeable_by;
        assert!(said.iter().any(|said| said.starts_with("the server \"one\" may ")), "{approved}: {said:#?}");
        // The box that could write the program or the variables ends.
        gateway.approve(approved, Some(&request.digest), None).await.unwrap();
        until("the end of the box", || test_folder.servers_running().is_empty().then_some(())).await;
        assert_eq!(written(&gateway, &data).await, expected, "{approved}");
    }
    let request = request_of(&gateway, "own").await;
    gateway.approve("own", Some(&request.digest), None).await.unwrap();
    let error = gateway.approval_request("own").await.map(drop).unwrap_err();
    assert!(error.code() == "ERR_CONFIG_INVALID" && told(&error).contains("leads out of the project by a link"), "{}", told(&error));
    gateway.close().await;
}

/// The box can have made the other name while the program was not protected yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_may_write_another_name_of_a_program_ends_when_the_program_is_approved() {
    let test_folder = TestFolder::new();
    let data = data_of(&test_folder);
    let side = test_folder.path("side");
    put(&data.join("b.mjs"), "");
    put(&side.join("other"), "");
    let entries = json!({ "b": { "command": "node", "args": [data.join("b.mjs")], "box": "off" } });
    put(&test_folder.path("elsewhere/.mcp.json"), &json!({ "mcpServers": entries }).to_string());
    let one = scripted(&test_folder, "true", &[&side]);
    let gateway = with_config(&test_folder, &json!({ "base": ["claude-code"], "mcpServers": { "one": one } }));
    gateway.approve("one", None, None).await.unwrap();
    fs::hard_link(data.join("b.mjs"), side.join("h")).unwrap();
    assert!(!test_folder.servers_running().is_empty());
    let request = request_of(&gateway, "b").await;
    gateway.approve("b", Some(&request.digest), None).await.unwrap();
    until("the end of the box", || test_folder.servers_running().is_empty().then_some(())).await;
    let error = gateway.approval_request("one").await.map(drop).unwrap_err();
    assert!(error.code() == "ERR_BOX_FAILED" && told(&error).contains("is another name (a hard link) of"), "{}", told(&error));
    gateway.close().await;
}
