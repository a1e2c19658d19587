//! Paths to values, and the names that a schema defines at a path.

use std::collections::HashSet;

use percent_encoding::percent_decode_str;
use serde_json::Value as Json;

use super::expected::quoted;

/// Maximum number of subschemas that are examined for one value.
const MAX_PARTS: usize = 500;

/// A step from a value to one of its child values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Name(String),
    Index(usize),
}

/// Splits a JSON Pointer into steps. `value` is needed to distinguish the index of a list item from a field name that consists of digits.
pub(super) fn steps(value: &Json, pointer: &str) -> Vec<Step> {
    let mut here = Some(value);
    let segments = pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~"));
    let step = |segment: String| {
        if let (Some(Json::Array(items)), Ok(index)) = (here, segment.parse()) {
            here = items.get(index);
            return Step::Index(index);
        }
        here = here.and_then(|value| value.get(&segment));
        Step::Name(segment)
    };
    segments.map(step).collect()
}

/// Returns steps as an expression of JavaScript, for example `filters[2].name` or `"a b"[0]`. Without steps, the text is empty.
pub(super) fn path(steps: &[Step]) -> String {
    let written = steps.iter().enumerate().map(|(place, step)| match step {
        Step::Index(index) => format!("[{index}]"),
        Step::Name(name) if is_plain(name) => format!("{}{name}", if place == 0 { "" } else { "." }),
        Step::Name(name) if place == 0 => quoted(name),
        Step::Name(name) => format!("[{}]", quoted(name)),
    });
    written.collect()
}

/// Returns whether a name can be written after a dot. Letters of any script are allowed.
fn is_plain(name: &str) -> bool {
    let starts = |first: char| first.is_alphabetic() || matches!(first, '_' | '$');
    name.chars().next().is_some_and(starts)
        && name.chars().all(|character| starts(character) || character.is_numeric())
        && quoted(name) == format!("\"{name}\"")
}

/// Returns the names that a schema defines for the object at the end of these steps. Examines all subschemas that may apply to this object.
/// The names of the root schema come first.
pub(super) fn known_names<'a>(root: &'a Json, steps: &[Step]) -> Vec<&'a str> {
    let mut parts = spread(root, vec![root]);
    for step in steps {
        let inner = parts.iter().flat_map(|part| inside(part, step)).collect();
        parts = spread(root, inner);
    }
    let mut seen = HashSet::new();
    parts.into_iter().flat_map(own_names).filter(|name| seen.insert(*name)).collect()
}

/// Returns the names under `properties` of a subschema.
pub(super) fn own_names(part: &Json) -> impl Iterator<Item = &str> {
    part.get("properties").and_then(Json::as_object).into_iter().flat_map(|properties| properties.keys().map(String::as_str))
}

/// Returns the target of a reference. The target is within the same schema, because `guard` does not accept other references.
pub(super) fn target<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

/// Returns the given subschemas, and all other subschemas that they apply to the same value, for example through `$ref` or `allOf`.
fn spread<'a>(root: &'a Json, start: Vec<&'a Json>) -> Vec<&'a Json> {
    let (mut all, mut seen, mut next) = (start, HashSet::new(), 0);
    all.retain(|part| seen.insert(std::ptr::from_ref(*part)));
    while next < all.len().min(MAX_PARTS) {
        let part = all[next];
        next += 1;
        let referred = part.get("$ref").and_then(Json::as_str).and_then(|reference| target(root, reference));
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| part.get(key)?.as_array()).flatten();
        let single = ["if", "then", "else"].into_iter().filter_map(|key| part.get(key));
        let dependent = part.get("dependentSchemas").and_then(Json::as_object).into_iter().flat_map(|map| map.values());
        let here = referred.into_iter().chain(lists).chain(single).chain(dependent);
        all.extend(here.filter(|part| seen.insert(std::ptr::from_ref(*part))));
    }
    all.truncate(MAX_PARTS);
    all
}

/// `part` is a subschema of some value. Returns the subschemas within `part` that apply to one child of this value: the property or the
/// list item that `step` names.
fn inside<'a>(part: &'a Json, step: &Step) -> Vec<&'a Json> {
    match step {
        Step::Name(name) => {
            if let Some(known) = part.get("properties").and_then(|properties| properties.get(name)) {
                return vec![known];
            }
            let patterns = part.get("patternProperties").and_then(Json::as_object).into_iter().flat_map(|map| map.values());
            patterns.chain(["additionalProperties", "unevaluatedProperties"].into_iter().filter_map(|key| part.get(key))).collect()
        }
        Step::Index(index) => {
            let listed = ["prefixItems", "items"].into_iter().filter_map(|key| part.get(key)?.get(*index));
            let rest = ["items", "additionalItems", "unevaluatedItems"].into_iter().filter_map(|key| part.get(key));
            listed.chain(rest.filter(|part| part.is_object())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(value: &Json, pointer: &str) -> String {
        path(&steps(value, pointer))
    }

    #[test]
    fn a_path_is_written_as_in_javascript() {
        let value = json!({ "filters": [0, 1, { "name": 1, "a b": [1], "": 1, "größe": 1 }], "7": { "x/y~": 1 } });
        assert_eq!(written(&value, ""), "");
        assert_eq!(written(&value, "/filters/2/name"), "filters[2].name");
        assert_eq!(written(&value, "/filters/2/a b/0"), r#"filters[2]["a b"][0]"#);
        assert_eq!(written(&value, "/filters/2/"), r#"filters[2][""]"#);
        assert_eq!(written(&value, "/filters/2/größe"), "filters[2].größe");
        assert_eq!(written(&value, "/7/x~1y~0"), r#""7"["x/y~"]"#);
    }

    #[test]
    fn names_are_found_through_references_and_alternatives() {
        let schema = json!({
            "properties": { "a": { "$ref": "#/$defs/x%20y" }, "list": { "items": { "oneOf": [{ "properties": { "p": true } }] } } },
            "allOf": [{ "properties": { "b": true } }, { "$ref": "#" }],
            "$defs": { "x y": { "properties": { "inner": true }, "additionalProperties": { "properties": { "more": true } } } },
        });
        let value = json!({ "a": { "other": {} }, "list": [{}] });
        let names = |pointer| known_names(&schema, &steps(&value, pointer));
        assert_eq!(names(""), ["a", "list", "b"]);
        assert_eq!(names("/a"), ["inner"]);
        assert_eq!(names("/a/other"), ["more"]);
        assert_eq!(names("/list/0"), ["p"]);
        assert_eq!(names("/nowhere"), Vec::<&str>::new());
    }
}
