//! Limits the cost of a server's schema.
//!
//! The validator caches results, but a few lines of JSON can still make it compile or compare for hours, or overflow its stack. So the
//! schema is measured before it is compiled. Before a value is compared with the schema, the cost of the comparison is estimated. The
//! estimate is an upper bound that does not depend on the implementation of the validator.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};

use super::normalise::{Normalised, normalise};

/// Maximum size in bytes of a schema that is used for checks.
pub(super) const MAX_SCHEMA_BYTES: usize = 256 * 1024;
const MAX_PARTS: usize = 5_000;
pub(super) const MAX_PATTERNS: usize = 64;
/// Maximum number of subschemas in a chain. In a chain, each subschema contains the next one or refers to it, and all of them apply to the
/// same value.
const MAX_CHAIN: usize = 100;
/// Maximum number of different paths through the schema to subschemas that apply to the same value. The validator may compile a subschema
/// once for each path.
const MAX_WAYS: u64 = 2_000;
/// Maximum nesting depth of a value. The JSON parser does not accept values that are nested deeper.
const MAX_LEVELS: usize = 128;
/// The number of bytes of a value, or of a subschema's keywords, whose cost is counted as one comparison.
const BYTES_A_UNIT: usize = 64;

/// The cost of reading one value for `uniqueItems`, which compares the whole items.
const READING: u64 = 2;

/// Form of a keyword's value: one subschema, a list of them, or a map of them.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    One,
    List,
    OneOrList,
    Map,
}

/// The values to which the subschemas of a keyword apply.
#[derive(Clone, Copy)]
pub(super) enum Applies {
    /// The subschemas apply to the same value as the parent schema.
    Here,
    /// The subschemas apply to the child values of the value to which the parent schema applies. Each subschema may apply to every child
    /// value.
    Inside,
    /// The subschemas apply to the child values of the value to which the parent schema applies. At most one of the subschemas applies to
    /// each child value.
    OneInside,
    /// The subschemas do not apply to any value, unless a reference refers to them.
    Nowhere,
}

pub(super) const KEYWORDS: [(&str, Shape, Applies); 22] = [
    ("allOf", Shape::List, Applies::Here),
    ("anyOf", Shape::List, Applies::Here),
    ("oneOf", Shape::List, Applies::Here),
    ("not", Shape::One, Applies::Here),
    ("if", Shape::One, Applies::Here),
    ("then", Shape::One, Applies::Here),
    ("else", Shape::One, Applies::Here),
    ("dependentSchemas", Shape::Map, Applies::Here),
    ("dependencies", Shape::Map, Applies::Here),
    ("properties", Shape::Map, Applies::OneInside),
    ("patternProperties", Shape::Map, Applies::Inside),
    ("additionalProperties", Shape::One, Applies::Inside),
    ("unevaluatedProperties", Shape::One, Applies::Inside),
    ("propertyNames", Shape::One, Applies::Inside),
    ("items", Shape::OneOrList, Applies::OneInside),
    ("prefixItems", Shape::List, Applies::OneInside),
    ("additionalItems", Shape::One, Applies::Inside),
    ("unevaluatedItems", Shape::One, Applies::Inside),
    ("contains", Shape::One, Applies::Inside),
    ("contentSchema", Shape::One, Applies::Nowhere),
    ("$defs", Shape::Map, Applies::Nowhere),
    ("definitions", Shape::Map, Applies::Nowhere),
];

/// A normalised schema that may be compiled, with an upper bound for the cost of comparisons with it.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) schema: Json,
    pub(super) bound: Bound,
}

/// Upper bound for the cost of comparing a value with a schema.
#[derive(Debug)]
pub(super) struct Bound {
    /// Maximum number of comparisons of one value, by the nesting level of this value within the whole value.
    a_value: Vec<u64>,
    /// The same for the patterns that are compared with each byte of a text or of a name.
    a_byte: Vec<u64>,
    chain: usize,
    /// True if the schema contains `anyOf` or `oneOf`. The validator copies values to describe violations of these keywords.
    alternatives: bool,
}

/// Upper bound for the cost of checking one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) comparisons: u64,
    /// Depth of nested comparisons, for which the stack must have room.
    pub(super) nesting: usize,
    /// Number of bytes that the validator may copy to describe violations.
    pub(super) copied: u64,
}

impl Bound {
    pub(super) fn of(&self, content: &Json) -> Cost {
        // This loop is not recursive, because the value's nesting depth is not known yet.
        let (mut open, mut comparisons, mut levels, mut copied) = (vec![(content, 0, 0_u64)], 0_u64, 0, 0_u64);
        while let Some((value, level, above)) = open.pop() {
            levels = levels.max(level + 1);
            let at = |level: usize| self.a_value.get(level).copied().unwrap_or(u64::MAX);
            // A value may be copied again with each value that contains it.
            let copies = above.saturating_add(at(level));
            copied = copied.saturating_add(copies.saturating_mul(own_bytes(value)));
            let mut add = |level: usize, bytes: usize| {
                comparisons = comparisons.saturating_add(at(level).saturating_mul(units(bytes)));
            };
            match value {
                Json::String(text) => {
                    add(level, text.len());
                    comparisons = comparisons.saturating_add(self.of_text(level, text));
                }
                Json::Array(items) => {
                    add(level, items.len());
                    open.extend(items.iter().map(|item| (item, level + 1, copies)));
                }
                Json::Object(fields) => {
                    add(level, fields.len());
                    // `propertyNames` also compares the names of the fields.
                    fields.keys().for_each(|name| add(level + 1, name.len()));
                    let of_names = fields.keys().map(|name| self.of_name(level, name)).fold(0, u64::saturating_add);
                    comparisons = comparisons.saturating_add(of_names);
                    open.extend(fields.values().map(|item| (item, level + 1, copies)));
                }
                Json::Null | Json::Bool(_) | Json::Number(_) => add(level, 0),
            }
        }
        Cost { comparisons, nesting: levels.saturating_mul(self.chain + 1), copied: if self.alternatives { copied } else { 0 } }
    }

    /// Returns the cost of the patterns for a text at this level.
    fn of_text(&self, level: usize, text: &str) -> u64 {
        self.a_byte.get(level).copied().unwrap_or(u64::MAX).saturating_mul(text.len() as u64)
    }

    /// Returns the cost of the patterns for a field's name. `patternProperties` of the object and `propertyNames` have patterns for it.
    fn of_name(&self, level: usize, name: &str) -> u64 {
        self.of_text(level, name).saturating_add(self.of_text(level + 1, name))
    }

    /// Returns whether comparing the value, and only reading it, costs at most `limit` comparisons. Stops reading when it costs more.
    pub(super) fn is_within(&self, content: &Json, limit: u64) -> bool {
        let (mut open, mut left) = (vec![(content, 0)], limit);
        while let Some((value, level)) = open.pop() {
            let at = |level: usize| self.a_value.get(level).copied().unwrap_or(u64::MAX).max(1);
            let mut is_paid = |level: usize, bytes: usize, patterns: u64| {
                let rest = left.checked_sub(at(level).saturating_mul(units(bytes)).saturating_add(patterns));
                left = rest.unwrap_or_default();
                rest.is_some()
            };
            let has_room = match value {
                Json::String(text) => is_paid(level, text.len(), self.of_text(level, text)),
                Json::Array(items) => is_paid(level, items.len(), 0),
                Json::Object(fields) => {
                    is_paid(level, fields.len(), 0) && fields.keys().all(|name| is_paid(level + 1, name.len(), self.of_name(level, name)))
                }
                Json::Null | Json::Bool(_) | Json::Number(_) => is_paid(level, 0, 0),
            };
            if !has_room {
                return false;
            }
            match value {
                // The last item of a long list would be read first, so a list that is certainly too long is not read at all.
                Json::Array(items) if items.len() as u64 > left => return false,
                Json::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
                Json::Object(fields) => open.extend(fields.values().map(|item| (item, level + 1))),
                _ => {}
            }
        }
        true
    }
}

/// Estimates the memory of a value without its child values.
fn own_bytes(value: &Json) -> u64 {
    let text = match value {
        Json::String(text) => text.len(),
        Json::Object(fields) => fields.keys().map(|name| name.len() + BYTES_A_UNIT).sum(),
        _ => 0,
    };
    (size_of::<Json>() + text) as u64
}

fn units(bytes: usize) -> u64 {
    1 + (bytes / BYTES_A_UNIT) as u64
}

/// Checks and normalises a schema before it is compiled. `weight` returns the number of comparisons that take as long as matching one byte with
/// a pattern, or `None` if the validator does not support the pattern. Such patterns are left out.
///
/// # Errors
/// The reason why the schema is not used.
pub(super) fn guard(schema: &Json, weight: &dyn Fn(&str) -> Option<u64>) -> Result<Guarded, String> {
    let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("it has {bytes} bytes; the limit is {MAX_SCHEMA_BYTES}"));
    }
    let Normalised { schema, patterns } = normalise(schema, &|pattern| weight(pattern).is_some());
    if patterns > MAX_PATTERNS {
        return Err(format!("it has {patterns} patterns; the limit is {MAX_PATTERNS}"));
    }
    // The normalised schema is measured, because it is the schema that is compiled.
    let mut parts = Parts { root: &schema, weight, ids: HashMap::new(), all: Vec::new(), references: Vec::new(), alternatives: false };
    parts.collect(&schema)?;
    parts.link()?;
    let bound = parts.bound()?;
    Ok(Guarded { schema, bound })
}

/// A subschema, with the indexes of the subschemas that it leads to.
#[derive(Default)]
struct Part {
    /// Cost of the subschema's own keywords.
    units: u64,
    /// Cost of the subschema's own patterns for one byte.
    pattern_weight: u64,
    /// Cost of the subschema's own keywords for each value within its value, at any level.
    reading: u64,
    /// Indexes of the subschemas that apply to the same value.
    here: Vec<usize>,
    /// Indexes of the subschemas that apply to every child value.
    inside: Vec<usize>,
    /// Lists of indexes of subschemas that exclude each other (`properties`, `items`, `prefixItems`). At most one subschema of a list
    /// applies to a given child value.
    one_inside: Vec<Vec<usize>>,
    /// True if the subschema has a keyword `unevaluated…`. The validator then compares the value twice.
    compares_twice: bool,
}

struct Parts<'a> {
    root: &'a Json,
    weight: &'a dyn Fn(&str) -> Option<u64>,
    /// Index of each subschema, keyed by its address in memory.
    ids: HashMap<*const Json, usize>,
    all: Vec<Part>,
    references: Vec<(usize, &'a str)>,
    alternatives: bool,
}

impl<'a> Parts<'a> {
    fn collect(&mut self, part: &'a Json) -> Result<usize, String> {
        let id = self.all.len();
        if id >= MAX_PARTS {
            return Err(format!("it has more than {MAX_PARTS} parts"));
        }
        self.ids.insert(std::ptr::from_ref(part), id);
        self.all.push(Part::default());
        let Json::Object(fields) = part else {
            self.all[id].units = 1;
            return Ok(id);
        };
        check_references(fields, id == 0)?;
        if let Some(reference) = fields.get("$ref") {
            self.references.push((id, reference.as_str().ok_or("it has a $ref that is not a string")?));
        }
        self.alternatives |= fields.contains_key("anyOf") || fields.contains_key("oneOf");
        let own = fields.iter().filter(|(key, _)| shape_of(key).is_none());
        let own_bytes = own.map(|(key, value)| key.len() + serde_json::to_vec(value).map_or(0, |json| json.len())).sum();
        self.all[id].units = units(own_bytes);
        self.all[id].pattern_weight = patterns_of(fields).filter_map(self.weight).fold(0, u64::saturating_add);
        self.all[id].reading = if fields.get("uniqueItems") == Some(&Json::Bool(true)) { READING } else { 0 };
        self.all[id].compares_twice = fields.keys().any(|key| key.starts_with("unevaluated"));
        for (key, shape, applies) in KEYWORDS {
            let Some(value) = fields.get(key) else { continue };
            let children = parts_of(value, shape).into_iter().map(|part| self.collect(part)).collect::<Result<Vec<_>, _>>()?;
            let part = &mut self.all[id];
            match applies {
                Applies::Here => part.here.extend(children),
                Applies::Inside => part.inside.extend(children),
                Applies::OneInside => part.one_inside.push(children),
                Applies::Nowhere => {}
            }
        }
        Ok(id)
    }

    /// Connects each reference with its target. The target must be a subschema of the same schema.
    fn link(&mut self) -> Result<(), String> {
        for (id, reference) in std::mem::take(&mut self.references) {
            let target = reference
                .strip_prefix('#')
                .and_then(|pointer| percent_decode_str(pointer).decode_utf8().ok())
                .and_then(|pointer| self.root.pointer(&pointer))
                .and_then(|part| self.ids.get(&std::ptr::from_ref(part)));
            let target = *target.ok_or_else(|| format!("its reference {reference:?} does not lead to a part of the schema"))?;
            self.all[id].here.push(target);
        }
        Ok(())
    }

    /// Computes the upper bound of the cost for each nesting level.
    fn bound(&self) -> Result<Bound, String> {
        let order = self.order()?;
        let mut chains = vec![1_usize; self.all.len()];
        let mut ways = vec![1_u64; self.all.len()];
        for &id in &order {
            let here = &self.all[id].here;
            chains[id] = 1 + here.iter().map(|&child| chains[child]).max().unwrap_or_default();
            ways[id] = here.iter().fold(1, |sum: u64, &child| sum.saturating_add(ways[child]));
        }
        let chain = chains.iter().copied().max().unwrap_or_default();
        if chain > MAX_CHAIN || ways.iter().any(|&ways| ways > MAX_WAYS) {
            return Err(format!("too many of its parts apply to one value: more than {MAX_WAYS}, or more than {MAX_CHAIN} nested parts"));
        }
        let a_value = self.by_level(&order, |part| part.units, |part| part.reading);
        let a_byte = self.by_level(&order, |part| part.pattern_weight, |_| 0);
        Ok(Bound { a_value, a_byte, chain, alternatives: self.alternatives })
    }

    /// Adds up a cost of the subschemas that apply to one value, by the nesting level of this value. `own` is the cost of a subschema for its
    /// own value, and `any` its cost for this value and for each value within it.
    fn by_level(&self, order: &[usize], own: impl Fn(&Part) -> u64, any: impl Fn(&Part) -> u64) -> Vec<u64> {
        // For each subschema, `before` and `now` contain the cost of a value that is nested `level` levels deep in the value to which the
        // subschema applies.
        let mut a_value = Vec::new();
        let mut before: Vec<u64> = Vec::new();
        for level in 0..MAX_LEVELS {
            let mut now = vec![0_u64; self.all.len()];
            for &id in order {
                let part = &self.all[id];
                let inside = |child: &usize| before[*child];
                let at_level = if level == 0 {
                    own(part)
                } else {
                    let one_each = part.one_inside.iter().filter_map(|list| list.iter().map(inside).max());
                    part.inside.iter().map(inside).chain(one_each).fold(0, u64::saturating_add)
                };
                let sum = part.here.iter().fold(at_level.saturating_add(any(part)), |sum, &child| sum.saturating_add(now[child]));
                now[id] = if part.compares_twice { sum.saturating_mul(2) } else { sum };
            }
            a_value.push(now[0]);
            before = now;
        }
        a_value
    }

    /// Returns the indexes of all subschemas in such an order that each subschema comes after the subschemas that it applies to the same
    /// value.
    fn order(&self) -> Result<Vec<usize>, String> {
        let mut waiting = vec![0_usize; self.all.len()];
        let mut parents = vec![Vec::new(); self.all.len()];
        for (id, part) in self.all.iter().enumerate() {
            waiting[id] = part.here.len();
            part.here.iter().for_each(|&child| parents[child].push(id));
        }
        let mut order: Vec<usize> = (0..self.all.len()).filter(|&id| waiting[id] == 0).collect();
        let mut next = 0;
        while let Some(&id) = order.get(next) {
            next += 1;
            for &parent in &parents[id] {
                waiting[parent] -= 1;
                if waiting[parent] == 0 {
                    order.push(parent);
                }
            }
        }
        if order.len() < self.all.len() { Err("its references form a cycle".to_owned()) } else { Ok(order) }
    }
}

/// Returns the patterns of a subschema's own keywords.
fn patterns_of(fields: &Map<String, Json>) -> impl Iterator<Item = &str> {
    let names = fields.get("patternProperties").and_then(Json::as_object);
    fields.get("pattern").and_then(Json::as_str).into_iter().chain(names.into_iter().flat_map(Map::keys).map(String::as_str))
}

/// Returns an error if there is a keyword that changes the targets of references.
fn check_references(fields: &Map<String, Json>, is_root: bool) -> Result<(), String> {
    let dynamic = ["$dynamicRef", "$recursiveRef"].into_iter().find(|key| fields.contains_key(*key));
    let renamed = ["$id", "id"].into_iter().find(|key| !is_root && fields.get(*key).is_some_and(Json::is_string));
    match dynamic.or(renamed) {
        Some(key) => Err(format!("it uses {key}, which is not supported")),
        None => Ok(()),
    }
}

fn shape_of(key: &str) -> Option<Shape> {
    KEYWORDS.iter().find(|(known, ..)| *known == key).map(|(_, shape, _)| *shape)
}

pub(super) fn parts_of(value: &Json, shape: Shape) -> Vec<&Json> {
    let is_part = |value: &&Json| value.is_object() || value.is_boolean();
    match (shape, value) {
        (Shape::One | Shape::OneOrList, Json::Object(_) | Json::Bool(_)) => vec![value],
        (Shape::List | Shape::OneOrList, Json::Array(items)) => items.iter().filter(is_part).collect(),
        (Shape::Map, Json::Object(fields)) => fields.values().filter(is_part).collect(),
        _ => Vec::new(),
    }
}
