//! Tests of the choice of the caller that is asked or that receives a notice.

use super::*;
use crate::client::clock::CallLimits;
use crate::client::inbound::caller::{Elicitation, ElicitationAnswer, Reply, Sampling};
use crate::client::inbound::notification::Notice;
use std::time::Duration;

pub(in crate::client) struct Numbered(pub(in crate::client) u64);

impl Caller for Numbered {
    fn identity(&self) -> u64 {
        self.0
    }
    fn can_elicit(&self) -> bool {
        true
    }
    fn elicit(&self, _elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
        None
    }
    fn sample(&self, _sampling: Sampling) -> Option<Reply<Json>> {
        None
    }
    fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}
    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }
}

fn calls() -> Arc<Calls> {
    Arc::new(Calls::new(false, Box::new(|_, _| {})))
}

fn enter(calls: &Arc<Calls>, caller: u64) -> CallGuard {
    let caller: Arc<dyn Caller> = Arc::new(Numbered(caller));
    calls.enter("tool", &caller, &CallClock::start(CallLimits::fixed(Duration::from_secs(1))))
}

#[test]
fn a_call_that_is_over_is_asked_nothing_and_what_it_asked_ends() {
    let calls = calls();
    let place = enter(&calls, 1);
    let QuestionRecipient::Call(call) = calls.ask(Origin::Unknown, QuestionKind::Person, None) else {
        panic!("its caller is the only one")
    };
    assert!(!call.over.is_cancelled());
    drop(place);
    assert!(call.over.is_cancelled());
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, None), QuestionRecipient::Outside(_)));
}

#[tokio::test]
async fn what_answers_a_question_of_a_call_that_is_over_waits_until_its_server_was_told() {
    let calls = calls();
    let place = enter(&calls, 1);
    let QuestionRecipient::Call(call) = calls.ask(Origin::Unknown, QuestionKind::Person, None) else {
        panic!("its caller is the only one")
    };
    let is_reported = || futures::FutureExt::now_or_never(call.end_reported()).is_some();
    assert!(is_reported(), "the server need not be told while the call is in flight");
    place.give_up();
    assert!(!is_reported());
    place.server_knows().cancel();
    assert!(is_reported());
    let second = enter(&calls, 1);
    let QuestionRecipient::Call(answered) = calls.ask(Origin::Call(second.key), QuestionKind::Person, None) else {
        panic!("the question came with this call")
    };
    drop(second);
    answered.end_reported().await;
}

#[test]
fn a_question_is_of_those_who_were_in_flight_when_it_was_read_however_late_it_is_put() {
    let calls = calls();
    let first = enter(&calls, 1);
    let (late, after) = (RequestId::Number(7), RequestId::Number(8));
    calls.note_question(late.clone());
    // The call's answer was read after the question, but is delivered before the question. Meanwhile another caller has begun a call.
    drop(first);
    let _second = enter(&calls, 2);
    calls.note_question(after.clone());
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, Some(&late)), QuestionRecipient::Nobody));
    let QuestionRecipient::Call(call) = calls.ask(Origin::Unknown, QuestionKind::Person, Some(&after)) else {
        panic!("the second is the only caller")
    };
    assert_eq!(call.caller.identity(), 2);
}

#[test]
fn a_question_of_one_of_a_callers_calls_is_put_to_that_caller_as_long_as_any_of_them_is_in_flight() {
    let calls = calls();
    let (first, second) = (enter(&calls, 1), enter(&calls, 1));
    let question = RequestId::Number(1);
    calls.note_question(question.clone());
    drop(second);
    let _other = enter(&calls, 2);
    let QuestionRecipient::Call(call) = calls.ask(Origin::Unknown, QuestionKind::Person, Some(&question)) else {
        panic!("the question belongs to the first caller")
    };
    assert_eq!(call.caller.identity(), 1);
    drop(first);
}

#[test]
fn where_it_was_not_noted_who_can_be_meant_nobody_is_asked() {
    let calls = calls();
    let place = enter(&calls, 1);
    let question = RequestId::Number(1);
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, Some(&question)), QuestionRecipient::Ambiguous));
    // The stream identifies the call, so the question reaches this call.
    assert!(matches!(calls.ask(place.key().origin(), QuestionKind::Person, Some(&question)), QuestionRecipient::Call(_)));
}

#[test]
fn two_callers_are_never_mixed_up() {
    let calls = calls();
    let _places = [enter(&calls, 1), enter(&calls, 2)];
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, None), QuestionRecipient::Ambiguous));
    assert!(calls.admit(CallMatch::OnlyCaller, Instant::now()).unwrap().call.is_none(), "the notice belongs to no call");
}

#[test]
fn where_nobody_can_be_asked_it_does_not_matter_who_is_meant() {
    let calls = calls();
    let _places = [enter(&calls, 1), enter(&calls, 2)];
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Model, None), QuestionRecipient::Nobody));
}

#[test]
fn only_a_server_of_whose_questions_nothing_says_whose_they_are_keeps_its_callers_apart() {
    let calls = calls();
    let place = enter(&calls, 1);
    assert!(matches!(calls.ask(place.key().origin(), QuestionKind::Person, None), QuestionRecipient::Call(_)));
    assert!(matches!(calls.ask(Origin::NoCall, QuestionKind::Person, None), QuestionRecipient::Outside(_)));
    assert!(!calls.asks_anybody());
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, None), QuestionRecipient::Call(_)));
    assert!(calls.asks_anybody());
}

#[test]
fn a_call_that_was_given_up_may_still_be_meant() {
    let calls = calls();
    let places = [enter(&calls, 1), enter(&calls, 2)];
    places[0].give_up();
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, None), QuestionRecipient::Ambiguous));
    let [given_up, _] = places;
    drop(given_up);
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, None), QuestionRecipient::Call(_)));
}

#[test]
fn a_call_that_asks_without_end_is_answered_no_more_and_that_is_told_once() {
    let calls = calls();
    let _place = enter(&calls, 1);
    let asked: Vec<_> = (0..1_000).map(|_| calls.ask(Origin::Unknown, QuestionKind::Person, None)).collect();
    assert_eq!(asked.iter().filter(|asked| matches!(asked, QuestionRecipient::Call(_))).count(), MAX_QUESTIONS as usize);
    assert_eq!(asked.iter().filter(|asked| matches!(asked, QuestionRecipient::TooMany { is_first: true, .. })).count(), 1);
}

#[test]
fn so_many_questions_outside_of_calls_are_open_and_no_more() {
    let calls = calls();
    let mut asked: Vec<_> = (0..1_000).map(|_| calls.ask(Origin::Unknown, QuestionKind::Person, None)).collect();
    assert_eq!(asked.iter().filter(|asked| matches!(asked, QuestionRecipient::Outside(_))).count(), MAX_QUESTIONS as usize);
    assert_eq!(asked.iter().filter(|asked| matches!(asked, QuestionRecipient::TooMany { tool: None, is_first: true })).count(), 1);
    asked.clear();
    assert!(matches!(calls.ask(Origin::Unknown, QuestionKind::Person, None), QuestionRecipient::Outside(_)));
}

/// The callers to which dropped notices were reported, each with the number of its dropped notices.
type LeftOut = Arc<Mutex<Vec<(u64, u64)>>>;

/// Makes a [`Calls`] that records the number of dropped notices of each caller.
fn counting() -> (Arc<Calls>, LeftOut) {
    let told: Arc<Mutex<Vec<_>>> = Arc::default();
    let telling = Arc::clone(&told);
    let left_out = move |call: &InFlight, count| telling.lock().push((call.caller.identity(), count));
    (Arc::new(Calls::new(false, Box::new(left_out))), told)
}

fn token(calls: &Calls, place: &CallGuard) -> Json {
    let token = Json::from(place.key);
    calls.note(place.key(), &RequestId::Number(i64::try_from(place.key).unwrap()), Some(token.clone()));
    token
}

/// Offers `times` notices. Returns how many were admitted, and how many were reported as dropped.
fn admitted(calls: &Calls, of: CallMatch<'_>, times: u64, now: Instant) -> (u64, u64) {
    let admitted: Vec<_> = (0..times).filter_map(|_| calls.admit(of, now)).collect();
    (admitted.len() as u64, admitted.iter().map(|admitted| admitted.left_out).sum())
}

#[test]
fn what_is_left_out_of_a_calls_notices_is_told_to_its_own_caller_before_its_end() {
    let ((calls, left_out), now) = (counting(), Instant::now());
    let (flood, other) = (enter(&calls, 1), enter(&calls, 2));
    let (flooding, others) = (token(&calls, &flood), token(&calls, &other));
    let (told, _) = admitted(&calls, CallMatch::Token(&flooding), 5_000, now);
    assert!(told < 5_000);
    assert_eq!(
        admitted(&calls, CallMatch::Token(&others), 10, now),
        (10, 0),
        "a flood of another call does not affect this call's notices"
    );
    drop(other);
    assert_eq!(*left_out.lock(), []);
    drop(flood);
    assert_eq!(*left_out.lock(), [(1, 5_000 - told)]);
}

#[test]
fn what_is_left_out_is_told_once_with_the_next_that_is_told_or_when_the_caller_gives_up() {
    let ((calls, left_out), now) = (counting(), Instant::now());
    let place = enter(&calls, 1);
    let (told, _) = admitted(&calls, CallMatch::OnlyCaller, 5_000, now);
    let later = now + Duration::from_secs(1);
    assert_eq!(calls.admit(CallMatch::OnlyCaller, later).unwrap().left_out, 5_000 - told);
    let (told, _) = admitted(&calls, CallMatch::OnlyCaller, 200, later);
    place.give_up();
    assert_eq!(*left_out.lock(), [(1, 200 - told)]);
    drop(place);
    assert_eq!(left_out.lock().len(), 1);
}

#[test]
fn what_is_nobodys_is_counted_for_nobody_and_told_with_whatever_passes_next() {
    let (calls, now) = (calls(), Instant::now());
    let (told, _) = admitted(&calls, CallMatch::OnlyCaller, 5_000, now);
    let _place = enter(&calls, 1);
    let next = calls.admit(CallMatch::OnlyCaller, now).unwrap();
    assert_eq!((next.left_out, next.left_out_of_nobody), (0, 5_000 - told));
    assert_eq!(calls.left_out_of_nobody(), 0);
}
