//! Bounds the runs that are under way at once, of each caller and of all: each has a micro-VM with memory of its own.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::http::{Metrics, RunInFlight};
use crate::error::{Error, Result};
use crate::sandbox::ParseOwner;

/// Runs of all callers, and of one caller, those that wait for an answer included. No caller can take the room of all others.
const MAX_OF_ALL: usize = 128;
const MAX_OF_CALLER: usize = 64;

/// The most callers whose shares of the code parser are remembered while they have no session.
const MAX_PARSE_OWNERS: usize = 1024;

/// The share of the code parser of each caller, for all its sessions and requests.
#[derive(Default)]
pub(super) struct ParseOwners(Mutex<HashMap<String, ParseOwner>>);

impl ParseOwners {
    /// Returns the share of a caller.
    pub(super) fn of(&self, caller: &str) -> ParseOwner {
        let mut all = self.0.lock();
        if all.len() >= MAX_PARSE_OWNERS && !all.contains_key(caller) {
            all.retain(|_, owner| owner.is_shared());
        }
        all.entry(caller.to_owned()).or_default().clone()
    }
}

/// The runs of all callers.
pub(super) struct Runs {
    all: Arc<Semaphore>,
    of_callers: Mutex<HashMap<String, Weak<Semaphore>>>,
    metrics: Arc<Metrics>,
}

/// The right to one run, until it is dropped.
pub(super) struct RunPermit {
    _of_caller: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _in_flight: RunInFlight,
}

impl Runs {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_OF_ALL)), of_callers: Mutex::default(), metrics }
    }

    /// Admits one more run of a caller.
    ///
    /// # Errors
    /// `ERR_BUSY` at once where the caller, or all together, have too many under way.
    pub(super) fn admit(&self, caller: &str) -> Result<RunPermit> {
        let busy = |what, limit| Error::Busy { what, limit };
        let of_caller = self.of_caller(caller).try_acquire_owned().map_err(|_| busy("runs of this caller", MAX_OF_CALLER))?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| busy("runs of all callers", MAX_OF_ALL))?;
        Ok(RunPermit { _of_caller: of_caller, _of_all: of_all, _in_flight: self.metrics.run_started() })
    }

    fn of_caller(&self, caller: &str) -> Arc<Semaphore> {
        let mut all = self.of_callers.lock();
        if let Some(known) = all.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(MAX_OF_CALLER));
        all.insert(caller.to_owned(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_code_of_a_caller_has_one_share_of_the_parser_and_callers_that_are_gone_are_forgotten() {
        let owners = ParseOwners::default();
        let (one, again, other) = (owners.of("one"), owners.of("one"), owners.of("other"));
        assert!(one == again && one != other);
        drop(other);
        for number in 0..MAX_PARSE_OWNERS {
            owners.of(&number.to_string());
        }
        assert!(owners.0.lock().len() <= MAX_PARSE_OWNERS && owners.of("one") == one);
    }

    #[test]
    fn a_caller_with_many_runs_leaves_room_for_others() {
        let metrics = Arc::<Metrics>::default();
        let runs = Runs::new(Arc::clone(&metrics));
        let admit = |caller: &str, count: usize| (0..count).map(|_| runs.admit(caller)).collect::<Result<Vec<_>>>();
        let loud = admit("loud", MAX_OF_CALLER).unwrap();
        assert_eq!(runs.admit("loud").err().unwrap().code(), "ERR_BUSY");
        let quiet = admit("quiet", MAX_OF_ALL - MAX_OF_CALLER).unwrap();
        assert_eq!(runs.admit("third").err().unwrap().code(), "ERR_BUSY");
        assert_eq!(metrics.runs_in_flight(), MAX_OF_ALL);
        drop(loud);
        assert!(runs.admit("third").is_ok());
        drop(quiet);
        assert_eq!(metrics.runs_in_flight(), 0);
        let _last = runs.admit("fourth").unwrap();
        assert_eq!(runs.of_callers.lock().len(), 1, "no caller is kept that has no run");
    }
}
