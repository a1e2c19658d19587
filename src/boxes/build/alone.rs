//! A box on a machine without namespaces: Landlock for files, signals and abstract sockets, and a wider filter of system calls. If these
//! cannot enforce the approved box, no box is made. The error then says how to enable namespaces.
//!
//! The *keeper* takes the place of init. Processes that the server leaves behind become children of the keeper, so it can count and end all
//! of them. The keeper leaves the process group, so that it survives when the group is killed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_dumpable_behavior, set_parent_process_death_signal,
    setpgid,
};

use super::disk::Disk;
use super::group::Group;
use super::init::{self, BEYOND_LIMIT, COUNTING};
use super::restrict::{Hold, become_server, landlock_version};
use super::root::PROCESSES;
use super::step::{At as _, Failure, Fault, Outcome, Step};
use super::usage;
use super::{handover, leave_pipes, limits, report_failure, wait_for_init};
use crate::boxes::contents::HOME;
use crate::boxes::order::{Access, Contents, Network, Order};

/// The first version of Landlock with all limits that a box needs: truncation (3), devices (5), signals and abstract sockets (6).
pub(super) const NEEDED: i64 = 6;
/// The start of the names of temporary folders in the private home. The rest of each name is the mark of the keeper's process.
const TEMPORARY: &str = ".box-tmp-";
/// The kinds of namespaces of a box, as the kernel's limits name them.
const KINDS: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
/// The table of this process's mounts.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Maximum number of attempts to read the process table.
const ATTEMPTS: u32 = 5_000;
/// Pause between two attempts to end all processes.
const ENDING: Duration = Duration::from_millis(1);

/// Returns whether this error means that the machine does not allow this user to make namespaces. An error because all allowed namespaces
/// are in use is different: then no box is made, because it would not be like the boxes before it.
pub(super) fn is_for(failure: &Failure) -> bool {
    let has_none = [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::INVAL];
    let is_none = |error: Errno| has_none.contains(&error) || (error == Errno::NOSPC && forbids_namespaces());
    failure.step == Step::Namespaces && failure.error.is_some_and(is_none)
}

/// Returns whether a limit of namespaces is 0.
fn forbids_namespaces() -> bool {
    let limit = |kind: &str| fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces"));
    KINDS.into_iter().any(|kind| limit(kind).is_ok_and(|limit| limit.trim() == "0"))
}

/// Makes the box, starts the server in it, and waits for the end. `cause` is the reason why there are no namespaces.
pub(super) fn start(order: Order, fault: &Fault, group: Option<&Group>, cause: &Failure) -> Outcome<i32> {
    if let Some(lost) = lost(&order.contents, landlock_version(), shows_processes()) {
        let Failure { step, problem, remedy, error } = cause;
        let problem = format!("{problem}, and without namespaces this box cannot {lost}");
        return Err(Failure { step: *step, problem, remedy, error: *error });
    }
    handover::exchange(fault, Vec::new())?;
    fault.begin(Step::StartInit)?;
    let (lives, held) = pipe_with(PipeFlags::CLOEXEC).at(Step::StartInit, "pipe")?;
    // SAFETY: this process has one thread, so the child may do whatever this one may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).at(Step::StartInit, "fork"),
        0 => {
            drop(held);
            let status = keep(order, fault, &lives, group);
            std::process::exit(status.unwrap_or_else(|failure| report_failure(&failure)))
        }
        child => {
            drop((order, lives));
            Ok(wait_for_init(child, held))
        }
    }
}

/// Returns a part of the box that cannot be enforced without namespaces, as the end of a sentence. `None` if everything can be enforced.
fn lost(contents: &Contents, landlock: i64, shows_processes: bool) -> Option<String> {
    let Contents { given, hidden, home: _, network, is_nested, ceilings: _ } = contents;
    if landlock < NEEDED {
        return Some(format!("limit files, signals and sockets: this needs version {NEEDED} of Landlock (Linux 6.12), not {landlock}"));
    }
    if !shows_processes {
        return Some("count and end all processes, because /proc hides some (mount it with hidepid=0)".to_owned());
    }
    if *is_nested {
        return Some("let a browser make namespaces (nested)".to_owned());
    }
    if matches!(network, Network::Own { ports } if !ports.is_empty()) {
        return Some("let only some hosts through, as box.network or the registry of a package needs it".to_owned());
    }
    // A Landlock rule adds rights to the rights on the parent folders, and removes none.
    let is_written = |path: &Path| given.iter().any(|above| above.access == Access::Write && path.starts_with(&above.path));
    if let Some(kept) = given.iter().find(|given| given.access == Access::Read && is_written(&given.path)) {
        return Some(format!("keep {} from being written within a folder that it may write", kept.path.display()));
    }
    let is_within = |path: &&PathBuf| given.iter().any(|given| path.starts_with(&given.path));
    let there = |path: &&PathBuf| path.symlink_metadata().is_ok();
    hidden.iter().filter(there).find(is_within).map(|path| format!("hide {} within a folder that it may read", path.display()))
}

/// Returns whether this process sees all processes of its user.
pub(super) fn shows_processes() -> bool {
    shows_all_processes(&fs::read_to_string(MOUNTS).unwrap_or_default())
}

/// Returns whether the process table shows all processes of this user. With `hidepid`, it does not show a process whose memory nobody may
/// read.
fn shows_all_processes(mounts: &str) -> bool {
    let mut tables = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let (place, options) = (mount.split(' ').nth(4)?, kind.strip_prefix("proc ")?.split(' ').next_back()?);
        (place == PROCESSES).then_some(options)
    });
    // The last mount at `/proc` covers the earlier ones.
    let hides = |option: &str| option.strip_prefix("hidepid=").is_some_and(|value| !matches!(value, "0" | "off"));
    tables.next_back().is_some_and(|options| !options.split(',').any(hides))
}

/// Runs the keeper, which starts the server. Returns the exit status of this process.
fn keep(mut order: Order, fault: &Fault, lives: &OwnedFd, group: Option<&Group>) -> Outcome<i32> {
    fault.begin(Step::TieInit)?;
    become_reaper().at(Step::TieInit, "prctl")?;
    fault.begin(Step::PlaceFolders)?;
    let (home, ceilings) = (order.contents.home.clone(), order.contents.ceilings);
    let temporary = make_temporary(&home).at(Step::PlaceFolders, "the temporary folder")?;
    place(&mut order, &home, &temporary);
    limits::drop_own_capabilities(fault)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Step::DropCapabilities, "prctl")?;
    fault.begin(Step::WatchHome)?;
    let mut disk = Disk::open(&home, ceilings.home_bytes).at(Step::WatchHome, "the private home")?;
    fault.begin(Step::StartServer)?;
    // SAFETY: this process has one thread, so the child may do whatever this one may.
    let server = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()).at(Step::StartServer, "fork"),
        0 => {
            set_parent_process_death_signal(Some(Signal::KILL)).at(Step::StartServer, "prctl")?;
            return become_server(order, fault, group, Hold::Alone).map(|never| match never {});
        }
        child => Pid::from_raw(child).ok_or_else(|| Failure::new(Step::StartServer, "it has no id"))?,
    };
    drop(order);
    // The server stays in the outer process's group, because signals to this group are meant for the server.
    let left = setpgid(None, None).at(Step::StartServer, "setpgid");
    let count = |now| {
        let problem = group.and_then(|group| group.beyond(&ceilings));
        let problem = problem.or_else(|| usage::problem(usage::descendants(), Ok(0), &ceilings));
        problem.or_else(|| disk.step(now))
    };
    let status = left.map(|()| attend(server, lives, count));
    end_all();
    let _ = fs::remove_dir_all(&temporary);
    status
}

/// Waits for the end of the server or of the outer process. Returns the exit status of this process.
fn attend(server: Pid, lives: &OwnedFd, mut count: impl FnMut(Instant) -> Option<String>) -> i32 {
    let _ = leave_pipes(&[0, 1]);
    let process = pidfd_open(server, PidfdFlags::empty());
    let interval = Timespec { tv_sec: 0, tv_nsec: COUNTING.subsec_nanos().into() };
    loop {
        let mut awaited = vec![PollFd::new(lives, PollFlags::IN)];
        awaited.extend(process.iter().map(|process| PollFd::new(process, PollFlags::IN)));
        let _ = poll(&mut awaited, Some(&interval));
        if !awaited[0].revents().is_empty() {
            // Nobody waits for the status any more.
            return BEYOND_LIMIT;
        }
        let ended = init::reap(server);
        let problem = count(Instant::now());
        match (ended, problem) {
            (Some(status), None) => return status,
            (_, Some(problem)) => {
                eprintln!("hyperlight-mcp-box: {problem}, so all of the server was ended");
                return BEYOND_LIMIT;
            }
            (None, None) => {}
        }
    }
}

/// Ends all processes that the server has left behind.
fn end_all() {
    let mut unread = 0;
    while unread < ATTEMPTS {
        init::reap_all();
        match descendants() {
            Ok(left) if left.is_empty() => return,
            Ok(left) => {
                // Stopped processes cannot start others while the list is being killed.
                for signal in [Signal::STOP, Signal::KILL] {
                    for process in &left {
                        let _ = pidfd_send_signal(process, signal);
                    }
                }
            }
            // If the descendants cannot be read, some may still be running.
            Err(_) => unread += 1,
        }
        std::thread::sleep(ENDING);
    }
}

/// Returns descriptors of all processes that descend from this one. When a process ends, another one can get its id. Therefore each process
/// is opened first, and kept only if its id is found again among the descendants.
fn descendants() -> io::Result<Vec<OwnedFd>> {
    let held = usage::descendants()?.into_iter().filter_map(|id| {
        let process = Pid::from_raw(i32::try_from(id).ok()?)?;
        // It fails for a process that has ended.
        Some((id, pidfd_open(process, PidfdFlags::empty()).ok()?))
    });
    let held: Vec<(u32, OwnedFd)> = held.collect();
    let still = usage::descendants()?;
    Ok(held.into_iter().filter(|(id, _)| still.contains(id)).map(|(_, process)| process).collect())
}

/// Lets processes whose parent has ended become children of this one.
fn become_reaper() -> io::Result<()> {
    // SAFETY: takes integers.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the folder that replaces `/tmp`, and removes such folders of boxes that were killed.
fn make_temporary(home: &Path) -> io::Result<PathBuf> {
    for entry in fs::read_dir(home)?.flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)).is_some_and(usage::has_ended) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = home.join(format!("{TEMPORARY}{}", usage::own_mark()?));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Replaces paths that exist only in a box with mounts (`/tmp` and the home) with paths of the machine.
fn place(order: &mut Order, home: &Path, temporary: &Path) {
    for (name, value) in &mut order.environment {
        if name == "TMPDIR" && value == "/tmp" {
            *value = temporary.to_string_lossy().into_owned();
        } else if let Ok(below) = Path::new(value.as_str()).strip_prefix(HOME) {
            *value = home.join(below).components().collect::<PathBuf>().to_string_lossy().into_owned();
        }
    }
    if let Ok(below) = order.working_directory.strip_prefix(HOME) {
        order.working_directory = home.join(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_hides_processes_is_known() {
        let first = "22 1 0:21 / /proc rw,nosuid - proc proc rw,gid=4\n30 23 0:26 / /other rw - proc proc rw,hidepid=invisible\n";
        assert!(shows_all_processes(first));
        for (value, shows) in [("1", false), ("2", false), ("noaccess", false), ("invisible", false), ("ptraceable", false), ("0", true)] {
            let upon = format!("{first}31 22 0:27 / /proc rw shared:3 - proc proc rw,gid=4,hidepid={value}\n");
            assert_eq!(shows_all_processes(&upon), shows, "{value}");
        }
        // Without a process table, processes cannot be counted.
        assert!(!shows_all_processes("") && !shows_all_processes("22 1 0:21 / /proc rw - tmpfs tmpfs rw\n"));
    }

    #[test]
    fn only_what_descends_from_this_process_is_held() {
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let is_held = |id: u32| {
            let mark = format!("Pid:\t{id}\n");
            let text = |process: &OwnedFd| {
                use std::os::fd::AsRawFd as _;
                fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap()
            };
            descendants().unwrap().iter().any(|process| text(process).contains(&mark))
        };
        assert!(is_held(child.id()) && !is_held(std::process::id()) && !is_held(1));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
