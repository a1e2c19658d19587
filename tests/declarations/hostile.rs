//! Input of hostile servers that tries to break a declaration or the program that parses it.

use hyperlight_mcp::catalog::{Manifest, Tool};
use serde_json::{Map, Value as Json, json};

use super::{server, tool};

const ESCAPES: [&str; 12] = [
    "*/ export const evil: 1; /*",
    "a */",
    "`${process.exit()}`",
    "\u{2028}export const evil: 1;\u{2029}",
    "\"; export const evil: 1; \"",
    "line\nbreak\r\n*/\t\\",
    "@ts-expect-error",
    "first\n@ts-ignore",
    "/// <reference path=\"/etc/passwd\" />",
    "*\u{200b}/ \u{202e}txt\u{e0041}",
    "// @ts-nocheck",
    "👩\u{200d}👧 \u{1b}[31mred\u{9b}0m",
];
const NAMES: [&str; 24] = [
    "__proto__",
    "constructor",
    "toString",
    "valueOf",
    "hasOwnProperty",
    "new",
    "get",
    "set",
    "readonly",
    "static",
    "class",
    "default",
    "",
    " ",
    "\"",
    "'",
    "\\",
    "\n",
    "a\u{2028}b",
    "\u{202e}evil",
    "größe",
    "日本語",
    "😀",
    "1e5",
];

/// Returns the hostile manifests, each with a different server name.
pub fn servers() -> Vec<(String, Manifest)> {
    let all = [
        ("texts", texts()),
        ("names", names()),
        ("functions", functions()),
        ("references", references()),
        ("sizes", sizes()),
        ("odd", odd()),
        ("conflicts", conflicts()),
    ];
    all.into_iter().map(|(name, tools)| (name.to_owned(), described(server(tools)))).chain([large()]).collect()
}

fn described(mut manifest: Manifest) -> Manifest {
    manifest.instructions = Some(ESCAPES.join("\n"));
    manifest
}

fn both(name: &str, schema: &Json) -> Tool {
    tool(name, schema.clone(), Some(schema.clone()))
}

fn texts() -> Vec<Tool> {
    let one = |(index, text): (usize, &&str)| {
        let field = json!({
            "type": "string", "description": text, "title": text, "default": text, "examples": [text, { "x": text }], "pattern": text,
            "format": text, "deprecated": true,
        });
        let schema = json!({
            "type": "object", "description": text,
            "properties": { "text": field, "literal": { "const": text }, "choice": { "enum": [text, { *text: [text] }] }, *text: true },
            "patternProperties": { format!("^{text}"): { "type": "number" } },
        });
        let mut tool = both(&format!("tool{text}{index}"), &schema);
        tool.description = Some((*text).to_owned());
        tool.annotations = Some(json!({ "readOnlyHint": text, "title": text, "destructiveHint": true }));
        tool
    };
    ESCAPES.iter().enumerate().map(one).collect()
}

fn names() -> Vec<Tool> {
    let properties: Map<String, Json> = NAMES.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
    let definitions: Map<String, Json> =
        NAMES.iter().map(|name| ((*name).to_owned(), json!({ "type": "object", "properties": { *name: { "$ref": "#" } } }))).collect();
    let pointer = |name: &str| format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1"));
    let references: Map<String, Json> = NAMES.iter().map(|name| ((*name).to_owned(), json!({ "$ref": pointer(name) }))).collect();
    vec![
        both("optional", &json!({ "type": "object", "properties": properties })),
        both("required", &json!({ "type": "object", "properties": properties, "required": NAMES })),
        both("unnamed", &json!({ "type": "object", "required": NAMES, "additionalProperties": { "type": "number" } })),
        both("indexed", &json!({ "type": "object", "properties": properties, "additionalProperties": { "type": "number" } })),
        both("refs", &json!({ "type": "object", "properties": references, "$defs": definitions })),
        both("enums", &json!({ "type": "object", "properties": { "x": { "enum": NAMES } }, "propertyNames": { "enum": NAMES } })),
    ]
}

/// Names of tools that have a meaning in TypeScript or in the module.
const FUNCTIONS: [&str; 55] = [
    "all",
    "all_",
    "ToolError",
    "ToolOutput",
    "ToolContent",
    "Record",
    "Uint8Array",
    "Omit",
    "string",
    "number",
    "any",
    "unknown",
    "never",
    "object",
    "symbol",
    "type",
    "declare",
    "module",
    "namespace",
    "require",
    "exports",
    "Promise",
    "Object",
    "of",
    "from",
    "as",
    "get",
    "set",
    "GetInput",
    "get_input",
    "getInput",
    "GetOutput",
    "abstract",
    "infer",
    "keyof",
    "global",
    "____",
    "1st",
    "größe",
    "日本語",
    "😀",
    "",
    " ",
    "default",
    "class",
    "__proto__",
    "constructor",
    "then",
    "a-b",
    "a_b",
    "a.b",
    "intrinsic",
    "unique",
    "asserts",
    "is",
];

fn functions() -> Vec<Tool> {
    FUNCTIONS
        .iter()
        .map(|name| {
            both(
                name,
                &json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/Record" } }, "$defs": {
        "Record": { "type": "object", "properties": { "self": { "$ref": "#/$defs/Record" } } } } }),
            )
        })
        .collect()
}

fn references() -> Vec<Tool> {
    let one = |(index, reference): (usize, &&str)| {
        let schema = json!({
            "type": "object", "$id": "https://example.com/root",
            "properties": { "x": { "$ref": reference }, "list": { "type": "array", "items": { "$ref": reference } } },
            "allOf": [{ "$ref": reference }], "anyOf": [{ "$ref": reference }, { "$ref": "#/$defs/a" }],
            "$defs": {
                "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" }, "self": { "$ref": "#/$defs/self" },
                "union": { "anyOf": [{ "$ref": "#/$defs/union" }, { "type": "string" }, { "$ref": "#/$defs/all" }] },
                "all": { "allOf": [{ "$ref": "#/$defs/union" }, { "type": "object", "properties": { "x": { "$ref": "#/$defs/all" } } }] },
                "list": { "type": "array", "items": { "$ref": "#/$defs/list" } },
                "tuple": { "type": "array", "prefixItems": [{ "$ref": "#/$defs/tuple" }], "items": { "$ref": "#/$defs/tuple" } },
                "map": { "type": "object", "additionalProperties": { "$ref": "#/$defs/map" } },
                "anchored": { "$anchor": "here", "type": "object", "properties": { "next": { "$ref": "#here" } } },
                "twice1": { "$anchor": "twice" }, "twice2": { "$anchor": "twice", "type": "string" },
                "inner": { "$id": "inner", "type": "object", "properties": { "x": { "$ref": "#/$defs/y" } }, "$defs": { "y": { "type": "number" } } },
            },
        });
        both(&format!("ref{index}"), &schema)
    };
    let references = [
        "#",
        "#/$defs/a",
        "#/$defs/self",
        "#/$defs/union",
        "#/$defs/all",
        "#/$defs/list",
        "#/$defs/tuple",
        "#/$defs/map",
        "#here",
        "#twice",
        "inner",
        "https://example.com/inner#/$defs/y",
        "https://example.com/root",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "../x.json",
        "#/nowhere",
        "#/properties/x/$ref",
        "#%",
        "#/%zz",
        "::::",
        "",
        "#/$defs/~2",
        "#/allOf/00",
        "#/allOf/0",
    ];
    let mut tools: Vec<Tool> = references.iter().enumerate().map(one).collect();
    let chain: Map<String, Json> =
        (0..5_000).map(|index| (format!("c{index}"), json!({ "$ref": format!("#/$defs/c{}", index + 1) }))).collect();
    tools.push(both("chain", &json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/c0" } }, "$defs": chain })));
    let unions: Map<String, Json> = (0..3_000)
        .map(|index| (format!("u{index}"), json!({ "anyOf": [{ "$ref": format!("#/$defs/u{}", index + 1) }, { "const": index }] })))
        .collect();
    tools.push(both("unions", &json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/u0" } }, "$defs": unions })));
    tools
}

/// Nests a schema to the given depth. It inserts the inner schema with a pointer, because `json!` would copy it.
fn nested(depth: usize, outer: &Json, place: &str) -> Json {
    let wrap = |inner, _| {
        let mut outer = outer.clone();
        *outer.pointer_mut(place).unwrap() = inner;
        outer
    };
    (0..depth).fold(json!({ "type": "string" }), wrap)
}

fn sizes() -> Vec<Tool> {
    let parameters: Map<String, Json> = (0..2_000)
        .map(|index| {
            (
                format!("parameter_{index}"),
                json!({ "type": ["string", "number"], "description": format!("Number {index}."), "enum": ["a", 1] }),
            )
        })
        .collect();
    let values: Vec<Json> = (0..5_000).map(|index| json!(format!("value {index}"))).collect();
    let choices: Vec<Json> = (0..200).map(|index| json!({ "const": index })).collect();
    vec![
        both("parameters", &json!({ "type": "object", "properties": parameters, "required": parameters.keys().collect::<Vec<_>>() })),
        both("values", &json!({ "type": "object", "properties": { "x": { "enum": values } } })),
        both("product", &json!({ "type": "object", "properties": { "x": { "allOf": vec![json!({ "anyOf": choices }); 6] } } })),
        both("deep_properties", &nested(5_000, &json!({ "type": "object", "properties": { "x": 0 }, "required": ["x"] }), "/properties/x")),
        both("deep_items", &nested(5_000, &json!({ "type": "array", "items": 0 }), "/items")),
        both("deep_unions", &nested(5_000, &json!({ "anyOf": [0, { "type": "null" }] }), "/anyOf/0")),
        both("deep_literal", &json!({ "type": "object", "properties": { "x": { "const": nested(3_000, &json!([0]), "/0") } } })),
        both("wide", &json!({ "type": "array", "prefixItems": vec![json!({ "type": "string" }); 3_000] })),
    ]
}

/// Returns a server with 5 MB in each place where a schema can contain that much, one tool for each place.
fn large() -> (String, Manifest) {
    let text = "x*/ ".repeat(5 * 1024 * 1024 / 4);
    let properties: Map<String, Json> =
        (0..40_000).map(|index| (format!("{}{index}", "p".repeat(100)), json!({ "type": "string" }))).collect();
    let examples: Vec<Json> = (0..100_000).map(|index| json!({ "example": index, "text": "x".repeat(20) })).collect();
    let tools = vec![
        both("description", &json!({ "type": "object", "description": text, "properties": { "x": { "description": text } } })),
        both("key", &json!({ "type": "object", "properties": { text.as_str(): { "type": "string" } }, "required": [text] })),
        both(
            "literal",
            &json!({ "type": "object", "properties": { "x": { "const": text, "default": text }, "y": { "enum": [text, "z"] } } }),
        ),
        both("properties", &json!({ "type": "object", "properties": properties })),
        both("examples", &json!({ "type": "object", "properties": { "x": { "examples": examples, "enum": examples } } })),
    ];
    ("large".to_owned(), server(tools))
}

fn odd() -> Vec<Tool> {
    let schemas = [
        json!(true),
        json!(false),
        json!(null),
        json!({}),
        json!([]),
        json!("string"),
        json!(5),
        json!({ "type": "object" }),
        json!({ "type": "file" }),
        json!({ "type": [] }),
        json!({ "type": ["string", 5] }),
        json!({ "type": 5 }),
        json!({ "properties": [] }),
        json!({ "type": "object", "properties": { "x": 5, "y": null, "z": false, "w": [] }, "required": "x" }),
        json!({ "type": "object", "required": [5, null, "a", "a"], "additionalProperties": 5 }),
        json!({ "type": "array", "items": [], "minItems": -1, "maxItems": 1.5 }),
        json!({ "enum": [] }),
        json!({ "enum": "a" }),
        json!({ "anyOf": [] }),
        json!({ "oneOf": {} }),
        json!({ "allOf": 5 }),
        json!({ "anyOf": [false] }),
        json!({ "$ref": 5 }),
        json!({ "$ref": "#", "$schema": "http://json-schema.org/draft-07/schema#" }),
        json!({ "id": "x", "$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": { "id": { "type": "string" } } }),
        json!({ "enum": [1e300, -0.0, 9_007_199_254_740_993_u64, -5, 1.5e-7, 1e21] }),
        json!({ "type": "string", "enum": [null, 5] }),
        json!({ "type": "array", "prefixItems": [true, { "type": "string" }], "items": [true] }),
        json!({ "type": "array", "prefixItems": [false, { "anyOf": [{ "type": "string" }, { "type": "null" }] }], "minItems": 1, "items": false }),
    ];
    schemas.iter().enumerate().map(|(index, schema)| both(&format!("odd{index}"), schema)).collect()
}

fn conflicts() -> Vec<Tool> {
    let object = |kind: &str| json!({ "type": "object", "properties": { "x": { "type": kind } }, "required": ["x"] });
    let schemas = [
        json!({ "type": "object", "allOf": [object("string"), object("number")] }),
        json!({ "type": "object", "allOf": [{ "type": "string" }, { "type": "array" }] }),
        json!({ "type": "object", "properties": { "x": { "type": "string" } }, "additionalProperties": { "type": "number" } }),
        json!({ "type": "object", "properties": { "x-1": { "type": "string" } }, "patternProperties": { "^x-": { "type": "number" }, "^x": true } }),
        json!({ "type": "object", "properties": { "x": object("string") }, "additionalProperties": object("number") }),
        json!({ "type": "object", "patternProperties": { "^a": { "type": "number" }, "^ab": { "type": "string" } }, "additionalProperties": false }),
        json!({ "type": "object", "patternProperties": { "^a`${": { "type": "number" } }, "additionalProperties": false }),
        json!({ "type": "object", "properties": { "x": { "const": "a" } }, "anyOf": [{ "properties": { "x": { "const": "b" } } }, object("null")] }),
    ];
    schemas.iter().enumerate().map(|(index, schema)| both(&format!("conflict{index}"), schema)).collect()
}
