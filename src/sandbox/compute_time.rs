//! Maximum processor time of the guest of one run, measured on the guest's thread. The time in which the guest waits for calls, timers and
//! compute slots is not counted.
//!
//! The limit applies to processor time, so a busy machine does not end an honest run earlier. A hypervisor may run a guest without counting
//! the guest's time for a thread. Therefore at least a fraction of the time on the clock is counted, see [`LEAST_PART`].

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::thread_clock::ThreadClock;

/// The shortest time between two readings of the clocks. A run ends at most this much time after its limit.
const LEAST_WAIT: Duration = Duration::from_millis(20);

/// A guest that works for this many seconds on the clock is treated as having used at least one second of processor time.
const LEAST_PART: u32 = 8;

/// The guest's own time in one run. It is zero at first, and grows while the guest works.
#[derive(Debug)]
pub(super) struct ComputeTime {
    state: Mutex<State>,
    limit: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// The time that was used before the period `working`.
    used: Duration,
    /// The period in which the guest is working now. `None` if the guest does not work.
    working: Option<Period>,
}

/// A period that has begun and has not ended.
#[derive(Debug)]
struct Period {
    begun: Instant,
    /// The clock of the guest's thread, and its time when the period began. `None` if the system has no such clock.
    thread: Option<(ThreadClock, Duration)>,
}

impl Period {
    /// Begins a period of the calling thread.
    fn begin() -> Self {
        let thread = ThreadClock::of_this_thread().and_then(|clock| Some((clock, clock.now()?)));
        Self { begun: Instant::now(), thread }
    }

    /// Returns the time that the guest has used. The thread of this period must still run.
    fn used(&self) -> Duration {
        let processor = self.thread.and_then(|(clock, begun)| Some(clock.now()?.saturating_sub(begun)));
        counted(processor, self.begun.elapsed())
    }
}

/// Returns the part of a period that counts. `processor` is the thread's processor time, if this time is known. `elapsed` is the time on
/// the clock.
fn counted(processor: Option<Duration>, elapsed: Duration) -> Duration {
    processor.map_or(elapsed, |processor| processor.max(elapsed / LEAST_PART))
}

impl State {
    fn used(&self) -> Duration {
        self.used + self.working.as_ref().map_or(Duration::ZERO, Period::used)
    }

    fn resume(&mut self) {
        self.working.get_or_insert_with(Period::begin);
    }

    fn pause(&mut self) {
        self.used = self.used();
        self.working = None;
    }
}

impl ComputeTime {
    pub(super) fn new(limit: Duration) -> Self {
        Self { state: Mutex::default(), limit }
    }

    /// Counts the time of the calling thread until the returned guard is dropped.
    pub(super) fn working(&self) -> Working<'_> {
        self.state.lock().resume();
        Working { time: self, _thread: PhantomThread::default() }
    }

    /// Counts no time until the returned guard is dropped, because the guest waits. The guest's thread must call this method.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        self.state.lock().pause();
        Waiting { time: self, _thread: PhantomThread::default() }
    }

    /// Returns the limit in milliseconds.
    pub(super) fn limit_ms(&self) -> u64 {
        u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)
    }

    fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.state.lock().used())
    }

    /// Resolves when the guest has used up its time. A guest cannot use more time than passes on the clock. So this future need not be
    /// woken when the guest begins to work or to wait. Such a wake-up would cost time in each call.
    pub(super) async fn passed(&self) {
        loop {
            let remaining = self.remaining();
            if remaining.is_zero() {
                return;
            }
            tokio::time::sleep(remaining.max(LEAST_WAIT)).await;
        }
    }
}

/// Type that prevents a guard from being sent to another thread. The guard reads the clock of its thread as long as it lives.
type PhantomThread = std::marker::PhantomData<*const ()>;

/// Guard for the time in which the guest works.
#[derive(Debug)]
pub(super) struct Working<'a> {
    time: &'a ComputeTime,
    _thread: PhantomThread,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.time.state.lock().pause();
    }
}

/// Guard for the time in which the guest waits.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    time: &'a ComputeTime,
    _thread: PhantomThread,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.time.state.lock().resume();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn is_running(time: &ComputeTime) -> bool {
        time.state.lock().working.is_some()
    }

    #[test]
    fn time_counts_only_while_the_guest_works() {
        let time = ComputeTime::new(5 * SECOND);
        assert!(!is_running(&time));
        let working = time.working();
        assert!(is_running(&time));
        let waiting = time.waiting();
        assert!(!is_running(&time));
        drop(waiting);
        assert!(is_running(&time));
        drop(working);
        assert!(!is_running(&time) && time.limit_ms() == 5_000);
    }

    #[test]
    fn processor_time_counts_and_of_a_thread_that_shows_none_a_part_of_the_clock() {
        assert_eq!(counted(Some(2 * SECOND), 3 * SECOND), 2 * SECOND);
        assert_eq!(counted(Some(SECOND), 16 * SECOND), 2 * SECOND);
        assert_eq!(counted(None, 3 * SECOND), 3 * SECOND);
    }

    #[test]
    fn the_time_is_over_when_the_guest_has_worked_for_as_long_as_it_may_and_not_while_it_does_not_work() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let limit = Duration::from_millis(30);
        let (time, ended) = (Arc::new(ComputeTime::new(limit)), Arc::new(AtomicBool::new(false)));
        runtime.block_on(async {
            assert!(tokio::time::timeout(2 * limit, time.passed()).await.is_err());
            let (its_time, its_end) = (Arc::clone(&time), Arc::clone(&ended));
            let guest = std::thread::spawn(move || {
                let _working = its_time.working();
                while !its_end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let over = tokio::time::timeout(600 * SECOND, time.passed()).await;
            ended.store(true, Ordering::Relaxed);
            guest.join().unwrap();
            assert!(over.is_ok() && time.remaining().is_zero());
        });
    }
}
