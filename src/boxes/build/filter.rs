//! The filter of system calls. Calls that no server needs, and calls that have led out of sandboxes before, fail with `EPERM`.

mod alone;

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter,
};

use super::quota::SystemV;
use super::restrict::Hold;
use super::step::{Failure, Fault, Outcome, Step};

/// Calls that always fail.
const REFUSED: [c_long; 53] = [
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Namespaces.
    libc::SYS_setns,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Keys of the kernel, which namespaces do not separate.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Large interfaces of the kernel, with many faults in the past.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_modify_ldt,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_vmsplice,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];
/// Flags for namespaces that no server needs, not even for a browser.
const FOREIGN_NAMESPACES: [i32; 4] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    0x80, // CLONE_NEWTIME
];
/// Flags for the namespaces of a browser's sandbox: Chromium uses the first three, Firefox also the last.
const BROWSER_NAMESPACES: [i32; 4] = [libc::CLONE_NEWUSER, libc::CLONE_NEWPID, libc::CLONE_NEWNET, libc::CLONE_NEWIPC];
/// Socket families that a box may use. Sockets of other families reach the hypervisor (vsock), the raw network, or seldom used code of the
/// kernel.
const SOCKETS: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Socket families with many protocols. The kernel loads a seldom used protocol when a socket asks for it.
const INTERNET: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
/// Protocols that sockets of the families in [`INTERNET`] may have: the one that the type of the socket implies (0), TCP, UDP, what `ping`
/// uses, and MPTCP, which some runtimes try first.
const PROTOCOLS: [i32; 6] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6, libc::IPPROTO_MPTCP];
/// Types of sockets that imply other protocols than those in [`PROTOCOLS`], such as SCTP and DCCP.
const OTHER_TYPES: [i32; 3] = [libc::SOCK_SEQPACKET, libc::SOCK_DCCP, libc::SOCK_RDM];
/// The bits of a socket's type that are not flags.
const TYPE: u64 = 0xf;
/// Calls that set the mode of a file, and the index of the argument with the mode.
const MODES: [(c_long, u8); 7] = [
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_creat, 1),
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
/// Calls that set the mode of a file if they create it, and the indexes of the arguments with the flags and the mode.
const CREATING: [(c_long, u8, u8); 2] = [(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)];
/// Flags with which the calls in [`CREATING`] create a file. `O_TMPFILE` also has the bit of `O_DIRECTORY`.
const CREATE: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
/// The set-user-ID and set-group-ID bits. A program with such a bit runs with the rights of the file's owner or group, even outside of the
/// box.
const LENDING: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];
/// Calls that change the limits or the scheduling of the process whose id is their first argument.
const OF_PROCESS: [c_long; 5] =
    [libc::SYS_prlimit64, libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];
/// Calls that make shared memory, messages and semaphores of System V.
const SYSTEM_V: [c_long; 3] = [libc::SYS_shmget, libc::SYS_msgget, libc::SYS_semget];
/// The process id of init, which counts what the box uses. Init runs as the same user as the server, so the server could otherwise change
/// it.
const INIT: u64 = 1;
/// `ioctl` requests that insert input into a terminal as if a person had typed it.
const TYPING: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];
/// The lowest number of a system call of x32, a second set of system calls on the same machine.
const X32: u32 = 0x4000_0000;

/// Applies the filters to this process and its later children.
pub(super) fn apply(fault: &Fault, hold: Hold, has_network: bool, is_nested: bool) -> Outcome<()> {
    fault.begin(Step::FilterCalls)?;
    let failed = |error: &dyn std::fmt::Display| Failure::missing(Step::FilterCalls, error);
    let all = programs(is_nested).map(Vec::from).and_then(|mut all| {
        match hold {
            Hold::Namespaces(SystemV::Counted) => {}
            Hold::Namespaces(SystemV::Refused) => all.push(without_system_v()?),
            Hold::Alone => all.push(alone::program(has_network)?),
        }
        Ok(all)
    });
    for program in all.map_err(|error| failed(&error))? {
        apply_filter(&program).map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Returns a program that answers these calls with an error.
fn filter(rules: BTreeMap<c_long, Vec<SeccompRule>>, answer: i32) -> Result<BpfProgram, BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(answer.unsigned_abs()), arch)?.try_into()
}

fn programs(is_nested: bool) -> Result<[BpfProgram; 3], BackendError> {
    // The flags of `clone3` are in memory, where no filter can read them. C libraries use `clone` if `clone3` does not exist. The same is
    // true of `openat2`, and of the mode of the file that it creates.
    let unseen = [libc::SYS_clone3, libc::SYS_openat2].map(|call| (call, Vec::new()));
    let without_unseen = filter(BTreeMap::from(unseen), libc::ENOSYS)?;
    Ok([filter(refused(is_nested)?, libc::EPERM)?, without_unseen, without_x32()])
}

/// Returns a program that refuses the calls that make shared memory, messages and semaphores of System V. The calls then fail as on a
/// kernel without System V.
fn without_system_v() -> Result<BpfProgram, BackendError> {
    filter(SYSTEM_V.map(|call| (call, Vec::new())).into(), libc::ENOSYS)
}

fn refused(is_nested: bool) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    // A call without rules is refused whatever its arguments are.
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    let browser = BROWSER_NAMESPACES.into_iter().filter(|_| !is_nested);
    let flags = FOREIGN_NAMESPACES.into_iter().chain(browser).map(|flag| u64::from(flag.unsigned_abs()));
    let namespaces = flags.map(|flag| SeccompRule::new(vec![Condition::new(0, Length::Qword, Compare::MaskedEq(flag), flag)?]));
    let namespaces = namespaces.collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_clone, namespaces.clone());
    if is_nested {
        // A browser's process gives up its access to files by `chroot`, which needs a user namespace of its own.
        rules.insert(libc::SYS_unshare, namespaces);
    } else {
        rules.extend([libc::SYS_unshare, libc::SYS_chroot].map(|call| (call, Vec::new())));
    }
    let other = SOCKETS.into_iter().map(|kind| Condition::new(0, Length::Dword, Compare::Ne, u64::from(kind.unsigned_abs())));
    let mut sockets = vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?];
    sockets.extend(of_internet()?);
    rules.insert(libc::SYS_socket, sockets.clone());
    rules.insert(libc::SYS_socketpair, sockets);
    let typing = TYPING.into_iter().map(|request| SeccompRule::new(vec![Condition::new(1, Length::Dword, Compare::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    rules.extend(lending()?);
    rules.extend(weakening()?);
    Ok(rules)
}

/// Returns rules that refuse sockets whose protocol is not in [`PROTOCOLS`].
fn of_internet() -> Result<Vec<SeccompRule>, BackendError> {
    let value = |number: i32| u64::from(number.unsigned_abs());
    let is_of = |family: i32| Condition::new(0, Length::Dword, Compare::Eq, value(family));
    let mut rules = Vec::new();
    for family in INTERNET {
        let other = PROTOCOLS.into_iter().map(|protocol| Condition::new(2, Length::Dword, Compare::Ne, value(protocol)));
        let protocols = std::iter::once(is_of(family)).chain(other).collect::<Result<_, _>>()?;
        rules.push(SeccompRule::new(protocols)?);
        for kind in OTHER_TYPES {
            let has_type = Condition::new(1, Length::Dword, Compare::MaskedEq(TYPE), value(kind))?;
            rules.push(SeccompRule::new(vec![is_of(family)?, has_type])?);
        }
    }
    Ok(rules)
}

/// Returns rules that prevent set-user-ID and set-group-ID files.
fn lending() -> Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let has = |argument, bits: u32| Condition::new(argument, Length::Dword, Compare::MaskedEq(bits.into()), bits.into());
    let mut rules = Vec::new();
    for (call, mode) in MODES {
        let each = LENDING.map(|bits| SeccompRule::new(vec![has(mode, bits)?]));
        rules.push((call, each.into_iter().collect::<Result<_, _>>()?));
    }
    for (call, flags, mode) in CREATING {
        let pairs = CREATE.into_iter().flat_map(|flag| LENDING.map(|bits| (flag.unsigned_abs(), bits)));
        let each = pairs.map(|(flag, bits)| SeccompRule::new(vec![has(flags, flag)?, has(mode, bits)?]));
        rules.push((call, each.collect::<Result<_, _>>()?));
    }
    Ok(rules)
}

/// Returns rules for calls with which a server could prevent init from counting.
fn weakening() -> Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let is = |argument, value| Condition::new(argument, Length::Dword, Compare::Eq, value);
    let mut rules = Vec::new();
    for call in OF_PROCESS {
        rules.push((call, vec![SeccompRule::new(vec![is(0, INIT)?])?]));
    }
    // A call for a whole process group or user could include init.
    let of_one = u64::from(libc::PRIO_PROCESS);
    let of_many = SeccompRule::new(vec![Condition::new(0, Length::Dword, Compare::Ne, of_one)?])?;
    rules.push((libc::SYS_setpriority, vec![SeccompRule::new(vec![is(0, of_one)?, is(1, INIT)?])?, of_many]));
    Ok(rules)
}

/// Returns a program that refuses the calls of x32. The other filters refuse all other foreign architectures.
fn without_x32() -> BpfProgram {
    let instruction = |code: u32, jt, jf, k| sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k };
    vec![
        // The number of the call is at the start of the data that a filter gets.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile() {
        assert!(!without_system_v().unwrap().is_empty());
        assert!([false, true].into_iter().all(|has_network| !alone::program(has_network).unwrap().is_empty()));
        assert!([false, true].map(|is_nested| programs(is_nested).unwrap()).iter().flatten().all(|program| !program.is_empty()));
    }
}
