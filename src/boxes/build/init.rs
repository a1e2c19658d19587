//! The first process of a box. It makes the root folder, starts the server, reaps ended processes, and ends the box when a limit is
//! reached.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, set_dumpable_behavior, set_parent_process_death_signal,
    wait,
};

use super::disk::Disk;
use super::group::Group;
use super::restrict::{self, Hold};
use super::step::{At as _, Failure, Fault, Outcome, Step};
use super::usage;
use super::{Users, leave_pipes, limits, root};
use crate::boxes::contents::HOME;
use crate::boxes::order::{Ceilings, Order};

/// Interval at which memory and processes are counted.
pub(super) const COUNTING: Duration = Duration::from_millis(200);
/// The exit status of a box whose server has exceeded a limit.
pub(super) const BEYOND_LIMIT: i32 = 124;

/// Makes the box and runs the server in it. Returns the exit status of this process.
pub(super) fn run(order: Order, fault: &Fault, users: &Users, lives: &OwnedFd, group: Option<&Group>) -> Outcome<i32> {
    fault.begin(Step::TieInit)?;
    set_parent_process_death_signal(Some(Signal::KILL)).at(Step::TieInit, "prctl")?;
    // The outer process may have ended before it was tied.
    let mut gone = [PollFd::new(lives, PollFlags::IN)];
    poll(&mut gone, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).at(Step::TieInit, "poll")?;
    if !gone[0].revents().is_empty() {
        return Err(Failure::new(Step::TieInit, "the process that started it has ended"));
    }
    let system_v = root::enter(&order.contents, &order.working_directory, fault, users)?;
    fault.begin(Step::NameHost)?;
    rustix::system::sethostname(b"box").at(Step::NameHost, "sethostname")?;
    limits::drop_capabilities(fault)?;
    // The server has the same user: it must not read this process's memory, environment or descriptors.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Step::DropCapabilities, "prctl")?;
    fault.begin(Step::WatchHome)?;
    let ceilings = order.contents.ceilings;
    let home = Disk::open(Path::new(HOME), ceilings.home_bytes).at(Step::WatchHome, HOME)?;
    fault.begin(Step::StartServer)?;
    // SAFETY: this process has one thread, so the child may do whatever this one may.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).at(Step::StartServer, "fork"),
        0 => restrict::become_server(order, fault, group, Hold::Namespaces(system_v)).map(|never| match never {}),
        child => {
            drop(order);
            let server = Pid::from_raw(child).ok_or_else(|| Failure::new(Step::StartServer, "it has no id"))?;
            Ok(attend(server, &ceilings, group, home))
        }
    }
}

/// Waits for the server's end, and returns its status.
fn attend(server: Pid, ceilings: &Ceilings, group: Option<&Group>, mut home: Disk) -> i32 {
    // The pipes of the server's input and output must close when the server closes them.
    let _ = leave_pipes(&[0, 1]);
    let process = pidfd_open(server, PidfdFlags::empty());
    let interval = Timespec { tv_sec: 0, tv_nsec: COUNTING.subsec_nanos().into() };
    loop {
        if let Ok(process) = &process {
            // The result is ignored: the code below finds out whether the server has ended.
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&interval));
        } else {
            std::thread::sleep(COUNTING);
        }
        let ended = reap(server);
        // If the kernel has ended the server because of a limit of the group, the server's log says so.
        let beyond = group.and_then(|group| group.beyond(ceilings));
        if let (Some(status), None) = (ended, &beyond) {
            return status;
        }
        let beyond = beyond.or_else(|| usage::problem(usage::others(), usage::system_v(), ceilings)).or_else(|| home.step(Instant::now()));
        if let Some(problem) = beyond {
            // When this process ends, the kernel ends all others of the box.
            eprintln!("hyperlight-mcp-box: {problem}, so all of the server was ended");
            return BEYOND_LIMIT;
        }
    }
}

/// Reaps all processes that have ended. Returns the server's status if it is one of them.
pub(super) fn reap(server: Pid) -> Option<i32> {
    while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
        if ended == server {
            return Some(status_of(status));
        }
    }
    None
}

/// Reaps all processes that have ended.
pub(super) fn reap_all() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn status_of(status: WaitStatus) -> i32 {
    status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1)
}
