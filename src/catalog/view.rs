//! Describes all modules that the code of a run can import.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value as Json;

use super::declarations::{DeclarationStyle, declare_agent_module, declare_mcp, declare_tool};
use super::direct_names::DirectNames;
use super::hints::{self, AgentModuleInfo, FunctionInfo, ModuleInfo, ModuleSummary};
use super::known_declarations::KnownDeclarations;
use super::system_message::{AgentPart, FunctionPosition, Module as MessagePart, ServerPart, system_message};
use super::{Manifest, SeenResults, Tool, module_specifier};
use crate::error::{Error, ErrorText, Result};
use crate::limits::MAX_DESCRIBED_NAME_BYTES;
use crate::text::nearest;

/// Characters that may separate a server and its tool, as in `describe("weather.get_forecast")`.
const SEPARATORS: [char; 2] = ['.', '/'];

/// The servers and modules that the code of a run can import, with methods that describe them.
///
/// ```
/// use hyperlight_mcp::catalog::{Catalog, DeclarationStyle, Failures, Wording};
/// use hyperlight_mcp::text::{sanitise_line, sanitise_text};
///
/// let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
/// let style = DeclarationStyle { wording, failures: Failures::Returned, seen: Default::default() };
/// let catalog = Catalog::new(Default::default(), Vec::new(), style);
/// assert_eq!(catalog.list_modules()[0].specifier, "host:mcp");
/// assert!(catalog.describe("weather").is_err());
/// ```
pub struct Catalog {
    servers: BTreeMap<String, Arc<Manifest>>,
    modules: Vec<AgentModuleInfo>,
    style: DeclarationStyle,
    /// The shapes of results that were seen, for each server.
    seen: BTreeMap<String, SeenResults>,
    /// The declarations that other catalogs have made.
    known: Arc<KnownDeclarations>,
}

/// All information about a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInfo {
    pub server: String,
    /// Import specifier of the tool's module.
    pub specifier: String,
    #[serde(flatten)]
    pub function: FunctionInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// TypeScript declaration of the tool's module with only this function.
    pub declaration: String,
    /// JSON Schema of the arguments, as the server sent it. It is meant for programs, and is not sanitised for models.
    pub input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Json>,
    /// Names of the tool for hosts that call it directly. The gateway adds them from the approvals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_names: Option<DirectNames>,
}

/// Summary of an approved server: its tools, and the number of its resources and prompts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerOffer {
    /// Import specifier of the server's module, for agent code.
    pub specifier: String,
    pub server_name: String,
    pub server_version: String,
    pub protocol_version: String,
    pub purpose: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    pub functions: Vec<ToolLine>,
    /// Number of resources.
    pub resources: usize,
    pub resource_templates: usize,
    pub prompts: usize,
}

/// A tool's name and purpose, for one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolLine {
    /// Name under which agent code imports the function.
    pub name: String,
    /// Raw name of the tool.
    pub tool: String,
    pub purpose: String,
}

#[cfg(test)]
thread_local! {
    /// The number of errors about unknown modules that this thread has made.
    static UNKNOWN_MODULES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The module to which a name refers.
enum Module<'a> {
    Server(&'a str, &'a Manifest),
    Agent(&'a AgentModuleInfo),
    Mcp,
}

/// The part of a catalog to which the name in a description refers.
enum Part<'a> {
    Module(Module<'a>),
    Tool(&'a str, &'a Manifest, &'a Tool),
}

impl Part<'_> {
    /// Returns values that distinguish this part from all others: the kind and the name of its module, and the raw name of the tool.
    fn place(&self) -> (&'static str, &str, Option<&str>) {
        match self {
            Self::Module(Module::Mcp) => ("mcp", "", None),
            Self::Module(Module::Agent(module)) => ("agent", &module.name, None),
            Self::Module(Module::Server(server, _)) => ("server", server, None),
            Self::Tool(server, _, tool) => ("server", server, Some(&tool.name)),
        }
    }
}

impl Catalog {
    /// Makes a catalog of the servers that a run may use and the modules that the agent's author added.
    #[must_use]
    pub fn new(servers: BTreeMap<String, Arc<Manifest>>, modules: Vec<AgentModuleInfo>, style: DeclarationStyle) -> Self {
        Self { servers, modules, style, seen: BTreeMap::new(), known: Arc::default() }
    }

    /// Sets the shapes of results that were seen, for each server. They are used in descriptions of tools whose server declares no results.
    /// The system message does not contain them: if the prompt changed with each call, the model could not use its cache of the prompt.
    #[must_use]
    pub fn with_seen(self, seen: BTreeMap<String, SeenResults>) -> Self {
        Self { seen, ..self }
    }

    /// Sets the declarations that are known already. All catalogs of a gateway share them.
    #[must_use]
    pub fn with_known(self, known: &Arc<KnownDeclarations>) -> Self {
        Self { known: Arc::clone(known), ..self }
    }

    /// Returns the manifests of the servers, by the names that code uses.
    #[must_use]
    pub fn servers(&self) -> &BTreeMap<String, Arc<Manifest>> {
        &self.servers
    }

    /// Returns the summaries of all modules: `host:mcp`, the servers' modules, and the modules that the agent's author added.
    #[must_use]
    pub fn list_modules(&self) -> Vec<ModuleSummary> {
        let servers = self.servers.iter().map(|(server, manifest)| hints::server_summary(server, manifest, &self.style));
        [hints::mcp_module().0].into_iter().chain(servers).chain(self.modules.iter().map(hints::agent_summary)).collect()
    }

    /// Returns a module with descriptions of its functions. `name` is the name of a module (`mcp-weather`, with or without `host:`) or of
    /// a server.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_MODULE`.
    pub fn module_info(&self, name: &str) -> Result<ModuleInfo> {
        Ok(match self.module(name)? {
            Module::Server(server, manifest) => hints::server_info(server, manifest, &self.style_of(server)),
            Module::Agent(module) => hints::agent_info(module),
            Module::Mcp => hints::mcp_info(&self.style),
        })
    }

    /// Returns all information about a tool. `tool` is its raw name or its identifier.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_UNKNOWN_TOOL`.
    pub fn tool_info(&self, server: &str, tool: &str) -> Result<ToolInfo> {
        let (manifest, found, identifier) = self.tool(server, tool)?;
        let style = self.style_of_one(server);
        let declaration = declare_tool(server, manifest, &found.name, &style).unwrap_or_default();
        let wording = &style.wording;
        Ok(ToolInfo {
            server: server.to_owned(),
            specifier: module_specifier(server),
            function: hints::tool_hint(found, identifier, &self.style_of(server)),
            title: found.title.as_ref().map(|title| wording.one_line(title, 200)),
            description: found.description.as_ref().map(|text| wording.description(text)),
            declaration,
            input_schema: found.input_schema.clone(),
            output_schema: found.output_schema.clone(),
            annotations: found.annotations.clone(),
            direct_names: None,
        })
    }

    /// Returns the import specifier of a tool's module, and a short description of the tool.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_UNKNOWN_TOOL`.
    pub fn tool_line(&self, server: &str, tool: &str) -> Result<(String, FunctionInfo)> {
        let (_, found, identifier) = self.tool(server, tool)?;
        Ok((module_specifier(server), hints::tool_hint(found, identifier, &self.style_of(server))))
    }

    /// Returns the TypeScript declarations of one module, or of all modules.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_MODULE`.
    pub fn declarations(&self, name: Option<&str>) -> Result<String> {
        let Some(name) = name else {
            let servers = self.servers.keys().map(|server| format!("mcp-{server}"));
            let names =
                [hints::MCP_MODULE.to_owned()].into_iter().chain(servers).chain(self.modules.iter().map(|module| module.name.clone()));
            let texts: Result<Vec<_>> = names.map(|name| self.declarations(Some(&name))).collect();
            return Ok(texts?.join("\n"));
        };
        Ok(self.declared(&self.module(name)?))
    }

    /// Returns the TypeScript declarations of a module (`weather`) or of one function (`weather.get_forecast`). The description of one function
    /// is whole, up to [`MAX_WHOLE_DESCRIPTION_CHARS`](crate::limits::MAX_WHOLE_DESCRIPTION_CHARS).
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` for a name of more than [`MAX_DESCRIBED_NAME_BYTES`] bytes, `ERR_UNKNOWN_MODULE`, `ERR_UNKNOWN_TOOL`.
    pub fn describe(&self, what: &str) -> Result<String> {
        Ok(self.declared_part(&self.part(what)?))
    }

    /// Returns the TypeScript declarations of several modules and functions. Each is declared once, even if it is named several times or in
    /// different forms. Returns an error as soon as `wanted` returns false, because the declarations of large servers take long.
    ///
    /// # Errors
    /// `ERR_ABORTED` if the declarations are no longer wanted, and the errors of [`Catalog::describe`].
    pub fn describe_all<'a>(&self, names: impl IntoIterator<Item = &'a str>, wanted: &dyn Fn() -> bool) -> Result<String> {
        let parts = names.into_iter().map(|name| self.part(name)).collect::<Result<Vec<_>>>()?;
        let mut declared = BTreeSet::new();
        let mut texts = Vec::new();
        for part in &parts {
            if !wanted() {
                return Err(Error::Aborted { what: "tool call" });
            }
            if declared.insert(part.place()) {
                texts.push(self.declared_part(part));
            }
        }
        Ok(texts.join("\n"))
    }

    /// Returns the part of the catalog that a name stands for.
    fn part(&self, what: &str) -> Result<Part<'_>> {
        let what = what.trim();
        if what.len() > MAX_DESCRIBED_NAME_BYTES {
            let problem = format!("a name has at most {MAX_DESCRIBED_NAME_BYTES} bytes, not {}", what.len());
            return Err(Error::InvalidOption { method: "describe", problem: problem.into() });
        }
        if let Some(module) = self.find_module(what) {
            return Ok(Part::Module(module));
        }
        // A raw name may itself contain a dot, so the text is split at each dot. The first split at a known module is used.
        for (index, _) in what.match_indices(SEPARATORS) {
            let (Some(module), function) = (self.find_module(&what[..index]), &what[index + 1..]) else { continue };
            match module {
                Module::Server(server, manifest) => {
                    let (tool, _) = manifest.tool_or_identifier(function).ok_or_else(|| manifest.unknown_tool(server, function))?;
                    return Ok(Part::Tool(server, manifest, tool));
                }
                // Modules that belong to no server are short, so the whole module is declared.
                other if functions_of(&other).iter().any(|known| known == function) => return Ok(Part::Module(other)),
                _ => {}
            }
        }
        Err(self.unknown_module(what))
    }

    fn declared_part(&self, part: &Part<'_>) -> String {
        match part {
            Part::Module(module) => self.declared(module),
            Part::Tool(server, manifest, tool) => {
                declare_tool(server, manifest, &tool.name, &self.style_of_one(server)).unwrap_or_default()
            }
        }
    }

    /// Returns the part of a system prompt that describes the modules. It has at most `budget_tokens` tokens, and at least 85 % of them if
    /// there is more to say. Tokens are counted by [`crate::catalog::estimate_tokens`], which more often counts too many than too few.
    /// Functions get lines and then declarations, one function of each server in turn.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if even the message without a list of modules does not fit. The error contains the smallest possible budget.
    pub fn system_message(&self, budget_tokens: usize) -> Result<String> {
        self.system_message_for(budget_tokens, &[])
    }

    /// Returns the part of a system prompt that describes the modules, for one task. `found` are the tools that a search for the task
    /// found: pairs of a server and a raw name, the best first. The first few found tools are declared before other functions are listed.
    /// The other found tools come before tools that were not found. For the budget, see [`Catalog::system_message`].
    ///
    /// # Errors
    /// The errors of [`Catalog::system_message`].
    pub fn system_message_for(&self, budget_tokens: usize, found: &[(&str, &str)]) -> Result<String> {
        let servers: Vec<_> = self.servers.iter().map(|(server, manifest)| ServerPart::new(server, manifest, &self.style)).collect();
        let place = |(server, tool): &(&str, &str)| -> Option<FunctionPosition> {
            let index = self.servers.keys().position(|known| known == server)?;
            Some((index, servers[index].index_of(tool)?))
        };
        let found: Vec<FunctionPosition> = found.iter().filter_map(place).collect();
        let modules = self.modules.iter().map(|module| Box::new(AgentPart::new(module)) as Box<dyn MessagePart + '_>);
        let parts: Vec<_> = servers.into_iter().map(|server| Box::new(server) as Box<dyn MessagePart + '_>).chain(modules).collect();
        system_message(&parts, &found, self.style.failures, budget_tokens)
    }

    /// Returns the summary of an approved server.
    #[must_use]
    pub fn server_offer(server: &str, manifest: &Manifest, style: &DeclarationStyle) -> ServerOffer {
        let wording = &style.wording;
        let identifiers = manifest.identifiers();
        let line = |tool: &Tool| ToolLine {
            name: identifiers[&tool.name].clone(),
            tool: tool.name.clone(),
            purpose: hints::tool_purpose(tool, style),
        };
        ServerOffer {
            specifier: module_specifier(server),
            server_name: wording.one_line(&manifest.server_name, 200),
            server_version: wording.one_line(&manifest.server_version, 200),
            protocol_version: wording.one_line(&manifest.protocol_version, 200),
            purpose: hints::server_purpose(manifest, style),
            instructions: manifest.instructions.as_ref().map(|text| wording.description(text)),
            functions: manifest.distinct_tools().map(line).collect(),
            resources: manifest.resources.len(),
            resource_templates: manifest.resource_templates.len(),
            prompts: manifest.prompts.len(),
        }
    }

    /// Returns the style for the declaration of a single tool, in which texts are not cut.
    fn style_of_one(&self, server: &str) -> DeclarationStyle {
        DeclarationStyle { wording: self.style.wording.whole(), ..self.style_of(server) }
    }

    /// Returns the style in which a server's tools are declared. It includes the shapes of results that were seen.
    fn style_of(&self, server: &str) -> DeclarationStyle {
        DeclarationStyle { seen: self.seen.get(server).cloned().unwrap_or_default(), ..self.style.clone() }
    }

    fn declared(&self, module: &Module<'_>) -> String {
        match module {
            Module::Server(server, _) => {
                let manifest = self.servers.get(*server);
                manifest.map_or_else(String::new, |manifest| self.known.of(server, manifest, &self.style_of(server)).to_string())
            }
            Module::Agent(module) => declared_agent(module),
            Module::Mcp => declare_mcp(&self.style),
        }
    }

    fn tool(&self, server: &str, tool: &str) -> Result<(&Manifest, &Tool, &str)> {
        let manifest = self.servers.get(server).ok_or_else(|| Error::UnknownServer {
            server: server.to_owned(),
            place: "among those that are approved and enabled",
            known: self.servers.keys().map(ErrorText::from).collect(),
        })?;
        let (found, identifier) = manifest.tool_or_identifier(tool).ok_or_else(|| manifest.unknown_tool(server, tool))?;
        Ok((manifest, found, identifier))
    }

    fn module(&self, name: &str) -> Result<Module<'_>> {
        self.find_module(name).ok_or_else(|| self.unknown_module(name))
    }

    /// Returns the module with this name. Returns `None` and not an error, because the error would compare the name with the names of all
    /// modules.
    fn find_module(&self, name: &str) -> Option<Module<'_>> {
        let plain = plain_name(name);
        if plain == hints::MCP_MODULE {
            return Some(Module::Mcp);
        }
        if let Some(module) = self.modules.iter().find(|module| module.name == plain) {
            return Some(Module::Agent(module));
        }
        let mut names = [plain.strip_prefix("mcp-"), Some(plain)].into_iter().flatten();
        names.find_map(|name| self.servers.get_key_value(name)).map(|(server, manifest)| Module::Server(server, manifest))
    }

    /// Returns a tool's identifier together with the name of the first server that has the tool: `weather.get_forecast`.
    fn server_with(&self, tool: &str) -> Option<String> {
        let mut having =
            self.servers.iter().filter_map(|(server, manifest)| Some(format!("{server}.{}", manifest.tool_or_identifier(tool)?.1)));
        having.next()
    }

    fn unknown_module(&self, name: &str) -> Error {
        #[cfg(test)]
        UNKNOWN_MODULES.set(UNKNOWN_MODULES.get() + 1);
        let plain = plain_name(name);
        let modules = self.list_modules();
        // A server's module can also be found by the name of the server.
        let names = modules.iter().flat_map(|module| [Some(module.name.as_str()), module.server.as_deref()]).flatten();
        let meant = nearest(plain, names);
        let is_meant =
            |module: &&ModuleSummary| Some(module.name.as_str()) == meant || meant.is_some() && module.server.as_deref() == meant;
        Error::UnknownModule {
            name: name.into(),
            meant: modules
                .iter()
                .find(is_meant)
                .map(|module| module.specifier.clone())
                .or_else(|| self.server_with(plain))
                .map(ErrorText::from),
            known: modules.into_iter().map(|module| module.specifier.into()).collect(),
        }
    }
}

/// Returns the name of a module without the prefix of a specifier.
fn plain_name(name: &str) -> &str {
    name.trim().strip_prefix("host:").unwrap_or(name.trim())
}

fn functions_of(module: &Module<'_>) -> Vec<String> {
    match module {
        Module::Server(_, manifest) => manifest.tool_names(),
        Module::Agent(module) => module.functions.iter().map(|function| function.name.clone()).collect(),
        Module::Mcp => hints::mcp_module().1.into_iter().map(|function| function.name).collect(),
    }
}

fn declared_agent(module: &AgentModuleInfo) -> String {
    declare_agent_module(&module.name, module.purpose.as_deref(), &module.functions)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
