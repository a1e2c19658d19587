//! Short descriptions of modules and functions. They are meant for an agent's own prompts and its user interface.

mod agent;
mod builtin;
mod example;

use serde::Serialize;
use serde_json::Value as Json;

use super::declarations::{self, AgentFunction, DeclarationStyle, Failures};
use super::{Manifest, SeenTool, Tool, module_name, module_specifier};

use agent::of_agent;
pub(super) use builtin::{MCP_MODULE, mcp_module};
use example::arguments_text;

/// Maximum length in characters of the name of a tool, parameter or function in a short description.
const MAX_NAME_CHARS: usize = 100;
/// Maximum number of parameters in an outline. It is one more than a line shows, so that the line can end with `…`.
const MAX_OUTLINED: usize = 9;
/// Maximum length in characters of a parameter's description.
const MAX_PARAMETER_CHARS: usize = 300;

/// Origin of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleKind {
    /// The module of an MCP server.
    Server,
    /// A module that the agent's author added with `hostModule`.
    Agent,
    /// The built-in module `host:mcp`.
    BuiltIn,
}

/// A module that the agent's author adds, with the author's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentModuleInfo {
    /// Name without the prefix `host:`.
    pub name: String,
    pub purpose: Option<String>,
    pub functions: Vec<AgentFunction>,
}

/// A summary of a module, for one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleSummary {
    /// Name without the prefix `host:`.
    pub name: String,
    /// Import specifier of the module, for agent code.
    pub specifier: String,
    pub kind: ModuleKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    pub purpose: String,
    /// Number of the module's functions.
    pub functions: usize,
}

/// A module with its functions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleInfo {
    pub name: String,
    pub specifier: String,
    pub kind: ModuleKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    pub purpose: String,
    pub functions: Vec<FunctionInfo>,
    /// Warnings about the use of the module.
    pub caveats: Vec<String>,
    /// Code that imports the module's first function and calls it.
    pub example: String,
}

/// A short description of a function.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionInfo {
    /// Name under which agent code imports the function.
    pub name: String,
    /// Raw name of the tool, which the function `call` expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub purpose: String,
    /// TypeScript signature on one line. A long signature is shortened.
    pub signature: String,
    pub parameters: Vec<ParameterInfo>,
    /// Return type in TypeScript.
    pub returns: String,
    /// Number of results from which `returns` was learnt, as the server does not declare it. `None` if nothing was learnt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results_seen: Option<u32>,
    pub caveats: Vec<String>,
    /// Example of a call with the required parameters.
    pub example: String,
}

/// A short description of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParameterInfo {
    /// Original name of the parameter, even if it is not an identifier.
    pub name: String,
    /// Type of the parameter in TypeScript.
    #[serde(rename = "type")]
    pub declared: String,
    pub required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The default value that the server uses. hyperlight-mcp never adds it to a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Json>,
}

/// Returns the summary of a server's module.
pub(super) fn server_summary(server: &str, manifest: &Manifest, style: &DeclarationStyle) -> ModuleSummary {
    ModuleSummary {
        name: module_name(server),
        specifier: module_specifier(server),
        kind: ModuleKind::Server,
        server: Some(server.to_owned()),
        purpose: server_purpose(manifest, style),
        functions: manifest.identifiers().len(),
    }
}

/// Returns the first sentence of a server's instructions. If there are none, returns the server's own name and version.
pub(super) fn server_purpose(manifest: &Manifest, style: &DeclarationStyle) -> String {
    let said = manifest.instructions.as_deref().map(|text| style.wording.purpose(text.trim_start_matches(['#', ' ', '\n'])));
    said.filter(|purpose| !purpose.is_empty())
        .unwrap_or_else(|| style.wording.one_line(&format!("{} {}", manifest.server_name, manifest.server_version), MAX_NAME_CHARS))
}

/// Returns a server's module with descriptions of its functions.
pub(super) fn server_info(server: &str, manifest: &Manifest, style: &DeclarationStyle) -> ModuleInfo {
    let summary = server_summary(server, manifest, style);
    let identifiers = manifest.identifiers();
    let functions: Vec<_> = manifest.distinct_tools().map(|tool| tool_hint(tool, &identifiers[&tool.name], style)).collect();
    info(summary, functions, vec![failure_caveat(style.failures).to_owned()])
}

/// Returns an outline of a tool: its name, purpose, and the names of its first parameters. This takes little time, because only a small
/// part of the schemas is read.
pub(super) fn tool_outline(tool: &Tool, identifier: &str, style: &DeclarationStyle) -> FunctionInfo {
    FunctionInfo {
        name: identifier.to_owned(),
        tool: None,
        purpose: tool_purpose(tool, style),
        signature: String::new(),
        parameters: outlined_parameters(&tool.input_schema),
        returns: String::new(),
        results_seen: None,
        caveats: Vec::new(),
        example: String::new(),
    }
}

/// Returns an example of a call of a tool.
pub(super) fn tool_example(tool: &Tool, identifier: &str) -> String {
    format!("{identifier}({})", arguments_text(&tool.input_schema))
}

/// Returns the first parameters of a schema. References are not followed.
fn outlined_parameters(schema: &Json) -> Vec<ParameterInfo> {
    let required: Vec<&str> = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    let names = schema.get("properties").and_then(Json::as_object).into_iter().flat_map(serde_json::Map::keys).take(MAX_OUTLINED);
    let parameter = |name: &String| ParameterInfo {
        name: name.clone(),
        declared: String::new(),
        required: required.contains(&name.as_str()),
        description: None,
        default: None,
    };
    names.map(parameter).collect()
}

/// Returns the module `host:mcp` with descriptions of its functions.
pub(super) fn mcp_info(style: &DeclarationStyle) -> ModuleInfo {
    let (summary, functions) = mcp_module();
    let caveats = match style.failures {
        Failures::Returned => "its functions throw where they fail, unlike the servers' modules",
        Failures::Thrown => "its functions throw where they fail",
    };
    info(summary, functions, vec![caveats.to_owned()])
}

/// Returns the summary of a module that the agent's author adds.
pub(super) fn agent_summary(module: &AgentModuleInfo) -> ModuleSummary {
    ModuleSummary {
        name: module.name.clone(),
        specifier: format!("host:{}", module.name),
        kind: ModuleKind::Agent,
        server: None,
        purpose: module.purpose.clone().unwrap_or_default(),
        functions: module.functions.len(),
    }
}

/// Returns a module that the agent's author adds, with descriptions of its functions.
pub(super) fn agent_info(module: &AgentModuleInfo) -> ModuleInfo {
    let functions = module.functions.iter().map(of_agent).collect();
    info(agent_summary(module), functions, vec!["what a function throws is thrown here".to_owned()])
}

fn info(summary: ModuleSummary, functions: Vec<FunctionInfo>, caveats: Vec<String>) -> ModuleInfo {
    let ModuleSummary { name, specifier, kind, server, purpose, .. } = summary;
    let example = functions.first().map(|first| example_of(&specifier, first)).unwrap_or_default();
    ModuleInfo { name, specifier, kind, server, purpose, functions, caveats, example }
}

/// Returns code that imports a function and calls it.
pub(super) fn example_of(specifier: &str, function: &FunctionInfo) -> String {
    // The example itself exports a `handler`. If the function has the name `handler` too, the example imports it under another name.
    let (imported, call) = match function.example.strip_prefix("handler(") {
        Some(rest) => ("handler as call_handler".to_owned(), format!("call_handler({rest}")),
        None => (function.name.clone(), function.example.clone()),
    };
    format!("import {{ {imported} }} from \"{specifier}\";\nexport const handler = () => {call};")
}

/// Returns a short description of a tool.
pub(super) fn tool_hint(tool: &Tool, identifier: &str, style: &DeclarationStyle) -> FunctionInfo {
    let (described, returns) = declarations::parts(tool, style);
    let seen = style.seen.of(tool);
    FunctionInfo {
        name: identifier.to_owned(),
        tool: Some(style.wording.one_line(&tool.name, MAX_NAME_CHARS)),
        purpose: tool_purpose(tool, style),
        signature: declarations::signature(tool, identifier, style),
        parameters: described.into_iter().map(|parameter| hint_of(parameter, &tool.input_schema, style)).collect(),
        returns,
        caveats: caveats(tool, seen),
        results_seen: seen.map(SeenTool::results),
        example: tool_example(tool, identifier),
    }
}

/// Returns a tool's purpose: the first sentence of its description, or otherwise its title.
pub(super) fn tool_purpose(tool: &Tool, style: &DeclarationStyle) -> String {
    let title = tool.title.as_deref().or_else(|| tool.annotations.as_ref()?.get("title")?.as_str());
    let said = [tool.description.as_deref(), title].into_iter().flatten().map(|text| style.wording.purpose(text));
    said.into_iter().find(|purpose| !purpose.is_empty()).unwrap_or_default()
}

fn hint_of(parameter: declarations::Parameter, schema: &Json, style: &DeclarationStyle) -> ParameterInfo {
    let declarations::Parameter { key, declared, required } = parameter;
    let of = schema.get("properties").and_then(|properties| properties.get(&key));
    let said = of.and_then(|of| of.get("description")?.as_str());
    // A default value that would have to be sanitised or cut is left out.
    let short = |value: &&Json| {
        let json = value.to_string();
        json.len() <= MAX_PARAMETER_CHARS && style.wording.one_line(&json, MAX_PARAMETER_CHARS) == json
    };
    ParameterInfo {
        name: key,
        declared,
        required,
        description: said.map(|text| style.wording.one_line(text, MAX_PARAMETER_CHARS)),
        default: of.and_then(|of| of.get("default")).filter(short).cloned(),
    }
}

/// Returns warnings for a model. They come from the tool's annotations (MCP 2025-11-25), which the server chose itself.
fn caveats(tool: &Tool, seen: Option<&SeenTool>) -> Vec<String> {
    let hint = |name: &str| tool.annotations.as_ref().and_then(|annotations| annotations.get(name)?.as_bool());
    let mut caveats = Vec::new();
    if hint("readOnlyHint") != Some(true) {
        // According to the MCP specification, a tool that is not read-only is destructive by default.
        let what = if hint("destructiveHint") == Some(false) { "changes things" } else { "may change or destroy things" };
        let again = if hint("idempotentHint") == Some(true) { "; calling it again changes nothing more" } else { "" };
        caveats.push(format!("{what}{again}; a person may be asked first"));
    }
    if hint("openWorldHint") == Some(true) {
        caveats.push("reaches beyond the server: its results may hold anybody's text".to_owned());
    }
    if tool.execution.as_ref().and_then(|execution| execution.get("taskSupport")?.as_str()) == Some("required") {
        caveats.push("runs as a task: may take long".to_owned());
    }
    if tool.output_schema.is_none() {
        let unseen = || "its result has no schema: look at one before relying on its shape".to_owned();
        caveats.push(seen.map_or_else(unseen, SeenTool::caveat));
    }
    caveats
}

/// Returns a sentence about how a failed call reports its error.
pub(super) fn failure_caveat(failures: Failures) -> &'static str {
    match failures {
        Failures::Returned => "a call that fails returns { error, code? } instead of its result",
        Failures::Thrown => "a call that fails throws an Error",
    }
}
