//! Measures a schema, with each reference replaced by the part to which it refers. The cost of compiling the schema and of a check follows from
//! its size.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};

use crate::schema_engine::pattern_weight;
use crate::text::{is_quick_pattern, parsed_bytes, sanitise_line};

/// The largest number of parts in a schema after each reference is replaced by the part to which it refers.
pub(in crate::boot) const MAX_EXPANDED_PARTS: usize = 5_000;
/// The largest number of patterns after references are replaced. A pattern of a few bytes can need 256 KiB of memory.
const MAX_PATTERNS: usize = 64;
/// The largest number of bytes in the texts of all patterns after references are replaced.
const MAX_PATTERN_TEXT: usize = 16 * 1024;
/// The largest number of bytes that are parsed to compile all patterns. They take some tenths of a second.
const MAX_PATTERN_PARSED: usize = 1024 * 1024;
/// The largest nesting depth after references are replaced. A deeper schema could overflow the stack of a thread.
const MAX_DEPTH: usize = 200;
/// The largest number of parts, each counted as often as the validator may compare it with one value.
const MAX_COMPARED_PARTS: usize = 50_000;
/// The number by which one `unevaluated…` multiplies the comparisons of the parts within its schema: the validator compares them for
/// themselves, and again to find out which properties they have compared.
const TIMES_UNEVALUATED: usize = 3;

/// The largest number of comparisons in one check. They take about a second.
const MAX_COMPARISONS: usize = 10_000_000;
/// The largest work of all patterns in one check, in comparisons that take as long. It takes about a second.
const MAX_MATCHING: u64 = 5_000_000;
/// The largest number of bytes that the validator may copy to describe a problem.
const MAX_COPIED_BYTES: usize = 16 * 1024 * 1024;
/// The number of bytes of a text that count as one comparison.
const BYTES_A_COMPARISON: usize = 64;

/// Keywords with which a schema can refer to other schemas, or with which a reference means something else in another place.
const REFUSED: [&str; 6] = ["$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor", "$id"];

/// The size of a schema after its references are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SchemaSize {
    parts: usize,
    /// The parts, each counted as often as the validator may compare it with one value.
    compared: usize,
    patterns: usize,
    pattern_text: usize,
    /// The number of bytes that are parsed to compile all patterns.
    pattern_parsed: usize,
    /// The weights of all patterns together.
    pattern_weight: u64,
}

/// An upper bound for the work of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckCost {
    comparisons: usize,
    matching: u64,
    copied_bytes: usize,
}

impl CheckCost {
    pub(super) fn is_too_long(self) -> bool {
        self.comparisons > MAX_COMPARISONS || self.matching > MAX_MATCHING
    }

    pub(super) fn is_too_long_to_describe(self) -> bool {
        self.copied_bytes > MAX_COPIED_BYTES
    }
}

impl SchemaSize {
    /// Measures a schema.
    ///
    /// # Errors
    /// Fails with the reason why the schema must not be compiled, as the end of a sentence.
    pub(super) fn of(schema: &Json) -> Result<Self, String> {
        let mut measure = Measure { root: schema, open: Vec::new(), size: Self::default() };
        measure.add(schema, Place::default())?;
        Ok(measure.size)
    }

    /// Returns an upper bound for the work of checking a value: each part of the schema is compared with each part of the value.
    pub(super) fn cost_of(self, value: &Json) -> CheckCost {
        let (mut open, mut units, mut bytes) = (vec![value], 0_usize, 0_usize);
        while let Some(value) = open.pop() {
            units += 1;
            let own = match value {
                Json::String(text) => text.len(),
                Json::Array(items) => {
                    open.extend(items);
                    0
                }
                Json::Object(fields) => {
                    open.extend(fields.values());
                    units += fields.len();
                    fields.keys().map(String::len).sum()
                }
                Json::Null | Json::Bool(_) | Json::Number(_) => 0,
            };
            units += own / BYTES_A_COMPARISON;
            bytes += own;
        }
        CheckCost {
            comparisons: self.compared.saturating_mul(units),
            matching: self.pattern_weight.saturating_mul(bytes as u64),
            copied_bytes: self.compared.saturating_mul(units.saturating_mul(BYTES_A_COMPARISON)),
        }
    }

    fn check(self) -> Result<(), String> {
        if self.parts > MAX_EXPANDED_PARTS {
            return Err(format!("has more than {MAX_EXPANDED_PARTS} parts after its references are replaced: write it shorter"));
        }
        if self.compared > MAX_COMPARED_PARTS {
            return Err(
                "has too many parts within \"unevaluatedProperties\" or \"unevaluatedItems\": use \"additionalProperties\"".to_owned()
            );
        }
        if self.patterns > MAX_PATTERNS {
            return Err(format!("has more than {MAX_PATTERNS} patterns after its references are replaced: leave some out"));
        }
        if self.pattern_parsed > MAX_PATTERN_PARSED {
            return Err("has too many classes such as \\s in its patterns after its references are replaced: write them shorter".to_owned());
        }
        if self.pattern_text > MAX_PATTERN_TEXT {
            return Err(format!(
                "has more than {MAX_PATTERN_TEXT} bytes of patterns after its references are replaced: write them shorter"
            ));
        }
        Ok(())
    }
}

/// Returns the part of a schema to which a reference leads. The validator decodes `%` in references too.
pub(in crate::boot) fn referenced<'a>(root: &'a Json, reference: &str) -> Option<&'a Json> {
    let pointer: Cow<'_, str> = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

/// The place of a part within the schema.
#[derive(Debug, Clone, Copy)]
struct Place {
    depth: usize,
    /// The number of comparisons of this part with one value, without those that its depth adds.
    times: usize,
    /// The number of levels below the outermost `unevaluated…`. It adds comparisons, because each level is asked what it has compared.
    below: usize,
}

impl Default for Place {
    fn default() -> Self {
        Self { depth: 0, times: 1, below: 0 }
    }
}

impl Place {
    fn within(self, is_unevaluated: bool) -> Self {
        let times = if is_unevaluated { self.times.saturating_mul(TIMES_UNEVALUATED) } else { self.times };
        let below = if is_unevaluated || self.below > 0 { self.below + 1 } else { 0 };
        Self { depth: self.depth + 1, times, below }
    }
}

struct Measure<'a> {
    root: &'a Json,
    /// The references that lead to this part.
    open: Vec<&'a Json>,
    size: SchemaSize,
}

impl<'a> Measure<'a> {
    fn add(&mut self, part: &'a Json, place: Place) -> Result<(), String> {
        self.size.parts += 1;
        self.size.compared = self.size.compared.saturating_add(place.times.saturating_mul(1 + place.below));
        self.size.check()?;
        if place.depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} levels deep after its references are replaced: write it flatter"));
        }
        match part {
            Json::Array(items) => items.iter().try_for_each(|item| self.add(item, place.within(false))),
            Json::Object(fields) => self.add_object(fields, place),
            _ => Ok(()),
        }
    }

    fn add_object(&mut self, fields: &'a Map<String, Json>, place: Place) -> Result<(), String> {
        let nested = if place.depth > 0 { Some("$schema") } else { None };
        if let Some(refused) = REFUSED.into_iter().chain(nested).find(|refused| fields.get(*refused).is_some_and(Json::is_string)) {
            return Err(format!("uses {refused}: write the part out where it is used"));
        }
        let inner = place.within(fields.keys().any(|key| key.starts_with("unevaluated")));
        let own = fields.get("pattern").and_then(Json::as_str);
        let names = fields.get("patternProperties").and_then(Json::as_object);
        for pattern in own.into_iter().chain(names.into_iter().flat_map(Map::keys).map(String::as_str)) {
            if !is_quick_pattern(pattern) {
                return Err(format!(
                    "has the pattern {}, which has too many classes such as \\s: write it shorter",
                    sanitise_line(pattern, 60)
                ));
            }
            self.size.patterns = self.size.patterns.saturating_add(inner.times);
            self.size.pattern_text += pattern.len();
            self.size.pattern_parsed = self.size.pattern_parsed.saturating_add(parsed_bytes(pattern));
            self.size.check()?;
            // If the validator does not support the pattern, the schema is refused when it is compiled.
            let weight = pattern_weight(pattern).unwrap_or_default().saturating_mul(inner.times as u64);
            self.size.pattern_weight = self.size.pattern_weight.saturating_add(weight);
        }
        self.size.check()?;
        if let Some(reference) = fields.get("$ref").and_then(Json::as_str) {
            let is_pointer = reference.strip_prefix('#').is_some_and(|pointer| pointer.is_empty() || pointer.starts_with('/'));
            let target = if is_pointer { referenced(self.root, reference) } else { None };
            let target = target.ok_or_else(|| format!("has the reference {}, which is not in it", sanitise_line(reference, 100)))?;
            if std::ptr::eq(target, self.root) || self.open.iter().any(|open| std::ptr::eq(*open, target)) {
                return Err(format!("refers to itself by {}: write it without recursion", sanitise_line(reference, 100)));
            }
            self.open.push(target);
            self.add(target, inner)?;
            self.open.pop();
        }
        fields.values().try_for_each(|value| self.add(value, inner))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(schema: &Json) -> String {
        SchemaSize::of(schema).err().unwrap_or_default()
    }

    #[test]
    fn a_schema_that_needs_more_work_than_its_length_shows_is_refused() {
        let definitions = |next: &dyn Fn(Json) -> Json, levels: usize| {
            let next = |level: usize| (format!("d{level}"), next(json!({ "$ref": format!("#/$defs/d{}", level + 1) })));
            let mut all: Map<_, _> = (0..levels).map(next).collect();
            all.insert(format!("d{levels}"), json!({ "type": "object" }));
            json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": all })
        };
        let chain = |next| definitions(&|next: Json| json!({ "allOf": [next] }), next);
        assert_eq!(problem(&chain(30)), "");
        assert!(problem(&chain(200)).contains("levels deep"));
        let unevaluated = |levels| definitions(&|next: Json| json!({ "anyOf": [next], "unevaluatedProperties": false }), levels);
        assert_eq!(problem(&unevaluated(3)), "");
        assert!(problem(&unevaluated(12)).contains("unevaluated"), "{}", problem(&unevaluated(12)));
        let many: Vec<_> = (0..65).map(|number| json!({ "pattern": format!("{number}") })).collect();
        assert!(problem(&json!({ "anyOf": many })).contains("64 patterns"));
        let names: Map<_, _> = (0..65).map(|number| (number.to_string(), json!(true))).collect();
        assert!(problem(&json!({ "patternProperties": names })).contains("64 patterns"));
        let long = json!({ "$ref": "#/$defs/a" });
        let long = json!({ "anyOf": [long, long, long], "$defs": { "a": { "pattern": "x".repeat(5_000) } } });
        assert!(problem(&long).contains("bytes of patterns"));
        assert!(problem(&json!({ "pattern": r"\s".repeat(1_000) })).contains("too many classes"));
        let folded: Vec<_> = (0..40).map(|number| json!({ "pattern": format!("(?i:{number}{})", r"\p{L}".repeat(10)) })).collect();
        assert!(problem(&json!({ "anyOf": folded })).contains("too many classes"));
    }

    #[test]
    fn a_circle_is_found_however_its_references_are_written() {
        for reference in ["#", "#/$defs/a", "#/%24defs/%61"] {
            let schema = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "items": { "$ref": reference } }, "%61": true } });
            assert!(problem(&schema).contains("recursion"), "{reference}: {}", problem(&schema));
        }
        let other =
            json!({ "items": { "$schema": "http://json-schema.org/draft-04/schema#", "id": "x:/", "$ref": "#/items/not", "not": {} } });
        assert!(problem(&other).contains("$schema"));
    }

    #[test]
    fn the_cost_of_a_check_is_known_before_it() {
        let size = SchemaSize { parts: 100, compared: 100, patterns: 2, pattern_text: 10, pattern_parsed: 10, pattern_weight: 80 };
        let cost = size.cost_of(&json!({ "a": ["b", 1] }));
        assert_eq!(cost, CheckCost { comparisons: 500, matching: 160, copied_bytes: 500 * BYTES_A_COMPARISON });
        assert!(!cost.is_too_long() && !cost.is_too_long_to_describe());
        assert!(size.cost_of(&json!("x".repeat(66_000))).is_too_long());
        let all = SchemaSize { compared: MAX_COMPARED_PARTS, patterns: 0, ..size };
        assert!(!all.cost_of(&json!(vec![1; 100])).is_too_long());
        assert!(all.cost_of(&json!(vec![1; 200])).is_too_long() && all.cost_of(&json!(vec![1; 100])).is_too_long_to_describe());
    }
}
