//! Reads the formats of the config: `mcpServers` (Claude Desktop, `HyperAgent`), `servers` (the MCP file of VS Code), `mcp.servers` (the
//! settings of VS Code), and the sections of other programs (`sections.rs`). Comments and trailing commas are permitted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value as Json;

use super::boxes::{self, BoxDefinition};
use super::definition::{InputDefinition, InvalidServer, ServerDefinition};
use super::grants::{GrantReader, GrantSettings};
use super::inputs::Inputs;
use super::limits;
use super::programs::{BaseLayer, FreeNames, Program, valid_name};
use super::providers::{self, ProviderSettings};
use super::ranking::{self, SearchRanking};
use super::sections::is_server;
use super::server::{self, Context};
use super::source::ServerSource;
use super::tree::{self, Entry, Node, Tree, Value};
use super::yaml;
use crate::error::{Error, ErrorProblems, Result};
use crate::limits::{LimitChanges, Limits};
use crate::text::{self, Problem, displayed, displayed_within, is_server_name};

const MAX_DISPLAYED_NAME_CHARS: usize = 64;
/// Maximum number of problems that the error of one server lists.
const MAX_PROBLEMS: usize = 100;

/// The content of a config.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The valid servers, in the order of the file.
    pub servers: Vec<ServerDefinition>,
    /// The servers whose entries have errors, in the order of the file.
    pub invalid: Vec<InvalidServer>,
    /// The inputs to which `${input:id}` can refer.
    pub inputs: Vec<InputDefinition>,
    /// The programs whose configs are base layers under this config, in the order of their precedence.
    pub base: Vec<Program>,
    /// The servers of these programs. The caller that reads the programs' files adds them.
    pub bases: Vec<BaseLayer>,
    /// The packages that may bring servers, and the policy for them.
    pub providers: ProviderSettings,
    /// True if the servers of the shipped catalogue are available as well.
    pub catalogue: bool,
    /// The rules that decide which agent may use which servers and tools.
    pub grants: GrantSettings,
    /// The limits of the gateway that the config sets.
    pub limits: LimitChanges,
    /// False if no shapes of results are learnt. `None` if the config does not say.
    pub learn_results: Option<bool>,
    /// The ranking of a search for tools. `None` if the config does not set it.
    pub search: Option<SearchRanking>,
    /// The boxes for servers that are not in this config, by the names of the servers: `boxes` in the config.
    pub boxes: BTreeMap<String, BoxDefinition>,
    /// Problems that do not prevent the use of the config.
    pub warnings: Vec<String>,
}

/// Parses the text of a config file. It is parsed as YAML if the name of the file ends with `.yaml` or `.yml`, and otherwise as JSON.
/// Errors contain `file` as the file's name. `max_servers` is the maximum number of servers. If it is `None`, the config's own limit
/// applies, or else the default.
///
/// A server with errors is in [`Config::invalid`], and the others are usable.
///
/// # Errors
/// `ERR_CONFIG_SYNTAX` with line and column. `ERR_TOO_MANY_SERVERS`. `ERR_CONFIG_INVALID` if a section has the wrong type or a key is used
/// twice; it contains all problems.
///
/// ```
/// let text = r#"{ "mcpServers": { "files": { "command": "npx", "args": ["server-filesystem", "."] }, "b": {} } } // ours"#;
/// let config = hyperlight_mcp::config::parse_text(text, "config.json", 20).unwrap();
/// assert_eq!(config.servers[0].name, "files");
/// let error = config.invalid[0].error.clone().redacted(&hyperlight_mcp::redact::Redactor::new(None, None));
/// assert_eq!(error.to_string(), "config.json:1:86: mcpServers.b: needs a command or a url");
/// ```
pub fn parse_text(text: &str, file: &str, max_servers: impl Into<Option<usize>>) -> Result<Config> {
    let tree = if yaml::is_yaml(file) { yaml::from_text(text, file)? } else { tree::from_text(text, file)? };
    read(tree, file, max_servers.into())
}

/// Reads a config from a JSON value.
///
/// # Errors
/// The errors of [`parse_text`], but without the syntax error and without line numbers.
///
/// ```
/// let root = serde_json::json!({ "servers": { "a": { "type": "http", "url": "https://example.com/mcp" } } });
/// assert_eq!(hyperlight_mcp::config::parse_object(&root, "config", 20).unwrap().servers.len(), 1);
/// ```
pub fn parse_object(root: &Json, file: &str, max_servers: impl Into<Option<usize>>) -> Result<Config> {
    read(tree::from_json(root), file, max_servers.into())
}

fn read(tree: Tree, file: &str, max_servers: Option<usize>) -> Result<Config> {
    let mut sources = Sources { fatal: tree.duplicates, ..Sources::default() };
    sources.find(&tree.root);
    let count = sources.entries().count();
    let limit = max_servers.or(sources.limits.max_servers).unwrap_or_else(|| Limits::default().max_servers);
    if count > limit {
        // Problems of the whole config come first, because the limit itself may be wrong.
        if sources.fatal.is_empty() {
            return Err(Error::TooManyServers { count, limit });
        }
        return Err(unusable(file, sources.fatal));
    }
    sources.find_names_used_twice();
    let mut config = Config {
        providers: std::mem::take(&mut sources.providers),
        catalogue: sources.catalogue,
        limits: std::mem::take(&mut sources.limits),
        learn_results: sources.learn_results,
        search: sources.search,
        ..Config::default()
    };
    let mut inputs = Inputs::default();
    for (field, node) in &sources.inputs {
        inputs.read(field, node);
    }
    let mut warnings = std::mem::take(&mut sources.warnings);
    warnings.extend(inputs.problems.iter().cloned());
    let mut fatal = std::mem::take(&mut sources.fatal);
    let grants = read_grants(&tree.root, (file, &inputs), &mut fatal);
    let boxes = tree.root.get("boxes").map(|node| boxes::boxes(node, (file, &inputs), &mut fatal)).unwrap_or_default();
    for (_, entry) in sources.entries().filter(|(_, entry)| boxes.contains_key(&entry.name)) {
        let field = format!("boxes.{}", displayed(&entry.name));
        fatal.push(Problem::new(field, entry.position, "write box in the entry of the server, which this config has"));
    }
    let is_fatal = !fatal.is_empty();
    let names: HashSet<&str> = sources.entries().map(|(_, entry)| entry.name.as_str()).collect();
    let mut free = FreeNames::default();
    for (field, entry) in sources.entries() {
        let rename_to = (!is_server_name(&entry.name)).then(|| free.choose(&valid_name(&entry.name), |name| names.contains(name)));
        let (outcome, odd) = server::read(entry, field, &Context { file, inputs: &inputs, rename_to });
        warnings.extend(odd);
        match outcome {
            Ok(server) => config.servers.push(server),
            Err(unusable) if is_fatal => fatal.extend(unusable.problems),
            Err(unusable) => config.invalid.push(invalid_server(&entry.name, file, unusable)),
        }
    }
    if is_fatal {
        return Err(unusable(file, fatal));
    }
    text::sort_problems(&mut warnings);
    config.warnings = warnings.iter().map(|warning| warning.in_file(file)).collect();
    config.inputs = inputs.usable;
    config.base = std::mem::take(&mut sources.base);
    config.grants = grants;
    config.boxes = boxes;
    Ok(config)
}

/// Returns the error for a config with these problems.
fn unusable(file: &str, mut problems: Vec<Problem>) -> Error {
    text::sort_problems(&mut problems);
    Error::ConfigInvalid { file: file.into(), problems: problems.into() }
}

/// Reads the sections about agents. Their problems make the whole config unusable.
fn read_grants(root: &Node, (file, inputs): (&str, &Inputs), fatal: &mut Vec<Problem>) -> GrantSettings {
    let mut reader = GrantReader::new(file, inputs);
    for Entry { name, node, .. } in root.entries().unwrap_or_default() {
        match name.as_str() {
            "toolboxes" => reader.toolboxes(node),
            "agents" => reader.agents(node),
            "profiles" => reader.profiles(node),
            "defaultGrant" => reader.default_grant(node),
            _ => {}
        }
    }
    reader.check_references(root.get("agents"));
    fatal.append(&mut reader.problems);
    reader.settings
}

fn invalid_server(name: &str, file: &str, server::Unusable { mut problems, without_box, as_written }: server::Unusable) -> InvalidServer {
    text::sort_problems(&mut problems);
    let problems = ErrorProblems::from(problems).first(MAX_PROBLEMS);
    let error = Error::ConfigInvalid { file: file.into(), problems };
    let name = displayed_within(name, MAX_DISPLAYED_NAME_CHARS);
    let (without_box, as_written) = (without_box.map(Arc::new), as_written.map(Arc::new));
    InvalidServer { name, source: ServerSource::default(), error, without_box, as_written }
}

/// The places of the servers and inputs in a config, and its other sections.
#[derive(Default)]
struct Sources<'t> {
    sections: Vec<Section<'t>>,
    inputs: Vec<(&'static str, &'t Node)>,
    base: Vec<Program>,
    providers: ProviderSettings,
    catalogue: bool,
    limits: LimitChanges,
    learn_results: Option<bool>,
    search: Option<SearchRanking>,
    warnings: Vec<Problem>,
    /// Problems that make the whole config unusable.
    fatal: Vec<Problem>,
}

struct Section<'t> {
    field: &'static str,
    entries: Vec<&'t Entry>,
}

impl<'t> Sources<'t> {
    /// Returns the entries of all servers, each with the path of its section.
    fn entries(&self) -> impl Iterator<Item = (&'static str, &'t Entry)> + use<'_, 't> {
        self.sections.iter().flat_map(|section| section.entries.iter().map(|entry| (section.field, *entry)))
    }

    fn find(&mut self, root: &'t Node) {
        let Some(entries) = root.entries() else {
            if !matches!(root.value, Value::Null) {
                self.fatal.push(Problem::new("the config", root.position, "must be an object"));
            }
            return;
        };
        for Entry { name, node, .. } in entries {
            match name.as_str() {
                "mcpServers" => self.section("mcpServers", node),
                "servers" => self.section("servers", node),
                "mcp_servers" => self.section("mcp_servers", node),
                "context_servers" => self.section("context_servers", node),
                "inputs" => self.inputs.push(("inputs", node)),
                "mcp" => self.settings(node),
                "metadata" => node.get("mcp").into_iter().for_each(|servers| self.mixed("metadata.mcp", servers)),
                "base" => self.base(node),
                "providers" => self.providers = providers::settings(node, &mut self.fatal),
                "catalogue" => self.catalogue = providers::catalogue(node, &mut self.fatal),
                "limits" => self.limits = limits::limits(node, &mut self.fatal),
                "learnResults" => match node.boolean() {
                    None => self.fatal.push(Problem::new("learnResults", node.position, "must be true or false")),
                    learns => self.learn_results = learns,
                },
                "search" => self.search = ranking::search(node, &mut self.fatal),
                // Other top-level keys belong to the agent.
                _ => {}
            }
        }
    }

    /// Reads the key `mcp`. In the settings of VS Code, it contains `servers` and `inputs`. In configs of other programs, it contains the
    /// servers themselves.
    fn settings(&mut self, settings: &'t Node) {
        for Entry { name, node, .. } in settings.entries().unwrap_or_default() {
            match name.as_str() {
                "servers" if !is_server(node) => self.section("mcp.servers", node),
                "inputs" if !is_server(node) => self.inputs.push(("mcp.inputs", node)),
                _ => {}
            }
        }
        self.mixed("mcp", settings);
    }

    /// Reads a section that may have other values besides servers. In VS Code's settings, the other values belong to VS Code. Elsewhere, an
    /// object that is not a server may be a mistake.
    fn mixed(&mut self, field: &'static str, node: &'t Node) {
        let Some(all) = node.entries() else {
            return self.warnings.push(Problem::new(field, node.position, "is not an object; its servers are ignored"));
        };
        let is_read = |entry: &&Entry| matches!(entry.name.as_str(), "servers" | "inputs") && !is_server(&entry.node);
        let (entries, others): (Vec<&Entry>, Vec<&Entry>) =
            all.iter().filter(|entry| field != "mcp" || !is_read(entry)).partition(|entry| is_server(&entry.node));
        let is_settings = all.iter().any(|entry| is_read(&entry));
        for Entry { name, position, node } in others {
            if node.entries().is_some() && !is_settings {
                let path = format!("{field}.{}", displayed(name));
                self.warnings.push(Problem::new(path, *position, "is not a server, because it has neither command nor url; it is ignored"));
            }
        }
        self.sections.push(Section { field, entries });
    }

    /// Reads the programs whose configs are base layers.
    fn base(&mut self, node: &'t Node) {
        let known = Program::ALL.map(|program| format!("\"{}\"", program.word())).join(", ");
        let Some(items) = node.items() else {
            return self.fatal.push(Problem::new("base", node.position, format!("must be a list of programs: {known}")));
        };
        for (index, item) in items.iter().enumerate() {
            match item.text().and_then(Program::named) {
                Some(program) if self.base.contains(&program) => {}
                Some(program) => self.base.push(program),
                None => self.fatal.push(Problem::new(format!("base[{index}]"), item.position, format!("must be one of {known}"))),
            }
        }
    }

    fn section(&mut self, field: &'static str, node: &'t Node) {
        match node.entries() {
            Some(entries) => self.sections.push(Section { field, entries: entries.iter().collect() }),
            None => self.fatal.push(Problem::new(field, node.position, "must be an object")),
        }
    }

    /// Finds names that two sections use. Within one section, such a name is a duplicate key.
    fn find_names_used_twice(&mut self) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, section) in self.sections.iter().enumerate() {
            for entry in &section.entries {
                let first = *seen.entry(&entry.name).or_insert(index);
                if first != index {
                    let field = format!("{}.{}", section.field, displayed(&entry.name));
                    let problem = format!("this name is used twice: {} has it too; rename one of the servers", self.sections[first].field);
                    self.fatal.push(Problem::new(field, entry.position, problem));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
