//! Measures the size of the private home on the disk, a limited number of files at a time.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstatvfs, openat, statat};
use rustix::io::Errno;

/// Number of files that are counted in one step.
const FILES_IN_STEP: u64 = 4_000;
/// Maximum number of files. More files would also use up the disk, and take too long to count.
const MAX_FILES: u64 = 1_000_000;
/// Maximum depth of folders. Each folder is open while its content is counted.
const MAX_DEPTH: usize = 200;
/// The time after which everything is counted again, even if the free space has not changed.
const QUIET_REST: Duration = Duration::from_mins(1);
/// The loss of free space, in bytes, after which everything is counted again at once.
const LOST_BYTES: u64 = 32 << 20;
/// The loss of free inodes after which everything is counted again at once.
const LOST_FILES: u64 = 20_000;
/// The unit of the size on the disk (`stat(2)`).
const BLOCK_BYTES: u64 = 512;
const MIB: u64 = 1 << 20;

/// The private home, whose size is measured from time to time.
pub(super) struct Disk {
    home: OwnedFd,
    limit: u64,
    count: Option<Count>,
    last: Option<Last>,
}

/// The times and the free space of the last complete count.
struct Last {
    began: Instant,
    ended: Instant,
    free_at_begin: Free,
}

#[derive(Clone, Copy)]
struct Free {
    bytes: u64,
    files: u64,
}

/// A count that is in progress.
struct Count {
    began: Instant,
    free_at_begin: Free,
    /// The folder that is being counted, after the folders that contain it.
    folders: Vec<Dir>,
    bytes: u64,
    files: u64,
    /// Files with several names, by device and inode number, so that each file is counted once. An overlay file system has several devices.
    seen: HashSet<(u64, u64)>,
    /// True if there is a folder that this process may not read.
    is_closed: bool,
}

impl Disk {
    pub(super) fn open(home: &Path, limit: u64) -> rustix::io::Result<Self> {
        Ok(Self { home: openat(CWD, home, FOLDER, Mode::empty())?, limit, count: None, last: None })
    }

    /// Counts some files. Returns a sentence if the home exceeds a limit.
    pub(super) fn step(&mut self, now: Instant) -> Option<String> {
        if self.count.is_none() && self.is_due(now) {
            self.count = Count::new(self.home.as_fd(), now, self.free()).ok();
        }
        let count = self.count.as_mut()?;
        let outcome = count.proceed(self.limit);
        if matches!(outcome, Counted::All) {
            self.last = Some(Last { began: count.began, ended: now, free_at_begin: count.free_at_begin });
            self.count = None;
        }
        match outcome {
            Counted::Beyond(problem) => Some(problem),
            Counted::All | Counted::Some => None,
        }
    }

    fn free(&self) -> Free {
        // If the file system does not report its free space, this counts as no change.
        fstatvfs(&self.home).map_or(Free { bytes: 0, files: 0 }, |system| Free {
            bytes: system.f_bfree.saturating_mul(system.f_frsize),
            files: system.f_ffree,
        })
    }

    fn is_due(&self, now: Instant) -> bool {
        let Some(Last { began, ended, free_at_begin }) = &self.last else { return true };
        let rested = now.saturating_duration_since(*ended);
        // The pause is at least as long as the last measurement, so that a slow one does not run all the time.
        if rested < ended.saturating_duration_since(*began) {
            return false;
        }
        let free = self.free();
        let has_lost =
            free_at_begin.bytes.saturating_sub(free.bytes) >= LOST_BYTES || free_at_begin.files.saturating_sub(free.files) >= LOST_FILES;
        has_lost || rested >= QUIET_REST
    }
}

/// The flags with which a folder is opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

enum Counted {
    All,
    Some,
    Beyond(String),
}

impl Count {
    fn new(home: impl AsFd, began: Instant, free_at_begin: Free) -> rustix::io::Result<Self> {
        let folders = vec![Dir::read_from(home)?];
        Ok(Self { began, free_at_begin, folders, bytes: 0, files: 0, seen: HashSet::new(), is_closed: false })
    }

    /// Counts until the step's number of files is reached.
    fn proceed(&mut self, limit: u64) -> Counted {
        let enough = self.files + FILES_IN_STEP;
        while self.files < enough {
            let Some(folder) = self.folders.last_mut() else { return Counted::All };
            match folder.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        self.add(name);
                    }
                }
                Some(Err(_)) | None => drop(self.folders.pop()),
            }
            if self.bytes > limit {
                return Counted::Beyond(format!("its private home has more than {} MiB, which its box does not allow", limit / MIB));
            }
            if self.is_closed {
                return Counted::Beyond("its private home has a folder that cannot be read and counted".to_owned());
            }
            if self.files > MAX_FILES {
                return Counted::Beyond(format!("its private home has more than {MAX_FILES} files, which its box does not allow"));
            }
            if self.folders.len() > MAX_DEPTH {
                return Counted::Beyond(format!("its private home has more than {MAX_DEPTH} folders within one another"));
            }
        }
        Counted::Some
    }

    fn add(&mut self, name: &CStr) {
        self.files += 1;
        let Some(Ok(folder)) = self.folders.last().map(Dir::fd) else { return };
        let Ok(file) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let is_folder = FileType::from_raw_mode(file.st_mode) == FileType::Directory;
        if !is_folder && file.st_nlink > 1 && !self.seen.insert((file.st_dev, file.st_ino)) {
            return;
        }
        self.bytes += u64::try_from(file.st_blocks).unwrap_or_default().saturating_mul(BLOCK_BYTES);
        if is_folder {
            match openat(folder, name, FOLDER, Mode::empty()).and_then(Dir::new) {
                Ok(opened) => self.folders.push(opened),
                Err(Errno::ACCESS) => self.is_closed = true,
                // The folder was removed in the meantime.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn count(home: &Path, limit: u64) -> Option<String> {
        let mut disk = Disk::open(home, limit).unwrap();
        let now = Instant::now();
        loop {
            let told = disk.step(now);
            if told.is_some() || disk.count.is_none() {
                return told;
            }
        }
    }

    #[test]
    fn files_of_all_folders_are_counted_and_names_of_one_file_once() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/b")).unwrap();
        fs::write(home.path().join("a/b/file"), vec![1; 3 << 20]).unwrap();
        fs::hard_link(home.path().join("a/b/file"), home.path().join("other")).unwrap();
        std::os::unix::fs::symlink("/usr", home.path().join("link")).unwrap();
        assert_eq!(count(home.path(), 4 << 20), None);
        assert!(count(home.path(), 2 << 20).unwrap().contains("more than 2 MiB"));
    }

    #[test]
    fn many_files_are_counted_in_steps() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..FILES_IN_STEP + 10 {
            fs::write(home.path().join(number.to_string()), "").unwrap();
        }
        let mut disk = Disk::open(home.path(), 1 << 30).unwrap();
        let now = Instant::now();
        assert_eq!((disk.step(now), disk.count.is_some()), (None, true));
        assert_eq!((disk.step(now), disk.count.is_some()), (None, false));
        assert!(!disk.is_due(now) && disk.is_due(now + QUIET_REST));
    }

    #[test]
    fn folders_without_end_are_told() {
        let home = tempfile::tempdir().unwrap();
        let deep: std::path::PathBuf = std::iter::repeat_n("a", MAX_DEPTH + 1).collect();
        fs::create_dir_all(home.path().join(deep)).unwrap();
        assert!(count(home.path(), 1 << 30).unwrap().contains("within one another"));
    }
}
