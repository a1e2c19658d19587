//! Names of types within a module, none given twice. Those of a server's tools are the same whichever tool is declared, so they are given
//! once for each manifest.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Tool;

/// Names that mean something else in a module.
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

/// Names that were given.
#[derive(Default)]
struct Given {
    taken: HashSet<String>,
    /// The first number that a name may still be free with.
    numbers: HashMap<String, usize>,
}

/// Gives names within one module, beside those that its tools have.
pub(super) struct NameGiver<'a> {
    before: &'a Given,
    own: Given,
}

impl<'a> NameGiver<'a> {
    fn beside(before: &'a Given) -> Self {
        Self { before, own: Given::default() }
    }

    /// A name that nothing else in the module has.
    pub(super) fn name(&mut self, wanted: &str) -> String {
        let Given { taken, numbers } = &mut self.own;
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

/// The names of each tool's input and output.
pub(super) struct TypeNames {
    given: Given,
    /// By the tools' raw names.
    tools: HashMap<String, (String, String)>,
}

impl TypeNames {
    /// Names the input and output types of `tools`. `identifiers` are the functions' names: no type may get one of them.
    pub(super) fn new(tools: &[Tool], identifiers: &BTreeMap<String, String>) -> Self {
        let taken = TAKEN.into_iter().map(ToOwned::to_owned).chain(identifiers.values().cloned()).collect();
        let mut given = Given { taken, numbers: HashMap::new() };
        let mut giver = NameGiver::beside(&given);
        let mut named = HashMap::with_capacity(tools.len());
        for tool in tools {
            // Of two that share a name, calls mean the first.
            if !named.contains_key(&tool.name) {
                let base = pascal(&identifiers[&tool.name], "Tool");
                // A name is taken for the output also where a tool has none, so that it never moves.
                named.insert(tool.name.clone(), (giver.name(&format!("{base}Input")), giver.name(&format!("{base}Output"))));
            }
        }
        let Given { taken, numbers } = giver.own;
        given.taken.extend(taken);
        given.numbers.extend(numbers);
        Self { given, tools: named }
    }

    /// The names of a tool's input and output, by its raw name.
    pub(super) fn of(&self, tool: &str) -> Option<&(String, String)> {
        self.tools.get(tool)
    }

    /// Gives names to what else the module declares.
    pub(super) fn giver(&self) -> NameGiver<'_> {
        NameGiver::beside(&self.given)
    }
}

/// `get_forecast` as a type is called: `GetForecast`.
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
