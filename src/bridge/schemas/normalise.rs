//! Rewrites a schema with keywords that the validator supports. The new schema has the meaning that the author of the schema probably
//! intended.
//!
//! `nullable` of `OpenAPI` and keywords of other drafts are translated. A keyword is left out if it cannot be used (`type: "any"`,
//! `minimum: "0"`, a reference to another document, a pattern for another engine). The rest of the schema still applies. The result may
//! only accept more values than the original, never fewer. In some places, leaving a keyword out would make the schema refuse more values
//! (in `not`, in `oneOf`, and for `additionalProperties: false` next to names that were left out). In these cases, the keyword that would
//! refuse the values is left out as well. The keys under `properties` and `$defs` are names and never keywords.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value as Json, json};

use super::guard::{Applies, KEYWORDS, MAX_PATTERNS, Shape, parts_of};
use super::part_locations::{Dialect, PartLocations};

/// Maximum nesting depth of a schema. This is more than the JSON parser accepts. Subschemas that are nested deeper are left out.
const MAX_DEPTH: usize = 200;
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Keywords besides `type` and `enum` that can refuse null. With `nullable`, they are moved into one of the two subschemas of an `anyOf`;
/// the other subschema accepts null.
pub(super) const REFUSING_NULL: [&str; 9] = ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "const"];
/// Keywords that can change the targets of references. Where they do, they are kept, so that `guard` refuses the schema.
const FOLLOWED_BY_NONE: [&str; 4] = ["$dynamicRef", "$recursiveRef", "$id", "id"];

/// A schema for the validator, without annotations, and the number of patterns in it.
pub(super) struct Normalised {
    pub(super) schema: Json,
    pub(super) patterns: usize,
}

/// The change that normalising has made to a keyword. After every change, the schema accepts more values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// The keyword still exists, but a subschema or a list in it accepts more values.
    Within,
    /// The keyword was left out, or some of the names in it were left out.
    Lost,
}

/// Normalises a schema. `knows` returns whether the validator supports a pattern.
pub(super) fn normalise(schema: &Json, knows: &dyn Fn(&str) -> bool) -> Normalised {
    let locations = PartLocations::new(schema, MAX_DEPTH);
    let mut copier =
        Copier { locations, knows, known: HashMap::new(), patterns: 0, reference_bytes: 0, references_widen: false, widened: false };
    let mut copy = copier.part(schema, 0).0;
    if copier.widened && copier.locations.has_references {
        // The target of a reference may accept more values after normalising. So the schema is normalised a second time, and every
        // reference is treated as changed.
        (copier.patterns, copier.reference_bytes, copier.references_widen) = (0, 0, true);
        copy = copier.part(schema, 0).0;
    }
    if let (Json::Object(fields), Some(uri)) = (&mut copy, copier.locations.dialect.uri()) {
        fields.insert("$schema".to_owned(), json!(uri));
    }
    // A value that is not a schema is returned unchanged. `guard` refuses it.
    let is_schema = schema.is_object() || schema.is_boolean();
    Normalised { schema: if is_schema { copy } else { schema.clone() }, patterns: copier.patterns }
}

struct Copier<'a> {
    locations: PartLocations<'a>,
    knows: &'a dyn Fn(&str) -> bool,
    known: HashMap<&'a str, bool>,
    patterns: usize,
    reference_bytes: usize,
    /// True if every reference is treated as if its target accepts more values than the original target.
    references_widen: bool,
    widened: bool,
}

impl<'a> Copier<'a> {
    /// Returns a normalised copy of a subschema, and whether the copy accepts more values than the original.
    fn part(&mut self, part: &'a Json, depth: usize) -> (Json, bool) {
        match part {
            Json::Object(fields) if depth <= MAX_DEPTH => self.object(fields, depth),
            Json::Bool(_) => (part.clone(), false),
            _ => {
                self.widened = true;
                (Json::Bool(true), true)
            }
        }
    }

    fn object(&mut self, fields: &'a Map<String, Json>, depth: usize) -> (Json, bool) {
        let dialect = self.locations.dialect;
        let (mut copy, mut changes) = (Map::new(), HashMap::new());
        for (key, value) in fields {
            let shape = KEYWORDS.iter().find(|(known, ..)| known == key).map(|(_, shape, _)| *shape);
            let (value, change) = match shape {
                Some(_) if key == "additionalItems" && dialect == Dialect::Draft2020 && !is_list(fields, "items") => (None, Change::None),
                Some(shape) => self.parts(key, shape, value, depth),
                None if FOLLOWED_BY_NONE.contains(&key.as_str()) => {
                    (dialect.renames(key, value, depth).then(|| value.clone()), Change::None)
                }
                None if key == "$ref" => self.reference(value),
                None if key == "pattern" => self.pattern(value),
                None => own(key, value, fields, dialect),
            };
            if change != Change::None {
                self.widened = true;
                changes.insert(key.as_str(), change);
            }
            if let Some(value) = value {
                copy.insert(key.clone(), value);
            }
        }
        if dialect.references_are_alone() && fields.contains_key("$ref") {
            copy.retain(|key, _| matches!(key.as_str(), "$ref" | "$defs" | "definitions"));
        }
        translate(&mut copy, fields, &mut changes, dialect);
        widen(&mut copy, &changes);
        if fields.get("nullable") == Some(&Json::Bool(true)) {
            with_null(&mut copy);
        }
        let widened = changes.keys().any(|key| !matches!(*key, "$defs" | "definitions"));
        (Json::Object(copy), widened)
    }

    fn parts(&mut self, key: &str, shape: Shape, value: &'a Json, depth: usize) -> (Option<Json>, Change) {
        let mut widened = false;
        let mut inner = |copier: &mut Self, part: &'a Json| {
            let (copy, wider) = copier.part(part, depth + 1);
            widened |= wider;
            copy
        };
        let mut lost = false;
        let copy = match (shape, value) {
            (Shape::One | Shape::OneOrList, Json::Object(_) | Json::Bool(_)) => inner(self, value),
            // An empty `prefixItems` has no effect, but an empty `allOf`, `anyOf` or `oneOf` is invalid.
            (Shape::List, Json::Array(items)) if items.is_empty() => {
                return (None, if key == "prefixItems" { Change::None } else { Change::Lost });
            }
            (Shape::List | Shape::OneOrList, Json::Array(items)) => items.iter().map(|item| inner(self, item)).collect(),
            (Shape::Map, Json::Object(map)) => {
                let mut copy = Map::new();
                for (name, part) in map {
                    let part = match part.as_array() {
                        _ if key == "patternProperties" && !self.knows(name) => None,
                        Some(names) if key == "dependencies" => Some(texts(names).0),
                        _ => Some(inner(self, part)),
                    };
                    lost |= part.is_none();
                    copy.extend(part.map(|part| (name.clone(), part)));
                }
                Json::Object(copy)
            }
            _ => return (None, Change::Lost),
        };
        let change = if widened { Change::Within } else { Change::None };
        (Some(copy), if lost { Change::Lost } else { change })
    }

    fn reference(&mut self, value: &'a Json) -> (Option<Json>, Change) {
        let room = super::guard::MAX_SCHEMA_BYTES.saturating_sub(self.reference_bytes);
        let Some(text) = value.as_str().and_then(|text| self.locations.reference(text, room)) else { return (None, Change::Lost) };
        self.reference_bytes += text.len();
        (Some(Json::String(text)), if self.references_widen { Change::Within } else { Change::None })
    }

    fn pattern(&mut self, value: &'a Json) -> (Option<Json>, Change) {
        match value.as_str() {
            Some(pattern) if self.knows(pattern) => (Some(value.clone()), Change::None),
            _ => (None, Change::Lost),
        }
    }

    fn knows(&mut self, pattern: &'a str) -> bool {
        self.patterns += 1;
        // If there are more patterns than the limit, the schema is refused anyway.
        self.patterns > MAX_PATTERNS || *self.known.entry(pattern).or_insert_with(|| (self.knows)(pattern))
    }
}

fn is_list(fields: &Map<String, Json>, key: &str) -> bool {
    fields.get(key).is_some_and(Json::is_array)
}

/// Returns a copy of a keyword without subschemas, if the keyword can be used. Annotations are left out, because they do not refuse any
/// value.
fn own(key: &str, value: &Json, fields: &Map<String, Json>, dialect: Dialect) -> (Option<Json>, Change) {
    let kept = |kept: bool| (kept.then(|| value.clone()), if kept { Change::None } else { Change::Lost });
    match key {
        "const" => kept(true),
        "type" => types(value),
        "enum" => match value.as_array() {
            Some(options) => options_of(options, dialect),
            None => kept(false),
        },
        "multipleOf" => kept(value.as_f64().is_some_and(|number| number > 0.0)),
        "maximum" | "minimum" => kept(value.is_number()),
        "exclusiveMaximum" | "exclusiveMinimum" => match value {
            Json::Bool(exclusive) => {
                let limit = fields.get(if key == "exclusiveMaximum" { "maximum" } else { "minimum" }).filter(|limit| limit.is_number());
                let kept = limit.filter(|_| *exclusive).map(|limit| if dialect == Dialect::Draft4 { value.clone() } else { limit.clone() });
                let change = if *exclusive && kept.is_none() { Change::Lost } else { Change::None };
                (kept, change)
            }
            _ => kept(value.is_number() && dialect != Dialect::Draft4),
        },
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties" | "maxContains" | "minContains" => {
            let count = count(value);
            let change = if count.is_some() { Change::None } else { Change::Lost };
            (count.map(Json::from), change)
        }
        "uniqueItems" => kept(value.is_boolean()),
        "contentEncoding" | "contentMediaType" => kept(value.is_string()),
        "required" => match value.as_array() {
            Some(names) => {
                let (names, change) = texts(names);
                (Some(names).filter(|names| names.as_array().is_some_and(|names| !names.is_empty())), change)
            }
            None => kept(false),
        },
        "dependentRequired" => match value.as_object() {
            Some(map) => {
                let lists = map.iter().map(|(name, names)| (name.clone(), texts(names.as_array().map_or(&[][..], Vec::as_slice)).0));
                let well = map.values().all(|names| names.as_array().is_some_and(|names| names.iter().all(Json::is_string)));
                (Some(Json::Object(lists.collect())), if well { Change::None } else { Change::Within })
            }
            None => kept(false),
        },
        _ => (None, Change::None),
    }
}

fn types(value: &Json) -> (Option<Json>, Change) {
    let is_type = |name: &Json| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Json::String(_) if is_type(value) => (Some(value.clone()), Change::None),
        Json::Array(names) if !names.is_empty() && names.iter().all(is_type) => (Some(texts(names).0), Change::None),
        _ => (None, Change::Lost),
    }
}

/// Returns the options of `enum`. Older drafts require that all options are different, so duplicates are removed for them.
fn options_of(options: &[Json], dialect: Dialect) -> (Option<Json>, Change) {
    if !matches!(dialect, Dialect::Draft4 | Dialect::Draft6) {
        return (Some(Json::Array(options.to_vec())), Change::None);
    }
    let mut seen = HashSet::new();
    let options: Vec<Json> = options.iter().filter(|option| seen.insert(option.to_string())).cloned().collect();
    if options.is_empty() { (None, Change::Lost) } else { (Some(Json::Array(options)), Change::None) }
}

/// Returns the texts in a list, without duplicates.
fn texts(list: &[Json]) -> (Json, Change) {
    let mut seen = HashSet::new();
    let texts: Json = list.iter().filter(|item| item.as_str().is_some_and(|text| seen.insert(text))).cloned().collect();
    (texts, if list.iter().all(Json::is_string) { Change::None } else { Change::Lost })
}

/// Returns a size, such as the value of `minLength`. The size may also be written as `2.0`.
fn count(value: &Json) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|double| double.fract() == 0.0).and_then(|double| format!("{double:.0}").parse().ok()))
}

/// Translates keywords that have another meaning in other drafts: `items` whose value is a list, and `exclusiveMaximum` and
/// `exclusiveMinimum` whose values are booleans.
fn translate<'a>(copy: &mut Map<String, Json>, fields: &'a Map<String, Json>, changes: &mut HashMap<&'a str, Change>, dialect: Dialect) {
    for (flag, limit) in [("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")] {
        if dialect != Dialect::Draft4 && fields.get(flag) == Some(&Json::Bool(true)) {
            copy.remove(limit);
        }
    }
    if dialect != Dialect::Draft2020 || !is_list(fields, "items") {
        return;
    }
    let (listed, rest) = (copy.remove("items"), copy.remove("additionalItems"));
    if copy.remove("prefixItems").is_some() {
        // It is unknown which of the two lists is meant, so both are left out.
        changes.insert("prefixItems", Change::Lost);
        return;
    }
    if changes.get("additionalItems") == Some(&Change::Within) {
        changes.insert("items", Change::Within);
    }
    copy.extend(
        listed.filter(|listed| listed.as_array().is_some_and(|listed| !listed.is_empty())).map(|listed| ("prefixItems".to_owned(), listed)),
    );
    copy.extend(rest.map(|rest| ("items".to_owned(), rest)));
}

/// Removes keywords that would now refuse values that the original schema accepts.
fn widen(copy: &mut Map<String, Json>, changes: &HashMap<&str, Change>) {
    let change = |key: &str| changes.get(key).copied().unwrap_or(Change::None);
    let mut remove = |keys: &[&str]| copy.retain(|key, _| !keys.contains(&key.as_str()));
    for (lost, refuses) in [
        ("properties", "additionalProperties"),
        ("patternProperties", "additionalProperties"),
        ("prefixItems", "items"),
        ("items", "additionalItems"),
        ("minContains", "contains"),
    ] {
        if change(lost) == Change::Lost {
            remove(&[refuses]);
        }
    }
    for (changed, refuses) in [("not", &["not"][..]), ("if", &["if", "then", "else"]), ("contains", &["maxContains"])] {
        if change(changed) != Change::None {
            remove(refuses);
        }
    }
    // The keywords `unevaluatedProperties` and `unevaluatedItems` depend on the results of other keywords.
    let applies_here = |key: &str| KEYWORDS.iter().any(|(known, _, applies)| *known == key && matches!(applies, Applies::Here));
    let in_place = |(key, change): (&&str, &Change)| *change == Change::Lost || applies_here(key) || matches!(*key, "$ref" | "contains");
    if changes.iter().any(in_place) {
        remove(&["unevaluatedProperties", "unevaluatedItems"]);
    }
    if change("oneOf") != Change::None
        && let Some(alternatives) = copy.remove("oneOf")
    {
        // After the change, a value may match more than one subschema, so `oneOf` is replaced by `anyOf`.
        copy.entry("anyOf").or_insert(alternatives);
    }
}

/// Implements `nullable: true`: makes the schema accept null too. Keywords that need not be moved stay in place, so that references to
/// their subschemas stay valid.
fn with_null(copy: &mut Map<String, Json>) {
    let only_null = json!({ "type": "null" });
    match copy.get_mut("type") {
        Some(Json::Array(names)) if !names.iter().any(|name| name == "null") => names.push(json!("null")),
        Some(name @ Json::String(_)) if name != "null" => *name = json!([name.take(), "null"]),
        _ => {}
    }
    if let Some(Json::Array(options)) = copy.get_mut("enum")
        && !options.contains(&Json::Null)
    {
        options.push(Json::Null);
    }
    let refusing: Vec<&str> = REFUSING_NULL.into_iter().filter(|key| copy.contains_key(*key)).collect();
    match (refusing.as_slice(), copy.get_mut("anyOf")) {
        ([], _) => {}
        (["anyOf"], Some(Json::Array(alternatives))) => alternatives.push(only_null),
        _ => {
            let moved: Map<String, Json> = refusing.into_iter().filter_map(|key| copy.remove_entry(key)).collect();
            copy.insert("anyOf".to_owned(), json!([moved, only_null]));
        }
    }
}

/// Returns the location of a keyword's subschemas after normalising, as tokens of a JSON Pointer.
pub(super) fn location_after(key: &str, fields: &Map<String, Json>, dialect: Dialect) -> String {
    let listed = dialect == Dialect::Draft2020 && is_list(fields, "items");
    match key {
        "items" if listed => "prefixItems".to_owned(),
        "additionalItems" if listed => "items".to_owned(),
        _ if fields.get("nullable") == Some(&Json::Bool(true)) && REFUSING_NULL.contains(&key) => {
            let alone = REFUSING_NULL.iter().all(|other| *other == "anyOf" || !fields.contains_key(*other));
            if alone { key.to_owned() } else { format!("anyOf/0/{key}") }
        }
        _ => key.to_owned(),
    }
}

/// Returns the subschemas of a keyword. Returns with each subschema the JSON Pointer tokens that lead to it.
pub(super) fn children<'a>(key: &str, shape: Shape, value: &'a Json) -> Vec<(String, &'a Json)> {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let is_part = |part: &Json| part.is_object() || part.is_boolean();
    match (shape, value) {
        (Shape::List | Shape::OneOrList, Json::Array(items)) => {
            let items = items.iter().enumerate().filter(|(_, part)| is_part(part));
            items.map(|(index, part)| (format!("{key}/{index}"), part)).collect()
        }
        (Shape::Map, Json::Object(map)) => {
            map.iter().filter(|(_, part)| is_part(part)).map(|(name, part)| (format!("{key}/{}", escaped(name)), part)).collect()
        }
        _ => parts_of(value, shape).into_iter().map(|part| (key.to_owned(), part)).collect(),
    }
}
