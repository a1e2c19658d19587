//! A queue of items that wait for JavaScript's thread, with limits on the items that one turn of the event loop gets. The functions have no
//! side effects.

use std::collections::VecDeque;

/// The limits of one turn. An item that is larger than the byte limit gets its own turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnLimits {
    pub(super) items: usize,
    pub(super) bytes: usize,
}

/// Items that wait for a turn, in order. Only one turn is in progress at a time, so that other work can run between two turns.
pub(super) struct TurnQueue<T> {
    limits: TurnLimits,
    /// The items, each with its size in bytes.
    waiting: VecDeque<(usize, T)>,
    bytes: usize,
    is_under_way: bool,
}

impl<T> TurnQueue<T> {
    pub(super) fn new(limits: TurnLimits) -> Self {
        Self { limits, waiting: VecDeque::new(), bytes: 0, is_under_way: false }
    }

    pub(super) fn push(&mut self, bytes: usize, item: T) {
        self.bytes += bytes;
        self.waiting.push_back((bytes, item));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the total size of all waiting items in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes and returns the items of the next turn. Returns `None` if no item waits, or if a turn is in progress.
    /// [`TurnQueue::turn_ended`] ends a turn.
    pub(super) fn next_turn(&mut self) -> Option<Vec<T>> {
        if self.is_under_way {
            return None;
        }
        let mut turn = Vec::new();
        let mut bytes = 0;
        while turn.len() < self.limits.items
            && let Some((next, _)) = self.waiting.front()
            && (turn.is_empty() || bytes + next <= self.limits.bytes)
        {
            bytes += next;
            turn.extend(self.waiting.pop_front().map(|(_, item)| item));
        }
        self.bytes -= bytes;
        self.is_under_way = !turn.is_empty();
        self.is_under_way.then_some(turn)
    }

    /// Records that the turn has ended. From now on, another turn may begin.
    pub(super) fn turn_ended(&mut self) {
        self.is_under_way = false;
    }

    /// Removes and returns all waiting items.
    pub(super) fn clear(&mut self) -> VecDeque<(usize, T)> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TurnLimits = TurnLimits { items: 64, bytes: 1000 };

    fn all(queue: &mut TurnQueue<usize>) -> Vec<Vec<usize>> {
        let turns = std::iter::from_fn(|| {
            queue.turn_ended();
            queue.next_turn()
        });
        turns.collect()
    }

    #[test]
    fn one_turn_is_under_way_at_a_time_with_so_many_items_in_their_order() {
        let mut queue = TurnQueue::new(LIMITS);
        (0..100).for_each(|number| queue.push(1, number));
        let first = queue.next_turn().unwrap();
        assert!(queue.next_turn().is_none(), "the first has not ended");
        let rest = all(&mut queue).concat();
        assert_eq!((first.len(), rest.len(), queue.bytes()), (LIMITS.items, 100 - LIMITS.items, 0));
        assert_eq!([first, rest].concat(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_turn_takes_so_many_bytes_and_an_item_that_is_larger_has_one_of_its_own() {
        let mut queue = TurnQueue::new(LIMITS);
        for (number, bytes) in [400, 600, 1, 1001, 1].into_iter().enumerate() {
            queue.push(bytes, number);
        }
        assert_eq!(all(&mut queue), [vec![0, 1], vec![2], vec![3], vec![4]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_queue_that_was_cleared_has_nothing_for_a_turn() {
        let mut queue = TurnQueue::new(LIMITS);
        (0..3).for_each(|number| queue.push(10, number));
        assert_eq!(queue.clear().len(), 3);
        assert!(queue.next_turn().is_none() && queue.bytes() == 0);
    }
}
