//! Tasks: calls whose result must be polled. Two forms are supported. In MCP 2025-11-25, the answer is `{ task: … }`, and `tasks/result`
//! returns the result. In the extension `io.modelcontextprotocol/tasks` of 2026-07-28, the answer has `resultType: "task"`, and
//! `tasks/get` returns the result.

use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{Peer, PeerRequestOptions};
use serde_json::{Value as Json, json};
use tokio::runtime::Handle;

use super::Connection;
use super::tools::custom;

/// Pause between two polls if the server does not give an interval.
const PAUSE: Duration = Duration::from_millis(500);
/// Limits of the poll interval. A shorter or longer interval of the server is replaced by the limit.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
const MOST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Status {
    Working,
    InputRequired,
    Ended,
}

/// A task in the state that its server last reported.
#[derive(Debug)]
pub(in crate::client) struct Task {
    pub(in crate::client) id: String,
    pub(in crate::client) status: Status,
    pub(in crate::client) pause: Duration,
    /// The task as the server sent it.
    pub(in crate::client) wire: Json,
}

/// The outcome of an ended task.
#[derive(Debug, PartialEq)]
pub(in crate::client) enum Outcome {
    Result(Json),
    /// The result must be requested with `tasks/result`.
    Ask,
    Failed {
        code: i64,
        message: String,
    },
}

impl Task {
    /// Parses a task in either form. Returns `None` if the JSON is not a task.
    pub(in crate::client) fn read(result: &Json) -> Option<Self> {
        let wire = result.get("task").filter(|task| task.is_object()).unwrap_or(result);
        let id = wire.get("taskId")?.as_str()?.to_owned();
        let status = match wire.get("status")?.as_str()? {
            "working" | "submitted" => Status::Working,
            "input_required" => Status::InputRequired,
            _ => Status::Ended,
        };
        let interval = ["pollIntervalMs", "pollInterval"].iter().find_map(|key| wire.get(*key)?.as_u64());
        let pause = interval.map_or(PAUSE, Duration::from_millis).clamp(LEAST_PAUSE, MOST_PAUSE);
        Some(Self { id, status, pause, wire: wire.clone() })
    }

    pub(in crate::client) fn outcome(&self) -> Outcome {
        let text = |key: &str| self.wire.get(key).and_then(Json::as_str);
        match text("status") {
            Some("completed") => self.wire.get("result").cloned().map_or(Outcome::Ask, Outcome::Result),
            Some("cancelled") => Outcome::Failed { code: 0, message: "its task was cancelled at the server".to_owned() },
            _ => match self.wire.get("error") {
                Some(error) => Outcome::Failed {
                    code: error.get("code").and_then(Json::as_i64).unwrap_or_default(),
                    message: error.get("message").and_then(Json::as_str).unwrap_or("its task failed").to_owned(),
                },
                // In the form of 2025-11-25, the answer to `tasks/result` holds the error.
                None => Outcome::Ask,
            },
        }
    }
}

/// Guard that cancels a task if its caller stops waiting.
pub(in crate::client) struct CancelTask {
    task: Option<(Peer<RoleClient>, Handle, String)>,
}

impl CancelTask {
    pub(in crate::client) fn new(connection: &Connection, id: &str) -> Self {
        Self { task: Some((connection.peer.clone(), connection.runtime.clone(), id.to_owned())) }
    }

    /// Disarms the guard, because the task has ended.
    pub(in crate::client) fn settle(mut self) {
        self.task = None;
    }
}

impl Drop for CancelTask {
    fn drop(&mut self) {
        if let Some((peer, runtime, id)) = self.task.take() {
            runtime.spawn(async move {
                let request = custom("tasks/cancel", json!({ "taskId": id }));
                let _ = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_an_ordinary_result_is_none() {
        let old = Task::read(&json!({ "task": { "taskId": "a", "status": "working", "pollInterval": 50 } })).unwrap();
        assert_eq!((old.id.as_str(), old.status, old.pause), ("a", Status::Working, Duration::from_millis(50)));
        let new = Task::read(&json!({ "resultType": "task", "taskId": "b", "status": "input_required", "pollIntervalMs": 0 })).unwrap();
        assert_eq!((new.status, new.pause), (Status::InputRequired, LEAST_PAUSE));
        assert!(Task::read(&json!({ "content": [] })).is_none());
    }

    #[test]
    fn an_ended_task_gives_its_result_or_says_why_not() {
        let outcome = |wire: Json| Task::read(&wire).unwrap().outcome();
        let result = json!({ "content": [] });
        assert_eq!(outcome(json!({ "taskId": "a", "status": "completed", "result": result })), Outcome::Result(result));
        assert_eq!(outcome(json!({ "taskId": "a", "status": "completed" })), Outcome::Ask);
        let failed = outcome(json!({ "taskId": "a", "status": "failed", "error": { "code": -5, "message": "no" } }));
        assert_eq!(failed, Outcome::Failed { code: -5, message: "no".into() });
        assert!(matches!(outcome(json!({ "taskId": "a", "status": "cancelled" })), Outcome::Failed { .. }));
    }
}
