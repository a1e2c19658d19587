//! Tests with values and files that this program never writes: texts that are not UTF-8, values of another type, and pipes.

use super::*;
use crate::files::testing::{at_once, pipe};

/// A change that another program makes to the database: its name, and the function that makes it.
type Tampering<'a> = (&'a str, &'a dyn Fn(&TempDir));

/// Writes a row with numbers in the place of bytes. The table forbids this, so its definition is changed in between.
fn insert_numbers(folder: &TempDir) {
    let set = |from: &str, to: &str| {
        let update = format!("UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}') WHERE name = 'decisions'");
        raw(folder).execute_batch(&format!("PRAGMA writable_schema = 1; {update}")).unwrap();
    };
    set("STRICT, WITHOUT ROWID", "WITHOUT ROWID");
    raw(folder).execute_batch("INSERT INTO decisions VALUES ('grant', 'n', 5, 6)").unwrap();
    set("WITHOUT ROWID", "STRICT, WITHOUT ROWID");
}

#[test]
fn a_row_that_cannot_be_read_has_no_effect_is_reported_and_stops_no_change_of_any_process() {
    let run = |sql: &'static str| move |folder: &TempDir| raw(folder).execute_batch(sql).unwrap();
    let tamperings: [Tampering<'_>; 5] = [
        ("name", &run("INSERT INTO decisions VALUES ('grant', CAST(x'ff' AS TEXT), x'00', x'00')")),
        ("kind of a seal", &run("INSERT INTO seals VALUES (CAST(x'ff' AS TEXT), 1, x'00')")),
        ("kind", &run("INSERT INTO decisions VALUES (CAST(x'ff' AS TEXT), 'z', x'00', x'00'); DELETE FROM seals")),
        ("number of changes", &run("UPDATE seals SET changes = -1")),
        ("type", &insert_numbers),
    ];
    for (name, tamper) in tamperings {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        put(&store, "a", "1");
        tamper(&folder);
        let damages = Arc::default();
        let other = open_with(&folder, &damages);
        assert!(names(&other).is_empty() && names(&other).is_empty(), "{name}");
        assert!(damages.lock().len() == 1 && damages.lock()[0].contains("have no effect"), "{name}: {damages:?}");
        put(&other, "b", "2");
        for store in [&store, &other, &open(&folder)] {
            assert_eq!((names(store), store.damage(Kind::Grant)), (vec!["b".to_owned()], None), "{name}");
        }
        let kept: i64 = raw(&folder).query_row("SELECT count(*) FROM set_aside WHERE name = 'a'", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1, "{name}");
    }
}

#[test]
fn a_schema_that_is_not_ours_is_told_without_its_statements() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    raw(&folder).execute_batch("PRAGMA user_version = 0").unwrap();
    let error = Store::open(folder.path(), Arc::new(|_| ())).unwrap_err().in_full();
    assert!(error.contains("another program has changed its tables") && !error.contains("CREATE"), "{error}");
    raw(&folder)
        .execute_batch(
            "PRAGMA user_version = 2; PRAGMA writable_schema = 1; \
             UPDATE sqlite_schema SET sql = sql || ' -- ' || CAST(x'ff' AS TEXT) WHERE name = 'seals'; PRAGMA schema_version = 99",
        )
        .unwrap();
    let error = Store::open(folder.path(), Arc::new(|_| ())).unwrap_err().in_full();
    assert!(error.contains("another program has changed its tables"), "{error}");
}

#[test]
fn a_pipe_in_the_place_of_the_journal_is_refused_at_once_and_stops_no_open_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    put(&store, "a", "1");
    let journal = pipe(folder.path(), "store.sqlite3-journal");
    let path = folder.path().to_owned();
    let error = at_once(move || Store::open(&path, Arc::new(|_| ())).map(drop)).unwrap_err().in_full();
    assert!(error.contains("store.sqlite3-journal") && error.contains("Move it away"), "{error}");
    let used = at_once(move || {
        put(&store, "b", "2");
        let names = names(&store);
        store.close();
        names
    });
    assert_eq!(used, ["a", "b"]);
    fs::remove_file(journal).unwrap();
    assert_eq!(names(&open(&folder)), ["a", "b"]);
}
