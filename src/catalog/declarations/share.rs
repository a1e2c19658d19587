//! Finds parts that the types of a module contain several times, and gives each of them one definition. Such parts are equal objects, and
//! properties with an equal name, type and comment.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use super::module::Module;
use super::print::Printer;
use super::types::{Definition, Object, Property, Type};
use crate::catalog::estimate_tokens;
use crate::catalog::type_names::pascal;

/// Maximum number of types in a module. If a module has more, nothing is shared, because reading all of them would take too long.
const MAX_TYPES: usize = 100_000;
/// Number of tokens of a definition in addition to its type and comment.
const DEFINITION_TOKENS: usize = 6;
/// Number of tokens of a definition's name in each place where the name is used.
const NAME_TOKENS: usize = 2;
/// Minimum number of tokens that a definition must save. If it saves less, the type stays in place, so that a reader need not look
/// elsewhere.
const LEAST_SAVED: usize = 10;
/// Tokens of `/**` and `*/` around a comment.
const COMMENT_TOKENS: usize = 4;

/// A part of a declaration that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Property,
}

/// Gives a definition to each type that the module would otherwise write several times, if that saves tokens.
pub(super) fn share(module: &mut Module<'_>) {
    module.definitions.iter_mut().for_each(|definition| drop_open(&mut definition.value));
    for kind in [Kind::Object, Kind::Property] {
        let mut reader = Reader { kind, seen: HashMap::new(), order: Vec::new(), types: 0 };
        for (id, definition) in module.definitions.iter().enumerate() {
            let whole = definition.note.is_none().then_some(id);
            reader.read(&definition.value, &definition.name, whole);
        }
        if reader.types >= MAX_TYPES {
            return;
        }
        let repeated = reader.repeated(&module.definitions);
        let places: HashMap<u64, usize> =
            repeated.into_iter().map(|(key, shared)| (key, shared.whole.unwrap_or_else(|| shared.add_to(module)))).collect();
        if places.is_empty() {
            continue;
        }
        for id in 0..module.definitions.len() {
            let value = std::mem::replace(&mut module.definitions[id].value, Type::Unknown);
            module.definitions[id].value = replaced(value, kind, &places, Some(id));
        }
    }
}

/// Sets `open` to false for objects whose printed type does not show it. Otherwise, two objects with the same printed type could differ.
fn drop_open(value: &mut Type) {
    if let Type::Object(object) = value {
        object.open = object.is_weak();
    }
    value.children_mut().into_iter().for_each(drop_open);
}

/// A type that is written several times.
struct Shared {
    wanted: String,
    value: Type,
    note: Option<String>,
    /// The definition whose whole value is this type. `None` if there is no such definition.
    whole: Option<usize>,
}

impl Shared {
    fn add_to(self, module: &mut Module<'_>) -> usize {
        module.add_shared(&pascal(&self.wanted, "Type"), self.value, self.note)
    }
}

struct Seen<'a> {
    times: usize,
    wanted: String,
    value: &'a Type,
    note: Option<&'a str>,
    whole: Option<usize>,
}

struct Reader<'a> {
    kind: Kind,
    seen: HashMap<u64, Seen<'a>>,
    /// The keys of `seen`, in the order of the types.
    order: Vec<u64>,
    types: usize,
}

impl<'a> Reader<'a> {
    /// Counts the types within a type. `name` is the name of the property or definition that has the type. `whole` is the definition whose
    /// whole value is the type, if there is one.
    fn read(&mut self, value: &'a Type, name: &str, whole: Option<usize>) {
        self.types += 1;
        if self.types >= MAX_TYPES || self.kind == Kind::Object && self.is_known(value, name, whole) {
            return;
        }
        match value {
            Type::Object(object) => {
                for property in &object.properties {
                    if !(self.kind == Kind::Property && self.is_known_property(property)) {
                        self.read(&property.value, &property.key, None);
                    }
                }
                let others = object.index.as_deref().into_iter().chain(object.prefixes.iter().map(|(_, value)| value));
                others.for_each(|value| self.read(value, &format!("{name}Value"), None));
            }
            Type::Array(item) => self.read(item, &format!("{name}Item"), None),
            other => other.children().into_iter().for_each(|child| self.read(child, name, None)),
        }
    }

    /// Counts an object. Returns whether an equal object was counted before. In this case, the types within the object are not counted
    /// again.
    fn is_known(&mut self, value: &'a Type, name: &str, whole: Option<usize>) -> bool {
        let Type::Object(object) = value else { return false };
        !object.properties.is_empty()
            && self.count(digest_of(value), || Seen { times: 1, wanted: name.to_owned(), value, note: None, whole })
    }

    fn is_known_property(&mut self, property: &'a Property) -> bool {
        let seen = || Seen { times: 1, wanted: property.key.clone(), value: &property.value, note: property.note.as_deref(), whole: None };
        property.note.is_some() && self.count(digest_of_property(property), seen)
    }

    fn count(&mut self, key: u64, first: impl FnOnce() -> Seen<'a>) -> bool {
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.times += 1;
            return true;
        }
        self.seen.insert(key, first());
        self.order.push(key);
        false
    }

    /// Returns the types for which a shared definition costs fewer tokens.
    fn repeated(self, definitions: &[Definition]) -> Vec<(u64, Shared)> {
        let printer = Printer::new(definitions, std::iter::empty());
        let saves = |seen: &&Seen<'a>| {
            let note = seen.note.map_or(0, |note| estimate_tokens(note) + COMMENT_TOKENS);
            let once = estimate_tokens(&printer.text(seen.value, "")) + note;
            seen.times > 1 && once + DEFINITION_TOKENS + NAME_TOKENS * (seen.times + 1) + LEAST_SAVED <= once * seen.times
        };
        let shared = |seen: &Seen<'a>| Shared {
            wanted: seen.wanted.clone(),
            value: seen.value.clone(),
            note: seen.note.map(ToOwned::to_owned),
            whole: seen.whole,
        };
        self.order.iter().filter_map(|key| Some((*key, shared(self.seen.get(key).filter(saves)?)))).collect()
    }
}

/// Replaces each type that has a definition by the name of the definition. `own` is the definition whose whole value is `value`; that
/// definition keeps its value.
fn replaced(value: Type, kind: Kind, places: &HashMap<u64, usize>, own: Option<usize>) -> Type {
    if kind == Kind::Object
        && matches!(value, Type::Object(_))
        && let Some(place) = places.get(&digest_of(&value))
        && own != Some(*place)
    {
        return Type::Named(*place);
    }
    match value {
        Type::Object(mut object) => {
            object.properties = object.properties.into_iter().map(|property| replaced_property(property, kind, places)).collect();
            Type::Object(Object {
                index: object.index.map(|index| Box::new(replaced(*index, kind, places, None))),
                prefixes: object.prefixes.into_iter().map(|(prefix, value)| (prefix, replaced(value, kind, places, None))).collect(),
                ..object
            })
        }
        mut other => {
            for child in other.children_mut() {
                *child = replaced(std::mem::replace(child, Type::Unknown), kind, places, None);
            }
            other
        }
    }
}

fn replaced_property(property: Property, kind: Kind, places: &HashMap<u64, usize>) -> Property {
    if kind == Kind::Property
        && property.note.is_some()
        && let Some(place) = places.get(&digest_of_property(&property))
    {
        return Property { value: Type::Named(*place), note: None, ..property };
    }
    Property { value: replaced(property.value, kind, places, None), ..property }
}

fn digest_of(value: &Type) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns the digest of a property's name, type and comment. The digest does not depend on whether the property is optional.
fn digest_of_property(property: &Property) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&property.key, &property.value, &property.note).hash(&mut hasher);
    hasher.finish()
}
