//! Reads `box`: what a server's process may read, write and reach.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::definition::Transport;
use super::inputs::Inputs;
use super::server::Reader;
use super::template::Allowed;
use super::tree::{self, Entry, Node, Value};
use crate::fetch::{AddressKind, AllowedHost, kind_of};
use crate::text::{Problem, displayed, displayed_within};

const KEYS: [&str; 10] = ["base", "read", "write", "network", "memoryMb", "diskMb", "processes", "cpuPercent", "nested", "env"];
/// Minimum of `memoryMb` and of `diskMb`.
const MIN_MEMORY_MB: u64 = 16;
/// Maximum of `memoryMb` and of `diskMb`.
const MAX_MEMORY_MB: u64 = 1 << 20;
/// Maximum size of a private home in MiB, unless the config says otherwise.
const DISK_MB: u64 = 2_048;
const MAX_PROCESSES: u64 = 4_096;
const BASES: &str = "\"standard\", \"strict\" or \"off\"";
const NETWORKS: &str = "a list of hosts, \"none\" or \"any\"";
/// Maximum number of hosts in one list.
const MAX_HOSTS: usize = 100;
/// The port of a host that is named without one: HTTPS (RFC 9110).
const DEFAULT_PORT: u16 = 443;
/// The port of the box's own name server.
const NAME_SERVER_PORT: u16 = 53;
const MAX_CPU_PERCENT: u64 = 100_000;
/// Programs that ask a service of the machine to start containers. A process that may use this service can do anything on the machine.
const CONTAINER_PROGRAMS: [&str; 4] = ["docker", "podman", "nerdctl", "docker-compose"];

/// The box of a server that is a process: `box` in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxDefinition {
    /// The process has the user's full rights, and the entry says so.
    Off,
    On(BoxSettings),
}

/// The predefined settings that a box is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxBase {
    /// Paths in arguments and roots can be written.
    Standard,
    /// Paths in arguments and roots are read-only, and the limits are lower.
    Strict,
}

impl BoxBase {
    /// Returns the word for this value in the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Strict => "strict",
        }
    }
}

/// The hosts that the processes of a box may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxNetwork {
    /// The machine's network, with its loopback.
    Any,
    /// Only these hosts. If the list is empty, the processes have no network.
    Hosts(BTreeSet<BoxHost>),
}

impl BoxNetwork {
    /// Returns the network that reaches nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::Hosts(BTreeSet::new())
    }
}

/// A host and a port that the processes of a box may reach, by TCP and UDP.
///
/// ```
/// use hyperlight_mcp::config::BoxHost;
/// let host: BoxHost = "API.github.com".parse().unwrap();
/// assert_eq!((host.to_string().as_str(), host.port()), ("api.github.com:443", 443));
/// assert!("*.example.org:8443".parse::<BoxHost>().unwrap().host().covers_name("a.example.org"));
/// assert!("http://api.github.com".parse::<BoxHost>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoxHost {
    host: AllowedHost,
    port: u16,
}

impl BoxHost {
    /// Returns the host without the port. It is a name, a name with all names below it, or an address.
    #[must_use]
    pub fn host(&self) -> &AllowedHost {
        &self.host
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for BoxHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl std::str::FromStr for BoxHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("must be a host and a port, as in api.example.org:443, and no URL".to_owned());
        }
        let entry: AllowedHost = text.parse().map_err(|error: crate::fetch::InvalidHost| error.to_string())?;
        let port = entry.port().unwrap_or(DEFAULT_PORT);
        if port == NAME_SERVER_PORT {
            return Err("has port 53, which the box's own name server uses".to_owned());
        }
        if let Some(AddressKind::Unusable(kind)) = entry.address().map(kind_of) {
            return Err(format!("has an address to which no connection is possible: {kind}"));
        }
        Ok(Self { host: entry.without_port(), port })
    }
}

/// The settings of a box, with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxSettings {
    pub base: BoxBase,
    /// Paths as they are in the config. They may contain placeholders of folders.
    pub read: Vec<String>,
    pub write: Vec<String>,
    pub network: BoxNetwork,
    pub memory_mb: u64,
    /// Maximum size of the private home, in MiB.
    pub disk_mb: u64,
    pub processes: u64,
    /// Processor time of all processes together, in percent of one processor. `None` means no limit.
    pub cpu_percent: Option<u64>,
    /// True if the processes may make their own namespaces, as a browser does for its sandbox.
    pub is_nested: bool,
    /// Variables that the processes have only in the box. They override the variables of the entry.
    pub environment: BTreeMap<String, String>,
}

impl BoxSettings {
    /// Returns the settings of a base.
    ///
    /// ```
    /// use hyperlight_mcp::config::{BoxBase, BoxSettings};
    /// assert!(BoxSettings::of(BoxBase::Standard).memory_mb > BoxSettings::of(BoxBase::Strict).memory_mb);
    /// ```
    #[must_use]
    pub fn of(base: BoxBase) -> Self {
        let (memory_mb, processes) = match base {
            BoxBase::Standard => (4_096, 256),
            BoxBase::Strict => (1_024, 32),
        };
        Self {
            base,
            read: Vec::new(),
            write: Vec::new(),
            network: BoxNetwork::none(),
            memory_mb,
            disk_mb: DISK_MB,
            processes,
            cpu_percent: None,
            is_nested: false,
            environment: BTreeMap::new(),
        }
    }
}

/// Reads `boxes`: the names of servers that are not in this config, for example those of a provider, with their boxes. Each
/// problem makes the whole config unusable, because a box with an ignored limit would protect nobody.
pub(super) fn boxes(node: &Node, (file, inputs): (&str, &Inputs), problems: &mut Vec<Problem>) -> BTreeMap<String, BoxDefinition> {
    let mut boxes = BTreeMap::new();
    let Some(entries) = node.entries() else {
        problems.push(Problem::new("boxes", node.position, "must be an object"));
        return boxes;
    };
    for entry in entries {
        let field = format!("boxes.{}", displayed(&entry.name));
        let mut reader = Reader::new(entry, field.clone(), file, inputs);
        if let Some(definition) = reader.box_definition(&entry.node) {
            boxes.insert(entry.name.clone(), definition);
        }
        // In `boxes`, each entry is the box itself, so `.box` is removed from the field.
        let own = |problem: Problem| Problem { field: problem.field.replacen(&format!("{field}.box"), &field, 1), ..problem };
        problems.extend(reader.into_problems().into_iter().map(own));
    }
    boxes
}

/// Reads a box that is shipped with this program. `None` if it has a problem.
pub(crate) fn shipped_box(json: &serde_json::Value) -> Option<BoxDefinition> {
    let root = tree::from_json(&serde_json::json!({ "boxes": { "own": json } })).root;
    let mut problems = Vec::new();
    let mut boxes = boxes(root.get("boxes")?, ("", &Inputs::default()), &mut problems);
    boxes.remove("own").filter(|_| problems.is_empty())
}

impl Reader<'_> {
    /// Reads `box` of a server that is a process. An entry without `box` has the box `standard`.
    pub(super) fn in_box(&mut self, transport: &Transport) -> Option<BoxDefinition> {
        let Transport::Stdio { command, .. } = transport else { return None };
        let node = self.node.get("box");
        let definition = match node {
            None => Some(BoxDefinition::On(BoxSettings::of(BoxBase::Standard))),
            Some(node) => self.box_definition(node),
        };
        let program = command.rsplit('/').next().unwrap_or_default();
        if matches!(definition, Some(BoxDefinition::On(_))) && CONTAINER_PROGRAMS.contains(&program) {
            let problem =
                format!("must be \"off\" for {program}, because a program that can use its service can do anything on this machine");
            self.box_problem = Some(Problem::new(self.path("box"), node.unwrap_or(self.node).position, problem));
        }
        definition
    }

    fn box_definition(&mut self, node: &Node) -> Option<BoxDefinition> {
        match &node.value {
            Value::Text(word) => self.base("box", node, word),
            Value::Object(entries) => self.box_settings(node, entries),
            _ => {
                self.wrong("box", node, format!("must be {BASES}, or an object"));
                None
            }
        }
    }

    /// Reads the name of a base. Returns a box with the settings of this base.
    fn base(&mut self, key: &str, node: &Node, word: &str) -> Option<BoxDefinition> {
        match word {
            "standard" => Some(BoxDefinition::On(BoxSettings::of(BoxBase::Standard))),
            "strict" => Some(BoxDefinition::On(BoxSettings::of(BoxBase::Strict))),
            "off" => Some(BoxDefinition::Off),
            other => {
                self.wrong(key, node, format!("must be {BASES}, not \"{}\"", displayed_within(other, 32)));
                None
            }
        }
    }

    fn box_settings(&mut self, node: &Node, entries: &[Entry]) -> Option<BoxDefinition> {
        // An unknown key is an error here: it may be a misspelt limit, which would have no effect.
        for entry in entries.iter().filter(|entry| !KEYS.contains(&entry.name.as_str())) {
            let problem = format!("is not a setting of a box. The settings are {}", KEYS.join(", "));
            self.wrong(&format!("box.{}", displayed(&entry.name)), &entry.node, problem);
        }
        let defaults = match node.get("base") {
            None => BoxSettings::of(BoxBase::Standard),
            Some(base) => {
                let word = self.string("box.base", base)?;
                match self.base("box.base", base, &word)? {
                    BoxDefinition::On(defaults) => defaults,
                    BoxDefinition::Off => {
                        if entries.len() > 1 {
                            self.wrong("box.base", base, "is \"off\", so nothing else can be set");
                        }
                        return Some(BoxDefinition::Off);
                    }
                }
            }
        };
        let [read, write] = ["read", "write"].map(|key| self.box_paths(key, node));
        if let Some(path) = read.iter().find(|path| write.contains(path)) {
            self.wrong("box.write", node, format!("has \"{}\", which is also in read", displayed(path)));
        }
        Some(BoxDefinition::On(BoxSettings {
            base: defaults.base,
            read,
            write,
            network: self.network(node).unwrap_or(defaults.network),
            memory_mb: self.number_within("memoryMb", node, MIN_MEMORY_MB, MAX_MEMORY_MB).unwrap_or(defaults.memory_mb),
            disk_mb: self.number_within("diskMb", node, MIN_MEMORY_MB, MAX_MEMORY_MB).unwrap_or(defaults.disk_mb),
            processes: self.number_within("processes", node, 1, MAX_PROCESSES).unwrap_or(defaults.processes),
            cpu_percent: self.number_within("cpuPercent", node, 1, MAX_CPU_PERCENT),
            is_nested: self.nested(node),
            environment: self.box_environment(node),
        }))
    }

    fn box_paths(&mut self, key: &str, node: &Node) -> Vec<String> {
        let Some(list) = node.get(key) else { return Vec::new() };
        let key = format!("box.{key}");
        let texts = self.strings(&key, list);
        for (index, item) in list.items().unwrap_or_default().iter().enumerate() {
            if let Some(text) = item.text() {
                let key = format!("{key}[{index}]");
                self.template(&key, item, text, Allowed::Folders);
                if text.is_empty() {
                    self.wrong(&key, item, "is empty");
                }
            }
        }
        texts
    }

    /// Reads `network`: the hosts that the processes may reach.
    fn network(&mut self, node: &Node) -> Option<BoxNetwork> {
        let network = node.get("network")?;
        match &network.value {
            Value::Text(word) if word == "none" => Some(BoxNetwork::none()),
            Value::Text(word) if word == "any" => Some(BoxNetwork::Any),
            Value::List(items) if items.len() > MAX_HOSTS => {
                self.wrong("box.network", network, format!("has {} hosts; the limit is {MAX_HOSTS}", items.len()));
                None
            }
            Value::List(_) => {
                let texts = self.strings("box.network", network);
                let hosts = texts.iter().enumerate().filter_map(|(index, text)| match text.parse() {
                    Ok(host) => Some(host),
                    Err(problem) => {
                        let problem: String = problem;
                        self.wrong(&format!("box.network[{index}]"), network, problem);
                        None
                    }
                });
                Some(BoxNetwork::Hosts(hosts.collect()))
            }
            _ => {
                self.wrong("box.network", network, format!("must be {NETWORKS}"));
                None
            }
        }
    }

    fn nested(&mut self, node: &Node) -> bool {
        match node.get("nested").map(|nested| (nested, &nested.value)) {
            None => false,
            Some((_, Value::Boolean(nested))) => *nested,
            Some((nested, _)) => {
                self.wrong("box.nested", nested, "must be true or false");
                false
            }
        }
    }

    /// Reads the variables of the box. Their values must be fixed texts, because a person is shown the values in full.
    fn box_environment(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        let Some(environment) = node.get("env") else { return variables };
        let Value::Object(entries) = &environment.value else {
            self.wrong("box.env", environment, "must be an object of strings");
            return variables;
        };
        for entry in entries {
            let key = format!("box.env.{}", displayed(&entry.name));
            let problem = match entry.node.text() {
                None => "must be a string",
                Some(text) if text.contains("${") => "must be a fixed text: write placeholders in env of the entry",
                Some(text) if text.contains('\0') => "has a zero character",
                Some(_) if entry.name.is_empty() || entry.name.contains(['=', '\0']) => "is not the name of a variable",
                Some(text) => {
                    variables.insert(entry.name.clone(), text.to_owned());
                    continue;
                }
            };
            self.wrong(&key, &entry.node, problem);
        }
        variables
    }

    fn number_within(&mut self, key: &str, node: &Node, least: u64, most: u64) -> Option<u64> {
        let number = node.get(key)?;
        let read = match &number.value {
            Value::Number(text) => text.parse().ok().filter(|read| (least..=most).contains(read)),
            _ => None,
        };
        if read.is_none() {
            self.wrong(&format!("box.{key}"), number, format!("must be a whole number from {least} to {most}"));
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    /// Returns the box of an entry, or its problems.
    fn read(fields: &str) -> Result<Option<BoxDefinition>, String> {
        let mut config = parse_text(&format!(r#"{{ "mcpServers": {{ "a": {{ {fields} }} }} }}"#), "c", 9).unwrap();
        match config.invalid.pop() {
            Some(invalid) => Err(invalid.error.in_full()),
            None => Ok(config.servers.remove(0).in_box),
        }
    }

    fn settings(in_box: &str) -> BoxSettings {
        match read(&format!(r#""command": "x", "box": {in_box}"#)) {
            Ok(Some(BoxDefinition::On(settings))) => settings,
            other => panic!("{in_box}: {other:?}"),
        }
    }

    #[test]
    fn a_box_is_a_word_or_an_object_over_a_base() {
        assert_eq!(read(r#""command": "x""#), Ok(Some(BoxDefinition::On(BoxSettings::of(BoxBase::Standard)))));
        assert_eq!(read(r#""url": "https://a.example""#), Ok(None));
        assert_eq!(read(r#""command": "x", "box": "off""#), Ok(Some(BoxDefinition::Off)));
        assert_eq!(read(r#""command": "x", "box": { "base": "off" }"#), Ok(Some(BoxDefinition::Off)));
        assert_eq!(settings(r#""standard""#), BoxSettings::of(BoxBase::Standard));
        assert_eq!(settings("{}"), BoxSettings::of(BoxBase::Standard));
        let all = r#"{ "base": "strict", "read": ["/a"], "write": ["${workspaceFolder}"], "network": "any", "memoryMb": 64, "diskMb": 32, "processes": 3,
                "cpuPercent": 50, "nested": true, "env": { "A": "b" } }"#;
        let expected = BoxSettings {
            base: BoxBase::Strict,
            read: vec!["/a".to_owned()],
            write: vec!["${workspaceFolder}".to_owned()],
            network: BoxNetwork::Any,
            memory_mb: 64,
            disk_mb: 32,
            processes: 3,
            cpu_percent: Some(50),
            is_nested: true,
            environment: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        };
        assert_eq!(settings(all), expected);
    }

    #[test]
    fn hosts_are_sorted_and_have_a_port() {
        let BoxNetwork::Hosts(hosts) =
            settings(r#"{ "network": ["B.example:8443", "*.example.org", "10.0.0.5:5432", "b.example:8443"] }"#).network
        else {
            panic!("any")
        };
        let texts: BTreeSet<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.5:5432", "*.example.org:443", "b.example:8443"].map(str::to_owned).into());
        assert_eq!(settings(r#"{ "network": "none" }"#).network, BoxNetwork::Hosts(BTreeSet::new()));
    }

    #[test]
    fn the_boxes_of_servers_that_others_bring_stand_beside_the_servers() {
        let config = parse_text(r#"{ "boxes": { "acme--weather": { "network": ["a.example"] }, "files": "off" } }"#, "c", 9).unwrap();
        assert_eq!(config.boxes["files"], BoxDefinition::Off);
        assert!(matches!(&config.boxes["acme--weather"], BoxDefinition::On(settings) if settings.network != BoxNetwork::none()));
        for (text, problem) in [
            (r#"{ "boxes": [] }"#, "c:1:12: boxes: must be an object"),
            (r#"{ "boxes": { "a": { "network": "some" } } }"#, "c:1:32: boxes.a.network: must be a list of hosts"),
            (r#"{ "boxes": { "a": {} }, "mcpServers": { "a": { "command": "x" } } }"#, "boxes.a: write box in the entry of the server"),
        ] {
            let found = parse_text(text, "c", 9).unwrap_err().in_full();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }

    #[test]
    fn what_would_not_hold_is_an_error() {
        for (in_box, problem) in [
            (r#""tight""#, "must be \"standard\""),
            ("true", "or an object"),
            (r#"{ "netwrok": "none" }"#, "is not a setting of a box"),
            (r#"{ "cpuPercent": 0 }"#, "from 1"),
            (r#"{ "network": ["api.github.com", "https://x.org"] }"#, "box.network[1]: must be a host and a port"),
            (r#"{ "network": ["*.org"] }"#, "a wildcard needs at least two labels"),
            (r#"{ "network": ["a.org:53"] }"#, "own name server"),
            (r#"{ "network": ["0.0.0.0:80"] }"#, "no connection is possible"),
            (r#"{ "network": "some" }"#, "must be a list of hosts"),
            (r#"{ "nested": 1 }"#, "true or false"),
            (r#"{ "env": { "A": "${B}" } }"#, "must be a fixed text"),
            (r#"{ "env": { "A": 1 } }"#, "must be a string"),
            (r#"{ "read": ["/a"], "write": ["/a"] }"#, "which is also in read"),
            (r#"{ "read": "/a" }"#, "list of strings"),
            (r#"{ "read": [""] }"#, "is empty"),
            (r#"{ "read": ["${TOKEN}"] }"#, "TOKEN"),
            (r#"{ "memoryMb": 1 }"#, "from 16"),
            (r#"{ "diskMb": 15 }"#, "from 16"),
            (r#"{ "processes": 0 }"#, "from 1"),
            (r#"{ "base": "off", "network": "none" }"#, "nothing else can be set"),
        ] {
            let found = read(&format!(r#""command": "x", "box": {in_box}"#)).unwrap_err();
            assert!(found.contains(problem), "{in_box}: {found}");
        }
        let docker = read(r#""command": "/usr/bin/docker", "box": "standard""#).unwrap_err();
        assert!(docker.contains("must be \"off\" for docker"), "{docker}");
        assert!(read(r#""command": "podman""#).unwrap_err().contains("must be \"off\" for podman"));
        assert_eq!(read(r#""command": "docker", "box": "off""#), Ok(Some(BoxDefinition::Off)));
    }
}
