//! Checks arguments and results of calls against the approved schemas of their tools.

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

/// The modes of the checks for servers whose config does not set them.
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
    /// Returns the checks of all servers, as they are configured now.
    pub(super) fn checks(&self) -> Checks {
        Checks { arguments: self.argument_checks(), results: self.output_checks() }
    }

    fn argument_checks(&self) -> ArgumentChecks {
        let modes = self.modes(|server| server.argument_checks.unwrap_or(self.runs.checks.arguments));
        ArgumentChecks::new(Arc::clone(&self.runs.checks.schemas), modes).with_redactor(Arc::clone(&self.redactor))
    }

    fn output_checks(&self) -> OutputChecks {
        let modes = self.modes(|server| server.schema_violations.unwrap_or(self.runs.checks.results));
        OutputChecks::new(Arc::clone(&self.runs.checks.schemas), modes)
    }

    fn modes<T>(&self, mode: impl Fn(&ServerDefinition) -> T) -> BTreeMap<String, T> {
        self.registry.servers().iter().map(|server| (server.name.clone(), mode(server))).collect()
    }

    /// Checks the arguments of a call without a guest, before a person is asked or a server is connected, and returns the arguments. A tool that
    /// cannot be called passes this check; the call fails later, with the reason.
    pub(super) fn check_arguments(
        &self,
        viewer: &Viewer<'_>,
        server: &str,
        tool: &str,
        arguments: Map<String, Json>,
    ) -> Result<Map<String, Json>> {
        let definition = self.registry.server(server).ok().filter(|definition| definition.filter.admits(tool));
        let Some(manifest) = definition.and_then(|definition| self.usable(&definition, viewer).ok()) else { return Ok(arguments) };
        let checked = self.argument_checks().check(server, &manifest, tool, arguments);
        let (arguments, warning) = checked.map_err(|error| self.redacted(error))?;
        if let Some(warning) = warning {
            self.events.warn(warning);
        }
        Ok(arguments)
    }

    /// Checks the result of a call without a guest. A warning is sent as an event.
    pub(super) fn check_result(&self, server: &str, tool: &str, result: &Json) -> Result<()> {
        let definition = self.registry.server(server)?;
        // The approval was revoked while the call was pending. The answer is returned without a check.
        let ApprovalStatus::Full(manifest) = self.approval_status(&definition)? else { return Ok(()) };
        let checked = self.output_checks().check(server, &manifest, tool, result)?;
        if let Some(warning) = checked {
            self.events.warn(warning);
        }
        Ok(())
    }
}
