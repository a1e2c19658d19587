//! Schemas as servers could write them: any combination of the keywords that the declarations read, including references and cycles.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value as Json, json};

const DEFINITIONS: usize = 3;
/// Names that look like other names, and names that JavaScript's own objects have.
const KEYS: [&str; 12] = ["a", "b", "c", "kind", "x-1", "x-y", "größe", "1", "", "constructor", "toString", "q\"\\\n"];

/// Returns this number of schemas. They are the same in each run.
pub fn generated(count: usize) -> Vec<Json> {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::default()));
    (0..count).map(|_| document().new_tree(&mut runner).unwrap().current()).collect()
}

/// A complete schema with its definitions. One in four follows draft-07.
fn document() -> impl Strategy<Value = Json> {
    (schema(), vec(schema(), DEFINITIONS), 0..4_u8).prop_map(|(root, definitions, dialect)| {
        let definitions = definitions.into_iter().enumerate().map(|(index, mut definition)| {
            break_circles(&mut definition, index + 1);
            (format!("d{index}"), definition)
        });
        let definitions: Map<String, Json> = definitions.collect();
        let mut root = root;
        break_circles(&mut root, 0);
        let Json::Object(fields) = &mut root else { return root };
        fields.insert("$defs".to_owned(), Json::Object(definitions));
        if dialect == 0 {
            fields.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
            to_draft_7(&mut root);
        }
        root
    })
}

/// Removes references that lead back to the same place without passing a property or an element. Such a reference has no meaning, and a
/// validator would not end.
fn break_circles(schema: &mut Json, place: usize) {
    let Json::Object(fields) = schema else { return };
    if fields.get("$ref").and_then(Json::as_str).is_some_and(|reference| place_of(reference) <= place) {
        fields.shift_remove("$ref");
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        fields.get_mut(keyword).and_then(Json::as_array_mut).into_iter().flatten().for_each(|member| break_circles(member, place));
    }
    for keyword in ["not", "if", "then", "else"] {
        fields.get_mut(keyword).into_iter().for_each(|member| break_circles(member, place));
    }
}

fn place_of(reference: &str) -> usize {
    reference.strip_prefix("#/$defs/d").map_or(0, |index| index.parse::<usize>().unwrap() + 1)
}

/// Converts tuples to the form of draft-07.
fn to_draft_7(schema: &mut Json) {
    match schema {
        Json::Object(fields) => {
            if let Some(first) = fields.shift_remove("prefixItems") {
                let rest = fields.insert("items".to_owned(), first);
                rest.map(|rest| fields.insert("additionalItems".to_owned(), rest));
            }
            fields.values_mut().for_each(to_draft_7);
        }
        Json::Array(items) => items.iter_mut().for_each(to_draft_7),
        _ => {}
    }
}

fn key() -> impl Strategy<Value = String> {
    proptest::sample::select(&KEYS[..]).prop_map(ToOwned::to_owned)
}

fn scalar() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Json::from),
        (-3..4_i32).prop_map(Json::from),
        Just(json!(1.5)),
        proptest::sample::select(&["", "a", "b", "x-y", "\"*/\u{2028}"][..]).prop_map(Json::from),
    ]
}

fn literal() -> impl Strategy<Value = Json> {
    scalar().prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Json::from),
            vec((key(), inner), 0..3).prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

fn leaf() -> impl Strategy<Value = Json> {
    let constrained = proptest::sample::select(vec![
        json!({ "type": "string", "minLength": 1, "description": "At least one. */ `x` ${y}" }),
        json!({ "type": "string", "pattern": "^a", "default": "a" }),
        json!({ "type": "string", "format": "date-time", "examples": ["2020-01-01T00:00:00Z"] }),
        json!({ "type": "string", "contentEncoding": "base64" }),
        json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 3 }),
        json!({ "type": "integer", "multipleOf": 2, "deprecated": true }),
        json!({ "type": ["string", "null"] }),
        json!({ "type": ["integer", "boolean", "array"] }),
        json!({ "type": "string", "nullable": true }),
        json!({ "minimum": 2 }),
        json!({ "required": ["a"] }),
        json!({ "type": "object", "required": ["a", "b"] }),
        json!({ "type": "object", "additionalProperties": false }),
        json!({ "type": "array", "maxItems": 1 }),
        json!({ "title": "Anything" }),
    ]);
    let kind = proptest::sample::select(&["string", "number", "integer", "boolean", "null", "object", "array"][..]);
    prop_oneof![
        5 => kind.prop_map(|kind| json!({ "type": kind })),
        4 => constrained,
        2 => vec(scalar(), 1..4).prop_map(|values| json!({ "enum": values })),
        1 => vec(literal(), 1..3).prop_map(|values| json!({ "enum": values })),
        1 => literal().prop_map(|value| json!({ "const": value })),
        2 => (0..DEFINITIONS).prop_map(|index| json!({ "$ref": format!("#/$defs/d{index}") })),
        1 => (0..DEFINITIONS).prop_map(|index| json!({ "$ref": format!("#/$defs/d{index}"), "description": "Another.", "nullable": true })),
        1 => Just(json!({ "$ref": "#" })),
        1 => Just(json!(true)),
    ]
}

fn schema() -> impl Strategy<Value = Json> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            6 => object(inner.clone()),
            3 => array(inner.clone()),
            2 => vec(inner.clone(), 1..4).prop_map(|members| json!({ "anyOf": members })),
            1 => vec(inner.clone(), 1..4).prop_map(|members| json!({ "oneOf": members })),
            1 => vec(inner.clone(), 1..3).prop_map(|members| json!({ "allOf": members })),
            1 => (object(inner.clone()), vec(object(inner.clone()), 1..3)).prop_map(|(base, more)| with(base, "allOf", more)),
            1 => object(inner.clone()).prop_map(|base| with(base, "anyOf", vec![json!({ "required": ["a"] }), json!({ "required": ["b"] })])),
            1 => vec(inner.clone(), 2..4).prop_map(discriminated),
            1 => (inner.clone(), inner.clone()).prop_map(|(base, not)| with(base, "not", not)),
            1 => (inner.clone(), inner.clone(), inner).prop_map(|(base, test, then)| with(with(base, "if", test), "then", then)),
        ]
    })
}

fn with(mut schema: Json, keyword: &str, value: impl Into<Json>) -> Json {
    if let Json::Object(fields) = &mut schema {
        fields.insert(keyword.to_owned(), value.into());
    }
    schema
}

fn discriminated(values: Vec<Json>) -> Json {
    let member = |(index, value): (usize, Json)| json!({ "type": "object", "properties": { "kind": { "const": format!("k{index}") }, "value": value }, "required": ["kind", "value"] });
    json!({ "oneOf": values.into_iter().enumerate().map(member).collect::<Vec<_>>(), "discriminator": { "propertyName": "kind" } })
}

fn object(inner: impl Strategy<Value = Json> + Clone + 'static) -> impl Strategy<Value = Json> {
    let rest = prop_oneof![4 => Just(None), 3 => Just(Some(json!(false))), 1 => Just(Some(json!(true))), 2 => inner.clone().prop_map(Some)];
    let patterns = prop_oneof![
        8 => Just(None),
        1 => inner.clone().prop_map(|value| Some(json!({ "^x-": value }))),
        1 => inner.clone().prop_map(|value| Some(json!({ "^[a-c]$": value }))),
    ];
    let names =
        prop_oneof![12 => Just(None), 1 => Just(Some(json!({ "enum": ["a", "kind", "x-1"] }))), 1 => Just(Some(json!({ "maxLength": 1 })))];
    (vec((key(), inner), 0..5), vec(key(), 0..3), rest, patterns, names, 0..6_u8).prop_map(
        |(properties, more, rest, patterns, names, typed)| {
            let properties: Map<String, Json> = properties.into_iter().collect();
            let mut required: Vec<String> = properties.keys().step_by(2).cloned().collect();
            if let (0, Some(name)) = (typed % 3, more.into_iter().next()) {
                required.push(name);
            }
            required.sort();
            required.dedup();
            let mut fields = json!({ "properties": properties, "required": required });
            if typed > 0 {
                fields = with(fields, "type", "object");
            }
            for (keyword, value) in [("additionalProperties", rest), ("patternProperties", patterns), ("propertyNames", names)] {
                fields = value.into_iter().fold(fields, |fields, value| with(fields, keyword, value));
            }
            fields
        },
    )
}

fn array(inner: impl Strategy<Value = Json> + Clone + 'static) -> impl Strategy<Value = Json> {
    let items = prop_oneof![1 => Just(None), 1 => Just(Some(json!(false))), 3 => inner.clone().prop_map(Some)];
    (vec(inner, 0..3), items, 0..3_u8, 0..5_u8).prop_map(|(first, items, least, most)| {
        let mut schema = json!({ "type": "array" });
        if !first.is_empty() {
            schema = with(schema, "prefixItems", first);
        }
        schema = items.into_iter().fold(schema, |schema, items| with(schema, "items", items));
        if least > 0 {
            schema = with(schema, "minItems", least);
        }
        if most > 2 { with(schema, "maxItems", most - 2) } else { schema }
    })
}
