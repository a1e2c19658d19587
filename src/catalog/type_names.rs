//! Gives each type of a module a unique name. The names for the types of a server's tools are chosen once for each manifest, so that they
//! do not depend on which tool is declared.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Tool;

/// Names of TypeScript types that a module uses.
const TAKEN: [&str; 21] = [
    "Array",
    "Boolean",
    "Date",
    "Error",
    "Function",
    "Map",
    "Number",
    "Object",
    "Omit",
    "Partial",
    "Promise",
    "ReadonlyArray",
    "Record",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "ToolContent",
    "ToolError",
    "ToolOutput",
    "Uint8Array",
];
const MAX_NAME_CHARS: usize = 64;

/// The names that are in use.
#[derive(Default)]
struct UsedNames {
    taken: HashSet<String>,
    /// The next number to try for each name.
    numbers: HashMap<String, usize>,
}

/// Chooses names within one module, in addition to the names of its tools' types.
pub(super) struct NameAllocator<'a> {
    before: &'a UsedNames,
    own: UsedNames,
}

impl<'a> NameAllocator<'a> {
    fn beside(before: &'a UsedNames) -> Self {
        Self { before, own: UsedNames::default() }
    }

    /// Returns a name that is unique in the module.
    pub(super) fn name(&mut self, wanted: &str) -> String {
        let UsedNames { taken, numbers } = &mut self.own;
        let number = numbers.entry(wanted.to_owned()).or_insert_with(|| self.before.numbers.get(wanted).copied().unwrap_or(1));
        loop {
            let name = if *number == 1 { wanted.to_owned() } else { format!("{wanted}{number}") };
            *number += 1;
            if !self.before.taken.contains(&name) && taken.insert(name.clone()) {
                break name;
            }
        }
    }
}

/// The names of each tool's input type and output type.
pub(super) struct TypeNames {
    given: UsedNames,
    /// Names of the input and output types by the tools' raw names.
    tools: HashMap<String, (String, String)>,
}

impl TypeNames {
    /// Names the input and output types of `tools`. `identifiers` are the functions' names: no type may get one of them.
    pub(super) fn new(tools: &[Tool], identifiers: &BTreeMap<String, String>) -> Self {
        let taken = TAKEN.into_iter().map(ToOwned::to_owned).chain(identifiers.values().cloned()).collect();
        let mut given = UsedNames { taken, numbers: HashMap::new() };
        let mut name_allocator = NameAllocator::beside(&given);
        let mut named = HashMap::with_capacity(tools.len());
        for tool in tools {
            // If two tools share a name, a call means the first.
            if !named.contains_key(&tool.name) {
                let base = pascal(&identifiers[&tool.name], "Tool");
                // The name of an output type is reserved even if the tool has none. Adding an output schema then changes no other name.
                named.insert(
                    tool.name.clone(),
                    (name_allocator.name(&format!("{base}Input")), name_allocator.name(&format!("{base}Output"))),
                );
            }
        }
        let UsedNames { taken, numbers } = name_allocator.own;
        given.taken.extend(taken);
        given.numbers.extend(numbers);
        Self { given, tools: named }
    }

    /// Returns the names of a tool's input type and output type.
    pub(super) fn of(&self, tool: &str) -> Option<&(String, String)> {
        self.tools.get(tool)
    }

    /// Returns a chooser of names for the other types of the module.
    pub(super) fn name_allocator(&self) -> NameAllocator<'_> {
        NameAllocator::beside(&self.given)
    }
}

/// Converts a name to the form of a type name: `get_forecast` becomes `GetForecast`.
pub(super) fn pascal(name: &str, fallback: &str) -> String {
    let words = name.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut pascal = String::new();
    for word in words {
        let (first, rest) = word.split_at(1);
        pascal.push_str(&first.to_ascii_uppercase());
        pascal.push_str(rest);
    }
    pascal.truncate(MAX_NAME_CHARS);
    if pascal.starts_with(|first: char| first.is_ascii_digit()) || pascal.is_empty() { format!("{fallback}{pascal}") } else { pascal }
}
