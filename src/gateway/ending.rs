//! The end of a run from outside: from its beginning on, the guest hears of nothing more.

use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::sandbox::{HostAnswer, Stop};

/// What ends one run from outside: its sandbox or gateway is closed, its plugin switched off, its caller no longer waits.
#[derive(Clone)]
pub(super) struct Ending {
    pub(super) closed: CancellationToken,
    pub(super) switched_off: CancellationToken,
    pub(super) stop: Stop,
}

impl Ending {
    fn has_begun(&self) -> bool {
        self.closed.is_cancelled() || self.switched_off.is_cancelled() || self.stop.reason().is_some()
    }

    /// Starts a call, and gives its answer as the guest may have it. Once the run is being ended there is none: the guest would catch an
    /// error that says so, and could have the last word. One rule for whatever is called, and whatever the answer is.
    pub(super) fn answer(&self, start: impl FnOnce() -> HostAnswer) -> HostAnswer {
        if self.has_begun() {
            return HostAnswer::Later(Box::pin(std::future::pending()));
        }
        match start() {
            HostAnswer::Ready(reply) => HostAnswer::Ready(reply),
            HostAnswer::Later(answer) => {
                let this = self.clone();
                HostAnswer::Later(Box::pin(async move {
                    let reply = answer.await;
                    if this.has_begun() { std::future::pending().await } else { reply }
                }))
            }
        }
    }
}

/// The outcome of a call that no guest has made. Its end from outside cancels the questions of its server and may end that: whatever comes
/// from then on comes of that, an answer as well as an error.
pub(super) fn unless_ended<T>(closed: &CancellationToken, stop: &Stop, outcome: Result<T>) -> Result<T> {
    match outcome {
        Err(error @ Error::Aborted { .. }) => Err(error),
        _ if stop.reason().is_some() => Err(stop.error("call", 0)),
        _ if closed.is_cancelled() => Err(Error::Closed { what: "gateway" }),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::sandbox::{HostReply, StopReason, Value};

    fn ending() -> Ending {
        Ending { closed: CancellationToken::new(), switched_off: CancellationToken::new(), stop: Stop::new() }
    }

    fn is_heard(ending: &Ending, answer: HostAnswer) -> bool {
        match ending.answer(|| answer) {
            HostAnswer::Ready(_) => true,
            HostAnswer::Later(answer) => answer.now_or_never().is_some(),
        }
    }

    fn answers() -> [HostAnswer; 2] {
        let reply = || HostReply::Value(Value::Null);
        [HostAnswer::Ready(reply()), HostAnswer::Later(Box::pin(async move { reply() }))]
    }

    #[test]
    fn a_guest_hears_answers_until_its_run_is_being_ended_and_none_from_then_on() {
        assert!(answers().into_iter().all(|answer| is_heard(&ending(), answer)));
        let begin: [fn(&Ending); 3] =
            [|ending| ending.closed.cancel(), |ending| ending.switched_off.cancel(), |ending| ending.stop.stop(StopReason::Aborted)];
        for begin in begin {
            let ending = ending();
            begin(&ending);
            assert!(answers().into_iter().all(|answer| !is_heard(&ending, answer)));
        }
    }

    #[test]
    fn an_answer_to_a_caller_without_a_guest_is_withheld_as_well() {
        let (closed, stop) = (CancellationToken::new(), Stop::new());
        assert!(matches!(unless_ended(&closed, &stop, Ok(1)), Ok(1)));
        closed.cancel();
        assert!(matches!(unless_ended(&closed, &stop, Ok(1)), Err(Error::Closed { .. })));
        let crashed = Err::<u8, _>(Error::Internal("the server has ended".to_owned()));
        assert!(matches!(unless_ended(&closed, &stop, crashed), Err(Error::Closed { .. })));
        stop.stop(StopReason::Aborted);
        assert!(matches!(unless_ended(&CancellationToken::new(), &stop, Ok(1)), Err(Error::Aborted { .. })));
    }

    #[test]
    fn an_answer_that_comes_with_the_end_of_its_run_is_withheld() {
        let ending = ending();
        let switched_off = ending.switched_off.clone();
        let answer = HostAnswer::Later(Box::pin(async move {
            switched_off.cancel();
            HostReply::Throw { name: None, message: "the plugin is off".into(), code: None }
        }));
        assert!(!is_heard(&ending, answer));
    }
}
