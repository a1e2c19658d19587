//! Calls that wait for answers of their client, since protocol 2026-07-28.
//!
//! A question ends the client's request with `input_required`. The call itself is kept here, under a signed `requestState`, until the
//! client repeats its request with the answers. If the client sends such a request twice, the call is not continued twice: both requests
//! get the same result. Only the result of the last such request is kept.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{InputRequests, InputRequiredResult, InputResponses, RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::answers::{data, refused};
use super::asking::Question;
use super::call_ids::{next_number, random_id};
use super::held_arguments::HeldArguments;
use super::http::Owner;
use super::large_answers::bytes_of;
use super::listeners::SentEvents;
use crate::caller_memory::HeldMemory;
use crate::error::Error;
use crate::sandbox::{Stop, StopReason};

/// The maximum time for which a call waits for its client after each of its questions.
const PATIENCE: Duration = Duration::from_mins(10);
/// The maximum number of waiting calls. If there are more, the oldest call of the caller with the most calls ends, so that no caller can
/// end another caller's calls.
const MAX_CALLS: usize = 256;

/// The result of one round. A round runs until the call ends or asks a question. All requests of a round share it, because it may be large.
pub(super) type Round = Result<Arc<Outcome>, ErrorData>;

#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) step: Step,
    /// The memory of the step in bytes.
    pub(super) bytes: usize,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Done(Json),
    Ask(InputRequiredResult),
}

/// The work of a call. It sends its questions to a channel.
pub(super) type Work = BoxFuture<'static, Result<Json, ErrorData>>;
type SharedRound = Shared<BoxFuture<'static, Round>>;

/// The content of a `requestState`. The client sends it back.
#[derive(Serialize, Deserialize)]
struct State {
    /// The random id of the call. It reveals nothing about the calls of others.
    call: String,
    round: usize,
}

/// A call that has asked at least one question.
struct Call {
    /// Increases with each call that is kept. The client does not see it.
    order: u64,
    owner: Owner,
    /// The number of rounds that answers of the client have begun.
    rounds: usize,
    /// The last of these rounds.
    last: Option<SharedRound>,
    stop: Stop,
    events: Option<SentEvents>,
    state: CallState,
}

/// The state of a call that has asked a question.
enum CallState {
    /// A round of the call is running.
    Running,
    /// The call has been waiting for its client's answers since this time.
    Paused { paused: Paused, since: Instant },
}

struct Paused {
    owner: Owner,
    work: Work,
    /// The stop signal of the call. The call ends when it is triggered.
    stop: Stop,
    events: Option<SentEvents>,
    questions: mpsc::Receiver<Question>,
    answers: HashMap<String, oneshot::Sender<Json>>,
    /// The memory that is reserved for the questions that wait for an answer.
    asked: Vec<HeldMemory>,
    /// The memory that is reserved for the answers that the call has received. The call may use the answers until it ends.
    held: Vec<HeldArguments>,
}

/// The answers of a client to the questions of a round, with their memory reserved.
pub(super) struct Answers {
    pub(super) responses: InputResponses,
    pub(super) held: Option<HeldArguments>,
}

impl Outcome {
    pub(super) fn done(answer: Json) -> Arc<Self> {
        let bytes = bytes_of(&answer);
        Arc::new(Self { step: Step::Done(answer), bytes })
    }
}

type Calls = Arc<Mutex<HashMap<String, Call>>>;
type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

pub(super) struct PausedCalls {
    codec: RequestStateCodec,
    calls: Calls,
    now: Clock,
    /// Cancelled to end all calls.
    closed: CancellationToken,
}

impl PausedCalls {
    pub(super) fn new(key: &[u8; 32], closed: &CancellationToken) -> Self {
        Self { codec: RequestStateCodec::new(key.to_vec()), calls: Calls::default(), now: Arc::new(Instant::now), closed: closed.clone() }
    }

    /// Starts a call for an owner. The call ends when its owner ends. `stop` is the stop signal of the call. `events` are sent to the
    /// call's client. Each later round must repeat `bound`: the caller, the method and its parameters.
    pub(super) fn begin(
        &self,
        owner: Owner,
        work: Work,
        (stop, events): (Stop, Option<SentEvents>),
        questions: mpsc::Receiver<Question>,
        bound: Vec<u8>,
    ) -> impl Future<Output = Round> + Send + use<> {
        let paused = Paused { owner, work, stop, events, questions, answers: HashMap::new(), asked: Vec::new(), held: Vec::new() };
        self.round(random_id(), 0, paused, bound)
    }

    /// Continues a call with its client's answers. `to_this_request` redirects the events of the call to the present request. Returns the
    /// next round, and the stop signal of the call.
    ///
    /// # Errors
    /// Invalid params for a state that this process has not issued, that belongs to another request, or that has expired.
    pub(super) fn resume(
        &self,
        state: &str,
        answers: Answers,
        bound: Vec<u8>,
        to_this_request: impl FnOnce(&SentEvents),
    ) -> Result<(SharedRound, Stop), ErrorData> {
        let State { call, round } = self.codec.open_json_with(state, &bound).map_err(|_| unknown())?;
        let mut calls = self.calls.lock();
        let known = calls.get_mut(&call).ok_or_else(unknown)?;
        if let Some(events) = &known.events {
            to_this_request(events);
        }
        if let Some(same) = known.last.as_ref().filter(|_| round + 1 == known.rounds) {
            return Ok((same.clone(), known.stop.clone()));
        }
        if round < known.rounds {
            return Err(superseded());
        }
        if round > known.rounds || known.owner.ended.is_cancelled() {
            return Err(unknown());
        }
        let CallState::Paused { mut paused, .. } = std::mem::replace(&mut known.state, CallState::Running) else { return Err(unknown()) };
        let Answers { mut responses, held } = answers;
        for (key, answer) in paused.answers.drain() {
            // A question without an answer is cancelled, because its sender is dropped.
            if let Some(response) = responses.remove(&key) {
                let _ = answer.send(response);
            }
        }
        paused.asked.clear();
        paused.held.extend(held);
        // The round runs in a separate task. So it continues to its end or to the next question, even if no request waits for it.
        let running = tokio::spawn(self.round(call, round + 1, paused, bound));
        let failed = |error: tokio::task::JoinError| Err(ErrorData::internal_error(error.to_string(), Some(data("ERR_INTERNAL"))));
        let next = running.map(move |done| done.unwrap_or_else(failed)).boxed().shared();
        known.rounds += 1;
        let before = known.last.replace(next.clone());
        let stop = known.stop.clone();
        drop(calls);
        drop(before);
        Ok((next, stop))
    }

    /// Runs a call until it ends or asks a question, or until its owner or the server ends.
    fn round(&self, call: String, round: usize, paused: Paused, bound: Vec<u8>) -> impl Future<Output = Round> + Send + use<> {
        let (calls, codec, now, closed) = (Arc::clone(&self.calls), self.codec.clone(), Arc::clone(&self.now), self.closed.clone());
        async move {
            let Paused { owner, mut work, stop, events, mut questions, answers: _, asked: _, held } = paused;
            let first = tokio::select! {
                biased;
                outcome = &mut work => {
                    let ended = calls.lock().remove(&call);
                    drop(ended);
                    return outcome.map(Outcome::done);
                }
                () = owner.ended.cancelled() => None,
                () = closed.cancelled() => None,
                Some(question) = questions.recv() => Some(question),
            };
            let Some(first) = first else {
                stop.stop(StopReason::Closed);
                let ended = calls.lock().remove(&call);
                drop(ended);
                return Err(unknown());
            };
            let (mut requests, mut answers, mut asked) = (InputRequests::new(), HashMap::new(), Vec::new());
            let mut next = Some(first);
            while let Some(Question { request, answer, held }) = next {
                let key = format!("q{}", requests.len() + 1);
                requests.insert(key.clone(), request);
                answers.insert(key, answer);
                asked.push(held);
                next = questions.try_recv().ok();
            }
            let state = codec
                .seal_json_with(&State { call: call.clone(), round }, &SealOptions::new().associated_data(&bound).ttl(PATIENCE))
                .map_err(|error| ErrorData::internal_error(error.to_string(), Some(data("ERR_INTERNAL"))))?;
            let bytes = asked.iter().map(HeldMemory::bytes).sum();
            keep(&calls, &call, round, Paused { owner, work, stop, events, questions, answers, asked, held }, now())?;
            Ok(Arc::new(Outcome { step: Step::Ask(InputRequiredResult::new(Some(requests), Some(state))), bytes }))
        }
    }

    /// Ends the calls that have waited for [`PATIENCE`] since their last question, and those whose owner has ended.
    pub(super) fn end_left(&self) {
        let now = (self.now)();
        let is_over = |call: &Call| {
            let waits_too_long = |since: Instant| now.saturating_duration_since(since) >= PATIENCE;
            call.owner.ended.is_cancelled() || matches!(&call.state, CallState::Paused { since, .. } if waits_too_long(*since))
        };
        self.end(is_over);
    }

    /// Ends all calls.
    pub(super) fn clear(&self) {
        self.end(|_| true);
    }

    fn end(&self, is_over: impl Fn(&Call) -> bool) {
        let mut calls = self.calls.lock();
        let over: Vec<String> = calls.iter().filter(|(_, call)| is_over(call)).map(|(id, _)| id.clone()).collect();
        let ended: Vec<_> = over.iter().filter_map(|id| calls.remove(id)).collect();
        // The calls are dropped after the lock is released, because dropping a call ends its run.
        drop(calls);
        for call in &ended {
            call.stop.stop(StopReason::Closed);
        }
        drop(ended);
    }
}

fn unknown() -> ErrorData {
    let problem = "this call is not known here. It was begun by another process, has ended, or waited for more than 10 minutes: start the call again, without a requestState";
    refused(&Error::UnknownCall { field: "requestState", problem })
}

fn superseded() -> ErrorData {
    let problem = "this call has asked other questions since then: answer those, with their requestState";
    refused(&Error::UnknownCall { field: "requestState", problem })
}

/// Stores a call until its client continues it. Ends the call if it was removed while its round ran.
fn keep(calls: &Calls, call: &str, round: usize, paused: Paused, now: Instant) -> Result<(), ErrorData> {
    let mut all = calls.lock();
    if let Some(known) = all.get_mut(call) {
        known.state = CallState::Paused { paused, since: now };
        return Ok(());
    }
    if round > 0 {
        drop(all);
        paused.stop.stop(StopReason::Closed);
        return Err(unknown());
    }
    let kept = Call {
        order: next_number(),
        owner: paused.owner.clone(),
        stop: paused.stop.clone(),
        events: paused.events.clone(),
        rounds: 0,
        last: None,
        state: CallState::Paused { paused, since: now },
    };
    all.insert(call.to_owned(), kept);
    let surplus = (all.len() > MAX_CALLS).then(|| surplus(&all)).flatten();
    // The call is dropped after the lock is released, because dropping it ends its run.
    let ended = surplus.and_then(|surplus| all.remove(&surplus));
    drop(all);
    // Dropping a call whose round is running does not end the call, because the round runs in its own task.
    if let Some(ended) = ended {
        ended.stop.stop(StopReason::Closed);
    }
    Ok(())
}

/// Returns the oldest call of the caller with the most calls.
fn surplus(calls: &HashMap<String, Call>) -> Option<String> {
    let mut of_callers = BTreeMap::<&str, Vec<(u64, &String)>>::new();
    for (id, call) in calls {
        of_callers.entry(call.owner.key.as_str()).or_default().push((call.order, id));
    }
    of_callers.into_values().max_by_key(Vec::len)?.into_iter().min().map(|(_, id)| id.clone())
}

/// Pins work so that it can be moved between rounds.
pub(super) fn work(future: impl Future<Output = Result<Json, ErrorData>> + Send + 'static) -> Work {
    future.boxed()
}

#[cfg(test)]
#[path = "paused_calls_tests.rs"]
mod tests;
