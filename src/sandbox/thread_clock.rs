//! Reads how much processor time a thread of this process has used.

use std::time::Duration;

/// The processor-time clock of one thread (POSIX, `pthread_getcpuclockid`). Any thread of the process can read the clock while that thread
/// runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the clock of the calling thread. Returns `None` if the system has no such clock.
    pub(super) fn of_this_thread() -> Option<Self> {
        let mut clock = 0;
        // SAFETY: `pthread_self` is the calling thread, which exists, and `clock` is a valid place for the result.
        let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        (status == 0).then_some(Self(clock))
    }

    /// Returns the processor time that the thread has used since it began. Returns `None` if the thread has ended.
    pub(super) fn now(self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the result. The clock is a number, which the kernel checks.
        let status = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (status == 0).then(|| Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_the_work_of_its_thread_to_another_thread() {
        let clock = ThreadClock::of_this_thread().unwrap();
        let begun = clock.now().unwrap();
        while clock.now().unwrap() < begun + Duration::from_millis(5) {}
        let seen =
            std::thread::spawn(move || (clock.now().unwrap(), ThreadClock::of_this_thread().unwrap().now().unwrap())).join().unwrap();
        assert!(seen.0 >= begun + Duration::from_millis(5) && seen.1 < seen.0);
    }
}
