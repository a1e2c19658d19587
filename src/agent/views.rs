//! Answers a model's questions about the servers: search, declarations, lists. Everything here is computed on a blocking thread.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::arguments::ToolArguments;
use super::servers;
use crate::bridge::{ToolErrors, ToolQuery};
use crate::error::Result;
use crate::gateway::{Agent, Sandbox};
use crate::registry::ServerStatus;

/// The servers as an agent sees them during one tool call of its model.
pub(super) struct View {
    pub(super) agent: Agent,
    /// The sandbox in which the model's code runs. `None` if the sandbox does not exist yet; then it will have no modules of its own.
    pub(super) sandbox: Option<Arc<Sandbox>>,
    pub(super) errors: ToolErrors,
    /// Cancelled when nobody waits for the answer any more.
    pub(super) ended: CancellationToken,
}

impl View {
    pub(super) fn search(&self, given: &ToolArguments) -> Result<Json> {
        let query = ToolQuery {
            query: given.text("query").unwrap_or_default().to_owned(),
            limit: given.whole("limit").map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            servers: given.texts("servers"),
        };
        let found = match &self.sandbox {
            Some(sandbox) => sandbox.search_tools(&query, Some(self.errors)),
            None => self.agent.search_tools(&query, self.errors),
        }?;
        let hits: Vec<_> = found
            .iter()
            .map(|hit| json!({ "module": hit.module, "function": hit.identifier, "signature": hit.signature, "purpose": hit.purpose }))
            .collect();
        if hits.is_empty() {
            return Ok(json!({ "tools": [], "hint": "nothing fits: use other words, or call list_mcp_servers" }));
        }
        Ok(json!({ "tools": hits }))
    }

    /// Returns TypeScript declarations as one string, because a model can read code in a JSON string.
    pub(super) fn describe(&self, given: &ToolArguments) -> Result<Json> {
        let names = given.texts("names").unwrap_or_default();
        let declarations = match &self.sandbox {
            Some(sandbox) => sandbox.describe(&names, Some(self.errors), &|| !self.ended.is_cancelled()),
            None => self.agent.describe(&names, self.errors, &|| !self.ended.is_cancelled()),
        }?;
        Ok(json!({ "declarations": declarations }))
    }

    pub(super) fn list(&self) -> Result<Json> {
        let statuses = self.agent.servers()?;
        let modules = if statuses.iter().all(|status| status.source.kind.is_there_without_a_task()) { Vec::new() } else { self.modules()? };
        let is_operator = self.agent.is_operator();
        // A server that is available only with a task does not exist for a model unless a task has attached it. A variant for other agents
        // does not exist for this model either.
        let is_there = |status: &&ServerStatus| {
            let module = || format!("host:mcp-{}", status.variant_of.as_ref().unwrap_or(&status.name));
            let is_foreign = is_operator && status.variant_of.is_some();
            !is_foreign && (status.source.kind.is_there_without_a_task() || modules.contains(&module()))
        };
        let statuses: Vec<_> = statuses.iter().filter(is_there).collect();
        let infos: Result<Vec<_>> = statuses.iter().map(|status| self.agent.server_offer(&status.name)).collect();
        let lines: Vec<_> = infos?.iter().map(|info| Json::Object(servers::line(info))).collect();
        if lines.is_empty() {
            return Ok(json!({ "servers": [], "hint": "no server is configured: the user has to add one to the config" }));
        }
        Ok(json!({ "servers": lines }))
    }

    pub(super) fn server_info(&self, server: &str) -> Result<Json> {
        Ok(Json::Object(servers::whole(&self.agent.server_offer(server)?)))
    }

    /// Returns the specifiers of the modules that a run can import.
    fn modules(&self) -> Result<Vec<String>> {
        let modules = match &self.sandbox {
            Some(sandbox) => sandbox.list_modules(),
            None => self.agent.list_modules(),
        };
        Ok(modules?.into_iter().map(|module| module.specifier).collect())
    }
}
