//! Tests with values in the audit's tables that this program never writes.

use super::*;

/// Returns a closed audit of two rows, on which another program has run some statements.
fn tampered(statements: &str) -> Scene {
    let scene = Scene::new();
    let audit = scene.open();
    for server in ["a", "b"] {
        audit.record(revocation(server));
    }
    audit.close(FLUSHING);
    scene.raw().execute_batch(statements).unwrap();
    scene
}

/// Records one more event. Returns the report.
fn record_later(scene: &Scene) -> AuditReport {
    let audit = scene.open();
    audit.record(revocation("later"));
    let report = audit.verify().unwrap();
    assert!(servers(&audit).contains(&"later".to_owned()), "{report:?}");
    audit.close(FLUSHING);
    assert_eq!(*scene.problems.lock(), [""; 0]);
    report
}

#[test]
fn a_value_that_this_program_never_writes_is_told_also_after_it_was_taken_back_and_stops_no_row() {
    let of_number = |number: &str| format!("INSERT INTO audit VALUES ({number}, 5, 'call', NULL, NULL, NULL, '{{}}', x'00')");
    for (tampering, back) in [
        (of_number("9223372036854775807"), "DELETE FROM audit WHERE number > 1000"),
        (of_number("9223372036854775806"), "DELETE FROM audit WHERE number > 1000"),
        (format!("PRAGMA ignore_check_constraints = 1; {}", of_number("-5")), "DELETE FROM audit WHERE number < 0"),
        ("PRAGMA ignore_check_constraints = 1; UPDATE audit SET at = -1 WHERE number = 1".to_owned(), ""),
        (
            "INSERT INTO audit_writers VALUES (CAST(x'ff' AS TEXT), 1)".to_owned(),
            "DELETE FROM audit_writers WHERE id = CAST(x'ff' AS TEXT)",
        ),
        ("UPDATE audit_head SET digest = x''".to_owned(), ""),
    ] {
        let scene = tampered(&tampering);
        assert!(!scene.open().verify().unwrap().whole, "{tampering}");
        record_later(&scene);
        scene.raw().execute_batch(back).unwrap();
        let report = record_later(&scene);
        let told = "reports that another program has changed the audit";
        assert!(!report.whole && report.problems.iter().any(|problem| problem.contains(told)), "{tampering}: {report:?}");
        assert!(report.last < Some(10), "{tampering}: {report:?}");
    }
}

#[test]
fn a_text_that_is_not_utf_8_is_a_problem_of_its_row_and_no_error() {
    for column in ["kind", "server", "body"] {
        let scene = tampered(&format!("UPDATE audit SET {column} = CAST(x'ff' AS TEXT) WHERE number = 2"));
        for report in [scene.open().verify().unwrap(), record_later(&scene)] {
            assert_eq!(report.problems, ["row 2 cannot be read, because another program has changed or added it"], "{column}");
        }
        assert_eq!(servers(&scene.open()), ["a", "later"], "{column}");
    }
}

#[test]
fn rows_whose_times_were_changed_so_that_they_go_as_old_ones_are_told() {
    for time in ["0", "-1"] {
        let scene = tampered(&format!("PRAGMA ignore_check_constraints = 1; UPDATE audit SET at = {time} WHERE number = 1"));
        let report = record_later(&scene);
        assert!(!report.whole && report.problems.iter().any(|problem| problem.contains("has changed the audit")), "{time}: {report:?}");
        // The rows that are left are verifiable, and their size is right.
        assert_eq!(report.problems.len(), 1, "{time}: {report:?}");
        let (bytes, size): (i64, i64) = scene
            .raw()
            .query_row("SELECT bytes, (SELECT sum(length(body)) FROM audit) FROM audit_head", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert!((size..size * 4).contains(&bytes), "{time}: {bytes} {size}");
    }
}
