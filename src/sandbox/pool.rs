//! The pool of VMs that are prepared in advance, so that a run does not wait for a VM. A run takes a VM, which is dropped after the run. A
//! thread of the pool (the keeper) creates and drops VMs. The keeper ends after some time without a run.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_host::HyperlightError;
use serde::{Deserialize, Serialize};

use super::image::{GuestImage, Vm};

/// The memory in bytes that a ready VM uses: the pages that it has copied, its page tables, and its data on the host. This number is higher
/// than the measured one (docs/PERFORMANCE.md).
const READY_VM_BYTES: u64 = 4 << 20;

/// The time for which a new keeper thread waits for a run before it creates the first VM.
const GRACE: Duration = Duration::from_millis(15);

/// The maximum number of VMs of ended runs that wait until the keeper drops them. If there are more runs than processors, the keeper cannot
/// drop VMs as fast as runs end. In this case, a run drops its VM itself.
const MAX_USED: usize = 4;

/// The number of VMs that are prepared in advance. It is the option `warm` of `Gateway.open`. The option applies to each of two pools
/// separately. Runs that may fetch start from another image, so they have their own pool. This second pool exists only after such a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WarmVms {
    /// The maximum number of VMs that are prepared in advance. If it is 0, none are prepared. Default: 2.
    pub vms: usize,
    /// The maximum memory in bytes of all VMs that are prepared in advance. Each VM is counted as 4 MiB. Default: 64 MiB.
    pub max_bytes: u64,
    /// The time in milliseconds after which these VMs are dropped if there is no run. New VMs are prepared at the next run. Default:
    /// 60,000.
    pub idle_ms: u64,
}

impl Default for WarmVms {
    fn default() -> Self {
        Self { vms: 2, max_bytes: 64 << 20, idle_ms: 60_000 }
    }
}

impl WarmVms {
    /// Returns the number of VMs that are prepared in advance. This is `vms`, or the number of VMs that fit into `max_bytes` if that is
    /// smaller.
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
    /// VMs of ended runs that wait to be dropped.
    used: Vec<Vm>,
    /// The number of runs in progress. During runs, a VM is created only if none is ready.
    running: usize,
    keeper: Keeper,
    /// True if a run waits for the VM that is being created. Only one run waits for this VM. Any other run starts its own VM, which takes
    /// the same time.
    awaited: bool,
    /// True if no VM is created until the next run.
    rests: bool,
    closed: bool,
}

/// The state of the thread that creates and drops VMs.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Keeper {
    #[default]
    None,
    Works,
    /// The thread is creating a VM.
    Makes,
}

/// The next task of the keeper thread.
#[derive(Debug, PartialEq, Eq)]
enum NextTask {
    ThrowAway,
    Make,
    Wait,
    End,
}

impl State {
    fn next_task(&self, target: usize) -> NextTask {
        match () {
            () if !self.used.is_empty() => NextTask::ThrowAway,
            () if self.closed => NextTask::End,
            () if self.rests => NextTask::Wait,
            // Runs and the keeper share the processors. So during runs, a VM is created only if no VM is ready for the next run.
            () if self.ready.len() < target && (self.running == 0 || self.ready.is_empty()) => NextTask::Make,
            () => NextTask::Wait,
        }
    }
}

impl Pool {
    pub(super) fn new(settings: WarmVms) -> Self {
        Self { shared: Arc::new(Shared { settings, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Starts to create VMs, up to the target number.
    pub(super) fn fill(&self, image: &GuestImage) {
        let mut state = self.shared.lock();
        state.rests = false;
        self.wake(image, &mut state);
    }

    /// Returns a VM for a run: a ready VM, or the VM that is being created, or a new VM. After the run, the VM must be passed to
    /// [`Pool::give_back`].
    pub(super) fn take(&self, image: &GuestImage) -> Result<Vm, HyperlightError> {
        let ready = {
            let mut state = self.shared.lock();
            state.running += 1;
            state.rests = false;
            // If the keeper is creating a VM, the run waits for this VM. If two VMs were created at the same time, each would take longer.
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

    /// Ends a run and drops its VM, in whatever state the VM is. Usually the keeper thread drops the VM soon. If too many VMs already wait
    /// for the keeper thread, this thread drops the VM immediately.
    pub(super) fn give_back(&self, image: &GuestImage, vm: Vm) {
        let mut state = self.shared.lock();
        state.running -= 1;
        let dropped_here = if state.used.len() < MAX_USED {
            state.used.push(vm);
            None
        } else {
            Some(vm)
        };
        self.wake(image, &mut state);
        drop(state);
        drop(dropped_here);
    }

    /// Drops the ready VMs. No VM is created until the next run.
    pub(super) fn rest(&self) {
        let mut state = self.shared.lock();
        state.rests = true;
        let (ready, used) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.used));
        self.shared.changed.notify_all();
        drop(state);
        drop((ready, used));
    }

    /// Drops the ready VMs permanently.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.rest();
    }

    /// Returns how many VMs are ready.
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Wakes the keeper thread, or starts it.
    fn wake(&self, image: &GuestImage, state: &mut State) {
        if state.keeper != Keeper::None {
            self.shared.changed.notify_all();
            return;
        }
        let (shared, image) = (Arc::clone(&self.shared), image.clone());
        let thread = std::thread::Builder::new().name("hyperlight-mcp-warm".to_owned());
        match thread.spawn(move || shared.keep(&image)) {
            Ok(_) => state.keeper = Keeper::Works,
            // Without a keeper, each run starts its own VM, and used VMs are dropped here.
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that keeps VMs ready; each run starts its own VM");
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

    /// Waits until the VM that is being created is ready or has failed.
    fn wait_for_one<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.awaited = true;
        let not_yet = |state: &mut State| state.ready.is_empty() && state.keeper == Keeper::Makes;
        self.changed.wait_while(&mut state, not_yet);
        state.awaited = false;
        state
    }

    /// Runs the loop of the keeper thread. The loop ends when the pool is closed, after some time without a run, or if a VM cannot be
    /// created.
    fn keep(&self, image: &GuestImage) {
        let target = self.settings.target();
        // A run usually follows directly after the boot. The keeper waits for a short time, so that this run can use all processors.
        let nothing_ran = |state: &mut State| state.used.is_empty() && !state.closed;
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, nothing_ran, GRACE);
        let mut since = Instant::now();
        loop {
            match state.next_task(target) {
                NextTask::ThrowAway => {
                    let used = std::mem::take(&mut state.used);
                    drop(state);
                    drop(used);
                    since = Instant::now();
                    state = self.lock();
                }
                NextTask::Make => {
                    state.keeper = Keeper::Makes;
                    drop(state);
                    // A panic is caught because a run may wait for this VM.
                    let made = catch_unwind(AssertUnwindSafe(|| ready_vm(image)));
                    let made = made.unwrap_or_else(|_| Err(HyperlightError::Error("a panic".to_owned())));
                    state = self.lock();
                    state.keeper = Keeper::Works;
                    since = Instant::now();
                    self.changed.notify_all();
                    match made {
                        // The pool was told to drop its VMs while this VM was created, and no run waits for this VM.
                        Ok(vm) if state.rests && !state.awaited => state.used.push(vm),
                        Ok(vm) => state.ready.push(vm),
                        Err(error) => {
                            tracing::warn!(%error, "cannot prepare a VM in advance; each run starts its own VM");
                            break;
                        }
                    }
                }
                NextTask::Wait => {
                    let left = self.settings.idle().saturating_sub(since.elapsed());
                    if left.is_zero() && state.running == 0 {
                        let ready = std::mem::take(&mut state.ready);
                        state.keeper = Keeper::None;
                        drop(state);
                        drop(ready);
                        return;
                    }
                    // During a run, the pool is not idle, no matter how long the run takes.
                    let left = if left.is_zero() { self.settings.idle() } else { left };
                    self.changed.wait_for(&mut state, left);
                }
                NextTask::End => {
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
        assert_eq!(state.next_task(2), NextTask::Make);
        assert_eq!(state.next_task(0), NextTask::Wait);
    }

    #[test]
    fn beside_a_run_one_is_made_only_where_none_is_ready() {
        let state = State { running: 1, ..State::default() };
        assert_eq!(state.next_task(2), NextTask::Make);
    }

    #[test]
    fn a_pool_that_is_closed_or_rests_makes_none() {
        assert_eq!(State { closed: true, ..State::default() }.next_task(2), NextTask::End);
        assert_eq!(State { rests: true, ..State::default() }.next_task(2), NextTask::Wait);
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
