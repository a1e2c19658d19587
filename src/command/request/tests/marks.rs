//! Tests that an approval request shows each text in a schema that a model can read. The texts contain marks, which must appear in the
//! request.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

/// Schema keywords whose value is one schema.
const ONE: [&str; 5] = ["items", "additionalProperties", "not", "if", "contains"];
/// Schema keywords whose value is a list of schemas.
const MANY: [&str; 4] = ["anyOf", "allOf", "oneOf", "prefixItems"];
/// Schema keywords whose value is an object with schemas by name.
const NAMED: [&str; 4] = ["properties", "$defs", "patternProperties", "dependentSchemas"];
/// Schema keywords whose value is a text.
const TEXT: [&str; 9] = ["description", "title", "const", "default", "pattern", "format", "$ref", "$comment", "type"];

/// Generates schemas in which each text is `MARK`.
fn schema() -> impl Strategy<Value = Json> {
    let text = || prop_oneof![4 => Just(json!("MARK")), 1 => Just(json!("MARK\u{1b}[2J\n```*/")), 1 => Just(json!(true)), 1 => Just(json!("string"))];
    let texts = || prop::collection::vec(text(), 0..14);
    let plain = (prop::collection::vec((prop::sample::select(&TEXT[..]), text()), 0..4), prop::option::of((prop::bool::ANY, texts())));
    let leaf = plain.prop_map(|(texts, list)| {
        let mut schema: serde_json::Map<_, _> = texts.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        if let Some((is_enum, list)) = list {
            schema.insert(if is_enum { "enum" } else { "required" }.to_owned(), Json::Array(list));
        }
        Json::Object(schema)
    });
    leaf.prop_recursive(6, 30, 4, |inner| {
        let field = prop_oneof![
            (prop::sample::select(&ONE[..]), inner.clone()).prop_map(|(key, schema)| (key, schema)),
            (prop::sample::select(&MANY[..]), prop::collection::vec(inner.clone(), 0..4)).prop_map(|(key, all)| (key, Json::Array(all))),
            (prop::sample::select(&NAMED[..]), prop::collection::vec(inner, 0..6)).prop_map(|(key, all)| {
                (key, Json::Object(all.into_iter().enumerate().map(|(index, schema)| (format!("MARK/{index}~"), schema)).collect()))
            }),
            (prop::sample::select(&TEXT[..]), Just(json!("MARK"))),
            Just(("type", json!("object"))),
            Just(("type", json!("array"))),
        ];
        prop::collection::vec(field, 0..5)
            .prop_map(|fields| Json::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
    })
}

/// Returns the schema with a unique text in place of each `MARK`. Adds these texts to `marks`.
fn marked(json: &Json, word: &str, marks: &mut Vec<String>) -> Json {
    let mut mark = |text: &str| {
        let parts: Vec<&str> = text.split("MARK").collect();
        if parts.len() < 2 {
            return text.to_owned();
        }
        marks.push(format!("{word}{}z", marks.len()));
        parts.join(&marks[marks.len() - 1])
    };
    match json {
        Json::String(text) => Json::String(mark(text)),
        Json::Array(items) => items.iter().map(|item| marked(item, word, marks)).collect(),
        Json::Object(object) => {
            let keys: Vec<String> = object.keys().map(|key| mark(key)).collect();
            keys.into_iter().zip(object.values().map(|value| marked(value, word, marks))).collect()
        }
        other => other.clone(),
    }
}

fn with(input: Json, output: Json) -> Manifest {
    let mut manifest = manifest("The forecast.", "");
    manifest.tools[0].input_schema = input;
    manifest.tools[0].output_schema = Some(output);
    manifest
}

/// Returns the shown text without white space, so that line breaks do not matter.
fn flat(now: &Manifest, before: Option<&Manifest>) -> String {
    let request = ManifestRequest::new(&server(0), now, now, before, &[], 2_000);
    shown(&ApprovalRequest::Manifest(Box::new(request))).split_whitespace().collect()
}

/// Returns the part of the request that shows the changes. Joins the wrapped lines of each side, and removes the sign with which each line
/// begins.
fn changes_of(now: &Manifest, before: &Manifest) -> String {
    let request = ManifestRequest::new(&server(0), now, now, Some(before), &[], 2_000);
    let text = shown(&ApprovalRequest::Manifest(Box::new(request)));
    let changes = text.split("Changed since the last approval").nth(1).unwrap_or_default().split("\nTools (").next().unwrap_or_default();
    changes.lines().map(|line| line.trim_start().trim_start_matches(['+', '-', ' '])).flat_map(str::split_whitespace).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_text_of_a_schema_is_shown(input in schema(), output in schema()) {
        let mut marks = Vec::new();
        let now = with(marked(&input, "mark", &mut marks), marked(&output, "mark", &mut marks));
        let text = flat(&now, None);
        for mark in marks {
            prop_assert!(text.contains(&mark), "{mark} of {} is not in {text}", json!(now.tools[0]));
        }
    }

    #[test]
    fn every_text_that_is_new_is_shown_as_a_change(old in schema(), new in schema(), start in 0_usize..3_000) {
        let (mut marks, mut others) = (Vec::new(), Vec::new());
        let before = with(marked(&old, "old", &mut others), marked(&new, "old", &mut others));
        let mut now = with(marked(&new, "new", &mut marks), marked(&new, "new", &mut marks));
        now.tools[0].description = Some(format!("The forecast.{} new-at-the-endz", "x".repeat(start)));
        now.instructions = Some(format!("{} new-instructionz", "y".repeat(start)));
        let changes = changes_of(&now, &before);
        for mark in marks.iter().map(String::as_str).chain(["new-at-the-endz", "new-instructionz"]) {
            prop_assert!(changes.contains(mark), "{mark} is not in {changes}");
        }
    }
}

#[test]
fn a_change_behind_a_long_start_or_in_what_is_not_seen_has_two_sides_that_differ() {
    let long = "x".repeat(5_000);
    let with_texts = |description: &str, text: &str| {
        let mut now = with(json!({ "type": "object", "properties": { "a": { "default": text } } }), json!({}));
        now.tools[0].description = Some(description.to_owned());
        now
    };
    let changes = changes_of(&with_texts(&format!("{long}NEW"), "a\u{200b}b"), &with_texts(&format!("{long}OLD"), "ab"));
    assert!(changes.contains("xxxOLD") && changes.contains("xxxNEW") && changes.contains("(after4940characters)"), "{changes}");
    assert!(changes.contains("/properties/a/defaultaba\\u{200b}b"), "{changes}");
    let wording = changes_of(&with_texts("d", r"a\u{200b}b"), &with_texts("d", "a\u{200b}b"));
    assert!(wording.contains(r"a\u{200b}ba\\u{200b}b"), "{wording}");
}
