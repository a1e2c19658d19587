//! Tests of the audit through its public methods: the rows that are kept, the gaps that are reported, and changes that other programs make
//! in between.

use rusqlite::Connection;
use serde_json::{Map, Value as Json, json};
use tempfile::TempDir;

use std::time::Instant;

use super::row::Entry;
use super::table::WriterNote;
use super::*;
use crate::store::database::Reader;

mod ends;
mod malformed;

struct Scene {
    folder: TempDir,
    redactor: Arc<Redactor>,
    problems: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    fn new() -> Self {
        let redactor = Redactor::new(None, None);
        redactor.add([&"correct-horse".to_owned().into()]);
        Self { folder: tempfile::tempdir().unwrap(), redactor: Arc::new(redactor), problems: Arc::default() }
    }

    fn options(&self) -> AuditOptions {
        let problems = Arc::clone(&self.problems);
        AuditOptions {
            max_bytes: 1 << 20,
            max_age: Duration::from_hours(1),
            content: false,
            config_grants: Vec::new(),
            redactor: Arc::clone(&self.redactor),
            on_problem: Arc::new(move |error| problems.lock().push(error.in_full())),
        }
    }

    fn open(&self) -> Audit {
        self.open_with(self.options())
    }

    fn open_with(&self, options: AuditOptions) -> Audit {
        let store = Arc::new(Store::open(self.folder.path(), Arc::new(|_| ())).unwrap());
        Audit::open(&store, options)
    }

    fn raw(&self) -> Connection {
        Connection::open(self.folder.path().join("store.sqlite3")).unwrap()
    }

    /// Opens the database and attaches another one, in which the tests keep copies.
    fn with_copies(&self) -> Connection {
        let connection = self.raw();
        connection.execute("ATTACH ?1 AS copy", [self.folder.path().join("copy").to_str().unwrap()]).unwrap();
        connection
    }

    fn copy_tables(&self, tables: &[&str]) {
        let copy = |table: &&str| format!("CREATE TABLE copy.{table} AS SELECT * FROM main.{table};");
        self.with_copies().execute_batch(&tables.iter().map(copy).collect::<String>()).unwrap();
    }

    fn put_tables_back(&self, tables: &[&str]) {
        let put_back = |table: &&str| format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM copy.{table};");
        self.with_copies().execute_batch(&tables.iter().map(put_back).collect::<String>()).unwrap();
    }
}

fn revocation(server: &str) -> AuditEvent {
    AuditEvent::Revocation { server: server.to_owned(), by: AuditParty::Person }
}

pub(super) fn call(arguments: Json) -> AuditEvent {
    let Json::Object(arguments) = arguments else { panic!("no object") };
    let started = Instant::now();
    AuditEvent::Call(CallRecord {
        agent: Some("researcher".into()),
        run_id: Some(4),
        server: "files".into(),
        tool: "read".into(),
        arguments: Arc::new(arguments),
        outcome: CallOutcome::Failed("ERR_CALL_DENIED"),
        started,
        ended: started + Duration::from_micros(1500),
        result_bytes: Some(12),
    })
}

fn rows(audit: &Audit) -> Vec<AuditRow> {
    audit.rows(&AuditQuery::default()).unwrap()
}

fn servers(audit: &Audit) -> Vec<String> {
    rows(audit).into_iter().filter_map(|row| row.server).collect()
}

#[test]
fn what_is_recorded_is_read_by_each_process_in_order_and_stays_after_the_end() {
    let scene = Scene::new();
    let (one, other) = (scene.open(), scene.open());
    one.record(revocation("a"));
    assert_eq!(servers(&one), ["a"]);
    other.record(revocation("b"));
    other.flush();
    one.record(revocation("c"));
    one.close(FLUSHING);
    one.record(revocation("after the end"));
    assert_eq!(servers(&other), ["a", "b", "c"]);
    other.close(FLUSHING);
    let audit = scene.open();
    let report = audit.verify().unwrap();
    assert!(report.whole && report.rows == 3 && report.gaps == 0, "{report:?}");
    drop(audit);
    assert_eq!(std::fs::read_dir(scene.folder.path().join("audit")).unwrap().count(), 0);
}

#[test]
fn a_call_is_kept_with_the_digest_of_its_arguments_and_not_with_them() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(call(json!({ "path": "correct-horse" })));
    audit.record(call(json!({ "path": "correct-horse" })));
    audit.record(call(json!({ "path": "other" })));
    let rows = rows(&audit);
    let row = json!(rows[0]);
    assert_eq!((row["kind"].as_str(), row["agent"].as_str(), row["runId"].as_u64()), (Some("call"), Some("researcher"), Some(4)));
    assert_eq!((row["server"].as_str(), row["tool"].as_str()), (Some("files"), Some("read")));
    assert_eq!((row["outcome"].as_str(), row["durationMs"].as_f64()), (Some("ERR_CALL_DENIED"), Some(1.5)));
    assert_eq!((row["argumentBytes"].as_u64(), row["resultBytes"].as_u64()), (Some(24), Some(12)));
    assert_eq!(row["pid"].as_u64(), Some(std::process::id().into()));
    assert!(!row.to_string().contains("horse") && row.get("arguments").is_none());
    let digest = |row: &AuditRow| row.details.arguments_digest.clone().unwrap();
    assert!(digest(&rows[0]) == digest(&rows[1]) && digest(&rows[0]) != digest(&rows[2]));
}

#[test]
fn contents_are_kept_without_secrets_where_that_is_wanted_and_only_small_ones() {
    let scene = Scene::new();
    let audit = scene.open_with(AuditOptions { content: true, ..scene.options() });
    audit.record(call(json!({ "path": "a correct-horse b" })));
    audit.record(call(json!({ "text": "x".repeat(100_000) })));
    audit.record(call(json!({ "login": { "user": "ada", "password": "hunter2" }, "note": "ghp_16C7e42F292c6912E7710c838347Ae178B4a" })));
    let rows = rows(&audit);
    assert_eq!(json!(rows[0].details.arguments), json!({ "path": "a [redacted] b" }));
    assert_eq!((&rows[1].details.arguments, rows[1].details.argument_bytes), (&None, Some(100_011)));
    assert_eq!(json!(rows[2].details.arguments), json!({ "login": { "user": "ada", "password": "[redacted]" }, "note": "[redacted]" }));
}

#[test]
fn a_name_with_a_secret_is_redacted_and_an_endless_one_is_cut() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(revocation("of correct-horse"));
    audit.record(revocation(&"n".repeat(10_000)));
    let servers = servers(&audit);
    assert!(servers[0] == "of [redacted]" && servers[1].len() < 300, "{servers:?}");
}

fn given(change: GrantChange) -> GrantRecord {
    let text = |text: &str| Some(text.to_owned());
    GrantRecord {
        agent: text("researcher"),
        subject: text("readers"),
        patterns: Some(vec!["files/*".to_owned()]),
        change,
        by: AuditParty::Config,
    }
}

#[test]
fn the_grants_of_a_config_are_recorded_before_the_first_event_and_again_where_they_are_others() {
    let scene = Scene::new();
    let open = |config_grants: Vec<GrantRecord>| scene.open_with(AuditOptions { config_grants, ..scene.options() });
    let told = |audit: &Audit| {
        let told = |row: AuditRow| json!([row.kind, row.details.action]).to_string();
        rows(audit).into_iter().map(told).collect::<Vec<_>>()
    };
    let (call, config, granted) = (r#"["revocation","revoked"]"#, r#"["grant","config"]"#, r#"["grant","granted"]"#);
    let audit = open(Vec::new());
    audit.record(revocation("a"));
    assert_eq!(told(&audit), [call], "there are none, and there were none");
    audit.close(FLUSHING);
    for _ in 0..2 {
        let audit = open(vec![given(GrantChange::Granted)]);
        assert!(rows(&audit).len() == 1 || told(&audit).ends_with(&[call.to_owned()]), "nothing is written before the first event");
        audit.record(revocation("a"));
        audit.close(FLUSHING);
    }
    let audit = open(Vec::new());
    assert_eq!(told(&audit), [call, config, granted, call, call], "the same grants are told once");
    assert_eq!(rows(&audit)[2].details.patterns.as_deref(), Some(&["files/*".to_owned()][..]));
    audit.record(revocation("a"));
    assert_eq!(told(&audit)[5..], [config, call], "the config has none any more");
    let changes = Some(vec![given(GrantChange::Granted)]);
    audit.record(AuditEvent::ConfigGrants(ConfigGrants { listing: vec![given(GrantChange::Granted)], changes }));
    assert_eq!(told(&audit)[7..], [config, granted]);
    audit.close(FLUSHING);
    let audit = open(vec![given(GrantChange::Granted)]);
    audit.record(revocation("a"));
    assert_eq!(told(&audit)[9..], [call], "a reload has told them");
    assert!(audit.verify().unwrap().whole);
}

#[test]
fn a_query_gives_the_last_rows_that_fit_all_it_says() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(revocation("a"));
    audit.record(call(json!({})));
    audit.record(AuditEvent::Grant(given(GrantChange::Granted)));
    audit.record(revocation("b"));
    let numbers = |query: AuditQuery| audit.rows(&query).unwrap().iter().map(|row| row.number).collect::<Vec<_>>();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(numbers(AuditQuery { limit: Some(2), ..AuditQuery::default() }), [3, 4]);
    assert_eq!(numbers(AuditQuery { after: Some(3), ..AuditQuery::default() }), [4]);
    assert_eq!(numbers(AuditQuery { agent: text("researcher"), ..AuditQuery::default() }), [2, 3]);
    assert_eq!(numbers(AuditQuery { server: text("b"), ..AuditQuery::default() }), [4]);
    assert_eq!(numbers(AuditQuery { tool: text("read"), agent: text("researcher"), ..AuditQuery::default() }), [2]);
    assert_eq!(numbers(AuditQuery { tool: text("read"), agent: text("writer"), ..AuditQuery::default() }), Vec::<u64>::new());
    assert_eq!(numbers(AuditQuery { kind: Some(AuditKind::Revocation), ..AuditQuery::default() }), [1, 4]);
    assert_eq!(numbers(AuditQuery { since: Some(now() + 60_000), ..AuditQuery::default() }), Vec::<u64>::new());
}

#[test]
fn the_oldest_rows_go_by_size_and_by_age_and_the_rest_stays_verifiable() {
    let scene = Scene::new();
    let audit = scene.open_with(AuditOptions { max_bytes: 20_000, ..scene.options() });
    for number in 0..1000 {
        audit.record(revocation(&number.to_string()));
    }
    let kept = servers(&audit);
    assert!(kept.len() < 200 && kept.last().unwrap() == "999", "{}", kept.len());
    let report = audit.verify().unwrap();
    assert!(report.whole && report.first.unwrap() > 800 && report.last == Some(1000), "{report:?}");
    audit.close(FLUSHING);
    let audit = scene.open_with(AuditOptions { max_age: Duration::ZERO, ..scene.options() });
    audit.record(revocation("last"));
    assert_eq!(servers(&audit), ["last"]);
    assert!(audit.verify().unwrap().whole);
}

#[test]
fn whatever_another_program_does_to_the_tables_is_found_also_after_more_was_written() {
    for (tampering, told) in [
        ("UPDATE audit SET server = 'z' WHERE number = 2", "row 2 is not as it was written"),
        ("UPDATE audit SET kind = 'grant' WHERE number = 2", "row 2 is not as it was written"),
        ("DELETE FROM audit WHERE number = 2", "row 2 is missing"),
        ("DELETE FROM audit WHERE number = 1", "row 1 is missing"),
        ("DELETE FROM audit WHERE number = 4", "row 4 is missing"),
        ("DELETE FROM audit", "rows 1 to 4 are missing"),
        ("DELETE FROM audit WHERE number > 2; DELETE FROM audit_head", "another program has changed the audit"),
        ("DELETE FROM audit WHERE number > 2; UPDATE audit_head SET last = 2", "another program has changed the audit"),
        ("DELETE FROM audit_head", "another program has changed the audit"),
        (
            "INSERT INTO audit SELECT 5, at, kind, agent, server, tool, body, digest FROM audit WHERE number = 4",
            "row 5 is not as it was written",
        ),
        ("UPDATE audit SET number = number + 10; UPDATE audit SET number = 14 - number + 1", "is not as it was written"),
    ] {
        let scene = Scene::new();
        let audit = scene.open();
        for server in ["a", "b", "c", "d"] {
            audit.record(revocation(server));
        }
        audit.close(FLUSHING);
        assert!(scene.open().verify().unwrap().whole);
        scene.raw().execute_batch(tampering).unwrap();
        assert!(!scene.open().verify().unwrap().whole, "{tampering}");
        let audit = scene.open();
        audit.record(revocation("later"));
        let report = audit.verify().unwrap();
        assert!(!report.whole && report.problems.iter().any(|problem| problem.contains(told)), "{tampering}: {report:?}");
        assert!(servers(&audit).contains(&"later".to_owned()), "{tampering}");
    }
}

#[test]
fn a_gateway_that_is_open_notices_that_the_store_was_put_back_to_an_earlier_time() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(revocation("a"));
    audit.flush();
    scene.copy_tables(&["audit", "audit_head", "audit_writers"]);
    audit.record(revocation("b"));
    audit.flush();
    scene.put_tables_back(&["audit", "audit_head", "audit_writers"]);
    assert!(scene.open().verify().unwrap().whole);
    audit.record(revocation("c"));
    let report = audit.verify().unwrap();
    assert!(!report.whole && servers(&audit) == ["a", "c"], "{report:?}");
}

#[test]
fn an_older_copy_of_the_store_is_told_also_if_no_gateway_was_open_when_it_was_put_in_place() {
    let scene = Scene::new();
    let record = |server: &str| {
        let audit = scene.open();
        audit.record(revocation(server));
        audit.close(FLUSHING);
    };
    record("a");
    let earlier = scene.folder.path().join("earlier.sqlite3");
    scene.raw().execute("VACUUM INTO ?1", [earlier.to_str().unwrap()]).unwrap();
    record("b");
    assert!(scene.open().verify().unwrap().whole);
    scene.raw().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    for rest in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(scene.folder.path().join(format!("store.sqlite3{rest}")));
    }
    std::fs::rename(&earlier, scene.folder.path().join("store.sqlite3")).unwrap();
    let report = scene.open().verify().unwrap();
    assert_eq!(report.problems, ["the audit ends with row 1, but row 2 was written once: the file is an older copy, or its end was cut"]);
    // The damage is still reported after more rows were written.
    for server in ["c", "d", "e"] {
        record(server);
    }
    let audit = scene.open();
    let report = audit.verify().unwrap();
    assert!(report.problems.iter().any(|problem| problem.contains("another program has changed the audit")), "{report:?}");
    assert_eq!(servers(&audit), ["a", "c", "d", "e"]);
}

#[test]
fn the_end_of_an_audit_that_goes_on_is_anchored_before_it_is_closed() {
    let scene = Scene::new();
    let store = Arc::new(Store::open(scene.folder.path(), Arc::new(|_| ())).unwrap());
    let audit = Audit::open(&store, scene.options());
    audit.record(revocation("a"));
    let until = std::time::Instant::now() + Duration::from_mins(1);
    while anchored_end(&store).is_none() {
        assert!(std::time::Instant::now() < until, "nothing is anchored");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(anchored_end(&store).unwrap().number == 1 && audit.verify().unwrap().whole);
}

#[test]
fn rows_that_were_cut_under_an_open_gateway_are_told_also_if_others_were_written_in_their_place() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(revocation("a"));
    audit.flush();
    scene.copy_tables(&["audit", "audit_head", "audit_writers"]);
    audit.record(revocation("hidden"));
    audit.flush();
    scene.put_tables_back(&["audit", "audit_head", "audit_writers"]);
    let other = scene.open();
    for server in ["b", "c", "d"] {
        other.record(revocation(server));
    }
    other.close(FLUSHING);
    assert!(scene.open().verify().unwrap().whole, "nobody else has seen the row");
    let report = audit.verify().unwrap();
    assert!(report.problems[0].contains("row 2 is not the row that was seen by this process"), "{report:?}");
    // The damage is still reported, even if nothing else happens in this gateway.
    audit.close(FLUSHING);
    assert!(rows(&scene.open()).iter().any(|row| row.kind == AuditKind::Damage) && !scene.open().verify().unwrap().whole);
}

#[test]
fn a_head_with_numbers_that_this_program_never_writes_is_told_and_does_not_stop_the_audit() {
    for tampering in ["UPDATE audit_head SET last = -1", "UPDATE audit_head SET bytes = -1"] {
        let scene = Scene::new();
        let audit = scene.open();
        audit.record(revocation("a"));
        audit.flush();
        scene.raw().execute_batch(tampering).unwrap();
        audit.record(revocation("b"));
        assert_eq!(
            rows(&audit).iter().map(|row| row.kind).collect::<Vec<_>>(),
            [AuditKind::Revocation, AuditKind::Damage, AuditKind::Revocation]
        );
        assert!(!audit.verify().unwrap().whole);
    }
}

#[test]
fn several_gateways_at_once_make_one_chain_and_lose_nothing() {
    let scene = Scene::new();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let scene = &scene;
            scope.spawn(move || {
                let audit = scene.open();
                for number in 0..200 {
                    audit.record(revocation(&format!("{name}{number}")));
                    if number % 50 == 0 {
                        audit.flush();
                    }
                }
                audit.close(FLUSHING);
            });
        }
    });
    let audit = scene.open();
    let report = audit.verify().unwrap();
    assert!(report.whole && report.rows == 800 && report.gaps == 0, "{report:?}");
    let of_one: Vec<_> = servers(&audit).into_iter().filter(|server| server.starts_with('b')).collect();
    assert_eq!(of_one, (0..200).map(|number| format!("b{number}")).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_written_is_told_and_written_when_it_can_be() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(revocation("a"));
    audit.flush();
    scene.raw().execute_batch("CREATE TABLE foreign_one (a)").unwrap();
    for server in ["b", "c"] {
        audit.record(revocation(server));
        audit.flush();
    }
    assert_eq!(scene.problems.lock().len(), 1);
    scene.raw().execute_batch("DROP TABLE foreign_one").unwrap();
    audit.record(revocation("d"));
    assert_eq!(servers(&audit), ["a", "b", "c", "d"]);
    assert!(audit.verify().unwrap().whole);
}

#[test]
fn a_trigger_or_a_view_of_another_program_neither_switches_the_audit_off_in_silence_nor_hangs_it() {
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)";
    for foreign in [
        format!("CREATE TRIGGER t BEFORE INSERT ON audit BEGIN SELECT ({endless} SELECT count(*) FROM c); END"),
        format!("ALTER TABLE audit_head RENAME TO h; CREATE VIEW audit_head AS {endless} SELECT h.* FROM h, c"),
    ] {
        let scene = Scene::new();
        let audit = scene.open();
        audit.record(revocation("a"));
        audit.flush();
        scene.raw().execute_batch(&foreign).unwrap();
        audit.record(revocation("b"));
        audit.flush();
        assert_eq!(scene.problems.lock().len(), 1, "{foreign}");
        assert_eq!(
            (audit.verify().unwrap_err().code(), audit.rows(&AuditQuery::default()).unwrap_err().code()),
            ("ERR_STORE", "ERR_STORE")
        );
        audit.close(FLUSHING);
    }
}

#[test]
fn an_empty_object_has_a_digest_too() {
    let scene = Scene::new();
    let audit = scene.open();
    audit.record(call(Json::Object(Map::new())));
    assert_eq!(rows(&audit)[0].details.argument_bytes, Some(2));
}
