//! Shows a JSON Schema in a short form, then everything that the short form omits, because a model can read each text in the schema.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::leaves::{leaves, pointer};
use super::{Page, bare, line};

/// Maximum nesting depth of the properties that the short form of a schema shows.
const MAX_DEPTH: usize = 3;
/// Maximum nesting depth of references and of subschemas (`anyOf`, `oneOf`, `allOf`) within the type of one property.
const MAX_TYPE_DEPTH: usize = 3;
/// Maximum number of subschemas of `anyOf`, `oneOf` or `allOf` in the type of one property.
const MAX_ALTERNATIVES: usize = 8;
/// Type names in JSON Schema.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Shows a whole schema: first its properties in a short form, then each other value on its own line with its JSON pointer.
pub(super) fn show_schema(page: &mut Page, label: &str, schema: &Json) {
    let mut outline = Outline { page, label, root: schema, shown: HashSet::new(), expanded: HashSet::new() };
    outline.show(schema, "", 0);
    let shown = outline.shown;
    let rest: Vec<_> = leaves(schema, &shown).into_iter().filter(|(at, _)| !at.is_empty() || !is_anything(schema)).collect();
    if rest.is_empty() {
        return;
    }
    page.text.push_str(&page.style.wrapped("      ", &format!("{label}, the rest of the schema:")));
    for (at, value) in rest {
        // The value is shown as JSON, so that quotes mark the start and end of a text.
        page.item("        ", &line(&format!("{at}: {value}")));
    }
}

/// Returns whether a schema allows any value.
fn is_anything(schema: &Json) -> bool {
    schema == &Json::Bool(true) || schema.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Writes the short form of a schema. Collects the pointers of the values that it has shown.
struct Outline<'p, 's> {
    page: &'p mut Page<'s>,
    label: &'p str,
    root: &'p Json,
    shown: HashSet<String>,
    /// The targets of references whose properties are shown. Each target is shown only once, so that the short form is not longer than the
    /// schema.
    expanded: HashSet<String>,
}

impl Outline<'_, '_> {
    /// Shows each property with its type and its description. Indents nested properties by one more step.
    fn show(&mut self, schema: &Json, at: &str, depth: usize) {
        let indent = " ".repeat(6 + 2 * depth);
        let properties_at = pointer(at, "properties");
        let properties = schema.get("properties").and_then(Json::as_object);
        let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
            if depth == 0 && self.label == "gives" {
                let kind = self.type_of(schema, at, 0);
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
            let kind = self.type_of(property, &at, 0);
            let description = property.get("description").and_then(Json::as_str);
            if description.is_some() {
                self.shown.insert(pointer(&at, "description"));
            }
            if is_anything(property) {
                self.shown.insert(at.clone());
            }
            let description = description.map(|text| format!("  {}", line(text))).unwrap_or_default();
            self.print(&format!("{indent}  "), &format!("{}{optional}: {kind}{description}", bare(name)));
            if depth < MAX_DEPTH {
                self.show_inner(property, &at, depth + 1, 0);
            }
        }
    }

    /// Shows the nested properties of a property: its own properties, or those of its items, of its subschemas (`anyOf`, `oneOf`, `allOf`),
    /// or of the schema that it refers to.
    fn show_inner(&mut self, schema: &Json, at: &str, depth: usize, steps: usize) {
        if steps == MAX_TYPE_DEPTH {
            return;
        }
        if let Some(items) = schema.get("items") {
            return self.show_inner(items, &pointer(at, "items"), depth, steps + 1);
        }
        if let Some((target, target_at, _)) = referred(self.root, schema) {
            if self.expanded.insert(target_at.clone()) {
                self.show_inner(target, &target_at, depth, steps + 1);
            }
            return;
        }
        match alternatives(schema) {
            Some((keyword, all)) => {
                for (index, one) in all.iter().enumerate() {
                    self.show_inner(one, &format!("{}/{index}", pointer(at, keyword)), depth, steps + 1);
                }
            }
            None => self.show(schema, at, depth),
        }
    }

    fn print(&mut self, indent: &str, text: &str) {
        self.page.item(indent, text);
    }

    /// If the type of the root schema is `object`, marks it as shown, because the arguments of every tool are an object.
    fn see_kind_of_root(&mut self, schema: &Json) {
        if schema.get("type").is_some_and(|kind| kind == "object") {
            self.shown.insert("/type".to_owned());
        }
    }

    /// Returns the type of a schema that is a reference within the same schema, with the name of the reference, such as `object (Point)`.
    /// For `anyOf`, `oneOf` or `allOf`, returns the types of the subschemas, such as `string | null`. Returns `None` for other schemas.
    fn composed_type(&mut self, schema: &Json, at: &str, depth: usize) -> Option<String> {
        if schema.get("type").is_some() || schema.get("enum").is_some() || depth == MAX_TYPE_DEPTH {
            return None;
        }
        if let Some((target, target_at, name)) = referred(self.root, schema) {
            self.shown.insert(pointer(at, "$ref"));
            let kind = self.type_of(target, &target_at, depth + 1);
            return Some(format!("{kind} ({name})"));
        }
        let (keyword, all) = alternatives(schema)?;
        let mut kinds: Vec<String> = Vec::new();
        for (index, one) in all.iter().enumerate() {
            let kind = self.type_of(one, &format!("{}/{index}", pointer(at, keyword)), depth + 1);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        Some(kinds.join(" | "))
    }

    /// Returns a short name of a schema's type.
    fn type_of(&mut self, schema: &Json, at: &str, depth: usize) -> String {
        if let Some(kind) = self.composed_type(schema, at, depth) {
            return kind;
        }
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
                        let kind = self.type_of(items, &items_at, depth);
                        if kind.contains(" | ") { format!("({kind})[]") } else { format!("{kind}[]") }
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

/// Returns the target of a reference within the same schema, the pointer to the target, and a name of the reference for people.
fn referred<'j>(root: &'j Json, schema: &Json) -> Option<(&'j Json, String, String)> {
    let at = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    let target = root.pointer(at).filter(|_| at.starts_with('/'))?;
    let name = ["/$defs/", "/definitions/"].iter().find_map(|start| at.strip_prefix(start)).unwrap_or(at);
    Some((target, at.to_owned(), line(name)))
}

/// Returns the keyword `anyOf` or `oneOf` of a schema, with its subschemas. An `allOf` is treated in the same way if it has only one
/// subschema.
fn alternatives(schema: &Json) -> Option<(&'static str, &Vec<Json>)> {
    let all = |keyword: &'static str| Some((keyword, schema.get(keyword)?.as_array()?));
    let several = all("anyOf").or_else(|| all("oneOf")).filter(|(_, all)| (1..=MAX_ALTERNATIVES).contains(&all.len()));
    several.or_else(|| all("allOf").filter(|(_, all)| all.len() == 1))
}

/// Returns the texts of a list, if all of its items are texts.
fn names(list: Option<&Json>) -> Option<Vec<&str>> {
    list?.as_array().filter(|names| !names.is_empty())?.iter().map(Json::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::command::text::Style;

    fn shown(schema: &Json) -> String {
        let style = Style::default();
        let mut page = Page { style: &style, text: String::new() };
        show_schema(&mut page, "takes", schema);
        page.text
    }

    #[test]
    fn an_optional_argument_of_python_has_its_type() {
        let text = shown(&json!({ "type": "object", "properties": {
            "name": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
            "tags": { "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "null" }] },
            "mixed": { "type": "array", "items": { "oneOf": [{ "type": "string" }, { "type": "integer", "minimum": 1 }] } } } }));
        for line in ["name?: string | null\n", "tags?: string[] | null\n", "mixed?: (string | integer)[]\n"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.contains("/properties/mixed/items/oneOf/1/minimum: 1") && text.contains("/properties/name/default: null"), "{text}");
        assert!(!text.contains("anyOf/0/type"), "{text}");
    }

    #[test]
    fn what_a_reference_means_is_shown_with_its_name() {
        let text = shown(&json!({ "type": "object", "$defs": {
                "Point": { "type": "object", "properties": { "x": { "type": "number", "description": "to the right" } }, "required": ["x"] },
                "Color": { "type": "string", "enum": ["red", "blue"] } },
            "properties": { "from": { "$ref": "#/$defs/Point" }, "to": { "anyOf": [{ "$ref": "#/$defs/Point" }, { "type": "null" }] },
                "path": { "type": "array", "items": { "$ref": "#/$defs/Point" } }, "color": { "allOf": [{ "$ref": "#/$defs/Color" }] },
                "other": { "$ref": "https://example.com/x" }, "gone": { "$ref": "#/$defs/Gone" } } }));
        for line in [
            "from?: object (Point)\n",
            "to?: object (Point) | null\n",
            "path?: object (Point)[]\n",
            "color?: \"red\" | \"blue\" (Color)\n",
            "other?: anything\n",
            "/properties/other/$ref: \"https://example.com/x\"",
            "/properties/gone/$ref: \"#/$defs/Gone\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(text.matches("x: number  to the right").count(), 1, "{text}");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let list = |name: &str| json!({ "anyOf": vec![json!({ "$ref": format!("#/$defs/{name}") }); 8] });
        let text = shown(&json!({ "$defs": {
                "A": { "$ref": "#/$defs/A" }, "B": { "type": "array", "items": { "$ref": "#/$defs/B" } }, "C": list("C"),
                "D": { "type": "object", "properties": { "d": { "$ref": "#/$defs/D" }, "e": list("D") } } },
            "properties": { "a": { "$ref": "#/$defs/A" }, "b": { "$ref": "#/$defs/B" }, "c": list("C"), "d": { "$ref": "#/$defs/D" }, "root": { "$ref": "#/" } } }));
        assert!(text.len() < 20_000, "{}", text.len());
    }
}
