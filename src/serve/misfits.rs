//! Refuses requests whose method exists, but whose parameters do not have the form that the protocol defines for this method.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CancelTaskParams, CompleteRequestParams, CustomRequest, ErrorCode, GetPromptRequestParams, GetTaskParams,
    InitializeRequestParams, PaginatedRequestParams, ReadResourceRequestParams, SetLevelRequestParams, SubscribeRequestParams,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::answers::data;
use super::direct::MAX_NAME_CHARS;
use crate::text::sanitise_line;

const MAX_PROBLEM_CHARS: usize = 300;
/// Those methods known to [`problem_of`] that protocol 2026-07-28 has removed.
const REMOVED: [&str; 4] = ["initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Returns the error for a request that the protocol library could not read: its method is unknown, or its parameters are wrong
/// (JSON-RPC 2.0, section 5.1). `is_stateless` is true for a request of protocol 2026-07-28 or later.
pub(super) fn refusal(request: &CustomRequest, is_stateless: bool) -> ErrorData {
    let method = sanitise_line(&request.method, MAX_NAME_CHARS);
    let params = request.params.clone().unwrap_or_else(|| json!({}));
    let is_removed = is_stateless && REMOVED.contains(&request.method.as_str());
    let (code, message) = match problem_of(&request.method, params).filter(|_| !is_removed) {
        Some(problem) => {
            let problem = sanitise_line(&problem, MAX_PROBLEM_CHARS);
            (ErrorCode::INVALID_PARAMS, format!("the parameters of \"{method}\" are wrong: {problem}"))
        }
        None => (ErrorCode::METHOD_NOT_FOUND, format!("there is no method \"{method}\"")),
    };
    ErrorData::new(code, message, Some(data("ERR_INVALID_REQUEST")))
}

/// Returns a description of the problem in the parameters of a method. Returns `None` if there is no such method.
fn problem_of(method: &str, params: Json) -> Option<String> {
    Some(match method {
        "initialize" => problem::<InitializeRequestParams>(params),
        "tools/call" => problem::<CallToolRequestParams>(params),
        "resources/read" => problem::<ReadResourceRequestParams>(params),
        "resources/subscribe" => problem::<SubscribeRequestParams>(params),
        "resources/unsubscribe" => problem::<UnsubscribeRequestParams>(params),
        "prompts/get" => problem::<GetPromptRequestParams>(params),
        "completion/complete" => problem::<CompleteRequestParams>(params),
        "logging/setLevel" => problem::<SetLevelRequestParams>(params),
        "tasks/get" => problem::<GetTaskParams>(params),
        "tasks/update" => problem::<UpdateTaskParams>(params),
        "tasks/cancel" => problem::<CancelTaskParams>(params),
        "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list" => problem::<PaginatedRequestParams>(params),
        _ => return None,
    })
}

/// Returns a description of the problem in the parameters, with the path of the field.
fn problem<T: DeserializeOwned>(params: Json) -> String {
    match serde_path_to_error::deserialize::<_, T>(params) {
        Err(error) => error.to_string(),
        Ok(_) => "they do not have the form that the protocol defines".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: &str, params: Json) -> (ErrorCode, String) {
        let error = refusal(&CustomRequest::new(method, Some(params)), false);
        (error.code, error.message.into_owned())
    }

    #[test]
    fn a_method_that_the_newest_protocol_has_removed_is_unknown_in_it_whatever_its_parameters_are() {
        for method in REMOVED {
            let request = CustomRequest::new(method, Some(json!({})));
            assert_eq!(refusal(&request, true).code, ErrorCode::METHOD_NOT_FOUND, "{method}");
            assert_eq!(refusal(&request, false).code, ErrorCode::INVALID_PARAMS, "{method}");
        }
        assert_eq!(refusal(&CustomRequest::new("tools/call", Some(json!({}))), true).code, ErrorCode::INVALID_PARAMS);
    }

    #[test]
    fn wrong_parameters_of_a_method_are_named_with_their_field() {
        for (method, params, field) in [
            ("tools/call", json!({ "name": "x", "requestState": 5 }), "requestState"),
            ("tools/call", json!({ "arguments": {} }), "name"),
            ("tools/call", json!({ "name": "x", "arguments": [] }), "arguments"),
            ("prompts/get", json!({ "name": 1 }), "name"),
            ("resources/read", json!({}), "uri"),
            ("tools/list", json!({ "cursor": 1 }), "cursor"),
        ] {
            let (code, message) = refused(method, params);
            assert_eq!(code, ErrorCode::INVALID_PARAMS, "{message}");
            assert!(message.contains(method) && message.contains(field), "{message}");
        }
    }

    #[test]
    fn an_unknown_method_is_named_in_one_line_without_what_cannot_be_seen() {
        let (code, message) = refused("tools/\u{202e}call", json!({}));
        assert_eq!((code, message.as_str()), (ErrorCode::METHOD_NOT_FOUND, "there is no method \"tools/call\""));
    }
}
