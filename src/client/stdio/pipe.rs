//! A server's standard output, which the runtime reads.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;

/// Number of bytes that may be read before the runtime's other tasks run again.
const TURN_BYTES: usize = 256 * 1024;

/// The read end of the pipe for a server's output.
pub(in crate::client) struct Pipe {
    output: Receiver,
    /// Number of bytes that were read since the runtime last ran its other tasks.
    turn: usize,
}

impl Pipe {
    /// Takes ownership of the read end of a pipe. No other code may read from the pipe.
    pub(in crate::client) fn new(output: OwnedFd) -> Result<Self> {
        Ok(Self { output: Receiver::from_owned_fd(output)?, turn: 0 })
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        // tokio's own budget counts reads, not bytes, and one read can return all bytes in a pipe.
        if self.turn >= TURN_BYTES {
            self.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.output).poll_read(context, buffer);
        if polled.is_pending() {
            self.turn = 0;
        }
        ready!(polled)?;
        self.turn += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn a_server_that_never_stops_writing_leaves_the_runtime_to_others() {
        let (output, input) = rustix::pipe::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&output, MIB).unwrap();
        assert_eq!(rustix::io::write(&input, &vec![b'x'; MIB]), Ok(MIB));
        let mut pipe = Pipe::new(output).unwrap();
        let mut piece = vec![0; 64 * 1024];
        // Reads until one poll of the task ends, and returns the number of bytes read.
        let mut turn = async || {
            poll_fn(|context| {
                let mut bytes = 0;
                loop {
                    let mut buffer = ReadBuf::new(&mut piece);
                    match Pin::new(&mut pipe).poll_read(context, &mut buffer) {
                        Poll::Ready(read) => read.unwrap(),
                        Poll::Pending if bytes == 0 => return Poll::Pending,
                        Poll::Pending => return Poll::Ready(bytes),
                    }
                    bytes += buffer.filled().len();
                }
            })
            .await
        };
        for _ in 0..MIB / TURN_BYTES {
            assert_eq!(turn().await, TURN_BYTES);
        }
    }
}
