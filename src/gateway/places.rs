//! How many calls of each server are under way at once, whoever makes them: runs, and an agent's own `callTool`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::core::Core;
use crate::client::CallLimits;
use crate::config::ServerDefinition;
use crate::error::{Error, Result};

/// The places of each server, given out in the order of asking.
#[derive(Default)]
pub(super) struct CallPlaces(Mutex<BTreeMap<String, Places>>);

struct Places {
    number: usize,
    free: Arc<Semaphore>,
}

impl CallPlaces {
    /// The places of a server that has so many. Where the config says another number than before, calls that are under way keep theirs.
    fn of(&self, server: &str, number: usize) -> Arc<Semaphore> {
        let mut all = self.0.lock();
        match all.get(server) {
            Some(places) if places.number == number => Arc::clone(&places.free),
            _ => {
                let free = Arc::new(Semaphore::new(number));
                all.insert(server.to_owned(), Places { number, free: Arc::clone(&free) });
                free
            }
        }
    }
}

/// A place, until it is dropped.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    /// Whether others were served first. Much can have changed meanwhile.
    pub(super) after_others: bool,
}

impl Core {
    /// A place among the calls of a server. It is waited for as long as the caller said, or as a call may take: who holds the others may
    /// wait for this one.
    pub(super) async fn place(&self, server: &ServerDefinition, tool: &str, limits: CallLimits, timeout_ms: Option<u64>) -> Result<Place> {
        let free = self.places.of(&server.name, server.parallel.at_most(self.limits.max_parallel_calls));
        if let Ok(permit) = Arc::clone(&free).try_acquire_owned() {
            return Ok(Place { _permit: permit, after_others: false });
        }
        let (patience, limit_name) = match timeout_ms {
            Some(_) => (limits.timeout, "timeoutMs"),
            None => (limits.most, "maxCallTimeoutMs"),
        };
        let place = tokio::time::timeout(patience, free.acquire_owned()).await;
        let (name, limit_ms) = (server.name.clone(), u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        let place = place.map_err(|_| Error::CallTimeout { server: name, tool: tool.to_owned(), limit_ms, limit_name })?;
        // They are never closed.
        place.map(|permit| Place { _permit: permit, after_others: true }).map_err(|error| Error::Internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_the_places_that_its_config_says_now() {
        let places = CallPlaces::default();
        let first = places.of("a", 2);
        let _held = Arc::clone(&first).try_acquire_owned().unwrap();
        assert_eq!(places.of("a", 2).available_permits(), 1);
        assert_eq!(places.of("b", 2).available_permits(), 2);
        assert_eq!(places.of("a", 1).available_permits(), 1);
    }
}
