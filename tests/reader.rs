//! A separate process, `hyperlight-mcp-reader`, parses agent code. Some code may crash it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::{
    CodeOwner, GuestChoice, GuestFeatures, HostAnswer, HostCall, HostFunctions, HostReply, ParseOwner, ProblemKind, RunControl, RunOutcome,
    RunRequest, Sandboxes, Stop, Wire,
};
use hyperlight_mcp::{Error, Limits};

const WRONG: &str = "export const handler = () => 1 +;";

/// Sandboxes whose reader program has a path that no other test uses.
struct Scene {
    folder: tempfile::TempDir,
    sandboxes: Sandboxes,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("reader");
        symlink(env!("CARGO_BIN_EXE_hyperlight-mcp-reader"), &program).unwrap();
        let choice = match std::env::var("HYPERLIGHT_MCP_GUEST").as_deref() {
            Ok("standard") => GuestChoice::Standard,
            Ok("ring3") => GuestChoice::Ring3,
            _ => GuestChoice::Auto,
        };
        let sandboxes = Sandboxes::new(choice, Arc::new(Limits::default()), tokio::runtime::Handle::current(), program);
        Self { folder, sandboxes }
    }

    fn run(&self, code: String, timeout: Duration) -> RunOutcome {
        self.run_for(&ParseOwner::default(), code, timeout)
    }

    fn run_for(&self, owner: &ParseOwner, code: String, timeout: Duration) -> RunOutcome {
        let host = Arc::new(Nobody);
        let request = RunRequest {
            code,
            input: Wire::null(),
            modules: Arc::new(Vec::new()),
            host,
            features: GuestFeatures::Basic,
            timeout,
            stop: Stop::new(),
            on_log: None,
        };
        let owner = CodeOwner { parse: owner.clone(), ..CodeOwner::default() };
        tokio::task::block_in_place(|| self.sandboxes.run_for(&owner, request))
    }

    /// Returns the processes that parse code for this scene.
    fn readers(&self) -> Vec<i32> {
        let path = self.folder.path().to_str().unwrap();
        let is_reader = |entry: &PathBuf| fs::read(entry.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(path));
        let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        entries.filter(is_reader).filter_map(|entry| entry.file_name()?.to_str()?.parse().ok()).collect()
    }

    fn finds_what_is_wrong(&self) -> bool {
        let problems = self.sandboxes.check(&ParseOwner::default(), WRONG, &[], &|| true).unwrap().unwrap();
        problems.first().is_some_and(|problem| problem.kind == ProblemKind::Syntax && problem.column == 33)
    }
}

struct Nobody;

impl HostFunctions for Nobody {
    fn start(self: Arc<Self>, _: HostCall, _: &RunControl) -> HostAnswer {
        HostAnswer::Ready(HostReply::Throw { name: None, message: "there is nobody".into(), code: None })
    }
}

/// Returns code that is deeply nested, or that a parser reads again and again. In some of it, a slash that could begin a regular expression
/// hides this.
fn hostile() -> Vec<String> {
    let mut codes = Vec::new();
    for unit in ["!", "- ", "await ", "a=>", "(", "a<", "A<B<(a=", "(a=", "a?(b):c=>", "a<b,(c),", "\\"] {
        for times in [200, 900_000 / unit.len()] {
            let deep = unit.repeat(times);
            codes.extend([
                format!("type T = {deep}y"),
                format!("let q = (x as A<B> / {deep}y / 1);"),
                format!("let q = {{}} / {deep}y / 1;"),
                format!("\\u0069f (a) /\"/.x; q = {deep}y; z = \"x\""),
            ]);
        }
    }
    codes
}

/// Returns a few bytes that a parser reads again and again.
fn endless() -> String {
    format!("type T = {}y", "A<B<(a=".repeat(40))
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_no_parser_survives_ends_a_look_and_nothing_else() {
    let scene = Scene::new();
    for code in hostile() {
        let started = Instant::now();
        scene.sandboxes.check(&ParseOwner::default(), &code, &[], &|| true).unwrap();
        // One check may take 5 s. Any further time is because of the machine.
        assert!(started.elapsed() < Duration::from_mins(1), "{}", &code[..60]);
    }
    assert!(scene.finds_what_is_wrong());
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_was_not_looked_at_is_judged_by_the_engine() {
    let scene = Scene::new();
    // It depends on the machine whether the check of the first code ends because of its time or its memory. The second code is too deep on
    // any machine.
    for code in [endless(), format!("type T = {}y", "(".repeat(900_000))] {
        let outcome = scene.run(code, Duration::from_mins(2));
        let Err(Error::CodeSyntax { message, .. }) = outcome.value else { panic!("{:?}", outcome.value) };
        // The types were not removed, and the engine does not support them. The message says so.
        let message = message.redacted(&Redactor::new(None, None));
        let message = message.shown();
        assert!(message.contains("TypeScript types, if it has any, were not removed"), "{message}");
    }
    assert!(scene.run("export const handler = (): number => 1".into(), Duration::from_mins(2)).value.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_ends_with_its_run() {
    let scene = Scene::new();
    let slow = format!("x = {}y", "await ".repeat(16_000));
    let outcome = scene.run(slow, Duration::from_millis(1));
    assert!(matches!(outcome.value, Err(Error::RunTimeout { .. })), "{:?}", outcome.value);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_while_its_code_waits_for_a_look_ends_with_its_own_error() {
    let scene = Scene::new();
    scene.sandboxes.boot().unwrap();
    let typed = "export const handler = (): number => 1".to_owned();
    let (owner, done, sandboxes) = (ParseOwner::default(), AtomicBool::new(false), &scene.sandboxes);
    let wanted = || !done.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| sandboxes.check(&owner, &endless(), &[], &wanted).unwrap());
        }
        while scene.readers().len() < 2 {
            std::thread::yield_now();
        }
        // As long as the other checks run, the owner has no time left.
        let outcome = scene.run_for(&owner, typed.clone(), Duration::from_millis(200));
        assert!(matches!(outcome.value, Err(Error::RunTimeout { limit_ms: 200, .. })), "{:?}", outcome.value);
        done.store(true, Ordering::Relaxed);
    });
    assert!(scene.run_for(&owner, typed, Duration::from_mins(2)).value.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_code_of_many_owners_keeps_nobody_else_waiting() {
    let scene = Scene::new();
    let hostile: Vec<_> = (0..6).map(|_| ParseOwner::default()).collect();
    let (done, sandboxes) = (AtomicBool::new(false), &scene.sandboxes);
    let wanted = || !done.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let (ended, ends) = std::sync::mpsc::channel();
        for (index, owner) in hostile.iter().enumerate().cycle().take(60) {
            let ended = ended.clone();
            let wanted = &wanted;
            scope.spawn(move || {
                while wanted() {
                    sandboxes.check(owner, &endless(), &[], wanted).unwrap();
                    let _ = ended.send(index);
                }
            });
        }
        // Each hostile owner has used up its time and is known for this.
        let mut known = std::collections::BTreeSet::new();
        while known.len() < hostile.len() {
            known.insert(ends.recv().unwrap());
        }
        let mut waits: Vec<_> = (0..5)
            .map(|_| {
                let asked = Instant::now();
                assert!(scene.finds_what_is_wrong());
                asked.elapsed()
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        waits.sort();
        // An owner without time left may use 0.5 s, and any other owner 5 s for each check.
        assert!(waits[2] < Duration::from_secs(3), "{waits:?}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_looked_at_is_told_apart_from_what_is_fine() {
    let scene = Scene::new();
    let check = |code: &str| scene.sandboxes.check(&ParseOwner::default(), code, &[], &|| true).unwrap();
    assert_eq!(check("export const handler = () => 1"), Some(Vec::new()));
    assert_eq!(check(&endless()), None);
    // This code is so deep that it is not checked at all.
    assert_eq!(check(&format!("export const handler = () => {}1", "-".repeat(100_000))), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_generated_tool_is_looked_at_by_a_process_that_ends_in_time() {
    let scene = Scene::new();
    let check = |body: &str, wanted: &dyn Fn() -> bool| {
        scene.sandboxes.check_body(&ParseOwner::default(), body, &["args"], &["JSON"], wanted).unwrap()
    };
    assert_eq!(check("return JSON.stringify(args)", &|| true), Some(Vec::new()));
    assert_eq!(check("const a = 1;\nreturn process.env", &|| true), Some(vec!["line 2: \"process\" does not exist".to_owned()]));
    let endless = format!("return {}y", "(a=(".repeat(5_000));
    let started = Instant::now();
    assert_eq!(check(&endless, &|| true), None);
    // The look may take 5 s. Any further time is because of the machine.
    assert!(started.elapsed() < Duration::from_mins(1));
    assert_eq!(check(&endless, &|| false), None);
    assert!(scene.readers().is_empty(), "a reader goes on with code that nobody waits for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_ended_is_started_again() {
    let scene = Scene::new();
    assert!(scene.finds_what_is_wrong());
    let [reader] = scene.readers()[..] else { panic!("one reader: {:?}", scene.readers()) };
    let process = rustix::process::Pid::from_raw(reader).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    // The process has ended but was not yet reaped, because only the sandboxes do that.
    let stat = || fs::read_to_string(format!("/proc/{reader}/stat")).unwrap();
    while !stat().contains(") Z ") {
        tokio::task::yield_now().await;
    }
    assert!(scene.finds_what_is_wrong());
    assert_ne!(scene.readers(), [reader]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reader_is_left_behind() {
    let scene = Scene::new();
    assert!(scene.finds_what_is_wrong());
    assert_eq!(scene.readers().len(), 1);
    scene.sandboxes.close();
    assert_eq!(scene.readers().len(), 0);
    // A later check is answered too. Its process runs only for that check.
    assert!(scene.finds_what_is_wrong());
    assert_eq!(scene.readers().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_program_no_code_is_read() {
    let sandboxes = Sandboxes::new(GuestChoice::Auto, Arc::default(), tokio::runtime::Handle::current(), "/nowhere/reader");
    let error = sandboxes.check(&ParseOwner::default(), WRONG, &[], &|| true).unwrap_err();
    assert_eq!(error.code(), "ERR_IO");
    assert!(error.to_string().contains("/nowhere/reader"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_is_not_wanted_any_more_ends() {
    let scene = Scene::new();
    let asked = AtomicUsize::new(0);
    let wanted = || asked.fetch_add(1, Ordering::Relaxed) < 2;
    let endless = endless();
    let started = Instant::now();
    assert_eq!(scene.sandboxes.check(&ParseOwner::default(), &endless, &[], &wanted).unwrap(), None);
    assert!(asked.load(Ordering::Relaxed) == 3, "asked until it was not wanted");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(scene.readers().len(), 0);
}
