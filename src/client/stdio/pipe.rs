//! A server's standard output. It is read by the runtime, or by a thread that waits for an answer.
//!
//! The runtime does not watch the pipe itself, but an epoll set that contains only the pipe. While a thread reads, this set is told to report
//! nothing. Otherwise each answer that the thread reads would also wake the runtime.

use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::task::coop;

/// Number of reads that a leading thread makes before it checks for its own answer. With the read size of a line, this is 2 MiB.
const READS: usize = 32;

/// Number of bytes that the runtime reads before its other tasks get their turn.
const TURN_BYTES: usize = 256 * 1024;

/// State of the pipe, shared by the runtime and the leading thread.
pub(in crate::client) struct PipeControl {
    output: OwnedFd,
    watched: OwnedFd,
    /// True while a thread reads the pipe itself, without the runtime.
    is_led: AtomicBool,
    /// Number of reads that the leading thread may still make.
    reads_left: AtomicUsize,
    /// True if the reader waits for the pipe only: it has read all available output, or as much as a leading thread may read at once.
    is_waited_for: AtomicBool,
}

impl PipeControl {
    fn watch(&self, flags: EventFlags) {
        // This cannot fail, because both descriptors stay open as long as `self`.
        let _ = epoll::modify(&self.watched, &self.output, EventData::new_u64(0), flags);
    }

    /// Begins a lead. From then on, output of the server does not wake the runtime.
    pub(super) fn begin_lead(&self) {
        self.is_led.store(true, Ordering::Release);
        self.watch(EventFlags::empty());
    }

    pub(super) fn next_reads(&self) {
        self.reads_left.store(READS, Ordering::Release);
    }

    /// Ends a lead, so that output wakes the runtime again. Returns whether there is output that no event will report. This happens if the epoll
    /// set already lists the pipe as ready from an earlier event (`ep_modify` in Linux's `fs/eventpoll.c`).
    #[must_use]
    pub(super) fn end_lead(&self) -> bool {
        self.is_led.store(false, Ordering::Release);
        self.watch(EventFlags::IN);
        let mut output = [PollFd::new(&self.output, PollFlags::IN)];
        // On an error of `poll`, the runtime has to check the pipe.
        poll(&mut output, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }

    /// Marks the reader as busy. Called before each poll of the reader.
    pub(super) fn begin_poll(&self) {
        self.is_waited_for.store(false, Ordering::Release);
    }

    /// Returns whether the reader waits for this pipe, and for nothing else.
    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Acquire)
    }

    fn may_read(&self) -> bool {
        let take = |reads: usize| reads.checked_sub(1);
        !self.is_led.load(Ordering::Acquire) || self.reads_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok()
    }
}

impl AsFd for PipeControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

/// The epoll set that the runtime watches.
struct Watched(Arc<PipeControl>);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.watched.as_raw_fd()
    }
}

/// The read end of the pipe of a server's output.
pub(in crate::client) struct Pipe {
    watched: AsyncFd<Watched>,
    /// Number of bytes that the runtime has read since its other tasks had their turn.
    turn: usize,
}

impl Pipe {
    /// Takes over the read end of a pipe. Nothing else may read from it.
    pub(in crate::client) fn new(output: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&output, true)?;
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watched, &output, EventData::new_u64(0), EventFlags::IN)?;
        let is_waited_for = AtomicBool::new(false);
        let control = PipeControl { output, watched, is_led: AtomicBool::new(false), reads_left: AtomicUsize::new(0), is_waited_for };
        // SAFETY: `Watched` returns the same descriptor each time, and the control owns it, keeps it open and never replaces it.
        let watched = unsafe { AsyncFd::register_with_interest(Watched(Arc::new(control)), Interest::READABLE) };
        Ok(Self { turn: 0, watched: watched.map_err(|refused| refused.into_parts().1)? })
    }

    pub(in crate::client) fn control(&self) -> Weak<PipeControl> {
        Arc::downgrade(&self.watched.get_ref().0)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.get_ref().0.as_fd()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let control = Arc::clone(&self.watched.get_ref().0);
        // A server that writes faster than its output is read must not keep the runtime's other tasks from their turn.
        let turn = ready!(coop::poll_proceed(context));
        if self.turn >= TURN_BYTES && !control.is_led.load(Ordering::Acquire) {
            self.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        loop {
            if control.may_read() {
                match read(&control, buffer) {
                    Err(Errno::AGAIN) => {}
                    Err(Errno::INTR) => continue,
                    outcome => {
                        control.is_waited_for.store(false, Ordering::Release);
                        turn.made_progress();
                        self.turn += buffer.filled().len() - before;
                        return Poll::Ready(outcome.map_err(Error::from));
                    }
                }
            }
            self.turn = 0;
            control.is_waited_for.store(true, Ordering::Release);
            if control.is_led.load(Ordering::Acquire) {
                return Poll::Pending;
            }
            // Readiness is cleared before the next read, so that output in between is noticed by the read or by a new event.
            ready!(self.watched.poll_read_ready(context))?.clear_ready();
        }
    }
}

fn read(control: &PipeControl, buffer: &mut ReadBuf<'_>) -> rustix::io::Result<()> {
    // SAFETY: only `read` writes to this memory, and it leaves no byte uninitialised that was initialised.
    let room = unsafe { buffer.unfilled_mut() };
    let wanted = room.len();
    let count = rustix::io::read(&control.output, room)?.0.len();
    // SAFETY: `read` returns as its first part the bytes that it has filled, which are at the start of the buffer.
    unsafe { buffer.assume_init(count) };
    buffer.advance(count);
    if count < wanted {
        // All available output was read. The leading thread notices more output by `poll`.
        control.reads_left.store(0, Ordering::Release);
    }
    Ok(())
}
