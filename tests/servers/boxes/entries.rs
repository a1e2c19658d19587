//! Tests of what entries name that are not in force: entries with errors, entries that are gone, and proposals that nobody has decided about.

use std::time::Duration;

use super::*;

/// Opens a gateway whose server `one` has the workspace and runs a script first, beside other entries.
fn beside(test_folder: &TestFolder, script: &str, others: &Json) -> Gateway {
    let workspace = test_folder.path("ws");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(test_folder.path("log-one"), "").unwrap();
    fs::write(test_folder.path("mcp.json"), config_beside(test_folder, script, others)).unwrap();
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
    let proposed = json!({ "name": "Files", "command": FIXTURE, "args": [test_folder.path("large")] });
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
    assert!(looked(), "a request looks at the folder");
    gateway.close().await;
}
