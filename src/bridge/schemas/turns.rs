//! Takes checks that may be long away from the threads of the runtime. A server's schema and a caller's value together decide how long a
//! check takes. On a thread of the runtime, a long check would delay all other servers and callers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::blocking;
use crate::error::Result;
use crate::turns::Turns;

/// Maximum cost of a check that is made directly on the caller's thread. Such a check takes less than a millisecond.
pub(super) const MAX_COST_AT_ONCE: u64 = 2_000;
/// Maximum number of long checks at a time, so that enough threads and processors are left for other work.
const MAX_OF_ALL: usize = 4;
/// Maximum number of long checks at a time against the schemas of one server.
const MAX_OF_SERVER: usize = 2;
/// Maximum number of long checks of one caller that wait for the turn of one server. So other callers of the server need not wait for all
/// checks of this caller.
const MAX_OF_CALLER: usize = 2;

/// The turns of long checks. Turns are given in the order in which they are asked for.
pub(super) struct CheckTurns {
    all: Arc<Semaphore>,
    of_servers: Turns,
    of_callers: Turns,
}

/// The owner of a check: the caller, and the server whose schema is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckOwner<'a> {
    pub(super) caller: usize,
    pub(super) server: &'a str,
}

impl Default for CheckTurns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_OF_ALL)), of_servers: Turns::new(MAX_OF_SERVER), of_callers: Turns::new(MAX_OF_CALLER) }
    }
}

impl CheckTurns {
    /// Waits for the turn of a check, and runs the check on a blocking thread. The turn ends with the check, even if nobody waits for it.
    ///
    /// # Errors
    /// The error of the check, and `ERR_INTERNAL` if the thread has failed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        owner: CheckOwner<'_>,
        check: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.wait(owner).await;
        blocking(move || {
            let checked = check();
            drop(turn);
            checked
        })
        .await
    }

    /// Waits first for other checks of the same caller, then for those of the same server. So each server has at most a few checks in the
    /// queue of all, and each caller has at most a few in the queue of a server.
    pub(super) async fn wait(&self, CheckOwner { caller, server }: CheckOwner<'_>) -> [Option<OwnedSemaphorePermit>; 3] {
        let of_caller = self.of_callers.wait(&format!("{caller} {server}")).await;
        let of_server = self.of_servers.wait(server).await;
        [of_caller, of_server, Arc::clone(&self.all).acquire_owned().await.ok()]
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    type Turn = [Option<OwnedSemaphorePermit>; 3];

    fn taken(turns: &CheckTurns, caller: usize, server: &str) -> Option<Turn> {
        turns.wait(CheckOwner { caller, server }).now_or_never()
    }

    #[test]
    fn a_server_with_long_checks_leaves_turns_for_another() {
        let turns = CheckTurns::default();
        let mut held: Vec<Turn> = (0..9).filter_map(|caller| taken(&turns, caller, "slow")).collect();
        assert_eq!(held.len(), MAX_OF_SERVER);
        held.extend((0..9).filter_map(|caller| taken(&turns, caller, "other")));
        assert_eq!(held.len(), MAX_OF_ALL);
        assert!(taken(&turns, 1, "third").is_none());
        held.clear();
        assert!(taken(&turns, 1, "third").is_some());
    }

    #[test]
    fn a_caller_with_many_long_checks_lets_another_caller_of_the_server_go_next() {
        let turns = CheckTurns::default();
        let mut held: Vec<Turn> = (0..MAX_OF_SERVER).filter_map(|_| taken(&turns, 1, "s")).collect();
        let mut of_loud: Vec<_> = (0..9).map(|_| Box::pin(turns.wait(CheckOwner { caller: 1, server: "s" }))).collect();
        assert!(of_loud.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let mut of_quiet = Box::pin(turns.wait(CheckOwner { caller: 2, server: "s" }));
        assert!((&mut of_quiet).now_or_never().is_none());
        held.pop();
        assert!(of_quiet.now_or_never().is_some(), "the checks of the loud caller wait for each other, not in the queue of the server");
    }
}
