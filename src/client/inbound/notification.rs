//! Handles a server's notifications in the order in which they arrive. rmcp handles each notification in its own task, so it neither keeps
//! their order nor limits their number.

use std::sync::Arc;

use rmcp::model::RequestId;
use serde_json::Value as Json;

use crate::error::ForeignText;

/// Function that receives each message before rmcp does. If it returns `true`, rmcp does not get the message. It must not block.
pub(in crate::client) type Interceptor = Arc<dyn Fn(&Json) -> bool + Send + Sync>;

/// Maximum length in bytes of a log message's data. Longer data is cut.
const MAX_LOG_BYTES: usize = 8 * 1024;
const MAX_MESSAGE_BYTES: usize = 1024;
const MAX_LEVEL_BYTES: usize = 32;
const MAX_LOGGER_BYTES: usize = 128;
/// Maximum length in bytes of an update's URI. It is not possible to subscribe to a longer URI.
const MAX_URI_BYTES: usize = 8 * 1024;

/// A notification of a server, in the form in which the caller receives it.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    Progress {
        progress: f64,
        total: Option<f64>,
        message: Option<ForeignText>,
    },
    Log {
        level: ForeignText,
        logger: Option<ForeignText>,
        data: LogData,
    },
    /// Number of notices that were dropped because they exceeded the rate limit.
    Dropped(u64),
}

/// Data of a server's log message.
#[derive(Debug, Clone, PartialEq)]
pub enum LogData {
    Whole(Json),
    /// The beginning of data that exceeds the limit, as text.
    Beginning(ForeignText),
}

/// A notification that this client handles. Its values are converted only if a listener needs the values.
#[derive(Debug, PartialEq)]
pub(in crate::client) enum Notification<'a> {
    Progress {
        token: &'a Json,
        progress: f64,
        params: &'a Json,
    },
    Log {
        level: &'a str,
        data: &'a Json,
        params: &'a Json,
    },
    ListChanged,
    ResourceUpdated(&'a str),
    /// A malformed notification of one of the methods that this client handles.
    Nothing,
}

/// Returns the id of a server's request that a person or a model has to answer. Returns `None` for all other messages.
pub(in crate::client) fn question(message: &Json) -> Option<RequestId> {
    let method = message.get("method")?.as_str()?;
    let is_question = matches!(method, "elicitation/create" | "sampling/createMessage");
    if is_question { serde_json::from_value(message.get("id")?.clone()).ok() } else { None }
}

/// Parses a notification that this client handles. Returns `None` for all other messages.
pub(in crate::client) fn read(message: &Json) -> Option<Notification<'_>> {
    if message.get("id").is_some() {
        return None;
    }
    let params = message.get("params").unwrap_or(&Json::Null);
    let text = |key: &str| params.get(key).and_then(Json::as_str);
    Some(match message.get("method")?.as_str()? {
        "notifications/progress" => match (params.get("progressToken"), params.get("progress").and_then(Json::as_f64)) {
            (Some(token), Some(progress)) => Notification::Progress { token, progress, params },
            _ => Notification::Nothing,
        },
        "notifications/message" => match (text("level"), params.get("data")) {
            (Some(level), Some(data)) => Notification::Log { level, data, params },
            _ => Notification::Nothing,
        },
        "notifications/tools/list_changed" | "notifications/resources/list_changed" | "notifications/prompts/list_changed" => {
            Notification::ListChanged
        }
        "notifications/resources/updated" => {
            text("uri").filter(|uri| uri.len() <= MAX_URI_BYTES).map_or(Notification::Nothing, Notification::ResourceUpdated)
        }
        _ => return None,
    })
}

/// Makes the notice for a progress notification.
pub(in crate::client) fn progress(progress: f64, params: &Json) -> Notice {
    let message = params.get("message").and_then(Json::as_str).map(|text| ForeignText::cut(text, MAX_MESSAGE_BYTES));
    Notice::Progress { progress, total: params.get("total").and_then(Json::as_f64), message }
}

/// Makes the notice for a log message.
pub(in crate::client) fn log(level: &str, data: &Json, params: &Json) -> Notice {
    let logger = params.get("logger").and_then(Json::as_str).map(|name| ForeignText::cut(name, MAX_LOGGER_BYTES));
    Notice::Log { level: ForeignText::cut(level, MAX_LEVEL_BYTES), logger, data: bounded(data) }
}

/// Returns the data unchanged if its text is within the limit. Otherwise returns the beginning of the text.
fn bounded(data: &Json) -> LogData {
    let whole = |text: &str| text.len() <= MAX_LOG_BYTES;
    match data {
        Json::String(text) if whole(text) => LogData::Whole(data.clone()),
        Json::String(text) => LogData::Beginning(ForeignText::cut(text, MAX_LOG_BYTES)),
        other => {
            let text = other.to_string();
            if whole(&text) { LogData::Whole(other.clone()) } else { LogData::Beginning(ForeignText::cut(&text, MAX_LOG_BYTES)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_and_other_notifications_are_left_to_rmcp() {
        assert_eq!(read(&json!({ "id": 1, "method": "notifications/progress" })), None);
        assert_eq!(read(&json!({ "method": "notifications/cancelled" })), None);
        assert_eq!(read(&json!({ "result": {} })), None);
    }

    #[test]
    fn a_malformed_notification_is_taken_and_says_nothing() {
        assert_eq!(read(&json!({ "method": "notifications/progress", "params": { "progress": "half" } })), Some(Notification::Nothing));
        assert_eq!(read(&json!({ "method": "notifications/message" })), Some(Notification::Nothing));
    }

    #[test]
    fn a_huge_log_line_is_cut() {
        let message = json!({ "method": "notifications/message", "params": { "level": "info", "data": [ "x".repeat(100_000) ] } });
        let Some(Notification::Log { level, data, params }) = read(&message) else { panic!("the message is a log notification") };
        let Notice::Log { data: LogData::Beginning(words), .. } = log(level, data, params) else { panic!("the data of the notice is cut") };
        let text = words.in_full();
        assert!(text.ends_with("… [cut]") && text.len() < MAX_LOG_BYTES + 20);
    }
}
