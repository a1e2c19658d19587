//! Slots that limit the parallel requests to each server. Requests of runs and an agent's own `callTool` share them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::core::Core;
use crate::client::CallLimits;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};

/// The slots of each server. Waiting requests get slots in the order of their requests.
#[derive(Default)]
pub(super) struct CallSlots(Mutex<BTreeMap<String, Slots>>);

struct Slots {
    number: usize,
    free: Arc<Semaphore>,
}

impl CallSlots {
    /// Returns the slots of a server. If `number` has changed, creates new slots. Calls in progress keep the old slots.
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

/// A slot that is occupied until this value is dropped.
pub(super) struct CallSlot {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    wait: Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// A slot was free.
    None,
    /// All slots were occupied, and the request had to wait for other requests.
    ForOthers,
}

impl CallSlot {
    /// Returns whether the request had to wait for a slot. If so, the caller must check the approval again, because it may have changed.
    pub(super) fn was_awaited(&self) -> bool {
        self.wait == Wait::ForOthers
    }
}

impl Core {
    /// Waits for one of the server's slots. If the caller's profiles limit the number of simultaneous calls (`most_of_caller`), also waits
    /// for one of the slots that all callers with the same limit share. Waits at most for the caller's time limit. If the caller has set no
    /// time limit, waits at most for the maximum time of a call. Without this maximum, a caller that has a slot and waits for this request
    /// could cause a deadlock.
    pub(super) async fn call_slot(
        &self,
        server: &ServerDefinition,
        tool: &str,
        limits: CallLimits,
        timeout_ms: Option<u64>,
        most_of_caller: Option<usize>,
    ) -> Result<CallSlot> {
        let slots = &self.requests.slots;
        let of_server = slots.of(&server.name, server.parallel.at_most(self.limits.max_parallel_calls));
        // The space keeps this key different from the name of every server.
        let of_caller = most_of_caller.map(|most| slots.of(&format!("{} {most}", server.name), most));
        // The slot for callers with the limit is taken first, so that a caller that waits for this slot does not occupy a slot of the
        // server.
        let own = match of_caller.as_ref().map(|free| Arc::clone(free).try_acquire_owned()) {
            Some(Err(_)) => None,
            Some(Ok(permit)) => Some(Some(permit)),
            None => Some(None),
        };
        if let Some(own) = own {
            match (Arc::clone(&of_server).try_acquire_owned(), own) {
                (Ok(permit), own) => return Ok(CallSlot { _permits: [own, Some(permit)], wait: Wait::None }),
                (Err(_), own) => drop(own),
            }
        }
        let free = async {
            let own = match of_caller {
                Some(free) => Some(free.acquire_owned().await?),
                None => None,
            };
            Ok::<_, tokio::sync::AcquireError>([own, Some(of_server.acquire_owned().await?)])
        };
        let (patience, limit_name) = match timeout_ms {
            Some(_) => (limits.timeout, "timeoutMs"),
            None => (limits.most, "maxCallTimeoutMs"),
        };
        let permits = tokio::time::timeout(patience, free).await;
        let (name, limit_ms) = (server.name.clone(), u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        let permits = permits.map_err(|_| Error::CallTimeout { server: name, tool: tool.into(), limit_ms, limit_name })?;
        // `acquire_owned` fails only for a closed semaphore, and this semaphore is never closed.
        permits
            .map(|permits| CallSlot { _permits: permits, wait: Wait::ForOthers })
            .map_err(|error| Error::Internal(error.to_string().into()))
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
