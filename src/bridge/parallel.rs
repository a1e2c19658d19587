//! Which calls of one run go to a server side by side, and which one after the other.
//!
//! A call that only reads, or that is as good twice as once, may be under way beside others of its kind. Any other comes after all that
//! the run's code has made before, and before all that it makes later, so that what happens is what is written. So do all calls of
//! a server that takes them one at a time (`parallel: false`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::catalog::Tool;
use crate::queue::queue_now;

/// How a server takes its calls: `parallel` in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    SideBySide,
    OneAtATime,
}

/// How a call stands to the others of its run and its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Beside others that share.
    Shared,
    /// After all before it, before all after it.
    Alone,
}

/// The turn of a tool's call. What a tool says of itself counts as it was approved.
pub(super) fn turn_of_call(pace: Pace, approved: &Tool) -> Turn {
    let hint = |name: &str| approved.annotations.as_ref().and_then(|hints| hints.get(name)).and_then(Json::as_bool) == Some(true);
    if hint("readOnlyHint") || hint("idempotentHint") { turn_of_read(pace) } else { Turn::Alone }
}

/// The turn of what reads: resources and prompts.
pub(super) fn turn_of_read(pace: Pace) -> Turn {
    match pace {
        Pace::SideBySide => Turn::Shared,
        Pace::OneAtATime => Turn::Alone,
    }
}

/// The lanes of one run: the calls of each server, in the order in which they were made.
#[derive(Default)]
pub(super) struct Lanes {
    // Tokio's lock is fair: whoever asks later waits longer.
    lanes: Mutex<BTreeMap<String, Arc<RwLock<()>>>>,
}

/// While it lives, it is the call's turn.
#[expect(dead_code, reason = "what it holds is held, not read")]
pub(super) enum Held {
    Shared(OwnedRwLockReadGuard<()>),
    Alone(OwnedRwLockWriteGuard<()>),
}

impl Lanes {
    /// Takes a place in a server's lane now; the future is there when it is the call's turn.
    pub(super) fn enter(&self, server: &str, turn: Turn) -> impl Future<Output = Held> + Send + use<> {
        let lane = {
            let mut lanes = self.lanes.lock();
            Arc::clone(lanes.entry(server.to_owned()).or_default())
        };
        let waiting: Pin<Box<dyn Future<Output = Held> + Send>> = match turn {
            Turn::Shared => Box::pin(async move { Held::Shared(lane.read_owned().await) }),
            Turn::Alone => Box::pin(async move { Held::Alone(lane.write_owned().await) }),
        };
        queue_now(waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn turn(pace: Pace, annotations: &Json) -> Turn {
        turn_of_call(pace, &serde_json::from_value(json!({ "name": "t", "annotations": annotations })).unwrap())
    }

    #[test]
    fn what_reads_or_may_be_done_twice_goes_beside_others_and_nothing_else_does() {
        for (annotations, expected) in [
            (json!({ "readOnlyHint": true }), Turn::Shared),
            (json!({ "idempotentHint": true, "readOnlyHint": false }), Turn::Shared),
            (json!({}), Turn::Alone),
            (json!(null), Turn::Alone),
            (json!({ "readOnlyHint": "true", "idempotentHint": 1 }), Turn::Alone),
            (json!({ "destructiveHint": false }), Turn::Alone),
        ] {
            assert_eq!(turn(Pace::SideBySide, &annotations), expected, "{annotations}");
            assert_eq!(turn(Pace::OneAtATime, &annotations), Turn::Alone);
        }
        assert_eq!((turn_of_read(Pace::SideBySide), turn_of_read(Pace::OneAtATime)), (Turn::Shared, Turn::Alone));
    }

    /// Whether the lane has let a call in.
    fn poll(waiting: &mut Pin<Box<dyn Future<Output = Held> + Send>>) -> Option<Held> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(held) => Some(held),
            Poll::Pending => None,
        }
    }

    #[test]
    fn servers_do_not_wait_for_one_another() {
        let lanes = Lanes::default();
        let mut first: Pin<Box<dyn Future<Output = Held> + Send>> = Box::pin(lanes.enter("a", Turn::Alone));
        let _held = poll(&mut first).unwrap();
        let mut other: Pin<Box<dyn Future<Output = Held> + Send>> = Box::pin(lanes.enter("b", Turn::Alone));
        assert!(poll(&mut other).is_some());
        let mut second: Pin<Box<dyn Future<Output = Held> + Send>> = Box::pin(lanes.enter("a", Turn::Shared));
        assert!(poll(&mut second).is_none());
    }

    proptest! {
        /// Whatever the turns, and in whichever order the calls that are under way end.
        #[test]
        fn nothing_is_beside_a_call_that_is_alone_and_nothing_overtakes_it(
            alone in proptest::collection::vec(any::<bool>(), 1..12),
            ends in proptest::collection::vec(any::<prop::sample::Index>(), 12),
        ) {
            let lanes = Lanes::default();
            let turn = |alone: bool| if alone { Turn::Alone } else { Turn::Shared };
            let mut waiting: BTreeMap<usize, Pin<Box<dyn Future<Output = Held> + Send>>> =
                alone.iter().enumerate().map(|(index, alone)| (index, Box::pin(lanes.enter("s", turn(*alone))) as _)).collect();
            let mut running: BTreeMap<usize, Held> = BTreeMap::new();
            let mut ends = ends.into_iter();
            while !waiting.is_empty() || !running.is_empty() {
                for index in waiting.keys().copied().collect::<Vec<_>>() {
                    if let Some(held) = waiting.get_mut(&index).and_then(poll) {
                        waiting.remove(&index);
                        running.insert(index, held);
                    }
                }
                prop_assert!(!running.is_empty(), "nobody has a turn");
                let is_alone = |index: &usize| alone[*index];
                prop_assert!(running.len() == 1 || !running.keys().any(is_alone), "beside: {:?}", running.keys());
                let last = *running.keys().next_back().unwrap();
                // Whoever waits in front of one that runs, and either of them is alone, was overtaken.
                let overtaken = waiting.keys().any(|index| *index < last && (alone[*index] || alone[last]));
                prop_assert!(!overtaken, "{:?} before {:?}", running.keys(), waiting.keys());
                let ended = *running.keys().nth(ends.next().unwrap().index(running.len())).unwrap();
                running.remove(&ended);
            }
        }
    }
}
