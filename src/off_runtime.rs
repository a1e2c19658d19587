//! Does long work on a worker thread of a runtime without delaying the other tasks of this thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work on this thread that would take too long on a worker thread of a runtime. Meanwhile, the other tasks of this thread run on
/// another thread.
pub(crate) fn off_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn other_tasks_of_the_thread_go_on_during_long_work() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        // The only worker thread waits for a task that is started later.
        let waiting = runtime.spawn(async move { off_the_runtime(|| receiver.recv()) });
        runtime.spawn(async move { sender.send(7) });
        assert_eq!(runtime.block_on(waiting).unwrap(), Ok(7));
        assert_eq!(off_the_runtime(|| 8), 8, "without a runtime");
    }
}
