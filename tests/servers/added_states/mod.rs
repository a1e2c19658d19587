//! After any sequence of changes, an agent can call a server that another agent has added, or that a provider or the config has, or see its name, only if
//! it is granted, of its profiles, enabled, and approved in its present form. A simple model of the decisions is compared with the gateway.
//! `grants_states` does the same for servers of the config alone.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::bridge::ToolQuery;
use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::gateway::{
    Agent, Answer, ApprovalQuestion, ApprovalRead, CallOptions, Callbacks, EnableAtOpen, IdentityOptions, ResolveOptions, RunOptions,
    SandboxOptions, Task, TaskServer,
};
use hyperlight_mcp::sandbox::{Stop, Value};
use hyperlight_mcp::trust::Decision;
use hyperlight_mcp::{Gateway, GatewayOptions};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use self::model::{Model, Server};
use crate::support::{FIXTURE, TestFolder, guest_choice, patience, pid_of, send, until, within};

const AGENTS: [&str; 3] = ["ann", "bob", "cleo"];
/// The names that agents request. There are few of them, so that names collide.
const WISHES: [&str; 2] = ["Alpha", "Beta"];
/// The servers of the provider, and one of the config.
const PROVIDED: [&str; 3] = ["acme--gamma", "acme--delta", FILES];
const FILES: &str = "files";
/// The agent with a profile that has some of the servers, in those cases that have profiles. The others have a profile with all of them.
const NARROW: &str = "cleo";
const NARROW_PROFILE: [&str; 3] = ["alpha", "acme--gamma", FILES];
/// The possible patterns of the only toolbox. Patterns that match the same tool have different lengths.
const PATTERNS: [&[&str]; 7] = [
    &["*/*"],
    &["alpha/*", "beta/grab_*", "acme--gamma/*", "files/mend_*"],
    &["agent:ann:alpha/*"],
    &["agent:ann:alpha/*", "!alpha/mend_*", "agent:bob:beta/grab_*"],
    &["agent:bob:alpha/*", "acme--delta/mend_*", "files/*"],
    &["*/*", "agent:ann:beta/*", "!*/grab_*"],
    &[],
];
const TOOLBOX: &str = "box";
/// Stands for a resource or prompt, which only patterns with `/*` match.
const RESOURCE: &str = "resource:";

#[derive(Debug, Clone)]
enum Step {
    Add(usize, usize, usize),
    /// An agent changes or removes a server, its own or another's.
    Update(usize, usize, usize),
    RemoveAdded(usize, usize),
    /// An agent changes the display name of a server, its own or another's.
    Rename(usize, usize, usize),
    /// A person enables or disables a server for all agents.
    Enable(usize),
    Disable(usize),
    /// From now on, the provider or the config has a variant of a server, or no longer has the server.
    Offer(usize, Option<usize>),
    Reload,
    Approve(usize),
    Revoke(usize),
    Toolbox(usize),
    Grant(usize),
    Ungrant(usize),
    /// Kills the process of a server.
    Crash(usize),
    /// Ends the gateway and opens another one on the same state.
    Reopen,
    Call(usize, usize, usize),
    /// Asks what an agent would have for a task that names all servers.
    Task(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let (agent, server, variant) = (0..AGENTS.len(), 0..6_usize, 0..2_usize);
    prop_oneof![
        4 => (agent.clone(), 0..WISHES.len(), variant.clone()).prop_map(|(agent, wish, variant)| Step::Add(agent, wish, variant)),
        3 => (agent.clone(), server.clone(), variant.clone()).prop_map(|(agent, server, variant)| Step::Update(agent, server, variant)),
        2 => (agent.clone(), server.clone()).prop_map(|(agent, server)| Step::RemoveAdded(agent, server)),
        1 => (agent.clone(), server.clone(), 0..WISHES.len()).prop_map(|(agent, server, wish)| Step::Rename(agent, server, wish)),
        1 => server.clone().prop_map(Step::Enable),
        1 => server.clone().prop_map(Step::Disable),
        2 => agent.clone().prop_map(Step::Task),
        2 => (0..PROVIDED.len(), prop::option::weighted(0.8, variant)).prop_map(|(server, variant)| Step::Offer(server, variant)),
        2 => Just(Step::Reload),
        5 => server.clone().prop_map(Step::Approve),
        1 => server.clone().prop_map(Step::Revoke),
        3 => (0..PATTERNS.len()).prop_map(Step::Toolbox),
        3 => agent.clone().prop_map(Step::Grant),
        1 => agent.clone().prop_map(Step::Ungrant),
        1 => server.clone().prop_map(Step::Crash),
        1 => Just(Step::Reopen),
        5 => (agent, server, 0..4_usize).prop_map(|(agent, server, tool)| Step::Call(agent, server, tool)),
    ]
}

/// Returns the tools of a variant of a server.
fn tools(variant: usize) -> [String; 2] {
    [format!("grab_{variant}"), format!("mend_{variant}")]
}

fn tool(number: usize) -> String {
    tools(number / 2)[number % 2].clone()
}

/// A person who allows each call.
struct CallsAllowed;

impl Callbacks for CallsAllowed {
    fn approve_call(&self, _: &ApprovalQuestion) -> Option<Answer<Decision>> {
        Some(Box::pin(async { Ok(Decision::Once) }))
    }
}

/// The variants that the provider answers, by the servers' names.
type Offers = Arc<Mutex<BTreeMap<&'static str, usize>>>;

struct World {
    test_folder: TestFolder,
    gateway: Gateway,
    offers: Offers,
    added: usize,
    model: Model,
}

fn arguments(test_folder: &TestFolder, log: &str, variant: usize) -> Vec<String> {
    let [first, second] = tools(variant);
    let tools = ["--tools", "none", "--extra-tool", &first, "--extra-tool", &second];
    test_folder.arguments(log, &[&tools[..], &["--resources", "--prompts"]].concat())
}

impl World {
    async fn new(has_profiles: bool) -> Self {
        let (test_folder, offers) = (TestFolder::new(), Offers::default());
        let gateway = Self::open(&test_folder, &offers, has_profiles).await;
        Self { test_folder, gateway, offers, added: 0, model: Model { has_profiles, ..Model::default() } }
    }

    /// Writes the config: the profiles, and the server that is offered as the config's.
    fn write_config(test_folder: &TestFolder, offers: &Offers, has_profiles: bool) {
        let files = offers.lock().get(FILES).copied();
        let entry =
            files.map(|variant| (FILES, json!({ "command": FIXTURE, "box": "off", "args": arguments(test_folder, FILES, variant) })));
        let mut config = json!({ "mcpServers": entry.into_iter().collect::<BTreeMap<_, _>>() });
        if has_profiles {
            // Names that a later server of an agent may get.
            let added = WISHES.iter().flat_map(|wish| (1..30).map(move |number| (wish.to_lowercase(), number)));
            let added = added.map(|(name, number)| if number == 1 { name } else { format!("{name}-{number}") });
            let all: Vec<String> = PROVIDED.map(str::to_owned).into_iter().chain(added).collect();
            config["profiles"] = json!({ "all": { "servers": all }, "some": { "servers": NARROW_PROFILE } });
            let agents = AGENTS.map(|agent| (agent, json!({ "profiles": [if agent == NARROW { "some" } else { "all" }] })));
            config["agents"] = json!(BTreeMap::from(agents));
        }
        std::fs::write(test_folder.path("config.json"), config.to_string()).unwrap();
    }

    async fn open(test_folder: &TestFolder, offers: &Offers, has_profiles: bool) -> Gateway {
        Self::write_config(test_folder, offers, has_profiles);
        let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
        options.config_path = Some(test_folder.path("config.json"));
        options.state_dir = Some(test_folder.path("state"));
        options.workspace_folder = Some(test_folder.path(""));
        options.enable = EnableAtOpen::Approved;
        options.guest = guest_choice();
        let gateway = Gateway::open(options).unwrap();
        if gateway.toolboxes().unwrap().toolboxes.is_empty() {
            gateway.set_toolbox(TOOLBOX, Some(&[])).unwrap();
        }
        let (offers, all) = (Arc::clone(offers), PROVIDED.map(|name| [0, 1].map(|variant| arguments(test_folder, name, variant))));
        let provider = move || -> Answer<Json> {
            let entry = |(name, variant): (&&str, &usize)| {
                let position = PROVIDED.iter().position(|known| known == name).unwrap();
                Some(json!({ "name": name.strip_prefix("acme--")?, "command": FIXTURE, "args": all[position][*variant] }))
            };
            let answer = offers.lock().iter().filter_map(entry).collect();
            Box::pin(async { Ok(answer) })
        };
        gateway.register_provider("acme", Arc::new(provider)).await.unwrap();
        gateway
    }

    fn agent(&self, name: &str) -> Agent {
        let callbacks = Some(Arc::new(CallsAllowed) as Arc<dyn Callbacks>);
        self.gateway.agent(name, IdentityOptions { callbacks, ..IdentityOptions::default() }).unwrap()
    }

    // long: one arm for each kind of step.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Add(agent, wish, variant) => {
                let log = format!("added{}", self.added);
                self.added += 1;
                let entry = json!({ "name": WISHES[wish], "command": FIXTURE, "args": arguments(&self.test_folder, &log, variant) });
                let status = self.agent(AGENTS[agent]).add_server(serde_json::from_value(entry).unwrap()).await.unwrap();
                let server = Server { owner: Some(AGENTS[agent]), log, variant, approved: None };
                assert!(self.model.servers.insert(status.name, server).is_none(), "a name that was not free");
            }
            Step::Update(agent, server, variant) => {
                let Some(name) = self.model.nth(server) else { return };
                let server = self.model.servers.get_mut(&name).unwrap();
                let change = json!({ "args": arguments(&self.test_folder, &server.log, variant) });
                let agent_handle = self.gateway.agent(AGENTS[agent], IdentityOptions::default()).unwrap();
                let outcome = agent_handle.update_server(&name, serde_json::from_value(change).unwrap()).await;
                assert_eq!(outcome.is_ok(), server.owner == Some(AGENTS[agent]), "{name}: {outcome:?}");
                if outcome.is_ok() {
                    server.variant = variant;
                }
            }
            Step::RemoveAdded(agent, server) => {
                let Some(name) = self.model.nth(server) else { return };
                let outcome = self.agent(AGENTS[agent]).remove_server(&name).await;
                assert_eq!(outcome.is_ok(), self.model.servers[&name].owner == Some(AGENTS[agent]), "{name}: {outcome:?}");
                if let Some(Server { owner: Some(owner), .. }) = outcome.is_ok().then(|| self.model.servers.remove(&name)).flatten() {
                    // The grants that name the server go with it.
                    self.model.toolbox.retain(|pattern| !pattern.starts_with(&format!("agent:{owner}:{name}/")));
                }
            }
            Step::Rename(agent, server, wish) => {
                let Some(name) = self.model.nth(server) else { return };
                let change = json!({ "name": WISHES[wish] });
                let outcome = self.agent(AGENTS[agent]).update_server(&name, serde_json::from_value(change).unwrap()).await;
                assert_eq!(outcome.is_ok(), self.model.servers[&name].owner == Some(AGENTS[agent]), "{name}: {outcome:?}");
            }
            Step::Enable(server) => {
                let Some(name) = self.model.nth(server) else { return };
                if self.gateway.enable(&name).is_ok() {
                    self.model.disabled.remove(&name);
                }
            }
            Step::Disable(server) => {
                let Some(name) = self.model.nth(server) else { return };
                self.gateway.disable(&name).await.unwrap();
                self.model.disabled.insert(name);
            }
            Step::Offer(server, variant) => {
                let name = PROVIDED[server];
                let mut offers = self.offers.lock();
                match variant {
                    Some(variant) => drop(offers.insert(name, variant)),
                    None => drop(offers.remove(name)),
                }
            }
            Step::Reload => {
                Self::write_config(&self.test_folder, &self.offers, self.model.has_profiles);
                self.gateway.reload().await.unwrap();
                self.read_offers();
            }
            Step::Approve(server) => {
                let Some(name) = self.model.nth(server) else { return };
                self.gateway.approve(&name, None, None).await.unwrap();
                self.gateway.enable(&name).unwrap();
                let server = self.model.servers.get_mut(&name).unwrap();
                server.approved = Some(server.variant);
                self.model.ever_approved.insert(server.log.clone());
                self.model.disabled.remove(&name);
            }
            Step::Revoke(server) => {
                let Some(name) = self.model.nth(server) else { return };
                self.gateway.revoke(&name).await.unwrap();
                self.model.servers.get_mut(&name).unwrap().approved = None;
            }
            Step::Toolbox(patterns) => {
                let texts: Vec<_> = PATTERNS[patterns].iter().map(|&text| text.to_owned()).collect();
                self.gateway.set_toolbox(TOOLBOX, Some(&texts)).unwrap();
                self.model.toolbox = PATTERNS[patterns].to_vec();
            }
            Step::Grant(agent) => {
                self.gateway.grant(AGENTS[agent], &[TOOLBOX.to_owned()]).unwrap();
                self.model.granted.insert(AGENTS[agent], true);
            }
            Step::Ungrant(agent) => {
                if self.gateway.ungrant(AGENTS[agent], &[]).is_ok() {
                    self.model.granted.insert(AGENTS[agent], false);
                }
            }
            Step::Crash(server) => {
                let Some(name) = self.model.nth(server) else { return };
                self.crash(&self.model.servers[&name].log);
            }
            Step::Reopen => {
                self.gateway.close().await;
                self.gateway = Self::open(&self.test_folder, &self.offers, self.model.has_profiles).await;
                self.model.disabled.clear();
                self.read_offers();
                // Servers of a provider are not enabled automatically when a gateway is opened.
                for name in self.model.servers.keys().filter(|name| self.model.is_in_force(name)) {
                    self.gateway.enable(name).unwrap();
                }
            }
            Step::Call(agent, server, number) => {
                let Some(name) = self.model.nth(server) else { return };
                self.check_call(AGENTS[agent], &name, &tool(number)).await;
            }
            Step::Task(agent) => self.check_task(AGENTS[agent]).await,
        }
    }

    /// Compares what an agent would have for a task that names all servers with the model.
    async fn check_task(&self, agent: &str) {
        let task = self.task_of_all();
        let resolution =
            self.gateway.resolve(ResolveOptions { agent: Some(agent.to_owned()), task: Some(task), dry_run: true }).await.unwrap();
        for server in resolution.servers.iter().filter(|server| server.in_force) {
            let name = &server.name;
            let reaches = (0..4).any(|number| self.model.may_call(agent, name, &tool(number))) || self.model.may_read(agent, name);
            assert!(reaches, "{agent} would have {name} in a task: {:?}", self.model);
        }
    }

    fn task_of_all(&self) -> Task {
        Task { servers: self.model.servers.keys().map(TaskServer::named).collect::<Vec<_>>().into(), ..Task::default() }
    }

    /// Updates the model after the gateway has read the provider's servers. If a server returns in the form that was approved, it is still
    /// approved.
    fn read_offers(&mut self) {
        let Model { servers, kept, .. } = &mut self.model;
        for name in PROVIDED {
            match servers.remove(name).map(|server| server.approved) {
                Some(Some(approved)) => drop(kept.insert(name.to_owned(), approved)),
                Some(None) => drop(kept.remove(name)),
                None => {}
            }
        }
        for (name, variant) in &*self.offers.lock() {
            let server = Server { owner: None, log: (*name).to_owned(), variant: *variant, approved: kept.get(*name).copied() };
            servers.insert((*name).to_owned(), server);
        }
    }

    /// Kills the newest process of a server, if it still runs.
    fn crash(&self, log: &str) {
        let events = self.test_folder.events(log);
        let Some(pid) = events.iter().rev().find(|event| event["pid"].is_i64()).map(pid_of) else { return };
        // Another program may have this process id now.
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command.contains(&self.test_folder.path("").display().to_string()) {
            send(libc::SIGKILL, pid);
        }
    }

    async fn check_call(&self, agent: &str, server: &str, tool: &str) {
        let handle = self.agent(agent);
        let stop = Stop::new();
        let call = || handle.call_tool(server, tool, serde_json::Map::new(), CallOptions::default(), &stop);
        let mut outcome = within(patience(), "a call", call()).await;
        let may = self.model.may_call(agent, server, tool);
        assert!(outcome.is_err() || may, "{agent} called {server}/{tool}: {:?}", self.model);
        let is_enabled = self.gateway.servers().unwrap().iter().any(|status| status.name == server && status.enabled && status.approved);
        if may && is_enabled {
            // The call may be the first to notice that the process was killed.
            if outcome.as_ref().is_err_and(|error| error.code() == "ERR_SERVER_EXITED") {
                outcome = within(patience(), "a call", call()).await;
            }
            assert!(outcome.is_ok(), "{agent} may call {server}/{tool}: {:?} {:?}", outcome.err().map(|error| error.code()), self.model);
        }
    }

    /// Compares the list that is made of prepared texts with one that is computed: first of the texts from before the last step, then of new
    /// ones. A connection may end between the two lists.
    async fn check_list(&self) {
        self.check_prepared().await;
        self.gateway.prepare_servers();
        self.check_prepared().await;
    }

    async fn check_prepared(&self) {
        let is_same = || {
            let listed: Json = serde_json::from_str(&self.gateway.servers_as_json().unwrap()).unwrap();
            (listed == json!(self.gateway.servers_by(ApprovalRead::Cached).unwrap())).then_some(())
        };
        until("the list of prepared texts is the computed one", is_same).await;
    }

    /// Compares everything that each agent sees with the model, and the running processes with the approvals.
    fn check_views(&self) {
        for agent in AGENTS {
            let handle = self.agent(agent);
            for found in handle.direct_tools(NameStyle::Underscore).unwrap() {
                assert!(self.model.may_call(agent, &found.server, &found.tool), "{agent} sees {}: {:?}", found.tool, self.model);
            }
            let statuses = handle.servers().unwrap();
            for status in &statuses {
                let is_hidden = |tool: &&String| !self.model.may_see(agent, &status.name, tool);
                assert_eq!(status.tools.iter().find(is_hidden), None, "{agent} {}: {:?}", status.name, self.model);
            }
            let query = |words: &str| ToolQuery { query: words.to_owned(), limit: Some(50), servers: None };
            for found in handle.search_tools(&query("grab mend"), ToolErrors::Return).unwrap() {
                assert!(self.model.may_call(agent, &found.server, &found.tool), "{agent} finds {}: {:?}", found.tool, self.model);
            }
            for name in self.model.servers.keys() {
                let resources = handle.resources(name).is_ok_and(|all| !all.is_empty());
                let prompts = handle.prompts(name).is_ok_and(|all| !all.is_empty());
                assert!(!(resources || prompts) || self.model.may_read(agent, name), "{agent} reads {name}: {:?}", self.model);
            }
            let said = [
                handle.declarations(None, ToolErrors::Return).unwrap(),
                handle.system_message(None, ToolErrors::Return).unwrap(),
                json!(handle.list_modules().unwrap()).to_string(),
                statuses.iter().flat_map(|status| [" ", &status.name, " "]).collect(),
                handle.server_info("absent").unwrap_err().to_string(),
            ]
            .concat();
            let words: BTreeSet<&str> = said.split(|next: char| !next.is_ascii_alphanumeric() && next != '-').collect();
            for name in self.model.servers.keys() {
                let is_said = words.contains(name.as_str()) || words.contains(format!("mcp-{name}").as_str());
                assert!(!is_said || self.model.may_know(agent, name), "{agent} hears of {name}: {:?}\n{said}", self.model);
            }
            let own = self.model.servers.iter().filter(|(_, server)| server.owner == Some(agent)).map(|(name, _)| name);
            let is_listed = |name: &&String| statuses.iter().any(|status| status.name == **name);
            assert!(own.clone().all(|name| is_listed(&name)), "{agent} does not see its own: {:?}", self.model);
        }
        let logs = (0..self.added).map(|number| format!("added{number}")).chain(PROVIDED.map(str::to_owned));
        for log in logs.filter(|log| !self.model.ever_approved.contains(log)) {
            assert_eq!(self.test_folder.count(&log, "spawn"), 0, "{log} was started, and nobody has approved it");
        }
    }
}

/// Lists what agent code finds in `host:mcp`: of each server its name and its tools. Then tries to call each tool of each server by its raw name.
const LOOKS_AROUND: &str = r#"
    import { call, prompts, resources, search, tools } from "host:mcp";
    export const handler = (wanted) => ({
        found: JSON.stringify([tools(), resources(), prompts(), search("grab mend")]),
        called: wanted.filter(([server, tool]) => { try { call(server, tool, {}); return true } catch { return false } }),
    })"#;

impl World {
    /// Compares what agent code in a VM finds and can call with the model. The task of the run names all servers.
    async fn check_code(&self, agent: &'static str) {
        let handle = self.agent(agent);
        let sandbox = handle.sandbox_with(SandboxOptions { task: Some(self.task_of_all()), ..SandboxOptions::default() }).unwrap();
        let all: Vec<_> = self.model.servers.keys().flat_map(|name| (0..4).map(move |number| (name.clone(), tool(number)))).collect();
        let options = RunOptions { input: Some(Value::from(json!(all)).to_wire()), ..RunOptions::default() };
        let outcome = within(patience(), "a run", sandbox.run(LOOKS_AROUND.to_owned(), options)).await.outcome;
        let Value::Record(mut fields) = Value::from_wire(outcome.value.unwrap()).unwrap() else { panic!("no record") };
        let value = fields.remove(0).1.into_json();
        let found = value["found"].to_string();
        let words: BTreeSet<&str> = found.split(|next: char| !next.is_ascii_alphanumeric() && next != '-').collect();
        for name in self.model.servers.keys() {
            assert!(!words.contains(name.as_str()) || self.model.may_know(agent, name), "{agent} finds {name}: {:?}\n{found}", self.model);
        }
        for (name, tool) in all {
            let called = value["called"].as_array().unwrap().contains(&json!([name, tool]));
            assert!(!called || self.model.may_call(agent, &name, &tool), "{agent} called {name}/{tool}: {:?}", self.model);
        }
        sandbox.close().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_changes_gives_away_what_agents_have_added_or_providers_bring(
        steps in prop::collection::vec(any_step(), 6..30), has_profiles in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(has_profiles).await;
            // These steps lead to a state in which calls succeed.
            for step in [Step::Add(0, 0, 0), Step::Add(1, 1, 1), Step::Offer(0, Some(0)), Step::Offer(2, Some(1)), Step::Reload, Step::Approve(0), Step::Approve(1), Step::Approve(2), Step::Approve(3)] {
                world.take(&step).await;
            }
            for step in &steps {
                world.take(step).await;
                world.check_views();
                world.check_list().await;
            }
            let names: Vec<_> = world.model.servers.keys().cloned().collect();
            for (agent, name) in AGENTS.into_iter().flat_map(|agent| names.iter().map(move |name| (agent, name))) {
                for number in 0..4 {
                    world.check_call(agent, name, &tool(number)).await;
                }
            }
            // A VM takes long, so that only one agent's code looks around.
            world.check_code(AGENTS[steps.len() % AGENTS.len()]).await;
            world.gateway.close().await;
        });
    }
}
