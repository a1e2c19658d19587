//! Capabilities and resource limits of a box.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::restrict::Hold;
use super::step::{At as _, Fault, Outcome, Step};
use crate::boxes::order::Ceilings;

/// The scheduling policy that this process had before [`run_first`] changed it. Child processes get a copy of this value.
static BEFORE: AtomicI32 = AtomicI32::new(UNCHANGED);
const UNCHANGED: i32 = -1;

/// Removes all capabilities of this process and its later children. Only init keeps the right to read the private home, because file modes
/// there can forbid reading to the owner.
pub(super) fn drop_capabilities(fault: &Fault) -> Outcome<()> {
    drop_capabilities_but(fault, CapabilitySet::DAC_READ_SEARCH)
}

fn drop_capabilities_but(fault: &Fault, kept: CapabilitySet) -> Outcome<()> {
    fault.begin(Step::DropCapabilities)?;
    let step = Step::DropCapabilities;
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has no capability of this number, and none above.
            Err(rustix::io::Errno::INVAL) if number > 0 => break,
            Err(error) => return Err(error).at(step, "prctl"),
        }
    }
    clear_ambient_capability_set().at(step, "prctl")?;
    keep(kept)?;
    forbid_privileges(fault)
}

/// Removes the capabilities that this process has without its own user namespace. Only root has any. The process keeps the right to read
/// the private home, if it has this right.
pub(super) fn drop_own_capabilities(fault: &Fault) -> Outcome<()> {
    let own = rustix::thread::capabilities(None).at(Step::DropCapabilities, "capget")?.permitted;
    if own.contains(CapabilitySet::SETPCAP) {
        return drop_capabilities_but(fault, own & CapabilitySet::DAC_READ_SEARCH);
    }
    // Rights that a program could regain are forbidden by the next step.
    fault.begin(Step::DropCapabilities)?;
    clear_ambient_capability_set().at(Step::DropCapabilities, "prctl")?;
    keep(own & CapabilitySet::DAC_READ_SEARCH)?;
    forbid_privileges(fault)
}

/// Prevents this process from gaining rights by starting a program (`no_new_privs`). Landlock and the filter require this.
pub(super) fn forbid_privileges(fault: &Fault) -> Outcome<()> {
    fault.begin(Step::ForbidPrivileges)?;
    set_no_new_privs(true).at(Step::ForbidPrivileges, "prctl")
}

/// Removes the last capability, which only init has kept.
pub(super) fn drop_last_capabilities() -> Outcome<()> {
    keep(CapabilitySet::empty())
}

fn keep(kept: CapabilitySet) -> Outcome<()> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).at(Step::DropCapabilities, "capset")
}

/// Gives this process a higher scheduling priority, if it may. The limit of processes does not apply to root, so a server of root can start
/// processes until nothing else runs. The process that counts them must still run then.
pub(super) fn run_first() {
    // SAFETY: the id 0 is this thread.
    let before = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    if schedule(libc::SCHED_FIFO, 1) {
        BEFORE.store(before, Ordering::Relaxed);
    }
}

/// Gives this process back the scheduling policy with which it was started, but never a policy that runs before others. A process that
/// [`run_first`] has not changed keeps its policy: a user who has started it with less urgency may not have the right to change that.
fn run_as_others(fault: &Fault) -> Outcome<()> {
    fault.begin(Step::LimitResources)?;
    let policy = match BEFORE.load(Ordering::Relaxed) {
        UNCHANGED => return Ok(()),
        before @ (libc::SCHED_BATCH | libc::SCHED_IDLE) => before,
        _ => libc::SCHED_OTHER,
    };
    if schedule(policy, 0) { Ok(()) } else { Err(std::io::Error::last_os_error()).at(Step::LimitResources, "sched_setscheduler") }
}

fn schedule(policy: i32, priority: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the id 0 is this thread, and the parameters live during the call, which only reads them.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

/// Limits the resources of a single process. Init counts the resources of all processes together.
pub(super) fn limit_resources(fault: &Fault, ceilings: &Ceilings, hold: Hold) -> Outcome<()> {
    run_as_others(fault)?;
    let limits = [(Resource::Nofile, ceilings.open_files), (Resource::Fsize, ceilings.file_bytes), (Resource::Core, 0)];
    for (resource, most) in limits {
        let now = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let most = Some(most.min(now));
        setrlimit(resource, Rlimit { current: most, maximum: most }).at(Step::LimitResources, "setrlimit")?;
    }
    // Since Linux 5.14, this limit counts the processes of the user namespace, and so the processes of one box. It does not apply to a
    // process of root. For root, only init limits the number of processes.
    if hold != Hold::Alone && counts_by_namespace() {
        let now = rustix::process::getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX);
        let most = Some(ceilings.threads.min(now));
        setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most }).at(Step::LimitResources, "setrlimit")?;
    }
    Ok(())
}

fn counts_by_namespace() -> bool {
    let system = rustix::system::uname();
    system.release().to_str().is_ok_and(|release| is_at_least(release, (5, 14)))
}

fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert!(is_at_least("5.14.0-70.el9", (5, 14)) && is_at_least("6.1", (5, 14)) && is_at_least("10.0-rc1", (5, 14)));
        assert!(!is_at_least("5.4.0", (5, 14)) && !is_at_least("", (5, 14)) && !is_at_least("x", (5, 14)));
    }
}
