//! The manifest, which is a server's description of itself. A person approves the whole manifest, and it is stored with the approval.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::names::assign_identifiers;
use super::resources_and_prompts::{Prompt, Resource, ResourceTemplate};
use super::type_names::TypeNames;
use super::uri_template::TemplateMatcher;
use crate::error::Error;
use crate::text::json::json_bytes;

/// A tool, as its server describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Raw name of the tool, as the protocol uses it.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments. `null` if the server does not give a schema.
    #[serde(default)]
    pub input_schema: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// Execution settings of the tool, for example `{ "taskSupport": "required" }` (MCP 2025-11-25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Json>,
    /// The tool's `_meta`. A host may use it, for example to find the tool's view (MCP Apps).
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Json>,
    /// The tool's icons, as in [`HostFields`](super::HostFields).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icons: Option<Json>,
}

/// URI scheme for the views of MCP Apps.
const VIEW_SCHEME: &str = "ui://";

impl Tool {
    /// Returns the approximate number of bytes in the texts and schemas from which the tool is declared.
    pub(super) fn bytes(&self) -> usize {
        let schemas = json_bytes(&self.input_schema) + self.output_schema.as_ref().map_or(0, json_bytes);
        self.name.len() + self.description.as_ref().map_or(0, String::len) + schemas
    }

    /// Returns the URI of the tool's view (MCP Apps, 2026-01-26). It is `_meta.ui.resourceUri`, or `_meta["ui/resourceUri"]` in earlier
    /// drafts.
    #[must_use]
    pub fn view(&self) -> Option<&str> {
        let meta = self.meta.as_ref()?;
        let uri = meta.pointer("/ui/resourceUri").or_else(|| meta.get("ui/resourceUri"))?.as_str()?;
        uri.starts_with(VIEW_SCHEME).then_some(uri)
    }

    /// Returns whether a call has the same meaning for this tool and for `other`. `_meta` and icons are not compared. A host only gets the
    /// approved ones, and older versions of this program approved tools without reading `_meta` and icons.
    #[must_use]
    pub fn is_called_as(&self, other: &Self) -> bool {
        let Self { name, title, description, input_schema, output_schema, annotations, execution, meta: _, icons: _ } = self;
        *name == other.name
            && *title == other.title
            && *description == other.description
            && *input_schema == other.input_schema
            && *output_schema == other.output_schema
            && *annotations == other.annotations
            && *execution == other.execution
    }
}

/// The manifest of a server: its tools, and all other information from the server that a model may read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// MCP version that was negotiated with the server.
    pub protocol_version: String,
    /// Name that the server itself reports.
    pub server_name: String,
    pub server_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tools that the config does not filter out, in the server's order.
    pub tools: Vec<Tool>,
    // Empty lists are left out of the JSON, so that the digests of older approvals stay valid. Older versions did not know these fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_templates: Vec<ResourceTemplate>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<Prompt>,
    /// Lookup tables, which are made when they are first used. A copy of the manifest makes its own tables, because its tools may be
    /// changed.
    #[serde(skip)]
    #[doc(hidden)]
    pub index: ToolIndex,
}

/// An approved item that allows a URI to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable<'a> {
    /// The server lists the URI as a resource.
    Resource(&'a Resource),
    /// The URI matches a resource template.
    Template(&'a ResourceTemplate),
    /// The URI is the view of a tool. The server need not list it as a resource.
    View(&'a Tool),
}

/// An item, by its raw name. [`Manifest::reduced`] asks for each item whether it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept<'a> {
    Tool(&'a str),
    /// The URI of a resource, or the text of a resource template.
    Resource(&'a str),
    Prompt(&'a str),
}

/// Lookup tables for the tools of a manifest.
#[derive(Default)]
pub struct ToolIndex(OnceLock<Lookup>);

struct Lookup {
    /// Position of each tool, keyed by its raw name. If two tools have the same name, this is the position of the first.
    positions: HashMap<String, usize>,
    identifiers: BTreeMap<String, String>,
    /// Position of each tool, keyed by its identifier.
    identified: HashMap<String, usize>,
    /// Names of the types for the tools. They are made when a tool is declared for the first time.
    types: OnceLock<TypeNames>,
}

impl ToolIndex {
    fn lookup(&self, tools: &[Tool]) -> &Lookup {
        self.0.get_or_init(|| Lookup::new(tools, assign_identifiers(tools.iter().map(|tool| tool.name.as_str()))))
    }
}

impl Lookup {
    /// Makes the lookup tables for tools whose identifiers are known.
    fn new(tools: &[Tool], identifiers: BTreeMap<String, String>) -> Self {
        let positions: HashMap<_, _> = tools.iter().enumerate().rev().map(|(position, tool)| (tool.name.clone(), position)).collect();
        let identified = identifiers.iter().map(|(name, identifier)| (identifier.clone(), positions[name])).collect();
        Self { positions, identifiers, identified, types: OnceLock::new() }
    }
}

impl Clone for ToolIndex {
    /// Returns an empty index, because the tools of the copy may be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for ToolIndex {
    /// Always returns true, because the index only contains information that is derived from the tools.
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
    /// Returns the tool with this raw name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.position(name).and_then(|position| self.tools.get(position))
    }

    /// Returns the position of the tool with this raw name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.lookup(&self.tools).positions.get(name).copied()
    }

    /// Returns the identifier of each tool for agent code, keyed by raw name. [`assign_identifiers`] is called only once, and its result
    /// is kept.
    pub fn identifiers(&self) -> &BTreeMap<String, String> {
        &self.index.lookup(&self.tools).identifiers
    }

    /// Returns a tool and its identifier. `name` is the tool's raw name or, if no tool has this raw name, its identifier.
    #[must_use]
    pub fn tool_or_identifier(&self, name: &str) -> Option<(&Tool, &str)> {
        let Lookup { positions, identifiers, identified, .. } = self.index.lookup(&self.tools);
        let tool = self.tools.get(*positions.get(name).or_else(|| identified.get(name))?)?;
        Some((tool, identifiers.get(&tool.name)?))
    }

    /// Returns a manifest with only the items for which `keeps` returns true. A function keeps its identifier, whatever else is removed.
    /// If an item is removed, the server's instructions are removed too, because they describe all of its tools.
    #[must_use]
    pub fn reduced(&self, keeps: impl Fn(Kept<'_>) -> bool) -> Self {
        let reduced = Self {
            protocol_version: self.protocol_version.clone(),
            server_name: self.server_name.clone(),
            server_version: self.server_version.clone(),
            instructions: None,
            tools: self.tools.iter().filter(|tool| keeps(Kept::Tool(&tool.name))).cloned().collect(),
            resources: self.resources.iter().filter(|resource| keeps(Kept::Resource(&resource.uri))).cloned().collect(),
            resource_templates: {
                let templates = self.resource_templates.iter();
                templates.filter(|template| keeps(Kept::Resource(&template.uri_template))).cloned().collect()
            },
            prompts: self.prompts.iter().filter(|prompt| keeps(Kept::Prompt(&prompt.name))).cloned().collect(),
            index: ToolIndex::default(),
        };
        if reduced.item_count() == self.item_count() {
            return self.clone();
        }
        let identifiers = self.identifiers();
        let kept = reduced.tools.iter().filter_map(|tool| Some((tool.name.clone(), identifiers.get(&tool.name)?.clone())));
        let lookup = Lookup::new(&reduced.tools, kept.collect());
        // Setting the cell cannot fail, because the cell is new and empty.
        let _ = reduced.index.0.set(lookup);
        reduced
    }

    /// Returns the number of tools, resources, resource templates and prompts.
    #[must_use]
    pub fn item_count(&self) -> usize {
        self.tools.len() + self.resources.len() + self.resource_templates.len() + self.prompts.len()
    }

    /// Returns the type names that the declarations use for the tools.
    pub(super) fn type_names(&self) -> &TypeNames {
        let lookup = self.index.lookup(&self.tools);
        lookup.types.get_or_init(|| TypeNames::new(&self.tools, &lookup.identifiers))
    }

    /// Returns all tools, keyed by raw name. If two tools have the same name, contains the first one, because a call uses the first.
    #[must_use]
    pub fn tools_by_name(&self) -> BTreeMap<&str, &Tool> {
        self.tools.iter().rev().map(|tool| (tool.name.as_str(), tool)).collect()
    }

    /// Returns the tools that can be called, in the server's order. If two tools have the same name, only the first can be called.
    pub fn distinct_tools(&self) -> impl Iterator<Item = &Tool> {
        let mut seen = HashSet::new();
        self.tools.iter().filter(move |tool| seen.insert(tool.name.as_str()))
    }

    /// Returns the raw names of all tools.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Returns the error for a tool that the manifest does not contain. The error suggests the most similar name.
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

    /// Returns the prompt with this name.
    #[must_use]
    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.prompts.iter().find(|prompt| prompt.name == name)
    }

    /// Returns all items because of which a URI may be read. These are, in this order: the resource with this URI, the resource templates
    /// that it matches, and the tools whose view it is. `templates` compares the URI with templates, and says afterwards how many were not
    /// compared.
    pub fn readable<'a>(&'a self, uri: &'a str, templates: &'a mut TemplateMatcher<'_>) -> impl Iterator<Item = Readable<'a>> {
        let listed = self.resources.iter().find(|resource| resource.uri == uri).map(Readable::Resource);
        let follows = move |template: &&ResourceTemplate| templates.matches(&template.uri_template) == Some(true);
        let views = self.distinct_tools().filter(move |tool| tool.view() == Some(uri)).map(Readable::View);
        listed.into_iter().chain(self.resource_templates.iter().filter(follows).map(Readable::Template)).chain(views)
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
            meta: None,
            icons: None,
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
    fn a_reduced_manifest_keeps_the_identifiers_and_leaves_the_instructions_out() {
        let whole = Manifest { instructions: Some("use a b".to_owned()), ..manifest(&["a b", "a-b", "c"]) };
        let reduced = whole.reduced(|item| item != Kept::Tool("a b"));
        assert_eq!(reduced.tool_names(), ["a-b", "c"]);
        assert!(reduced.identifiers().iter().all(|(name, identifier)| whole.identifiers()[name] == *identifier));
        assert_ne!(manifest(&["a-b", "c"]).identifiers()["a-b"], reduced.identifiers()["a-b"], "alone, it would have another one");
        assert!(reduced.instructions.is_none() && reduced.tool_or_identifier("a_b").is_none());
        assert_eq!(whole.reduced(|_| true), whole);
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
