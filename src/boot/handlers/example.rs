//! Makes a value that a schema allows, for the first run of a handler.

use serde_json::{Map, Value as Json, json};

use super::pattern::text_matching;
use crate::boot::plan::{MAX_EXPANDED_PARTS, described, validator};

/// The maximum length of a text and of a list in an example.
const MAX_LENGTH: u64 = 1_000;

/// Returns arguments that a tool's input schema allows: its required properties, and others that have a default or an example.
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
    let validator = validator(schema)?;
    let mut maker = Maker { root: schema, left: MAX_EXPANDED_PARTS };
    let value = maker.value(schema).ok_or("a value has too many parts, or a part of the schema allows no value")?;
    validator.validate(&value).map_err(|error| described(&error))?;
    Ok(value)
}

struct Maker<'a> {
    root: &'a Json,
    /// Number of values that may still be made.
    left: usize,
}

impl Maker<'_> {
    fn value(&mut self, schema: &Json) -> Option<Json> {
        self.left = self.left.checked_sub(1)?;
        let Json::Object(fields) = schema else { return (schema != &Json::Bool(false)).then(|| json!("text")) };
        if let Some(value) = given(fields) {
            return Some(value);
        }
        if let Some(reference) = fields.get("$ref").and_then(Json::as_str) {
            let target = self.root.pointer(reference.strip_prefix('#')?)?;
            return self.value(target);
        }
        if let Some(all) = fields.get("allOf").and_then(Json::as_array) {
            return self.value(&merged(fields, all));
        }
        for alternatives in ["oneOf", "anyOf"] {
            if let Some(alternatives) = fields.get(alternatives).and_then(Json::as_array) {
                return alternatives.iter().find_map(|alternative| self.value(&merged(fields, std::slice::from_ref(alternative))));
            }
        }
        match kind(fields) {
            "object" => self.object(fields),
            "array" => self.array(fields),
            "string" => Some(Json::from(text(fields))),
            "integer" => integer(number(fields, 1.0)),
            "number" => serde_json::Number::from_f64(number(fields, 0.5)).map(Json::Number),
            "boolean" => Some(Json::Bool(true)),
            _ => Some(Json::Null),
        }
    }

    fn object(&mut self, fields: &Map<String, Json>) -> Option<Json> {
        let required: Vec<_> = fields.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Json::as_object).unwrap_or(&empty);
        let mut object = Map::new();
        for (name, schema) in properties {
            let is_given = schema.as_object().is_some_and(|schema| given(schema).is_some());
            if is_given || required.contains(&name.as_str()) {
                object.insert(name.clone(), self.value(schema)?);
            }
        }
        for name in required {
            if !object.contains_key(name) {
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
        let is_unique = fields.get("uniqueItems") == Some(&Json::Bool(true));
        while (items.len() as u64) < least.min(most) && more != &Json::Bool(false) {
            let value = self.value(more)?;
            items.push(if is_unique && items.contains(&value) { another(more, &value, &items)? } else { value });
        }
        Some(Json::Array(items))
    }
}

/// Returns a value that the schema itself contains, for example as its default.
fn given(fields: &Map<String, Json>) -> Option<Json> {
    let first = |key: &str| fields.get(key).and_then(Json::as_array).and_then(|values| values.first());
    let value = fields.get("const").or_else(|| fields.get("default")).or_else(|| first("examples")).or_else(|| fields.get("example"));
    value.or_else(|| first("enum")).cloned()
}

/// Returns a schema to which the keywords of other schemas were added, if they can be added.
fn merged(fields: &Map<String, Json>, others: &[Json]) -> Json {
    let mut merged = fields.clone();
    for key in ["allOf", "oneOf", "anyOf"] {
        merged.shift_remove(key);
    }
    for other in others.iter().filter_map(Json::as_object) {
        for (key, value) in other {
            match (merged.get_mut(key), value) {
                (Some(Json::Object(own)), Json::Object(more)) => own.extend(more.clone()),
                (Some(Json::Array(own)), Json::Array(more)) if key == "required" => own.extend(more.clone()),
                _ => drop(merged.insert(key.clone(), value.clone())),
            }
        }
    }
    Json::Object(merged)
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

/// Returns a value that is not among `items`: the schema's next given value, or one that differs a little from `value`.
fn another(schema: &Json, value: &Json, items: &[Json]) -> Option<Json> {
    let listed = ["enum", "examples"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten().cloned();
    let other = |number: usize| match value {
        Json::String(text) => Some(Json::from(format!("{text}{number}"))),
        Json::Number(first) => first.as_f64().and_then(|first| integer(first + f64::from(u32::try_from(number).ok()?))),
        Json::Bool(first) => Some(Json::Bool(!first)),
        _ => None,
    };
    listed.chain((1..=items.len()).filter_map(other)).find(|value| !items.contains(value))
}

fn text(fields: &Map<String, Json>) -> String {
    let least = usize::try_from(fields.get("minLength").and_then(Json::as_u64).unwrap_or(0).min(MAX_LENGTH)).unwrap_or(0);
    let most = fields.get("maxLength").and_then(Json::as_u64).and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let pattern = fields.get("pattern").and_then(Json::as_str);
    if let Some(text) = pattern.and_then(|pattern| text_matching(pattern, least, most)) {
        return text;
    }
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
    let mut text: String = sample.chars().take(most).collect();
    while text.chars().count() < least {
        text.push('x');
    }
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

    #[test]
    fn an_example_is_not_larger_than_it_may_be() {
        let nested = |inner: Json| json!({ "type": "array", "items": inner, "minItems": 1_000 });
        let schema =
            json!({ "type": "object", "properties": { "a": nested(nested(nested(json!({ "type": "string" })))) }, "required": ["a"] });
        assert!(example_of(&schema).unwrap_err().contains("too many parts"));
    }
}
