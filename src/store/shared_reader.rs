//! The connection for reading, which all threads of a process share.

use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::CLOSED;
use super::database::{self, BUSY_TIME, Database};
use crate::error::{Error, Result};

/// A read that took at least this time before it failed has waited for another process.
const SLOW: Duration = Duration::from_secs(2);
/// The time after a slow failure in which other reads fail at once. It is long enough for all reads of one call.
const ECHO: Duration = Duration::from_secs(1);

/// A connection that one thread uses at a time. A read waits for at most [`BUSY_TIME`] for other threads, and `SQLite` waits as long for
/// other processes. Threads whose reads cannot succeed now share one failure, so that their waits do not add up.
pub(super) struct SharedReader {
    /// `None` once the store is closed.
    connection: Mutex<Option<Connection>>,
    slow: Duration,
    echo: Duration,
}

struct Connection {
    database: Database,
    /// The last failure, until a read succeeds.
    failure: Option<Failure>,
}

struct Failure {
    error: Error,
    at: Instant,
    is_slow: bool,
}

impl Failure {
    /// Returns whether a read that began at this time fails for the same reason: it waited for the read that failed, or began just after a
    /// slow failure.
    fn covers(&self, began: Instant, echo: Duration) -> bool {
        self.at >= began || (self.is_slow && began.duration_since(self.at) < echo)
    }
}

impl SharedReader {
    pub(super) fn new(database: Database) -> Self {
        Self { connection: Mutex::new(Some(Connection { database, failure: None })), slow: SLOW, echo: ECHO }
    }

    /// Reads with the connection.
    ///
    /// # Errors
    /// The errors of `read`, or of another read that failed while this one waited. `ERR_STORE` if other threads use the connection for too
    /// long, `ERR_CLOSED` once the store is closed.
    pub(super) fn read<T>(&self, folder: &Path, read: impl FnOnce(&mut Database) -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let mut connection = self.connection.try_lock_for(BUSY_TIME).ok_or_else(|| database::busy(folder))?;
        let Connection { database, failure } = connection.as_mut().ok_or(CLOSED)?;
        if let Some(failure) = failure.as_ref().filter(|failure| failure.covers(began, self.echo)) {
            return Err(failure.error.clone());
        }
        let begun = Instant::now();
        let outcome = read(database);
        let is_slow = begun.elapsed() >= self.slow;
        *failure = outcome.as_ref().err().map(|error| Failure { error: error.clone(), at: Instant::now(), is_slow });
        outcome
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        if let Some(Connection { database, .. }) = self.connection.lock().take() {
            database.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::store::database::Durability;

    #[test]
    fn reads_that_wait_for_a_failed_one_share_its_error_and_so_do_those_just_after_a_slow_one() {
        let folder = tempfile::tempdir().unwrap();
        let reader = SharedReader::new(Database::open(folder.path(), Durability::Full).unwrap());
        // Nothing is too late here, however busy the machine is.
        let mut reader = SharedReader { slow: Duration::from_millis(100), echo: Duration::from_hours(1), ..reader };
        let reads = AtomicU32::new(0);
        let read = |reader: &SharedReader, outcome: Result<()>, time: u64| {
            reader.read(folder.path(), |_| {
                reads.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(time));
                outcome
            })
        };
        let failed = || Err(database::busy(folder.path()));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| read(&reader, failed(), 300).is_err())).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        });
        read(&reader, Ok(()), 0).unwrap_err();
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        reader.echo = Duration::ZERO;
        read(&reader, Ok(()), 0).unwrap();
        // After a failure without a wait, the next read is made.
        (reader.slow, reader.echo) = (Duration::from_hours(1), Duration::from_hours(1));
        read(&reader, failed(), 0).unwrap_err();
        read(&reader, Ok(()), 0).unwrap();
        reader.close();
        assert_eq!(read(&reader, Ok(()), 0).unwrap_err().code(), "ERR_CLOSED");
    }
}
