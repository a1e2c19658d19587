//! Limits the memory for data of one kind, for each caller and for all callers together.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// The limits of the memory for data of one kind, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryLimits {
    pub(crate) of_caller: usize,
    pub(crate) of_all: usize,
    /// The part of `of_all` that only callers may use that take at most `least_of_caller`. This prevents a few callers from using all of
    /// the memory.
    pub(crate) reserved: usize,
    pub(crate) least_of_caller: usize,
    /// The words for the two limits in an error.
    pub(crate) what_of_caller: &'static str,
    pub(crate) what_of_all: &'static str,
}

/// The memory that data of one kind uses. Clones are cheap.
#[derive(Clone)]
pub(crate) struct CallerMemory(Arc<Shared>);

struct Shared {
    limits: MemoryLimits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of_callers: HashMap<String, usize>,
}

/// Memory that is reserved until this value is dropped.
pub(crate) struct HeldMemory {
    memory: CallerMemory,
    caller: String,
    bytes: usize,
}

impl CallerMemory {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self(Arc::new(Shared { limits, taken: Mutex::default() }))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.taken.lock().all
    }

    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        let taken = self.0.taken.lock();
        taken.all == 0 && taken.of_callers.is_empty()
    }

    /// Reserves memory for a caller.
    ///
    /// # Errors
    /// `ERR_BUSY` if the caller, or all callers together, already use too much.
    pub(crate) fn hold(&self, caller: &str, bytes: usize) -> Result<HeldMemory> {
        let limits = &self.0.limits;
        let mut taken = self.0.taken.lock();
        let of_caller = taken.of_callers.get(caller).copied().unwrap_or_default();
        let own = of_caller.saturating_add(bytes);
        if own > limits.of_caller {
            return Err(Error::Busy { what: limits.what_of_caller, limit: limits.of_caller });
        }
        let most = if own > limits.least_of_caller { limits.of_all - limits.reserved } else { limits.of_all };
        if taken.all.saturating_add(bytes) > most {
            return Err(Error::Busy { what: limits.what_of_all, limit: limits.of_all });
        }
        taken.all += bytes;
        taken.of_callers.insert(caller.to_owned(), own);
        Ok(HeldMemory { memory: self.clone(), caller: caller.to_owned(), bytes })
    }
}

impl HeldMemory {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        let mut taken = self.memory.0.taken.lock();
        taken.all -= self.bytes;
        if let Some(of_caller) = taken.of_callers.get_mut(&self.caller) {
            *of_caller -= self.bytes;
            if *of_caller == 0 {
                taken.of_callers.remove(&self.caller);
            }
        }
    }
}
