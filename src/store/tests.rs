//! Tests of the store through its public methods, while other programs change its files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::files;

mod malformed;

fn open(folder: &TempDir) -> Store {
    open_with(folder, &Arc::default())
}

fn open_with(folder: &TempDir, damages: &Arc<Mutex<Vec<String>>>) -> Store {
    let damages = Arc::clone(damages);
    Store::open(folder.path(), Arc::new(move |problem| damages.lock().push(problem))).unwrap()
}

fn put(store: &Store, name: &str, body: &str) {
    let insert = |rows: &mut Rows| {
        rows.insert(name.to_owned(), Arc::from(body.as_bytes()));
        Ok(())
    };
    store.change(Kind::Grant, insert).unwrap();
}

fn names(store: &Store) -> Vec<String> {
    store.rows(Kind::Grant).unwrap().keys().cloned().collect()
}

fn raw(folder: &TempDir) -> Connection {
    Connection::open(folder.path().join("store.sqlite3")).unwrap()
}

/// Opens the database and attaches another one, in which the tests keep copies.
fn raw_with_copy(folder: &TempDir) -> Connection {
    let connection = raw(folder);
    connection.execute("ATTACH ?1 AS copy", [folder.path().join("copy").to_str().unwrap()]).unwrap();
    connection
}

#[test]
fn what_one_process_writes_another_reads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(&folder), open(&folder));
    assert!(names(&other).is_empty());
    put(&one, "a", "1");
    assert_eq!(names(&other), ["a"]);
    put(&other, "b", "2");
    assert_eq!(names(&one), ["a", "b"]);
    assert_eq!(&*one.rows(Kind::Grant).unwrap()["b"], b"2");
    assert!(one.rows(Kind::Toolbox).unwrap().is_empty());
    assert_eq!(one.last_rows(Kind::Grant).unwrap().len(), 2);
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    let failed: Result<()> = store.change(Kind::Grant, |rows| {
        rows.clear();
        Err(crate::error::Error::Closed { what: "gateway" })
    });
    assert_eq!(failed.unwrap_err().code(), "ERR_CLOSED");
    assert_eq!(names(&store), ["a"]);
}

#[test]
fn a_row_that_was_changed_removed_added_or_put_back_decides_nothing_and_neither_do_its_siblings() {
    for tampering in [
        "UPDATE decisions SET body = x'39' WHERE name = 'a'",
        "DELETE FROM decisions WHERE name = 'a'",
        "INSERT INTO decisions SELECT kind, 'c', mac, body FROM decisions WHERE name = 'a'",
        "UPDATE seals SET changes = changes - 1",
        "DELETE FROM seals",
        "INSERT INTO decisions SELECT * FROM copy.earlier",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let damages = Arc::default();
        let store = open_with(&folder, &damages);
        put(&store, "a", "1");
        put(&store, "old", "2");
        raw_with_copy(&folder).execute_batch("CREATE TABLE copy.earlier AS SELECT * FROM decisions WHERE name = 'old'").unwrap();
        let remove = |rows: &mut Rows| {
            rows.remove("old");
            Ok(())
        };
        store.change(Kind::Grant, remove).unwrap();
        assert_eq!(names(&store), ["a"]);
        raw_with_copy(&folder).execute_batch(tampering).unwrap();
        // A store that has checked the rows before never returns the old rows instead of the current ones.
        assert!(matches!(names(&store).as_slice(), [] | [_]) && !names(&store).contains(&"old".to_owned()), "{tampering}");
        damages.lock().clear();
        let store = open_with(&folder, &damages);
        assert!(names(&store).is_empty(), "{tampering}");
        assert!(names(&store).is_empty(), "{tampering}");
        assert_eq!(damages.lock().len(), 1, "{tampering}");
        put(&store, "new", "3");
        assert_eq!(names(&store), ["new"], "{tampering}");
        let kept: i64 = raw(&folder).query_row("SELECT count(*) FROM set_aside", [], |row| row.get(0)).unwrap();
        assert_eq!(kept > 0, tampering != "DELETE FROM decisions WHERE name = 'a'", "{tampering}");
    }
}

#[test]
fn another_machines_store_decides_nothing() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    put(&open(&theirs), "a", "1");
    raw(&theirs).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(open(&ours));
    fs::copy(theirs.path().join("store.sqlite3"), ours.path().join("store.sqlite3")).unwrap();
    assert!(names(&open(&ours)).is_empty());
}

#[test]
fn a_database_that_is_swapped_while_it_is_open_is_read_and_not_the_one_before() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(&folder);
    put(&store, "a", "1");
    put(&open(&other), "b", "1");
    for file in ["store.sqlite3", "store.sqlite3-wal", "store.sqlite3-shm"] {
        let _ = fs::remove_file(folder.path().join(file));
    }
    fs::rename(other.path().join("store.sqlite3"), folder.path().join("store.sqlite3")).unwrap();
    assert!(names(&store).is_empty());
}

#[test]
fn a_file_that_is_no_database_a_later_version_and_a_folder_without_permission_are_clear_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite3");
    let error = || Store::open(folder.path(), Arc::new(|_| ())).unwrap_err();
    fs::write(&path, "not a database, but long enough to be read as one by its header and its first page").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(error().code(), "ERR_STORE");
    assert!(error().in_full().contains("moved away"), "{}", error().in_full());
    fs::remove_file(&path).unwrap();
    drop(open(&folder));
    raw(&folder).pragma_update(None, "user_version", 99).unwrap();
    assert!(error().in_full().contains("later version"), "{}", error().in_full());
}

#[test]
fn the_database_and_its_files_are_the_users_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    for file in fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap()) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
    }
}

/// A backup of the store's files.
struct Backup(Vec<(PathBuf, Vec<u8>)>);

impl Backup {
    fn of(folder: &TempDir) -> Self {
        raw(folder).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        let paths = ["store.sqlite3", "store.anchor"].map(|name| folder.path().join(name));
        Self(paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect())
    }

    fn put_back(&self, names: &[&str], folder: &TempDir) {
        for journal in ["store.sqlite3-wal", "store.sqlite3-shm"] {
            let _ = fs::remove_file(folder.path().join(journal));
        }
        for (path, bytes) in self.0.iter().filter(|(path, _)| names.iter().any(|name| path.ends_with(name))) {
            files::replace(path, bytes, files::Writing::Quick).unwrap();
        }
    }
}

fn remove(store: &Store, name: &str) {
    let remove = |rows: &mut Rows| {
        rows.remove(name);
        Ok(())
    };
    store.change(Kind::Grant, remove).unwrap();
}

#[test]
fn a_database_that_is_put_back_decides_nothing_says_so_and_never_comes_to_count() {
    let folder = tempfile::tempdir().unwrap();
    let damages = Arc::default();
    let store = open_with(&folder, &damages);
    put(&store, "a", "1");
    let earlier = Backup::of(&folder);
    remove(&store, "a");
    // The damage is found by a running process and by one that starts afterwards.
    earlier.put_back(&["store.sqlite3"], &folder);
    assert!(names(&store).is_empty());
    assert!(store.damage(Kind::Grant).unwrap().contains("earlier copy"));
    drop(store);
    damages.lock().clear();
    let store = open_with(&folder, &damages);
    assert!(names(&store).is_empty() && names(&store).is_empty());
    assert!(damages.lock().len() == 1 && damages.lock()[0].contains("earlier copy"), "{damages:?}");
    put(&store, "b", "1");
    assert_eq!((names(&store), store.damage(Kind::Grant)), (vec!["b".to_owned()], None));
    assert_eq!(names(&open(&folder)), ["b"]);
    earlier.put_back(&["store.sqlite3"], &folder);
    assert!(names(&store).is_empty() && names(&open(&folder)).is_empty());
}

#[test]
fn a_running_process_notices_that_database_and_anchor_are_put_back_together() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    let earlier = Backup::of(&folder);
    remove(&store, "a");
    earlier.put_back(&["store.sqlite3", "store.anchor"], &folder);
    assert!(names(&store).is_empty() && store.damage(Kind::Grant).is_some());
    // A process that starts afterwards cannot detect this. See docs/THREAT-MODEL.md.
    assert_eq!(names(&open(&folder)), ["a"]);
}

#[test]
fn without_its_anchor_a_store_decides_nothing_of_any_kind() {
    for replacement in [None, Some("{}"), Some("")] {
        let folder = tempfile::tempdir().unwrap();
        let damages = Arc::default();
        let store = open_with(&folder, &damages);
        put(&store, "a", "1");
        let earlier = Backup::of(&folder);
        drop(store);
        let anchor = folder.path().join("store.anchor");
        match replacement {
            None => fs::remove_file(&anchor).unwrap(),
            Some(text) => fs::write(&anchor, text).unwrap(),
        }
        let store = open_with(&folder, &damages);
        assert!(names(&store).is_empty() && store.rows(Kind::Toolbox).unwrap().is_empty());
        assert!(store.damage(Kind::Grant).is_some() && store.damage(Kind::Toolbox).is_some());
        assert!(damages.lock().iter().all(|damage| damage.contains("anchor")), "{damages:?}");
        // The first change of any kind begins a new store. The rows that were set aside, and the rows of an earlier copy, stay without
        // effect.
        let insert = |rows: &mut Rows| Ok(rows.insert("t".to_owned(), Arc::from(*b"1")));
        store.change(Kind::Toolbox, insert).unwrap();
        for store in [&store, &open(&folder)] {
            assert!(names(store).is_empty() && store.damage(Kind::Grant).is_none());
            assert_eq!(store.rows(Kind::Toolbox).unwrap().len(), 1);
        }
        let kept: i64 = raw(&folder).query_row("SELECT count(*) FROM set_aside", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1);
        drop(store);
        earlier.put_back(&["store.sqlite3"], &folder);
        assert!(names(&open(&folder)).is_empty());
    }
}

#[test]
fn a_process_that_is_killed_before_it_raises_the_anchor_loses_nothing_and_the_next_one_raises_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    let before = Backup::of(&folder);
    put(&store, "b", "1");
    let after = Backup::of(&folder);
    drop(store);
    // This is the state if the process ends between the change and the new anchor.
    before.put_back(&["store.anchor"], &folder);
    let damages = Arc::default();
    assert_eq!(names(&open_with(&folder, &damages)), ["a", "b"]);
    assert!(damages.lock().is_empty(), "{damages:?}");
    assert_eq!(fs::read(folder.path().join("store.anchor")).unwrap(), after.0[1].1);
    before.put_back(&["store.sqlite3"], &folder);
    assert!(names(&open(&folder)).is_empty());
}

#[test]
fn a_process_that_is_killed_while_it_makes_a_store_leaves_one_that_works() {
    // The process was killed after it created the database and before it created the anchor.
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder));
    fs::remove_file(folder.path().join("store.anchor")).unwrap();
    let damages = Arc::default();
    let store = open_with(&folder, &damages);
    put(&store, "a", "1");
    assert_eq!(names(&open_with(&folder, &damages)), ["a"]);
    assert!(damages.lock().is_empty(), "{damages:?}");
}

/// A query that never ends.
const ENDLESS: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)";

#[test]
fn what_another_program_puts_into_the_schema_is_told_never_runs_and_nothing_is_permitted() {
    for foreign in [
        format!("CREATE TRIGGER t BEFORE INSERT ON decisions BEGIN SELECT ({ENDLESS} SELECT count(*) FROM c); END"),
        "CREATE TRIGGER t AFTER INSERT ON decisions BEGIN DELETE FROM seals; END".to_owned(),
        format!(
            "ALTER TABLE seals RENAME TO s; CREATE VIEW seals AS {ENDLESS} SELECT 'grant' AS kind, x AS changes, x'00' AS mac FROM c WHERE x < 0"
        ),
        "ALTER TABLE decisions RENAME TO d; CREATE VIEW decisions AS SELECT * FROM d".to_owned(),
        "CREATE INDEX i ON decisions (body)".to_owned(),
        "DROP INDEX macs".to_owned(),
        "CREATE TABLE more (a)".to_owned(),
        "ALTER TABLE seals ADD COLUMN more TEXT".to_owned(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let damages = Arc::default();
        let store = open_with(&folder, &damages);
        put(&store, "a", "1");
        raw(&folder).execute_batch(&foreign).unwrap();
        for _ in 0..2 {
            let error = store.rows(Kind::Grant).unwrap_err();
            assert!(error.code() == "ERR_STORE" && error.in_full().contains("another program has changed its tables"), "{foreign}");
            assert_eq!(store.last_rows(Kind::Grant).unwrap_err().code(), "ERR_STORE", "{foreign}");
        }
        assert!(damages.lock().len() == 1 && damages.lock()[0].contains("another program"), "{foreign}: {damages:?}");
        assert_eq!(store.change(Kind::Grant, |_| Ok(())).unwrap_err().code(), "ERR_STORE", "{foreign}");
        assert_eq!(Store::open(folder.path(), Arc::new(|_| ())).unwrap_err().code(), "ERR_STORE", "{foreign}");
        store.close();
    }
}

fn put_kind(store: &Store, kind: Kind, name: &str) {
    let change = store.change(kind, |rows| {
        rows.insert(name.to_owned(), Arc::from(*b"1"));
        Ok(())
    });
    change.unwrap();
}

#[test]
fn a_process_that_has_seen_rows_never_takes_an_empty_store_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let damages = Arc::default();
    let store = open_with(&folder, &damages);
    put(&store, "a", "1");
    let all = ["store.sqlite3", "store.sqlite3-wal", "store.sqlite3-shm", "store.anchor"];
    for file in all {
        // Some of these files may not exist.
        let _ = fs::remove_file(folder.path().join(file));
    }
    assert!(names(&store).is_empty() && store.damage(Kind::Grant).is_some());
    assert_eq!(damages.lock().len(), 1, "{damages:?}");
    // A change of another kind begins a new store, and the grants stay damaged.
    put_kind(&store, Kind::Approval, "s");
    assert_eq!(store.rows(Kind::Approval).unwrap().len(), 1);
    assert!(names(&store).is_empty() && store.damage(Kind::Grant).is_some() && !store.is_new(Kind::Grant).unwrap());
    put(&store, "b", "1");
    assert_eq!((names(&store), store.damage(Kind::Grant)), (vec!["b".to_owned()], None));
    assert_eq!(names(&open(&folder)), ["b"]);
}

#[test]
fn a_process_that_has_seen_rows_takes_no_other_store_in_their_place_and_changes_nothing_in_it() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(open(&folder));
    fs::copy(folder.path().join("machine.key"), other.path().join("machine.key")).unwrap();
    put(&open(&other), "theirs", "1");
    let theirs = Backup::of(&other).0;
    let damages = Arc::default();
    let store = open_with(&folder, &damages);
    put(&store, "a", "1");
    let moved: Vec<_> = theirs.iter().map(|(path, bytes)| (folder.path().join(path.file_name().unwrap()), bytes.clone())).collect();
    Backup(moved).put_back(&["store.sqlite3", "store.anchor"], &folder);
    assert!(names(&store).is_empty() && store.rows(Kind::Toolbox).unwrap().is_empty());
    assert!(damages.lock().iter().all(|damage| damage.contains("another store has replaced the one")) && damages.lock().len() == 2);
    let refused = store.change(Kind::Grant, |_| Ok(())).unwrap_err();
    assert!(refused.code() == "ERR_STORE" && refused.in_full().contains("start it again"), "{}", refused.in_full());
    assert_eq!(names(&open(&folder)), ["theirs"]);
}

#[test]
fn rows_of_one_kind_from_an_earlier_time_are_told_also_with_the_anchor_of_that_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "wide", "1");
    let earlier = Backup::of(&folder);
    let copy = folder.path().join("copy");
    fs::write(&copy, &earlier.0[0].1).unwrap();
    remove(&store, "wide");
    put(&store, "narrow", "1");
    put_kind(&store, Kind::Approval, "s");
    drop(store);
    let connection = raw(&folder);
    connection.execute("ATTACH ?1 AS copy", [copy.to_str().unwrap()]).unwrap();
    for table in ["decisions", "seals"] {
        let grants = "kind = 'grant'";
        let put_back =
            format!("DELETE FROM main.{table} WHERE {grants}; INSERT INTO main.{table} SELECT * FROM copy.{table} WHERE {grants}");
        connection.execute_batch(&put_back).unwrap();
    }
    drop(connection);
    fs::write(folder.path().join("store.anchor"), &earlier.0[1].1).unwrap();
    let store = open(&folder);
    assert!(names(&store).is_empty() && store.rows(Kind::Approval).unwrap().is_empty());
    assert!(store.damage(Kind::Grant).unwrap().contains("not written at the same time"));
    // A change of another kind does not make the restored rows valid.
    put_kind(&store, Kind::Approval, "t");
    for store in [&store, &open(&folder)] {
        assert!(names(store).is_empty() && store.damage(Kind::Grant).is_some());
        assert_eq!(store.rows(Kind::Approval).unwrap().len(), 1);
    }
    put(&store, "narrow", "1");
    assert_eq!(names(&open(&folder)), ["narrow"]);
}

#[test]
fn several_kinds_change_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let both = [Kind::Approval, Kind::Revocation];
    let insert = |outcome: Result<()>| {
        move |[approvals, revocations]: &mut [Rows; 2]| {
            approvals.insert("a".to_owned(), Arc::from(*b"1"));
            revocations.insert("a".to_owned(), Arc::from(*b"1"));
            outcome
        }
    };
    assert!(store.is_new(Kind::Approval).unwrap());
    store.change_all(both, insert(Err(CLOSED))).unwrap_err();
    // If another program has put something into the schema, the store changes nothing at all.
    raw(&folder)
        .execute_batch("CREATE TRIGGER t BEFORE INSERT ON decisions WHEN NEW.kind = 'revocation' BEGIN SELECT RAISE(ABORT, 'no'); END")
        .unwrap();
    assert_eq!(store.change_all(both, insert(Ok(()))).unwrap_err().code(), "ERR_STORE");
    raw(&folder).execute_batch("DROP TRIGGER t").unwrap();
    assert!(store.rows_of(both).unwrap().iter().all(|rows| rows.is_empty()) && store.is_new(Kind::Approval).unwrap());
    store.change_all(both, insert(Ok(()))).unwrap();
    assert!(open(&folder).rows_of(both).unwrap().iter().all(|rows| rows.len() == 1) && !store.is_new(Kind::Revocation).unwrap());
}

#[test]
fn a_closed_store_holds_no_file_tells_what_it_knew_and_leaves_one_database() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    store.close();
    store.close();
    assert_eq!(store.rows(Kind::Grant).unwrap_err().code(), "ERR_CLOSED");
    assert_eq!(store.change(Kind::Grant, |_| Ok(())).unwrap_err().code(), "ERR_CLOSED");
    assert_eq!(store.last_rows(Kind::Grant).unwrap().len(), 1);
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    assert_eq!(open.filter(|path| path.starts_with(folder.path())).count(), 0);
    let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["machine.key", "store.anchor", "store.lock", "store.sqlite3"]);
}

/// A process loses its locks on a file when it closes any descriptor of the file. Without the locks, the last process to close the store
/// would remove the log that other processes still use.
#[test]
fn a_second_store_in_one_process_takes_no_locks_from_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    let inode = fs::metadata(folder.path().join("store.sqlite3")).unwrap().ino();
    let locks = || {
        let ours = format!(" {} ", std::process::id());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(|line| line.contains(&ours) && line.contains(&format!(":{inode} "))).count()
    };
    let before = locks();
    let second = open(&folder);
    assert!(before > 0 && locks() >= before);
    second.close();
    assert!(locks() >= before);
    put(&store, "b", "1");
    assert_eq!(names(&open(&folder)), ["a", "b"]);
}
