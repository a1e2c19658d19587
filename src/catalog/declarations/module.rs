//! The type definitions of one module. Each definition has a unique name. If two tools define the same type, the module declares it only
//! once.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::finish::rewrite;
use super::types::{Definition, Type};
use crate::catalog::type_names::{NameAllocator, pascal};

/// Maximum number of definitions with the same name with which a new definition is compared. The newest ones are compared.
const MAX_COMPARED: usize = 8;
/// Maximum number of type parts that are compared without finding an equal definition. After that, the module shares no more definitions,
/// and gives them numbered names instead.
const MAX_IN_VAIN: usize = 500_000;
/// Number of consecutive references whose targets a digest includes. If two definitions only differ beyond these references, their digests
/// are equal.
const ROUNDS: usize = 12;

/// The type definitions of a module.
pub(super) struct Module<'a> {
    names: NameAllocator<'a>,
    pub definitions: Vec<Definition>,
    /// For each definition, the name that it would have without a number (empty for a tool's own type), and its digest.
    marks: Vec<(String, u64)>,
    /// Definitions that several schemas may share. The key is the name that the schemas give them.
    shared: HashMap<String, Vec<usize>>,
    /// Number of type parts that may still be compared without finding an equal definition.
    left: usize,
}

/// The definitions of one schema. Most different definitions have different digests, so they need not be compared.
struct Incoming<'a> {
    definitions: &'a [Definition],
    wanted: Vec<String>,
    /// Digest of each definition. Equal definitions have equal digests.
    digests: Vec<u64>,
    /// For each definition, the indexes of the definitions that it names, in order.
    names: Vec<Vec<usize>>,
}

impl<'a> Incoming<'a> {
    fn new(definitions: &'a [Definition]) -> Self {
        let wanted = |(id, definition): (usize, &Definition)| if id == 0 { String::new() } else { pascal(&definition.name, "Type") };
        let wanted: Vec<String> = definitions.iter().enumerate().map(wanted).collect();
        let names = |definition: &Definition| {
            let mut names = Vec::new();
            definition.value.names(&mut names);
            names
        };
        let names: Vec<Vec<usize>> = definitions.iter().map(names).collect();
        let own = |(definition, names): (&Definition, &Vec<usize>)| {
            let shape = rewrite(definition.value.clone(), &|_| Type::Named(0));
            digest(&(&definition.note, shape, names.iter().map(|id| &wanted[*id]).collect::<Vec<_>>()))
        };
        let mut digests: Vec<u64> = definitions.iter().zip(&names).map(own).collect();
        for _ in 0..ROUNDS {
            let further =
                |(id, names): (usize, &Vec<usize>)| digest(&(digests[id], names.iter().map(|id| digests[*id]).collect::<Vec<_>>()));
            digests = names.iter().enumerate().map(further).collect();
        }
        Self { definitions, wanted, digests, names }
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<'a> Module<'a> {
    pub(super) fn new(names: NameAllocator<'a>) -> Self {
        Self { names, definitions: Vec::new(), marks: Vec::new(), shared: HashMap::new(), left: MAX_IN_VAIN }
    }

    /// Returns a name that is unique in the module: `wanted`, or `wanted` with a number.
    pub(super) fn name(&mut self, wanted: &str) -> String {
        self.names.name(wanted)
    }

    fn declare(&mut self, name: String, mark: (String, u64), note: Option<String>) -> usize {
        self.definitions.push(Definition { name, value: Type::Unknown, note });
        self.marks.push(mark);
        self.definitions.len() - 1
    }

    /// Adds the definitions of one schema. The first definition is the schema itself. Returns its index in the module.
    pub(super) fn add(&mut self, definitions: &[Definition]) -> usize {
        let incoming = Incoming::new(definitions);
        let mut places: Vec<Option<usize>> = vec![None; definitions.len()];
        let root = self.declare(definitions[0].name.clone(), (String::new(), incoming.digests[0]), definitions[0].note.clone());
        places[0] = Some(root);
        // Definitions that the module does not have yet, in the order in which they are named.
        let (mut fresh, mut next) = (vec![0], 0);
        while next < fresh.len() {
            let named = &incoming.names[fresh[next]];
            next += 1;
            for &id in named {
                if places[id].is_some() {
                    continue;
                }
                if let Some(pairs) = self.alike(id, &incoming, &places) {
                    for (id, place) in pairs {
                        places[id] = Some(place);
                    }
                    continue;
                }
                let wanted = &incoming.wanted[id];
                let name = self.name(wanted);
                let place = self.declare(name, (wanted.clone(), incoming.digests[id]), definitions[id].note.clone());
                self.shared.entry(wanted.clone()).or_default().push(place);
                places[id] = Some(place);
                fresh.push(id);
            }
        }
        for id in fresh {
            let place = |id: usize| places[id].map_or(Type::Unknown, Type::Named);
            if let Some(at) = places[id] {
                self.definitions[at].value = rewrite(definitions[id].value.clone(), &place);
            }
        }
        root
    }

    /// Adds a definition that several places of the module have in common. Returns its index.
    pub(super) fn add_shared(&mut self, wanted: &str, value: Type, note: Option<String>) -> usize {
        let name = self.name(wanted);
        let at = self.declare(name, (String::new(), 0), note);
        self.definitions[at].value = value;
        at
    }

    /// Finds a definition of the module that equals the incoming definition `id`. Returns pairs of equal definitions: these two, and the
    /// definitions that both of them name. Returns `None` if the module has no equal definition.
    fn alike(&mut self, id: usize, incoming: &Incoming<'_>, places: &[Option<usize>]) -> Option<Vec<(usize, usize)>> {
        let candidates = self.shared.get(&incoming.wanted[id])?.iter().rev().take(MAX_COMPARED);
        for &candidate in candidates.filter(|candidate| self.marks[**candidate].1 == incoming.digests[id]) {
            if self.left == 0 {
                return None;
            }
            let mut compared = 0;
            if let Some(pairs) = self.same(id, candidate, incoming, places, &mut compared) {
                return Some(pairs);
            }
            self.left = self.left.saturating_sub(compared);
        }
        None
    }

    /// Returns the pairs of equal definitions if `id` and `place` are equal. Counts the compared parts in `compared`.
    fn same(
        &self,
        id: usize,
        place: usize,
        incoming: &Incoming<'_>,
        places: &[Option<usize>],
        compared: &mut usize,
    ) -> Option<Vec<(usize, usize)>> {
        let mut pairs = vec![(id, place)];
        let mut assumed: HashMap<usize, usize> = pairs.iter().copied().collect();
        let mut next = 0;
        while let Some((id, place)) = pairs.get(next).copied() {
            next += 1;
            let (one, other) = (&incoming.definitions[id], &self.definitions[place]);
            let mut named = Vec::new();
            *compared += 1;
            if one.note != other.note || !same_type(&one.value, &other.value, &mut named, compared) {
                return None;
            }
            for (id, place) in named {
                let (wanted, digest) = &self.marks[place];
                match places[id].or_else(|| assumed.get(&id).copied()) {
                    Some(known) if known == place => {}
                    None if incoming.wanted[id] == *wanted && incoming.digests[id] == *digest => {
                        assumed.insert(id, place);
                        pairs.push((id, place));
                    }
                    _ => return None,
                }
            }
        }
        Some(pairs)
    }
}

/// Returns whether two types are equal if the definitions that they name are equal. Adds the pairs of named definitions to `named`.
fn same_type(one: &Type, other: &Type, named: &mut Vec<(usize, usize)>, compared: &mut usize) -> bool {
    *compared += 1;
    if let (Type::Named(one), Type::Named(other)) = (one, other) {
        named.push((*one, *other));
        return true;
    }
    let (mine, theirs) = (one.children(), other.children());
    mine.len() == theirs.len()
        && same_shape(one, other)
        && mine.into_iter().zip(theirs).all(|(mine, theirs)| same_type(mine, theirs, named, compared))
}

/// Returns whether two types are equal apart from the types that they contain.
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
