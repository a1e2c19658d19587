use serde_json::json;

use super::input_tests::{of, problem};
use super::*;

fn value(schema: &Json, value: &Json) -> String {
    problem(of(&json!({ "a": schema })), json!({ "a": value }))
}

#[test]
fn what_is_nullable_takes_null_whatever_else_it_says() {
    let shape = json!({ "type": "string" });
    for (schema, wrong, described) in [
        (json!({ "type": "string", "nullable": true }), json!(5.5), "a: expected string or null, got 5.5 (number)"),
        (json!({ "type": ["string", "integer"], "nullable": true }), json!([]), "a: expected integer, string or null, got [] (array)"),
        (json!({ "type": "string", "enum": ["x", "y"], "nullable": true }), json!("z"), r#"a: expected one of "x", "y", null, got "z""#),
        (json!({ "const": 2, "nullable": true }), json!(3), "a: expected 2 or null, got 3 (integer)"),
        (json!({ "$ref": "#/properties/b", "nullable": true }), json!(5), "a: expected string or null, got 5 (integer)"),
        (json!({ "allOf": [shape], "nullable": true }), json!(5), "a: expected string or null, got 5 (integer)"),
        (
            json!({ "anyOf": [shape, { "type": "integer" }], "nullable": true }),
            json!([]),
            "a: expected string, integer or null, got [] (array)",
        ),
        (json!({ "oneOf": [shape, { "type": "null" }], "nullable": true }), json!(5), "a: expected string or null, got 5 (integer)"),
        (json!({ "not": { "type": ["null", "array"] }, "nullable": true }), json!([]), "a: "),
    ] {
        let with = |value: Json| problem(of(&json!({ "a": schema, "b": { "type": "string" } })), json!({ "a": value }));
        assert_eq!(with(Json::Null), "", "{schema}");
        assert!(with(wrong.clone()).starts_with(described), "{schema}: {}", with(wrong));
    }
    assert!(value(&json!({ "type": "string", "nullable": false }), &Json::Null).starts_with("a: expected string"));
    assert!(value(&json!({ "properties": { "nullable": true }, "type": "object" }), &Json::Null).starts_with("a: expected object"));
}

#[test]
fn references_into_what_was_moved_are_followed() {
    let nullable = json!({ "allOf": [{ "type": "object", "properties": { "x/y": { "type": "string" } } }], "nullable": true });
    let schema = of(&json!({ "a": nullable, "b": { "$ref": "#/properties/a/allOf/0/properties/x~1y" } }));
    assert_eq!(problem(schema.clone(), json!({ "a": null, "b": "text" })), "");
    assert_eq!(problem(schema, json!({ "b": 1 })), "b: expected string, got 1 (integer)");
    let listed = of(&json!({ "a": { "items": [{ "type": "string" }] }, "b": { "$ref": "#/properties/a/items/0" } }));
    assert_eq!(problem(listed, json!({ "b": 1 })), "b: expected string, got 1 (integer)");
}

#[test]
fn keywords_of_other_drafts_are_translated() {
    let tuple = json!({ "items": [{ "type": "string" }, { "type": "integer" }], "additionalItems": false });
    assert_eq!(value(&tuple, &json!(["x", 1])), "");
    assert_eq!(value(&tuple, &json!(["x", "y"])), r#"a[1]: expected integer, got "y" (string)"#);
    assert_eq!(value(&tuple, &json!(["x", 1, 2])), "a[2]: expected nothing here, got 2");
    let exclusive = json!({ "minimum": 5, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false });
    assert_eq!(value(&exclusive, &json!(5)), "a: expected more than 5, got 5");
    assert_eq!(value(&exclusive, &json!(9)), "");
    let anchor = of(&json!({ "a": { "$ref": "#text" }, "b": { "$anchor": "text", "type": "string" } }));
    assert_eq!(problem(anchor, json!({ "a": 1 })), "a: expected string, got 1 (integer)");
    let own = json!({ "$id": "https://e.org/s", "properties": { "a": { "$ref": "https://e.org/s#/$defs/t" } }, "$defs": { "t": { "type": "string" } } });
    assert_eq!(problem(own, json!({ "a": 1 })), "a: expected string, got 1 (integer)");
    for uri in ["http://json-schema.org/draft-04/schema#", "https://example.com/mine"] {
        let schema = json!({ "$schema": uri, "properties": { "a": { "minimum": 5, "exclusiveMinimum": true } } });
        assert!(problem(schema, json!({ "a": 5 })).starts_with("a: expected"), "{uri}");
    }
}

#[test]
fn what_cannot_be_read_is_left_out_and_the_rest_counts() {
    for odd in [
        json!({ "type": "any" }),
        json!({ "minimum": "0" }),
        json!({ "required": true }),
        json!({ "required": null }),
        json!({ "exclusiveMinimum": true }),
        json!({ "enum": "x" }),
        json!({ "anyOf": [] }),
        json!({ "properties": [] }),
        json!({ "pattern": 5 }),
        json!({ "patternProperties": { "(?=a)": false } }),
        json!({ "$ref": "#foo" }),
        json!({ "$ref": "other.json" }),
        json!({ "$ref": 5 }),
        json!({ "description": 5, "default": 1, "$schema": 5, "$id": 5 }),
    ] {
        let schema = of(&json!({ "a": odd, "b": { "type": "string" } }));
        assert_eq!(problem(schema.clone(), json!({ "a": { "x": [1] } })), "", "{schema}");
        assert_eq!(problem(schema, json!({ "b": 1 })), "b: expected string, got 1 (integer)");
    }
}

#[test]
fn leaving_something_out_never_refuses_a_value() {
    let odd = json!({ "type": "any" });
    for schema in [
        json!({ "not": odd }),
        json!({ "not": { "$ref": "#nowhere" } }),
        json!({ "not": { "properties": { "x": { "pattern": "(?=a)" } } } }),
        json!({ "if": { "minimum": "5" }, "then": false }),
        json!({ "oneOf": [odd, { "type": "object" }] }),
        json!({ "properties": [], "additionalProperties": false }),
        json!({ "patternProperties": { "(?=x)": true }, "additionalProperties": false }),
        json!({ "patternProperties": { "(?=x)": true }, "unevaluatedProperties": false }),
        json!({ "allOf": [{ "$ref": "#nowhere" }], "unevaluatedProperties": false }),
        json!({ "not": { "$ref": "#/$defs/odd" } }),
        json!({ "not": { "$ref": "#/$defs/far" } }),
    ] {
        let root = json!({ "properties": { "a": schema }, "$defs": { "odd": odd, "far": { "allOf": [{ "$ref": "#/$defs/odd" }] } } });
        assert_eq!(problem(root, json!({ "a": { "x": "y" } })), "", "{schema}");
    }
    assert_eq!(value(&json!({ "contains": odd, "maxContains": 1 }), &json!([1, 2])), "");
    assert_eq!(value(&json!({ "contains": { "type": "null" }, "minContains": "0" }), &json!([1])), "");
    assert_eq!(value(&json!({ "prefixItems": 5, "items": false }), &json!([1])), "");
    assert!(value(&json!({ "not": { "type": "object" } }), &json!({})).starts_with("a: "), "what can be read still refuses");
}

#[test]
fn names_are_no_keywords() {
    let names = json!({ "nullable": { "type": "string" }, "items": { "type": "string" }, "minimum": { "type": "string" }, "$ref": { "type": "string" } });
    for name in ["nullable", "items", "minimum", "$ref"] {
        let given = |value: Json| json!({ name: value });
        assert_eq!(problem(of(&names), given(json!("x"))), "");
        assert!(problem(of(&names), given(Json::Null)).ends_with(": expected string, got null"));
    }
    let literal = json!({ "enum": [{ "nullable": true, "type": "any", "items": [1] }] });
    assert_eq!(value(&literal, &json!({ "nullable": true, "type": "any", "items": [1] })), "");
}

#[test]
fn a_long_name_and_many_references_to_what_is_in_it_take_little() {
    let long = "n".repeat(100_000);
    let references: Vec<_> = (0..1_900).map(|_| json!({ "$ref": "#x" })).collect();
    let schema = json!({ "properties": { long: { "$anchor": "x" }, "b": { "prefixItems": references } } });
    assert_eq!(problem(schema, json!({ "b": [1] })), "");
}

#[test]
fn a_pattern_that_takes_long_to_compile_is_left_out() {
    let schema = json!({ "properties": { "a": { "pattern": r"\d".repeat(1_000) }, "b": { "type": "string" } } });
    assert_eq!(problem(schema.clone(), json!({ "a": "x" })), "");
    assert_eq!(problem(schema, json!({ "b": 1 })), "b: expected string, got 1 (integer)");
}
