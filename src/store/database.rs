//! The connection to the `SQLite` file: opens the file, runs transactions, and converts errors of `SQLite` to errors of this program.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use rusqlite_migration::{M, Migrations};

use super::copies::Sign;
use super::place::{self, FILE_NAME, Place};
use crate::error::{Error, Result};
use crate::files;

/// The name of the lock file. A process locks it while it creates or migrates the database.
const LOCK_NAME: &str = "store.lock";
/// The maximum time that a change waits for changes of other processes.
pub(super) const BUSY_TIME: Duration = Duration::from_secs(10);
/// The pause before `use_journal` tries again, while another process has the file locked.
const PAUSE: Duration = Duration::from_millis(2);
/// The migrations from an empty database to the current schema.
const MIGRATIONS: [&str; 2] = [include_str!("migrations/001_decisions.sql"), include_str!("migrations/002_audit.sql")];
/// `SQLite` checks the time limit after this number of steps of its virtual machine.
const STEPS: i32 = 50_000;
/// The problem of a database whose schema contains a part that this program has not created. A trigger or view from another program could
/// block or change each access.
pub(super) const FOREIGN: &str = "another program has changed its tables, indexes, views or triggers. Nothing is approved, granted or changed until it is \
                       restored from a backup, or moved away together with the files whose names begin with its name; then every server needs \
                       approval again";

/// The advice for a database whose content cannot be used.
const LOST: &str = ". Nothing is approved or granted until it is restored from a backup, or moved away together with the files whose names \
                    begin with its name; then every server needs approval again";

/// Identifies a state of the database: contains the identity of the file, and the number that `SQLite` raises when another connection
/// changes the database (`data_version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    file: (u64, u64),
    changes: i64,
}

/// Determines which changes may be lost in a power failure. The end of a process never loses a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// No change is lost, because each change waits for the disk.
    Full,
    /// The changes since the last transaction with [`Durability::Full`] may be lost. The database stays sound.
    Process,
}

impl Durability {
    /// Returns the value of `SQLite`'s `synchronous` setting.
    fn word(self) -> &'static str {
        match self {
            // Approvals and revocations must survive a power failure.
            Self::Full => "full",
            Self::Process => "normal",
        }
    }

    /// Returns the time limit of one transaction. The limit for the audit is longer, because all its rows are read in one transaction, and
    /// there may be very many rows.
    fn time(self) -> Duration {
        match self {
            Self::Full => Duration::from_secs(20),
            Self::Process => Duration::from_mins(10),
        }
    }
}

/// One connection to the database.
pub(super) struct Database {
    path: PathBuf,
    durability: Durability,
    connection: Connection,
    /// The `schema_version` of `SQLite` for which the schema was checked last. `None` before the first transaction.
    schema: Option<i64>,
    /// The time limit of one transaction.
    time: Duration,
    /// Device and inode of the open file.
    file: (u64, u64),
    /// The protection of the file, which ends after the connection.
    _guarded: Guarded,
}

/// The protection of the locks that `SQLite` has on an open database: no other part of this process opens its files.
struct Guarded {
    _locked: files::LockedFiles,
    _sign: Sign,
}

impl Guarded {
    fn new(path: &Path, file: (u64, u64)) -> Result<Self> {
        let locked = files::LockedFiles::new(path, place::locked_beside(path)).map_err(|error| problem(path, &error.to_string()))?;
        Ok(Self { _locked: locked, _sign: Sign::new(path, file)? })
    }
}

impl Database {
    pub(super) fn open(folder: &Path, durability: Durability) -> Result<Self> {
        let Place { path, identity: file } = place::ready(folder)?;
        let guarded = Guarded::new(&path, file)?;
        let mut connection = connect(&path, durability)?;
        if !is_present(&connection, &path)? {
            // Only one process at a time runs this part, because each process checks what is missing and then adds it.
            let lock = files::lock_within(&folder.join(LOCK_NAME), BUSY_TIME).map_err(|error| problem(&path, &error.to_string()))?;
            use_journal(&connection, &path)?;
            migrate(&mut connection, &path)?;
            drop(lock);
        }
        let mut database = Self { path, durability, connection, schema: None, time: durability.time(), file, _guarded: guarded };
        database.reading(|_| Ok(()))?;
        Ok(database)
    }

    /// Merges the journal into the database if this is its last connection, and closes the files.
    pub(super) fn close(self) {
        let merging = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
        let closed = self.connection.close().map_err(|(_, error)| error);
        if let Err(error) = merging.and(closed) {
            tracing::debug!(%error, "the store was not closed in order; the next process to open it does what is left");
        }
    }

    /// Returns the current version. Opens the database again if its file was replaced.
    pub(super) fn version(&mut self) -> Result<Version> {
        self.follow_file()?;
        let changes = self.connection.prepare_cached("PRAGMA data_version").and_then(|mut pragma| pragma.query_row([], |row| row.get(0)));
        Ok(Version { file: self.file, changes: changes.map_err(|error| failed(&self.path, &error))? })
    }

    /// Runs `read` in one transaction, so that everything it reads is from the same moment.
    pub(super) fn reading<T>(&mut self, read: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.within(TransactionBehavior::Deferred, read)
    }

    /// Runs `change` in one transaction: either all its changes are made, or none.
    pub(super) fn transaction<T>(&mut self, change: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.follow_file()?;
        self.within(TransactionBehavior::Immediate, change)
    }

    /// Runs `change` in one transaction, like [`Self::transaction`], but fails at once if another process is changing the database.
    pub(super) fn transaction_now<T>(&mut self, change: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.set_patience(Duration::ZERO)?;
        let outcome = self.transaction(change);
        self.set_patience(BUSY_TIME)?;
        outcome
    }

    /// Runs `change` in one transaction, like [`Self::transaction`], and waits until all changes are on the disk, including earlier ones.
    /// `change` must change something.
    pub(super) fn durable_transaction<T>(&mut self, change: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.set_synchronous(Durability::Full)?;
        let outcome = self.transaction(change);
        self.set_synchronous(self.durability)?;
        outcome
    }

    fn set_synchronous(&self, durability: Durability) -> Result<()> {
        self.connection.pragma_update(None, "synchronous", durability.word()).map_err(|error| failed(&self.path, &error))
    }

    fn set_patience(&self, time: Duration) -> Result<()> {
        self.connection.busy_timeout(time).map_err(|error| failed(&self.path, &error))
    }

    fn within<T>(&mut self, behavior: TransactionBehavior, work: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        let path = self.path.clone();
        let transaction = self.connection.transaction_with_behavior(behavior).map_err(|error| failed(&path, &error))?;
        let reader = Reader { transaction, path: &path };
        let worked = reader.within(self.time, |reader| {
            reader.check_schema(&mut self.schema)?;
            work(reader)
        })?;
        reader.transaction.commit().map_err(|error| failed(&path, &error))?;
        Ok(worked)
    }

    /// Opens the database again if the file was removed, or was replaced (for example, by a restored backup).
    fn follow_file(&mut self) -> Result<()> {
        let there = fs::symlink_metadata(&self.path).ok().map(|file| (file.dev(), file.ino()));
        if there != Some(self.file) {
            let folder = self.path.parent().unwrap_or(Path::new(".")).to_path_buf();
            *self = Self::open(&folder, self.durability)?;
        }
        Ok(())
    }
}

/// An open transaction.
pub(super) struct Reader<'a> {
    pub(super) transaction: Transaction<'a>,
    path: &'a Path,
}

impl Reader<'_> {
    /// Converts an error of `SQLite` to an error that names the file and advises what to do.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> Error {
        failed(self.path, error)
    }

    pub(super) fn problem(&self, problem: &str) -> Error {
        self::problem(self.path, problem)
    }

    /// Runs `work` with a time limit. A damaged or crafted file could otherwise keep `SQLite` busy forever.
    fn within<T>(&self, time: Duration, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let failed = |error| self.failed(&error);
        let end = Instant::now() + time;
        self.transaction.progress_handler(STEPS, Some(move || Instant::now() > end)).map_err(failed)?;
        let outcome = work(self);
        self.transaction.progress_handler(0, None::<fn() -> bool>).map_err(failed)?;
        outcome
    }

    /// Returns an error for a database whose schema is not exactly the schema of this program. `known` is the `schema_version` that was
    /// checked last. The schema is read again only if this version has changed.
    fn check_schema(&self, known: &mut Option<i64>) -> Result<()> {
        let failed = |error| self.failed(&error);
        let number = || self.transaction.prepare_cached("PRAGMA schema_version")?.query_row([], |row| row.get(0));
        let number: i64 = number().map_err(failed)?;
        if *known == Some(number) {
            return Ok(());
        }
        let expected = expected_schema().map_err(failed)?;
        match schema(&self.transaction, expected.len() + 1) {
            Ok(found) if found == expected => {}
            Err(error) if !is_malformed(&error) => return Err(failed(error)),
            _ => return Err(self.problem(FOREIGN)),
        }
        *known = Some(number);
        Ok(())
    }
}

/// A table, an index, a view or a trigger: its type, its name, the name of its table, and the statement that created it.
type SchemaRow = (String, String, String, Option<String>);

/// Returns the schema of an empty database after all migrations.
fn expected_schema() -> rusqlite::Result<Vec<SchemaRow>> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(&MIGRATIONS.concat())?;
    schema(&connection, usize::MAX)
}

/// Reads at most `most` rows of the schema.
fn schema(connection: &Connection, most: usize) -> rusqlite::Result<Vec<SchemaRow>> {
    let mut statement = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name, sql LIMIT ?1")?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    statement.query_map([most], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?.collect()
}

/// Returns whether an error reports that another program has changed the schema.
pub(super) fn is_foreign(error: &Error) -> bool {
    matches!(error, Error::Store { problem, .. } if *problem == FOREIGN.into())
}

/// Returns whether an error reports a value of another type than this program writes, or a text that is not UTF-8. Another program has
/// written such a value, so the caller treats it as damage.
pub(super) fn is_malformed(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..))
}

fn connect(path: &Path, durability: Durability) -> Result<Connection> {
    let failed = |error| failed(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIME).map_err(failed)?;
    connection.pragma_update(None, "synchronous", durability.word()).map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
    // What is removed with an approval does not stay in the file.
    connection.pragma_update(None, "secure_delete", true).map_err(failed)?;
    // Switches off triggers and views, so that none of them runs between the check of the schema and the use of the database.
    for unused in [DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW] {
        connection.set_db_config(unused, false).map_err(failed)?;
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(failed)?;
    // When a connection is dropped, it is closed without merging the log, because it may be dropped on a thread that must not block.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    Ok(connection)
}

/// Returns whether the database has exactly the migrations of this version: no migration is missing, and none is newer.
fn is_present(connection: &Connection, path: &Path) -> Result<bool> {
    let steps = connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).map_err(|error| failed(path, &error))?;
    Ok(usize::try_from(steps) == Ok(MIGRATIONS.len()))
}

/// Switches the database to a write-ahead log. The setting is stored in the database. Retries in a loop, because `SQLite` does not wait
/// here for other processes that are reading the file.
fn use_journal(connection: &Connection, path: &Path) -> Result<()> {
    let end = Instant::now() + BUSY_TIME;
    loop {
        match connection.query_row("PRAGMA journal_mode = wal", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(problem(path, &format!("its folder allows no write-ahead log (the journal is \"{mode}\")"))),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < end => thread::sleep(PAUSE),
            Err(error) => return Err(failed(path, &error)),
        }
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let migrations = Migrations::new(MIGRATIONS.into_iter().map(M::up).collect());
    migrations.to_latest(connection).map_err(|error| match error {
        rusqlite_migration::Error::MigrationDefinition(_) => {
            problem(path, "a later version of hyperlight-mcp has written it. Update hyperlight-mcp, or choose another stateDir")
        }
        // The statements of a migration are correct, so it fails in this way only if its tables are there already.
        rusqlite_migration::Error::RusqliteError { err, .. } if code(&err) == Some(ErrorCode::Unknown) => problem(path, FOREIGN),
        rusqlite_migration::Error::RusqliteError { err, .. } => failed(path, &err),
        other => problem(path, &other.to_string()),
    })
}

fn failed(path: &Path, error: &rusqlite::Error) -> Error {
    let told = match error {
        // The text of this error contains the whole statement.
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    problem(path, &format!("{told}{}", advice(error)))
}

fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error {
        rusqlite::Error::SqlInputError { error, .. } => Some(error.code),
        other => other.sqlite_error_code(),
    }
}

/// Returns the advice that follows the text of an error.
fn advice(error: &rusqlite::Error) -> &'static str {
    match code(error) {
        // This program's own statements do not fail, and its own values can be read. So the last five cases are damage too.
        Some(
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::Unknown
            | ErrorCode::ConstraintViolation
            | ErrorCode::TypeMismatch
            | ErrorCode::TooBig,
        )
        | None => LOST,
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
            ". Nothing was changed; make space on the disk, or repair the disk, then try again"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            ". Make the file and its folder writable, or choose another stateDir"
        }
        Some(ErrorCode::OperationInterrupted) => {
            ". It took too long, so the file may be damaged. Restore it from a backup, or move it away together with the files whose names begin \
             with its name; then every server needs approval again"
        }
        // The last of these codes means that another process holds the locks of all readers.
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            ". Another process has held it for 10 seconds; end that process, then try again"
        }
        _ => "",
    }
}

/// Returns the error for a database that other threads of this process have been changing or reading for too long.
pub(super) fn busy(folder: &Path) -> Error {
    problem(&folder.join(FILE_NAME), "other changes or reads have taken 10 seconds; try again")
}

pub(super) fn problem(path: &Path, problem: &str) -> Error {
    Error::Store { path: path.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn an_error_without_advice_of_its_own_says_what_to_do_and_shows_no_statement() {
        let path = Path::new("/home/ada/store.sqlite3");
        let of_code = |code| failed(path, &rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).in_full();
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_PROTOCOL] {
            assert!(of_code(code).contains("end that process, then try again"), "{}", of_code(code));
        }
        let connection = Connection::open_in_memory().unwrap();
        let statement = connection.prepare("SELECT secret FROM nowhere").unwrap_err();
        let value = connection.query_row("SELECT CAST(x'ff' AS TEXT)", [], |row| row.get::<_, String>(0)).unwrap_err();
        for error in [statement, value] {
            let told = failed(path, &error).in_full();
            assert!(told.contains("restored from a backup") && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn work_that_does_not_end_is_ended_and_the_next_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = Database::open(folder.path(), Durability::Full).unwrap();
        let count = |rows: &str| {
            let sql = format!("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c {rows}) SELECT count(*) FROM c");
            move |reader: &Reader<'_>| {
                reader.transaction.query_row(&sql, [], |row| row.get::<_, i64>(0)).map_err(|error| reader.failed(&error))
            }
        };
        database.time = Duration::from_millis(50);
        let error = database.transaction(count("")).unwrap_err();
        assert!(error.code() == "ERR_STORE" && error.in_full().contains("too long"), "{}", error.in_full());
        database.time = Durability::Full.time();
        assert_eq!(database.transaction(count("LIMIT 3")).unwrap(), 3);
    }
}
