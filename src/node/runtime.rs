//! The state that the JavaScript objects of a gateway share: the tokio runtime and its shutdown.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;

use super::events::EventSink;
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::gateway::Gateway;
use hyperlight_mcp::redact::Redactor;

/// The number of tokio worker threads. They settle calls. Each run of a guest has its own thread.
const WORKERS: usize = 2;

/// The state that the gateway's object, its sandboxes and the pending promises share. The gateway is ended when the last of these objects
/// is dropped, because nobody can use it any more. This runtime is not napi's runtime, because that runtime delays Node's exit.
#[derive(Clone)]
pub(super) struct GatewayRuntime(Arc<Shared>);

struct Shared {
    runtime: Mutex<Running>,
    /// The tasks, each of which has to settle a promise. The runtime exists until all of them have ended.
    tasks: TaskTracker,
    closing: AtomicBool,
    gateway: OnceLock<Gateway>,
    events: OnceLock<EventSink>,
}

struct Running {
    /// The runtime. `None` after the shutdown. No handle of the runtime is stored elsewhere, because a handle keeps the runtime's file
    /// descriptors open.
    runtime: Option<Runtime>,
    /// The number of running tasks that started after [`GatewayRuntime::begin_close`]. One of them closes the gateway itself.
    late: usize,
    /// True if the runtime must be shut down when no late task is left.
    has_ended: bool,
}

impl Running {
    /// Removes and returns the runtime if it is no longer needed.
    fn ended(&mut self) -> Option<Runtime> {
        if self.has_ended && self.late == 0 { self.runtime.take() } else { None }
    }
}

/// A late task, which started after [`GatewayRuntime::begin_close`]. It is counted until it ends or is dropped.
struct LateTask(Arc<Shared>);

impl Drop for LateTask {
    fn drop(&mut self) {
        let mut running = self.0.runtime.lock();
        running.late -= 1;
        let ended = running.ended();
        drop(running);
        shut_down(ended);
    }
}

impl GatewayRuntime {
    pub(super) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("hyperlight-mcp").enable_all().build();
        let runtime = runtime.map_err(|error| Error::io("a runtime", &error).redacted(&Redactor::new(None, None)))?;
        Ok(Self(Arc::new(Shared {
            runtime: Mutex::new(Running { runtime: Some(runtime), late: 0, has_ended: false }),
            tasks: TaskTracker::new(),
            closing: AtomicBool::new(false),
            gateway: OnceLock::new(),
            events: OnceLock::new(),
        })))
    }

    /// Sets the gateway. The gateway is ended when the last of its objects is dropped.
    pub(super) fn own(&self, gateway: Gateway) {
        let _ = self.0.gateway.set(gateway);
    }

    /// Sets the sink for the gateway's events. Outcomes are sent after these events.
    pub(super) fn tell_by(&self, events: Option<EventSink>) {
        if let Some(events) = events {
            let _ = self.0.events.set(events);
        }
    }

    /// Returns the sink for the gateway's events.
    pub(super) fn events(&self) -> Option<EventSink> {
        self.0.events.get().cloned()
    }

    /// Returns a handle of the runtime.
    ///
    /// # Errors
    /// `ERR_CLOSED` after the runtime was shut down.
    pub(super) fn handle(&self) -> Result<Handle> {
        let running = self.0.runtime.lock();
        running.runtime.as_ref().map(|runtime| runtime.handle().clone()).ok_or(Error::Closed { what: "gateway" })
    }

    /// Runs work on the runtime, or on a separate thread after the shutdown. Work that cannot run is dropped. It must settle its promise
    /// even if it is dropped.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.0.runtime.lock();
        let Some(runtime) = &running.runtime else {
            drop(running);
            return run_apart(work);
        };
        let handle = runtime.handle().clone();
        if !self.0.closing.load(Ordering::Acquire) {
            drop(running);
            self.0.tasks.spawn_on(work, &handle);
            return;
        }
        // When the gateway is closed, it does not wait for late tasks.
        running.late += 1;
        drop(running);
        let late = LateTask(Arc::clone(&self.0));
        handle.spawn(async move {
            work.await;
            drop(late);
        });
    }

    /// Starts to close the gateway. Closing does not wait for work that starts from now on. Returns a future that resolves when all earlier
    /// work has settled its promises.
    pub(super) fn begin_close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.closing.store(true, Ordering::Release);
        self.0.tasks.close();
        let tasks = self.0.tasks.clone();
        async move { tasks.wait().await }
    }

    /// Ends the runtime's threads when no late task is left. Does not wait for the threads.
    pub(super) fn shut_down(&self) {
        let mut running = self.0.runtime.lock();
        running.has_ended = true;
        let ended = running.ended();
        drop(running);
        shut_down(ended);
    }
}

/// Runs work after the runtime was shut down, for example to report that everything is closed. This function opens no file descriptor,
/// because none may be left open.
fn run_apart(work: impl Future<Output = ()> + Send + 'static) {
    // The future of a call is large. Without the box, it would be moved several times on the small stack of the thread.
    let work = Box::pin(work);
    let thread = std::thread::Builder::new().name("hyperlight-mcp-late".to_owned()).spawn(move || {
        if let Ok(runtime) = Builder::new_current_thread().enable_time().build() {
            runtime.block_on(work);
        }
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "cannot start a thread for a call after the gateway was closed");
    }
}

/// Shuts down a runtime. The caller must hold no lock, because the runtime's tasks are dropped with everything that they own.
fn shut_down(runtime: Option<Runtime>) {
    if let Some(runtime) = runtime {
        runtime.shutdown_background();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.get() {
            gateway.kill();
        }
        shut_down(self.runtime.get_mut().runtime.take());
    }
}
