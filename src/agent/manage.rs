//! The tool `manage_mcp`: actions on servers for a model. No action approves a server.

use serde_json::{Value as Json, json};

use super::arguments::ToolArguments;
use super::definitions::Tool;
use super::tools::AgentTools;
use super::views::View;
use crate::error::{Error, ErrorText, Result};
use crate::registry::Decider;
use crate::trust::ApprovalRequest;

const TOOL: &str = "manage_mcp";

impl AgentTools {
    pub(super) async fn manage(&self, given: &ToolArguments) -> Result<Json> {
        let action = given.text("action").unwrap_or_default();
        let server = || given.text("server").ok_or_else(|| without_server(action));
        match action {
            "list" => self.look(Tool::Manage, View::list).await,
            "info" => self.info(server()?).await,
            "enable" => {
                self.agent.enable_as(server()?, Decider::Model)?;
                self.info(server()?).await
            }
            "disable" => {
                self.agent.disable_as(server()?, Decider::Model).await?;
                Ok(json!({ "server": server()?, "disabled": true, "note": "it stays approved; the action enable brings it back" }))
            }
            "test" | "propose" if let Err(error) = self.agent.check_exists(server()?) => Err(error),
            "test" => Ok(self.agent.test_for_model(server()?).await?.for_model()),
            "reload" => self.reload().await,
            "propose" => self.propose(server()?).await,
            _ => Ok(help()),
        }
    }

    async fn info(&self, server: &str) -> Result<Json> {
        let server = server.to_owned();
        self.look(Tool::Manage, move |view| view.server_info(&server)).await
    }

    /// Reads the config again, for all agents. Only the operator's own agent may do this, because the model of any other agent must not
    /// make a decision that affects all agents.
    async fn reload(&self) -> Result<Json> {
        if !self.agent.is_operator() {
            return Err(Error::OperatorOnly { what: "reload", problem: "it reads the config again for all agents" });
        }
        Ok(self.agent.gateway().reload_for_model().await?.for_model())
    }

    /// Creates the approval request, and sends it to the agent's author as an event. The model gets the digest, but no text of the server,
    /// because nobody has approved that text.
    async fn propose(&self, server: &str) -> Result<Json> {
        let request = self.agent.request_for_model(server).await?;
        let (stage, approved, digest, summary) = match &request {
            ApprovalRequest::Command(command) => {
                let kind = if command.url.is_some() { "a person must allow its address" } else { "a person must allow its command" };
                ("command", command.approved, &command.digest, json!({ "what": kind }))
            }
            ApprovalRequest::Manifest(manifest) => {
                let summary = json!({
                    "what": "a person must allow its tools",
                    "tools": manifest.tools.len(),
                    "resources": manifest.resources.len() + manifest.resource_templates.len(),
                    "prompts": manifest.prompts.len(),
                    "findings": manifest.findings.len(),
                });
                ("manifest", manifest.approved, &manifest.digest, summary)
            }
        };
        if approved {
            return Ok(json!({ "server": server, "approved": true, "note": "it is approved already: call enable" }));
        }
        let is_new = self.proposed.lock().is_new(server, digest);
        if is_new {
            self.agent.tell_proposed(&request);
        }
        Ok(json!({
            "server": server,
            "approved": false,
            "stage": stage,
            "digest": digest,
            "request": summary,
            "note": "the request was handed to the person; only they can approve it, outside of this conversation. Ask the user, and do not wait in a loop",
        }))
    }
}

fn without_server(action: &str) -> Error {
    Error::InvalidArguments {
        what: ErrorText::own(TOOL),
        problem: ErrorText::own(format!("server: is missing; the action {action} needs the name of a server")),
    }
}

fn help() -> Json {
    json!({
        "list": "the servers and their states",
        "info": "one server: its tools, or why it cannot be used",
        "enable": "lets code use a server that a person has approved, and has not disabled",
        "disable": "hides a server from code and ends its connection",
        "test": "connects, and says how long that took",
        "reload": "reads the config again",
        "propose": "asks a person to approve a server; they decide outside of this conversation",
    })
}
