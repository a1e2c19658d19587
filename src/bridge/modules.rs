//! Makes guest modules from the approved tools of servers. Also makes the module `host:mcp`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value as Json;

use crate::catalog::{MODULE_PREFIX, Manifest, module_name};
use crate::sandbox::{GuestModule, GuestModules, ModuleFunction};
use crate::text::{sanitise_json, sanitise_text};

/// Name of the module `host:mcp`. It calls any tool by its raw name, lists tools, and reads resources, prompts and saved values.
pub const MCP_MODULE: &str = "mcp";
/// Functions that `host:mcp` exports. The guest itself implements the last four.
pub(super) const MCP_FUNCTIONS: [&str; 13] =
    ["call", "tools", "search", "describe", "resources", "read", "prompts", "prompt", "saved", "sleep", "all", "allSettled", "isError"];
/// Returns the server to which a module belongs.
pub(super) fn server_of(module: &str) -> Option<&str> {
    module.strip_prefix(MODULE_PREFIX)
}

/// Returns the module of a server. The module has one function for each tool. The module `catalog` of this crate chooses the names of the
/// functions.
#[must_use]
pub fn server_module(server: &str, manifest: &Manifest) -> GuestModule {
    let function = |(target, name): (&String, &String)| ModuleFunction { name: name.clone(), target: target.clone() };
    let functions = manifest.identifiers().iter().map(function).collect();
    GuestModule { name: module_name(server), functions }
}

/// Returns the modules of these servers, and `host:mcp`.
pub(crate) fn guest_modules(servers: &BTreeMap<String, Arc<Manifest>>) -> Vec<GuestModule> {
    servers.iter().map(|(server, manifest)| server_module(server, manifest)).chain([mcp_module()]).collect()
}

/// The modules of these servers, and `host:mcp`. A module is only made when code imports it.
pub struct ServerModules<'a>(pub(super) &'a BTreeMap<String, Arc<Manifest>>);

impl GuestModules for ServerModules<'_> {
    fn names(&self) -> Vec<String> {
        self.0.keys().map(|server| module_name(server)).chain([MCP_MODULE.to_owned()]).collect()
    }

    fn module(&self, name: &str) -> Option<GuestModule> {
        if name == MCP_MODULE {
            return Some(mcp_module());
        }
        let server = server_of(name)?;
        self.0.get(server).map(|manifest| server_module(server, manifest))
    }
}

/// Returns the module `host:mcp`.
pub(crate) fn mcp_module() -> GuestModule {
    let function = |name: &str| ModuleFunction { name: name.to_owned(), target: name.to_owned() };
    GuestModule { name: MCP_MODULE.to_owned(), functions: MCP_FUNCTIONS.into_iter().map(function).collect() }
}

/// A tool, as `tools()` returns it to agent code.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogEntry {
    pub server: String,
    /// Raw name of the tool, for `call`.
    pub name: String,
    /// Name under which the server's module exports the tool.
    pub identifier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
}

/// Returns the tools of a server, in the server's order.
pub(super) fn catalog_entries(server: &str, manifest: &Manifest, max_description_chars: usize) -> Vec<CatalogEntry> {
    let identifiers = manifest.identifiers();
    let entry = |tool: &crate::catalog::Tool| CatalogEntry {
        server: server.to_owned(),
        name: tool.name.clone(),
        identifier: identifiers.get(&tool.name).cloned().unwrap_or_default(),
        // A model may read this text, so invisible and misleading characters are removed.
        description: tool.description.as_ref().map(|text| sanitise_text(text, max_description_chars)),
        input_schema: sanitise_json(&tool.input_schema, max_description_chars),
        output_schema: tool.output_schema.as_ref().map(|schema| sanitise_json(schema, max_description_chars)),
    };
    manifest.tools.iter().map(entry).collect()
}
