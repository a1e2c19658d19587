//! The presence of a gateway that writes the audit: a sign that the gateway exists, and the number of events that it has recorded. If the
//! process is killed, both remain, so that another process can report how many events are missing.
//!
//! The presence is a locked file in the state folder: the operating system unlocks it when the process ends. The number is in shared
//! memory, and each event raises it without a write to a disk. On a system without shared memory, the number of missing events is not
//! known.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::files;

const FOLDER: &str = "audit";
const EXTENSION: &str = "lock";
const SHARED_MEMORY: &str = "/dev/shm";

/// The ids of the open gateways of this process that have no presence file, because it could not be created. Only this process knows that
/// these gateways are open.
static WITHOUT_FILE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The presence of one gateway. If this value is dropped, the presence file stays, as it does when the process ends.
pub(super) struct Presence {
    pub(super) id: String,
    folder: PathBuf,
    /// `None` once the writer has ended.
    files: Mutex<Option<PresenceFiles>>,
}

struct PresenceFiles {
    /// The lock is released when this file is closed.
    _lock: File,
    counter: Option<File>,
    /// The number of events that was last written to the counter file.
    told: u64,
}

impl Presence {
    pub(super) fn begin(state_folder: &Path) -> io::Result<Self> {
        let folder = files::private_folder(&state_folder.join(FOLDER))?.path;
        let id = random_id()?;
        // The file is locked before it gets its final name. Otherwise another process could take it for the file of a process that has
        // ended.
        let new = folder.join(format!("{id}.new"));
        let lock = create(&new)?;
        lock.try_lock()?;
        fs::rename(&new, lock_path(&folder, &id))?;
        let start = [0_u64, u64::from(std::process::id())].map(u64::to_ne_bytes).concat();
        let counter = create(&counter_path(&id)).ok().filter(|counter| counter.write_all_at(&start, 0).is_ok());
        let files = Mutex::new(Some(PresenceFiles { _lock: lock, counter, told: 0 }));
        Ok(Self { id, folder, files })
    }

    /// Returns a presence without files, for a gateway whose presence file cannot be created. The gateway is listed under a random id in the
    /// store. If its process is killed, another process finds the id without a file, and reports a gap of unknown size.
    pub(super) fn without_file(state_folder: &Path) -> io::Result<Self> {
        let id = random_id()?;
        WITHOUT_FILE.lock().insert(id.clone());
        Ok(Self { id, folder: Self::folder(state_folder), files: Mutex::new(None) })
    }

    /// Returns the path of the folder with the presence files.
    pub(super) fn folder(state_folder: &Path) -> PathBuf {
        state_folder.join(FOLDER)
    }

    /// Writes `told`, the number of all events so far, to the counter. Does nothing if another thread has already written a higher number.
    pub(super) fn tell(&self, told: u64) {
        let mut files = self.files.lock();
        if let Some(PresenceFiles { counter: Some(counter), told: latest, .. }) = &mut *files
            && told > *latest
        {
            *latest = told;
            // If this write fails, the number in the file is too low. The failure is ignored, because it must not make a call fail.
            // `pwrite` is called directly, because the C library would take most of the time of this write.
            let _ = rustix::io::pwrite(counter, &told.to_ne_bytes(), 0);
        }
    }

    /// Removes the presence, because all events are written.
    pub(super) fn end(&self) {
        remove(&self.folder, &self.id);
        *self.files.lock() = None;
    }

    /// Leaves the presence behind, as it is when the process ends, because not all events are written. The next gateway that opens the store
    /// reports the missing events, also a gateway of this process.
    pub(super) fn leave_behind(&self) {
        *self.files.lock() = None;
        WITHOUT_FILE.lock().remove(&self.id);
    }

    /// Returns whether a gateway's presence file exists, or the gateway is one of this process. The gateway may be running or may have ended.
    pub(super) fn is_there(state_folder: &Path, id: &str) -> bool {
        files::open_own(&lock_path(&Self::folder(state_folder), id)).is_ok() || WITHOUT_FILE.lock().contains(id)
    }

    /// Returns the gateways of this state folder whose processes have ended but whose presence files still exist.
    pub(super) fn left(state_folder: &Path) -> Vec<LeftBehind> {
        let folder = Self::folder(state_folder);
        let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let signs = paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        signs.filter_map(|path| left_behind(&folder, &path)).collect()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        WITHOUT_FILE.lock().remove(&self.id);
    }
}

fn random_id() -> io::Result<String> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    Ok(hex::encode(id))
}

/// The presence of a gateway whose process has ended. It is locked, so that no other process reports the same gap.
pub(super) struct LeftBehind {
    pub(super) id: String,
    /// The number of events that the gateway recorded, and its process id. `None` if these numbers are not known.
    pub(super) counted: Option<Counted>,
    folder: PathBuf,
    _lock: File,
}

/// The numbers in the counter file: the number of recorded events, and the process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) told: u64,
    pub(super) pid: u32,
}

impl Counted {
    pub(super) fn read(id: &str) -> Option<Self> {
        let bytes: [u8; 16] = files::read_own(&counter_path(id), 16).ok()?.try_into().ok()?;
        let [told, pid] = [0, 8].map(|at| bytes[at..at + 8].try_into().map(u64::from_ne_bytes));
        Some(Self { told: told.ok()?, pid: u32::try_from(pid.ok()?).ok()? })
    }
}

impl LeftBehind {
    pub(super) fn remove(&self) {
        remove(&self.folder, &self.id);
    }
}

fn left_behind(folder: &Path, path: &Path) -> Option<LeftBehind> {
    let lock = files::open_own(path).ok()?;
    lock.try_lock().ok()?;
    // Another process may have found this file first and removed it.
    let (locked, there) = (lock.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    if (locked.dev(), locked.ino()) != (there.dev(), there.ino()) {
        return None;
    }
    let id = path.file_stem()?.to_str()?.to_owned();
    let counted = Counted::read(&id);
    Some(LeftBehind { id, counted, folder: folder.to_owned(), _lock: lock })
}

fn remove(folder: &Path, id: &str) {
    let _ = fs::remove_file(counter_path(id));
    let _ = fs::remove_file(lock_path(folder, id));
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn lock_path(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("{id}.{EXTENSION}"))
}

/// Returns the path of the counter in shared memory. The id is random, so another user cannot have created a file with this name
/// beforehand.
fn counter_path(id: &str) -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("hyperlight-mcp-audit-{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_that_is_left_behind_is_found_once_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Presence::begin(folder.path()).unwrap(), Presence::begin(folder.path()).unwrap());
        one.tell(7);
        assert!(Presence::left(folder.path()).is_empty());
        let id = one.id.clone();
        drop(one);
        let mut left = Presence::left(folder.path());
        let counted = Counted { told: 7, pid: std::process::id() };
        assert_eq!(left.iter().map(|left| (&left.id, left.counted)).collect::<Vec<_>>(), [(&id, Some(counted))]);
        // While one process holds the lock to report the gap, no other process reports the same gap.
        assert!(Presence::left(folder.path()).is_empty());
        left.remove(0).remove();
        other.end();
        drop(other);
        assert!(Presence::left(folder.path()).is_empty());
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 0);
        assert!(!counter_path(&id).exists());
    }

    #[test]
    fn the_highest_number_stays_whichever_thread_is_last() {
        let folder = tempfile::tempdir().unwrap();
        let presence = Presence::begin(folder.path()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let presence = &presence;
                scope.spawn(move || (0..500).for_each(|number| presence.tell(number * 4 + thread + 1)));
            }
        });
        drop(presence);
        let left = Presence::left(folder.path()).remove(0);
        assert_eq!(left.counted.map(|counted| counted.told), Some(2000));
        left.remove();
    }
}
