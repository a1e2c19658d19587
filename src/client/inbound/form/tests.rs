use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::Form;

#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
fn form(properties: Json, required: &[&str]) -> Form {
    Form::parse(&json!({ "type": "object", "properties": properties, "required": required })).unwrap()
}

fn refused(schema: &Json) -> String {
    Form::parse(schema).unwrap_err()
}

/// Checks a value against a form with one field `x`. Returns the problem, if any.
#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
fn wrong(property: Json, value: Json) -> Option<String> {
    let filled = form(json!({ "x": property }), &[]).fill(Some(&json!({ "x": value })));
    filled.err().map(|problems| problems[0].to_string())
}

#[test]
fn every_kind_of_default_is_filled_in_where_the_answer_leaves_its_field_out() {
    let form = form(
        json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
            "tags": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] }, "default": ["b"] },
            "none": { "type": "string" },
        }),
        &["name"],
    );
    let defaults = json!({ "name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": true, "tags": ["b"] });
    assert_eq!(json!(form.fill(None).unwrap()), defaults);
    assert_eq!(json!(form.fill(Some(&json!({}))).unwrap()), defaults);
    let filled = form.fill(Some(&json!({ "verified": false, "tags": [] }))).unwrap();
    assert_eq!((&filled["verified"], &filled["tags"], &filled["age"]), (&json!(false), &json!([]), &json!(30)));
}

#[test]
fn a_default_that_its_own_field_refuses_is_none() {
    let form =
        form(json!({ "a": { "type": "integer", "default": "3" }, "b": { "type": "string", "format": "email", "default": "" } }), &["a"]);
    let problems = form.fill(None).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].to_string(), "\"a\" is required");
}

#[test]
fn all_problems_are_told_at_once_with_their_fields() {
    let form = form(json!({ "a": { "type": "string" }, "b": { "type": "boolean" }, "c": { "type": "number" } }), &["c"]);
    let problems = form.fill(Some(&json!({ "b": "yes", "a": 1, "z": 1 }))).unwrap_err();
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["\"z\" is not a field of the form", "\"a\" must be a string", "\"b\" must be true or false", "\"c\" is required"]);
    assert_eq!(form.fill(Some(&json!([]))).unwrap_err()[0].to_string(), "the content must be an object");
}

#[test]
fn texts_have_lengths_in_characters_formats_and_patterns() {
    let text = json!({ "type": "string", "minLength": 2, "maxLength": 3.0 });
    assert_eq!(wrong(text.clone(), json!("äöü")), None);
    assert_eq!(wrong(text.clone(), json!("ä")).unwrap(), "\"x\" must have at least 2 characters, not 1");
    assert_eq!(wrong(text, json!("abcd")).unwrap(), "\"x\" must have at most 3 characters, not 4");
    assert_eq!(wrong(json!({ "type": "string", "format": "date" }), json!("today")).unwrap(), "\"x\" must be a date like 2025-11-25");
    let pattern = json!({ "type": "string", "pattern": "^[A-Z]+$" });
    assert_eq!(wrong(pattern.clone(), json!("ABC")), None);
    assert!(wrong(pattern, json!("abc")).unwrap().contains("^[A-Z]+$"));
}

#[test]
fn what_this_client_cannot_check_is_left_to_the_server() {
    assert_eq!(wrong(json!({ "type": "string", "pattern": "^(?=a)b" }), json!("anything")), None);
    assert_eq!(wrong(json!({ "type": "string", "format": "postcode", "x-order": 1 }), json!("anything")), None);
}

#[test]
fn numbers_have_ranges_to_the_last_digit() {
    let number = json!({ "type": "number", "minimum": 0.5, "maximum": 2 });
    assert_eq!(wrong(number.clone(), json!(0.5)), None);
    assert_eq!(wrong(number.clone(), json!(0.25)).unwrap(), "\"x\" must be at least 0.5");
    assert_eq!(wrong(number, json!(2.5)).unwrap(), "\"x\" must be at most 2");
    let integer = json!({ "type": "integer", "maximum": 9_007_199_254_740_993_u64 });
    assert_eq!(wrong(integer.clone(), json!(3.0)), None);
    assert_eq!(wrong(integer.clone(), json!(3.5)).unwrap(), "\"x\" must be a whole number");
    assert_eq!(wrong(integer.clone(), json!(9_007_199_254_740_993_u64)), None);
    assert!(wrong(integer, json!(9_007_199_254_740_994_u64)).is_some());
}

#[test]
fn a_choice_is_one_of_those_offered_in_every_way_of_writing_them() {
    for property in [
        json!({ "type": "string", "enum": ["r", "g"] }),
        json!({ "type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"] }),
        json!({ "type": "string", "oneOf": [{ "const": "r", "title": "Red" }, { "const": "g", "title": "Green" }] }),
        json!({ "enum": ["r", "g"] }),
    ] {
        assert_eq!(wrong(property.clone(), json!("g")), None);
        assert_eq!(wrong(property.clone(), json!("Green")).unwrap(), "\"x\" must be one of \"r\", \"g\"");
        assert_eq!(wrong(property, json!(["g"])).unwrap(), "\"x\" must be a string");
    }
}

#[test]
fn several_choices_are_counted_and_none_is_taken_twice() {
    for items in
        [json!({ "type": "string", "enum": ["r", "g", "b"] }), json!({ "anyOf": [{ "const": "r" }, { "const": "g" }, { "const": "b" }] })]
    {
        let property = json!({ "type": "array", "items": items, "minItems": 1, "maxItems": 2 });
        assert_eq!(wrong(property.clone(), json!(["r", "b"])), None);
        assert_eq!(wrong(property.clone(), json!([])).unwrap(), "\"x\" must have at least 1 choices, not 0");
        assert_eq!(wrong(property.clone(), json!(["r", "g", "b"])).unwrap(), "\"x\" must have at most 2 choices, not 3");
        assert_eq!(wrong(property.clone(), json!(["r", "r"])).unwrap(), "\"x\" contains \"r\" twice");
        assert!(wrong(property.clone(), json!(["x"])).unwrap().contains("one of"));
        assert!(wrong(property, json!([1])).unwrap().contains("one of"));
    }
}

#[test]
fn what_is_no_flat_form_is_refused_with_the_reason() {
    let of = |property: Json| refused(&json!({ "type": "object", "properties": { "x": property } }));
    assert!(of(json!({ "type": "object", "properties": {} })).contains("\"x\" is an object"));
    assert!(of(json!({ "$ref": "#/x" })).contains("$ref"));
    assert!(of(json!({ "type": "string", "allOf": [] })).contains("allOf"));
    assert!(of(json!({ "type": ["string", "null"] })).contains("\"type\""));
    assert!(of(json!({ "type": "array", "items": { "type": "string" } })).contains("list"));
    assert!(of(json!({ "type": "string", "enum": [1] })).contains("not strings"));
    assert!(of(json!({ "type": "string", "enum": [] })).contains("enum"));
    assert!(of(json!({ "type": "string", "minLength": -1 })).contains("minLength"));
    assert!(of(json!({ "type": "number", "minimum": "1" })).contains("minimum"));
    assert!(of(json!(true)).contains("no schema"));
    assert!(refused(&json!([])).contains("not an object"));
    assert!(refused(&json!({ "type": "string" })).contains("type"));
    assert!(refused(&json!({ "type": "object", "$defs": {} })).contains("$defs"));
    assert!(refused(&json!({ "type": "object", "required": ["x"] })).contains("not one of its fields"));
}

#[test]
fn an_absurd_form_is_refused_by_a_limit_and_costs_little() {
    let large = json!({ "type": "object", "properties": { "x": { "type": "string", "description": "x".repeat(5_000_000) } } });
    assert!(refused(&large).contains("262144 bytes"));
    let fields =
        |count: usize| (0..count).map(|number| (format!("f{number}"), json!({ "type": "null" }))).collect::<serde_json::Map<_, _>>();
    assert!(refused(&json!({ "type": "object", "properties": fields(10_000) })).contains("10000 fields"));
    let choices: Vec<_> = (0..2_001).map(|number| number.to_string()).collect();
    let of = |property: Json| refused(&json!({ "type": "object", "properties": { "x": property } }));
    assert!(of(json!({ "type": "string", "enum": choices })).contains("2001 choices"));
    assert!(of(json!({ "type": "string", "pattern": "a".repeat(1_025) })).contains("pattern"));
    assert!(of(json!({ "type": "string", "pattern": "(((a{99}){99}){99}){99}" })).contains("too much"));
    let mut deep = json!("x");
    for _ in 0..120 {
        deep = json!({ "properties": deep });
    }
    assert!(of(deep).contains("\"x\""));
}

#[test]
fn a_servers_names_cannot_drive_a_terminal() {
    let form = form(json!({ "a\u{1b}[2J": { "type": "boolean" } }), &["a\u{1b}[2J"]);
    let told = form.fill(None).unwrap_err()[0].to_string();
    assert!(!told.contains('\u{1b}') && told.contains("is required"), "{told:?}");
}

fn any_json() -> impl Strategy<Value = Json> {
    let words = prop::sample::select(vec!["object", "string", "array", "number", "integer", "boolean", "a", "email", "^a+$", "(?=x)", ""]);
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-3_i64..5).prop_map(Json::from),
        Just(json!(1.5)),
        words.prop_map(Json::from)
    ];
    let keys = prop::sample::select(vec![
        "type",
        "properties",
        "required",
        "enum",
        "oneOf",
        "anyOf",
        "const",
        "items",
        "default",
        "minLength",
        "maximum",
        "pattern",
        "format",
        "x",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((keys.clone(), inner), 0..5)
                .prop_map(|fields| Json::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    })
}

fn any_property() -> impl Strategy<Value = Json> {
    let limits = (0_u64..3, 2_u64..5);
    prop_oneof![
        limits.clone().prop_map(|(least, most)| json!({ "type": "string", "minLength": least, "maxLength": most })),
        (-5_i64..0, 0_i64..5).prop_map(|(least, most)| json!({ "type": "integer", "minimum": least, "maximum": most, "default": most })),
        Just(json!({ "type": "number", "maximum": 2.5 })),
        Just(json!({ "type": "boolean", "default": true })),
        Just(json!({ "type": "string", "enum": ["a", "b"], "default": "c" })),
        Just(json!({ "type": "string", "oneOf": [{ "const": "a", "title": "A" }], "default": "a" })),
        limits.prop_map(|(least, most)| {
            json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b", "c"] }, "minItems": least, "maxItems": most, "uniqueItems": true })
        }),
    ]
}

fn any_value() -> impl Strategy<Value = Json> {
    let word = prop::sample::select(vec!["", "a", "b", "c", "abc", "äöü", "abcdef"]).prop_map(Json::from);
    prop_oneof![
        word.clone(),
        (-7_i64..7).prop_map(Json::from),
        (-4.0..4.0).prop_map(Json::from),
        any::<bool>().prop_map(Json::from),
        Just(Json::Null),
        prop::collection::vec(word, 0..5).prop_map(Json::from),
    ]
}

proptest! {
    #[test]
    fn whatever_a_server_asks_for_is_a_form_or_refused(schema in any_json(), content in any_json()) {
        let _ = Form::parse(&schema).map(|form| form.fill(Some(&content)));
        let _ = Form::parse(&json!({ "type": "object", "properties": { "x": schema } })).map(|form| form.fill(Some(&json!({ "x": content }))));
    }

    #[test]
    fn what_is_sent_is_what_the_schema_asks_for_and_stays_as_it_is_when_filled_again(
        properties in prop::collection::btree_map("[a-d]", any_property(), 0..4),
        content in prop::collection::btree_map("[a-e]", any_value(), 0..4),
        all_required in any::<bool>(),
    ) {
        let required: Vec<_> = properties.keys().filter(|_| all_required).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        let form = Form::parse(&schema).unwrap();
        let accepts = jsonschema::validator_for(&schema).unwrap();
        match form.fill(Some(&json!(content))) {
            Ok(filled) => {
                let filled = Json::Object(filled);
                prop_assert!(accepts.is_valid(&filled), "{} {}", schema, filled);
                prop_assert_eq!(&Json::Object(form.fill(Some(&filled)).unwrap()), &filled);
                for (name, value) in &content {
                    prop_assert_eq!(&filled[name], value);
                }
            }
            // A missing default alone does not make `fill` refuse the content, so the schema must refuse the content as well.
            Err(_) => prop_assert!(!accepts.is_valid(&json!(content)), "{} {}", schema, json!(content)),
        }
    }
}
