//! The result of a generated tool as an MCP `CallToolResult`.

use serde_json::{Value as Json, json};

/// Makes the result of a call from the value that the code returned. A value with the field `content` is already a result, and is not
/// changed. Any other value becomes a text. An object also becomes the structured content.
pub(super) fn result_of(value: Json) -> Json {
    if value.get("content").is_some() {
        return value;
    }
    let text = match &value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let content = json!([{ "type": "text", "text": text }]);
    if value.is_object() { json!({ "content": content, "structuredContent": value }) } else { json!({ "content": content }) }
}

/// Makes the result of a call that failed.
pub(super) fn failed(message: &str) -> Json {
    json!({ "content": [{ "type": "text", "text": message }], "isError": true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_mcp_passes_as_it_is() {
        let result = json!({ "content": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }], "isError": false });
        assert_eq!(result_of(result.clone()), result);
    }

    #[test]
    fn another_value_becomes_text_and_an_object_is_structured_too() {
        assert_eq!(result_of(json!("a \"b\"")), json!({ "content": [{ "type": "text", "text": "a \"b\"" }] }));
        assert_eq!(result_of(json!([1, 2])), json!({ "content": [{ "type": "text", "text": "[1,2]" }] }));
        assert_eq!(result_of(json!(null)), json!({ "content": [{ "type": "text", "text": "null" }] }));
        let object = json!({ "sum": 3 });
        let text = json!([{ "type": "text", "text": "{\"sum\":3}" }]);
        assert_eq!(result_of(object.clone()), json!({ "content": text, "structuredContent": object }));
    }
}
