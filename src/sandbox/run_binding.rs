//! The binding of a VM's host functions to a run: no run while the VM is made ready, then exactly one run, then none again.

use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyperlight_host::HyperlightError;
use hyperlight_host::hypervisor::InterruptHandle;

use super::log::LogLevel;
use super::value::Wire;

/// The host functions that a run provides to its guest. Only [`RunBinding::dispatch`] calls them.
pub(super) trait GuestCalls: Send + Sync + 'static {
    /// Returns whether the guest may continue. Once false, it stays false.
    fn goes_on(&self) -> bool;
    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8>;
    /// Takes in concurrent calls, and returns the replies of those that have ended.
    fn exchange(&self, frame: &[u8]) -> Vec<u8>;
    fn log(&self, level: LogLevel, text: String);
    fn input(&self) -> Vec<u8>;
    fn finish(&self, frame: Vec<u8>);
    /// Returns this many bytes of entropy, or none if that is too many.
    fn random(&self, count: u64) -> Vec<u8>;
    /// Returns the time since the run's start, on a monotonic clock.
    fn elapsed(&self) -> Duration;
    /// Returns the run's start as time since 1970.
    fn started(&self) -> Duration;
    /// Waits until this time has passed, or the run has ended.
    fn sleep(&self, duration: Duration);
    /// Returns whether there is a module of this name.
    fn knows(&self, module: &str) -> bool;
    /// Returns the source of a module.
    fn load(&self, module: &str) -> Option<String>;
}

/// Connects a VM's host functions to one run at a time.
pub(super) struct RunBinding {
    run: RwLock<Arc<dyn GuestCalls>>,
    /// Ends the VM that this binding belongs to.
    vm: OnceLock<Arc<dyn InterruptHandle>>,
}

impl Default for RunBinding {
    fn default() -> Self {
        Self { run: RwLock::new(Arc::new(NoRun)), vm: OnceLock::new() }
    }
}

impl RunBinding {
    /// Sets the VM whose calls this binding dispatches.
    pub(super) fn set_vm(&self, vm: Arc<dyn InterruptHandle>) {
        // A binding belongs to one VM.
        let _ = self.vm.set(vm);
    }

    /// Binds the VM's calls to this run.
    pub(super) fn bind(&self, run: Arc<dyn GuestCalls>) {
        *self.run.write() = run;
    }

    /// Ends the binding to the run, so that nothing of the run is kept with the VM.
    pub(super) fn unbind(&self) {
        self.bind(Arc::new(NoRun));
    }

    /// Passes a guest's call to its run and returns the answer. If the run has ended, before or during the call, the guest gets no answer:
    /// it is ended before it executes anything more.
    ///
    /// # Errors
    /// An error if the run has ended, which no guest reads.
    pub(super) fn dispatch<T>(&self, question: impl FnOnce(&dyn GuestCalls) -> T) -> Result<T, HyperlightError> {
        let run = Arc::clone(&self.run.read());
        let answer = run.goes_on().then(|| question(run.as_ref())).filter(|_| run.goes_on());
        answer.ok_or_else(|| {
            // The guest has exited to the host on this thread, and is not entered again: there is nothing to wait for.
            if let Some(vm) = self.vm.get() {
                vm.kill();
            }
            HyperlightError::Error("the run has ended".to_owned())
        })
    }
}

/// Answers calls while a guest boots or is made ready, when there is no run.
struct NoRun;

/// The code that a VM runs to be made ready. It writes the pages that every run writes: modules, calls, values and a log.
pub(super) const WARM_UP_SOURCE: &str = include_str!("ready.js");

/// The module that shows whether a VM can run code. It is minimal, as a run waits for it.
pub(super) const PROBE: &str = "agent:tried";
const PROBE_SOURCE: &str = "export const handler = () => 0;";

impl GuestCalls for NoRun {
    fn goes_on(&self) -> bool {
        true
    }

    fn call(&self, _module: String, _function: String, _frame: &[u8]) -> Vec<u8> {
        frame(r#"{"value":{"list":[1,2.5,"three",null,true]}}"#)
    }

    fn exchange(&self, _frame: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn log(&self, level: LogLevel, text: String) {
        tracing::trace!(%level, text, "the guest wrote before it had a run");
    }

    fn input(&self) -> Vec<u8> {
        frame("null")
    }

    fn finish(&self, frame: Vec<u8>) {
        tracing::trace!(bytes = frame.len(), "a guest is ready");
    }

    /// Returns no entropy: every run would get the same bytes from the snapshot.
    fn random(&self, _count: u64) -> Vec<u8> {
        Vec::new()
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    fn started(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _duration: Duration) {}

    fn knows(&self, module: &str) -> bool {
        self.load(module).is_some()
    }

    fn load(&self, module: &str) -> Option<String> {
        match module {
            PROBE => Some(PROBE_SOURCE.to_owned()),
            _ => module.starts_with("agent:ready").then(|| WARM_UP_SOURCE.to_owned()),
        }
    }
}

/// Returns a frame of plain JSON. Encoding fails only beyond 4 GiB.
fn frame(json: &str) -> Vec<u8> {
    Wire { json: json.to_owned(), blobs: Vec::new() }.to_frame().unwrap_or_default()
}
