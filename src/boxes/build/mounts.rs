//! Mounts by descriptor: a path is opened once, and exactly the opened file or folder is mounted, even if the path is changed later.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree,
};

/// The argument of `mount_setattr(2)`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Opens a path of the machine as a reference (`O_PATH`), without the right to read its content. Refuses symbolic links if `follows` is
/// false.
pub(super) fn open_path(path: &Path, follows: bool) -> rustix::io::Result<OwnedFd> {
    let resolve = if follows { ResolveFlags::NO_MAGICLINKS } else { ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS };
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens a path below a folder. A symbolic link in the path is an error.
pub(super) fn open_below(folder: impl AsFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = path.strip_prefix("/").unwrap_or(path);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH)
}

/// Returns a copy of the mounts at the opened file or folder. The copy is not yet placed in a folder.
pub(super) fn copy_of(opened: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE;
    open_tree(opened, "", flags)
}

/// Makes an empty file system of this type.
pub(super) fn new_mount(kind: &str, settings: &[(&str, &str)], attributes: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in settings {
        fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Places a mount on the opened file or folder.
pub(super) fn place(mount: impl AsFd, upon: impl AsFd) -> rustix::io::Result<()> {
    move_mount(mount, "", upon, "", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
}

/// Adds attributes to a mount, and to those below it if `recursive`.
pub(super) fn set_attributes(mount: BorrowedFd<'_>, attributes: MountAttrFlags, recursive: bool) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let attributes = MountAttributes { set: u64::from(attributes.bits()), clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is a string with a NUL at its end, the attributes live during the call, and their size is given. The kernel only
    // reads them.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, mount.as_raw_fd(), c"".as_ptr(), flags, &raw const attributes, size_of::<MountAttributes>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether a folder was opened.
pub(super) fn is_folder(opened: impl AsFd) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(opened)?.st_mode) == FileType::Directory)
}
