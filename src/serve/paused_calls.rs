//! Calls that wait for an answer of their client, since protocol 2026-07-28.
//!
//! A question ends the client's request with `input_required`. The call itself goes on waiting here, under a signed `requestState`, until the client
//! sends its request again with the answers. A request that is sent twice runs nothing twice: both get what follows from the same answers.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{InputRequests, InputRequiredResult, InputResponses, RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use super::asking::Question;
use crate::sandbox::Stop;

/// The time for which a call waits for its client.
const PATIENCE: Duration = Duration::from_mins(10);
/// Calls that wait at once. Beyond, the oldest call of the caller with the most calls has to go, so that no caller can end the calls of another.
const MAX_CALLS: usize = 256;

/// The outcome of one round: the result, or the questions before it.
pub(super) type Round = Result<Step, ErrorData>;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Done(Json),
    Ask(InputRequiredResult),
}

/// The work of a call, which puts its questions into a channel.
pub(super) type Work = BoxFuture<'static, Result<Json, ErrorData>>;
type SharedRound = Shared<BoxFuture<'static, Round>>;

/// The content of a `requestState`, which the client sends back.
#[derive(Serialize, Deserialize)]
struct State {
    call: u64,
    round: usize,
}

/// A call between two rounds, and the rounds that it had.
struct Call {
    caller: String,
    rounds: Vec<SharedRound>,
    stop: Stop,
    /// Taken by the round that goes on with it.
    paused: Arc<Mutex<Option<Paused>>>,
    /// Ends the call where nobody comes back.
    _expiry: tokio_util::sync::DropGuard,
}

struct Paused {
    caller: String,
    work: Work,
    /// Ends the call from outside.
    stop: Stop,
    questions: mpsc::Receiver<Question>,
    answers: HashMap<String, oneshot::Sender<Json>>,
}

pub(super) struct PausedCalls {
    codec: RequestStateCodec,
    calls: Arc<Mutex<HashMap<u64, Call>>>,
    next: AtomicU64,
}

impl PausedCalls {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { codec: RequestStateCodec::new(key.to_vec()), calls: Arc::default(), next: AtomicU64::new(1) }
    }

    /// Begins a call of a caller. `stop` ends it from outside. `bound` is what a later round of it must repeat: the client, the method and its parameters.
    pub(super) fn begin(
        &self,
        caller: String,
        work: Work,
        stop: Stop,
        questions: mpsc::Receiver<Question>,
        bound: Vec<u8>,
    ) -> impl Future<Output = Round> + Send + use<> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        self.round(call, 0, Paused { caller, work, stop, questions, answers: HashMap::new() }, bound)
    }

    /// Goes on with a call whose client has sent its answers. Returns the round, and the way to end the call.
    ///
    /// # Errors
    /// Invalid params for a state that is not ours, is not of this request, has expired, or belongs to another process.
    pub(super) fn resume(&self, state: &str, responses: &InputResponses, bound: Vec<u8>) -> Result<(SharedRound, Stop), ErrorData> {
        let unknown = || {
            ErrorData::invalid_params(
                "requestState: this call is not known here. It was begun by another process, has ended, or waited for more than 10 minutes: call again without it",
                None,
            )
        };
        let State { call, round } = self.codec.open_json_with(state, &bound).map_err(|_| unknown())?;
        let mut calls = self.calls.lock();
        let known = calls.get_mut(&call).ok_or_else(unknown)?;
        if let Some(same) = known.rounds.get(round) {
            return Ok((same.clone(), known.stop.clone()));
        }
        if round != known.rounds.len() {
            return Err(unknown());
        }
        let mut paused = known.paused.lock().take().ok_or_else(unknown)?;
        for (key, answer) in paused.answers.drain() {
            // A question without an answer is cancelled by its sender's end.
            if let Some(response) = responses.get(&key) {
                let _ = answer.send(response.clone());
            }
        }
        let next = self.round(call, round + 1, paused, bound).boxed().shared();
        known.rounds.push(next.clone());
        Ok((next, known.stop.clone()))
    }

    /// Runs a call until it has ended, or asks.
    fn round(&self, call: u64, round: usize, paused: Paused, bound: Vec<u8>) -> impl Future<Output = Round> + Send + use<> {
        let (calls, codec) = (Arc::clone(&self.calls), self.codec.clone());
        async move {
            let Paused { caller, mut work, stop, mut questions, .. } = paused;
            let first = tokio::select! {
                biased;
                outcome = &mut work => {
                    let ended = calls.lock().remove(&call);
                    drop(ended);
                    return outcome.map(Step::Done);
                }
                Some(question) = questions.recv() => question,
            };
            let (mut requests, mut answers) = (InputRequests::new(), HashMap::new());
            let mut next = Some(first);
            while let Some(Question { request, answer }) = next {
                let key = format!("q{}", requests.len() + 1);
                requests.insert(key.clone(), request);
                answers.insert(key, answer);
                next = questions.try_recv().ok();
            }
            let state = codec
                .seal_json_with(&State { call, round }, &SealOptions::new().associated_data(&bound).ttl(PATIENCE))
                .map_err(|error| ErrorData::internal_error(error.to_string(), Some(json!({ "code": "ERR_INTERNAL" }))))?;
            keep(&calls, call, Paused { caller, work, stop, questions, answers });
            Ok(Step::Ask(InputRequiredResult::new(Some(requests), Some(state))))
        }
    }
}

/// Keeps a call until its client comes back, for at most [`PATIENCE`].
fn keep(calls: &Arc<Mutex<HashMap<u64, Call>>>, call: u64, paused: Paused) {
    let mut all = calls.lock();
    if let Some(known) = all.get_mut(&call) {
        *known.paused.lock() = Some(paused);
        return;
    }
    let expiry = tokio_util::sync::CancellationToken::new();
    let (ended, weak) = (expiry.clone(), Arc::downgrade(calls));
    tokio::spawn(async move {
        tokio::select! {
            () = ended.cancelled() => {}
            () = tokio::time::sleep(PATIENCE) => {
                if let Some(calls) = weak.upgrade() {
                    // Dropped outside of the lock: with it ends its run.
                    let expired = calls.lock().remove(&call);
                    drop(expired);
                }
            }
        }
    });
    let kept = Call {
        caller: paused.caller.clone(),
        stop: paused.stop.clone(),
        rounds: Vec::new(),
        paused: Arc::new(Mutex::new(Some(paused))),
        _expiry: expiry.drop_guard(),
    };
    all.insert(call, kept);
    let surplus = (all.len() > MAX_CALLS).then(|| surplus(&all)).flatten();
    // Dropped outside of the lock: with it ends its run.
    let ended = surplus.and_then(|surplus| all.remove(&surplus));
    drop(all);
    drop(ended);
}

/// Returns the oldest call of the caller that has the most calls.
fn surplus(calls: &HashMap<u64, Call>) -> Option<u64> {
    let mut of_callers = BTreeMap::<&str, Vec<u64>>::new();
    for (number, call) in calls {
        of_callers.entry(call.caller.as_str()).or_default().push(*number);
    }
    of_callers.into_values().max_by_key(Vec::len)?.into_iter().min()
}

/// Pins work so that it can be moved between rounds.
pub(super) fn work(future: impl Future<Output = Result<Json, ErrorData>> + Send + 'static) -> Work {
    let pinned: Pin<Box<dyn Future<Output = Result<Json, ErrorData>> + Send>> = Box::pin(future);
    pinned
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use rmcp::model::{ElicitRequest, InputRequest};

    use super::*;

    fn asks() -> InputRequest {
        let form = json!({ "mode": "form", "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
        InputRequest::Elicitation(ElicitRequest::new(serde_json::from_value(form).unwrap()))
    }

    /// A call that asks twice, counts how often it gets that far, and gives both answers.
    fn call(waiting: &PausedCalls, count: &Arc<AtomicUsize>, bound: &[u8]) -> impl Future<Output = Round> + use<> {
        call_of("", waiting, count, bound)
    }

    fn call_of(caller: &str, waiting: &PausedCalls, count: &Arc<AtomicUsize>, bound: &[u8]) -> impl Future<Output = Round> + use<> {
        let (sender, questions) = mpsc::channel(4);
        let count = Arc::clone(count);
        let work = work(async move {
            let mut answers = Vec::new();
            for _ in 0..2 {
                let (answer, answered) = oneshot::channel();
                let _ = sender.send(Question { request: asks(), answer }).await;
                answers.push(answered.await.unwrap_or_default());
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(json!(answers))
        });
        waiting.begin(caller.to_owned(), work, Stop::new(), questions, bound.to_vec())
    }

    fn state(step: Round) -> String {
        let Ok(Step::Ask(asked)) = step else { panic!("it does not ask: {step:?}") };
        assert_eq!(asked.input_requests.unwrap().len(), 1);
        asked.request_state.unwrap()
    }

    fn answer(text: &str) -> InputResponses {
        InputResponses::from([("q1".to_owned(), json!(text))])
    }

    #[tokio::test]
    async fn a_call_goes_on_with_each_answer_and_a_request_that_is_repeated_runs_nothing_twice() {
        let (waiting, count) = (PausedCalls::new(&[7; 32]), Arc::default());
        let first = state(call(&waiting, &count, b"ours").await);
        let round = waiting.resume(&first, &answer("a"), b"ours".to_vec()).unwrap().0;
        let again = waiting.resume(&first, &answer("another"), b"ours".to_vec()).unwrap().0;
        let (second, same) = tokio::join!(round, again);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let second = state(second);
        assert_eq!(second, state(same));
        let Ok(Step::Done(given)) = waiting.resume(&second, &answer("b"), b"ours".to_vec()).unwrap().0.await else { panic!("not done") };
        assert_eq!(given, json!(["a", "b"]));
        assert!(waiting.calls.lock().is_empty());
        assert!(waiting.resume(&second, &answer("b"), b"ours".to_vec()).is_err());
    }

    #[tokio::test]
    async fn a_state_holds_for_its_own_request_and_process_alone() {
        let (waiting, other, count) = (PausedCalls::new(&[7; 32]), PausedCalls::new(&[8; 32]), Arc::default());
        let known = state(call(&waiting, &count, b"ours").await);
        assert!(waiting.resume(&known, &answer("a"), b"of another".to_vec()).is_err());
        assert!(other.resume(&known, &answer("a"), b"ours".to_vec()).is_err());
        assert!(waiting.resume("nonsense", &answer("a"), b"ours".to_vec()).is_err());
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert!(waiting.resume(&known, &answer("a"), b"ours".to_vec()).is_ok());
    }

    #[tokio::test]
    async fn a_caller_with_many_calls_ends_none_of_another() {
        let (waiting, count) = (PausedCalls::new(&[7; 32]), Arc::default());
        let of_another = state(call_of("quiet", &waiting, &count, b"ours").await);
        let first = state(call_of("loud", &waiting, &count, b"ours").await);
        for _ in 0..MAX_CALLS {
            state(call_of("loud", &waiting, &count, b"ours").await);
        }
        assert_eq!(waiting.calls.lock().len(), MAX_CALLS);
        assert!(waiting.resume(&first, &answer("a"), b"ours".to_vec()).is_err());
        assert!(waiting.resume(&of_another, &answer("a"), b"ours".to_vec()).is_ok());
    }
}
