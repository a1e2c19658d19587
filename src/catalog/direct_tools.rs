//! Descriptions of tools for hosts that call them directly. This module has no side effects.

use serde_json::{Map, Value as Json, json};

use super::direct_names::{DirectNames, NameStyle, source};
use super::manifest::Tool;
use super::offered::{Unshown, offered_meta, offered_schema, unshown_tool};
use super::resources_and_prompts::HostFields;
use super::wording::Wording;
use crate::text::sanitise_json;

const MAX_TITLE_CHARS: usize = 200;
/// Prefix of this program's own keys in `_meta`.
const OUR_META: &str = "io.hyperlight-mcp/";
/// Key in `_meta` for the source of a tool ([`source`]).
const SOURCE_KEY: &str = "io.hyperlight-mcp/source";

/// An approved tool in the form in which a host shows it to its model. Everything in it was shown in the tool's approval request. Its
/// texts are sanitised.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectTool {
    /// Name of the tool in the host's list.
    pub name: String,
    pub server: String,
    /// Name that the server gives the tool.
    pub tool: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// JSON Schema of the arguments, whose type is `object`.
    pub input_schema: Map<String, Json>,
    pub output_schema: Option<Map<String, Json>>,
    pub annotations: Option<Json>,
    /// The approved `_meta`, and the tool's source.
    pub meta: Map<String, Json>,
    /// The approved icons.
    pub icons: Option<Json>,
}

impl DirectTool {
    /// Describes an approved tool.
    ///
    /// # Errors
    /// The reason why the tool cannot be offered. The model would read a name or a literal that the approval request did not show.
    pub fn new(server: &str, tool: &Tool, names: &DirectNames, style: NameStyle, wording: &Wording) -> Result<Self, Unshown> {
        if let Some(reason) = unshown_tool(tool, wording) {
            return Err(reason);
        }
        Ok(Self {
            name: names.in_style(style).to_owned(),
            server: server.to_owned(),
            tool: tool.name.clone(),
            title: tool.title.as_ref().map(|title| wording.one_line(title, MAX_TITLE_CHARS)),
            description: tool.description.as_ref().map(|text| wording.description(text)),
            input_schema: arguments_schema(&tool.input_schema, wording)?,
            output_schema: tool.output_schema.as_ref().map(|schema| result_schema(schema, wording)).transpose()?.flatten(),
            annotations: tool.annotations.as_ref().map(|hints| shown_annotations(hints, wording)),
            meta: shown_meta(server, tool),
            icons: tool.icons.clone(),
        })
    }
}

/// Returns the schema of the arguments with the type `object`. Arguments are always an object. A host refuses its whole list of tools if
/// one schema has another type.
fn arguments_schema(schema: &Json, wording: &Wording) -> Result<Map<String, Json>, Unshown> {
    let mut shown = match offered_schema(schema, wording)? {
        Json::Object(fields) => fields,
        Json::Bool(false) => Map::from_iter([("not".to_owned(), json!({}))]),
        _ => Map::new(),
    };
    if shown.get("type").and_then(Json::as_str) != Some("object") {
        shown.insert("type".to_owned(), "object".into());
    }
    Ok(shown)
}

/// Returns the schema of the structured content. Returns `None` if its type is not `object`. Up to MCP version 2025-11-25, a host refuses
/// its whole list of tools if the type of one result schema is not `object`.
fn result_schema(schema: &Json, wording: &Wording) -> Result<Option<Map<String, Json>>, Unshown> {
    let is_object = schema.get("type").and_then(Json::as_str) == Some("object");
    match offered_schema(schema, wording)? {
        Json::Object(fields) if is_object => Ok(Some(fields)),
        _ => Ok(None),
    }
}

fn shown_annotations(hints: &Json, wording: &Wording) -> Json {
    let mut shown = sanitise_json(hints, wording.max_chars);
    if let Some(title) = shown.get_mut("title")
        && let Some(text) = title.as_str()
    {
        *title = wording.one_line(text, MAX_TITLE_CHARS).into();
    }
    shown
}

/// Returns the approved `_meta` together with the tool's source. Keys with this program's own prefix are removed, so a server cannot set
/// them.
fn shown_meta(server: &str, tool: &Tool) -> Map<String, Json> {
    let mut meta = tool.meta.as_ref().and_then(Json::as_object).map(offered_meta).unwrap_or_default();
    drop_our_keys(&mut meta);
    meta.insert(SOURCE_KEY.to_owned(), source(server, &tool.name).into());
    meta
}

impl HostFields {
    /// Returns the fields in the form in which a host gets them: as the approval request shows them, and without this program's own keys.
    #[must_use]
    pub fn offered(&self) -> Self {
        let meta = self.meta.as_ref().and_then(Json::as_object).map(offered_meta).map(|mut meta| {
            drop_our_keys(&mut meta);
            meta
        });
        Self { meta: meta.filter(|meta| !meta.is_empty()).map(Json::Object), ..self.clone() }
    }
}

/// Removes this program's own keys from a server's `_meta`, so that the server cannot pretend that this program has set them.
fn drop_our_keys(meta: &mut Map<String, Json>) {
    meta.retain(|key, _| !key.starts_with(OUR_META));
}

/// Removes the keys of this program and of the protocol from `_meta` of a server's answer. These keys describe the server's exchange with
/// this program: its task, its subscription, its progress. A host would take them for its own exchange.
pub(crate) fn drop_reserved_keys(meta: &mut Map<String, Json>) {
    drop_our_keys(meta);
    meta.retain(|key, _| key != "progressToken" && !is_of_protocol(key));
}

/// Returns whether the protocol reserves the prefix of a key: its first or second label is `modelcontextprotocol` or `mcp` (MCP 2025-06-18 and
/// 2025-11-25, basic, "_meta").
fn is_of_protocol(key: &str) -> bool {
    let is_reserved = |label: &str| ["modelcontextprotocol", "mcp"].iter().any(|reserved| label.eq_ignore_ascii_case(reserved));
    key.split_once('/').is_some_and(|(prefix, _)| prefix.split('.').take(2).any(is_reserved))
}

/// Removes the keys of this program and of the protocol from `_meta` in all parts of a result: its content blocks, messages and embedded
/// resources. Structured content is not changed, because it is data.
pub(crate) fn drop_reserved_keys_within(part: &mut Json) {
    match part {
        Json::Array(items) => items.iter_mut().for_each(drop_reserved_keys_within),
        Json::Object(fields) => {
            for (key, value) in fields {
                match key.as_str() {
                    "_meta" => value.as_object_mut().into_iter().for_each(drop_reserved_keys),
                    "content" | "contents" | "messages" | "resource" => drop_reserved_keys_within(value),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TakenNames;
    use crate::text::{sanitise_line, sanitise_text};

    const WORDING: Wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 100 };

    fn shown(tool: Json) -> DirectTool {
        let tool: Tool = serde_json::from_value(tool).unwrap();
        DirectTool::new("s", &tool, &TakenNames::new([]).assign("s", &tool.name), NameStyle::Hyphen, &WORDING).unwrap()
    }

    #[test]
    fn texts_are_sanitised_and_names_and_literals_stay() {
        let (hidden, literal) = ("a\u{200b}b", "`a*/b");
        let properties = json!({
            "default": { "type": "string", "description": hidden, "default": literal },
            literal: { "enum": [literal], "title": hidden, "anyOf": [{ "description": hidden }] },
        });
        let tool =
            shown(json!({ "name": "t", "title": hidden, "description": hidden, "annotations": { "title": hidden, "readOnlyHint": true },
            "inputSchema": { "type": "object", "properties": properties } }));
        assert_eq!((tool.title.as_deref(), tool.description.as_deref()), (Some("ab"), Some("ab")));
        assert_eq!(tool.annotations, Some(json!({ "title": "ab", "readOnlyHint": true })));
        let expected = json!({
            "default": { "type": "string", "description": "ab", "default": literal },
            literal: { "enum": [literal], "title": "ab", "anyOf": [{ "description": "ab" }] },
        });
        assert_eq!(tool.input_schema["properties"], expected);
    }

    #[test]
    fn a_tool_whose_name_or_schema_was_not_shown_whole_is_not_offered() {
        for tool in [
            json!({ "name": "a\u{200b}b" }),
            json!({ "name": "n".repeat(201) }),
            json!({ "name": "t", "inputSchema": { "required": ["a\u{200b}b"] } }),
            json!({ "name": "t", "inputSchema": {}, "outputSchema": { "type": "object", "properties": { "a": { "const": "x".repeat(2_000) } } } }),
        ] {
            let tool: Tool = serde_json::from_value(tool).unwrap();
            let names = TakenNames::new([]).assign("s", &tool.name);
            assert!(DirectTool::new("s", &tool, &names, NameStyle::Hyphen, &WORDING).is_err(), "{tool:?}");
        }
    }

    #[test]
    fn every_schema_is_one_that_a_host_accepts() {
        for (schema, expected) in [
            (Json::Null, json!({ "type": "object" })),
            (json!(true), json!({ "type": "object" })),
            (json!(false), json!({ "not": {}, "type": "object" })),
            (json!({ "properties": {} }), json!({ "properties": {}, "type": "object" })),
            (json!({ "type": ["object", "null"] }), json!({ "type": "object" })),
        ] {
            assert_eq!(Json::Object(shown(json!({ "name": "t", "inputSchema": schema })).input_schema), expected);
        }
        let output = |schema: Json| shown(json!({ "name": "t", "outputSchema": schema })).output_schema;
        assert_eq!(output(json!({ "type": "array" })), None);
        assert_eq!(output(json!({ "type": "object" })), json!({ "type": "object" }).as_object().cloned());
    }

    #[test]
    fn meta_is_kept_and_no_server_names_the_source_of_its_tool() {
        let view = json!({ "resourceUri": "ui://s/view", "visibility": ["model"] });
        let tool =
            shown(json!({ "name": "a/b", "_meta": { "ui": view, "io.hyperlight-mcp/source": "mcp://other/x", "io.hyperlight-mcp/y": 1 } }));
        assert_eq!(Json::Object(tool.meta), json!({ "ui": view, "io.hyperlight-mcp/source": "mcp://s/a/b" }));
        assert_eq!(tool.name, "s-a-b");
    }

    #[test]
    fn of_the_meta_of_an_answer_the_keys_of_the_protocol_are_dropped() {
        for (key, is_kept) in [
            ("io.modelcontextprotocol/related-task", false),
            ("modelcontextprotocol.io/x", false),
            ("dev.MCP/x", false),
            ("mcp/x", false),
            ("progressToken", false),
            ("io.hyperlight-mcp/saved", false),
            ("com.example.mcp/x", true),
            ("com.example/mcp", true),
            ("traceparent", true),
        ] {
            let mut meta = Map::from_iter([(key.to_owned(), json!(1))]);
            drop_reserved_keys(&mut meta);
            assert_eq!(meta.contains_key(key), is_kept, "{key}");
        }
    }
}
