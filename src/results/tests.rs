//! Tests of cuts and reports with common shapes of values and with random values, and tests of their running time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{Fitted, Handle, MIN_RESULT_TOKENS, ModelError, ModelReport, Omission, OmissionKind, fit, fits, for_model};
use crate::catalog::estimate_tokens;
use crate::sandbox::{LogEntry, LogLevel, Value};

const ID: &str = "f5lxx1zz5pnorynqglhzmsp33";

fn cut(value: &Value, budget: usize) -> Fitted {
    fit(value, budget, Handle::Saved(ID)).expect("it does not fit")
}

fn tokens(value: &Value) -> usize {
    estimate_tokens(&value.clone().into_json().to_string())
}

// ---- common shapes ----------------------------------------------------------------------------------------------------

#[test]
fn small_fields_stay_whole_beside_a_huge_one_wherever_it_stands() {
    let huge = json!("lorem ipsum ".repeat(9_000));
    for json in [
        json!({ "body": huge, "id": 7, "title": "a title", "tags": ["x", "y"] }),
        json!({ "id": 7, "title": "a title", "tags": ["x", "y"], "body": huge }),
    ] {
        let cut = cut(&Value::from(json.clone()), 200);
        let shown = cut.value.into_json();
        for small in ["id", "title", "tags"] {
            assert_eq!(shown[small], json[small]);
        }
        assert_eq!(cut.omitted.len(), 1);
        assert!(shown["body"].as_str().unwrap().len() > 300, "{shown}");
        assert!(shown["body"].as_str().unwrap().ends_with("ipsum "), "{shown}");
    }
}

#[test]
fn a_long_list_keeps_its_first_items_whole() {
    let rows: Vec<Json> = (0..5_000).map(|id| json!({ "id": id, "name": format!("row {id}"), "price": id * 3 })).collect();
    let whole = Value::from(Json::from(rows.clone()));
    let cut = cut(&whole, 500);
    let Value::List(shown) = &cut.value else { panic!("no list") };
    let kept = shown.len() - 1;
    assert!(kept > 20, "{kept}");
    assert_eq!(shown[..kept], rows.iter().take(kept).cloned().map(Value::from).collect::<Vec<_>>());
    let mark = format!("… {} of 5000 items left out; saved(\"{ID}\") of host:mcp has all of it", 5_000 - kept);
    assert_eq!(shown[kept], Value::from(mark));
    assert_eq!(cut.omitted, [Omission { path: String::new(), kind: OmissionKind::Items, kept, of: 5_000 }]);
}

#[test]
fn a_few_large_items_each_show_something() {
    let page = |name: &str| json!({ "name": name, "text": format!("{name} ").repeat(4_000) });
    let cut = cut(&Value::from(json!({ "pages": [page("one"), page("two"), page("three")] })), 400);
    let names: Vec<_> = cut.omitted.iter().map(|omission| omission.path.as_str()).collect();
    assert_eq!(names, ["/pages/0/text", "/pages/1/text", "/pages/2/text"]);
}

#[test]
fn a_deep_tree_is_cut_by_its_depth_and_a_wide_one_by_its_width() {
    let deep = (0..120).fold(json!("the end"), |inner, _| json!({ "inner": inner }));
    let cut_tree = cut(&Value::from(deep), 200);
    assert_eq!(cut_tree.omitted.len(), 1);
    let Omission { path, kind, kept, of } = &cut_tree.omitted[0];
    assert_eq!((*kind, *kept, *of), (OmissionKind::Depth, 0, 1));
    assert!(path.matches("/inner").count() > 5, "{path}");
    let wide: serde_json::Map<String, Json> = (0..9_000).map(|key| (format!("key{key}"), json!(key))).collect();
    let cut_map = cut(&Value::from(Json::Object(wide)), 200);
    assert!(matches!(cut_map.omitted[..], [Omission { kind: OmissionKind::Keys, kept: 10.., of: 9_000, .. }]), "{cut_map:?}");
}

#[test]
fn a_huge_key_does_not_starve_the_others() {
    let json = json!({ ("k".repeat(1 << 20)): 1, "a": 2, "b": "word ".repeat(900) });
    let shown = cut(&Value::from(json), 150).value.into_json();
    assert_eq!(shown["a"], 2);
    assert!(shown["b"].as_str().unwrap().starts_with("word word"));
}

#[test]
fn bytes_are_kept_whole_or_named() {
    let value = Value::record([("icon", Value::Bytes(vec![1, 2, 3])), ("photo", Value::Bytes(vec![9; 50_000]))]);
    let cut = cut(&value, 120);
    let Value::Record(fields) = cut.value else { panic!("no record") };
    assert_eq!(fields[0].1, Value::Bytes(vec![1, 2, 3]));
    assert_eq!(fields[1].1, Value::from("… [50000 bytes left out]"));
    assert_eq!(cut.omitted, [Omission { path: "/photo".into(), kind: OmissionKind::Bytes, kept: 0, of: 50_000 }]);
}

#[test]
fn the_outermost_mark_says_what_became_of_the_whole() {
    let text = Value::from("word ".repeat(2_000));
    for (handle, expected) in [
        (Handle::Saved(ID), format!("left out; saved(\"{ID}\") of host:mcp has all of it]")),
        (Handle::TooLarge, "left out; it was too large to be saved: return less]".to_owned()),
        (Handle::None, "left out]".to_owned()),
    ] {
        let Value::Text(shown) = fit(&text, 200, handle).unwrap().value else { panic!("no text") };
        assert!(shown.contains(&expected), "{shown}");
    }
}

// ---- random values -----------------------------------------------------------------------------------------------------

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ]{0,12}", "\\PC{0,8}", "[\\x00-\\x20\"\\\\…😀]{0,6}"].prop_flat_map(|word| {
        prop_oneof![4 => Just(1_usize), 2 => 2..60_usize, 1 => 60..900_usize].prop_map(move |times| word.repeat(times))
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        2 => any::<i64>().prop_map(|number| Value::Number(number.into())),
        5 => texts().prop_map(Value::Text),
        1 => prop::collection::vec(any::<u8>(), 0..400).prop_map(Value::Bytes),
    ];
    let key = prop_oneof![4 => "[a-z]{1,8}", 1 => Just("…".to_owned()), 1 => "[~/$…\"]{0,3}", 1 => "k{200,300}"];
    leaf.prop_recursive(6, 600, 40, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..60).prop_map(Value::List),
            prop::collection::vec((key.clone(), inner), 0..40).prop_map(|fields| {
                let mut seen = std::collections::BTreeSet::new();
                Value::Record(fields.into_iter().filter(|(key, _)| seen.insert(key.clone())).collect())
            }),
        ]
    })
}

/// Compares a cut with the whole value. Each kept part must be equal to the part at its path, and the list of omissions must contain each
/// omission.
struct Audit<'a> {
    omitted: BTreeMap<&'a str, &'a Omission>,
    met: usize,
}

impl Audit<'_> {
    fn told(&mut self, path: &str, of: usize) -> &Omission {
        self.met += 1;
        let omission = self.omitted.get(path).unwrap_or_else(|| panic!("nothing is told of {path:?}"));
        assert_eq!(omission.of, of, "{path}");
        omission
    }

    fn compare(&mut self, whole: &Value, cut: &Value, path: &str) {
        match (whole, cut) {
            _ if whole == cut => {}
            (Value::Text(whole), Value::Text(cut)) => {
                let omission = self.told(path, whole.encode_utf16().count());
                let mark = format!("… [{} characters left out", omission.of - omission.kept);
                let (head, rest) = cut.rsplit_once(&mark).expect("a mark");
                let tail = rest.split_once(']').unwrap().1;
                let tail = tail.strip_prefix(" … ").unwrap_or(tail);
                assert!(whole.starts_with(head) && whole.ends_with(tail) && omission.kind == OmissionKind::Text);
                assert_eq!(head.encode_utf16().count() + tail.encode_utf16().count(), omission.kept);
            }
            (Value::Bytes(bytes), Value::Text(cut)) => {
                let omission = self.told(path, bytes.len());
                assert!(omission.kind == OmissionKind::Bytes && cut.starts_with(&format!("… [{} bytes left out", bytes.len())));
            }
            (Value::List(whole), Value::List(cut)) => {
                let kept = self.counted(path, whole.len(), cut.len(), cut.last());
                assert!(kept <= whole.len());
                (0..kept).for_each(|index| self.compare(&whole[index], &cut[index], &format!("{path}/{index}")));
            }
            (Value::Record(whole), Value::Record(cut)) => {
                let kept = self.counted(path, whole.len(), cut.len(), cut.last().map(|(_, mark)| mark));
                if let Some((key, _)) = cut.get(kept) {
                    assert!(key.chars().all(|character| character == '…') && whole.iter().all(|(other, _)| other != key));
                }
                let mut rest = whole.iter();
                for (key, value) in &cut[..kept] {
                    let (_, original) = rest.find(|(other, _)| other == key).expect("in its order");
                    self.compare(original, value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")));
                }
            }
            (whole, cut) => panic!("at {path:?} {whole:?} became {cut:?}"),
        }
    }

    /// Returns how many items of a list or fields of a record are kept. The mark is not counted.
    fn counted(&mut self, path: &str, of: usize, length: usize, last: Option<&Value>) -> usize {
        let Some(omission) = self.omitted.get(path) else {
            // The outermost value has a mark even if all of its parts are kept.
            assert_eq!(length, of + usize::from(path.is_empty()), "{path}");
            return of;
        };
        self.met += 1;
        let Some(Value::Text(mark)) = last else { panic!("no mark at {path:?}") };
        let counted = format!("{} ", of - omission.kept);
        assert!(["", "… "].iter().any(|start| mark.starts_with(&format!("{start}{counted}"))) || mark.starts_with("left out: "), "{mark}");
        assert_eq!((omission.of, omission.kept, path.is_empty()), (of, length - 1, mark.contains(ID)), "{path}: {mark}");
        assert_eq!(omission.kind == OmissionKind::Depth, omission.kept == 0 && !path.is_empty());
        omission.kept
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_value_that_fits_is_left_alone_and_no_other_is(value in values(), budget in MIN_RESULT_TOKENS..3_000_usize) {
        prop_assert_eq!(fits(&value, budget), tokens(&value) <= budget);
        prop_assert_eq!(fit(&value, budget, Handle::None).is_none(), fits(&value, budget));
    }

    #[test]
    fn a_cut_is_within_its_budget_and_true(value in values(), budget in MIN_RESULT_TOKENS..1_500_usize) {
        prop_assume!(!fits(&value, budget));
        let fitted = cut(&value, budget);
        prop_assert!(tokens(&fitted.value) <= budget, "{} of {budget}", tokens(&fitted.value));
        let text = fitted.value.clone().into_json().to_string();
        prop_assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), fitted.value.clone().into_json());
        prop_assert!(text.contains(ID) && fitted.value != value);
        let omitted: BTreeMap<_, _> = fitted.omitted.iter().map(|omission| (omission.path.as_str(), omission)).collect();
        prop_assert_eq!(omitted.len(), fitted.omitted.len());
        let mut audit = Audit { omitted, met: 0 };
        audit.compare(&value, &fitted.value, "");
        prop_assert_eq!(audit.met, fitted.omitted.len());
        prop_assert_eq!(cut(&value, budget), fitted);
    }

    #[test]
    fn a_report_is_within_its_budget_and_has_its_parts(
        value in values(),
        logs in prop::collection::vec((prop_oneof![Just("log"), Just("warn")], texts()), 0..40),
        warnings in prop::collection::vec(texts(), 0..9),
        failed in any::<bool>(),
        line in prop::option::of(0..5_u32),
        budget in MIN_RESULT_TOKENS..1_500_usize,
    ) {
        let logs: Vec<_> =
            logs.into_iter().map(|(level, text)| LogEntry { level: LogLevel::named(level), is_cut: false, text }).collect();
        let message = logs.first().map_or("it failed", |entry| &entry.text);
        let outcome = if failed { Err(ModelError { code: "ERR_X", message, line, column: line }) } else { Ok(&value) };
        let report = ModelReport { outcome, code: "a\nb\nc", logs: &logs, warnings: &warnings };
        let json = for_model(&report, budget, || Handle::Saved(ID));
        prop_assert!(estimate_tokens(&json.to_string()) <= budget, "{} of {budget}: {json}", estimate_tokens(&json.to_string()));
        prop_assert_eq!(json.get("error").is_some(), failed);
        prop_assert_eq!(json.get("value").is_some(), !failed);
        prop_assert_eq!(json.get("logs").is_some(), !logs.is_empty());
        prop_assert_eq!(json.get("warnings").is_some(), !warnings.is_empty());
    }
}

// ---- reports -----------------------------------------------------------------------------------------------------------

fn log(count: usize) -> Vec<LogEntry> {
    (0..count)
        .map(|number| LogEntry {
            level: if number % 2 == 0 { LogLevel::Log } else { LogLevel::Error },
            is_cut: false,
            text: format!("line {number}"),
        })
        .collect()
}

#[test]
fn a_report_keeps_the_last_lines_of_the_log_and_the_first_warnings() {
    let (value, logs) = (Value::from(json!({ "n": 1 })), log(500));
    let warnings: Vec<String> = (0..200).map(|number| format!("warning {number}")).collect();
    let report = ModelReport { outcome: Ok(&value), code: "", logs: &logs, warnings: &warnings };
    let json = for_model(&report, 400, || panic!("the value fits"));
    let keys: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["value", "logs", "warnings"]);
    assert_eq!(json["value"], json!({ "n": 1 }));
    let shown = json["logs"].as_array().unwrap();
    assert_eq!(shown.last().unwrap(), "error: line 499");
    assert_eq!(shown[shown.len() - 2], "line 498");
    assert_eq!(shown[0], format!("… {} earlier entries left out", 501 - shown.len()));
    let shown = json["warnings"].as_array().unwrap();
    assert_eq!(
        (&shown[0], shown.last().unwrap()),
        (&json!("warning 0"), &json!(format!("… {} more warnings left out", 201 - shown.len())))
    );
}

#[test]
fn a_report_of_a_failure_shows_the_place_in_the_code() {
    let error = ModelError { code: "ERR_GUEST_THREW", message: "TypeError: no (line 2, column 3)", line: Some(2), column: Some(3) };
    let report = ModelReport { outcome: Err(error), code: "const a = 1\nf()\n", logs: &[], warnings: &[] };
    let expected = json!({ "error": {
        "code": "ERR_GUEST_THREW", "message": "TypeError: no (line 2, column 3)", "line": 2, "column": 3,
        "excerpt": "  1 | const a = 1\n> 2 | f()\n    |   ^",
    } });
    assert_eq!(for_model(&report, 400, || panic!("there is no value")), expected);
}

#[test]
fn a_value_that_is_too_large_for_a_report_is_cut_and_says_where_it_is() {
    let (value, logs) = (Value::from("word ".repeat(9_000)), log(500));
    let report = ModelReport { outcome: Ok(&value), code: "", logs: &logs, warnings: &[] };
    let json = for_model(&report, 800, || Handle::Saved(ID));
    let shown = json["value"].as_str().unwrap();
    assert!(shown.contains(ID), "{shown}");
    assert!(estimate_tokens(shown) > 500, "{shown}");
    assert!(estimate_tokens(&json.to_string()) > 700);
}

// ---- running time ------------------------------------------------------------------------------------------------------

/// Returns values of about `bytes` bytes. Each is the worst case for a part of the work.
fn hostile(bytes: usize) -> Vec<(&'static str, Value)> {
    let chain = |bulk: Value| (0..120).fold(bulk, |inner, _| Value::record([("a", inner)]));
    vec![
        ("one text", Value::from("lorem ipsum ".repeat(bytes / 12))),
        ("escapes", Value::from("\"\n\u{1}".repeat(bytes / 10))),
        ("one text, deep", chain(Value::from("x".repeat(bytes)))),
        ("numbers", Value::List(vec![Value::Number(7.into()); bytes / 2])),
        ("numbers, deep", chain(Value::List(vec![Value::Number(7.into()); bytes / 2]))),
        ("fields", Value::Record((0..bytes / 12).map(|key| (key.to_string(), Value::Null)).collect())),
        ("empty lists", Value::List(vec![Value::List(Vec::new()); bytes / 3])),
        ("bytes", Value::Bytes(vec![9; bytes])),
    ]
}

#[test]
fn the_time_to_cut_a_value_grows_no_faster_than_the_value() {
    const BYTES: usize = 1 << 19;
    let cut = |what: &str, value: &Value, budget| {
        let started = Instant::now();
        let fitted = fit(value, budget, Handle::Saved(ID));
        let took = started.elapsed();
        assert!(fitted.is_none_or(|fitted| tokens(&fitted.value) <= budget), "{what}");
        took
    };
    for ((what, one), (_, two)) in hostile(BYTES).into_iter().zip(hostile(2 * BYTES)) {
        // No value fits into any of these budgets.
        for budget in [MIN_RESULT_TOKENS, 8_000, 50_000] {
            // Quadratic work would take four times as long. Load on the machine may affect some comparisons, but not all.
            let is_linear = (0..10).any(|_| cut(what, &two, budget) <= cut(what, &one, budget) * 3 + Duration::from_millis(1));
            assert!(is_linear, "{what} within {budget}");
        }
    }
}
