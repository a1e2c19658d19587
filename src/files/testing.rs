//! Helpers for tests: a file that hangs a careless reader, and a timeout that notices it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The time after which an operation counts as hanging, far longer than any disk takes.
const HANGS: Duration = Duration::from_secs(20);

/// Creates a pipe that nobody writes to.
pub(crate) fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    path
}

/// Returns the result of the work. Panics if it hangs, and leaves its thread behind.
pub(crate) fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(HANGS).expect("it hangs")
}
