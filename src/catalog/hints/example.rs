//! Builds example arguments for a tool from its schema. The example only contains required properties.

use serde_json::{Map, Value as Json};

use crate::catalog::declarations::{key, quoted};

/// Maximum number of nested schemas and followed references. If it is exceeded, there is no example.
const MAX_DEPTH: usize = 6;
const MAX_REQUIRED: usize = 20;
const MAX_TEXT_CHARS: usize = 60;
const MAX_GIVEN_BYTES: usize = 120;

/// Returns example arguments as JavaScript, for example `{ city: "Rome" }`. Returns an empty text if no argument is required. Returns an
/// object with only a comment if the schema has keywords that this module does not evaluate.
pub(super) fn arguments_text(schema: &Json) -> String {
    match example(schema, schema, 0) {
        None => "{ /* see its declaration */ }".to_owned(),
        Some(Json::Object(fields)) if fields.is_empty() => String::new(),
        Some(value @ Json::Object(_)) => javascript(&value),
        Some(_) => String::new(),
    }
}

/// Returns a value that a schema allows. Returns `None` if the schema has keywords that this module does not evaluate.
fn example(root: &Json, schema: &Json, depth: usize) -> Option<Json> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(target) = schema.get("$ref").and_then(Json::as_str) {
        return example(root, resolve(root, target)?, depth + 1);
    }
    if let Some(given) = given(schema) {
        return Some(given);
    }
    if ["not", "if", "pattern", "contains", "dependentRequired", "dependentSchemas", "minProperties"]
        .iter()
        .any(|key| schema.get(*key).is_some())
    {
        return None;
    }
    if let Some(parts) = schema.get("allOf").and_then(Json::as_array) {
        return all_of(root, schema, parts, depth);
    }
    if let Some(branches) = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array()) {
        // If the schema also has `properties`, each schema in `anyOf` or `oneOf` decides which properties belong together. This is too
        // complex for an example.
        if schema.get("properties").is_some() {
            return None;
        }
        let is_null = |branch: &&Json| branch.get("type").and_then(Json::as_str) == Some("null");
        return example(root, branches.iter().find(|branch| !is_null(branch)).or(branches.first())?, depth + 1);
    }
    match type_of(schema) {
        "object" => object(root, schema, depth),
        "array" => array(root, schema, depth),
        "string" => text(schema).map(Json::from),
        "integer" | "number" => number(schema),
        "boolean" => Some(Json::Bool(true)),
        _ => Some(Json::Null),
    }
}

/// Returns an example for `allOf`, which is one object with the fields of all parts.
fn all_of(root: &Json, schema: &Json, parts: &[Json], depth: usize) -> Option<Json> {
    let mut fields = Map::new();
    let own = schema.get("properties").is_some() || schema.get("required").is_some();
    let own = own.then(|| object(root, schema, depth)).into_iter();
    for part in own.chain(parts.iter().take(MAX_REQUIRED).map(|part| example(root, part, depth + 1))) {
        match part? {
            Json::Object(more) => fields.extend(more),
            // Values other than objects cannot be merged. So there is only an example if `allOf` has a single part.
            other => return (parts.len() == 1).then_some(other),
        }
    }
    Some(Json::Object(fields))
}

/// Returns a value that the schema itself contains, for example its default.
fn given(schema: &Json) -> Option<Json> {
    let listed = |key: &str| schema.get(key).and_then(Json::as_array).and_then(|values| values.first()).cloned();
    // Many generators write `null` when there is no value.
    let said = |key: &str| schema.get(key).filter(|value| !value.is_null()).cloned();
    let value = schema.get("const").cloned().or_else(|| said("default")).or_else(|| listed("examples"));
    let value = value.or_else(|| said("example")).or_else(|| listed("enum"))?;
    let short = serde_json::to_vec(&value).is_ok_and(|json| json.len() <= MAX_GIVEN_BYTES);
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

fn object(root: &Json, schema: &Json, depth: usize) -> Option<Json> {
    let required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let of =
        |name: &str| schema.get("properties").and_then(|properties| properties.get(name)).or_else(|| schema.get("additionalProperties"));
    let field = |name: &str| Some((name.to_owned(), example(root, of(name).unwrap_or(&Json::Bool(true)), depth + 1)?));
    required.take(MAX_REQUIRED).map(field).collect::<Option<Map<_, _>>>().map(Json::Object)
}

fn array(root: &Json, schema: &Json, depth: usize) -> Option<Json> {
    let whole = |key: &str| schema.get(key).and_then(Json::as_u64).and_then(|number| usize::try_from(number).ok());
    let (least, most) = (whole("minItems").unwrap_or(0), whole("maxItems").unwrap_or(usize::MAX));
    if let Some(fixed) = ["prefixItems", "items"].iter().find_map(|key| schema.get(*key)?.as_array()) {
        return fixed.iter().take(most.min(MAX_REQUIRED)).map(|item| example(root, item, depth + 1)).collect();
    }
    let count = least.max(1).min(most);
    if count > MAX_REQUIRED || count > 1 && schema.get("uniqueItems").and_then(Json::as_bool) == Some(true) {
        return None;
    }
    let item = example(root, schema.get("items").unwrap_or(&Json::Bool(true)), depth + 1)?;
    Some(std::iter::repeat_n(item, count).collect())
}

fn text(schema: &Json) -> Option<String> {
    let text = match schema.get("format").and_then(Json::as_str) {
        Some("date") => "2026-01-31",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some("email") => "name@example.com",
        Some("uri" | "url") => "https://example.com/",
        Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
        Some("ipv4") => "192.0.2.1",
        Some("hostname") => "example.com",
        _ => "text",
    };
    let whole = |key: &str| schema.get(key).and_then(Json::as_u64).and_then(|number| usize::try_from(number).ok());
    let (least, most) = (whole("minLength").unwrap_or(0), whole("maxLength").unwrap_or(usize::MAX));
    (least <= MAX_TEXT_CHARS).then(|| text.chars().chain(std::iter::repeat('x')).take(text.len().max(least).min(most)).collect())
}

fn number(schema: &Json) -> Option<Json> {
    let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
    // In draft-04, `exclusiveMinimum` and `exclusiveMaximum` are flags.
    let exclusive = |key: &str| schema.get(key).and_then(Json::as_bool) == Some(true);
    let step = bound("multipleOf").filter(|step| *step > 0.0).unwrap_or(1.0);
    let up = |from: f64| (from / step).ceil() * step;
    let down = |from: f64| (from / step).floor() * step;
    let above = |from: f64| if up(from) > from { up(from) } else { up(from) + step };
    let below = |from: f64| if down(from) < from { down(from) } else { down(from) - step };
    let least = |from: f64| if exclusive("exclusiveMinimum") { above(from) } else { up(from) };
    let most = |from: f64| if exclusive("exclusiveMaximum") { below(from) } else { down(from) };
    let least = bound("exclusiveMinimum").map(above).or_else(|| bound("minimum").map(least));
    let most = bound("exclusiveMaximum").map(below).or_else(|| bound("maximum").map(most));
    let value = match (least, most) {
        (Some(least), Some(most)) if least > most => return None,
        (Some(least), _) => least,
        (None, Some(most)) => most.min(up(1.0)),
        (None, None) => up(1.0),
    };
    // A whole number is printed without a fraction.
    if value.fract() == 0.0 && value.abs() < 1e15 {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        return Some(Json::from(value as i64));
    }
    (schema.get("type").and_then(Json::as_str) != Some("integer")).then(|| Json::from(value))
}

/// Resolves a reference within the document, for example `#/$defs/name`.
fn resolve<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    let pointer = percent_encoding::percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

/// Prints JSON as JavaScript. Property names are only quoted if necessary, and invisible characters are escaped.
fn javascript(value: &Json) -> String {
    match value {
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| format!("{}: {}", key(name), javascript(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(javascript).collect::<Vec<_>>().join(", ")),
        Json::String(text) => quoted(text),
        other => other.to_string(),
    }
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
        for schema in [json!({ "type": "object" }), json!({ "type": "object", "properties": { "a": {} } })] {
            assert_eq!(arguments_text(&schema), "");
        }
    }

    #[test]
    fn what_takes_more_than_plain_words_is_left_to_the_declaration() {
        let field = |of: Json| json!({ "type": "object", "required": ["a"], "properties": { "a": of } });
        let recursive = json!({ "type": "object", "required": ["next"], "properties": { "next": { "$ref": "#" } } });
        let circle = json!({ "$ref": "#/a", "a": { "$ref": "#/b" }, "b": { "$ref": "#/a" } });
        let either = json!({ "type": "object", "properties": { "a": {} }, "oneOf": [{ "required": ["a"] }] });
        let schemas = [
            recursive,
            circle,
            either,
            field(json!({ "type": "string", "pattern": "^[0-9]+$" })),
            field(json!({ "type": "array", "minItems": 3, "uniqueItems": true })),
            field(json!({ "type": "integer", "minimum": 3, "maximum": 2 })),
            field(json!({ "$ref": "https://example.com/schema" })),
        ];
        for schema in schemas {
            assert_eq!(arguments_text(&schema), "{ /* see its declaration */ }", "{schema}");
        }
    }

    #[test]
    fn bounds_are_kept() {
        let shown = |of: Json| arguments_text(&json!({ "type": "object", "required": ["a"], "properties": { "a": of } }));
        for (of, value) in [
            (json!({ "type": "string", "minLength": 6 }), r#""textxx""#),
            (json!({ "type": "string", "maxLength": 2 }), r#""te""#),
            (json!({ "type": "string", "default": null }), r#""text""#),
            (json!({ "type": "integer", "multipleOf": 5 }), "5"),
            (json!({ "type": "number", "exclusiveMaximum": 0 }), "-1"),
            (json!({ "type": "number", "exclusiveMinimum": 5.5 }), "6"),
            (json!({ "type": "number", "minimum": 5, "exclusiveMinimum": true }), "6"),
            (json!({ "type": "array", "maxItems": 0 }), "[]"),
            (json!({ "type": "array", "items": { "type": "number" }, "minItems": 2 }), "[1, 1]"),
            (
                json!({ "allOf": [{ "type": "object", "required": ["b"] }, { "type": "object", "required": ["c"] }] }),
                r#"{ b: "text", c: "text" }"#,
            ),
        ] {
            assert_eq!(shown(of.clone()), format!("{{ a: {value} }}"), "{of}");
        }
    }

    #[test]
    fn text_cannot_leave_its_literal() {
        let schema = json!({ "required": ["a\"\n"], "properties": { "a\"\n": { "const": "\u{202e}`${x}\u{2028}" } } });
        let schema = json!({ "type": "object", "required": schema["required"], "properties": schema["properties"] });
        let text = arguments_text(&schema);
        assert!(!text.contains('\u{202e}') && !text.contains('\u{2028}') && text.starts_with(r#"{ "a\"\n": ""#), "{text}");
    }
}
