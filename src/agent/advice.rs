//! Answers for a model after an error: what happened, and what the model can do next.

use serde_json::{Map, Value as Json, json};

use crate::error::Error;
use crate::registry::{ServerState, ServerStatus};
use crate::sandbox::{Problem, ProblemKind};

/// The maximum number of problems in one answer.
const MAX_PROBLEMS: usize = 5;

/// Converts an error to an answer for a model. Uses only the parts of the error message that a model may read. `sign_in` is the hint for an
/// error about a server to which a person has to sign in.
pub(super) fn failure(error: &Error, sign_in: Option<&str>) -> Json {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), error.code().into());
    fields.insert("message".to_owned(), error.for_model().into());
    if let Some(hint) = hint(error.code(), sign_in) {
        fields.insert("hint".to_owned(), hint.into());
    }
    json!({ "error": fields })
}

/// Adds a hint to an error report that another module created. If there is no hint for the error's code, adds the first problem from
/// `of_check`, which the check of the agent code has found. The reason: the use of a property that no result had is often the cause of an
/// error.
pub(super) fn advise(report: &mut Json, of_check: &[Problem], sign_in: Option<&str>) {
    let hint = report.pointer("/error/code").and_then(Json::as_str).and_then(|code| hint(code, sign_in));
    let hint = hint.or_else(|| of_check.first().map(|first| first.message.as_str()));
    if let (Some(hint), Some(fields)) = (hint, report.get_mut("error").and_then(Json::as_object_mut)) {
        fields.insert("hint".to_owned(), hint.into());
    }
}

/// Returns the answer for code that failed the check and was not run.
pub(super) fn wrong_code(problems: &[Problem]) -> Json {
    let first = &problems[0];
    let code = if first.kind == ProblemKind::NoHandler { "ERR_NO_HANDLER" } else { "ERR_CODE_SYNTAX" };
    let mut fields = json!({
        "code": code,
        "message": first.message,
        "line": first.line,
        "column": first.column,
        "excerpt": first.excerpt,
        "hint": "nothing was run: correct the code and run it again",
    });
    let others: Vec<_> = problems.iter().skip(1).take(MAX_PROBLEMS - 1).map(other).collect();
    if !others.is_empty() {
        fields["others"] = others.into();
    }
    json!({ "error": fields })
}

fn other(problem: &Problem) -> Json {
    json!({ "message": problem.message, "line": problem.line, "column": problem.column, "excerpt": problem.excerpt })
}

/// Returns a hint for a model about an error whose message is written for the author of the agent.
fn hint<'h>(code: &str, sign_in: Option<&'h str>) -> Option<&'h str> {
    Some(match code {
        "ERR_NOT_APPROVED" => "only a person can approve the server: call manage_mcp with the action propose, then ask the user",
        "ERR_NOT_ENABLED" => "call manage_mcp with the action enable",
        "ERR_SERVER_DISABLED" => "the user has to remove \"disabled\": true from the config; then call manage_mcp with the action reload",
        "ERR_DISABLED_BY_PERSON" => "a person has disabled it: ask the user, and do not try again",
        "ERR_CALL_DENIED" => "a person did not allow this call: do not repeat it, ask the user",
        "ERR_TOOL_CHANGED" | "ERR_TOOL_VANISHED" | "ERR_RESOURCE_CHANGED" | "ERR_PROMPT_CHANGED" => {
            "the server has changed since it was approved: call manage_mcp with the action propose, then ask the user"
        }
        "ERR_UNKNOWN_SERVER" | "ERR_UNKNOWN_MODULE" => "call list_mcp_servers to see the servers",
        "ERR_UNKNOWN_TOOL" => "call search_mcp_tools or mcp_server_info to see the tools",
        "ERR_TOO_MANY_PROPOSALS" => "ask the user, and do not try again",
        "ERR_BUSY" => "wait for the calls that are in progress, then call again",
        "ERR_RUN_TIMEOUT" => "do less in one run, or give a larger timeoutMs where the limit allows it",
        "ERR_GUEST_MEMORY" | "ERR_VALUE_TOO_LARGE" => "process less data at once and return less",
        "ERR_AUTHORIZATION_REQUIRED" | "ERR_AUTHORIZATION_FAILED" => sign_in.unwrap_or("the user has to sign in to the server"),
        "ERR_NO_HYPERVISOR" | "ERR_APPROVAL_STORE" | "ERR_PLUGIN_OFF" | "ERR_CLOSED" => {
            "you cannot fix this: tell the user what the message says"
        }
        _ => return None,
    })
}

/// Returns the reason why a server cannot be used, and advice that would help. Returns `None` if the server can be used. `status` must come
/// from `ServerStatus::for_model`.
pub(super) fn obstacle(status: &ServerStatus) -> Option<(String, &'static str)> {
    let last = || status.last_error.as_ref().map(|error| format!("{} ({})", error.message, error.code)).unwrap_or_default();
    let needs_person = "call manage_mcp with the action propose, then ask the user to approve the server";
    Some(match status.state {
        ServerState::Invalid => (
            format!("its entry in the config is wrong: {}", last()),
            "the user has to correct the config; then call manage_mcp with the action reload",
        ),
        ServerState::Disabled => (
            "the config says \"disabled\": true".to_owned(),
            "the user has to remove that from the config; then call manage_mcp with the action reload",
        ),
        ServerState::NotReady => (
            format!("variables that it needs are not set: {}", status.missing.join(", ")),
            "the user has to set them in the environment of this program, and start it again",
        ),
        _ if status.disabled_by_person => {
            ("a person has disabled it".to_owned(), "only a person can enable it again: ask the user if it is needed")
        }
        ServerState::PendingApproval => (
            "an agent has added or changed it, and no person has decided about it yet".to_owned(),
            "tell the user that it waits for their decision, outside of this conversation; do not wait in a loop",
        ),
        _ if !status.approved && status.state == ServerState::CommandApproved => {
            ("a person has approved its command, but not its tools".to_owned(), needs_person)
        }
        _ if !status.approved => ("no person has approved it as it is now".to_owned(), needs_person),
        _ if !status.enabled => ("it is approved, but not enabled".to_owned(), "call manage_mcp with the action enable"),
        ServerState::Error => (
            format!("the last attempt to connect failed: {}", last()),
            "call manage_mcp with the action test; if it fails again, tell the user, who can see more with /mcp logs",
        ),
        _ => return None,
    })
}
