//! Runs blocking work on tokio's thread pool for such work.

use std::sync::{Arc, Weak};

use crate::error::{Error, Result};

/// Runs work that takes some milliseconds or waits for a disk. The work runs on a thread of this pool, so it does not block a worker thread
/// of the runtime.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string().into()))?
}

/// The wait for the result of blocking work. It ends if the future is dropped, for example after an abort.
pub struct Wait(Weak<()>);

impl Wait {
    /// Returns true as long as something waits for the result. Work of several steps ends early if this is false.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Runs blocking work of several steps like [`blocking`], and tells it whether something still waits for its result.
///
/// # Errors
/// The error of the work.
pub async fn blocking_while_awaited<T: Send + 'static>(work: impl FnOnce(&Wait) -> Result<T> + Send + 'static) -> Result<T> {
    let waits = Arc::new(());
    let wait = Wait(Arc::downgrade(&waits));
    let outcome = blocking(move || work(&wait)).await;
    drop(waits);
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::off_runtime::testing::{LONGEST, one_worker};

    #[test]
    fn work_is_told_that_nothing_waits_for_it_any_more() {
        let runtime = one_worker();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (sender, receiver) = mpsc::channel();
        let work = blocking_while_awaited(move |wait: &Wait| {
            let _ = begun.send(wait.goes_on());
            while wait.goes_on() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = sender.send(());
            Ok(())
        });
        let waiting = runtime.spawn(work);
        assert_eq!(runtime.block_on(has_begun), Ok(true));
        waiting.abort();
        assert!(receiver.recv_timeout(LONGEST).is_ok());
        assert_eq!(runtime.block_on(blocking_while_awaited(|wait| Ok(wait.goes_on()))).ok(), Some(true));
    }
}
