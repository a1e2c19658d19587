//! What a gateway's JavaScript objects share: its tokio runtime, and the end of it all.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;

use super::events::EventSink;
use crate::error::{Error, Result};
use crate::gateway::Gateway;

/// Threads that resolve calls. Each guest has one of its own besides.
const WORKERS: usize = 2;

/// Held by the gateway's object, its sandboxes and the promises that are pending. When the last of them is gone, nobody can
/// reach the gateway any more, and it is ended. Its runtime is never napi's: that one holds up Node's exit.
#[derive(Clone)]
pub(super) struct Core(Arc<Shared>);

struct Shared {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    /// The tasks that each have a promise to settle: the runtime lives until they have.
    tasks: TaskTracker,
    closing: AtomicBool,
    gateway: OnceLock<Gateway>,
    events: OnceLock<EventSink>,
}

impl Core {
    pub(super) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("hyperlight-mcp").enable_all().build();
        let runtime = runtime.map_err(|error| Error::io("a runtime", &error))?;
        let handle = runtime.handle().clone();
        Ok(Self(Arc::new(Shared {
            handle,
            runtime: Mutex::new(Some(runtime)),
            tasks: TaskTracker::new(),
            closing: AtomicBool::new(false),
            gateway: OnceLock::new(),
            events: OnceLock::new(),
        })))
    }

    /// Makes the gateway end with the last of its objects.
    pub(super) fn own(&self, gateway: Gateway) {
        let _ = self.0.gateway.set(gateway);
    }

    /// Has outcomes wait for the gateway's events.
    pub(super) fn tell_by(&self, events: Option<EventSink>) {
        if let Some(events) = events {
            let _ = self.0.events.set(events);
        }
    }

    /// Where what happens with the gateway is told.
    pub(super) fn events(&self) -> Option<EventSink> {
        self.0.events.get().cloned()
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.0.handle
    }

    /// Runs on the runtime; once that is being closed, on a thread of its own: all that is left then is to say so.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.0.closing.load(Ordering::Acquire) {
            self.0.tasks.spawn_on(work, &self.0.handle);
            return;
        }
        std::thread::spawn(|| {
            if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
                runtime.block_on(work);
            }
        });
    }

    /// From now on nothing new starts on the runtime. Gives what resolves when all that runs there has settled its promise.
    pub(super) fn begin_close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.closing.store(true, Ordering::Release);
        self.0.tasks.close();
        let tasks = self.0.tasks.clone();
        async move { tasks.wait().await }
    }

    /// Ends the threads without waiting for them.
    pub(super) fn shut_down(&self) {
        self.0.shut_down();
    }
}

impl Shared {
    fn shut_down(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.get() {
            gateway.kill();
        }
        self.shut_down();
    }
}
