//! The manifest: a server's description of itself. It is approved as a whole, and kept with the approval.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::names::assign_identifiers;
use super::offers::{Prompt, Resource, ResourceTemplate};
use super::type_names::TypeNames;
use super::uri_template::UriTemplate;
use crate::error::Error;
use crate::text::json::json_bytes;

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
    /// A JSON Schema; `null` where the server gives none.
    #[serde(default)]
    pub input_schema: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// The way in which it is run: `{ "taskSupport": "required" }` (MCP 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Json>,
}

/// A server's tools, and what else a model may read of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    // What is empty is left out: digests and approvals from before these were read stay what they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_templates: Vec<ResourceTemplate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<Prompt>,
    /// Made when it is first asked. What is changed is a copy, which has one of its own.
    #[serde(skip)]
    #[doc(hidden)]
    pub index: ToolIndex,
}

/// The approved resource or template by which a URI may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable<'a> {
    /// It is listed itself.
    Resource(&'a Resource),
    /// It follows a template.
    Template(&'a ResourceTemplate),
}

/// A manifest's tools by their names.
#[derive(Default)]
pub struct ToolIndex(OnceLock<Lookup>);

struct Lookup {
    /// Positions by name; the first of two tools that share a name.
    positions: HashMap<String, usize>,
    identifiers: BTreeMap<String, String>,
    /// The tool that each identifier means.
    identified: HashMap<String, usize>,
    /// Made when something is declared first.
    types: OnceLock<TypeNames>,
}

impl ToolIndex {
    fn lookup(&self, tools: &[Tool]) -> &Lookup {
        self.0.get_or_init(|| {
            let positions: HashMap<_, _> = tools.iter().enumerate().rev().map(|(position, tool)| (tool.name.clone(), position)).collect();
            let identifiers = assign_identifiers(tools.iter().map(|tool| tool.name.as_str()));
            let identified = identifiers.iter().map(|(name, identifier)| (identifier.clone(), positions[name])).collect();
            Lookup { positions, identifiers, identified, types: OnceLock::new() }
        })
    }
}

impl Clone for ToolIndex {
    /// Not yet made: the copy's tools may be others.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for ToolIndex {
    /// It says nothing that the tools do not.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ToolIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ToolIndex")
    }
}

impl Manifest {
    /// The tool with this raw name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.position(name).and_then(|position| self.tools.get(position))
    }

    /// Returns the position of that tool.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.lookup(&self.tools).positions.get(name).copied()
    }

    /// The identifier of each raw name, as guests write it: the same as [`assign_identifiers`] gives, which is asked once.
    pub fn identifiers(&self) -> &BTreeMap<String, String> {
        &self.index.lookup(&self.tools).identifiers
    }

    /// A tool by its raw name, else by its identifier, with that.
    #[must_use]
    pub fn tool_or_identifier(&self, name: &str) -> Option<(&Tool, &str)> {
        let Lookup { positions, identifiers, identified, .. } = self.index.lookup(&self.tools);
        let tool = self.tools.get(*positions.get(name).or_else(|| identified.get(name))?)?;
        Some((tool, identifiers.get(&tool.name)?))
    }

    /// The names of the tools' types, where they are declared.
    pub(super) fn type_names(&self) -> &TypeNames {
        let lookup = self.index.lookup(&self.tools);
        lookup.types.get_or_init(|| TypeNames::new(&self.tools, &lookup.identifiers))
    }

    /// All tools by their raw names. Of two that share one, the first: it is the one that calls mean.
    #[must_use]
    pub fn tools_by_name(&self) -> BTreeMap<&str, &Tool> {
        self.tools.iter().rev().map(|tool| (tool.name.as_str(), tool)).collect()
    }

    /// About the bytes that a declaration of all tools is made from.
    pub(super) fn tool_bytes(&self) -> usize {
        let bytes = |tool: &Tool| {
            let schemas = json_bytes(&tool.input_schema) + tool.output_schema.as_ref().map_or(0, json_bytes);
            tool.name.len() + tool.description.as_ref().map_or(0, String::len) + schemas
        };
        self.tools.iter().map(bytes).sum()
    }

    /// The tools that calls mean, in the server's order: of two that share a name, the first.
    pub fn distinct_tools(&self) -> impl Iterator<Item = &Tool> {
        let mut seen = HashSet::new();
        self.tools.iter().filter(move |tool| seen.insert(tool.name.as_str()))
    }

    /// All raw names.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// The error for a tool that is not among these. It names the one that was probably meant.
    ///
    /// ```
    /// let error = hyperlight_mcp::catalog::Manifest::default().unknown_tool("weather", "get_forecast");
    /// assert_eq!(error.code(), "ERR_UNKNOWN_TOOL");
    /// ```
    #[must_use]
    pub fn unknown_tool(&self, server: &str, tool: &str) -> Error {
        let identifiers = self.identifiers();
        let names = self.tools.iter().map(|tool| tool.name.as_str());
        Error::unknown_tool(server, tool, names.map(|name| (name, identifiers.get(name).map_or(name, String::as_str))))
    }

    /// The prompt of this name.
    #[must_use]
    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.prompts.iter().find(|prompt| prompt.name == name)
    }

    /// All by which a URI may be read: the resource itself first, then the templates that it follows.
    pub fn readable<'a>(&'a self, uri: &'a str) -> impl Iterator<Item = Readable<'a>> {
        let listed = self.resources.iter().find(|resource| resource.uri == uri).map(Readable::Resource);
        let follows = move |template: &&ResourceTemplate| {
            let text = &template.uri_template;
            // Cheap first: there may be many.
            uri.starts_with(&text[..text.find('{').unwrap_or(text.len())])
                && UriTemplate::parse(text).is_some_and(|known| known.matches(uri))
        };
        listed.into_iter().chain(self.resource_templates.iter().filter(follows).map(Readable::Template))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(names: &[&str]) -> Manifest {
        let tool = |(number, name): (usize, &&str)| Tool {
            name: (*name).to_owned(),
            title: Some(number.to_string()),
            description: None,
            input_schema: Json::Null,
            output_schema: None,
            annotations: None,
            execution: None,
        };
        Manifest { tools: names.iter().enumerate().map(tool).collect(), ..Manifest::default() }
    }

    #[test]
    fn of_two_tools_that_share_a_name_the_first_is_found() {
        let manifest = manifest(&["a", "b", "a"]);
        let title = |name: &str| manifest.tool(name).and_then(|tool| tool.title.as_deref());
        assert_eq!((title("a"), title("b"), title("c")), (Some("0"), Some("1"), None));
    }

    #[test]
    fn a_copy_with_other_tools_finds_those() {
        let whole = manifest(&["a", "b"]);
        assert!(whole.tool("a").is_some());
        let mut less = whole.clone();
        less.tools.retain(|tool| tool.name == "b");
        assert!(less.tool("a").is_none() && less.tool("b").is_some());
        assert_eq!(less.identifiers().len(), 1);
        assert_ne!(whole, less);
    }
}
