//! Capabilities that a server's questions needed but that the client has not declared. If a tool fails because of such a missing
//! capability, the call is refused with the protocol's own error (MCP 2026-07-28, -32021).

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use serde_json::{Map, Value as Json, json};

/// A capability that a question needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    Form,
    Url,
    Sampling,
}

/// The needed capabilities of one call, as the object `ClientCapabilities` of the protocol.
#[derive(Debug, Default)]
pub(super) struct Lacking(Mutex<Map<String, Json>>);

impl Lacking {
    /// Records that a question could not be asked.
    pub(super) fn note(&self, needed: Needed) {
        let (name, mode) = match needed {
            Needed::Form => ("elicitation", Some("form")),
            Needed::Url => ("elicitation", Some("url")),
            Needed::Sampling => ("sampling", None),
        };
        let mut all = self.0.lock();
        let capability = all.entry(name).or_insert_with(|| json!({}));
        if let Some(mode) = mode {
            capability[mode] = json!({});
        }
    }

    /// Returns the error for a call that has failed, if one of its questions could not be asked. The error contains no text of the server.
    pub(super) fn refusal(&self) -> Option<ErrorData> {
        let required = self.0.lock().clone();
        if required.is_empty() {
            return None;
        }
        let names = required.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
        let message = format!("the tool needs capabilities that this client has not declared: {names}");
        Some(ErrorData::new(ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY, message, Some(json!({ "requiredCapabilities": required }))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_capability_that_was_needed() {
        let lacking = Lacking::default();
        assert_eq!(lacking.refusal(), None);
        for needed in [Needed::Sampling, Needed::Form, Needed::Url, Needed::Form] {
            lacking.note(needed);
        }
        let refusal = json!(lacking.refusal());
        assert_eq!(refusal["code"], -32021);
        assert_eq!(refusal["data"]["requiredCapabilities"], json!({ "sampling": {}, "elicitation": { "form": {}, "url": {} } }));
        assert_eq!(refusal["message"], "the tool needs capabilities that this client has not declared: sampling and elicitation");
    }
}
