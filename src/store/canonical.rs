//! The canonical form of a value, from which a digest is computed. A tag and a length precede every part, so that two different values
//! never have the same form. The order of the keys in an object does not matter.

use serde_json::{Map, Value as Json};

/// A canonical form. Parts are added one after the other.
///
/// ```
/// use hyperlight_mcp::store::Canonical;
/// let form = |parts: &[&str]| parts.iter().fold(Canonical::new("example"), |form, part| form.text(part)).into_bytes();
/// assert_ne!(form(&["a b"]), form(&["a", "b"]));
/// ```
#[derive(Debug, Clone)]
pub struct Canonical(Vec<u8>);

impl Canonical {
    /// Creates a form for one kind of value. Forms of different kinds are never equal.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self(Vec::new()).part(b'k', kind.as_bytes())
    }

    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.part(b's', text.as_bytes())
    }

    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.part(b'x', bytes)
    }

    #[must_use]
    pub fn flag(self, flag: bool) -> Self {
        self.part(b'b', &[u8::from(flag)])
    }

    /// Adds a text that may be missing. A missing text and an empty text give different forms.
    #[must_use]
    pub fn optional(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(text),
            None => self.part(b'n', b""),
        }
    }

    /// Adds a list. The number of items comes first, so that the end of the list is unambiguous.
    #[must_use]
    pub fn list<'a>(self, items: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let counted = self.part(b'l', &(items.len() as u64).to_be_bytes());
        items.fold(counted, Self::text)
    }

    #[must_use]
    pub fn json(mut self, json: &Json) -> Self {
        match json {
            Json::Null => self.part(b'n', b""),
            Json::Bool(value) => self.flag(*value),
            Json::Number(value) => self.part(b'd', value.to_string().as_bytes()),
            Json::String(value) => self.text(value),
            Json::Array(items) => {
                self = self.part(b'l', &(items.len() as u64).to_be_bytes());
                items.iter().fold(self, Self::json)
            }
            Json::Object(fields) => self.fields(fields),
        }
    }

    /// Adds an object.
    pub(crate) fn fields(self, fields: &Map<String, Json>) -> Self {
        let counted = self.part(b'o', &(fields.len() as u64).to_be_bytes());
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_by_key(|(key, _)| key.as_str());
        fields.into_iter().fold(counted, |form, (key, value)| form.text(key).json(value))
    }

    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn part(mut self, tag: u8, bytes: &[u8]) -> Self {
        self.0.push(tag);
        self.0.extend((bytes.len() as u64).to_be_bytes());
        self.0.extend(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn form(json: &Json) -> Vec<u8> {
        Canonical::new("test").json(json).into_bytes()
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            (-1e9..1e9).prop_map(Json::from),
            "[a-c\\[\\]{}:,\"]{0,4}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::vec(("[a-c]{0,2}", inner), 0..4).prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn the_order_of_keys_does_not_matter_and_any_value_does() {
        assert_eq!(form(&json!({ "a": 1, "b": 2 })), form(&json!({ "b": 2, "a": 1 })));
        assert_ne!(form(&json!({ "a": 1 })), form(&json!({ "a": "1" })));
        assert_ne!(form(&json!([["a"], []])), form(&json!([[], ["a"]])));
        assert_ne!(form(&json!(null)), form(&json!("")));
    }

    proptest! {
        #[test]
        fn two_values_have_one_form_only_if_they_are_equal(one in any_json(), other in any_json()) {
            prop_assert_eq!(form(&one) == form(&other), one == other);
        }

        #[test]
        fn two_lists_of_texts_have_one_form_only_if_they_are_equal(
            one in prop::collection::vec("[ab]{0,3}", 0..5),
            other in prop::collection::vec("[ab]{0,3}", 0..5),
        ) {
            let form = |list: &[String]| Canonical::new("test").list(list.iter().map(String::as_str)).into_bytes();
            prop_assert_eq!(form(&one) == form(&other), one == other);
        }
    }
}
