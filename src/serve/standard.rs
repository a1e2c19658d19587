//! Standard input and output of this process as a transport for the protocol.
//!
//! tokio's types for these streams block threads that cannot be woken: a thread that waits for the host would continue after serving has
//! ended, and would consume the next bytes of standard input. Setting `O_NONBLOCK` would also change the terminal or pipe for other
//! programs that share it. So this module waits until a stream is ready, and then only reads or writes in a way that cannot block.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The number of bytes that a ready pipe accepts without blocking (`PIPE_BUF` on Linux). A ready socket accepts this number too.
const WRITE_BYTES: usize = 4096;

type Ended = Pin<Box<WaitForCancellationFutureOwned>>;

/// A standard input or output stream.
enum Stream {
    /// A pipe, a socket or a terminal, whose readiness can be awaited.
    Waits(AsyncFd<OwnedFd>),
    /// A file or `/dev/null`, which is always ready.
    Ready(OwnedFd),
}

impl Stream {
    fn new(stream: impl AsFd, interest: Interest) -> io::Result<Self> {
        let stream = stream.as_fd().try_clone_to_owned()?;
        match AsyncFd::try_with_interest(stream, interest) {
            Ok(stream) => Ok(Self::Waits(stream)),
            Err(error) => match error.into_parts() {
                (stream, cause) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(Self::Ready(stream)),
                (_, cause) => Err(cause),
            },
        }
    }
}

/// Returns the error `WouldBlock` if the stream is not ready any more, for example because another program has read the data.
fn check_ready(stream: &OwnedFd, flags: PollFlags) -> io::Result<()> {
    let mut streams = [PollFd::new(stream, flags)];
    let count = poll(&mut streams, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

/// Standard input. It ends when the stream ends or when a token is cancelled.
pub(super) struct Input {
    stream: Stream,
    ended: Ended,
}

impl Input {
    pub(super) fn new(stream: impl AsFd, ended: CancellationToken) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(stream, Interest::READABLE)?, ended: Box::pin(ended.cancelled_owned()) })
    }
}

impl AsyncRead for Input {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let read = |stream: &OwnedFd, buffer: &mut ReadBuf<'_>| {
            let count = rustix::io::read(stream, buffer.initialize_unfilled())?;
            buffer.advance(count);
            Ok(())
        };
        match &self.stream {
            Stream::Ready(stream) => Poll::Ready(read(stream, buffer)),
            Stream::Waits(stream) => loop {
                let mut guard = ready!(stream.poll_read_ready(context))?;
                let done = guard.try_io(|stream| {
                    check_ready(stream.get_ref(), PollFlags::IN)?;
                    read(stream.get_ref(), buffer)
                });
                if let Ok(done) = done {
                    return Poll::Ready(done);
                }
            },
        }
    }
}

/// Standard output. Writing fails after a token is cancelled.
pub(super) struct Output {
    stream: Stream,
    cut: Ended,
}

impl Output {
    pub(super) fn new(stream: impl AsFd, cut: CancellationToken) -> io::Result<Self> {
        Ok(Self { stream: Stream::new(stream, Interest::WRITABLE)?, cut: Box::pin(cut.cancelled_owned()) })
    }
}

impl AsyncWrite for Output {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match &self.stream {
            Stream::Ready(stream) => Poll::Ready(Ok(rustix::io::write(stream, bytes)?)),
            Stream::Waits(stream) => loop {
                let mut guard = ready!(stream.poll_write_ready(context))?;
                let done = guard.try_io(|stream| {
                    check_ready(stream.get_ref(), PollFlags::OUT)?;
                    Ok(rustix::io::write(stream.get_ref(), &bytes[..bytes.len().min(WRITE_BYTES)])?)
                });
                if let Ok(done) = done {
                    return Poll::Ready(done);
                }
            },
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn is_blocking(stream: impl AsFd) -> bool {
        !rustix::fs::fcntl_getfl(stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK)
    }

    #[tokio::test]
    async fn what_one_side_writes_the_other_side_reads_and_no_mode_changes() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut input, mut output) =
            (Input::new(&near, CancellationToken::new()).unwrap(), Output::new(&far, CancellationToken::new()).unwrap());
        let sent = vec![b'x'; 1 << 20];
        let written = sent.clone();
        let writing = tokio::spawn(async move { output.write_all(&written).await });
        let mut received = vec![0; sent.len()];
        input.read_exact(&mut received).await.unwrap();
        writing.await.unwrap().unwrap();
        assert!(received == sent && is_blocking(&near) && is_blocking(&far));
        drop(far);
        assert_eq!(input.read(&mut received).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_input_that_ends_by_its_token_leaves_the_next_bytes_to_others() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let ended = CancellationToken::new();
        let mut input = Input::new(&near, ended.clone()).unwrap();
        let reading = tokio::spawn(async move { input.read(&mut [0; 8]).await });
        tokio::task::yield_now().await;
        ended.cancel();
        assert_eq!(reading.await.unwrap().unwrap(), 0);
        io::Write::write_all(&mut far, b"later").unwrap();
        let mut left = [0; 5];
        io::Read::read_exact(&mut &near, &mut left).unwrap();
        assert_eq!(&left, b"later");
    }

    #[tokio::test]
    async fn an_output_that_nobody_reads_is_cut() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let cut = CancellationToken::new();
        let mut output = Output::new(&writer, cut.clone()).unwrap();
        let writing = tokio::spawn(async move { output.write_all(&vec![b'x'; 1 << 20]).await });
        tokio::task::yield_now().await;
        cut.cancel();
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_file_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let mut text = String::new();
        Input::new(File::open(&path).unwrap(), CancellationToken::new()).unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "text");
    }
}
