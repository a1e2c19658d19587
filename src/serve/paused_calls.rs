//! Calls that wait for answers of their client, since protocol 2026-07-28.
//!
//! A question ends the client's request with `input_required`. The call itself is kept here, under a signed `requestState`, until the
//! client repeats its request with the answers. If the client sends such a request twice, the call is not continued twice: both requests
//! get the same result.

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
use super::listeners::SentEvents;
use crate::error::Error;
use crate::sandbox::{Stop, StopReason};

/// The maximum time for which a call waits for its client after each of its questions.
const PATIENCE: Duration = Duration::from_mins(10);
/// The maximum number of waiting calls. If there are more, the oldest call of the caller with the most calls ends, so that no caller can
/// end another caller's calls.
const MAX_CALLS: usize = 256;

/// The result of one round. A round runs until the call ends or asks a question.
pub(super) type Round = Result<Step, ErrorData>;

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

/// A call that has asked at least one question, with its rounds since then.
struct Call {
    /// Increases with each call that is kept. The client does not see it.
    order: u64,
    owner: Owner,
    rounds: Vec<SharedRound>,
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
    /// The memory that is reserved for the answers that the call has received. The call may use the answers until it ends.
    held: Vec<HeldArguments>,
}

/// The answers of a client to the questions of a round, with their memory reserved.
pub(super) struct Answers {
    pub(super) responses: InputResponses,
    pub(super) held: Option<HeldArguments>,
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
        let paused = Paused { owner, work, stop, events, questions, answers: HashMap::new(), held: Vec::new() };
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
        if let Some(same) = known.rounds.get(round) {
            return Ok((same.clone(), known.stop.clone()));
        }
        if round != known.rounds.len() || known.owner.ended.is_cancelled() {
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
        paused.held.extend(held);
        // The round runs in a separate task. So it continues to its end or to the next question, even if no request waits for it.
        let running = tokio::spawn(self.round(call, round + 1, paused, bound));
        let failed = |error: tokio::task::JoinError| Err(ErrorData::internal_error(error.to_string(), Some(data("ERR_INTERNAL"))));
        let next = running.map(move |done| done.unwrap_or_else(failed)).boxed().shared();
        known.rounds.push(next.clone());
        Ok((next, known.stop.clone()))
    }

    /// Runs a call until it ends or asks a question, or until its owner or the server ends.
    fn round(&self, call: String, round: usize, paused: Paused, bound: Vec<u8>) -> impl Future<Output = Round> + Send + use<> {
        let (calls, codec, now, closed) = (Arc::clone(&self.calls), self.codec.clone(), Arc::clone(&self.now), self.closed.clone());
        async move {
            let Paused { owner, mut work, stop, events, mut questions, answers: _, held } = paused;
            let first = tokio::select! {
                biased;
                outcome = &mut work => {
                    let ended = calls.lock().remove(&call);
                    drop(ended);
                    return outcome.map(Step::Done);
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
            let (mut requests, mut answers) = (InputRequests::new(), HashMap::new());
            let mut next = Some(first);
            while let Some(Question { request, answer }) = next {
                let key = format!("q{}", requests.len() + 1);
                requests.insert(key.clone(), request);
                answers.insert(key, answer);
                next = questions.try_recv().ok();
            }
            let state = codec
                .seal_json_with(&State { call: call.clone(), round }, &SealOptions::new().associated_data(&bound).ttl(PATIENCE))
                .map_err(|error| ErrorData::internal_error(error.to_string(), Some(data("ERR_INTERNAL"))))?;
            keep(&calls, &call, round, Paused { owner, work, stop, events, questions, answers, held }, now())?;
            Ok(Step::Ask(InputRequiredResult::new(Some(requests), Some(state))))
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
        rounds: Vec::new(),
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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rmcp::model::{ElicitRequest, InputRequest};
    use serde_json::json;

    use super::super::held_arguments::ArgumentMemory;
    use super::*;

    fn asks() -> InputRequest {
        let form = json!({ "mode": "form", "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
        InputRequest::Elicitation(ElicitRequest::new(serde_json::from_value(form).unwrap()))
    }

    /// Starts a call that asks two questions, increments `count` after each answer, and returns both answers.
    fn call(waiting: &PausedCalls, count: &Arc<AtomicUsize>, bound: &[u8]) -> impl Future<Output = Round> + use<> {
        call_of("", waiting, count, bound)
    }

    fn owner(caller: &str) -> Owner {
        Owner { key: caller.to_owned(), ended: Arc::default() }
    }

    fn paused_calls(key: u8) -> PausedCalls {
        PausedCalls::new(&[key; 32], &CancellationToken::new())
    }

    fn call_of(caller: &str, waiting: &PausedCalls, count: &Arc<AtomicUsize>, bound: &[u8]) -> impl Future<Output = Round> + use<> {
        call_by(owner(caller), waiting, count, bound)
    }

    fn call_by(owner: Owner, waiting: &PausedCalls, count: &Arc<AtomicUsize>, bound: &[u8]) -> impl Future<Output = Round> + use<> {
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
        waiting.begin(owner, work, (Stop::new(), None), questions, bound.to_vec())
    }

    fn state(step: Round) -> String {
        let Ok(Step::Ask(asked)) = step else { panic!("it does not ask: {step:?}") };
        assert_eq!(asked.input_requests.unwrap().len(), 1);
        asked.request_state.unwrap()
    }

    fn answer(text: &str) -> Answers {
        Answers { responses: InputResponses::from([("q1".to_owned(), json!(text))]), held: None }
    }

    #[tokio::test]
    async fn a_call_goes_on_with_each_answer_and_a_request_that_is_repeated_runs_nothing_twice() {
        let (waiting, count) = (paused_calls(7), Arc::default());
        let first = state(call(&waiting, &count, b"ours").await);
        let round = waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0;
        let again = waiting.resume(&first, answer("another"), b"ours".to_vec(), |_| {}).unwrap().0;
        let (second, same) = tokio::join!(round, again);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let second = state(second);
        assert_eq!(second, state(same));
        let Ok(Step::Done(given)) = waiting.resume(&second, answer("b"), b"ours".to_vec(), |_| {}).unwrap().0.await else {
            panic!("not done")
        };
        assert_eq!(given, json!(["a", "b"]));
        assert!(waiting.calls.lock().is_empty());
        assert!(waiting.resume(&second, answer("b"), b"ours".to_vec(), |_| {}).is_err());
    }

    #[tokio::test]
    async fn answers_count_against_the_limits_of_their_caller_until_the_call_ends() {
        let (waiting, count, memory) = (paused_calls(7), Arc::default(), ArgumentMemory::default());
        let answers = |text: &str| Answers { held: Some(memory.hold("one", &json!(text)).unwrap()), ..answer(text) };
        let first = state(call(&waiting, &count, b"ours").await);
        let second = state(waiting.resume(&first, answers("a"), b"ours".to_vec(), |_| {}).unwrap().0.await);
        assert!(!memory.is_free(), "the call has its answer");
        let repeated = waiting.resume(&first, answers("a"), b"ours".to_vec(), |_| {}).unwrap().0;
        assert_eq!(state(repeated.await), second);
        let done = waiting.resume(&second, answers("b"), b"ours".to_vec(), |_| {}).unwrap().0.await;
        assert!(matches!(done, Ok(Step::Done(_))) && memory.is_free());
    }

    #[tokio::test]
    async fn a_state_holds_for_its_own_request_and_process_alone() {
        let (waiting, other, count) = (paused_calls(7), paused_calls(8), Arc::default());
        let known = state(call(&waiting, &count, b"ours").await);
        assert!(waiting.resume(&known, answer("a"), b"of another".to_vec(), |_| {}).is_err());
        assert!(other.resume(&known, answer("a"), b"ours".to_vec(), |_| {}).is_err());
        assert!(waiting.resume("nonsense", answer("a"), b"ours".to_vec(), |_| {}).is_err());
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert!(waiting.resume(&known, answer("a"), b"ours".to_vec(), |_| {}).is_ok());
    }

    #[tokio::test]
    async fn a_caller_with_many_calls_ends_none_of_another() {
        let (waiting, count) = (paused_calls(7), Arc::default());
        let of_another = state(call_of("quiet", &waiting, &count, b"ours").await);
        let first = state(call_of("loud", &waiting, &count, b"ours").await);
        for _ in 0..MAX_CALLS {
            state(call_of("loud", &waiting, &count, b"ours").await);
        }
        assert_eq!(waiting.calls.lock().len(), MAX_CALLS);
        assert!(waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).is_err());
        assert!(waiting.resume(&of_another, answer("a"), b"ours".to_vec(), |_| {}).is_ok());
    }

    #[tokio::test]
    async fn a_call_that_is_one_too_many_ends_also_while_it_runs() {
        let (waiting, count) = (paused_calls(7), Arc::default());
        let (sender, questions) = mpsc::channel(4);
        let stop = Stop::new();
        let stopped = stop.clone();
        let work = work(async move {
            let (answer, answered) = oneshot::channel();
            let _ = sender.send(Question { request: asks(), answer }).await;
            let _ = answered.await;
            stopped.stopped().await;
            Ok(json!("stopped"))
        });
        let running = state(waiting.begin(owner("loud"), work, (stop.clone(), None), questions, b"ours".to_vec()).await);
        let running = waiting.resume(&running, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0;
        for _ in 0..MAX_CALLS {
            state(call_of("loud", &waiting, &count, b"ours").await);
        }
        assert_eq!(stop.reason(), Some(StopReason::Closed));
        assert!(matches!(running.await, Ok(Step::Done(outcome)) if outcome == "stopped"));
        assert_eq!(waiting.calls.lock().len(), MAX_CALLS);
    }

    #[tokio::test]
    async fn each_question_has_its_own_time() {
        let time = Arc::new(Mutex::new(Instant::now()));
        let clock = Arc::clone(&time);
        let waiting = PausedCalls { now: Arc::new(move || *clock.lock()), ..paused_calls(7) };
        let pass = |seconds| {
            *time.lock() += Duration::from_secs(seconds);
            waiting.end_left();
        };
        let count = Arc::default();
        let first = state(call(&waiting, &count, b"ours").await);
        pass(590);
        let second = state(waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0.await);
        pass(590);
        let last = waiting.resume(&second, answer("b"), b"ours".to_vec(), |_| {}).unwrap().0;
        assert!(matches!(last.await, Ok(Step::Done(_))));
        let left = state(call(&waiting, &count, b"ours").await);
        pass(600);
        assert!(waiting.calls.lock().is_empty() && waiting.resume(&left, answer("a"), b"ours".to_vec(), |_| {}).is_err());
    }

    #[tokio::test]
    async fn a_call_is_not_ended_while_a_round_runs_however_long() {
        let time = Arc::new(Mutex::new(Instant::now()));
        let clock = Arc::clone(&time);
        let waiting = PausedCalls { now: Arc::new(move || *clock.lock()), ..paused_calls(7) };
        let (sender, questions) = mpsc::channel(4);
        let (release, released) = oneshot::channel::<()>();
        let work = work(async move {
            let (answer, answered) = oneshot::channel();
            let _ = sender.send(Question { request: asks(), answer }).await;
            let given = answered.await.unwrap_or_default();
            let _ = released.await;
            Ok(given)
        });
        let first = state(waiting.begin(owner("one"), work, (Stop::new(), None), questions, b"ours".to_vec()).await);
        let round = waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0;
        *time.lock() += PATIENCE * 2;
        waiting.end_left();
        let again = waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0;
        release.send(()).unwrap();
        assert!(matches!((round.await, again.await), (Ok(Step::Done(one)), Ok(Step::Done(other))) if one == "a" && other == "a"));
    }

    #[tokio::test]
    async fn a_call_ends_with_its_owner_and_with_the_server_whether_it_waits_or_runs() {
        for ends_server in [false, true] {
            let closed = CancellationToken::new();
            let waiting = PausedCalls::new(&[7; 32], &closed);
            let (count, one) = (Arc::<AtomicUsize>::default(), owner("one"));
            let paused = state(call_by(one.clone(), &waiting, &count, b"ours").await);
            let (sender, questions) = mpsc::channel(4);
            let (stop, held) = (Stop::new(), Arc::clone(&count));
            let endless = work(async move {
                let (answer, answered) = oneshot::channel();
                let _ = sender.send(Question { request: asks(), answer }).await;
                let _ = answered.await;
                drop(held);
                std::future::pending().await
            });
            let running = state(waiting.begin(one.clone(), endless, (stop.clone(), None), questions, b"ours".to_vec()).await);
            let running = waiting.resume(&running, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0;
            assert_eq!(Arc::strong_count(&count), 3);
            if ends_server {
                closed.cancel();
                waiting.clear();
            } else {
                one.ended.cancel();
                waiting.end_left();
            }
            assert!(running.await.is_err() && stop.reason() == Some(StopReason::Closed));
            assert!(waiting.resume(&paused, answer("a"), b"ours".to_vec(), |_| {}).is_err());
            assert!(waiting.calls.lock().is_empty());
            assert_eq!(Arc::strong_count(&count), 1, "the work is dropped");
        }
    }
}
