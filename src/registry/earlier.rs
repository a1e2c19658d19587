//! The servers that existed earlier while this gateway was open. The same entry can come back, so the files that it named stay protected
//! from boxes.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use super::Entry;
use super::merged::Merged;
use crate::config::{ServerDefinition, SourceKind, Transport, out_of_force};

/// Maximum number of earlier servers. If there are more, the oldest are removed.
const MAX_EARLIER: usize = 10_000;
/// Maximum number of earlier servers that agents had added. This limit is lower, because models can change these servers often.
const MAX_OF_AGENTS: usize = 1_000;

/// Maximum size in bytes of all that the entries of earlier servers name. If there is more, the oldest are removed. Anybody can commit a
/// config of another program with long entries, and change it often.
const MAX_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// The servers that existed earlier, oldest first.
#[derive(Debug, Default)]
pub(super) struct Earlier(VecDeque<EarlierServer>);

#[derive(Debug)]
struct EarlierServer {
    named: Named,
    server: Arc<ServerDefinition>,
}

/// All parts of a server's entry that may name files, as a digest. Two servers with the same digest name the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Named {
    digest: [u8; 32],
    bytes: usize,
}

impl Earlier {
    /// Records the servers that a change has removed or replaced. Returns all earlier servers that name other files than the present
    /// servers.
    pub(super) fn changed(&mut self, before: &Merged, now: &Merged) -> Vec<Arc<ServerDefinition>> {
        let is_same =
            |server: &Arc<ServerDefinition>| matches!(now.get(&server.name), Some(Entry::Valid(kept)) if Arc::ptr_eq(kept, server));
        let gone: Vec<_> = before.definitions().filter(|server| !is_same(server)).collect();
        if gone.is_empty() && self.0.is_empty() {
            return Vec::new();
        }
        let present: HashSet<Named> = now.definitions().filter_map(|server| named_by(server)).collect();
        let mut known: HashSet<Named> = self.0.iter().map(|earlier| earlier.named).collect();
        for server in gone {
            if let Some(named) = named_by(server).filter(|named| !present.contains(named) && known.insert(*named)) {
                self.0.push_back(EarlierServer { named, server: Arc::new(out_of_force(server)) });
            }
        }
        self.forget_oldest();
        self.0.iter().filter(|earlier| !present.contains(&earlier.named)).map(|earlier| Arc::clone(&earlier.server)).collect()
    }

    fn forget_oldest(&mut self) {
        let is_of_agent = |server: &ServerDefinition| server.source.kind == SourceKind::Agent;
        let mut of_agents = self.0.iter().filter(|earlier| is_of_agent(&earlier.server)).count();
        self.0.retain(|EarlierServer { server, named: _ }| {
            let is_kept = of_agents <= MAX_OF_AGENTS || !is_of_agent(server);
            of_agents -= usize::from(!is_kept);
            is_kept
        });
        self.0.drain(..self.0.len().saturating_sub(MAX_EARLIER));
        let mut bytes: usize = self.0.iter().map(|earlier| earlier.named.bytes).sum();
        while bytes > MAX_BYTES {
            let Some(oldest) = self.0.pop_front() else { break };
            bytes -= oldest.named.bytes;
        }
    }
}

/// Returns all parts of a server's entry that may name files. Returns `None` for a server that is not a process.
fn named_by(server: &ServerDefinition) -> Option<Named> {
    let whole = out_of_force(server);
    let Transport::Stdio { command, arguments, environment, removed_environment: _, working_directory, environment_file } =
        &whole.transport
    else {
        return None;
    };
    let variables: BTreeMap<&str, &str> = environment.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    let variables = variables.into_iter().flat_map(|(name, value)| [name, value]);
    let single = [Some(command.as_str()), working_directory.as_deref(), environment_file.as_deref()];
    let defaults = whole.input_defaults.iter().flat_map(|(id, value)| [id.as_str(), value.expose_secret()]);
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    digest.update(format!("{} {} {} ", arguments.len(), whole.roots.len(), whole.input_defaults.len()));
    let lists = arguments.iter().chain(&whole.roots).map(String::as_str);
    for part in single.into_iter().map(Option::unwrap_or_default).chain(lists).chain(defaults).chain(variables) {
        // The length of each part is included, so that two different lists never have the same digest.
        digest.update(format!("{}:", part.len()));
        digest.update(part);
        bytes += part.len();
    }
    Some(Named { digest: digest.finalize().into(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerSource, parse_text};
    use crate::registry::{KnownServer, Registry, source_of};

    fn entries(text: &str, source: &ServerSource) -> Vec<Entry> {
        let config = parse_text(&format!(r#"{{ "mcpServers": {text} }}"#), "config.json", 5000).unwrap();
        let of_source = |server| Entry::Valid(Arc::new(ServerDefinition { source: source.clone(), ..server }));
        config.servers.into_iter().map(of_source).collect()
    }

    fn config(text: &str) -> crate::config::Config {
        parse_text(&format!(r#"{{ "mcpServers": {text} }}"#), "config.json", 20).unwrap()
    }

    fn files(registry: &Registry) -> Vec<String> {
        let file = |server: &Arc<ServerDefinition>| match &server.transport {
            Transport::Stdio { environment_file, .. } => environment_file.clone(),
            Transport::Http { .. } | Transport::Generated(_) => None,
        };
        let mut files: Vec<String> = registry.known_servers().iter().map(|known| &known.server).filter_map(file).collect();
        files.sort();
        files
    }

    #[test]
    fn a_server_that_is_gone_changed_hidden_or_invalid_is_known_by_what_it_names() {
        let registry = Registry::new(config(
            r#"{ "a": { "command": "x", "envFile": "/1" }, "b": { "command": "x", "envFile": "/2", "timeoutMs": "?" } }"#,
        ));
        assert_eq!(files(&registry), ["/1", "/2"]);
        assert_eq!(registry.servers().len(), 1, "an entry with errors cannot be used");
        let task = ServerSource::named(SourceKind::Task, "t");
        registry.set_layer(task.clone(), entries(r#"{ "a": { "command": "y", "envFile": "/3" } }"#, &task));
        assert_eq!(files(&registry), ["/1", "/2", "/3"], "the server of the task hides that of the config");
        registry.set_layer(task, Vec::new());
        assert_eq!(files(&registry), ["/1", "/2", "/3"]);
        registry.replace(config(r#"{ "a": { "command": "x", "envFile": "/4" } }"#));
        assert_eq!(files(&registry), ["/1", "/2", "/3", "/4"]);
        // A server that has its earlier entry again is not an earlier server.
        registry.replace(config(r#"{ "a": { "command": "x", "envFile": "/1" } }"#));
        assert_eq!(files(&registry), ["/1", "/2", "/3", "/4"]);
        registry.replace(config(r#"{ "a": { "command": "x", "envFile": "/1" } }"#));
        assert_eq!(files(&registry), ["/1", "/2", "/3", "/4"]);
    }

    #[test]
    fn what_the_box_of_an_earlier_server_sets_belongs_to_its_variables() {
        let boxed = r#"{ "a": { "command": "x", "env": { "V": "1", "W": "2" }, "box": { "env": { "V": "/ws/x.mjs" } } } }"#;
        let registry = Registry::new(config(boxed));
        registry.replace(config("{}"));
        let [KnownServer { server, is_in_force: false }] = &registry.known_servers()[..] else { panic!("there is one") };
        let Transport::Stdio { environment, .. } = &server.transport else { panic!("it is a process") };
        let values: Vec<_> = environment.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect();
        assert_eq!((values.join(" ").as_str(), server.in_box.is_none()), ("W=2 V=/ws/x.mjs", true));
    }

    /// If nobody answers the question for an input, the default decides which files are used.
    #[test]
    fn an_earlier_server_with_another_default_of_an_input_is_another_one() {
        let with_default = |default: &str| {
            let inputs = format!(r#"[{{ "type": "promptString", "id": "hook", "default": "{default}" }}]"#);
            let servers = r#"{ "a": { "command": "x", "env": { "NODE_OPTIONS": "--import=${input:hook}" } } }"#;
            parse_text(&format!(r#"{{ "inputs": {inputs}, "mcpServers": {servers} }}"#), "config.json", 20).unwrap()
        };
        let registry = Registry::new(with_default("/ws/1.mjs"));
        registry.replace(with_default("/ws/2.mjs"));
        let default = |known: &KnownServer| known.server.input_defaults[0].1.expose_secret().to_owned();
        assert_eq!(registry.known_servers().iter().map(default).collect::<Vec<_>>(), ["/ws/2.mjs", "/ws/1.mjs"]);
    }

    /// The newest entries are those that come back most likely.
    #[test]
    fn long_entries_that_change_often_are_kept_up_to_a_size() {
        let argument = "x".repeat(100 * 1024);
        let entry =
            |number: usize| config(&format!(r#"{{ "a": {{ "command": "x", "args": ["{argument}"], "envFile": "/{number:02}" }} }}"#));
        let registry = Registry::new(entry(0));
        (1..50).for_each(|number| registry.replace(entry(number)));
        let known = files(&registry);
        assert!(known.len() == 11 && known[0] == "/39" && known[10] == "/49", "{known:?}");
    }

    #[test]
    fn a_flood_of_changes_by_an_agent_makes_no_other_server_unknown() {
        let registry = Registry::new(config(r#"{ "a": { "command": "x", "envFile": "/1" } }"#));
        registry.replace(config("{}"));
        let source = source_of(Some("ada"));
        let all: Vec<String> =
            (0..2_000).map(|number| format!(r#""s{number}": {{ "command": "x", "envFile": "/of/{number}" }}"#)).collect();
        registry.set_layer(source.clone(), entries(&format!("{{ {} }}", all.join(", ")), &source));
        registry.set_layer(source, Vec::new());
        let known = files(&registry);
        assert!(known.len() == 1 + MAX_OF_AGENTS && known[0] == "/1" && known[1] == "/of/1000", "{}", known.len());
    }
}
