//! Tests of changes of single properties.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn changed(text: &str, path: &[&str], value: Option<Json>) -> String {
    with_properties(text, &[(path.to_vec(), value)]).unwrap()
}

#[test]
fn a_change_leaves_every_other_byte() {
    let text = "{\n  // ours\n  \"mcpServers\": {\n    \"a\": { // first\n      \"command\": \"x\", /* why */\n      \"env\": { \"A\": \"1\" },\n    },\n  },\n}\n";
    let env = ["mcpServers", "a", "env"];
    let set = changed(text, &[&env[..], &["A"]].concat(), Some(json!("2")));
    assert_eq!(set, text.replace("\"A\": \"1\"", "\"A\": \"2\""));
    let added = changed(text, &[&env[..], &["B"]].concat(), Some(json!("3")));
    assert_eq!(added, text.replace("\"A\": \"1\"", "\"A\": \"1\", \"B\": \"3\""));
    let unset = changed(text, &[&env[..], &["A"]].concat(), None);
    assert!(unset.contains("// first") && unset.contains("/* why */") && !unset.contains("\"A\""), "{unset}");
    let removed = changed(text, &["mcpServers", "a"], None);
    assert!(removed.contains("// ours") && !removed.contains("command"), "{removed}");
    let headers = changed(text, &["mcpServers", "b", "url"], Some(json!("https://a.example")));
    assert!(headers.starts_with(&text[..text.find("    },\n  },").unwrap()]) && headers.contains("\"b\": {"), "{headers}");
}

#[test]
fn a_text_without_a_value_becomes_one() {
    assert_eq!(
        changed("", &["mcpServers", "a"], Some(json!({ "command": "x" }))),
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}\n"
    );
    assert_eq!(changed("// none\n", &["a"], None), "// none\n");
    assert!(changed("\u{feff}{}", &["a"], Some(json!(1))).starts_with('\u{feff}'));
}

#[test]
fn what_is_twice_there_or_no_object_is_refused() {
    for text in [r#"{ "s": 5 }"#, r#"{ "s": {}, "s": {} }"#, r#"{ "s": { "a": 1, "a": 2 } }"#, "[]", "{"] {
        assert!(with_properties(text, &[(vec!["s", "a"], Some(json!(1)))]).is_err(), "{text}");
    }
}

/// Generates a config with comments and trailing commas in unusual places.
fn any_text() -> impl Strategy<Value = String> {
    let comment = prop::sample::select(vec!["", " ", "\n", "// c\n", "/* , } */", "\r\n\t"]);
    let value = prop::sample::select(vec!["1", "\"a // b\"", "{}", "[1, 2]", "{ \"A\": \"x\" }", "{\n \"A\": 1, // c\n \"B\": 2,\n}"]);
    let property = ("[abAB]", comment.clone(), value, comment.clone());
    (comment.clone(), prop::collection::vec(property, 0..4), any::<bool>(), comment).prop_map(|(start, properties, trailing, end)| {
        let mut known = Vec::new();
        let properties: Vec<_> = properties
            .into_iter()
            .filter(|(name, ..)| {
                !known.contains(name) && {
                    known.push(name.clone());
                    true
                }
            })
            .map(|(name, before, value, after)| format!("{before}\"{name}\":{value}{after}"))
            .collect();
        let comma = if trailing && !properties.is_empty() { "," } else { "" };
        format!("{start}{{{}{comma}{end}}}", properties.join(","))
    })
}

proptest! {
    #[test]
    fn a_change_is_made_as_asked_or_not_at_all(text in any_text(), path in prop::collection::vec("[abAB]", 1..3), value in prop::option::of(0..3)) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let value = value.map(|number| json!({ "n": number }));
        let mut expected = json::parsed(&text).unwrap();
        if let Ok(new) = with_properties(&text, &[(path.clone(), value.clone())]) {
            set(&mut expected, &path, value.as_ref());
            prop_assert_eq!(json::parsed(&new).unwrap(), expected);
        } else {
            let is_object = path.len() == 1 || expected.get(path[0]).is_some_and(|inner| !inner.is_object());
            prop_assert!(is_object, "{}", text);
        }
    }
}
