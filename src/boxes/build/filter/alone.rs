//! System calls that the filter refuses in a box without namespaces. Landlock does not cover them, and there are no mounts and namespaces
//! that would isolate them.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition as Condition, SeccompRule,
};

use super::{TYPE, filter};

/// Calls of newer kernels that this version of libc has no names for.
const SYS_FCHMODAT2: c_long = 452;
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_FILE_SETATTR: c_long = 469;
/// Calls that always fail.
const REFUSED: [c_long; 39] = [
    // Calls that change modes, owners, times and attributes of files, even of read-only files.
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    // Calls that report the names of changed files, even in folders that this process cannot read.
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    // Memory and messages that programs of one user share.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // The memory of other processes.
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_process_mrelease,
];
/// Calls whose first argument is a process id. It must be 0, which means the caller.
const OF_OTHERS: [c_long; 5] =
    [libc::SYS_prlimit64, libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];
/// `ioctl` requests with these type bytes can change files that are open for reading. Btrfs, ext4 and XFS define them.
const FILE_REQUESTS: [u64; 3] = [0x94, 0x66, 0x58];
/// Socket families that a box with the machine's network may use. A Unix socket could reach services of this user, which could do anything
/// for the server.
const SOCKETS: [i32; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Types of socket pairs with which a process can also send to other sockets.
const DATAGRAMS: [i32; 2] = [libc::SOCK_DGRAM, libc::SOCK_RAW];
/// Calls that change priorities, each with the first argument that selects a single process. If the second argument is 0, this process is
/// the caller.
const PRIORITIES: [(c_long, u64); 2] = [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

pub(super) fn program(has_network: bool) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    let not = |argument, value| Condition::new(argument, Length::Dword, Compare::Ne, value);
    for call in OF_OTHERS {
        rules.insert(call, vec![SeccompRule::new(vec![not(0, 0)?])?]);
    }
    for (call, process) in PRIORITIES {
        rules.insert(call, vec![SeccompRule::new(vec![not(0, process)?])?, SeccompRule::new(vec![not(1, 0)?])?]);
    }
    let requests = FILE_REQUESTS
        .into_iter()
        .map(|letter| SeccompRule::new(vec![Condition::new(1, Length::Dword, Compare::MaskedEq(0xff00), letter << 8)?]));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    let others = SOCKETS.into_iter().map(|kind| not(0, u64::from(kind.unsigned_abs())));
    let sockets = if has_network { vec![SeccompRule::new(others.collect::<Result<_, _>>()?)?] } else { Vec::new() };
    rules.insert(libc::SYS_socket, sockets);
    let pairs = DATAGRAMS
        .into_iter()
        .map(|kind| SeccompRule::new(vec![Condition::new(1, Length::Dword, Compare::MaskedEq(TYPE), u64::from(kind.unsigned_abs()))?]));
    rules.insert(libc::SYS_socketpair, pairs.collect::<Result<_, _>>()?);
    filter(rules, libc::EPERM)
}
