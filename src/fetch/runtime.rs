//! The runtime of fetches: connections and name lookups have threads of their own, so that a server or a DNS server that misbehaves delays other
//! fetches at most, and neither deadlines nor revocations.

use std::future::Future;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::error::FetchError;

/// Maximum number of name lookups at the same time. A lookup that nobody waits for any more goes on until the system gives up.
const MAX_LOOKUPS: usize = 16;

/// The runtime of the fetches of one gateway. It begins with the first request.
#[derive(Default)]
pub(super) struct FetchRuntime(Mutex<State>);

#[derive(Default)]
enum State {
    /// There was no request.
    #[default]
    Unused,
    Running(Runtime),
    Ended,
}

impl FetchRuntime {
    /// Does work on the runtime. Dropping the future ends the work.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, FetchError> {
        let mut task = EndedOnDrop(self.handle()?.spawn(work));
        (&mut task.0).await.map_err(|_| FetchError::Ended)
    }

    fn handle(&self) -> Result<Handle, FetchError> {
        let mut state = self.0.lock();
        match &*state {
            State::Unused => {}
            State::Running(runtime) => return Ok(runtime.handle().clone()),
            State::Ended => return Err(FetchError::Ended),
        }
        let begun = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(MAX_LOOKUPS)
            // The system keeps 15 characters of a name.
            .thread_name("mcp-fetch")
            .enable_all()
            .build()
            .map_err(|error| FetchError::Unavailable { problem: format!("no thread for requests can be started: {error}") })?;
        let handle = begun.handle().clone();
        *state = State::Running(begun);
        Ok(handle)
    }

    /// Ends all work and the threads. Later work fails.
    pub(super) fn end(&self) {
        let state = std::mem::replace(&mut *self.0.lock(), State::Ended);
        if let State::Running(runtime) = state {
            // A runtime must not be waited for where it may be ended: in a task of another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Drop for FetchRuntime {
    fn drop(&mut self) {
        self.end();
    }
}

/// A task that ends when its caller no longer waits.
struct EndedOnDrop<T>(JoinHandle<T>);

impl<T> Drop for EndedOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_has_threads_of_its_own_and_ends_with_its_caller() {
        let runtime = FetchRuntime::default();
        let name = runtime.run(async { std::thread::current().name().map(str::to_owned) }).await.unwrap();
        assert_eq!(name.as_deref(), Some("mcp-fetch"));
        let (alive, begun) = (Arc::new(()), oneshot::channel());
        let held = Arc::clone(&alive);
        let mut waiting = Box::pin(runtime.run(async move {
            let _ = begun.0.send(());
            std::future::pending::<()>().await;
            drop(held);
        }));
        tokio::select! {
            _ = &mut waiting => unreachable!("it never ends"),
            begun = begun.1 => begun.unwrap(),
        }
        drop(waiting);
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
        runtime.end();
        assert!(matches!(runtime.run(async {}).await, Err(FetchError::Ended)));
    }
}
