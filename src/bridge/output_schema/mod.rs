//! A result's structured content against the schema that its tool was approved with.
//!
//! Schemas are servers' own words: nothing is fetched for them, and neither compiling nor comparing may take long
//! (`guard`). What cannot be checked within that is not checked, and said once.

mod guard;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value as Json;

use self::guard::{Bound, Guarded, guard};
use crate::catalog::{Manifest, Tool};
use crate::config::SchemaViolations;
use crate::error::{Error, Result};
use crate::trust::sanitise_line;

/// Comparisons of a value with a part of its schema: some tenths of a second at most.
const MAX_COMPARISONS: u64 = 2_000_000;
/// The same for finding out what to say, which takes more time and memory: of the first violation, and of some.
const MAX_TO_TELL: u64 = 200_000;
const MAX_TO_TELL_SOME: u64 = 20_000;
/// What a compiled pattern may take; matching is linear in the text.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// Beyond it, comparing could overflow a stack.
const MAX_NESTING: usize = 1_000;
const TOLD: usize = 3;
const MAX_TEXT_CHARS: usize = 500;
/// Compiled schemas that are kept, and how much their texts may have together.
const MAX_KEPT: usize = 1_000;
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// What is to be said of a result.
#[derive(Debug, PartialEq, Eq)]
pub enum OutputProblem {
    /// It breaks its schema: where, and how.
    Broken(String),
    /// It was not checked: why. Said once of each schema.
    Unchecked(String),
}

/// The schemas of a gateway's tools, compiled when they are first needed.
#[derive(Default)]
pub struct OutputSchemas {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<(String, String), Entry>,
    /// The oldest first.
    order: VecDeque<(String, String)>,
    bytes: usize,
}

struct Entry {
    /// The manifest it was last found in, and the tool's digest of it.
    manifest: Arc<Manifest>,
    bytes: usize,
    compiled: Arc<OnceLock<Compiled>>,
}

/// A schema, as far as it could be compiled.
enum Compiled {
    Ready { validator: Box<Validator>, bound: Bound, told: AtomicBool },
    Unusable { reason: String, told: AtomicBool },
}

impl OutputSchemas {
    /// What is wrong with a result of `tools/call`, if anything is. `manifest` is the one that was approved.
    #[must_use]
    pub fn check(&self, server: &str, manifest: &Arc<Manifest>, tool: &str, result: &Json) -> Option<OutputProblem> {
        let known = manifest.tool(tool)?;
        let schema = known.output_schema.as_ref()?;
        if result.get("isError").and_then(Json::as_bool) == Some(true) {
            return None;
        }
        let Some(content) = result.get("structuredContent") else {
            return Some(OutputProblem::Broken("structuredContent: is missing, though the tool has an outputSchema".to_owned()));
        };
        let compiled = self.compiled(server, manifest, known);
        compiled.get_or_init(|| Compiled::new(schema)).check(content)
    }

    /// Compiling takes place outside of the lock: it may take some milliseconds.
    fn compiled(&self, server: &str, manifest: &Arc<Manifest>, tool: &Tool) -> Arc<OnceLock<Compiled>> {
        let key = (server.to_owned(), tool.name.clone());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = kept.entries.get_mut(&key) {
            if Arc::ptr_eq(&entry.manifest, manifest) {
                return Arc::clone(&entry.compiled);
            }
            // Read again from disk, mostly: the same tool in another place.
            if entry.manifest.tool(&tool.name).is_some_and(|known| known.output_schema == tool.output_schema) {
                entry.manifest = Arc::clone(manifest);
                return Arc::clone(&entry.compiled);
            }
        }
        kept.insert(key, manifest, tool)
    }
}

impl Kept {
    fn insert(&mut self, key: (String, String), manifest: &Arc<Manifest>, tool: &Tool) -> Arc<OnceLock<Compiled>> {
        self.remove(&key);
        let bytes = serde_json::to_vec(&tool.output_schema).map_or(0, |json| json.len());
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

    fn remove(&mut self, key: &(String, String)) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
            self.order.retain(|known| known != key);
        }
    }
}

impl Compiled {
    fn new(schema: &Json) -> Self {
        let compiled = guard(schema, &|pattern| compile(&serde_json::json!({ "pattern": pattern })).is_ok())
            .and_then(|Guarded { schema, bound }| Ok((compile(&schema)?, bound)));
        match compiled {
            Ok((validator, bound)) => Self::Ready { validator: Box::new(validator), bound, told: AtomicBool::new(false) },
            Err(reason) => Self::Unusable { reason: text(&reason), told: AtomicBool::new(false) },
        }
    }

    fn check(&self, content: &Json) -> Option<OutputProblem> {
        let unchecked = |reason: &str, told: &AtomicBool| {
            (!told.swap(true, Ordering::Relaxed)).then(|| OutputProblem::Unchecked(format!("the outputSchema cannot be used: {reason}")))
        };
        let (validator, bound, told) = match self {
            Self::Unusable { reason, told } => return unchecked(reason, told),
            Self::Ready { validator, bound, told } => (validator, bound, told),
        };
        let cost = bound.of(content);
        if cost.nesting > MAX_NESTING {
            return unchecked("a result is nested too deep", told);
        }
        if cost.comparisons > MAX_COMPARISONS {
            return unchecked("comparing a result with it could take too long", told);
        }
        (!validator.is_valid(content)).then(|| OutputProblem::Broken(violations(validator, content, cost.comparisons)))
    }
}

/// `offline`, and patterns on the engine that is linear in the text: nothing that a schema says is fetched or goes on for ever.
fn compile(schema: &Json) -> std::result::Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    let options = jsonschema::options().offline().should_validate_formats(false).with_pattern_options(patterns);
    options.build(schema).map_err(|error| error.to_string())
}

/// The first few violations. What the values are is left out: they are the caller's already, and may be secret.
fn violations(validator: &Validator, content: &Json, comparisons: u64) -> String {
    let told = |error: &jsonschema::ValidationError<'_>| format!("structuredContent{}: {}", error.instance_path(), error.masked());
    let all: Vec<String> = if comparisons <= MAX_TO_TELL_SOME {
        validator.iter_errors(content).take(TOLD).map(|error| told(&error)).collect()
    } else if comparisons <= MAX_TO_TELL {
        validator.validate(content).err().iter().map(told).collect()
    } else {
        Vec::new()
    };
    if all.is_empty() { "structuredContent: does not fit".to_owned() } else { text(&all.join("; ")) }
}

fn text(text: &str) -> String {
    // Cut twice: the first spares the second the work.
    sanitise_line(&text[..text.floor_char_boundary(MAX_TEXT_CHARS * 8)], MAX_TEXT_CHARS)
}

/// How the results of some servers are checked.
#[derive(Clone, Default)]
pub struct OutputChecks {
    schemas: Arc<OutputSchemas>,
    modes: BTreeMap<String, SchemaViolations>,
}

impl OutputChecks {
    /// `modes` by server; those that are missing only warn.
    #[must_use]
    pub fn new(schemas: Arc<OutputSchemas>, modes: BTreeMap<String, SchemaViolations>) -> Self {
        Self { schemas, modes }
    }

    /// A warning, if there is anything to say of a result.
    ///
    /// # Errors
    /// `ERR_OUTPUT_SCHEMA` where the result breaks its schema, and the server's mode is `error`.
    pub fn check(&self, server: &str, manifest: &Arc<Manifest>, tool: &str, result: &Json) -> Result<Option<String>> {
        let mode = self.modes.get(server).copied().unwrap_or_default();
        match (self.schemas.check(server, manifest, tool, result), mode) {
            (None, _) => Ok(None),
            (Some(OutputProblem::Unchecked(problem)), _) => Ok(Some(format!("the results of {server}.{tool} are not checked: {problem}"))),
            (Some(OutputProblem::Broken(problem)), SchemaViolations::Warn) => {
                Ok(Some(format!("the result of {server}.{tool} breaks the tool's own outputSchema: {problem}")))
            }
            (Some(OutputProblem::Broken(problem)), SchemaViolations::Error) => {
                Err(Error::OutputSchema { server: server.to_owned(), tool: tool.to_owned(), problem })
            }
        }
    }
}
