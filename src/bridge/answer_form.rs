//! Checks that the answer of a server is a valid MCP result. Without this check, a malformed answer would look like a success with an empty
//! result. All functions are pure.
//!
//! A result may contain unknown kinds of content. A tool's result may have no `content`, because the official clients accept that. All other fields
//! that are present must have the right type.

use serde_json::Value as Json;

/// The kind of result that a request must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    ToolResult,
    ResourceContents,
    Prompt,
    Completion,
}

/// The roles of the messages of a prompt.
const ROLES: [&str; 2] = ["user", "assistant"];

impl AnswerKind {
    /// Checks a result.
    ///
    /// # Errors
    /// A sentence that says which part is wrong. The sentence does not quote any part of the result.
    pub(crate) fn check(self, result: &Json) -> Result<(), String> {
        if !result.is_object() {
            return Err("it is not an object".to_owned());
        }
        match self {
            Self::ToolResult => tool_result(result),
            Self::ResourceContents => each(result, "contents", resource),
            Self::Prompt => prompt(result),
            Self::Completion => completion(&result["completion"]),
        }
    }
}

fn tool_result(result: &Json) -> Result<(), String> {
    let is_error = &result["isError"];
    if !is_error.is_null() && !is_error.is_boolean() {
        return Err("isError is neither true nor false".to_owned());
    }
    if result["content"].is_null() { Ok(()) } else { each(result, "content", block) }
}

fn prompt(result: &Json) -> Result<(), String> {
    let description = &result["description"];
    if !description.is_null() && !description.is_string() {
        return Err("description is not a text".to_owned());
    }
    each(result, "messages", |message, place| {
        if !message["role"].as_str().is_some_and(|role| ROLES.contains(&role)) {
            return Err(format!("{place}.role is neither user nor assistant"));
        }
        match &message["content"] {
            Json::Array(_) => each(message, "content", |part, inner| block(part, &format!("{place}.{inner}"))),
            content => block(content, &format!("{place}.content")),
        }
    })
}

fn completion(completion: &Json) -> Result<(), String> {
    let is_text = |value: &Json, place: &str| if value.is_string() { Ok(()) } else { Err(format!("completion.{place} is not a text")) };
    each(completion, "values", is_text).map_err(|problem| problem.replace("it has no list of", "its completion has no list of"))?;
    if !completion["total"].is_null() && completion["total"].as_u64().is_none() {
        return Err("completion.total is not a number of values".to_owned());
    }
    if !completion["hasMore"].is_null() && !completion["hasMore"].is_boolean() {
        return Err("completion.hasMore is neither true nor false".to_owned());
    }
    Ok(())
}

/// Checks each item of a list. `check` gets the item and a text for the item's place, which error messages use.
fn each(holder: &Json, list: &str, check: impl Fn(&Json, &str) -> Result<(), String>) -> Result<(), String> {
    let items = holder[list].as_array().ok_or_else(|| format!("it has no list of {list}"))?;
    items.iter().enumerate().try_for_each(|(index, item)| check(item, &format!("{list}[{index}]")))
}

fn block(block: &Json, place: &str) -> Result<(), String> {
    let text = |key: &str| if block[key].is_string() { Ok(()) } else { Err(format!("{place}.{key} is not a text")) };
    if !block.is_object() {
        return Err(format!("{place} is not an object"));
    }
    text("type")?;
    match block["type"].as_str().unwrap_or_default() {
        "text" => text("text"),
        "image" | "audio" => text("data").and_then(|()| text("mimeType")),
        "resource" => resource(&block["resource"], &format!("{place}.resource")),
        "resource_link" => text("uri"),
        _ => Ok(()),
    }
}

/// Checks the contents of a resource, which must be a text, or bytes in base64.
fn resource(contents: &Json, place: &str) -> Result<(), String> {
    let (text, bytes) = (&contents["text"], &contents["blob"]);
    match (contents.is_object(), text.is_null(), bytes.is_null()) {
        (false, ..) => return Err(format!("{place} is not an object")),
        (true, true, true) => return Err(format!("{place} has neither text nor blob")),
        _ => {}
    }
    for key in ["uri", "mimeType", "text", "blob"] {
        let value = &contents[key];
        if !(value.is_string() || value.is_null() && key != "uri") {
            return Err(format!("{place}.{key} is not a text"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(kind: AnswerKind, result: &Json) -> String {
        kind.check(result).expect_err(&result.to_string())
    }

    #[test]
    fn a_result_of_a_tool_is_what_it_says_or_a_problem() {
        use AnswerKind::ToolResult;
        for rubbish in [json!(null), json!("done"), json!([]), json!(5)] {
            assert_eq!(problem(ToolResult, &rubbish), "it is not an object");
        }
        for (result, expected) in [
            (json!({ "content": {} }), "it has no list of content"),
            (json!({ "content": "done" }), "it has no list of content"),
            (json!({ "content": [], "isError": "no" }), "isError is neither true nor false"),
            (json!({ "content": [5] }), "content[0] is not an object"),
            (json!({ "content": [{ "text": "x" }] }), "content[0].type is not a text"),
            (json!({ "content": [{ "type": "text", "text": "x" }, { "type": "text" }] }), "content[1].text is not a text"),
            (json!({ "content": [{ "type": "image", "mimeType": "a/b" }] }), "content[0].data is not a text"),
            (json!({ "content": [{ "type": "resource" }] }), "content[0].resource is not an object"),
        ] {
            assert_eq!(problem(ToolResult, &result), expected, "{result}");
        }
        for sound in [
            json!({}),
            json!({ "structuredContent": { "a": 1 } }),
            json!({ "content": null, "isError": null }),
            json!({ "content": [{ "type": "hologram", "x": 1 }, { "type": "text", "text": "" }], "isError": true }),
        ] {
            assert_eq!(ToolResult.check(&sound), Ok(()), "{sound}");
        }
    }

    #[test]
    fn contents_prompts_and_completions_have_their_lists_and_types() {
        use AnswerKind::{Completion, Prompt, ResourceContents};
        for (kind, result, expected) in [
            (ResourceContents, json!({}), "it has no list of contents"),
            (ResourceContents, json!({ "contents": [{ "uri": "a:b", "text": 5 }] }), "contents[0].text is not a text"),
            (ResourceContents, json!({ "contents": [{ "uri": "a:b" }] }), "contents[0] has neither text nor blob"),
            (ResourceContents, json!({ "contents": [{ "text": "x" }] }), "contents[0].uri is not a text"),
            (ResourceContents, json!({ "contents": ["x"] }), "contents[0] is not an object"),
            (Prompt, json!({ "description": "d" }), "it has no list of messages"),
            (Prompt, json!({ "messages": {} }), "it has no list of messages"),
            (Prompt, json!({ "messages": [{ "role": "system", "content": {} }] }), "messages[0].role is neither user nor assistant"),
            (Prompt, json!({ "messages": [{ "role": "user" }] }), "messages[0].content is not an object"),
            (
                Prompt,
                json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": 1 }] }] }),
                "messages[0].content[0].text is not a text",
            ),
            (Completion, json!({}), "its completion has no list of values"),
            (Completion, json!({ "completion": { "values": "a" } }), "its completion has no list of values"),
            (Completion, json!({ "completion": { "values": ["a", 1] } }), "completion.values[1] is not a text"),
            (Completion, json!({ "completion": { "values": [], "total": "many" } }), "completion.total is not a number of values"),
        ] {
            assert_eq!(problem(kind, &result), expected, "{result}");
        }
        assert_eq!(ResourceContents.check(&json!({ "contents": [{ "uri": "a:b", "blob": "AA==", "mimeType": null }] })), Ok(()));
        assert_eq!(Prompt.check(&json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "x" } }] })), Ok(()));
        assert_eq!(Completion.check(&json!({ "completion": { "values": ["a"], "hasMore": false } })), Ok(()));
    }
}
