//! The audit: an append-only record of approvals, changes, grants, connections and calls. Its rows form a chain of digests that are made
//! with the machine's key.
//!
//! A caller pushes an event into a queue. Each open gateway has one thread that converts events to rows and commits them in batches, so
//! that no call waits for the disk. Several processes append to the same chain. If events are lost, because a queue is full or a process
//! was killed, a row reports the gap.

mod chain;
mod event;
mod presence;
mod queue;
mod row;
mod stored;
mod table;
mod writer;

use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use chain::AuditReport;
pub use event::{
    ApprovalStage, AuditEvent, AuditParty, CallOutcome, CallRecord, ConfigGrants, ConnectionChange, FetchEntry, GrantChange, GrantRecord,
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

/// The maximum time that a reader waits until the latest events are written.
const FLUSHING: Duration = Duration::from_secs(2);

/// Called when writing the audit fails. Called again only after a later write has succeeded and another write has failed.
pub type ProblemListener = Arc<dyn Fn(Error) + Send + Sync>;

/// Options of [`Audit::open`].
#[derive(Clone)]
pub struct AuditOptions {
    /// The maximum total size of all rows in bytes. When it is exceeded, the oldest rows are removed.
    pub max_bytes: u64,
    /// The maximum age of a row.
    pub max_age: Duration,
    /// True if the arguments of calls are kept, with secrets removed.
    pub content: bool,
    /// The grants of the config. They are recorded before the first event, unless the audit's last record of the config's grants is equal.
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

/// A filter for rows. A row must match every field that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Returns only rows after the row with this number.
    pub after: Option<u64>,
    /// Returns only rows from this time on, in milliseconds since 1970.
    pub since: Option<u64>,
    pub agent: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub kind: Option<AuditKind>,
    /// The maximum number of rows. The last rows are returned. `None` returns all rows.
    pub limit: Option<usize>,
}

/// The last row that a gateway has seen. The next rows of the audit must follow this row.
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
    /// Ensures that the thread is started only once, by the first event.
    begins: Once,
    warning: Option<String>,
    /// A channel that the thread closes when it ends. `None` without a thread.
    ended: Mutex<Option<Receiver<()>>>,
}

/// A call that has begun ([`Audit::begin_call`]).
#[derive(Debug)]
pub struct CallInProgress(u64);

impl Audit {
    /// Opens the audit of a store. Writes no rows until an event is recorded.
    #[must_use]
    pub fn open(store: &Arc<Store>, options: AuditOptions) -> Self {
        let (presence, warning) = match Presence::begin(store.folder()) {
            Ok(presence) => (Some(presence), None),
            Err(error) => (Presence::without_file(store.folder()).ok(), Some(no_presence_file(store, &error))),
        };
        let (presence, begins, ended) = (presence.map(Arc::new), Once::new(), Mutex::default());
        Self { store: Arc::clone(store), queue: Arc::default(), presence, seen: Arc::default(), options, begins, warning, ended }
    }

    /// Returns a warning if the file that marks this gateway as open could not be created.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Records an event. Does not wait, and does not write to a disk.
    #[inline]
    pub fn record(&self, event: AuditEvent) {
        if let Some(told) = self.queue.push(event) {
            if let Some(presence) = &self.presence {
                presence.tell(told);
            }
            self.begins.call_once(|| self.begin());
        }
    }

    /// Records that a call has begun. The row of the call is written when the call ends. If the audit is closed earlier, the row is written
    /// then, with the outcome `cancelled`. If the process is killed before either of these, the call is reported as a missing event.
    /// Returns `None` if the audit is closed.
    #[must_use]
    pub fn begin_call(&self, call: CallRecord) -> Option<CallInProgress> {
        let (number, expected) = self.queue.begin_call(call)?;
        if let Some(presence) = &self.presence {
            presence.tell(expected);
        }
        self.begins.call_once(|| self.begin());
        Some(CallInProgress(number))
    }

    /// Records the end of a call.
    #[inline]
    pub fn end_call(&self, CallInProgress(number): CallInProgress, outcome: CallOutcome, result_bytes: Option<usize>) {
        self.queue.end_call(number, outcome, result_bytes);
    }

    /// Returns the last rows that match the query, oldest first, of all processes that use this state folder. Blocks.
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
        // The anchor is read first. The audit only grows, so rows that are written after that cannot make the audit look older than the
        // anchor.
        let anchored = self.store.anchored_audit()?;
        self.flush();
        let seen = self.seen.last();
        self.read(|table| table.verify(anchored, seen))
    }

    /// Reads on a separate connection, after all events that were recorded before this call are written.
    fn read<T>(&self, read: impl FnOnce(&Table<'_>) -> Result<T>) -> Result<T> {
        self.flush();
        let mut database = self.store.audit_database()?;
        let seen = self.seen.last().or_else(|| anchored_end(&self.store));
        if let Err(error) = tell_left_behind(&mut database, &self.store, seen, self.options.bounds()) {
            tracing::debug!(%error, "gaps of processes that have ended cannot be reported");
        }
        database.reading(|reader| read(&Table { reader, key: self.store.key() }))
    }

    /// Writes the waiting events. Blocks for at most two seconds.
    pub fn flush(&self) {
        let (done, written) = channel();
        if self.queue.told() > 0 && self.queue.flush(done) && written.recv_timeout(FLUSHING) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the audit is still writing: its latest rows are missing in this answer; read it again later");
        }
    }

    /// Writes the waiting events and the events of calls in progress, and ends the thread. Blocks for at most `patience`. Events that are
    /// not written by then are written later, if the process continues. Events that are recorded after this call are lost.
    pub fn close(&self, patience: Duration) {
        self.queue.close();
        let ended = self.ended.lock().take();
        if let Some(ended) = ended {
            // The thread drops the sender when it ends.
            if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("the audit is still writing; if the process ends now, a row will report how many events are missing");
            }
        }
        self.end_if_unused();
    }

    /// Removes the presence file of this gateway if no event was ever recorded. Otherwise the thread removes the file.
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
    /// Tells the thread to write the waiting events and end. Does not wait for the thread.
    fn drop(&mut self) {
        self.queue.close();
        self.end_if_unused();
    }
}

fn no_presence_file(store: &Store, error: &std::io::Error) -> String {
    format!(
        "{}: {error}. So the audit cannot say how many events are missing if this process is killed, and other processes may report missing \
         events while it runs. Make it a folder that only you can write, or move it away; then open the gateway again",
        Presence::folder(store.folder()).display()
    )
}

/// Returns the time in milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
