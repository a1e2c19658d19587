//! Limited places that all callers share, for example places for requests in progress. Each caller has a share. The last places are only
//! given to callers that have few places, so that a few callers together cannot take all places.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// One in four places is reserved for callers that have few places.
const RESERVED: usize = 4;

/// The maximum numbers of places: of all callers together, and of one caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceLimits {
    pub(super) of_all: usize,
    pub(super) of_caller: usize,
    /// A caller that holds fewer places than this may also take a reserved one.
    pub(super) least_of_caller: usize,
}

impl PlaceLimits {
    /// Returns the number of reserved places. If the operator allows one caller to have nearly all places, fewer places are reserved.
    fn reserved(self) -> usize {
        (self.of_all / RESERVED).min(self.of_all.saturating_sub(self.of_caller))
    }
}

/// The places of all callers.
#[derive(Debug)]
pub(super) struct Places {
    limits: PlaceLimits,
    taken: Mutex<usize>,
    freed: Notify,
}

/// The reason why a caller gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    OfCaller,
    OfAll,
}

/// The places of one caller.
#[derive(Debug)]
pub(super) struct Share {
    places: Arc<Places>,
    /// This mutex is locked only while `places.taken` is locked.
    taken: Mutex<usize>,
}

/// Places that are taken until this value is dropped.
#[derive(Debug)]
pub(super) struct Place {
    share: Arc<Share>,
    count: usize,
}

impl Places {
    pub(super) fn new(limits: PlaceLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Returns a new share, for one caller.
    pub(super) fn share(self: &Arc<Self>) -> Arc<Share> {
        Arc::new(Share { places: Arc::clone(self), taken: Mutex::default() })
    }

    /// Waits until no place is taken.
    pub(super) async fn until_free(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // The notification is enabled before the check, so that a change between these two steps is not missed.
            freed.as_mut().enable();
            if *self.taken.lock() == 0 {
                return;
            }
            freed.await;
        }
    }
}

impl Share {
    /// Takes `count` places, or returns [`Full`] if too few are free.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Result<Place, Full> {
        self.add(count)?;
        Ok(Place { share: Arc::clone(self), count })
    }

    pub(super) fn is_free(&self) -> bool {
        *self.taken.lock() == 0
    }

    fn add(&self, count: usize) -> Result<(), Full> {
        let limits = self.places.limits;
        let (mut all, mut own) = (self.places.taken.lock(), self.taken.lock());
        let (new_all, new_own) = (all.saturating_add(count), own.saturating_add(count));
        if new_own > limits.of_caller {
            return Err(Full::OfCaller);
        }
        let reserved = if new_own > limits.least_of_caller { limits.reserved() } else { 0 };
        if new_all > limits.of_all - reserved {
            return Err(Full::OfAll);
        }
        (*all, *own) = (new_all, new_own);
        Ok(())
    }
}

impl Place {
    /// Takes more places. They are given back together with the places that this value already has.
    pub(super) fn add(&mut self, count: usize) -> Result<(), Full> {
        self.share.add(count)?;
        self.count += count;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.share.places.taken.lock();
        *self.share.taken.lock() -= self.count;
        *all -= self.count;
        if *all == 0 {
            self.share.places.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn places(of_all: usize, of_caller: usize) -> Arc<Places> {
        Places::new(PlaceLimits { of_all, of_caller, least_of_caller: 1 })
    }

    /// Takes places until this caller gets no more.
    fn greedy(share: &Arc<Share>) -> Vec<Place> {
        std::iter::from_fn(|| share.take(1).ok()).collect()
    }

    #[test]
    fn however_many_places_some_callers_hold_another_gets_one() {
        let places = places(128, 64);
        let loud: Vec<_> = (0..8).map(|_| places.share()).collect();
        let held: Vec<_> = loud.iter().map(greedy).collect();
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [64, 32, 1, 1, 1, 1, 1, 1]);
        assert_eq!(loud[0].take(1).err(), Some(Full::OfCaller));
        assert_eq!(loud[1].take(1).err(), Some(Full::OfAll));
        let others: Vec<_> = (0..32 - 6).map(|_| places.share().take(1).unwrap()).collect();
        assert_eq!(places.share().take(1).err(), Some(Full::OfAll));
        drop(others);
        assert!(places.share().take(1).is_ok());
        assert_eq!(places.share().take(2).err(), Some(Full::OfAll));
        drop(held);
        assert!(loud.iter().all(|share| share.is_free()) && places.until_free().now_or_never().is_some());
    }

    #[test]
    fn a_caller_may_have_all_places_where_the_operator_says_so() {
        for most in [1, 3, 8] {
            assert_eq!(greedy(&places(most, most).share()).len(), most);
        }
        assert_eq!(greedy(&places(8, 100).share()).len(), 8);
    }

    #[test]
    fn places_that_are_added_are_given_back_with_the_first() {
        let places = Places::new(PlaceLimits { of_all: 100, of_caller: 50, least_of_caller: 10 });
        let (one, other) = (places.share(), places.share());
        let mut place = one.take(30).unwrap();
        assert_eq!(place.add(21), Err(Full::OfCaller));
        place.add(20).unwrap();
        assert_eq!(other.take(26).err(), Some(Full::OfAll));
        let rest = other.take(25).unwrap();
        assert!(places.share().take(10).is_ok() && places.until_free().now_or_never().is_none());
        drop((place, rest));
        assert!(one.is_free() && places.until_free().now_or_never().is_some());
    }
}
