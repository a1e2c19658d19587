//! Checks the arguments and results of calls against the tools' approved schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::availability::Viewer;
use super::core::Core;
use super::options::GatewayOptions;
use crate::bridge::{ArgumentChecks, Checks, OutputChecks, ToolSchemas};
use crate::config::{ArgumentCheck, SchemaViolations, ServerDefinition};
use crate::error::Result;
use crate::trust::ApprovalStatus;

/// The default check modes, for servers whose config sets none.
pub(super) struct CheckDefaults {
    /// The compiled schemas, shared by all runs of the gateway.
    schemas: Arc<ToolSchemas>,
    arguments: ArgumentCheck,
    results: SchemaViolations,
}

impl CheckDefaults {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self { schemas: Arc::default(), arguments: options.argument_checks, results: options.schema_violations }
    }
}

impl Core {
    /// Returns the checks of these servers in their configured modes. The checks find a server by the name that callers use.
    pub(super) fn checks(&self, servers: &[(&str, &ServerDefinition)]) -> Checks {
        Checks { arguments: self.argument_checks(servers), results: self.output_checks(servers) }
    }

    fn argument_checks(&self, servers: &[(&str, &ServerDefinition)]) -> ArgumentChecks {
        let modes = modes(servers, |server| server.argument_checks.unwrap_or(self.runs.checks.arguments));
        ArgumentChecks::new(Arc::clone(&self.runs.checks.schemas), modes).with_redactor(Arc::clone(&self.redactor))
    }

    fn output_checks(&self, servers: &[(&str, &ServerDefinition)]) -> OutputChecks {
        let modes = modes(servers, |server| server.schema_violations.unwrap_or(self.runs.checks.results));
        OutputChecks::new(Arc::clone(&self.runs.checks.schemas), modes)
    }

    /// Checks the arguments of a call that does not come from a guest, and returns the arguments. This happens before a person is asked and
    /// before the server is connected. A tool that cannot be called passes; the call itself fails later, with the reason.
    pub(super) fn check_arguments(
        &self,
        viewer: &Viewer<'_>,
        server: &str,
        tool: &str,
        arguments: Map<String, Json>,
    ) -> Result<Map<String, Json>> {
        let definition = self.registry.server(server).ok().filter(|definition| definition.filter.admits(tool));
        let Some(definition) = definition else { return Ok(arguments) };
        let Ok(manifest) = self.usable(&definition, viewer) else { return Ok(arguments) };
        let checked =
            self.argument_checks(&[(definition.given_name(), &definition)]).check(definition.given_name(), &manifest, tool, arguments);
        let (arguments, warning) = checked.map_err(|error| self.redacted(error))?;
        if let Some(warning) = warning {
            self.events.warn(warning);
        }
        Ok(arguments)
    }

    /// Checks the result of a call that did not come from a guest. Sends a warning as an event.
    pub(super) fn check_result(&self, server: &str, tool: &str, result: &Json) -> Result<()> {
        // If the server was removed, or its approval was revoked, during the call, the answer is returned without a check.
        let Ok(definition) = self.registry.server(server) else { return Ok(()) };
        let ApprovalStatus::Full(manifest) = self.approval_status(&definition)? else { return Ok(()) };
        let checked =
            self.output_checks(&[(definition.given_name(), &definition)]).check(definition.given_name(), &manifest, tool, result)?;
        if let Some(warning) = checked {
            self.events.warn(warning);
        }
        Ok(())
    }
}

fn modes<T>(servers: &[(&str, &ServerDefinition)], mode: impl Fn(&ServerDefinition) -> T) -> BTreeMap<String, T> {
    servers.iter().map(|(name, server)| ((*name).to_owned(), mode(server))).collect()
}
