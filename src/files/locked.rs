//! Files on which this process holds POSIX locks.
//!
//! When a process closes any descriptor of a file, the kernel releases all locks that the process has on this file (`fcntl(2)`, "Record
//! locks"). A path that somebody else has chosen can lead to such a file, also by a link. So these files must not be opened at all.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

/// The locked files of all stores of this process. It is global, because the kernel's locks belong to the process.
static LOCKED: Mutex<Vec<Arc<Files>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Files {
    /// Device and inode of the main file, which another program may move.
    main: (u64, u64),
    /// Keeps the main file in existence, so that no other file gets its inode number. Closing a descriptor with `O_PATH` releases no locks.
    _kept: File,
    /// The paths of all files. Some of them may not exist yet.
    paths: Vec<PathBuf>,
}

/// Keeps [`super::open_regular`] from opening files, for as long as this value exists.
#[derive(Debug)]
pub(crate) struct LockedFiles(Arc<Files>);

impl LockedFiles {
    /// Registers a file that exists, and files that belong to it.
    pub(crate) fn new(main: &Path, beside: Vec<PathBuf>) -> io::Result<Self> {
        let kept = File::from(rustix::fs::open(main, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
        let metadata = kept.metadata()?;
        let paths = std::iter::once(main.to_owned()).chain(beside).collect();
        let files = Arc::new(Files { main: (metadata.dev(), metadata.ino()), _kept: kept, paths });
        LOCKED.lock().push(Arc::clone(&files));
        Ok(Self(files))
    }
}

impl Drop for LockedFiles {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock();
        if let Some(place) = locked.iter().position(|files| Arc::ptr_eq(files, &self.0)) {
            locked.swap_remove(place);
        }
    }
}

/// Fails if this is one of the locked files.
pub(super) fn check_unlocked(file: &Metadata) -> io::Result<()> {
    let wanted = (file.dev(), file.ino());
    let all = LOCKED.lock().clone();
    let is = |files: &Arc<Files>| {
        let of = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == wanted);
        files.main == wanted || files.paths.iter().any(of)
    };
    if all.iter().any(is) {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "it is a database of hyperlight-mcp that is in use, which only hyperlight-mcp may read",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::{Links, open_regular};

    #[test]
    fn a_locked_file_is_opened_under_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["main", "beside", "other"] {
            fs::write(at(name), "text").unwrap();
        }
        let locked = LockedFiles::new(&at("main"), vec![at("beside"), at("later")]).unwrap();
        symlink(at("main"), at("link")).unwrap();
        fs::hard_link(at("beside"), at("hard")).unwrap();
        fs::write(at("later"), "text").unwrap();
        let problem = |path: &Path| open_regular(path, Links::Follow).err().map(|error| error.to_string());
        for name in ["main", "beside", "link", "hard", "later"] {
            assert!(problem(&at(name)).is_some_and(|problem| problem.contains("database")), "{name}");
        }
        let held = fs::File::open(at("main")).unwrap();
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
        assert!(problem(Path::new(&descriptor)).is_some());
        fs::rename(at("main"), at("moved")).unwrap();
        assert!(problem(&at("moved")).is_some());
        assert_eq!(problem(&at("other")), None);
        // A file system gives the number of a removed file to the next one.
        let removed = fs::metadata(at("moved")).unwrap().ino();
        drop(held);
        fs::remove_file(at("moved")).unwrap();
        for number in 0..100 {
            let new = at(&format!("new{number}"));
            fs::write(&new, "text").unwrap();
            assert!(problem(&new).is_none() && fs::metadata(&new).unwrap().ino() != removed);
        }
        drop(locked);
    }
}
