//! Checks the arguments and results of calls against the tools' approved schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::agent::Identity;
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
    pub(super) fn checks(&self, caller: &Identity, servers: &[(&str, &ServerDefinition)]) -> Checks {
        Checks { arguments: self.argument_checks(caller, servers), results: self.output_checks(caller, servers) }
    }

    fn argument_checks(&self, caller: &Identity, servers: &[(&str, &ServerDefinition)]) -> ArgumentChecks {
        let modes = modes(servers, |server| server.argument_checks.unwrap_or(self.runs.checks.arguments));
        let checks = ArgumentChecks::new(Arc::clone(&self.runs.checks.schemas), modes).of_caller(caller_of(caller));
        checks.with_redactor(Arc::clone(&self.redactor))
    }

    fn output_checks(&self, caller: &Identity, servers: &[(&str, &ServerDefinition)]) -> OutputChecks {
        let modes = modes(servers, |server| server.schema_violations.unwrap_or(self.runs.checks.results));
        OutputChecks::new(Arc::clone(&self.runs.checks.schemas), modes).of_caller(caller_of(caller))
    }

    /// Checks the arguments of a call that does not come from a guest, and returns the arguments. This happens before a person is asked and
    /// before the server is connected. A tool that cannot be called passes; the call itself fails later, with the reason.
    pub(super) async fn check_arguments(
        &self,
        (viewer, caller): (&Viewer<'_>, &Identity),
        server: &str,
        tool: &str,
        arguments: Map<String, Json>,
    ) -> Result<Map<String, Json>> {
        let definition = self.registry.server(server).ok().filter(|definition| definition.filter.admits(tool));
        let Some(definition) = definition else { return Ok(arguments) };
        let Ok(manifest) = self.usable(&definition, viewer) else { return Ok(arguments) };
        let checks = self.argument_checks(caller, &[(definition.given_name(), &definition)]);
        let checked = checks.check_in_turn(definition.given_name(), &manifest, tool, arguments).await;
        let (arguments, warning) = checked.map_err(|error| self.redacted(error))?;
        if let Some(warning) = warning {
            self.events.warn(warning);
        }
        Ok(arguments)
    }

    /// Checks the result of a call that did not come from a guest, and returns the result. Sends a warning as an event.
    pub(super) async fn check_result(&self, caller: &Identity, server: &str, tool: &str, result: Json) -> Result<Json> {
        // If the server was removed, or its approval was revoked, during the call, the answer is returned without a check.
        let Ok(definition) = self.registry.server(server) else { return Ok(result) };
        let ApprovalStatus::Full(manifest) = self.approval_status(&definition)? else { return Ok(result) };
        let checks = self.output_checks(caller, &[(definition.given_name(), &definition)]);
        let (result, warning) = checks.check_in_turn(definition.given_name(), &manifest, tool, result).await?;
        if let Some(warning) = warning {
            self.events.warn(warning);
        }
        Ok(result)
    }
}

/// Returns the number of an agent's caller. All agents with the same owner of code are the same caller, so that many agents of one caller do not
/// get many shares of the checks.
fn caller_of(identity: &Identity) -> usize {
    identity.code_owner.parse.key()
}

fn modes<T>(servers: &[(&str, &ServerDefinition)], mode: impl Fn(&ServerDefinition) -> T) -> BTreeMap<String, T> {
    servers.iter().map(|(name, server)| ((*name).to_owned(), mode(server))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Gateway, IdentityOptions};
    use crate::sandbox::CodeOwner;

    #[tokio::test]
    async fn agents_of_one_caller_share_the_turns_of_its_checks() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = GatewayOptions::new("watchdog", tokio::runtime::Handle::current());
        (options.config, options.state_dir) = (Some(serde_json::json!({ "mcpServers": {} })), Some(folder.path().to_owned()));
        let gateway = Gateway::open(options).unwrap();
        let [one, two] = [CodeOwner::default(), CodeOwner::default()];
        let agent = |name: &str, owner: &CodeOwner| {
            let agent = gateway.agent(name, IdentityOptions { code_owner: Some(owner.clone()), ..IdentityOptions::default() }).unwrap();
            caller_of(&agent.identity)
        };
        assert_eq!(agent("a", &one), agent("b", &one));
        assert_ne!(agent("a", &one), agent("c", &two));
        gateway.close().await;
    }
}
