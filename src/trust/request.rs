//! What a person must see before yes.

use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::Value as Json;

use super::digest::{command_digest, manifest_digest};
use crate::catalog::{Manifest, assign_identifiers};
use crate::config::{Confirm, ServerDefinition, Transport};

const FULL_RIGHTS_WARNING: &str =
    "the server's process runs with your full permissions, outside of the sandbox: it can read, change and send what you can";

/// Everything that a person must see, at one of the two stages.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum ApprovalRequest {
    /// Nothing has been started.
    Command(CommandRequest),
    /// The server was started, and its tools were read.
    Manifest(ManifestRequest),
}

/// Stage 1: what would run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRequest {
    pub server: String,
    pub approved: bool,
    /// What `approve(server, digest)` says yes to.
    pub digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names only, with masked values.
    pub environment: Vec<String>,
    pub confirm: Confirm,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_tools: Option<Vec<String>>,
    pub deny_tools: Vec<String>,
    pub warning: &'static str,
}

/// Stage 2: what a model would read and call.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRequest {
    pub server: String,
    pub approved: bool,
    pub digest: String,
    pub server_name: String,
    pub server_version: String,
    pub protocol_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    pub tools: Vec<ToolSummary>,
    /// What is different from the manifest that was approved before, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<ManifestChanges>,
}

/// A tool, as a person is shown it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSummary {
    pub name: String,
    /// What agent code writes.
    pub identifier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
}

/// Raw names of tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManifestChanges {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<String>,
}

impl ApprovalRequest {
    /// Stage 1 for a server.
    #[must_use]
    pub fn command(server: &ServerDefinition, approved: bool) -> Self {
        let digest = command_digest(server);
        let (command, args, cwd, url, environment) = match &server.transport {
            Transport::Stdio { command, arguments, environment, working_directory, .. } => {
                (Some(command.clone()), Some(arguments.clone()), working_directory.clone(), None, environment)
            }
            Transport::Http { url, headers } => (None, None, None, Some(url.clone()), headers),
        };
        Self::Command(CommandRequest {
            server: server.name.clone(),
            approved,
            digest,
            command,
            args,
            cwd,
            url,
            environment: environment.iter().map(|(name, value)| format!("{name}={}", mask(value.expose_secret()))).collect(),
            confirm: server.confirm,
            allow_tools: server.filter.allow.clone(),
            deny_tools: server.filter.deny.clone(),
            warning: FULL_RIGHTS_WARNING,
        })
    }

    /// Stage 2 for a server whose tools were just read.
    #[must_use]
    pub fn manifest(server: &str, manifest: &Manifest, before: Option<&Manifest>, approved: bool) -> Self {
        let identifiers = assign_identifiers(manifest.tools.iter().map(|tool| tool.name.as_str()));
        let summary = |tool: &crate::catalog::Tool| ToolSummary {
            name: tool.name.clone(),
            identifier: identifiers.get(&tool.name).cloned().unwrap_or_default(),
            title: tool.title.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
            annotations: tool.annotations.clone(),
        };
        Self::Manifest(ManifestRequest {
            server: server.to_owned(),
            approved,
            digest: manifest_digest(manifest),
            server_name: manifest.server_name.clone(),
            server_version: manifest.server_version.clone(),
            protocol_version: manifest.protocol_version.clone(),
            instructions: manifest.instructions.clone(),
            tools: manifest.tools.iter().map(summary).collect(),
            changes: before.map(|before| compare(before, manifest)),
        })
    }
}

fn compare(before: &Manifest, now: &Manifest) -> ManifestChanges {
    let names = |list: Vec<&crate::catalog::Tool>| list.into_iter().map(|tool| tool.name.clone()).collect();
    ManifestChanges {
        added: names(now.tools.iter().filter(|tool| before.tool(&tool.name).is_none()).collect()),
        removed: names(before.tools.iter().filter(|tool| now.tool(&tool.name).is_none()).collect()),
        changed: names(now.tools.iter().filter(|tool| before.tool(&tool.name).is_some_and(|old| old != *tool)).collect()),
    }
}

/// At most four characters, and never more than a quarter of the value.
fn mask(value: &str) -> String {
    let shown = (value.chars().count() / 4).min(4);
    format!("{}***", value.chars().take(shown).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_shows_at_most_a_quarter_and_four_characters() {
        assert_eq!(mask("sk-live-0123456789"), "sk-l***");
        assert_eq!(mask("12345678"), "12***");
        assert_eq!(mask("abc"), "***");
        assert_eq!(mask("éééééééé"), "éé***");
    }
}
