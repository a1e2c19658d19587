//! Files on which this process holds POSIX locks.
//!
//! When a process closes any descriptor of a file, the kernel releases all locks that the process has on this file (`fcntl(2)`, "Record
//! locks"). A path that somebody else has chosen can lead to such a file, also by a link. So these files must not be opened at all.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// The locked files of all stores of this process. It is global, because the kernel's locks belong to the process.
static LOCKED: Mutex<Vec<Arc<Files>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Files {
    /// Device and inode of the main file, which another program may move.
    main: (u64, u64),
    /// The paths of all files. Some of them may not exist yet.
    paths: Vec<PathBuf>,
}

/// Keeps [`super::open_regular`] from opening files, for as long as this value exists.
#[derive(Debug)]
pub(crate) struct LockedFiles(Arc<Files>);

impl LockedFiles {
    /// Registers files. `main` is the device and inode of the first one.
    pub(crate) fn new(main: (u64, u64), paths: Vec<PathBuf>) -> Self {
        let files = Arc::new(Files { main, paths });
        LOCKED.lock().push(Arc::clone(&files));
        Self(files)
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
    use std::path::Path;

    use super::*;
    use crate::files::{Links, open_regular};

    #[test]
    fn a_locked_file_is_opened_under_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["main", "beside", "other"] {
            fs::write(at(name), "text").unwrap();
        }
        let main = fs::metadata(at("main")).unwrap();
        let locked = LockedFiles::new((main.dev(), main.ino()), vec![at("main"), at("beside"), at("later")]);
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
        drop(locked);
        assert_eq!(problem(&at("moved")), None);
    }
}
