//! Walks over the JSON text of a value that crosses the VM boundary. A walk is at one value, and can go to the children of this value if it
//! is a list or an object. The rest of the text is not parsed.

/// Key that marks bytes and escaped objects. `src/sandbox/value.rs` defines the format.
const MARK: &str = "\"$bytes\"";

/// A value at a position in a JSON text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    json: &'a str,
    /// Byte offset at which the value begins.
    at: usize,
}

/// Kind of a value. Only the kinds that a walk needs are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    List,
    Record,
    Text,
    Bytes,
    /// A number, a boolean or null.
    Other,
}

impl<'a> Walk<'a> {
    pub(super) fn new(json: &'a str) -> Self {
        Self { json, at: after_space(json.as_bytes(), 0) }
    }

    /// Returns the JSON text of the value.
    pub(super) fn text(self) -> &'a str {
        // Both offsets are character boundaries if the JSON is valid. `get` avoids a panic if the JSON is not valid.
        self.json.get(self.at..after_value(self.json.as_bytes(), self.at)).unwrap_or_default()
    }

    pub(super) fn kind(self) -> Kind {
        match self.byte(self.at) {
            b'[' => Kind::List,
            b'"' => Kind::Text,
            b'{' => match self.marked().map(|at| self.byte(at)) {
                None | Some(b'[') => Kind::Record,
                Some(_) => Kind::Bytes,
            },
            _ => Kind::Other,
        }
    }

    /// Returns the children of the value: the items of a list, or the fields of an object with their keys.
    pub(super) fn children(self) -> Children<'a> {
        let (form, open) = match (self.byte(self.at), self.marked()) {
            (b'{', Some(list)) => (Form::Pairs, list),
            (b'{', None) => (Form::Fields, self.at),
            _ => (Form::Items, self.at),
        };
        Children { json: self.json, form, next: after_space(self.json.as_bytes(), open + 1) }
    }

    fn byte(self, at: usize) -> u8 {
        self.json.as_bytes().get(at).copied().unwrap_or_default()
    }

    /// Returns the byte offset of the value that belongs to the key [`MARK`]. Returns `None` if the value is not an object, or if `MARK` is
    /// not its first key.
    fn marked(self) -> Option<usize> {
        let bytes = self.json.as_bytes();
        let key = after_space(bytes, self.at + 1);
        let colon = after_space(bytes, key + MARK.len());
        (bytes.get(key..)?.starts_with(MARK.as_bytes()) && self.byte(colon) == b':').then(|| after_space(bytes, colon + 1))
    }
}

/// Form in which the children of a value are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Items,
    Fields,
    /// The fields of an escaped object. Each field is written as `[key, value]`.
    Pairs,
}

/// Iterator over the children of a value. A child is only skipped when the next child is requested.
pub(super) struct Children<'a> {
    json: &'a str,
    form: Form,
    /// Byte offset of the next child or of the closing bracket.
    next: usize,
}

impl<'a> Iterator for Children<'a> {
    type Item = (Option<String>, Walk<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.json.as_bytes();
        let mut start = self.next;
        if bytes.get(start) == Some(&b',') {
            start = after_space(bytes, start + 1);
        }
        if matches!(bytes.get(start), None | Some(b']' | b'}')) {
            return None;
        }
        let (key, value) = match self.form {
            Form::Items => (None, start),
            Form::Fields => self.key_and_value(start),
            Form::Pairs => self.key_and_value(after_space(bytes, start + 1)),
        };
        let end = if self.form == Form::Pairs { after_value(bytes, start) } else { after_value(bytes, value) };
        self.next = after_space(bytes, end.max(start + 1));
        Some((key, Walk { json: self.json, at: value }))
    }
}

impl Children<'_> {
    /// Returns a key and the byte offset of its value. Between them is a colon (`Form::Fields`) or a comma (`Form::Pairs`).
    fn key_and_value(&self, key: usize) -> (Option<String>, usize) {
        let bytes = self.json.as_bytes();
        let end = after_value(bytes, key);
        let name = self.json.get(key..end).and_then(|quoted| serde_json::from_str(quoted).ok());
        (name, after_space(bytes, after_space(bytes, end) + 1))
    }
}

fn after_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// Returns the byte offset after the value that begins at `at`. The function is not recursive, so deep nesting cannot overflow the stack.
fn after_value(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                at += 1;
                continue;
            }
            b']' | b'}' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b']' | b'}' | b',' | b' ' | b'\t' | b'\n' | b'\r' | b':' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn after_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            "[a-c\"\\\\\\[\\]{},: \u{1}é]{0,6}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::btree_map("[a-c\"\\\\\\[\\]{},: é]{0,4}", inner, 0..5)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Parses a value by using only walks.
    fn read(here: Walk<'_>) -> Json {
        match here.kind() {
            Kind::List => here.children().map(|(_, item)| read(item)).collect(),
            Kind::Record => Json::Object(here.children().map(|(key, value)| (key.unwrap(), read(value))).collect()),
            _ => serde_json::from_str(here.text()).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_a_parser_finds(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            prop_assert_eq!(read(Walk::new(&text)), value);
        }

        #[test]
        fn a_text_that_is_no_json_is_no_reason_to_panic(text in "[\\[\\]{}\",:\\\\ a1é$]{0,24}") {
            let here = Walk::new(&text);
            let _ = (here.kind(), here.text());
            for (_key, value) in here.children().take(100) {
                let _ = value.text();
            }
        }
    }

    #[test]
    fn what_is_deep_is_passed_over() {
        let deep = format!("[{}{},7]", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(Walk::new(&deep).children().nth(1).map(|(_, item)| item.text()), Some("7"));
        assert_eq!(read(Walk::new(r#"{"$bytes":[["a",1]]}"#)), json!({ "a": 1 }));
    }
}
