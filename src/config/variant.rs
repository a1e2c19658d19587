//! Variants of servers: a profile can change what a server runs, or what is sent to it. The result is a separate server, because two
//! environments must never share a process. Everything in this module is a pure function of the config.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use super::definition::{InputDefinition, Origin, ServerDefinition, Transport, inputs_in};
use super::grants::GrantReader;
use super::inputs::defaults_of;
use super::profiles::ProfileDefinition;
use super::rules;
use super::template::{Allowed, Template};
use super::tree::{Entry, Node, Value};
use crate::error::Error;
use crate::text::{PROFILE_SIGN, Position, Problem, displayed, with_mark};

/// A part of a server's entry that a profile can set, and that changes what is run or sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// A variable of the server's environment.
    Variable(String),
    /// A header, in lower case, because header names are case-insensitive.
    Header(String),
}

impl Setting {
    /// Returns the path of the setting below its server: `env.TOKEN`.
    fn key(&self) -> String {
        match self {
            Self::Variable(name) => format!("env.{name}"),
            Self::Header(name) => format!("headers.{name}"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(formatter, "the variable \"{}\"", displayed(name)),
            Self::Header(name) => write!(formatter, "the header \"{}\"", displayed(name)),
        }
    }
}

/// A value that a profile sets, with its place in the config.
#[derive(Debug, Clone)]
pub struct SetValue {
    /// The value. `None` if the server must not get a variable of this name.
    value: Option<SecretString>,
    place: SettingPlace,
}

/// The place of a setting in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SettingPlace {
    pub(super) file: String,
    /// The path of the field, such as `profiles.staging.servers.weather.env.TOKEN`.
    pub(super) field: String,
    pub(super) position: Option<Position>,
}

impl SetValue {
    fn text(&self) -> Option<&str> {
        self.value.as_ref().map(ExposeSecret::expose_secret)
    }
}

impl PartialEq for SetValue {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text() && self.place == other.place
    }
}

impl Eq for SetValue {}

/// The settings of one server that a profile changes.
pub type Changes = BTreeMap<Setting, SetValue>;

/// A conflict: two profiles set the same setting of one server to different values. Neither value can be used, because the order of
/// profiles has no meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileConflict {
    pub server: String,
    pub setting: Setting,
    /// The names of the profiles, in alphabetical order.
    pub profiles: [String; 2],
}

impl fmt::Display for ProfileConflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = &self.profiles;
        write!(
            formatter,
            "the profiles \"{first}\" and \"{second}\" set {} of server \"{}\" differently: choose one of them, or let both set the same value",
            self.setting,
            displayed(&self.server)
        )
    }
}

/// A server with the changes of one or more profiles. All agents with these profiles share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// The name of the changed server.
    server: String,
    /// The names of the profiles that change the server.
    profiles: BTreeSet<String>,
    changes: Changes,
}

/// Returns the variants that a set of profiles makes, by the name of the changed server. The order of the profiles does not matter.
///
/// # Errors
/// The first conflict, in the order of server names and settings.
///
/// ```
/// use hyperlight_mcp::config::{parse_text, variants_of};
/// let text = r#"{ "profiles": { "b": { "servers": { "weather": { "env": { "REGION": "north" } }, "notes": {} } },
///     "a": { "servers": { "weather": { "env": { "LEVEL": "1" } } } } } }"#;
/// let profiles = parse_text(text, "config.json", 20).unwrap().grants.profiles;
/// let variants = variants_of(&profiles).unwrap();
/// assert_eq!(variants["weather"].name(), "weather@a+b");
/// assert!(!variants.contains_key("notes"));
/// ```
pub fn variants_of<'p>(
    profiles: impl IntoIterator<Item = (&'p String, &'p ProfileDefinition)>,
) -> Result<BTreeMap<String, Variant>, ProfileConflict> {
    let profiles: BTreeMap<_, _> = profiles.into_iter().collect();
    let mut set: BTreeMap<(&String, &Setting), (&String, &SetValue)> = BTreeMap::new();
    let mut variants: BTreeMap<String, Variant> = BTreeMap::new();
    let mut conflicts = BTreeMap::new();
    for (name, profile) in profiles {
        for (server, overrides) in &profile.servers {
            for (setting, value) in &overrides.changes {
                let (first, known) = *set.entry((server, setting)).or_insert((name, value));
                if known.text() != value.text() {
                    conflicts.entry((server, setting)).or_insert((first, name));
                }
                let new = || Variant { server: server.clone(), profiles: BTreeSet::new(), changes: Changes::new() };
                let variant = variants.entry(server.clone()).or_insert_with(new);
                variant.profiles.insert(name.clone());
                variant.changes.entry(setting.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    match conflicts.into_iter().next() {
        None => Ok(variants),
        Some(((server, setting), (first, second))) => {
            let (server, setting, profiles) = (server.clone(), setting.clone(), [first.clone(), second.clone()]);
            Err(ProfileConflict { server, setting, profiles })
        }
    }
}

impl Variant {
    /// Returns the name of the changed server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the variant's name in the registry: the server's name, and the names of the profiles that change it in alphabetical order.
    #[must_use]
    pub fn name(&self) -> String {
        let profiles: Vec<&str> = self.profiles.iter().map(String::as_str).collect();
        with_mark(&self.server, &profiles.join(&PROFILE_SIGN.to_string()))
    }

    /// Returns the variant of a server. `inputs` are the inputs that its placeholders can refer to.
    ///
    /// # Errors
    /// `ERR_CONFIG_INVALID` if the server cannot have the setting that a profile sets, such as a header of a server that is a process.
    pub fn of(&self, base: &ServerDefinition, inputs: &[InputDefinition]) -> Result<ServerDefinition, Error> {
        let mut server = ServerDefinition { name: self.name(), ..base.clone() };
        let mut problems = Vec::new();
        for (setting, set) in &self.changes {
            server.origin.place_elsewhere(&setting.key(), &set.place);
            if let Err(problem) = apply(setting, set, &mut server.transport) {
                problems.push(server.origin.problem(&setting.key(), problem));
            }
        }
        if !problems.is_empty() {
            return Err(server.origin.error(problems));
        }
        let ids = inputs_in(&server.transport);
        server.secret_inputs = ids.iter().filter(|id| inputs.iter().any(|input| input.id == **id && input.secret)).cloned().collect();
        server.input_defaults = defaults_of(inputs, &ids);
        server.input_descriptions = super::inputs::descriptions_of(inputs, &ids);
        Ok(server)
    }
}

/// Changes one setting of a server's transport.
fn apply(setting: &Setting, set: &SetValue, transport: &mut Transport) -> Result<(), &'static str> {
    match (setting, transport) {
        (Setting::Variable(name), Transport::Stdio { environment, removed_environment, .. }) => {
            environment.retain(|(known, _)| known != name);
            removed_environment.retain(|known| known != name);
            match &set.value {
                Some(value) => environment.push((name.clone(), value.clone())),
                None => removed_environment.push(name.clone()),
            }
            Ok(())
        }
        (Setting::Header(name), Transport::Http { headers, .. }) => {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            headers.extend(set.value.iter().map(|value| (name.clone(), value.clone())));
            Ok(())
        }
        (Setting::Variable(_), Transport::Http { .. }) => Err("the server is reached by its url, and has no environment: set headers"),
        (_, Transport::Generated(_)) => Err("the server was made from a prompt, and has neither an environment nor headers"),
        (Setting::Header(_), Transport::Stdio { .. }) => Err("the server is a process, and gets no headers: set env"),
    }
}

impl Origin {
    /// Records that a value comes from a profile and not from the server's own entry.
    fn place_elsewhere(&mut self, key: &str, place: &SettingPlace) {
        self.elsewhere.insert(key.to_owned(), place.clone());
    }
}

impl GrantReader<'_> {
    /// Reads the variables that a profile sets. With `null`, the server does not get the variable.
    pub(super) fn variables(&mut self, field: &str, node: &Node, changes: &mut Changes) {
        for Entry { name, position, node } in self.entries(field, node) {
            let key = format!("{field}.{}", displayed(name));
            if let Err(problem) = rules::check_variable_name(name) {
                self.problem(&key, *position, problem);
            }
            let value = match node.scalar() {
                None if matches!(node.value, Value::Null) => None,
                None => {
                    self.problem(&key, node.position, "must be a string, or null for a variable that is not passed");
                    continue;
                }
                Some(text) => Some(text),
            };
            let set = self.set_value(&key, node, value);
            changes.insert(Setting::Variable(name.clone()), set);
        }
    }

    /// Reads the headers that a profile sets.
    pub(super) fn headers(&mut self, field: &str, node: &Node, changes: &mut Changes) {
        for Entry { name, position, node } in self.entries(field, node) {
            let key = format!("{field}.{}", displayed(name));
            if let Err(problem) = rules::check_header_name(name) {
                self.problem(&key, *position, problem);
            }
            let Some(text) = node.scalar() else {
                self.problem(&key, node.position, "must be a string");
                continue;
            };
            if let Err(problem) = rules::check_header_value(&text) {
                self.problem(&key, node.position, problem);
            }
            let set = self.set_value(&key, node, Some(text));
            if changes.insert(Setting::Header(name.to_ascii_lowercase()), set).is_some() {
                self.problem(&key, *position, "is given twice; header names are case-insensitive");
            }
        }
    }

    /// Checks a text's placeholders, and returns the value with its place.
    fn set_value(&mut self, field: &str, node: &Node, text: Option<String>) -> SetValue {
        let problem = |problem: String| Problem::new(field, node.position, problem);
        if let Some(text) = &text {
            if let Err(wrong) = rules::check_no_nul(text) {
                self.problems.push(problem(wrong.to_owned()));
            }
            match Template::parse(text) {
                Ok(template) => {
                    for id in template.inputs() {
                        self.problems.extend(self.inputs.problems_of(id, problem));
                    }
                    let refused = template.check(Allowed::All).err().unwrap_or_default();
                    self.problems.extend(refused.into_iter().map(problem));
                }
                Err(wrong) => self.problems.extend(wrong.into_iter().map(problem)),
            }
        }
        let place = SettingPlace { file: self.file.to_owned(), field: field.to_owned(), position: node.position };
        SetValue { value: text.map(SecretString::from), place }
    }
}

#[cfg(test)]
#[path = "variant_tests.rs"]
mod tests;
