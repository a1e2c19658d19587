//! Threads for connections and name lookups. If a peer or a DNS server does not behave correctly, it uses the time of these threads. It
//! does not use the time of the threads on which deadlines, revocations and other callers depend.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Maximum number of name lookups that one client may have at the same time.
const LOOKUPS_OF_CLIENT: usize = 4;

/// Size of a [`NetworkRuntime`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetworkThreads {
    /// Name of the threads. The system uses only its first 15 characters.
    pub(crate) name: &'static str,
    /// Number of threads that drive connections.
    pub(crate) workers: usize,
    /// Maximum number of threads for blocking work, such as name lookups. If a lookup is not needed any more, it still continues until the
    /// system ends it.
    pub(crate) blocking: usize,
}

/// A runtime for one kind of connections of one gateway. It is started when it is first needed.
pub(crate) struct NetworkRuntime {
    threads: NetworkThreads,
    state: Mutex<State>,
}

enum State {
    /// No work has needed the runtime yet.
    Unused,
    Running(Runtime),
    Ended,
}

/// The reason why work cannot be done on a [`NetworkRuntime`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkUnavailable {
    #[error("its gateway has ended")]
    Ended,
    #[error("no thread for connections can be started: {0}")]
    NoThread(io::Error),
}

impl NetworkRuntime {
    pub(crate) fn new(threads: NetworkThreads) -> Self {
        Self { threads, state: Mutex::new(State::Unused) }
    }

    /// Does work on the runtime. Dropping the future ends the work.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, NetworkUnavailable> {
        let mut task = EndedOnDrop(self.handle()?.spawn(work));
        (&mut task.0).await.map_err(|_| NetworkUnavailable::Ended)
    }

    /// Returns a handle of the runtime. Starts the runtime if necessary. A handle keeps file descriptors open, so it must not be stored
    /// longer than its connections.
    pub(crate) fn handle(&self) -> Result<Handle, NetworkUnavailable> {
        let mut state = self.state.lock();
        match &*state {
            State::Unused => {}
            State::Running(runtime) => return Ok(runtime.handle().clone()),
            State::Ended => return Err(NetworkUnavailable::Ended),
        }
        let NetworkThreads { name, workers, blocking } = self.threads;
        let begun = Builder::new_multi_thread()
            .worker_threads(workers)
            .max_blocking_threads(blocking)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(NetworkUnavailable::NoThread)?;
        let handle = begun.handle().clone();
        *state = State::Running(begun);
        Ok(handle)
    }

    /// Ends all work and the threads. Work that is started later fails.
    pub(crate) fn end(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Ended);
        if let State::Running(runtime) = state {
            // This function may be called in a task of another runtime, where waiting for the end of a runtime is not allowed.
            runtime.shutdown_background();
        }
    }
}

impl Drop for NetworkRuntime {
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

/// The name lookups of one client. Their number is limited. So if names are never answered, the lookups of these names take no thread that
/// another client needs.
#[derive(Debug, Clone)]
pub(crate) struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_OF_CLIENT)))
    }
}

impl Lookups {
    /// Finds the addresses of a name as the operating system does. Waits while this client has the maximum number of lookups.
    pub(crate) async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name = name.to_owned();
        self.run(move || Ok((name.as_str(), 0).to_socket_addrs()?.collect())).await
    }

    /// Does a blocking lookup. The lookup keeps its place until it ends, even if no caller waits for its result any more.
    async fn run<T: Send + 'static>(&self, lookup: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let place = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let found = tokio::task::spawn_blocking(move || {
            let found = lookup();
            drop(place);
            found
        });
        found.await.map_err(io::Error::other)?
    }
}

impl Resolve for Lookups {
    fn resolve(&self, name: Name) -> Resolving {
        let lookups = self.clone();
        Box::pin(async move {
            let addresses = lookups.addresses(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> NetworkRuntime {
        NetworkRuntime::new(NetworkThreads { name: "mcp-test", workers: 1, blocking: LOOKUPS_OF_CLIENT + 1 })
    }

    #[tokio::test]
    async fn work_has_threads_of_its_own_and_ends_with_its_caller() {
        let runtime = runtime();
        let name = runtime.run(async { std::thread::current().name().map(str::to_owned) }).await.unwrap();
        assert_eq!(name.as_deref(), Some("mcp-test"));
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
        assert!(matches!(runtime.run(async {}).await, Err(NetworkUnavailable::Ended)));
    }

    #[tokio::test]
    async fn names_that_are_never_answered_take_no_thread_of_another_client() {
        let runtime = runtime();
        let (tarpit, other) = (Lookups::default(), Lookups::default());
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..3 * LOOKUPS_OF_CLIENT {
            let (tarpit, released) = (tarpit.clone(), Arc::clone(&released));
            // Each lookup lasts until the test ends, even if its caller stops waiting.
            let lookup = async move { tarpit.run(move || released.lock().recv().map_err(io::Error::other)).await };
            runtime.handle().unwrap().spawn(lookup);
        }
        while tarpit.0.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let looking = runtime.run(async move { other.addresses("127.0.0.1").await });
        let found = tokio::time::timeout(Duration::from_secs(20), looking).await.expect("another client has a thread");
        let found = found.unwrap().unwrap();
        assert_eq!(found, ["127.0.0.1:0".parse().unwrap()]);
        drop(release);
    }
}
