//! Copies bytes between two connections, in both directions, until both have ended or no bytes come for some time.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

/// Maximum number of bytes in one direction that are read and not yet written. If the reader is slow, the writer must wait.
const IN_FLIGHT_BYTES: usize = 128 * 1024;
/// Time without a byte after which a connection is ended, at the latest after twice as long.
const IDLE: Duration = Duration::from_mins(30);

/// Copies until both sides have ended.
///
/// # Errors
/// One of the connections has failed, or no bytes came for some time.
pub(super) async fn splice(inner: &mut TcpStream, outer: &mut TcpStream) -> io::Result<()> {
    let moved = AtomicU64::new(0);
    let (mut inner, mut outer) = (Counted { stream: inner, moved: &moved }, Counted { stream: outer, moved: &moved });
    tokio::select! {
        copied = copy_bidirectional_with_sizes(&mut inner, &mut outer, IN_FLIGHT_BYTES, IN_FLIGHT_BYTES) => copied.map(drop),
        () = idle(&moved, IDLE) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Resolves when no bytes have come for some time.
async fn idle(moved: &AtomicU64, time: Duration) {
    let mut seen = Seen::default();
    while seen.has_moved(moved.load(Ordering::Relaxed)) {
        tokio::time::sleep(time).await;
    }
}

/// The count at the last check.
#[derive(Default)]
struct Seen(Option<u64>);

impl Seen {
    /// Returns whether bytes have come since the last check. The first check returns true.
    fn has_moved(&mut self, count: u64) -> bool {
        self.0.replace(count) != Some(count)
    }
}

/// A connection that counts the bytes that are read from it.
struct Counted<'a> {
    stream: &'a mut TcpStream,
    moved: &'a AtomicU64,
}

impl AsyncRead for Counted<'_> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut *self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.stream).poll_write(context, bytes);
        if polled.is_ready() {
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_move_between_two_looks_is_idle() {
        let mut seen = Seen::default();
        assert_eq!([0, 1, 7, 7].map(|count| seen.has_moved(count)), [true, true, true, false]);
        let mut seen = Seen::default();
        assert_eq!([3, 3].map(|count| seen.has_moved(count)), [true, false]);
    }
}
