//! Limits the total size of the values that the runs of one caller have saved in all sessions. A limit for each session alone is not
//! sufficient, because a caller can have hundreds of sessions.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::session::Session;

/// The maximum total size for the sessions of one caller, as a multiple of `limits.maxSavedBytes`.
const SHARES_OF_CALLER: usize = 4;
/// The maximum total size for the sessions of all callers, as a multiple of `limits.maxSavedBytes`.
const SHARES_OF_ALL: usize = 64;

/// A session that can have saved values.
pub(super) trait Saver {
    /// Returns the total size of the values that are still saved.
    fn saved_bytes(&self, now: Instant) -> usize;
    fn forget_saved(&self);
}

impl Saver for Session {
    fn saved_bytes(&self, now: Instant) -> usize {
        self.agent.saved_bytes(now)
    }

    fn forget_saved(&self) {
        self.agent.forget_saved();
    }
}

/// The sessions with saved values, by caller. The session whose run ended last is at the end.
pub(super) struct SavedShares<S> {
    of_caller: usize,
    of_all: usize,
    sessions: Mutex<HashMap<String, Vec<Weak<S>>>>,
}

impl<S: Saver> SavedShares<S> {
    /// Creates an empty record. `max_bytes` is the limit for one session.
    pub(super) fn new(max_bytes: usize) -> Self {
        let share = |shares| max_bytes.saturating_mul(shares);
        Self { of_caller: share(SHARES_OF_CALLER), of_all: share(SHARES_OF_ALL), sessions: Mutex::default() }
    }

    /// Records that a run of a session has ended. If the sessions of this caller, or all sessions, have saved too much, removes the values
    /// of this caller's sessions. It begins with the session whose last run is the oldest. So no caller loses values because of another
    /// caller.
    pub(super) fn ran(&self, caller: &str, session: &Arc<S>, now: Instant) {
        let mut sessions = self.sessions.lock();
        let own = sessions.entry(caller.to_owned()).or_default();
        own.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(session)));
        own.push(Arc::downgrade(session));
        sessions.retain(|_, sessions| {
            sessions.retain(|session| session.upgrade().is_some_and(|session| session.saved_bytes(now) > 0));
            !sessions.is_empty()
        });
        let bytes =
            |sessions: &[Weak<S>]| -> usize { sessions.iter().filter_map(Weak::upgrade).map(|session| session.saved_bytes(now)).sum() };
        let mut all: usize = sessions.values().map(|sessions| bytes(sessions)).sum();
        let own = sessions.get(caller).map(Vec::as_slice).unwrap_or_default();
        let mut of_caller = bytes(own);
        for session in own.iter().filter_map(Weak::upgrade) {
            if of_caller <= self.of_caller && all <= self.of_all {
                return;
            }
            let forgotten = session.saved_bytes(now);
            session.forget_saved();
            (of_caller, all) = (of_caller.saturating_sub(forgotten), all.saturating_sub(forgotten));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Values(AtomicUsize);

    impl Saver for Values {
        fn saved_bytes(&self, _: Instant) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        fn forget_saved(&self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    fn saved(shares: &SavedShares<Values>, caller: &str, bytes: usize) -> Arc<Values> {
        let session = Arc::new(Values(AtomicUsize::new(bytes)));
        shares.ran(caller, &session, Instant::now());
        session
    }

    #[test]
    fn the_sessions_of_a_caller_share_a_limit_and_the_one_that_ran_longest_ago_forgets_first() {
        let (shares, now) = (SavedShares::new(10), Instant::now());
        let quiet = saved(&shares, "quiet", 10);
        let loud: Vec<_> = (0..4).map(|_| saved(&shares, "loud", 10)).collect();
        assert!(loud.iter().all(|session| session.saved_bytes(now) == 10));
        shares.ran("loud", &loud[0], now);
        let fifth = saved(&shares, "loud", 10);
        let left: Vec<_> = loud.iter().chain([&fifth, &quiet]).map(|session| session.saved_bytes(now)).collect();
        assert_eq!(left, [10, 0, 10, 10, 10, 10]);
    }

    #[test]
    fn where_all_room_is_taken_a_caller_forgets_its_own_values() {
        let (shares, now) = (SavedShares::new(10), Instant::now());
        let others: Vec<_> = (0..SHARES_OF_ALL).map(|number| saved(&shares, &number.to_string(), 10)).collect();
        assert_eq!(saved(&shares, "late", 10).saved_bytes(now), 0);
        assert!(others.iter().all(|session| session.saved_bytes(now) == 10));
        drop(others);
        assert_eq!(saved(&shares, "late", 10).saved_bytes(now), 10);
        assert_eq!(shares.sessions.lock().len(), 1, "no caller is kept whose sessions had ended");
    }
}
