use std::time::{Duration, Instant};

use serde_json::json;

use super::output::{MAX_DESCRIBED, MAX_TEXT_CHARS, problem};
use super::*;
use crate::config::SchemaViolations;

/// Time limit for slow machines. Without the guard, these checks would take years.
const AT_ONCE: Duration = Duration::from_secs(20);

#[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
fn manifest(schema: Json) -> Arc<Manifest> {
    let tool = json!({ "name": "t", "inputSchema": {}, "outputSchema": schema });
    Arc::new(serde_json::from_value(json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [tool] })).unwrap())
}

fn check(schema: Json, content: &Json) -> Option<SchemaProblem> {
    problem(&ToolSchemas::default(), "s", &manifest(schema), "t", &json!({ "content": [], "structuredContent": content }))
}

fn broken(schema: Json, content: &Json) -> String {
    match check(schema, content) {
        Some(SchemaProblem::Broken(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

fn unchecked(schema: Json, content: &Json) -> String {
    match check(schema, content) {
        Some(SchemaProblem::Unchecked(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

fn nested(levels: usize, leaf: Json) -> Json {
    (0..levels).fold(leaf, |inner, _| json!({ "x": inner }))
}

/// Returns the definitions `a0` to `a{count}`. `link` makes each definition from a reference to the next definition. `last` is the last
/// definition.
fn chained(count: usize, link: impl Fn(Json) -> Json, last: Json) -> Json {
    let reference = |number: usize| json!({ "$ref": format!("#/$defs/a{number}") });
    let mut definitions: serde_json::Map<_, _> = (0..count).map(|number| (format!("a{number}"), link(reference(number + 1)))).collect();
    definitions.insert(format!("a{count}"), last);
    json!({ "$ref": "#/$defs/a0", "$defs": definitions })
}

#[test]
fn a_result_that_fits_is_nothing_to_speak_of() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"] });
    assert_eq!(check(schema.clone(), &json!({ "n": 1, "more": true })), None);
    assert_eq!(broken(schema.clone(), &json!({ "n": "1" })), "structuredContent/n: value is not of type \"integer\"");
    assert!(broken(schema.clone(), &json!({})).starts_with("structuredContent: \"n\" is a required property"));
    assert!(broken(schema, &Json::Null).starts_with("structuredContent: "));
}

#[test]
fn a_few_violations_are_told_in_a_few_words() {
    let schema = json!({ "additionalProperties": { "type": "string" } });
    let described = broken(schema.clone(), &json!({ "a": 1, "b": 2, "c": 3, "d": 4 }));
    assert_eq!(described.matches("structuredContent/").count(), MAX_DESCRIBED);
    let described = broken(schema, &json!({ "x".repeat(5_000): 1 }));
    assert!(described.chars().count() <= MAX_TEXT_CHARS && described.ends_with('…'));
}

#[test]
fn a_violation_does_not_tell_the_value() {
    assert!(!broken(json!({ "type": "integer" }), &json!("hunter2")).contains("hunter2"));
}

#[test]
fn a_missing_structured_content_is_a_violation_and_a_failure_is_none() {
    let (schemas, manifest) = (ToolSchemas::default(), manifest(json!({ "type": "object" })));
    let check = |result: Json| problem(&schemas, "s", &manifest, "t", &result);
    assert!(matches!(check(json!({ "content": [] })), Some(SchemaProblem::Broken(problem)) if problem.contains("missing")));
    assert_eq!(check(json!({ "content": [], "isError": true })), None);
    assert_eq!(check(json!({ "structuredContent": 1, "isError": true })), None);
}

#[test]
fn references_within_the_schema_are_followed_and_recursion_is_fine() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/a~1b%20c",
        "definitions": { "a/b c": { "type": "object", "properties": { "x": { "$ref": "#/definitions/a~1b%20c" } } } },
    });
    assert_eq!(check(schema.clone(), &nested(60, json!({}))), None);
    assert!(broken(schema, &nested(60, json!(1))).contains("not of type \"object\""));
}

#[test]
fn nothing_is_fetched_for_a_schema() {
    for reference in ["https://example.com/a.json", "file:///etc/passwd", "/etc/passwd", "other.json#/x", "#anchor", "#/properties"] {
        let schema = json!({ "properties": { "x": { "$ref": reference } }, "required": ["x"] });
        assert_eq!(check(schema.clone(), &json!({ "x": 1 })), None);
        assert!(broken(schema, &json!({})).contains("required"), "the rest of the schema counts");
    }
    let elsewhere = json!({ "$id": "https://example.com/a", "properties": { "x": { "$id": "https://example.com/b", "type": "string" } } });
    assert!(unchecked(elsewhere, &json!({ "x": 1 })).contains("$id"));
    // The root's `$id` is allowed and has no effect.
    assert_eq!(check(json!({ "$id": "https://example.com/a", "type": "object" }), &json!({})), None);
}

#[test]
fn an_invalid_or_absurd_schema_is_skipped_and_that_is_said_once() {
    let schemas = ToolSchemas::default();
    for schema in [
        json!({ "type": "object", "description": "x".repeat(MAX_SCHEMA) }),
        json!({ "properties": (0..6_000).map(|number| (number.to_string(), json!(true))).collect::<serde_json::Map<_, _>>() }),
        json!({ "properties": (0..65).map(|number| (number.to_string(), json!({ "pattern": "a" }))).collect::<serde_json::Map<_, _>>() }),
        json!({ "$dynamicRef": "#x" }),
    ] {
        let manifest = manifest(schema);
        let check = || problem(&schemas, "s", &manifest, "t", &json!({ "structuredContent": 1 }));
        assert!(matches!(check(), Some(SchemaProblem::Unchecked(reason)) if !reason.is_empty()));
        assert_eq!(check(), None);
    }
}

const MAX_SCHEMA: usize = guard::MAX_SCHEMA_BYTES;

#[test]
fn a_schema_that_would_compile_or_compare_for_ever_is_refused_or_given_up() {
    let started = Instant::now();
    let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "allOf": [{ "$ref": "#/$defs/a" }] } } });
    assert!(unchecked(circle, &json!(1)).contains("cycle"));
    for keyword in ["allOf", "anyOf"] {
        let twice = |next: Json| json!({ keyword: [next.clone(), next], "unevaluatedProperties": false });
        assert!(unchecked(chained(40, twice, json!({ "type": "string" })), &json!({})).contains("too many"));
    }
    let far = chained(3_000, |next| next, json!({ "type": "object" }));
    assert!(unchecked(far, &json!({})).contains("nested parts"));
    // Each level doubles the number of comparisons, so the check would practically never end.
    let twice = json!({ "properties": { "x": { "$ref": "#/$defs/r" } } });
    let doubling = json!({ "$ref": "#/$defs/r", "$defs": { "r": { "type": "object", "allOf": [twice, twice] } } });
    for leaf in [json!({}), json!(1)] {
        assert!(unchecked(doubling.clone(), &nested(60, leaf)).contains("too long"));
    }
    assert_eq!(check(doubling.clone(), &nested(10, json!({}))), None);
    let kinds: Vec<_> = (0..1_500).rev().map(|least| json!({ "minimum": least })).collect();
    let wide = json!({ "items": { "anyOf": kinds } });
    assert!(unchecked(wide.clone(), &json!(vec![1; 20_000])).contains("too long"));
    assert_eq!(check(wide, &json!(vec![1; 1_000])), None);
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
}

#[test]
fn deep_content_and_deep_schemas_do_not_overflow_a_small_stack() {
    let through = |next: Json| json!({ "allOf": [next] });
    let recursive = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/a0" } } });
    let deepest = [chained(3, through, recursive.clone()), chained(45, through, recursive)];
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(move || {
        let [shallow, deep] = deepest;
        assert_eq!(check(shallow.clone(), &nested(90, json!({}))), None);
        assert!(matches!(check(shallow, &nested(90, json!(1))), Some(SchemaProblem::Broken(_))));
        assert!(unchecked(deep, &nested(90, json!({}))).contains("nested too deep"));
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn ordinary_results_of_some_size_are_checked() {
    let row = json!({ "type": "object", "properties": { "id": { "type": "integer" }, "name": { "type": "string" } }, "required": ["id"] });
    let schema = json!({ "type": "object", "properties": { "rows": { "type": "array", "items": row } } });
    let rows = |last: Json| (0..10_000).map(|id| json!({ "id": id, "name": "n" })).chain([last]).collect::<Vec<_>>();
    assert_eq!(check(schema.clone(), &json!({ "rows": rows(json!({ "id": 1 })) })), None);
    assert_eq!(
        broken(schema, &json!({ "rows": rows(json!({ "id": "1" })) })),
        "structuredContent/rows/10000/id: value is not of type \"integer\""
    );
}

#[test]
fn a_pattern_takes_time_that_is_linear_in_the_text() {
    let text = |length: usize| "a".repeat(length) + "!";
    let started = Instant::now();
    assert!(broken(json!({ "pattern": "^(a+)+$" }), &json!(text(20_000))).contains("does not match"));
    assert!(!broken(json!({ "pattern": "^(a+)+$" }), &json!(text(200_000))).is_empty());
    assert!(started.elapsed() < AT_ONCE);
    // A pattern that only a backtracking engine can match is left out. The rest of the schema still applies.
    let lookahead = json!({ "type": "string", "pattern": "^(?!b)a" });
    assert_eq!(check(lookahead.clone(), &json!("b")), None);
    assert!(broken(lookahead, &json!(1)).contains("type"));
    assert!(check(json!({ "pattern": "((a{99}){99}){99}" }), &json!("b")).is_none(), "a pattern that is too large counts as unknown");
}

#[test]
fn a_pattern_with_a_large_automaton_is_compared_with_short_texts_only() {
    let schema = json!({ "pattern": "^(?:[ab]*a[ab]{3000}c|x)$" });
    let text = |length: usize| json!("ab".repeat(length / 2));
    assert!(broken(schema.clone(), &text(200)).contains("does not match"));
    assert!(unchecked(schema.clone(), &text(100_000)).contains("too long"));
    let names = json!({ "patternProperties": { "^(?:[ab]*a[ab]{3000}c|x)$": true } });
    assert!(unchecked(names, &json!({ "ab".repeat(50_000): 1 })).contains("too long"));
    let names = json!({ "propertyNames": schema });
    assert!(unchecked(names, &json!({ "ab".repeat(50_000): 1 })).contains("too long"));
    // What two servers hold with such texts is not the time of others.
    let manifest = manifest(json!({ "items": { "pattern": "^(?:[ab]*a[ab]{3000}c|x)$" } }));
    let schemas = ToolSchemas::default();
    let is_quick = |content: Json| {
        let compiled = schemas.compiled("s", &manifest, &manifest.tools[0], Side::Output);
        compiled.get_or_init(|| Compiled::new(manifest.tools[0].output_schema.as_ref().unwrap())).is_quick(&content)
    };
    assert!(is_quick(json!(["a"])) && !is_quick(json!([text(1_000)])));
}

#[test]
fn patterns_with_very_many_classes_and_large_numbers_take_no_time() {
    let started = Instant::now();
    let folded = |classes: usize| format!("(?i:{})", r"\p{L}".repeat(classes));
    let many: serde_json::Map<_, _> = (0..64).map(|number| (format!("a{number}"), json!({ "pattern": folded(100 + number) }))).collect();
    for schema in [json!({ "pattern": folded(40_000) }), json!({ "properties": many, "type": "object" })] {
        assert_eq!(check(schema, &json!({ "a0": "!" })), None);
    }
    let divided = json!({ "items": { "allOf": vec![json!({ "multipleOf": 0.5 }); 40] } });
    assert_eq!(check(divided.clone(), &json!(vec![1.234_567_890_123_456_7e308; 3_000])), None);
    assert!(broken(divided, &json!([0.7])).contains("the number is not a multiple of 0.5"));
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
}

#[test]
fn items_that_all_differ_are_told_from_others_however_they_are_nested() {
    let unique = json!({ "allOf": vec![json!({ "uniqueItems": true }); 50] });
    let deep = |depth: usize| (0..depth).fold(json!([]), |inner, _| json!([inner]));
    let items: Vec<_> = (0..10_000_usize).map(|number| json!([deep(number % 100), deep(number / 100)])).collect();
    let started = Instant::now();
    // 50 comparisons of each list within each item are too many.
    assert!(unchecked(unique.clone(), &json!(items)).contains("too long"));
    assert_eq!(check(json!({ "uniqueItems": true }), &json!(items[..5_000])), None);
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    assert!(broken(unique, &json!([[1], [1.0]])).contains("the items are not all different"));
    let many: Vec<_> = (0..20_000).map(|number| json!({ "id": number, "name": "n" })).collect();
    assert_eq!(check(json!({ "items": { "type": "object" }, "uniqueItems": true }), &json!(many)), None, "a long ordinary list is checked");
}

#[test]
fn a_property_that_is_called_like_a_keyword_is_a_property() {
    let schema =
        json!({ "properties": { "$ref": { "type": "string" }, "allOf": { "type": "integer" }, "enum": { "const": { "type": 1 } } } });
    assert_eq!(check(schema.clone(), &json!({ "$ref": "x", "allOf": 1, "enum": { "type": 1 } })), None);
    assert!(broken(schema, &json!({ "enum": { "type": 2 } })).starts_with("structuredContent/enum: "));
}

#[test]
fn a_schema_is_compiled_once_and_anew_when_it_is_another() {
    let schemas = ToolSchemas::default();
    let compiled = |manifest: &Arc<Manifest>| schemas.compiled("s", manifest, &manifest.tools[0], Side::Output);
    let (one, same, other) = (manifest(json!({ "type": "object" })), manifest(json!({ "type": "object" })), manifest(json!({})));
    let first = compiled(&one);
    assert!(Arc::ptr_eq(&first, &compiled(&one)) && Arc::ptr_eq(&first, &compiled(&same)));
    assert!(!Arc::ptr_eq(&first, &compiled(&other)));
    assert_eq!(schemas.kept.lock().entries.len(), 1);
}

#[test]
fn what_is_kept_is_bounded() {
    let schemas = ToolSchemas::default();
    let large = manifest(json!({ "description": "x".repeat(MAX_KEPT_BYTES / 4) }));
    for server in 0..10 {
        let _ = schemas.compiled(&server.to_string(), &large, &large.tools[0], Side::Output);
        let kept = schemas.kept.lock();
        assert!(kept.bytes <= MAX_KEPT_BYTES && kept.entries.len() == kept.order.len() && kept.entries.len() <= 3);
    }
}

#[test]
fn a_server_can_be_strict_and_others_only_warn() {
    let checks = OutputChecks::new(Arc::default(), [("strict".to_owned(), SchemaViolations::Error)].into());
    let (manifest, result) = (manifest(json!({ "type": "object" })), json!({ "structuredContent": 1 }));
    let warning = checks.check("other", &manifest, "t", &result).unwrap().unwrap();
    assert!(warning.contains("other.t") && warning.contains("structuredContent: "), "{warning}");
    let error = checks.check("strict", &manifest, "t", &result).unwrap_err();
    assert_eq!(error.code(), "ERR_OUTPUT_SCHEMA");
    assert!(error.in_full().contains("strict.t"), "{error}");
    assert_eq!(checks.check("strict", &manifest, "t", &json!({ "structuredContent": {} })).unwrap(), None);
}
