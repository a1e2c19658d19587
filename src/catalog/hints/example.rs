//! An example of a tool's arguments, made from its schema: what is required, and no more.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

/// Deeper parts, and more than so many steps along references, get a plain value.
const MAX_DEPTH: usize = 6;
const MAX_REQUIRED: usize = 20;
const MAX_TEXT_CHARS: usize = 60;

/// The arguments as JavaScript: `{ city: "Rome" }`; empty where nothing is required.
pub(super) fn arguments_text(schema: &Json) -> String {
    match example(schema, schema, 0) {
        Json::Object(fields) if fields.is_empty() => String::new(),
        value @ Json::Object(_) => javascript(&value),
        _ => String::new(),
    }
}

/// A value that a schema allows, as far as its plain words say.
fn example(root: &Json, schema: &Json, depth: usize) -> Json {
    if depth > MAX_DEPTH {
        return Json::Null;
    }
    if let Some(given) = given(schema) {
        return given;
    }
    if let Some(target) = schema.get("$ref").and_then(Json::as_str).and_then(|reference| resolve(root, reference)) {
        return example(root, target, depth + 1);
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(branch) = schema.get(key).and_then(Json::as_array).and_then(|branches| {
            let is_null = |branch: &&Json| branch.get("type").and_then(Json::as_str) == Some("null");
            branches.iter().find(|branch| !is_null(branch)).or(branches.first())
        }) && schema.get("properties").is_none()
        {
            return example(root, branch, depth + 1);
        }
    }
    match type_of(schema) {
        "object" => object(root, schema, depth),
        "array" => array(root, schema, depth),
        "string" => Json::from(text(schema)),
        "integer" | "number" => number(schema),
        "boolean" => Json::Bool(true),
        _ => Json::Null,
    }
}

/// What the schema itself names.
fn given(schema: &Json) -> Option<Json> {
    let listed = |key: &str| schema.get(key).and_then(Json::as_array).and_then(|values| values.first()).cloned();
    let value = schema.get("const").cloned();
    let value = value.or_else(|| schema.get("default").cloned()).or_else(|| listed("examples"));
    let value = value.or_else(|| schema.get("example").cloned()).or_else(|| listed("enum"))?;
    let short = serde_json::to_vec(&value).is_ok_and(|json| json.len() <= 2 * MAX_TEXT_CHARS);
    short.then_some(value)
}

fn type_of(schema: &Json) -> &str {
    let named = match schema.get("type") {
        Some(Json::String(name)) => Some(name.as_str()),
        Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).find(|name| *name != "null"),
        _ => None,
    };
    let implied = [("properties", "object"), ("items", "array"), ("prefixItems", "array"), ("minLength", "string"), ("minimum", "number")];
    named.or_else(|| implied.iter().find(|(key, _)| schema.get(*key).is_some()).map(|(_, name)| *name)).unwrap_or("string")
}

fn object(root: &Json, schema: &Json, depth: usize) -> Json {
    let required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let properties = schema.get("properties");
    let field = |name: &str| {
        let of = properties.and_then(|properties| properties.get(name)).unwrap_or(&Json::Null);
        (name.to_owned(), example(root, of, depth + 1))
    };
    Json::Object(required.take(MAX_REQUIRED).map(field).collect::<Map<_, _>>())
}

fn array(root: &Json, schema: &Json, depth: usize) -> Json {
    let fixed = ["prefixItems", "items"].iter().find_map(|key| schema.get(*key)?.as_array());
    if let Some(fixed) = fixed {
        return fixed.iter().take(MAX_REQUIRED).map(|item| example(root, item, depth + 1)).collect();
    }
    let least = schema.get("minItems").and_then(Json::as_u64).and_then(|least| usize::try_from(least).ok()).unwrap_or(1);
    let item = example(root, schema.get("items").unwrap_or(&Json::Null), depth + 1);
    std::iter::repeat_n(item, least.clamp(1, MAX_REQUIRED)).collect()
}

fn text(schema: &Json) -> &str {
    match schema.get("format").and_then(Json::as_str) {
        Some("date") => "2026-01-31",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some("email") => "name@example.com",
        Some("uri" | "url") => "https://example.com/",
        Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
        Some("ipv4") => "192.0.2.1",
        Some("hostname") => "example.com",
        _ => "…",
    }
}

fn number(schema: &Json) -> Json {
    let bound = |key: &str| schema.get(key).filter(|bound| bound.is_number()).cloned();
    let above = schema.get("exclusiveMinimum").and_then(Json::as_i64).and_then(|bound| bound.checked_add(1)).map(Json::from);
    bound("minimum").or(above).or_else(|| bound("maximum")).unwrap_or_else(|| Json::from(1))
}

/// A local reference: `#/$defs/name`.
fn resolve<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    root.pointer(reference.strip_prefix('#')?)
}

/// JSON as a person writes it in code: keys bare where they can be.
fn javascript(value: &Json) -> String {
    match value {
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let field = |(key, value): (&String, &Json)| {
                let plain = !key.is_empty()
                    && key.chars().all(|next| next.is_ascii_alphanumeric() || next == '_' || next == '$')
                    && !key.starts_with(|first: char| first.is_ascii_digit());
                let key = if plain { key.clone() } else { quoted(key) };
                format!("{key}: {}", javascript(value))
            };
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(javascript).collect::<Vec<_>>().join(", ")),
        Json::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A string literal. What cannot be seen is written as its number.
fn quoted(text: &str) -> String {
    let json = Json::from(text).to_string();
    let mut literal = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() || character == '…' || character.is_alphanumeric() {
            literal.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(literal, "\\u{unit:04x}");
            }
        }
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_required_is_filled_with_what_the_schema_itself_names() {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": { "type": "string", "examples": ["Rome"] },
                "units": { "enum": ["metric", "imperial"] },
                "days": { "type": "integer", "minimum": 3 },
                "day": { "type": "string", "format": "date" },
                "where-to": { "type": "array", "items": { "$ref": "#/$defs/point" } },
                "optional": { "type": "string" }
            },
            "required": ["city", "units", "days", "day", "where-to"],
            "$defs": { "point": { "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] } }
        });
        assert_eq!(arguments_text(&schema), r#"{ city: "Rome", units: "metric", days: 3, day: "2026-01-31", "where-to": [{ x: 1 }] }"#);
    }

    #[test]
    fn nothing_required_is_no_argument() {
        for schema in [json!({}), json!(true), json!(null), json!({ "type": "object", "properties": { "a": {} } })] {
            assert_eq!(arguments_text(&schema), "");
        }
    }

    #[test]
    fn a_schema_without_an_end_has_an_example() {
        let schema = json!({
            "type": "object", "required": ["next"], "properties": { "next": { "$ref": "#" } }
        });
        assert!(arguments_text(&schema).ends_with('}'));
        let circle = json!({ "$ref": "#/a", "a": { "$ref": "#/b" }, "b": { "$ref": "#/a" } });
        assert_eq!(arguments_text(&circle), "");
    }

    #[test]
    fn text_cannot_leave_its_literal() {
        let schema = json!({ "required": ["a\"\n"], "properties": { "a\"\n": { "const": "\u{202e}`${x}\u{2028}" } } });
        let schema = json!({ "type": "object", "required": schema["required"], "properties": schema["properties"] });
        assert_eq!(arguments_text(&schema), r#"{ "a\"\n": "\u202e`${x}\u2028" }"#);
    }
}
