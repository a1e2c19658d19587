//! The types of one module: each has a name of its own, and what two tools say alike is said once.

use std::collections::{BTreeSet, HashMap};

use super::finish::rewrite;
use super::types::{Definition, Type};

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
/// Of so many definitions of one name, a new one is compared with the last.
const MAX_COMPARED: usize = 8;

/// What a module declares besides its functions.
pub(super) struct Module {
    taken: BTreeSet<String>,
    pub definitions: Vec<Definition>,
    /// Definitions that may be shared, by the name that their schemas give them.
    shared: HashMap<String, Vec<usize>>,
}

impl Module {
    /// `functions`: their names are no types' names.
    pub(super) fn new<'a>(functions: impl IntoIterator<Item = &'a str>) -> Self {
        let taken = TAKEN.into_iter().chain(functions).map(ToOwned::to_owned).collect();
        Self { taken, definitions: Vec::new(), shared: HashMap::new() }
    }

    /// A name that nothing else in the module has.
    pub(super) fn name(&mut self, wanted: &str) -> String {
        let name = (1..).map(|number| if number == 1 { wanted.to_owned() } else { format!("{wanted}{number}") });
        let name = name.into_iter().find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }

    /// Takes in the definitions of one schema, whose first is the schema itself.
    pub(super) fn add(&mut self, definitions: &[Definition]) {
        let mut places: Vec<Option<usize>> = vec![None; definitions.len()];
        places[0] = Some(self.definitions.len());
        self.definitions.push(Definition { name: definitions[0].name.clone(), value: Type::Unknown, note: definitions[0].note.clone() });
        let (mut order, mut next) = (vec![0], 0);
        let mut fresh = vec![0];
        while next < order.len() {
            let mut names = Vec::new();
            definitions[order[next]].value.names(&mut names);
            next += 1;
            for id in names {
                if places[id].is_some() {
                    continue;
                }
                if let Some(pairs) = self.alike(id, definitions, &places) {
                    for (id, place) in pairs {
                        places[id] = Some(place);
                    }
                    continue;
                }
                let wanted = pascal(&definitions[id].name, "Type");
                places[id] = Some(self.definitions.len());
                self.shared.entry(wanted.clone()).or_default().push(self.definitions.len());
                let name = self.name(&wanted);
                self.definitions.push(Definition { name, value: Type::Unknown, note: definitions[id].note.clone() });
                order.push(id);
                fresh.push(id);
            }
        }
        for id in fresh {
            let place = |id: usize| places[id].map_or(Type::Unknown, Type::Named);
            if let Some(at) = places[id] {
                self.definitions[at].value = rewrite(definitions[id].value.clone(), &place);
            }
        }
    }

    /// The module's definition that says the same, and those that both name.
    fn alike(&self, id: usize, definitions: &[Definition], places: &[Option<usize>]) -> Option<Vec<(usize, usize)>> {
        let candidates = self.shared.get(&pascal(&definitions[id].name, "Type"))?;
        candidates.iter().rev().take(MAX_COMPARED).find_map(|candidate| self.same(id, *candidate, definitions, places))
    }

    fn same(&self, id: usize, place: usize, definitions: &[Definition], places: &[Option<usize>]) -> Option<Vec<(usize, usize)>> {
        let mut pairs = vec![(id, place)];
        let mut assumed: HashMap<usize, usize> = pairs.iter().copied().collect();
        let mut next = 0;
        while let Some((id, place)) = pairs.get(next).copied() {
            next += 1;
            let (one, other) = (&definitions[id], &self.definitions[place]);
            let mut named = Vec::new();
            if one.note != other.note || !same_type(&one.value, &other.value, &mut named) {
                return None;
            }
            for (id, place) in named {
                match places[id].or_else(|| assumed.get(&id).copied()) {
                    Some(known) if known == place => {}
                    None if pascal(&definitions[id].name, "Type") == self.wanted(place) => {
                        assumed.insert(id, place);
                        pairs.push((id, place));
                    }
                    _ => return None,
                }
            }
        }
        Some(pairs)
    }

    /// The name that a definition would have alone.
    fn wanted(&self, place: usize) -> &str {
        let holds = |(_, places): &(&String, &Vec<usize>)| places.contains(&place);
        self.shared.iter().find(holds).map_or("", |(wanted, _)| wanted.as_str())
    }
}

/// Whether two types say the same, if the definitions that they name do.
fn same_type(one: &Type, other: &Type, named: &mut Vec<(usize, usize)>) -> bool {
    if let (Type::Named(one), Type::Named(other)) = (one, other) {
        named.push((*one, *other));
        return true;
    }
    let (mine, theirs) = (one.children(), other.children());
    mine.len() == theirs.len()
        && same_shape(one, other)
        && mine.into_iter().zip(theirs).all(|(mine, theirs)| same_type(mine, theirs, named))
}

/// The same, of what is not within.
fn same_shape(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Array(_), Type::Array(_)) | (Type::Union(_), Type::Union(_)) | (Type::Intersection(_), Type::Intersection(_)) => true,
        (Type::Tuple(one), Type::Tuple(other)) => {
            (one.required, one.items.len(), one.rest.is_some()) == (other.required, other.items.len(), other.rest.is_some())
        }
        (Type::Object(one), Type::Object(other)) => {
            let prefixes = |object: &super::types::Object| object.prefixes.iter().map(|(prefix, _)| prefix.clone()).collect::<Vec<_>>();
            (one.open, one.index.is_some(), one.properties.len()) == (other.open, other.index.is_some(), other.properties.len())
                && one
                    .properties
                    .iter()
                    .zip(&other.properties)
                    .all(|(one, other)| (&one.key, one.optional, &one.note) == (&other.key, other.optional, &other.note))
                && prefixes(one) == prefixes(other)
        }
        _ => one == other,
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
