//! Computes the servers that an import adds, and the new text of the config. Does not read or write files.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::found::{Found, Secret, secret_field, starts_gateway};
use crate::config::{ServerDefinition, inputs_of_text, loads_code, parse_object, redirects_traffic};
use crate::error::Error;
use crate::redact::Redactor;
use crate::trust::{address_of, shown_header, shown_variable};

const MASKED: &str = "***";

/// A server to add.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::cli) struct Addition {
    /// Valid name that the config does not contain yet.
    pub(in crate::cli) name: String,
    /// Program and file that the server comes from.
    pub(in crate::cli) from: String,
    pub(in crate::cli) entry: Json,
    pub(super) notes: Vec<String>,
    pub(in crate::cli) secrets: Vec<Secret>,
    /// Names of variables that can make a program load or run code.
    pub(super) loaders: Vec<String>,
    /// Names of variables that can redirect traffic or weaken its protection.
    pub(super) redirectors: Vec<String>,
}

impl Addition {
    /// Returns the entry without secrets. Each secret is replaced with the suggested variable, or with `***`, as terminals and logs keep
    /// printed text.
    pub(super) fn shown_entry(&self) -> Json {
        let Self { name: _, from: _, entry, notes: _, secrets, loaders: _, redirectors: _ } = self;
        let mut shown = entry.clone();
        let suggestion = |field: &str| secrets.iter().find(|secret| secret.field == field).map(|secret| secret.suggestion.clone());
        for (table, show) in [("env", shown_variable as fn(&str, &str) -> String), ("headers", shown_header)] {
            for (name, value) in shown[table].as_object_mut().into_iter().flatten() {
                let Some(text) = value.as_str() else { continue };
                let masked = show(name, text).split_off(name.len() + 1);
                let suggestion = suggestion(&secret_field(table, name));
                if masked != text || suggestion.is_some() {
                    *value = json!(suggestion.unwrap_or(masked));
                }
            }
        }
        for (index, word) in shown["args"].as_array_mut().into_iter().flatten().enumerate() {
            if suggestion(&format!("args[{index}]")).is_some() {
                let text = word.as_str().unwrap_or_default();
                *word = json!(text.split_once('=').map_or_else(|| MASKED.to_owned(), |(name, _)| format!("{name}={MASKED}")));
            }
        }
        if let Some(url) = shown["url"].as_str().filter(|_| suggestion("url").is_some()) {
            shown["url"] = json!(address_of(url, None).shown);
        }
        for key in ["clientSecret", "privateKey"] {
            if shown["oauth"][key].as_str().is_some_and(|value| !value.contains("${")) {
                shown["oauth"][key] = json!(MASKED);
            }
        }
        shown
    }

    /// Parses the server as part of a config with these inputs. Assumes that the config declares all other inputs that the server uses.
    pub(super) fn definition(&self, inputs: &[Json]) -> Option<ServerDefinition> {
        let mut inputs = inputs.to_vec();
        for id in inputs_of_text(&self.entry.to_string()) {
            if !inputs.iter().any(|input| input["id"] == id.as_str()) {
                inputs.push(json!({ "type": "promptString", "id": id }));
            }
        }
        let one = json!({ "mcpServers": { self.name.as_str(): self.entry }, "inputs": inputs });
        parse_object(&one, "import", 1).ok()?.servers.pop()
    }
}

/// A server that is not added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Skipped {
    pub(in crate::cli) name: String,
    pub(in crate::cli) from: String,
    pub(in crate::cli) why: String,
}

/// Changes that an import makes.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(in crate::cli) struct Plan {
    pub(in crate::cli) additions: Vec<Addition>,
    pub(in crate::cli) skipped: Vec<Skipped>,
    /// Declarations of the inputs that the additions use as `${input:…}`.
    pub(in crate::cli) inputs: Vec<Json>,
}

impl Plan {
    /// Returns the additions for printing, without secrets.
    pub(in crate::cli) fn shown_additions(&self) -> Vec<Addition> {
        self.additions.iter().map(|addition| Addition { entry: addition.shown_entry(), ..addition.clone() }).collect()
    }
}

/// Returns the entry of a server for printing, without secrets.
pub(in crate::cli) fn shown_found(found: Found) -> Json {
    let Found { name, entry, notes, secrets } = found;
    Addition { name, from: String::new(), entry, notes, secrets, loaders: Vec::new(), redirectors: Vec::new() }.shown_entry()
}

/// Returns the inputs for printing. Masks the defaults of inputs that are marked as passwords.
pub(in crate::cli) fn shown_inputs(inputs: &[Json]) -> Vec<Json> {
    let mut inputs = inputs.to_vec();
    for input in &mut inputs {
        if input["password"] == true && !input["default"].is_null() {
            input["default"] = json!(MASKED);
        }
    }
    inputs
}

/// A config of another program: its path, its servers, and its inputs.
pub(in crate::cli) type Read = (String, Vec<Found>, Vec<Json>);

/// Returns the servers that the config does not contain yet. `existing` is the config as JSON.
pub(super) fn plan(existing: &Json, read: Vec<Read>) -> Plan {
    plan_named(existing, read).0
}

/// Computes the same as [`plan`]. Also returns the name that each server has in the config afterwards, in the order of `read`. A server
/// that the config does not get has none.
pub(in crate::cli) fn plan_named(existing: &Json, read: Vec<Read>) -> (Plan, Vec<Option<String>>) {
    let (mut plan, mut names) = (Plan::default(), Vec::new());
    let sections = [&existing["mcpServers"], &existing["servers"], &existing["mcp"]["servers"]];
    let mut taken: Vec<(String, Json)> =
        sections.into_iter().filter_map(Json::as_object).flatten().map(|(name, entry)| (name.clone(), entry.clone())).collect();
    for (from, found, inputs) in read {
        for found in found {
            names.push(add(&mut plan, &mut taken, &from, found));
        }
        let used = |id: &str| plan.additions.iter().any(|addition| addition.entry.to_string().contains(&format!("${{input:{id}}}")));
        let known = |input: &Json, all: &[Json]| all.iter().any(|other| other["id"] == input["id"]);
        let ours: Vec<Json> = existing["inputs"].as_array().cloned().unwrap_or_default();
        let wanted = inputs.into_iter().filter(|input| input["id"].as_str().is_some_and(used) && !known(input, &ours));
        for input in wanted {
            if !known(&input, &plan.inputs) {
                plan.inputs.push(input);
            }
        }
    }
    (plan, names)
}

/// Adds one server to the plan. Returns its name in the config, or `None` if the config does not get it.
fn add(plan: &mut Plan, taken: &mut Vec<(String, Json)>, from: &str, found: Found) -> Option<String> {
    let Found { name, entry, mut notes, secrets } = found;
    let skip = |plan: &mut Plan, why: String| plan.skipped.push(Skipped { name: name.clone(), from: from.to_owned(), why });
    if starts_gateway(&entry) {
        skip(plan, "it starts hyperlight-mcp itself".to_owned());
        return None;
    }
    if let Some((ours, _)) = taken.iter().find(|(_, known)| *known == entry) {
        let why = format!("the config already has the same entry as \"{ours}\"");
        skip(plan, why);
        return Some(ours.clone());
    }
    let valid = free(&valid_name(&name), taken);
    let one = json!({ "mcpServers": { valid.as_str(): entry } });
    // Errors about unknown inputs are ignored, as the inputs are added together with the server.
    match parse_object(&one, "import", 1) {
        Ok(config) if config.invalid.is_empty() => {
            notes.extend(config.warnings.iter().filter(|warning| !warning.contains("input:")).cloned());
        }
        Ok(config) if config.invalid.iter().all(|server| readable(&server.error).contains("input")) => {}
        Ok(config) => {
            let why = config.invalid.first().map(|server| readable(&server.error)).unwrap_or_default();
            skip(plan, why.replace(&format!("import: mcpServers.{valid}"), "it"));
            return None;
        }
        Err(error) => {
            skip(plan, readable(&error));
            return None;
        }
    }
    if valid != name {
        notes.insert(0, format!("its name \"{name}\" became \"{valid}\""));
    }
    taken.push((valid.clone(), entry.clone()));
    let variables = || entry["env"].as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
    let loaders = variables().filter(|name| loads_code(name)).cloned().collect();
    let redirectors = variables().filter(|name| redirects_traffic(name)).cloned().collect();
    plan.additions.push(Addition { name: valid.clone(), from: from.to_owned(), entry, notes, secrets, loaders, redirectors });
    Some(valid)
}

/// Returns the message of an error in an entry. No gateway is open, so no secret is known; the parser's messages never quote a value.
fn readable(error: &Error) -> String {
    error.clone().redacted(&Redactor::new(None, None)).to_string()
}

/// Converts a name to a valid one: lower-case letters, digits and hyphens, starting with a letter.
fn valid_name(name: &str) -> String {
    const RESERVED: [&str; 5] = ["fs-read", "fs-write", "fetch", "mcp", "gateway"];
    let mut valid = String::new();
    for character in name.chars().flat_map(char::to_lowercase) {
        let plain = if character.is_ascii_alphanumeric() { character } else { '-' };
        if plain != '-' || !valid.ends_with('-') {
            valid.push(plain);
        }
    }
    let valid = valid.trim_matches('-');
    let valid: String =
        if valid.starts_with(|first: char| first.is_ascii_lowercase()) { valid.to_owned() } else { format!("server-{valid}") };
    let valid: String = valid.trim_end_matches('-').chars().take(56).collect();
    if RESERVED.contains(&valid.as_str()) { format!("{valid}-server") } else { valid }
}

fn free(name: &str, taken: &[(String, Json)]) -> String {
    let is_taken = |name: &str| taken.iter().any(|(known, _)| known == name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned())
}

/// Returns the text of the config with the additions. Keeps everything else, including comments. An empty text becomes a new config.
///
/// # Errors
/// A sentence that says why the text is not a valid config.
pub(in crate::cli) fn edited(text: &str, plan: &Plan) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())?;
    let top = root.object_value().ok_or("the config is not an object")?;
    let servers = ["mcpServers", "servers"].into_iter().find(|name| top.get(name).is_some()).unwrap_or("mcpServers");
    let section = top.object_value_or_create(servers).ok_or_else(|| format!("{servers} is not an object"))?;
    section.ensure_multiline();
    for addition in &plan.additions {
        section.append(&addition.name, input_of(&addition.entry));
    }
    if !plan.inputs.is_empty() {
        let inputs = top.array_value_or_create("inputs").ok_or("inputs is not a list")?;
        inputs.ensure_multiline();
        for input in &plan.inputs {
            inputs.append(input_of(input));
        }
    }
    Ok(root.to_string())
}

/// Returns a config that contains only the additions, for a person to copy.
pub(super) fn snippet(plan: &Plan) -> Json {
    let servers: serde_json::Map<_, _> = plan.shown_additions().into_iter().map(|addition| (addition.name, addition.entry)).collect();
    let mut snippet = json!({ "mcpServers": servers });
    if !plan.inputs.is_empty() {
        snippet["inputs"] = json!(shown_inputs(&plan.inputs));
    }
    snippet
}

fn input_of(json: &Json) -> CstInputValue {
    match json {
        Json::Null => CstInputValue::Null,
        Json::Bool(value) => CstInputValue::Bool(*value),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(items) => CstInputValue::Array(items.iter().map(input_of).collect()),
        Json::Object(fields) => CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), input_of(value))).collect()),
    }
}
