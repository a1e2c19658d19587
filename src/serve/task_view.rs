//! A task as its caller sees it. Its large parts are shared with the task, and are copied only for the answer to a request.

use std::sync::Arc;

use rmcp::model::{DetailedTask, GetTaskResult, InputRequest, InputRequests, Task, TaskPayload};

pub(super) struct TaskView {
    pub(super) task: Task,
    pub(super) shown: Shown,
    /// The memory of a copy in bytes.
    pub(super) bytes: usize,
}

pub(super) enum Shown {
    Working,
    /// The questions that wait for an answer, with their numbers.
    Asking(Vec<(u64, Arc<InputRequest>)>),
    Ended(Arc<TaskPayload>),
}

impl TaskView {
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.shown, Shown::Ended(_))
    }

    /// Returns a copy for an answer.
    pub(super) fn result(self) -> GetTaskResult {
        let payload = match self.shown {
            Shown::Working => TaskPayload::Working,
            Shown::Asking(questions) => {
                let requests = questions.into_iter().map(|(number, request)| (key(number), Arc::unwrap_or_clone(request)));
                TaskPayload::InputRequired { input_requests: requests.collect::<InputRequests>() }
            }
            Shown::Ended(payload) => Arc::unwrap_or_clone(payload),
        };
        GetTaskResult::new(DetailedTask::new(self.task, payload))
    }
}

/// Returns the key of a question. Keys are unique during the life of a task.
pub(super) fn key(number: u64) -> String {
    format!("q{number}")
}
