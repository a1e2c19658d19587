//! The audit: an append-only record of approvals, changes, grants, connections and calls, as a chain of digests under the machine's key.
//!
//! A caller pushes an event into a queue. One thread of each open gateway makes rows of them and commits them in batches, so that no call waits for
//! the disk. Several processes append to one chain. What is lost, because a queue is full or a process was killed, is told by a row.

mod chain;
mod event;
mod presence;
mod queue;
mod row;
mod table;
mod writer;

use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use chain::AuditReport;
pub use event::{
    ApprovalStage, AuditEvent, AuditParty, CallOutcome, CallRecord, ConfigGrants, ConnectionChange, GrantChange, GrantRecord,
    ProviderDecision, ServerChange,
};
pub use row::{AuditAction, AuditDetails, AuditKind, AuditRow};

use self::presence::Presence;
use self::queue::Queue;
use self::table::{Bounds, Table};
use self::writer::{Writer, anchored_end, tell_left_behind};
use super::Store;
use super::anchor::AuditEnd;
use crate::error::{Error, Result};
use crate::redact::Redactor;

/// The time for which a reader waits until the last events are written.
const FLUSHING: Duration = Duration::from_secs(2);

/// Called when the audit cannot be written, and again only after it could be written in between.
pub type ProblemListener = Arc<dyn Fn(Error) + Send + Sync>;

/// Options of [`Audit::open`].
#[derive(Clone)]
pub struct AuditOptions {
    /// The size of all rows together; the oldest are removed.
    pub max_bytes: u64,
    /// The age of the oldest row.
    pub max_age: Duration,
    /// True if the arguments of calls are kept as they are, without secrets.
    pub content: bool,
    /// The grants of the config. They are recorded before the first event, unless the last ones of the audit were the same.
    pub config_grants: Vec<GrantRecord>,
    /// Removes secrets from names and contents.
    pub redactor: Arc<Redactor>,
    pub on_problem: ProblemListener,
}

impl AuditOptions {
    fn bounds(&self) -> Bounds {
        Bounds { max_bytes: self.max_bytes, max_age_ms: u64::try_from(self.max_age.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// Selects rows. All that is given must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only rows after the one with this number.
    pub after: Option<u64>,
    /// Only rows from this time on, in milliseconds since 1970.
    pub since: Option<u64>,
    pub agent: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub kind: Option<AuditKind>,
    /// The most rows; the last ones are returned. `None`: all.
    pub limit: Option<usize>,
}

/// The last row that a gateway has seen. The audit must go on from it.
#[derive(Debug, Default)]
struct Seen(Mutex<Option<AuditEnd>>);

impl Seen {
    fn last(&self) -> Option<AuditEnd> {
        self.0.lock().clone()
    }

    fn note(&self, end: Option<AuditEnd>) {
        *self.0.lock() = end;
    }
}

/// The audit of one open gateway.
///
/// ```
/// use hyperlight_mcp::store::Store;
/// use hyperlight_mcp::store::audit::{Audit, AuditEvent, AuditOptions, AuditParty, AuditQuery};
/// # use std::{sync::Arc, time::Duration};
/// # use hyperlight_mcp::redact::Redactor;
/// # fn main() -> hyperlight_mcp::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let store = Arc::new(Store::open(folder.path(), Arc::new(|problem| eprintln!("{problem}")))?);
/// let audit = Audit::open(&store, AuditOptions {
///     max_bytes: 1 << 20,
///     max_age: Duration::from_secs(3600),
///     content: false,
///     config_grants: Vec::new(),
///     redactor: Arc::new(Redactor::new(None, None)),
///     on_problem: Arc::new(|error| eprintln!("{error}")),
/// });
/// audit.record(AuditEvent::Revocation { server: "files".to_owned(), by: AuditParty::Person });
/// assert_eq!(audit.rows(&AuditQuery::default())?[0].server.as_deref(), Some("files"));
/// assert!(audit.verify()?.whole);
/// audit.close(Duration::from_secs(2));
/// # Ok(()) }
/// ```
pub struct Audit {
    store: Arc<Store>,
    queue: Arc<Queue>,
    presence: Option<Arc<Presence>>,
    seen: Arc<Seen>,
    options: AuditOptions,
    /// Starts the thread with the first event.
    begins: Once,
    /// Told when the thread ends.
    ended: Mutex<Option<Receiver<()>>>,
}

impl Audit {
    /// Opens the audit of a store. Writes nothing until something is recorded.
    #[must_use]
    pub fn open(store: &Arc<Store>, options: AuditOptions) -> Self {
        let presence = match Presence::begin(store.folder()) {
            Ok(presence) => Some(Arc::new(presence)),
            Err(error) => {
                tracing::warn!(%error, "without a file in the state folder, the audit cannot tell when this process is killed");
                None
            }
        };
        let (begins, ended) = (Once::new(), Mutex::default());
        Self { store: Arc::clone(store), queue: Arc::default(), presence, seen: Arc::default(), options, begins, ended }
    }

    /// Records an event. Neither waits nor writes to a disk.
    #[inline]
    pub fn record(&self, event: AuditEvent) {
        if let Some(told) = self.queue.push(event) {
            if let Some(presence) = &self.presence {
                presence.tell(told);
            }
            self.begins.call_once(|| self.begin());
        }
    }

    /// Returns the last rows that fit, the oldest first, of all processes with this state folder. Blocks.
    ///
    /// # Errors
    /// `ERR_STORE`.
    pub fn rows(&self, query: &AuditQuery) -> Result<Vec<AuditRow>> {
        self.read(|table| table.rows(query))
    }

    /// Verifies all rows. Blocks.
    ///
    /// # Errors
    /// `ERR_STORE`.
    pub fn verify(&self) -> Result<AuditReport> {
        // The anchor first: the audit only grows, so it is not behind because of rows that come between.
        let anchored = self.store.anchored_audit()?;
        self.flush();
        let seen = self.seen.last();
        self.read(|table| table.verify(anchored, seen))
    }

    /// Reads on a connection of its own, after what has happened so far is written.
    fn read<T>(&self, read: impl FnOnce(&Table<'_>) -> Result<T>) -> Result<T> {
        self.flush();
        let mut database = self.store.audit_database()?;
        let seen = self.seen.last().or_else(|| anchored_end(&self.store));
        if let Err(error) = tell_left_behind(&mut database, &self.store, seen, self.options.bounds()) {
            tracing::debug!(%error, "gaps of processes that have ended cannot be told");
        }
        database.reading(|reader| read(&Table { reader, key: self.store.key() }))
    }

    /// Writes what waits, for at most two seconds. Blocks.
    pub fn flush(&self) {
        let (done, written) = channel();
        if self.queue.told() > 0 && self.queue.flush(done) {
            let _ = written.recv_timeout(FLUSHING);
        }
    }

    /// Writes what waits, and ends. Blocks for at most `patience`; what is not written then is written if the process goes on. What is recorded
    /// afterwards is lost.
    pub fn close(&self, patience: Duration) {
        self.queue.close();
        let ended = self.ended.lock().take();
        if let Some(ended) = ended {
            // The thread drops the sender when it ends.
            let _ = ended.recv_timeout(patience);
        }
        self.end_if_unused();
    }

    /// Takes the sign of this gateway away if there never was anything to write. Otherwise the thread does.
    fn end_if_unused(&self) {
        if let Some(presence) = self.presence.as_ref().filter(|_| self.queue.told() == 0) {
            presence.end();
        }
    }

    fn begin(&self) {
        let writer = Writer::new(
            Arc::clone(&self.store),
            Arc::clone(&self.queue),
            self.presence.clone(),
            Arc::clone(&self.seen),
            self.options.clone(),
        );
        let (sender, ended) = channel();
        let thread = std::thread::Builder::new().name("hyperlight-mcp-audit".to_owned());
        let thread = thread.spawn(move || {
            writer.run();
            drop(sender);
        });
        match thread {
            Ok(_) => *self.ended.lock() = Some(ended),
            Err(error) => (self.options.on_problem)(Error::io("a thread for the audit", &error)),
        }
    }
}

impl Drop for Audit {
    /// Lets the thread write what waits, and end. Nothing waits for it here.
    fn drop(&mut self) {
        self.queue.close();
        self.end_if_unused();
    }
}

/// Returns the time in milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
