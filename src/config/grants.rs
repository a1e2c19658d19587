//! Reads `toolboxes`, `agents` and `defaultGrant`: the rules that decide which agent may use which servers and tools. A mistake in one of
//! these sections makes the whole config unusable, because the remaining sections would no longer express what an agent may use.

use std::collections::BTreeMap;

use serde::Serialize;

use super::inputs::Inputs;
use super::pattern::Pattern;
use super::profiles::ProfileDefinition;
use super::tree::{Entry, Node};
use super::variant::variants_of;
use crate::fetch::{AllowedHost, AllowedHosts};
use crate::text::{Position, Problem, displayed, nearest};

/// Maximum number of patterns in one toolbox.
pub const MAX_PATTERNS: usize = 256;
const MAX_NAME_CHARS: usize = 64;
const AGENT_KEYS: [&str; 3] = ["toolboxes", "profiles", "fetch"];
const FETCH_KEYS: [&str; 1] = ["hosts"];
/// Maximum number of hosts in one list.
pub const MAX_FETCH_HOSTS: usize = 64;

/// The grant of an agent without its own entry: `defaultGrant` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultGrant {
    /// Everything that is approved and enabled.
    All,
    #[serde(rename = "none")]
    Nothing,
}

/// A toolbox of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolboxDefinition {
    pub patterns: Vec<Pattern>,
    /// The place of the definition: `config.json:3:5: toolboxes.readers`.
    pub place: String,
}

/// An agent of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentDefinition {
    /// Names of toolboxes, in the order of the config. `None` if the entry does not contain the key. Then a grant of the store or the
    /// default applies.
    pub toolboxes: Option<Vec<String>>,
    /// Names of profiles. `None` if the entry does not contain the key.
    pub profiles: Option<Vec<String>>,
    /// The hosts that code of the agent may fetch from, if a person approves them. `None` if the entry names none.
    pub fetch: Option<AllowedHosts>,
    pub place: String,
}

/// The sections of the config about agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantSettings {
    pub toolboxes: BTreeMap<String, ToolboxDefinition>,
    pub agents: BTreeMap<String, AgentDefinition>,
    pub default_grant: Option<DefaultGrant>,
    pub profiles: BTreeMap<String, ProfileDefinition>,
}

/// Checks the name of a toolbox or an agent. The name must be suitable for one line of a log.
///
/// # Errors
/// Returns the rule that the name breaks.
///
/// ```
/// use hyperlight_mcp::config::check_label;
/// assert!(check_label("readers").is_ok() && check_label("a b").is_err());
/// ```
pub fn check_label(name: &str) -> Result<(), String> {
    let is_well_formed = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|next| next.is_ascii_alphanumeric() || matches!(next, '-' | '_' | '.'))
        && name.len() <= MAX_NAME_CHARS;
    if is_well_formed {
        return Ok(());
    }
    Err(format!("name must match ^[A-Za-z0-9][A-Za-z0-9._-]*$ and have at most {MAX_NAME_CHARS} characters, not \"{}\"", displayed(name)))
}

/// Parses the patterns of a toolbox.
///
/// # Errors
/// Returns the position of a wrong pattern in the list, and the rule that it breaks.
///
/// ```
/// use hyperlight_mcp::config::parse_patterns;
/// assert_eq!(parse_patterns(&["a/*".to_owned()]).unwrap().len(), 1);
/// assert_eq!(parse_patterns(&["a/*".to_owned(), "a".to_owned()]).unwrap_err().0, 1);
/// ```
pub fn parse_patterns(texts: &[String]) -> Result<Vec<Pattern>, (usize, String)> {
    if texts.len() > MAX_PATTERNS {
        return Err((MAX_PATTERNS, format!("a toolbox has at most {MAX_PATTERNS} patterns")));
    }
    texts.iter().enumerate().map(|(index, text)| Pattern::parse(text).map_err(|problem| (index, problem))).collect()
}

/// Reads the sections about agents of one config, and collects their problems.
pub(super) struct GrantReader<'a> {
    pub(super) file: &'a str,
    /// The inputs that values of profiles can refer to.
    pub(super) inputs: &'a Inputs,
    pub(super) settings: GrantSettings,
    pub(super) problems: Vec<Problem>,
}

impl<'a> GrantReader<'a> {
    pub(super) fn new(file: &'a str, inputs: &'a Inputs) -> Self {
        Self { file, inputs, settings: GrantSettings::default(), problems: Vec::new() }
    }

    pub(super) fn problem(&mut self, field: impl Into<String>, position: Option<Position>, problem: impl Into<String>) {
        self.problems.push(Problem::new(field, position, problem));
    }

    pub(super) fn place(&self, field: &str, position: Option<Position>) -> String {
        let problem = Problem::new("", position, field);
        problem.in_file(self.file)
    }

    /// Returns the entries of an object. If the node is not an object, records a problem.
    pub(super) fn entries<'t>(&mut self, field: &str, node: &'t Node) -> &'t [Entry] {
        node.entries().unwrap_or_else(|| {
            self.problem(field, node.position, "must be an object");
            &[]
        })
    }

    /// Returns the texts of a list. Records a problem for everything that is not a text.
    pub(super) fn texts(&mut self, field: &str, node: &Node) -> Vec<String> {
        let Some(items) = node.items() else {
            self.problem(field, node.position, "must be a list of strings");
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match item.text() {
                Some(text) => texts.push(text.to_owned()),
                None => self.problem(format!("{field}[{index}]"), item.position, "must be a string"),
            }
        }
        texts
    }

    pub(super) fn default_grant(&mut self, node: &Node) {
        self.settings.default_grant = match node.text() {
            Some("all") => Some(DefaultGrant::All),
            Some("none") => Some(DefaultGrant::Nothing),
            _ => return self.problem("defaultGrant", node.position, "must be \"all\" or \"none\""),
        };
    }

    pub(super) fn toolboxes(&mut self, node: &Node) {
        for entry in self.entries("toolboxes", node) {
            let field = format!("toolboxes.{}", displayed(&entry.name));
            if let Err(problem) = check_label(&entry.name) {
                self.problem(&field, entry.position, problem);
            }
            let texts = self.texts(&field, &entry.node);
            match parse_patterns(&texts) {
                Ok(patterns) => {
                    let place = self.place(&field, entry.position);
                    self.settings.toolboxes.insert(entry.name.clone(), ToolboxDefinition { patterns, place });
                }
                Err((index, problem)) => {
                    let position = entry.node.items().and_then(|items| items.get(index)).and_then(|item| item.position);
                    self.problem(format!("{field}[{index}]"), position, problem);
                }
            }
        }
    }

    pub(super) fn agents(&mut self, node: &Node) {
        for entry in self.entries("agents", node) {
            let field = format!("agents.{}", displayed(&entry.name));
            if let Err(problem) = check_label(&entry.name) {
                self.problem(&field, entry.position, problem);
            }
            let mut agent = AgentDefinition { toolboxes: None, profiles: None, fetch: None, place: self.place(&field, entry.position) };
            for Entry { name, position, node } in self.entries(&field, &entry.node) {
                match name.as_str() {
                    "toolboxes" => agent.toolboxes = Some(self.texts(&format!("{field}.toolboxes"), node)),
                    "profiles" => agent.profiles = Some(self.texts(&format!("{field}.profiles"), node)),
                    "fetch" => agent.fetch = Some(self.fetch(&format!("{field}.fetch"), node)),
                    other => self.unknown_key(&field, other, *position, &AGENT_KEYS),
                }
            }
            self.settings.agents.insert(entry.name.clone(), agent);
        }
    }

    /// Reads the hosts that code of an agent may fetch from, and records problems.
    fn fetch(&mut self, field: &str, node: &Node) -> AllowedHosts {
        let mut hosts = Vec::new();
        for Entry { name, position, node } in self.entries(field, node) {
            if name != "hosts" {
                self.unknown_key(field, name, *position, &FETCH_KEYS);
                continue;
            }
            let field = format!("{field}.hosts");
            let texts = self.texts(&field, node);
            if texts.len() > MAX_FETCH_HOSTS {
                self.problem(&field, node.position, format!("a list has at most {MAX_FETCH_HOSTS} hosts"));
            }
            for (index, text) in texts.iter().enumerate() {
                match text.parse::<AllowedHost>() {
                    Ok(host) => hosts.push(host),
                    Err(problem) => {
                        let position = node.items().and_then(|items| items.get(index)).and_then(|item| item.position);
                        self.problem(format!("{field}[{index}]"), position, problem.to_string());
                    }
                }
            }
        }
        hosts.into_iter().collect()
    }

    /// Records a problem for each toolbox or profile that an agent names and the config does not define. Must be called after all sections
    /// were read.
    pub(super) fn check_references(&mut self, agents: Option<&Node>) {
        let known: [(&str, &str, Vec<String>); 2] = [
            ("toolboxes", "toolbox", self.settings.toolboxes.keys().cloned().collect()),
            ("profiles", "profile", self.settings.profiles.keys().cloned().collect()),
        ];
        for entry in agents.and_then(Node::entries).unwrap_or_default() {
            for (key, word, known) in &known {
                let items = entry.node.get(key).and_then(Node::items).unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let Some(name) = item.text().filter(|name| !known.iter().any(|known| known == name)) else { continue };
                    let meant = nearest(name, known.iter().map(String::as_str));
                    let meant = meant.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"));
                    let problem = format!("the config has no {word} \"{}\"{meant}", displayed(name));
                    self.problem(format!("agents.{}.{key}[{index}]", displayed(&entry.name)), item.position, problem);
                }
            }
            self.check_conflicts(entry);
        }
    }

    /// Records a problem if two profiles of an agent give the same setting different values.
    fn check_conflicts(&mut self, agent: &Entry) {
        let Some(chosen) = agent.node.get("profiles") else { return };
        let names = chosen.items().unwrap_or_default().iter().filter_map(Node::text);
        if let Err(conflict) = variants_of(names.filter_map(|name| self.settings.profiles.get_key_value(name))) {
            self.problem(format!("agents.{}.profiles", displayed(&agent.name)), chosen.position, conflict.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn settings(text: &str) -> GrantSettings {
        parse_text(text, "c.json", 9).unwrap().grants
    }

    fn problems(text: &str) -> String {
        parse_text(text, "c.json", 9).unwrap_err().in_full()
    }

    #[test]
    fn the_sections_are_read_with_their_places() {
        let settings = settings(
            "{ \"toolboxes\": { \"readers\": [\"a/*\", \"!a/x\"] },\n \"agents\": { \"r\": { \"toolboxes\": [\"readers\"] }, \"s\": {} }, \"defaultGrant\": \"none\" }",
        );
        assert_eq!(settings.toolboxes["readers"].patterns.len(), 2);
        assert_eq!(settings.toolboxes["readers"].place, "c.json:1:18: toolboxes.readers");
        assert_eq!(settings.agents["r"].toolboxes.as_deref(), Some(&["readers".to_owned()][..]));
        assert_eq!((settings.agents["r"].place.as_str(), &settings.agents["s"].toolboxes), ("c.json:2:14: agents.r", &None));
        assert_eq!(settings.default_grant, Some(DefaultGrant::Nothing));
    }

    #[test]
    fn the_hosts_of_an_agent_are_read_in_their_normal_form() {
        let settings = settings(r#"{ "agents": { "r": { "fetch": { "hosts": ["b.example:443", "A.example", "a.example"] } }, "s": {} } }"#);
        assert_eq!(settings.agents["r"].fetch.as_ref().unwrap().texts(), ["a.example", "b.example:443"]);
        assert_eq!(settings.agents["s"].fetch, None);
    }

    #[test]
    fn a_mistake_makes_the_whole_config_unusable_and_is_named_with_its_place() {
        for (text, told) in [
            (r#"{ "toolboxes": [] }"#, "c.json:1:16: toolboxes: must be an object"),
            (r#"{ "toolboxes": { "a": ["x"] } }"#, "c.json:1:24: toolboxes.a[0]: must be server/tool"),
            (r#"{ "toolboxes": { "a": "x/*" } }"#, "toolboxes.a: must be a list of strings"),
            (r#"{ "toolboxes": { "a b": [] } }"#, "name must match"),
            (r#"{ "defaultGrant": true }"#, "c.json:1:19: defaultGrant: must be \"all\" or \"none\""),
            (r#"{ "agents": { "r": { "toolbox": [] } } }"#, "agents.r.toolbox: this key is unknown; did you mean toolboxes?"),
            (r#"{ "agents": { "r": { "toolboxes": [1] } } }"#, "agents.r.toolboxes[0]: must be a string"),
            (
                r#"{ "agents": { "r": { "toolboxes": ["reader"] } }, "toolboxes": { "readers": [] } }"#,
                "c.json:1:36: agents.r.toolboxes[0]: the config has no toolbox \"reader\"; did you mean \"readers\"?",
            ),
            (r#"{ "agents": { "r": { "fetch": ["a.example"] } } }"#, "agents.r.fetch: must be an object"),
            (r#"{ "agents": { "r": { "fetch": { "host": [] } } } }"#, "agents.r.fetch.host: this key is unknown; did you mean hosts?"),
            (
                r#"{ "agents": { "r": { "fetch": { "hosts": ["a.example", "*"] } } } }"#,
                "c.json:1:56: agents.r.fetch.hosts[1]: \"*\" is not a host",
            ),
            (r#"{ "agents": null }"#, "agents: must be an object"),
        ] {
            let problems = problems(text);
            assert!(problems.contains(told), "{problems}\n{told}");
        }
    }
}
