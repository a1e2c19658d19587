//! Wakes a thread that polls a future itself. The thread is either parked, or sleeps in `poll` on a descriptor that it can read.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{Thread, ThreadId};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::time::Instant;

/// A waker for the thread that made it.
#[derive(Debug)]
pub(super) struct Alarm {
    thread: Thread,
    rings: AtomicBool,
    /// True while the thread sleeps in `poll`, where only a readable descriptor can wake it.
    beside: AtomicBool,
    /// An eventfd, created at its first use. `None` if the process has no free descriptors.
    bell: OnceLock<Option<OwnedFd>>,
}

/// The reason why [`Alarm::wait_beside`] returned.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The descriptor is readable.
    Readable,
    /// The alarm rings, the time is up, or the wake-up was spurious.
    Otherwise,
}

impl Alarm {
    /// Returns an alarm for the current thread.
    pub(super) fn new() -> Self {
        Self { thread: std::thread::current(), rings: AtomicBool::new(false), beside: AtomicBool::new(false), bell: OnceLock::new() }
    }

    pub(super) fn is_of(&self, thread: ThreadId) -> bool {
        self.thread.id() == thread
    }

    /// Waits until the alarm rings, or until the given time. It parks the thread and uses no tokio timer, because setting a timer usually
    /// wakes another thread.
    pub(super) fn wait(&self, until: Option<Instant>) {
        while !self.rings.swap(false, Ordering::SeqCst) {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(std::time::Duration::ZERO) => return,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    /// Returns whether the alarm rings. It keeps ringing until [`Alarm::hush`] is called.
    pub(super) fn rings(&self) -> bool {
        self.rings.load(Ordering::SeqCst)
    }

    pub(super) fn hush(&self) {
        // A swap is needed instead of a store, so that this thread sees everything that was written before the alarm rang.
        self.rings.swap(false, Ordering::SeqCst);
    }

    /// Returns whether the thread can also wait on a descriptor, which needs an eventfd.
    pub(super) fn has_bell(&self) -> bool {
        self.bell().is_some()
    }

    fn bell(&self) -> Option<&OwnedFd> {
        self.bell.get_or_init(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()).as_ref()
    }

    /// Waits until the alarm rings, the descriptor is readable, or the time is up.
    pub(super) fn wait_beside(&self, descriptor: BorrowedFd<'_>, until: Option<Instant>) -> Woken {
        let Some(bell) = self.bell() else { return Woken::Otherwise };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 }));
        let mut both = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        self.beside.store(true, Ordering::SeqCst);
        // If the alarm rings after this line, the ring writes to the eventfd. If it rang before, `rings` returns true.
        let slept = !self.rings() && poll(&mut both, left.as_ref()).is_ok();
        self.beside.store(false, Ordering::SeqCst);
        let [readable, rang] = both.map(|one| slept && !one.revents().is_empty());
        if rang {
            let mut count = [0; 8];
            // The count may come from a ring during an earlier wait.
            let _ = rustix::io::read(bell, &mut count);
        }
        if readable { Woken::Readable } else { Woken::Otherwise }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only the first ring has to wake the thread.
        if self.rings.swap(true, Ordering::SeqCst) {
            return;
        }
        self.thread.unpark();
        if self.beside.load(Ordering::SeqCst)
            && let Some(bell) = self.bell()
        {
            // The counter is not full, because only the first ring writes to it.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_waits_beside_a_pipe_is_woken_by_it_by_a_waker_and_by_the_time() {
        let (output, input) = rustix::pipe::pipe().unwrap();
        let alarm = Arc::new(Alarm::new());
        let soon = || Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(alarm.wait_beside(output.as_fd(), soon()), Woken::Otherwise);
        assert!(!alarm.rings());
        let ringing = Arc::clone(&alarm);
        let other = std::thread::spawn(move || {
            while !ringing.beside.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            ringing.wake_by_ref();
        });
        assert_eq!(alarm.wait_beside(output.as_fd(), None), Woken::Otherwise);
        assert!(alarm.rings());
        other.join().unwrap();
        // An alarm that already rings ends the wait at once.
        assert_eq!(alarm.wait_beside(output.as_fd(), None), Woken::Otherwise);
        alarm.hush();
        rustix::io::write(&input, b"x").unwrap();
        assert_eq!(alarm.wait_beside(output.as_fd(), None), Woken::Readable);
        drop(input);
        rustix::io::read(&output, &mut [0; 8]).unwrap();
        assert_eq!(alarm.wait_beside(output.as_fd(), None), Woken::Readable, "its end is something to read");
    }

    #[test]
    fn a_ring_that_came_late_wakes_the_next_wait_once() {
        let (output, _input) = rustix::pipe::pipe().unwrap();
        let alarm = Arc::new(Alarm::new());
        assert!(alarm.has_bell());
        rustix::io::write(alarm.bell().unwrap(), &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(alarm.wait_beside(output.as_fd(), None), Woken::Otherwise);
        let began = Instant::now();
        assert_eq!(alarm.wait_beside(output.as_fd(), Some(began + Duration::from_millis(5))), Woken::Otherwise);
        assert!(began.elapsed() >= Duration::from_millis(5));
    }
}
