//! Judges the input schemas that a model wrote. A schema of a few lines can take hours to compile, so its size is checked first.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value as Json;

use crate::text::sanitise_line;

const MAX_SCHEMA_BYTES: usize = 32 * 1024;
/// The largest number of parts in a schema after each reference is replaced by the part to which it refers.
pub(in crate::boot) const MAX_EXPANDED_PARTS: usize = 5_000;
const MAX_PATTERN_BYTES: usize = 256 * 1024;
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Keywords with which a schema can refer to other schemas, or with which a reference means something else in another place.
const REFUSED: [&str; 6] = ["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor", "$id"];

/// Returns the validator of a tool's input schema.
///
/// # Errors
/// Fails with the problem of the schema, as the end of a sentence.
pub(in crate::boot) fn validator(schema: &Json) -> Result<Validator, String> {
    let bytes = serde_json::to_vec(schema).map_or(0, |text| text.len());
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("has {bytes} bytes; at most {MAX_SCHEMA_BYTES} are allowed"));
    }
    if schema.get("type").and_then(Json::as_str) != Some("object") {
        return Err("must be an object with \"type\": \"object\"".to_owned());
    }
    if let Some(draft) = schema.get("$schema").filter(|draft| draft.as_str().map(|draft| draft.trim_end_matches('#')) != Some(DRAFT)) {
        return Err(format!(
            "names another version than JSON Schema 2020-12: leave out \"$schema\": {}",
            sanitise_line(&draft.to_string(), 100)
        ));
    }
    let mut parts = 0;
    measure(schema, schema, &mut Vec::new(), &mut parts)?;
    jsonschema::draft202012::meta::validate(schema).map_err(|error| format!("is not valid JSON Schema 2020-12: {}", described(&error)))?;
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    let options =
        jsonschema::options().with_draft(Draft::Draft202012).offline().should_validate_formats(false).with_pattern_options(patterns);
    options.build(schema).map_err(|error| format!("cannot be used: {}", described(&error)))
}

/// Returns the problem of a value, with its place.
pub(in crate::boot) fn described(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
    format!("{}{}", sanitise_line(&error.to_string(), 300), sanitise_line(&place, 200))
}

/// Counts the parts of a schema with its references replaced. `open` contains the references that lead to this part.
fn measure<'a>(root: &'a Json, part: &'a Json, open: &mut Vec<&'a str>, parts: &mut usize) -> Result<(), String> {
    *parts += 1;
    if *parts > MAX_EXPANDED_PARTS {
        return Err(format!("has more than {MAX_EXPANDED_PARTS} parts after its references are replaced: write it shorter"));
    }
    match part {
        Json::Array(items) => items.iter().try_for_each(|item| measure(root, item, open, parts)),
        Json::Object(fields) => {
            if let Some(refused) = REFUSED.iter().find(|refused| fields.get(**refused).is_some_and(Json::is_string)) {
                return Err(format!("uses {refused}: write the part out where it is used"));
            }
            if let Some(reference) = fields.get("$ref").and_then(Json::as_str) {
                let pointer = reference.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
                let target = pointer.and_then(|pointer| root.pointer(pointer));
                let target = target.ok_or_else(|| format!("has the reference {}, which is not in it", sanitise_line(reference, 100)))?;
                if open.contains(&reference) || reference == "#" {
                    return Err(format!("refers to itself by {}: write it without recursion", sanitise_line(reference, 100)));
                }
                open.push(reference);
                measure(root, target, open, parts)?;
                open.pop();
            }
            fields.values().try_for_each(|value| measure(root, value, open, parts))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(schema: &Json) -> String {
        validator(schema).err().unwrap_or_default()
    }

    #[test]
    fn a_schema_of_2020_12_is_valid() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": { "city": { "type": "string", "pattern": "^\\w+$" }, "pair": { "prefixItems": [{ "$ref": "#/$defs/n" }] } },
            "required": ["city"],
            "$defs": { "n": { "type": "integer", "minimum": 1 } },
        });
        let validator = validator(&schema).unwrap();
        assert!(
            validator.is_valid(&json!({ "city": "Bonn", "pair": [1] })) && !validator.is_valid(&json!({ "city": "Bonn", "pair": [0] }))
        );
    }

    #[test]
    fn what_is_wrong_with_a_schema_is_said() {
        for (schema, part) in [
            (json!(true), "\"type\": \"object\""),
            (json!({ "type": "array" }), "\"type\": \"object\""),
            (json!({ "type": "object", "properties": { "a": { "type": "text" } } }), "/properties/a/type"),
            (json!({ "type": "object", "required": "a" }), "2020-12"),
            (json!({ "type": "object", "$schema": "http://json-schema.org/draft-07/schema#" }), "draft-07"),
            (json!({ "type": "object", "properties": { "a": { "$ref": "https://evil.example/x" } } }), "not in it"),
            (json!({ "type": "object", "properties": { "a": { "$ref": "#" } } }), "itself"),
            (json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }), "("),
            (json!({ "type": "object", "description": "x".repeat(40_000) }), "bytes"),
        ] {
            assert!(problem(&schema).contains(part), "{part}: {}", problem(&schema));
        }
    }

    #[test]
    fn a_schema_that_grows_when_it_is_expanded_is_refused_soon() {
        let mut definitions = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            definitions.insert(format!("d{level}"), json!({ "allOf": [next, next] }));
        }
        definitions.insert("d40".to_owned(), json!({ "type": "object" }));
        let schema = json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": definitions });
        assert!(problem(&schema).contains("parts"), "{}", problem(&schema));
        let circle = json!({ "type": "object", "$ref": "#/$defs/a", "$defs": { "a": { "items": { "$ref": "#/$defs/b" } }, "b": { "not": { "$ref": "#/$defs/a" } } } });
        assert!(problem(&circle).contains("recursion"));
    }
}
