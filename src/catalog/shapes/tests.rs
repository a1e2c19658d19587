use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::print::Detail;
use super::*;
use crate::catalog::Tool;

fn shape_of(result: &Json) -> Shape {
    Sample::of(result, usize::MAX).unwrap().into_shape()
}

/// Returns the declared type after these values were seen as structured content.
fn declared(values: &[Json]) -> String {
    let mut learnt = Learnt::<()>::default();
    for value in values {
        learnt.add("s", "t", &(), |(), ()| true, shape_of(&json!({ "structuredContent": value })));
    }
    learnt.of("s", |()| true).next().unwrap().1.shape.declared("").replace("; [key: string]: any", "")
}

fn of_content(content: &Json) -> String {
    shape_of(&json!({ "content": content })).declared("").replace("; [key: string]: any", "")
}

#[test]
fn what_was_seen_is_declared_without_any_value() {
    let value = json!({ "id": 7, "name": "secret", "tags": ["a", "b"], "none": null, "empty": [], "ok": true });
    assert_eq!(declared(&[value]), "{ id: number; name: string; tags: string[]; none: any; empty: any[]; ok: boolean }");
    assert!(shape_of(&json!({ "structuredContent": { "a": 1 } })).declared("").contains("[key: string]: any"));
}

#[test]
fn results_that_differ_are_merged() {
    assert_eq!(
        declared(&[json!({ "a": 1 }), json!({ "a": "x", "b": null }), json!({ "a": null, "b": 2 })]),
        "{ a: number | string | null; b?: number | null }"
    );
    assert_eq!(declared(&[json!([1, "x", { "a": 1 }]), json!([[true]])]), "(number | string | boolean[] | { a: number })[]");
    assert_eq!(declared(&[json!([]), json!([{ "a": 1 }, { "b": 1 }])]), "{ a?: number; b?: number }[]");
}

#[test]
fn keys_that_are_data_make_a_map() {
    let by_mail = json!({ "ada@example.com": { "age": 36 }, "bob@example.com": { "age": 7 } });
    assert_eq!(declared(&[by_mail]), "Record<string, { age: number }>");
    let quote = json!({ "price": 1.5, "volume": 2 });
    assert_eq!(
        declared(&[json!({ "AAPL": quote, "MSFT": quote, "IBM": quote, "SAP": quote })]),
        "Record<string, { price: number; volume: number }>"
    );
    let many: Map<String, Json> = (b'a'..b'a' + 25).map(|letter| (char::from(letter).to_string(), json!(1))).collect();
    assert_eq!(declared(&[many.into()]), "Record<string, number>");
    // The keys vary from result to result.
    let varying = |first: u8| Json::Object((first..first + 4).map(|letter| (char::from(letter).to_string(), json!(letter))).collect());
    assert_eq!(declared(&[varying(b'a'), varying(b'e'), varying(b'i'), varying(b'm')]), "Record<string, number>");
    assert_eq!(declared(&[json!({ "@type": "x", "name": "y", "id": 1 })]), "{ name: string; id: number }");
}

#[test]
fn content_is_learnt_as_agent_code_gets_it() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    assert_eq!(of_content(&json!([text("hello")])), "string");
    assert_eq!(of_content(&json!([text("42")])), "string");
    assert_eq!(of_content(&json!([text("[1] is a footnote")])), "string");
    assert_eq!(of_content(&json!([text(" {\"a\":[{\"b\":1}]}")])), "{ a: { b: number }[] }");
    assert_eq!(of_content(&json!([text("x"), text("{\"a\":1}")])), "(string | { a: number })[]");
    assert_eq!(of_content(&json!([])), "any");
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "AA==" });
    assert_eq!(of_content(&json!([image])), "{ mimeType: string; data: Uint8Array }");
    let link = json!({ "type": "resource_link", "uri": "a:b", "name": "n", "size": 3 });
    assert_eq!(of_content(&json!([link])), "{ uri: string; name: string }");
    assert_eq!(of_content(&json!([{ "type": "resource", "resource": { "uri": "a:b", "text": "x" } }])), "{ uri: string; text: string }");
    assert!(Sample::of(&json!({ "isError": true, "content": [text("{}")] }), 100).is_none());
    assert!(Sample::of(&json!({ "content": [text(&format!("[{}]", "1,".repeat(100)))] }), 100).is_none(), "it is cut, and stays text");
}

#[test]
fn a_short_form_is_cut_and_marked() {
    let shape = shape_of(&json!({ "structuredContent": { "a": { "b": { "c": 1 } }, "d": 1, "e": [{ "f": 1 }] } }));
    assert_eq!(shape.brief(Detail { levels: 2, names: 2 }), "{ a: { b: {…} }; d: number; … }");
    let seen = SeenTool { results: 2, shape };
    assert_eq!(seen.brief(1, 9), "{ a: {…}; d: number; e: {…}[] } /* seen */");
    assert_eq!(seen.note(), "Seen in 2 results, not promised.");
    assert!(seen.declared("  ").starts_with('{'));
}

#[test]
fn what_a_server_declares_is_not_replaced() {
    let tool = |output_schema: Option<Json>| -> Tool {
        serde_json::from_value(json!({ "name": "t", "inputSchema": {}, "outputSchema": output_schema })).unwrap()
    };
    let seen: SeenResults = [("t".to_owned(), SeenTool { results: 1, shape: Shape::text() })].into_iter().collect();
    assert!(seen.of(&tool(None)).is_some() && seen.of(&tool(Some(json!({ "type": "object" })))).is_none());
}

#[test]
fn a_shape_ends_with_its_basis() {
    let mut learnt = Learnt::<u8>::default();
    let same = |one: &u8, other: &u8| one == other;
    let count = |learnt: &Learnt<u8>, basis: u8| learnt.of("s", move |known| *known == basis).next().map(|(_, seen)| seen.results());
    learnt.add("s", "t", &1, same, Shape::text());
    learnt.add("s", "t", &1, same, Shape::text());
    assert_eq!((count(&learnt, 1), count(&learnt, 2)), (Some(2), None));
    learnt.add("s", "t", &2, same, Shape::text());
    assert_eq!((count(&learnt, 1), count(&learnt, 2)), (None, Some(1)));
    learnt.forget_tool("s", "t");
    assert_eq!((count(&learnt, 2), learnt.parts), (None, 0));
    learnt.add("s", "t", &2, same, Shape::text());
    learnt.forget("s");
    assert_eq!((learnt.servers().count(), learnt.parts), (0, 0));
}

#[test]
fn an_agent_keeps_a_bounded_number_of_parts_and_drops_the_oldest() {
    let wide = |tool: usize| {
        Json::Object((0..40).map(|key| (format!("key_{}", char::from(b'a' + key)), json!({ "x": tool, "y": null }))).collect())
    };
    let mut learnt = Learnt::<()>::default();
    for tool in 0..1_000 {
        learnt.add(
            "s",
            &tool.to_string(),
            &(),
            |(), ()| true,
            shape_of(&json!({ "structuredContent": [wide(tool), 1, "x", { "other": 1 }] })),
        );
        assert!(learnt.parts <= 8_000);
    }
    let kept: Vec<_> = learnt.of("s", |()| true).map(|(tool, _)| tool).collect();
    assert!(kept.contains(&"999".to_owned()) && !kept.contains(&"0".to_owned()) && kept.len() > 20, "{}", kept.len());
}

/// Returns arbitrary JSON with hostile keys, wide and deep.
fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        "[ -~]{0,12}".prop_map(Json::from),
    ];
    let key = prop_oneof!["[a-z]{1,3}", "[a-z_]{1,60}", "\\PC{0,20}", Just("*/ } x".to_owned()), Just("__proto__".to_owned())];
    leaf.prop_recursive(10, 400, 30, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..30).prop_map(Json::from),
            prop::collection::vec((key.clone(), inner), 0..30).prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

/// Returns whether a shape accepts a value. Items beyond those that are looked at need not fit.
fn accepts(shape: &Shape, value: &Json) -> bool {
    let is_any = shape.any;
    is_any
        || match value {
            Json::Null => shape.null,
            Json::Bool(_) => shape.boolean,
            Json::Number(_) => shape.number,
            Json::String(_) => shape.string,
            Json::Array(items) => shape.list.as_deref().is_some_and(|of| items.iter().all(|item| accepts(of, item))),
            Json::Object(fields) => match shape.object.as_deref() {
                None => false,
                Some(Fields::Map(values)) => fields.values().all(|value| accepts(values, value)),
                Some(Fields::Named { objects, fields: named, .. }) => named.iter().all(|field| match fields.get(&*field.name) {
                    Some(value) => accepts(&field.shape, value),
                    None => field.objects < *objects,
                }),
            },
        }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn a_shape_accepts_all_values_of_which_it_was_learnt(values in prop::collection::vec(any_json(), 1..6)) {
        let mut learnt = Learnt::<()>::default();
        for value in &values {
            learnt.add("s", "t", &(), |(), ()| true, shape_of(&json!({ "structuredContent": value })));
        }
        let (_, seen) = learnt.of("s", |()| true).next().unwrap();
        for value in &values {
            prop_assert!(accepts(&seen.shape, value), "{} {value}", seen.shape.declared(""));
        }
        prop_assert!(seen.shape.parts() <= MAX_PARTS);
        prop_assert_eq!(learnt.parts, seen.shape.parts());
    }

    #[test]
    fn no_text_of_a_result_is_declared_but_names(values in prop::collection::vec(any_json(), 1..4)) {
        for value in values {
            for result in [json!({ "structuredContent": value }), json!({ "content": [{ "type": "text", "text": value.to_string() }] })] {
                let shape = shape_of(&result);
                let mut names = BTreeSet::new();
                shape.names(&mut names);
                prop_assert!(names.iter().all(|name| is_shown_key(name)));
                let text = shape.declared("");
                prop_assert!(text.chars().all(|character| character.is_ascii_alphanumeric() || "_${}[]()<>:;,?| \n".contains(character)), "{text}");
                prop_assert!(text.len() <= MAX_PARTS * 100, "{}", text.len());
            }
        }
    }
}

#[test]
fn a_hostile_result_costs_little() {
    let deep = (0..100).fold(json!(1), |inner, _| json!({ "a": [inner] }));
    let wide: Map<String, Json> = (0..200_000).map(|key| (format!("k{key}"), json!({ "x": 1 }))).collect();
    let long = json!(vec![json!({ "a": [1, { "b": "x" }], "c": {} }); 50_000]);
    let tree = (0..7).fold(json!(1), |inner, _| {
        json!((0..7).map(|key| (format!("k_{}", char::from(b'a' + key)), inner.clone())).collect::<Map<_, _>>())
    });
    for value in [deep, wide.into(), long, tree] {
        let result = json!({ "structuredContent": value });
        let begun = std::time::Instant::now();
        let shape = shape_of(&result);
        // The walk looks at no more than 2,000 parts, which takes well under a millisecond. The bound is for slow machines.
        assert!(begun.elapsed().as_millis() < 200, "{:?}", begun.elapsed());
        assert!(shape.parts() <= MAX_PARTS);
    }
}
