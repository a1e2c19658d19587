//! Writes lines to a server. If no line is queued, a line is written immediately. Otherwise a task writes it later.

use std::future::poll_fn;
use std::io::Result;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{self, Receiver, Sender, WeakSender};
use tokio::sync::{Mutex, MutexGuard};

/// The server's standard input. Only the writing task owns it, so the input closes when this task ends.
struct Input {
    pipe: Box<dyn AsyncWrite + Send + Unpin>,
    /// A line that was only partly written, and the number of bytes that were written. The remaining bytes are written before all other
    /// lines.
    rest: Option<(Vec<u8>, usize)>,
}

impl Input {
    /// Writes as much of the line as the pipe accepts, and stores the rest.
    fn begin(&mut self, line: Vec<u8>, context: &mut Context<'_>) -> std::result::Result<(), Unwritten> {
        let mut written = 0;
        while written < line.len() {
            match Pin::new(&mut self.pipe).poll_write(context, &line[written..]) {
                Poll::Ready(Ok(bytes @ 1..)) => written += bytes,
                Poll::Ready(Ok(0) | Err(_)) => return Err(Unwritten { is_begun: written > 0 }),
                Poll::Pending => {
                    self.rest = Some((line, written));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        if let Some((line, written)) = self.rest.take() {
            self.pipe.write_all(&line[written..]).await?;
        }
        Ok(())
    }
}

/// The error for a line that cannot be written because the server has closed its input.
#[derive(Debug)]
pub(in crate::client) struct Unwritten {
    /// True if the server may have read the beginning of the line.
    pub(in crate::client) is_begun: bool,
}

/// A line in the queue of the writing task.
pub(in crate::client) struct Queued {
    line: Vec<u8>,
    /// Guard that counts this line as queued, so that no later line is written before it.
    _behind: Option<QueuedLineGuard>,
}

impl From<Vec<u8>> for Queued {
    fn from(line: Vec<u8>) -> Self {
        Self { line, _behind: None }
    }
}

/// Guard that counts a line as queued until it has been written.
struct QueuedLineGuard(Arc<AtomicUsize>);

impl QueuedLineGuard {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for QueuedLineGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sends lines to the server.
#[derive(Clone)]
pub(in crate::client) struct Outbox {
    input: Weak<Mutex<Input>>,
    /// Sender for the queue. It is a weak reference, so that the server's input closes when the transport drops its own sender.
    queue: WeakSender<Queued>,
    behind: Arc<AtomicUsize>,
    /// True once a write has failed. After that, no line can be written.
    is_broken: Arc<AtomicBool>,
}

impl Outbox {
    /// Makes an outbox, the sender of its queue, and the task that writes the queued lines. The input closes when all senders are dropped
    /// and all queued lines are written, or when the task is aborted.
    pub(in crate::client) fn new(
        pipe: impl AsyncWrite + Send + Unpin + 'static,
        queued: usize,
    ) -> (Self, Sender<Queued>, impl Future<Output = ()> + Send + 'static) {
        let (sender, lines) = mpsc::channel(queued);
        let input = Arc::new(Mutex::new(Input { pipe: Box::new(pipe), rest: None }));
        let outbox = Self { input: Arc::downgrade(&input), queue: sender.downgrade(), behind: Arc::default(), is_broken: Arc::default() };
        let is_broken = Arc::clone(&outbox.is_broken);
        (outbox, sender, write_lines(input, lines, is_broken))
    }

    /// Returns whether a write has failed. No more lines can then be sent.
    pub(in crate::client) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Sends a line. If nothing is being written, the line is written directly. Otherwise it goes through the queue. If the future is
    /// dropped, either the whole line is sent or nothing.
    pub(in crate::client) async fn send(&self, line: Vec<u8>) -> std::result::Result<(), Unwritten> {
        let closed = || Unwritten { is_begun: false };
        let queue = self.queue.upgrade().ok_or_else(closed)?;
        let input = self.input.upgrade().ok_or_else(closed)?;
        let Some(mut idle) = self.idle(&input) else {
            let queued = Queued { line, _behind: Some(QueuedLineGuard::new(&self.behind)) };
            drop(input);
            return queue.send(queued).await.map_err(|_| closed());
        };
        let mut line = Some(line);
        poll_fn(|context| Poll::Ready(line.take().map_or(Ok(()), |line| idle.begin(line, context))))
            .await
            .inspect_err(|_| self.is_broken.store(true, Ordering::Release))?;
        if idle.rest.is_some() {
            // The empty line wakes the writing task, which then writes the rest of this line. If the queue is full, the task is already
            // awake.
            let _ = queue.try_send(Vec::new().into());
        }
        Ok(())
    }

    /// Locks the input. Returns `None` if the input is in use, or if a line is queued or only partly written.
    fn idle<'a>(&self, input: &'a Mutex<Input>) -> Option<MutexGuard<'a, Input>> {
        let idle = input.try_lock().ok()?;
        (idle.rest.is_none() && self.behind.load(Ordering::Acquire) == 0).then_some(idle)
    }
}

async fn write_lines(input: Arc<Mutex<Input>>, mut lines: Receiver<Queued>, is_broken: Arc<AtomicBool>) {
    while let Some(Queued { line, _behind }) = lines.recv().await {
        let mut input = input.lock().await;
        if input.finish().await.is_err() || input.pipe.write_all(&line).await.is_err() || input.pipe.flush().await.is_err() {
            is_broken.store(true, Ordering::Release);
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, duplex};

    #[tokio::test]
    async fn what_finds_nothing_in_its_way_is_written_without_the_task() {
        let (pipe, mut server) = duplex(64);
        let (outbox, _sender, _task) = Outbox::new(pipe, 4);
        outbox.send(b"now\n".to_vec()).await.unwrap();
        let mut line = [0; 4];
        server.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"now\n");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_for_the_pipe_stays_whole_and_in_its_place() {
        let (pipe, server) = duplex(16);
        let (outbox, sender, task) = Outbox::new(pipe, 4);
        let long = format!("{}\n", "x".repeat(1_000));
        outbox.send(long.clone().into_bytes()).await.unwrap();
        outbox.send(b"after\n".to_vec()).await.unwrap();
        sender.send(b"queued\n".to_vec().into()).await.unwrap();
        drop(sender);
        let ((), lines) = tokio::join!(task, async {
            let mut lines = BufReader::new(server).lines();
            let mut all = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                all.push(line);
            }
            all
        });
        assert_eq!(lines, [long.trim_end(), "after", "queued"]);
    }

    #[tokio::test]
    async fn once_nothing_more_is_to_be_sent_the_input_is_closed_and_nothing_is_taken() {
        let (pipe, mut server) = duplex(16);
        let (outbox, sender, task) = Outbox::new(pipe, 4);
        drop(sender);
        task.await;
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.unwrap();
        assert!(!outbox.send(b"late\n".to_vec()).await.unwrap_err().is_begun);
    }

    #[tokio::test]
    async fn a_line_that_finds_the_input_closed_is_not_begun_and_marks_the_outbox() {
        let (pipe, server) = duplex(16);
        let (outbox, _sender, _task) = Outbox::new(pipe, 4);
        outbox.send(b"now\n".to_vec()).await.unwrap();
        assert!(!outbox.is_broken());
        drop(server);
        for _ in 0..2 {
            assert!(!outbox.send(b"late\n".to_vec()).await.unwrap_err().is_begun);
            assert!(outbox.is_broken());
        }
    }

    #[tokio::test]
    async fn a_queued_line_that_cannot_be_written_marks_the_outbox_too() {
        for (first, is_direct) in [(b"queued\n".to_vec(), false), (b"x".repeat(1_000), true)] {
            let (pipe, server) = duplex(16);
            let (outbox, sender, task) = Outbox::new(pipe, 4);
            if is_direct {
                outbox.send(first).await.unwrap();
            } else {
                sender.send(first.into()).await.unwrap();
            }
            drop(server);
            task.await;
            assert!(outbox.is_broken(), "{is_direct}");
        }
    }
}
