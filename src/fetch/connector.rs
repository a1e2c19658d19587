//! Resolves names, checks all addresses, and connects to exactly the addresses that were checked.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolving};
use url::{Host, Url};

use super::address::{AddressKind, kind_of};
use super::error::FetchError;
use super::policy::{FetchPolicy, shown_host};
use crate::network::NetworkRuntime;
use crate::tls;

/// Number of connections to one host that are kept open for the next request.
const IDLE_CONNECTIONS: usize = 2;
/// Time for which an idle connection is kept. It is shorter than the 5 s after which Node servers close an idle connection, because a
/// request fails if it is sent while the server closes the connection.
const IDLE: Duration = Duration::from_secs(4);

/// Finds the addresses of a host name.
pub trait Resolve: Send + Sync {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// Resolves names as the operating system does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.map(|address| address.ip()).collect()) })
    }
}

/// The rule for private addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Privacy {
    /// Only global addresses are allowed.
    GlobalOnly,
    /// The operator has allowed this name to have private addresses.
    PrivateName,
    /// The operator has allowed this very address.
    PrivateAddress,
}

/// Makes the connections of one session. The policy of a session does not change. So if a connection is kept open, its address is also
/// allowed for later requests to the same scheme, host and port.
pub(super) struct Connector {
    resolver: Arc<dyn Resolve>,
    /// Certificate authorities that replace those of this machine.
    tls: Option<rustls::ClientConfig>,
    connect_time: Duration,
    max_headers: usize,
    runtime: Arc<NetworkRuntime>,
    /// The client for each scheme, host and port. A client connects only to its own host.
    clients: Mutex<HashMap<String, reqwest::Client>>,
}

impl Connector {
    pub(super) fn new(
        resolver: Arc<dyn Resolve>,
        tls: Option<rustls::ClientConfig>,
        runtime: Arc<NetworkRuntime>,
        policy: &FetchPolicy,
    ) -> Self {
        let limits = &policy.limits;
        Self { resolver, tls, connect_time: limits.connect_time, max_headers: limits.headers, runtime, clients: Mutex::default() }
    }

    /// Returns the client for a URL that the policy allows. If the host is an IP address, it is checked immediately. If it is a name, its
    /// addresses are checked when the client connects.
    pub(super) fn client(&self, url: &Url, policy: &FetchPolicy) -> Result<reqwest::Client, FetchError> {
        let is_private = policy.is_private(url);
        let host = shown_host(url);
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            Some(Host::Domain(_)) | None => None,
        };
        if let Some(address) = address {
            check(&host, address, if is_private { Privacy::PrivateAddress } else { Privacy::GlobalOnly })?;
        }
        let origin = url.origin().ascii_serialization();
        if let Some(client) = self.clients.lock().get(&origin) {
            return Ok(client.clone());
        }
        let privacy = if is_private { Privacy::PrivateName } else { Privacy::GlobalOnly };
        let client = self.build(url, privacy)?;
        Ok(self.clients.lock().entry(origin).or_insert(client).clone())
    }

    /// Sends a request, and waits for the headers of its response. Dropping the future ends the request.
    pub(super) async fn send(
        &self,
        url: &Url,
        client: reqwest::Client,
        request: reqwest::Request,
    ) -> Result<reqwest::Response, FetchError> {
        let sent = self.runtime.run(async move { client.execute(request).await }).await?;
        sent.map_err(|error| failure(url, &error))
    }

    fn build(&self, url: &Url, privacy: Privacy) -> Result<reqwest::Client, FetchError> {
        let unavailable = |problem: String| FetchError::Unavailable { problem };
        let tls = match (&self.tls, url.scheme()) {
            (_, "http") => tls::distrusting(),
            (Some(tls), _) => Ok(tls.clone()),
            (None, _) => tls::verifying(),
        };
        let resolver = CheckedResolver { inner: Arc::clone(&self.resolver), host: url.host_str().unwrap_or_default().to_owned(), privacy };
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.map_err(unavailable)?)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // A proxy would resolve the name itself, and connect to an address that was not checked.
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .connect_timeout(self.connect_time)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE)
            .http1_max_headers(self.max_headers)
            .user_agent(concat!("hyperlight-mcp/", env!("CARGO_PKG_VERSION")));
        builder.build().map_err(|error| unavailable(format!("no HTTP client can be made: {error}")))
    }
}

/// Resolves the name of one host. Returns the addresses of the host only if all of them may be reached.
struct CheckedResolver {
    inner: Arc<dyn Resolve>,
    host: String,
    privacy: Privacy,
}

impl reqwest::dns::Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        if name.as_str() != self.host {
            let error = FetchError::Network { host: self.host.clone(), problem: "is not the host that was checked".to_owned() };
            return Box::pin(async move { Err(error.into()) });
        }
        let (found, host, privacy) = (self.inner.resolve(name.as_str()), self.host.clone(), self.privacy);
        Box::pin(async move {
            let cannot = |problem: String| FetchError::Network { host: host.clone(), problem };
            let addresses = found.await.map_err(|error| cannot(format!("cannot be resolved: {error}")))?;
            if addresses.is_empty() {
                return Err(cannot("has no address".to_owned()).into());
            }
            for address in &addresses {
                check(&host, *address, privacy)?;
            }
            let addresses: Vec<_> = addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Fails if a connection to the address is not allowed.
fn check(host: &str, address: IpAddr, privacy: Privacy) -> Result<(), FetchError> {
    let kind = match (kind_of(address), privacy) {
        (AddressKind::Global, _)
        | (AddressKind::Private(_), Privacy::PrivateName | Privacy::PrivateAddress)
        | (AddressKind::LinkLocal(_), Privacy::PrivateAddress) => return Ok(()),
        (AddressKind::Private(kind) | AddressKind::LinkLocal(kind) | AddressKind::Unusable(kind), _) => kind,
    };
    Err(FetchError::AddressNotAllowed { host: host.to_owned(), address: address.to_string(), kind })
}

/// Converts an error of the HTTP client. The converted error contains the host, and no other part of the URL.
pub(super) fn failure(url: &Url, error: &reqwest::Error) -> FetchError {
    let mut innermost: &dyn std::error::Error = error;
    loop {
        if let Some(own) = innermost.downcast_ref::<FetchError>() {
            return own.clone();
        }
        let Some(source) = innermost.source() else { break };
        innermost = source;
    }
    let reason = if innermost.is::<reqwest::Error>() { "the request failed".to_owned() } else { innermost.to_string() };
    let problem = match () {
        () if error.is_timeout() => "could not be connected in time".to_owned(),
        () if error.is_connect() => format!("cannot be connected: {reason}"),
        () => format!("did not answer as expected: {reason}"),
    };
    FetchError::Network { host: shown_host(url), problem: crate::text::sanitise_line(&problem, 300) }
}
