//! The store: one `SQLite` database in the state folder. It keeps every decision that a gateway must remember. The interface is small, so
//! that another database engine can replace `SQLite`: each row has a kind and a name, and all rows of a kind are read and changed together.
//! The rows of decisions are authenticated with the machine's key.

mod anchor;
pub mod audit;
mod canonical;
mod copies;
mod database;
mod decisions;
mod key;
mod place;
mod seal;
mod shared_reader;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

pub use canonical::Canonical;
pub use key::MachineKey;

use self::anchor::{Anchor, Anchored, AnchoredAudit, AuditEnd};
use self::database::{BUSY_TIME, Database, Durability, Reader, Version};
use self::decisions::{
    MIXED, REPLACED, Reading, Snapshot, current, is_unused, rows_now, seal_all, seals_fit, set_all_aside, write_changed,
};
use self::shared_reader::SharedReader;
use crate::error::{Error, Result};
use crate::files::PrivateFolder;

/// The error that a closed store returns. A store is closed together with its gateway.
const CLOSED: Error = Error::Closed { what: "gateway" };

/// Rows of one kind, by name.
pub type Rows = BTreeMap<String, Arc<[u8]>>;

/// Called with the reason when the store finds rows that another program has changed.
pub type DamageListener = Arc<dyn Fn(String) + Send + Sync>;

/// The kind of a row. It tells which decision the row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Approvals of servers.
    Approval,
    /// Counters of the revocations of each server.
    Revocation,
    /// Servers that agents have added.
    Server,
    /// Grants of toolboxes to agents.
    Grant,
    /// Toolboxes that were made at run time.
    Toolbox,
    /// Approvals of provider packages.
    Provider,
    /// Approvals of the hosts that an agent's code may fetch from.
    Fetch,
    /// Servers of config files, as they were last recorded in the audit. These rows are not decisions.
    Config,
    /// The times at which models of agents proposed servers. They are used only for the limit of proposals.
    Proposal,
}

impl Kind {
    /// Returns the word for this kind in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Revocation => "revocation",
            Self::Server => "server",
            Self::Grant => "grant",
            Self::Toolbox => "toolbox",
            Self::Provider => "provider",
            Self::Fetch => "fetch",
            Self::Config => "config",
            Self::Proposal => "proposal",
        }
    }
}

/// The database of one state folder. Several processes may use one database at the same time. All methods block, except
/// [`Store::last_rows`] and [`Store::damage`].
///
/// ```
/// use hyperlight_mcp::store::{Kind, Store};
/// # use std::sync::Arc;
/// # fn main() -> hyperlight_mcp::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let store = Store::open(folder.path(), Arc::new(|problem| eprintln!("{problem}")))?;
/// store.change(Kind::Grant, |rows| {
///     rows.insert("researcher".to_owned(), Arc::from(*b"[\"readers\"]"));
///     Ok(())
/// })?;
/// assert_eq!(&*store.rows(Kind::Grant)?["researcher"], b"[\"readers\"]");
/// # Ok(()) }
/// ```
pub struct Store {
    folder: PathBuf,
    key: MachineKey,
    anchor: Anchor,
    reader: SharedReader,
    /// A second connection, so that no reader waits for a change. `None` once the store is closed.
    writer: Mutex<Option<Database>>,
    /// Never locked while the database is read or written, because JavaScript's thread takes this lock.
    last: Mutex<BTreeMap<Kind, Reading>>,
    on_damage: DamageListener,
    warning: Option<String>,
}

/// The result of reading the rows of several kinds.
enum Found<const N: usize> {
    /// The rows are known, and are unchanged.
    Current([Snapshot; N]),
    /// The rows were read from the database, after the anchor.
    Read(Version, Vec<Snapshot>, Anchored),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database of a state folder, and creates the folder, the key and the database if they do not exist. `on_damage` is called
    /// when another program has changed rows.
    ///
    /// # Errors
    /// `ERR_STORE` if the folder or the database cannot be used, `ERR_APPROVAL_STORE` if the key cannot be used.
    pub fn open(folder: &Path, on_damage: DamageListener) -> Result<Self> {
        let PrivateFolder { path: folder, was_open } = place::private_folder(folder)?;
        let warning = was_open
            .map(|mode| format!("other users could read the state folder {} (mode {mode:o}); its mode is 700 now", folder.display()));
        let key = MachineKey::open(&folder)?;
        let (writer, reader) = (Database::open(&folder, Durability::Full)?, Database::open(&folder, Durability::Full)?);
        let anchor = Anchor::new(&folder);
        let (writer, reader) = (Mutex::new(Some(writer)), SharedReader::new(reader));
        let store = Self { folder, key, anchor, reader, writer, last: Mutex::default(), on_damage, warning };
        if store.anchor.read(&store.key)? == Anchored::Missing {
            // The anchor is made before the first change, so that a database with changes always has an anchor.
            store.open_writer()?.transaction(|transaction| store.present_anchor(transaction).map(drop))?;
        }
        Ok(store)
    }

    /// Returns a warning if other users could read the state folder. Their permissions were removed when the store was opened.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns this machine's key.
    #[must_use]
    pub fn key(&self) -> &MachineKey {
        &self.key
    }

    /// Returns the real path of the state folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the current rows of one kind. Reads the database again only if the rows have changed. Rows that another program has changed
    /// are treated as absent: they have no effect.
    ///
    /// # Errors
    /// `ERR_STORE`; `ERR_CLOSED` once the store is closed.
    pub fn rows(&self, kind: Kind) -> Result<Arc<Rows>> {
        self.rows_of([kind]).map(|[rows]| rows)
    }

    /// Returns the rows of several kinds, all as of the same moment.
    ///
    /// # Errors
    /// The errors of [`Self::rows`].
    pub fn rows_of<const N: usize>(&self, kinds: [Kind; N]) -> Result<[Arc<Rows>; N]> {
        let read = self.read(kinds);
        if matches!(read, Err(Error::Closed { .. })) {
            return read.map(|_| kinds.map(|_| Arc::default()));
        }
        let mut problems = Vec::new();
        let mut last = self.last();
        let rows = match read {
            Ok(snapshots) => {
                let rows = std::array::from_fn(|index| Arc::clone(&snapshots[index].rows));
                for (kind, snapshot) in kinds.into_iter().zip(snapshots) {
                    let problem = snapshot.problem.clone();
                    let before = last.insert(kind, Reading::Read(snapshot));
                    problems.extend(problem.filter(|problem| before.as_ref().and_then(Reading::problem) != Some(problem)));
                }
                Ok(rows)
            }
            Err(error) => {
                let is_told =
                    kinds.iter().all(|kind| matches!(last.get(kind), Some(Reading::Failed(before)) if database::is_foreign(before)));
                problems.extend((database::is_foreign(&error) && !is_told).then(|| format!("store.sqlite3: {}", database::FOREIGN)));
                last.extend(kinds.map(|kind| (kind, Reading::Failed(error.clone()))));
                Err(error)
            }
        };
        drop(last);
        for problem in problems {
            (self.on_damage)(problem);
        }
        rows
    }

    /// Returns the rows of one kind as they were last read. Does not read the database, and does not wait.
    ///
    /// # Errors
    /// The error of the last read.
    pub fn last_rows(&self, kind: Kind) -> Result<Arc<Rows>> {
        match self.last().get(&kind) {
            Some(Reading::Read(snapshot)) => Ok(Arc::clone(&snapshot.rows)),
            Some(Reading::Failed(error)) => Err(error.clone()),
            None => Ok(Arc::default()),
        }
    }

    /// Returns the reason why the last read treated the rows of one kind as absent. A caller that permits something because there are no
    /// rows must call this first. Does not read the database, and does not wait.
    #[must_use]
    pub fn damage(&self, kind: Kind) -> Option<String> {
        self.last().get(&kind).and_then(Reading::problem).cloned()
    }

    /// Returns whether there has never been a row of this kind.
    ///
    /// # Errors
    /// The errors of [`Self::rows`].
    pub fn is_new(&self, kind: Kind) -> Result<bool> {
        self.read([kind]).map(|[snapshot]| snapshot.seal.is_none() && snapshot.problem.is_none())
    }

    /// Changes the rows of one kind. Either all changes are made, or none. Other processes wait until the change is done. Rows that another
    /// program has changed are set aside first. In this case, `change` gets no rows.
    ///
    /// # Errors
    /// The error of `change`. In this case, nothing has changed. `ERR_STORE`; `ERR_CLOSED` once the store is closed.
    pub fn change<T>(&self, kind: Kind, change: impl FnOnce(&mut Rows) -> Result<T>) -> Result<T> {
        self.change_all([kind], |[rows]| change(rows))
    }

    /// Changes the rows of several kinds. Either all changes are made, or none.
    ///
    /// # Errors
    /// The errors of [`Self::change`].
    pub fn change_all<const N: usize, T>(&self, kinds: [Kind; N], change: impl FnOnce(&mut [Rows; N]) -> Result<T>) -> Result<T> {
        // This call reports damage. It also updates the known rows, so that only rows that change in the meantime are read again below.
        self.rows_of(kinds)?;
        let known = kinds.map(|kind| self.known(kind));
        let mut writer = self.open_writer()?;
        self.repair_anchor(&mut writer)?;
        let (outcome, anchor, changed) = writer.transaction(|transaction| {
            let anchored = self.present_anchor(transaction)?;
            let counts = anchored.counts().ok_or_else(|| transaction.problem("its anchor was changed during a change; try again"))?;
            let failed = |error: rusqlite::Error| transaction.failed(&error);
            if !seals_fit(transaction, &self.key, counts).map_err(failed)? {
                // The seals are not from the same moment. Without this step, the seal that is written below would make rows from another
                // moment valid.
                set_all_aside(transaction, MIXED).map_err(failed)?;
            }
            let before = self.rows_in(transaction, kinds, &anchored, &known)?;
            let mut rows = std::array::from_fn(|index| Rows::clone(&before[index].rows));
            let outcome = change(&mut rows)?;
            let mut changed = Vec::new();
            for ((kind, before), rows) in kinds.into_iter().zip(&before).zip(rows) {
                changed.extend(write_changed(transaction, kind, &self.key, counts, before, rows)?.map(|snapshot| (kind, snapshot)));
            }
            if !changed.is_empty() {
                seal_all(transaction, &self.key, counts).map_err(failed)?;
            }
            Ok((outcome, counts.id.clone(), changed))
        })?;
        let numbers = |(kind, snapshot): &(Kind, Snapshot)| snapshot.seal.as_ref().map(|seal| (*kind, seal.changes));
        let changes: Vec<_> = changed.iter().filter_map(numbers).collect();
        // The rows that were just written need not be read again: `rows_of` below finds that their seal is unchanged.
        self.last().extend(changed.into_iter().map(|(kind, snapshot)| (kind, Reading::Read(snapshot))));
        self.raise_anchor(&mut writer, &anchor, &changes);
        drop(writer);
        self.rows_of(kinds)?;
        Ok(outcome)
    }

    /// Closes the files of the store. [`Self::last_rows`] and [`Self::damage`] still return the results of the last read.
    pub fn close(&self) {
        // The reader is closed first. Then the writer is the last connection, and closing it merges the journal into the database.
        self.reader.close();
        if let Some(writer) = self.writer.lock().take() {
            writer.close();
        }
    }

    /// Opens a separate connection for the audit, so that nothing else waits for it. The audit has many rows, but they are not decisions,
    /// so they need less protection against a power failure.
    fn audit_database(&self) -> Result<Database> {
        Database::open(&self.folder, Durability::Process)
    }

    /// Returns the end of the audit that the anchor contains.
    fn anchored_audit(&self) -> Result<AnchoredAudit> {
        self.anchor.audit(&self.key)
    }

    /// Writes the end of the audit into the anchor. The rows up to this end are already on the disk. `alone` is a transaction that excludes
    /// other writers.
    fn anchor_audit(&self, end: AuditEnd, alone: &Reader<'_>) -> Result<()> {
        self.anchor.raise_audit(&self.key, end, alone)
    }

    fn read<const N: usize>(&self, kinds: [Kind; N]) -> Result<[Snapshot; N]> {
        let (version, mut read, anchored) = match self.reader.read(&self.folder, |reader| self.read_by(reader, kinds))? {
            Found::Current(snapshots) => return Ok(snapshots),
            Found::Read(version, read, anchored) => (version, read, anchored),
        };
        for (kind, snapshot) in kinds.into_iter().zip(&mut read) {
            // Damaged rows have no effect. They are read again each time, because the cause may have been repaired outside the database.
            snapshot.version = Some(version).filter(|_| snapshot.problem.is_none());
            if let Some(seal) = &snapshot.seal {
                self.anchor.note(&snapshot.anchor, kind, seal.changes);
            }
        }
        self.catch_up(&anchored, kinds.into_iter().zip(&read));
        Ok(std::array::from_fn(|index| std::mem::take(&mut read[index])))
    }

    /// Reads the rows of several kinds, unless they are known.
    fn read_by<const N: usize>(&self, reader: &mut Database, kinds: [Kind; N]) -> Result<Found<N>> {
        let version = reader.version()?;
        let known = kinds.map(|kind| self.known(kind));
        if known.iter().all(|known| known.as_ref().is_some_and(|known| known.version == Some(version))) {
            return Ok(Found::Current(known.map(Option::unwrap_or_default)));
        }
        if let Some(current) = reader.reading(|transaction| current(transaction, kinds, &known))? {
            // Only rows of other kinds have changed.
            return Ok(Found::Current(current.map(|snapshot| Snapshot { version: Some(version), ..snapshot })));
        }
        // The anchor is read first. The number of changes in the database only grows, so a change between the two reads cannot make the
        // database look older than the anchor.
        let anchored = self.anchor.read(&self.key)?;
        let read = reader.reading(|transaction| self.rows_in(transaction, kinds, &anchored, &known))?;
        Ok(Found::Read(version, read, anchored))
    }

    /// Reads the rows of several kinds in a transaction.
    fn rows_in<const N: usize>(
        &self,
        transaction: &Reader<'_>,
        kinds: [Kind; N],
        anchored: &Anchored,
        known: &[Option<Snapshot>; N],
    ) -> Result<Vec<Snapshot>> {
        let rows =
            |(kind, known): (Kind, &Option<Snapshot>)| rows_now(transaction, kind, &self.key, (&self.anchor, anchored), known.as_ref());
        kinds.into_iter().zip(known).map(rows).collect()
    }

    /// Raises the numbers in the anchor if they are lower than in the database. This is the case if a process was killed after its change
    /// and before it raised the anchor. Does nothing if another thread or process is writing.
    fn catch_up<'a>(&self, anchored: &Anchored, read: impl Iterator<Item = (Kind, &'a Snapshot)>) {
        let Some(counts) = anchored.counts() else { return };
        let ahead = |(kind, snapshot): (Kind, &Snapshot)| {
            let changes = snapshot.seal.as_ref()?.changes;
            (counts.changes_of(kind) < changes).then_some((kind, changes))
        };
        let ahead: Vec<_> = read.filter_map(ahead).collect();
        if let (false, Some(mut writer)) = (ahead.is_empty(), self.writer.try_lock()) {
            let raised =
                |writer: &mut Database| writer.transaction_now(|transaction| self.anchor.raise(&self.key, &counts.id, &ahead, transaction));
            if let Some(Err(error)) = writer.as_mut().map(raised) {
                tracing::debug!(%error, "the store's anchor could not be updated to the current number of changes");
            }
        }
    }

    /// Raises the numbers in the anchor to those of the committed changes. If this fails, the changes are still valid, and the next change
    /// raises the anchor.
    fn raise_anchor(&self, writer: &mut Database, anchor: &str, changed: &[(Kind, u64)]) {
        if changed.is_empty() {
            return;
        }
        for (kind, changes) in changed {
            self.anchor.note(anchor, *kind, *changes);
        }
        if let Err(error) = writer.transaction(|transaction| self.anchor.raise(&self.key, anchor, changed, transaction)) {
            tracing::warn!(%error, "the anchor of the store could not be updated");
        }
    }

    /// Reads the anchor in a transaction that excludes other writers. If the database was never changed and has no sound anchor, creates
    /// one.
    fn present_anchor(&self, transaction: &Reader<'_>) -> Result<Anchored> {
        let anchored = self.anchor.read(&self.key)?;
        if anchored == Anchored::Replaced {
            // Another process has begun this store, so this process must not change it.
            return Err(transaction.problem(REPLACED));
        }
        let is_needed = anchored.counts().is_none() && is_unused(transaction).map_err(|error| transaction.failed(&error))?;
        if is_needed { self.anchor.renew(&self.key, transaction).map(Anchored::Sound) } else { Ok(anchored) }
    }

    /// Creates a new anchor if there is none for this database. Before that, sets all rows aside, because without an anchor they could be
    /// from an earlier time. The rows are removed before the new anchor is written, so a process that is killed in between leaves a store
    /// without rows.
    fn repair_anchor(&self, writer: &mut Database) -> Result<()> {
        if self.anchor.read(&self.key)?.counts().is_some() {
            return Ok(());
        }
        writer.transaction(|transaction| {
            if self.present_anchor(transaction)?.counts().is_none() {
                set_all_aside(transaction, "the anchor was missing or changed").map_err(|error| transaction.failed(&error))?;
            }
            Ok(())
        })?;
        writer.transaction(|transaction| self.present_anchor(transaction).map(drop))
    }

    /// Returns the rows of the last read, if they were sound.
    fn known(&self, kind: Kind) -> Option<Snapshot> {
        match self.last().get(&kind) {
            Some(Reading::Read(snapshot)) if snapshot.problem.is_none() => Some(snapshot.clone()),
            _ => None,
        }
    }

    fn open_writer(&self) -> Result<MappedMutexGuard<'_, Database>> {
        let busy = || database::busy(&self.folder);
        let writer = self.writer.try_lock_for(BUSY_TIME).ok_or_else(busy)?;
        MutexGuard::try_map(writer, Option::as_mut).map_err(|_| CLOSED)
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Kind, Reading>> {
        self.last.lock()
    }
}

#[cfg(test)]
mod tests;
