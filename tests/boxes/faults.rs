//! Lets each system call of the set-up fail, one in each run. A debugger's interface (`ptrace`) replaces the call by an error. Then either
//! nothing is started, or the call was not necessary, and all attempts to leave the box still fail.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use hyperlight_mcp::boxes::Report;

use super::scene::{ATTACKER, Scene, exchange};

/// The longest run. One that takes longer is killed, and the test fails.
const PATIENCE: Duration = Duration::from_mins(1);
/// Processes of a set-up: the outer one, init, and the one that becomes the server.
const PROCESSES: usize = 3;
/// The operations of `PTRACE_GET_SYSCALL_INFO`.
const ENTRY: u8 = 1;
const EXIT: u8 = 2;

/// A system call of a set-up: the process, the number of the call in this process, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    process: usize,
    position: usize,
    kind: u64,
}

/// The result of a set-up.
struct Outcome {
    calls: Vec<Call>,
    /// True if the call that should fail was reached.
    has_failed: bool,
    output: String,
}

/// The state of a set-up that is being followed.
struct Followed {
    fails: Option<(Call, i32)>,
    /// The processes by id, in the order in which they were made, with the number of their calls.
    processes: BTreeMap<i32, (usize, usize)>,
    calls: Vec<Call>,
    /// The process whose call was just replaced.
    replaced: Option<i32>,
    has_failed: bool,
    is_over: bool,
}

fn checked(result: i64, what: &str) -> i64 {
    assert!(result != -1, "{what}: {}", std::io::Error::last_os_error());
    result
}

/// Asks for something of a process that has stopped.
fn ask(request: libc::c_uint, process: i32, address: usize, data: usize) -> i64 {
    // SAFETY: callers give an address and data that fit the request.
    unsafe { libc::ptrace(request, process, address, data) }
}

impl Followed {
    /// Handles a stop of a process, and returns the signal to go on with.
    fn stopped(&mut self, process: i32, status: i32) -> i32 {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if signal == libc::SIGTRAP | 0x80 {
            self.at_call(process);
            return 0;
        }
        match event {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_VFORK => {
                // The set-up of this process is over; that of the next one begins.
                let count = self.processes.len();
                let mut made: libc::c_ulong = 0;
                let place = std::ptr::from_mut(&mut made) as usize;
                checked(ask(libc::PTRACE_GETEVENTMSG, process, 0, place), "PTRACE_GETEVENTMSG");
                self.processes.entry(i32::try_from(made).unwrap()).or_insert((count, 0));
                0
            }
            // The first program is the one that makes boxes, the second is the server.
            libc::PTRACE_EVENT_EXEC => {
                self.is_over |= self.processes.get(&process).is_some_and(|(ordinal, _)| *ordinal + 1 == PROCESSES);
                0
            }
            _ if matches!(signal, libc::SIGSTOP | libc::SIGTRAP) => 0,
            _ => signal,
        }
    }

    fn at_call(&mut self, process: i32) {
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let place = std::ptr::from_mut(&mut info) as usize;
        checked(ask(libc::PTRACE_GET_SYSCALL_INFO, process, size_of_val(&info), place), "PTRACE_GET_SYSCALL_INFO");
        if info.op == EXIT && self.replaced == Some(process) {
            let error = self.fails.map_or(0, |(_, error)| error);
            self.replaced = None;
            with_registers(process, |registers| registers.rax = i64::from(-error).cast_unsigned());
        }
        let count = self.processes.len();
        let Some((ordinal, position)) = self.processes.get_mut(&process).filter(|_| info.op == ENTRY) else { return };
        // A process that has made the next one is no longer setting up.
        if *ordinal + 1 != count || self.is_over {
            return;
        }
        // SAFETY: at an entry, this is the valid field.
        let kind = unsafe { info.u.entry.nr };
        let call = Call { process: *ordinal, position: *position, kind };
        *position += 1;
        self.calls.push(call);
        if self.fails.is_some_and(|(wanted, _)| (wanted.process, wanted.position) == (call.process, call.position)) {
            (self.replaced, self.has_failed) = (Some(process), true);
            // The kernel has no call of this number, so nothing happens.
            with_registers(process, |registers| registers.orig_rax = u64::MAX);
        }
    }
}

fn with_registers(process: i32, change: impl FnOnce(&mut libc::user_regs_struct)) {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let place = std::ptr::from_mut(&mut registers) as usize;
    checked(ask(libc::PTRACE_GETREGS, process, 0, place), "PTRACE_GETREGS");
    change(&mut registers);
    checked(ask(libc::PTRACE_SETREGS, process, 0, place), "PTRACE_SETREGS");
}

/// Runs a set-up, in which a call fails.
#[allow(clippy::zombie_processes, reason = "all processes are waited for, by their ids")]
fn follow(scene: &Scene, (order, input): (&[u8], &[u8]), fails: Option<(Call, i32)>) -> Outcome {
    let (socket, theirs) = UnixStream::pair().unwrap();
    let (read, mut write) = std::io::pipe().unwrap();
    let mut command = scene.box_program();
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    // SAFETY: the call is safe between fork and exec.
    unsafe {
        command.pre_exec(|| if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) })
    };
    let mut child = command.spawn().unwrap();
    // The other end of the socket must close with the program.
    drop(command);
    let root = i32::try_from(child.id()).unwrap();
    let (done, waited) = channel();
    let guard = std::thread::spawn(move || kill_after(root, &waited));
    (&socket).write_all(order).unwrap();
    write.write_all(input).unwrap();
    drop(write);
    // Fails if the set-up fails before.
    let handing_over = std::thread::spawn(move || drop(exchange(&socket, read)));
    let mut state = Followed {
        fails,
        processes: BTreeMap::from([(root, (0, 0))]),
        calls: Vec::new(),
        replaced: None,
        has_failed: false,
        is_over: false,
    };
    let mut is_first = true;
    loop {
        let mut status = 0;
        // SAFETY: the status lives during the call. Children of other threads are not waited for.
        let process = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if process == -1 {
            break;
        }
        if !libc::WIFSTOPPED(status) {
            continue;
        }
        if is_first {
            is_first = false;
            let events = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACEEXEC;
            let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL | events;
            checked(ask(libc::PTRACE_SETOPTIONS, process, 0, usize::try_from(options).unwrap()), "PTRACE_SETOPTIONS");
        }
        let signal = state.stopped(process, status);
        let is_watched = !state.is_over && (!state.has_failed || state.replaced.is_some());
        let request = if is_watched { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        // A process that was killed meanwhile is not there any more.
        ask(request, process, 0, usize::try_from(signal).unwrap());
    }
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    drop(done);
    handing_over.join().unwrap();
    assert!(!guard.join().unwrap(), "it did not end: {fails:?}");
    Outcome { calls: state.calls, has_failed: state.has_failed, output }
}

/// Kills a process group if it does not end in time. Returns whether it was killed.
fn kill_after(group: i32, done: &Receiver<()>) -> bool {
    let is_late = done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
    if is_late {
        // SAFETY: takes two integers.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    is_late
}

/// Ways out that together ask for each part of a box.
fn attempts(scene: &Scene) -> Vec<String> {
    let path = |name: &str| scene.path(name).display().to_string();
    let all = [
        ("read", path("user/key")),
        ("write", path("given/read/file")),
        ("create", path("given/read")),
        ("create", "/usr/bin".to_owned()),
        ("list", path("state")),
        ("read inherited descriptors", String::new()),
        ("look for", std::process::id().to_string()),
        ("read", "/proc/1/environ".to_owned()),
        ("write", "/proc/sys/kernel/hostname".to_owned()),
        ("connect", "192.0.2.1:443".to_owned()),
        ("packet socket", String::new()),
        ("get capabilities", String::new()),
        ("allow privileges", String::new()),
        ("raise a limit", String::new()),
        ("mount", String::new()),
        ("unshare", String::new()),
        ("ptrace", String::new()),
        ("a user namespace by clone", String::new()),
        ("a call of x32", String::new()),
    ];
    all.into_iter().map(|(name, about)| format!("{name}\t{about}\n")).collect()
}

/// Asserts that nothing was started, or that no attempt to leave the box works.
fn assert_holds(outcome: &Outcome, attempts: usize, what: &str) {
    let mut lines = outcome.output.lines();
    let report = lines.next().map(serde_json::from_str::<Report>);
    let lines: Vec<&str> = lines.collect();
    match report {
        Some(Ok(Report::Ready)) => {
            // Without a line, the program could not become the server.
            let holds = lines.is_empty() || (lines.len() == attempts && lines.iter().all(|line| line.starts_with("refused\t")));
            assert!(holds, "{what}: {lines:#?}");
        }
        Some(Ok(Report::Failed { step, .. })) => assert!(lines.is_empty(), "{what}: {step}, and {lines:#?}"),
        None => {}
        Some(Err(error)) => panic!("{what}: {error} in {}", outcome.output),
    }
}

/// Returns the first system calls of each kind, and one in four of the others. Most of the others only mount one more folder.
fn chosen(calls: &[Call]) -> Vec<Call> {
    let mut counts = BTreeMap::new();
    let mut is_chosen = |call: &&Call| {
        let count: &mut usize = counts.entry((call.process, call.kind)).or_default();
        *count += 1;
        *count <= 8 || count.is_multiple_of(4)
    };
    calls.iter().filter(|call| is_chosen(call)).copied().collect()
}

/// Returns the order with a few of the system's folders, as the set-up is the same for all of them.
fn with_few_folders(order: &[u8]) -> Vec<u8> {
    let mut order: serde_json::Value = serde_json::from_slice(&order[4..]).unwrap();
    let is_kept = |path: &str| !path.starts_with("/etc") || path == "/etc/hosts";
    order["contents"]["given"].as_array_mut().unwrap().retain(|given| is_kept(given["path"].as_str().unwrap()));
    let bytes = serde_json::to_vec(&order).unwrap();
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), &bytes[..]].concat()
}

#[test]
fn each_call_of_the_set_up_that_fails_starts_nothing_or_leaves_a_box_that_holds() {
    let_each_call_fail(&Scene::new());
}

#[test]
fn each_call_without_namespaces_that_fails_does_so_too() {
    if super::holds_alone() {
        let_each_call_fail(&Scene::bare());
    }
}

fn let_each_call_fail(scene: &Scene) {
    std::fs::write(scene.path("user/key"), "secret").unwrap();
    std::fs::write(scene.folder("given/read").join("file"), "given").unwrap();
    let mut command = scene.command(&ATTACKER, &[]);
    command.read = vec![scene.path("given/read")];
    command.write = vec![scene.folder("given/write")];
    let lines = attempts(scene);
    let (order, input) = (with_few_folders(&command.order()), lines.concat().into_bytes());
    let whole = follow(scene, (&order, &input), None);
    assert_holds(&whole, lines.len(), "without a fault");
    assert!(whole.output.contains(r#"{"box":"ready"}"#), "{}", whole.output);
    let processes: Vec<usize> = (0..PROCESSES).map(|process| whole.calls.iter().filter(|call| call.process == process).count()).collect();
    assert!(processes.iter().all(|count| *count > 10), "{processes:?}");

    let (mut failed, mut reached) = (0, 0);
    let chosen = chosen(&whole.calls);
    for call in &chosen {
        let outcome = follow(scene, (&order, &input), Some((*call, libc::EPERM)));
        assert_holds(&outcome, lines.len(), &format!("{call:?}"));
        reached += usize::from(outcome.has_failed);
        failed += usize::from(!outcome.output.contains(r#"{"box":"ready"}"#));
    }
    // Where memory lies differs from run to run, and with it the number of calls, a little.
    assert!(reached * 10 > chosen.len() * 9, "{reached} of {}", chosen.len());
    assert!(failed * 3 > chosen.len(), "{failed} of {} have started nothing", chosen.len());
}
