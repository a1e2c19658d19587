//! After any sequence of changes, an agent can call a server that another agent has added or a provider provides, or see its name, only if
//! it is granted and approved in its present form. A simple model of the decisions is compared with the gateway. `grants_states` does the
//! same for servers of the config.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::gateway::{Agent, Answer, ApprovalQuestion, CallOptions, Callbacks, EnableAtOpen, IdentityOptions};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::trust::Decision;
use hyperlight_mcp::{Gateway, GatewayOptions};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::support::{FIXTURE, TestFolder, guest_choice, patience, pid_of, send, within};

const AGENTS: [&str; 3] = ["ann", "bob", "cleo"];
/// The names that agents request. There are few of them, so that names collide.
const WISHES: [&str; 2] = ["Alpha", "Beta"];
const PROVIDED: [&str; 2] = ["acme--gamma", "acme--delta"];
/// The possible patterns of the only toolbox. Patterns that match the same tool have different lengths.
const PATTERNS: [&[&str]; 7] = [
    &["*/*"],
    &["alpha/*", "beta/grab_*", "acme--gamma/*"],
    &["agent:ann:alpha/*"],
    &["agent:ann:alpha/*", "!alpha/mend_*", "agent:bob:beta/grab_*"],
    &["agent:bob:alpha/*", "acme--delta/mend_*"],
    &["*/*", "agent:ann:beta/*", "!*/grab_*"],
    &[],
];
const TOOLBOX: &str = "box";

#[derive(Debug, Clone)]
enum Step {
    Add(usize, usize, usize),
    /// An agent changes or removes a server, its own or another's.
    Update(usize, usize, usize),
    RemoveAdded(usize, usize),
    /// From now on, the provider provides a variant of a server, or no longer provides the server.
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
}

fn any_step() -> impl Strategy<Value = Step> {
    let (agent, server, variant) = (0..AGENTS.len(), 0..6_usize, 0..2_usize);
    prop_oneof![
        4 => (agent.clone(), 0..WISHES.len(), variant.clone()).prop_map(|(agent, wish, variant)| Step::Add(agent, wish, variant)),
        3 => (agent.clone(), server.clone(), variant.clone()).prop_map(|(agent, server, variant)| Step::Update(agent, server, variant)),
        1 => (agent.clone(), server.clone()).prop_map(|(agent, server)| Step::RemoveAdded(agent, server)),
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

/// The present state of a server.
#[derive(Debug, Clone)]
struct Server {
    /// The agent that has added the server. `None` if the provider provides it.
    owner: Option<&'static str>,
    /// The name of its log.
    log: String,
    variant: usize,
    approved: Option<usize>,
}

/// The decisions that were made, as a person would write them down.
#[derive(Debug, Default)]
struct Model {
    servers: BTreeMap<String, Server>,
    /// Approvals of servers that the provider does not provide at present.
    kept: BTreeMap<String, usize>,
    toolbox: usize,
    granted: BTreeMap<&'static str, bool>,
    ever_approved: BTreeSet<String>,
}

impl Model {
    /// Returns the server that the number of a step selects.
    fn nth(&self, number: usize) -> Option<String> {
        self.servers.keys().nth(number % self.servers.len().max(1)).cloned()
    }

    /// Returns the patterns that may apply to a server, in order: whether each one denies (`!`), and its part after the server's name.
    fn fitting(&self, agent: &str, name: &str, server: &Server) -> Vec<(bool, &'static str)> {
        let given = self.granted.get(agent) == Some(&true);
        let fits = |pattern: &&'static str| {
            let (denies, rest) = pattern.strip_prefix('!').map_or((false, *pattern), |rest| (true, rest));
            let (of, item) = rest.split_once('/')?;
            let by_name = of == "*" || of == name;
            let fits = match server.owner {
                Some(owner) => denies && by_name || of == format!("agent:{owner}:{name}"),
                None => by_name,
            };
            fits.then_some((denies, item))
        };
        PATTERNS[self.toolbox].iter().filter(|_| given).filter_map(fits).collect()
    }

    /// Returns whether agents without a grant may use everything. This is true until an agent gets its first grant.
    fn grants_by_default(&self) -> bool {
        self.granted.is_empty()
    }

    fn grants(&self, agent: &str, name: &str, tool: &str) -> bool {
        let server = &self.servers[name];
        let part = |item: &str| item.strip_suffix('*').map_or(item == tool, |start| tool.starts_with(start));
        let last = self.fitting(agent, name, server).into_iter().rfind(|(_, item)| part(item));
        let own = server.owner == Some(agent);
        own || last.is_some_and(|(denies, _)| !denies) || server.owner.is_none() && self.grants_by_default()
    }

    fn is_in_force(&self, name: &str) -> bool {
        self.servers.get(name).is_some_and(|server| server.approved == Some(server.variant))
    }

    fn may_call(&self, agent: &str, name: &str, tool: &str) -> bool {
        self.is_in_force(name) && tools(self.servers[name].variant).contains(&tool.to_owned()) && self.grants(agent, name, tool)
    }

    /// Returns whether an agent may know the name of a server.
    fn may_know(&self, agent: &str, name: &str) -> bool {
        let Some(server) = self.servers.get(name) else { return false };
        let is_named = self.fitting(agent, name, server).iter().any(|(denies, _)| !denies);
        match server.owner {
            Some(owner) => owner == agent || is_named && self.is_in_force(name),
            None => is_named || self.grants_by_default(),
        }
    }
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
    test_folder.arguments(log, &["--tools", "none", "--extra-tool", &first, "--extra-tool", &second])
}

impl World {
    async fn new() -> Self {
        let (test_folder, offers) = (TestFolder::new(), Offers::default());
        let gateway = Self::open(&test_folder, &offers).await;
        Self { test_folder, gateway, offers, added: 0, model: Model { toolbox: PATTERNS.len() - 1, ..Model::default() } }
    }

    async fn open(test_folder: &TestFolder, offers: &Offers) -> Gateway {
        let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
        options.config = Some(json!({}));
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
                json!({ "name": name.strip_prefix("acme--"), "command": FIXTURE, "args": all[position][*variant] })
            };
            let answer = offers.lock().iter().map(entry).collect();
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
                if outcome.is_ok() {
                    self.model.servers.remove(&name);
                }
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
            }
            Step::Revoke(server) => {
                let Some(name) = self.model.nth(server) else { return };
                self.gateway.revoke(&name).await.unwrap();
                self.model.servers.get_mut(&name).unwrap().approved = None;
            }
            Step::Toolbox(patterns) => {
                let texts: Vec<_> = PATTERNS[patterns].iter().map(|&text| text.to_owned()).collect();
                self.gateway.set_toolbox(TOOLBOX, Some(&texts)).unwrap();
                self.model.toolbox = patterns;
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
                self.gateway = Self::open(&self.test_folder, &self.offers).await;
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
        }
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

    /// Compares everything that each agent sees with the model, and the running processes with the approvals.
    fn check_views(&self) {
        for agent in AGENTS {
            let handle = self.agent(agent);
            for found in handle.direct_tools(NameStyle::Underscore).unwrap() {
                assert!(self.model.may_call(agent, &found.server, &found.tool), "{agent} sees {}: {:?}", found.tool, self.model);
            }
            let statuses = handle.servers().unwrap();
            for status in &statuses {
                let is_hidden = |tool: &&String| !self.model.may_call(agent, &status.name, tool);
                assert_eq!(status.tools.iter().find(is_hidden), None, "{agent} {}: {:?}", status.name, self.model);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_changes_gives_away_what_agents_have_added_or_providers_bring(steps in prop::collection::vec(any_step(), 6..30)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            // These steps lead to a state in which calls succeed.
            for step in [Step::Add(0, 0, 0), Step::Add(1, 1, 1), Step::Offer(0, Some(0)), Step::Reload, Step::Approve(0), Step::Approve(1), Step::Approve(2)] {
                world.take(&step).await;
            }
            for step in &steps {
                world.take(step).await;
                world.check_views();
            }
            let names: Vec<_> = world.model.servers.keys().cloned().collect();
            for (agent, name) in AGENTS.into_iter().flat_map(|agent| names.iter().map(move |name| (agent, name))) {
                for number in 0..4 {
                    world.check_call(agent, name, &tool(number)).await;
                }
            }
            world.gateway.close().await;
        });
    }
}
