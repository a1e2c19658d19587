//! Ends a run from outside of the guest. Once the end has begun, the guest gets no more answers.

use std::future::Future;

use tokio_util::sync::CancellationToken;

use super::agent::Identity;
use crate::error::{Error, Result};
use crate::sandbox::{HostAnswer, Stop};

/// The signals that end one run from outside: its sandbox or gateway is closed, its plugin is switched off, or its caller has stopped it.
#[derive(Clone)]
pub(super) struct RunEnd {
    pub(super) closed: CancellationToken,
    pub(super) switched_off: CancellationToken,
    pub(super) stop: Stop,
}

impl RunEnd {
    fn has_begun(&self) -> bool {
        self.closed.is_cancelled() || self.switched_off.is_cancelled() || self.stop.reason().is_some()
    }

    /// Starts a call and returns its answer. Once the run is being ended, the guest gets no answer to any call, not even an error: agent
    /// code could catch an error and continue.
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

/// Returns the outcome of a call that did not come from a guest. If the call was ended from outside, returns the error of this end instead,
/// because any other answer or error may be a consequence of this end.
pub(super) fn unless_ended<T>(identity: &Identity, stop: &Stop, outcome: Result<T>) -> Result<T> {
    match outcome {
        Err(error @ Error::Aborted { .. }) => Err(error),
        _ if stop.reason().is_some() => Err(stop.error("call", 0)),
        _ if identity.closed.is_cancelled() => Err(identity.closed_error()),
        outcome => outcome,
    }
}

/// Waits for work of a call that did not come from a guest, until the call is ended from outside.
pub(super) async fn until_ended<T>(identity: &Identity, stop: &Stop, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        outcome = work => outcome,
        () = stop.stopped() => Err(stop.error("call", 0)),
        () = identity.closed.cancelled() => Err(identity.closed_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use futures::FutureExt as _;

    use super::*;
    use crate::gateway::callbacks::CallbackChain;
    use crate::sandbox::{HostReply, StopReason, Value};

    fn run_end() -> RunEnd {
        RunEnd { closed: CancellationToken::new(), switched_off: CancellationToken::new(), stop: Stop::new() }
    }

    fn is_heard(end: &RunEnd, answer: HostAnswer) -> bool {
        match end.answer(|| answer) {
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
        assert!(answers().into_iter().all(|answer| is_heard(&run_end(), answer)));
        let begin: [fn(&RunEnd); 3] =
            [|end| end.closed.cancel(), |end| end.switched_off.cancel(), |end| end.stop.stop(StopReason::Aborted)];
        for begin in begin {
            let end = run_end();
            begin(&end);
            assert!(answers().into_iter().all(|answer| !is_heard(&end, answer)));
        }
    }

    #[test]
    fn an_answer_to_a_caller_without_a_guest_is_withheld_as_well() {
        let operator = || Identity::operator(Weak::new(), CallbackChain::default(), &CancellationToken::new());
        let (closed, stop) = (operator(), Stop::new());
        assert!(matches!(unless_ended(&closed, &stop, Ok(1)), Ok(1)));
        closed.closed.cancel();
        assert!(matches!(unless_ended(&closed, &stop, Ok(1)), Err(Error::Closed { .. })));
        let crashed = Err::<u8, _>(Error::Internal("the server has ended".into()));
        assert!(matches!(unless_ended(&closed, &stop, crashed), Err(Error::Closed { .. })));
        stop.stop(StopReason::Aborted);
        assert!(matches!(unless_ended(&operator(), &stop, Ok(1)), Err(Error::Aborted { .. })));
    }

    #[test]
    fn an_answer_that_comes_with_the_end_of_its_run_is_withheld() {
        let end = run_end();
        let switched_off = end.switched_off.clone();
        let answer = HostAnswer::Later(Box::pin(async move {
            switched_off.cancel();
            HostReply::Throw { name: None, message: "the plugin is off".into(), code: None }
        }));
        assert!(!is_heard(&end, answer));
    }
}
