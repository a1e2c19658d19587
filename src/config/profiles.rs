//! Reads `profiles`: named sets of servers. A profile can restrict each of its servers, or change it and so make it a variant. A mistake
//! makes the whole config unusable, as in `grants`.

use std::collections::BTreeMap;

use super::definition::{Confirm, ToolFilter};
use super::filters::{UriFilter, check_pattern};
use super::grants::{GrantReader, check_label};
use super::tree::{Entry, Node, Value};
use super::variant::Changes;
use crate::text::{Position, TASK_MARK, displayed, nearest};

const KEYS: [&str; 15] = [
    "allowTools",
    "denyTools",
    "allowResources",
    "denyResources",
    "allowPrompts",
    "denyPrompts",
    "timeoutMs",
    "maxCallTimeoutMs",
    "connectTimeoutMs",
    "idleTimeoutMs",
    "maxParallelCalls",
    "parallel",
    "confirm",
    "env",
    "headers",
];
/// Keys of a server that decide what is started. A profile cannot set them.
const STARTING_KEYS: [&str; 8] = ["command", "args", "envFile", "cwd", "url", "oauth", "roots", "box"];

/// The restrictions of profiles for one server, and the changes that profiles make to it. An item must be admitted by all filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub tools: Vec<ToolFilter>,
    pub resources: Vec<UriFilter>,
    pub prompts: Vec<ToolFilter>,
    pub call_timeout_ms: Option<u64>,
    pub max_call_timeout_ms: Option<u64>,
    /// Maximum time for opening a connection, in milliseconds. This limit and `idle_timeout_ms` apply to connections that are opened for an
    /// agent with the profile.
    pub connect_timeout_ms: Option<u64>,
    pub idle_timeout_ms: Option<u64>,
    /// Maximum number of simultaneous calls of the server, for all agents together whose profiles set the same number. `parallel: false`
    /// means 1.
    pub max_parallel_calls: Option<u64>,
    pub confirm: Option<Confirm>,
    /// Changes to the server. If there are any, the server becomes a variant.
    pub changes: Changes,
}

/// A profile of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileDefinition {
    /// The servers in the profile, by name.
    pub servers: BTreeMap<String, Overrides>,
    /// The place of the definition: `config.json:3:5: profiles.staging`.
    pub place: String,
}

impl GrantReader<'_> {
    pub(super) fn profiles(&mut self, node: &Node) {
        for entry in self.entries("profiles", node) {
            let field = format!("profiles.{}", displayed(&entry.name));
            if let Err(problem) = check_label(&entry.name) {
                self.problem(&field, entry.position, problem);
            }
            let mut servers = None;
            for Entry { name, position, node } in self.entries(&field, &entry.node) {
                match name.as_str() {
                    "servers" => servers = Some(self.profile_servers(&format!("{field}.servers"), node)),
                    other => self.unknown_key(&field, other, *position, &["servers"]),
                }
            }
            if servers.is_none() {
                self.problem(&field, entry.position, "needs servers: a list of names, or an object of overrides by name");
            }
            let place = self.place(&field, entry.position);
            let servers = servers.unwrap_or_default();
            if entry.name.starts_with(TASK_MARK) && servers.values().any(|overrides| !overrides.changes.is_empty()) {
                let problem =
                    format!("a profile that sets env or headers cannot have a name that begins with \"{TASK_MARK}\": choose another");
                self.problem(&field, entry.position, problem);
            }
            self.settings.profiles.insert(entry.name.clone(), ProfileDefinition { servers, place });
        }
    }

    fn profile_servers(&mut self, field: &str, node: &Node) -> BTreeMap<String, Overrides> {
        if node.items().is_some() {
            return self.texts(field, node).into_iter().map(|name| (name, Overrides::default())).collect();
        }
        let entries = self.entries(field, node);
        entries
            .iter()
            .map(|entry| (entry.name.clone(), self.overrides(&format!("{field}.{}", displayed(&entry.name)), &entry.node)))
            .collect()
    }

    fn overrides(&mut self, field: &str, node: &Node) -> Overrides {
        let mut overrides = Overrides::default();
        for Entry { name, position, node } in self.entries(field, node) {
            let key = format!("{field}.{}", displayed(name));
            let (allow, deny) = (|list| (Some(list), Vec::new()), |list| (None, list));
            match name.as_str() {
                "allowTools" => overrides.tools.push(names(allow(self.texts(&key, node)))),
                "denyTools" => overrides.tools.push(names(deny(self.texts(&key, node)))),
                "allowPrompts" => overrides.prompts.push(names(allow(self.texts(&key, node)))),
                "denyPrompts" => overrides.prompts.push(names(deny(self.texts(&key, node)))),
                "allowResources" => overrides.resources.push(uris(allow(self.uris(&key, node)))),
                "denyResources" => overrides.resources.push(uris(deny(self.uris(&key, node)))),
                "timeoutMs" => overrides.call_timeout_ms = self.milliseconds(&key, node),
                "maxCallTimeoutMs" => overrides.max_call_timeout_ms = self.milliseconds(&key, node),
                "connectTimeoutMs" => overrides.connect_timeout_ms = self.milliseconds(&key, node),
                "idleTimeoutMs" => overrides.idle_timeout_ms = self.milliseconds(&key, node),
                "maxParallelCalls" => {
                    let calls = self.whole_number(&key, node, "calls");
                    overrides.max_parallel_calls = least(overrides.max_parallel_calls, calls);
                }
                "parallel" => match &node.value {
                    Value::Boolean(false) => overrides.max_parallel_calls = Some(1),
                    // A profile cannot loosen what the server's own entry says.
                    _ => self.problem(&key, *position, "must be false: a profile can only make a server stricter"),
                },
                "confirm" => overrides.confirm = self.confirm(&key, node),
                "env" => self.variables(&key, node, &mut overrides.changes),
                "headers" => self.headers(&key, node, &mut overrides.changes),
                other if STARTING_KEYS.contains(&other) => self.problem(
                    key,
                    *position,
                    "a profile can change env and headers, but no other key that decides what is started or reached: define a second server with this key under another name, and list that server in the profile",
                ),
                other => self.unknown_key(field, other, *position, &KEYS),
            }
        }
        overrides
    }

    fn uris(&mut self, field: &str, node: &Node) -> Vec<String> {
        let uris = self.texts(field, node);
        for (index, uri) in uris.iter().enumerate() {
            if let Err(problem) = check_pattern(uri) {
                let position = node.items().and_then(|items| items.get(index)).and_then(|item| item.position);
                self.problem(format!("{field}[{index}]"), position, problem);
            }
        }
        uris
    }

    fn milliseconds(&mut self, field: &str, node: &Node) -> Option<u64> {
        self.whole_number(field, node, "milliseconds")
    }

    fn whole_number(&mut self, field: &str, node: &Node, unit: &str) -> Option<u64> {
        let Value::Number(text) = &node.value else {
            self.problem(field, node.position, format!("must be a number of {unit}"));
            return None;
        };
        let number = text.parse().ok().filter(|number| *number > 0);
        if number.is_none() {
            self.problem(field, node.position, format!("must be a whole number of {unit}, at least 1"));
        }
        number
    }

    fn confirm(&mut self, field: &str, node: &Node) -> Option<Confirm> {
        match node.text() {
            Some("never") => Some(Confirm::Never),
            Some("writes") => Some(Confirm::Writes),
            Some("always") => Some(Confirm::Always),
            _ => {
                self.problem(field, node.position, "must be \"never\", \"writes\" or \"always\"");
                None
            }
        }
    }

    pub(super) fn unknown_key(&mut self, field: &str, key: &str, position: Option<Position>, known: &[&str]) {
        let meant = nearest(key, known.iter().copied()).map_or_else(String::new, |key| format!("; did you mean {key}?"));
        self.problem(format!("{field}.{}", displayed(key)), position, format!("this key is unknown{meant}"));
    }
}

/// Returns the smaller of two limits. `None` means no limit.
pub fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn names((allow, deny): (Option<Vec<String>>, Vec<String>)) -> ToolFilter {
    ToolFilter { allow, deny }
}

fn uris((allow, deny): (Option<Vec<String>>, Vec<String>)) -> UriFilter {
    UriFilter { allow, deny }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    #[test]
    fn a_profile_names_servers_or_narrows_them() {
        let text = r#"{ "profiles": { "p": { "servers": ["a", "b"] },
            "q": { "servers": { "a": { "denyTools": ["x"], "allowTools": ["x", "y"], "timeoutMs": 5, "confirm": "always" }, "b": {} } } },
            "agents": { "r": { "profiles": ["p", "q"] } } }"#;
        let grants = parse_text(text, "c.json", 9).unwrap().grants;
        assert_eq!(grants.profiles["p"].servers.keys().collect::<Vec<_>>(), ["a", "b"]);
        let narrowed = &grants.profiles["q"].servers["a"];
        assert_eq!((narrowed.tools.len(), narrowed.call_timeout_ms, narrowed.confirm), (2, Some(5), Some(Confirm::Always)));
        assert_eq!(grants.agents["r"].profiles.as_deref(), Some(&["p".to_owned(), "q".to_owned()][..]));
        assert_eq!(grants.agents["r"].toolboxes, None);
        let text = r#"{ "profiles": { "p": { "servers": { "a": { "parallel": false, "maxParallelCalls": 4, "connectTimeoutMs": 5, "idleTimeoutMs": 6 },
            "b": { "maxParallelCalls": 4 } } } } }"#;
        let servers = &parse_text(text, "c.json", 9).unwrap().grants.profiles["p"].servers;
        assert_eq!((servers["a"].max_parallel_calls, servers["b"].max_parallel_calls), (Some(1), Some(4)));
        assert_eq!((servers["a"].connect_timeout_ms, servers["a"].idle_timeout_ms), (Some(5), Some(6)));
    }

    #[test]
    fn what_a_profile_cannot_set_is_named_with_its_place() {
        for (text, told) in [
            (
                r#"{ "profiles": { "p": { "servers": { "a": { "command": "x" } } } } }"#,
                "c.json:1:44: profiles.p.servers.a.command: a profile can change env and headers, but no other key",
            ),
            (r#"{ "profiles": { "p": { "servers": { "a": { "timeout": 1 } } } } }"#, "this key is unknown; did you mean timeoutMs?"),
            (r#"{ "profiles": { "p": { "servers": { "a": { "timeoutMs": 0 } } } } }"#, "at least 1"),
            (
                r#"{ "profiles": { "p": { "servers": { "a": { "maxParallelCalls": 0 } } } } }"#,
                "must be a whole number of calls, at least 1",
            ),
            (r#"{ "profiles": { "p": { "servers": { "a": { "parallel": true } } } } }"#, "parallel: must be false"),
            (r#"{ "profiles": { "p": { "servers": { "a": { "confirm": "no" } } } } }"#, "profiles.p.servers.a.confirm: must be"),
            (r#"{ "profiles": { "p": { "servers": { "a": { "allowResources": ["x*y"] } } } } }"#, "allowResources[0]: can have \"*\" only"),
            (r#"{ "profiles": { "p": {} } }"#, "needs servers"),
            (r#"{ "agents": { "r": { "profiles": ["p"] } } }"#, "agents.r.profiles[0]: the config has no profile \"p\""),
        ] {
            let problems = parse_text(text, "c.json", 9).unwrap_err().in_full();
            assert!(problems.contains(told), "{problems}\n{told}");
        }
    }
}
