//! Learns the shape of a tool's results from results that were seen, for tools whose server declares none.
//!
//! A shape says which kinds of values occurred at each place. It contains no value and no string literal, only the names of properties that
//! look like identifiers (`keys`). The size of a shape and the work for one result are limited, even for a malicious server (`observe`). A
//! shape is not a promise: the declarations say so, and accept properties that were not seen.

mod keys;
mod learnt;
mod merge;
mod observe;
mod print;
mod seen;

#[cfg(test)]
mod tests;

pub use keys::is_shown_key;
pub use learnt::Learnt;
pub use observe::Sample;
pub use seen::{SeenResults, SeenTool};

use std::collections::BTreeSet;

/// Maximum number of properties in one object that have names. An object with more properties is treated as a map.
const MAX_NAMED: usize = 48;
/// Maximum number of parts in a tool's shape. A larger shape loses its innermost parts.
const MAX_PARTS: usize = 150;
/// Maximum nesting of a shape.
const MAX_DEPTH: usize = 8;

/// The kinds of values that were seen at one place. A shape has at most one list and one object, so its union is short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of value, and any of them can occur together")]
pub struct Shape {
    /// True if the shape accepts any value, because the values are too different or too large to be described.
    any: bool,
    null: bool,
    boolean: bool,
    number: bool,
    string: bool,
    bytes: bool,
    /// The shape of the items of all lists.
    list: Option<Box<Shape>>,
    object: Option<Box<Fields>>,
}

/// The properties of the objects that were seen at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fields {
    /// Objects whose properties have names.
    Named {
        /// The number of objects.
        objects: u32,
        fields: Vec<Field>,
        /// The common shape of the values whose keys are not listed. It is used if the object turns out to be a map.
        hidden: Shape,
    },
    /// Objects whose keys vary, with the shape of all values.
    Map(Shape),
}

/// A property of the objects that were seen at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: Box<str>,
    /// The number of objects that had the property.
    objects: u32,
    shape: Shape,
}

impl Shape {
    /// Returns the shape of values about which nothing is known.
    fn unknown() -> Self {
        Self { any: true, ..Self::default() }
    }

    fn text() -> Self {
        Self { string: true, ..Self::default() }
    }

    fn list_of(items: Self) -> Self {
        Self { list: Some(Box::new(items)), ..Self::default() }
    }

    fn of_fields(fields: Fields) -> Self {
        Self { object: Some(Box::new(fields)), ..Self::default() }
    }

    /// Returns the shape of one object with these properties.
    fn record(fields: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        let field = |(name, shape): (&str, Self)| Field { name: name.into(), objects: 1, shape };
        Self::of_fields(Fields::Named { objects: 1, fields: fields.into_iter().map(field).collect(), hidden: Self::default() })
    }

    /// Returns whether no value was seen.
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the shapes that this shape directly contains.
    fn children(&self) -> impl Iterator<Item = &Self> {
        let (named, unnamed) = match self.object.as_deref() {
            Some(Fields::Named { fields, hidden, .. }) => (fields.as_slice(), Some(hidden).filter(|hidden| !hidden.is_nothing())),
            Some(Fields::Map(values)) => (&[][..], Some(values)),
            None => (&[][..], None),
        };
        self.list.as_deref().into_iter().chain(unnamed).chain(named.iter().map(|field| &field.shape))
    }

    /// Returns the number of parts in the shape.
    fn parts(&self) -> usize {
        1 + self.children().map(Self::parts).sum::<usize>()
    }

    /// Adds the names of all properties, at any depth.
    fn names(&self, names: &mut BTreeSet<String>) {
        if let Some(Fields::Named { fields, .. }) = self.object.as_deref() {
            names.extend(fields.iter().map(|field| field.name.to_string()));
        }
        self.children().for_each(|child| child.names(names));
    }

    /// Removes the properties whose names `keeps` refuses.
    pub fn retain_names(&mut self, keeps: &impl Fn(&str) -> bool) {
        if let Some(items) = &mut self.list {
            items.retain_names(keeps);
        }
        match self.object.as_deref_mut() {
            Some(Fields::Named { fields, hidden, .. }) => {
                let (kept, refused) = std::mem::take(fields).into_iter().partition(|field| keeps(&field.name));
                *fields = kept;
                for field in Vec::into_iter(refused) {
                    hidden.merge(field.shape);
                }
                hidden.retain_names(keeps);
                for field in fields {
                    field.shape.retain_names(keeps);
                }
            }
            Some(Fields::Map(values)) => values.retain_names(keeps),
            None => {}
        }
    }

    /// Replaces the innermost parts by `any` until the shape has at most [`MAX_PARTS`] parts.
    fn bounded(mut self) -> Self {
        let mut depth = MAX_DEPTH;
        while self.parts() > MAX_PARTS && depth > 0 {
            self.cut_below(depth);
            depth -= 1;
        }
        self
    }

    fn cut_below(&mut self, depth: usize) {
        if depth == 0 {
            if self.list.is_some() || self.object.is_some() {
                *self = Self::unknown();
            }
            return;
        }
        if let Some(items) = &mut self.list {
            items.cut_below(depth - 1);
        }
        match self.object.as_deref_mut() {
            Some(Fields::Named { fields, hidden, .. }) => {
                hidden.cut_below(depth - 1);
                for field in fields {
                    field.shape.cut_below(depth - 1);
                }
            }
            Some(Fields::Map(values)) => values.cut_below(depth - 1),
            None => {}
        }
    }
}
