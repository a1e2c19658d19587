//! The store: one `SQLite` database in the state folder for everything that a gateway remembers about decisions. This is its narrow border, so that
//! another engine can follow: rows by kind and name, which are read and changed as a whole. The machine's key authenticates what decides anything.

mod canonical;
mod database;
mod decisions;
mod key;
mod seal;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

pub use canonical::Canonical;
pub use key::MachineKey;

use self::database::Database;
use self::decisions::{Reading, Snapshot, rows_now, write_changed};
use crate::error::{Error, Result};
use crate::files::PrivateFolder;

/// Rows of one kind, by name.
pub type Rows = BTreeMap<String, Arc<[u8]>>;

/// Called when rows were found to be changed by another program, with the reason.
pub type DamageListener = Arc<dyn Fn(String) + Send + Sync>;

/// What rows decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Approvals of servers.
    Approval,
    /// Numbers of revocations of servers.
    Revocation,
    /// Servers that agents have added.
    Server,
    /// Grants of toolboxes to agents.
    Grant,
    /// Toolboxes that were made at run time.
    Toolbox,
    /// Approvals of provider packages.
    Provider,
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
        }
    }
}

/// The database of one state folder. Several processes may use one database at the same time. All methods but [`Store::last_rows`] block.
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
    key: MachineKey,
    reader: Mutex<Database>,
    /// Another connection, so that no reader waits for a change.
    writer: Mutex<Database>,
    last: Mutex<BTreeMap<Kind, Reading>>,
    on_damage: DamageListener,
    warning: Option<String>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database of a state folder, and creates folder, key and database if they do not exist. `on_damage` is called when rows turn out
    /// to be changed by another program.
    ///
    /// # Errors
    /// `ERR_STORE` if the folder or the database cannot be used, `ERR_APPROVAL_STORE` if the key cannot be used.
    pub fn open(folder: &Path, on_damage: DamageListener) -> Result<Self> {
        let PrivateFolder { path: folder, was_open } = database::private_folder(folder)?;
        let warning = was_open
            .map(|mode| format!("other users could read the state folder {} (mode {mode:o}); its mode is 700 now", folder.display()));
        let key = MachineKey::open(&folder)?;
        let writer = Mutex::new(Database::open(&folder)?);
        let reader = Mutex::new(Database::open(&folder)?);
        Ok(Self { key, reader, writer, last: Mutex::default(), on_damage, warning })
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

    /// Returns the rows of one kind as they are now. They are read again only if they have changed. Rows that another program has changed count as
    /// absent: they decide nothing.
    ///
    /// # Errors
    /// `ERR_STORE`.
    pub fn rows(&self, kind: Kind) -> Result<Arc<Rows>> {
        let read = self.read(kind);
        let mut last = self.last();
        match read {
            Ok(snapshot) => {
                let rows = Arc::clone(&snapshot.rows);
                let problem = snapshot.problem.clone();
                let before = last.insert(kind, Reading::Read(snapshot));
                drop(last);
                let is_new = |before: &Reading| !matches!(before, Reading::Read(known) if known.problem == problem);
                if let Some(problem) = problem.as_ref().filter(|_| before.as_ref().is_none_or(is_new)) {
                    (self.on_damage)(problem.clone());
                }
                Ok(rows)
            }
            Err(error) => {
                last.insert(kind, Reading::Failed(error.clone()));
                Err(error)
            }
        }
    }

    /// Returns the rows of one kind as they were read last. Neither reads nor waits.
    ///
    /// # Errors
    /// The error of the last reading.
    pub fn last_rows(&self, kind: Kind) -> Result<Arc<Rows>> {
        match self.last().get(&kind) {
            Some(Reading::Read(snapshot)) => Ok(Arc::clone(&snapshot.rows)),
            Some(Reading::Failed(error)) => Err(error.clone()),
            None => Ok(Arc::default()),
        }
    }

    /// Returns the same as [`Store::rows`], and fails where another program has changed the rows: for rows whose absence would allow more.
    ///
    /// # Errors
    /// `ERR_STORE`.
    pub fn intact_rows(&self, kind: Kind) -> Result<Arc<Rows>> {
        self.rows(kind)?;
        self.last_intact_rows(kind)
    }

    /// Returns the same as [`Store::last_rows`], and fails where another program has changed the rows.
    ///
    /// # Errors
    /// `ERR_STORE`, and the error of the last reading.
    pub fn last_intact_rows(&self, kind: Kind) -> Result<Arc<Rows>> {
        match self.last().get(&kind) {
            Some(Reading::Read(Snapshot { problem: Some(problem), .. })) => {
                Err(Error::Store { path: database::FILE_NAME.into(), problem: problem.as_str().into() })
            }
            Some(Reading::Read(snapshot)) => Ok(Arc::clone(&snapshot.rows)),
            Some(Reading::Failed(error)) => Err(error.clone()),
            None => Ok(Arc::default()),
        }
    }

    /// Changes the rows of one kind as a whole, or not at all. Other processes wait meanwhile. Rows that another program has changed are set aside
    /// first, and the change begins without any.
    ///
    /// # Errors
    /// The error of `change`, after which nothing has changed. `ERR_STORE`.
    pub fn change<T>(&self, kind: Kind, change: impl FnOnce(&mut Rows) -> Result<T>) -> Result<T> {
        let mut writer = self.writer.lock();
        let outcome = writer.transaction(|transaction| {
            let before = rows_now(transaction, kind, &self.key, None)?;
            let mut rows = Rows::clone(&before.rows);
            let outcome = change(&mut rows)?;
            write_changed(transaction, kind, &self.key, &before, &rows)?;
            Ok((outcome, before.problem))
        });
        drop(writer);
        let (outcome, problem) = outcome?;
        if let Some(problem) = problem {
            (self.on_damage)(problem);
        }
        self.rows(kind)?;
        Ok(outcome)
    }

    fn read(&self, kind: Kind) -> Result<Snapshot> {
        let mut reader = self.reader.lock();
        let version = reader.version()?;
        let last = match self.last().get(&kind) {
            Some(Reading::Read(snapshot)) if snapshot.version == Some(version) => return Ok(snapshot.clone()),
            Some(Reading::Read(snapshot)) => Some(snapshot.clone()),
            _ => None,
        };
        let mut snapshot = reader.reading(|transaction| rows_now(transaction, kind, &self.key, last.as_ref()))?;
        snapshot.version = Some(version);
        Ok(snapshot)
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Kind, Reading>> {
        self.last.lock()
    }
}

#[cfg(test)]
mod tests;
