//! Makes a value that a schema allows, for the first run of a handler.

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

use super::budget::Budget;
use super::pattern::text_matching;
use crate::boot::plan::{InputSchema, MAX_EXPANDED_PARTS, referenced};

/// The maximum length of a text and of a list in an example.
const MAX_LENGTH: u64 = 1_000;

/// Returns arguments that a tool's input schema allows: its required properties, and others that have a default or an example. The work is
/// limited by a number of steps, which takes some tenths of a second, so it must not be done on a thread of a runtime.
///
/// # Errors
/// The reason why no such value could be made, as a part of a sentence.
///
/// ```
/// use serde_json::json;
/// let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 3 }, "q": { "type": "string" } }, "required": ["n"] });
/// assert_eq!(hyperlight_mcp::boot::example_of(&schema), Ok(json!({ "n": 3 })));
/// ```
pub fn example_of(schema: &Json) -> Result<Json, String> {
    // A schema that was checked has no cycle and a limited number of parts. The same is true of its example.
    let compiled = InputSchema::compile(schema)?;
    let value = made(schema, &mut Budget::new())?;
    compiled.check(&value)?;
    Ok(value)
}

/// Makes a value within a budget, and does not check it.
fn made(schema: &Json, budget: &mut Budget) -> Result<Json, String> {
    let value = Maker { root: schema, left: MAX_EXPANDED_PARTS, budget }.value(schema);
    let reason = if budget.is_spent() {
        "a value would be too large, or take too many steps to make"
    } else {
        "a value has too many parts, or a part of the schema allows no value"
    };
    value.ok_or_else(|| reason.to_owned())
}

struct Maker<'a> {
    root: &'a Json,
    /// Number of values that may still be made.
    left: usize,
    budget: &'a mut Budget,
}

impl Maker<'_> {
    fn value(&mut self, schema: &Json) -> Option<Json> {
        self.left = self.left.checked_sub(1)?;
        self.budget.take_steps(1)?;
        let Json::Object(fields) = schema else { return (schema != &Json::Bool(false)).then(|| json!("text")) };
        if let Some(value) = given(fields) {
            return self.copy(value);
        }
        if let Some(reference) = fields.get("$ref").and_then(Json::as_str) {
            self.budget.take_steps_for(reference.len())?;
            return self.value(referenced(self.root, reference)?);
        }
        if let Some(all) = fields.get("allOf").and_then(Json::as_array) {
            let merged = self.merged(fields, all)?;
            return self.value(&merged);
        }
        for alternatives in ["oneOf", "anyOf"] {
            if let Some(alternatives) = fields.get(alternatives).and_then(Json::as_array) {
                return alternatives.iter().find_map(|alternative| {
                    let merged = self.merged(fields, std::slice::from_ref(alternative))?;
                    self.value(&merged)
                });
            }
        }
        match kind(fields) {
            "object" => self.object(fields),
            "array" => self.array(fields),
            "string" => self.text(fields).map(Json::from),
            "integer" => integer(number(fields, 1.0)),
            "number" => serde_json::Number::from_f64(number(fields, 0.5)).map(Json::Number),
            "boolean" => Some(Json::Bool(true)),
            _ => Some(Json::Null),
        }
    }

    /// Returns a copy of a value of the schema, as a part of the example.
    fn copy(&mut self, value: &Json) -> Option<Json> {
        let bytes = self.budget.take_copy(value)?;
        self.budget.take_bytes(bytes)?;
        Some(value.clone())
    }

    /// Returns a schema to which the keywords of other schemas were added, if they can be added.
    fn merged(&mut self, fields: &Map<String, Json>, others: &[Json]) -> Option<Json> {
        self.budget.take_steps(1)?;
        let kept = fields.iter().filter(|(key, _)| !matches!(key.as_str(), "allOf" | "oneOf" | "anyOf"));
        let mut merged = Map::new();
        for (key, value) in kept {
            self.budget.take_copy(value)?;
            merged.insert(key.clone(), value.clone());
        }
        for other in others.iter().filter_map(Json::as_object) {
            for (key, value) in other {
                self.budget.take_copy(value)?;
                match (merged.get_mut(key), value) {
                    (Some(Json::Object(own)), Json::Object(more)) => own.extend(more.clone()),
                    (Some(Json::Array(own)), Json::Array(more)) if key == "required" => own.extend(more.clone()),
                    _ => drop(merged.insert(key.clone(), value.clone())),
                }
            }
        }
        Some(Json::Object(merged))
    }

    fn object(&mut self, fields: &Map<String, Json>) -> Option<Json> {
        let names = fields.get("required").and_then(Json::as_array);
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        self.budget.take_steps(names.map_or(0, Vec::len) + properties.len())?;
        let names = names.into_iter().flatten().filter_map(Json::as_str);
        let required: HashSet<_> = names.clone().collect();
        let mut object = Map::new();
        for (name, schema) in properties {
            let is_given = schema.as_object().is_some_and(|schema| given(schema).is_some());
            if is_given || required.contains(name.as_str()) {
                self.budget.take_bytes(name.len())?;
                object.insert(name.clone(), self.value(schema)?);
            }
        }
        for name in names {
            if !object.contains_key(name) {
                self.budget.take_bytes(name.len())?;
                object.insert(name.to_owned(), json!("text"));
            }
        }
        Some(Json::Object(object))
    }

    fn array(&mut self, fields: &Map<String, Json>) -> Option<Json> {
        let least = fields.get("minItems").and_then(Json::as_u64).unwrap_or(1).min(MAX_LENGTH);
        let mut items = Vec::new();
        for schema in fields.get("prefixItems").and_then(Json::as_array).into_iter().flatten() {
            items.push(self.value(schema)?);
        }
        let more = fields.get("items").unwrap_or(&Json::Bool(true));
        let most = fields.get("maxItems").and_then(Json::as_u64).unwrap_or(u64::MAX);
        let missing = usize::try_from(least.min(most)).ok()?.saturating_sub(items.len());
        if missing == 0 || more == &Json::Bool(false) {
            return Some(Json::Array(items));
        }
        if fields.get("uniqueItems") == Some(&Json::Bool(true)) {
            self.add_different(&mut items, more, missing)?;
        } else {
            for _ in 0..missing {
                items.push(self.value(more)?);
            }
        }
        Some(Json::Array(items))
    }

    /// Adds items that differ from each other: the schema's first value, the others that it lists, and then values that differ a little from
    /// the first one. Each candidate is looked at once, as text, so the work is proportional to the size of the candidates.
    fn add_different(&mut self, items: &mut Vec<Json>, schema: &Json, missing: usize) -> Option<()> {
        let mut known = HashSet::new();
        for item in items.iter() {
            self.budget.take_copy(item)?;
            known.insert(item.to_string());
        }
        let first = self.value(schema)?;
        let most = items.len() + missing;
        let listed = ["enum", "examples"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
        let listed = std::iter::once(&first).chain(listed).map(|value| (value, None));
        let mut candidates = listed.chain((1..=most).map(|number| (&first, Some(number))));
        while items.len() < most {
            let (value, number) = candidates.next()?;
            self.budget.take_copy(value)?;
            let Some(candidate) = number.map_or_else(|| Some(value.clone()), |number| varied(value, number)) else { continue };
            let text = candidate.to_string();
            if known.contains(&text) {
                continue;
            }
            self.left = self.left.checked_sub(1)?;
            self.budget.take_bytes(text.len())?;
            known.insert(text);
            items.push(candidate);
        }
        Some(())
    }

    fn text(&mut self, fields: &Map<String, Json>) -> Option<String> {
        let least = usize::try_from(fields.get("minLength").and_then(Json::as_u64).unwrap_or(0).min(MAX_LENGTH)).unwrap_or(0);
        let most = fields.get("maxLength").and_then(Json::as_u64).and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let pattern = fields.get("pattern").and_then(Json::as_str);
        let matching = pattern.and_then(|pattern| text_matching(pattern, least, most, self.budget));
        let text = matching.unwrap_or_else(|| sample(fields, least, most));
        self.budget.take_bytes(text.len())?;
        Some(text)
    }
}

/// Returns a value that the schema itself contains, for example as its default.
fn given(fields: &Map<String, Json>) -> Option<&Json> {
    let first = |key: &str| fields.get(key).and_then(Json::as_array).and_then(|values| values.first());
    let value = fields.get("const").or_else(|| fields.get("default")).or_else(|| first("examples")).or_else(|| fields.get("example"));
    value.or_else(|| first("enum"))
}

/// Returns a value that differs a little from another one. Each number gives another value, if the type has so many.
fn varied(value: &Json, number: usize) -> Option<Json> {
    match value {
        Json::String(text) => Some(Json::from(format!("{text}{number}"))),
        Json::Number(first) => first.as_f64().and_then(|first| integer(first + f64::from(u32::try_from(number).ok()?))),
        Json::Bool(first) => Some(Json::Bool(!first)),
        _ => None,
    }
}

fn kind(fields: &Map<String, Json>) -> &str {
    match fields.get("type") {
        Some(Json::String(kind)) => kind,
        Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).find(|kind| *kind != "null").unwrap_or("null"),
        _ if fields.contains_key("properties") || fields.contains_key("required") => "object",
        _ if fields.contains_key("items") || fields.contains_key("prefixItems") => "array",
        _ if fields.contains_key("minimum") || fields.contains_key("maximum") => "number",
        _ => "string",
    }
}

/// Returns a text of a known format, or any other, with `least` to `most` characters.
fn sample(fields: &Map<String, Json>, least: usize, most: usize) -> String {
    let sample = match fields.get("format").and_then(Json::as_str) {
        Some("date") => "2024-05-17",
        Some("date-time") => "2024-05-17T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some("email") => "ada@example.com",
        Some("uri" | "url") => "https://example.com/",
        Some("uuid") => "123e4567-e89b-42d3-a456-426614174000",
        Some("ipv4") => "192.0.2.1",
        Some("hostname") => "example.com",
        _ => "text",
    };
    // The samples are ASCII, so each of their characters is one byte.
    let mut text = sample[..sample.len().min(most)].to_owned();
    text.push_str(&"x".repeat(least.saturating_sub(text.len())));
    text
}

/// Returns a number, rounded up, as a JSON integer.
fn integer(number: f64) -> Option<Json> {
    serde_json::from_str(&format!("{:.0}", number.ceil())).ok()
}

/// Returns a number near to zero that the limits allow. `step` is the distance to a limit that is exclusive.
fn number(fields: &Map<String, Json>, step: f64) -> f64 {
    let limit = |key: &str| fields.get(key).and_then(Json::as_f64);
    let least = limit("minimum").or_else(|| limit("exclusiveMinimum").map(|least| least + step));
    let most = limit("maximum").or_else(|| limit("exclusiveMaximum").map(|most| most - step));
    let value = 1.0_f64.max(least.unwrap_or(f64::MIN)).min(most.unwrap_or(f64::MAX));
    match limit("multipleOf").filter(|multiple| *multiple > 0.0) {
        Some(multiple) => (value / multiple).ceil() * multiple,
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_schema_has_a_value() {
        let schema = json!({
            "type": "object",
            "properties": {
                "text": { "type": "string", "minLength": 6 },
                "day": { "type": "string", "format": "date" },
                "unit": { "enum": ["celsius", "kelvin"] },
                "limit": { "type": "integer", "minimum": 10, "maximum": 50, "multipleOf": 4 },
                "share": { "type": "number", "exclusiveMaximum": 1 },
                "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" }, "minItems": 2 },
                "place": { "oneOf": [{ "type": "object", "properties": { "lat": { "type": "number" } }, "required": ["lat"] }, { "type": "string" }] },
                "both": { "allOf": [{ "type": "string" }, { "maxLength": 2 }] },
                "flag": { "type": ["null", "boolean"] },
                "page": { "type": "integer", "default": 7 },
                "other": { "type": "string" },
                "code": { "type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,}$", "minLength": 8 },
                "ids": { "type": "array", "items": { "type": "integer" }, "minItems": 3, "uniqueItems": true },
                "units": { "type": "array", "items": { "enum": ["m", "km"] }, "minItems": 2, "uniqueItems": true },
                "names": { "type": "array", "items": { "type": "string" }, "minItems": 2, "uniqueItems": true }
            },
            "required": ["text", "day", "unit", "limit", "share", "tags", "place", "both", "flag", "code", "ids", "units", "names"],
            "$defs": { "tag": { "type": "string", "examples": ["blue"] } }
        });
        let expected = json!({
            "text": "textxx", "day": "2024-05-17", "unit": "celsius", "limit": 12, "share": 0.5, "tags": ["blue", "blue"],
            "place": { "lat": 1.0 }, "both": "te", "flag": true, "page": 7,
            "code": "AA-11111", "ids": [1, 2, 3], "units": ["m", "km"], "names": ["text", "text1"]
        });
        assert_eq!(example_of(&schema), Ok(expected));
    }

    #[test]
    fn a_schema_for_which_no_value_is_found_has_none() {
        let property = |schema: Json| json!({ "type": "object", "properties": { "a": schema }, "required": ["a"] });
        for (schema, reason) in [
            (property(json!({ "type": "string", "not": { "const": "text" } })), "is not allowed for \"text\" at /a"),
            (property(json!({ "type": "string", "pattern": "^a{30}$", "maxLength": 20 })), "does not match \"^a{30}$\" at /a"),
            (property(json!({ "type": "array", "items": { "type": "boolean" }, "minItems": 3, "uniqueItems": true })), "allows no value"),
            (property(json!(false)), "allows no value"),
            (json!({ "type": "string" }), "must be an object"),
        ] {
            let problem = example_of(&schema).unwrap_err();
            assert!(problem.contains(reason), "{problem}");
        }
        assert_eq!(example_of(&json!({ "type": "object" })), Ok(json!({})));
    }

    fn property(schema: &Json) -> Json {
        json!({ "type": "object", "properties": { "a": schema }, "required": ["a"] })
    }

    fn steps(schema: &Json) -> usize {
        let mut budget = Budget::new();
        let _ = made(&property(schema), &mut budget);
        budget.taken_steps()
    }

    #[test]
    fn the_steps_for_a_list_of_different_items_grow_as_the_list_does() {
        let list = |items: usize| steps(&json!({ "type": "array", "uniqueItems": true, "minItems": items, "items": { "type": "string" } }));
        assert!(list(1_000) < 2 * list(500) + 100 && list(1_000) < 20_000, "{} and {}", list(500), list(1_000));
        let listed = |items: u32| {
            let values: Vec<_> = (0..items).collect();
            steps(&json!({ "type": "array", "uniqueItems": true, "minItems": items, "items": { "enum": values } }))
        };
        assert!(listed(1_000) < 2 * listed(500) + 100 && listed(1_000) < 20_000, "{} and {}", listed(500), listed(1_000));
    }

    #[test]
    fn a_schema_whose_example_would_be_too_large_has_none() {
        let text = "x".repeat(30_000);
        let schema =
            property(&json!({ "type": "array", "uniqueItems": true, "minItems": 1_000, "items": { "type": "string", "default": text } }));
        let mut budget = Budget::new();
        assert!(made(&schema, &mut budget).unwrap_err().contains("too large"));
        assert!(budget.taken_steps() < 10_000, "{}", budget.taken_steps());
        let properties: Map<_, _> = (0..5).map(|number| (format!("p{number}"), json!({ "$ref": "#/$defs/a" }))).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": properties.keys().collect::<Vec<_>>(), "$defs": { "a": { "default": text } } });
        assert!(example_of(&schema).unwrap_err().contains("too large"));
    }

    #[test]
    fn a_schema_whose_example_takes_too_many_steps_has_none_and_no_other_alternative_is_tried() {
        let nested = |inner: &Json| json!({ "type": "array", "items": inner, "minItems": 60 });
        let large = json!({ "allOf": [{ "type": "string", "enum": vec!["word"; 2_000], "enum2": vec!["word"; 2_000] }, { "enum": [], "type": "string" }] });
        let schema = property(&json!({ "anyOf": [nested(&nested(&large)), { "type": "string" }] }));
        let mut budget = Budget::new();
        assert!(made(&schema, &mut budget).unwrap_err().contains("too many steps"));
    }

    #[test]
    fn a_pattern_of_nested_repetitions_takes_few_steps_and_has_an_example_or_a_reason() {
        let pattern = format!("^{}|a{}$", "(".repeat(40), ")*".repeat(40));
        assert!(steps(&json!({ "type": "string", "pattern": pattern, "minLength": 2 })) < 5_000);
        assert!(
            example_of(&property(&json!({ "type": "string", "pattern": pattern, "minLength": 2 }))).unwrap_err().contains("does not match")
        );
        let other = format!("^{}a|{}$", "(".repeat(40), ")*".repeat(40));
        assert_eq!(example_of(&property(&json!({ "type": "string", "pattern": other, "minLength": 1 }))), Ok(json!({ "a": "a" })));
    }

    #[test]
    fn an_example_is_not_larger_than_it_may_be() {
        let nested = |inner: Json| json!({ "type": "array", "items": inner, "minItems": 1_000 });
        let schema =
            json!({ "type": "object", "properties": { "a": nested(nested(nested(json!({ "type": "string" })))) }, "required": ["a"] });
        assert!(example_of(&schema).unwrap_err().contains("too many parts"));
    }
}
