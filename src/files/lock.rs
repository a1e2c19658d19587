//! File locks between processes. Each wait has a time limit, because a hostile server may hold a lock for ever.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::private::open_to_write;

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

type TryLock = fn(&File) -> Result<(), TryLockError>;

/// Locks the file at `path`. If the file does not exist, creates it with mode 0600. The lock is held until the returned file is dropped.
pub(crate) fn lock_within(path: &Path, time: Duration) -> io::Result<File> {
    open_locked(path, time, File::try_lock)
}

/// Takes a shared lock on the file at `path`. In all other respects, works like [`lock_within`]. Several holders can have a shared lock at
/// the same time.
pub(crate) fn share_within(path: &Path, time: Duration) -> io::Result<File> {
    open_locked(path, time, File::try_lock_shared)
}

fn open_locked(path: &Path, time: Duration, try_lock: TryLock) -> io::Result<File> {
    let end = Instant::now() + time;
    loop {
        let file = open_to_write(OpenOptions::new().write(true).truncate(false), path)?;
        let locked = poll(&file, end.saturating_duration_since(Instant::now()), try_lock);
        locked.map_err(|error| explained(error, path, time))?;
        let ours = file.metadata()?;
        // The previous holder of the lock may have removed the file. A lock on a removed file does not exclude other processes.
        if fs::symlink_metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Ok(file);
        }
    }
}

/// Locks an open file by polling, because a blocking `flock` has no time-out.
pub(crate) fn wait_for(file: &File, time: Duration) -> io::Result<()> {
    poll(file, time, File::try_lock)
}

fn poll(file: &File, time: Duration, try_lock: TryLock) -> io::Result<()> {
    let end = Instant::now() + time;
    let mut pause = FIRST_PAUSE;
    loop {
        match try_lock(file) {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return Err(ErrorKind::TimedOut.into()),
            Err(TryLockError::WouldBlock) => {}
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn explained(error: io::Error, path: &Path, time: Duration) -> io::Error {
    if error.kind() != ErrorKind::TimedOut {
        return error;
    }
    let problem = format!(
        "another process holds the lock {} for more than {} ms; end that process, then try again",
        path.display(),
        time.as_millis()
    );
    io::Error::new(ErrorKind::TimedOut, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::at_once;

    #[test]
    fn a_lock_that_is_held_is_given_up_and_its_file_is_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = lock_within(&path, Duration::ZERO).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o777, 0o600);
        let again = at_once({
            let path = path.clone();
            move || lock_within(&path, Duration::from_millis(20))
        });
        let error = again.unwrap_err();
        assert!(error.kind() == ErrorKind::TimedOut && error.to_string().contains("holds the lock"), "{error}");
        drop(held);
        lock_within(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn who_waits_gets_a_lock_that_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = lock_within(&path, Duration::ZERO).unwrap();
        let waiting = thread::spawn(move || lock_within(&path, Duration::from_secs(20)).map(drop));
        drop(held);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn the_lock_of_a_file_that_was_removed_is_not_enough() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = lock_within(&path, Duration::ZERO).unwrap();
        let waiting = thread::spawn({
            let path = path.clone();
            move || lock_within(&path, Duration::from_secs(20)).unwrap()
        });
        fs::remove_file(&path).unwrap();
        drop(held);
        let (taken, there) = (waiting.join().unwrap().metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        assert_eq!(taken, there);
    }
}
