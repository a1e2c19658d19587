//! Judges the input schemas that a model wrote. A schema of a few lines can take hours to compile, or to compare with a value, so it is measured
//! first.

use jsonschema::{Draft, Validator};
use serde_json::Value as Json;

use super::size::SchemaSize;
use crate::schema_engine;
use crate::text::sanitise_line;

const MAX_SCHEMA_BYTES: usize = 32 * 1024;
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The compiled input schema of a tool.
pub(in crate::boot) struct InputSchema {
    validator: Validator,
    size: SchemaSize,
}

impl InputSchema {
    /// Compiles a tool's input schema.
    ///
    /// # Errors
    /// Fails with the problem of the schema, as the end of a sentence.
    pub(in crate::boot) fn compile(schema: &Json) -> Result<Self, String> {
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
        let size = SchemaSize::of(schema)?;
        jsonschema::draft202012::meta::validate(schema)
            .map_err(|error| format!("is not valid JSON Schema 2020-12: {}", described(&error)))?;
        let validator =
            schema_engine::compile(schema, Some(Draft::Draft202012)).map_err(|error| format!("cannot be used: {}", described(&error)))?;
        Ok(Self { validator, size })
    }

    /// Checks a value against the schema.
    ///
    /// # Errors
    /// Fails with the first problem of the value, or if the check could take too long.
    pub(in crate::boot) fn check(&self, value: &Json) -> Result<(), String> {
        let cost = self.size.cost_of(value);
        if cost.is_too_long() {
            return Err("the check of a value could take too long".to_owned());
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        if cost.is_too_long_to_describe() {
            return Err("the schema does not allow the value that was made".to_owned());
        }
        self.validator.validate(value).map_err(|error| described(&error))
    }
}

/// Returns the problem of a value, with its place.
fn described(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let place = if path.is_empty() { String::new() } else { format!(" at {path}") };
    format!("{}{}", sanitise_line(&error.to_string(), 300), sanitise_line(&place, 200))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(schema: &Json) -> String {
        InputSchema::compile(schema).err().unwrap_or_default()
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
        let validator = InputSchema::compile(&schema).unwrap().validator;
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
