//! Whom a VM's calls reach: nobody while it is made ready, then the one run that has taken it, then nobody again.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::value::Wire;

/// What a run does about the calls of its guest.
pub(super) trait GuestCalls: Send + Sync + 'static {
    fn call(&self, module: String, function: String, frame: &[u8]) -> Vec<u8>;
    /// Takes calls that are made at the same time, and gives those that have ended.
    fn exchange(&self, frame: &[u8]) -> Vec<u8>;
    fn log(&self, level: &str, text: String);
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
    /// Whether there is a module of this name.
    fn knows(&self, module: &str) -> bool;
    /// The source of a module.
    fn load(&self, module: &str) -> Option<String>;
}

/// A place that one run at a time takes.
pub(super) struct Seat(RwLock<Arc<dyn GuestCalls>>);

impl Default for Seat {
    fn default() -> Self {
        Self(RwLock::new(Arc::new(Nobody)))
    }
}

impl Seat {
    /// The calls are this run's from here on.
    pub(super) fn take(&self, run: Arc<dyn GuestCalls>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = run;
    }

    /// The run has ended: nothing of it is kept with the VM.
    pub(super) fn leave(&self) {
        self.take(Arc::new(Nobody));
    }

    /// Who answers.
    pub(super) fn occupant(&self) -> Arc<dyn GuestCalls> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
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
    fn call(&self, _module: String, _function: String, _frame: &[u8]) -> Vec<u8> {
        frame(r#"{"value":{"list":[1,2.5,"three",null,true]}}"#)
    }

    fn exchange(&self, _frame: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn log(&self, level: &str, text: String) {
        tracing::trace!(level, text, "the guest wrote before it had a run");
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
