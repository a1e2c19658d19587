//! Helpers for tests: a pipe on which a reader without precautions waits for ever, and a time limit that detects such a wait.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Time after which an operation is treated as hanging. It is far above the time of any such operation beside other programs, because a test that
/// passes does not wait for it.
const HANGS: Duration = Duration::from_mins(3);

/// Creates a pipe without a writer.
pub(crate) fn pipe(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    path
}

/// Runs the work on another thread, and returns its result. Panics if the work hangs. The hanging thread is not ended.
pub(crate) fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(work()));
    done.recv_timeout(HANGS).expect("it hangs")
}
