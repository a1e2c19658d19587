//! The names of servers that agents add reveal nothing about the servers of others, and take no name from them.

use hyperlight_mcp::config::SourceKind;

use super::*;

/// A name that no server has.
const NOBODYS: &str = "nobodys";

fn opened_with(servers: Json, more: impl FnOnce(&mut Json)) -> impl FnOnce(&mut GatewayOptions) {
    move |options| {
        let config = options.config.as_mut().unwrap();
        for (name, entry) in servers.as_object().unwrap() {
            config["mcpServers"][name] = entry.clone();
        }
        more(config);
    }
}

/// Returns all answers that a model gets about a server, from each tool, with the server's name removed.
async fn heard(model: &Model, server: &str) -> Vec<String> {
    let mut heard = Vec::new();
    for action in ["info", "enable", "disable", "test", "propose", "approve"] {
        heard.push(model.calls("manage_mcp", json!({ "action": action, "server": server })).await);
    }
    for change in [json!({ "command": "/tmp/evil" }), json!({ "name": "Other" }), json!({ "url": "https://evil.example/mcp" })] {
        let mut arguments = change;
        arguments["server"] = server.into();
        heard.push(model.calls("update_mcp_server", arguments).await);
    }
    heard.push(model.calls("remove_mcp_server", json!({ "server": server })).await);
    heard.push(model.calls("mcp_server_info", json!({ "server": server })).await);
    heard.into_iter().map(|answer| answer.to_string().replace(server, "NAME")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_hears_of_a_server_that_it_is_not_granted_what_it_hears_of_none() {
    let ours = |test_folder: &TestFolder, name: &str| json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(name, &[]) });
    let test_folder = TestFolder::new();
    let servers = json!({
        "approved": ours(&test_folder, "approved"),
        "payroll": ours(&test_folder, "payroll"),
        "switched-off": { "command": FIXTURE, "box": "off", "disabled": true },
        "wrong": { "command": 5 },
    });
    let grants = |config: &mut Json| {
        config["toolboxes"] = json!({ "granted": ["github/*"] });
        config["agents"] = json!({ "researcher": { "toolboxes": ["granted"] } });
    };
    let world = World::with(test_folder, opened_with(servers, grants)).await;
    world.gateway.approve("approved", None, None).await.unwrap();
    world.gateway.enable("approved").unwrap();
    world.agent("boss").add_server(change(world.entry("Merger Plans", &[]))).await.unwrap();
    let model = Model::of(world.agent("researcher"));
    let of_nobody = heard(&model, NOBODYS).await;
    for name in ["approved", "payroll", "switched-off", "wrong", "merger-plans"] {
        assert!(world.status(name).is_some(), "{name}");
        assert_eq!(heard(&model, name).await, of_nobody, "{name}");
    }
    // About a server that is granted to it, the model is told who may change it.
    for tool in ["update_mcp_server", "remove_mcp_server"] {
        let answer = model.calls(tool, json!({ "server": OURS })).await;
        assert_eq!(answer["error"]["code"], "ERR_OPERATOR_ONLY", "{tool}: {answer}");
    }
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_what_a_model_adds_depends_on_nobody_elses_servers() {
    const WISHES: [&str; 4] = ["Payroll", "Merger Plans", "Playwright", "Nobodys"];
    let payroll = json!({ "payroll": { "command": FIXTURE, "box": "off" } });
    let mut names = Vec::new();
    for servers in [json!({}), payroll] {
        let is_empty = servers == json!({});
        let world = World::with(TestFolder::new(), opened_with(servers, |config| config["catalogue"] = json!(!is_empty))).await;
        if !is_empty {
            let boss = Model::of(world.agent("boss"));
            boss.agent.add_server(change(world.entry("Merger Plans", &[]))).await.unwrap();
            boss.adds(world.entry("Merger Plans", &[])).await;
        }
        let model = Model::of(world.agent("researcher"));
        let mut given = Vec::new();
        for wish in WISHES {
            given.push(model.adds(world.entry(wish, &[])).await);
        }
        // The model's own servers get different names. A name stays the same after a change of the display name and after a restart.
        let again = model.adds(world.entry("payroll!", &[])).await;
        assert_ne!(again, given[0]);
        let answer = model.calls("update_mcp_server", json!({ "server": again, "name": "Wages" })).await;
        assert_eq!(answer["server"], again.as_str());
        let world = world.reopened(|_| {}).await;
        assert_eq!(world.status(&again).and_then(|status| status.display_name).as_deref(), Some("Wages"));
        world.gateway.close().await;
        names.push(given);
    }
    assert_eq!(names[0], names[1]);
    for (name, start) in names[0].iter().zip(["payroll-", "merger-plans-", "playwright-", "nobodys-"]) {
        let digest = name.strip_prefix(start).unwrap_or_else(|| panic!("{name}"));
        assert!(digest.len() == 8 && digest.chars().all(|digit| digit.is_ascii_hexdigit()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_agents_add_takes_no_name_of_the_catalogue_though_it_is_switched_on_later() {
    let world = World::open().await;
    let model = Model::of(world.agent("evil"));
    model.adds(world.entry("playwright", &[])).await;
    let by_code = model.agent.add_server(change(world.entry("Playwright", &[]))).await.unwrap();
    assert_eq!(by_code.name, "playwright-2");
    let with_catalogue = opened_with(json!({}), |config| config["catalogue"] = json!(true));
    let world = world.reopened(with_catalogue).await;
    let status = world.status("playwright").unwrap();
    assert_eq!((status.source.kind, status.hides.len()), (SourceKind::Catalogue, 0));
    let ApprovalRequest::Command(request) = world.gateway.approval_request("playwright").await.unwrap() else { panic!("stage manifest") };
    assert_ne!(request.command.as_deref(), Some(FIXTURE));
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_a_server_hides_what_another_agent_has_added_is_told_to_the_owner_and_the_operator_alone() {
    let world = World::open().await;
    world.agent("boss").add_server(change(world.entry("Merger Plans", &[]))).await.unwrap();
    let servers = json!({ "merger-plans": { "command": FIXTURE, "box": "off" } });
    let world = world.reopened(opened_with(servers, |_| {})).await;
    let (boss, other) = (Model::of(world.agent("boss")), Model::of(world.agent("other")));
    for (model, is_told) in [(&boss, true), (&other, false), (&Model::of(world.gateway.clone().into()), true)] {
        let said = model.calls("list_mcp_servers", json!({})).await.to_string();
        assert!(said.contains("merger-plans"), "{said}");
        assert_eq!(said.contains("boss"), is_told, "{:?}: {said}", model.agent.name());
    }
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_grants_a_model_hears_of_the_server_of_another_agent_what_it_hears_of_none() {
    let world = World::with(TestFolder::new(), opened_with(json!({}), |_| {})).await;
    world.agent("boss").add_server(change(world.entry("Merger Plans", &[]))).await.unwrap();
    assert!(world.status("merger-plans").is_some());
    let model = Model::of(world.agent("researcher"));
    assert_eq!(heard(&model, "merger-plans").await, heard(&model, NOBODYS).await);
}
