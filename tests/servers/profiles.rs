//! Profiles that change what is executed: variants of a server, each with its own approval, process and log, and the end of servers that
//! agents have through profiles.

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::gateway::{Agent, Audience, CallOptions, EnableAtOpen, IdentityOptions, NameOrigin, ResolveOptions, RunOptions};
use hyperlight_mcp::sandbox::{Stop, Value};
use hyperlight_mcp::{Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};

use crate::support::asking::RecordedEvents;
use crate::support::http::Remote;
use crate::support::{FIXTURE, TestFolder, guest_choice, object, patience, told, until, within};

/// A server `weather`, profiles `north`, `south` and `strict`, which create variants of it, and a profile `plain`, which does not.
struct Scene {
    test_folder: TestFolder,
    gateway: Gateway,
}

fn profiles() -> Json {
    json!({
        "north": { "servers": { "weather": { "env": { "STAGE": "north" } } } },
        "south": { "servers": { "weather": { "env": { "STAGE": "south" } } } },
        "strict": { "servers": { "weather": { "env": { "LEVEL": "nine" }, "denyTools": ["pid"] } } },
        "plain": { "servers": ["weather"] },
    })
}

fn write_config(test_folder: &TestFolder, profiles: &Json) {
    let weather = json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments("weather", &["--resources"]), "env": { "STAGE": "base" }, "confirm": "never" });
    let agents = json!({ "coder": { "profiles": ["north"] } });
    let config = json!({ "mcpServers": { "weather": weather }, "profiles": profiles, "agents": agents });
    std::fs::write(test_folder.path("config.json"), config.to_string()).unwrap();
}

impl Scene {
    /// Opens the gateway, and approves and enables these servers.
    async fn with(names: &[&str]) -> Self {
        let test_folder = TestFolder::new();
        write_config(&test_folder, &profiles());
        let scene = Self::of(test_folder);
        scene.approve(names).await;
        scene
    }

    /// Opens the gateway with the config in the folder.
    fn of(test_folder: TestFolder) -> Self {
        Self::enabling(test_folder, EnableAtOpen::None)
    }

    fn enabling(test_folder: TestFolder, enable: EnableAtOpen) -> Self {
        let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
        options.config_path = Some(test_folder.path("config.json"));
        options.state_dir = Some(test_folder.path("state"));
        options.workspace_folder = Some(test_folder.path(""));
        options.guest = guest_choice();
        options.enable = enable;
        Self { gateway: Gateway::open(options).unwrap(), test_folder }
    }

    async fn approve(&self, names: &[&str]) {
        for name in names {
            self.gateway.approve(name, None, None).await.unwrap();
            self.gateway.enable(name).unwrap();
            // Ends the process that was started for the approval.
            self.gateway.disable(name).await.unwrap();
            self.gateway.enable(name).unwrap();
        }
    }

    fn open(&self, profiles: &[&str]) -> Result<Agent> {
        let profiles = profiles.iter().map(|&name| name.to_owned()).collect();
        self.gateway.agent("other", IdentityOptions { profiles: Some(profiles), ..IdentityOptions::default() })
    }

    fn agent(&self, profiles: &[&str]) -> Agent {
        self.open(profiles).unwrap()
    }

    async fn no_server_runs(&self) {
        until("the end of all servers", || self.test_folder.servers_running().is_empty().then_some(())).await;
    }
}

fn code<T>(outcome: Result<T>) -> &'static str {
    outcome.err().map_or("no error", |error| error.code())
}

async fn call(agent: &Agent, server: &str, tool: &str, arguments: Json) -> Result<Json> {
    within(patience(), tool, agent.call_tool(server, tool, object(arguments), CallOptions::default(), &Stop::new())).await
}

async fn pid(agent: &Agent) -> i64 {
    call(agent, "weather", "pid", json!({})).await.unwrap()["structuredContent"]["pid"].as_i64().unwrap()
}

/// Returns the value of a variable in the server's process.
async fn variable(agent: &Agent, name: &str) -> String {
    let answer = call(agent, "weather", "leak", json!({ "name": name, "how": "error" })).await.unwrap();
    answer["content"][0]["text"].as_str().unwrap().split(' ').next().unwrap().to_owned()
}

fn listed(agent: &Agent) -> Vec<String> {
    agent.servers().unwrap().into_iter().map(|status| status.name).collect()
}

fn modules(agent: &Agent) -> Vec<String> {
    let modules = agent.list_modules().unwrap().into_iter().map(|module| module.specifier);
    modules.filter(|name| name.starts_with("host:mcp-")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_different_profiles_never_share_a_process() {
    let scene = Scene::with(&["weather", "weather@north", "weather@south"]).await;
    let (north, south, plain) = (scene.agent(&["north"]), scene.agent(&["south"]), scene.agent(&["plain"]));
    let stages = [variable(&north, "STAGE").await, variable(&south, "STAGE").await, variable(&plain, "STAGE").await];
    assert_eq!(stages, ["north", "south", "base"]);
    let pids = [pid(&north).await, pid(&south).await, pid(&plain).await, pid(&scene.gateway).await];
    assert!(pids[0] != pids[1] && pids[0] != pids[2] && pids[1] != pids[2], "{pids:?}");
    assert_eq!(pids[2], pids[3], "a profile that changes nothing makes no variant");
    assert_eq!(pid(&scene.agent(&["north", "plain"])).await, pids[0], "the same changes are the same server");
    let coder = scene.gateway.agent("coder", IdentityOptions::default()).unwrap();
    assert_eq!(pid(&coder).await, pids[0], "by the entry of the config as well");
    // The logs are separate. The server also writes the value to its standard error.
    let has = |name: &str, value: &str| scene.gateway.logs(name, 100).unwrap().iter().any(|line| line.text.contains(value));
    let servers = [("weather@north", "leaking north"), ("weather@south", "leaking south"), ("weather", "leaking base")];
    for (name, own) in servers {
        until("the line in the log", || has(name, own).then_some(())).await;
        assert!(servers.iter().filter(|(_, said)| *said != own).all(|(_, said)| !has(name, said)), "{name}");
    }
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_has_an_approval_of_its_own() {
    let scene = Scene::with(&["weather"]).await;
    let (north, plain) = (scene.agent(&["north"]), scene.agent(&["plain"]));
    assert_eq!((listed(&north), modules(&north)), (vec!["weather@north".to_owned()], Vec::new()));
    let error = call(&north, "weather", "echo", json!({ "value": 1 })).await.unwrap_err();
    assert!(error.code() == "ERR_NOT_APPROVED" && told(&error).contains("server \"weather@north\" is not approved"), "{}", told(&error));
    assert_eq!(scene.test_folder.servers_running(), Vec::<String>::new(), "nothing was started");
    let status = |name: &str| scene.gateway.server_info(name).unwrap().status;
    assert_eq!((status("weather").approved, status("weather@north").approved), (true, false));
    assert_eq!((status("weather").variant_of, status("weather@north").variant_of), (None, Some("weather".to_owned())));

    scene.approve(&["weather@north"]).await;
    assert_eq!(variable(&north, "STAGE").await, "north");
    // Each revocation leaves the other approval valid.
    scene.gateway.revoke("weather").await.unwrap();
    assert_eq!(
        (variable(&north, "STAGE").await.as_str(), code(call(&plain, "weather", "pid", json!({})).await)),
        ("north", "ERR_NOT_APPROVED")
    );
    scene.approve(&["weather"]).await;
    scene.gateway.revoke("weather@north").await.unwrap();
    assert_eq!(code(call(&north, "weather", "pid", json!({})).await), "ERR_NOT_APPROVED");
    assert_eq!(variable(&plain, "STAGE").await, "base");
    assert_eq!(modules(&north), Vec::<String>::new());
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_opened_with_a_server_has_its_approved_variants_enabled() {
    for enable in [EnableAtOpen::Named(vec!["weather".to_owned()]), EnableAtOpen::Approved] {
        // The server itself is not approved: no agent here uses it.
        let Scene { test_folder, gateway } = Scene::with(&["weather@north"]).await;
        gateway.close().await;
        let scene = Scene::enabling(test_folder, enable);
        let (north, south, plain) = (scene.agent(&["north"]), scene.agent(&["south"]), scene.agent(&["plain"]));
        assert_eq!(variable(&north, "STAGE").await, "north");
        for (agent, what) in [(&south, "another variant"), (&plain, "the server")] {
            assert_eq!(code(call(agent, "weather", "pid", json!({})).await), "ERR_NOT_APPROVED", "{what} has no approval");
        }
        scene.gateway.approve("weather@south", None, None).await.unwrap();
        assert_eq!(variable(&south, "STAGE").await, "south");
        // Disabling the server also disables its variants, and their processes end.
        scene.gateway.disable("weather").await.unwrap();
        scene.no_server_runs().await;
        assert_eq!([&north, &south].map(modules), [Vec::<String>::new(), Vec::new()]);
        assert_eq!(code(call(&north, "weather", "pid", json!({})).await), "ERR_NOT_ENABLED");
        scene.gateway.enable("weather@north").unwrap();
        assert_eq!(variable(&north, "STAGE").await, "north");
        scene.gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_knows_its_variant_by_the_name_of_the_server_and_no_other() {
    let scene = Scene::with(&["weather@north", "weather@south", "weather"]).await;
    let (north, plain) = (scene.agent(&["north"]), scene.agent(&["plain"]));
    assert_eq!((listed(&north), modules(&north)), (vec!["weather@north".to_owned()], vec!["host:mcp-weather".to_owned()]));
    assert_eq!(listed(&scene.gateway), ["weather", "weather@north", "weather@south", "weather@strict"]);
    assert_eq!(modules(&scene.gateway), ["host:mcp-weather"], "the operator's own runs have the server");
    // The tools have the same names, and each agent's calls go to its own process.
    let names = |agent: &Agent| -> Vec<String> {
        agent.direct_tools(NameStyle::Underscore).unwrap().into_iter().map(|tool| format!("{} {}", tool.server, tool.name)).collect()
    };
    assert!(names(&north).contains(&"weather mcp_weather_pid".to_owned()));
    assert_eq!(names(&north), names(&plain));
    let called = async |agent: &Agent| {
        let called = agent.call_direct("mcp_weather_pid", object(json!({})), CallOptions::default(), &Stop::new()).await;
        called.unwrap()["structuredContent"]["pid"].as_i64().unwrap()
    };
    assert_eq!([called(&north).await, called(&plain).await], [pid(&north).await, pid(&plain).await]);
    assert_ne!(called(&north).await, called(&plain).await);
    // The name in the registry can be used too, but only that of the agent's own variant.
    assert_eq!(code(call(&north, "weather@north", "pid", json!({})).await), "no error");
    for (agent, name) in [(&north, "weather@south"), (&plain, "weather@north"), (&north, "weather@strict"), (&north, "weather@north+south")]
    {
        assert_eq!(code(call(agent, name, "pid", json!({})).await), "ERR_UNKNOWN_SERVER", "{name}");
        assert!(agent.server_info(name).is_err() && agent.resources(name).is_err(), "{name}");
    }
    let offer = north.server_info("weather").unwrap();
    assert_eq!((offer.status.name.as_str(), offer.offer.unwrap().specifier.as_str()), ("weather@north", "host:mcp-weather"));
    assert_eq!(north.resources("weather").unwrap()[0].server, "weather");
    let sandbox = north.sandbox(ToolErrors::Throw, None).unwrap();
    let code = r#"import { pid } from "host:mcp-weather"; import { tools } from "host:mcp"; export const handler = () => [pid({}).pid, tools().every((tool) => tool.server === "weather")]"#;
    let report = within(patience(), "a run", sandbox.run(code.to_owned(), RunOptions::default())).await;
    let value = Value::from_wire(report.outcome.value.unwrap()).unwrap().into_json()["value"].clone();
    assert_eq!(value, json!([pid(&north).await, true]));
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stacked_profiles_make_one_variant_unless_they_contradict_each_other() {
    let scene = Scene::with(&[]).await;
    let error = scene.open(&["south", "plain", "north"]).err().unwrap();
    assert_eq!(error.code(), "ERR_PROFILE_CONFLICT");
    let message = told(&error);
    assert!(message.contains(r#"the profiles "north" and "south" set the variable "STAGE" of server "weather" differently"#), "{message}");
    let both = scene.agent(&["strict", "north"]);
    assert_eq!(listed(&both), ["weather@north+strict"]);
    scene.approve(&["weather@north+strict"]).await;
    assert_eq!([variable(&both, "STAGE").await, variable(&both, "LEVEL").await], ["north", "nine"]);
    assert_eq!(code(call(&both, "weather", "pid", json!({})).await), "ERR_UNKNOWN_TOOL", "filters count as before");
    // A person can decide about a combination of profiles that no agent has used in this gateway.
    assert_eq!(code(scene.gateway.approval_request("weather@south+strict").await), "no error");
    for name in ["weather@strict+south", "weather@south+north", "weather@plain+south", "weather@none", "notes@south"] {
        assert_eq!(code(scene.gateway.approval_request(name).await), "ERR_UNKNOWN_SERVER", "{name}");
    }
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_ends_with_the_last_agent_that_has_it_by_a_profile() {
    let scene = Scene::with(&["weather", "weather@north"]).await;
    let (first, second) = (scene.agent(&["north"]), scene.agent(&["north", "plain"]));
    let before = pid(&first).await;
    first.close().await;
    assert_eq!(pid(&second).await, before, "the second agent has it still");
    second.close().await;
    scene.no_server_runs().await;
    // A server also ends if its last agent has never used it, or if its last agent was only dropped.
    let (user, idle) = (scene.agent(&["plain"]), scene.agent(&["plain"]));
    pid(&user).await;
    user.close().await;
    assert_eq!(scene.test_folder.servers_running().len(), 1);
    idle.close().await;
    scene.no_server_runs().await;
    let dropped = scene.agent(&["north"]);
    pid(&dropped).await;
    drop(dropped);
    scene.no_server_runs().await;
    // A server that the operator uses stays connected.
    let agent = scene.agent(&["plain"]);
    let of_agent = pid(&agent).await;
    assert_eq!(pid(&scene.gateway).await, of_agent);
    agent.close().await;
    assert_eq!(pid(&scene.gateway).await, of_agent);
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_follows_the_profiles() {
    let scene = Scene::with(&["weather", "weather@north"]).await;
    let (north, both) = (scene.agent(&["north"]), scene.agent(&["north", "strict"]));
    pid(&north).await;
    let mut changed = profiles();
    changed["north"]["servers"]["weather"]["env"] = json!({ "STAGE": "elsewhere" });
    write_config(&scene.test_folder, &changed);
    let report = scene.gateway.reload().await.unwrap();
    assert_eq!(report.changed, ["weather@north", "weather@north+strict"]);
    assert_eq!(code(call(&north, "weather", "pid", json!({})).await), "ERR_NOT_APPROVED", "another environment is asked about again");
    scene.no_server_runs().await;
    // The approval is for exactly the shown values, so the earlier values are still approved.
    write_config(&scene.test_folder, &profiles());
    scene.gateway.reload().await.unwrap();
    scene.gateway.enable("weather@north").unwrap();
    pid(&north).await;
    // A combination of profiles that now contradicts itself is an error. Neither of the two profiles is preferred.
    changed["strict"]["servers"]["weather"]["env"] = json!({ "STAGE": "north" });
    write_config(&scene.test_folder, &changed);
    scene.gateway.reload().await.unwrap();
    assert_eq!(code(call(&both, "weather", "echo", json!({ "value": 1 })).await), "ERR_PROFILE_CONFLICT");
    assert_eq!(code(both.servers()), "ERR_PROFILE_CONFLICT");
    scene.no_server_runs().await;
    write_config(&scene.test_folder, &json!({ "north": { "servers": ["weather"] } }));
    let report = scene.gateway.reload().await.unwrap();
    assert!(report.removed.contains(&"weather@north".to_owned()), "{report:?}");
    assert_eq!(variable(&north, "STAGE").await, "base", "without a change there is no variant");
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_and_a_resolution_have_the_agents_variant() {
    let scene = Scene::with(&["weather"]).await;
    let resolved = async |dry_run| {
        let options = ResolveOptions { agent: Some("coder".to_owned()), dry_run, ..ResolveOptions::default() };
        scene.gateway.resolve(options).await.unwrap()
    };
    let reason = resolved(true).await.servers[0].reason.clone();
    assert!(reason.starts_with("\"weather\" is left out: it is not approved"), "{reason}");
    let coder = scene.gateway.agent("coder", IdentityOptions::default()).unwrap();
    let sandbox = coder.sandbox(ToolErrors::Return, None).unwrap();
    let warnings = async || {
        let task = serde_json::from_value(json!({ "servers": ["weather"] })).unwrap();
        let options = RunOptions { task: Some(task), ..RunOptions::default() };
        within(patience(), "a run", sandbox.run("export const handler = () => 1".to_owned(), options)).await.warnings
    };
    let expected = "server \"weather\" (in approvals: \"weather@north\") is not attached: it is not approved (the task names it)";
    assert_eq!(warnings().await, [expected]);
    scene.approve(&["weather@north"]).await;
    assert_eq!(warnings().await, Vec::<String>::new());
    let entries = resolved(false).await.mcp_servers.unwrap();
    assert_eq!((entries.len(), &entries["weather"]["env"]["STAGE"]), (1, &json!("north")));
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_resource_is_told_under_the_agents_name_for_the_server() {
    let scene = Scene::with(&["weather@north"]).await;
    let told = RecordedEvents::default();
    let options =
        IdentityOptions { profiles: Some(vec!["north".to_owned()]), on_event: Some(told.listener()), ..IdentityOptions::default() };
    let agent = scene.gateway.agent("other", options).unwrap();
    agent.subscribe("weather", "fixture://note.txt").await.unwrap();
    call(&agent, "weather", "touch", json!({ "uri": "fixture://note.txt" })).await.unwrap();
    let event = until("the event", || told.all("resource-updated").into_iter().next()).await;
    assert_eq!((&event["server"], &event["uri"]), (&json!("weather"), &json!("fixture://note.txt")));
    agent.unsubscribe("weather", "fixture://note.txt").await.unwrap();
    scene.test_folder.logged("weather", "request", |entry| entry["method"] == "resources/unsubscribe").await;
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_behind_http_gets_the_headers_of_the_profile_on_a_connection_of_its_own() {
    let (test_folder, of_server) = (TestFolder::new(), TestFolder::new());
    let remote = Remote::start(&of_server, "weather", &[]);
    let weather = json!({ "url": remote.url, "headers": { "X-Tenant": "base" }, "confirm": "never" });
    let profiles =
        json!({ "north": { "servers": { "weather": { "headers": { "x-tenant": "north" } } } }, "plain": { "servers": ["weather"] } });
    let config = json!({ "mcpServers": { "weather": weather }, "profiles": profiles });
    std::fs::write(test_folder.path("config.json"), config.to_string()).unwrap();
    let scene = Scene::of(test_folder);
    scene.approve(&["weather", "weather@north"]).await;
    for (profile, tenant) in [("north", "north"), ("plain", "base"), ("north", "north")] {
        let agent = scene.agent(&[profile]);
        let seen = of_server.events("weather").len();
        call(&agent, "weather", "echo", json!({ "value": 1 })).await.unwrap();
        let events = of_server.events("weather").split_off(seen);
        let posts = events.iter().filter(|entry| entry["event"] == "http" && entry["method"] == "POST");
        let tenants: Vec<_> = posts.map(|entry| entry["headers"]["x-tenant"].clone()).collect();
        assert!(!tenants.is_empty() && tenants.iter().all(|seen| *seen == tenant), "{profile}: {tenants:?}");
        agent.close().await;
    }
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_the_operator_has_not_chosen_is_neither_in_the_config_nor_resolved_and_is_marked_in_errors() {
    let scene = Scene::with(&["weather@north", "weather@south"]).await;
    let open = |name_origin| {
        let profiles = Some(vec!["south".to_owned()]);
        scene.gateway.agent("coder", IdentityOptions { profiles, name_origin, ..IdentityOptions::default() })
    };
    assert_eq!(code(open(NameOrigin::Operator)), "ERR_GRANT_IN_CONFIG");
    let resolved = async || {
        let options = ResolveOptions { agent: Some("coder".to_owned()), ..ResolveOptions::default() };
        scene.gateway.resolve(options).await.unwrap()
    };
    let before = resolved().await;
    let claimed = [NameOrigin::Client, NameOrigin::Subject].map(|name_origin| open(name_origin).unwrap());
    for agent in &claimed {
        assert_eq!(variable(agent, "STAGE").await, "south");
    }
    assert_eq!(resolved().await, before);
    scene.gateway.set_toolbox("all", Some(&["weather/*".to_owned()])).unwrap();
    scene.gateway.grant("coder", &["all".to_owned()]).unwrap();
    for (agent, name) in claimed.iter().zip(["client:coder", "subject:coder"]) {
        let options = CallOptions { audience: Audience::Author, ..CallOptions::default() };
        let refused = agent.call_tool("weather", "pid", object(json!({})), options, &Stop::new()).await.unwrap_err();
        assert!(told(&refused).starts_with(&format!("agent \"{name}\" may not use")), "{}", told(&refused));
    }
    scene.gateway.close().await;
}
