//! Limits how much work of the same kind is done for one owner at the same time. Some work takes long, for example a list of thousands of
//! items, or a check of a large value. Without a limit, one owner could take all processors and much memory.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of all owners for work of one kind. An owner is a caller or a server.
pub(crate) struct Turns {
    most: usize,
    of_owners: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Turns {
    /// Creates the turns. `most` is the number of turns that one owner can have at the same time.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, of_owners: Mutex::default() }
    }

    /// Waits until the owner has a free turn. The semaphore is never closed, so a permit is always returned.
    pub(crate) async fn wait(&self, owner: &str) -> Option<OwnedSemaphorePermit> {
        self.of(owner).acquire_owned().await.ok()
    }

    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let mut all = self.of_owners.lock();
        if let Some(known) = all.get(owner).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.most));
        all.insert(owner.to_owned(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_work_of_one_owner_waits_for_its_turn_and_not_that_of_another() {
        let turns = Turns::new(2);
        let mut held: Vec<_> = (0..2).filter_map(|_| turns.wait("loud").now_or_never()).collect();
        assert_eq!(held.len(), 2);
        assert!(turns.wait("loud").now_or_never().is_none());
        assert!(turns.wait("quiet").now_or_never().is_some());
        held.pop();
        assert!(turns.wait("loud").now_or_never().is_some());
        drop(held);
        assert!(turns.wait("quiet").now_or_never().is_some());
        assert_eq!(turns.of_owners.lock().len(), 1, "no owner is kept that has no work");
    }
}
