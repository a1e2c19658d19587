//! VMs that are kept ready, so that a run does not wait for one to be made. A run takes a VM and it is thrown away after; making and
//! throwing away happen on a thread of the pool's, which ends where nothing has run for a time.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_host::HyperlightError;
use serde::{Deserialize, Serialize};

use super::image::{GuestImage, Vm};

/// What a VM that waits takes of the process's memory, above what was measured (docs/PERFORMANCE.md): the pages that it has copied,
/// its page tables, and what the host keeps for it.
const READY_VM_BYTES: u64 = 4 << 20;

/// A keeper that was just started makes the first VM after this, or after a run.
const GRACE: Duration = Duration::from_millis(15);

/// VMs that are kept ready: `warm` in `Gateway.open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WarmVms {
    /// How many wait at most; 0 for none. Default 2.
    pub vms: usize,
    /// What they may take together, at 4 MiB each. Default 64 MiB.
    pub max_bytes: u64,
    /// After so long without a run they are given up, until the next run. Default 60,000.
    pub idle_ms: u64,
}

impl Default for WarmVms {
    fn default() -> Self {
        Self { vms: 2, max_bytes: 64 << 20, idle_ms: 60_000 }
    }
}

impl WarmVms {
    /// How many wait: as many as were asked for, and as have room.
    ///
    /// ```
    /// use hyperlight_mcp::sandbox::WarmVms;
    /// assert_eq!(WarmVms::default().target(), 2);
    /// assert_eq!(WarmVms { vms: 8, max_bytes: 9 << 20, ..WarmVms::default() }.target(), 2);
    /// ```
    #[must_use]
    pub fn target(&self) -> usize {
        self.vms.min(usize::try_from(self.max_bytes / READY_VM_BYTES).unwrap_or(usize::MAX))
    }

    fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

/// The pool of one image.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    settings: WarmVms,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: Vec<Vm>,
    /// Of runs that have ended.
    used: Vec<Vm>,
    /// Runs that are under way. While there are some, no VM is made beside them, unless none is ready.
    running: usize,
    keeper: Keeper,
    /// Whether a run waits for the VM that is being made: one at most, as the next to be made is a whole VM later.
    awaited: bool,
    /// No VM is made until there is a run again.
    rests: bool,
    closed: bool,
}

/// The thread that makes VMs and throws them away.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    #[default]
    None,
    Works,
    /// It is making a VM just now.
    Makes,
}

/// What the keeper does next. Decided on plain facts.
#[derive(Debug, PartialEq, Eq)]
enum Errand {
    ThrowAway,
    Make,
    Wait,
    End,
}

impl State {
    fn errand(&self, target: usize) -> Errand {
        match () {
            () if !self.used.is_empty() => Errand::ThrowAway,
            () if self.closed => Errand::End,
            () if self.rests => Errand::Wait,
            // Beside runs, a VM is made only where the next run would find none: they share the machine.
            () if self.ready.len() < target && (self.running == 0 || self.ready.is_empty()) => Errand::Make,
            () => Errand::Wait,
        }
    }
}

impl Pool {
    pub(super) fn new(settings: WarmVms) -> Self {
        Self { shared: Arc::new(Shared { settings, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Has VMs made, as many as are to wait.
    pub(super) fn fill(&self, image: &GuestImage) {
        let mut state = self.shared.lock();
        state.rests = false;
        self.wake(image, &mut state);
    }

    /// A VM for a run: one that is ready, or about to be, or else a new one. [`Pool::give_back`] takes it after the run.
    pub(super) fn take(&self, image: &GuestImage) -> Result<Vm, HyperlightError> {
        let ready = {
            let mut state = self.shared.lock();
            state.running += 1;
            state.rests = false;
            // Its pages are being copied already: making another beside it would take longer for both.
            if state.ready.is_empty() && state.keeper == Keeper::Makes && !state.awaited {
                state = self.shared.wait_for_one(state);
            }
            let ready = std::iter::from_fn(|| state.ready.pop()).find(Vm::is_sound);
            if state.ready.is_empty() {
                self.wake(image, &mut state);
            }
            ready
        };
        ready.map_or_else(|| image.start(), Ok).inspect_err(|_| self.shared.lock().running -= 1)
    }

    /// The run has ended. The VM is thrown away, whatever has become of it.
    pub(super) fn give_back(&self, image: &GuestImage, vm: Vm) {
        let mut state = self.shared.lock();
        state.running -= 1;
        state.used.push(vm);
        self.wake(image, &mut state);
    }

    /// Gives up the VMs that wait, until there is a run again.
    pub(super) fn rest(&self) {
        let mut state = self.shared.lock();
        state.rests = true;
        let (ready, used) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.used));
        self.shared.changed.notify_all();
        drop(state);
        drop((ready, used));
    }

    /// Gives up the VMs that wait, for good.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.rest();
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Tells the keeper that there is something to do, and starts it where there is none.
    fn wake(&self, image: &GuestImage, state: &mut State) {
        if state.keeper != Keeper::None {
            self.shared.changed.notify_all();
            return;
        }
        let (shared, image) = (Arc::clone(&self.shared), image.clone());
        let thread = std::thread::Builder::new().name("hyperlight-mcp-warm".to_owned());
        match thread.spawn(move || shared.keep(&image)) {
            Ok(_) => state.keeper = Keeper::Works,
            // Runs make their own VMs; those that have been used go here.
            Err(error) => {
                tracing::warn!(%error, "no thread to keep VMs ready with");
                state.used.clear();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until the VM that is being made is ready, or cannot be made.
    fn wait_for_one<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.awaited = true;
        let not_yet = |state: &mut State| state.ready.is_empty() && state.keeper == Keeper::Makes;
        self.changed.wait_while(&mut state, not_yet);
        state.awaited = false;
        state
    }

    /// The keeper's work, to its end: the pool was closed, nothing has run for a time, or no VM can be made.
    fn keep(&self, image: &GuestImage) {
        let target = self.settings.target();
        // Whoever has booted mostly runs something at once: that run has the machine to itself.
        let nothing_ran = |state: &mut State| state.used.is_empty() && !state.closed;
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, nothing_ran, GRACE);
        let mut since = Instant::now();
        loop {
            match state.errand(target) {
                Errand::ThrowAway => {
                    let used = std::mem::take(&mut state.used);
                    drop(state);
                    drop(used);
                    since = Instant::now();
                    state = self.lock();
                }
                Errand::Make => {
                    state.keeper = Keeper::Makes;
                    drop(state);
                    // However it ends, somebody may wait for it.
                    let made = catch_unwind(AssertUnwindSafe(|| ready_vm(image)));
                    let made = made.unwrap_or_else(|_| Err(HyperlightError::Error("a panic".to_owned())));
                    state = self.lock();
                    state.keeper = Keeper::Works;
                    since = Instant::now();
                    self.changed.notify_all();
                    match made {
                        // Nobody wants it any more.
                        Ok(vm) if state.rests && !state.awaited => state.used.push(vm),
                        Ok(vm) => state.ready.push(vm),
                        Err(error) => {
                            tracing::warn!(%error, "no VM could be made ready: runs start with new ones");
                            break;
                        }
                    }
                }
                Errand::Wait => {
                    let left = self.settings.idle().saturating_sub(since.elapsed());
                    if left.is_zero() && state.running == 0 {
                        let ready = std::mem::take(&mut state.ready);
                        state.keeper = Keeper::None;
                        drop(state);
                        drop(ready);
                        return;
                    }
                    // While something runs it is not idle, however long that takes.
                    let left = if left.is_zero() { self.settings.idle() } else { left };
                    self.changed.wait_for(&mut state, left);
                }
                Errand::End => {
                    state.ready.clear();
                    break;
                }
            }
        }
        state.keeper = Keeper::None;
    }
}

fn ready_vm(image: &GuestImage) -> Result<Vm, HyperlightError> {
    let mut vm = image.start()?;
    vm.make_ready()?;
    Ok(vm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_runs_vms_are_made_until_enough_wait() {
        let state = State::default();
        assert_eq!(state.errand(2), Errand::Make);
        assert_eq!(state.errand(0), Errand::Wait);
    }

    #[test]
    fn beside_a_run_one_is_made_only_where_none_is_ready() {
        let state = State { running: 1, ..State::default() };
        assert_eq!(state.errand(2), Errand::Make);
    }

    #[test]
    fn a_pool_that_is_closed_or_rests_makes_none() {
        assert_eq!(State { closed: true, ..State::default() }.errand(2), Errand::End);
        assert_eq!(State { rests: true, ..State::default() }.errand(2), Errand::Wait);
    }

    #[test]
    fn the_cap_on_memory_holds_before_the_number() {
        let settings = |vms, max_bytes| WarmVms { vms, max_bytes, ..WarmVms::default() };
        assert_eq!(settings(3, 64 << 20).target(), 3);
        assert_eq!(settings(3, 8 << 20).target(), 2);
        assert_eq!(settings(3, 1).target(), 0);
        assert_eq!(settings(0, u64::MAX).target(), 0);
    }
}
