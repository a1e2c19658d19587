//! Does long work on a worker thread of a runtime without delaying the other tasks of this thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Maximum number of bytes of a message that is handled without leaving the thread's other tasks to another thread. Handling it takes at
/// most a few milliseconds.
pub(crate) const MAX_BYTES_AT_ONCE: usize = 64 * 1024;

/// Does work on this thread that would take too long on a worker thread of a runtime. Meanwhile, the other tasks of this thread run on
/// another thread.
pub(crate) fn off_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Handles a message of this many bytes. Only a long message leaves the thread's other tasks to another thread, because this takes longer
/// than handling a short one.
pub(crate) fn off_the_runtime_if_long<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > MAX_BYTES_AT_ONCE { off_the_runtime(work) } else { work() }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};

    /// Time after which a test fails in which no other task has run. It is much longer than another task needs.
    pub(crate) const LONGEST: Duration = Duration::from_secs(10);

    /// Makes a runtime whose only worker thread cannot run another task while it does work.
    pub(crate) fn one_worker() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    /// Work that waits until another task of the runtime has run, and the start of this task.
    pub(crate) fn until_another_task_runs() -> (impl FnOnce() + Send + 'static, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel();
        let waits = move || receiver.recv_timeout(LONGEST).expect("another task of the thread runs during long work");
        let runs = async move {
            // The work may have failed.
            let _ = sender.send(());
        };
        (waits, runs)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{one_worker, until_another_task_runs};
    use super::*;

    #[test]
    fn other_tasks_of_the_thread_go_on_during_long_work() {
        let runtime = one_worker();
        let (waits, other) = until_another_task_runs();
        // The only worker thread waits for a task that is started later.
        let waiting = runtime.spawn(async move { off_the_runtime_if_long(MAX_BYTES_AT_ONCE + 1, waits) });
        runtime.spawn(other);
        runtime.block_on(waiting).unwrap();
        assert_eq!(off_the_runtime(|| 8), 8, "without a runtime");
    }
}
