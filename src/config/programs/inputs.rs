//! The inputs in entries of other programs: finds the inputs that an entry uses, and changes their ids.

use std::collections::HashSet;

use serde_json::{Value as Json, json};

use crate::config::definition::inputs_of_text;
use crate::config::template::{Part, Placeholder, Template};

/// Returns the ids of the inputs in all texts of an entry, each once. Each text is parsed separately, so that a text with a mistake does not hide
/// the inputs of the others.
pub(crate) fn inputs_of_entry(entry: &Json) -> Vec<String> {
    let mut found = Vec::new();
    add_inputs(entry, &mut found);
    let mut seen = HashSet::new();
    found.retain(|id| seen.insert(id.clone()));
    found
}

fn add_inputs(entry: &Json, found: &mut Vec<String>) {
    match entry {
        Json::String(text) => found.extend(inputs_of_text(text)),
        Json::Array(items) => items.iter().for_each(|item| add_inputs(item, found)),
        Json::Object(fields) => fields.values().for_each(|value| add_inputs(value, found)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Returns an entry in which inputs have other ids. `new_id` returns the new id of an input, or `None` if it keeps its own. The author of the entry
/// decides how many inputs it has, so all of them are renamed at once.
pub(crate) fn renamed_inputs(value: &Json, new_id: &impl Fn(&str) -> Option<String>) -> Json {
    match value {
        Json::String(text) => json!(renamed_in_text(text, new_id)),
        Json::Array(items) => items.iter().map(|item| renamed_inputs(item, new_id)).collect(),
        Json::Object(fields) => Json::Object(fields.iter().map(|(key, value)| (key.clone(), renamed_inputs(value, new_id))).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    }
}

fn renamed_in_text(text: &str, new_id: &impl Fn(&str) -> Option<String>) -> String {
    let Ok(template) = Template::parse(text) else { return text.to_owned() };
    let part = |part: &Part| match part {
        Part::Literal(text) => (*text).to_owned(),
        Part::Placeholder { source, meaning: Placeholder::Input(id) } => match new_id(id) {
            Some(new) => source.replacen(&format!("{{input:{id}}}"), &format!("{{input:{new}}}"), 1),
            None => (*source).to_owned(),
        },
        Part::Placeholder { source, .. } => (*source).to_owned(),
    };
    template.parts().iter().map(part).collect()
}
