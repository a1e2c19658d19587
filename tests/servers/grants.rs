//! Tests of grants through the crate's own API, with real servers: an agent may use exactly what its toolboxes allow, in every way.

use std::sync::Arc;

use hyperlight_mcp::agent::{AgentOptions, AgentTools};
use hyperlight_mcp::bridge::{ToolErrors, ToolQuery};
use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::client::Completed;
use hyperlight_mcp::gateway::{Agent, ApprovalRead, Audience, CallOptions, IdentityOptions, NameOrigin, RunOptions};
use hyperlight_mcp::sandbox::{Stop, Value};
use hyperlight_mcp::{Error, Gateway, GatewayOptions, Result};
use serde_json::{Value as Json, json};

use crate::support::asking::RecordedEvents;
use crate::support::{FIXTURE, TestFolder, guest_choice, object, patience, told, until, within};

/// Two servers with tools, resources and prompts. Agents are granted parts of them.
struct Scene {
    test_folder: TestFolder,
    gateway: Gateway,
    told: RecordedEvents,
}

const SERVERS: [&str; 2] = ["left", "right"];

fn servers(test_folder: &TestFolder) -> Json {
    let entry = |name: &str| {
        let flags = ["--resources", "--prompts"];
        json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(name, &flags), "confirm": "never" })
    };
    SERVERS.iter().map(|name| ((*name).to_owned(), entry(name))).collect::<serde_json::Map<_, _>>().into()
}

fn write_config(test_folder: &TestFolder, sections: &Json) {
    let mut config = sections.clone();
    config["mcpServers"] = servers(test_folder);
    std::fs::write(test_folder.path("config.json"), config.to_string()).unwrap();
}

impl Scene {
    /// Opens the gateway with additional sections in its config, and approves and enables both servers.
    async fn open(sections: &Json) -> Self {
        let test_folder = TestFolder::new();
        let scene = Self::of(test_folder, sections);
        for name in SERVERS {
            scene.gateway.approve(name, None, None).await.unwrap();
            scene.gateway.enable(name).unwrap();
        }
        scene
    }

    fn of(test_folder: TestFolder, sections: &Json) -> Self {
        write_config(&test_folder, sections);
        let told = RecordedEvents::default();
        let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
        options.config_path = Some(test_folder.path("config.json"));
        options.state_dir = Some(test_folder.path("state"));
        options.workspace_folder = Some(test_folder.path(""));
        options.on_event = Some(told.listener());
        options.guest = guest_choice();
        Self { gateway: Gateway::open(options).unwrap(), test_folder, told }
    }

    fn agent(&self, name: &str) -> Agent {
        self.gateway.agent(name, IdentityOptions::default()).unwrap()
    }

    fn grant(&self, agent: &str, patterns: &[&str]) {
        let toolbox = format!("of-{agent}");
        self.gateway.set_toolbox(&toolbox, Some(&owned(patterns))).unwrap();
        self.gateway.grant(agent, &[toolbox]).unwrap();
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn code<T>(outcome: Result<T>) -> &'static str {
    outcome.err().map_or("no error", |error| error.code())
}

async fn call(agent: &Agent, server: &str, tool: &str) -> Result<Json> {
    let arguments = object(json!({ "value": 1 }));
    within(patience(), tool, agent.call_tool(server, tool, arguments, CallOptions::default(), &Stop::new())).await
}

fn for_author() -> CallOptions {
    CallOptions { audience: Audience::Author, ..CallOptions::default() }
}

async fn value_of(agent: &Agent, code: &str) -> Json {
    let sandbox = agent.sandbox(ToolErrors::Return, None).unwrap();
    let report = within(patience(), "a run", sandbox.run(code.to_owned(), RunOptions::default())).await;
    match report.outcome.value {
        Ok(value) => Value::from_wire(value).unwrap().into_json()["value"].clone(),
        Err(error) => json!({ "failed": error.code(), "message": told(&error) }),
    }
}

/// Returns everything that an agent can read about servers and tools, from every method that lists or describes something.
async fn everything_said_to(agent: &Agent) -> String {
    let mut said = vec![
        agent.declarations(None, ToolErrors::Return).unwrap(),
        json!(agent.list_modules().unwrap()).to_string(),
        json!(agent.servers().unwrap()).to_string(),
        agent.system_message(None, ToolErrors::Return).unwrap(),
        format!("{:?}", agent.direct_tools(NameStyle::Underscore).unwrap()),
        format!("{:?}", agent.approved_servers(ApprovalRead::Fresh).unwrap()),
    ];
    for query in ["echo a value", "count calls", "exit", "process id"] {
        let query = ToolQuery { query: query.to_owned(), limit: Some(100), servers: None };
        said.push(json!(agent.search_tools(&query, ToolErrors::Return).unwrap()).to_string());
    }
    let tools = AgentTools::new(agent.clone(), None, AgentOptions { describe_servers: Some(4_000), ..AgentOptions::default() }).unwrap();
    said.push(json!(tools.definitions().unwrap()).to_string());
    for (name, arguments) in
        [("list_mcp_servers", json!({})), ("manage_mcp", json!({ "action": "list" })), ("search_mcp_tools", json!({ "query": "count" }))]
    {
        said.push(tools.execute(name, &arguments, &Stop::new()).await.unwrap().to_string());
    }
    said.push(
        value_of(
            agent,
            r#"import { tools, resources, prompts } from "host:mcp"; export const handler = () => [tools(), resources(), prompts()]"#,
        )
        .await
        .to_string(),
    );
    said.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_told_of_what_it_is_granted_and_of_nothing_else() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo", "left/prompt:plain"]);
    let (reader, other) = (scene.agent("reader"), scene.agent("other"));
    let said = everything_said_to(&reader).await;
    assert!(said.contains("echo"), "{said}");
    for hidden in ["right", "Counts its calls", "\"count\"", "\"pid\"", "note.txt", "fixture://"] {
        assert!(!said.contains(hidden), "{hidden}: {said}");
    }
    assert!(said.contains("\"plain\""), "{said}");
    let said = everything_said_to(&other).await;
    assert!(!said.contains("left") && !said.contains("right") && !said.contains("echo"), "{said}");
    let operator: &Agent = &scene.gateway;
    let said = everything_said_to(operator).await;
    assert!(["left", "right", "Counts its calls", "note.txt"].iter().all(|word| said.contains(word)));
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_agent_asks_for_by_name_is_there_if_it_is_granted_and_unknown_if_not() {
    let scene = Scene::open(&json!({})).await;
    scene.grant(
        "reader",
        &["left/echo", "left/count", "left/resource:fixture://item/*", "!left/resource:fixture://item/1", "left/prompt:plain"],
    );
    let reader = scene.agent("reader");
    assert_eq!(code(call(&reader, "left", "echo").await), "no error");
    assert_eq!(code(call(&reader, "left", "pid").await), "ERR_UNKNOWN_TOOL");
    assert_eq!(code(call(&reader, "right", "echo").await), "ERR_UNKNOWN_SERVER");
    let read = async |uri: &str| code(reader.read_resource("left", uri, CallOptions::default(), &Stop::new()).await);
    assert_eq!(read("fixture://item/7").await, "no error");
    for uri in ["fixture://item/1", "fixture://item/%31", "fixture://note.txt"] {
        assert_eq!(read(uri).await, "ERR_UNKNOWN_RESOURCE", "{uri}");
    }
    assert_eq!(code(reader.subscribe("left", "fixture://note.txt").await), "ERR_UNKNOWN_RESOURCE");
    let prompt = async |name: &str| code(reader.get_prompt("left", name, object(json!({})), CallOptions::default(), &Stop::new()).await);
    assert_eq!((prompt("plain").await, prompt("weather").await), ("no error", "ERR_UNKNOWN_PROMPT"));
    let (of, argument, stop) = (Completed::Prompt("weather".into()), ("place".into(), "B".into()), Stop::new());
    let completed = reader.complete("left", of, argument, object(json!({})), CallOptions::default(), &stop).await;
    assert_eq!(code(completed), "ERR_UNKNOWN_PROMPT");
    assert_eq!(reader.resources("left").unwrap().len(), 1);
    assert_eq!(reader.prompts("left").unwrap().len(), 1);
    for outcome in [
        code(reader.server_info("right")),
        code(reader.resources("right")),
        code(reader.prompts("right")),
        code(reader.views("right")),
        code(reader.approved_module("right", ApprovalRead::Fresh)),
        code(reader.enable_as("right", hyperlight_mcp::registry::Decider::Model)),
        code(reader.disable_as("right", hyperlight_mcp::registry::Decider::Model).await),
    ] {
        assert_eq!(outcome, "ERR_UNKNOWN_SERVER");
    }
    assert_eq!(code(reader.tool_info("left", "pid", ToolErrors::Return)), "ERR_UNKNOWN_TOOL");
    assert_eq!(code(reader.describe(&["right".to_owned()], ToolErrors::Return, &|| true)), "ERR_UNKNOWN_MODULE");
    assert_eq!(code(reader.tool_named("mcp_left_pid")), "ERR_UNKNOWN_TOOL");
    assert_eq!(reader.tool_named("mcp_left_echo").unwrap().1, "echo");
    let functions: Vec<_> = reader.approved_module("left", ApprovalRead::Fresh).unwrap().functions;
    assert_eq!(functions.into_iter().map(|function| function.target).collect::<Vec<_>>(), ["count", "echo"]);
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_of_agent_code_leads_to_what_is_not_granted() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo", "left/resource:fixture://item/*"]);
    let reader = scene.agent("reader");
    let value = value_of(
        &reader,
        r#"import { echo } from "host:mcp-left"; import { call, read, prompt, describe, search } from "host:mcp";
        const caught = (work) => { try { return work() } catch (error) { return { code: error.code, message: error.message } } };
        export const handler = () => [
            caught(() => echo({ value: 5 })), caught(() => call("left", "pid", {})), caught(() => call("right", "echo", { value: 1 })),
            caught(() => call("nowhere", "echo", {})), caught(() => read("left", "fixture://note.txt")), caught(() => read("left", "fixture://item/2")),
            caught(() => prompt("left", "plain")), caught(() => describe("right")), caught(() => search("echo", { servers: ["right"] })),
        ]"#,
    )
    .await;
    assert!(value[0].to_string().contains('5'), "{value}");
    let codes: Vec<_> = value.as_array().unwrap().iter().map(|outcome| outcome["code"].as_str().unwrap_or("")).collect();
    assert_eq!(
        codes,
        [
            "",
            "ERR_UNKNOWN_TOOL",
            "ERR_UNKNOWN_SERVER",
            "ERR_UNKNOWN_SERVER",
            "ERR_UNKNOWN_RESOURCE",
            "",
            "ERR_UNKNOWN_PROMPT",
            "ERR_UNKNOWN_MODULE",
            "ERR_UNKNOWN_SERVER"
        ],
        "{value}"
    );
    let text = |index: usize| value[index]["message"].as_str().unwrap().replace("nowhere", "right");
    assert_eq!(text(2), text(3), "an unknown server and one that is not granted read the same");
    for code in [
        r#"import { pid } from "host:mcp-left"; export const handler = () => pid({})"#,
        r#"import * as m from "host:mcp-right"; export const handler = () => m"#,
    ] {
        let failed = value_of(&reader, code).await;
        assert_eq!(failed["failed"], "ERR_CODE_SYNTAX", "{failed}");
        assert!(!failed["message"].as_str().unwrap().contains("count"), "{failed}");
    }
    for (server, item) in [("left", "pid"), ("right", "echo"), ("right", "*")] {
        until(item, || scene.told.all("not-granted").into_iter().find(|event| event["server"] == server && event["item"] == item)).await;
    }
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_models_tools_do_not_tell_what_is_not_granted_from_what_does_not_exist() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo"]);
    let tools = AgentTools::new(scene.agent("reader"), None, AgentOptions::default()).unwrap();
    for action in ["info", "enable", "disable", "test", "propose"] {
        let ask = async |server: &str| {
            let answer = tools.execute("manage_mcp", &json!({ "action": action, "server": server }), &Stop::new()).await.unwrap();
            answer.to_string().replace(server, "it")
        };
        let (hidden, absent) = (ask("right").await, ask("absent").await);
        assert_eq!(hidden, absent);
        assert!(hidden.contains("ERR_UNKNOWN_SERVER"), "{hidden}");
    }
    let describe = async |name: &str| {
        let answer = tools.execute("describe_mcp_tools", &json!({ "names": [name] }), &Stop::new()).await.unwrap();
        answer.to_string().replace(name.rsplit('.').next().unwrap(), "it")
    };
    assert_eq!(describe("right").await, describe("absent").await);
    assert_eq!(describe("left.pid").await, describe("left.absent").await);
    assert!(scene.gateway.servers().unwrap().iter().all(|status| status.enabled), "no model of another agent changed anything");
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_author_and_the_operator_are_told_what_is_missing_and_which_toolbox_has_it() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo"]);
    scene.gateway.set_toolbox("admins", Some(&owned(&["*/*"]))).unwrap();
    let reader = scene.agent("reader");
    for _ in 0..2 {
        let error = reader.call_tool("right", "pid", object(json!({})), for_author(), &Stop::new()).await.unwrap_err();
        assert_eq!(error.code(), "ERR_NOT_GRANTED");
        let text = told(&error);
        assert!(text.contains("reader") && text.contains("right/pid") && text.contains("\"admins\" has it"), "{text}");
        assert!(!error.for_model().contains("admins") && error.for_model().contains("there is no server"), "{}", error.for_model());
    }
    let absent = reader.call_tool("absent", "pid", object(json!({})), for_author(), &Stop::new()).await;
    assert_eq!(code(absent), "ERR_UNKNOWN_SERVER");
    until("the event", || scene.told.all("not-granted").first().cloned()).await;
    let events = scene.told.all("not-granted");
    assert_eq!((events.len(), &events[0]["agent"], &events[0]["item"]), (1, &json!("reader"), &json!("pid")), "{events:?}");
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_takes_effect_with_the_next_run_and_not_in_one_that_goes_on() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/*"]);
    let reader = scene.agent("reader");
    let sandbox = reader.sandbox(ToolErrors::Return, None).unwrap();
    let code = r#"import { echo, hang } from "host:mcp-left"; import { sleep } from "host:mcp";
        export const handler = () => { for (;;) { const { asked } = echo({ value: { asked: 1 } }); sleep(20); if (globalThis.never) return asked } }"#;
    let stop = Stop::new();
    let options = RunOptions { stop: stop.clone(), timeout_ms: Some(30_000), ..RunOptions::default() };
    let run = tokio::spawn(sandbox.run(code.to_owned(), options));
    let echoes = || scene.test_folder.events("left").iter().filter(|event| event["name"] == "echo").count();
    until("a first call", || (echoes() > 0).then_some(())).await;
    scene.gateway.ungrant("reader", &[]).unwrap();
    let before = echoes();
    until("another call of the run that goes on", || (echoes() > before + 2).then_some(())).await;
    assert_eq!(code_of_call(&reader).await, "ERR_UNKNOWN_SERVER");
    stop.stop(hyperlight_mcp::sandbox::StopReason::Aborted);
    assert_eq!(run.await.unwrap().outcome.value.unwrap_err().code(), "ERR_ABORTED");
    let failed = value_of(&reader, r#"import { echo } from "host:mcp-left"; export const handler = () => echo({ value: 1 })"#).await;
    assert_eq!(failed["failed"], "ERR_CODE_SYNTAX");
    scene.gateway.close().await;
}

async fn code_of_call(agent: &Agent) -> &'static str {
    code(call(agent, "left", "echo").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_the_operators_and_are_kept_and_those_of_the_config_are_changed_there() {
    let sections = json!({ "toolboxes": { "echoers": ["left/echo"] }, "agents": { "fixed": { "toolboxes": ["echoers"] } } });
    let scene = Scene::open(&sections).await;
    let gateway = &scene.gateway;
    let echoers = owned(&["echoers"]);
    for error in [
        gateway.grant("fixed", &echoers).unwrap_err(),
        gateway.ungrant("fixed", &echoers).unwrap_err(),
        gateway.set_toolbox("echoers", None).unwrap_err(),
        gateway.set_toolbox("echoers", Some(&owned(&["*/*"]))).unwrap_err(),
    ] {
        assert_eq!(error.code(), "ERR_GRANT_IN_CONFIG");
        assert!(told(&error).contains("config.json:1:"), "{}", told(&error));
    }
    assert!(matches!(gateway.grant("a", &owned(&["echoer"])), Err(Error::UnknownToolbox { .. })));
    assert_eq!(code(gateway.grant("a b", &echoers)), "ERR_INVALID_OPTION");
    assert_eq!(code(gateway.set_toolbox("x", Some(&owned(&["left"])))), "ERR_INVALID_OPTION");
    assert_eq!(code(gateway.ungrant("a", &[])), "ERR_INVALID_OPTION");
    gateway.grant("a", &echoers).unwrap();
    gateway.set_toolbox("mine", Some(&owned(&["right/*"]))).unwrap();
    gateway.grant("a", &owned(&["mine"])).unwrap();
    let held = gateway.set_toolbox("mine", None).unwrap_err();
    assert!(told(&held).contains("is given to a"), "{}", told(&held));
    gateway.close().await;
    // Another process has the same grants.
    let scene = Scene::of(scene.test_folder, &sections);
    let list = json!(scene.gateway.toolboxes().unwrap());
    assert_eq!(
        list,
        json!({
            "toolboxes": [
                { "name": "echoers", "patterns": ["left/echo"], "source": "config" },
                { "name": "mine", "patterns": ["right/*"], "source": "store" },
            ],
            "agents": [
                { "agent": "a", "toolboxes": ["echoers", "mine"], "source": "store" },
                { "agent": "fixed", "toolboxes": ["echoers"], "source": "config" },
            ],
            "defaultGrant": "none",
        })
    );
    scene.gateway.enable("left").unwrap();
    assert_eq!(code(call(&scene.agent("a"), "left", "echo").await), "no error");
    scene.gateway.ungrant("a", &[]).unwrap();
    assert_eq!(
        code(call(&scene.agent("a"), "left", "echo").await),
        "ERR_UNKNOWN_SERVER",
        "what was taken leaves nothing, and not the default"
    );
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_applies_other_grants_and_a_config_with_a_mistake_in_them_changes_nothing() {
    let scene = Scene::open(&json!({ "toolboxes": { "t": ["left/echo"] }, "agents": { "a": { "toolboxes": ["t"] } } })).await;
    let agent = scene.agent("a");
    assert_eq!((code_of_call(&agent).await, code(call(&agent, "right", "echo").await)), ("no error", "ERR_UNKNOWN_SERVER"));
    write_config(&scene.test_folder, &json!({ "toolboxes": { "t": ["right/echo"] }, "agents": { "a": { "toolboxes": ["t"] } } }));
    scene.gateway.reload().await.unwrap();
    assert_eq!((code_of_call(&agent).await, code(call(&agent, "right", "echo").await)), ("ERR_UNKNOWN_SERVER", "no error"));
    write_config(&scene.test_folder, &json!({ "toolboxes": { "t": ["right"] }, "agents": { "a": { "toolboxes": ["t"] } } }));
    let error = scene.gateway.reload().await.unwrap_err();
    assert!(told(&error).contains("toolboxes.t[0]: must be server/tool"), "{}", told(&error));
    assert_eq!((code_of_call(&agent).await, code(call(&agent, "right", "echo").await)), ("ERR_UNKNOWN_SERVER", "no error"));
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_a_client_gives_itself_gets_no_grant_of_another_agent() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("admin", &["*/*"]);
    let claimed = scene.gateway.agent("admin", IdentityOptions { name_origin: NameOrigin::Client, ..IdentityOptions::default() }).unwrap();
    assert_eq!(code_of_call(&claimed).await, "ERR_UNKNOWN_SERVER");
    assert_eq!(code_of_call(&scene.agent("admin")).await, "no error");
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_another_program_has_changed_grant_nothing() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo"]);
    assert_eq!(code_of_call(&scene.agent("reader")).await, "no error");
    scene.gateway.close().await;
    let store = rusqlite::Connection::open(scene.test_folder.path("state").join("store.sqlite3")).unwrap();
    store.execute_batch("DELETE FROM decisions WHERE kind = 'grant'").unwrap();
    let scene = Scene::of(scene.test_folder, &json!({}));
    scene.gateway.enable("left").unwrap();
    let agent = scene.agent("reader");
    for name in ["reader", "anybody"] {
        assert_eq!(code_of_call(&scene.agent(name)).await, "ERR_STORE", "{name}");
    }
    assert_eq!(code(call(&scene.gateway, "left", "echo").await), "no error", "the operator's own agent needs no grant");
    scene.gateway.grant("reader", &owned(&["of-reader"])).unwrap();
    assert_eq!((code_of_call(&agent).await, code_of_call(&scene.agent("anybody")).await), ("no error", "ERR_UNKNOWN_SERVER"));
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_keeps_its_name_whatever_else_is_granted_and_a_manifest_is_reduced_once() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo"]);
    let reader = scene.agent("reader");
    let (first, again) = (reader.list_modules().unwrap(), reader.list_modules().unwrap());
    assert_eq!(json!(first), json!(again));
    let of_all = scene.gateway.tool_info("left", "echo", ToolErrors::Return).unwrap();
    let of_reader = reader.tool_info("left", "echo", ToolErrors::Return).unwrap();
    assert_eq!(json!(of_all), json!(of_reader));
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_agents_server_is_not_named_where_there_is_no_room_for_a_connection() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo"]);
    let reader: Arc<Agent> = Arc::new(scene.agent("reader"));
    let verdict = scene.gateway.explain_grant("reader", "right", hyperlight_mcp::config::Item::Tool("pid")).unwrap();
    assert!(!verdict.granted && verdict.reason.contains("no pattern"), "{}", verdict.reason);
    let error = reader.call_tool("right", "pid", object(json!({})), CallOptions::default(), &Stop::new()).await.unwrap_err();
    assert_eq!(told(&error), "there is no server \"right\" in the config; there are: left");
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_narrows_an_agent_and_without_one_it_has_no_server() {
    let scene = Scene::open(&json!({
        "profiles": {
            "one": { "servers": { "left": { "allowTools": ["echo", "pid"], "timeoutMs": 300 } } },
            "two": { "servers": { "left": { "denyTools": ["pid"], "confirm": "always" }, "right": { "allowTools": ["hang"], "timeoutMs": 200 } } },
        },
        "agents": { "fixed": { "profiles": ["one"] } },
    }))
    .await;
    let with = |name: &str, profiles: &[&str]| {
        scene.gateway.agent(name, IdentityOptions { profiles: Some(owned(profiles)), ..IdentityOptions::default() })
    };
    let names = |agent: &Agent| -> Vec<String> {
        agent.direct_tools(NameStyle::Underscore).unwrap().into_iter().map(|tool| format!("{}/{}", tool.server, tool.tool)).collect()
    };
    assert_eq!(names(&scene.agent("fixed")), ["left/echo", "left/pid"]);
    assert_eq!(names(&with("other", &["one", "two"]).unwrap()), ["left/echo", "right/hang"]);
    assert!(names(&scene.agent("other")).is_empty(), "once there are profiles, who names none has no server");
    assert!(!names(&scene.gateway).is_empty(), "the operator's own agent has all");
    // The stricter `confirm` applies: a question is needed, and nobody can answer it.
    let both = with("other", &["two", "one"]).unwrap();
    assert_eq!((code_of_call(&scene.agent("fixed")).await, code_of_call(&both).await), ("no error", "ERR_CALL_DENIED"));
    let slow = with("other", &["two"]).unwrap().call_tool("right", "hang", object(json!({})), CallOptions::default(), &Stop::new()).await;
    assert!(code(slow) == "ERR_CALL_DENIED" || code(call(&both, "right", "hang").await) == "ERR_CALL_TIMEOUT");
    assert_eq!(code(with("fixed", &["two"])), "ERR_GRANT_IN_CONFIG");
    assert_eq!(code(with("other", &["three"])), "ERR_INVALID_OPTION");
    // After its profile was removed, the agent may use nothing, and not everything.
    write_config(&scene.test_folder, &json!({}));
    scene.gateway.reload().await.unwrap();
    assert!(names(&both).is_empty());
    assert!(!names(&scene.agent("fixed")).is_empty(), "without any profile and grant, all is granted");
    scene.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_attaches_and_tells_nothing_of_a_server_that_is_not_granted() {
    let scene = Scene::open(&json!({})).await;
    scene.grant("reader", &["left/echo"]);
    let config = std::fs::read_to_string(scene.test_folder.path("config.json")).unwrap();
    let mut config: Json = serde_json::from_str(&config).unwrap();
    config["mcpServers"]["right"]["keywords"] = json!(["forecast"]);
    config["mcpServers"]["right"]["disabled"] = json!(true);
    std::fs::write(scene.test_folder.path("config.json"), config.to_string()).unwrap();
    scene.gateway.reload().await.unwrap();
    let sandbox = scene.agent("reader").sandbox(ToolErrors::Return, None).unwrap();
    let run = async |task: Json| {
        let options = RunOptions { task: Some(serde_json::from_value(task).unwrap()), ..RunOptions::default() };
        let code = r#"import { tools } from "host:mcp"; export const handler = () => tools().map((tool) => tool.server)"#;
        let report = within(patience(), "a run", sandbox.run(code.to_owned(), options)).await;
        (Value::from_wire(report.outcome.value.unwrap()).unwrap().into_json()["value"].clone(), report.warnings)
    };
    let (servers, warnings) = run(json!({ "text": "a forecast" })).await;
    assert_eq!((servers, warnings), (json!(["left"]), Vec::<String>::new()));
    let told = async |name: &str| run(json!({ "servers": [name] })).await.1.concat().replace(name, "it");
    assert_eq!(told("right").await, told("absent").await, "whoever names it is told what is told of a name that nobody has");
    scene.gateway.close().await;
}
