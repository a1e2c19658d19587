//! Results against the schemas that their tools were approved with.

use std::sync::Arc;

use serde_json::Value as Json;

use super::core::Core;
use crate::bridge::{OutputChecks, OutputSchemas};
use crate::config::SchemaViolations;
use crate::error::Result;
use crate::trust::Standing;

/// How results are checked.
pub(super) struct Results {
    /// Compiled once a gateway, whichever run calls.
    schemas: Arc<OutputSchemas>,
    default: SchemaViolations,
}

impl Results {
    pub(super) fn new(default: SchemaViolations) -> Self {
        Self { schemas: Arc::default(), default }
    }
}

impl Core {
    /// The checks of all servers, as they are configured now.
    pub(super) fn output_checks(&self) -> OutputChecks {
        let mode = |server: &crate::config::ServerDefinition| server.schema_violations.unwrap_or(self.results.default);
        let modes = self.registry.servers().iter().map(|server| (server.name.clone(), mode(server))).collect();
        OutputChecks::new(Arc::clone(&self.results.schemas), modes)
    }

    /// Checks the result of a call without a guest. What there is to say of it is an event.
    pub(super) fn check_result(&self, server: &str, tool: &str, result: &Json) -> Result<()> {
        let definition = self.registry.server(server)?;
        // Taken back while the call was pending: the answer is no worse for that.
        let Standing::Full(manifest) = self.standing(&definition)? else { return Ok(()) };
        let checked = self.output_checks().check(server, &manifest, tool, result).map_err(|error| self.redacted(error))?;
        if let Some(warning) = checked {
            self.events.warn(warning);
        }
        Ok(())
    }
}
