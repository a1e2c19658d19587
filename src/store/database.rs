//! The connection to the `SQLite` file: how it is opened, its transactions, and its errors in the words of this program.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use rusqlite_migration::{M, Migrations};

use crate::error::{Error, Result};
use crate::files;

pub(super) const FILE_NAME: &str = "store.sqlite3";
/// Time that a change waits for the changes of other processes.
const BUSY_TIME: Duration = Duration::from_secs(10);
/// The types of file systems whose locks `SQLite` cannot rely on: NFS, SMB (two), AFS. From the manual page of statfs(2).
const NETWORK_FILE_SYSTEMS: [u64; 4] = [0x6969, 0x517B, 0xFF53_4D42, 0x5346_414F];

/// Identifies a state of the database: the file, and the number with which `SQLite` counts the changes of other connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    file: (u64, u64),
    changes: i64,
}

/// One connection.
pub(super) struct Database {
    path: PathBuf,
    connection: Connection,
    /// Device and inode of the file that is open.
    file: (u64, u64),
}

/// Creates the state folder with mode 0700, or checks it and removes the permissions of others who may only read it.
pub(super) fn private_folder(folder: &Path) -> Result<files::PrivateFolder> {
    let failed = |error: std::io::Error| {
        problem(&folder.join(FILE_NAME), &format!("the folder cannot be used: {error}. Or choose another stateDir"))
    };
    files::private_folder(folder).map_err(failed)
}

impl Database {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        check_file_system(folder, &path)?;
        create(&path)?;
        let file = identity(&path)?;
        let mut connection = connect(&path)?;
        migrate(&mut connection, &path)?;
        Ok(Self { path, connection, file })
    }

    /// Returns the present version. Opens the database again if its file was replaced.
    pub(super) fn version(&mut self) -> Result<Version> {
        self.follow_file()?;
        let changes = self.connection.prepare_cached("PRAGMA data_version").and_then(|mut pragma| pragma.query_row([], |row| row.get(0)));
        Ok(Version { file: self.file, changes: changes.map_err(|error| failed(&self.path, &error))? })
    }

    /// Reads within one transaction, so that everything read belongs together.
    pub(super) fn reading<T>(&mut self, read: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.within(TransactionBehavior::Deferred, read)
    }

    /// Changes the database as a whole, or not at all.
    pub(super) fn transaction<T>(&mut self, change: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.follow_file()?;
        self.within(TransactionBehavior::Immediate, change)
    }

    fn within<T>(&mut self, behavior: TransactionBehavior, work: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        let path = self.path.clone();
        let transaction = self.connection.transaction_with_behavior(behavior).map_err(|error| failed(&path, &error))?;
        let reader = Reader { transaction, path: &path };
        let outcome = work(&reader)?;
        reader.transaction.commit().map_err(|error| failed(&path, &error))?;
        Ok(outcome)
    }

    /// Opens the file anew if another one stands in its place: a restored backup, or nothing.
    fn follow_file(&mut self) -> Result<()> {
        let there = fs::symlink_metadata(&self.path).ok().map(|file| (file.dev(), file.ino()));
        if there != Some(self.file) {
            let folder = self.path.parent().unwrap_or(Path::new(".")).to_path_buf();
            *self = Self::open(&folder)?;
        }
        Ok(())
    }
}

/// A transaction that is under way.
pub(super) struct Reader<'a> {
    pub(super) transaction: Transaction<'a>,
    path: &'a Path,
}

impl Reader<'_> {
    /// Converts an error of `SQLite` to one that names the file and the way out.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> Error {
        failed(self.path, error)
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let failed = |error| failed(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIME).map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
    // What was approved or revoked is still so after a power failure.
    connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let migrations = Migrations::new(vec![M::up(include_str!("migrations/001_decisions.sql"))]);
    migrations.to_latest(connection).map_err(|error| match error {
        rusqlite_migration::Error::MigrationDefinition(_) => {
            problem(path, "a later version of hyperlight-mcp has written it. Update hyperlight-mcp, or choose another stateDir")
        }
        rusqlite_migration::Error::RusqliteError { err, .. } => failed(path, &err),
        other => problem(path, &other.to_string()),
    })
}

/// Creates the file with mode 0600 before `SQLite` opens it. `SQLite` gives its other files the same mode.
fn create(path: &Path) -> Result<()> {
    let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(_) => Ok(()),
        // Refuses a file of another user, or one that others may write to.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            files::open_own(path).map(drop).map_err(|error| problem(path, &error.to_string()))
        }
        Err(error) => Err(problem(path, &format!("{error}. Make the folder writable, or choose another stateDir"))),
    }
}

fn identity(path: &Path) -> Result<(u64, u64)> {
    let file = fs::symlink_metadata(path).map_err(|error| problem(path, &error.to_string()))?;
    Ok((file.dev(), file.ino()))
}

fn check_file_system(folder: &Path, path: &Path) -> Result<()> {
    let there = rustix::fs::statfs(folder).map_err(|error| problem(path, &std::io::Error::from(error).to_string()))?;
    check_file_system_type(there.f_type.cast_unsigned(), path)
}

fn check_file_system_type(number: u64, path: &Path) -> Result<()> {
    // The type has 32 bits, and is negative on some systems.
    if !NETWORK_FILE_SYSTEMS.contains(&(number & 0xFFFF_FFFF)) {
        return Ok(());
    }
    let told = "its folder is on a network file system, on which two machines could overwrite each other's approvals. Choose a stateDir on a \
                local disk";
    Err(problem(path, told))
}

fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            ". Nothing is approved or granted until it is restored from a backup, or moved away together with the files whose names begin with \
             its name; then every server needs approval again"
        }
        Some(ErrorCode::DiskFull) => ". Nothing was changed; make space on the disk, then try again",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            ". Make the file and its folder writable, or choose another stateDir"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ". Another process has held it for 10 seconds; end that process, then try again"
        }
        _ => "",
    };
    problem(path, &format!("{error}{advice}"))
}

fn problem(path: &Path, problem: &str) -> Error {
    Error::Store { path: path.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_refused_with_the_way_out() {
        let path = Path::new("/home/ada/store.sqlite3");
        assert!(check_file_system_type(0xEF53, path).is_ok());
        for number in [0x6969, 0xFFFF_FFFF_FF53_4D42] {
            let error = check_file_system_type(number, path).unwrap_err().in_full();
            assert!(error.contains("network file system") && error.contains("stateDir"), "{error}");
        }
    }
}
