//! The cgroup of a box: limits that the kernel enforces for all processes together. It needs cgroup v2, and a cgroup folder that this user
//! may write (delegation). Only the server's processes are in it. Therefore init can still count when the server has used up its processor
//! time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};

use super::step::{At as _, Failure, Fault, Outcome, Step};
use super::usage;
use crate::boxes::order::Ceilings;

/// The start of the names of the cgroup folders of boxes. The rest of each name is the mark of the process that makes the box.
const PREFIX: &str = "hyperlight-mcp-box-";
/// The period of `cpu.max` in microseconds, which is the kernel's default.
const PERIOD_MICROSECONDS: u64 = 100_000;
/// Microseconds of a period that are one percent of a processor.
const PERCENT_MICROSECONDS: u64 = PERIOD_MICROSECONDS / 100;
/// Maximum number of bytes that are read from a file of a cgroup.
const MAX_BYTES: usize = 4_096;

/// A kind of limit that the kernel enforces for a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Processes,
    Processor,
}

impl Controller {
    /// Returns the controller's name in the kernel's cgroup files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Processor => "cpu",
        }
    }

    /// Returns the files that set this limit, with their values. The first file must exist. Whether the other files exist depends on the
    /// kernel.
    fn limits(self, ceilings: &Ceilings) -> Vec<(&'static str, String)> {
        match self {
            Self::Memory => vec![
                ("memory.max", ceilings.memory_bytes.to_string()),
                // If swap were allowed, memory above the limit would be moved to the disk.
                ("memory.swap.max", "0".to_owned()),
                ("memory.oom.group", "1".to_owned()),
            ],
            // The kernel counts threads.
            Self::Processes => vec![("pids.max", ceilings.threads.to_string())],
            Self::Processor => {
                let percent = ceilings.cpu_percent.unwrap_or_default();
                vec![("cpu.max", format!("{} {PERIOD_MICROSECONDS}", percent.saturating_mul(PERCENT_MICROSECONDS)))]
            }
        }
    }
}

/// A cgroup with limits. Its folder is removed by [`Group::remove`].
#[derive(Debug)]
pub(super) struct Group {
    /// The folder in which the group's folder is. It is a descriptor and not a path, because the process has another root folder when it
    /// removes the group.
    above: OwnedFd,
    name: String,
    controllers: Vec<Controller>,
    /// The file into which a process writes itself. Opened before any namespace is made, because the kernel checks the rights of the
    /// process that opened the file.
    processes: File,
    /// The file `memory.events`. `None` if the group does not limit memory.
    memory_events: Option<File>,
    /// The file `cpu.max`. `None` if the group does not limit processor time.
    processor_limit: Option<File>,
}

impl Group {
    /// Makes a group if the machine delegates one. `None` means that init counts instead.
    ///
    /// # Errors
    /// The order limits processor time, and only a group can do this.
    pub(super) fn make(ceilings: &Ceilings, fault: &Fault) -> Outcome<Option<Self>> {
        fault.begin(Step::MakeGroup)?;
        let processor = ceilings.cpu_percent.map(|_| Controller::Processor);
        let wanted: Vec<Controller> = [Controller::Memory, Controller::Processes].into_iter().chain(processor).collect();
        let found = folders().iter().find_map(|above| Self::below(above, &wanted, ceilings).ok());
        match found {
            None if processor.is_some() => Err(Failure::missing(
                Step::MakeGroup,
                "cpuPercent needs cgroup v2, with the controller cpu in a folder that this user may write",
            )),
            found => Ok(found),
        }
    }

    /// Makes the group within a folder.
    fn below(above: &Path, wanted: &[Controller], ceilings: &Ceilings) -> io::Result<Self> {
        if !can_have_groups(above) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let controllers = activate(above, wanted)?;
        if controllers.is_empty() || (wanted.contains(&Controller::Processor) && !controllers.contains(&Controller::Processor)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        sweep(above);
        let name = format!("{PREFIX}{}", usage::own_mark()?);
        let folder = above.join(&name);
        fs::create_dir(&folder)?;
        Self::fill(above, name, controllers, ceilings).inspect_err(|_| {
            let _ = fs::remove_dir(&folder);
        })
    }

    fn fill(above: &Path, name: String, controllers: Vec<Controller>, ceilings: &Ceilings) -> io::Result<Self> {
        let folder = above.join(&name);
        for (number, (file, value)) in controllers.iter().flat_map(|controller| controller.limits(ceilings).into_iter().enumerate()) {
            match fs::write(folder.join(file), value) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && number > 0 => {}
                written => written?,
            }
        }
        let open_if = |controller, file| -> io::Result<Option<File>> {
            controllers.contains(&controller).then(|| File::open(folder.join(file))).transpose()
        };
        Ok(Self {
            above: openat(CWD, above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?,
            processes: File::options().write(true).open(folder.join("cgroup.procs"))?,
            memory_events: open_if(Controller::Memory, "memory.events")?,
            processor_limit: open_if(Controller::Processor, "cpu.max")?,
            name,
            controllers,
        })
    }

    pub(super) fn controllers(&self) -> &[Controller] {
        &self.controllers
    }

    /// Moves this process into the group.
    pub(super) fn enter(&self) -> Outcome<()> {
        (&self.processes).write_all(b"0").at(Step::EnterGroup, "cgroup.procs")
    }

    /// Returns a sentence if the kernel has ended processes because of a limit, or if a limit is no longer in effect.
    pub(super) fn beyond(&self, ceilings: &Ceilings) -> Option<String> {
        if self.memory_events.as_ref().is_some_and(|events| has_killed(&read(events).unwrap_or_default())) {
            return Some(format!("it needed more than {0} MiB of memory, and its box allows {0}", ceilings.memory_bytes >> 20));
        }
        // The program that manages the parent cgroup may have removed the controller.
        let is_lost = self.processor_limit.as_ref().is_some_and(|limit| read(limit).map_or(true, |text| text.starts_with("max")));
        is_lost.then(|| "its box's limit for processor time was removed by another program".to_owned())
    }

    /// Removes the group. It must not have any processes.
    pub(super) fn remove(&self) {
        // If this fails, the next box removes the folder.
        let _ = unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Returns whether the text of `memory.events` says that the kernel has ended a process.
fn has_killed(events: &str) -> bool {
    events.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
}

/// Reads a file of a cgroup from its start.
fn read(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; MAX_BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Returns whether a cgroup folder can contain groups with limits and processes: the folder must be the root of all cgroups, or have no
/// processes itself. In a folder with processes, the kernel accepts some limits, but lets no process into the groups within.
fn can_have_groups(folder: &Path) -> bool {
    !folder.join("cgroup.type").exists() || fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
}

/// Enables these controllers for groups within the folder. Returns the enabled ones.
fn activate(folder: &Path, wanted: &[Controller]) -> io::Result<Vec<Controller>> {
    let file = folder.join("cgroup.subtree_control");
    let has = |text: &str, controller: Controller| text.split_ascii_whitespace().any(|name| name == controller.name());
    let active = fs::read_to_string(&file)?;
    for controller in wanted.iter().filter(|controller| !has(&active, **controller)) {
        // The write fails if the folder does not belong to this user.
        let _ = fs::write(&file, format!("+{}", controller.name()));
    }
    let active = fs::read_to_string(&file)?;
    Ok(wanted.iter().copied().filter(|controller| has(&active, *controller)).collect())
}

/// Removes the groups of boxes whose outer process was killed before it could remove them.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(usage::has_ended) {
            // The kernel does not remove a group that still has processes.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the folders in which a group could be made: the cgroup of this process, and its parent.
fn folders() -> Vec<PathBuf> {
    let (Ok(mounts), Ok(groups)) = (fs::read_to_string("/proc/self/mountinfo"), fs::read_to_string("/proc/self/cgroup")) else {
        return Vec::new();
    };
    own_folders(&mounts, &groups)
}

fn own_folders(mounts: &str, groups: &str) -> Vec<PathBuf> {
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::")).filter(|group| !group.contains("..")) else {
        return Vec::new();
    };
    let places = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, place) = (fields.next()?, PathBuf::from(fields.next()?));
        let below = Path::new(group).strip_prefix(root).ok().filter(|_| kind.starts_with("cgroup2 "))?;
        // A join with an empty path leaves a slash at the end, which this removes.
        let own: PathBuf = place.join(below).components().collect();
        Some((own, place))
    });
    let all = places.flat_map(|(own, place)| {
        let above = own.parent().filter(|above| above.starts_with(&place)).map(Path::to_owned);
        [Some(own), above]
    });
    all.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_can_be_made_in_the_own_folder_and_the_one_above() {
        let mounts =
            "22 1 0:21 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let paths = |groups| own_folders(mounts, groups);
        assert_eq!(
            paths("0::/user.slice/a.scope\n"),
            ["/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice"].map(PathBuf::from)
        );
        assert_eq!(paths("0::/\n"), [PathBuf::from("/sys/fs/cgroup")]);
        assert!(paths("0::/../other\n").is_empty() && paths("4:memory:/a\n").is_empty());
        let container = "30 23 0:26 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(own_folders(container, "0::/docker/a/b"), ["/sys/fs/cgroup/b", "/sys/fs/cgroup"].map(PathBuf::from));
    }

    #[test]
    fn a_folder_with_processes_has_no_groups_unless_it_is_the_root() {
        let folder = tempfile::tempdir().unwrap();
        assert!(can_have_groups(folder.path()));
        for (processes, expected) in [("", true), ("7\n", false)] {
            fs::write(folder.path().join("cgroup.type"), "domain\n").unwrap();
            fs::write(folder.path().join("cgroup.procs"), processes).unwrap();
            assert_eq!(can_have_groups(folder.path()), expected);
        }
    }

    #[test]
    fn limits_are_written_in_the_kernels_units() {
        let ceilings = Ceilings {
            memory_bytes: 1 << 20,
            processes: 2,
            threads: 64,
            open_files: 1,
            file_bytes: 1,
            temporary_bytes: 1,
            home_bytes: 1,
            cpu_percent: Some(150),
        };
        let first =
            [Controller::Memory, Controller::Processes, Controller::Processor].map(|controller| controller.limits(&ceilings)[0].clone());
        let expected = [("memory.max", "1048576"), ("pids.max", "64"), ("cpu.max", "150000 100000")];
        assert_eq!(first, expected.map(|(file, value)| (file, value.to_owned())));
        assert!(has_killed("low 0\noom 3\noom_kill 1\n") && !has_killed("oom 1\noom_kill 0\n") && !has_killed(""));
    }
}
