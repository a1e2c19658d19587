//! The config's shapes: `mcpServers` (Claude Desktop, `HyperAgent`), `servers` (VS Code's file) and `mcp.servers` (VS Code's
//! settings), with comments and trailing commas.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::definition::{InputDefinition, InvalidServer, ServerDefinition};
use super::inputs::Inputs;
use super::server::{self, Context};
use super::tree::{self, Entry, Node, Tree, Value};
use crate::error::{Error, Result};
use crate::text::{self, Problem, displayed, displayed_within};

const MAX_DISPLAYED_NAME_CHARS: usize = 64;

/// A config that was read.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// In the order of the file.
    pub servers: Vec<ServerDefinition>,
    /// Those whose entry is wrong, in the order of the file.
    pub invalid: Vec<InvalidServer>,
    /// What `${input:id}` can refer to.
    pub inputs: Vec<InputDefinition>,
    /// What is odd, but no error.
    pub warnings: Vec<String>,
}

/// Parses a config file's text. `file` names it in errors.
///
/// A server that is wrong is in [`Config::invalid`]; the others are usable.
///
/// # Errors
/// `ERR_CONFIG_SYNTAX` with line and column; `ERR_TOO_MANY_SERVERS`; `ERR_CONFIG_INVALID` with everything that is wrong,
/// where sections have the wrong type or keys stand twice.
///
/// ```
/// let text = r#"{ "mcpServers": { "files": { "command": "npx", "args": ["server-filesystem", "."] }, "b": {} } } // ours"#;
/// let config = hyperlight_mcp::config::parse_text(text, "config.json", 20).unwrap();
/// assert_eq!(config.servers[0].name, "files");
/// let error = config.invalid[0].error.clone().redacted(&hyperlight_mcp::redact::Redactor::new(None, None));
/// assert_eq!(error.to_string(), "config.json:1:86: mcpServers.b: needs a command or a url");
/// ```
pub fn parse_text(text: &str, file: &str, max_servers: usize) -> Result<Config> {
    read(tree::from_text(text, file)?, file, max_servers)
}

/// Reads a config that is a value already.
///
/// # Errors
/// As [`parse_text`], without the syntax and without lines.
///
/// ```
/// let root = serde_json::json!({ "servers": { "a": { "type": "http", "url": "https://example.com/mcp" } } });
/// assert_eq!(hyperlight_mcp::config::parse_object(&root, "config", 20).unwrap().servers.len(), 1);
/// ```
pub fn parse_object(root: &Json, file: &str, max_servers: usize) -> Result<Config> {
    read(tree::from_json(root), file, max_servers)
}

fn read(tree: Tree, file: &str, max_servers: usize) -> Result<Config> {
    let mut sources = Sources { fatal: tree.duplicates, ..Sources::default() };
    sources.find(&tree.root);
    let count = sources.sections.iter().map(|section| section.entries.len()).sum();
    if count > max_servers {
        return Err(Error::TooManyServers { count, limit: max_servers });
    }
    sources.find_names_used_twice();
    let mut config = Config::default();
    let mut inputs = Inputs::default();
    for (field, node) in &sources.inputs {
        inputs.read(field, node);
    }
    let mut warnings = sources.warnings;
    warnings.extend(inputs.problems.iter().cloned());
    let mut fatal = sources.fatal;
    let is_fatal = !fatal.is_empty();
    for section in &sources.sections {
        for entry in section.entries {
            let (outcome, odd) = server::read(entry, section.field, &Context { file, inputs: &inputs });
            warnings.extend(odd);
            match outcome {
                Ok(server) => config.servers.push(server),
                Err(problems) if is_fatal => fatal.extend(problems),
                Err(problems) => config.invalid.push(invalid_server(&entry.name, file, problems)),
            }
        }
    }
    if is_fatal {
        text::sort_problems(&mut fatal);
        return Err(Error::ConfigInvalid { file: file.into(), problems: fatal.into() });
    }
    text::sort_problems(&mut warnings);
    config.warnings = warnings.iter().map(|warning| warning.in_file(file)).collect();
    config.inputs = inputs.usable;
    Ok(config)
}

fn invalid_server(name: &str, file: &str, mut problems: Vec<Problem>) -> InvalidServer {
    text::sort_problems(&mut problems);
    let error = Error::ConfigInvalid { file: file.into(), problems: problems.into() };
    InvalidServer { name: displayed_within(name, MAX_DISPLAYED_NAME_CHARS), error }
}

/// Where a config keeps its servers and inputs.
#[derive(Default)]
struct Sources<'t> {
    sections: Vec<Section<'t>>,
    inputs: Vec<(&'static str, &'t Node)>,
    warnings: Vec<Problem>,
    /// What no part of the config can be used with.
    fatal: Vec<Problem>,
}

struct Section<'t> {
    field: &'static str,
    entries: &'t [Entry],
}

impl<'t> Sources<'t> {
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
                "inputs" => self.inputs.push(("inputs", node)),
                "mcp" => self.settings(node),
                // Other top-level keys belong to the agent.
                _ => {}
            }
        }
    }

    /// VS Code's settings have all of it below one key.
    fn settings(&mut self, settings: &'t Node) {
        let Some(entries) = settings.entries() else {
            return self.warnings.push(Problem::new("mcp", settings.position, "is no object; no server is read from it"));
        };
        for Entry { name, node, .. } in entries {
            match name.as_str() {
                "servers" => self.section("mcp.servers", node),
                "inputs" => self.inputs.push(("mcp.inputs", node)),
                _ => {}
            }
        }
    }

    fn section(&mut self, field: &'static str, node: &'t Node) {
        match node.entries() {
            Some(entries) => self.sections.push(Section { field, entries }),
            None => self.fatal.push(Problem::new(field, node.position, "must be an object")),
        }
    }

    /// Across sections: within one, that is a duplicate key.
    fn find_names_used_twice(&mut self) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, section) in self.sections.iter().enumerate() {
            for entry in section.entries {
                let first = *seen.entry(&entry.name).or_insert(index);
                if first != index {
                    let field = format!("{}.{}", section.field, displayed(&entry.name));
                    let problem = format!("this name is used twice: {} has it too", self.sections[first].field);
                    self.fatal.push(Problem::new(field, entry.position, problem));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
