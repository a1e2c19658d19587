//! Types in a form in which both sides can be compared: types that serde writes, and types that are declared for TypeScript.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// The fields of an object, by name.
pub type Shape = BTreeMap<String, Field>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    pub is_optional: bool,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A keyword of TypeScript, a literal, or a type whose contents are not compared.
    Word(String),
    List(Box<Kind>),
    /// An object with any keys.
    Record(Box<Kind>),
    Object(Shape),
    OneOf(BTreeSet<Kind>),
}

impl Kind {
    pub fn word(word: &str) -> Self {
        Self::Word(word.to_owned())
    }

    pub fn literal(text: &str) -> Self {
        Self::Word(format!("'{text}'"))
    }

    /// Returns a union of kinds. If there is only one, returns that kind.
    pub fn one_of(kinds: impl IntoIterator<Item = Self>) -> Self {
        let mut all = BTreeSet::new();
        for kind in kinds {
            match kind {
                Self::OneOf(kinds) => all.extend(kinds),
                other => {
                    all.insert(other);
                }
            }
        }
        if all.len() == 1 { all.pop_first().unwrap() } else { Self::OneOf(all) }
    }

    /// Returns the forms of an object.
    pub fn shapes(self) -> Vec<Shape> {
        match self {
            Self::Object(shape) => vec![shape],
            Self::OneOf(kinds) => kinds.into_iter().flat_map(Self::shapes).collect(),
            other => panic!("{other} is not an object"),
        }
    }
}

impl Display for Kind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => formatter.write_str(word),
            Self::List(kind) => write!(formatter, "({kind})[]"),
            Self::Record(kind) => write!(formatter, "Record<string, {kind}>"),
            Self::Object(shape) => {
                let field =
                    |(name, field): (&String, &Field)| format!("{name}{}: {}", if field.is_optional { "?" } else { "" }, field.kind);
                write!(formatter, "{{ {} }}", shape.iter().map(field).collect::<Vec<_>>().join(", "))
            }
            Self::OneOf(kinds) => formatter.write_str(&kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")),
        }
    }
}

/// Returns each combination of a form on the left with a form on the right.
pub fn merged(left: &[Shape], right: &[Shape]) -> Vec<Shape> {
    let both = |one: &Shape| right.iter().map(|other| one.clone().into_iter().chain(other.clone()).collect()).collect::<Vec<_>>();
    left.iter().flat_map(both).collect()
}
