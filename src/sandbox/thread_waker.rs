//! Wakes a thread that polls a future itself and parks while the future is pending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::Thread;
use std::time::Duration;

use tokio::time::Instant;

/// A waker for the thread that created it.
#[derive(Debug)]
pub(super) struct ThreadWaker {
    thread: Thread,
    rings: AtomicBool,
}

impl ThreadWaker {
    /// Returns a waker for the current thread.
    pub(super) fn new() -> Self {
        Self { thread: std::thread::current(), rings: AtomicBool::new(false) }
    }

    /// Waits until this waker is woken, or until the given time. This method parks the thread and uses no tokio timer, because setting a
    /// timer usually wakes another thread.
    pub(super) fn wait(&self, until: Option<Instant>) {
        // A swap is needed here. With a load alone, changes that were made before the waker was woken might not be visible.
        while !self.rings.swap(false, Ordering::SeqCst) {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only the first wake-up has to unpark the thread.
        if !self.rings.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_woken_by_the_alarm_and_by_the_time_and_by_nothing_else() {
        let thread_waker = Arc::new(ThreadWaker::new());
        let ringing = Arc::clone(&thread_waker);
        let other = std::thread::spawn(move || {
            ringing.thread.unpark();
            ringing.wake_by_ref();
        });
        thread_waker.wait(None);
        other.join().unwrap();
        let began = Instant::now();
        std::thread::current().unpark();
        thread_waker.wait(Some(began + Duration::from_millis(5)));
        assert!(began.elapsed() >= Duration::from_millis(5));
        thread_waker.wake_by_ref();
        thread_waker.wait(None);
    }
}
