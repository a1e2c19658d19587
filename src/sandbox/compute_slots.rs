//! Limits how many guests of one owner execute at the same time. A run holds a slot only while its guest executes. It gives the slot back
//! when the guest waits for a host call, and takes a slot again before the guest continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::compute_time::{ComputeTime, Working};
use super::host::{RunControl, Stopped};
use super::reader::ParseOwner;

/// The owner of code that is parsed and run. All code of one owner uses this owner's share of the parser and this owner's slots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeOwner {
    /// The owner's share of the code parser.
    pub parse: ParseOwner,
    /// The slots for guests that execute. By default, the number of slots is not limited.
    pub compute: ComputeSlots,
}

/// The compute slots of one owner. All clones share the same slots. By default, the number of slots is not limited.
#[derive(Debug, Clone, Default)]
pub struct ComputeSlots(Option<Arc<Slots>>);

/// Two values are equal if they share the same slots, or if both have no limit.
impl PartialEq for ComputeSlots {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

#[derive(Debug)]
struct Slots {
    /// Waiting runs get a slot in the order of their requests. While a run waits, a run that requests a slot later cannot get a free one
    /// first.
    free: Arc<Semaphore>,
    executing: Arc<AtomicUsize>,
}

impl ComputeSlots {
    /// Returns slots for at most `most` guests at the same time. `executing` counts the guests that hold a slot. Several owners may share
    /// this counter.
    #[must_use]
    pub fn new(most: usize, executing: Arc<AtomicUsize>) -> Self {
        Self(Some(Arc::new(Slots { free: Arc::new(Semaphore::new(most)), executing })))
    }
}

/// The slot of one run.
#[derive(Debug)]
pub(super) struct ComputeSlot {
    slots: ComputeSlots,
    time: Arc<ComputeTime>,
    held: Mutex<Option<HeldSlot>>,
}

/// A slot that a run holds until this value is dropped.
#[derive(Debug)]
struct HeldSlot {
    permit: Option<OwnedSemaphorePermit>,
    executing: Arc<AtomicUsize>,
}

impl HeldSlot {
    fn new(permit: OwnedSemaphorePermit, executing: &Arc<AtomicUsize>) -> Self {
        executing.fetch_add(1, Ordering::Relaxed);
        Self { permit: Some(permit), executing: Arc::clone(executing) }
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        // The counter is decremented before the next run gets the slot, so it is never above the limit.
        self.executing.fetch_sub(1, Ordering::Relaxed);
        drop(self.permit.take());
    }
}

/// Guard that gives the slot back when the guest has ended, for any reason.
pub(super) struct Executing<'a>(&'a ComputeSlot);

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl ComputeSlot {
    /// Returns the slot of a new run. The run does not hold the slot yet. `time` counts the time in which the run's guest works.
    pub(super) fn new(slots: ComputeSlots, time: Arc<ComputeTime>) -> Self {
        Self { slots, time, held: Mutex::default() }
    }

    /// Counts the guest's own time until the returned guard is dropped. The waits in [`ComputeSlot::without`] are not counted.
    pub(super) fn working(&self) -> Working<'_> {
        self.time.working()
    }

    pub(super) fn time(&self) -> &Arc<ComputeTime> {
        &self.time
    }

    /// Waits for a slot, and holds it until the returned guard is dropped.
    ///
    /// # Errors
    /// [`Stopped`] if the run ends first. In this case, its guest must not execute.
    pub(super) fn enter(&self, control: &RunControl) -> Result<Executing<'_>, Stopped> {
        self.take(control)?;
        Ok(Executing(self))
    }

    /// Gives the slot back, waits for something outside of the guest, and then takes a slot again.
    ///
    /// # Errors
    /// [`Stopped`] if the run ends during one of the two waits. In this case, the run has no slot, and its guest must not execute.
    pub(super) fn without<T>(&self, control: &RunControl, wait: impl FnOnce() -> Result<T, Stopped>) -> Result<T, Stopped> {
        let _waiting = self.time.waiting();
        self.give_back();
        let output = wait()?;
        self.take(control)?;
        Ok(output)
    }

    fn take(&self, control: &RunControl) -> Result<(), Stopped> {
        let Some(Slots { free, executing }) = self.slots.0.as_deref() else { return Ok(()) };
        let permit = match Arc::clone(free).try_acquire_owned() {
            Ok(permit) => permit,
            // The wait counts as time of the run. The semaphore is never closed.
            Err(_) => control.wait(Arc::clone(free).acquire_owned())?.map_err(|_| Stopped)?,
        };
        *self.held.lock() = Some(HeldSlot::new(permit, executing));
        Ok(())
    }

    fn give_back(&self) {
        drop(self.held.lock().take());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::sandbox::deadline::Deadline;
    use crate::sandbox::stop::{Stop, StopReason};

    const LONG: Duration = Duration::from_hours(1);

    struct Scene {
        runtime: Runtime,
        slots: ComputeSlots,
        executing: Arc<AtomicUsize>,
    }

    impl Scene {
        fn new(most: usize) -> Self {
            let executing = Arc::<AtomicUsize>::default();
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            Self { runtime, slots: ComputeSlots::new(most, Arc::clone(&executing)), executing }
        }

        fn run(&self) -> ComputeSlot {
            ComputeSlot::new(self.slots.clone(), Arc::new(ComputeTime::new(LONG)))
        }

        fn control(&self, stop: &Stop, timeout: Duration) -> RunControl {
            RunControl::new(stop.clone(), Deadline::after(timeout), self.runtime.handle().clone())
        }

        fn endless(&self) -> RunControl {
            self.control(&Stop::new(), LONG)
        }

        /// Returns whether a run could get a slot without waiting. The run of this check has already ended, so it takes a free slot but
        /// does not wait for one.
        fn has_free(&self) -> bool {
            let stop = Stop::new();
            stop.stop(StopReason::Aborted);
            self.run().enter(&self.control(&stop, LONG)).is_ok()
        }

        fn semaphore(&self) -> Arc<Semaphore> {
            Arc::clone(&self.slots.0.as_ref().unwrap().free)
        }

        fn executing(&self) -> usize {
            self.executing.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn without_an_owner_no_run_waits_for_another() {
        let scene = Scene { slots: ComputeSlots::default(), ..Scene::new(1) };
        let (runs, control): (Vec<_>, _) = ((0..100).map(|_| scene.run()).collect(), scene.endless());
        let all: Vec<_> = runs.iter().map(|run| run.enter(&control).unwrap()).collect();
        assert_eq!((all.len(), scene.executing()), (100, 0));
    }

    #[test]
    fn a_slot_is_free_while_its_run_waits_outside_and_when_its_guest_has_ended() {
        let scene = Scene::new(1);
        let (run, control) = (scene.run(), scene.endless());
        let executing = run.enter(&control).unwrap();
        assert!(!scene.has_free() && scene.executing() == 1);
        assert_eq!(run.without(&control, || Ok(scene.has_free())), Ok(true));
        assert!(!scene.has_free());
        drop(executing);
        assert!(scene.has_free() && scene.executing() == 0);
    }

    #[test]
    fn a_run_that_comes_back_from_a_call_stands_behind_those_that_wait() {
        let scene = Scene::new(1);
        let (run, control) = (scene.run(), scene.control(&Stop::new(), Duration::from_millis(5)));
        let _executing = run.enter(&control).unwrap();
        let mut first = Box::pin(scene.semaphore().acquire_owned());
        assert!(first.as_mut().now_or_never().is_none());
        // The slot belongs to the run that `first` represents, even if that run was not woken yet. So the time of `run` ends while it has
        // no slot.
        assert_eq!(run.without(&control, || Ok(())), Err(Stopped));
        assert!(control.is_over() && scene.executing() == 0);
        let its_slot = first.now_or_never().unwrap();
        assert!(!scene.has_free());
        drop(its_slot);
        assert!(scene.has_free());
    }

    #[test]
    fn a_stop_and_the_deadline_end_the_wait_for_a_slot_and_lose_none() {
        let scene = Scene::new(1);
        let (holder, control) = (scene.run(), scene.endless());
        let executing = holder.enter(&control).unwrap();
        let late = scene.control(&Stop::new(), Duration::from_millis(5));
        assert!(scene.run().enter(&late).is_err() && late.is_over());
        let stop = Stop::new();
        let (stopping, stopped) = (stop.clone(), scene.control(&stop, LONG));
        scene.runtime.spawn(async move { stopping.stop(StopReason::Aborted) });
        assert!(scene.run().enter(&stopped).is_err() && stopped.is_over());
        // This run is stopped after it has got the slot, but before it has noticed that.
        let mut waiting = Box::pin(scene.semaphore().acquire_owned());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(executing);
        assert!(!scene.has_free());
        drop(waiting);
        assert!(scene.has_free() && scene.executing() == 0);
    }

    #[test]
    fn a_guest_that_dies_in_a_call_or_a_panic_there_loses_no_slot() {
        let scene = Scene::new(1);
        let (run, control) = (scene.run(), scene.endless());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _executing = run.enter(&control).unwrap();
            let _ = run.without(&control, || -> Result<(), Stopped> { panic!("in the call") });
        }));
        assert!(ended.is_err() && scene.has_free());
        let executing = run.enter(&control).unwrap();
        assert_eq!(run.without(&control, || Err::<(), _>(Stopped)), Err(Stopped));
        drop(executing);
        assert!(scene.has_free() && scene.executing() == 0);
    }

    #[test]
    fn however_many_runs_come_and_go_no_more_execute_than_there_are_slots_and_each_has_its_turn() {
        const SLOTS: usize = 3;
        let scene = Scene::new(SLOTS);
        std::thread::scope(|threads| {
            for number in 0..16 {
                let (run, scene) = (scene.run(), &scene);
                threads.spawn(move || {
                    for turn in 0..100 {
                        let stop = Stop::new();
                        let control = scene.control(&stop, LONG);
                        let Ok(_executing) = run.enter(&control) else { panic!("nobody has stopped it") };
                        assert!(scene.executing() <= SLOTS);
                        if (number + turn) % 3 == 0 {
                            stop.stop(StopReason::Aborted);
                        }
                        let outside = run.without(&control, || {
                            std::thread::yield_now();
                            Ok(())
                        });
                        assert!(outside.is_ok() || stop.reason().is_some());
                        assert!(scene.executing() <= SLOTS);
                    }
                });
            }
        });
        assert_eq!((scene.executing(), scene.semaphore().available_permits()), (0, SLOTS));
    }
}
