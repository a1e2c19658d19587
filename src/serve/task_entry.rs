//! The record of one run that can be a task: its state, its questions and its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rmcp::ErrorData;
use rmcp::model::{InputRequest, Task, TaskPayload, TaskStatus};
use serde_json::Value as Json;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::DropGuard;

use super::answers;
use super::held_arguments::HeldArguments;
use super::http::Owner;
use super::task_view::{Shown, TaskView};
use crate::caller_memory::HeldMemory;
use crate::sandbox::Stop;

/// The time for which a task exists, from its start.
pub(super) const TASK_LIFE: Duration = Duration::from_mins(30);
/// The polling interval that is recommended to clients.
const POLL: Duration = Duration::from_millis(500);

/// A run that is a task, or that may become one.
pub(super) struct Entry {
    pub(super) owner: Owner,
    pub(super) task: Task,
    pub(super) state: State,
    pub(super) stop: Stop,
    /// The questions that wait for an answer, in order.
    pub(super) questions: BTreeMap<u64, OpenQuestion>,
    pub(super) asked: u64,
    /// The memory that is reserved for the answers that the run has received.
    pub(super) held: Vec<HeldArguments>,
    /// True if the client knows the task. Until then, the result is the answer to the client's request.
    pub(super) is_known: bool,
    /// True if the request that started the run is gone, so that no client will know the task.
    pub(super) is_abandoned: bool,
    /// True if the client has seen the result of the task.
    pub(super) is_told: bool,
    /// The memory of the result in bytes.
    pub(super) bytes: usize,
    pub(super) changed: watch::Sender<()>,
    /// Tells the driver of the run that this entry was removed.
    _removed: DropGuard,
}

/// The state of a task.
#[derive(Debug)]
pub(super) enum State {
    Working,
    /// The result is shared with the requests that read it, because it may be large.
    Ended(Arc<TaskPayload>),
}

/// A question that waits for an answer. Its request is shared with the requests that read it.
pub(super) struct OpenQuestion {
    pub(super) request: Arc<InputRequest>,
    pub(super) answer: oneshot::Sender<Json>,
    pub(super) held: HeldMemory,
}

impl Entry {
    pub(super) fn new(id: &str, owner: Owner, stop: Stop, changed: watch::Sender<()>, removed: DropGuard) -> Self {
        let now = Timestamp::now().to_string();
        let mut task = Task::new(id, TaskStatus::Working, now.clone(), now);
        task.ttl_ms = u64::try_from(TASK_LIFE.as_millis()).ok();
        task.poll_interval_ms = u64::try_from(POLL.as_millis()).ok();
        Self {
            owner,
            task,
            state: State::Working,
            stop,
            questions: BTreeMap::new(),
            asked: 0,
            held: Vec::new(),
            is_known: false,
            is_abandoned: false,
            is_told: false,
            bytes: 0,
            changed,
            _removed: removed,
        }
    }

    pub(super) fn touch(&mut self) {
        self.task.last_updated_at = Timestamp::now().to_string();
        // Sending fails once the call that started the task no longer waits for changes.
        let _ = self.changed.send(());
    }

    pub(super) fn view(&self) -> TaskView {
        let (shown, bytes) = match &self.state {
            State::Ended(payload) => (Shown::Ended(Arc::clone(payload)), self.bytes),
            State::Working if self.questions.is_empty() => (Shown::Working, 0),
            State::Working => {
                let requests = self.questions.iter().map(|(number, question)| (*number, Arc::clone(&question.request)));
                (Shown::Asking(requests.collect()), self.questions.values().map(|question| question.held.bytes()).sum())
            }
        };
        TaskView { task: self.task.clone(), shown, bytes }
    }

    /// Returns the task with its present status.
    pub(super) fn now(&self) -> Task {
        let mut task = self.task.clone();
        task.status = match &self.state {
            State::Ended(payload) => payload.status(),
            State::Working if self.questions.is_empty() => TaskStatus::Working,
            State::Working => TaskStatus::InputRequired,
        };
        task
    }

    /// Returns the result of a run that no client knows as a task, with its memory in bytes.
    pub(super) fn prompt(self) -> Result<(Json, usize), ErrorData> {
        let Self { state, bytes, .. } = self;
        // The result is shared with nobody, so it is not copied here.
        match if let State::Ended(payload) = state { Arc::unwrap_or_clone(payload) } else { TaskPayload::Cancelled } {
            TaskPayload::Completed { result } => Ok((Json::Object(result), bytes)),
            TaskPayload::Failed { error } => Err(serde_json::from_value(Json::Object(error))
                .unwrap_or_else(|_| ErrorData::internal_error("the run failed", Some(answers::data("ERR_INTERNAL"))))),
            _ => Err(ErrorData::internal_error("the request was cancelled", Some(answers::data("ERR_ABORTED")))),
        }
    }
}
