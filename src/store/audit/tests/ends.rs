//! Tests of the end of a gateway: closed with calls in progress, or killed.

use super::*;

fn begun(arguments: Json) -> CallRecord {
    let AuditEvent::Call(call) = call(arguments) else { panic!("no call") };
    CallRecord { outcome: CallOutcome::Cancelled, ..call }
}

#[test]
fn calls_in_progress_have_rows_when_the_audit_is_closed_and_are_counted_until_then() {
    let scene = Scene::new();
    let audit = scene.open();
    let calls: Vec<_> = (0..3).map(|number| audit.begin_call(begun(json!({ "number": number }))).unwrap()).collect();
    let mut calls = calls.into_iter();
    audit.end_call(calls.next().unwrap(), CallOutcome::Ok, Some(1));
    assert_eq!(rows(&audit).len(), 1, "a call has a row when it has ended");
    audit.close(FLUSHING);
    calls.for_each(|late| audit.end_call(late, CallOutcome::Ok, None));
    let other = scene.open();
    let outcomes: Vec<_> = rows(&other).iter().map(|row| json!(row)["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "cancelled", "cancelled"]);
    let report = other.verify().unwrap();
    assert!(report.whole && report.gaps == 0, "{report:?}");

    let killed = scene.open();
    let ended = killed.begin_call(begun(json!({}))).unwrap();
    killed.end_call(ended, CallOutcome::Ok, None);
    for _ in 0..2 {
        killed.begin_call(begun(json!({}))).unwrap();
    }
    killed.flush();
    let presence = killed.presence.as_ref().unwrap();
    let (folder, counted) = (scene.folder.path().join("audit"), presence::Counted::read(&presence.id).unwrap());
    assert_eq!((counted.told, std::fs::read_dir(&folder).unwrap().count()), (3, 2), "one is written, and two are in progress");
}

/// Leaves the files of a killed gateway that had recorded two events and had written one of them.
fn killed(scene: &Scene) -> std::path::PathBuf {
    let store = Store::open(scene.folder.path(), Arc::new(|_| ())).unwrap();
    let presence = Presence::begin(scene.folder.path()).unwrap();
    presence.tell(2);
    let written = Entry::new(now(), AuditKind::Revocation, &AuditDetails::default());
    let bounds = scene.options().bounds();
    let note = [WriterNote::Written(&presence.id, 1)];
    let append = |reader: &Reader<'_>| Table { reader, key: store.key() }.append(&[written], &note, None, now(), bounds);
    store.audit_database().unwrap().transaction(append).unwrap();
    scene.folder.path().join("audit").join(format!("{}.lock", presence.id))
}

#[test]
fn a_gateway_that_was_killed_is_told_of_whatever_was_done_to_its_sign_and_its_number() {
    let gaps = |audit: &Audit| rows(audit).iter().filter(|row| row.kind == AuditKind::Gap).map(|row| row.details.lost).collect::<Vec<_>>();
    let scene = Scene::new();
    killed(&scene);
    let audit = scene.open();
    assert_eq!((gaps(&audit), audit.verify().unwrap().whole), (vec![Some(1)], true));
    let scene = Scene::new();
    std::fs::remove_file(killed(&scene)).unwrap();
    let audit = scene.open();
    assert_eq!((gaps(&audit), gaps(&audit), audit.verify().unwrap().whole), (vec![None], vec![None], true), "it is told once");
    for tampering in [
        "UPDATE audit_writers SET told = 2",
        "UPDATE audit_writers SET told = 9223372036854775807",
        "UPDATE audit_writers SET told = -1",
        "DELETE FROM audit_writers",
    ] {
        let scene = Scene::new();
        killed(&scene);
        scene.raw().execute_batch(tampering).unwrap();
        let audit = scene.open();
        assert_eq!((gaps(&audit), audit.verify().unwrap().whole), (vec![None], false), "{tampering}");
    }
    // Without the presence file and the list of writers, only the head still shows that the gateway existed.
    let scene = Scene::new();
    std::fs::remove_file(killed(&scene)).unwrap();
    scene.raw().execute_batch("DELETE FROM audit_writers").unwrap();
    assert!(!scene.open().verify().unwrap().whole);
    let audit = scene.open();
    audit.record(revocation("later"));
    assert_eq!(
        rows(&audit).iter().map(|row| row.kind).collect::<Vec<_>>(),
        [AuditKind::Revocation, AuditKind::Damage, AuditKind::Revocation]
    );
}

#[test]
fn a_gateway_that_was_closed_with_unwritten_rows_is_told_of_also_in_its_own_process() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(revocation("written"));
    audit.flush();
    scene.raw().execute_batch("CREATE TRIGGER foreign_part AFTER INSERT ON audit BEGIN SELECT 1; END").unwrap();
    audit.record(revocation("lost"));
    audit.close(FLUSHING);
    scene.raw().execute_batch("DROP TRIGGER foreign_part").unwrap();
    let other = scene.open();
    let kinds: Vec<_> = rows(&other).iter().map(|row| (row.kind, row.details.lost)).collect();
    assert_eq!(kinds, [(AuditKind::Revocation, None), (AuditKind::Gap, Some(1))]);
    drop(audit);
}

#[test]
fn a_gateway_whose_sign_cannot_be_made_says_so_and_is_told_of_when_it_is_killed() {
    let gaps = |audit: &Audit| rows(audit).iter().filter(|row| row.kind == AuditKind::Gap).map(|row| row.details.lost).collect::<Vec<_>>();
    for mode in [None, Some(0o777)] {
        let scene = Scene::new();
        let folder = scene.folder.path().join("audit");
        match mode {
            None => std::fs::write(&folder, "").unwrap(),
            Some(mode) => {
                std::fs::create_dir(&folder).unwrap();
                std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            }
        }
        let audit = scene.open();
        let warning = audit.warning().unwrap().to_owned();
        assert!(warning.contains("/audit: ") && warning.contains("move it away"), "{warning}");
        audit.record(revocation("a"));
        audit.flush();
        let id = audit.presence.as_ref().unwrap().id.clone();
        let listed =
            || -> i64 { scene.raw().query_row("SELECT count(*) FROM audit_writers WHERE id = ?1", [&id], |row| row.get(0)).unwrap() };
        assert_eq!((listed(), gaps(&audit), gaps(&scene.open())), (1, Vec::new(), Vec::new()), "it is open");
        audit.close(FLUSHING);
        assert_eq!((listed(), gaps(&scene.open())), (0, Vec::new()), "it was closed");
        // The entry of a gateway whose process was killed stays in the list.
        let killed = Presence::without_file(scene.folder.path()).unwrap();
        let store = Store::open(scene.folder.path(), Arc::new(|_| ())).unwrap();
        let note = [WriterNote::Written(&killed.id, 1)];
        let append = |reader: &Reader<'_>| Table { reader, key: store.key() }.append(&[], &note, None, now(), scene.options().bounds());
        store.audit_database().unwrap().transaction(append).unwrap();
        assert_eq!(gaps(&scene.open()), Vec::new());
        drop(killed);
        let audit = scene.open();
        assert_eq!((gaps(&audit), gaps(&audit), audit.verify().unwrap().whole), (vec![None], vec![None], true), "it is told once");
    }
}
