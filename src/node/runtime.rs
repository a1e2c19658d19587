//! The tokio runtime of one gateway, and its end.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};

/// Threads that resolve calls. Each guest has one of its own besides.
const WORKERS: usize = 2;

/// A gateway's runtime. Never napi's: that one holds up Node's exit.
#[derive(Clone)]
pub(super) struct Core {
    runtime: Arc<Mutex<Option<Runtime>>>,
    handle: Handle,
}

impl Core {
    pub(super) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).thread_name("hyperlight-mcp").enable_all().build();
        let runtime = runtime.map_err(|error| Error::io("a runtime", &error))?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Arc::new(Mutex::new(Some(runtime))) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs on the runtime; after its end, on a thread of its own: all that is left then is to say that it is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if runtime.is_some() {
            self.handle.spawn(work);
            return;
        }
        drop(runtime);
        std::thread::spawn(|| {
            if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
                runtime.block_on(work);
            }
        });
    }

    /// Ends the threads without waiting for them.
    pub(super) fn shut_down(&self) {
        if let Some(runtime) = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}
