//! Lists the values of a JSON document with their JSON pointers, and compares two documents.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

/// Maximum length in characters of texts that are shown in full when they differ.
const MAX_WHOLE_CHARS: usize = 300;
/// Number of unchanged characters that are shown around a change.
const CONTEXT_CHARS: usize = 60;

/// Returns each value that contains no other value, with its pointer, in the order of the document. Skips each pointer in `known` and all
/// values below it.
///
/// Works without recursion, because a server can nest a schema to any depth.
pub(super) fn leaves<'j>(root: &'j Json, known: &HashSet<String>) -> Vec<(String, &'j Json)> {
    let (mut open, mut found) = (vec![(String::new(), root)], Vec::new());
    while let Some((at, value)) = open.pop() {
        if known.contains(&at) {
            continue;
        }
        match value {
            Json::Object(object) if !object.is_empty() => {
                open.extend(object.iter().rev().map(|(key, value)| (pointer(&at, key), value)));
            }
            Json::Array(items) if !items.is_empty() => {
                open.extend(items.iter().enumerate().rev().map(|(index, item)| (format!("{at}/{index}"), item)));
            }
            _ => found.push((at, value)),
        }
    }
    found
}

/// Returns the pointer to the value of `key` in the object at `at` (RFC 6901).
pub(super) fn pointer(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// A difference between two documents at one pointer. If one of the documents has no value at this pointer, its side is `None`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) at: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

/// Returns the differences of two documents: first new and changed values in the order of the new document, then removed values.
pub(super) fn differences(before: Option<&Json>, after: Option<&Json>) -> Vec<Difference> {
    let [before, after] = [before, after].map(|json| json.map(|json| leaves(json, &HashSet::new())).unwrap_or_default());
    let old: HashMap<&str, &Json> = before.iter().map(|(at, value)| (at.as_str(), *value)).collect();
    let there: HashSet<&str> = after.iter().map(|(at, _)| at.as_str()).collect();
    let mut found = Vec::new();
    for (at, value) in &after {
        match old.get(at.as_str()) {
            Some(old) if old == value => {}
            Some(old) => {
                let (before, after) = sides(old, value);
                found.push(Difference { at: at.clone(), before: Some(before), after: Some(after) });
            }
            None => found.push(Difference { at: at.clone(), before: None, after: Some(text_of(value)) }),
        }
    }
    let gone = before.iter().filter(|(at, _)| !there.contains(at.as_str()));
    found.extend(gone.map(|(at, value)| Difference { at: at.clone(), before: Some(text_of(value)), after: None }));
    found
}

fn text_of(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats two values so that a person sees the difference. Shows all parts that differ. Shortens the parts of long texts that do not
/// differ.
fn sides(before: &Json, after: &Json) -> (String, String) {
    let (Json::String(old), Json::String(new)) = (before, after) else {
        let (old, new) = (text_of(before), text_of(after));
        // For example, the number 1 and the text "1" look alike as texts, so they are shown as JSON.
        return if old == new { (before.to_string(), after.to_string()) } else { (old, new) };
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words(old) == words(new) {
        // Only white space differs. White space is invisible, so each such character is shown as its number.
        return window(&numbered(old), &numbered(new));
    }
    if old.chars().count().max(new.chars().count()) <= MAX_WHOLE_CHARS {
        return (old.clone(), new.clone());
    }
    window(&old.chars().map(String::from).collect::<Vec<_>>(), &new.chars().map(String::from).collect::<Vec<_>>())
}

/// Returns the characters of a text. Replaces each white space character with its number.
fn numbered(text: &str) -> Vec<String> {
    let shown = |character: char| match character {
        '\\' => "\\\\".to_owned(),
        _ if character.is_whitespace() => character.escape_unicode().to_string(),
        _ => character.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Returns the parts that differ, with some characters of context on both sides.
fn window(old: &[String], new: &[String]) -> (String, String) {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let most = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
    let from = start.saturating_sub(CONTEXT_CHARS);
    let shown = |side: &[String]| {
        let to = side.len().min(side.len() - end + CONTEXT_CHARS);
        let head = if from > 0 { format!("(after {from} characters) … ") } else { String::new() };
        let tail = if to < side.len() { " …" } else { "" };
        format!("{head}{}{tail}", side[from..to].concat())
    };
    (shown(old), shown(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(before: &Json, after: &Json) -> Vec<(String, String, String)> {
        let side = |text: Option<String>| text.unwrap_or_else(|| "(none)".to_owned());
        differences(Some(before), Some(after)).into_iter().map(|place| (place.at, side(place.before), side(place.after))).collect()
    }

    #[test]
    fn each_place_that_differs_is_told_by_its_pointer() {
        let before = json!({ "a": { "x/y": 1, "gone": [true] }, "same": [1, 2] });
        let after = json!({ "a": { "x/y": "1" }, "same": [1, 2], "new": {} });
        let place = |at: &str, before: &str, after: &str| (at.to_owned(), before.to_owned(), after.to_owned());
        assert_eq!(
            told(&before, &after),
            [place("/a/x~1y", "1", "\"1\""), place("/new", "(none)", "{}"), place("/a/gone/0", "true", "(none)")]
        );
    }

    #[test]
    fn all_that_is_new_in_a_long_text_is_shown_and_a_little_around_it() {
        let (start, end, new) = ("s".repeat(1_600), "e".repeat(1_600), "n".repeat(5_000));
        let found = told(&json!(format!("{start}{end}")), &json!(format!("{start}{new}{end}")));
        let context = ("s".repeat(60), "e".repeat(60));
        assert_eq!(found[0].1, format!("(after 1540 characters) … {}{} …", context.0, context.1));
        assert_eq!(found[0].2, format!("(after 1540 characters) … {}{new}{} …", context.0, context.1));
    }

    #[test]
    fn two_sides_are_never_the_same() {
        for (old, new) in [("a b", "a  b"), ("a b", "a b "), ("a\nb", "a b"), (r"a\u{20} b", r"a\u{20}  b"), ("", " ")] {
            let found = told(&json!(old), &json!(new));
            let seen = |text: &str| text.split_whitespace().collect::<String>();
            assert_ne!(seen(&found[0].1), seen(&found[0].2), "{old:?} {new:?}");
        }
    }
}
