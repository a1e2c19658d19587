//! Tests of the watchdog with real process groups: when its stdin ends, it ends the recorded groups, and nothing else.

#![allow(clippy::large_futures, reason = "each is awaited once, by a test")]
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const WATCHDOG: &str = env!("CARGO_BIN_EXE_hyperlight-mcp-watchdog");
const FIXTURE: &str = env!("CARGO_BIN_EXE_fixture-server");

/// The time that the watchdog promises. `PATIENCE` is the time for everything else on a busy machine.
const PROMISED: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until `ready` yields something.
fn until<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn send(signal: i32, pid: i32) {
    assert!(!(-1..=1).contains(&pid), "{pid}");
    // SAFETY: takes two integers; they name processes that this test has started.
    unsafe { libc::kill(pid, signal) };
}

/// Returns whether a process runs. A zombie does not run.
fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

struct Watchdog {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Option<BufReader<ChildStdout>>,
}

impl Watchdog {
    fn start() -> Self {
        Self::of(Command::new(WATCHDOG).process_group(0))
    }

    fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let answers = child.stdout.take().map(BufReader::new);
        Self { child, stdin, answers }
    }

    fn ask(&mut self, line: &str) -> String {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut answer = String::new();
        let answers = self.answers.as_mut().unwrap();
        answers.read_line(&mut answer).unwrap();
        answer
    }

    fn watch(&mut self, server: &Server) {
        assert_eq!(self.ask(&format!("+{}", server.group)), "ok\n");
    }

    /// Closes the watchdog's stdin, as Node's end would.
    fn end_of_node(&mut self) -> Instant {
        self.stdin = None;
        Instant::now()
    }

    fn exited(&mut self, within: Duration) -> ExitStatus {
        until("the watchdog's exit", within, || self.child.try_wait().unwrap())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fixture server that leads a process group. Its stdin stays open, so it does not end by itself.
struct Server {
    group: i32,
    /// The thread that reaps the process, as Node's runtime or init would.
    reaper: Option<JoinHandle<ExitStatus>>,
    _stdin: ChildStdin,
    log: PathBuf,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("watchdog-{}-{count}.log", std::process::id());
        let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut child = Command::new(FIXTURE)
            .args(flags)
            .arg("--log")
            .arg(&log)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            group: id(&child),
            _stdin: child.stdin.take().unwrap(),
            reaper: Some(thread::spawn(move || child.wait().unwrap())),
            log,
        };
        // When this event is logged, the server already ignores the signals that its flags name.
        server.logged("spawn");
        server
    }

    /// Waits for the first event with this name. Returns its pid.
    fn logged(&self, event: &str) -> i32 {
        until(event, PATIENCE, || {
            let log = fs::read_to_string(&self.log).ok()?;
            let mut events = log
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'))
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            let found = events.find(|entry| entry["event"] == event)?;
            i32::try_from(found["pid"].as_i64()?).ok()
        })
    }

    fn end(&mut self) -> ExitStatus {
        self.reaper.take().unwrap().join().unwrap()
    }

    /// Waits for the end of the server, within the promised time. Returns the signal that ended it.
    fn ended_by(&mut self, since: Instant) -> Option<i32> {
        until("the server's end", PROMISED, || (!alive(self.group)).then_some(()));
        assert!(since.elapsed() < PROMISED);
        self.end().signal()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The group is killed even if its leader has ended, because a failed test may leave a grandchild in it.
        send(libc::SIGKILL, -self.group);
        if let Some(reaper) = self.reaper.take() {
            let _ = reaper.join();
        }
        let _ = fs::remove_file(&self.log);
    }
}

#[test]
fn recorded_groups_end_with_node() {
    let mut watchdog = Watchdog::start();
    let mut servers = [Server::start(&[]), Server::start(&[]), Server::start(&[])];
    for server in &servers {
        watchdog.watch(server);
    }
    let since = watchdog.end_of_node();
    for server in &mut servers {
        assert_eq!(server.ended_by(since), Some(libc::SIGTERM));
    }
    assert!(watchdog.exited(PROMISED).success());
}

#[test]
fn a_group_that_ignores_sigterm_is_killed() {
    let mut watchdog = Watchdog::start();
    let mut stubborn = Server::start(&["--ignore-sigterm", "--ignore-stdin-eof"]);
    let mut polite = Server::start(&[]);
    watchdog.watch(&stubborn);
    watchdog.watch(&polite);
    let since = watchdog.end_of_node();
    assert_eq!(polite.ended_by(since), Some(libc::SIGTERM));
    assert_eq!(stubborn.ended_by(since), Some(libc::SIGKILL));
    assert!(watchdog.exited(PROMISED).success());
}

#[test]
fn a_grandchild_that_lingers_is_killed() {
    let mut watchdog = Watchdog::start();
    let mut server = Server::start(&["--leave-child"]);
    let grandchild = server.logged("linger");
    watchdog.watch(&server);
    let since = watchdog.end_of_node();
    assert_eq!(server.ended_by(since), Some(libc::SIGTERM));
    until("the grandchild's end", PROMISED, || (!alive(grandchild)).then_some(()));
    assert!(since.elapsed() < PROMISED);
    assert!(watchdog.exited(PROMISED).success());
}

#[test]
fn a_grandchild_is_killed_even_where_its_leader_is_long_gone() {
    let mut watchdog = Watchdog::start();
    let mut server = Server::start(&["--leave-child"]);
    let grandchild = server.logged("linger");
    watchdog.watch(&server);
    send(libc::SIGKILL, server.group);
    server.end();
    assert!(alive(grandchild));
    watchdog.end_of_node();
    until("the grandchild's end", PROMISED, || (!alive(grandchild)).then_some(()));
}

#[test]
fn a_forgotten_group_is_left_alone() {
    let mut watchdog = Watchdog::start();
    let forgotten = Server::start(&[]);
    let mut watched = Server::start(&[]);
    watchdog.watch(&forgotten);
    watchdog.watch(&watched);
    assert_eq!(watchdog.ask(&format!("-{}", forgotten.group)), "ok\n");
    let since = watchdog.end_of_node();
    assert_eq!(watched.ended_by(since), Some(libc::SIGTERM));
    assert!(watchdog.exited(PROMISED).success());
    assert!(alive(forgotten.group));
}

#[test]
fn bad_lines_change_nothing() {
    let mut watchdog = Watchdog::start();
    let mut server = Server::start(&[]);
    watchdog.watch(&server);
    // SAFETY: takes nothing, returns an integer, cannot fail.
    let our_group = unsafe { libc::getpgrp() };
    let its_own_group = id(&watchdog.child);
    for line in [
        String::new(),
        "garbage".to_owned(),
        "+".to_owned(),
        "+0".to_owned(),
        "+1".to_owned(),
        "-1".to_owned(),
        "+99999999999".to_owned(),
        format!("+{its_own_group}"),
        format!("+{our_group}"),
        format!("- {}", server.group),
        "x".repeat(100_000),
    ] {
        let answer = watchdog.ask(&line);
        assert!(answer.starts_with("error "), "{line:.40}: {answer}");
    }
    let since = watchdog.end_of_node();
    assert_eq!(server.ended_by(since), Some(libc::SIGTERM));
    assert!(watchdog.exited(PROMISED).success());
}

#[test]
fn half_a_line_at_the_end_is_no_order() {
    let mut watchdog = Watchdog::start();
    let server = Server::start(&[]);
    let line = format!("+{}", server.group);
    let stdin = watchdog.stdin.as_mut().unwrap();
    stdin.write_all(line.as_bytes()).unwrap();
    watchdog.end_of_node();
    assert!(watchdog.exited(PROMISED).success());
    assert!(alive(server.group));
}

#[test]
fn it_outlives_the_signals_of_a_terminal_and_an_addon_that_does_not_read() {
    let mut watchdog = Watchdog::start();
    let mut server = Server::start(&[]);
    watchdog.watch(&server);
    let pid = id(&watchdog.child);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        send(signal, pid);
    }
    assert_eq!(watchdog.ask("-2000000000"), "ok\n");
    // When Node is killed, both of its pipes close together. An answer is then written to a closed pipe.
    watchdog.answers = None;
    let stdin = watchdog.stdin.as_mut().unwrap();
    stdin.write_all(b"-2000000000\n").unwrap();
    let since = watchdog.end_of_node();
    assert_eq!(server.ended_by(since), Some(libc::SIGTERM));
    assert!(watchdog.exited(PROMISED).success());
}

#[test]
fn a_sigkill_to_nodes_whole_group_spares_it() {
    let mut server = Server::start(&[]);
    // The shell and `sleep` act as Node, because they have the pipe open. The watchdog starts in their group, as if nobody had given it its own
    // group.
    let script = r#"{ echo "+$1"; exec sleep 1000; } | "$0"; exit"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, WATCHDOG, &server.group.to_string()]);
    let mut node = Watchdog::of(shell.process_group(0));
    assert_eq!(node.answer(), "ok\n");
    send(libc::SIGKILL, -id(&node.child));
    let since = Instant::now();
    assert_eq!(server.ended_by(since), Some(libc::SIGTERM));
}

#[test]
fn it_holds_nothing_of_nodes() {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec 7</dev/null 9</dev/null; exec "$0""#, WATCHDOG]);
    let mut watchdog = Watchdog::of(&mut shell);
    // The watchdog has answered, so it has finished its set-up.
    assert_eq!(watchdog.ask("-2000000000"), "ok\n");
    let process = PathBuf::from(format!("/proc/{}", watchdog.child.id()));
    let mut held: Vec<_> = fs::read_dir(process.join("fd")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    held.sort();
    assert_eq!(held, ["0", "1", "2"]);
    assert_eq!(fs::read_link(process.join("cwd")).unwrap(), PathBuf::from("/"));
    watchdog.end_of_node();
    assert!(watchdog.exited(PROMISED).success());
}
