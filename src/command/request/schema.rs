//! Shows a JSON Schema in a short form, then everything that the short form omits, because a model can read each text in the schema.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::leaves::{leaves, pointer};
use super::{Page, line};

/// Depth of properties in the short form.
const MAX_DEPTH: usize = 3;
/// Type names in JSON Schema.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Shows a whole schema: first its properties in a short form, then each other value on its own line with its JSON pointer.
pub(super) fn show_schema(page: &mut Page, label: &str, schema: &Json) {
    let mut outline = Outline { page, label, shown: HashSet::new() };
    outline.show(schema, "", 0);
    let shown = outline.shown;
    let rest: Vec<_> = leaves(schema, &shown).into_iter().filter(|(at, _)| !at.is_empty() || !is_anything(schema)).collect();
    if rest.is_empty() {
        return;
    }
    page.text.push_str(&page.style.wrapped("      ", &format!("{label}, the rest of the schema:")));
    for (at, value) in rest {
        // The value is shown as JSON, so that quotes mark the start and end of a text.
        page.text.push_str(&page.style.wrapped("        ", &line(&format!("{at}: {value}"))));
    }
}

/// Returns whether a schema allows any value.
fn is_anything(schema: &Json) -> bool {
    schema == &Json::Bool(true) || schema.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Writes the short form. Collects the pointers of the values that it has shown.
struct Outline<'p, 's> {
    page: &'p mut Page<'s>,
    label: &'p str,
    shown: HashSet<String>,
}

impl Outline<'_, '_> {
    /// Shows each property with its type and its description. Indents nested properties by one more step.
    fn show(&mut self, schema: &Json, at: &str, depth: usize) {
        let indent = " ".repeat(6 + 2 * depth);
        let properties_at = pointer(at, "properties");
        let properties = schema.get("properties").and_then(Json::as_object);
        let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
            if depth == 0 && self.label == "gives" {
                let kind = self.type_of(schema, at);
                self.print(&indent, &format!("{}: {kind}", self.label));
            }
            if depth == 0 {
                self.see_kind_of_root(schema);
                if properties.is_none() && schema.get("properties") == Some(&Json::Object(serde_json::Map::new())) {
                    self.shown.insert(properties_at);
                }
            }
            return;
        };
        if depth == 0 {
            self.print(&indent, &format!("{}:", self.label));
            self.see_kind_of_root(schema);
        }
        let required = names(schema.get("required"));
        if required.as_ref().is_some_and(|names| names.iter().all(|name| properties.contains_key(*name))) {
            self.shown.insert(pointer(at, "required"));
        }
        let required = required.unwrap_or_default();
        for (name, property) in properties {
            let at = pointer(&properties_at, name);
            let optional = if required.contains(&name.as_str()) { "" } else { "?" };
            let kind = self.type_of(property, &at);
            let description = property.get("description").and_then(Json::as_str);
            if description.is_some() {
                self.shown.insert(pointer(&at, "description"));
            }
            if is_anything(property) {
                self.shown.insert(at.clone());
            }
            let description = description.map(|text| format!("  {}", line(text))).unwrap_or_default();
            self.print(&format!("{indent}  "), &format!("{}{optional}: {kind}{description}", line(name)));
            if depth < MAX_DEPTH {
                match property.get("items") {
                    Some(items) => self.show(items, &pointer(&at, "items"), depth + 1),
                    None => self.show(property, &at, depth + 1),
                }
            }
        }
    }

    fn print(&mut self, indent: &str, text: &str) {
        let wrapped = self.page.style.wrapped(indent, text);
        self.page.text.push_str(&wrapped);
    }

    /// Marks the type of the root schema as shown if it is `object`, because the arguments of each tool are an object.
    fn see_kind_of_root(&mut self, schema: &Json) {
        if schema.get("type").is_some_and(|kind| kind == "object") {
            self.shown.insert("/type".to_owned());
        }
    }

    /// Returns a short name of a schema's type.
    fn type_of(&mut self, schema: &Json, at: &str) -> String {
        let kind = schema.get("type");
        let kind_at = pointer(at, "type");
        if let Some(values) = schema.get("enum").and_then(Json::as_array).filter(|values| !values.is_empty()) {
            self.shown.insert(pointer(at, "enum"));
            // The listed values already show the type.
            if kind.and_then(Json::as_str).is_some_and(|kind| TYPES.contains(&kind)) {
                self.shown.insert(kind_at);
            }
            return values.iter().map(|value| line(&value.to_string())).collect::<Vec<_>>().join(" | ");
        }
        match (kind, names(kind)) {
            (Some(Json::String(kind)), _) if kind == "array" => {
                self.shown.insert(kind_at);
                match schema.get("items") {
                    Some(items) if items.get("type").is_some_and(|kind| kind == "array") => {
                        self.shown.insert(pointer(&pointer(at, "items"), "type"));
                        "array[]".to_owned()
                    }
                    Some(items) => {
                        let items_at = pointer(at, "items");
                        if is_anything(items) {
                            self.shown.insert(items_at.clone());
                        }
                        format!("{}[]", self.type_of(items, &items_at))
                    }
                    None => "array".to_owned(),
                }
            }
            (Some(Json::String(kind)), _) => {
                self.shown.insert(kind_at);
                line(kind)
            }
            (_, Some(kinds)) => {
                self.shown.insert(kind_at);
                line(&kinds.join(" | "))
            }
            _ if schema.get("properties").is_some() => "object".to_owned(),
            _ => "anything".to_owned(),
        }
    }
}

/// Returns the texts of a list, if all of its items are texts.
fn names(list: Option<&Json>) -> Option<Vec<&str>> {
    list?.as_array().filter(|names| !names.is_empty())?.iter().map(Json::as_str).collect()
}
