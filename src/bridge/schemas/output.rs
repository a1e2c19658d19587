//! Checks a result's structured content against the tool's `outputSchema`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonschema::ValidationError;
use serde_json::Value as Json;

use super::turns::CheckOwner;
use super::{SchemaProblem, Side, ToolSchemas, line};
use crate::catalog::{Manifest, Tool};
use crate::config::SchemaViolations;
use crate::error::{Error, Result};

/// Maximum number of violations that a message describes.
pub(super) const MAX_DESCRIBED: usize = 3;
pub(super) const MAX_TEXT_CHARS: usize = 500;

/// Checks of results, with a mode for each server.
#[derive(Clone, Default)]
pub struct OutputChecks {
    schemas: Arc<ToolSchemas>,
    modes: BTreeMap<String, SchemaViolations>,
    /// Number of the caller, for the turns of long checks.
    caller: usize,
}

impl OutputChecks {
    /// Makes checks with these modes, which are keyed by server. For other servers, a violation only causes a warning.
    #[must_use]
    pub fn new(schemas: Arc<ToolSchemas>, modes: BTreeMap<String, SchemaViolations>) -> Self {
        Self { schemas, modes, caller: 0 }
    }

    /// Sets the number of the caller, whose long checks wait for each other.
    #[must_use]
    pub fn of_caller(self, caller: usize) -> Self {
        Self { caller, ..self }
    }

    /// Checks a result as [`Self::check`] does, but makes a check that may be long on a blocking thread, when it is its turn. Returns the
    /// result with the warning.
    ///
    /// # Errors
    /// The errors of [`Self::check`], and `ERR_INTERNAL` if the thread has failed.
    pub async fn check_in_turn(&self, server: &str, manifest: &Arc<Manifest>, tool: &str, result: Json) -> Result<(Json, Option<String>)> {
        let is_quick = match checked_part(manifest, tool, &result) {
            Some((known, Some(content))) => self.schemas.is_quick((server, manifest, known, Side::Output), content),
            Some((_, None)) | None => true,
        };
        if is_quick {
            let warning = self.check(server, manifest, tool, &result)?;
            return Ok((result, warning));
        }
        let (this, manifest) = (self.clone(), Arc::clone(manifest));
        let (of_server, tool) = (server.to_owned(), tool.to_owned());
        let check = move || this.check(&of_server, &manifest, &tool, &result).map(|warning| (result, warning));
        self.schemas.turns.run(CheckOwner { caller: self.caller, server }, check).await
    }

    /// Checks a result of `tools/call`. Returns a warning if there is a problem. `manifest` is the approved manifest.
    ///
    /// # Errors
    /// `ERR_OUTPUT_SCHEMA` if the result violates the schema and the server's mode is `error`.
    pub fn check(&self, server: &str, manifest: &Arc<Manifest>, tool: &str, result: &Json) -> Result<Option<String>> {
        let mode = self.modes.get(server).copied().unwrap_or_default();
        match (problem(&self.schemas, server, manifest, tool, result), mode) {
            (None, _) => Ok(None),
            (Some(SchemaProblem::Unchecked(reason)), _) => {
                Ok(Some(format!("the results of {server}.{tool} are not checked, because its outputSchema cannot be used: {reason}")))
            }
            (Some(SchemaProblem::Broken(problem)), SchemaViolations::Warn) => {
                Ok(Some(format!("the result of {server}.{tool} breaks the tool's own outputSchema: {problem}")))
            }
            (Some(SchemaProblem::Broken(problem)), SchemaViolations::Error) => {
                Err(Error::OutputSchema { server: server.to_owned(), tool: tool.into(), problem: problem.into() })
            }
        }
    }
}

/// Checks a result, and returns the problem if there is one.
pub(super) fn problem(schemas: &ToolSchemas, server: &str, manifest: &Arc<Manifest>, tool: &str, result: &Json) -> Option<SchemaProblem> {
    let (known, content) = checked_part(manifest, tool, result)?;
    let Some(content) = content else {
        return Some(SchemaProblem::Broken("structuredContent: is missing, though the tool has an outputSchema".to_owned()));
    };
    schemas.check((server, manifest, known, Side::Output), content, &describe)
}

/// Returns the tool and the structured content of a result that is checked. Returns `None` if the tool has no schema for results, and for
/// a result that reports an error.
fn checked_part<'a>(manifest: &'a Manifest, tool: &str, result: &'a Json) -> Option<(&'a Tool, Option<&'a Json>)> {
    let known = manifest.tool(tool)?;
    known.output_schema.as_ref()?;
    let is_error = result.get("isError").and_then(Json::as_bool) == Some(true);
    (!is_error).then(|| (known, result.get("structuredContent")))
}

/// Describes the first few violations. The values are not shown, because they may be secret.
fn describe(_: &Json, errors: &[ValidationError<'_>]) -> String {
    let described =
        errors.iter().take(MAX_DESCRIBED).map(|error| format!("structuredContent{}: {}", error.instance_path(), error.masked()));
    let all: Vec<String> = described.collect();
    if all.is_empty() { "structuredContent: does not fit".to_owned() } else { line(&all.join("; "), MAX_TEXT_CHARS) }
}
