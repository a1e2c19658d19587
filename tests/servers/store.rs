//! Tests of the store of a state folder, through the crate's own API: processes that are killed, disks that are full or read-only, and
//! files that are damaged or of a later version.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hyperlight_mcp::registry::ServerState;
use hyperlight_mcp::store::{Canonical, Kind, MachineKey, Rows, Store};
use hyperlight_mcp::trust::{ApprovalRequest, ApprovalStore};
use hyperlight_mcp::{Error, Gateway, GatewayOptions};
use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::support::TestFolder;

/// The folder or file for a helper process of these tests.
const AT: &str = "HYPERLIGHT_MCP_TEST_AT";
const NAME: &str = "HYPERLIGHT_MCP_TEST_NAME";
const BOTH: [Kind; 2] = [Kind::Server, Kind::Grant];

/// Opens the approvals of a state folder, like another process.
pub(crate) fn approvals_in(state: &Path) -> ApprovalStore {
    ApprovalStore::open(Arc::new(Store::open(state, Arc::new(|_| ())).unwrap()), Arc::new(|_| ()))
}

/// Begins a change of a database, which lasts until the connection is dropped. Fails at once if another process is changing it.
pub(crate) fn begin_change(database: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(database)?;
    // The thread that writes the audit may hold the lock for a moment.
    connection.busy_timeout(Duration::from_secs(3))?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

/// Returns a shell command that holds the lock of a database until it is killed. It creates the file `holds` when it has the lock. `test`
/// must begin with [`hold_if_asked`].
pub(crate) fn hold_command(test: &str, database: &Path, holds: &Path) -> String {
    let program = env::current_exe().unwrap();
    let (database, holds, program) = (database.display(), holds.display(), program.display());
    format!("{AT}={database} {NAME}={holds} {program} --exact {test} >/dev/null")
}

/// Does the work of [`hold_command`] if this process was started by it.
pub(crate) fn hold_if_asked() {
    let Some(database) = asked_at() else { return };
    let _lock = begin_change(&database).unwrap();
    fs::write(env::var_os(NAME).unwrap(), "").unwrap();
    loop {
        thread::park();
    }
}

/// Returns the path that was given to this process. `None` if this is not a helper process.
fn asked_at() -> Option<PathBuf> {
    env::var_os(AT).map(PathBuf::from)
}

/// Runs the same test again, in a process that sees a file system in memory at `disk`.
fn on_a_disk_of_its_own(test: &str, disk: &Path, options: &str) {
    fs::create_dir(disk).unwrap();
    let mount = format!("mount -t tmpfs {options} none {} && exec \"$0\" \"$@\"", disk.display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", &mount]).arg(env::current_exe().unwrap());
    let output = command.args(["--exact", "--nocapture", test]).env(AT, disk).output().unwrap();
    let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Adds rows one after another, each to two kinds together, and prints each row that is in the store.
fn add_rows_until_killed(folder: &Path) {
    let name = env::var(NAME).unwrap();
    let store = Store::open(folder, Arc::new(|problem| println!("\nproblem {problem}"))).unwrap();
    for number in 0.. {
        let row = format!("{name}-{number}");
        let add = |[servers, grants]: &mut [Rows; 2]| {
            for rows in [servers, grants] {
                rows.insert(row.clone(), Arc::from(row.as_bytes()));
            }
            Ok(())
        };
        match store.change_all(BOTH, add) {
            Ok(()) => println!("\nrow {row}"),
            Err(error) => println!("\nproblem {error}"),
        }
        let [servers, grants] = store.rows_of(BOTH).unwrap();
        assert!(servers == grants && servers.contains_key(&row), "torn");
    }
}

struct Worker {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "store::eight_processes_that_are_killed_at_random_lose_nothing_and_tear_nothing"]);
        let name = format!("{:x}", random());
        let mut child = command.env(AT, folder).env(NAME, name).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Kills the worker at a random moment after some rows. Returns all rows and problems that it has printed.
    fn live(mut self) -> (Vec<String>, Vec<String>) {
        let (mut rows, mut problems) = (Vec::new(), Vec::new());
        let (last, moment) = (1 + random() % 6, Duration::from_micros(random() % 8000));
        let mut note = |line: String, rows: &mut Vec<String>| match line.split_once(' ') {
            Some(("row", row)) => rows.push(row.to_owned()),
            Some(("problem", problem)) => problems.push(problem.to_owned()),
            _ => {}
        };
        while (rows.len() as u64) < last {
            let Some(line) = self.lines.next() else { break };
            note(line.unwrap(), &mut rows);
        }
        let end = Instant::now() + moment;
        while Instant::now() < end {
            thread::yield_now();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for line in self.lines.map_while(Result::ok) {
            note(line, &mut rows);
        }
        (rows, problems)
    }
}

#[test]
fn eight_processes_that_are_killed_at_random_lose_nothing_and_tear_nothing() {
    if let Some(folder) = asked_at() {
        return add_rows_until_killed(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let (told, problems) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..6 {
                    let (rows, found) = Worker::start(folder.path()).live();
                    told.lock().unwrap().extend(rows);
                    problems.lock().unwrap().extend(found);
                }
            });
        }
    });
    assert_eq!(*problems.lock().unwrap(), [""; 0]);
    let damages = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&damages);
    let store = Store::open(folder.path(), Arc::new(move |damage| heard.lock().unwrap().push(damage))).unwrap();
    let [servers, grants] = store.rows_of(BOTH).unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.len() >= 48, "{}", told.len());
    assert!(told.iter().all(|row| servers.contains_key(row)), "a row that was told is lost");
    assert!(servers == grants && servers.iter().all(|(name, body)| name.as_bytes() == &**body));
    // A row whose process was killed before it printed the row is stored in full, or not at all. There is at most one such row for each
    // process.
    assert!(servers.len() <= told.len() + 48);
    assert!(damages.lock().unwrap().is_empty(), "{damages:?}");
}

// ---- through a gateway

fn options(state: &Path, heard: &Arc<Mutex<Vec<Json>>>) -> GatewayOptions {
    let mut options = GatewayOptions::new("no watchdog is needed", tokio::runtime::Handle::current());
    options.config = Some(json!({ "mcpServers": { "one": { "command": "/bin/true" }, "two": { "command": "/bin/false" } } }));
    options.state_dir = Some(state.to_owned());
    let heard = Arc::clone(heard);
    options.on_event = Some(Arc::new(move |event| heard.lock().unwrap().push(event)));
    options
}

fn open(state: &Path) -> Result<Gateway, Error> {
    Gateway::open(options(state, &Arc::default()))
}

/// Approves the command of a server, which starts nothing.
async fn approve(gateway: &Gateway, name: &str) -> Result<(), Error> {
    let ApprovalRequest::Command(request) = gateway.approval_request(name).await? else { panic!("stage manifest") };
    gateway.approve(name, Some(&request.digest), None).await
}

fn states(gateway: &Gateway) -> Vec<ServerState> {
    gateway.servers().unwrap().iter().map(|server| server.state).collect()
}

const NEITHER: [ServerState; 2] = [ServerState::Unapproved, ServerState::Unapproved];
const ONE: [ServerState; 2] = [ServerState::CommandApproved, ServerState::Unapproved];

async fn approved_and_closed(state: &Path) {
    let gateway = open(state).unwrap();
    approve(&gateway, "one").await.unwrap();
    assert_eq!(states(&gateway), ONE);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_gateway_leaves_no_file_open_and_no_journal() {
    let test_folder = TestFolder::new();
    let state = test_folder.path("state");
    approved_and_closed(&state).await;
    let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    assert_eq!(open.filter(|path| path.starts_with(&state)).collect::<Vec<_>>(), [""; 0].map(PathBuf::from));
    let left = fs::read_dir(&state).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let expected = ["machine.key", "store.anchor", "store.lock", "store.sqlite3"].map(str::to_owned);
    assert_eq!(left.filter(|name| name.starts_with("store") || name.starts_with("machine")).collect::<BTreeSet<_>>(), expected.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_a_later_version_is_an_error_and_is_left_as_it_is() {
    let test_folder = TestFolder::new();
    let state = test_folder.path("state");
    approved_and_closed(&state).await;
    let database = || Connection::open(state.join("store.sqlite3")).unwrap();
    let present: i64 = database().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let set = |version: i64| database().pragma_update(None, "user_version", version).unwrap();
    set(1000);
    let error = open(&state).err().unwrap();
    assert!(error.code() == "ERR_STORE" && error.to_string().contains("Update hyperlight-mcp"), "{error}");
    set(present);
    assert_eq!(states(&open(&state).unwrap()), ONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_store_is_an_error_approves_nothing_and_can_be_moved_away() {
    let test_folder = TestFolder::new();
    let state = test_folder.path("state");
    approved_and_closed(&state).await;
    let path = state.join("store.sqlite3");
    let sound = fs::read(&path).unwrap();
    let mut torn = sound.clone();
    torn[..100].fill(b'x');
    for corrupt in [&torn[..], &sound[..sound.len() / 2], b"not a database"] {
        fs::write(&path, corrupt).unwrap();
        // A file whose first page is intact may be opened successfully, but reading it fails.
        match open(&state) {
            Err(error) => assert!(error.code() == "ERR_STORE" && error.to_string().contains("moved away"), "{error}"),
            Ok(gateway) => {
                let error = gateway.servers().err().unwrap();
                assert!(error.code() == "ERR_APPROVAL_STORE" && error.to_string().contains("moved away"), "{error}");
                assert_eq!(approve(&gateway, "two").await.unwrap_err().code(), "ERR_APPROVAL_STORE");
            }
        }
    }
    fs::rename(&path, state.join("kept")).unwrap();
    for journal in ["store.sqlite3-wal", "store.sqlite3-shm"] {
        let _ = fs::remove_file(state.join(journal));
    }
    let heard = Arc::default();
    let gateway = Gateway::open(options(&state, &heard)).unwrap();
    assert_eq!(states(&gateway), NEITHER);
    let damaged = |heard: &[Json]| heard.iter().filter(|event| event["type"] == "approvals-damaged").count();
    assert!(damaged(&heard.lock().unwrap()) >= 1, "a store that is gone is noticed");
    approve(&gateway, "one").await.unwrap();
    assert_eq!(states(&gateway), ONE);
    gateway.close().await;
    // A restored backup is not accepted, because it may contain approvals that were revoked in the meantime.
    fs::write(&path, sound).unwrap();
    assert_eq!(states(&open(&state).unwrap()), NEITHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approvals_of_an_earlier_version_move_in_without_a_question_and_the_file_is_kept() {
    let test_folder = TestFolder::new();
    let (state, other) = (test_folder.path("state"), test_folder.path("other"));
    approved_and_closed(&other).await;
    // This is the approval in the format of an earlier version, with the same key.
    fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    fs::copy(other.join("machine.key"), state.join("machine.key")).unwrap();
    let row = "SELECT body FROM decisions WHERE kind = 'approval' AND name = 'one'";
    let body: Vec<u8> = Connection::open(other.join("store.sqlite3")).unwrap().query_row(row, [], |row| row.get(0)).unwrap();
    let servers = json!({ "one": serde_json::from_slice::<Json>(&body).unwrap() });
    let mac = MachineKey::open(&state).unwrap().authenticate(&Canonical::new("hyperlight-mcp approvals 2").json(&servers));
    let file = json!({ "format": "hyperlight-mcp approvals", "version": 2, "servers": servers, "mac": mac }).to_string();
    let path = state.join("approved-mcp.json");
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap().write_all(file.as_bytes()).unwrap();

    let heard = Arc::default();
    let gateway = Gateway::open(options(&state, &heard)).unwrap();
    assert_eq!(states(&gateway), ONE);
    assert!(heard.lock().unwrap().is_empty() && !path.exists());
    assert_eq!(fs::read_to_string(state.join("approved-mcp.json.migrated")).unwrap(), file);
    gateway.revoke("one").await.unwrap();
    gateway.close().await;
    fs::rename(state.join("approved-mcp.json.migrated"), &path).unwrap();
    assert_eq!(states(&open(&state).unwrap()), NEITHER, "the revocation counts, and not the file of an earlier time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error_that_says_so_loses_nothing_and_approves_nothing() {
    let Some(disk) = asked_at() else {
        let test = "store::a_full_disk_is_an_error_that_says_so_loses_nothing_and_approves_nothing";
        let test_folder = TestFolder::new();
        return on_a_disk_of_its_own(test, &test_folder.path("disk"), "-o size=1m");
    };
    let (state, fill) = (disk.join("state"), disk.join("fill"));
    let gateway = open(&state).unwrap();
    approve(&gateway, "one").await.unwrap();
    let mut file = fs::File::create(&fill).unwrap();
    while file.write(&[0; 512]).is_ok_and(|written| written > 0) {}
    // The file must be closed, because an open file may keep more space.
    drop(file);
    // The journal has some free space in its last page, so some changes still succeed.
    let error = loop {
        match approve(&gateway, "two").await {
            Err(error) => break error,
            Ok(()) => gateway.revoke("two").await.unwrap_or_default(),
        }
    };
    assert!(error.code() == "ERR_APPROVAL_STORE" && error.to_string().contains("make space"), "{error}");
    assert_eq!(states(&gateway), ONE);
    let error = gateway.revoke("one").await.unwrap_err();
    assert!(error.to_string().contains("could not be recorded"), "{error}");
    assert_eq!(states(&gateway), NEITHER, "it holds here");
    // A gateway that opens the store now can read it, or gets an error with the reason.
    match open(&state) {
        Ok(other) => assert_eq!(states(&other), ONE),
        Err(error) => assert!(error.code() == "ERR_STORE" && error.to_string().contains("make space"), "{error}"),
    }
    fs::remove_file(&fill).unwrap();
    gateway.revoke("one").await.unwrap();
    approve(&gateway, "two").await.unwrap();
    assert_eq!(states(&open(&state).unwrap()), [ServerState::Unapproved, ServerState::CommandApproved]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_folder_is_an_error_that_says_so() {
    let Some(disk) = asked_at() else {
        let test_folder = TestFolder::new();
        return on_a_disk_of_its_own("store::a_read_only_folder_is_an_error_that_says_so", &test_folder.path("disk"), "");
    };
    let state = disk.join("state");
    approved_and_closed(&state).await;
    let remount =
        |mode: &str| assert!(Command::new("mount").args(["-o", &format!("remount,{mode}")]).arg(&disk).status().unwrap().success());
    remount("ro");
    let error = open(&state).err().unwrap();
    assert!(error.code() == "ERR_STORE" && error.to_string().contains("writable"), "{error}");
    remount("rw");
    assert_eq!(states(&open(&state).unwrap()), ONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_blocks_no_revocation_of_another_process_and_is_told() {
    for malformed in [
        "INSERT INTO decisions VALUES ('approval', CAST(x'ff' AS TEXT), x'00', x'00')",
        "INSERT INTO seals VALUES (CAST(x'ff' AS TEXT), 1, x'00')",
    ] {
        let test_folder = TestFolder::new();
        let state = test_folder.path("state");
        let gateway = open(&state).unwrap();
        approve(&gateway, "one").await.unwrap();
        Connection::open(state.join("store.sqlite3")).unwrap().execute_batch(malformed).unwrap();
        let heard = Arc::default();
        let other = Gateway::open(options(&state, &heard)).unwrap();
        let is_told = |heard: &[Json]| heard.iter().any(|event| event["type"] == "approvals-damaged");
        assert!(is_told(&heard.lock().unwrap()), "{malformed}");
        assert_eq!(states(&other), NEITHER, "{malformed}");
        other.revoke("one").await.unwrap();
        assert_eq!(states(&gateway), NEITHER, "{malformed}");
        approve(&other, "two").await.unwrap();
        assert_eq!(states(&gateway), [ServerState::Unapproved, ServerState::CommandApproved], "{malformed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_the_place_of_the_journal_stops_no_gateway() {
    let test_folder = TestFolder::new();
    let state = test_folder.path("state");
    approved_and_closed(&state).await;
    let heard = Arc::default();
    let gateway = Gateway::open(options(&state, &heard)).unwrap();
    let journal = state.join("store.sqlite3-journal");
    assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success());
    let opened = tokio::task::spawn_blocking({
        let state = state.clone();
        let runtime = tokio::runtime::Handle::current();
        move || runtime.block_on(async { open(&state).err().map(|error| error.to_string()) })
    });
    let work = async {
        let error = opened.await.unwrap().unwrap();
        assert!(error.contains("store.sqlite3-journal") && error.contains("Move it away"), "{error}");
        gateway.revoke("one").await.unwrap();
        assert_eq!(states(&gateway), NEITHER);
        let error = gateway.verify_audit().await.unwrap_err();
        assert!(error.code() == "ERR_STORE" && error.to_string().contains("Move it away"), "{error}");
        gateway.close().await;
    };
    tokio::time::timeout(Duration::from_mins(1), work).await.unwrap();
    let told = |heard: &[Json]| heard.iter().any(|event| event["type"] == "warning" && event.to_string().contains("store.sqlite3-journal"));
    assert!(told(&heard.lock().unwrap()));
    fs::remove_file(&journal).unwrap();
    assert_eq!(states(&open(&state).unwrap()), NEITHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_the_audit_that_cannot_be_used_is_told() {
    let test_folder = TestFolder::new();
    let state = test_folder.path("state");
    approved_and_closed(&state).await;
    fs::remove_dir(state.join("audit")).unwrap();
    fs::write(state.join("audit"), "").unwrap();
    let heard = Arc::default();
    let gateway = Gateway::open(options(&state, &heard)).unwrap();
    let told = |heard: &[Json]| heard.iter().filter(|event| event["type"] == "warning" && event.to_string().contains("/audit")).count();
    assert_eq!(told(&heard.lock().unwrap()), 1);
    assert!(gateway.verify_audit().await.unwrap().whole);
    gateway.close().await;
}
