//! A server's standard output, read by the runtime or by a thread that waits for what comes out of it.
//!
//! The runtime does not watch the pipe itself but a set with nothing in it but the pipe, which can be told to keep quiet: else each
//! answer that a thread reads itself would wake the runtime's as well.

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

/// Reads that a leading thread makes before it checks for its own answer: with a line's pieces, two mebibytes.
const READS: usize = 32;

/// Bytes that the runtime reads before its other tasks have their turn, however much there is.
const TURN_BYTES: usize = 256 * 1024;

/// State of the pipe that both sides share.
pub(in crate::client) struct PipeControl {
    output: OwnedFd,
    watched: OwnedFd,
    /// True while a thread reads the pipe itself, without the runtime.
    is_led: AtomicBool,
    /// Reads that are left to the leading thread.
    reads_left: AtomicUsize,
    /// True where the reader has read all that was there, or as much as a leading thread may read at once, and waits for nothing else.
    is_waited_for: AtomicBool,
}

impl PipeControl {
    fn watch(&self, flags: EventFlags) {
        // Neither descriptor is closed before this is gone.
        let _ = epoll::modify(&self.watched, &self.output, EventData::new_u64(0), flags);
    }

    /// Begins a lead: from now on, output of the server does not wake the runtime.
    pub(super) fn begin_lead(&self) {
        self.is_led.store(true, Ordering::Release);
        self.watch(EventFlags::empty());
    }

    pub(super) fn next_reads(&self) {
        self.reads_left.store(READS, Ordering::Release);
    }

    /// Ends a lead: output wakes the runtime again. Returns whether output is there that no event will report: the set may have the pipe
    /// among what is ready, from an event before, and then does not report it once more (`ep_modify` in Linux's `fs/eventpoll.c`).
    #[must_use]
    pub(super) fn end_lead(&self) -> bool {
        self.is_led.store(false, Ordering::Release);
        self.watch(EventFlags::IN);
        let mut output = [PollFd::new(&self.output, PollFlags::IN)];
        // Where that cannot be told, the runtime looks.
        poll(&mut output, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }

    /// Marks the reader as busy; called before each poll of it.
    pub(super) fn begin_poll(&self) {
        self.is_waited_for.store(false, Ordering::Release);
    }

    /// Returns whether what reads waits for this pipe, and for nothing else.
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

/// The set that the runtime watches.
struct Watched(Arc<PipeControl>);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.watched.as_raw_fd()
    }
}

/// The end of a pipe from which a server's output is read.
pub(in crate::client) struct Pipe {
    watched: AsyncFd<Watched>,
    /// Bytes that the runtime has read since its other tasks had their turn.
    turn: usize,
}

impl Pipe {
    /// Reads from this end of a pipe, which nobody else reads.
    pub(in crate::client) fn new(output: OwnedFd) -> Result<Self> {
        rustix::io::ioctl_fionbio(&output, true)?;
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watched, &output, EventData::new_u64(0), EventFlags::IN)?;
        let is_waited_for = AtomicBool::new(false);
        let control = PipeControl { output, watched, is_led: AtomicBool::new(false), reads_left: AtomicUsize::new(0), is_waited_for };
        // SAFETY: it gives the same descriptor each time, which is open as long as it is itself: the control owns it and never replaces it.
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
        // A server that writes faster than it is read must let the runtime's other tasks have their turn.
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
            // Forgotten before it is read again: what comes in between is seen by the one or the other.
            ready!(self.watched.poll_read_ready(context))?.clear_ready();
        }
    }
}

fn read(control: &PipeControl, buffer: &mut ReadBuf<'_>) -> rustix::io::Result<()> {
    // SAFETY: bytes are only written there, and by `read` alone, which makes none of them uninitialised.
    let room = unsafe { buffer.unfilled_mut() };
    let wanted = room.len();
    let count = rustix::io::read(&control.output, room)?.0.len();
    // SAFETY: `read` gives back as its first part what it has filled, and that is the beginning of the room.
    unsafe { buffer.assume_init(count) };
    buffer.advance(count);
    if count < wanted {
        // That was all. Whoever leads sees by `poll` when there is more.
        control.reads_left.store(0, Ordering::Release);
    }
    Ok(())
}
