//! What a server says of itself when it is asked: its manifest. Approved as it stands, and kept with the approval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// The raw name, as calls on the wire use it.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// How it is run: `{ "taskSupport": "required" }` (MCP 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Json>,
}

/// A server's tools, and what else a model may read of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The protocol version that was negotiated.
    pub protocol_version: String,
    /// The server's own name and version.
    pub server_name: String,
    pub server_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// In the server's order, filtered.
    pub tools: Vec<Tool>,
}

impl Manifest {
    /// The tool with this raw name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// All tools by their raw names. Of two that share one, the first: it is the one that calls mean.
    #[must_use]
    pub fn tools_by_name(&self) -> BTreeMap<&str, &Tool> {
        self.tools.iter().rev().map(|tool| (tool.name.as_str(), tool)).collect()
    }

    /// All raw names.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }
}
