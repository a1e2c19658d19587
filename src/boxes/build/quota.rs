//! Limits for what the kernel keeps for a box outside of its processes: memory, messages and semaphores of System V, inotify watches, and
//! namespaces. The limits are those of the box's own namespaces, not of the machine.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;

use super::mounts::open_below;
use crate::boxes::order::Ceilings;

/// The memory limit of a box is divided by this number. Shared memory of System V may take one such part, in addition to the memory of
/// processes. Shared memory can exist without a process that has mapped it.
const PART_OF_MEMORY: u64 = 4;
/// Maximum number of message queues of System V. Each queue takes about one MiB at most.
const QUEUES: &str = "16";
/// Limits of System V semaphores, in this order: semaphores in one set, semaphores in all sets, operations in one call, number of sets. The
/// kernel had these defaults before version 3.19.
const SEMAPHORES: &str = "250 32000 32 128";
/// Limits that the kernel counts for each user, so a box shares them with all programs of its user. Each pair has the file with the limit
/// of the namespace, and the file with the limit of the user.
const OF_USER: [(&str, &str); 2] = [("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches")];
/// The limits of the user are divided by this number. One box gets one such part.
const PART_OF_USER: u64 = 4;
/// The namespaces that a nested box can make.
const NAMESPACES: [&str; 4] = ["max_user_namespaces", "max_pid_namespaces", "max_net_namespaces", "max_ipc_namespaces"];

/// The shared memory, messages and semaphores of System V in a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemV {
    /// Init counts them.
    Counted,
    /// The filter refuses the calls that make them, because processes could make them where init does not see them.
    Refused,
}

/// Sets the limits through a writable `/proc`. A process of a nested box can make namespaces, and init does not see what is in them.
/// Therefore a nested box cannot use System V IPC.
pub(super) fn set(processes: &OwnedFd, ceilings: &Ceilings, is_nested: bool) -> SystemV {
    for (name, file) in OF_USER {
        // If this fails, only the limits of the user apply.
        let present = read(processes, &format!("sys/fs/inotify/{file}"));
        let _ = present.and_then(|present| write(processes, &format!("sys/user/{name}"), &(present / PART_OF_USER).max(1).to_string()));
    }
    if is_nested {
        for name in NAMESPACES {
            let _ = write(processes, &format!("sys/user/{name}"), &ceilings.processes.to_string());
        }
        return SystemV::Refused;
    }
    let bytes = ceilings.memory_bytes / PART_OF_MEMORY;
    // SAFETY: takes an integer.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(u64::MAX);
    let pages = bytes / page;
    let all = [("shmmax", bytes.to_string()), ("shmall", pages.to_string()), ("msgmni", QUEUES.to_owned()), ("sem", SEMAPHORES.to_owned())];
    for (name, value) in all {
        // Only root can set these limits. Init counts the same memory, so without them it is limited too, a moment later.
        let _ = write(processes, &format!("sys/kernel/{name}"), &value);
    }
    SystemV::Counted
}

fn read(processes: &OwnedFd, path: &str) -> io::Result<u64> {
    let file = std::fs::File::from(open_below(processes, Path::new(path), OFlags::RDONLY)?);
    io::read_to_string(file)?.trim().parse().map_err(io::Error::other)
}

fn write(processes: &OwnedFd, path: &str, value: &str) -> io::Result<()> {
    rustix::io::write(open_below(processes, Path::new(path), OFlags::WRONLY)?, value.as_bytes())?;
    Ok(())
}
