//! The texts of the message about the modules of servers, and about those that the agent's author adds.

use super::Module;
use crate::catalog::declarations::{DeclarationStyle, declare_agent_module, declare_some, key};
use crate::catalog::hints::{self, AgentModuleInfo, FunctionInfo, example_of};
use crate::catalog::{Manifest, Tool, module_specifier};

/// Maximum number of parameters that a function's line contains.
const MAX_NAMED: usize = 8;
const MAX_NAME_CHARS: usize = 40;

/// Formats a function's line, for example `get_forecast({ city, days? }): The forecast of a city.`
fn line(function: &FunctionInfo) -> String {
    let mut names: Vec<String> = function
        .parameters
        .iter()
        .take(MAX_NAMED)
        .map(|parameter| {
            // The server chose this name. It is escaped, so that it cannot contain a line break.
            let name: String = key(&parameter.name).chars().take(MAX_NAME_CHARS).collect();
            if parameter.required { name } else { format!("{name}?") }
        })
        .collect();
    if function.parameters.len() > MAX_NAMED {
        names.push("…".to_owned());
    }
    let parameters = if names.is_empty() { String::new() } else { format!("{{ {} }}", names.join(", ")) };
    let purpose = if function.purpose.is_empty() { String::new() } else { format!(": {}", function.purpose) };
    format!("  - {}({parameters}){purpose}\n", function.name)
}

/// The module of a server.
pub(in crate::catalog) struct ServerPart<'a> {
    server: &'a str,
    specifier: String,
    manifest: &'a Manifest,
    style: &'a DeclarationStyle,
    tools: Vec<&'a Tool>,
}

impl<'a> ServerPart<'a> {
    pub(in crate::catalog) fn new(server: &'a str, manifest: &'a Manifest, style: &'a DeclarationStyle) -> Self {
        Self { server, specifier: module_specifier(server), manifest, style, tools: manifest.distinct_tools().collect() }
    }

    /// Returns the index of a tool's function.
    pub(in crate::catalog) fn index_of(&self, tool: &str) -> Option<usize> {
        self.tools.iter().position(|known| known.name == tool)
    }

    fn identifier(&self, function: usize) -> &str {
        &self.manifest.identifiers()[&self.tools[function].name]
    }
}

impl Module for ServerPart<'_> {
    fn specifier(&self) -> &str {
        &self.specifier
    }

    fn purpose(&self) -> String {
        hints::server_purpose(self.manifest, self.style)
    }

    fn functions(&self) -> usize {
        self.tools.len()
    }

    fn example(&self, function: usize) -> String {
        let (tool, identifier) = (self.tools[function], self.identifier(function));
        let example = hints::tool_example(tool, identifier);
        example_of(&self.specifier, &FunctionInfo { example, ..hints::tool_outline(tool, identifier, self.style) })
    }

    fn line(&self, function: usize) -> String {
        line(&hints::tool_outline(self.tools[function], self.identifier(function), self.style))
    }

    fn bytes(&self, function: usize) -> usize {
        self.tools[function].bytes()
    }

    fn declaration(&self, functions: &[usize]) -> String {
        declare_some(self.server, self.manifest, functions.iter().map(|function| self.tools[*function]), self.style)
    }

    fn name(&self, function: usize) -> String {
        format!("{}.{}", self.server, self.identifier(function))
    }
}

/// A module that the agent's author adds.
pub(in crate::catalog) struct AgentPart<'a> {
    module: &'a AgentModuleInfo,
    specifier: String,
    functions: Vec<FunctionInfo>,
}

impl<'a> AgentPart<'a> {
    pub(in crate::catalog) fn new(module: &'a AgentModuleInfo) -> Self {
        let hints::ModuleInfo { specifier, functions, .. } = hints::agent_info(module);
        Self { module, specifier, functions }
    }
}

impl Module for AgentPart<'_> {
    fn specifier(&self) -> &str {
        &self.specifier
    }

    fn purpose(&self) -> String {
        self.module.purpose.clone().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn functions(&self) -> usize {
        self.functions.len()
    }

    fn example(&self, function: usize) -> String {
        example_of(&self.specifier, &self.functions[function])
    }

    fn line(&self, function: usize) -> String {
        let text = line(&self.functions[function]);
        format!("  {}\n", text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    fn bytes(&self, function: usize) -> usize {
        let of = &self.module.functions[function];
        of.description.as_ref().map_or(0, String::len) + of.signature.as_ref().map_or(0, String::len)
    }

    fn declaration(&self, functions: &[usize]) -> String {
        let chosen: Vec<_> = functions.iter().map(|function| self.module.functions[*function].clone()).collect();
        declare_agent_module(&self.module.name, self.module.purpose.as_deref(), &chosen)
    }

    fn name(&self, function: usize) -> String {
        format!("{}.{}", self.module.name, self.functions[function].name)
    }
}
