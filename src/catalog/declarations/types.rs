//! A TypeScript type as a value, between the schema and the text. Every type here stands for at least the values that its
//! schema allows; whatever cannot be said exactly is said wider.

/// A type. Small trees: their depth and size are bounded where they are made.
#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) enum Type {
    Unknown,
    Never,
    Undefined,
    Null,
    Boolean,
    Number,
    String,
    /// Text that stands for bytes, where bytes may be passed as they are.
    Bytes,
    BooleanLiteral(bool),
    /// As TypeScript writes it.
    NumberLiteral(String),
    StringLiteral(String),
    Array(Box<Type>),
    Tuple(Tuple),
    Object(Object),
    Union(Vec<Type>),
    Intersection(Vec<Type>),
    /// A definition, by its place in the list of definitions.
    Named(usize),
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Tuple {
    pub items: Vec<Type>,
    /// The number of leading items that are required.
    pub required: usize,
    pub rest: Option<Box<Type>>,
}

#[derive(Debug, Clone, PartialEq, Hash, Default)]
pub(super) struct Object {
    pub properties: Vec<Property>,
    /// The type of properties that are not named. In TypeScript, the named ones must fit it as well.
    pub index: Option<Box<Type>>,
    /// The types of properties by the prefix of their names.
    pub prefixes: Vec<(String, Type)>,
    /// True if there may be others, of which nothing is known.
    pub open: bool,
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub(super) struct Property {
    pub key: String,
    pub optional: bool,
    pub value: Type,
    /// For the comment before it: sanitised, lines divided by `\n`.
    pub note: Option<String>,
}

/// A type with a name of its own in the module.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Definition {
    pub name: String,
    pub value: Type,
    pub note: Option<String>,
}

/// Members of every object, also of `{}`: TypeScript compares an optional property of such a name with them.
const INHERITED: [&str; 7] =
    ["constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"];

impl Property {
    pub(super) fn new(key: &str, optional: bool, value: Type, note: Option<String>) -> Self {
        let value = if optional && INHERITED.contains(&key) { Type::Unknown } else { value };
        Self { key: key.to_owned(), optional, value, note }
    }
}

impl Object {
    /// Returns whether TypeScript asks a value for at least one of the names (a "weak" type), though the schema does not.
    pub(super) fn is_weak(&self) -> bool {
        self.open && self.index.is_none() && self.prefixes.is_empty() && self.properties.iter().all(|property| property.optional)
    }
}

impl Type {
    /// Any object.
    pub(super) fn record() -> Self {
        Self::Object(Object { index: Some(Box::new(Self::Unknown)), ..Object::default() })
    }

    /// Returns whether the type is one word or one literal.
    pub(super) fn is_leaf(&self) -> bool {
        !matches!(self, Self::Array(_) | Self::Tuple(_) | Self::Object(_) | Self::Union(_) | Self::Intersection(_) | Self::Named(_))
    }

    /// The types within, one level down.
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

    /// The same to change them.
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

    /// The definitions named anywhere within.
    pub(super) fn names(&self, found: &mut Vec<usize>) {
        match self {
            Self::Named(id) => found.push(*id),
            other => other.children().into_iter().for_each(|child| child.names(found)),
        }
    }

    /// Those that TypeScript must know to begin with: not behind a property or an element.
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

/// A value of any of these. Literals beside their own kind are left out.
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

/// A value of all of these at once. Objects that do not contradict each other become one.
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

/// One object instead of two, where it says the same.
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
