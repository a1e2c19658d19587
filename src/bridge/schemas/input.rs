//! Checks the arguments of a call against the tool's `inputSchema` before the call is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::turns::CheckOwner;
use super::{SchemaProblem, Side, ToolSchemas, violations};
use crate::catalog::Manifest;
use crate::config::ArgumentCheck;
use crate::error::{Error, Result};
use crate::redact::Redactor;

/// Message that is used if a value violates the schema, but the redacted value does not, so that the violation cannot be described.
const SECRET_VALUE: &str = "a value does not fit; it is not shown because it contains a secret";

/// Checks of arguments, with a mode for each server.
#[derive(Clone, Default)]
pub struct ArgumentChecks {
    schemas: Arc<ToolSchemas>,
    modes: BTreeMap<String, ArgumentCheck>,
    redactor: Option<Arc<Redactor>>,
    /// Number of the caller, for the turns of long checks.
    caller: usize,
}

impl ArgumentChecks {
    /// Makes checks with these modes, which are keyed by server. For other servers, a violation is an error.
    #[must_use]
    pub fn new(schemas: Arc<ToolSchemas>, modes: BTreeMap<String, ArgumentCheck>) -> Self {
        Self { schemas, modes, redactor: None, caller: 0 }
    }

    /// Sets the redactor. The redactor removes secrets from values before the beginnings of the values are quoted in messages.
    #[must_use]
    pub fn with_redactor(self, redactor: Arc<Redactor>) -> Self {
        Self { redactor: Some(redactor), ..self }
    }

    /// Sets the number of the caller, whose long checks wait for each other.
    #[must_use]
    pub fn of_caller(self, caller: usize) -> Self {
        Self { caller, ..self }
    }

    /// Checks the arguments of a call as [`Self::check`] does, but makes a check that may be long on a blocking thread, when it is its turn.
    ///
    /// # Errors
    /// The errors of [`Self::check`], and `ERR_INTERNAL` if the thread has failed.
    pub async fn check_in_turn(
        &self,
        server: &str,
        manifest: &Arc<Manifest>,
        tool: &str,
        arguments: Map<String, Json>,
    ) -> Result<(Map<String, Json>, Option<String>)> {
        let arguments = Json::Object(arguments);
        if self.is_quick(server, manifest, tool, &arguments) {
            let warning = self.warning(server, manifest, tool, &arguments)?;
            return returned(arguments, warning);
        }
        let (this, manifest) = (self.clone(), Arc::clone(manifest));
        let (of_server, tool) = (server.to_owned(), tool.to_owned());
        let check = move || {
            let warning = this.warning(&of_server, &manifest, &tool, &arguments)?;
            returned(arguments, warning)
        };
        self.schemas.turns.run(CheckOwner { caller: self.caller, server }, check).await
    }

    fn is_quick(&self, server: &str, manifest: &Arc<Manifest>, tool: &str, arguments: &Json) -> bool {
        let mode = self.modes.get(server).copied().unwrap_or_default();
        let Some(known) = manifest.tool(tool).filter(|_| mode != ArgumentCheck::Off) else { return true };
        !known.input_schema.is_object() || self.schemas.is_quick((server, manifest, known, Side::Input), arguments)
    }

    /// Checks the arguments of a call. Returns the arguments unchanged, without adding default values. Also returns a warning if there is a
    /// problem that is not an error. `manifest` is the approved manifest. If the manifest does not contain the tool, or the tool has no
    /// schema, all arguments are accepted.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGUMENTS` if the arguments violate the schema and the server's mode is `error`.
    pub fn check(
        &self,
        server: &str,
        manifest: &Arc<Manifest>,
        tool: &str,
        arguments: Map<String, Json>,
    ) -> Result<(Map<String, Json>, Option<String>)> {
        let arguments = Json::Object(arguments);
        let warning = self.warning(server, manifest, tool, &arguments)?;
        returned(arguments, warning)
    }

    /// Checks the arguments, and returns a warning if there is a problem that is not an error.
    fn warning(&self, server: &str, manifest: &Arc<Manifest>, tool: &str, arguments: &Json) -> Result<Option<String>> {
        let mode = self.modes.get(server).copied().unwrap_or_default();
        let Some(known) = manifest.tool(tool).filter(|_| mode != ArgumentCheck::Off) else { return Ok(None) };
        let schema = &known.input_schema;
        let problem = match schema {
            Json::Null | Json::Bool(true) => None,
            Json::Bool(false) => {
                Some(SchemaProblem::Broken("the tool's inputSchema is false, so the tool cannot be called with any arguments".to_owned()))
            }
            _ => {
                let problem = |arguments: &Json| {
                    let place = (server, manifest, known, Side::Input);
                    self.schemas.check(place, arguments, &|schema, errors| violations::describe(schema, arguments, errors))
                };
                let found = problem(arguments);
                // The message quotes the beginnings of values. Secrets are removed before that, because the redactor would not recognise a
                // part of a secret.
                let redactor = self.redactor.as_ref().filter(|_| matches!(found, Some(SchemaProblem::Broken(_))));
                match redactor.map(|redactor| redactor.redact_json(arguments)).filter(|redacted| redacted != arguments) {
                    Some(redacted) => Some(problem(&redacted).unwrap_or_else(|| SchemaProblem::Broken(SECRET_VALUE.to_owned()))),
                    None => found,
                }
            }
        };
        match problem {
            None => Ok(None),
            Some(SchemaProblem::Unchecked(reason)) => {
                Ok(Some(format!("the arguments of {server}.{tool} are not checked, because its inputSchema cannot be used: {reason}")))
            }
            Some(SchemaProblem::Broken(problem)) if mode == ArgumentCheck::Warn => {
                Ok(Some(format!("the arguments of {server}.{tool} do not fit its inputSchema: {problem}")))
            }
            Some(SchemaProblem::Broken(problem)) => {
                Err(Error::InvalidArguments { what: format!("{server}.{tool}").into(), problem: problem.into() })
            }
        }
    }
}

/// Returns checked arguments with their warning.
fn returned(arguments: Json, warning: Option<String>) -> Result<(Map<String, Json>, Option<String>)> {
    let Json::Object(arguments) = arguments else { return Err(Error::Internal("the arguments are no longer an object".into())) };
    Ok((arguments, warning))
}
