//! Copies bytes between two connections, in both directions, until both have ended or no bytes come for some time.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

/// Maximum number of bytes in one direction that are read and not yet written. If the reader is slow, the writer must wait.
const IN_FLIGHT_BYTES: usize = 128 * 1024;
/// Number of bytes in one direction after which other connections have their turn. All boxes share a few threads, and a box can have many connections that always
/// have more bytes.
const TURN_BYTES: usize = 64 * 1024;
/// Time without a byte after which a connection is ended.
const IDLE: Duration = Duration::from_mins(30);
/// Time without a byte after which a connection is ended, if one side has ended already. Otherwise, a server could keep many connections
/// that are of no use.
const IDLE_AFTER_END: Duration = Duration::from_secs(30);
/// The interval at which the traffic of a connection is checked.
const LOOK: Duration = Duration::from_secs(5);

/// Copies until both sides have ended.
///
/// # Errors
/// One of the connections has failed, or no bytes came for some time.
pub(super) async fn splice(inner: &mut TcpStream, outer: &mut TcpStream) -> io::Result<()> {
    let traffic = Traffic::default();
    let in_turn = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let mut inner = Counted { stream: inner, traffic: &traffic, in_turn: &in_turn[0] };
    let mut outer = Counted { stream: outer, traffic: &traffic, in_turn: &in_turn[1] };
    let mut copying = std::pin::pin!(copy_bidirectional_with_sizes(&mut inner, &mut outer, IN_FLIGHT_BYTES, IN_FLIGHT_BYTES));
    let in_turns = poll_fn(|context| {
        for bytes in &in_turn {
            bytes.store(0, Ordering::Relaxed);
        }
        copying.as_mut().poll(context)
    });
    tokio::select! {
        copied = in_turns => copied.map(drop),
        () = traffic.idle() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The traffic of one connection so far.
#[derive(Default)]
struct Traffic {
    /// Increases with each byte that comes or goes.
    moved: AtomicU64,
    /// True after one side has ended.
    has_end: AtomicBool,
}

impl Traffic {
    /// Resolves when no bytes have come for some time.
    async fn idle(&self) {
        let mut looks = Looks::default();
        while !looks.is_over(self.moved.load(Ordering::Relaxed), self.has_end.load(Ordering::Relaxed)) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The byte count at the last check, and the time since this count changed.
#[derive(Default)]
struct Looks {
    count: u64,
    quiet: Duration,
}

impl Looks {
    /// Returns whether no byte has come for too long. The caller passes the current count once in each [`LOOK`].
    fn is_over(&mut self, count: u64, has_end: bool) -> bool {
        self.quiet = if std::mem::replace(&mut self.count, count) == count { self.quiet + LOOK } else { Duration::ZERO };
        self.quiet > if has_end { IDLE_AFTER_END } else { IDLE }
    }
}

/// A connection that counts the bytes that are read from it.
struct Counted<'a> {
    stream: &'a mut TcpStream,
    traffic: &'a Traffic,
    /// Number of bytes that were read in this turn. Each direction has its own, so that neither waits for the other.
    in_turn: &'a AtomicUsize,
}

impl AsyncRead for Counted<'_> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.in_turn.load(Ordering::Relaxed) >= TURN_BYTES {
            // The runtime runs the tasks that wait already before this one.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut *self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.traffic.moved.fetch_add(1, Ordering::Relaxed);
            self.in_turn.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
            if buffer.filled().len() == before && buffer.remaining() > 0 {
                self.traffic.has_end.store(true, Ordering::Relaxed);
            }
        }
        polled
    }
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.stream).poll_write(context, bytes);
        if polled.is_ready() {
            self.traffic.moved.fetch_add(1, Ordering::Relaxed);
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

    /// Returns the time until a connection on which nothing moves is ended.
    fn time_until_end(has_end: bool) -> Duration {
        let mut looks = Looks::default();
        assert!(!looks.is_over(7, has_end), "something has moved");
        let more = std::iter::repeat_with(|| looks.is_over(7, has_end)).take_while(|is_over| !is_over).count();
        LOOK * u32::try_from(more).unwrap()
    }

    #[test]
    fn a_connection_with_one_side_ends_sooner_than_a_silent_one() {
        assert_eq!([time_until_end(true), time_until_end(false)], [IDLE_AFTER_END, IDLE]);
        let mut looks = Looks::default();
        assert!((1..1000).all(|count| !looks.is_over(count, true)), "while something moves, it goes on");
    }

    /// Each read is counted at once, so the end of a side is noted when it comes.
    #[tokio::test]
    async fn the_end_of_one_side_is_noted_and_the_other_goes_on() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (mut near, (mut far, _)) = tokio::try_join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept()).unwrap();
        let traffic = Traffic::default();
        let in_turn = AtomicUsize::new(0);
        let mut counted = Counted { stream: &mut near, traffic: &traffic, in_turn: &in_turn };
        let mut bytes = Vec::new();
        tokio::io::AsyncWriteExt::write_all(&mut far, b"text").await.unwrap();
        tokio::io::AsyncReadExt::read_buf(&mut counted, &mut bytes).await.unwrap();
        assert!(!traffic.has_end.load(Ordering::Relaxed) && bytes == b"text");
        tokio::io::AsyncWriteExt::shutdown(&mut far).await.unwrap();
        assert_eq!(tokio::io::AsyncReadExt::read_buf(&mut counted, &mut bytes).await.unwrap(), 0);
        assert!(traffic.has_end.load(Ordering::Relaxed));
    }

    /// A connection that always has more bytes would otherwise keep its thread, and the connections of other boxes would wait.
    #[tokio::test]
    async fn a_connection_reads_no_more_in_one_turn_than_its_share() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (mut near, (mut far, _)) = tokio::try_join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept()).unwrap();
        let (traffic, in_turn) = (Traffic::default(), AtomicUsize::new(TURN_BYTES));
        let mut counted = Counted { stream: &mut near, traffic: &traffic, in_turn: &in_turn };
        tokio::io::AsyncWriteExt::write_all(&mut far, b"text").await.unwrap();
        let mut bytes = Vec::new();
        let first = futures::poll!(std::pin::pin!(tokio::io::AsyncReadExt::read_buf(&mut counted, &mut bytes)));
        assert!(first.is_pending() && bytes.is_empty());
        in_turn.store(0, Ordering::Relaxed);
        assert_eq!(tokio::io::AsyncReadExt::read_buf(&mut counted, &mut bytes).await.unwrap(), 4);
        assert_eq!(in_turn.load(Ordering::Relaxed), 4);
    }
}
