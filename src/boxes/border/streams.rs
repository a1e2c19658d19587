//! TCP connections. The border accepts and checks each connection, connects to its host outside, and then copies the bytes.

use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::pace;
use super::reach::Unreached;
use super::refusal::RefusalReason;
use super::rules::Destination;
use super::shared::Shared;
use super::splice::splice;

/// Number of descriptors of one connection: its socket in the box, and its socket outside.
const OF_CONNECTION: usize = 2;
/// Size in bytes of the kernel's buffer for data from a host. The kernel doubles this number, for its own data.
const RECEIVED_BYTES: usize = 512 * 1024;
/// Size in bytes of the kernel's buffer for data that a host has not confirmed yet.
const SENT_BYTES: usize = 128 * 1024;
/// The pause after a connection could not be accepted, because this process has no free descriptor.
const PAUSE: Duration = Duration::from_millis(50);
/// The time for which a refused connection waits for its first bytes.
const REFUSAL_PAUSE: Duration = Duration::from_millis(200);

/// Accepts connections until the border is dropped.
pub(super) async fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accepted(listener) => {
                pace::wait(&shared.connecting).await;
                let place = Arc::clone(&shared.connections).try_acquire_owned().ok();
                let Some(place) = place.zip(shared.descriptors.take(OF_CONNECTION)) else {
                    refuse(&accepted, shared);
                    continue;
                };
                let shared = Arc::clone(shared);
                open.spawn(async move {
                    carry(accepted, &shared).await;
                    drop(place);
                });
            }
            _ = open.join_next(), if !open.is_empty() => {}
        }
    }
}

/// Returns the next connection.
pub(super) async fn accepted(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Refuses a connection because there are too many.
fn refuse(stream: &TcpStream, shared: &Shared) {
    reset(stream);
    if let Ok(meant) = stream.local_addr() {
        shared.refuse_as(meant, RefusalReason::TooMany);
    }
}

/// Refuses a connection after its first bytes. A client may miss a reset that comes at the moment at which it notices that the connection is open:
/// in 54 of 360 starts of Node 20 on a busy machine, its `fetch` then never ended. A client that waits for the other side to begin gets the
/// reset after a short pause.
async fn turn_away(inner: &TcpStream) {
    // Readiness alone may be reported too early.
    let _ = tokio::time::timeout(REFUSAL_PAUSE, inner.peek(&mut [0])).await;
    reset(inner);
}

/// Serves one connection until it ends.
async fn carry(mut inner: TcpStream, shared: &Shared) {
    let Some((mut outer, destination)) = connected(&inner, shared).await else { return turn_away(&inner).await };
    let is_whole = tokio::select! {
        copied = splice(&mut inner, &mut outer) => copied.is_ok(),
        () = shared.closed(&destination) => false,
    };
    if !is_whole {
        // A normal end of the connection would look as if all bytes had arrived.
        reset(&inner);
        reset(&outer);
    }
}

/// Connects to the host to which a process in the box wanted to connect. Reports a refusal.
async fn connected(inner: &TcpStream, shared: &Shared) -> Option<(TcpStream, Destination)> {
    let meant = inner.local_addr().ok()?;
    let destination = shared.judge(meant).map_err(|refusal| shared.refuse(refusal)).ok()?;
    let outer = tokio::select! {
        connected = shared.reach.connect(&destination, shared.rules()) => connected,
        () = shared.closed(&destination) => return None,
    };
    match outer {
        Ok(outer) => {
            // Small messages must not wait for one another.
            let _ = (inner.set_nodelay(true), outer.set_nodelay(true));
            bound(&outer);
            Some((outer, destination))
        }
        Err(Unreached::Refused) => {
            shared.refuse_as(meant, RefusalReason::PrivateAddress);
            None
        }
        Err(Unreached::Failed) => None,
    }
}

/// Limits the memory that the kernel uses for a connection to a host. Otherwise, a connection with a slow reader or writer would use
/// several megabytes, which no limit of the box counts. The box's own network limits the connections within it.
fn bound(outer: &TcpStream) {
    // If the kernel allows only smaller buffers, it uses the largest size that it allows.
    let _ = (set_socket_recv_buffer_size(outer, RECEIVED_BYTES), set_socket_send_buffer_size(outer, SENT_BYTES));
}

/// Makes the kernel reset a connection when it is closed.
fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Returns both ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (outside, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (outside.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn a_refused_connection_is_reset_after_its_first_bytes_and_never_before() {
        let (mut client, inner) = pair().await;
        let mut refusing = Box::pin(turn_away(&inner));
        assert!(refusing.as_mut().now_or_never().is_none());
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        refusing.await;
        drop(inner);
        assert_eq!(client.read(&mut [0; 1]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_refused_client_that_sends_nothing_gets_its_reset_too() {
        let (mut client, inner) = pair().await;
        turn_away(&inner).await;
        drop(inner);
        assert_eq!(client.read(&mut [0; 1]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn the_kernel_keeps_little_for_a_host() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let outer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        bound(&outer);
        // The kernel does not enlarge a buffer whose size was set.
        assert!(
            socket_recv_buffer_size(&outer).unwrap() <= 2 * RECEIVED_BYTES && socket_send_buffer_size(&outer).unwrap() <= 2 * SENT_BYTES
        );
    }
}
