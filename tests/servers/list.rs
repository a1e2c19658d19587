//! The list of servers that is made of texts prepared in the background is the list that is computed now, after each kind of change of a server
//! that was never connected to. `added_states` checks the same with connections.

use std::fs;
use std::time::Duration;

use hyperlight_mcp::gateway::{ApprovalRead, EnableAtOpen};
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Value as Json, json};

use crate::support::{FIXTURE, TestFolder, guest_choice, patience, within};

const NAMES: [&str; 3] = ["a", "b", "c"];
const HOUR: Duration = Duration::from_hours(1);

/// Writes a config with three servers and a variant of each. `more` are further keys of the entry of `b`.
fn write_config(test_folder: &TestFolder, more: &Json) {
    let entry = |name: &str| {
        let mut entry = json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(name, &[]), "envFile": "variables", "pinValues": true });
        if name == "b" {
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        (name.to_owned(), entry)
    };
    let servers: serde_json::Map<_, _> = NAMES.into_iter().map(entry).collect();
    let profiles = json!({ "north": { "servers": { "a": { "env": { "PLACE": "north" } } } } });
    fs::write(test_folder.path("config.json"), json!({ "mcpServers": servers, "profiles": profiles }).to_string()).unwrap();
}

fn open(test_folder: &TestFolder, enable: EnableAtOpen) -> Gateway {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config_path = Some(test_folder.path("config.json"));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.enable = enable;
    options.guest = guest_choice();
    Gateway::open(options).unwrap()
}

fn listed(gateway: &Gateway) -> Json {
    serde_json::from_str(&gateway.servers_as_json().unwrap()).unwrap()
}

/// Checks the list of the texts from before a change, and the list of new texts. Returns it.
fn check(gateway: &Gateway, change: &str) -> Json {
    let computed = json!(gateway.servers_by(ApprovalRead::Cached).unwrap());
    assert_eq!(listed(gateway), computed, "after: {change}");
    gateway.prepare_servers();
    let computed = json!(gateway.servers_by(ApprovalRead::Cached).unwrap());
    assert_eq!(listed(gateway), computed, "prepared after: {change}");
    computed
}

/// Returns the status of a server in a list.
fn of<'l>(list: &'l Json, name: &str) -> &'l Json {
    list.as_array().unwrap().iter().find(|status| status["name"] == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prepared_list_follows_each_change_of_a_server() {
    let test_folder = TestFolder::new();
    fs::write(test_folder.path("variables"), "LEVEL=1\n").unwrap();
    write_config(&test_folder, &json!({}));
    let before = open(&test_folder, EnableAtOpen::None);
    within(patience(), "an approval", before.approve("a", None, None)).await.unwrap();
    within(patience(), "an approval", before.approve("b", None, None)).await.unwrap();
    before.close().await;

    let gateway = open(&test_folder, EnableAtOpen::Approved);
    let opened = check(&gateway, "opening");
    assert_eq!(["a", "b", "c"].map(|name| of(&opened, name)["enabled"].as_bool().unwrap()), [true, true, false]);
    gateway.disable("b").await.unwrap();
    assert_eq!(of(&check(&gateway, "disabling"), "b")["disabledByPerson"], true);
    gateway.enable("b").unwrap();
    assert_eq!(of(&check(&gateway, "enabling"), "b")["enabled"], true);
    gateway.disable("a").await.unwrap();
    assert_eq!(of(&check(&gateway, "disabling a server with variants"), "a@north")["enabled"], false);
    gateway.enable("a").unwrap();
    check(&gateway, "enabling a server with variants");
    gateway.revoke("b").await.unwrap();
    assert_eq!(of(&check(&gateway, "revoking"), "b")["approved"], false);
    write_config(&test_folder, &json!({ "disabled": true }));
    gateway.reload().await.unwrap();
    assert_eq!(of(&check(&gateway, "a change of the config"), "b")["state"], "disabled");
    write_config(&test_folder, &json!({ "command": 1 }));
    gateway.reload().await.unwrap();
    assert_eq!(of(&check(&gateway, "an error in the config"), "b")["state"], "invalid");
    write_config(&test_folder, &json!({}));
    gateway.reload().await.unwrap();
    check(&gateway, "the config as it was");
    fs::write(test_folder.path("variables"), "LEVEL=2\n").unwrap();
    gateway.prepare_servers();
    assert_eq!(of(&check(&gateway, "a change of pinned values"), "a")["approved"], false);
    fs::write(test_folder.path("variables"), "LEVEL=1\n").unwrap();
    gateway.prepare_servers();
    assert_eq!(of(&check(&gateway, "the pinned values as they were"), "a")["approved"], true);
    gateway.close().await;
    assert_eq!(listed(&gateway), json!(gateway.servers_by(ApprovalRead::Cached).unwrap()), "after the end of the gateway");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prepared_list_follows_another_gateway_and_the_failures_of_a_server() {
    let test_folder = TestFolder::new();
    fs::write(test_folder.path("variables"), "LEVEL=1\n").unwrap();
    write_config(&test_folder, &json!({}));
    let (gateway, other) = (open(&test_folder, EnableAtOpen::None), open(&test_folder, EnableAtOpen::None));
    within(patience(), "an approval", other.approve("b", None, Some(HOUR))).await.unwrap();
    gateway.prepare_servers();
    assert_eq!(of(&check(&gateway, "an approval by another gateway"), "b")["state"], "idle");
    other.revoke("b").await.unwrap();
    gateway.prepare_servers();
    assert_eq!(of(&check(&gateway, "a revocation by another gateway"), "b")["state"], "unapproved");
    write_config(&test_folder, &json!({ "command": "/absent/program" }));
    gateway.reload().await.unwrap();
    check(&gateway, "a change of the program");
    gateway.approve("b", None, None).await.unwrap_err();
    check(&gateway, "a failed start");
    for gateway in [gateway, other] {
        gateway.close().await;
    }
}
