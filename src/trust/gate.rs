//! The write gate: decides whether a person is asked before a call. The decision depends only on the approved entry of the config and
//! the approved manifest. The arguments from the guest have no influence.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::reads::is_read;
use crate::catalog::Tool;
use crate::config::Confirm;

const ALWAYS: &str = "every call of this server needs confirmation (confirm: \"always\")";

/// The decision of the gate about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The call may be sent.
    Open,
    /// A person must be asked. The text is the reason.
    Ask(&'static str),
}

/// A person's answer to the question of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Allows this call.
    Once,
    /// Allows calls of this tool in this run.
    Run,
    /// Allows calls of this tool until the gateway is closed.
    Session,
    Deny,
}

/// Returns whether a person is asked before a call of an approved tool.
///
/// A tool is treated as a read only if its approved annotation `readOnlyHint` is `true` (MCP 2025-11-25, `ToolAnnotations`; its default is
/// false), or if its annotations say nothing and the approved `reads` of the server's entry names it ([`is_read`]). The annotation is the
/// server's own claim. However, a person has seen it at the approval, and neither the annotation nor `reads` can change without another
/// approval.
///
/// ```
/// use hyperlight_mcp::{config::Confirm, trust::{Gate, gate}};
/// let tool = |text: &str| serde_json::from_str(text).unwrap();
/// let read = tool(r#"{ "name": "a", "inputSchema": {}, "annotations": { "readOnlyHint": true } }"#);
/// assert_eq!(gate(Confirm::Writes, &read, &[]), Gate::Open);
/// let unknown = tool(r#"{ "name": "read_only", "inputSchema": {} }"#);
/// assert_ne!(gate(Confirm::Writes, &unknown, &[]), Gate::Open);
/// assert_eq!(gate(Confirm::Writes, &unknown, &["read_*".to_owned()]), Gate::Open);
/// ```
#[must_use]
pub fn gate(confirm: Confirm, tool: &Tool, reads: &[String]) -> Gate {
    let hint = |name: &str| tool.annotations.as_ref().and_then(|hints| hints.get(name)).and_then(Json::as_bool);
    match confirm {
        Confirm::Never => Gate::Open,
        Confirm::Always => Gate::Ask(ALWAYS),
        Confirm::Writes if is_read(tool, reads) => Gate::Open,
        Confirm::Writes if hint("destructiveHint") == Some(true) => Gate::Ask("the tool says that it can destroy data"),
        Confirm::Writes => Gate::Ask("the tool is not approved as read-only"),
    }
}

/// Returns whether a person is asked before a resource or a prompt is read.
#[must_use]
pub fn read_gate(confirm: Confirm) -> Gate {
    if confirm == Confirm::Always { Gate::Ask(ALWAYS) } else { Gate::Open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, annotations: Option<Json>) -> Tool {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            input_schema: json!({}),
            output_schema: None,
            annotations,
            execution: None,
            meta: None,
            icons: None,
        }
    }

    #[test]
    fn only_a_hint_that_is_true_makes_a_read() {
        for annotations in
            [None, Some(json!({})), Some(json!({ "readOnlyHint": false })), Some(json!({ "readOnlyHint": "true" })), Some(json!([true]))]
        {
            assert!(matches!(gate(Confirm::Writes, &tool("read", annotations), &[]), Gate::Ask(_)));
        }
        assert_eq!(gate(Confirm::Writes, &tool("write", Some(json!({ "readOnlyHint": true }))), &[]), Gate::Open);
    }

    #[test]
    fn always_asks_for_reads_too_and_never_for_nothing() {
        let read = tool("read", Some(json!({ "readOnlyHint": true })));
        assert!(matches!(gate(Confirm::Always, &read, &[]), Gate::Ask(_)));
        assert_eq!(gate(Confirm::Never, &tool("drop_everything", None), &[]), Gate::Open);
    }
}
