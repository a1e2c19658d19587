//! Reads `inputs`, in VS Code's format. A person is asked for these values when a server that uses them is started.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::definition::InputDefinition;
use super::tree::{Node, Value};
use crate::text::{Problem, displayed};

/// Maximum size in bytes of the texts of one input. Each server that uses the input shows them in its approval.
const MAX_INPUT_BYTES: usize = 8 << 10;
/// Maximum number of inputs of one config.
pub(super) const MAX_INPUTS: usize = 1_000;
/// Maximum number of ids that a problem lists.
const MAX_LISTED: usize = 20;
/// Maximum number of problems of one id. Each server that uses the input has all of them.
const MAX_PROBLEMS_OF_ID: usize = 10;

/// The inputs of one config.
#[derive(Default)]
pub(super) struct Inputs {
    pub(super) usable: Vec<InputDefinition>,
    /// The number of inputs that were read, including those that are not usable.
    count: usize,
    /// The problems of each invalid input, by id. Only servers that use the input become invalid.
    broken: BTreeMap<String, Vec<Problem>>,
    /// All problems, including problems of inputs that no server uses.
    pub(super) problems: Vec<Problem>,
}

impl Inputs {
    /// Reads one list of definitions. `field` is the path of the list.
    pub(super) fn read(&mut self, field: &str, node: &Node) {
        let Some(items) = node.items() else {
            return self.problems.push(Problem::new(field, node.position, "must be a list; its inputs are ignored"));
        };
        for (index, item) in items.iter().enumerate() {
            self.count += 1;
            if self.count > MAX_INPUTS {
                let problem = format!("has more than {MAX_INPUTS} inputs; the rest is ignored");
                return self.problems.push(Problem::new(field, item.position, problem));
            }
            self.item(&format!("{field}[{index}]"), item);
        }
    }

    /// Returns the reasons why a server cannot use an input. The list is empty if the server can use it. `reference` creates the first
    /// problem, at the place that refers to the input.
    pub(super) fn problems_of(&self, id: &str, reference: impl FnOnce(String) -> Problem) -> Vec<Problem> {
        let shown = displayed(id);
        if let Some(problems) = self.broken.get(id) {
            let mut all = vec![reference(format!("the definition of the input \"{shown}\" is not valid"))];
            all.extend(problems.iter().cloned());
            return all;
        }
        if self.usable.iter().any(|input| input.id == id) {
            return Vec::new();
        }
        let mut known: Vec<_> = self.usable.iter().take(MAX_LISTED).map(|input| displayed(&input.id)).collect();
        let more = self.usable.len().saturating_sub(MAX_LISTED);
        known.extend((more > 0).then(|| format!("{more} more")));
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        vec![reference(format!("no input \"{shown}\" is defined; inputs defines {known}"))]
    }

    /// Returns whether the answer to this input must not be shown while a person types it.
    pub(super) fn is_secret(&self, id: &str) -> bool {
        self.usable.iter().any(|input| input.id == id && input.secret)
    }

    fn item(&mut self, field: &str, item: &Node) {
        let mut problems = Vec::new();
        let mut wrong = |key: &str, node: Option<&Node>, problem: &str| {
            let field = if key.is_empty() { field.to_owned() } else { format!("{field}.{key}") };
            problems.push(Problem::new(field, node.unwrap_or(item).position, problem));
        };
        let text = |key: &str| item.get(key).and_then(Node::text);
        if item.entries().is_none() {
            wrong("", None, "must be an object");
        } else {
            match text("type") {
                Some("promptString" | "pickString") => {}
                Some("command") => wrong(
                    "type",
                    item.get("type"),
                    "\"command\" is not supported, as it runs an editor's commands; use \"promptString\" or \"pickString\"",
                ),
                _ => wrong("type", item.get("type"), "must be \"promptString\" or \"pickString\""),
            }
            if text("id").is_none_or(|id| id.is_empty() || id.contains('}')) {
                wrong("id", item.get("id"), "must be a string that is not empty and has no \"}\"");
            }
            for key in ["description", "default"] {
                if item.get(key).is_some_and(|node| node.text().is_none() && !matches!(node.value, Value::Null)) {
                    wrong(key, item.get(key), "must be a string");
                }
            }
            let size = item.text_bytes();
            if size > MAX_INPUT_BYTES {
                wrong("", None, &format!("has {size} bytes of text, and at most {MAX_INPUT_BYTES} are permitted"));
            }
            if item.get("password").is_some_and(|node| node.boolean().is_none()) {
                wrong("password", item.get("password"), "must be true or false");
            }
        }
        let id = text("id").unwrap_or_default().to_owned();
        if self.broken.contains_key(&id) || self.usable.iter().any(|known| known.id == id) {
            wrong("id", item.get("id"), "this id is used twice; give each input its own id");
            // If two definitions have the same id, it is not known which one a reference means, so neither is used.
            self.usable.retain(|known| known.id != id);
        }
        if problems.is_empty() {
            let definition = InputDefinition {
                id,
                description: text("description").map(ToOwned::to_owned),
                secret: item.get("password").and_then(Node::boolean).unwrap_or(false),
                default: text("default").map(SecretString::from),
            };
            return self.usable.push(definition);
        }
        self.problems.extend(problems.iter().cloned());
        if !id.is_empty() {
            let known = self.broken.entry(id).or_default();
            known.extend(problems);
            known.truncate(MAX_PROBLEMS_OF_ID);
        }
    }
}

/// Returns the defaults of these inputs, by id. A default applies if nobody answers.
pub(super) fn defaults_of(usable: &[InputDefinition], ids: &[String]) -> Vec<(String, SecretString)> {
    let default = |id: &String| Some((id.clone(), usable.iter().find(|input| input.id == *id)?.default.clone()?));
    ids.iter().filter_map(default).collect()
}

/// Returns the questions of these inputs, by id. Inputs without a question, or with an empty one, are omitted.
pub(super) fn descriptions_of(usable: &[InputDefinition], ids: &[String]) -> Vec<(String, String)> {
    let description = |id: &String| Some((id.clone(), usable.iter().find(|input| input.id == *id)?.description.clone()?));
    ids.iter().filter_map(description).filter(|(_, text)| !text.is_empty()).collect()
}
