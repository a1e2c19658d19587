//! The program `hyperlight-mcp-box`. The gateway starts it in place of a server's command. It reads an [`Order`] from its standard input,
//! makes the box, and becomes the server. Each failure is reported on its standard output, and then no server is started.
//!
//! Three processes make a box. The *outer* one is the child of Node and leads the process group. It makes the namespaces, starts *init*,
//! and ends with the status of init. Init is the first process of the PID namespace. It makes the root folder, starts the *server*, reaps
//! the processes that the server leaves behind, and counts memory and processes. When init ends, for whatever reason, the kernel ends all
//! processes of the namespace. So no process outlives the box, not even one that has left the process group.

mod alone;
mod disk;
mod filter;
mod group;
mod handover;
mod init;
mod limits;
mod mounts;
mod network;
mod probe;
mod quota;
mod restrict;
mod root;
mod step;
mod usage;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, getegid, geteuid, waitpid};
use rustix::thread::UnshareFlags;

pub use step::{Failure, Step};

use super::machine::PROBE;
use super::order::{MAX_ORDER_BYTES, Network, Order, Report};
use group::Group;
use step::{At as _, Fault, Outcome};

/// The status with which the program ends if it could not make the box.
const FAILED: i32 = 125;
/// The user id that the server sees for itself if root started it. Programs act differently for root, for example when they unpack
/// archives.
const USER_IN_PLACE_OF_ROOT: u32 = 1000;

/// The setting of Ubuntu with which a user without privileges can make user namespaces, but cannot mount anything in them.
const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Runs the program. Returns its exit status.
#[must_use]
pub fn main() -> i32 {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == PROBE) {
        return if write_line(&probe::report()).is_ok() { 0 } else { FAILED };
    }
    match outer() {
        Ok(status) => status,
        Err(failure) => report_failure(&failure),
    }
}

/// Writes the failure as the one line on standard output. Returns the exit status of this process.
fn report_failure(failure: &Failure) -> i32 {
    // If nobody reads the line, nobody waits for the server either.
    let _ = write_line(&Report::Failed { step: failure.step.name().to_owned(), problem: failure.to_string() });
    FAILED
}

fn write_line(report: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

fn outer() -> Outcome<i32> {
    let order = read_order()?;
    let fault = Fault::new(order.fails_at.clone())?;
    fault.begin(Step::ReadOrder)?;
    if geteuid().is_root() {
        limits::run_first();
    }
    let group = Group::make(&order.contents.ceilings, &fault)?;
    let status = start_init(order, &fault, group.as_ref());
    if let Some(group) = &group {
        group.remove();
    }
    status
}

/// Makes the namespaces and the network, starts init in them, and waits for its end.
fn start_init(order: Order, fault: &Fault, group: Option<&Group>) -> Outcome<i32> {
    let users = match namespaces(fault, &order.contents.network) {
        Err(failure) if alone::is_for(&failure) => return alone::start(order, fault, group, &failure),
        outcome => outcome?,
    };
    let border = network::make(fault, &order.contents.network)?;
    handover::exchange(fault, border)?;
    fault.begin(Step::StartInit)?;
    // Init learns through this pipe whether this process still lives.
    let (lives, held) = pipe_with(PipeFlags::CLOEXEC).at(Step::StartInit, "pipe")?;
    // SAFETY: this process has one thread, so the child may do whatever this one may.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).at(Step::StartInit, "fork"),
        0 => {
            drop(held);
            let status = init::run(order, fault, &users, &lives, group);
            // Destructors of the parent's values must not run here twice.
            std::process::exit(status.unwrap_or_else(|failure| report_failure(&failure)))
        }
        child => {
            drop((order, lives));
            Ok(wait_for_init(child, held))
        }
    }
}

/// Waits for the end of init, and returns its status.
fn wait_for_init(child: i32, _held: OwnedFd) -> i32 {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: the signal numbers are valid, and SIG_IGN installs no handler that could run.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // The pipes must close when the server closes them. If /dev/null is missing, they close with the server.
    let _ = leave_pipes(&[0, 1, 2]);
    let Some(child) = Pid::from_raw(child) else { return FAILED };
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                return status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(FAILED);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return FAILED,
        }
    }
}

/// Replaces standard descriptors with `/dev/null`.
fn leave_pipes(descriptors: &[i32]) -> std::io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for descriptor in descriptors {
        match descriptor {
            0 => rustix::stdio::dup2_stdin(&null)?,
            1 => rustix::stdio::dup2_stdout(&null)?,
            _ => rustix::stdio::dup2_stderr(&null)?,
        }
    }
    Ok(())
}

/// Reads the order, and not one byte more, because a descriptor comes with the next byte.
fn read_order() -> Outcome<Order> {
    let what = "standard input";
    // `Stdin` has a buffer, and would read beyond the order.
    let input = rustix::io::dup(rustix::stdio::stdin()).at(Step::ReadOrder, what)?;
    let mut input = File::from(input);
    let mut length = [0; 4];
    input.read_exact(&mut length).at(Step::ReadOrder, what)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_ORDER_BYTES {
        return Err(Failure::new(Step::ReadOrder, "it is too long"));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes).at(Step::ReadOrder, what)?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::new(Step::ReadOrder, error.to_string()))
}

/// Makes the namespaces. If a rule of the system allows making them but not using them, returns an error before anything is made.
fn namespaces(fault: &Fault, network: &Network) -> Outcome<Users> {
    let is_restricted = std::fs::read_to_string(RESTRICTED).is_ok_and(|value| value.trim() == "1");
    if is_restricted && let Err(tried) = probe::in_child(|| make_namespaces(&Fault::default(), network).map(drop)) {
        return Err(Failure { problem: tried.problem, ..Failure::of(Step::Namespaces, "unshare", rustix::io::Errno::PERM) });
    }
    make_namespaces(fault, network)
}

/// The user id and the group id of the server within the box.
struct Users {
    user: u32,
    group: u32,
}

/// Makes all namespaces, and maps the ids of the user. The PID namespace begins with the next child process.
fn make_namespaces(fault: &Fault, network: &Network) -> Outcome<Users> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    fault.begin(Step::Namespaces)?;
    let mut flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    if *network != Network::Shared {
        flags |= UnshareFlags::NEWNET;
    }
    // SAFETY: `unshare_unsafe` is unsafe for flags that separate descriptors, which these are not.
    unsafe { rustix::thread::unshare_unsafe(flags) }.at(Step::Namespaces, "unshare")?;
    fault.begin(Step::UserMap)?;
    let inner = |id: u32| if id == 0 { USER_IN_PLACE_OF_ROOT } else { id };
    let users = Users { user: inner(user), group: inner(group) };
    let write = |file: &str, text: String| std::fs::write(file, text).at(Step::UserMap, file);
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{} {user} 1", users.user))?;
    write("/proc/self/gid_map", format!("{} {group} 1", users.group))?;
    fault.begin(Step::PrivateMounts)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).at(Step::PrivateMounts, "mount")?;
    // When the machine runs short of memory, a server ends before the agent. Not every machine permits this.
    let _ = std::fs::write("/proc/self/oom_score_adj", "800");
    Ok(users)
}
