use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample;
use serde_json::{Map, json};

use super::*;
use crate::config::ArgumentCheck;
use crate::error::Error;

/// Time limit for checks that normally take some milliseconds. The limit has a margin for slow machines.
const AT_ONCE: Duration = Duration::from_secs(20);

#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
fn manifest(schema: Json) -> Arc<Manifest> {
    let tool = json!({ "name": "t", "inputSchema": schema });
    Arc::new(serde_json::from_value(json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [tool] })).unwrap())
}

fn checks(mode: ArgumentCheck) -> ArgumentChecks {
    ArgumentChecks::new(Arc::default(), [("s".to_owned(), mode)].into())
}

fn object(value: &Json) -> Map<String, Json> {
    value.as_object().unwrap().clone()
}

/// Returns the problem of the arguments, or an empty text if there is no problem.
#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
pub(super) fn problem(schema: Json, arguments: Json) -> String {
    match checks(ArgumentCheck::Error).check("s", &manifest(schema), "t", object(&arguments)) {
        Ok((given, None)) => {
            assert_eq!(Json::Object(given), arguments, "what is sent is what was given");
            String::new()
        }
        Err(Error::InvalidArguments { what, problem }) => {
            assert_eq!(what.in_full(), "s.t");
            problem.in_full()
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn of(properties: &Json) -> Json {
    json!({ "type": "object", "properties": properties })
}

#[test]
fn arguments_that_fit_pass_and_no_default_is_filled_in() {
    let schema = json!({
        "type": "object",
        "properties": { "days": { "type": "integer", "default": 3 }, "units": { "enum": ["metric", "imperial"] } },
    });
    for arguments in [json!({}), json!({ "days": 3.0 }), json!({ "units": "metric", "more": [1] })] {
        assert_eq!(problem(schema.clone(), arguments), "");
    }
}

#[test]
fn a_problem_says_where_what_was_expected_and_what_there_was() {
    let properties = json!({
        "days": { "type": "integer", "minimum": 1, "exclusiveMaximum": 15 }, "units": { "enum": ["metric", "imperial"] },
        "code": { "type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[A-Z]+$" }, "step": { "multipleOf": 5 },
        "tags": { "type": ["array", "null"], "maxItems": 2, "minItems": 1, "uniqueItems": true, "items": { "type": "string" } },
        "version": { "const": 2 }, "never": false, "small": { "exclusiveMinimum": 0, "maximum": 1 }, "not": { "not": { "type": "null" } },
        "map": { "minProperties": 1, "maxProperties": 2 }, "has": { "contains": { "type": "integer" } },
        "pair": { "prefixItems": [{ "type": "string" }], "items": false },
    });
    for (arguments, expected) in [
        (json!({ "days": "three" }), r#"days: expected integer, got "three" (string)"#),
        (json!({ "days": 1.5 }), "days: expected integer, got 1.5 (number)"),
        (json!({ "days": null }), "days: expected integer, got null"),
        (json!({ "days": 0 }), "days: expected at least 1, got 0"),
        (json!({ "days": 15 }), "days: expected less than 15, got 15"),
        (json!({ "small": 0 }), "small: expected more than 0, got 0"),
        (json!({ "small": 2 }), "small: expected at most 1, got 2"),
        (json!({ "units": "celcius" }), r#"units: expected one of "metric", "imperial", got "celcius""#),
        (json!({ "code": "A" }), r#"code: expected at least 2 characters, got "A" (1)"#),
        (json!({ "code": "ABCD" }), r#"code: expected at most 3 characters, got "ABCD" (4)"#),
        (json!({ "code": "ab" }), r#"code: expected text that matches "^[A-Z]+$", got "ab""#),
        (json!({ "step": 7 }), "step: expected a multiple of 5, got 7"),
        (json!({ "tags": 1 }), "tags: expected array or null, got 1 (integer)"),
        (json!({ "tags": [] }), "tags: expected at least 1 items, got 0 items"),
        (json!({ "tags": ["a", "b", "c"] }), "tags: expected at most 2 items, got 3 items"),
        (json!({ "tags": ["a", "a"] }), r#"tags: expected items that all differ, got ["a","a"]"#),
        (json!({ "tags": ["a", { "b": 1 }] }), r#"tags[1]: expected string, got {"b":1} (object)"#),
        (json!({ "version": 1 }), "version: expected 2, got 1"),
        (json!({ "never": 1 }), "never: expected nothing here, got 1"),
        (json!({ "not": null }), "not: expected anything but null, got null"),
        (json!({ "map": {} }), "map: expected at least 1 parameters, got 0 parameters"),
        (json!({ "map": { "a": 1, "b": 2, "c": 3 } }), "map: expected at most 2 parameters, got 3 parameters"),
        (json!({ "has": ["x"] }), r#"has: expected an item that is integer, got ["x"]"#),
        (json!({ "pair": ["x", 1] }), "pair[1]: expected nothing here, got 1"),
    ] {
        assert_eq!(problem(of(&properties), arguments), expected);
    }
    assert_eq!(problem(json!({ "minProperties": 1 }), json!({})), "expected at least 1 parameters, got 0 parameters");
}

#[test]
fn a_format_is_an_annotation() {
    assert_eq!(problem(of(&json!({ "when": { "type": "string", "format": "date-time" } })), json!({ "when": "tomorrow" })), "");
}

#[test]
fn an_unknown_name_comes_with_the_one_that_was_meant() {
    let closed = json!({ "properties": { "city": {}, "units": {}, "größe": {} }, "additionalProperties": false });
    assert_eq!(problem(closed.clone(), json!({ "citty": 1 })), r#"unknown parameter "citty" at the top level; did you mean "city"?"#);
    assert_eq!(problem(closed.clone(), json!({ "größ": 1 })), r#"unknown parameter "größ" at the top level; did you mean "größe"?"#);
    assert_eq!(
        problem(closed.clone(), json!({ "foo": 1 })),
        r#"unknown parameter "foo" at the top level; there are: "city", "units", "größe""#
    );
    assert_eq!(
        problem(closed.clone(), json!({ "unit": 1, "foo": 1 })),
        r#"unknown parameters "unit" (did you mean "units"?), "foo" at the top level; there are: "city", "units", "größe""#
    );
    let inside = json!({ "properties": { "filters": { "items": closed } } });
    assert_eq!(
        problem(inside, json!({ "filters": [{}, { "citty": 1 }] })),
        r#"unknown parameter "citty" in filters[1]; did you mean "city"?"#
    );
    for none in [json!({ "additionalProperties": false }), json!({ "properties": {}, "additionalProperties": false })] {
        assert_eq!(problem(none.clone(), json!({ "x": 1 })), r#"unknown parameter "x" at the top level; there are none"#);
        let inside = of(&json!({ "additionalProperties": none }));
        assert_eq!(
            problem(inside, json!({ "additionalProperties": { "x": {}, "y": 1 } })),
            r#"unknown parameters "x", "y" in additionalProperties; there are none"#
        );
    }
    let never = of(&json!({ "additionalProperties": false }));
    assert_eq!(problem(never, json!({ "additionalProperties": {} })), "additionalProperties: expected nothing here, got {}");
    let unevaluated = json!({ "allOf": [{ "properties": { "city": {} } }], "unevaluatedProperties": false });
    assert_eq!(problem(unevaluated, json!({ "citty": 1 })), r#"unknown parameter "citty" at the top level; did you mean "city"?"#);
}

#[test]
fn a_missing_name_comes_with_the_one_that_was_given_for_it() {
    let schema = json!({ "properties": { "location": { "type": "string" }, "locations": {} }, "required": ["location"] });
    assert_eq!(problem(schema.clone(), json!({})), r#"missing required parameter "location""#);
    assert_eq!(problem(schema.clone(), json!({ "locaton": "x" })), r#"missing required parameter "location" (you gave "locaton")"#);
    // The similar name is another parameter of the schema, so it is not treated as a mistake.
    assert_eq!(problem(schema.clone(), json!({ "locations": "x" })), r#"missing required parameter "location""#);
    let mut closed = schema.clone();
    closed["additionalProperties"] = json!(false);
    assert_eq!(problem(closed, json!({ "locaton": "x" })), r#"missing required parameter "location" (you gave "locaton")"#);
    let inside = json!({ "properties": { "at": { "$ref": "#/$defs/place" } }, "$defs": { "place": schema } });
    assert_eq!(problem(inside, json!({ "at": { "Location": 1 } })), r#"missing required parameter "location" in at (you gave "Location")"#);
    let dependent = json!({ "dependentRequired": { "card": ["address"] } });
    assert_eq!(problem(dependent, json!({ "card": 1 })), r#"missing required parameter "address" (needed with "card")"#);
}

#[test]
fn of_alternatives_the_one_that_was_meant_is_spoken_of() {
    let shape = json!({ "shape": { "oneOf": [
        { "properties": { "kind": { "const": "circle" }, "radius": { "type": "number" } }, "required": ["kind", "radius"] },
        { "properties": { "kind": { "const": "square" }, "side": { "type": "number" } }, "required": ["kind", "side"] },
    ] } });
    for (given, expected) in [
        (json!({ "kind": "circle", "radius": "x" }), r#"shape.radius: expected number, got "x" (string)"#),
        (json!({ "kind": "square" }), r#"missing required parameter "side" in shape"#),
        (json!({ "kind": "circel", "radius": 1 }), r#"shape.kind: expected one of "circle", "square", got "circel""#),
    ] {
        assert_eq!(problem(of(&shape), json!({ "shape": given })), expected);
    }
    let value = |schema: Json, given: Json| problem(of(&json!({ "x": schema })), json!({ "x": given }));
    let text_or_list = json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }, { "type": "null" }] });
    assert_eq!(value(text_or_list.clone(), json!(1)), "x: expected string, array or null, got 1 (integer)");
    assert_eq!(value(text_or_list, json!(["a", 2])), "x[1]: expected string, got 2 (integer)");
    let word_or_null = json!({ "anyOf": [{ "enum": ["a", "b"] }, { "type": "null" }] });
    assert_eq!(value(word_or_null, json!("c")), r#"x: expected "a", "b" or null, got "c" (string)"#);
    let several = json!({ "anyOf": [{ "type": "string", "minLength": 9 }, { "type": "string", "pattern": "^x" }] });
    assert_eq!(value(several, json!("a")), r#"x: expected string, got "a" (string)"#);
    let both = json!({ "oneOf": [{ "type": "integer" }, { "type": "number" }] });
    assert_eq!(value(both, json!(1)), "x: expected exactly one of integer or number, got 1, which fits several");
    let either = json!({ "anyOf": [{ "required": ["id"] }, { "required": ["name"] }] });
    assert_eq!(problem(either, json!({})), r#"missing required parameter "id" or "name""#);
}

#[test]
fn names_that_are_not_allowed_say_why() {
    let schema = json!({ "propertyNames": { "maxLength": 3 } });
    assert_eq!(problem(schema, json!({ "long" : 1 })), r#"the name "long" at the top level is not allowed: expected at most 3 characters"#);
}

#[test]
fn a_few_violations_are_told_and_the_others_counted() {
    let schema = json!({ "additionalProperties": { "type": "string" } });
    let given = |count: usize| Json::Object((0..count).map(|number| (format!("p{number}"), json!(1))).collect());
    assert_eq!(problem(schema.clone(), given(4)).matches("expected string").count(), 3);
    assert!(problem(schema.clone(), given(4)).ends_with("; and 1 more"));
    assert!(problem(schema, given(1_000)).ends_with("; and 997 more"));
}

#[test]
fn what_is_quoted_is_short_and_in_one_line() {
    let text = format!("a\u{202e}\n{}", "b".repeat(5_000));
    let described = problem(of(&json!({ "x": { "type": "integer" } })), json!({ "x": text }));
    assert!(
        described.starts_with(r#"x: expected integer, got "a bbb"#)
            && described.ends_with("…\" (string)")
            && described.chars().count() < 110,
        "{described}"
    );
    let described = problem(of(&json!({ "x": { "type": "integer" } })), json!({ "x": vec![1; 100_000] }));
    assert!(described.contains("got [1,1,1") && described.ends_with("… (array)") && described.chars().count() < 110, "{described}");
    let names = |count: usize| Json::Object((0..count).map(|number| (format!("name{number}"), json!({}))).collect());
    let described = problem(json!({ "properties": names(30), "additionalProperties": false }), json!({ "x\u{7}\n": 1 }));
    assert!(described.ends_with(r#""name8", "name9" and 20 more"#), "{described}");
    let described = problem(json!({ "properties": { "a": {} }, "additionalProperties": false }), names(9));
    assert!(described.contains(r#""name4" and 4 more at the top level; there are: "a""#), "{described}");
}

#[test]
fn a_schema_that_is_none_takes_anything_and_false_takes_nothing() {
    for schema in [json!(true), json!({}), Json::Null] {
        assert_eq!(problem(schema, json!({ "x": 1 })), "");
    }
    for given in [json!({}), json!({ "x": 1 })] {
        assert!(problem(json!(false), given).starts_with("the tool's inputSchema is false"));
    }
    let (checks, manifest) = (checks(ArgumentCheck::Error), manifest(json!(false)));
    assert!(checks.check("s", &manifest, "another", Map::new()).is_ok(), "whether there is such a tool is for others to say");
}

#[test]
fn a_schema_with_two_thousand_parameters_is_checked() {
    let properties: Map<_, _> = (0..2_000).map(|number| (format!("parameter{number}"), json!({ "type": "string" }))).collect();
    let schema = json!({ "properties": properties, "required": ["parameter7"], "additionalProperties": false });
    assert_eq!(problem(schema.clone(), json!({ "parameter7": "x" })), "");
    let described = problem(schema, json!({ "parameter7": 1, "paramter8": "x" }));
    assert!(
        described.contains("parameter7: expected string")
            && described.contains(r#""paramter8" at the top level; did you mean "parameter8"?"#)
    );
}

#[test]
fn a_schema_that_cannot_be_used_is_said_once_and_checks_nothing() {
    for schema in
        [json!({ "type": "object", "description": "x".repeat(5 * 1024 * 1024) }), json!({ "$dynamicRef": "#x" }), json!("no schema")]
    {
        let (checks, manifest) = (checks(ArgumentCheck::Error), manifest(schema));
        let warning = checks.check("s", &manifest, "t", Map::new()).unwrap().1.unwrap();
        assert!(warning.starts_with("the arguments of s.t are not checked, because its inputSchema cannot be used: "), "{warning}");
        assert_eq!(checks.check("s", &manifest, "t", Map::new()).unwrap(), (Map::new(), None));
    }
}

#[test]
fn a_server_can_be_lenient_and_both_its_schemas_are_kept_apart() {
    let (bad, schema) = (object(&json!({ "days": "x" })), of(&json!({ "days": { "type": "integer" } })));
    let error = ArgumentChecks::default().check("other", &manifest(schema.clone()), "t", bad.clone()).unwrap_err();
    assert_eq!(error.code(), "ERR_INVALID_ARGUMENTS");
    let text = r#"the arguments of other.t are not valid: days: expected integer, got "x" (string)"#;
    assert_eq!(error.in_full(), text);
    let (sent, warning) = checks(ArgumentCheck::Warn).check("s", &manifest(schema.clone()), "t", bad.clone()).unwrap();
    assert_eq!((sent, warning.unwrap().contains("s.t do not fit its inputSchema: days: ")), (bad.clone(), true));
    assert_eq!(checks(ArgumentCheck::Off).check("s", &manifest(schema), "t", bad.clone()).unwrap(), (bad, None));
    let both = manifest(json!({ "type": "object" }));
    let schemas = ToolSchemas::default();
    let compiled = |side| schemas.compiled("s", &both, &both.tools[0], side);
    assert!(Arc::ptr_eq(&compiled(Side::Input), &compiled(Side::Input)));
    assert!(!Arc::ptr_eq(&compiled(Side::Input), &compiled(Side::Output)));
}

#[test]
fn hostile_schemas_and_arguments_take_little_time_and_memory() {
    let started = Instant::now();
    let long = |number: usize| format!("{}{number}", "n".repeat(100));
    let names: Map<_, _> = (0..2_000).map(|number| (long(number), json!({}))).collect();
    let closed = json!({ "properties": names, "additionalProperties": false });
    let given = Json::Object((5_000..6_000).map(|number| (long(number), json!(1))).collect());
    assert!(problem(closed, given).starts_with("unknown parameters"));
    // The validator would copy the whole value once for each subschema of `anyOf`.
    let alternatives: Vec<_> = (0..1_000).map(|number| json!({ "required": [format!("r{number}")] })).collect();
    let large = json!({ "x": vec!["y".repeat(1_000); 500] });
    assert_eq!(problem(json!({ "anyOf": alternatives }), large), "they do not fit the tool's inputSchema");
    let deep = (0..12).fold(json!({ "type": "string" }), |inner, _| json!({ "anyOf": [inner, { "type": "null" }] }));
    assert!(problem(of(&json!({ "x": deep })), json!({ "x": 1 })).starts_with("x: expected"));
    let recursive = json!({ "properties": { "x": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] } }, "additionalProperties": false });
    let nested = (0..60).fold(json!({ "y": 1 }), |inner, _| json!({ "x": inner }));
    assert!(problem(recursive, nested).len() < 2_000);
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
}

/// Generates one of a few names, so that schemas and values often contain the same names.
fn name() -> impl Strategy<Value = String> {
    sample::select(vec!["a", "ab", "abc", "a b", "größe", "0", ""]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Json> {
    let leaf =
        prop_oneof![Just(Json::Null), any::<bool>().prop_map(Json::from), (-2..3_i32).prop_map(Json::from), name().prop_map(Json::from)];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let list = vec(inner.clone(), 0..4).prop_map(Json::from);
        prop_oneof![list, vec((name(), inner), 0..4).prop_map(|fields| Json::Object(fields.into_iter().collect()))]
    })
}

fn schema() -> impl Strategy<Value = Json> {
    let types = sample::select(vec!["string", "integer", "number", "boolean", "null", "array", "object"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Json::from),
        types.prop_map(|name| json!({ "type": name })),
        vec(value(), 1..4).prop_map(|options| json!({ "enum": options })),
        value().prop_map(|value| json!({ "const": value })),
        (-1..3_i32).prop_map(|limit| json!({ "minimum": limit, "maxLength": 1, "maxItems": 1, "uniqueItems": true, "minProperties": 1 })),
        Just(json!({ "pattern": "^a", "multipleOf": 2, "exclusiveMaximum": 1 })),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let several = (sample::select(vec!["anyOf", "oneOf", "allOf"]), vec(inner.clone(), 1..4));
        let fields = (vec((name(), inner.clone()), 0..4), vec(name(), 0..3), inner.clone(), any::<bool>());
        prop_oneof![
            several.prop_map(|(key, parts)| json!({ key: parts })),
            (inner.clone(), sample::select(vec!["not", "items", "contains", "propertyNames"])).prop_map(|(part, key)| json!({ key: part })),
            fields.prop_map(|(properties, mut required, rest, closed)| {
                required.sort();
                required.dedup();
                let properties: Map<_, _> = properties.into_iter().collect();
                let key = if closed { "additionalProperties" } else { "unevaluatedProperties" };
                json!({ "properties": properties, "required": required, key: rest })
            }),
        ]
    })
}

#[test]
fn a_secret_is_not_quoted_by_its_beginning() {
    let secret = format!("tok-{}", "0123456789abcdef".repeat(6));
    let redactor = crate::redact::Redactor::new(None, None);
    redactor.add([&secret.clone().into()]);
    let checks = checks(ArgumentCheck::Error).with_redactor(Arc::new(redactor));
    let described = |schema: Json| {
        let arguments = object(&json!({ "x": format!("of a caller: {secret}") }));
        checks.check("s", &manifest(json!({ "properties": { "x": schema } })), "t", arguments).unwrap_err().in_full()
    };
    assert!(described(json!({ "type": "integer" })).contains("of a caller: [redacted]"));
    assert!(described(json!({ "maxLength": 30 })).contains("contains a secret"));
}

proptest! {
    #[test]
    fn arguments_are_refused_where_they_break_the_schema_and_always_in_a_few_words(
        schema in schema(),
        fields in vec((name(), value()), 0..4),
    ) {
        let arguments = Json::Object(fields.into_iter().collect());
        let fits = jsonschema::options().should_validate_formats(false).build(&schema).unwrap().is_valid(&arguments);
        let described = problem(schema, arguments);
        prop_assert_eq!(fits, described.is_empty(), "{}", described);
        prop_assert!(described.chars().count() < 1_100);
    }
}

#[test]
fn hints_for_many_unknown_names_take_bounded_work() {
    let filler = "q".repeat(40);
    let properties: Map<_, _> = (0..2_000).map(|index| (format!("p{index}{filler}"), json!({ "type": "string" }))).collect();
    let schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let nested = json!({ "type": "object", "properties": { "list": { "type": "array", "items": schema } } });
    let unknown = |count: usize| -> Map<_, _> { (0..count).map(|index| (format!("p{index}{filler}x"), json!("v"))).collect() };
    let work = |schema: &Json, arguments: Json| {
        let before = crate::text::comparisons();
        let problem = problem(schema.clone(), arguments);
        assert!(problem.contains("unknown parameter"), "{problem}");
        crate::text::comparisons() - before
    };
    let (few, many) = (work(&schema, json!(unknown(5))), work(&schema, json!(unknown(8_000))));
    assert!(few <= 1_000_000 && many <= 1_000_000, "{few} and {many} comparisons");
    let in_objects = work(&nested, json!({ "list": vec![unknown(5); 20] }));
    assert!(in_objects <= 3_000_000, "{in_objects} comparisons");
}
