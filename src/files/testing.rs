//! Files that hang whoever opens them without care, and a test that would notice.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Far longer than any disk takes: what takes longer hangs.
const HANGS: Duration = Duration::from_secs(20);

/// A pipe that nobody writes into.
pub(crate) fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    path
}

/// Gives what the work gives; fails where it hangs, and leaves its thread behind.
pub(crate) fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(HANGS).expect("it hangs")
}
