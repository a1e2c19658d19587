//! Slots of each server: the requests that may be under way at once, of runs and of an agent's own `callTool` together.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::core::Core;
use crate::client::CallLimits;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};

/// The slots of each server, given out in the order of asking.
#[derive(Default)]
pub(super) struct CallSlots(Mutex<BTreeMap<String, Slots>>);

struct Slots {
    number: usize,
    free: Arc<Semaphore>,
}

impl CallSlots {
    /// The slots of a server that has this number of them. Where the config says another number than before, calls that are under way keep
    /// theirs.
    fn of(&self, server: &str, number: usize) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        match all.get(server) {
            Some(slots) if slots.number == number => Arc::clone(&slots.free),
            _ => {
                let free = Arc::new(Semaphore::new(number));
                all.insert(server.to_owned(), Slots { number, free: Arc::clone(&free) });
                free
            }
        }
    }
}

/// A slot, taken until this is dropped.
pub(super) struct CallSlot {
    _permit: OwnedSemaphorePermit,
    wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// A slot was free.
    None,
    /// Others were served first.
    ForOthers,
}

impl CallSlot {
    /// Returns whether others were served first: much can have changed meanwhile.
    pub(super) fn was_awaited(&self) -> bool {
        self.wait == Wait::ForOthers
    }
}

impl Core {
    /// Takes one of a server's slots. It waits for as long as the caller said, or as a call may take: whoever holds the others may be
    /// waiting for this one.
    pub(super) async fn call_slot(
        &self,
        server: &ServerDefinition,
        tool: &str,
        limits: CallLimits,
        timeout_ms: Option<u64>,
    ) -> Result<CallSlot> {
        let free = self.requests.slots.of(&server.name, server.parallel.at_most(self.limits.max_parallel_calls));
        if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
            return Ok(CallSlot { _permit: permit, wait: Wait::None });
        }
        let (patience, limit_name) = match timeout_ms {
            Some(_) => (limits.timeout, "timeoutMs"),
            None => (limits.most, "maxCallTimeoutMs"),
        };
        let permit = tokio::time::timeout(patience, free.acquire_owned()).await;
        let (name, limit_ms) = (server.name.clone(), u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        let permit = permit.map_err(|_| Error::CallTimeout { server: name, tool: tool.into(), limit_ms, limit_name })?;
        // The semaphore is never closed.
        permit.map(|permit| CallSlot { _permit: permit, wait: Wait::ForOthers }).map_err(|error| Error::Internal(error.to_string().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_as_many_slots_as_its_config_says_now() {
        let slots = CallSlots::default();
        let first = slots.of("a", 2);
        let _held = Arc::clone(&first).try_acquire_owned().unwrap();
        assert_eq!(slots.of("a", 2).available_permits(), 1);
        assert_eq!(slots.of("b", 2).available_permits(), 2);
        assert_eq!(slots.of("a", 1).available_permits(), 1);
    }
}
