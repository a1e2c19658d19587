//! Declarations that a person reviews: those of representative tools, of the recorded servers, and of the modules that belong to no server.

use hyperlight_mcp::catalog::{AgentFunction, Failures, assign_identifiers, declare_agent_module, declare_mcp, declare_server, signature};
use serde_json::json;

use super::{RECORDED, recorded, server, style, tool};

/// Returns a schema that uses everything that declarations can express.
fn orders() -> serde_json::Value {
    json!({
        "type": "object",
        "properties": {
            "id": { "type": "string", "format": "uuid", "description": "Of the order." },
            "count": { "type": "integer", "minimum": 1, "maximum": 100, "default": 10, "description": "How many at most." },
            "price": { "type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01 },
            "state": { "enum": ["open", "paid", null], "description": "Only these.\nSecond line." },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 20 }, "uniqueItems": true, "maxItems": 5 },
            "range": { "type": "array", "prefixItems": [{ "type": "number" }, { "type": "number" }], "minItems": 1, "items": false },
            "payment": { "$ref": "#/$defs/Payment" },
            "items": { "type": "array", "items": { "$ref": "#/$defs/Item" } },
            "when": { "anyOf": [{ "type": "string", "format": "date-time" }, { "type": "null" }], "examples": ["2026-01-01T00:00:00Z"] },
            "meta": { "type": "object", "additionalProperties": { "type": ["string", "number"] } },
            "headers": { "type": "object", "patternProperties": { "^x-": { "type": "string" } }, "additionalProperties": false },
            "file": { "type": "string", "contentEncoding": "base64", "contentMediaType": "image/png" },
            "old-name": { "type": "boolean", "deprecated": true },
            "address": { "allOf": [{ "$ref": "#/$defs/Place" }, { "type": "object", "properties": { "floor": { "type": "integer" } } }] },
            "never": false,
        },
        "required": ["id", "payment"],
        "additionalProperties": false,
        "$defs": {
            "Payment": {
                "oneOf": [
                    { "type": "object", "properties": { "kind": { "const": "card" }, "number": { "type": "string" } }, "required": ["kind", "number"] },
                    { "type": "object", "properties": { "kind": { "const": "cash" } }, "required": ["kind"] },
                ],
                "description": "How it is paid.",
            },
            "Item": {
                "type": "object",
                "properties": { "name": { "type": "string" }, "parts": { "type": "array", "items": { "$ref": "#/$defs/Item" } } },
                "required": ["name"],
            },
            "Place": { "type": "object", "properties": { "street": { "type": "string" }, "city": { "$ref": "#/$defs/City" } }, "required": ["street"] },
            "City": { "type": "string", "minLength": 1 },
        },
    })
}

#[test]
fn what_declarations_can_say_is_as_it_was_reviewed() {
    let item = json!({ "$ref": "#/$defs/Item", "$defs": orders()["$defs"] });
    let mut place = tool("place-order", orders(), Some(item));
    place.description = Some("Places an order.".to_owned());
    place.annotations = Some(json!({ "destructiveHint": true, "idempotentHint": true, "openWorldHint": true }));
    let mut find = tool("find", json!({ "type": "object", "properties": { "state": { "type": "string" } } }), Some(orders()));
    find.annotations = Some(json!({ "readOnlyHint": true }));
    let none = tool("ping", json!({ "type": "object", "properties": {}, "additionalProperties": false }), None);
    let manifest = server(vec![place, find, none]);
    insta::assert_snapshot!("representative", declare_server("shop", &manifest, &style(Failures::Returned)));
    insta::assert_snapshot!("representative_thrown", declare_server("shop", &manifest, &style(Failures::Thrown)));
}

#[test]
fn recorded_servers_are_declared_as_it_was_reviewed() {
    for name in RECORDED {
        let manifest = recorded(name);
        let identifiers = assign_identifiers(manifest.tools.iter().map(|tool| tool.name.as_str()));
        let signatures: Vec<String> =
            manifest.tools.iter().map(|tool| signature(tool, &identifiers[&tool.name], &style(Failures::Returned))).collect();
        assert!(signatures.iter().all(|line| line.chars().count() <= 200 && !line.contains('\n')));
        insta::assert_snapshot!(name, declare_server(name, &manifest, &style(Failures::Returned)));
        insta::assert_snapshot!(format!("{name}_signatures"), signatures.join("\n"));
    }
}

/// Returns the declaration of an agent's own module.
pub fn math() -> String {
    let add = AgentFunction {
        name: "add".to_owned(),
        description: Some("The sum.".to_owned()),
        signature: Some("(a: number, b: number) => number // of both".to_owned()),
    };
    let all = AgentFunction { name: "all".to_owned(), description: None, signature: None };
    declare_agent_module("math", Some("Sums."), &[add, all])
}

#[test]
fn modules_that_are_no_servers_are_declared_as_it_was_reviewed() {
    insta::assert_snapshot!("mcp", declare_mcp(&style(Failures::Returned)));
    insta::assert_snapshot!("agent_module", math());
}
