//! A server that an agent has added, used by other agents: they can use it only if the operator grants it by name.

use hyperlight_mcp::config::Item;

use super::*;

const NAMED: &str = "agent:researcher:files/*";

fn set(world: &World, toolbox: &str, patterns: &[&str]) {
    let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    world.gateway.set_toolbox(toolbox, Some(&patterns)).unwrap();
}

fn grant(world: &World, agent: &str, toolbox: &str) {
    world.gateway.grant(agent, &[toolbox.to_owned()]).unwrap();
}

/// Adds, approves and enables the server `files` of the agent `researcher`.
async fn added(world: &World) -> Agent {
    let owner = world.agent("researcher");
    owner.add_server(change(world.entry("Files", &[]))).await.unwrap();
    world.approve("files").await;
    world.gateway.enable("files").unwrap();
    owner
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_has_added_is_another_agents_only_by_a_grant_that_names_it() {
    let world = World::open().await;
    let owner = Model::of(added(&world).await);
    let (named, wide, other) = (Model::of(world.agent("named")), Model::of(world.agent("wide")), Model::of(world.agent("other")));
    assert_eq!(other.reaches("files").await, "ERR_UNKNOWN_SERVER", "everything is granted, but not this");
    set(&world, "named", &[NAMED, "!files/count"]);
    set(&world, "wide", &["*/*", "files/*", "agent:other:files/*"]);
    grant(&world, "named", "named");
    grant(&world, "wide", "wide");
    for (agent, outcome) in [(&named, "no error"), (&wide, "ERR_UNKNOWN_SERVER"), (&other, "ERR_UNKNOWN_SERVER"), (&owner, "no error")] {
        assert_eq!(agent.reaches("files").await, outcome, "{:?}", agent.agent.name());
        let listed = agent.calls("list_mcp_servers", json!({})).await.to_string().contains("files");
        assert_eq!(listed, outcome == "no error", "{:?}", agent.agent.name());
    }
    // A denial in a pattern without the agent's name applies too. A call that writes asks the person of its caller.
    let call = |tool: &'static str, arguments: Json| {
        let agent = named.agent.clone();
        async move {
            agent.call_tool("files", tool, object(arguments), CallOptions::default(), &Stop::new()).await.map_err(|error| error.code())
        }
    };
    assert_eq!(call("count", json!({})).await.unwrap_err(), "ERR_UNKNOWN_TOOL");
    assert!(call("write_note", json!({ "text": "x" })).await.is_ok());
    let status = named.agent.servers().unwrap().into_iter().find(|status| status.name == "files").unwrap();
    assert_eq!((status.display_name, status.source.name.as_deref()), (None, Some("researcher")), "nobody approves a display name");
    // The server still belongs to its owner, and the operator's own runs cannot use it.
    assert_eq!(named.agent.remove_server("files").await.unwrap_err().code(), "ERR_OPERATOR_ONLY");
    assert_eq!(Model::of(world.gateway.clone().into()).reaches("files").await, "ERR_UNKNOWN_SERVER");
    for (agent, granted) in [("named", true), ("wide", false), ("researcher", true)] {
        let verdict = world.gateway.explain_grant(agent, "files", Item::Tool("pid")).unwrap();
        assert_eq!(verdict.granted, granted, "{}", verdict.reason);
    }
    world.gateway.ungrant("named", &[]).unwrap();
    assert_eq!((named.reaches("files").await, owner.reaches("files").await), ("ERR_UNKNOWN_SERVER", "no error"));
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_server_is_unknown_to_others_until_each_form_of_it_is_approved() {
    let world = World::open().await;
    set(&world, "named", &[NAMED]);
    grant(&world, "reader", "named");
    let reader = Model::of(world.agent("reader"));
    let owner = world.agent("researcher");
    owner.add_server(change(world.entry("Files", &[]))).await.unwrap();
    let is_told = async || {
        let said = [reader.calls("list_mcp_servers", json!({})).await.to_string(), json!(reader.agent.servers().unwrap()).to_string()];
        said.concat().contains("files")
    };
    assert_eq!((reader.reaches("files").await, is_told().await), ("ERR_UNKNOWN_SERVER", false));
    world.approve("files").await;
    world.gateway.enable("files").unwrap();
    assert_eq!((reader.reaches("files").await, is_told().await), ("no error", true));
    owner.update_server("files", change(json!({ "env": { "A": "1" } }))).await.unwrap();
    assert_eq!((reader.reaches("files").await, is_told().await), ("ERR_UNKNOWN_SERVER", false));
    owner.remove_server("files").await.unwrap();
    assert_eq!(reader.reaches("files").await, "ERR_UNKNOWN_SERVER");
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_no_grant_of_others_by_the_name_of_what_it_adds() {
    // A toolbox names a server that the config no longer has. An agent then adds a server with this name.
    let world = World::open().await;
    set(&world, "wide", &["files/*"]);
    grant(&world, "reader", "wide");
    added(&world).await;
    assert_eq!(Model::of(world.agent("reader")).reaches("files").await, "ERR_UNKNOWN_SERVER");
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_are_granted_is_approved_by_a_person_whatever_the_setting() {
    let world = World::with(TestFolder::new(), |options| options.require_approval = Some(false)).await;
    let owner = Model::of(world.agent("researcher"));
    // If a server is removed and added again, it gets the same name.
    let name = owner.adds(world.entry("Files", &[])).await;
    owner.calls("remove_mcp_server", json!({ "server": name })).await;
    set(&world, "named", &[&format!("agent:researcher:{name}/*")]);
    let starts = world.starts();
    let answer = owner.calls("add_mcp_server", world.entry("Files", &[])).await;
    assert_eq!((&answer["server"], &answer["state"], world.starts()), (&json!(name), &json!("pending-approval"), starts), "{answer}");
    let other = owner.calls("add_mcp_server", world.entry("Other", &[])).await;
    assert_eq!(other["approved"], true, "no toolbox names it: {other}");
    world.gateway.close().await;
}
