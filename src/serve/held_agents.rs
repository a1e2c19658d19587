//! Agents that stay open between the requests of callers without a session. A server that a caller has through its profiles ends with the
//! last agent that has it. If the agents did not stay open, these servers would be started again for each request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::Result;

/// The time that an agent stays open after the last request of its caller.
const HELD: Duration = Duration::from_mins(5);

/// The open agents by name, each with the time of its caller's last request.
pub(super) struct HeldAgents<A>(Mutex<BTreeMap<String, (A, Instant)>>);

impl<A> Default for HeldAgents<A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<A> HeldAgents<A> {
    /// Keeps the agent of this name open from now on. Opens the agent if it is not open.
    pub(super) fn hold(&self, name: &str, now: Instant, open: impl FnOnce() -> Result<A>) -> Result<()> {
        let mut held = self.0.lock();
        if let Some((_, last)) = held.get_mut(name) {
            *last = now;
        } else {
            held.insert(name.to_owned(), (open()?, now));
        }
        Ok(())
    }

    /// Drops the agents whose callers have made no request for the time [`HELD`].
    pub(super) fn end_left(&self, now: Instant) {
        let is_left = |_: &String, (_, last): &mut (A, Instant)| now.saturating_duration_since(*last) >= HELD;
        let left: Vec<_> = self.0.lock().extract_if(.., is_left).collect();
        // The list is not locked at this point, because dropping an agent ends everything that belongs to the agent.
        drop(left);
    }

    /// Drops all agents.
    pub(super) fn clear(&self) {
        let left = std::mem::take(&mut *self.0.lock());
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_agent_is_held_until_its_caller_has_been_quiet_for_some_time() {
        let (held, start) = (HeldAgents::default(), Instant::now());
        let [first, second] = [Arc::new(1), Arc::new(2)];
        held.hold("a", start, || Ok(Arc::clone(&first))).unwrap();
        held.hold("a", start + HELD / 2, || panic!("there is one")).unwrap();
        held.hold("b", start, || Ok(Arc::clone(&second))).unwrap();
        held.end_left(start + HELD);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 1));
        held.hold("b", start + HELD, || Ok(Arc::clone(&second))).unwrap();
        held.clear();
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    }
}
