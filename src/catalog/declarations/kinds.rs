//! Sets of the six kinds of JSON values.

use serde_json::{Map, Value as Json};

use super::types::{Type, union};

/// A set of kinds of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const NUMBER: Self = Self(4);
    pub(super) const STRING: Self = Self(8);
    pub(super) const ARRAY: Self = Self(16);
    pub(super) const OBJECT: Self = Self(32);
    pub(super) const ALL: Self = Self(63);
    const NONE: Self = Self(0);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the kinds of values that the keyword `type` allows. An unknown name in `type` allows all kinds.
    pub(super) fn of(fields: &Map<String, Json>) -> Self {
        match fields.get("type") {
            Some(Json::String(name)) => Self::named(name),
            Some(Json::Array(names)) if !names.is_empty() => {
                names.iter().map(|name| name.as_str().map_or(Self::ALL, Self::named)).fold(Self::NONE, Self::or)
            }
            _ => Self::ALL,
        }
    }

    pub(super) fn of_value(value: &Json) -> Self {
        match value {
            Json::Null => Self::NULL,
            Json::Bool(_) => Self::BOOLEAN,
            Json::Number(_) => Self::NUMBER,
            Json::String(_) => Self::STRING,
            Json::Array(_) => Self::ARRAY,
            Json::Object(_) => Self::OBJECT,
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "number" | "integer" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::ALL,
        }
    }

    /// Returns a type that allows every value of these kinds.
    pub(super) fn any(self) -> Type {
        if self == Self::ALL {
            return Type::Unknown;
        }
        union(self.types(|kind| match kind {
            Self::ARRAY => Type::Array(Box::new(Type::Unknown)),
            _ => Type::record(),
        }))
    }

    /// Returns one type for each kind in the set. The types for arrays and objects come from `complex`.
    pub(super) fn types(self, mut complex: impl FnMut(Self) -> Type) -> Vec<Type> {
        let mut types = Vec::new();
        for kind in [Self::STRING, Self::NUMBER, Self::BOOLEAN, Self::OBJECT, Self::ARRAY, Self::NULL] {
            if self.has(kind) {
                types.push(match kind {
                    Self::STRING => Type::String,
                    Self::NUMBER => Type::Number,
                    Self::BOOLEAN => Type::Boolean,
                    Self::NULL => Type::Null,
                    other => complex(other),
                });
            }
        }
        types
    }
}
