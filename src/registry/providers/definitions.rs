//! Parses the server definitions of a provider. Each definition is converted to an entry of a config, so that all rules for entries apply
//! to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::names::{full_name, provider_name};
use super::policy::{Facts, judges_servers, refused_server};
use super::started::started;
use crate::config::{
    Config, InvalidServer, Part, Placeholder, ProviderPolicy, ServerDefinition, ServerSource, Template, URL_KEYS, out_of_force,
    parse_object,
};
use crate::error::Error;
use crate::registry::Entry;
use crate::text::{Problem, displayed, displayed_within};

/// Maximum size of a provider's answer as JSON, in bytes.
pub const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Maximum number of servers from one provider.
pub const MAX_DEFINITIONS: usize = 200;
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE_CHARS: usize = 128;
const MAX_SPEC_CHARS: usize = 300;
const MAX_NAME_CHARS: usize = 64;
const MAX_DEPTH: usize = 16;
/// Keys of a definition that do not exist in an entry of the config.
const OWN_KEYS: [&str; 4] = ["name", "package", "envRequired", "description"];
/// Keys that only the operator may set, each with the reason.
const REFUSED_KEYS: [(&str, &str); 4] = [
    ("confirm", "decides which calls ask a person, so only the operator sets it; put the server into your config to set it"),
    ("reads", "decides which calls need no question, so only the operator sets it; put the server into your config to set it"),
    ("box", "decides what a server's process may do, so only the operator sets it; put the server into your config to set it"),
    ("envFile", "would pass variables that envRequired does not name; name these variables in envRequired instead"),
];

/// The servers of one provider, after the policy was applied.
#[derive(Debug, Default)]
pub struct Brought {
    pub entries: Vec<Entry>,
    /// Servers that the policy denies.
    pub refused: Vec<RefusedServer>,
    /// Problems that do not prevent the use of a server.
    pub warnings: Vec<String>,
}

/// A server that the operator's policy denies.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RefusedServer {
    pub name: String,
    pub reason: String,
}

/// Parses the answer of the provider `source`, which is a list of definitions. A definition with an error becomes an invalid entry. The
/// other servers can be used nevertheless.
///
/// # Errors
/// Returns the reason why the whole answer cannot be used: it is not a list of objects with names, it is too large, or it names a server
/// twice.
///
/// ```
/// use hyperlight_mcp::config::{ProviderPolicy, ServerSource, SourceKind};
/// use hyperlight_mcp::registry::providers::read_answer;
/// let acme = ServerSource::named(SourceKind::Provider, "acme");
/// let answer = serde_json::json!([{ "name": "files", "package": "@acme/files", "envRequired": ["ACME_KEY"] }]);
/// let brought = read_answer(&acme, &answer, &ProviderPolicy::default()).unwrap();
/// assert_eq!(brought.entries[0].name(), "acme--files");
/// assert!(read_answer(&acme, &serde_json::json!({ "files": {} }), &ProviderPolicy::default()).is_err());
/// ```
pub fn read_answer(source: &ServerSource, answer: &Json, policy: &ProviderPolicy) -> Result<Brought, String> {
    let definitions = answer.as_array().ok_or("its answer is not a list of definitions")?;
    if definitions.len() > MAX_DEFINITIONS {
        return Err(format!("its answer has {} servers, and at most {MAX_DEFINITIONS} are permitted", definitions.len()));
    }
    let is_bounded = depth_within(answer, MAX_DEPTH) && serde_json::to_string(answer).is_ok_and(|text| text.len() <= MAX_ANSWER_BYTES);
    if !is_bounded {
        return Err(format!("its answer has more than {MAX_ANSWER_BYTES} bytes of JSON, or is nested more than {MAX_DEPTH} levels deep"));
    }
    // The source of a package contains the package's name, which is converted to the provider's name here.
    let provider = provider_name(source.name.as_deref().unwrap_or_default())?;
    let provider = provider.as_str();
    let (mut brought, mut seen) = (Brought::default(), BTreeSet::new());
    for (index, definition) in definitions.iter().enumerate() {
        let definition = definition.as_object().ok_or_else(|| format!("the definition [{index}] of its answer is not an object"))?;
        let name = definition.get("name").and_then(Json::as_str);
        let name = name.ok_or_else(|| format!("the definition [{index}] of its answer has no name"))?;
        if !seen.insert(name) {
            return Err(format!("its answer has the server \"{}\" twice", displayed_within(name, MAX_NAME_CHARS)));
        }
        let refusal = judges_servers(policy).then(|| refused_server(policy, &facts(definition))).flatten();
        let shown = format!("{provider}--{}", displayed_within(name, MAX_NAME_CHARS));
        match (refusal, full_name(provider, name)) {
            (Some(reason), _) => brought.refused.push(RefusedServer { name: shown, reason }),
            (None, Err(problem)) => {
                let problems = vec![Problem::new(format!("[{index}].name"), None, problem)];
                brought.entries.push(Entry::Invalid(Arc::new(invalid(&shown, source, problems))));
            }
            (None, Ok(name)) => {
                let (entry, warnings) = read_definition(definition, &name, source);
                brought.entries.push(entry);
                brought.warnings.extend(warnings);
            }
        }
    }
    Ok(brought)
}

/// Parses one definition. `name` is the complete name of its server. Also returns warnings.
pub(crate) fn read_definition(definition: &Map<String, Json>, name: &str, source: &ServerSource) -> (Entry, Vec<String>) {
    let mut reader = Reader { name, problems: Vec::new() };
    let required = reader.required_environment(definition);
    reader.refused_keys(definition);
    reader.references(definition, &required);
    let entry = reader.entry(definition, &required);
    let brought = |server| ServerDefinition {
        source: source.clone(),
        required_environment: required.clone(),
        description: definition.get("description").and_then(Json::as_str).map(str::to_owned),
        ..server
    };
    let parsed = parse_object(&json!({ "mcpServers": { name: entry } }), &source.to_string(), 1);
    if !reader.problems.is_empty() {
        let written = parsed.ok().and_then(|config| written_in(config, &brought));
        return (Entry::Invalid(Arc::new(InvalidServer { as_written: written, ..invalid(name, source, reader.problems) })), Vec::new());
    }
    match parsed {
        Err(error) => (Entry::Invalid(Arc::new(invalid_with(name, source, error, None))), Vec::new()),
        Ok(mut config) => {
            let entry = match (config.servers.pop(), config.invalid.pop()) {
                (Some(server), _) => Entry::Valid(Arc::new(brought(server))),
                (None, Some(server)) => {
                    let without_box = server.without_box.map(|server| Arc::new(brought(ServerDefinition::clone(&server))));
                    let as_written = server.as_written.map(|server| Arc::new(brought(ServerDefinition::clone(&server))));
                    let invalid = invalid_with(&server.name, source, server.error, without_box);
                    Entry::Invalid(Arc::new(InvalidServer { as_written, ..invalid }))
                }
                (None, None) => Entry::Invalid(Arc::new(invalid(name, source, vec![Problem::new("name", None, "is not a server")]))),
            };
            (entry, config.warnings)
        }
    }
}

/// Returns the server of an entry as it is written, even if the entry has an error. It is used to find the files that the entry names.
fn written_in(mut config: Config, brought: &impl Fn(ServerDefinition) -> ServerDefinition) -> Option<Arc<ServerDefinition>> {
    let invalid = config.invalid.pop().and_then(|server| server.as_written).map(|server| ServerDefinition::clone(&server));
    config.servers.pop().or(invalid).map(|server| Arc::new(out_of_force(&brought(server))))
}

fn invalid(name: &str, source: &ServerSource, problems: Vec<Problem>) -> InvalidServer {
    let error = Error::ConfigInvalid { file: source.to_string().into(), problems: problems.into() };
    invalid_with(name, source, error, None)
}

fn invalid_with(name: &str, source: &ServerSource, error: Error, without_box: Option<Arc<ServerDefinition>>) -> InvalidServer {
    let (name, source) = (displayed_within(name, MAX_NAME_CHARS), source.clone());
    InvalidServer { name, source, error, without_box, as_written: None }
}

struct Reader<'d> {
    name: &'d str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, key: &str, problem: impl Into<String>) {
        self.problems.push(Problem::new(format!("{}.{}", self.name, displayed(key)), None, problem));
    }

    fn refused_keys(&mut self, definition: &Map<String, Json>) {
        for (key, reason) in REFUSED_KEYS {
            if definition.contains_key(key) {
                self.wrong(key, reason);
            }
        }
        if definition.get("description").is_some_and(|description| !description.is_string()) {
            self.wrong("description", "must be a string");
        }
    }

    fn required_environment(&mut self, definition: &Map<String, Json>) -> Vec<String> {
        let Some(given) = definition.get("envRequired") else { return Vec::new() };
        let names: Option<Vec<&str>> = given.as_array().and_then(|names| names.iter().map(Json::as_str).collect());
        let Some(names) = names.filter(|names| names.len() <= MAX_VARIABLES && names.iter().all(|name| is_variable_name(name))) else {
            self.wrong("envRequired", format!("must be a list of at most {MAX_VARIABLES} variable names, like ACME_API_KEY"));
            return Vec::new();
        };
        let mut required: Vec<String> = Vec::new();
        for name in names {
            if !required.iter().any(|known| known == name) {
                required.push(name.to_owned());
            }
        }
        required
    }

    /// Reports each reference to a variable of this process that `envRequired` does not name, because the server gets only the variables of
    /// `envRequired`.
    fn references(&mut self, definition: &Map<String, Json>, required: &[String]) {
        for (key, value) in definition.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str())) {
            let mut names = BTreeSet::new();
            variables_in(value, &mut names);
            for name in names.iter().filter(|name| !required.contains(name)) {
                self.wrong(key, format!("refers to the variable {}, which envRequired does not name", displayed(name)));
            }
        }
    }

    /// Returns the definition as an entry of a config.
    fn entry(&mut self, definition: &Map<String, Json>, required: &[String]) -> Map<String, Json> {
        let is_own = |key: &String| OWN_KEYS.contains(&key.as_str());
        let mut entry: Map<String, Json> =
            definition.iter().filter(|(key, _)| !is_own(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
        let package = match definition.get("package") {
            None => None,
            Some(package) if package.as_str().is_some_and(is_package_spec) => Some(package.clone()),
            Some(_) => {
                self.wrong("package", "must be the name of a package, with or without a version, like @acme/files@1.2.0");
                None
            }
        };
        if URL_KEYS.into_iter().any(|key| entry.contains_key(key)) {
            return entry;
        }
        if let Some(package) = package {
            entry.entry("command").or_insert_with(|| "npx".into());
            entry.entry("args").or_insert_with(|| json!(["-y", package]));
        } else if !entry.contains_key("command") && !definition.contains_key("package") {
            self.wrong("package", "is missing; a definition needs a package, a command or a url");
        }
        let environment = entry.entry("env").or_insert_with(|| json!({}));
        if let Some(environment) = environment.as_object_mut() {
            for name in required {
                environment.entry(name).or_insert_with(|| format!("${{{name}}}").into());
            }
        }
        entry
    }
}

fn is_variable_name(name: &str) -> bool {
    let fits = |next: char| next.is_ascii_alphanumeric() || next == '_';
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.len() <= MAX_VARIABLE_CHARS
        && name.chars().all(fits)
}

/// Returns whether a text names a package in a registry, rather than an option, a path or a repository.
fn is_package_spec(spec: &str) -> bool {
    let (scope, rest) =
        spec.strip_prefix('@').and_then(|scoped| scoped.split_once('/')).map_or((None, spec), |(scope, rest)| (Some(scope), rest));
    let is_part = |part: &str| {
        let fits = |next: char| next.is_ascii_alphanumeric() || "._-~@=[],+^".contains(next);
        part.starts_with(|first: char| first.is_ascii_alphanumeric()) && part.chars().all(fits)
    };
    spec.len() <= MAX_SPEC_CHARS && scope.is_none_or(is_part) && is_part(rest)
}

/// Returns a package's name without its version: `@acme/files` for `@acme/files@1.2.0`, `mcp-server-time` for `mcp-server-time==2026.1`.
fn bare_name(spec: &str) -> &str {
    let start = usize::from(spec.starts_with('@'));
    spec[start..].find(['@', '=', '[', '<', '>', '~', '^']).map_or(spec, |end| &spec[..start + end])
}

/// Returns the facts about a definition that the policy needs. The definition is not checked yet.
fn facts(definition: &Map<String, Json>) -> Facts<'_> {
    let text = |key: &str| definition.get(key).and_then(Json::as_str);
    let texts =
        |key: &str| -> Vec<&str> { definition.get(key).and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect() };
    let named = text("package").into_iter().chain(text("command")).chain(texts("args")).map(bare_name).collect();
    Facts { started: started(definition), named, capabilities: texts("capabilities") }
}

/// Collects the names of the variables that the texts in a value refer to.
fn variables_in(value: &Json, names: &mut BTreeSet<String>) {
    match value {
        Json::String(text) => {
            let template = Template::parse(text);
            for part in template.iter().flat_map(Template::parts) {
                if let Part::Placeholder { meaning: Placeholder::Variable { name, .. }, .. } = part {
                    names.insert((*name).to_owned());
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| variables_in(item, names)),
        Json::Object(fields) => fields.values().for_each(|value| variables_in(value, names)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn depth_within(value: &Json, depth: usize) -> bool {
    match value {
        _ if depth == 0 => false,
        Json::Array(items) => items.iter().all(|item| depth_within(item, depth - 1)),
        Json::Object(fields) => fields.values().all(|value| depth_within(value, depth - 1)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => true,
    }
}

#[cfg(test)]
#[path = "definitions_tests.rs"]
mod tests;
