//! Reads `box`: what a server's process may read, write and reach.

use serde::Serialize;

use super::definition::Transport;
use super::server::Reader;
use super::template::Allowed;
use super::tree::{Entry, Node, Value};
use crate::text::{displayed, displayed_within};

const KEYS: [&str; 6] = ["base", "read", "write", "network", "memoryMb", "processes"];
const MIN_MEMORY_MB: u64 = 16;
const MAX_MEMORY_MB: u64 = 1 << 20;
const MAX_PROCESSES: u64 = 4_096;
const BASES: &str = "\"standard\", \"strict\" or \"off\"";
const NETWORKS: &str = "\"none\" or \"any\"";
const NO_HOSTS_YET: &str = "a list of hosts is not supported yet: write \"none\" or \"any\"";
/// Programs that only ask a service of the machine to start containers. Whoever may use the service may do anything.
const CONTAINER_PROGRAMS: [&str; 4] = ["docker", "podman", "nerdctl", "docker-compose"];

/// The box of a server, if its entry has one: `box` in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxDefinition {
    /// The process has the user's full rights, and the entry says so.
    Off,
    On(BoxSettings),
}

/// The settings from which a box starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxBase {
    /// Paths in arguments and roots can be written, and the network is shared.
    Standard,
    /// Paths in arguments and roots can be read only, and there is no network.
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

/// What a box allows, with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxSettings {
    pub base: BoxBase,
    /// Paths as they are in the config. They may contain placeholders of folders.
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// True if the process shares the machine's network. False if it has none.
    pub has_network: bool,
    pub memory_mb: u64,
    pub processes: u64,
}

impl BoxSettings {
    /// Returns the settings of a base.
    ///
    /// ```
    /// use hyperlight_mcp::config::{BoxBase, BoxSettings};
    /// assert!(BoxSettings::of(BoxBase::Standard).has_network && !BoxSettings::of(BoxBase::Strict).has_network);
    /// ```
    #[must_use]
    pub fn of(base: BoxBase) -> Self {
        let (has_network, memory_mb, processes) = match base {
            BoxBase::Standard => (true, 4_096, 256),
            BoxBase::Strict => (false, 1_024, 32),
        };
        Self { base, read: Vec::new(), write: Vec::new(), has_network, memory_mb, processes }
    }
}

impl Reader<'_> {
    /// Reads `box` of a server that is a process.
    pub(super) fn in_box(&mut self, transport: &Transport) -> Option<BoxDefinition> {
        let Transport::Stdio { command, .. } = transport else { return None };
        let node = self.node.get("box")?;
        let definition = match &node.value {
            Value::Text(word) => self.base("box", node, word),
            Value::Object(entries) => self.box_settings(node, entries),
            _ => {
                self.wrong("box", node, format!("must be {BASES}, or an object"));
                None
            }
        };
        let program = command.rsplit('/').next().unwrap_or_default();
        if matches!(definition, Some(BoxDefinition::On(_))) && CONTAINER_PROGRAMS.contains(&program) {
            let problem = format!("must be \"off\" for {program}, because whoever can use its service can do anything on this machine");
            self.wrong("box", node, problem);
        }
        definition
    }

    /// Reads the name of a base. Returns a box with its settings.
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
        // A key that is not known is an error here: it may be a limit that would not hold.
        for entry in entries.iter().filter(|entry| !KEYS.contains(&entry.name.as_str())) {
            let problem = format!("is not a setting of a box. It has {}", KEYS.join(", "));
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
            self.wrong("box.write", node, format!("has \"{}\", which read has too", displayed(path)));
        }
        Some(BoxDefinition::On(BoxSettings {
            base: defaults.base,
            read,
            write,
            has_network: self.network(node).unwrap_or(defaults.has_network),
            memory_mb: self.number_within("memoryMb", node, MIN_MEMORY_MB, MAX_MEMORY_MB).unwrap_or(defaults.memory_mb),
            processes: self.number_within("processes", node, 1, MAX_PROCESSES).unwrap_or(defaults.processes),
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

    /// Reads whether the process has a network.
    fn network(&mut self, node: &Node) -> Option<bool> {
        let network = node.get("network")?;
        match &network.value {
            Value::Text(word) if word == "none" => Some(false),
            Value::Text(word) if word == "any" => Some(true),
            Value::List(_) => {
                self.wrong("box.network", network, NO_HOSTS_YET);
                None
            }
            _ => {
                self.wrong("box.network", network, format!("must be {NETWORKS}; {NO_HOSTS_YET}"));
                None
            }
        }
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
        assert_eq!(read(r#""command": "x""#), Ok(None));
        assert_eq!(read(r#""command": "x", "box": "off""#), Ok(Some(BoxDefinition::Off)));
        assert_eq!(read(r#""command": "x", "box": { "base": "off" }"#), Ok(Some(BoxDefinition::Off)));
        assert_eq!(settings(r#""standard""#), BoxSettings::of(BoxBase::Standard));
        assert_eq!(settings("{}"), BoxSettings::of(BoxBase::Standard));
        let all =
            r#"{ "base": "strict", "read": ["/a"], "write": ["${workspaceFolder}"], "network": "any", "memoryMb": 64, "processes": 3 }"#;
        let expected = BoxSettings {
            base: BoxBase::Strict,
            read: vec!["/a".to_owned()],
            write: vec!["${workspaceFolder}".to_owned()],
            has_network: true,
            memory_mb: 64,
            processes: 3,
        };
        assert_eq!(settings(all), expected);
    }

    #[test]
    fn what_would_not_hold_is_an_error() {
        for (in_box, problem) in [
            (r#""tight""#, "must be \"standard\""),
            ("true", "or an object"),
            (r#"{ "netwrok": "none" }"#, "is not a setting of a box"),
            (r#"{ "cpuPercent": 5 }"#, "is not a setting of a box"),
            (r#"{ "network": ["api.github.com"] }"#, "a list of hosts is not supported yet"),
            (r#"{ "network": "some" }"#, "must be \"none\""),
            (r#"{ "read": ["/a"], "write": ["/a"] }"#, "which read has too"),
            (r#"{ "read": "/a" }"#, "list of strings"),
            (r#"{ "read": [""] }"#, "is empty"),
            (r#"{ "read": ["${TOKEN}"] }"#, "TOKEN"),
            (r#"{ "memoryMb": 1 }"#, "from 16"),
            (r#"{ "processes": 0 }"#, "from 1"),
            (r#"{ "base": "off", "network": "none" }"#, "nothing else can be set"),
        ] {
            let found = read(&format!(r#""command": "x", "box": {in_box}"#)).unwrap_err();
            assert!(found.contains(problem), "{in_box}: {found}");
        }
        let docker = read(r#""command": "/usr/bin/docker", "box": "standard""#).unwrap_err();
        assert!(docker.contains("must be \"off\" for docker"), "{docker}");
        assert_eq!(read(r#""command": "docker", "box": "off""#), Ok(Some(BoxDefinition::Off)));
    }
}
