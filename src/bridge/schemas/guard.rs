//! Limits the cost of a server's schema.
//!
//! The validator caches results, but a few lines of JSON can still make it compile or compare for hours, or overflow its stack. So a schema
//! is measured before it is compiled, and the cost of a comparison is estimated before it is made. The estimate is an upper bound that does
//! not depend on how the validator works.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};

use super::normalise::{Normalised, normalise};

/// The size in bytes of the largest schema that is used for checks.
pub(super) const MAX_SCHEMA_BYTES: usize = 256 * 1024;
const MAX_PARTS: usize = 5_000;
pub(super) const MAX_PATTERNS: usize = 64;
/// The largest number of parts that apply to the same value and are nested or refer to each other.
const MAX_CHAIN: usize = 100;
/// The largest number of ways through the schema to parts that apply to the same value. The validator may compile one part for each way.
const MAX_WAYS: u64 = 2_000;
/// The largest depth of a value, which is the depth that the JSON parser accepts.
const MAX_LEVELS: usize = 128;
/// The number of bytes of a value or of a part's keywords that cost as much as one comparison.
const BYTES_A_UNIT: usize = 64;

/// The form of the subschemas of a keyword.
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
    /// To the value to which the parent applies.
    Here,
    /// To the values inside of that value; each subschema applies to each of them.
    Inside,
    /// To the values inside of that value; at most one of the subschemas applies to each of them.
    OneInside,
    /// To no value, unless a reference leads to them.
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

/// A normalised schema that may be compiled.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) schema: Json,
    pub(super) bound: Bound,
}

/// The upper bound of a comparison's cost.
#[derive(Debug)]
pub(super) struct Bound {
    /// The number of comparisons with one value, for each level of the content.
    a_value: Vec<u64>,
    chain: usize,
    /// True if a part has `anyOf` or `oneOf`. To describe violations of these, the validator copies values.
    alternatives: bool,
}

/// The upper bound of the cost of checking one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) comparisons: u64,
    /// The depth of nested comparisons, which the stack must hold.
    pub(super) nesting: usize,
    /// The number of bytes that describing violations may copy.
    pub(super) copied: u64,
}

impl Bound {
    pub(super) fn of(&self, content: &Json) -> Cost {
        // This loop is not recursive, because the nesting of the value is not known yet.
        let (mut open, mut comparisons, mut levels, mut copied) = (vec![(content, 0, 0_u64)], 0_u64, 0, 0_u64);
        while let Some((value, level, above)) = open.pop() {
            levels = levels.max(level + 1);
            let at = |level: usize| self.a_value.get(level).copied().unwrap_or(u64::MAX);
            // A copy of a value may be a part of a copy of each value around it.
            let copies = above.saturating_add(at(level));
            copied = copied.saturating_add(copies.saturating_mul(own_bytes(value)));
            let mut add = |level: usize, bytes: usize| {
                comparisons = comparisons.saturating_add(at(level).saturating_mul(units(bytes)));
            };
            match value {
                Json::String(text) => add(level, text.len()),
                Json::Array(items) => {
                    add(level, items.len());
                    open.extend(items.iter().map(|item| (item, level + 1, copies)));
                }
                Json::Object(fields) => {
                    add(level, fields.len());
                    // `propertyNames` compares names as well.
                    fields.keys().for_each(|name| add(level + 1, name.len()));
                    open.extend(fields.values().map(|item| (item, level + 1, copies)));
                }
                Json::Null | Json::Bool(_) | Json::Number(_) => add(level, 0),
            }
        }
        Cost { comparisons, nesting: levels.saturating_mul(self.chain + 1), copied: if self.alternatives { copied } else { 0 } }
    }
}

/// Estimates the memory of a value, without the values inside of it.
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

/// Checks a schema before it is compiled. `knows` returns whether the validator supports a pattern; other patterns are left out.
///
/// # Errors
/// Fails with the reason why the schema is not used.
pub(super) fn guard(schema: &Json, knows: &dyn Fn(&str) -> bool) -> Result<Guarded, String> {
    let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("it has {bytes} bytes; the limit is {MAX_SCHEMA_BYTES}"));
    }
    let Normalised { schema, patterns } = normalise(schema, knows);
    if patterns > MAX_PATTERNS {
        return Err(format!("it has {patterns} patterns; the limit is {MAX_PATTERNS}"));
    }
    // The normalised schema is measured, because that is the schema that will be compiled.
    let mut parts = Parts { root: &schema, ids: HashMap::new(), all: Vec::new(), references: Vec::new(), alternatives: false };
    parts.collect(&schema)?;
    parts.link()?;
    let bound = parts.bound()?;
    Ok(Guarded { schema, bound })
}

/// A part of a schema, and the parts that are compared after it.
#[derive(Default)]
struct Part {
    /// The cost of the part's own keywords.
    units: u64,
    /// The parts that apply to the same value.
    here: Vec<usize>,
    /// The parts that apply to each value inside.
    inside: Vec<usize>,
    /// Lists of parts that exclude each other (`properties`, `items`, `prefixItems`): at most one part of a list applies to a given value inside.
    one_inside: Vec<Vec<usize>>,
    /// True if the part has `unevaluated…`, for which the validator compares the value a second time.
    compares_twice: bool,
}

struct Parts<'a> {
    root: &'a Json,
    /// The part's index, by its address.
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

    /// Connects each reference to its target. Only a part of this schema can be the target.
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

    /// Computes the bound of the cost for each level.
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
        // The number of comparisons for each part, with a value that is `level` levels inside of the part's value.
        let mut a_value = Vec::new();
        let mut before: Vec<u64> = Vec::new();
        for level in 0..MAX_LEVELS {
            let mut now = vec![0_u64; self.all.len()];
            for &id in &order {
                let part = &self.all[id];
                let inside = |child: &usize| before[*child];
                let own = if level == 0 {
                    part.units
                } else {
                    let one_each = part.one_inside.iter().filter_map(|list| list.iter().map(inside).max());
                    part.inside.iter().map(inside).chain(one_each).fold(0, u64::saturating_add)
                };
                let all = part.here.iter().fold(own, |sum, &child| sum.saturating_add(now[child]));
                now[id] = if part.compares_twice { all.saturating_mul(2) } else { all };
            }
            a_value.push(now[0]);
            before = now;
        }
        Ok(Bound { a_value, chain, alternatives: self.alternatives })
    }

    /// Returns all parts, sorted so that each part comes after those that apply to the same value.
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

/// Refuses keywords that change the targets of references.
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
