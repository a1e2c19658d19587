//! Runs as tasks (the extension `io.modelcontextprotocol/tasks` of MCP 2026-07-28).
//!
//! The server decides which call becomes a task. A run that ends within [`PROMPT`] is answered directly. A run that takes longer, or that
//! asks a question, becomes a task of its caller: the client polls the task, answers its questions and can cancel it. Other callers cannot
//! access the task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, InputResponses, JsonObject, TaskPayload};
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::answers;
use super::asking::Question;
use super::held_arguments::HeldArguments;
use super::http::Owner;
use super::paused_calls::Work;
use super::task_entry::{Entry, OpenQuestion, State, TASK_LIFE};
use super::task_view::TaskView;
use crate::error::Error;
use crate::off_runtime::{MAX_BYTES_AT_ONCE, off_the_runtime};
use crate::results::{SAVED_ID_BYTES, saved_id};
use crate::sandbox::{Stop, StopReason};
use crate::text::json::{memory_bytes, takes_more_than};

/// The time within which a run is answered directly.
const PROMPT: Duration = Duration::from_secs(2);
/// The maximum number of tasks for one caller. If a caller has this number of tasks, its next runs do not become tasks.
const MAX_OF_CALLER: usize = 32;
/// The maximum number of tasks for all callers. If there are this many tasks, the next runs do not become tasks.
const MAX_OF_ALL: usize = 512;
/// The maximum memory in bytes for the results of one caller's tasks.
const MAX_BYTES_OF_CALLER: usize = 32 * MIB;
/// The maximum memory in bytes for the results of all tasks.
const MAX_BYTES_OF_ALL: usize = 256 * MIB;
/// The part of [`MAX_BYTES_OF_ALL`] that only callers may use whose results take at most [`LEAST_BYTES_OF_CALLER`]. This prevents a few
/// callers from using all of the memory.
const RESERVED_BYTES: usize = 64 * MIB;
/// The memory in bytes up to which the results of a caller may use the reserved part.
const LEAST_BYTES_OF_CALLER: usize = 8 * MIB;
const MIB: usize = 1024 * 1024;
/// The maximum number of waiting questions for one task. Runs have a separate limit for all their questions.
const MAX_QUESTIONS: usize = 64;

/// The tasks of all callers. Clones are cheap.
#[derive(Clone)]
pub(super) struct Tasks {
    all: Arc<Mutex<HashMap<String, Entry>>>,
    runtime: tokio::runtime::Handle,
    times: Times,
    /// Cancelled to end all tasks.
    closed: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    prompt: Duration,
    life: Duration,
}

/// The result of starting a call that can become a task.
pub(super) enum Begun {
    /// The run has already ended. `bytes` is the memory of its result.
    Done {
        result: Json,
        bytes: usize,
    },
    Task(CreateTaskResult),
}

/// A run, with its stop signal and its questions.
pub(super) struct Run {
    pub(super) work: Work,
    pub(super) stop: Stop,
    pub(super) questions: mpsc::Receiver<Question>,
}

/// The permission to create one more task.
pub(super) struct TaskPlace {
    id: String,
    owner: Owner,
}

impl Tasks {
    pub(super) fn new(runtime: &tokio::runtime::Handle, closed: &CancellationToken) -> Self {
        Self { all: Arc::default(), runtime: runtime.clone(), times: Times { prompt: PROMPT, life: TASK_LIFE }, closed: closed.clone() }
    }

    /// Returns a place if the caller may have one more task, by the number of tasks and by the memory of their results. To make room,
    /// removes those tasks of the caller whose result the caller has seen.
    pub(super) fn place(&self, owner: Owner) -> Option<TaskPlace> {
        let mut random = [0; SAVED_ID_BYTES];
        getrandom::fill(&mut random).ok()?;
        let mut all = self.all.lock();
        let is_full = |all: &HashMap<String, Entry>| {
            let of_caller = all.values().filter(|entry| entry.owner.key == owner.key).count();
            all.len() >= MAX_OF_ALL || of_caller >= MAX_OF_CALLER || full_of_results(all, &owner.key, 1).is_some()
        };
        let removed = if is_full(&all) { remove_told(&mut all, &owner.key) } else { Vec::new() };
        let is_free = !is_full(&all);
        drop(all);
        drop(removed);
        is_free.then(|| TaskPlace { id: saved_id(random), owner })
    }

    /// Starts a run, and waits a short time for its end. `gone` is cancelled when the client cancels its request. If the run is not a task
    /// yet, this ends the run.
    ///
    /// # Errors
    /// The error of a run that has failed within this time.
    pub(super) async fn begin(&self, place: TaskPlace, run: Run, gone: &CancellationToken) -> Result<Begun, ErrorData> {
        let TaskPlace { id, owner } = place;
        let (changed, mut changes) = watch::channel(());
        let (stop, removed) = (run.stop.clone(), CancellationToken::new());
        let entry = Entry::new(&id, owner.clone(), stop.clone(), changed, removed.clone().drop_guard());
        self.all.lock().insert(id.clone(), entry);
        let (this, driven) = (self.clone(), id.clone());
        self.runtime.spawn(async move { this.drive(&driven, owner, run, removed).await });
        // If the request ends in another way, for example because it is dropped, this value ends the run, because no client would know the
        // run.
        let mut unknown_run = EndsRun { tasks: self.clone(), id: id.clone(), stop: Some(stop.clone()) };
        let moment = tokio::time::sleep(self.times.prompt);
        tokio::pin!(moment);
        loop {
            if let Some(outcome) = self.prompt_outcome(&id, gone) {
                unknown_run.stop = None;
                return outcome;
            }
            tokio::select! {
                () = &mut moment, if !gone.is_cancelled() => {
                    unknown_run.stop = None;
                    return self.as_task(&id);
                }
                () = gone.cancelled(), if stop.reason().is_none() => stop.stop(StopReason::Aborted),
                _ = changes.changed() => {}
            }
        }
    }

    /// Returns the result of a run that has already ended, and removes the run, because no client knows it as a task. If the run has asked
    /// a question, returns the run as a task, except to a client that has cancelled its request and would not learn of the task.
    fn prompt_outcome(&self, id: &str, gone: &CancellationToken) -> Option<Result<Begun, ErrorData>> {
        let mut all = self.all.lock();
        let Some(entry) = all.get_mut(id) else { return Some(Err(unknown())) };
        if !entry.questions.is_empty() && !gone.is_cancelled() {
            entry.is_known = true;
            return Some(Ok(Begun::Task(CreateTaskResult::new(entry.now()))));
        }
        if matches!(entry.state, State::Working) {
            return None;
        }
        let ended = all.remove(id)?;
        drop(all);
        Some(done(ended))
    }

    /// Waits until no run makes progress: each has ended, or waits for an answer of its client.
    pub(super) async fn until_idle(&self) {
        loop {
            let is_busy = |entry: &&Entry| matches!(entry.state, State::Working) && entry.questions.is_empty();
            let changes = self.all.lock().values().find(is_busy).map(|entry| entry.changed.subscribe());
            let Some(mut changes) = changes else { return };
            // An error means that the run was removed.
            let _ = changes.changed().await;
        }
    }

    /// Returns a run as a task, or its result if it has ended at this moment.
    fn as_task(&self, id: &str) -> Result<Begun, ErrorData> {
        let mut all = self.all.lock();
        let entry = all.get_mut(id).ok_or_else(unknown)?;
        if matches!(entry.state, State::Working) {
            entry.is_known = true;
            return Ok(Begun::Task(CreateTaskResult::new(entry.now())));
        }
        let ended = all.remove(id).ok_or_else(unknown)?;
        drop(all);
        done(ended)
    }

    /// Runs the work until it ends, or until its caller ends, its time is over, or the server ends. Removes the task when the time of the
    /// task is over. Ends when somebody else has removed the task, so that nothing is left of a run that was answered.
    async fn drive(&self, id: &str, owner: Owner, run: Run, removed: CancellationToken) {
        let Run { mut work, stop, mut questions } = run;
        let over = tokio::time::sleep(self.times.life);
        tokio::pin!(over);
        let is_over = async {
            tokio::select! {
                () = &mut over => {}
                () = owner.ended.cancelled() => {}
                () = self.closed.cancelled() => {}
                () = removed.cancelled() => {}
            }
        };
        tokio::pin!(is_over);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut work => break Some(outcome),
                () = &mut is_over => break None,
                Some(question) = questions.recv() => self.ask(id, question),
            }
        };
        // Dropping the work ends its run.
        drop((work, questions));
        match outcome {
            Some(outcome) => {
                self.settle(id, outcome, stop.reason() == Some(StopReason::Aborted));
                drop(stop);
                is_over.await;
            }
            None => stop.stop(StopReason::Closed),
        }
        let ended = self.all.lock().remove(id);
        drop(ended);
    }

    /// Arranges that a run whose request is gone is removed when it has ended, because no client could ask for its result.
    fn abandon(&self, id: &str) {
        let mut all = self.all.lock();
        let Some(entry) = all.get_mut(id) else { return };
        entry.is_abandoned = true;
        let ended = if matches!(entry.state, State::Working) { None } else { all.remove(id) };
        drop(all);
        drop(ended);
    }

    fn ask(&self, id: &str, question: Question) {
        let mut all = self.all.lock();
        let Some(entry) = all.get_mut(id).filter(|entry| entry.questions.len() < MAX_QUESTIONS) else { return };
        entry.asked += 1;
        let Question { request, answer, held } = question;
        entry.questions.insert(entry.asked, OpenQuestion { request: Arc::new(request), answer, held });
        entry.touch();
    }

    fn settle(&self, id: &str, outcome: Result<Json, ErrorData>, was_stopped: bool) {
        let is_long = outcome.as_ref().is_ok_and(|answer| takes_more_than(answer, MAX_BYTES_AT_ONCE));
        let ended = || match outcome {
            Ok(answer) => measured(TaskPayload::Completed { result: object(json!(answers::result(answer))) }),
            Err(_) if was_stopped => measured(TaskPayload::Cancelled),
            Err(error) => measured(TaskPayload::Failed { error: object(json!(error)) }),
        };
        let (payload, bytes) = if is_long { off_the_runtime(ended) } else { ended() };
        let mut all = self.all.lock();
        if all.get(id).is_some_and(|entry| entry.is_abandoned) {
            let abandoned = all.remove(id);
            drop(all);
            return drop((abandoned, payload));
        }
        let (refusal, removed) = no_room(&mut all, id, bytes);
        let Some(entry) = all.get_mut(id) else { return };
        let mut refused = None;
        (entry.state, entry.bytes) = match refusal {
            None => (State::Ended(Arc::new(payload)), bytes),
            Some(error) => {
                refused = Some(payload);
                (State::Ended(Arc::new(TaskPayload::Failed { error: object(json!(answers::refused(&error))) })), 0)
            }
        };
        let unanswered = std::mem::take(&mut entry.questions);
        entry.held.clear();
        entry.touch();
        drop(all);
        drop((unanswered, removed, refused));
    }

    /// Returns a task of this caller. Nothing large is copied while the tasks are locked.
    ///
    /// # Errors
    /// Invalid params if this caller has no such task.
    pub(super) fn get(&self, caller: &str, id: &str) -> Result<TaskView, ErrorData> {
        self.with(caller, id, |entry| entry.view())
    }

    /// Records that the caller of a task gets its result.
    pub(super) fn told(&self, id: &str) {
        if let Some(entry) = self.all.lock().get_mut(id) {
            entry.is_told = true;
        }
    }

    /// Passes answers to the questions of a task. Answers to unknown questions are ignored.
    ///
    /// # Errors
    /// See [`Tasks::get`].
    pub(super) fn answer(&self, caller: &str, id: &str, responses: InputResponses, held: HeldArguments) -> Result<(), ErrorData> {
        let answered = self.with(caller, id, |entry| {
            let of_key = |(key, response): (String, Json)| Some((entry.questions.remove(&number(&key)?)?.answer, response));
            let answered: Vec<_> = responses.into_iter().filter_map(of_key).collect();
            if !answered.is_empty() && matches!(entry.state, State::Working) {
                entry.held.push(held);
            }
            entry.touch();
            answered
        })?;
        for (answer, response) in answered {
            // The run may have ended in the meantime.
            let _ = answer.send(response);
        }
        Ok(())
    }

    /// Ends the run of a task. The task becomes `cancelled` when the run has ended.
    ///
    /// # Errors
    /// See [`Tasks::get`].
    pub(super) fn cancel(&self, caller: &str, id: &str) -> Result<(), ErrorData> {
        let (stop, unanswered) = self.with(caller, id, |entry| (entry.stop.clone(), std::mem::take(&mut entry.questions)))?;
        stop.stop(StopReason::Aborted);
        drop(unanswered);
        Ok(())
    }

    fn with<T>(&self, caller: &str, id: &str, work: impl FnOnce(&mut Entry) -> T) -> Result<T, ErrorData> {
        let mut all = self.all.lock();
        all.get_mut(id).filter(|entry| entry.owner.key == caller).map(work).ok_or_else(unknown)
    }
}

/// Makes room for the result of a task by removing other tasks of its caller whose result the caller has seen. Returns the reason if there
/// is no room, and the removed tasks. The result of a run that no client knows as a task needs no room, because it is sent at once.
fn no_room(all: &mut HashMap<String, Entry>, id: &str, bytes: usize) -> (Option<Error>, Vec<Entry>) {
    let Some(owner) = all.get(id).filter(|entry| entry.is_known).map(|entry| entry.owner.key.clone()) else { return (None, Vec::new()) };
    if full_of_results(all, &owner, bytes).is_none() {
        return (None, Vec::new());
    }
    let removed = remove_told(all, &owner);
    (full_of_results(all, &owner, bytes), removed)
}

/// Removes the tasks of a caller whose result the caller has seen. They are dropped after the lock is released, because they may be large.
fn remove_told(all: &mut HashMap<String, Entry>, owner: &str) -> Vec<Entry> {
    all.extract_if(|_, entry| entry.is_told && entry.owner.key == owner).map(|(_, entry)| entry).collect()
}

/// Returns the limit that results of `bytes` more bytes would exceed.
fn full_of_results(all: &HashMap<String, Entry>, owner: &str, bytes: usize) -> Option<Error> {
    let mut of_all = bytes;
    let mut of_caller = bytes;
    for entry in all.values() {
        of_all = of_all.saturating_add(entry.bytes);
        if entry.owner.key == owner {
            of_caller = of_caller.saturating_add(entry.bytes);
        }
    }
    if of_caller > MAX_BYTES_OF_CALLER {
        return Some(Error::Busy {
            what: "bytes of results that this caller's tasks keep (tasks/get frees them)",
            limit: MAX_BYTES_OF_CALLER,
        });
    }
    let most = if of_caller > LEAST_BYTES_OF_CALLER { MAX_BYTES_OF_ALL - RESERVED_BYTES } else { MAX_BYTES_OF_ALL };
    let busy = || Error::Busy {
        what: "bytes of results that all tasks keep (the limit can be reached up to a quarter earlier)",
        limit: MAX_BYTES_OF_ALL,
    };
    (of_all > most).then(busy)
}

/// Returns a payload with its memory in bytes.
fn measured(payload: TaskPayload) -> (TaskPayload, usize) {
    let bytes = match &payload {
        TaskPayload::Completed { result } => result.values().map(memory_bytes).sum(),
        TaskPayload::Failed { error } => error.values().map(memory_bytes).sum(),
        _ => 0,
    };
    (payload, bytes)
}

/// Ends a run when it is dropped, and leaves nothing of it.
struct EndsRun {
    tasks: Tasks,
    id: String,
    /// `None` once the client gets the result or the task.
    stop: Option<Stop>,
}

impl Drop for EndsRun {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            self.tasks.abandon(&self.id);
            stop.stop(StopReason::Aborted);
        }
    }
}

/// Returns the result of a run that no client knows as a task.
fn done(ended: Entry) -> Result<Begun, ErrorData> {
    ended.prompt().map(|(result, bytes)| Begun::Done { result, bytes })
}

fn number(key: &str) -> Option<u64> {
    key.strip_prefix('q')?.parse().ok()
}

fn object(json: Json) -> JsonObject {
    if let Json::Object(object) = json { object } else { JsonObject::new() }
}

fn unknown() -> ErrorData {
    let problem = "no such task: tasks are removed 30 minutes after their start, and exist only in the process and for the caller that started \
                   them";
    answers::refused(&Error::UnknownCall { field: "taskId", problem })
}

#[cfg(test)]
#[path = "tasks_tests.rs"]
mod tests;
