//! A queue of events that wait for JavaScript, in the order in which they were sent. The functions have no side effects.

use super::turn_queue::{TurnLimits, TurnQueue};

/// The limits on the events that JavaScript's thread gets in one turn of the event loop.
const TURN: TurnLimits = TurnLimits { items: 64, bytes: 128 * 1024 };
/// The maximum size in bytes of the events that wait while JavaScript's thread is busy. Events of servers above this size are dropped and
/// counted.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The origin of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A server. It can send any number of events.
    Server,
    /// This program or the program of the agent. These events are always delivered, so that a server cannot displace them.
    Ourselves,
}

/// The waiting events as JSON texts.
pub(super) struct EventQueue {
    queue: TurnQueue<String>,
    /// The number of events that were ever added to the queue.
    sent: u64,
    /// The number of events that were dropped after an event was last added.
    left_out: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self { queue: TurnQueue::new(TURN), sent: 0, left_out: 0 }
    }
}

impl EventQueue {
    /// Adds an event. An event of a server is added only if there is room for it.
    pub(super) fn push(&mut self, event: String, source: Source) {
        if source == Source::Server && self.queue.bytes() + event.len() > MAX_WAITING_BYTES {
            self.left_out += 1;
            return;
        }
        self.summarise();
        self.take_in(event);
    }

    fn take_in(&mut self, event: String) {
        self.sent += 1;
        self.queue.push(event.len(), event);
    }

    fn summarise(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let message = format!(
                "{left_out} events of servers were left out: onEvent was too slow, and {MAX_WAITING_BYTES} bytes of events waited for it"
            );
            self.take_in(serde_json::json!({ "type": "warning", "message": message }).to_string());
        }
    }

    /// Returns the number of events that were ever added.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the events of the next turn. Returns `None` if there are no events, or if a turn is in progress. [`EventQueue::turn_ended`]
    /// ends a turn.
    pub(super) fn next_turn(&mut self) -> Option<Vec<String>> {
        if self.queue.is_empty() {
            self.summarise();
        }
        self.queue.next_turn()
    }

    /// Records that the turn has ended. From now on, another turn may begin.
    pub(super) fn turn_ended(&mut self) {
        self.queue.turn_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut EventQueue) -> Vec<Vec<String>> {
        let turns = std::iter::from_fn(|| {
            queue.turn_ended();
            queue.next_turn()
        });
        turns.collect()
    }

    #[test]
    fn events_are_told_in_their_order_and_counted() {
        let mut queue = EventQueue::default();
        (0..100).for_each(|number| queue.push(number.to_string(), Source::Server));
        assert_eq!(queue.sent(), 100);
        assert_eq!(all(&mut queue).concat(), (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_is_bounded_and_what_was_left_out_is_told_where_it_would_have_been() {
        let mut queue = EventQueue::default();
        let large = || "x".repeat(MAX_WAITING_BYTES / 4);
        (0..10).for_each(|_| queue.push(large(), Source::Server));
        assert!(queue.queue.bytes() <= MAX_WAITING_BYTES);
        assert!(queue.next_turn().is_some());
        queue.push("after".to_owned(), Source::Server);
        let told = all(&mut queue).concat();
        assert_eq!(told.len(), 3 + 2);
        assert!(told[3].contains("6 events of servers were left out") && told[4] == "after", "{}", told[3]);
        // An event that does not come from a server is always added. The warning about dropped events is sent even if no event follows.
        (0..10).for_each(|_| queue.push(large(), Source::Server));
        queue.push("ours".to_owned(), Source::Ourselves);
        let told = all(&mut queue).concat();
        assert!(told[4].contains("6 events of servers were left out") && told[5] == "ours", "{}", told[4]);
        (0..10).for_each(|_| queue.push(large(), Source::Server));
        assert!(all(&mut queue).concat().last().unwrap().contains("6 events of servers were left out"));
    }
}
