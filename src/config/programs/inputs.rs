//! The inputs in entries of other programs: finds the inputs that an entry uses, and changes their ids.

use serde_json::{Value as Json, json};

use crate::config::definition::inputs_of_text;
use crate::config::template::{Part, Placeholder, Template};

/// Returns the ids of the inputs in all texts of an entry. Each text is parsed separately, so that a text with a mistake does not hide the
/// inputs of the others.
pub(crate) fn inputs_of_entry(entry: &Json) -> Vec<String> {
    match entry {
        Json::String(text) => inputs_of_text(text),
        Json::Array(items) => items.iter().flat_map(inputs_of_entry).collect(),
        Json::Object(fields) => fields.values().flat_map(inputs_of_entry).collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) => Vec::new(),
    }
}

/// Returns an entry in which one input has another id.
pub(crate) fn renamed_input(value: &Json, id: &str, new: &str) -> Json {
    match value {
        Json::String(text) => json!(renamed_in_text(text, id, new)),
        Json::Array(items) => items.iter().map(|item| renamed_input(item, id, new)).collect(),
        Json::Object(fields) => Json::Object(fields.iter().map(|(key, value)| (key.clone(), renamed_input(value, id, new))).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    }
}

fn renamed_in_text(text: &str, id: &str, new: &str) -> String {
    let Ok(template) = Template::parse(text) else { return text.to_owned() };
    let part = |part: &Part| match part {
        Part::Literal(text) => (*text).to_owned(),
        Part::Placeholder { source, meaning: Placeholder::Input(known) } if *known == id => {
            source.replacen(&format!("{{input:{id}}}"), &format!("{{input:{new}}}"), 1)
        }
        Part::Placeholder { source, .. } => (*source).to_owned(),
    };
    template.parts().iter().map(part).collect()
}
