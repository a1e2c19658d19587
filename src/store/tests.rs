//! The store through its border, with changes by other programs in between.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

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
        "INSERT INTO decisions SELECT kind, 'c', body, mac FROM decisions WHERE name = 'a'",
        "UPDATE seals SET changes = changes - 1",
        "DELETE FROM seals",
        "INSERT INTO decisions SELECT * FROM earlier",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let damages = Arc::default();
        let store = open_with(&folder, &damages);
        put(&store, "a", "1");
        put(&store, "old", "2");
        raw(&folder).execute_batch("CREATE TABLE earlier AS SELECT * FROM decisions WHERE name = 'old'").unwrap();
        let remove = |rows: &mut Rows| {
            rows.remove("old");
            Ok(())
        };
        store.change(Kind::Grant, remove).unwrap();
        assert_eq!(names(&store), ["a"]);
        raw(&folder).execute_batch(tampering).unwrap();
        // A store that has checked the rows before never takes others for them.
        assert!(matches!(names(&store).as_slice(), [] | [_]) && !names(&store).contains(&"old".to_owned()), "{tampering}");
        damages.lock().clear();
        let store = open_with(&folder, &damages);
        assert!(names(&store).is_empty(), "{tampering}");
        assert_eq!(store.intact_rows(Kind::Grant).unwrap_err().code(), "ERR_STORE", "{tampering}");
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
