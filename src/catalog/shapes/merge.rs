//! Merges two shapes to one shape, which accepts all values that one of them accepts.

use super::{Field, Fields, MAX_NAMED, Shape};

/// Minimum number of objects for the decision that their keys vary because most properties are missing in most objects.
const MIN_OBJECTS: u32 = 3;
/// Minimum number of different properties for the same decision.
const MIN_VARYING: usize = 12;

impl Shape {
    /// Merges another shape into this one.
    pub(super) fn merge(&mut self, other: Self) {
        let Self { any, null, boolean, number, string, bytes, list, object } = other;
        self.any |= any;
        self.null |= null;
        self.boolean |= boolean;
        self.number |= number;
        self.string |= string;
        self.bytes |= bytes;
        match (&mut self.list, list) {
            (Some(items), Some(more)) => items.merge(*more),
            (empty @ None, more) => *empty = more,
            (Some(_), None) => {}
        }
        match (&mut self.object, object) {
            (Some(fields), Some(more)) => {
                let fields = fields.as_mut();
                let before = std::mem::replace(fields, Fields::Map(Self::default()));
                *fields = before.merged(*more);
            }
            (empty @ None, more) => *empty = more,
            (Some(_), None) => {}
        }
        if self.any {
            // A shape that accepts any value needs no parts.
            *self = Self::unknown();
        }
    }
}

impl Fields {
    fn merged(self, other: Self) -> Self {
        match (self, other) {
            (Self::Named { objects, mut fields, mut hidden }, Self::Named { objects: more, fields: added, hidden: more_hidden }) => {
                add(&mut fields, added);
                hidden.merge(more_hidden);
                let merged = Self::Named { objects: objects.saturating_add(more), fields, hidden };
                if merged.keys_vary() { Self::Map(merged.into_values()) } else { merged }
            }
            (one, other) => {
                let mut values = one.into_values();
                values.merge(other.into_values());
                Self::Map(values)
            }
        }
    }

    /// Returns one shape for the values of all properties.
    pub(super) fn into_values(self) -> Shape {
        match self {
            Self::Map(values) => values,
            Self::Named { fields, hidden: mut values, .. } => {
                for field in fields {
                    values.merge(field.shape);
                }
                values
            }
        }
    }

    /// Returns whether the keys of the objects are probably data: there are very many, or most are in few of the objects.
    fn keys_vary(&self) -> bool {
        let Self::Named { objects, fields, .. } = self else { return true };
        let present: u64 = fields.iter().map(|field| u64::from(field.objects)).sum();
        let possible = u64::from(*objects).saturating_mul(fields.len() as u64);
        fields.len() > MAX_NAMED || *objects >= MIN_OBJECTS && fields.len() >= MIN_VARYING && present.saturating_mul(3) < possible
    }
}

fn add(fields: &mut Vec<Field>, added: Vec<Field>) {
    for field in added {
        match fields.iter_mut().find(|known| known.name == field.name) {
            Some(known) => {
                known.objects = known.objects.saturating_add(field.objects);
                known.shape.merge(field.shape);
            }
            None => fields.push(field),
        }
    }
}
