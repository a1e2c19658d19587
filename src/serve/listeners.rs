//! The way back of events: progress and logs of inner calls become progress and logs of the outer call.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use serde_json::Value as Json;
use tokio::sync::{mpsc, oneshot};

use crate::gateway::EventListener;

/// Events that wait to be sent. A client that does not read loses further ones, and no memory grows.
const MAX_WAITING: usize = 256;

/// Time for which an outcome waits for the events before it.
const PATIENCE: Duration = Duration::from_secs(1);

enum ClientNotification {
    /// The event of a server's progress.
    Progress(Json),
    Log(LoggingMessageNotificationParam),
    /// All events before this one are sent.
    All(oneshot::Sender<()>),
}

/// The request that waits for the outcome of a call, and its progress token.
type Recipient = Arc<Mutex<(Peer<RoleServer>, Option<ProgressToken>)>>;

/// The events of one call that are on their way to its client.
#[derive(Clone)]
pub(super) struct SentEvents {
    sender: mpsc::Sender<ClientNotification>,
    recipient: Recipient,
}

impl SentEvents {
    /// Sends what happens from now on to another request of the client: after a question, the request with the answer waits for the outcome.
    pub(super) fn send_to(&self, peer: Peer<RoleServer>, token: Option<ProgressToken>) {
        *self.recipient.lock() = (peer, token);
    }

    /// Waits until all events so far are sent, but not for a client that does not read.
    pub(super) async fn all(self) {
        let (sender, sent) = oneshot::channel();
        let notification = async move {
            if self.sender.send(ClientNotification::All(sender)).await.is_ok() {
                // The sending task has ended, and sends no more.
                let _ = sent.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, notification).await;
    }
}

/// Returns a listener that tells the client of one call what happens in it, in order.
///
/// The progress of a call only ever grows (MCP 2025-11-25, basic/utilities/progress), and a run can make many calls with progress of their own. So
/// the outer progress counts the reports, and their figures stand in the message.
///
/// `least`: the least level of logs that the client wants. `None`: no logs.
pub(super) fn listener(
    runtime: &tokio::runtime::Handle,
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    least: Option<LoggingLevel>,
) -> (EventListener, SentEvents) {
    let (sender, mut receiver) = mpsc::channel::<ClientNotification>(MAX_WAITING);
    let recipient: Recipient = Arc::new(Mutex::new((peer, token)));
    let events = SentEvents { sender: sender.clone(), recipient: Arc::clone(&recipient) };
    runtime.spawn(async move {
        let mut count = 0.0;
        while let Some(notification) = receiver.recv().await {
            let (peer, token) = recipient.lock().clone();
            // A request that is gone hears nothing, and the next one of the same call does.
            let _ = match (notification, token) {
                (ClientNotification::Progress(event), Some(token)) => {
                    count += 1.0;
                    let mut progress = progress(token, &event);
                    progress.progress = count;
                    peer.notify_progress(progress).await
                }
                (ClientNotification::Progress(_), None) => Ok(()),
                (ClientNotification::Log(log), _) => peer.notify_logging_message(log).await,
                (ClientNotification::All(sent), _) => {
                    // The outcome may have stopped waiting.
                    let _ = sent.send(());
                    Ok(())
                }
            };
        }
    });
    let on_event: EventListener = Arc::new(move |event: Json| {
        let notification = match event["type"].as_str() {
            Some("progress") => Some(ClientNotification::Progress(event)),
            Some("server-log") => log(&event, least).map(ClientNotification::Log),
            _ => None,
        };
        if let Some(notification) = notification {
            let _ = sender.try_send(notification);
        }
    });
    (on_event, events)
}

fn progress(token: ProgressToken, event: &Json) -> ProgressNotificationParam {
    let mut progress = ProgressNotificationParam::new(token, 0.0);
    let figures = match (&event["progress"], &event["total"]) {
        (done, Json::Null) => done.to_string(),
        (done, total) => format!("{done} of {total}"),
    };
    let name = format!("{}.{}", event["server"].as_str().unwrap_or_default(), event["tool"].as_str().unwrap_or_default());
    progress.message = Some(match event["message"].as_str() {
        Some(message) => format!("{name}: {message} ({figures})"),
        None => format!("{name}: {figures}"),
    });
    progress
}

fn log(event: &Json, least: Option<LoggingLevel>) -> Option<LoggingMessageNotificationParam> {
    let level: LoggingLevel = serde_json::from_value(event["level"].clone()).unwrap_or(LoggingLevel::Info);
    if rank(level) < rank(least?) {
        return None;
    }
    let mut log = LoggingMessageNotificationParam::new(level, event["data"].clone());
    let server = event["server"].as_str().unwrap_or_default();
    log.logger = Some(match event["logger"].as_str() {
        Some(logger) => format!("{server}: {logger}"),
        None => server.to_owned(),
    });
    Some(log)
}

/// The rank of a level (RFC 5424, section 6.2.1), the least serious first.
fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn logs_below_the_clients_level_stay_here() {
        let event = |level: &str| json!({ "server": "s", "level": level, "data": "d", "logger": "l" });
        assert!(log(&event("info"), Some(LoggingLevel::Warning)).is_none());
        let notification = log(&event("error"), Some(LoggingLevel::Warning)).unwrap();
        assert_eq!((notification.level, notification.logger.as_deref()), (LoggingLevel::Error, Some("s: l")));
        assert!(log(&event("debug"), Some(LoggingLevel::Debug)).is_some());
        assert!(log(&event("emergency"), None).is_none());
    }

    #[test]
    fn progress_names_the_inner_call_and_its_figures() {
        let token = ProgressToken(rmcp::model::NumberOrString::Number(1));
        let event = json!({ "server": "s", "tool": "t", "progress": 3.0, "total": 10.0, "message": "copying" });
        assert_eq!(progress(token, &event).message.as_deref(), Some("s.t: copying (3.0 of 10.0)"));
    }
}
