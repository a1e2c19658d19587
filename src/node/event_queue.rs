//! Events that wait for JavaScript, in their order. Pure.

use std::collections::VecDeque;

/// What JavaScript's thread is told in one turn of its loop: others have their turn between.
const TURN_EVENTS: usize = 64;
const TURN_BYTES: usize = 128 * 1024;
/// What waits while that thread is busy; of what servers tell, more is left out, and counted.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// Who made an event happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A server, which may say as much as it likes.
    Server,
    /// This program, or its agent: it is always told, as no server may talk it away.
    Ourselves,
}

/// Events as JSON, from those that were sent last to those that were told.
#[derive(Default)]
pub(super) struct EventQueue {
    waiting: VecDeque<String>,
    bytes: usize,
    /// All that were ever taken in.
    sent: u64,
    /// Left out since the last that was taken in.
    left_out: u64,
    /// A turn is on its way to JavaScript.
    is_telling: bool,
}

impl EventQueue {
    /// Takes an event in; a server's as long as there is room.
    pub(super) fn push(&mut self, event: String, source: Source) {
        if source == Source::Server && self.bytes + event.len() > MAX_WAITING_BYTES {
            self.left_out += 1;
            return;
        }
        self.summarise();
        self.take_in(event);
    }

    fn take_in(&mut self, event: String) {
        self.bytes += event.len();
        self.sent += 1;
        self.waiting.push_back(event);
    }

    fn summarise(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let message = format!(
                "{left_out} events of servers were left out: onEvent is slower than what happens, and {MAX_WAITING_BYTES} bytes waited"
            );
            self.take_in(serde_json::json!({ "type": "warning", "message": message }).to_string());
        }
    }

    /// Number of the event that was sent last.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// What is to be told in the next turn, and no other before [`EventQueue::turn_ended`]. `None`: nothing, or not yet.
    pub(super) fn next_turn(&mut self) -> Option<Vec<String>> {
        if self.is_telling {
            return None;
        }
        if self.waiting.is_empty() {
            self.summarise();
        }
        let mut turn = Vec::new();
        let mut bytes = 0;
        while turn.len() < TURN_EVENTS
            && let Some(event) = self.waiting.front()
            && (turn.is_empty() || bytes + event.len() <= TURN_BYTES)
        {
            bytes += event.len();
            turn.extend(self.waiting.pop_front());
        }
        self.bytes -= bytes;
        self.is_telling = !turn.is_empty();
        self.is_telling.then_some(turn)
    }

    /// From now on, there may be another turn.
    pub(super) fn turn_ended(&mut self) {
        self.is_telling = false;
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
    fn one_turn_is_told_at_a_time_of_so_many_events_and_bytes_in_their_order() {
        let mut queue = EventQueue::default();
        (0..100).for_each(|number| queue.push(number.to_string(), Source::Server));
        let first = queue.next_turn().unwrap();
        assert!(queue.next_turn().is_none(), "the first has not ended");
        let rest = all(&mut queue).concat();
        assert_eq!((first.len(), rest.len(), queue.sent()), (TURN_EVENTS, 100 - TURN_EVENTS, 100));
        assert_eq!([first, rest].concat(), (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
        (0..3).for_each(|_| queue.push("x".repeat(TURN_BYTES - 1), Source::Server));
        assert_eq!(all(&mut queue).len(), 3);
    }

    #[test]
    fn an_event_that_is_larger_than_a_turn_has_one_of_its_own() {
        let mut queue = EventQueue::default();
        for event in ["small".to_owned(), "x".repeat(TURN_BYTES + 1), "after".to_owned()] {
            queue.push(event, Source::Ourselves);
        }
        assert_eq!(all(&mut queue).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn what_waits_is_bounded_and_what_was_left_out_is_told_where_it_would_have_been() {
        let mut queue = EventQueue::default();
        let large = || "x".repeat(MAX_WAITING_BYTES / 4);
        (0..10).for_each(|_| queue.push(large(), Source::Server));
        assert!(queue.bytes <= MAX_WAITING_BYTES);
        assert!(queue.next_turn().is_some());
        queue.push("after".to_owned(), Source::Server);
        let told = all(&mut queue).concat();
        assert_eq!(told.len(), 3 + 2);
        assert!(told[3].contains("6 events of servers were left out") && told[4] == "after", "{}", told[3]);
        // What is not a server's is taken in whatever waits; and where nothing comes after what was left out, that is told all the same.
        (0..10).for_each(|_| queue.push(large(), Source::Server));
        queue.push("ours".to_owned(), Source::Ourselves);
        let told = all(&mut queue).concat();
        assert!(told[4].contains("6 events of servers were left out") && told[5] == "ours", "{}", told[4]);
        (0..10).for_each(|_| queue.push(large(), Source::Server));
        assert!(all(&mut queue).concat().last().unwrap().contains("6 events of servers were left out"));
    }
}
