//! After any sequence of changes, an agent can call a tool, or see a name, only if it is granted and a person has approved it. A simple
//! model of the decisions is compared with the gateway.

use std::collections::{BTreeMap, BTreeSet};

use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::gateway::{Agent, CallOptions, EnableAtOpen, IdentityOptions};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::{Gateway, GatewayOptions};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::support::{FIXTURE, TestFolder, guest_choice, patience, pid_of, send, within};

const NAMES: [&str; 3] = ["zeta", "yotta", "xenon"];
const AGENTS: [&str; 2] = ["ann", "bob"];
const BOXES: [&str; 2] = ["first", "second"];
const PATTERNS: [&[&str]; 7] =
    [&["zeta/*"], &["*/grab_*"], &["*/*", "!*/mend_*"], &["yotta/mend_1"], &["!zeta/*"], &["xenon/grab_0", "!xenon/grab_0"], &[]];

#[derive(Debug, Clone)]
enum Step {
    /// Writes an entry to the config, which adds or changes a server.
    Entry(usize, usize),
    Remove(usize),
    Rename(usize, usize),
    Reload,
    Approve(usize),
    Revoke(usize),
    Enable(usize),
    Disable(usize),
    Toolbox(usize, usize),
    Grant(usize, usize),
    Ungrant(usize, usize),
    /// Kills the process of a server.
    Crash(usize),
    /// Ends the gateway and opens another one on the same state.
    Reopen,
    Call(usize, usize, usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let (name, agent, toolbox, kind) = (0..NAMES.len(), 0..AGENTS.len(), 0..BOXES.len(), 0..2_usize);
    prop_oneof![
        3 => (name.clone(), kind).prop_map(|(name, variant)| Step::Entry(name, variant)),
        1 => name.clone().prop_map(Step::Remove),
        1 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => Just(Step::Reload),
        4 => name.clone().prop_map(Step::Approve),
        1 => name.clone().prop_map(Step::Revoke),
        2 => name.clone().prop_map(Step::Enable),
        1 => name.clone().prop_map(Step::Disable),
        3 => (toolbox.clone(), 0..PATTERNS.len()).prop_map(|(toolbox, patterns)| Step::Toolbox(toolbox, patterns)),
        3 => (agent.clone(), toolbox.clone()).prop_map(|(agent, toolbox)| Step::Grant(agent, toolbox)),
        2 => (agent.clone(), toolbox).prop_map(|(agent, toolbox)| Step::Ungrant(agent, toolbox)),
        1 => name.clone().prop_map(Step::Crash),
        1 => Just(Step::Reopen),
        4 => (agent, name, 0..4_usize).prop_map(|(agent, name, tool)| Step::Call(agent, name, tool)),
    ]
}

/// Returns the tools of a variant of an entry.
fn tools(variant: usize) -> [String; 2] {
    [format!("grab_{variant}"), format!("mend_{variant}")]
}

fn tool(number: usize) -> String {
    tools(number / 2)[number % 2].clone()
}

/// The decisions that were made, as a person would write them down.
#[derive(Debug, Default)]
struct Model {
    /// The entries in the config file. `read` contains those that the gateway has read.
    written: BTreeMap<&'static str, usize>,
    read: BTreeMap<&'static str, usize>,
    approved: BTreeMap<&'static str, usize>,
    toolboxes: BTreeMap<&'static str, usize>,
    grants: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Model {
    /// Returns the variant of a server if a person has approved the variant that is now in the config.
    fn in_force(&self, name: &str) -> Option<usize> {
        self.read.get(name).copied().filter(|variant| self.approved.get(name) == Some(variant))
    }

    fn patterns(&self, agent: &str) -> Option<Vec<&'static str>> {
        let given = self.grants.get(agent)?;
        Some(given.iter().flat_map(|toolbox| PATTERNS[self.toolboxes[toolbox]]).copied().collect())
    }

    fn grants(&self, agent: &str, server: &str, tool: &str) -> bool {
        let Some(patterns) = self.patterns(agent) else { return self.grants.is_empty() };
        let part = |pattern: &str, text: &str| pattern.strip_suffix('*').map_or(pattern == text, |start| text.starts_with(start));
        let fits =
            |pattern: &str| pattern.trim_start_matches('!').split_once('/').is_some_and(|(of, item)| part(of, server) && part(item, tool));
        let fitting: Vec<_> = patterns.into_iter().filter(|pattern| fits(pattern)).collect();
        let denied: BTreeSet<_> = fitting.iter().filter_map(|pattern| pattern.strip_prefix('!')).map(str::len).collect();
        fitting.last().is_some_and(|last| !last.starts_with('!') && !denied.contains(&last.len()))
    }

    /// Returns whether a pattern that allows something applies to the server.
    fn names(&self, agent: &str, server: &str) -> bool {
        self.patterns(agent).map_or(self.grants.is_empty(), |patterns| {
            patterns.iter().any(|pattern| pattern.split_once('/').is_some_and(|(of, _)| of == "*" || of == server))
        })
    }

    fn may_call(&self, agent: &str, server: &str, tool: &str) -> bool {
        self.in_force(server).is_some_and(|variant| tools(variant).contains(&tool.to_owned())) && self.grants(agent, server, tool)
    }
}

struct World {
    test_folder: TestFolder,
    gateway: Gateway,
    model: Model,
}

fn open(test_folder: &TestFolder) -> Gateway {
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config_path = Some(test_folder.path("config.json"));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.enable = EnableAtOpen::Approved;
    options.guest = guest_choice();
    Gateway::open(options).unwrap()
}

impl World {
    fn new() -> Self {
        let (test_folder, model) = (TestFolder::new(), Model::default());
        write(&test_folder, &model);
        Self { gateway: open(&test_folder), test_folder, model }
    }

    fn agent(&self, name: &str) -> Agent {
        self.gateway.agent(name, IdentityOptions::default()).unwrap()
    }

    // long: one arm for each kind of step.
    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Entry(name, variant) => {
                self.model.written.insert(NAMES[name], variant);
                write(&self.test_folder, &self.model);
            }
            Step::Remove(name) => {
                self.model.written.remove(NAMES[name]);
                write(&self.test_folder, &self.model);
            }
            Step::Rename(from, to) => {
                if let Some(variant) = self.model.written.remove(NAMES[from]) {
                    self.model.written.insert(NAMES[to], variant);
                }
                write(&self.test_folder, &self.model);
            }
            Step::Reload => {
                self.gateway.reload().await.unwrap();
                self.model.read = self.model.written.clone();
            }
            Step::Approve(name) => {
                if self.gateway.approve(NAMES[name], None, None).await.is_ok() {
                    let variant = self.model.read[NAMES[name]];
                    self.model.approved.insert(NAMES[name], variant);
                    self.gateway.enable(NAMES[name]).unwrap();
                }
            }
            Step::Revoke(name) => {
                if self.gateway.revoke(NAMES[name]).await.is_ok() {
                    self.model.approved.remove(NAMES[name]);
                }
            }
            Step::Enable(name) => assert_eq!(self.gateway.enable(NAMES[name]).is_ok(), self.model.in_force(NAMES[name]).is_some()),
            Step::Disable(name) => drop(self.gateway.disable(NAMES[name]).await),
            Step::Toolbox(toolbox, patterns) => {
                let texts: Vec<_> = PATTERNS[patterns].iter().map(|&text| text.to_owned()).collect();
                self.gateway.set_toolbox(BOXES[toolbox], Some(&texts)).unwrap();
                self.model.toolboxes.insert(BOXES[toolbox], patterns);
            }
            Step::Grant(agent, toolbox) => {
                let outcome = self.gateway.grant(AGENTS[agent], &[BOXES[toolbox].to_owned()]);
                assert_eq!(outcome.is_ok(), self.model.toolboxes.contains_key(BOXES[toolbox]));
                if outcome.is_ok() {
                    let given = self.model.grants.entry(AGENTS[agent]).or_default();
                    if !given.contains(&BOXES[toolbox]) {
                        given.push(BOXES[toolbox]);
                    }
                }
            }
            Step::Ungrant(agent, toolbox) => {
                if self.gateway.ungrant(AGENTS[agent], &[BOXES[toolbox].to_owned()]).is_ok() {
                    self.model.grants.get_mut(AGENTS[agent]).unwrap().retain(|given| *given != BOXES[toolbox]);
                }
            }
            Step::Crash(name) => {
                self.crash(NAMES[name]);
            }
            Step::Reopen => {
                self.gateway.close().await;
                self.gateway = open(&self.test_folder);
                self.model.read = self.model.written.clone();
            }
            Step::Call(agent, name, number) => self.check_call(AGENTS[agent], NAMES[name], &tool(number)).await,
        }
    }

    /// Kills the newest process of a server, if it still runs.
    fn crash(&self, name: &str) {
        let events = self.test_folder.events(name);
        let Some(pid) = events.iter().rev().find(|event| event["pid"].is_i64()).map(pid_of) else { return };
        // Another program may have this process id now.
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command.contains(&self.test_folder.path("").display().to_string()) {
            send(libc::SIGKILL, pid);
        }
    }

    async fn check_call(&self, agent: &str, server: &str, tool: &str) {
        let agent_handle = self.agent(agent);
        let usable = |status: &hyperlight_mcp::registry::ServerStatus| status.name == server && status.enabled && status.approved;
        let is_usable = self.gateway.servers().unwrap().iter().any(usable);
        let stop = Stop::new();
        let outcome = agent_handle.call_tool(server, tool, serde_json::Map::new(), CallOptions::default(), &stop);
        let outcome = within(patience(), "a call", outcome).await;
        let may = self.model.may_call(agent, server, tool);
        assert!(outcome.is_err() || may, "{agent} called {server}/{tool}: {:?}", self.model);
        if may && is_usable {
            // The call may be the first to notice that the process was killed.
            let outcome = match outcome {
                Err(error) if error.code() == "ERR_SERVER_EXITED" => {
                    agent_handle.call_tool(server, tool, serde_json::Map::new(), CallOptions::default(), &Stop::new()).await
                }
                other => other,
            };
            assert!(outcome.is_ok(), "{agent} may call {server}/{tool}: {:?} {:?}", outcome.err().map(|error| error.code()), self.model);
        }
    }

    /// Compares everything that each agent sees with the model.
    fn check_views(&self) {
        for agent in AGENTS {
            let handle = self.agent(agent);
            let seen = handle.direct_tools(NameStyle::Underscore).unwrap();
            for found in &seen {
                assert!(
                    self.model.may_call(agent, &found.server, &found.tool),
                    "{agent} sees {}/{}: {:?}",
                    found.server,
                    found.tool,
                    self.model
                );
            }
            let statuses = handle.servers().unwrap();
            for status in &statuses {
                assert!(self.model.names(agent, &status.name), "{agent} sees {}: {:?}", status.name, self.model);
                let is_hidden = |tool: &&String| !self.model.may_call(agent, &status.name, tool);
                assert_eq!(status.tools.iter().find(is_hidden), None, "{agent}: {:?}", self.model);
            }
            let said = [
                handle.declarations(None, ToolErrors::Return).unwrap(),
                handle.system_message(None, ToolErrors::Return).unwrap(),
                json!(handle.list_modules().unwrap()).to_string(),
                json!(statuses).to_string(),
                handle.server_info("absent").unwrap_err().to_string(),
                handle.tool_named("mcp_absent").unwrap_err().to_string(),
            ]
            .concat();
            for name in NAMES {
                assert!(self.model.names(agent, name) || !said.contains(name), "{agent} hears of {name}: {:?}\n{said}", self.model);
            }
            for number in 0..4 {
                let tool = tool(number);
                let may = NAMES.iter().any(|name| self.model.may_call(agent, name, &tool));
                assert!(may || !said.contains(&tool), "{agent} hears of {tool}: {:?}\n{said}", self.model);
            }
        }
    }
}

fn write(test_folder: &TestFolder, model: &Model) {
    let entry = |(name, variant): (&&str, &usize)| {
        let [first, second] = tools(*variant);
        let arguments = test_folder.arguments(name, &["--tools", "none", "--extra-tool", &first, "--extra-tool", &second]);
        ((*name).to_owned(), json!({ "command": FIXTURE, "box": "off", "args": arguments, "confirm": "never" }))
    };
    let servers: serde_json::Map<String, Json> = model.written.iter().map(entry).collect();
    std::fs::write(test_folder.path("config.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_changes_shows_or_calls_what_is_not_granted_or_not_approved(steps in prop::collection::vec(any_step(), 6..30)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            // These steps lead to a state in which calls succeed.
            for step in [Step::Entry(0, 0), Step::Entry(1, 1), Step::Reload, Step::Approve(0), Step::Approve(1)] {
                world.take(&step).await;
            }
            for step in &steps {
                world.take(step).await;
                world.check_views();
            }
            for (agent, name) in AGENTS.into_iter().flat_map(|agent| NAMES.map(|name| (agent, name))) {
                for number in 0..4 {
                    world.check_call(agent, name, &tool(number)).await;
                }
            }
            world.gateway.close().await;
        });
    }
}
