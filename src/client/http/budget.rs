//! Memory budget for the unfinished bodies of one connection. If a server begins many answers and does not finish them, reading pauses.
//! Each connection has its own budget, so such a server does not slow down other connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of bytes that each body may have without a reservation. Nearly all answers are shorter.
pub(super) const FREE_BYTES: usize = 64 * 1024;
/// Number of bytes for which one permit of the semaphore is needed.
const UNIT_BYTES: usize = 1024;

/// The memory budget of one connection.
pub(super) struct Budget {
    room: Arc<Semaphore>,
    /// Permit with which one body may exceed the budget, so that at least one body can always be read completely.
    last: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(bytes / UNIT_BYTES)), last: Arc::new(Semaphore::new(1)) }
    }

    /// Makes a reservation for a new body. The new reservation is empty.
    pub(super) fn place(&self) -> Reservation {
        Reservation { room: Arc::clone(&self.room), last: Arc::clone(&self.last), taken: None, is_last: None }
    }
}

/// Memory that one body has reserved. Dropping the reservation frees the memory.
pub(super) struct Reservation {
    room: Arc<Semaphore>,
    last: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    is_last: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Waits until reading may continue for a body that has `bytes` bytes so far. Waiting bodies are served in order.
    pub(super) async fn hold(&mut self, bytes: usize) {
        self.shrink(bytes);
        let missing = units_beyond(bytes, self.units());
        if missing == 0 || self.is_last.is_some() {
            return;
        }
        // Acquiring cannot fail, because neither semaphore is ever closed.
        tokio::select! {
            biased;
            Ok(more) = Arc::clone(&self.room).acquire_many_owned(missing) => match &mut self.taken {
                Some(taken) => taken.merge(more),
                None => self.taken = Some(more),
            },
            Ok(last) = Arc::clone(&self.last).acquire_owned() => self.is_last = Some(last),
            else => {}
        }
    }

    /// Frees the reserved memory that a body with `bytes` bytes does not need any more.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let (wanted, held) = (units_of(bytes), self.units());
        if wanted > held {
            return;
        }
        self.is_last = None;
        if let Some(taken) = &mut self.taken {
            drop(taken.split(held - wanted));
        }
    }

    fn units(&self) -> usize {
        self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

fn units_of(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES).div_ceil(UNIT_BYTES)
}

fn units_beyond(bytes: usize, held: usize) -> u32 {
    u32::try_from(units_of(bytes).saturating_sub(held)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn fits(place: &mut Reservation, bytes: usize) -> bool {
        place.hold(bytes).now_or_never().is_some()
    }

    #[test]
    fn short_bodies_need_no_room() {
        let budget = Budget::new(0);
        let mut places: Vec<Reservation> = (0..1000).map(|_| budget.place()).collect();
        assert!(places.iter_mut().all(|place| fits(place, FREE_BYTES)));
        assert!(fits(&mut places[0], FREE_BYTES + 1), "one body may exceed the budget");
        assert!(!fits(&mut places[1], FREE_BYTES + 1));
    }

    #[test]
    fn where_the_room_is_taken_one_body_goes_on_and_the_next_one_after_it() {
        let budget = Budget::new(MIB);
        let [mut full, mut last, mut next] = [(); 3].map(|()| budget.place());
        assert!(fits(&mut full, FREE_BYTES + MIB));
        assert!(fits(&mut last, 16 * MIB), "one body may be larger than the budget");
        assert!(fits(&mut last, 17 * MIB));
        assert!(!fits(&mut next, 2 * FREE_BYTES));
        drop(last);
        assert!(fits(&mut next, 2 * FREE_BYTES));
        assert!(!fits(&mut full, 2 * MIB), "a body with a reservation waits for more like the others");
        drop(next);
        assert!(fits(&mut full, 2 * MIB));
    }

    #[test]
    fn what_has_become_shorter_gives_back_its_room() {
        let budget = Budget::new(MIB);
        let [mut one, mut last, mut other] = [(); 3].map(|()| budget.place());
        assert!(fits(&mut one, FREE_BYTES + MIB) && fits(&mut last, 2 * MIB));
        assert!(!fits(&mut other, MIB));
        one.shrink(FREE_BYTES + MIB / 2);
        assert!(fits(&mut other, FREE_BYTES + MIB / 2));
        last.shrink(0);
        assert!(fits(&mut other, 2 * MIB), "the permit to exceed the budget is free again");
    }
}
