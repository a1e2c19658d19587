//! Limits the number of simultaneous runs of each caller and of all callers, because each run has its own micro-VM with its own memory.
//! Also limits how many guests of a caller execute at the same time, because each of them occupies a processor.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::http::{Metrics, RunInFlight};
use super::places::{Full, Place, PlaceLimits, Places, Share};
use crate::error::{Error, Result};
use crate::sandbox::{CodeOwner, ComputeSlots, ParseOwner};

/// The maximum number of runs for all callers. Runs that wait for an answer are counted too. The last places are only given to callers that
/// have no run ([`Places`]).
const MAX_OF_ALL: usize = 128;
/// The maximum number of runs for one caller. The limit prevents one caller from using all places.
const MAX_OF_CALLER: usize = 64;
const LIMITS: PlaceLimits = PlaceLimits { of_all: MAX_OF_ALL, of_caller: MAX_OF_CALLER, least_of_caller: 1 };

/// The minimum number of guests of one caller that may execute at the same time, even on a machine with few processors.
const MIN_EXECUTING_OF_CALLER: usize = 4;
/// The number of guests of one caller that may execute at the same time for each processor. A small number means that other callers get a
/// processor soon. With more than one, a processor stays busy while a guest enters or leaves its VM.
const EXECUTING_PER_PROCESSOR: usize = 2;

/// The number of callers above which code owners that no session or request uses are removed.
const MAX_CODE_OWNERS: usize = 1024;

/// The code owner of each caller. All sessions and requests of a caller share one code owner.
pub(super) struct CodeOwners {
    all: Mutex<HashMap<String, CodeOwner>>,
    max_executing: usize,
    metrics: Arc<Metrics>,
}

impl CodeOwners {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { all: Mutex::default(), max_executing: max_executing(processors), metrics }
    }

    /// Returns the code owner of a caller.
    pub(super) fn of(&self, caller: &str) -> CodeOwner {
        let mut all = self.all.lock();
        if all.len() >= MAX_CODE_OWNERS && !all.contains_key(caller) {
            all.retain(|_, owner| owner.parse.is_shared());
        }
        let new =
            || CodeOwner { parse: ParseOwner::default(), compute: ComputeSlots::new(self.max_executing, self.metrics.guests_executing()) };
        all.entry(caller.to_owned()).or_insert_with(new).clone()
    }
}

/// Returns the number of guests of one caller that may execute at the same time on a machine with this number of processors.
fn max_executing(processors: usize) -> usize {
    (EXECUTING_PER_PROCESSOR * processors).max(MIN_EXECUTING_OF_CALLER)
}

/// The runs of all callers.
pub(super) struct Runs {
    all: Arc<Places>,
    of_callers: Mutex<HashMap<String, Weak<Share>>>,
    metrics: Arc<Metrics>,
}

/// The permission for one run, until this value is dropped.
pub(super) struct RunPermit {
    _place: Place,
    _in_flight: RunInFlight,
}

impl Runs {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { all: Places::new(LIMITS), of_callers: Mutex::default(), metrics }
    }

    /// Admits another run of a caller.
    ///
    /// # Errors
    /// `ERR_BUSY` immediately, if this caller or all callers together have too many runs.
    pub(super) fn admit(&self, caller: &str) -> Result<RunPermit> {
        let place = self.of_caller(caller).take(1).map_err(|full| match full {
            Full::OfCaller => Error::Busy { what: "runs of this caller", limit: MAX_OF_CALLER },
            Full::OfAll => {
                Error::Busy { what: "runs of all callers (the limit can be reached up to a quarter earlier)", limit: MAX_OF_ALL }
            }
        })?;
        Ok(RunPermit { _place: place, _in_flight: self.metrics.run_started() })
    }

    fn of_caller(&self, caller: &str) -> Arc<Share> {
        let mut all = self.of_callers.lock();
        if let Some(known) = all.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let own = self.all.share();
        all.insert(caller.to_owned(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_code_of_a_caller_has_one_share_of_the_parser_and_the_processors_and_callers_that_are_gone_are_forgotten() {
        let owners = CodeOwners::new(Arc::default());
        let (one, again, other) = (owners.of("one"), owners.of("one"), owners.of("other"));
        assert!(one == again && one.parse != other.parse && one.compute != other.compute);
        drop(other);
        for number in 0..MAX_CODE_OWNERS {
            owners.of(&number.to_string());
        }
        assert!(owners.all.lock().len() <= MAX_CODE_OWNERS && owners.of("one") == one);
    }

    #[test]
    fn a_caller_has_twice_the_processors_and_no_fewer_than_four() {
        assert_eq!([1, 2, 3, 16].map(max_executing), [4, 4, 6, 32]);
    }

    #[test]
    fn a_caller_with_many_runs_leaves_room_for_others() {
        let metrics = Arc::<Metrics>::default();
        let runs = Runs::new(Arc::clone(&metrics));
        let admit = |caller: &str, count: usize| (0..count).map(|_| runs.admit(caller)).collect::<Result<Vec<_>>>();
        let loud = admit("loud", MAX_OF_CALLER).unwrap();
        assert_eq!(runs.admit("loud").err().unwrap().code(), "ERR_BUSY");
        let others: Vec<_> = (0..MAX_OF_CALLER).map_while(|_| runs.admit("other").ok()).collect();
        let third = runs.admit("third").unwrap();
        let refused = [runs.admit("other"), runs.admit("third")].map(|refused| refused.err().unwrap().code());
        assert_eq!(refused, ["ERR_BUSY"; 2], "two callers cannot take the last places, and a third cannot take many of them");
        assert_eq!(metrics.runs_in_flight(), loud.len() + others.len() + 1);
        drop(loud);
        assert!(runs.admit("third").is_ok());
        drop((others, third));
        assert_eq!(metrics.runs_in_flight(), 0);
        let _last = runs.admit("fourth").unwrap();
        assert_eq!(runs.of_callers.lock().len(), 1, "no caller is kept that has no run");
    }
}
