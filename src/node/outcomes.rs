//! Outcomes of promises that wait for JavaScript's thread. Node itself would settle all promises whose outcomes are ready, and read their
//! values, before other work can run. So the outcomes wait in this queue instead of Node's.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use napi::Env;

use super::turn_queue::{TurnLimits, TurnQueue};
use super::turns::at_turn_end;

/// The limits on the outcomes that are settled in one turn of the event loop. With these limits, a turn takes only a few milliseconds.
const TURN: TurnLimits = TurnLimits { items: 256, bytes: 512 * 1024 };

/// A function that settles a promise. If it is dropped without being called, the promise is not settled.
type Settle = Box<dyn FnOnce(Settling) + Send>;

/// The outcomes of one environment, from all its gateways.
pub(super) struct Outcomes(Mutex<State>);

struct State {
    queue: TurnQueue<Settle>,
    /// The number of outcomes of the present turn that JavaScript's thread has not settled yet.
    unsettled: usize,
    has_ended: bool,
}

impl Default for Outcomes {
    fn default() -> Self {
        Self(Mutex::new(State { queue: TurnQueue::new(TURN), unsettled: 0, has_ended: false }))
    }
}

impl Outcomes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Queues an outcome until a turn of the event loop has room for it. `bytes` is the size of the JSON that JavaScript's thread has to
    /// parse.
    pub(super) fn send(self: &Arc<Self>, bytes: usize, settle: impl FnOnce(Settling) + Send + 'static) {
        let mut state = self.state();
        // After the environment has ended, nobody waits for the outcome.
        if !state.has_ended {
            state.queue.push(bytes, Box::new(settle));
            drop(state);
            self.settle_next();
        }
    }

    /// Settles the outcomes of the next turn, if no turn is in progress.
    fn settle_next(self: &Arc<Self>) {
        let turn = {
            let mut state = self.state();
            let Some(turn) = state.queue.next_turn() else { return };
            state.unsettled = turn.len();
            turn
        };
        for settle in turn {
            settle(Settling { outcomes: Arc::clone(self), was_settled: false });
        }
    }

    fn turn_ended(self: &Arc<Self>) {
        self.state().queue.turn_ended();
        self.settle_next();
    }

    /// Drops all waiting outcomes at the end of the environment, because nobody waits for them any more.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let waiting = state.queue.clear();
        // The outcomes are dropped after the state is unlocked, because dropping them may run other code.
        drop(state);
        drop(waiting);
    }
}

/// The present turn. If it is dropped before its end is reported, the environment has ended.
struct Turn {
    outcomes: Arc<Outcomes>,
    has_ended: bool,
}

impl Turn {
    fn ended(mut self) {
        self.has_ended = true;
        self.outcomes.turn_ended();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.has_ended {
            self.outcomes.end();
        }
    }
}

/// An outcome that was sent to JavaScript's thread.
pub(super) struct Settling {
    outcomes: Arc<Outcomes>,
    was_settled: bool,
}

impl Settling {
    /// Records that JavaScript's thread has reached this outcome. Must be called on that thread.
    pub(super) fn settled(mut self, env: &Env) {
        self.was_settled = true;
        let mut state = self.outcomes.state();
        state.unsettled -= 1;
        if state.unsettled == 0 {
            drop(state);
            let turn = Turn { outcomes: Arc::clone(&self.outcomes), has_ended: false };
            at_turn_end(env, move || turn.ended());
        }
    }
}

impl Drop for Settling {
    /// If this value is dropped without a call of `settled`, the environment has ended, so all waiting outcomes are dropped.
    fn drop(&mut self) {
        if !self.was_settled {
            self.outcomes.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns outcomes whose first turn is in progress, and a value to which each waiting outcome has a reference.
    fn waiting() -> (Arc<Outcomes>, Arc<()>) {
        let (outcomes, held) = (Arc::new(Outcomes::default()), Arc::new(()));
        for _ in 0..=TURN.items {
            let held = Arc::clone(&held);
            // Simulates a settled outcome, without the end of its turn.
            outcomes.send(TURN.bytes, move |mut settling| {
                settling.was_settled = true;
                drop(held);
            });
        }
        assert_eq!(Arc::strong_count(&held), 1 + TURN.items);
        (outcomes, held)
    }

    #[test]
    fn outcomes_that_wait_go_when_their_environment_ends_between_two_turns() {
        let (outcomes, held) = waiting();
        outcomes.end();
        assert_eq!(Arc::strong_count(&held), 1);
        let late = Arc::clone(&held);
        outcomes.send(0, move |_| drop(late));
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn outcomes_that_wait_go_where_the_end_of_a_turn_is_never_told() {
        let (outcomes, held) = waiting();
        drop(Turn { outcomes: Arc::clone(&outcomes), has_ended: false });
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn the_end_of_a_turn_begins_the_next_one() {
        let (outcomes, held) = waiting();
        Turn { outcomes: Arc::clone(&outcomes), has_ended: false }.ended();
        assert_eq!(Arc::strong_count(&held), TURN.items);
    }
}
