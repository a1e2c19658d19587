//! Gives each type of a module a unique name. The names of the types for a server's tools are chosen once for each manifest. So a name is
//! always the same, whichever tool is declared.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Tool;

/// Names of TypeScript types that a module uses itself.
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

/// Names that are already used.
#[derive(Default)]
struct UsedNames {
    taken: HashSet<String>,
    /// For each wanted name, the next number to try.
    numbers: HashMap<String, usize>,
}

/// Chooses unique names for further types of a module. The names of the types for its tools are already chosen.
pub(super) struct NameAllocator<'a> {
    before: &'a UsedNames,
    own: UsedNames,
}

impl<'a> NameAllocator<'a> {
    fn beside(before: &'a UsedNames) -> Self {
        Self { before, own: UsedNames::default() }
    }

    /// Returns a name that is unique in the module: `wanted`, or `wanted` with a number.
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

/// Names of the input type and output type of each tool.
pub(super) struct TypeNames {
    given: UsedNames,
    /// Names of the input and output types, keyed by the tools' raw names.
    tools: HashMap<String, (String, String)>,
}

impl TypeNames {
    /// Chooses the names of the input and output types of `tools`. `identifiers` are the names of the functions. No type gets one of
    /// these names.
    pub(super) fn new(tools: &[Tool], identifiers: &BTreeMap<String, String>) -> Self {
        let taken = TAKEN.into_iter().map(ToOwned::to_owned).chain(identifiers.values().cloned()).collect();
        let mut given = UsedNames { taken, numbers: HashMap::new() };
        let mut name_allocator = NameAllocator::beside(&given);
        let mut named = HashMap::with_capacity(tools.len());
        for tool in tools {
            // If two tools have the same name, only the first is used, because a call uses the first.
            if !named.contains_key(&tool.name) {
                let base = pascal(&identifiers[&tool.name], "Tool");
                // A name for the output type is reserved even if the tool has none. So no other name changes if the tool gets an output
                // schema later.
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

    /// Returns an allocator for the names of the other types of the module.
    pub(super) fn name_allocator(&self) -> NameAllocator<'_> {
        NameAllocator::beside(&self.given)
    }
}

/// Converts a name to the usual form of a type name. For example, `get_forecast` becomes `GetForecast`.
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
