//! Helpers for tests: a pipe on which a careless reader waits forever, and a timeout that detects the wait.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The time after which an operation counts as hanging. No disk takes nearly as long.
const HANGS: Duration = Duration::from_secs(20);

/// Creates a pipe that has no writer.
pub(crate) fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    path
}

/// Runs the work on a thread and returns its result. Panics if the work hangs, and then does not end the thread.
pub(crate) fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(HANGS).expect("it hangs")
}
