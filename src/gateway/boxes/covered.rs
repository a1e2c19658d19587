//! Files that a box hides by a mount. The kernel removes the mount if the file is replaced outside of the box, so a replaced file must be
//! recognised.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, lstat, open};
use rustix::io::Errno;

/// A file that a box hides.
pub(super) struct Covered {
    pub(super) path: PathBuf,
    /// The file at this path before the box was made. `None` if no file was there.
    marked: Option<Arc<Marked>>,
    pub(super) is_config: bool,
    /// True if the box can write the file once the mount is removed.
    pub(super) is_written: bool,
}

/// A file that is held open. While it is open, the file system cannot give its inode number to another file, so the number identifies this
/// file.
pub(super) struct Marked {
    opened: OwnedFd,
    known: Mutex<Known>,
}

/// The times and rights of a file as they were last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    /// The time of the last change of the file or of its names (`ctime`).
    changed: (i64, i64),
    /// The time of the last change of its content.
    written: (i64, i64),
    rights: (u32, u32, u32),
}

impl Covered {
    /// Opens and holds the file at a path. `known` are files that other boxes hold open already. If one of them is this file, it is shared,
    /// so that a file is held open only once.
    ///
    /// # Errors
    /// The file exists, but cannot be opened.
    pub(super) fn new(path: PathBuf, is_config: bool, is_written: bool, known: &[Arc<Marked>]) -> std::io::Result<Self> {
        let shared = known.iter().find(|marked| marked.is_at(&path)).cloned();
        let marked = match shared {
            Some(marked) => Some(marked),
            None => Marked::open(&path)?.map(Arc::new),
        };
        Ok(Self { path, marked, is_config, is_written })
    }

    pub(super) fn marked(&self) -> Option<&Arc<Marked>> {
        self.marked.as_ref()
    }

    /// Returns whether the file at the path is not the one that was there before the box was made.
    pub(super) fn is_replaced(&self) -> bool {
        self.marked.as_ref().map_or_else(|| lstat(&self.path).is_ok(), |marked| !marked.is_at(&self.path))
    }
}

impl Marked {
    fn open(path: &Path) -> std::io::Result<Option<Self>> {
        match open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => {
                let known = Mutex::new(Known::of(&fstat(&opened)?));
                Ok(Some(Self { opened, known }))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether this file is still at the path, and was there without a break since the last check.
    fn is_at(&self, path: &Path) -> bool {
        let (Ok(now), Ok(own)) = (lstat(path), fstat(&self.opened)) else { return false };
        if (now.st_dev, now.st_ino) != (own.st_dev, own.st_ino) {
            return false;
        }
        // A folder has only one name. A file can get a second name, lose the name at this path, and get it back.
        FileType::from_raw_mode(own.st_mode) == FileType::Directory || !self.was_named_anew(Known::of(&own))
    }

    /// Returns whether the file was perhaps renamed since the last check: its `ctime` has changed, but not its content time or its rights.
    fn was_named_anew(&self, now: Known) -> bool {
        let mut known = self.known.lock();
        if now.changed != known.changed && (now.written, now.rights) == (known.written, known.rights) {
            return true;
        }
        *known = now;
        false
    }
}

impl Known {
    fn of(data: &Stat) -> Self {
        let time = |seconds: i64, nanoseconds| (seconds, i64::try_from(nanoseconds).unwrap_or_default());
        Self {
            changed: time(data.st_ctime, data.st_ctime_nsec),
            written: time(data.st_mtime, data.st_mtime_nsec),
            rights: (data.st_mode, data.st_uid, data.st_gid),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn covered(path: &Path) -> Covered {
        Covered::new(path.to_owned(), true, true, &[]).unwrap()
    }

    /// Removes the file, and makes another one with the same content, as `git checkout` does. Many file systems give it the same inode number.
    fn replace(path: &Path) -> u64 {
        let text = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        fs::write(path, text).unwrap();
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn a_file_that_was_removed_and_made_again_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, "text").unwrap();
        let seen = covered(&path);
        assert!(!seen.is_replaced());
        let number = fs::metadata(&path).unwrap().ino();
        for _ in 0..20 {
            assert_ne!(replace(&path), number, "no file gets its number while it is held open");
            assert!(seen.is_replaced());
        }
        let again = covered(&path);
        fs::write(folder.path().join("new"), "text").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(again.is_replaced());
    }

    #[test]
    fn a_file_that_loses_its_name_and_gets_it_back_was_uncovered() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("config"), folder.path().join("other"));
        fs::write(&path, "text").unwrap();
        let seen = covered(&path);
        fs::hard_link(&path, &other).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(seen.is_replaced());
        fs::rename(&other, &path).unwrap();
        assert!(seen.is_replaced());
    }

    #[test]
    fn a_file_that_is_written_in_place_stays_covered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        fs::write(&path, "text").unwrap();
        let seen = covered(&path);
        for text in ["a", "b"] {
            // The times of a file have the resolution of the kernel's tick.
            let before = fs::metadata(&path).unwrap().modified().unwrap();
            while fs::metadata(&path).unwrap().modified().unwrap() == before {
                fs::write(&path, text).unwrap();
            }
            assert!(!seen.is_replaced());
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!seen.is_replaced());
        let shared = Covered::new(path.clone(), false, false, &[Arc::clone(seen.marked().unwrap())]).unwrap();
        assert!(Arc::ptr_eq(shared.marked().unwrap(), seen.marked().unwrap()));
    }

    #[test]
    fn what_comes_where_nothing_was_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let seen = covered(&path);
        assert!(!seen.is_replaced());
        fs::write(&path, "text").unwrap();
        assert!(seen.is_replaced());
    }
}
