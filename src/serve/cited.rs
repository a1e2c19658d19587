//! Prepares the texts of a server for questions to a person: each text is marked as the server's, and contains no hidden characters.

use serde_json::{Map, Value as Json};

use crate::text::{escaped, visible};

/// The prefix of each line of a server's message. With it, such a line cannot look like a line of this program.
pub(super) const QUOTE: &str = "> ";
/// The methods of requests other than tool calls. A question during such a request names the request.
const REQUESTS: [&str; 5] = ["resources/read", "prompts/get", "completion/complete", "resources/subscribe", "resources/unsubscribe"];

/// Returns a text that names the server that asks, and the tool or the request during which it asks.
pub(super) fn asker(server: &str, tool: Option<&str>) -> String {
    match tool {
        Some(request) if REQUESTS.contains(&request) => format!("The MCP server \"{server}\", in the request \"{request}\","),
        Some(tool) => format!("The tool {} of the MCP server \"{server}\"", quoted(tool)),
        None => format!("The MCP server \"{server}\""),
    }
}

/// Quotes a tool's name so that it cannot end before its closing quote, and shows hidden characters.
pub(super) fn quoted(name: &str) -> String {
    escaped(&Json::from(name).to_string())
}

/// Prefixes each line of a server's message, and removes hidden characters. Otherwise a message could imitate the question before a write.
pub(super) fn cited(message: &str) -> String {
    let broken = message.replace("\r\n", "\n").replace(['\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'], "\n");
    let lines: Vec<_> = visible(&broken).split('\n').map(|line| format!("{QUOTE}{line}")).collect();
    lines.join("\n")
}

/// Prefixes the titles and descriptions in a server's form, and puts each in one line. A client shows a field without a title by its name,
/// which the server chose as well, so the name becomes the title. Returns `None` if a choice that is shown as it is, because it has no label, contains
/// hidden characters. Such a choice cannot be changed, because the answer must be the choice itself.
pub(super) fn cited_form(schema: &Json) -> Option<Json> {
    let mut schema = schema.clone();
    for (name, field) in schema.get_mut("properties").and_then(Json::as_object_mut).into_iter().flatten() {
        let Json::Object(keywords) = field else { continue };
        keywords.entry("title").or_insert_with(|| name.as_str().into());
        for keyword in ["title", "description"] {
            if let Some(Json::String(text)) = keywords.get_mut(keyword) {
                *text = format!("{QUOTE}{}", one_line(text));
            }
        }
        if has_hidden_choice(keywords) {
            return None;
        }
        for labels in ["enumNames", "oneOf", "anyOf", "items"] {
            keywords.get_mut(labels).into_iter().for_each(flatten_labels);
        }
        let is_free = !["enum", "oneOf", "anyOf", "items"].iter().any(|choices| keywords.contains_key(*choices));
        if let Some(Json::String(text)) = keywords.get_mut("default").filter(|_| is_free) {
            *text = visible(text);
        }
    }
    for keyword in ["title", "description"] {
        if let Some(Json::String(text)) = schema.get_mut(keyword) {
            *text = format!("{QUOTE}{}", one_line(text));
        }
    }
    Some(schema)
}

/// Returns whether a field, or what its lists contain, has a choice without a label of its own that contains hidden characters.
fn has_hidden_choice(field: &Map<String, Json>) -> bool {
    let list = |keyword: &str| field.get(keyword).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let mut labels = list("enumNames").iter();
    let in_enum = list("enum").iter().any(|choice| !is_label(labels.next()) && hides(choice));
    let in_const = !is_label(field.get("title")) && field.get("const").is_some_and(hides);
    let parts = list("oneOf").iter().chain(list("anyOf")).chain(field.get("items"));
    in_enum || in_const || parts.filter_map(Json::as_object).any(has_hidden_choice)
}

/// Returns whether a label shows anything. In the place of another one, a client may show the choice itself.
fn is_label(label: Option<&Json>) -> bool {
    label.and_then(Json::as_str).is_some_and(|label| !one_line(label).trim().is_empty())
}

/// Returns whether a choice contains hidden characters or line breaks.
fn hides(choice: &Json) -> bool {
    choice.as_str().is_some_and(|text| cited(text) != format!("{QUOTE}{text}"))
}

/// Puts the labels of choices in one line each. The choices themselves are sent unchanged.
fn flatten_labels(labels: &mut Json) {
    match labels {
        Json::Array(items) => items.iter_mut().for_each(flatten_labels),
        Json::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Json::String(text) if key == "title" || key == "description" => *text = one_line(text),
                    Json::Array(_) | Json::Object(_) if key != "enum" => flatten_labels(value),
                    _ => {}
                }
            }
        }
        Json::String(text) => *text = one_line(text),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn one_line(text: &str) -> String {
    cited(text).split('\n').map(|line| line.strip_prefix(QUOTE).unwrap_or(line).trim()).collect::<Vec<_>>().join(" ")
}

/// Returns the parameters of a server's sampling request without hidden characters in its texts, because hosts show them to a person.
pub(super) fn visible_messages(params: &Json) -> Json {
    let mut params = params.clone();
    if let Some(Json::String(prompt)) = params.get_mut("systemPrompt") {
        *prompt = visible(prompt);
    }
    for message in params.get_mut("messages").and_then(Json::as_array_mut).into_iter().flatten() {
        let blocks = match message.get_mut("content") {
            Some(Json::Array(blocks)) => blocks.iter_mut().collect(),
            Some(block) => vec![block],
            None => Vec::new(),
        };
        for text in blocks.into_iter().filter_map(|block| block.get_mut("text")) {
            if let Json::String(text) = text {
                *text = visible(text);
            }
        }
    }
    params
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
    }
}
