//! The root folder of a box: an empty file system, into which the given files and folders are mounted.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount};

use super::Users;
use super::mounts::{copy_of, is_folder, new_mount, open_below, open_path, place, set_attributes};
use super::quota::{self, SystemV};
use super::step::{At as _, Fault, Outcome, Step};
use crate::boxes::border::NAME_SERVER;
use crate::boxes::contents::HOME;
use crate::boxes::order::{Access, Contents, Given, Link, Network};
use crate::boxes::own_files::fixed_folders;

/// The devices of a box.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Names in `/dev` that lead to a process's own descriptors.
const DEVICE_LINKS: [(&str, &str); 4] =
    [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")];
/// Size of `/dev/shm` in bytes.
const SHARED_BYTES: &str = "67108864";
/// Size in bytes of the file system with the root folder. It contains only empty folders and two short files.
const ROOT_BYTES: &str = "4194304";

/// The file that is mounted over each hidden file.
const UNREADABLE: &str = "/box/hidden";
/// The table of the box's own processes.
pub(super) const PROCESSES: &str = "/proc";

/// Something that is mounted into the box.
enum Source {
    /// A link of a system folder: on many systems, `/bin` is a link to `usr/bin`.
    Link(PathBuf),
    Mount {
        mount: OwnedFd,
        is_folder: bool,
    },
}

/// Makes the root folder and enters it. After this, only the given files and folders of the machine exist. The working folder exists too.
/// If no given folder contains it, it is made as an empty folder. No folder is made within the given ones. Returns whether the box has
/// System V, and who limits it.
pub(super) fn enter(contents: &Contents, working_directory: &Path, fault: &Fault, users: &Users) -> Outcome<SystemV> {
    fault.begin(Step::OpenPaths)?;
    // Everything is opened before the first mount, as a mount hides what is below it.
    let sources: Vec<_> =
        contents.given.iter().filter_map(|given| source(given).map(|found| Some((given, found?))).transpose()).collect::<Outcome<_>>()?;
    let home = mount_of(&contents.home, false, Access::Write).at(Step::OpenPaths, "the private home")?;
    let devices = DEVICES.map(|name| (name, open_path(&Path::new("/dev").join(name), false)));

    fault.begin(Step::MakeRoot)?;
    let root =
        new_mount("tmpfs", &[("mode", "0755"), ("size", ROOT_BYTES)], MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
            .at(Step::MakeRoot, "tmpfs")?;
    let below = openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty()).at(Step::MakeRoot, "/")?;
    place(&root, &below).at(Step::MakeRoot, "move_mount")?;

    fault.begin(Step::PlaceFolders)?;
    let temporary = contents.ceilings.temporary_bytes.to_string();
    add_memory(&root, "/tmp", "1777", &temporary).at(Step::PlaceFolders, "/tmp")?;
    add(&root, Path::new(HOME), &home).at(Step::PlaceFolders, "the private home")?;
    for (given, source) in &sources {
        add(&root, &given.path, source).at(Step::PlaceFolders, &given.path.to_string_lossy())?;
    }
    for folder in fixed(contents) {
        fix(&root, &folder).at(Step::PlaceFolders, &folder.to_string_lossy())?;
    }
    // Within a given folder, this would make a folder on the machine's disk.
    if !contents.given.iter().any(|given| working_directory.starts_with(&given.path)) {
        make_folders(&root, working_directory).at(Step::PlaceFolders, &working_directory.to_string_lossy())?;
    }
    fault.begin(Step::MakeDevices)?;
    for (name, device) in devices {
        let device = device.map_err(std::io::Error::from).and_then(|device| {
            let mount = copy_of(device)?;
            // The machine's devices can still be written on a read-only mount, but root cannot change their mode or times there.
            let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            set_attributes(mount.as_fd(), attributes, true)?;
            Ok(add(&root, &Path::new("/dev").join(name), &Source::Mount { mount, is_folder: false })?)
        });
        device.at(Step::MakeDevices, name)?;
    }
    for (name, target) in DEVICE_LINKS {
        symlinkat(target, &root, format!("dev/{name}")).at(Step::MakeDevices, name)?;
    }
    add_memory(&root, "/dev/shm", "1777", SHARED_BYTES).at(Step::MakeDevices, "shm")?;

    fault.begin(Step::WriteFiles)?;
    write_tables(&root, users, &contents.network)?;
    fault.begin(Step::HideFolders)?;
    for path in &contents.hidden {
        hide(&root, path).at(Step::HideFolders, &path.to_string_lossy())?;
    }
    let system_v = mount_processes(&root, contents, fault)?;
    fault.begin(Step::EnterRoot)?;
    set_attributes(root.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false).at(Step::EnterRoot, "mount_setattr")?;
    rustix::process::fchdir(&root).at(Step::EnterRoot, "fchdir")?;
    // `pivot_root` places the old root over the new one, and then the old root is unmounted.
    rustix::process::pivot_root(".", ".").at(Step::EnterRoot, "pivot_root")?;
    unmount(".", UnmountFlags::DETACH).at(Step::EnterRoot, "umount2")?;
    rustix::process::chdir("/").at(Step::EnterRoot, "chdir").map(|()| system_v)
}

/// Opens a given file or folder. Returns `None` for a system folder that this machine does not have.
fn source(given: &Given) -> Outcome<Option<Source>> {
    let Given { path, access, link } = given;
    let what = path.to_string_lossy();
    if *link == Link::System {
        // Only at the root, a link is kept as a link. Elsewhere, the file to which it leads is mounted.
        if let Ok(target) = fs::read_link(path)
            && path.parent() == Some(Path::new("/"))
        {
            return Ok(Some(Source::Link(target)));
        }
        return match mount_of(path, true, *access) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            found => found.at(Step::OpenPaths, &what).map(Some),
        };
    }
    let opened = mount_of(path, false, *access);
    if opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::LOOP.raw_os_error())) {
        let real = fs::canonicalize(path).map(|real| format!(": write {} instead", real.display())).unwrap_or_default();
        return Err(super::Failure::new(Step::OpenPaths, format!("{what} leads through a link, which a box does not follow{real}")));
    }
    opened.at(Step::OpenPaths, &what).map(Some)
}

fn mount_of(path: &Path, follows: bool, access: Access) -> std::io::Result<Source> {
    let opened = open_path(path, follows)?;
    let is_folder = is_folder(&opened)?;
    let mount = copy_of(&opened)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if access == Access::Read {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    set_attributes(mount.as_fd(), attributes, true)?;
    Ok(Source::Mount { mount, is_folder })
}

/// Adds a source to the box, and the folders above its path.
fn add(root: &OwnedFd, path: &Path, source: &Source) -> rustix::io::Result<()> {
    let above = path.parent().unwrap_or(Path::new("/"));
    make_folders(root, above)?;
    match source {
        Source::Link(target) => symlinkat(target, root, path.strip_prefix("/").unwrap_or(path)),
        Source::Mount { mount, is_folder: true } => {
            make_folders(root, path)?;
            place(mount, open_below(root, path, OFlags::PATH)?)
        }
        Source::Mount { mount, is_folder: false } => {
            let name = path.file_name().ok_or(Errno::INVAL)?;
            let folder = open_below(root, above, OFlags::PATH)?;
            match openat2(
                &folder,
                name,
                OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC,
                Mode::from_raw_mode(0o644),
                ResolveFlags::empty(),
            ) {
                Ok(_) | Err(Errno::EXIST) => place(mount, open_below(root, path, OFlags::PATH)?),
                Err(error) => Err(error),
            }
        }
    }
}

fn make_folders(root: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let mut made = PathBuf::new();
    for part in path.strip_prefix("/").unwrap_or(path) {
        let folder = open_below(root, &made, OFlags::PATH)?;
        made.push(part);
        match mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
            // A folder that was mounted before may be read-only. That is enough, because the part exists there.
            Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adds an empty folder in memory.
fn add_memory(root: &OwnedFd, path: &str, mode: &str, bytes: &str) -> rustix::io::Result<()> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = new_mount("tmpfs", &[("mode", mode), ("size", bytes)], attributes)?;
    add(root, Path::new(path), &Source::Mount { mount, is_folder: true })
}

/// Returns the folders that the server must not move.
fn fixed(contents: &Contents) -> Vec<PathBuf> {
    let of = |access: Access| contents.given.iter().filter(move |given| given.access == access).map(|given| given.path.as_path());
    let written: Vec<&Path> = of(Access::Write).collect();
    let kept = of(Access::Read).chain(contents.hidden.iter().map(PathBuf::as_path));
    fixed_folders(&written, kept, |folder| contents.given.iter().any(|given| given.path == folder))
}

/// Mounts a folder over itself, if it exists. A folder that is a mount point can be neither moved nor removed.
fn fix(root: &OwnedFd, path: &Path) -> std::io::Result<()> {
    match open_below(root, path, OFlags::PATH) {
        Ok(opened) if is_folder(&opened)? => Ok(place(copy_of(&opened)?, opened)?),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Covers a folder with an empty one, or a file with one that cannot be read. Does nothing if the path does not exist in the box.
fn hide(root: &OwnedFd, path: &Path) -> std::io::Result<()> {
    let covered = match open_below(root, path, OFlags::PATH) {
        Ok(covered) => covered,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !is_folder(&covered)? {
        return Ok(place(unreadable(root)?, covered)?);
    }
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(place(new_mount("tmpfs", &[("mode", "0555"), ("size", "4096")], attributes)?, covered)?)
}

/// Returns the mount of an empty file that nobody may read.
fn unreadable(root: &OwnedFd) -> std::io::Result<OwnedFd> {
    // The folder of this path exists, because the private home lies in it.
    let path = Path::new(UNREADABLE).strip_prefix("/").unwrap_or(Path::new(UNREADABLE));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat2(root, path, flags, Mode::empty(), ResolveFlags::empty()) {
        Ok(_) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let mount = copy_of(open_below(root, Path::new(UNREADABLE), OFlags::PATH)?)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    set_attributes(mount.as_fd(), attributes, false)?;
    Ok(mount)
}

/// Writes the tables of users and groups, which contain only the server's user, and the files by which programs find addresses. If `/etc`
/// itself was given, its tables stay.
fn write_tables(root: &OwnedFd, users: &Users, network: &Network) -> Outcome<()> {
    let Users { user, group } = users;
    let mut files = vec![
        ("passwd", format!("box:x:{user}:{group}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")),
        ("group", format!("box:x:{group}:\nnogroup:x:65534:\n")),
    ];
    if *network != Network::Shared {
        files.extend([
            ("hosts", "127.0.0.1 localhost box\n::1 localhost\n".to_owned()),
            ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n".to_owned()),
            ("resolv.conf", format!("nameserver {NAME_SERVER}\n")),
        ]);
    }
    make_folders(root, Path::new("/etc")).at(Step::WriteFiles, "/etc")?;
    for (name, text) in files {
        let folder = open_below(root, Path::new("/etc"), OFlags::PATH).at(Step::WriteFiles, name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat2(&folder, name, flags, Mode::from_raw_mode(0o644), ResolveFlags::empty()) {
            Ok(file) => fs::File::from(file).write_all(text.as_bytes()).at(Step::WriteFiles, name)?,
            Err(Errno::EXIST | Errno::ROFS) => {}
            Err(error) => return Err(error).at(Step::WriteFiles, name),
        }
    }
    Ok(())
}

/// Mounts the table of the box's own processes. It cannot be written, because some of its files change the whole machine for root. In a
/// nested box, the files of processes can be written, because a process that makes a user namespace writes its map there. The limits of
/// the box are written through the table before it becomes read-only.
fn mount_processes(root: &OwnedFd, contents: &Contents, fault: &Fault) -> Outcome<SystemV> {
    fault.begin(Step::MountProcesses)?;
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = new_mount("proc", &[], plain).at(Step::MountProcesses, "proc")?;
    let system_v = quota::set(&mount, &contents.ceilings, contents.is_nested);
    if !contents.is_nested {
        set_attributes(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, false).at(Step::MountProcesses, "mount_setattr")?;
    }
    add(root, Path::new(PROCESSES), &Source::Mount { mount, is_folder: true }).at(Step::MountProcesses, PROCESSES)?;
    if contents.is_nested {
        protect_kernel_files(root).at(Step::MountProcesses, PROCESSES)?;
    }
    Ok(system_v)
}

/// Makes each entry of the process table that belongs to no process read-only, by a mount of the entry over itself.
fn protect_kernel_files(root: &OwnedFd) -> std::io::Result<()> {
    let table = open_below(root, Path::new(PROCESSES), OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&table)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_process = name.iter().all(u8::is_ascii_digit);
        // Links such as `/proc/self` lead to the files of the process that follows them.
        if is_process || name.starts_with(b".") || entry.file_type() == FileType::Symlink {
            continue;
        }
        let opened = open_below(&table, Path::new(OsStr::from_bytes(name)), OFlags::PATH)?;
        let mount = copy_of(&opened)?;
        set_attributes(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, true)?;
        place(mount, opened)?;
    }
    Ok(())
}
