// The tests write schemas directly as arguments, so the helpers take them by value.
#![allow(clippy::needless_pass_by_value)]

use serde_json::{Value as Json, json};

use super::*;
use crate::files::testing::at_once;

/// Returns a style that does not sanitise, because the texts of these tests are harmless. Sanitising is tested by the integration tests
/// of declarations.
fn style(failures: Failures) -> DeclarationStyle {
    let text = |text: &str, max: usize| text.chars().take(max).collect();
    DeclarationStyle { wording: Wording { text, line: text, max_chars: 2_000 }, failures, seen: SeenResults::default() }
}

fn tool(name: &str, input_schema: Json, output_schema: Option<Json>) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: None,
        input_schema,
        output_schema,
        annotations: None,
        execution: None,
        meta: None,
        icons: None,
    }
}

fn declared(tools: Vec<Tool>) -> String {
    declare_server("s", &Manifest { tools, ..Manifest::default() }, &style(Failures::Returned))
}

/// Returns the declared type of an output with this schema, on one line.
fn type_of(schema: Json) -> String {
    let text = declared(vec![tool("t", json!({}), Some(schema))]);
    let between = |start: &str, end: &str| Some(text.split_once(start)?.1.split_once(end)?.0.to_owned());
    let result = between("t(input?: Record<string, unknown>): ", " | ToolError;\n").unwrap();
    if result == "TOutput" { between("export interface TOutput ", "\n").unwrap() } else { result }
}

/// Returns the declared type of an input property with this schema.
fn input_of(schema: Json) -> String {
    let text = declared(vec![tool("t", json!({ "type": "object", "properties": { "x": schema }, "required": ["x"] }), None)]);
    let line = text.lines().find(|line| line.contains("x: ")).unwrap();
    line.split_once("x: ").unwrap().1.trim_end_matches([' ', '}', ';']).to_owned()
}

#[test]
fn each_kind_and_combination_has_its_type() {
    for (schema, expected) in [
        (json!(true), "unknown"),
        (json!(false), "never"),
        (json!({}), "unknown"),
        (json!({ "type": "integer" }), "number"),
        (json!({ "type": ["string", "null"] }), "string | null"),
        (json!({ "type": "string", "nullable": true }), "string | null"),
        (json!({ "enum": ["a", 1, null, true] }), r#""a" | 1 | null | true"#),
        (json!({ "const": { "a": [1] } }), "{ a: [1] }"),
        (json!({ "type": "string", "enum": ["a", 1] }), r#""a""#),
        (json!({ "type": "object" }), "Record<string, unknown>"),
        (json!({ "type": "object", "additionalProperties": false }), "Record<string, never>"),
        (json!({ "type": "object", "additionalProperties": { "type": "number" } }), "{ [key: string]: number }"),
        (json!({ "type": "array", "items": { "type": ["string", "null"] } }), "(string | null)[]"),
        (json!({ "anyOf": [{ "type": "string" }, { "type": "number" }] }), "string | number"),
        (json!({ "oneOf": [{ "type": "boolean" }, { "const": true }] }), "boolean"),
        (json!({ "type": "object", "required": ["a"] }), "{ a: unknown }"),
        (json!({ "minimum": 5 }), "unknown"),
        (json!({ "not": { "type": "string" } }), "unknown"),
    ] {
        assert_eq!(type_of(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn tuples_require_what_the_schema_requires() {
    let pair = json!([{ "type": "string" }, { "type": "number" }]);
    for (schema, expected) in [
        (json!({ "type": "array", "prefixItems": pair }), "[string?, number?, ...unknown[]]"),
        (json!({ "type": "array", "prefixItems": pair, "minItems": 2, "items": false }), "[string, number]"),
        (json!({ "type": "array", "prefixItems": pair, "minItems": 1, "maxItems": 2 }), "[string, number?]"),
        (json!({ "type": "array", "items": pair, "additionalItems": { "type": "null" } }), "[string?, number?, ...null[]]"),
        (json!({ "type": "array", "items": false }), "[]"),
    ] {
        assert_eq!(type_of(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn what_is_required_is_not_optional_and_an_input_that_requires_nothing_is() {
    let schema = |required: Json| json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": required });
    let one = declared(vec![tool("t", schema(json!(["a"])), None)]);
    assert!(one.contains("t(input: { a: string })"), "{one}");
    let none = declared(vec![tool("t", schema(json!([])), None)]);
    assert!(none.contains("t(input?: { a?: string })"), "{none}");
    for schema in [json!(null), json!({}), json!(true), json!([])] {
        let text = declared(vec![tool("t", schema, None)]);
        assert!(text.contains("t(input?: Record<string, unknown>)"), "{text}");
    }
}

#[test]
fn an_object_of_optional_names_takes_others_where_the_schema_does() {
    // Without the index signature, TypeScript would refuse an object that has none of the optional properties.
    assert_eq!(type_of(json!({ "type": "object", "properties": { "a": { "type": "string" } } })), "{ a?: string; [key: string]: unknown }");
    let closed = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "additionalProperties": false });
    assert_eq!(type_of(closed), "{ a?: string }");
}

#[test]
fn an_index_signature_fits_the_named_properties() {
    let schema = |kind: Json| json!({ "type": "object", "properties": { "a": kind }, "additionalProperties": { "type": "number" } });
    assert_eq!(type_of(schema(json!({ "type": "string" }))), "{ a?: string; [key: string]: number | string | undefined }");
    assert_eq!(type_of(schema(json!({ "type": "object" }))), "{ a?: Record<string, unknown>; [key: string]: unknown }");
}

#[test]
fn patterns_with_a_plain_beginning_are_index_signatures_of_their_own() {
    let schema =
        |pattern: &str| json!({ "type": "object", "patternProperties": { pattern: { "type": "number" } }, "additionalProperties": false });
    assert_eq!(type_of(schema("^x-")), "{ [key: `x-${string}`]: number }");
    assert_eq!(type_of(schema("^x`${")), "{ [key: string]: number }");
    assert_eq!(type_of(schema("x")), "{ [key: string]: number }");
}

#[test]
fn property_names_that_are_listed_are_properties() {
    let schema = json!({ "type": "object", "propertyNames": { "enum": ["a", "b"] }, "additionalProperties": { "type": "number" } });
    assert_eq!(type_of(schema), "{ a?: number; b?: number }");
}

#[test]
fn keys_and_literals_stay_true_and_inside_their_quotes() {
    let nasty = "a\"\\\n\u{2028}\u{202e}\u{e0041}*/";
    assert_eq!(type_of(json!({ "const": nasty })), r#""a\"\\\n\u2028\u202e\u{e0041}*/""#);
    let object = json!({ "type": "object", "properties": { nasty: true, "größe": true, "x-y": true, "$ok_1": true }, "required": ["x-y"] });
    assert_eq!(type_of(object), r#"{ "a\"\\\n\u2028\u202e\u{e0041}*/"?: unknown; "größe"?: unknown; "x-y": unknown; $ok_1?: unknown }"#);
    // Every object inherits `toString`. If the optional property had a type, TypeScript would refuse `{}` here.
    let inherited = json!({ "type": "object", "properties": { "toString": { "type": "string" } }, "additionalProperties": false });
    assert_eq!(type_of(inherited), "{ toString?: unknown }");
}

#[test]
fn nothing_leaves_a_comment_or_commands_the_compiler() {
    for text in ["*/ evil", "a*\u{0}/", "x\n*/", "x\u{2028}*/", "**//", "@ts-ignore", "a\n@ts-expect-error", " @ts-ignore"] {
        let comment = text::comment(text, "");
        assert_eq!(comment.matches("*/").count(), 1, "{comment}");
        // The compiler obeys a directive on the last line of a comment.
        let last = comment.trim_end().lines().last().unwrap_or_default();
        assert!(comment.ends_with("*/\n") && !last.contains("@ts-"), "{comment}");
    }
    assert_eq!(text::comment("Finds '**/*.ts' and `x`; mind @ts-ignore", ""), "/** Finds '**\\/*.ts' and `x`; mind @ts-ignore */\n");
    assert_eq!(text::comment(" \n ", ""), "");
}

#[test]
fn bytes_are_taken_where_text_stands_for_them_and_only_in_inputs() {
    let bytes = json!({ "type": "string", "contentEncoding": "base64" });
    assert_eq!(input_of(bytes.clone()), "string | Uint8Array");
    assert_eq!(input_of(json!({ "type": ["string", "null"], "format": "byte" })), "null | string | Uint8Array");
    assert_eq!(type_of(bytes), "string");
}

#[test]
fn references_lead_within_the_document_or_nowhere() {
    let schema = |reference: &str| {
        json!({ "$id": "https://example.com/root", "type": "object", "properties": { "x": { "$ref": reference } }, "required": ["x"], "$defs": {
            "a/b": { "type": "string" }, "named": { "$anchor": "here", "type": "number" },
            "inner": { "$id": "inner", "$ref": "#/$defs/y", "$defs": { "y": { "type": "boolean" } } },
            "one": { "$anchor": "twice" }, "two": { "$anchor": "twice", "type": "null" },
        } })
    };
    for (reference, expected) in [
        ("#/$defs/a~1b", "string"),
        ("#/%24defs/a~1b", "string"),
        ("#here", "number"),
        ("inner", "boolean"),
        ("https://example.com/inner#/$defs/y", "boolean"),
        ("#", "TOutput"),
        ("#twice", "unknown"),
        ("#/nowhere", "unknown"),
        ("http://example.com/other.json", "unknown"),
        ("file:///etc/passwd", "unknown"),
    ] {
        assert_eq!(type_of(schema(reference)), format!("{{ x: {expected} }}"), "{reference}");
    }
}

#[test]
fn nothing_beside_a_reference_counts_in_draft_7() {
    let schema = |dialect: &str| {
        json!({ "$schema": dialect, "type": "object", "required": ["x"], "properties": {
            "x": { "$ref": "#/definitions/a", "type": "object", "required": ["y"] } }, "definitions": { "a": { "required": ["z"] } } })
    };
    let old = declared(vec![tool("t", json!({}), Some(schema("http://json-schema.org/draft-07/schema#")))]);
    assert!(!old.contains("y: unknown") && old.contains("z: unknown"), "{old}");
    let new = declared(vec![tool("t", json!({}), Some(schema("https://json-schema.org/draft/2020-12/schema")))]);
    assert!(new.contains("y: unknown") && new.contains("z: unknown"), "{new}");
}

#[test]
fn circles_are_types_where_typescript_has_them_and_the_widest_where_not() {
    let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } });
    assert_eq!(type_of(circle), "unknown");
    let union = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/u" } }, "required": ["x"],
        "$defs": { "u": { "anyOf": [{ "$ref": "#/$defs/u" }, { "type": "null" }] } } });
    assert_eq!(type_of(union), "{ x: unknown }");
    let list = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/list" } }, "required": ["x"],
        "$defs": { "list": { "type": "array", "items": { "$ref": "#/$defs/list" } } } });
    let text = declared(vec![tool("t", json!({}), Some(list))]);
    assert!(text.contains("export type List = List[];"), "{text}");
}

#[test]
fn what_two_tools_say_alike_is_said_once_and_what_differs_has_names_of_its_own() {
    let schema = |kind: &str| {
        json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/Node" } },
            "$defs": { "Node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/Node" }, "value": { "type": kind } } } } })
    };
    let same = declared(vec![tool("a", schema("string"), None), tool("b", schema("string"), None)]);
    assert_eq!(same.matches("interface Node").count(), 1, "{same}");
    let other = declared(vec![tool("a", schema("string"), None), tool("b", schema("number"), None)]);
    assert!(other.contains("interface Node {") && other.contains("interface Node2 {") && other.contains("next?: Node2"), "{other}");
}

#[test]
fn types_have_no_name_of_a_function_or_of_another_type() {
    // A type that names itself needs a name.
    let object = json!({ "type": "object", "properties": { "a": { "$ref": "#" } } });
    let text = declared(vec![tool("GetInput", object.clone(), None), tool("get", object.clone(), None), tool("Get", object, None)]);
    for name in ["GetInputInput", "GetInput2", "GetInput3"] {
        assert_eq!(text.matches(&format!("interface {name} {{")).count(), 1, "{name}\n{text}");
    }
}

#[test]
fn comments_say_what_types_cannot() {
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How many." },
        "b": { "type": "string", "minLength": 1, "maxLength": 1, "pattern": "^x", "format": "uri", "examples": ["x"] },
        "c": { "type": "array", "items": { "type": "string", "maxLength": 5 }, "uniqueItems": true, "deprecated": true },
    } });
    let text = declared(vec![tool("t", schema, None)]);
    for comment in [
        "/** How many. (integer, 1 to 9) @default 3 */",
        r#"/** 1 character, uri, pattern ^x @example "x" */"#,
        "/** unique, each: at most 5 characters @deprecated */",
    ] {
        assert!(text.contains(comment), "{comment}\n{text}");
    }
}

#[test]
fn annotations_are_told_as_far_as_they_change_how_one_calls() {
    let mut read = tool("t", json!({}), None);
    read.description = Some("Reads".to_owned());
    read.annotations = Some(json!({ "readOnlyHint": true, "destructiveHint": true, "openWorldHint": true }));
    assert!(declared(vec![read]).contains("/** Reads. Read-only. Open world. */"));
    let mut write = tool("t", json!({}), None);
    write.annotations = Some(json!({ "destructiveHint": true, "idempotentHint": true }));
    assert!(declared(vec![write]).contains("/** Destructive. Idempotent. */"));
}

#[test]
fn failures_are_declared_where_they_are_returned() {
    let manifest = Manifest { tools: vec![tool("t", json!({}), Some(json!({ "type": "string" })))], ..Manifest::default() };
    assert!(declare_server("s", &manifest, &style(Failures::Returned)).contains("t(input?: Record<string, unknown>): string | ToolError;"));
    let thrown = declare_server("s", &manifest, &style(Failures::Thrown));
    assert!(thrown.contains("t(input?: Record<string, unknown>): string;") && !thrown.contains("ToolError"), "{thrown}");
}

#[test]
fn what_all_servers_share_is_said_once_and_in_words_for_a_function_alone() {
    let (typed, plain) = (tool("a", json!({}), Some(json!({ "type": "object" }))), tool("b", json!({}), None));
    let all = declare_mcp(&style(Failures::Returned));
    for shared in ["type ToolOutput = ", "interface ToolError {", "returns text or null where the server sends no structured content"] {
        assert_eq!(all.matches(shared).count(), 1, "{shared}\n{all}");
    }
    let manifest = Manifest { tools: vec![typed, plain], ..Manifest::default() };
    let whole = declare_server("s", &manifest, &style(Failures::Returned));
    assert!(!whole.contains("type ToolOutput") && !whole.contains("interface ToolError") && !whole.contains("parsed JSON"), "{whole}");
    let one = |name: &str| declare_tool("s", &manifest, name, &style(Failures::Returned)).unwrap();
    assert!(one("b").contains("// ToolOutput: text or parsed JSON") && !one("a").contains("parsed JSON"), "{}", one("b"));
}

#[test]
fn equal_parts_of_types_are_said_once_with_their_comments() {
    let place = "Where it is, as the name of a city with its country, or as a pair of coordinates.";
    let item = json!({ "type": "object", "properties": { "id": { "type": "string" }, "kind": { "enum": ["first", "second", "third"] },
        "size": { "type": "integer", "description": "In bytes, of the whole of it, without what belongs to others." } }, "required": ["id"] });
    let schema = |name: &str| {
        json!({ "type": "object", "required": ["place"], "properties": {
            "place": { "type": "string", "description": place }, name: { "type": "array", "items": item } } })
    };
    let text = declared(vec![
        tool("a", schema("items"), None),
        tool(
            "b",
            schema("others"),
            Some(json!({ "type": "object", "required": ["x"],
        "properties": { "x": item, "place": { "type": "number", "description": place } } })),
        ),
    ]);
    for (part, times) in [
        (place, 2),
        ("In bytes", 1),
        (r#""first" | "second" | "third""#, 1),
        ("export type Place = string;", 1),
        ("place: Place;", 2),
        ("place?: number;", 1),
        ("export interface ItemsItem {", 1),
        ("items?: ItemsItem[]", 1),
        ("others?: ItemsItem[]", 1),
        ("x: ItemsItem", 1),
    ] {
        assert_eq!(text.matches(part).count(), times, "{part}\n{text}");
    }
}

#[test]
fn the_comment_of_a_whole_input_or_result_is_kept_unless_the_function_says_the_same() {
    let schema = |text: &str| json!({ "type": "object", "description": text, "properties": { "a": { "type": "string" } } });
    let mut sent = tool("t", schema("What is sent."), Some(schema("What comes.")));
    sent.description = Some("Sends it.".to_owned());
    let text = declared(vec![sent.clone()]);
    assert!(text.contains("   * Sends it.\n   * @param input What is sent.\n   * @returns What comes.\n"), "{text}");
    sent.description = Some("What is sent. What comes.".to_owned());
    assert!(declared(vec![sent]).contains("  /** What is sent. What comes. */\n"));
}

#[test]
fn any_tool_is_called_with_any_object_also_of_an_interface() {
    // An interface has no index signature, so it would not be assignable to a parameter of the type `Record`.
    let text = declare_mcp(&style(Failures::Returned));
    assert!(text.contains("call(server: string, tool: string, input?: object): ToolResult;"), "{text}");
}

#[test]
fn many_definitions_of_one_name_and_many_that_are_nearly_alike_take_little_time() {
    let named_alike: serde_json::Map<String, Json> = (0..3_000)
        .map(|index| {
            let next = json!({ "$ref": format!("#/$defs/a{}/n", (index + 1) % 3_000) });
            (format!("a{index}"), json!({ "n": { "type": "object", "properties": { "i": { "const": index }, "next": next } } }))
        })
        .collect();
    let named_alike = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/a0/n" } }, "$defs": named_alike });
    let tools = (0..3).map(|index| tool(&format!("t{index}"), named_alike.clone(), None)).collect();
    let text = at_once(move || declared(tools));
    assert!(text.contains("interface N3000 ") && text.contains("function t2("));
    let nearly_alike = |odd: usize| {
        let definition = |index: usize| {
            let to = |index: usize| json!({ "$ref": format!("#/$defs/d{}", index % 60) });
            let own = json!({ "const": if index == 59 { odd } else { 0 } });
            json!({ "type": "object", "properties": { "own": own, "next": to(index + 1), "other": to(index * 7 + 3) } })
        };
        let definitions: serde_json::Map<String, Json> = (0..60).map(|index| (format!("d{index}"), definition(index))).collect();
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": definitions })
    };
    let tools = (0..200).map(|index| tool(&format!("t{index}"), nearly_alike(index), None)).collect();
    let text = at_once(move || declared(tools));
    assert_eq!(text.matches("{ own?: ").count(), 200 * 60, "what differs somewhere within is no one's but its own");
}

#[test]
fn one_tool_has_the_names_that_it_has_among_all() {
    let tools = vec![tool("a-b", json!({}), None), tool("a_b", json!({}), None)];
    let manifest = Manifest { tools, ..Manifest::default() };
    let whole = declare_server("s", &manifest, &style(Failures::Returned));
    let one = declare_tool("s", &manifest, "a-b", &style(Failures::Returned)).unwrap();
    let line = one.lines().find(|line| line.contains("export function")).unwrap();
    assert!(whole.contains(line) && one.matches("export function").count() == 1, "{one}");
    assert_eq!(declare_tool("s", &manifest, "none", &style(Failures::Returned)), None);
}

#[test]
fn a_signature_is_one_line_of_at_most_200_characters() {
    let properties: serde_json::Map<String, Json> =
        (0..100).map(|index| (format!("name_{index}\n"), json!({ "type": "string" }))).collect();
    let long =
        tool("t", json!({ "type": "object", "properties": properties }), Some(json!({ "type": "object", "properties": properties })));
    let line = signature(&long, "t", &style(Failures::Returned));
    assert!(line.chars().count() <= 200 && !line.contains('\n') && line.contains('…') && line.starts_with("t(input?: { "), "{line}");
    assert_eq!(signature(&tool("t", json!({}), None), "t", &style(Failures::Returned)), "t(): ToolOutput");
    assert!(signature(&long, &"x".repeat(500), &style(Failures::Returned)).chars().count() <= 200);
}
