//! A config as a tree that keeps the position of each value. It is built from text or from a JSON value.

use std::collections::HashSet;

use jsonc_parser::ast::{self, Value as Ast};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::text::{Position, Problem, displayed};

/// The keys of the root object that this program reads. Other programs may use the other keys.
const OUR_KEYS: [&str; 18] = [
    "mcpServers",
    "servers",
    "mcp",
    "inputs",
    "base",
    "providers",
    "catalogue",
    "toolboxes",
    "agents",
    "defaultGrant",
    "profiles",
    "limits",
    "learnResults",
    "search",
    "boxes",
    "metadata",
    "mcp_servers",
    "context_servers",
];
/// Maximum depth at which values are read. No field of this program is nearly as deep. The parser refuses text that is more than 512 levels
/// deep.
pub(super) const MAX_DEPTH: usize = 64;
/// The number of bytes that each value counts in addition to its text, so that very many small values exceed a limit too.
const VALUE_BYTES: usize = 64;

// None of these types implements `Debug`, because they contain secrets in plain text.
pub(super) struct Node {
    pub(super) position: Option<Position>,
    pub(super) value: Value,
}

pub(super) enum Value {
    Null,
    Boolean(bool),
    /// The number as it is written in the config.
    Number(String),
    Text(String),
    List(Vec<Node>),
    /// The entries in the order of the file, including duplicates.
    Object(Vec<Entry>),
    /// A value that is not read: its key is not one of ours ([`is_ours`]; another program may use it), or it is nested deeper than
    /// [`MAX_DEPTH`].
    Foreign,
}

pub(super) struct Entry {
    pub(super) name: String,
    /// The position of the name.
    pub(super) position: Option<Position>,
    pub(super) node: Node,
}

pub(super) struct Tree {
    pub(super) root: Node,
    /// A problem for each key that an object contains twice.
    pub(super) duplicates: Vec<Problem>,
}

impl Node {
    pub(super) fn entries(&self) -> Option<&[Entry]> {
        if let Value::Object(entries) = &self.value { Some(entries) } else { None }
    }

    pub(super) fn items(&self) -> Option<&[Node]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        if let Value::Boolean(value) = self.value { Some(value) } else { None }
    }

    /// Returns the text of a string, a number or a boolean. Many people omit the quotes where a string is expected.
    pub(super) fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text.clone()),
            Value::Boolean(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// Returns the number of bytes of all texts, numbers and keys within the node, with [`VALUE_BYTES`] for each value.
    pub(super) fn text_bytes(&self) -> usize {
        VALUE_BYTES
            + match &self.value {
                Value::Null | Value::Boolean(_) | Value::Foreign => 0,
                Value::Number(text) | Value::Text(text) => text.len(),
                Value::List(items) => items.iter().map(Node::text_bytes).sum(),
                Value::Object(entries) => entries.iter().map(|entry| entry.name.len() + entry.node.text_bytes()).sum(),
            }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.entries()?.iter().find(|entry| entry.name == name).map(|entry| &entry.node)
    }
}

/// Returns parser options that permit comments and trailing commas, but no other extension of JSON.
fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

pub(super) fn from_text(text: &str, file: &str) -> Result<Tree> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options()).map_err(|error| Error::ConfigSyntax {
        file: file.into(),
        line: error.line_display(),
        column: error.column_display(),
        problem: error.kind().to_string().into(),
    })?;
    let mut builder =
        Builder { cursor: Cursor { text, offset: 0, line: 1, column: 1 }, path: String::new(), depth: 0, duplicates: Vec::new() };
    // An empty file configures nothing.
    let root = parsed.value.map_or(Node { position: None, value: Value::Null }, |value| builder.node(&value));
    Ok(Tree { root, duplicates: builder.duplicates })
}

pub(super) fn from_json(root: &Json) -> Tree {
    Tree { root: json_node(root, "", 0), duplicates: Vec::new() }
}

/// Builds a node. `parent` is the key whose value the node is.
fn json_node(json: &Json, parent: &str, depth: usize) -> Node {
    let entry = |(name, json): (&String, &Json)| {
        let node =
            if is_ours(name, parent, depth) { json_node(json, name, depth + 1) } else { Node { position: None, value: Value::Foreign } };
        Entry { name: name.clone(), position: None, node }
    };
    let value = match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.to_string()),
        Json::String(text) => Value::Text(text.clone()),
        _ if depth > MAX_DEPTH => Value::Foreign,
        Json::Array(items) => Value::List(items.iter().map(|item| json_node(item, "", depth + 1)).collect()),
        Json::Object(fields) => Value::Object(fields.iter().map(entry).collect()),
    };
    Node { position: None, value }
}

/// Returns whether this program reads the value of a key. Of `metadata`, it reads only `mcp`, which contains servers.
pub(super) fn is_ours(name: &str, parent: &str, depth: usize) -> bool {
    match depth {
        0 => OUR_KEYS.contains(&name),
        1 => parent != "metadata" || name == "mcp",
        _ => true,
    }
}

struct Builder<'t> {
    cursor: Cursor<'t>,
    path: String,
    depth: usize,
    duplicates: Vec<Problem>,
}

impl Builder<'_> {
    /// Builds a node. Visits the values in the order of the text, as the cursor requires.
    fn node(&mut self, ast: &Ast) -> Node {
        let position = Some(self.cursor.at(jsonc_parser::common::Ranged::range(ast).start));
        let value = match ast {
            Ast::NullKeyword(_) => Value::Null,
            Ast::BooleanLit(literal) => Value::Boolean(literal.value),
            Ast::NumberLit(literal) => Value::Number(literal.value.to_owned()),
            Ast::StringLit(literal) => Value::Text(literal.value.to_string()),
            _ if self.depth > MAX_DEPTH => Value::Foreign,
            Ast::Array(array) => Value::List(self.nested(|builder| {
                array.elements.iter().enumerate().map(|(index, item)| builder.within(&format!("[{index}]"), item)).collect()
            })),
            Ast::Object(object) => Value::Object(self.nested(|builder| builder.object(object))),
        };
        Node { position, value }
    }

    fn nested<T>(&mut self, build: impl FnOnce(&mut Self) -> T) -> T {
        self.depth += 1;
        let built = build(self);
        self.depth -= 1;
        built
    }

    fn object(&mut self, object: &ast::Object) -> Vec<Entry> {
        let mut seen = HashSet::new();
        let mut entries = Vec::with_capacity(object.properties.len());
        for property in &object.properties {
            let name = property.name.as_str();
            let position = Some(self.cursor.at(property.range.start));
            let dot = if self.path.is_empty() { "" } else { "." };
            let segment = format!("{dot}{}", displayed(name));
            if !seen.insert(name) {
                let field = format!("{}{segment}", self.path);
                self.duplicates.push(Problem::new(field, position, "this key is used twice in its object"));
            }
            let node = if is_ours(name, &self.path, self.depth - 1) {
                self.within(&segment, &property.value)
            } else {
                Node { position: None, value: Value::Foreign }
            };
            entries.push(Entry { name: name.to_owned(), position, node });
        }
        entries
    }

    fn within(&mut self, segment: &str, ast: &Ast) -> Node {
        let length = self.path.len();
        self.path.push_str(segment);
        let node = self.node(ast);
        self.path.truncate(length);
        node
    }
}

/// Converts offsets into lines and columns in one pass over the text.
struct Cursor<'t> {
    text: &'t str,
    offset: usize,
    line: usize,
    column: usize,
}

impl Cursor<'_> {
    /// Returns the position of an offset. The offset must not be smaller than in the previous call.
    fn at(&mut self, offset: usize) -> Position {
        let mut passed = self.text.get(self.offset..offset).unwrap_or_default().chars().peekable();
        while let Some(character) = passed.next() {
            // As in the parser, a carriage return without a line feed also ends a line.
            if character == '\n' || (character == '\r' && passed.peek() != Some(&'\n')) {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.offset = self.offset.max(offset);
        Position { line: self.line, column: self.column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, path: &[&str]) -> Position {
        let tree = from_text(text, "c").unwrap();
        let node = path.iter().fold(&tree.root, |node, name| node.get(name).unwrap());
        node.position.unwrap()
    }

    #[test]
    fn places_are_counted_from_one_in_characters_after_any_kind_of_line_end() {
        assert_eq!(place("{ \"mcp\": 1 }", &["mcp"]), Position { line: 1, column: 10 });
        assert_eq!(place("\u{feff}{ \"mcp\": 1 }", &["mcp"]), Position { line: 1, column: 10 });
        assert_eq!(place("{ // é\r\n  \"mcp\": { \"é€\": 1, /* ü */ \"b\": 2 } }", &["mcp", "b"]), Position { line: 2, column: 34 });
        assert_eq!(place("{\r\"mcp\":\r 1 }", &["mcp"]), Position { line: 3, column: 2 });
    }

    #[test]
    fn duplicate_keys_are_found_by_their_meaning_at_any_depth_of_ours_and_at_the_root() {
        let text = r#"{ "inputs": [{ "id": "x", "\u0069d": "y" }], "theme": { "a": 1, "a": 2 }, "theme": 3 }"#;
        let duplicates = from_text(text, "c").unwrap().duplicates;
        let fields: Vec<_> = duplicates.iter().map(|problem| (problem.field.as_str(), problem.column.unwrap())).collect();
        assert_eq!(fields, [("inputs[0].id", 27), ("theme", 75)]);
    }

    #[test]
    fn hostile_nesting_is_an_error_and_no_stack_overflow() {
        for open in ["[", "{\"mcp\":", "{\"a\":[", "[{\"a\":"] {
            let error = from_text(&open.repeat(100_000), "c").err().unwrap();
            assert_eq!(error.code(), "ERR_CONFIG_SYNTAX");
            assert!(error.in_full().contains("nesting"), "{error}");
        }
        let deepest = format!("{{\"mcp\":{}{}}}", "[".repeat(500), "]".repeat(500));
        assert!(from_text(&deepest, "c").is_ok());
    }

    #[test]
    fn a_deep_value_is_read_only_as_far_as_fields_can_be() {
        let mut json = Json::Null;
        for _ in 0..200 {
            json = Json::Array(vec![json]);
        }
        let tree = from_json(&serde_json::json!({ "mcp": json }));
        let mut node = tree.root.get("mcp").unwrap();
        while let Some(items) = node.items() {
            node = &items[0];
        }
        assert!(matches!(node.value, Value::Foreign));
    }
}
