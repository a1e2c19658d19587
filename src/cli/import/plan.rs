//! Computes the servers that an import adds, and the new text of the config. Does not read or write files.

use std::collections::{HashMap, HashSet};

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::found::{FoundServer, Secret, of_our_config};
use super::masked::{self, shown_input, words_of};
use super::scalar;
use crate::config::{
    ServerDefinition, inputs_in, inputs_of_entry, loads_code, parse_object, redirects_traffic, renamed_inputs, servers_of, starts_gateway,
    valid_name,
};
use crate::error::Error;
use crate::redact::{Redactor, is_secret};
use crate::trust::{InCode, in_code, input_lines};

/// A server to add.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in crate::cli) struct Addition {
    /// A valid name that the config does not contain yet.
    pub(in crate::cli) name: String,
    /// The program and the file that the server comes from.
    pub(in crate::cli) from: String,
    pub(in crate::cli) entry: Json,
    pub(super) notes: Vec<String>,
    pub(in crate::cli) secrets: Vec<Secret>,
    /// Names of variables that can make a program load or run code.
    pub(in crate::cli) loaders: Vec<String>,
    /// Names of variables whose values are part of the code that the arguments run, and are not shown in full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) hidden_in_code: Vec<String>,
    /// Names of variables that can redirect traffic or weaken its protection.
    pub(in crate::cli) redirectors: Vec<String>,
}

impl Addition {
    /// Returns the entry without secrets. Each secret is replaced with the suggested variable, or with `***`.
    pub(in crate::cli) fn shown_entry(&self) -> Json {
        masked::shown_entry(&self.entry, &self.secrets)
    }

    /// Parses the server as part of a config with these inputs. If the server uses other inputs, they are declared for the parser.
    pub(super) fn definition(&self, inputs: &[Json]) -> Option<ServerDefinition> {
        let mut missing: HashSet<String> = inputs_of_entry(&self.entry).into_iter().collect();
        let used = inputs.iter().filter(|input| input["id"].as_str().is_some_and(|id| missing.remove(id)));
        let mut inputs: Vec<Json> = used.cloned().collect();
        inputs.extend(missing.into_iter().map(|id| json!({ "type": "promptString", "id": id })));
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
    /// Returns those inputs that the additions use and that are not declared yet.
    fn used(&self, inputs: Vec<Json>) -> Vec<Json> {
        let used: HashSet<String> = self.additions.iter().flat_map(|addition| inputs_of_entry(&addition.entry)).collect();
        let mut wanted = used;
        for known in &self.inputs {
            known["id"].as_str().map(|id| wanted.remove(id));
        }
        inputs.into_iter().filter(|input| input["id"].as_str().is_some_and(|id| wanted.contains(id))).collect()
    }

    /// Returns the additions for printing, without secrets.
    pub(in crate::cli) fn shown_additions(&self) -> Vec<Addition> {
        self.additions.iter().map(|addition| Addition { entry: addition.shown_entry(), ..addition.clone() }).collect()
    }

    /// Returns the inputs for printing. A default is masked in the same way as the values in which the input is used.
    pub(in crate::cli) fn shown_inputs(&self) -> Vec<Json> {
        let definitions: Option<Vec<_>> = self.additions.iter().map(|addition| addition.definition(&self.inputs)).collect();
        // An id can contain `=`, so the lines are found by the part before the first one.
        let start = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
        let mut lines: HashMap<String, HashSet<String>> = HashMap::new();
        for line in definitions.iter().flatten().flat_map(input_lines) {
            lines.entry(start(&line)).or_default().insert(line);
        }
        let is_shown = |id: &str, default: &str| {
            let (line, beginning) = (format!("{id}={default}"), format!("{id}="));
            let mut of_id = lines.get(&start(id)).into_iter().flatten();
            !is_secret(id, default) && definitions.is_some() && of_id.all(|shown| !shown.starts_with(&beginning) || *shown == line)
        };
        self.inputs.iter().map(|input| shown_input(input, &is_shown)).collect()
    }
}

/// Returns the entry of a server for printing, without secrets.
pub(in crate::cli) fn shown_found(found: FoundServer) -> Json {
    let FoundServer { name, entry, notes, secrets } = found;
    Addition { name, from: String::new(), entry, notes, secrets, loaders: Vec::new(), hidden_in_code: Vec::new(), redirectors: Vec::new() }
        .shown_entry()
}

/// A config of another program: its path, its servers, and its inputs.
pub(in crate::cli) type Read = (String, Vec<FoundServer>, Vec<Json>);

/// Returns the servers that the config does not contain yet. `existing` is the parsed config.
pub(super) fn plan(existing: &Json, read: Vec<Read>) -> Plan {
    plan_named(existing, read).0
}

/// Returns the changes of an import, like [`plan`], and the name that each server will have in the config, in the order of `read`. The name
/// is `None` if the server is not added.
pub(in crate::cli) fn plan_named(existing: &Json, read: Vec<Read>) -> (Plan, Vec<Option<String>>) {
    let (mut plan, mut names) = (Plan::default(), Vec::new());
    let mut taken = Taken::default();
    for (_, name, entry) in servers_of(existing) {
        taken.add(name, entry);
    }
    let ours = inputs_in(existing);
    for (from, found, inputs) in read {
        let ids = Ids::of(&found, &inputs, ours.iter().chain(&plan.inputs));
        for found in found {
            names.push(add(&mut plan, &mut taken, &from, found, &ids));
        }
        let wanted = plan.used(ids.declared(inputs));
        plan.inputs.extend(wanted);
    }
    (plan, names)
}

/// The servers that the config has, or that an earlier step of the import adds.
#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    /// The names of the servers by their entries, as [`normal`] writes them.
    by_entry: HashMap<Json, String>,
    /// The number from which the next free name is searched, by the name without a number.
    numbers: HashMap<String, u64>,
}

impl Taken {
    fn add(&mut self, name: &str, entry: &Json) {
        self.names.insert(name.to_owned());
        self.by_entry.entry(normal(entry)).or_insert_with(|| name.to_owned());
    }

    /// Returns the name itself if it is free, or else the name with the first number that makes it free.
    fn free_name(&mut self, name: &str) -> String {
        if !self.names.contains(name) {
            return name.to_owned();
        }
        let number = self.numbers.entry(name.to_owned()).or_insert(2);
        loop {
            let numbered = format!("{name}-{number}");
            if !self.names.contains(&numbered) {
                return numbered;
            }
            *number += 1;
        }
    }
}

/// New ids for the inputs of one program. Without them, an answer for an input of the config or of another program could be given to a
/// server that merely uses the same id.
#[derive(Default)]
struct Ids {
    by_old: HashMap<String, String>,
    /// The old and new ids, in the order in which the entries use them.
    in_order: Vec<(String, String)>,
}

impl Ids {
    fn of<'i>(found: &[FoundServer], inputs: &[Json], known: impl Iterator<Item = &'i Json>) -> Self {
        let id_of = |input: &Json| input["id"].as_str().map(ToOwned::to_owned);
        let known: HashSet<String> = known.filter_map(id_of).collect();
        let used: Vec<String> = found.iter().flat_map(|found| inputs_of_entry(&found.entry)).collect();
        let mut taken: HashSet<String> = known.iter().chain(&used).cloned().chain(inputs.iter().filter_map(id_of)).collect();
        let mut ids = Self::default();
        for id in used.into_iter().filter(|id| known.contains(id)) {
            let mut numbered = (2..).map(|number: u64| format!("{id}-{number}"));
            if !ids.by_old.contains_key(&id)
                && let Some(free) = numbered.find(|free| taken.insert(free.clone()))
            {
                ids.by_old.insert(id.clone(), free.clone());
                ids.in_order.push((id, free));
            }
        }
        ids
    }

    /// Returns an entry with the new ids.
    fn renamed(&self, entry: &Json) -> Json {
        renamed_inputs(entry, &|id| self.by_old.get(id).cloned())
    }

    /// Returns the declarations with the new ids. Adds a declaration for an input that its program does not declare, because a person must
    /// answer it.
    fn declared(&self, inputs: Vec<Json>) -> Vec<Json> {
        let (mut all, mut left) = (inputs, self.by_old.clone());
        for input in &mut all {
            if let Some(new) = input["id"].as_str().and_then(|id| left.remove(id)) {
                input["id"] = json!(new);
            }
        }
        let undeclared = self.in_order.iter().filter(|(old, _)| left.contains_key(old)).map(|(_, new)| new);
        all.extend(undeclared.map(|new| json!({ "type": "promptString", "id": new, "password": true })));
        all
    }

    fn notes(&self, entry: &Json) -> Vec<String> {
        let note = |old: String| {
            let new = self.by_old.get(&old)?;
            Some(format!(
                "its input \"{old}\" was renamed to \"{new}\", as another server also has an input \"{old}\"; the two inputs have separate values"
            ))
        };
        inputs_of_entry(entry).into_iter().filter_map(note).collect()
    }
}

/// Returns an entry without the numbers at the end of input ids. An earlier import may have added such numbers.
fn normal(entry: &Json) -> Json {
    let bare = |id: &str| {
        id.rsplit_once('-').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit())).map_or(id, |(bare, _)| bare).to_owned()
    };
    renamed_inputs(entry, &|id| Some(bare(id)))
}

/// Adds one server to the plan. Returns its name in the config, or `None` if it is not added.
fn add(plan: &mut Plan, taken: &mut Taken, from: &str, found: FoundServer, ids: &Ids) -> Option<String> {
    let FoundServer { name, entry, mut notes, secrets } = found;
    let skip = |plan: &mut Plan, why: String| plan.skipped.push(Skipped { name: name.clone(), from: from.to_owned(), why });
    if starts_gateway(&entry) {
        skip(plan, "it starts hyperlight-mcp itself".to_owned());
        return None;
    }
    if let Some(ours) = taken.by_entry.get(&normal(&entry)) {
        let why = format!("the config already has the same entry as \"{ours}\"");
        skip(plan, why);
        return Some(ours.clone());
    }
    notes.extend(ids.notes(&entry));
    let entry = ids.renamed(&entry);
    let valid = taken.free_name(&valid_name(&name));
    let one = json!({ "mcpServers": { valid.as_str(): entry } });
    // Errors about unknown inputs are ignored, because the inputs are added together with the server.
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
    taken.add(&valid, &entry);
    plan.additions.push(addition(from, FoundServer { name: valid.clone(), entry, notes, secrets }));
    Some(valid)
}

/// Returns the addition for a server, with the names of the variables that a person must check.
fn addition(from: &str, found: FoundServer) -> Addition {
    let FoundServer { name, entry, notes, secrets } = found;
    let (command, arguments) = words_of(&entry);
    let variables = || entry["env"].as_object().into_iter().flatten().filter_map(|(name, value)| Some((name, scalar(value)?)));
    let part = |name: &str, value: &str| in_code(&command, &arguments, name, value);
    let names =
        |is: &dyn Fn(&str, &str) -> bool| variables().filter(|(name, value)| is(name, value)).map(|(name, _)| name.clone()).collect();
    let loaders = names(&|name, value| loads_code(name) || part(name, value) == InCode::Shown);
    let hidden_in_code = names(&|name, value| part(name, value) == InCode::Hidden);
    let redirectors = names(&|name, _| redirects_traffic(name));
    Addition { name, from: from.to_owned(), entry, notes, secrets, loaders, hidden_in_code, redirectors }
}

/// Returns an entry of our own config in the form that is shown to a person.
pub(in crate::cli) fn found_entry(name: &str, from: &str, entry: Json) -> Addition {
    addition(from, of_our_config(name, entry))
}

/// Returns the message of an error in an entry. No gateway is open yet, so no secret is known for redaction. But the parser's messages
/// never quote a value.
pub(in crate::cli) fn readable(error: &Error) -> String {
    error.clone().redacted(&Redactor::new(None, None)).to_string()
}

/// Returns the text of the config with the additions. All other text is kept, including comments. An empty text becomes a new config.
///
/// # Errors
/// A sentence that describes why the text is not a valid config.
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
        snippet["inputs"] = json!(plan.shown_inputs());
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
