//! Accepts connections and serves each in a separate task, so that a slow or broken client does not delay others.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use super::metrics::{Metrics, Refusal};
use super::options::HttpLimits;
use super::peer;
use super::rate::Client;
use super::stall_timeout::StallTimeout;

const MAX_HEADER_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
/// The maximum share of the files that this process may open that connections use: one in this number. Boxes use at most half of these
/// files.
const PART_OF_FILES: u64 = 4;
/// The pause after a failed accept. If file descriptors are exhausted, accepting works again only after connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The time after which the kernel closes a connection whose client has acknowledged nothing, for example because the client's machine is
/// gone.
const UNCONFIRMED_MS: u32 = 60_000;
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

const OTHER_USER: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 106\r\n\r\n\
this server accepts only requests from the user who runs it; to accept others, start it with --token-file\n";

/// The addresses of both ends of a connection. They are stored in the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionAddresses {
    pub(super) client: IpAddr,
    pub(super) local: IpAddr,
}

/// The parts that every connection needs.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) router: Router,
    pub(super) tls: Option<TlsAcceptor>,
    /// True if no caller needs a token. In this case, connections of other users of this machine are refused.
    pub(super) is_open: bool,
    pub(super) limits: HttpLimits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tasks: TaskTracker,
    /// Cancelled when no more connections are accepted. Each open connection then ends after its current response.
    pub(super) stopped: CancellationToken,
    /// Cancelled when all connections must end immediately.
    pub(super) killed: CancellationToken,
}

/// The limits on the number of connections.
struct ConnectionSlots {
    all: usize,
    of_address: usize,
    metrics: Arc<Metrics>,
    taken: Mutex<TakenSlots>,
}

#[derive(Default)]
struct TakenSlots {
    all: usize,
    of_address: HashMap<Client, usize>,
}

/// One counted connection, until this value is dropped.
struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    client: Client,
}

impl ConnectionSlots {
    fn take(self: &Arc<Self>, client: Client) -> Option<ConnectionSlot> {
        let mut taken = self.taken.lock();
        if taken.all >= self.all || taken.of_address.get(&client).is_some_and(|count| *count >= self.of_address) {
            return None;
        }
        taken.all += 1;
        *taken.of_address.entry(client.clone()).or_default() += 1;
        self.metrics.add_connection();
        Some(ConnectionSlot { slots: self.clone(), client })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        taken.all -= 1;
        if let Some(count) = taken.of_address.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.of_address.remove(&self.client);
            }
        }
        self.slots.metrics.remove_connection();
    }
}

/// Returns the number of connections that leave enough files for everything else: the store, servers, runs and boxes. `files` is the number
/// of files that this process may open. It is `None` if the number is not limited.
fn connections_of(files: Option<u64>) -> usize {
    files.map_or(usize::MAX, |files| usize::try_from(files / PART_OF_FILES).unwrap_or(usize::MAX)).max(1)
}

impl Connections {
    /// Accepts connections until the server stops.
    pub(super) async fn accept(self, listener: TcpListener) {
        let files = getrlimit(Resource::Nofile).current;
        let slots = Arc::new(ConnectionSlots {
            all: self.limits.max_connections.min(connections_of(files)),
            of_address: self.limits.max_connections_per_address,
            metrics: self.metrics.clone(),
            taken: Mutex::default(),
        });
        let this = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                () = this.stopped.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, client)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(slot) = slots.take(Client::at(client.ip())) else {
                this.metrics.refused(Refusal::Connections);
                if this.tls.is_none() {
                    // Writing fails if the client is already gone.
                    let _ = stream.try_write(TOO_MANY);
                }
                continue;
            };
            let connections = this.clone();
            this.tasks.spawn(async move {
                tokio::select! {
                    () = connections.killed.cancelled() => {}
                    () = connections.serve(stream, client) => {}
                }
                drop(slot);
            });
        }
    }

    async fn serve(&self, stream: TcpStream, client: SocketAddr) {
        let Ok(local) = stream.local_addr() else { return };
        // If no token is needed, the listener has a loopback address, which only programs of this machine can reach. A program can use any
        // address of the machine as its own address, so the client's address does not show which user runs it.
        if self.is_open {
            let refused = tokio::task::spawn_blocking(move || peer::is_of_another_user(client, local)).await;
            if refused.unwrap_or(true) {
                self.metrics.refused(Refusal::User);
                if self.tls.is_none() {
                    // Writing fails if the client is already gone.
                    let _ = stream.try_write(OTHER_USER);
                }
                return;
            }
        }
        // Both options are only improvements, so errors are ignored.
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNCONFIRMED_MS);
        let addresses = ConnectionAddresses { client: client.ip(), local: local.ip() };
        match &self.tls {
            None => self.serve_http(stream, addresses).await,
            Some(tls) => {
                if let Ok(Ok(stream)) = timeout(self.limits.header_timeout, tls.accept(stream)).await {
                    self.serve_http(stream, addresses).await;
                }
            }
        }
    }

    async fn serve_http(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, addresses: ConnectionAddresses) {
        let io = TokioIo::new(StallTimeout::new(stream, self.limits.write_timeout));
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(addresses);
            let mut router = self.router.clone();
            async move { Ok::<_, Infallible>(router.call(request.map(Body::new)).await.unwrap_or_else(|never| match never {})) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        // If a connection fails, for example because the client does not send HTTP, only this client is affected.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = self.stopped.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_all_else() {
        assert_eq!([Some(1024), Some(2), None].map(connections_of), [256, 1, usize::MAX]);
    }

    #[test]
    fn one_address_does_not_take_all_connections() {
        let metrics = Arc::new(Metrics::default());
        let slots = Arc::new(ConnectionSlots { all: 3, of_address: 2, metrics, taken: Mutex::default() });
        let take = |address: &str| slots.take(Client::at(address.parse().unwrap()));
        let (first, second) = (take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_none());
        let other = take("192.0.2.2").unwrap();
        assert!(take("192.0.2.3").is_none(), "all are taken");
        drop((first, second, other));
        let taken = slots.taken.lock();
        assert!(taken.all == 0 && taken.of_address.is_empty());
    }
}
