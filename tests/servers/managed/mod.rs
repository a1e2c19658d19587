//! Tests of servers that agents add at run time, through the crate's own API: who may use them, and when.

mod attacks;
mod granted;
mod names;

use std::sync::Arc;

use hyperlight_mcp::agent::{AgentOptions, AgentTools};
use hyperlight_mcp::gateway::{Agent, Answer, ApprovalQuestion, CallOptions, Callbacks, IdentityOptions};
use hyperlight_mcp::registry::{ServerChange, ServerState, ServerStatus};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::trust::{ApprovalRequest, Decision};
use hyperlight_mcp::{Gateway, GatewayOptions};
use serde_json::{Value as Json, json};

use crate::support::asking::RecordedEvents;
use crate::support::{FIXTURE, TestFolder, emulated, object};

/// The server of the operator's config.
const OURS: &str = "github";
/// The name under which all servers of models record their start.
const EVIL: &str = "evil";
const SECRET: &str = "correct-horse-battery";

struct World {
    test_folder: TestFolder,
    told: RecordedEvents,
    gateway: Gateway,
}

impl World {
    async fn open() -> Self {
        Self::with(TestFolder::new(), |_| {}).await
    }

    async fn with(test_folder: TestFolder, more: impl FnOnce(&mut GatewayOptions)) -> Self {
        let told = RecordedEvents::default();
        let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
        let ours = json!({ "command": FIXTURE, "box": "off", "args": test_folder.arguments(OURS, &[]), "confirm": "never" });
        options.config = Some(json!({ "mcpServers": { OURS: ours }, "inputs": [{ "type": "promptString", "id": "token" }] }));
        options.state_dir = Some(test_folder.path("state"));
        options.workspace_folder = Some(test_folder.path(""));
        options.environment.insert("API_KEY".to_owned(), SECRET.to_owned());
        options.on_event = Some(told.listener());
        if emulated() {
            options.limits.connect_timeout_ms = Some(80_000);
        }
        more(&mut options);
        let gateway = Gateway::open(options).unwrap();
        gateway.approve(OURS, None, None).await.unwrap();
        gateway.enable(OURS).unwrap();
        Self { test_folder, told, gateway }
    }

    async fn reopened(self, more: impl FnOnce(&mut GatewayOptions)) -> Self {
        self.gateway.close().await;
        Self::with(self.test_folder, more).await
    }

    fn agent(&self, name: &str) -> Agent {
        let callbacks = Some(Arc::new(CallsAllowed) as Arc<dyn Callbacks>);
        self.gateway.agent(name, IdentityOptions { callbacks, ..IdentityOptions::default() }).unwrap()
    }

    fn status(&self, name: &str) -> Option<ServerStatus> {
        self.gateway.servers().unwrap().into_iter().find(|status| status.name == name)
    }

    fn state(&self, name: &str) -> Option<ServerState> {
        self.status(name).map(|status| status.state)
    }

    fn proposals(&self, name: &str) -> Vec<Json> {
        self.told.all("server-proposed").into_iter().filter(|event| event["server"] == name).collect()
    }

    /// Returns how often a server of a model was started.
    fn starts(&self) -> usize {
        self.test_folder.count(EVIL, "spawn")
    }

    /// Returns an entry that would start the fixture server.
    fn entry(&self, name: &str, more: &[&str]) -> Json {
        json!({ "name": name, "command": FIXTURE, "args": self.test_folder.arguments(EVIL, more) })
    }

    /// Approves the command and the tools of a server, like a person who has read both requests.
    async fn approve(&self, name: &str) {
        for _ in 0..2 {
            let request = self.gateway.approval_request(name).await.unwrap();
            self.gateway.approve(name, Some(request.digest()), None).await.unwrap();
        }
    }
}

fn managing() -> AgentOptions {
    AgentOptions { manage: true, ..AgentOptions::default() }
}

fn change(json: Json) -> ServerChange {
    serde_json::from_value(json).unwrap()
}

/// A person who allows each call.
struct CallsAllowed;

impl Callbacks for CallsAllowed {
    fn approve_call(&self, _: &ApprovalQuestion) -> Option<Answer<Decision>> {
        Some(Box::pin(async { Ok(Decision::Once) }))
    }
}

/// A model of an agent, with all tools.
struct Model {
    agent: Agent,
    tools: AgentTools,
}

impl Model {
    fn of(agent: Agent) -> Self {
        Self { tools: AgentTools::new(agent.clone(), None, managing()).unwrap(), agent }
    }

    async fn calls(&self, tool: &str, arguments: Json) -> Json {
        self.tools.execute(tool, &arguments, &Stop::new()).await.unwrap()
    }

    /// Adds a server, and returns its name.
    async fn adds(&self, entry: Json) -> String {
        let answer = self.calls("add_mcp_server", entry).await;
        answer["server"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Calls a tool of a server. Returns the code of the error, or `no error`.
    async fn reaches(&self, server: &str) -> &'static str {
        let outcome = self.agent.call_tool(server, "pid", object(json!({})), CallOptions::default(), &Stop::new()).await;
        outcome.err().map_or("no error", |error| error.code())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_adds_waits_for_a_person_and_is_for_this_agent_alone() {
    let world = World::open().await;
    let (model, other) = (Model::of(world.agent("researcher")), Model::of(world.agent("other")));
    let status = model.agent.add_server(change(world.entry("My Café!", &[]))).await.unwrap();
    assert_eq!((status.name.as_str(), status.state), ("my-cafe", ServerState::PendingApproval));
    assert_eq!(
        (status.display_name.as_deref(), json!(status.source)),
        (Some("My Café!"), json!({ "kind": "agent", "name": "researcher" }))
    );
    // The server comes first in the lists for a person and for the model. The event contains what a person must see.
    assert_eq!(world.gateway.servers().unwrap()[0].name, "my-cafe");
    assert_eq!(model.calls("list_mcp_servers", json!({})).await["servers"][0]["name"], "my-cafe");
    let told = world.proposals("my-cafe");
    let ApprovalRequest::Command(request) = world.gateway.approval_request("my-cafe").await.unwrap() else { panic!("stage manifest") };
    assert_eq!((told.len(), &told[0]["request"], told[0]["approved"].as_bool()), (1, &json!(request), Some(false)));
    assert_eq!(model.reaches("my-cafe").await, "ERR_NOT_APPROVED");
    assert_eq!(world.starts(), 0);

    world.approve("my-cafe").await;
    assert_eq!(model.reaches("my-cafe").await, "ERR_NOT_ENABLED");
    assert_eq!(model.calls("manage_mcp", json!({ "action": "enable", "server": "my-cafe" })).await["usable"], true);
    assert_eq!(model.reaches("my-cafe").await, "no error");
    // Nobody else can use it, even if a person enables it for all agents.
    world.gateway.enable("my-cafe").unwrap();
    assert_eq!(other.reaches("my-cafe").await, "ERR_UNKNOWN_SERVER");
    let own = Model::of(world.gateway.clone().into());
    assert_eq!(own.reaches("my-cafe").await, "ERR_UNKNOWN_SERVER");
    assert!(!other.calls("list_mcp_servers", json!({})).await.to_string().contains("my-cafe"));
    for tool in ["search_mcp_tools", "describe_mcp_tools"] {
        let arguments = if tool == "search_mcp_tools" { json!({ "query": "echo" }) } else { json!({ "names": ["my-cafe"] }) };
        assert!(!other.calls(tool, arguments).await.to_string().contains("host:mcp-my-cafe"), "{tool}");
    }
    assert!(model.calls("search_mcp_tools", json!({ "query": "echo" })).await.to_string().contains("host:mcp-my-cafe"));
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_what_runs_is_asked_about_again_and_a_rename_is_not() {
    let world = World::open().await;
    let agent = world.agent("researcher");
    agent.add_server(change(world.entry("Files", &[]))).await.unwrap();
    world.approve("files").await;
    world.gateway.enable("files").unwrap();
    let model = Model::of(agent);
    assert_eq!(model.reaches("files").await, "no error");

    let renamed = model.agent.update_server("files", change(json!({ "name": "Other Files", "timeoutMs": 5000 }))).await.unwrap();
    assert_eq!((renamed.name.as_str(), renamed.display_name.as_deref(), renamed.approved), ("files", Some("Other Files"), true));
    assert_eq!((model.reaches("files").await, world.proposals("files").len()), ("no error", 1));

    let starts = world.starts();
    let changed = model.agent.update_server("files", change(json!({ "env": { "TOKEN": SECRET } }))).await.unwrap();
    assert_eq!((changed.state, changed.tools.len()), (ServerState::PendingApproval, 0));
    assert_eq!((model.reaches("files").await, world.proposals("files").len()), ("ERR_NOT_APPROVED", 2));
    assert_eq!(world.starts(), starts);
    world.approve("files").await;
    assert_eq!(model.reaches("files").await, "no error");

    // Names of variables are shown, but never their values.
    let told = format!("{:?} {:?}", world.told.all("server-proposed"), world.gateway.server_info("files").unwrap());
    assert!(told.contains("TOKEN") && !told.contains(SECRET), "{told}");

    model.agent.remove_server("files").await.unwrap();
    assert_eq!((world.state("files"), model.reaches("files").await), (None, "ERR_UNKNOWN_SERVER"));
    let mut again = world.entry("Files", &[]);
    again["env"] = json!({ "TOKEN": SECRET });
    let again = model.agent.add_server(change(again)).await.unwrap();
    assert_eq!((again.name.as_str(), again.state, again.enabled), ("files", ServerState::PendingApproval, false));
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_has_decided_is_told_at_each_start_and_a_decision_holds() {
    let world = World::open().await;
    let agent = world.agent("researcher");
    agent.add_server(change(world.entry("Files", &[]))).await.unwrap();
    agent.add_server(change(world.entry("Approved", &[]))).await.unwrap();
    world.approve("approved").await;
    let world = world.reopened(|_| {}).await;
    assert_eq!((world.proposals("files").len(), world.proposals("approved").len()), (1, 0));
    assert_eq!(world.state("files"), Some(ServerState::PendingApproval));
    let model = Model::of(world.agent("researcher"));
    model.agent.enable_as("approved", hyperlight_mcp::registry::Decider::Model).unwrap();
    assert_eq!((model.reaches("approved").await, model.reaches("files").await), ("no error", "ERR_NOT_APPROVED"));
    // The operator refuses the server by removing it.
    world.gateway.remove_server("files").await.unwrap();
    let world = world.reopened(|_| {}).await;
    assert_eq!((world.state("files"), world.proposals("files").len()), (None, 0));
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_approval_what_an_agent_adds_runs_and_what_it_changes_does_not() {
    let by_variable = |value: &'static str| {
        move |options: &mut GatewayOptions| drop(options.environment.insert("MCP_REQUIRE_APPROVAL".to_owned(), value.to_owned()))
    };
    let world = World::with(TestFolder::new(), by_variable("false")).await;
    let model = Model::of(world.agent("researcher"));
    let mut entry = world.entry("Files", &[]);
    let answer = model.calls("add_mcp_server", entry.clone()).await;
    assert_eq!((&answer["approved"], &answer["enabled"]), (&json!(true), &json!(true)), "{answer}");
    let files = answer["server"].as_str().unwrap();
    assert_eq!((model.reaches(files).await, world.proposals(files)[0]["approved"].as_bool()), ("no error", Some(true)));
    let changed = model.calls("update_mcp_server", json!({ "server": files, "env": { "A": "1" } })).await;
    assert_eq!((&changed["state"], model.reaches(files).await), (&json!("pending-approval"), "ERR_NOT_APPROVED"));
    // Here too, a person must decide about a variable that loads code, and about a server that does not start.
    entry["env"] = json!({ "NODE_OPTIONS": "--import /tmp/evil.mjs" });
    entry["name"] = "Loader".into();
    assert_eq!(model.calls("add_mcp_server", entry).await["state"], "pending-approval");
    let broken = model.calls("add_mcp_server", json!({ "name": "Broken", "command": "/nowhere/at-all" })).await;
    assert_eq!((&broken["state"], &broken["approved"]), (&json!("pending-approval"), &json!(false)), "{broken}");

    // With any other value, a person must approve. The option has priority over the variable.
    let world = world.reopened(by_variable("no")).await;
    let model = Model::of(world.agent("other"));
    assert_eq!(model.calls("add_mcp_server", world.entry("A", &[])).await["state"], "pending-approval");
    let world = world
        .reopened(|options| {
            by_variable("false")(options);
            options.require_approval = Some(true);
        })
        .await;
    let model = Model::of(world.agent("another"));
    assert_eq!(model.calls("add_mcp_server", world.entry("B", &[])).await["state"], "pending-approval");
    world.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_hides_a_server_of_its_name_and_the_agent_cannot_touch_it() {
    let world = World::open().await;
    let agent = world.agent("researcher");
    agent.add_server(change(world.entry("Files", &[]))).await.unwrap();
    world.approve("files").await;
    let ours = json!({ "command": FIXTURE, "box": "off", "args": world.test_folder.arguments("files", &[]), "confirm": "never" });
    let world =
        world.reopened(|options| options.config = Some(json!({ "mcpServers": { OURS: ours.clone(), "files": ours.clone() } }))).await;
    let status = world.status("files").unwrap();
    // The approval of the agent's server is not valid for the server of the config.
    assert!(!status.approved && status.source.is_operators_config() && status.display_name.is_none());
    assert_eq!(json!(status.hides), json!([{ "kind": "agent", "name": "researcher" }]));
    world.gateway.approve("files", None, None).await.unwrap();
    let agent = world.agent("researcher");
    agent.remove_server("files").await.unwrap();
    let status = world.status("files").unwrap();
    assert!(status.approved && status.hides.is_empty());
    assert_eq!(agent.remove_server("files").await.unwrap_err().code(), "ERR_OPERATOR_ONLY");
    world.gateway.close().await;
}

/// A person who reads each request, and approves all or none of them.
struct Reader {
    says: bool,
    read: std::sync::Mutex<Vec<String>>,
}

impl Callbacks for Reader {
    fn can_approve_server(&self) -> bool {
        true
    }

    fn approve_server(&self, request: &ApprovalRequest) -> Option<Answer<bool>> {
        let stage = if matches!(request, ApprovalRequest::Command(_)) { "command" } else { "manifest" };
        self.read.lock().unwrap().push(stage.to_owned());
        let says = self.says;
        Some(Box::pin(async move { Ok(says) }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn enabling_asks_the_operator_about_each_stage_and_never_for_a_model() {
    for (says, expected) in [(true, vec!["command", "manifest"]), (false, vec!["command"])] {
        let reader = Arc::new(Reader { says, read: std::sync::Mutex::default() });
        let callbacks = Arc::clone(&reader) as Arc<dyn Callbacks>;
        let world = World::with(TestFolder::new(), |options| options.callbacks = Some(callbacks)).await;
        let model = Model::of(world.agent("model"));
        let files = model.adds(world.entry("Files", &[])).await;
        model.calls("manage_mcp", json!({ "action": "enable", "server": files })).await;
        assert!(reader.read.lock().unwrap().is_empty());
        let outcome = world.gateway.enable_asking(&files).await;
        assert_eq!(outcome.err().map(|error| error.code()), (!says).then_some("ERR_NOT_APPROVED"));
        assert_eq!(*reader.read.lock().unwrap(), expected);
        assert_eq!(world.starts() > 0, says);
        world.gateway.close().await;
    }
}
