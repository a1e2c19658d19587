//! Forwards events to the client: the progress and logs of inner calls are sent as progress and logs of the client's call.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use serde_json::Value as Json;
use tokio::sync::{mpsc, oneshot};

use crate::gateway::EventListener;

/// The maximum number of unsent events. If a client does not read, further events for it are dropped, so that the memory stays limited.
const MAX_WAITING: usize = 256;

/// The maximum time for which the result of a call waits until all earlier events have been sent.
const PATIENCE: Duration = Duration::from_secs(1);

enum ClientNotification {
    /// A progress event of a server.
    Progress(Json),
    Log(LoggingMessageNotificationParam),
    /// A marker that is answered when all earlier events have been sent.
    All(oneshot::Sender<()>),
}

/// The client, and the progress token of the request that waits for the result of a call.
type Recipient = Arc<Mutex<(Peer<RoleServer>, Option<ProgressToken>)>>;

/// Access to the events of one call that still have to be sent to its client.
#[derive(Clone)]
pub(super) struct SentEvents {
    sender: mpsc::Sender<ClientNotification>,
    recipient: Recipient,
}

impl SentEvents {
    /// Sends later events to another request of the client. After a question, the request that contains the answer is the one that waits
    /// for the result.
    pub(super) fn send_to(&self, peer: Peer<RoleServer>, token: Option<ProgressToken>) {
        *self.recipient.lock() = (peer, token);
    }

    /// Waits until all events that exist now are sent. The time is limited, because the client may not read.
    pub(super) async fn all(self) {
        let (sender, sent) = oneshot::channel();
        let notification = async move {
            if self.sender.send(ClientNotification::All(sender)).await.is_ok() {
                // An error means that the sending task has ended and sends nothing more.
                let _ = sent.await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, notification).await;
    }
}

/// Returns a listener that sends the events of one call to its client, in order.
///
/// The progress of a call must increase with each notification (MCP 2025-11-25, basic/utilities/progress). But a run can make many calls,
/// each with its own progress. So the progress value that is sent counts the notifications, and the message contains the values of the
/// inner call.
///
/// `least` is the lowest level of logs that the client wants. `None` means no logs.
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
            // Sending fails if the request has ended. Later events go to the next request of the same call.
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
                    // The receiver may have stopped waiting.
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

/// Returns the rank of a level (RFC 5424, section 6.2.1). The least serious level has rank 0.
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
