//! A queue of calls that wait for JavaScript, sorted by module. It also determines the event-loop turns in which the calls start. The
//! functions have no side effects.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum time for which calls are started in one turn of the event loop. After this time, no further call starts, so that other work
/// can run.
const TURN: Duration = Duration::from_millis(10);

/// The state of the present turn of the event loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// No call was started in this turn.
    Fresh,
    Started(Instant),
    /// No further call may start in this turn.
    Spent,
}

/// The action that JavaScript must take when it runs for a module after it was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Start the first call of a turn. The end of the turn must be reported to the queue.
    First,
    /// Start another call in the same turn.
    Further,
    /// Start no call, because the time of the turn is used up.
    Late,
}

/// The waiting calls of one environment. JavaScript is woken for one call at a time, so that the follow-up work of a call is counted in the
/// time of its turn.
pub(super) struct CallQueue<T> {
    /// The modules with waiting calls, in the order in which they are served.
    modules: VecDeque<(u64, VecDeque<T>)>,
    turn: Turn,
    /// The module for which JavaScript was woken, until JavaScript runs for it.
    woken: Option<u64>,
}

impl<T> Default for CallQueue<T> {
    fn default() -> Self {
        Self { modules: VecDeque::new(), turn: Turn::Fresh, woken: None }
    }
}

impl<T> CallQueue<T> {
    pub(super) fn push(&mut self, module: u64, call: T) {
        match self.modules.iter_mut().find(|(known, _)| *known == module) {
            Some((_, calls)) => calls.push_back(call),
            None => self.modules.push_back((module, VecDeque::from([call]))),
        }
    }

    /// Returns the first call of the next module, for which JavaScript must be woken now. Returns `None` if no call waits, if JavaScript
    /// was already woken, or if the time of this turn is used up.
    pub(super) fn wake(&mut self) -> Option<&T> {
        if self.woken.is_some() || self.turn == Turn::Spent {
            return None;
        }
        let (module, calls) = self.modules.front()?;
        self.woken = Some(*module);
        calls.front()
    }

    /// Records that JavaScript runs after it was woken.
    pub(super) fn arrived(&mut self, now: Instant) -> Arrival {
        self.woken = None;
        match self.turn {
            Turn::Fresh => {
                self.turn = Turn::Started(now);
                Arrival::First
            }
            Turn::Started(start) if now.duration_since(start) < TURN => Arrival::Further,
            Turn::Started(_) | Turn::Spent => {
                self.turn = Turn::Spent;
                Arrival::Late
            }
        }
    }

    /// Removes and returns a module's next call, and moves the module to the end of the order.
    pub(super) fn take(&mut self, module: u64) -> Option<T> {
        let index = self.modules.iter().position(|(known, _)| *known == module)?;
        let (_, mut calls) = self.modules.remove(index)?;
        let call = calls.pop_front();
        if !calls.is_empty() {
            self.modules.push_back((module, calls));
        }
        call
    }

    /// Removes and returns all waiting calls of a module that no longer exists.
    pub(super) fn leave(&mut self, module: u64) -> Option<VecDeque<T>> {
        if self.woken == Some(module) {
            self.woken = None;
        }
        let index = self.modules.iter().position(|(known, _)| *known == module)?;
        self.modules.remove(index).map(|(_, calls)| calls)
    }

    /// Records that the turn has ended. From now on, calls may start again.
    pub(super) fn turn_ended(&mut self) {
        self.turn = Turn::Fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 1;
    const SECOND: u64 = 2;

    fn queue(calls: &[(u64, &'static str)]) -> CallQueue<&'static str> {
        let mut queue = CallQueue::default();
        for (module, call) in calls {
            queue.push(*module, *call);
        }
        queue
    }

    /// Wakes JavaScript, and starts a call in the same way as JavaScript.
    fn step(queue: &mut CallQueue<&'static str>, now: Instant) -> Option<&'static str> {
        queue.wake()?;
        let module = queue.woken?;
        if queue.arrived(now) == Arrival::Late { None } else { queue.take(module) }
    }

    #[test]
    fn a_turn_begins_one_call_at_least_and_no_other_once_its_time_is_spent() {
        let start = Instant::now();
        let mut queue = queue(&[(FIRST, "a"), (FIRST, "b"), (FIRST, "c"), (FIRST, "d")]);
        assert_eq!(step(&mut queue, start), Some("a"));
        assert_eq!(step(&mut queue, start + TURN / 2), Some("b"));
        assert_eq!(step(&mut queue, start + TURN), None);
        queue.push(FIRST, "e");
        assert!(queue.wake().is_none(), "the turn has not ended");
        queue.turn_ended();
        assert_eq!(step(&mut queue, start + TURN), Some("c"));
        assert_eq!(step(&mut queue, start + 3 * TURN), None);
        queue.turn_ended();
        assert_eq!(step(&mut queue, start + 3 * TURN), Some("d"));
    }

    #[test]
    fn javascript_is_woken_for_one_call_at_a_time() {
        let mut queue = queue(&[(FIRST, "a"), (SECOND, "b")]);
        assert_eq!(queue.wake(), Some(&"a"));
        assert!(queue.wake().is_none());
        assert_eq!(queue.arrived(Instant::now()), Arrival::First);
        assert_eq!(queue.take(FIRST), Some("a"));
        assert_eq!(queue.wake(), Some(&"b"));
    }

    #[test]
    fn modules_take_turns_and_each_keeps_its_order() {
        let now = Instant::now();
        let mut queue = queue(&[(FIRST, "a1"), (FIRST, "a2"), (FIRST, "a3"), (SECOND, "b1"), (SECOND, "b2")]);
        let begun: Vec<_> = std::iter::from_fn(|| step(&mut queue, now)).collect();
        assert_eq!(begun, ["a1", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn a_module_that_is_gone_does_not_hold_up_the_others() {
        let mut queue = queue(&[(FIRST, "a"), (SECOND, "b")]);
        assert_eq!(queue.wake(), Some(&"a"));
        assert_eq!(queue.leave(FIRST), Some(VecDeque::from(["a"])));
        assert_eq!(step(&mut queue, Instant::now()), Some("b"));
        assert!(queue.leave(FIRST).is_none() && queue.wake().is_none());
    }
}
