//! Decides which parts of a tool a host's model gets in the form in which the server wrote them. A model never gets a part of a tool that
//! the tool's approval request does not show.

use std::fmt;

use serde_json::{Map, Value as Json};

use super::manifest::Tool;
use super::resources_and_prompts::Prompt;
use super::wording::Wording;
use crate::text::{MAX_LEVELS, has_invisible, sanitise_json, sanitise_text};

/// Maximum length of the name of a tool, a prompt or an argument in an approval request, in characters.
pub const MAX_SHOWN_NAME_CHARS: usize = 200;
/// Maximum length of a URI in an approval request, in characters. It is greater than for a name, because a URI contains a path.
pub const MAX_SHOWN_URI_CHARS: usize = 1_000;
/// Maximum length of a text in `_meta`, in characters. A whole `_meta` from a server has at most as many bytes, so a host gets all of its
/// texts.
pub const MAX_SHOWN_META_CHARS: usize = 16 * 1024;
/// Minimum length in characters up to which an approval request shows names and literals in schemas completely. Descriptions may be cut
/// earlier. Declarations only contain names and literals up to this length.
const MIN_SHOWN_LITERAL_CHARS: usize = 1_024;

/// JSON Schema keywords whose values are objects that map names to schemas.
const NAMED_SCHEMAS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// JSON Schema keywords whose texts are literals, names, patterns and references. A changed text would make them wrong.
const EXACT: [&str; 19] = [
    "const",
    "enum",
    "default",
    "examples",
    "example",
    "type",
    "format",
    "pattern",
    "required",
    "dependentRequired",
    "contentEncoding",
    "contentMediaType",
    "$ref",
    "$id",
    "$schema",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
];
/// JSON Schema keywords whose texts are meant for readers.
const TEXTS: [&str; 3] = ["title", "description", "$comment"];

/// The reason why an approval request does not completely show a part that a call or a host needs unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unshown {
    /// The part is nested too deeply, so the approval request replaces it.
    TooDeep,
    /// The text is too long, so the approval request cuts it.
    TooLong,
    /// The text contains invisible characters.
    Invisible,
}

impl fmt::Display for Unshown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TooDeep => "it is nested deeper than an approval request shows",
            Self::TooLong => "one of its names or literals is longer than an approval request shows",
            Self::Invisible => "one of its names or literals has invisible characters",
        })
    }
}

/// Returns the length in characters to which an approval request cuts the texts of a schema. `max_chars` is the maximum length of a
/// description.
///
/// ```
/// assert_eq!(hyperlight_mcp::catalog::shown_literal_chars(2_000), 2_000);
/// assert_eq!(hyperlight_mcp::catalog::shown_literal_chars(100), 1_024);
/// ```
#[must_use]
pub fn shown_literal_chars(max_chars: usize) -> usize {
    max_chars.max(MIN_SHOWN_LITERAL_CHARS)
}

/// Returns the reason why a tool cannot be offered to a host's model under its own name. Returns `None` if it can be offered.
///
/// ```
/// use hyperlight_mcp::catalog::{Unshown, Wording, unshown_tool};
/// use hyperlight_mcp::text::{sanitise_line, sanitise_text};
/// use serde_json::json;
///
/// let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
/// let tool = |default: &str| serde_json::from_value(json!({ "name": "t", "inputSchema": { "default": default } })).unwrap();
/// assert_eq!(unshown_tool(&tool("a"), &wording), None);
/// assert_eq!(unshown_tool(&tool(&"a".repeat(3_000)), &wording), Some(Unshown::TooLong));
/// ```
#[must_use]
pub fn unshown_tool(tool: &Tool, wording: &Wording) -> Option<Unshown> {
    let schemas = [Some(&tool.input_schema), tool.output_schema.as_ref()];
    let of_schemas = schemas.into_iter().flatten().map(|schema| offered_schema(schema, wording).err());
    [check(&tool.name, MAX_SHOWN_NAME_CHARS).err()].into_iter().chain(of_schemas).flatten().next()
}

/// Returns the reason why a prompt cannot be offered to a model. Returns `None` if it can be offered. The prompt's name and the names of
/// its arguments are checked, because a request for the prompt contains them.
///
/// ```
/// use hyperlight_mcp::catalog::{Unshown, unshown_prompt};
/// use serde_json::json;
///
/// let prompt = |name: &str| serde_json::from_value(json!({ "name": "p", "arguments": [{ "name": name }] })).unwrap();
/// assert_eq!(unshown_prompt(&prompt("topic")), None);
/// assert_eq!(unshown_prompt(&prompt("to\u{200b}pic")), Some(Unshown::Invisible));
/// ```
#[must_use]
pub fn unshown_prompt(prompt: &Prompt) -> Option<Unshown> {
    let arguments = prompt.arguments.iter().map(|argument| &argument.name);
    [&prompt.name].into_iter().chain(arguments).find_map(|name| check(name, MAX_SHOWN_NAME_CHARS).err())
}

/// Returns the reason why a resource or a resource template cannot be offered to a model. Returns `None` if it can be offered. The URI is
/// checked, because a request to read the resource contains it.
///
/// ```
/// use hyperlight_mcp::catalog::{Unshown, unshown_uri};
///
/// assert_eq!(unshown_uri("note://1"), None);
/// assert_eq!(unshown_uri(&format!("note://{}", "1".repeat(1_000))), Some(Unshown::TooLong));
/// ```
#[must_use]
pub fn unshown_uri(uri: &str) -> Option<Unshown> {
    check(uri, MAX_SHOWN_URI_CHARS).err()
}

/// Returns a schema with the same texts that its approval request shows. Names and literals are not changed, because a call with a
/// changed one would fail.
pub(super) fn offered_schema(schema: &Json, wording: &Wording) -> Result<Json, Unshown> {
    Offer { wording, limit: shown_literal_chars(wording.max_chars) }.schema(schema, 0)
}

/// Returns `_meta` in the form in which its approval request shows it. If the request shows all texts completely, they are not changed.
pub(super) fn offered_meta(meta: &Map<String, Json>) -> Map<String, Json> {
    let whole = Json::Object(meta.clone());
    if exact(&whole, MAX_SHOWN_META_CHARS, 0).is_ok() {
        return meta.clone();
    }
    match sanitise_json(&whole, MAX_SHOWN_META_CHARS) {
        Json::Object(shown) => shown,
        _ => Map::new(),
    }
}

/// Converts a schema for a host's model. `limit` is the length to which the approval request cuts texts.
struct Offer<'a> {
    wording: &'a Wording,
    limit: usize,
}

impl Offer<'_> {
    fn schema(&self, schema: &Json, level: usize) -> Result<Json, Unshown> {
        check_level(schema, level)?;
        match schema {
            Json::Object(fields) => {
                let field = |(key, value): (&String, &Json)| {
                    check(key, self.limit)?;
                    Ok((key.clone(), self.keyword(key, value, level + 1)?))
                };
                fields.iter().map(field).collect::<Result<Map<_, _>, _>>().map(Json::Object)
            }
            Json::Array(schemas) => schemas.iter().map(|schema| self.schema(schema, level + 1)).collect(),
            Json::String(text) => Ok(sanitise_text(text, self.limit).into()),
            other => Ok(other.clone()),
        }
    }

    fn keyword(&self, key: &str, value: &Json, level: usize) -> Result<Json, Unshown> {
        match value {
            Json::String(text) if TEXTS.contains(&key) => Ok(self.wording.description(text).into()),
            Json::Object(named) if NAMED_SCHEMAS.contains(&key) => {
                check_level(value, level)?;
                let schema = |(name, schema): (&String, &Json)| {
                    check(name, self.limit)?;
                    Ok((name.clone(), self.schema(schema, level + 1)?))
                };
                named.iter().map(schema).collect::<Result<Map<_, _>, _>>().map(Json::Object)
            }
            value if EXACT.contains(&key) => exact(value, self.limit, level).map(|()| value.clone()),
            value => self.schema(value, level),
        }
    }
}

/// Checks that an approval request shows all texts and all levels of a value completely.
fn exact(value: &Json, limit: usize, level: usize) -> Result<(), Unshown> {
    check_level(value, level)?;
    match value {
        Json::String(text) => check(text, limit),
        Json::Array(items) => items.iter().try_for_each(|item| exact(item, limit, level + 1)),
        Json::Object(fields) => fields.iter().try_for_each(|(key, item)| check(key, limit).and_then(|()| exact(item, limit, level + 1))),
        _ => Ok(()),
    }
}

fn check_level(value: &Json, level: usize) -> Result<(), Unshown> {
    if level >= MAX_LEVELS && (value.is_array() || value.is_object()) { Err(Unshown::TooDeep) } else { Ok(()) }
}

/// Checks that an approval request shows a text completely.
fn check(text: &str, limit: usize) -> Result<(), Unshown> {
    if text.len() > limit && text.chars().nth(limit).is_some() {
        return Err(Unshown::TooLong);
    }
    if has_invisible(text) { Err(Unshown::Invisible) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::sanitise_line;
    use serde_json::json;

    const WORDING: Wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 };
    /// Text that a person would not approve if they could see it.
    const HIDDEN: &str = "HIDDEN";

    fn nested(levels: usize, leaf: Json) -> Json {
        (0..levels).fold(leaf, |inner, _| json!({ "properties": { "x": inner } }))
    }

    fn tags(text: &str) -> String {
        text.chars().filter_map(|letter| char::from_u32(0xe0000 + u32::from(letter))).collect()
    }

    #[test]
    fn a_model_reads_no_text_of_a_schema_that_its_request_does_not_show() {
        let long = format!("{}{HIDDEN}", "Lorem ipsum. ".repeat(200));
        for (schema, offered) in [
            (nested(31, json!({ "description": HIDDEN })), Ok(true)),
            (nested(33, json!({ "description": HIDDEN })), Err(Unshown::TooDeep)),
            (json!({ "x": nested(40, json!({ "title": HIDDEN })) }), Err(Unshown::TooDeep)),
            (json!({ "default": long }), Err(Unshown::TooLong)),
            (json!({ "properties": { "a": { "enum": ["a", long] } } }), Err(Unshown::TooLong)),
            (json!({ "properties": { &long: {} } }), Err(Unshown::TooLong)),
            (json!({ "required": [long] }), Err(Unshown::TooLong)),
            (json!({ "pattern": long }), Err(Unshown::TooLong)),
            (json!({ "examples": [{ "a": [long] }] }), Err(Unshown::TooLong)),
            (json!({ "x-hint": long }), Ok(false)),
            (json!({ "x-hints": [long] }), Ok(false)),
            (json!({ "x-hint": format!("A hint.{}", tags(HIDDEN)) }), Ok(false)),
            (json!({ "x-hint": "A hint.\u{1b}[8mHIDDEN" }), Ok(true)),
            (json!({ "const": format!("A hint.{}", tags(HIDDEN)) }), Err(Unshown::Invisible)),
            (json!({ format!("x{}", tags(HIDDEN)): 1 }), Err(Unshown::Invisible)),
        ] {
            let found = offered_schema(&schema, &WORDING);
            let text = found.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(!text.contains('\u{1b}') && !text.contains(&tags("H")), "{schema}");
            assert_eq!(found.map(|_| text.contains(HIDDEN)), offered, "{schema}");
            // The offered schema contains the same texts as the approval request.
            let shown = sanitise_json(&schema, shown_literal_chars(WORDING.max_chars)).to_string();
            assert!(!text.contains(HIDDEN) || shown.contains(HIDDEN), "{schema}");
        }
    }

    #[test]
    fn what_an_honest_server_writes_is_offered_unchanged() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {
                "pattern": { "type": ["string", "null"], "pattern": "^[^`]*/$", "default": "`*/`" },
                "end": { "enum": ["\n", "\r\n"], "default": "\r\n" },
                "mood": { "const": "👩\u{200d}👧 ❤\u{fe0f}" },
            },
            "required": ["pattern"], "dependentRequired": { "end": ["mood"] }, "additionalProperties": false,
            "allOf": [{ "$ref": "#/$defs/a" }], "$defs": { "a": { "minProperties": 1 } },
        });
        assert_eq!(offered_schema(&schema, &WORDING), Ok(schema));
    }

    #[test]
    fn meta_stays_as_it_is_only_where_the_request_shows_it() {
        let meta = |text: &str| Map::from_iter([("ui".to_owned(), json!({ "uri": text }))]);
        assert_eq!(offered_meta(&meta("ui://`a`")), meta("ui://`a`"));
        assert_eq!(offered_meta(&meta(&format!("ui://a{}", tags(HIDDEN)))), meta("ui://a"));
    }
}
