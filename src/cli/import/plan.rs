//! Computes the servers that an import adds, and the new text of the config. Does not read or write files.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::found::{FoundServer, Secret, of_our_config};
use super::masked::{self, shown_input};
use crate::config::{
    ServerDefinition, free_name, inputs_in, inputs_of_entry, loads_code, parse_object, redirects_traffic, renamed_inputs, servers_of,
    starts_gateway, valid_name,
};
use crate::error::Error;
use crate::redact::{Redactor, is_secret};
use crate::trust::input_lines;

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
        let mut inputs = inputs.to_vec();
        for id in inputs_of_entry(&self.entry) {
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
    /// Returns whether an addition uses the input and no input with its id is declared yet.
    fn uses(&self, input: &Json) -> bool {
        let is_used = |id: &str| self.additions.iter().any(|addition| inputs_of_entry(&addition.entry).iter().any(|used| used == id));
        input["id"].as_str().is_some_and(is_used) && !self.inputs.iter().any(|known| known["id"] == input["id"])
    }

    /// Returns the additions for printing, without secrets.
    pub(in crate::cli) fn shown_additions(&self) -> Vec<Addition> {
        self.additions.iter().map(|addition| Addition { entry: addition.shown_entry(), ..addition.clone() }).collect()
    }

    /// Returns the inputs for printing. A default is masked in the same way as the values in which the input is used.
    pub(in crate::cli) fn shown_inputs(&self) -> Vec<Json> {
        let definitions: Vec<_> = self.additions.iter().map(|addition| addition.definition(&self.inputs)).collect();
        let is_shown = |id: &str, default: &str| {
            let line = format!("{id}={default}");
            let lines = |definition: &ServerDefinition| {
                input_lines(definition).iter().all(|shown| !shown.starts_with(&format!("{id}=")) || *shown == line)
            };
            !is_secret(id, default) && definitions.iter().all(|definition| definition.as_ref().is_some_and(lines))
        };
        self.inputs.iter().map(|input| shown_input(input, &is_shown)).collect()
    }
}

/// Returns the entry of a server for printing, without secrets.
pub(in crate::cli) fn shown_found(found: FoundServer) -> Json {
    let FoundServer { name, entry, notes, secrets } = found;
    Addition { name, from: String::new(), entry, notes, secrets, loaders: Vec::new(), redirectors: Vec::new() }.shown_entry()
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
    let mut taken: Vec<(String, Json)> = servers_of(existing).map(|(_, name, entry)| (name.to_owned(), entry.clone())).collect();
    let ours = inputs_in(existing);
    for (from, found, inputs) in read {
        let ids = Ids::of(&found, &inputs, ours.iter().chain(&plan.inputs));
        for found in found {
            names.push(add(&mut plan, &mut taken, &from, found, &ids));
        }
        let wanted: Vec<Json> = ids.declared(inputs).into_iter().filter(|input| plan.uses(input)).collect();
        plan.inputs.extend(wanted);
    }
    (plan, names)
}

/// New ids for the inputs of one program. Without them, an answer for an input of the config or of another program could be given to a
/// server that merely uses the same id.
struct Ids(Vec<(String, String)>);

impl Ids {
    fn of<'i>(found: &[FoundServer], inputs: &[Json], known: impl Iterator<Item = &'i Json>) -> Self {
        let id_of = |input: &Json| input["id"].as_str().map(ToOwned::to_owned);
        let known: Vec<String> = known.filter_map(id_of).collect();
        let used: Vec<String> = found.iter().flat_map(|found| inputs_of_entry(&found.entry)).collect();
        let declared: Vec<String> = inputs.iter().filter_map(id_of).collect();
        let is_taken = |id: &String| known.contains(id) || used.contains(id) || declared.contains(id);
        let mut new: Vec<(String, String)> = Vec::new();
        for id in used.iter().filter(|id| known.contains(id)) {
            let mut numbered = (2..).map(|number: u64| format!("{id}-{number}"));
            if !new.iter().any(|(old, _)| old == id)
                && let Some(free) = numbered.find(|free| !is_taken(free) && !new.iter().any(|(_, taken)| taken == free))
            {
                new.push((id.clone(), free));
            }
        }
        Self(new)
    }

    /// Returns an entry with the new ids.
    fn renamed(&self, entry: &Json) -> Json {
        renamed_inputs(entry, &|id| self.0.iter().find(|(old, _)| old == id).map(|(_, new)| new.clone()))
    }

    /// Returns the declarations with the new ids. Adds a declaration for an input that its program does not declare, because a person must
    /// answer it.
    fn declared(&self, inputs: Vec<Json>) -> Vec<Json> {
        let mut all = inputs;
        for (old, new) in &self.0 {
            match all.iter_mut().find(|input| input["id"] == old.as_str()) {
                Some(input) => input["id"] = json!(new),
                None => all.push(json!({ "type": "promptString", "id": new, "password": true })),
            }
        }
        all
    }

    fn notes(&self, entry: &Json) -> Vec<String> {
        let used = inputs_of_entry(entry);
        let note = |(old, new): &(String, String)| {
            format!(
                "its input \"{old}\" was renamed to \"{new}\", as another server also has an input \"{old}\"; the two inputs have separate values"
            )
        };
        self.0.iter().filter(|(old, _)| used.contains(old)).map(note).collect()
    }
}

/// Returns whether two entries are equal, apart from the numbers at the end of input ids. An earlier import may have added such numbers.
fn is_same(known: &Json, entry: &Json) -> bool {
    let bare = |id: &str| {
        id.rsplit_once('-').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit())).map_or(id, |(bare, _)| bare).to_owned()
    };
    let normal = |entry: &Json| renamed_inputs(entry, &|id| Some(bare(id)));
    known == entry || normal(known) == normal(entry)
}

/// Adds one server to the plan. Returns its name in the config, or `None` if it is not added.
fn add(plan: &mut Plan, taken: &mut Vec<(String, Json)>, from: &str, found: FoundServer, ids: &Ids) -> Option<String> {
    let FoundServer { name, entry, mut notes, secrets } = found;
    let skip = |plan: &mut Plan, why: String| plan.skipped.push(Skipped { name: name.clone(), from: from.to_owned(), why });
    if starts_gateway(&entry) {
        skip(plan, "it starts hyperlight-mcp itself".to_owned());
        return None;
    }
    if let Some((ours, _)) = taken.iter().find(|(_, known)| is_same(known, &entry)) {
        let why = format!("the config already has the same entry as \"{ours}\"");
        skip(plan, why);
        return Some(ours.clone());
    }
    notes.extend(ids.notes(&entry));
    let entry = ids.renamed(&entry);
    let valid = free_name(&valid_name(&name), |name| taken.iter().any(|(known, _)| known == name));
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
    taken.push((valid.clone(), entry.clone()));
    plan.additions.push(addition(from, FoundServer { name: valid.clone(), entry, notes, secrets }));
    Some(valid)
}

/// Returns the addition for a server, with the names of the variables that a person must check.
fn addition(from: &str, found: FoundServer) -> Addition {
    let FoundServer { name, entry, notes, secrets } = found;
    let variables = || entry["env"].as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
    let loaders = variables().filter(|name| loads_code(name)).cloned().collect();
    let redirectors = variables().filter(|name| redirects_traffic(name)).cloned().collect();
    Addition { name, from: from.to_owned(), entry, notes, secrets, loaders, redirectors }
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
