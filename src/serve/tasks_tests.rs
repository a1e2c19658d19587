use rmcp::model::{DetailedTask, ElicitRequest, InputRequest, TaskStatus};

use super::super::held_arguments::ArgumentMemory;
use super::super::held_questions::QuestionMemory;
use super::super::paused_calls::work;
use super::super::task_view::{Shown, key};
use super::*;
use tokio::sync::oneshot;

fn tasks() -> Tasks {
    let tasks = Tasks::new(&tokio::runtime::Handle::current(), &CancellationToken::new());
    Tasks { times: Times { prompt: Duration::from_mins(1), ..tasks.times }, ..tasks }
}

fn owner(key: &str) -> Owner {
    Owner { key: key.into(), ended: Arc::default() }
}

fn held() -> HeldArguments {
    ArgumentMemory::default().hold("one", &json!(null)).unwrap()
}

fn form() -> InputRequest {
    let form = json!({ "mode": "form", "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
    InputRequest::Elicitation(ElicitRequest::new(serde_json::from_value(form).unwrap()))
}

/// Returns a run that asks `times` questions, one after another, and returns the answers. The run ends when it is stopped.
fn asking(times: usize) -> Run {
    let (sender, questions) = mpsc::channel(4);
    let stop = Stop::new();
    let stopped = stop.clone();
    let asks = async move {
        let mut answers = Vec::new();
        for _ in 0..times {
            let (answer, answered) = oneshot::channel();
            let request = form();
            let held = QuestionMemory::default().of("").hold(&request).unwrap();
            let _ = sender.send(Question { request, answer, held }).await;
            answers.push(answered.await.unwrap_or_default());
        }
        Ok(json!({ "value": answers }))
    };
    let work = work(async move {
        tokio::select! {
            biased;
            () = stopped.stopped() => Err(ErrorData::internal_error("stopped", None)),
            answers = asks => answers,
        }
    });
    Run { work, stop, questions }
}

/// Returns a run that ends only when it is stopped.
fn endless() -> Run {
    let Run { stop, questions, .. } = asking(0);
    let stopped = stop.clone();
    let work = work(async move {
        stopped.stopped().await;
        Err(ErrorData::internal_error("stopped", None))
    });
    Run { work, stop, questions }
}

async fn begun(tasks: &Tasks, owner: &Owner, run: Run) -> Begun {
    let Some(place) = tasks.place(owner.clone()) else { panic!("no place") };
    tasks.begin(place, run, &CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error:?}"))
}

async fn begin(tasks: &Tasks, owner: &Owner, run: Run) -> String {
    match begun(tasks, owner, run).await {
        Begun::Task(created) => created.task.task_id,
        Begun::Done { result, .. } => panic!("it has ended: {result}"),
    }
}

async fn until(tasks: &Tasks, owner: &str, id: &str, status: TaskStatus) -> DetailedTask {
    loop {
        let task = seen(tasks, owner, id);
        if task.status() == status {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns a task as its caller reads it.
fn seen(tasks: &Tasks, owner: &str, id: &str) -> DetailedTask {
    let view = tasks.get(owner, id).unwrap();
    if view.is_ended() {
        tasks.told(id);
    }
    view.result().task
}

fn is_gone(tasks: &Tasks, caller: &str, id: &str) -> bool {
    tasks.get(caller, id).is_err() && tasks.cancel(caller, id).is_err() && tasks.answer(caller, id, InputResponses::new(), held()).is_err()
}

/// Waits until no task and no driver of a caller is left: each of them holds the caller's token.
async fn until_nothing_is_left(tasks: &Tasks, caller: &Owner) {
    for _ in 0..10_000 {
        if Arc::strong_count(&caller.ended) == 1 {
            return assert!(tasks.all.lock().is_empty());
        }
        tokio::task::yield_now().await;
    }
    panic!("left: {} holders, {} tasks", Arc::strong_count(&caller.ended) - 1, tasks.all.lock().len());
}

#[tokio::test]
async fn a_run_that_ends_at_once_is_no_task() {
    let (tasks, one) = (tasks(), owner("one"));
    let Begun::Done { result, .. } = begun(&tasks, &one, asking(0)).await else { panic!("a task") };
    assert_eq!(result["structuredContent"], json!({ "value": [] }));
    until_nothing_is_left(&tasks, &one).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_task_that_is_removed_to_make_room() {
    let (tasks, one) = (tasks(), owner("one"));
    let id = begin(&tasks, &one, asking(1)).await;
    tasks.cancel("one", &id).unwrap();
    until(&tasks, "one", &id, TaskStatus::Cancelled).await;
    drop(remove_told(&mut tasks.all.lock(), "one"));
    until_nothing_is_left(&tasks, &one).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_run_whose_request_is_dropped() {
    let (tasks, one, gone) = (tasks(), owner("one"), CancellationToken::new());
    for has_ended in [false, true] {
        let run = if has_ended { asking(0) } else { endless() };
        let stop = run.stop.clone();
        let mut request = Box::pin(tasks.begin(tasks.place(one.clone()).unwrap(), run, &gone));
        assert!(futures::poll!(&mut request).is_pending());
        while has_ended && tasks.all.lock().values().any(|entry| matches!(entry.state, State::Working)) {
            tokio::task::yield_now().await;
        }
        drop(request);
        assert_eq!(stop.reason(), Some(StopReason::Aborted));
        until_nothing_is_left(&tasks, &one).await;
    }
}

#[tokio::test]
async fn a_cancelled_request_does_not_leave_a_task_that_its_client_does_not_know() {
    let (tasks, one, gone) = (tasks(), owner("one"), CancellationToken::new());
    let mut request = Box::pin(tasks.begin(tasks.place(one.clone()).unwrap(), asking(1), &gone));
    assert!(futures::poll!(&mut request).is_pending());
    while tasks.all.lock().values().any(|entry| entry.questions.is_empty()) {
        tokio::task::yield_now().await;
    }
    gone.cancel();
    assert!(request.await.is_err());
    until_nothing_is_left(&tasks, &one).await;
}

#[tokio::test]
async fn each_question_of_a_task_gets_its_answer_and_an_answer_to_no_question_is_left_out() {
    let (tasks, one) = (tasks(), owner("one"));
    let id = begin(&tasks, &one, asking(2)).await;
    for (number, answer) in [(1, "a"), (2, "b")] {
        let asked = loop {
            let task = until(&tasks, "one", &id, TaskStatus::InputRequired).await;
            let TaskPayload::InputRequired { input_requests } = task.payload else { panic!("no question") };
            if input_requests.contains_key(&key(number)) {
                break input_requests;
            }
        };
        assert_eq!(asked.len(), 1);
        let responses = [("q0", "x"), ("nonsense", "x"), (&key(number), answer)];
        let responses = responses.into_iter().map(|(key, answer)| (key.to_owned(), json!(answer))).collect();
        tasks.answer("one", &id, responses, held()).unwrap();
    }
    let TaskPayload::Completed { result } = until(&tasks, "one", &id, TaskStatus::Completed).await.payload else { panic!("not done") };
    assert_eq!(result["structuredContent"], json!({ "value": ["a", "b"] }));
}

#[tokio::test]
async fn a_run_that_takes_longer_is_a_task_that_its_caller_can_cancel_and_nobody_else_knows() {
    let one = owner("one");
    let tasks = Tasks { times: Times { prompt: Duration::ZERO, ..tasks().times }, ..tasks() };
    let id = begin(&tasks, &one, endless()).await;
    assert_eq!(seen(&tasks, "one", &id).status(), TaskStatus::Working);
    assert!(is_gone(&tasks, "another", &id));
    tasks.cancel("one", &id).unwrap();
    until(&tasks, "one", &id, TaskStatus::Cancelled).await;
}

#[tokio::test]
async fn a_task_ends_with_its_time() {
    let one = owner("one");
    let tasks = Tasks { times: Times { prompt: Duration::ZERO, life: Duration::from_millis(1) }, ..tasks() };
    let run = endless();
    let stop = run.stop.clone();
    // The run may end before it is reported as a task.
    let _ = tasks.begin(tasks.place(one).unwrap(), run, &CancellationToken::new()).await;
    stop.stopped().await;
    while !tasks.all.lock().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_that_is_cancelled_in_its_first_moment_ends_its_run() {
    let (tasks, one, gone) = (tasks(), owner("one"), CancellationToken::new());
    gone.cancel();
    let run = endless();
    let stop = run.stop.clone();
    assert!(tasks.begin(tasks.place(one).unwrap(), run, &gone).await.is_err());
    assert_eq!(stop.reason(), Some(StopReason::Aborted));
    assert!(tasks.all.lock().is_empty());
}

#[tokio::test]
async fn tasks_end_with_their_caller() {
    let (tasks, one) = (tasks(), owner("one"));
    let run = asking(1);
    let stop = run.stop.clone();
    let id = begin(&tasks, &one, run).await;
    one.ended.cancel();
    stop.stopped().await;
    while !is_gone(&tasks, "one", &id) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_caller_with_too_many_tasks_gets_no_more_and_another_does() {
    let (tasks, one) = (tasks(), owner("one"));
    let mut ids = Vec::new();
    for _ in 0..MAX_OF_CALLER {
        ids.push(begin(&tasks, &one, asking(1)).await);
    }
    assert!(tasks.place(one.clone()).is_none());
    assert!(tasks.place(owner("another")).is_some());
    tasks.cancel("one", &ids[0]).unwrap();
    until(&tasks, "one", &ids[0], TaskStatus::Cancelled).await;
    // The caller has seen that the task has ended, so the task is removed to make room.
    assert!(tasks.place(one).is_some());
    assert!(is_gone(&tasks, "one", &ids[0]) && !is_gone(&tasks, "one", &ids[1]));
}

/// Returns a run that returns a text of this length after one question.
fn returning(length: usize) -> Run {
    let Run { work: asks, stop, questions } = asking(1);
    let work = work(async move {
        asks.await?;
        Ok(json!({ "value": "x".repeat(length) }))
    });
    Run { work, stop, questions }
}

async fn settled(tasks: &Tasks, owner: &Owner, length: usize) -> (String, Option<String>) {
    let id = begin(tasks, owner, returning(length)).await;
    tasks.answer(&owner.key, &id, [(key(1), json!(null))].into_iter().collect(), held()).unwrap();
    let payload = loop {
        match tasks.get(&owner.key, &id).unwrap().shown {
            Shown::Working | Shown::Asking(_) => tokio::task::yield_now().await,
            Shown::Ended(payload) => break payload,
        }
    };
    let refused = if let TaskPayload::Failed { error } = &*payload { error["data"]["code"].as_str().map(str::to_owned) } else { None };
    (id, refused)
}

#[tokio::test]
async fn results_that_a_caller_does_not_fetch_have_a_limit_and_make_room_when_they_are_fetched() {
    let (tasks, one) = (tasks(), owner("one"));
    // A result has its value twice: as text and as structured content.
    let length = MAX_BYTES_OF_CALLER / 8;
    let (first, refused) = settled(&tasks, &one, length).await;
    assert_eq!(refused, None);
    let mut kept = 1;
    let refused = loop {
        match settled(&tasks, &one, length).await.1 {
            None => kept += 1,
            Some(refused) => break refused,
        }
        assert!(kept < MAX_OF_CALLER, "there is no limit");
    };
    let of_caller = |key: &str| tasks.all.lock().values().filter(|entry| entry.owner.key == key).map(|entry| entry.bytes).sum::<usize>();
    assert_eq!(refused, "ERR_BUSY");
    assert!((2..8).contains(&kept) && of_caller("one") <= MAX_BYTES_OF_CALLER, "{kept} {}", of_caller("one"));
    assert_eq!(settled(&tasks, &owner("another"), length).await.1, None);
    // The caller fetches a result, so this result makes room.
    seen(&tasks, "one", &first);
    assert_eq!(settled(&tasks, &one, length).await.1, None);
    assert!(is_gone(&tasks, "one", &first));
    // A caller whose results fill its share gets answers instead of tasks.
    for entry in tasks.all.lock().values_mut() {
        entry.bytes = MAX_BYTES_OF_CALLER;
    }
    assert!(tasks.place(one).is_none() && tasks.place(owner("third")).is_some());
}

#[tokio::test]
async fn requests_that_read_a_task_share_its_questions_and_its_result() {
    let (tasks, one) = (tasks(), owner("one"));
    let id = begin(&tasks, &one, returning(8)).await;
    let views = || [(); 2].map(|()| tasks.get("one", &id).unwrap());
    match views().map(|view| view.shown) {
        [Shown::Asking(first), Shown::Asking(second)] => assert!(Arc::ptr_eq(&first[0].1, &second[0].1)),
        _ => panic!("it does not ask"),
    }
    assert!(views()[0].bytes > 0);
    tasks.answer("one", &id, [(key(1), json!(null))].into_iter().collect(), held()).unwrap();
    while !views()[0].is_ended() {
        tokio::task::yield_now().await;
    }
    assert!(views()[0].bytes > 0);
    match views().map(|view| view.shown) {
        [Shown::Ended(first), Shown::Ended(second)] => assert!(Arc::ptr_eq(&first, &second)),
        _ => panic!("it has not ended"),
    }
}

#[tokio::test]
async fn a_result_that_its_caller_did_not_get_is_kept() {
    let (tasks, one) = (tasks(), owner("one"));
    let (first, refused) = settled(&tasks, &one, 8).await;
    assert_eq!(refused, None);
    assert!(tasks.get("one", &first).unwrap().is_ended());
    for _ in 1..MAX_OF_CALLER {
        begin(&tasks, &one, asking(1)).await;
    }
    assert!(tasks.place(one.clone()).is_none(), "reading the task was refused, so its result is still needed");
    seen(&tasks, "one", &first);
    assert!(tasks.place(one).is_some() && is_gone(&tasks, "one", &first));
}

#[tokio::test]
async fn the_end_waits_for_runs_and_not_for_questions() {
    let (tasks, ada) = (tasks(), owner("ada"));
    tasks.until_idle().await;
    let asks = asking(1);
    let ends = asks.stop.clone();
    let asked = begin(&tasks, &ada, asks).await;
    until(&tasks, "ada", &asked, TaskStatus::InputRequired).await;
    tasks.until_idle().await;
    let tasks_of_run = Tasks { times: Times { prompt: Duration::ZERO, ..tasks.times }, ..tasks.clone() };
    let running = begin(&tasks_of_run, &ada, endless()).await;
    let mut idle = Box::pin(tasks.until_idle());
    assert!(futures::poll!(&mut idle).is_pending());
    tasks.cancel("ada", &running).unwrap();
    idle.await;
    ends.stop(StopReason::Aborted);
}
