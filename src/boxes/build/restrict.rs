//! The last steps before a process becomes the server: the process gives up its own rights.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};

use rustix::io::Errno;

use super::group::Group;
use super::mounts::{is_folder, open_path};
use super::quota::SystemV;
use super::root::{DEVICES, PROCESSES};
use super::step::{At as _, Failure, Fault, Outcome, Step};
use super::{filter, limits, write_line};
use crate::boxes::contents::HOME;
use crate::boxes::order::{Access, Contents, Link, Network, Order, Report};

/// The newest version of Landlock rules that is used. If the kernel is older and lacks some of the rules, only mounts and namespaces
/// enforce the same limits.
const NEWEST: ABI = ABI::V6;
/// Folders and devices that can be written in every box.
const WRITABLE: [&str; 5] = ["/tmp", HOME, "/dev/shm", "/dev/null", "/dev/zero"];
/// Files of the machine that runtimes read, which are in the process table of every box.
const SHARED_FILES: [&str; 7] =
    ["/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version"];
/// Files of the server's own process that runtimes read.
const PROCESS_FILES: [&str; 5] = ["cmdline", "maps", "stat", "statm", "status"];
/// The status of a process that could not become the server although its box was complete.
const NOT_STARTED: i32 = 126;

/// The features of the kernel that enforce a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Namespaces and mounts, together with Landlock and the filter of system calls.
    Namespaces(SystemV),
    /// Landlock and the filter of system calls alone.
    Alone,
}

/// Becomes the server. Returns only if a step fails.
pub(super) fn become_server(order: Order, fault: &Fault, group: Option<&Group>, hold: Hold) -> Outcome<Infallible> {
    let Order { contents, program, name, arguments, environment, working_directory, fails_at: _ } = order;
    limits::drop_last_capabilities()?;
    fault.begin(Step::EnterFolder)?;
    let advice = || format!("{}: it is not in the box unless read or write names it", working_directory.display());
    std::env::set_current_dir(&working_directory).map_err(|error| Failure::new(Step::EnterFolder, format!("{}: {error}", advice())))?;
    limits::limit_resources(fault, &contents.ceilings, hold)?;
    // Some kernels refuse to move a process into a cgroup while the process has real-time priority, as this one had until now.
    fault.begin(Step::EnterGroup)?;
    group.map_or(Ok(()), Group::enter)?;
    close_descriptors(fault)?;
    match hold {
        Hold::Namespaces(_) => limit_files_of(&writable(&contents), fault)?,
        Hold::Alone => limit_all_files(&contents, fault)?,
    }
    filter::apply(fault, hold, contents.network == Network::Shared, contents.is_nested)?;
    fault.begin(Step::Report)?;
    write_line(&Report::Ready).at(Step::Report, "standard output")?;
    let mut server = Command::new(&program);
    server.arg0(name).args(arguments).env_clear().envs(environment);
    // From here on, standard output is the server's.
    let error = server.exec();
    eprintln!("hyperlight-mcp-box: {}: {error}. {}", program.display(), reason(&program));
    std::process::exit(NOT_STARTED)
}

fn reason(program: &Path) -> &'static str {
    if program.is_file() {
        "The file exists in the box, but not the interpreter or loader that it names, or it is not for this machine"
    } else {
        "The file is not in the box: name it in box.read"
    }
}

/// Marks all descriptors except standard input, output and error, so that they close when the server's program replaces this one.
fn close_descriptors(fault: &Fault) -> Outcome<()> {
    fault.begin(Step::CloseDescriptors)?;
    // SAFETY: the call takes integers. Descriptors stay open in this program, and close only when another program takes its place.
    let result = unsafe {
        let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
        libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).at(Step::CloseDescriptors, "close_range") }
}

/// Returns the paths within the box that can be written.
fn writable(contents: &Contents) -> Vec<&Path> {
    let writes = contents.given.iter().filter(|given| given.access == Access::Write).map(|given| given.path.as_path());
    // Here, a process writes the user map of its own namespace. Other files in this folder that could be written are mounted read-only.
    let maps = contents.is_nested.then_some(Path::new(PROCESSES));
    WRITABLE.into_iter().map(Path::new).chain(writes).chain(maps).collect()
}

/// Limits the access to files a second time, with Landlock. So a file that is mounted read-only cannot be written even if the mount is
/// lost, and nothing can be mounted.
pub(super) fn limit_files_of(writable: &[&Path], fault: &Fault) -> Outcome<()> {
    fault.begin(Step::LimitFiles)?;
    let status = restrict(writable).map_err(|error| Failure::missing(Step::LimitFiles, error))?;
    if status == RulesetStatus::NotEnforced {
        return Err(Failure::missing(Step::LimitFiles, "this machine does not have it"));
    }
    Ok(())
}

/// Limits files by Landlock alone. Only given files can be read, written or executed, and no signal or abstract socket reaches processes
/// outside.
fn limit_all_files(contents: &Contents, fault: &Fault) -> Outcome<()> {
    fault.begin(Step::OpenPaths)?;
    let mut opened = Vec::new();
    for given in &contents.given {
        let follows = given.link == Link::System;
        match open_path(&given.path, follows) {
            Err(Errno::NOENT) if follows => {}
            found => opened.push((found.at(Step::OpenPaths, &given.path.to_string_lossy())?, given.access)),
        }
    }
    opened.push((open_path(&contents.home, false).at(Step::OpenPaths, "the private home")?, Access::Write));
    let own = std::process::id();
    let machine = SHARED_FILES.into_iter().map(|path| (PathBuf::from(path), Access::Read));
    let process = PROCESS_FILES.into_iter().map(|name| (Path::new(PROCESSES).join(own.to_string()).join(name), Access::Read));
    let devices = DEVICES.into_iter().map(|name| (Path::new("/dev").join(name), Access::Write));
    for (path, access) in machine.chain(process).chain(devices) {
        // Files that this machine does not have are left out.
        opened.extend(open_path(&path, false).ok().map(|opened| (opened, access)));
    }
    fault.begin(Step::LimitFiles)?;
    let rules = || -> Result<RulesetStatus, Box<dyn std::error::Error>> {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(NEWEST))?;
        let mut rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?.create()?;
        for (opened, access) in opened {
            let of_folder = if access == Access::Write { AccessFs::from_all(NEWEST) } else { AccessFs::from_read(NEWEST) };
            let access = if is_folder(&opened)? { of_folder } else { of_folder & AccessFs::from_file(NEWEST) };
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
        Ok(rules.restrict_self()?.ruleset)
    };
    match rules().map_err(|error| Failure::missing(Step::LimitFiles, error))? {
        RulesetStatus::FullyEnforced => Ok(()),
        status => Err(Failure::missing(Step::LimitFiles, format!("{status:?}"))),
    }
}

/// Returns the version of Landlock that the kernel has. 0 if it has none.
pub(super) fn landlock_version() -> i64 {
    const ASK_FOR_VERSION: u32 = 1;
    // SAFETY: with this flag, the kernel reads nothing and returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, ASK_FOR_VERSION) }.max(0)
}

fn restrict(writable: &[&Path]) -> Result<RulesetStatus, Box<dyn std::error::Error>> {
    let all = AccessFs::from_all(NEWEST);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        // The rules of the first Landlock version are required.
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    let mut rules = rules.create()?;
    rules = rules.add_rule(PathBeneath::new(PathFd::new("/")?, AccessFs::from_read(NEWEST)))?;
    for path in writable {
        let access: BitFlags<AccessFs> = if path.is_dir() { all } else { AccessFs::from_file(NEWEST) };
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}
