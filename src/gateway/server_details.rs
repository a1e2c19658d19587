//! All information about one server for a person: how it is started, its filters and limits, and its tools with their signatures and
//! schemas. The values of environment variables and headers are never shown, only their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value as Json;

use super::Agent;
use super::catalog::ServerInfo;
use crate::bridge::ToolErrors;
use crate::catalog::{Catalog, DirectNames, Manifest};
use crate::config::{Confirm, ServerDefinition, Transport};
use crate::error::Result;
use crate::text::sanitise_json;
use crate::trust::ApprovalStatus;

/// The maximum length of a text in a schema.
const MAX_SCHEMA_CHARS: usize = 16 * 1024;

/// The transport of a server, named as in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// A process on this machine.
    Stdio,
    /// An HTTP address.
    Http,
    /// Tools that were made from a prompt and run in micro-VMs.
    Generated,
}

impl TransportKind {
    /// Returns the word for this kind.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Generated => "generated",
        }
    }
}

/// All information about one server that a person may want.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerDetails {
    pub transport: TransportKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The folder in which the command starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The names of the environment variables in the entry, without their values.
    pub variables: Vec<String>,
    /// The names of the headers in the entry, without their values.
    pub headers: Vec<String>,
    pub confirm: Confirm,
    /// Patterns of tool names. The matching tools are treated as read-only, although their annotations do not say so.
    pub reads: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_tools: Option<Vec<String>>,
    pub deny_tools: Vec<String>,
    /// Patterns of the only resources that may be read. Each is an exact URI, or a prefix of a URI followed by `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_resources: Option<Vec<String>>,
    pub deny_resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_prompts: Option<Vec<String>>,
    pub deny_prompts: Vec<String>,
    pub limits: ServerLimits,
    /// The approved tools. Empty if the tools are not approved yet.
    pub tools: Vec<ToolDetails>,
}

/// The limits that apply to a server. A limit that the server's entry does not set is the gateway's limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerLimits {
    pub connect_timeout_ms: u64,
    pub call_timeout_ms: u64,
    pub max_call_timeout_ms: u64,
    pub max_parallel_calls: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_ms: Option<u64>,
}

/// A tool with its signature, its names and its schemas.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDetails {
    /// The name that agent code imports.
    pub name: String,
    /// The name that the server gives the tool.
    pub tool: String,
    /// The signature as one line of TypeScript. A long signature is shortened.
    pub signature: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_names: Option<DirectNames>,
    pub input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
}

impl Agent {
    /// Returns a server's status, its settings, and, if the server is approved, its offer with all tools. The server need not be enabled.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_APPROVAL_STORE`.
    pub fn server_info(&self, name: &str) -> Result<ServerInfo> {
        let info = self.server_offer(name)?;
        let Ok(server) = self.core.registry.server(&info.status.name) else { return Ok(info) };
        let details = self.details(&server).map_err(|error| self.core.redacted(error))?;
        Ok(ServerInfo { details: Some(Box::new(details)), ..info })
    }

    fn details(&self, server: &ServerDefinition) -> Result<ServerDetails> {
        let request = self.core.request_of_entry(server, &self.core.subject(server), None);
        let plain = |text: &String| self.core.redactor.without_secrets(text).into_owned();
        let names = |values: &[(String, secrecy::SecretString)]| values.iter().map(|(name, _)| name.clone()).collect();
        let (transport, variables, headers) = match &server.transport {
            Transport::Stdio { environment, .. } => (TransportKind::Stdio, names(environment), Vec::new()),
            Transport::Http { headers, .. } => (TransportKind::Http, Vec::new(), names(headers)),
            Transport::Generated(_) => (TransportKind::Generated, Vec::new(), Vec::new()),
        };
        let limits = &self.core.limits;
        Ok(ServerDetails {
            transport,
            command: request.command.as_ref().map(plain),
            args: request.args.map(|args| args.iter().map(plain).collect()),
            cwd: request.cwd.as_ref().map(plain),
            env_file: request.env_file.as_ref().map(plain),
            url: request.url.as_ref().map(plain),
            variables,
            headers,
            confirm: server.confirm,
            reads: request.reads,
            allow_tools: request.allow_tools,
            deny_tools: request.deny_tools,
            allow_resources: request.allow_resources,
            deny_resources: request.deny_resources,
            allow_prompts: request.allow_prompts,
            deny_prompts: request.deny_prompts,
            limits: ServerLimits {
                connect_timeout_ms: server.connect_timeout_ms.unwrap_or(limits.connect_timeout_ms),
                call_timeout_ms: server.call_timeout_ms.unwrap_or(limits.call_timeout_ms),
                max_call_timeout_ms: server.max_call_timeout_ms.unwrap_or(limits.max_call_timeout_ms),
                max_parallel_calls: server.parallel.at_most(limits.max_parallel_calls),
                idle_timeout_ms: server.idle_timeout_ms,
                keep_alive_ms: server.keep_alive_ms,
            },
            tools: match self.core.approval_status(server)? {
                ApprovalStatus::Full(manifest) => self.tool_details(server, &manifest)?,
                ApprovalStatus::Unapproved(_) | ApprovalStatus::Command => Vec::new(),
            },
        })
    }

    fn tool_details(&self, server: &ServerDefinition, manifest: &Arc<Manifest>) -> Result<Vec<ToolDetails>> {
        let mut direct_names = self.core.trust.approvals.direct_names(&server.key())?;
        let servers = BTreeMap::from([(server.given_name().to_owned(), Arc::clone(manifest))]);
        let catalog = Catalog::new(servers, Vec::new(), self.core.declaration_style(ToolErrors::default()));
        let details = manifest.distinct_tools().map(|tool| {
            let (_, function) = catalog.tool_line(server.given_name(), &tool.name)?;
            Ok(ToolDetails {
                name: function.name,
                tool: tool.name.clone(),
                signature: function.signature,
                direct_names: direct_names.remove(&tool.name),
                input_schema: sanitise_json(&tool.input_schema, MAX_SCHEMA_CHARS),
                output_schema: tool.output_schema.as_ref().map(|schema| sanitise_json(schema, MAX_SCHEMA_CHARS)),
            })
        });
        details.collect()
    }
}
