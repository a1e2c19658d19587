use super::*;

const MS: Duration = Duration::from_millis(1);
const LIMITS: ExchangeLimits = ExchangeLimits { arguments: 100, answer: 1000, replies: 2000 };

fn reply(text: &str) -> Wire {
    Wire { json: text.to_owned(), blobs: Vec::new() }
}

fn state(running: usize, done: &[u32], last: Option<Instant>) -> State {
    let mut state = State { running: running + done.len(), load: running + done.len(), ..State::new(LIMITS) };
    for number in done {
        state.put(*number, 1, reply("{}"), Instant::now());
    }
    State { last, ..state }
}

fn wait(most: Option<Duration>, until: &[u32]) -> Wait {
    Wait { most, until: until.to_vec() }
}

#[test]
fn a_batch_comes_back_whole_unless_its_last_calls_are_much_slower() {
    let began = Instant::now();
    let (all, any) = (state(0, &[1, 2], Some(began + 40 * MS)), wait(None, &[]));
    assert_eq!(all.decision(&any, began, began + 40 * MS), WaitDecision::Continue);
    assert_eq!(state(2, &[], None).decision(&any, began, began + 40 * MS), WaitDecision::Wait(None));
    let some = state(1, &[1], Some(began + 40 * MS));
    assert_eq!(some.decision(&any, began, began + 41 * MS), WaitDecision::Wait(Some(began + 50 * MS)));
    assert_eq!(some.decision(&any, began, began + 50 * MS), WaitDecision::Continue);
    let fast = state(1, &[1], Some(began));
    assert_eq!(fast.decision(&any, began, began), WaitDecision::Wait(Some(began + QUIET_MIN)));
}

#[test]
fn a_guest_that_waits_for_some_calls_waits_for_no_others_and_for_all_of_these() {
    let began = Instant::now();
    let some = state(1, &[1, 2], Some(began));
    assert_eq!(some.decision(&wait(None, &[1, 2]), began, began), WaitDecision::Continue);
    assert_eq!(some.decision(&wait(None, &[1, 3]), began, began + 99 * MS), WaitDecision::Wait(None));
    // The guest does not wait for a number that is not outstanding.
    assert_eq!(state(0, &[], None).decision(&wait(None, &[7]), began, began), WaitDecision::Continue);
}

#[test]
fn a_timer_ends_the_wait_whatever_else_it_is_for() {
    let began = Instant::now();
    let none = state(1, &[], None);
    assert_eq!(none.decision(&wait(Some(5 * MS), &[]), began, began), WaitDecision::Wait(Some(began + 5 * MS)));
    assert_eq!(none.decision(&wait(Some(5 * MS), &[1]), began, began + 5 * MS), WaitDecision::Continue);
    assert_eq!(none.decision(&wait(Some(Duration::ZERO), &[]), began, began), WaitDecision::Continue);
    assert_eq!(none.decision(&wait(Some(Duration::MAX), &[]), began, began), WaitDecision::Wait(None));
}

#[test]
fn replies_that_do_not_fit_together_come_one_after_the_other_in_the_order_of_the_calls() {
    let mut state = state(0, &[3, 1, 2], None);
    let numbers = |taken: Vec<(u32, Wire)>| taken.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
    // Each reply has six bytes: two of JSON and four for its length.
    state.limits.answer = 12;
    assert_eq!(numbers(state.take()), [1, 2]);
    assert_eq!(state.load, 1);
    state.limits.answer = 1;
    assert_eq!(numbers(state.take()), [3]);
    assert_eq!((state.load, state.held, state.take().len()), (0, 0, 0));
}

#[test]
fn a_request_is_read_as_the_guest_writes_it_or_not_at_all() {
    let header = br#"{"wait":1500,"until":[4],"calls":[[4,4],[5,3]]}"#;
    let parts: [&[u8]; 8] = [header, b"mcp-a", b"get", b"[]", &[7, 8], b"m", b"f", b"[1]"];
    let frame = hyperlight_js_common::encode_binaries(&parts).unwrap();
    let call = |number, module: &str, function: &str, json: &str, blobs| OutstandingCall {
        number,
        module: module.to_owned(),
        function: function.to_owned(),
        arguments: Wire { json: json.to_owned(), blobs },
    };
    let calls = vec![call(4, "mcp-a", "get", "[]", vec![vec![7, 8]]), call(5, "m", "f", "[1]", Vec::new())];
    assert_eq!(Request::from_frame(&frame), Some(Request { calls, wait: wait(Some(Duration::from_micros(1500)), &[4]) }));
    for end in 0..frame.len() {
        assert_eq!(Request::from_frame(&frame[..end]), None, "{end}");
    }
}

#[test]
fn no_request_names_more_calls_than_can_be_outstanding() {
    let asked = |until: usize| {
        let header = format!(r#"{{"wait":0,"until":{:?},"calls":[]}}"#, vec![7; until]);
        Request::from_frame(&hyperlight_js_common::encode_binaries(&[header.as_bytes()]).unwrap())
    };
    assert!(asked(MAX_OUTSTANDING).is_some() && asked(MAX_OUTSTANDING + 1).is_none());
}

#[test]
fn while_an_answers_worth_of_replies_waits_no_call_is_started_and_the_guest_goes_on() {
    let exchange = Exchange::new(LIMITS);
    let running_calls = [1, 2].map(|number| RunningCall::take(Arc::clone(&exchange.shared), number, 0));
    let [first, _running] = running_calls;
    assert!(exchange.admits(0));
    first.give(reply(&"x".repeat(1000)));
    assert!(!exchange.admits(0));
    let now = Instant::now();
    assert_eq!(exchange.shared.state().decision(&wait(None, &[2]), now, now), WaitDecision::Continue);
    assert_eq!(exchange.shared.state().take().len(), 1);
    assert!(exchange.admits(0));
    assert_eq!(exchange.shared.state().decision(&wait(None, &[2]), now, now), WaitDecision::Wait(None));
}

#[test]
fn replies_that_nobody_takes_are_bounded_in_bytes_and_blobs() {
    for reply in [reply(&"x".repeat(500)), Wire { json: "{}".to_owned(), blobs: vec![Vec::new(); 8] }] {
        let mut state = State { running: 256, ..State::new(LIMITS) };
        for number in 0..256 {
            state.put(number, 0, reply.clone(), Instant::now());
        }
        let whole = state.done.values().filter(|done| done.reply == reply).count();
        assert!(whole > 0 && whole * footprint(&reply) <= LIMITS.replies, "{whole}");
        let refused = &state.done[&255].reply.json;
        assert!(refused.contains("ERR_RESPONSE_TOO_LARGE") && refused.contains("await fewer"), "{refused}");
        assert!(state.held <= LIMITS.replies + 256 * (refused.len() + 128));
    }
}

#[test]
fn there_is_room_for_so_many_calls_and_so_much_of_arguments_and_always_for_one() {
    let exchange = Exchange::new(ExchangeLimits { answer: 1 << 20, replies: 1 << 20, ..LIMITS });
    assert!(exchange.admits(101));
    let first = RunningCall::take(Arc::clone(&exchange.shared), 0, 60);
    assert!(exchange.admits(40) && !exchange.admits(41));
    let others: Vec<_> = (1..256).map(|number| RunningCall::take(Arc::clone(&exchange.shared), number, 0)).collect();
    assert!(!exchange.admits(0));
    drop((first, others));
    // The calls have ended, but the guest has not taken their replies.
    assert!(!exchange.admits(0));
    assert_eq!(exchange.shared.state().take().len(), 256);
    assert!(exchange.admits(100));
}
