//! Tests of what entries name that are not in force: entries with errors, entries that are gone, and proposals that nobody has decided about.

use std::time::Duration;

use super::*;

/// Opens a gateway whose server `one` has the workspace and runs a script first, beside other entries.
fn beside(test_folder: &TestFolder, script: &str, others: &Json) -> Gateway {
    open_config(test_folder, &config_beside(test_folder, script, others))
}

fn open_config(test_folder: &TestFolder, config: &str) -> Gateway {
    let workspace = test_folder.path("ws");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(test_folder.path("log-one"), "").unwrap();
    fs::write(test_folder.path("mcp.json"), config).unwrap();
    let mut options = options(test_folder, &Json::Null);
    (options.config, options.config_path) = (None, Some(test_folder.path("mcp.json")));
    options.workspace_folder = Some(workspace);
    Gateway::open(options).unwrap()
}

fn config_beside(test_folder: &TestFolder, script: &str, others: &Json) -> String {
    let one = json!({ "command": "/bin/sh", "args": ["-c", format!("{script}exec \"$0\" --log \"$1\""), FIXTURE, test_folder.path("log-one"), "."] });
    let mut servers = json!({ "one": one });
    servers.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    json!({ "mcpServers": servers }).to_string()
}

const SCRIPT: &str = "(cat .env; echo evil > .env; mv -f out .env) > out 2> errors; (echo evil > other.mjs) 2>> errors; echo ran > ran; ";

/// Starts server `one`, and checks that it neither read nor changed the files of the other entry.
async fn keeps_the_files(test_folder: &TestFolder, gateway: &Gateway) {
    gateway.approve("one", None, None).await.unwrap();
    let read = |name: &str| fs::read_to_string(test_folder.path("ws").join(name)).unwrap();
    assert_eq!([read("out"), read("ran")], ["", "ran\n"], "{}", read("errors"));
    assert_eq!([read(".env"), read("other.mjs")], ["TOKEN=of-another-server\n", "good"]);
}

fn write_files(test_folder: &TestFolder) {
    fs::create_dir_all(test_folder.path("ws")).unwrap();
    fs::write(test_folder.path("ws/.env"), "TOKEN=of-another-server\n").unwrap();
    fs::write(test_folder.path("ws/other.mjs"), "good").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_an_entry_with_errors_are_kept_out_of_boxes() {
    let test_folder = TestFolder::new();
    write_files(&test_folder);
    let two = json!({ "command": "node", "args": ["${workspaceFolder}/other.mjs"], "envFile": ".env", "timeoutMs": "soon" });
    let gateway = beside(&test_folder, SCRIPT, &json!({ "two": two }));
    keeps_the_files(&test_folder, &gateway).await;
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_an_entry_that_is_gone_are_kept_out_of_boxes_while_the_gateway_is_open() {
    let test_folder = TestFolder::new();
    write_files(&test_folder);
    let two = json!({ "command": "node", "args": ["${workspaceFolder}/other.mjs"], "envFile": ".env" });
    let gateway = beside(&test_folder, SCRIPT, &json!({ "two": two }));
    fs::write(test_folder.path("mcp.json"), config_beside(&test_folder, SCRIPT, &json!({}))).unwrap();
    assert_eq!(gateway.reload().await.unwrap().removed, ["two"]);
    keeps_the_files(&test_folder, &gateway).await;
    gateway.close().await;
}

/// Nothing is called in the meantime.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_when_its_approval_expires() {
    let test_folder = TestFolder::new();
    let gateway = open(&test_folder, &entry(&test_folder, &json!("off")));
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(test_folder.servers_running().len(), 1);
    // It may expire before its second stage is given.
    let _ = gateway.approve("one", None, Some(Duration::from_secs(2))).await;
    until("the end of the server", || test_folder.servers_running().is_empty().then_some(())).await;
    assert!(!gateway.servers().unwrap()[0].approved);
    gateway.close().await;
}

/// The folders of proposals are not even opened: an agent decides how many there are, and how large they are.
#[tokio::test(flavor = "multi_thread")]
async fn opening_a_gateway_looks_into_no_folder_of_a_proposal() {
    use rustix::fs::inotify;
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("large")).unwrap();
    let configured = || {
        let mut options = options(&test_folder, &Json::Null);
        options.config = Some(json!({ "mcpServers": {} }));
        options
    };
    let gateway = Gateway::open(configured()).unwrap();
    // Its words are in one line, as in a request.
    let folders = ["large", "large/a\u{202e}b"].map(|name| test_folder.path(name));
    let proposed = json!({ "name": "Files", "command": FIXTURE, "args": folders });
    gateway.add_server(serde_json::from_value(proposed).unwrap()).await.unwrap();
    gateway.close().await;
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, test_folder.path("large"), inotify::WatchFlags::OPEN).unwrap();
    let looked = || {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        inotify::Reader::new(&watch, &mut buffer).next().is_ok()
    };
    let events: Arc<Mutex<Vec<Json>>> = Arc::default();
    let heard = Arc::clone(&events);
    let listener = Arc::new(move |event| heard.lock().unwrap().push(event));
    let gateway = Gateway::open(GatewayOptions { on_event: Some(listener), ..configured() }).unwrap();
    assert!(!looked(), "the folder was opened");
    let told = events.lock().unwrap().iter().find(|event| event["type"] == "server-proposed").cloned().unwrap();
    let request = gateway.approval_request("files").await.unwrap();
    assert_eq!(told["request"]["digest"], request.digest(), "what was told can be approved");
    let sentences = told["request"]["box"]["allows"].to_string();
    assert!(sentences.contains(r"a\\u{202e}b"), "{sentences}");
    assert!(looked(), "a request looks at the folder");
    gateway.close().await;
}

/// Another branch of a repository can be checked out, and the first one come back: then the entry has its approval still.
#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_an_approved_entry_that_is_gone_are_kept_out_of_boxes_after_a_restart() {
    let test_folder = TestFolder::new();
    write_files(&test_folder);
    // The entry is approved with its program. `true` ends at once, so only its command can be approved.
    let two = json!({ "command": "true", "args": ["${workspaceFolder}/other.mjs"], "envFile": ".env", "box": "off" });
    let gateway = beside(&test_folder, SCRIPT, &json!({ "two": two }));
    let request = gateway.approval_request("two").await.unwrap();
    gateway.approve("two", Some(request.digest()), None).await.unwrap();
    gateway.close().await;
    let gateway = beside(&test_folder, SCRIPT, &json!({}));
    keeps_the_files(&test_folder, &gateway).await;
    // Without the file, no box may make it, and the reason tells whose approval is the cause.
    fs::remove_file(test_folder.path("ws/.env")).unwrap();
    gateway.revoke("one").await.unwrap();
    let error = told(&gateway.approve("one", None, None).await.unwrap_err());
    let owner = "the envFile of the server \"two\", which is approved and has no entry now, does not exist";
    assert!(error.contains(owner) && error.contains("or revoke the approval of the server \"two\""), "{error}");
    // An approval that is revoked keeps nothing.
    gateway.close().await;
    let gateway = beside(&test_folder, SCRIPT, &json!({ "two": two }));
    gateway.revoke("two").await.unwrap();
    gateway.close().await;
    let gateway = beside(&test_folder, SCRIPT, &json!({}));
    gateway.approve("one", None, None).await.unwrap();
    assert_eq!(fs::read_to_string(test_folder.path("ws/other.mjs")).unwrap(), "evil\n");
    gateway.close().await;
}

/// The end of its input tells a server that it must end, and it would use the time. `close` gives it this time.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_server_in_a_box_does_nothing_more() {
    for (is_revoked, expected) in [(true, ""), (false, "after\n")] {
        let test_folder = TestFolder::new();
        let files = |name: &str| test_folder.path("ws").join(name);
        fs::create_dir_all(files("")).unwrap();
        fs::write(test_folder.path("log-one"), "").unwrap();
        fs::write(files("done"), "").unwrap();
        let script = "\"$0\" --log \"$1\"; echo after > done";
        let one = json!({ "command": "/bin/sh", "args": ["-c", script, FIXTURE, test_folder.path("log-one"), "."] });
        let gateway = Gateway::open(GatewayOptions { workspace_folder: Some(files("")), ..options(&test_folder, &one) }).unwrap();
        gateway.approve("one", None, None).await.unwrap();
        if is_revoked {
            gateway.revoke("one").await.unwrap();
        }
        gateway.close().await;
        assert_eq!(fs::read_to_string(files("done")).unwrap(), expected, "revoked: {is_revoked}");
    }
}

/// An entry can have any shape before its author has corrected it.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_entry_names_that_cannot_be_used_now_is_read_only_in_boxes() {
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("ws")).unwrap();
    let others = json!({
        // Valid entries, but a variable is not set.
        "s0": { "command": "node", "args": ["-e", "0"], "env": { "NODE_OPTIONS": "--import=${workspaceFolder}/s0.mjs", "TOKEN": "${NOT_SET_HERE}" } },
        "s1": { "command": "node", "args": ["${workspaceFolder}/s1.mjs"], "env": { "TOKEN": "${NOT_SET_HERE}" } },
        // Entries with errors.
        "s2": { "command": "node", "args": ["${workspaceFolder}/s2.mjs", "${NOT_SET_HERE}"] },
        "s3": { "command": "node", "args": ["-e", "0"], "timeoutMs": "?", "box": { "env": { "NODE_OPTIONS": "--import=${workspaceFolder}/s3.mjs" } } },
        "s4": { "command": ["node", "${workspaceFolder}/s4.mjs"] },
        "s5": { "command": "node", "args": "${workspaceFolder}/s5.mjs" },
        "s6": { "args": ["${workspaceFolder}/s6.mjs"] },
        "s7": { "command": "node", "args": ["s7.mjs", "${NOT_SET_HERE}"], "cwd": "${workspaceFolder}" },
        "s8": { "command": "node", "timeoutMs": "?", "arguments": { "script": "${workspaceFolder}/s8.mjs" } },
        // A placeholder that is not known hides nothing beside it.
        "t0": { "command": "node", "args": ["--import=${workspaceFolder}/t0.mjs ${command:pick}"] },
        "t1": { "command": "sh", "args": ["-c", "exec node ${workspaceFolder}/t1.mjs ${file}"] },
        "t2": { "command": "node", "args": ["-e", "0"], "env": { "NODE_OPTIONS": "--import=${workspaceFolder}/t2.mjs ${selectedText}" } },
        "t3": { "command": "${workspaceFolder}/t3.mjs ${file}" },
        // Other shapes.
        "u0": { "command": "node", "args": ["-e", "0"], "env": ["NODE_OPTIONS=--import=${workspaceFolder}/u0.mjs"] },
        "u1": { "command": "node", "args": ["-e", "0"], "env": { "NODE_OPTIONS": ["--import=${workspaceFolder}/u1.mjs"] } },
        "u2": { "command": "node ${workspaceFolder}/u2.mjs", "timeoutMs": "?" },
        "u3": "node ${workspaceFolder}/u3.mjs",
        "u4": ["node", "${workspaceFolder}/u4.mjs"],
        "u5": { "command": "node", "args": ["u5.mjs"], "cwd": ["${workspaceFolder}"] },
    });
    let files: Vec<String> = others.as_object().unwrap().keys().map(|name| format!("{name}.mjs")).collect();
    for file in &files {
        fs::write(test_folder.path("ws").join(file), "good").unwrap();
    }
    let script = format!("for file in {}; do (echo evil > $file) 2>> errors; done; echo ran > ran; ", files.join(" "));
    let gateway = beside(&test_folder, &script, &others);
    gateway.approve("one", None, None).await.unwrap();
    let read = |name: &str| fs::read_to_string(test_folder.path("ws").join(name)).unwrap();
    let changed: Vec<&String> = files.iter().filter(|file| read(file) != "good").collect();
    assert!(read("ran") == "ran\n" && changed.is_empty(), "{changed:?} {}", read("errors"));
    gateway.close().await;
}

/// A box must not have the variables of other servers, however the entry names their file.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_variables_that_an_entry_with_errors_names_is_not_in_boxes() {
    let test_folder = TestFolder::new();
    let others = json!({
        "e0": { "command": "node", "envFile": ["${workspaceFolder}/e0.env"] },
        "e1": { "command": "node", "envFile": "${workspaceFolder}/e1.env${command:pick}" },
        // Nobody knows which file this is. It must not keep the box from starting.
        "e2": { "command": "node", "envFile": "${workspaceFolder}/${command:pick}" },
        "e3": { "command": "node", "envFile": "${workspaceFolder}/missing${command:pick}" },
    });
    fs::create_dir_all(test_folder.path("ws")).unwrap();
    let files = ["e0.env", "e1.env"].map(|name| test_folder.path("ws").join(name));
    for file in &files {
        fs::write(file, "TOKEN=of-another-server\n").unwrap();
    }
    let script = "(cat e0.env e1.env; for file in e0.env e1.env; do echo evil > $file; done) > out 2> errors; echo ran > ran; ";
    let gateway = beside(&test_folder, script, &others);
    gateway.approve("one", None, None).await.unwrap();
    let read = |name: &str| fs::read_to_string(test_folder.path("ws").join(name)).unwrap();
    assert_eq!([read("out"), read("ran")], ["", "ran\n"], "{}", read("errors"));
    assert!(files.iter().all(|file| fs::read_to_string(file).unwrap() == "TOKEN=of-another-server\n"));
    gateway.close().await;
}

/// The default of an input is what a server runs if nobody answers, whether its entry can be used or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_default_of_an_input_names_is_read_only_in_boxes() {
    let test_folder = TestFolder::new();
    fs::create_dir_all(test_folder.path("ws")).unwrap();
    let others = json!({
        "d0": { "command": "node", "args": ["-e", "0"], "env": { "NODE_OPTIONS": "--import=${input:d0}" }, "box": "off" },
        "d1": { "command": "node", "args": ["-e", "0"], "env": { "NODE_OPTIONS": "--import=${input:d1}", "TOKEN": "${NOT_SET_HERE}" } },
        "d2": { "command": "node", "args": ["-e", "0"], "env": { "NODE_OPTIONS": "--import=${input:d2}" }, "timeoutMs": "?" },
        "d3": { "command": "node", "args": ["${input:d3}"] },
    });
    let names: Vec<String> = others.as_object().unwrap().keys().cloned().collect();
    let file = |name: &str| test_folder.path("ws").join(format!("{name}.mjs"));
    for name in &names {
        fs::write(file(name), "good").unwrap();
    }
    let input = |name: &String| json!({ "type": "promptString", "id": name, "default": file(name) });
    let script = "for file in *.mjs; do (echo evil > $file) 2>> errors; done; echo ran > ran; ";
    let mut config: Json = serde_json::from_str(&config_beside(&test_folder, script, &others)).unwrap();
    config["inputs"] = names.iter().map(input).collect();
    let gateway = open_config(&test_folder, &config.to_string());
    gateway.approve("one", None, None).await.unwrap();
    let changed: Vec<&String> = names.iter().filter(|name| fs::read_to_string(file(name)).unwrap() != "good").collect();
    assert_eq!(fs::read_to_string(test_folder.path("ws/ran")).unwrap(), "ran\n");
    assert!(changed.is_empty(), "{changed:?}");
    gateway.close().await;
}
