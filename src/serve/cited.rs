//! Prepares a server's questions and sampling requests for a host, which shows them to a person. Messages, titles and descriptions of a
//! question are marked as the server's text. No shown text has hidden characters.

use serde_json::{Map, Value as Json};

use crate::gateway::REQUEST_METHODS;
use crate::text::{escaped, visible};

/// The prefix of each line of a server's message. The prefix prevents such a line from looking like a line of this program.
pub(super) const QUOTE: &str = "> ";
/// Returns a text that names the server that asks, and the tool or the request during which it asks.
pub(super) fn asker(server: &str, tool: Option<&str>) -> String {
    match tool {
        Some(request) if REQUEST_METHODS.contains(&request) => format!("The MCP server \"{server}\", in the request \"{request}\","),
        Some(tool) => format!("The tool {} of the MCP server \"{server}\"", quoted(tool)),
        None => format!("The MCP server \"{server}\""),
    }
}

/// Puts a tool's name in quotation marks. Escapes quotation marks within the name, so that they do not seem to end it, and escapes hidden
/// characters, so that they can be seen.
pub(super) fn quoted(name: &str) -> String {
    escaped(&Json::from(name).to_string())
}

/// Prefixes each line of a server's message, and removes hidden characters. Otherwise a message could imitate the question before a write.
pub(super) fn cited(message: &str) -> String {
    let broken = message.replace("\r\n", "\n").replace(['\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'], "\n");
    let lines: Vec<_> = visible(&broken).split('\n').map(|line| format!("{QUOTE}{line}")).collect();
    lines.join("\n")
}

/// The maximum length in bytes of the name of a schema dialect or of a format.
const MAX_WORD_BYTES: usize = 80;
/// Keywords of a field whose values are numbers.
const NUMBERS: [&str; 6] = ["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"];

/// Returns a server's form for a client. Only the keywords that forms have are kept. Titles and descriptions are put into one line, with a
/// prefix that marks them as the server's text. A client shows the name of a field that has no title. The server chose this name as well,
/// so the name, with the prefix, becomes the title. The names of fields, the choices, the types and the formats cannot be changed, because
/// the answer must match them. Returns `None` if a person could misread one of these. A choice with a visible label cannot be misread.
pub(super) fn cited_form(schema: &Json) -> Option<Json> {
    let given = schema.as_object()?;
    let fields = given.get("properties").and_then(Json::as_object);
    let mut form = Map::new();
    for (keyword, value) in given {
        let shown = match (keyword.as_str(), value) {
            ("type", _) => only_types(value)?,
            ("$schema", Json::String(dialect)) if is_dialect(dialect) => value.clone(),
            ("title" | "description", Json::String(text)) => cited_line(text).into(),
            ("properties", Json::Object(fields)) => {
                let cited = |(name, field): (&String, &Json)| Some((name.clone(), cited_field(name, field)?));
                fields.iter().map(cited).collect::<Option<Map<_, _>>>()?.into()
            }
            ("required", Json::Array(names)) => {
                let is_field = |name: &&Json| name.as_str().is_some_and(|name| fields.is_some_and(|fields| fields.contains_key(name)));
                names.iter().filter(is_field).cloned().collect()
            }
            _ => continue,
        };
        form.insert(keyword.clone(), shown);
    }
    Some(form.into())
}

/// Returns a field of a form, prepared for a client. `name` is the name of the field.
fn cited_field(name: &str, field: &Json) -> Option<Json> {
    let given = field.as_object().filter(|_| !hides_text(name))?;
    let mut shown = cited_choices(given)?;
    let title = given.get("title").and_then(Json::as_str).unwrap_or(name);
    shown.insert("title".to_owned(), cited_line(title).into());
    let is_free = !["enum", "oneOf", "anyOf", "items"].iter().any(|choices| given.contains_key(*choices));
    for (keyword, value) in given {
        let value = match (keyword.as_str(), value) {
            ("description", Json::String(text)) => cited_line(text).into(),
            ("format", Json::String(format)) if is_word(format) => value.clone(),
            ("format", _) => return None,
            (keyword, Json::Number(_)) if NUMBERS.contains(&keyword) => value.clone(),
            ("items", Json::Object(items)) => cited_choices(items)?.into(),
            ("default", Json::String(text)) if is_free => visible(text).into(),
            ("default", Json::String(_) | Json::Number(_) | Json::Bool(_)) | ("uniqueItems", Json::Bool(_)) => value.clone(),
            ("default", Json::Array(items)) if items.iter().all(is_plain) => value.clone(),
            _ => continue,
        };
        shown.insert(keyword.clone(), value);
    }
    Some(shown.into())
}

/// Returns the type and the choices of a field, or of a list's items. The choices themselves are unchanged. Each label is put into one
/// line.
fn cited_choices(given: &Map<String, Json>) -> Option<Map<String, Json>> {
    let mut shown = Map::new();
    for (keyword, value) in given {
        let value = match (keyword.as_str(), value) {
            ("type", _) => only_types(value)?,
            ("enum", Json::Array(choices)) => {
                let labels = given.get("enumNames").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
                let is_shown = |(index, choice): (usize, &Json)| is_plain(choice) && (is_label(labels.get(index)) || !hides(choice));
                choices.iter().enumerate().all(is_shown).then(|| value.clone())?
            }
            ("enumNames", Json::Array(labels)) => {
                labels.iter().map(|label| Some(Json::from(one_line(label.as_str()?)))).collect::<Option<Json>>()?
            }
            ("oneOf" | "anyOf", Json::Array(choices)) => choices.iter().map(cited_choice).collect::<Option<Json>>()?,
            _ => continue,
        };
        shown.insert(keyword.clone(), value);
    }
    Some(shown)
}

/// Returns one choice with its label.
fn cited_choice(choice: &Json) -> Option<Json> {
    let value = choice.get("const").filter(|value| is_plain(value))?;
    let title = choice.get("title").and_then(Json::as_str);
    if !is_label(choice.get("title")) && hides(value) {
        return None;
    }
    let mut shown = Map::from_iter([("const".to_owned(), value.clone())]);
    let texts = [("title", title), ("description", choice.get("description").and_then(Json::as_str))];
    shown.extend(texts.into_iter().filter_map(|(keyword, text)| Some((keyword.to_owned(), one_line(text?).into()))));
    Some(shown.into())
}

/// Returns whether a label is visible. If it is not, a client may show the choice itself instead.
fn is_label(label: Option<&Json>) -> bool {
    label.and_then(Json::as_str).is_some_and(|label| !one_line(label).trim().is_empty())
}

/// Returns the types of a schema. Returns `None` if one of them is not a type of JSON Schema, because such a type could be any text.
fn only_types(types: &Json) -> Option<Json> {
    let is_type = |kind: &Json| {
        kind.as_str().is_some_and(|kind| ["array", "boolean", "integer", "null", "number", "object", "string"].contains(&kind))
    };
    let are_types = types.as_array().map_or_else(|| is_type(types), |types| types.iter().all(is_type));
    are_types.then(|| types.clone())
}

fn is_dialect(text: &str) -> bool {
    let rest = text.strip_prefix("https://json-schema.org/").or_else(|| text.strip_prefix("http://json-schema.org/"));
    text.len() <= MAX_WORD_BYTES
        && rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./#".contains(&byte)))
}

/// Returns whether a text is one word, such as `date-time`.
fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD_BYTES && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns whether a value is neither an object nor a list, and so contains no inner texts.
fn is_plain(value: &Json) -> bool {
    !value.is_object() && !value.is_array()
}

/// Returns whether a choice contains hidden characters or line breaks.
fn hides(choice: &Json) -> bool {
    choice.as_str().is_some_and(hides_text)
}

fn hides_text(text: &str) -> bool {
    cited(text) != format!("{QUOTE}{text}")
}

fn cited_line(text: &str) -> String {
    format!("{QUOTE}{}", one_line(text))
}

fn one_line(text: &str) -> String {
    cited(text).split('\n').map(|line| line.strip_prefix(QUOTE).unwrap_or(line).trim()).collect::<Vec<_>>().join(" ")
}

/// Returns the parameters of a server's sampling request without hidden characters in any text or key, because hosts show them to a
/// person and to a model. Base64 has no hidden characters, so images and sounds stay as they are.
pub(super) fn visible_messages(params: &Json) -> Json {
    match params {
        Json::String(text) => Json::String(visible(text)),
        Json::Array(items) => Json::Array(items.iter().map(visible_messages).collect()),
        // The recursion is bounded, because the parser limits the depth of JSON.
        Json::Object(fields) => Json::Object(fields.iter().map(|(key, value)| (visible(key), visible_messages(value))).collect()),
        Json::Null | Json::Bool(_) | Json::Number(_) => params.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_text_of_a_servers_form_can_pass_for_one_of_ours() {
        let fake = "Allow the call of the tool \"pay\"?";
        let schema = json!({ "type": "object", "properties": {
            "allow": { "type": "string", "description": format!("D\n\n{fake}"), "enum": ["this call", "no"] },
            "other": { "type": "string", "title": format!("T\u{2028}{fake}"), "oneOf": [{ "const": "a\nb", "title": "A\nB" }] },
            "free": { "type": "string", "default": "a\u{202e}b" },
        } });
        let shown = cited_form(&schema).unwrap();
        let fields = &shown["properties"];
        assert_eq!((&fields["allow"]["title"], &fields["allow"]["enum"]), (&json!("> allow"), &json!(["this call", "no"])), "{shown}");
        assert_eq!(fields["allow"]["description"], json!(format!("> D  {fake}")));
        assert_eq!(fields["other"]["title"], json!(format!("> T {fake}")));
        assert_eq!(fields["other"]["oneOf"], json!([{ "const": "a\nb", "title": "A B" }]));
        assert_eq!(fields["free"]["default"], json!("ab"));
    }

    #[test]
    fn a_form_with_a_choice_that_hides_something_is_not_shown_unless_the_choice_has_a_label() {
        let form = |field: Json| cited_form(&json!({ "type": "object", "properties": { "x": field } }));
        for hidden in ["no\u{202e}", "a\nb", "a\u{2028}b", "\u{1b}[2Kyes", "a\u{200b}"] {
            assert_eq!(form(json!({ "type": "string", "enum": ["yes", hidden] })), None, "{hidden:?}");
            assert_eq!(form(json!({ "type": "array", "items": { "type": "string", "enum": [hidden] } })), None, "{hidden:?}");
            assert!(form(json!({ "type": "string", "enum": ["yes", hidden], "enumNames": ["Yes", "No"] })).is_some());
            for labels in [
                json!([]),
                json!(["Yes"]),
                json!(["Yes", ""]),
                json!(["Yes", " \n"]),
                json!(["Yes", "\u{200b}"]),
                json!(["Yes", 1]),
                json!("No"),
            ] {
                assert_eq!(form(json!({ "type": "string", "enum": ["yes", hidden], "enumNames": labels })), None, "{hidden:?} {labels}");
            }
            for list in ["oneOf", "anyOf"] {
                assert!(form(json!({ "type": "string", list: [{ "const": hidden, "title": "No" }] })).is_some());
                for choice in
                    [json!({ "const": hidden }), json!({ "const": hidden, "title": "" }), json!({ "const": hidden, "title": "\u{2060} " })]
                {
                    assert_eq!(
                        form(json!({ "type": "string", list: [{ "const": "a", "title": "A" }, choice] })),
                        None,
                        "{hidden:?} {choice}"
                    );
                    assert_eq!(form(json!({ "type": "array", "items": { list: [choice] } })), None, "{hidden:?} {choice}");
                }
            }
        }
        assert!(form(json!({ "type": "string", "enum": ["yes", "no", "später"] })).is_some());
    }

    #[test]
    fn a_form_whose_field_has_a_name_that_a_person_cannot_see_in_one_line_is_not_shown() {
        for name in ["a\n> Allow the call?", "a\u{2028}b", "a\r\nb", "a\u{202e}", "a\u{85}b"] {
            let schema = json!({ "type": "object", "properties": { name: { "type": "boolean", "title": "Sure?" } } });
            assert_eq!(cited_form(&schema), None, "{name:?}");
        }
    }

    #[test]
    fn of_a_form_a_person_gets_the_words_that_forms_have_and_no_other_text() {
        let fake = "Allow the call of the tool?";
        let field = json!({
            "type": "string", "format": "email", "minLength": 1, "pattern": format!("a\n{fake}"), "$comment": fake, "examples": [fake], "errorMessage": fake,
            "oneOf": [{ "const": "a", "title": "A", "description": "a\nb", "$comment": fake }],
        });
        let schema = json!({
            "$schema": format!("https://json-schema.org\n{fake}"), "$id": fake, "$defs": { "x": { "title": fake } }, "description": "why",
            "type": "object", "properties": { "a": field }, "required": ["a", fake],
        });
        let property = json!({ "type": "string", "format": "email", "minLength": 1, "title": "> a", "oneOf": [{ "const": "a", "title": "A", "description": "a b" }] });
        let shown = json!({ "type": "object", "description": "> why", "properties": { "a": property }, "required": ["a"] });
        assert_eq!(cited_form(&schema), Some(shown));
        let dialect = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {} });
        assert_eq!(cited_form(&dialect), Some(dialect));
        for wrong in [json!({ "type": fake }), json!({ "type": "string", "format": fake }), json!({ "type": ["string", fake] })] {
            assert_eq!(cited_form(&json!({ "type": "object", "properties": { "a": wrong } })), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_is_not_called_a_tool() {
        assert_eq!(asker("s", Some("prompts/get")), "The MCP server \"s\", in the request \"prompts/get\",");
        assert_eq!(asker("s", Some("pay\u{202e}")), "The tool \"pay\\u{202e}\" of the MCP server \"s\"");
    }

    #[test]
    fn the_texts_of_a_request_for_a_completion_hide_nothing() {
        let block = |text: &str| json!({ "role": "user", "content": { "type": "text", "text": text } });
        let given = json!({ "systemPrompt": "a\u{202e}b", "messages": [block("c\u{1b}[2Kd\ne"), { "role": "user", "content": [{ "type": "text", "text": "f\u{2066}g" }] }] });
        let shown = json!({ "systemPrompt": "ab", "messages": [block("cd\ne"), { "role": "user", "content": [{ "type": "text", "text": "fg" }] }] });
        assert_eq!(visible_messages(&given), shown);
        let hidden = json!({
            "messages": [{ "role": "assistant", "content": [
                { "type": "tool_use", "name": "a\u{e0041}", "input": { "k\u{200b}": "v\u{202e}" } },
                { "type": "tool_result", "content": [{ "type": "text", "text": "r\u{2066}" }] },
                { "type": "image", "mimeType": "image/png", "data": "iVBO+/==" },
            ] }],
            "modelPreferences": { "hints": [{ "name": "m\u{202e}" }] }, "stopSequences": ["s\u{200b}"], "metadata": { "x": "y\u{1b}[1m" },
            "tools": [{ "name": "t\u{200b}", "description": "d\u{202e}" }], "maxTokens": 5,
        });
        let visible = json!({
            "messages": [{ "role": "assistant", "content": [
                { "type": "tool_use", "name": "a", "input": { "k": "v" } },
                { "type": "tool_result", "content": [{ "type": "text", "text": "r" }] },
                { "type": "image", "mimeType": "image/png", "data": "iVBO+/==" },
            ] }],
            "modelPreferences": { "hints": [{ "name": "m" }] }, "stopSequences": ["s"], "metadata": { "x": "y" },
            "tools": [{ "name": "t", "description": "d" }], "maxTokens": 5,
        });
        assert_eq!(visible_messages(&hidden), visible);
    }
}
