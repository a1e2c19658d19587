//! Checks a tool's arguments and results against the approved schemas.
//!
//! Schemas come from servers, which are not trusted. So no schema is fetched from elsewhere, and both compiling a schema and checking a
//! value are limited in time (module `guard`). If a value cannot be checked within these limits, it is not checked, and this is reported
//! once. A check that may take more than about a millisecond is made on a blocking thread (module `turns`). The module `input` describes violations for the author of the call. The module `output` describes violations without quoting
//! values.

mod expected;
mod guard;
mod input;
mod names;
mod normalise;
mod output;
mod part_locations;
mod turns;
mod violations;

#[cfg(test)]
mod input_tests;
#[cfg(test)]
mod normalise_tests;
#[cfg(test)]
mod output_tests;
#[cfg(test)]
mod turn_tests;

use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jsonschema::{ValidationError, Validator};
use serde_json::Value as Json;

use self::guard::{Bound, Cost, Guarded, guard};
use self::turns::{CheckTurns, MAX_COST_AT_ONCE};
use crate::catalog::{Manifest, Tool};
use crate::schema_engine::{compile, pattern_weight};
use crate::text::{is_quick_pattern, parsed_bytes, sanitise_line};

pub use input::ArgumentChecks;
pub use output::OutputChecks;

/// Maximum number of comparisons of a value with subschemas. This number of comparisons takes at most some tenths of a second.
const MAX_COMPARISONS: u64 = 2_000_000;
/// Maximum number of comparisons for which a violation is described. If the check needs more comparisons, violations are not described,
/// because describing takes more time and memory than checking.
const MAX_COST_TO_DESCRIBE: u64 = 200_000;
/// Maximum number of comparisons for which all violations are searched. If the check needs more comparisons, only the first violation is
/// described.
const MAX_COST_TO_DESCRIBE_ALL: u64 = 20_000;
/// Maximum number of bytes that the validator may copy to describe violations of `anyOf` and `oneOf`.
const MAX_COPIED: u64 = 4 * 1024 * 1024;
/// Maximum nesting depth of comparisons. A deeper comparison could overflow the stack.
const MAX_NESTING: usize = 1_000;
/// Maximum number of bytes that are parsed for all patterns of a schema. They take some tenths of a second.
const MAX_PARSED_BYTES: usize = 1024 * 1024;
const MAX_REASON_CHARS: usize = 500;
/// Maximum number of compiled schemas in the cache.
const MAX_KEPT: usize = 2_000;
/// Maximum total size in bytes of the texts of the schemas in the cache.
const MAX_KEPT_BYTES: usize = 8 * 1024 * 1024;

/// Function that describes violations. Its first argument is the normalised schema, to which the paths in the violations refer.
type DescribeViolations<'a> = dyn Fn(&Json, &[ValidationError<'_>]) -> String + 'a;

/// Selects either the input schema or the output schema of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Input,
    Output,
}

impl Side {
    fn of(self, tool: &Tool) -> Option<&Json> {
        match self {
            Self::Input => Some(&tool.input_schema),
            Self::Output => tool.output_schema.as_ref(),
        }
    }
}

/// A problem that was found when a value was checked.
#[derive(Debug, PartialEq, Eq)]
enum SchemaProblem {
    /// The value violates its schema. The text describes the violations.
    Broken(String),
    /// The value was not checked. The text is the reason. The reason is reported once for each schema.
    Unchecked(String),
}

/// The schemas of a gateway's tools. A schema is compiled when it is first needed.
#[derive(Default)]
pub struct ToolSchemas {
    kept: Mutex<CompiledSchemas>,
    turns: CheckTurns,
}

#[derive(Default)]
struct CompiledSchemas {
    entries: HashMap<Key, Entry>,
    /// The keys of the entries, with the oldest first.
    order: VecDeque<Key>,
    bytes: usize,
}

/// The key of a schema: the server, the tool, and which of the tool's two schemas it is.
type Key = (String, String, Side);

struct Entry {
    /// The manifest in which this schema was last found.
    manifest: Arc<Manifest>,
    bytes: usize,
    compiled: Arc<OnceLock<Compiled>>,
}

/// A compiled schema, or the reason why it cannot be used.
enum Compiled {
    Ready { schema: Json, validator: Box<Validator>, bound: Bound, is_reported: AtomicBool },
    Unusable { reason: String, is_reported: AtomicBool },
}

impl ToolSchemas {
    /// Checks a value, and returns the problem if there is one. `describe` describes the first violations. `describe` gets an empty list if
    /// finding the violations would cost too much.
    fn check(
        &self,
        (server, manifest, tool, side): (&str, &Arc<Manifest>, &Tool, Side),
        content: &Json,
        describe: &DescribeViolations<'_>,
    ) -> Option<SchemaProblem> {
        let schema = side.of(tool)?;
        let compiled = self.compiled(server, manifest, tool, side);
        compiled.get_or_init(|| Compiled::new(schema)).check(content, describe)
    }

    /// Returns whether a check is certainly short: the schema is compiled already, and it is cheap to compare the value with it.
    fn is_quick(&self, (server, manifest, tool, side): (&str, &Arc<Manifest>, &Tool, Side), content: &Json) -> bool {
        match side.of(tool) {
            Some(_) => self.compiled(server, manifest, tool, side).get().is_some_and(|compiled| compiled.is_quick(content)),
            None => true,
        }
    }

    /// Returns the cell for a compiled schema. The schema is compiled later and outside of the lock, because compiling may take some
    /// milliseconds.
    fn compiled(&self, server: &str, manifest: &Arc<Manifest>, tool: &Tool, side: Side) -> Arc<OnceLock<Compiled>> {
        let key = (server.to_owned(), tool.name.clone(), side);
        let mut kept = self.kept.lock();
        if let Some(entry) = kept.entries.get_mut(&key) {
            if Arc::ptr_eq(&entry.manifest, manifest) {
                return Arc::clone(&entry.compiled);
            }
            // The manifest is another object, but the schema is the same: the manifest was probably read again from the disk.
            if entry.manifest.tool(&tool.name).is_some_and(|known| side.of(known) == side.of(tool)) {
                entry.manifest = Arc::clone(manifest);
                return Arc::clone(&entry.compiled);
            }
        }
        kept.insert(key, manifest, tool)
    }
}

impl CompiledSchemas {
    fn insert(&mut self, key: Key, manifest: &Arc<Manifest>, tool: &Tool) -> Arc<OnceLock<Compiled>> {
        self.remove(&key);
        let bytes = serde_json::to_vec(&key.2.of(tool)).map_or(0, |json| json.len());
        while (self.bytes + bytes > MAX_KEPT_BYTES || self.order.len() >= MAX_KEPT)
            && let Some(oldest) = self.order.front().cloned()
        {
            self.remove(&oldest);
        }
        let compiled = Arc::new(OnceLock::new());
        self.bytes += bytes;
        self.order.push_back(key.clone());
        self.entries.insert(key, Entry { manifest: Arc::clone(manifest), bytes, compiled: Arc::clone(&compiled) });
        compiled
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
            self.order.retain(|known| known != key);
        }
    }
}

impl Compiled {
    fn new(schema: &Json) -> Self {
        let (weights, room) = (RefCell::new(HashMap::new()), Cell::new(MAX_PARSED_BYTES));
        let weight = |pattern: &str| -> Option<u64> {
            // A pattern for which no room is left counts as one that the validator does not support.
            let new = || {
                let left = room.get().checked_sub(parsed_bytes(pattern)).filter(|_| is_quick_pattern(pattern))?;
                room.set(left);
                pattern_weight(pattern)
            };
            *weights.borrow_mut().entry(pattern.to_owned()).or_insert_with(new)
        };
        let compiled = guard(schema, &weight).and_then(|Guarded { schema, bound }| {
            let validator = compile(&schema, None).map_err(|error| error.to_string())?;
            Ok((validator, schema, bound))
        });
        match compiled {
            Ok((validator, schema, bound)) => {
                Self::Ready { schema, validator: Box::new(validator), bound, is_reported: AtomicBool::new(false) }
            }
            Err(reason) => Self::Unusable { reason: line(&reason, MAX_REASON_CHARS), is_reported: AtomicBool::new(false) },
        }
    }

    fn is_quick(&self, content: &Json) -> bool {
        match self {
            Self::Unusable { .. } => true,
            Self::Ready { bound, .. } => bound.is_within(content, MAX_COST_AT_ONCE),
        }
    }

    fn check(&self, content: &Json, describe: &DescribeViolations<'_>) -> Option<SchemaProblem> {
        let unchecked = |reason: &str, is_reported: &AtomicBool| {
            (!is_reported.swap(true, Ordering::Relaxed)).then(|| SchemaProblem::Unchecked(reason.to_owned()))
        };
        let (schema, validator, bound, is_reported) = match self {
            Self::Unusable { reason, is_reported } => return unchecked(reason, is_reported),
            Self::Ready { schema, validator, bound, is_reported } => (schema, validator, bound, is_reported),
        };
        let cost = bound.of(content);
        if cost.nesting > MAX_NESTING {
            return unchecked("a value is nested too deep", is_reported);
        }
        if cost.comparisons > MAX_COMPARISONS {
            return unchecked("comparing a value with it could take too long", is_reported);
        }
        (!validator.is_valid(content)).then(|| SchemaProblem::Broken(describe(schema, &violations_of(validator, content, cost))))
    }
}

/// Returns the violations. If finding all of them would cost too much, returns only the first one, or none.
fn violations_of<'a>(validator: &'a Validator, content: &'a Json, cost: Cost) -> Vec<ValidationError<'a>> {
    if cost.copied > MAX_COPIED || cost.comparisons > MAX_COST_TO_DESCRIBE {
        return Vec::new();
    }
    if cost.comparisons > MAX_COST_TO_DESCRIBE_ALL {
        return validator.validate(content).err().into_iter().collect();
    }
    validator.iter_errors(content).collect()
}

/// Returns a text on one line, sanitised and cut.
fn line(text: &str, max_chars: usize) -> String {
    // The text is cut twice. The first cut limits the work of sanitising.
    sanitise_line(&text[..text.floor_char_boundary(max_chars * 8)], max_chars)
}
