//! Looks up the modules that code can import. For a name that does not exist, finds the name that was probably meant.

use std::collections::{HashMap, HashSet};

use super::{Importable, shown};
use crate::text::nearest;

/// The maximum number of modules that a message lists.
const MAX_LISTED: usize = 20;
/// The built-in modules of the guest. Their exports are not checked.
const BUILT_IN: [&str; 4] = ["console", "crypto", "io", "require"];
/// The module that has the function `call`.
const MCP: &str = "host:mcp";
/// The prefix of the modules of servers.
const SERVER: &str = "host:mcp-";

/// The modules of a run, indexed for lookups by name.
pub(super) struct Modules<'m> {
    all: &'m [Importable],
    by_specifier: HashMap<&'m str, usize>,
    names: Vec<HashSet<&'m str>>,
}

/// The result of looking up a module's specifier.
pub(super) enum Found {
    Module(usize),
    /// The module is built in. Its exports are not known.
    BuiltIn,
    Nothing,
}

impl<'m> Modules<'m> {
    pub(super) fn new(all: &'m [Importable]) -> Self {
        let by_specifier = all.iter().enumerate().map(|(index, module)| (module.specifier.as_str(), index)).collect();
        let names = all.iter().map(|module| module.exports.iter().map(|export| export.name.as_str()).collect()).collect();
        Self { all, by_specifier, names }
    }

    pub(super) fn find(&self, specifier: &str) -> Found {
        match self.by_specifier.get(specifier) {
            Some(index) => Found::Module(*index),
            None if BUILT_IN.contains(&specifier) => Found::BuiltIn,
            None => Found::Nothing,
        }
    }

    pub(super) fn specifier(&self, module: usize) -> &'m str {
        &self.all[module].specifier
    }

    pub(super) fn has(&self, module: usize, name: &str) -> bool {
        self.names[module].contains(name)
    }

    /// Returns the names of the properties that were seen in results of a function.
    pub(super) fn seen(&self, module: usize, name: &str) -> &'m [String] {
        let export = self.all[module].exports.iter().find(|export| export.name == name);
        export.map(|export| export.seen.as_slice()).unwrap_or_default()
    }

    /// Returns whether any result of any function was seen.
    pub(super) fn has_seen(&self) -> bool {
        self.all.iter().flat_map(|module| &module.exports).any(|export| !export.seen.is_empty())
    }

    pub(super) fn is_mcp(&self, module: usize) -> bool {
        self.specifier(module) == MCP
    }

    /// Returns the module that a wrong specifier probably means. This is a module with the same name after `host:` or `host:mcp-`. If there
    /// is none, it is the module with the most similar name.
    pub(super) fn nearest_module(&self, specifier: &str) -> Option<&'m str> {
        let bare = specifier.rsplit(':').next().unwrap_or(specifier);
        let exact = [format!("host:{bare}"), format!("{SERVER}{bare}"), format!("{SERVER}{}", bare.trim_start_matches("mcp-"))];
        let exact = exact.iter().find_map(|name| self.by_specifier.get(name.as_str()));
        let specifiers = || self.all.iter().map(|module| module.specifier.as_str());
        exact
            .map(|index| self.specifier(*index))
            .or_else(|| {
                let server = nearest(bare.trim_start_matches("mcp-"), specifiers().filter_map(|name| name.strip_prefix(SERVER)))?;
                specifiers().find(|name| name.strip_prefix(SERVER) == Some(server))
            })
            .or_else(|| nearest(specifier, specifiers()))
    }

    /// Returns the function that an unknown name probably means. The unknown name may also be the name that the server gives a tool.
    pub(super) fn nearest_function(&self, module: usize, name: &str) -> Option<&'m str> {
        let exports = &self.all[module].exports;
        let raw = exports.iter().find(|export| export.also.as_deref() == Some(name));
        raw.map(|export| export.name.as_str()).or_else(|| nearest(name, exports.iter().map(|export| export.name.as_str()))).or_else(|| {
            let also = nearest(name, exports.iter().filter_map(|export| export.also.as_deref()))?;
            exports.iter().find(|export| export.also.as_deref() == Some(also)).map(|export| export.name.as_str())
        })
    }

    /// Returns the module of a server. The error contains the server that was probably meant.
    pub(super) fn server(&self, name: &str) -> Result<usize, Option<&'m str>> {
        let servers = || self.all.iter().filter_map(|module| module.specifier.strip_prefix(SERVER));
        self.by_specifier.get(format!("{SERVER}{name}").as_str()).copied().ok_or_else(|| nearest(name, servers()))
    }

    /// Checks whether a server has a tool with this name, as the server names it. The error contains the tool that was probably meant.
    pub(super) fn tool(&self, module: usize, name: &str) -> Result<(), Option<&'m str>> {
        let exports = &self.all[module].exports;
        let raw = || exports.iter().map(|export| export.also.as_deref().unwrap_or(&export.name));
        if raw().any(|known| known == name) {
            return Ok(());
        }
        let identifier = exports.iter().find(|export| export.name == name);
        let identifier = identifier.map(|export| export.also.as_deref().unwrap_or(&export.name));
        Err(identifier.or_else(|| nearest(name, raw())))
    }

    /// Returns a list of the modules for a message.
    pub(super) fn listed(&self) -> String {
        if self.all.is_empty() {
            return "this run has no modules".to_owned();
        }
        let names: Vec<_> = self.all.iter().take(MAX_LISTED).map(|module| shown(&module.specifier)).collect();
        let more = self.all.len().saturating_sub(MAX_LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("the modules here are: {}{more}", names.join(", "))
    }
}
