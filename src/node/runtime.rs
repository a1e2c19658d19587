//! What a gateway's JavaScript objects share: its tokio runtime, and the end of it all.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;

use super::events::EventSink;
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::redact::Redactor;

/// Threads that resolve calls. Each guest has one of its own besides.
const WORKERS: usize = 2;

/// Held by the gateway's object, its sandboxes and the promises that are pending. When the last of them is gone, nobody can
/// reach the gateway any more, and it is ended. Its runtime is never napi's: that one holds up Node's exit.
#[derive(Clone)]
pub(super) struct Core(Arc<Shared>);

struct Shared {
    runtime: Mutex<Running>,
    /// The tasks that each have a promise to settle: the runtime lives until they have.
    tasks: TaskTracker,
    closing: AtomicBool,
    gateway: OnceLock<Gateway>,
    events: OnceLock<EventSink>,
}

struct Running {
    /// `None` once it was shut down. No handle of it is kept elsewhere: one keeps its descriptors open.
    runtime: Option<Runtime>,
    /// Tasks that began after [`Core::begin_close`], the end of the gateway itself among them.
    late: usize,
    /// The runtime is to be shut down when no late task is left.
    has_ended: bool,
}

impl Running {
    /// Takes the runtime out where nothing needs it any more.
    fn ended(&mut self) -> Option<Runtime> {
        if self.has_ended && self.late == 0 { self.runtime.take() } else { None }
    }
}

/// A late task, until it has ended or was dropped.
struct Late(Arc<Shared>);

impl Drop for Late {
    fn drop(&mut self) {
        let mut running = self.0.runtime.lock();
        running.late -= 1;
        let ended = running.ended();
        drop(running);
        shut_down(ended);
    }
}

impl Core {
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

    /// Returns a handle of the runtime.
    ///
    /// # Errors
    /// `ERR_CLOSED` once it was shut down.
    pub(super) fn handle(&self) -> Result<Handle> {
        let running = self.0.runtime.lock();
        running.runtime.as_ref().map(|runtime| runtime.handle().clone()).ok_or(Error::Closed { what: "gateway" })
    }

    /// Runs on the runtime for as long as there is one, and then on a thread of its own. Work that cannot run is dropped: it must settle
    /// its promise all the same.
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
        // Not among those that the end of the gateway waits for: it is late itself.
        running.late += 1;
        drop(running);
        let late = Late(Arc::clone(&self.0));
        handle.spawn(async move {
            work.await;
            drop(late);
        });
    }

    /// From now on nothing new starts that the gateway's end waits for. Gives what resolves when all that began before has settled its
    /// promise.
    pub(super) fn begin_close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.closing.store(true, Ordering::Release);
        self.0.tasks.close();
        let tasks = self.0.tasks.clone();
        async move { tasks.wait().await }
    }

    /// Ends the threads once no late task is left, without waiting for them.
    pub(super) fn shut_down(&self) {
        let mut running = self.0.runtime.lock();
        running.has_ended = true;
        let ended = running.ended();
        drop(running);
        shut_down(ended);
    }
}

/// Runs what is left to do once the runtime is gone: to say that all is closed. It needs no file descriptor, as there may be none.
fn run_apart(work: impl Future<Output = ()> + Send + 'static) {
    let thread = std::thread::Builder::new().name("hyperlight-mcp-late".to_owned()).spawn(move || {
        if let Ok(runtime) = Builder::new_current_thread().enable_time().build() {
            runtime.block_on(work);
        }
    });
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for a call after the gateway's end");
    }
}

/// Not while anything is locked: with a runtime go its tasks, and with them what they hold.
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
