//! TypeScript types as values, which are the intermediate form between a schema and the printed text. A type allows at least the values
//! that its schema allows.

/// A TypeScript type. The code that makes a type limits its depth and size.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) enum Type {
    Unknown,
    Never,
    Undefined,
    Null,
    Boolean,
    Number,
    String,
    /// Text that contains encoded bytes. The caller may also pass the bytes themselves.
    Bytes,
    BooleanLiteral(bool),
    /// A number literal, as it is written in TypeScript code.
    NumberLiteral(String),
    StringLiteral(String),
    Array(Box<Type>),
    Tuple(Tuple),
    Object(Object),
    Union(Vec<Type>),
    Intersection(Vec<Type>),
    /// A reference to a definition, by its index in the list of definitions.
    Named(usize),
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Tuple {
    pub items: Vec<Type>,
    /// Number of leading items that are required.
    pub required: usize,
    pub rest: Option<Box<Type>>,
}

#[derive(Debug, Clone, PartialEq, Hash, Default)]
pub(super) struct Object {
    pub properties: Vec<Property>,
    /// Type of all properties without a declared name. In TypeScript, the named properties must fit this type too.
    pub index: Option<Box<Type>>,
    /// Prefixes of property names, each with the type of the properties whose names begin with it.
    pub prefixes: Vec<(String, Type)>,
    /// True if the object may have other properties of unknown type.
    pub open: bool,
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Property {
    pub key: String,
    pub optional: bool,
    pub value: Type,
    /// Comment before the property. It is sanitised, and its lines are separated by `\n`.
    pub note: Option<String>,
}

/// A type with its own name in the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Definition {
    pub name: String,
    pub value: Type,
    pub note: Option<String>,
}

/// Members that every object inherits, even `{}`. TypeScript compares an optional property with the inherited member of the same name.
const INHERITED: [&str; 7] =
    ["constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"];

impl Property {
    pub(super) fn new(key: &str, optional: bool, value: Type, note: Option<String>) -> Self {
        let value = if optional && INHERITED.contains(&key) { Type::Unknown } else { value };
        Self { key: key.to_owned(), optional, value, note }
    }
}

impl Object {
    /// Returns whether this is a "weak" type: TypeScript requires at least one of the named properties although the schema does not.
    pub(super) fn is_weak(&self) -> bool {
        self.open && self.index.is_none() && self.prefixes.is_empty() && self.properties.iter().all(|property| property.optional)
    }
}

impl Type {
    /// Returns a type that allows every object.
    pub(super) fn record() -> Self {
        Self::Object(Object { index: Some(Box::new(Self::Unknown)), ..Object::default() })
    }

    /// Returns whether the type is one word or one literal.
    pub(super) fn is_leaf(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Tuple(_) | Self::Object(_) | Self::Union(_) | Self::Intersection(_) | Self::Named(_))
    }

    /// Returns the types that this type directly contains.
    pub(super) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Array(item) => vec![item],
            Self::Tuple(tuple) => tuple.items.iter().chain(tuple.rest.as_deref()).collect(),
            Self::Object(object) => {
                let named = object.properties.iter().map(|property| &property.value);
                named.chain(object.index.as_deref()).chain(object.prefixes.iter().map(|(_, value)| value)).collect()
            }
            Self::Union(members) | Self::Intersection(members) => members.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the types that this type directly contains, as mutable references.
    pub(super) fn children_mut(&mut self) -> Vec<&mut Self> {
        match self {
            Self::Array(item) => vec![item],
            Self::Tuple(tuple) => tuple.items.iter_mut().chain(tuple.rest.as_deref_mut()).collect(),
            Self::Object(object) => {
                let named = object.properties.iter_mut().map(|property| &mut property.value);
                named.chain(object.index.as_deref_mut()).chain(object.prefixes.iter_mut().map(|(_, value)| value)).collect()
            }
            Self::Union(members) | Self::Intersection(members) => members.iter_mut().collect(),
            _ => Vec::new(),
        }
    }

    /// Adds the indexes of all definitions that are named anywhere in this type to `found`.
    pub(super) fn names(&self, found: &mut Vec<usize>) {
        match self {
            Self::Named(id) => found.push(*id),
            other => other.children().into_iter().for_each(|child| child.names(found)),
        }
    }

    /// Adds to `found` the indexes of the definitions that TypeScript must resolve before this type. These are the definitions that are
    /// named outside of properties, arrays and tuples.
    pub(super) fn direct_names(&self, found: &mut Vec<usize>) {
        match self {
            Self::Named(id) => found.push(*id),
            Self::Union(members) | Self::Intersection(members) => members.iter().for_each(|member| member.direct_names(found)),
            _ => {}
        }
    }

    fn is_literal_of(&self, wide: &Self) -> bool {
        matches!(
            (self, wide),
            (Self::StringLiteral(_), Self::String | Self::Bytes)
                | (Self::String, Self::Bytes)
                | (Self::NumberLiteral(_), Self::Number)
                | (Self::BooleanLiteral(_), Self::Boolean)
        )
    }
}

/// Returns the union of types. A literal is left out if its general type is also a member.
pub(super) fn union(members: impl IntoIterator<Item = Type>) -> Type {
    let mut all: Vec<Type> = Vec::new();
    for member in members {
        match member {
            Type::Union(inner) => inner.into_iter().for_each(|inner| push_new(&mut all, inner)),
            other => push_new(&mut all, other),
        }
    }
    if all.contains(&Type::Unknown) {
        return Type::Unknown;
    }
    if all.contains(&Type::BooleanLiteral(true)) && all.contains(&Type::BooleanLiteral(false)) {
        push_new(&mut all, Type::Boolean);
    }
    let wide: Vec<Type> =
        all.iter().filter(|one| matches!(one, Type::String | Type::Bytes | Type::Number | Type::Boolean)).cloned().collect();
    all.retain(|one| !matches!(one, Type::Never) && !wide.iter().any(|wide| one.is_literal_of(wide)));
    match all.len() {
        0 => Type::Never,
        1 => all.remove(0),
        _ => Type::Union(all),
    }
}

/// Returns the intersection of types. Objects that do not contradict each other are merged.
pub(super) fn intersection(members: impl IntoIterator<Item = Type>) -> Type {
    let mut all: Vec<Type> = Vec::new();
    for member in members {
        match member {
            Type::Unknown => {}
            Type::Intersection(inner) => inner.into_iter().for_each(|inner| add_to_intersection(&mut all, inner)),
            other => add_to_intersection(&mut all, other),
        }
    }
    if all.contains(&Type::Never) {
        return Type::Never;
    }
    match all.len() {
        0 => Type::Unknown,
        1 => all.remove(0),
        _ => Type::Intersection(all),
    }
}

fn push_new(all: &mut Vec<Type>, one: Type) {
    if !all.contains(&one) {
        all.push(one);
    }
}

fn add_to_intersection(all: &mut Vec<Type>, one: Type) {
    if let Type::Object(object) = &one {
        for known in all.iter_mut() {
            if let Type::Object(known) = known
                && let Some(merged) = merge(known, object)
            {
                *known = merged;
                return;
            }
        }
    }
    push_new(all, one);
}

/// Merges two objects. Returns `None` if a single object cannot express both.
fn merge(one: &Object, other: &Object) -> Option<Object> {
    let plain = |object: &Object| object.index.is_none() && object.prefixes.is_empty() && object.open;
    if !plain(one) || !plain(other) {
        return None;
    }
    let mut properties = one.properties.clone();
    for property in &other.properties {
        match properties.iter_mut().find(|known| known.key == property.key) {
            None => properties.push(property.clone()),
            Some(known) if known.value == property.value || property.value == Type::Unknown || known.value == Type::Unknown => {
                if known.value == Type::Unknown {
                    known.value = property.value.clone();
                }
                known.optional &= property.optional;
                known.note = known.note.take().or_else(|| property.note.clone());
            }
            Some(_) => return None,
        }
    }
    Some(Object { properties, open: true, ..Object::default() })
}
