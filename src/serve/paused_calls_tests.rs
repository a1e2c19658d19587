use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{ElicitRequest, InputRequest};
use serde_json::json;

use super::super::held_arguments::ArgumentMemory;
use super::super::held_questions::QuestionMemory;
use super::*;

fn asks() -> InputRequest {
    let form = json!({ "mode": "form", "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
    InputRequest::Elicitation(ElicitRequest::new(serde_json::from_value(form).unwrap()))
}

/// Starts a call that asks two questions, increments `count` after each answer, and returns both answers.
fn call(waiting: &PausedCalls, count: &Arc<AtomicUsize>, bound: &[u8]) -> impl Future<Output = Round> + use<> {
    call_of("", waiting, count, bound)
}

fn question(answer: oneshot::Sender<Json>) -> Question {
    let request = asks();
    let held = QuestionMemory::default().of("").hold(&request).unwrap();
    Question { request, answer, held }
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
            let _ = sender.send(question(answer)).await;
            answers.push(answered.await.unwrap_or_default());
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(json!(answers))
    });
    waiting.begin(owner, work, (Stop::new(), None), questions, bound.to_vec())
}

fn state(step: Round) -> String {
    let Ok(Step::Ask(asked)) = step.map(|outcome| outcome.step.clone()) else { panic!("it does not ask") };
    assert_eq!(asked.input_requests.unwrap().len(), 1);
    asked.request_state.unwrap()
}

fn done(round: Round) -> Option<Json> {
    if let Ok(Step::Done(answer)) = round.map(|outcome| outcome.step.clone()) { Some(answer) } else { None }
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
    let (second, same) = (second.unwrap(), same.unwrap());
    assert!(Arc::ptr_eq(&second, &same) && second.bytes > 0, "a large outcome is not copied for each request");
    let (second, same) = (Ok(second), Ok(same));
    let second = state(second);
    assert_eq!(second, state(same));
    let given = waiting.resume(&second, answer("b"), b"ours".to_vec(), |_| {}).unwrap().0.await;
    assert_eq!(done(given), Some(json!(["a", "b"])));
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
    assert!(self::done(done).is_some() && memory.is_free());
}

#[tokio::test]
async fn questions_count_against_the_limits_until_they_are_answered_and_only_the_last_are_kept() {
    let (waiting, memory) = (paused_calls(7), QuestionMemory::default());
    let (sender, questions) = mpsc::channel(4);
    let of_caller = memory.of("one");
    let asking = work(async move {
        for _ in 0..3 {
            let (answer, answered) = oneshot::channel();
            let held = of_caller.hold(&asks()).unwrap();
            let _ = sender.send(Question { request: asks(), answer, held }).await;
            let _ = answered.await;
        }
        std::future::pending().await
    });
    let first = state(waiting.begin(owner("one"), asking, (Stop::new(), None), questions, b"ours".to_vec()).await);
    let held = memory.bytes();
    let second = state(waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).unwrap().0.await);
    let third = state(waiting.resume(&second, answer("b"), b"ours".to_vec(), |_| {}).unwrap().0.await);
    assert!(held > 0 && memory.bytes() == held, "only the open question counts");
    let refused = waiting.resume(&first, answer("a"), b"ours".to_vec(), |_| {}).err().unwrap();
    assert!(refused.message.contains("other questions since then"), "{}", refused.message);
    let repeated = state(waiting.resume(&second, answer("b"), b"ours".to_vec(), |_| {}).unwrap().0.await);
    assert_eq!(repeated, third);
    let (_running, stop) = waiting.resume(&third, answer("c"), b"ours".to_vec(), |_| {}).unwrap();
    assert_eq!((memory.bytes(), stop.reason()), (0, None));
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
        let _ = sender.send(question(answer)).await;
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
    assert_eq!(done(running.await), Some(json!("stopped")));
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
    assert!(done(last.await).is_some());
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
        let _ = sender.send(question(answer)).await;
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
    assert_eq!([round.await, again.await].map(done), [(); 2].map(|()| Some(json!("a"))));
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
            let _ = sender.send(question(answer)).await;
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
