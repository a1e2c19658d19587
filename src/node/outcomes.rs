//! Outcomes on their way to JavaScript's thread. Node settles all promises whose outcome is there before anybody else has a turn, and reads
//! each of them; so they wait here instead.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use napi::Env;

use super::turn_queue::{TurnLimits, TurnQueue};
use super::turns::at_turn_end;

/// What is settled in one turn: reading half a mebibyte of JSON takes a few milliseconds.
const TURN: TurnLimits = TurnLimits { items: 256, bytes: 512 * 1024 };

/// Settles a promise, or drops it.
type Settle = Box<dyn FnOnce(Settling) + Send>;

/// Outcomes of one environment, whoever's they are.
pub(super) struct Outcomes(Mutex<State>);

struct State {
    queue: TurnQueue<Settle>,
    /// Outcomes of the present turn that JavaScript's thread has not come to.
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

    /// Has a promise settled when it is its turn. `bytes`: what JavaScript's thread has to read of it.
    pub(super) fn send(self: &Arc<Self>, bytes: usize, settle: impl FnOnce(Settling) + Send + 'static) {
        let mut state = self.state();
        // Nobody waits for it, where the environment has ended.
        if !state.has_ended {
            state.queue.push(bytes, Box::new(settle));
            drop(state);
            self.settle_next();
        }
    }

    /// Settles what the next turn gets, where none is under way.
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
}

/// An outcome that is being handed over.
pub(super) struct Settling {
    outcomes: Arc<Outcomes>,
    was_settled: bool,
}

impl Settling {
    /// Says that JavaScript's thread has come to it. To be called there.
    pub(super) fn settled(mut self, env: &Env) {
        self.was_settled = true;
        let mut state = self.outcomes.state();
        state.unsettled -= 1;
        if state.unsettled == 0 {
            drop(state);
            let outcomes = Arc::clone(&self.outcomes);
            at_turn_end(env, move || outcomes.turn_ended());
        }
    }
}

impl Drop for Settling {
    /// Where it was dropped instead, the environment has ended: so does all that waits.
    fn drop(&mut self) {
        if !self.was_settled {
            let mut state = self.outcomes.state();
            state.has_ended = true;
            let waiting = state.queue.clear();
            // Not while it is locked: with them goes what they hold.
            drop(state);
            drop(waiting);
        }
    }
}
