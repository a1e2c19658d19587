//! Stops the guest of a run from outside: at the deadline, when the guest's own time is over, or on request.

use std::sync::Arc;
use std::time::Duration;

use hyperlight_host::MultiUseSandbox;
use hyperlight_host::hypervisor::InterruptHandle;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::compute_time::ComputeTime;
use super::deadline::Deadline;
use super::stop::{Stop, StopReason};

/// The interval between two attempts to stop a guest. The attempts are repeated because a kill has no effect while the VM is not running
/// yet.
const KILL_INTERVAL: Duration = Duration::from_millis(2);

/// Watches a run, and stops its guest at the deadline, when the guest's own time is over, or on request. Dropping this value ends the
/// watch.
pub(super) struct Watch {
    done: CancellationToken,
}

impl Watch {
    pub(super) fn start(guest: &MultiUseSandbox, runtime: &Handle, stop: Stop, deadline: Deadline, time: Arc<ComputeTime>) -> Self {
        let done = CancellationToken::new();
        let killer = Killer { guest: guest.interrupt_handle(), done: done.clone() };
        runtime.spawn(async move {
            tokio::select! {
                () = killer.done.cancelled() => {}
                () = stop.stopped() => {}
                () = deadline.passed() => stop.stop(StopReason::Deadline),
                () = time.passed() => stop.stop(StopReason::Compute { limit_ms: time.limit_ms() }),
            }
            // If the run is not done, dropping `killer` stops the guest. `killer` is dropped at this point, or when the runtime ends. In
            // the second case, nothing else would stop the guest.
        });
        Self { done }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.cancel();
    }
}

struct Killer {
    guest: Arc<dyn InterruptHandle>,
    done: CancellationToken,
}

impl Drop for Killer {
    fn drop(&mut self) {
        if self.done.is_cancelled() {
            return;
        }
        let (guest, done) = (Arc::clone(&self.guest), self.done.clone());
        // `kill` waits for the virtual CPU, so it needs a separate thread. The call is repeated until the run ends, because a kill before
        // the VM runs has no effect.
        let thread = std::thread::Builder::new().name("hyperlight-mcp-kill".to_owned()).spawn(move || {
            while !done.is_cancelled() {
                guest.kill();
                std::thread::sleep(KILL_INTERVAL);
            }
        });
        if let Err(error) = thread {
            tracing::error!(%error, "cannot start the thread that stops the guest; stopping the guest on this thread");
            self.guest.kill();
        }
    }
}
