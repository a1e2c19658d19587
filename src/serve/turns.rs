//! Limits how many requests of one caller do work of the same kind at the same time. Some work about servers with thousands of items takes
//! long, so without a limit one caller could take all processors and much memory.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of all callers for work of one kind.
pub(super) struct Turns {
    most: usize,
    of_callers: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Turns {
    /// Creates the turns. `most` is the number of turns that one caller can have at the same time.
    pub(super) fn new(most: usize) -> Self {
        Self { most, of_callers: Mutex::default() }
    }

    /// Waits until the caller has a free turn. The semaphore is never closed, so a permit is always returned.
    pub(super) async fn wait(&self, caller: &str) -> Option<OwnedSemaphorePermit> {
        self.of(caller).acquire_owned().await.ok()
    }

    fn of(&self, caller: &str) -> Arc<Semaphore> {
        let mut all = self.of_callers.lock();
        if let Some(known) = all.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.most));
        all.insert(caller.to_owned(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn requests_of_one_caller_wait_for_each_other_and_not_those_of_another() {
        let turns = Turns::new(2);
        let mut held: Vec<_> = (0..2).filter_map(|_| turns.wait("loud").now_or_never()).collect();
        assert_eq!(held.len(), 2);
        assert!(turns.wait("loud").now_or_never().is_none());
        assert!(turns.wait("quiet").now_or_never().is_some());
        held.pop();
        assert!(turns.wait("loud").now_or_never().is_some());
        drop(held);
        assert!(turns.wait("quiet").now_or_never().is_some());
        assert_eq!(turns.of_callers.lock().len(), 1, "no caller is kept that has no request");
    }
}
