//! Shared code of the integration tests: time limits, the fixture server with its log, and a list of processes that still run.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod apart;
pub mod asking;
pub mod calling;
pub mod http;
pub mod recording_observer;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyperlight_mcp::boxes::{BoxInput, Disk, contents};
use hyperlight_mcp::catalog::Manifest;
use hyperlight_mcp::client::{
    Boxed, Caller, ConnectClock, Connection, Elicitation, ElicitationAnswer, Launch, Notice, Observer, Reply, Sampling, Target, Watchdog,
};
use hyperlight_mcp::config::{BoxBase, BoxNetwork, BoxSettings, ResolvedCommand};
use hyperlight_mcp::error::{ErrorText, ForeignText};
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::GuestChoice;
use serde_json::{Map, Value as Json};

pub const FIXTURE: &str = env!("CARGO_BIN_EXE_fixture-server");
const WATCHDOG: &str = env!("CARGO_BIN_EXE_hyperlight-mcp-watchdog");
const READER: &str = env!("CARGO_BIN_EXE_hyperlight-mcp-reader");
pub const BOX: &str = env!("CARGO_BIN_EXE_hyperlight-mcp-box");
const POLL: Duration = Duration::from_millis(2);

/// Returns whether the whole machine is emulated in software, as `scripts/with-hypervisor` says.
pub fn emulated() -> bool {
    std::env::var("HYPERLIGHT_MCP_EMULATED").is_ok_and(|value| value == "1")
}

/// Returns a time limit, which is longer in an emulated machine.
pub fn scaled(limit: Duration) -> Duration {
    if emulated() { limit * 8 } else { limit }
}

/// Returns the time limit for actions without a limit of their own.
pub fn patience() -> Duration {
    scaled(Duration::from_secs(20))
}

/// Returns the guest with which the tests run.
pub fn guest_choice() -> GuestChoice {
    match std::env::var("HYPERLIGHT_MCP_GUEST").as_deref() {
        Ok("standard") => GuestChoice::Standard,
        Ok("ring3") => GuestChoice::Ring3,
        _ => GuestChoice::Auto,
    }
}

/// Polls until `ready` yields something.
pub async fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let polling = async {
        loop {
            if let Some(value) = ready() {
                return value;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    within(patience(), what, polling).await
}

/// Fails the test if a future does not complete within the time limit.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let outcome = tokio::time::timeout(limit, pin!(future)).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain, for {:?}: {what}", started.elapsed()))
}

/// Returns an error's text in full. Tests may read it, because it contains no secrets.
pub fn said(text: &ErrorText) -> String {
    text.clone().redacted(&Redactor::new(None, None)).shown().to_owned()
}

/// Returns foreign text in full. Tests may read it, because it contains no secrets.
pub fn opened(text: &ForeignText) -> String {
    text.open(&Redactor::new(None, None))
}

/// Returns the full message of an error. Tests may read it, because it contains no secrets.
pub fn told(error: &hyperlight_mcp::Error) -> String {
    error.clone().redacted(&Redactor::new(None, None)).to_string()
}

pub fn object(json: Json) -> Map<String, Json> {
    let Json::Object(fields) = json else { panic!("no object: {json}") };
    fields
}

/// The folder of one test. The command line of every program that the test starts contains its path. With this path, the test finds the
/// processes that still run, and no processes of other tests.
pub struct TestFolder {
    folder: tempfile::TempDir,
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        // Removing the folder fails if a server writes its last output at the same time. A later attempt succeeds.
        (0..100).any(|_| std::fs::remove_dir_all(self.folder.path()).is_ok());
    }
}

impl TestFolder {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("hyperlight-mcp-test-").tempdir().unwrap();
        symlink(WATCHDOG, folder.path().join("watchdog")).unwrap();
        symlink(READER, folder.path().join("hyperlight-mcp-reader")).unwrap();
        symlink(BOX, folder.path().join("hyperlight-mcp-box")).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of the watchdog program in this test's folder.
    pub fn watchdog_program(&self) -> PathBuf {
        self.path("watchdog")
    }

    /// Returns the arguments with which the fixture runs as the server with this name. Creates the log file, because a box contains only
    /// files that exist.
    pub fn arguments(&self, server: &str, flags: &[&str]) -> Vec<String> {
        let log = self.log_path(server);
        fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let log = log.display().to_string();
        flags.iter().copied().chain(["--log", &log]).map(str::to_owned).collect()
    }

    pub fn command(&self, server: &str, flags: &[&str]) -> ResolvedCommand {
        ResolvedCommand {
            command: FIXTURE.to_owned(),
            arguments: self.arguments(server, flags),
            environment: Vec::new(),
            working_directory: self.folder.path().to_owned(),
            secrets: Vec::new(),
        }
    }

    pub fn launch(&self, server: &str, flags: &[&str]) -> Launch {
        self.launch_command(server, self.command(server, flags), patience())
    }

    /// Returns the box of a test's server: none, unless the whole run is in boxes, as `scripts/test` does it with the hostile servers.
    fn in_box(&self, command: &ResolvedCommand) -> Option<Box<Boxed>> {
        std::env::var_os("HYPERLIGHT_MCP_TEST_BOXES")?;
        let folder = self.folder.path().canonicalize().unwrap();
        let home = folder.join("home");
        fs::create_dir_all(&home).unwrap();
        let input = BoxInput {
            settings: &BoxSettings { network: BoxNetwork::Any, ..BoxSettings::of(BoxBase::Standard) },
            program: Path::new(&command.command),
            arguments: &command.arguments,
            working_directory: None,
            workspace: None,
            search_path: OsStr::new("/usr/local/bin:/usr/bin:/bin"),
            read: Vec::new(),
            write: vec![folder],
            roots: Vec::new(),
            user_home: Path::new("/nowhere"),
            own_folders: &[],
            start_hosts: &BTreeSet::new(),
            private_home: &home,
            services: &[],
            socket_folders: &[],
            own_files: &[],
            kept: &Vec::new,
            is_always_named: &|_| true,
        };
        let (contents, _) = contents(&input, &Disk).unwrap();
        Some(Box::new(Boxed::new(BOX.into(), contents)))
    }

    pub fn launch_command(&self, server: &str, command: ResolvedCommand, limit: Duration) -> Launch {
        Launch {
            server: server.to_owned(),
            target: Target::Process { program: command.command.clone().into(), in_box: self.in_box(&command), command },
            redact: Arc::new(|text: ForeignText| text.open(&Redactor::new(None, None))),
            on_stderr: Arc::new(|_| {}),
            caller: Arc::new(SilentObserver),
            clock: ConnectClock::start(None, Some(u64::try_from(limit.as_millis()).unwrap()), 0),
            protocol_version: None,
            era: Some(hyperlight_mcp::client::Era::Initialize),
            roots: Vec::new(),
            elicits: false,
        }
    }

    /// Opens a connection to the fixture as server `s`.
    pub async fn open(&self, flags: &[&str]) -> hyperlight_mcp::Result<Connection> {
        self.open_launch(&self.launch("s", flags)).await
    }

    pub async fn open_launch(&self, launch: &Launch) -> hyperlight_mcp::Result<Connection> {
        Connection::open(launch, &Watchdog::new(self.watchdog_program()).into(), Arc::new(SilentObserver)).await
    }

    /// Returns all events that the fixture has logged for a server.
    pub fn events(&self, server: &str) -> Vec<Json> {
        let log = fs::read_to_string(self.log_path(server)).unwrap_or_default();
        let whole = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn count(&self, server: &str, event: &str) -> usize {
        self.events(server).iter().filter(|entry| entry["event"] == event).count()
    }

    /// Waits for an event that matches.
    pub async fn logged(&self, server: &str, event: &str, fits: impl Fn(&Json) -> bool) -> Json {
        until(event, || self.events(server).into_iter().find(|entry| entry["event"] == event && fits(entry))).await
    }

    /// Waits until a call of this tool has reached the server. Returns the call's id.
    pub async fn called(&self, server: &str, tool: &str) -> Json {
        self.logged(server, "request", |entry| entry["name"] == tool).await["id"].clone()
    }

    /// Waits until the server was told that the call was cancelled, and has stopped it.
    pub async fn cancelled(&self, server: &str, id: &Json) {
        self.logged(server, "notification", |entry| entry["method"] == "notifications/cancelled" && entry["params"]["requestId"] == *id)
            .await;
        self.logged(server, "cancelled", |entry| entry["id"] == *id).await;
    }

    /// Returns the process id of the server, which leads its process group.
    pub async fn pid(&self, server: &str) -> i32 {
        pid_of(&self.logged(server, "spawn", |_| true).await)
    }

    /// Returns the command lines of all processes of this test: servers, processes that they left behind, and watchdogs. Leaves out the
    /// processes that parse code.
    pub fn running(&self) -> Vec<String> {
        let folder = self.folder.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        let lines = processes.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        // A process that has ended but was not yet reaped has no command line.
        lines.filter(|line| line.contains(folder) && !line.contains("/hyperlight-mcp-reader")).collect()
    }

    /// Returns the same command lines without those of watchdogs.
    pub fn servers_running(&self) -> Vec<String> {
        let log = self.folder.path().join("log-");
        self.running().into_iter().filter(|line| line.contains(log.to_str().unwrap())).collect()
    }

    pub async fn all_servers_gone(&self) {
        until("the servers' end", || self.servers_running().is_empty().then_some(())).await;
    }

    fn log_path(&self, server: &str) -> PathBuf {
        self.path(&format!("log-{server}"))
    }
}

pub fn pid_of(event: &Json) -> i32 {
    i32::try_from(event["pid"].as_i64().unwrap()).unwrap()
}

/// Sends a signal to a process that the test has started.
pub fn send(signal: i32, pid: i32) {
    assert!(pid > 1, "{pid}");
    // SAFETY: takes two integers; the id is of a process that this test has started.
    unsafe { libc::kill(pid, signal) };
}

/// Milliseconds since 1970, as the fixture's log counts them.
pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Writes a program that `sh` runs.
pub fn write_script(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    // The file is renamed to its path, because a file that is still open for writing cannot be executed.
    let new = path.with_extension("new");
    fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, path).unwrap();
}

/// An observer and caller that answers no questions and ignores all events.
pub struct SilentObserver;

impl Caller for SilentObserver {
    fn identity(&self) -> u64 {
        0
    }

    fn can_elicit(&self) -> bool {
        false
    }

    fn elicit(&self, _elicitation: Elicitation) -> Option<Reply<ElicitationAnswer>> {
        None
    }

    fn sample(&self, _sampling: Sampling) -> Option<Reply<Json>> {
        None
    }

    fn notice(&self, _server: &str, _tool: &str, _notice: &Notice) {}

    fn pause(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }
}

impl Observer for SilentObserver {
    fn lost(&self, _server: &str, _reason: &str) {}
    fn evicted(&self, _server: &str, _made_room_for: &str) {}
    fn idled_out(&self, _server: &str) {}
    fn manifest_read(&self, _server: &str, _manifest: &Arc<Manifest>) {}
    fn notice(&self, _server: &str, _notice: &Notice) {}
    fn resource_updated(&self, _server: &str, _uri: &str) {}
    fn elicited(&self, _server: &str) {}
    fn question_cancelled(&self, _server: &str, _reason: &str) {}

    fn may_send_messages(&self, _server: &str) -> bool {
        true
    }

    fn nobody_in_particular(&self) -> Arc<dyn Caller> {
        Arc::new(SilentObserver)
    }
}
