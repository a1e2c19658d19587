//! The tools with which a model adds, changes and removes servers of its own agent. None of these tools approves a server.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::{Value as Json, json};

use super::arguments::ToolArguments;
use super::definitions::Tool;
use super::tools::AgentTools;
use crate::error::{Error, ErrorText, Result};
use crate::registry::{Decider, ServerChange, ServerState, ServerStatus, ValueChanges};

impl AgentTools {
    pub(super) async fn add_server(&self, given: ToolArguments) -> Result<Json> {
        let change = change(Tool::AddServer, given)?;
        Ok(answer(&self.agent.add_server_as(change, Decider::Model).await?))
    }

    pub(super) async fn update_server(&self, given: ToolArguments) -> Result<Json> {
        let server = given.text("server").unwrap_or_default().to_owned();
        let change = change(Tool::UpdateServer, given)?;
        Ok(answer(&self.agent.update_server_as(&server, change, Decider::Model).await?))
    }

    pub(super) async fn remove_server(&self, given: &ToolArguments) -> Result<Json> {
        let server = given.text("server").unwrap_or_default();
        self.agent.remove_server_as(server, Decider::Model).await?;
        Ok(json!({ "server": server, "removed": true }))
    }
}

fn change(tool: Tool, mut given: ToolArguments) -> Result<ServerChange> {
    let text = |name: &str| given.text(name).map(str::to_owned);
    let (name, command, url, args) = (text("name"), text("command"), text("url"), given.texts("args"));
    let env = given.take("env").map(|env| environment(tool, env)).transpose()?;
    Ok(ServerChange { name, command, args, env, url, ..ServerChange::default() })
}

/// Parses the environment variables. The error does not quote their names or values.
fn environment(tool: Tool, given: Json) -> Result<ValueChanges> {
    let values: std::result::Result<BTreeMap<String, Option<String>>, _> = serde_json::from_value(given);
    let values = values.map_err(|_| Error::InvalidArguments {
        what: ErrorText::own(tool.name()),
        problem: ErrorText::own("env: expected an object whose values are strings, or null to remove a variable"),
    })?;
    Ok(values.into_iter().map(|(name, value)| (name, value.map(SecretString::from))).collect())
}

/// Returns the answer about a server for a model. Contains no environment values, and no text of a server that nobody has approved.
fn answer(status: &ServerStatus) -> Json {
    let note = match status.state {
        ServerState::PendingApproval => {
            "it waits for a person's approval, outside of this conversation. Tell the user, and do not wait in a loop; once it is approved, call manage_mcp with the action enable"
        }
        _ if status.approved && status.enabled => "it can be used",
        _ if status.approved => "it is approved: call manage_mcp with the action enable",
        _ => "a person has approved its command, but not its tools: call manage_mcp with the action propose, then tell the user",
    };
    json!({ "server": status.name, "state": status.state, "approved": status.approved, "enabled": status.enabled, "note": note })
}
