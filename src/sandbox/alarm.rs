//! How a thread waits for a future that it drives itself: parked, or beside something that it can read.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{Thread, ThreadId};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::time::Instant;

/// Wakes the thread that made it.
#[derive(Debug)]
pub(super) struct Alarm {
    thread: Thread,
    rings: AtomicBool,
    /// The thread sleeps in `poll`, where nothing but a descriptor wakes it.
    beside: AtomicBool,
    /// Made when it is needed first; `None` where the process has no descriptors left.
    bell: OnceLock<Option<OwnedFd>>,
}

/// Why a thread that waited beside something woke up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// There is something to read.
    Readable,
    /// It rings, or the time has come, or for no reason.
    Otherwise,
}

impl Alarm {
    /// Of this thread.
    pub(super) fn new() -> Self {
        Self { thread: std::thread::current(), rings: AtomicBool::new(false), beside: AtomicBool::new(false), bell: OnceLock::new() }
    }

    pub(super) fn is_of(&self, thread: ThreadId) -> bool {
        self.thread.id() == thread
    }

    /// Waits until it rings, or until then. Not by a timer of the runtime's: setting one mostly wakes another thread.
    pub(super) fn wait(&self, until: Option<Instant>) {
        while !self.rings.swap(false, Ordering::SeqCst) {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(std::time::Duration::ZERO) => return,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    /// Whether it rings. It does until [`Alarm::hush`].
    pub(super) fn rings(&self) -> bool {
        self.rings.load(Ordering::SeqCst)
    }

    pub(super) fn hush(&self) {
        // Not a store: what was done before it rang is to be seen.
        self.rings.swap(false, Ordering::SeqCst);
    }

    /// Whether it can wait beside something.
    pub(super) fn has_bell(&self) -> bool {
        self.bell().is_some()
    }

    fn bell(&self) -> Option<&OwnedFd> {
        self.bell.get_or_init(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()).as_ref()
    }

    /// Waits until it rings, or there is something to read, or until then.
    pub(super) fn wait_beside(&self, descriptor: BorrowedFd<'_>, until: Option<Instant>) -> Woken {
        let Some(bell) = self.bell() else { return Woken::Otherwise };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 }));
        let mut both = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
        self.beside.store(true, Ordering::SeqCst);
        // Whoever rings from here on sees that a thread has to be woken; whoever rang before is seen.
        let slept = !self.rings() && poll(&mut both, left.as_ref()).is_ok();
        self.beside.store(false, Ordering::SeqCst);
        let [readable, rang] = both.map(|one| slept && !one.revents().is_empty());
        if rang {
            let mut count = [0; 8];
            // Somebody may have rung for a wait before this one.
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
        // Only the first has to wake it.
        if self.rings.swap(true, Ordering::SeqCst) {
            return;
        }
        self.thread.unpark();
        if self.beside.load(Ordering::SeqCst)
            && let Some(bell) = self.bell()
        {
            // It is not full: it was rung once.
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
        // What rings already is not slept through.
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
