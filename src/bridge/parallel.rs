//! Decides whether the calls of one run to a server run concurrently or one after another.
//!
//! Calls of tools that only read or are idempotent may run concurrently. Any other call waits for all earlier calls of the run to this
//! server, and all later calls wait for it. So the calls keep the order of the code. With `parallel: false`, every call waits for all
//! earlier calls, and all later calls wait for it.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::catalog::Tool;
use crate::queue::queue_now;

/// The setting `parallel` of the config, which says whether a server accepts concurrent calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concurrency {
    Parallel,
    OneAtATime,
}

/// The rule that determines which other calls of the same run and server a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The call runs concurrently with other shared calls.
    Shared,
    /// The call runs after all earlier calls and before all later calls.
    Alone,
}

/// Returns the rule for a call of a tool. The rule depends on the approved annotations of the tool.
pub(super) fn turn_of_call(concurrency: Concurrency, approved: &Tool) -> Turn {
    let hint = |name: &str| approved.annotations.as_ref().and_then(|hints| hints.get(name)).and_then(Json::as_bool) == Some(true);
    if hint("readOnlyHint") || hint("idempotentHint") { turn_of_read(concurrency) } else { Turn::Alone }
}

/// Returns the rule for a read, which is a request for a resource or a prompt.
pub(super) fn turn_of_read(concurrency: Concurrency) -> Turn {
    match concurrency {
        Concurrency::Parallel => Turn::Shared,
        Concurrency::OneAtATime => Turn::Alone,
    }
}

/// The lanes of one run. A lane is a queue of calls to one server, in the order in which they were made.
#[derive(Default)]
pub(super) struct Lanes {
    // Tokio's lock is fair: callers get the lock in the order of their requests.
    lanes: Mutex<BTreeMap<String, Arc<RwLock<()>>>>,
}

/// Guard of a call that may run. Until the guard is dropped, other calls wait according to their rules.
#[expect(dead_code, reason = "the guards are kept until they are dropped, and never read")]
pub(super) enum TurnGuard {
    Shared(OwnedRwLockReadGuard<()>),
    Alone(OwnedRwLockWriteGuard<()>),
}

impl Lanes {
    /// Queues a call in a server's lane immediately, before the future is polled. The future resolves when the call may run.
    pub(super) fn enter(&self, server: &str, turn: Turn) -> impl Future<Output = TurnGuard> + Send + use<> {
        let lane = {
            let mut lanes = self.lanes.lock();
            Arc::clone(lanes.entry(server.to_owned()).or_default())
        };
        let waiting: Pin<Box<dyn Future<Output = TurnGuard> + Send>> = match turn {
            Turn::Shared => Box::pin(async move { TurnGuard::Shared(lane.read_owned().await) }),
            Turn::Alone => Box::pin(async move { TurnGuard::Alone(lane.write_owned().await) }),
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

    fn turn(concurrency: Concurrency, annotations: &Json) -> Turn {
        turn_of_call(concurrency, &serde_json::from_value(json!({ "name": "t", "annotations": annotations })).unwrap())
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
            assert_eq!(turn(Concurrency::Parallel, &annotations), expected, "{annotations}");
            assert_eq!(turn(Concurrency::OneAtATime, &annotations), Turn::Alone);
        }
        assert_eq!((turn_of_read(Concurrency::Parallel), turn_of_read(Concurrency::OneAtATime)), (Turn::Shared, Turn::Alone));
    }

    /// Returns the guard if the lane lets the call run, and `None` if the call still waits.
    fn poll(waiting: &mut Pin<Box<dyn Future<Output = TurnGuard> + Send>>) -> Option<TurnGuard> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(held) => Some(held),
            Poll::Pending => None,
        }
    }

    #[test]
    fn servers_do_not_wait_for_one_another() {
        let lanes = Lanes::default();
        let mut first: Pin<Box<dyn Future<Output = TurnGuard> + Send>> = Box::pin(lanes.enter("a", Turn::Alone));
        let _held = poll(&mut first).unwrap();
        let mut other: Pin<Box<dyn Future<Output = TurnGuard> + Send>> = Box::pin(lanes.enter("b", Turn::Alone));
        assert!(poll(&mut other).is_some());
        let mut second: Pin<Box<dyn Future<Output = TurnGuard> + Send>> = Box::pin(lanes.enter("a", Turn::Shared));
        assert!(poll(&mut second).is_none());
    }

    proptest! {
        /// Tests random sequences of calls, which are alone or share the lane and end in a random order.
        #[test]
        fn nothing_is_beside_a_call_that_is_alone_and_nothing_overtakes_it(
            alone in proptest::collection::vec(any::<bool>(), 1..12),
            ends in proptest::collection::vec(any::<prop::sample::Index>(), 12),
        ) {
            let lanes = Lanes::default();
            let turn = |alone: bool| if alone { Turn::Alone } else { Turn::Shared };
            let mut waiting: BTreeMap<usize, Pin<Box<dyn Future<Output = TurnGuard> + Send>>> =
                alone.iter().enumerate().map(|(index, alone)| (index, Box::pin(lanes.enter("s", turn(*alone))) as _)).collect();
            let mut running: BTreeMap<usize, TurnGuard> = BTreeMap::new();
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
                // A call was overtaken if it still waits while a later call runs, although one of the two calls must run alone.
                let overtaken = waiting.keys().any(|index| *index < last && (alone[*index] || alone[last]));
                prop_assert!(!overtaken, "{:?} before {:?}", running.keys(), waiting.keys());
                let ended = *running.keys().nth(ends.next().unwrap().index(running.len())).unwrap();
                running.remove(&ended);
            }
        }
    }
}
