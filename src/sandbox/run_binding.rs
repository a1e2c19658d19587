//! The binding of a VM's host functions to a run. While a VM is prepared, it has no run. Later it has exactly one run. After that run, it
//! has none again.

use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyperlight_host::HyperlightError;
use hyperlight_host::hypervisor::InterruptHandle;

use super::features::GuestFeatures;
use super::log::LogLevel;
use super::value::Wire;

/// The host functions that a run provides for its guest. Only [`RunBinding::dispatch`] calls them.
pub(super) trait GuestCalls: Send + Sync + 'static {
    /// Returns whether the guest may continue. After this method has returned false once, it always returns false.
    fn goes_on(&self) -> bool;
    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8>;
    /// Starts concurrent calls, and returns the replies to the calls that have ended.
    fn exchange(&self, frame: &[u8]) -> Vec<u8>;
    fn log(&self, level: LogLevel, text: String);
    fn input(&self) -> Vec<u8>;
    fn finish(&self, frame: Vec<u8>);
    /// Returns this number of random bytes. Returns no bytes if `count` is too large.
    fn random(&self, count: u64) -> Vec<u8>;
    /// Returns the time since the start of the run, on a monotonic clock.
    fn elapsed(&self) -> Duration;
    /// Returns the start of the run, as the duration since 1970.
    fn started(&self) -> Duration;
    /// Waits until this time has passed or the run has ended.
    fn sleep(&self, duration: Duration);
    /// Returns whether a module with this name exists.
    fn knows(&self, module: &str) -> bool;
    /// Returns the source of a module.
    fn load(&self, module: &str) -> Option<String>;
}

/// Connects a VM's host functions to one run at a time.
pub(super) struct RunBinding {
    run: RwLock<Arc<dyn GuestCalls>>,
    /// The handle that can stop the VM.
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

    /// Binds the VM's calls to a run.
    pub(super) fn bind(&self, run: Arc<dyn GuestCalls>) {
        *self.run.write() = run;
    }

    /// Removes the binding, so that the VM keeps no data of the run.
    pub(super) fn unbind(&self) {
        self.bind(Arc::new(NoRun));
    }

    /// Forwards a guest's call to the guest's run, and returns the answer. If the run ends before or during the call, the guest gets no
    /// answer: the VM is stopped before the guest executes another instruction.
    ///
    /// # Errors
    /// An error if the run has ended. The guest never sees this error.
    pub(super) fn dispatch<T>(&self, question: impl FnOnce(&dyn GuestCalls) -> T) -> Result<T, HyperlightError> {
        let run = Arc::clone(&self.run.read());
        let answer = run.goes_on().then(|| question(run.as_ref())).filter(|_| run.goes_on());
        answer.ok_or_else(|| {
            // The guest waits for this host call, and the VM is not entered again after `kill`. So it is not necessary to wait until the VM
            // has stopped.
            if let Some(vm) = self.vm.get() {
                vm.kill();
            }
            HyperlightError::Error("the run has ended".to_owned())
        })
    }
}

/// Answers the calls of a guest that is booted or prepared, and therefore has no run.
struct NoRun;

/// The code that prepares a VM. It writes to the memory pages to which every run writes: for modules, calls, values and a log.
pub(super) const WARM_UP_SOURCE: &str = include_str!("ready.js");

/// The name of the module that checks whether a VM can run code. The module is as small as possible, because a run waits for this check.
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

    /// Returns no bytes. If it returned bytes, they would become part of the snapshot, and every run would get the same bytes.
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
            _ if let Some(globals) = GuestFeatures::source(module) => Some(globals.to_owned()),
            _ => module.starts_with("agent:ready").then(|| WARM_UP_SOURCE.to_owned()),
        }
    }
}

/// Encodes plain JSON as a frame. Encoding fails only for more than 4 GiB.
fn frame(json: &str) -> Vec<u8> {
    Wire { json: json.to_owned(), blobs: Vec::new() }.to_frame().unwrap_or_default()
}
