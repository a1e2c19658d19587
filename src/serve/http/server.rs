//! Starts and closes the HTTP server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::ServerHandler;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::access::{Access, Principal};
use super::callers::Callers;
use super::connection::Connections;
use super::metrics::Metrics;
use super::options::{HttpOptions, invalid};
use super::origin::Allowed;
use super::rate::Rates;
use super::router::{Shared, router};
use super::tls::acceptor;
use crate::error::{Error, Result};
use crate::serve::Drain;
use crate::serve::places::Places;

/// The time in which completed responses can be written after all requests have ended or were cancelled.
const LAST_WRITES: Duration = Duration::from_secs(1);
/// The interval at which tokens are checked. With this check, everything that belongs to a withdrawn token ends even if nobody sends a
/// request.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_CHECK_INTERVAL: Duration = Duration::from_secs(30);
const SHORTEST_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A running HTTP server. Dropping it ends the server immediately.
#[derive(Debug)]
pub struct HttpServer {
    url: String,
    address: SocketAddr,
    requests: Arc<Places>,
    drain: Duration,
    draining: CancellationToken,
    stopped: CancellationToken,
    killed: CancellationToken,
    ended: CancellationToken,
    tasks: TaskTracker,
    _ends_with_this: DropGuard,
}

/// Checks the options as far as possible without serving: their values, the files, and that this machine can listen on the address now.
/// Another program may still take the port before [`listen`] does.
///
/// # Errors
/// The errors of [`listen`].
pub async fn check(options: &HttpOptions) -> Result<()> {
    let wanted = options.validate()?;
    Access::new(options)?;
    options.tls.as_ref().map(acceptor).transpose()?;
    let listener = bound(wanted).await?;
    let port = listener.local_addr().map_err(|error| unbound(wanted, &error))?.port();
    Allowed::new(&options.allowed_hosts, &options.allowed_origins, options.tls.is_some(), port).map(drop)
}

async fn bound(wanted: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(wanted).await.map_err(|error| unbound(wanted, &error))
}

/// Starts to listen, and serves the handlers that `make` returns. `make` is called for each session. In the protocol without sessions, it
/// is called for each request. When `closed` is cancelled, the server ends immediately.
///
/// # Errors
/// `ERR_INVALID_OPTION` for an invalid option, a file with invalid content, or an address that this machine does not have; `ERR_IO` for a
/// file that cannot be read, or a port that is in use.
pub async fn listen<H: ServerHandler>(
    options: HttpOptions,
    make: impl Fn(&Principal) -> H + Send + Sync + 'static,
    metrics: Arc<Metrics>,
    closed: CancellationToken,
) -> Result<HttpServer> {
    let wanted = options.validate()?;
    let access = Access::new(&options)?;
    let tls = options.tls.as_ref().map(acceptor).transpose()?;
    let listener = bound(wanted).await?;
    let address = listener.local_addr().map_err(|error| unbound(wanted, &error))?;
    let HttpOptions { allowed_hosts, allowed_origins, limits, .. } = options;
    let (draining, stopped, ended) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    // This is a child token, because a task that watched `closed` itself could outlive the server.
    let killed = closed.child_token();
    let callers = Callers::new(Arc::new(make), &limits, metrics.clone(), ended.clone());
    let requests = Arc::clone(&callers.places.slots);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let is_open = access.is_open();
    let shared = Arc::new(Shared {
        access,
        allowed: Allowed::new(&allowed_hosts, &allowed_origins, tls.is_some(), address.port())?,
        callers,
        rates: Rates::new(limits.requests_per_second),
        draining: draining.clone(),
        metrics: metrics.clone(),
        limits: limits.clone(),
    });
    let tasks = TaskTracker::new();
    let server = HttpServer {
        url: format!("{scheme}://{}/mcp", reachable(address)),
        address,
        requests,
        drain: limits.drain,
        draining,
        stopped: stopped.clone(),
        killed: killed.clone(),
        ended: ended.clone(),
        tasks: tasks.clone(),
        _ends_with_this: killed.clone().drop_guard(),
    };
    let connections = Connections { router: router(shared.clone()), tls, is_open, limits, metrics, tasks, stopped, killed };
    server.start(connections, listener, shared);
    Ok(server)
}

impl HttpServer {
    /// Starts the tasks of the server. One accepts connections. The other ends sessions that have been idle for too long or whose token was
    /// withdrawn.
    fn start<H: ServerHandler>(&self, connections: Connections, listener: TcpListener, shared: Arc<Shared<H>>) {
        let (killed, ended) = (self.killed.clone(), self.ended.clone());
        let check_interval = (shared.limits.session_idle / 4).clamp(SHORTEST_CHECK_INTERVAL, LONGEST_CHECK_INTERVAL);
        self.tasks.spawn({
            let killed = killed.clone();
            async move {
                tokio::select! {
                    () = connections.accept(listener) => {}
                    () = killed.cancelled() => {}
                }
            }
        });
        self.tasks.spawn(async move {
            let ends_left_sessions = async {
                loop {
                    sleep(check_interval).await;
                    shared.callers.end_left(Instant::now()).await;
                }
            };
            let ends_withdrawn_callers = async {
                loop {
                    sleep(TOKEN_CHECK_INTERVAL).await;
                    shared.end_withdrawn_callers();
                }
            };
            tokio::select! {
                () = killed.cancelled() => ended.cancel(),
                () = ended.cancelled() => {}
                () = ends_left_sessions => {}
                () = ends_withdrawn_callers => {}
            }
        });
    }

    /// Returns the URL of the MCP endpoint.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the socket address, with the port that the operating system chose if the option was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the server. From now on new requests get status 503. Requests in progress may continue for the time `limits.drain`, and are
    /// then cancelled. A second call waits for the first.
    pub async fn close(&self) -> Drain {
        self.close_after(std::future::ready(())).await
    }

    /// Closes the server like [`HttpServer::close`]. `work` counts as a request in progress.
    pub(crate) async fn close_after(&self, work: impl Future<Output = ()>) -> Drain {
        self.draining.cancel();
        let in_progress = futures::future::join(self.requests.until_free(), work);
        let drain = tokio::select! {
            biased;
            ended = timeout(self.drain, in_progress) => if ended.is_ok() { Drain::Complete } else { Drain::CutOff },
            () = self.killed.cancelled() => Drain::CutOff,
        };
        self.ended.cancel();
        self.stopped.cancel();
        self.tasks.close();
        let _ = timeout(LAST_WRITES, self.tasks.wait()).await;
        self.killed.cancel();
        self.tasks.wait().await;
        drain
    }
}

/// Returns an address to which a client on this machine can connect.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn unbound(address: SocketAddr, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            invalid(format!("{} is not an address of this machine: listen on 127.0.0.1, or on an address of this machine", address.ip()))
        }
        std::io::ErrorKind::AddrInUse => Error::io(
            format!("port {} of {} is in use: choose another port, or 0 for any that is free", address.port(), address.ip()),
            error,
        ),
        std::io::ErrorKind::PermissionDenied => {
            Error::io(format!("port {} of {} is not permitted: choose one from 1024", address.port(), address.ip()), error)
        }
        _ => Error::io(format!("the server cannot listen on {address}"), error),
    }
}
