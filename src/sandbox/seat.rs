//! Whom a VM's calls reach: nobody while it is made ready, then the one run that has taken it, then nobody again.

use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyperlight_host::HyperlightError;
use hyperlight_host::hypervisor::InterruptHandle;

use super::log::LogLevel;
use super::value::Wire;

/// What a run does about the calls of its guest. Each is asked by [`Seat::ask`] alone.
pub(super) trait GuestCalls: Send + Sync + 'static {
    /// Returns whether the guest may still go on. Once it may not, it never may again.
    fn goes_on(&self) -> bool;
    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8>;
    /// Takes calls that are made at the same time, and gives those that have ended.
    fn exchange(&self, frame: &[u8]) -> Vec<u8>;
    fn log(&self, level: LogLevel, text: String);
    fn input(&self) -> Vec<u8>;
    fn finish(&self, frame: Vec<u8>);
    /// So many bytes of entropy, or none where so many are not given.
    fn random(&self, count: u64) -> Vec<u8>;
    /// Since the run's start, on a clock that only goes forward.
    fn elapsed(&self) -> Duration;
    /// The run's start, since 1970.
    fn started(&self) -> Duration;
    /// Returns when so much time has passed, or the run has ended.
    fn sleep(&self, duration: Duration);
    /// Returns whether there is a module of this name.
    fn knows(&self, module: &str) -> bool;
    /// The source of a module.
    fn load(&self, module: &str) -> Option<String>;
}

/// A place that one run at a time takes.
pub(super) struct Seat {
    occupant: RwLock<Arc<dyn GuestCalls>>,
    /// Ends the VM that the seat is in.
    vm: OnceLock<Arc<dyn InterruptHandle>>,
}

impl Default for Seat {
    fn default() -> Self {
        Self { occupant: RwLock::new(Arc::new(Nobody)), vm: OnceLock::new() }
    }
}

impl Seat {
    /// The VM has been made whose calls come by here.
    pub(super) fn is_in(&self, vm: Arc<dyn InterruptHandle>) {
        // A seat is in one VM.
        let _ = self.vm.set(vm);
    }

    /// The calls are this run's from here on.
    pub(super) fn take(&self, run: Arc<dyn GuestCalls>) {
        *self.occupant.write() = run;
    }

    /// The run has ended: nothing of it is kept with the VM.
    pub(super) fn leave(&self) {
        self.take(Arc::new(Nobody));
    }

    /// What the run says to a call of its guest. Where the run has ended, before the call or during it, the guest gets no answer: it is
    /// ended instead, before it executes anything more.
    ///
    /// # Errors
    /// The run has ended. No guest reads that.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&dyn GuestCalls) -> T) -> Result<T, HyperlightError> {
        let run = Arc::clone(&self.occupant.read());
        let answer = run.goes_on().then(|| question(run.as_ref())).filter(|_| run.goes_on());
        answer.ok_or_else(|| {
            // The guest is outside of its VM, on this thread: it is not entered again, and nothing is waited for.
            if let Some(vm) = self.vm.get() {
                vm.kill();
            }
            HyperlightError::Error("the run has ended".to_owned())
        })
    }
}

/// While a guest boots and is made ready there is no run to answer for.
struct Nobody;

/// What a VM runs to be made ready, so that the pages that every run writes are its own: modules, calls, values and a log.
pub(super) const READYING_SOURCE: &str = include_str!("ready.js");

/// What a VM runs to see whether it can: as little as there is, since somebody waits for it.
pub(super) const TRIED: &str = "agent:tried";
const TRIED_SOURCE: &str = "export const handler = () => 0;";

impl GuestCalls for Nobody {
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

    /// None: what every run had from the snapshot would be no entropy.
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
            TRIED => Some(TRIED_SOURCE.to_owned()),
            _ => module.starts_with("agent:ready").then(|| READYING_SOURCE.to_owned()),
        }
    }
}

/// A frame of plain JSON. It fails only beyond 4 GiB.
fn frame(json: &str) -> Vec<u8> {
    Wire { json: json.to_owned(), blobs: Vec::new() }.to_frame().unwrap_or_default()
}
