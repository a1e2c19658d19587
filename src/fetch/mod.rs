//! The only connection from agent code to the network (`docs/FETCH.md` calls it the border). Every request of agent code is checked,
//! limited and recorded here.
//!
//! There is one [`Fetcher`]. For each run, it makes a [`FetchSession`] from the [`FetchPolicy`] of the run. The session checks each
//! request, and checks each redirect like a new request. It connects only to addresses that it has checked itself. `docs/FETCH.md`
//! describes the checks.

mod address;
mod body;
mod budget;
mod connector;
mod decode;
mod error;
mod headers;
mod hosts;
mod policy;
mod record;
mod redirect;
mod request;
mod secrets;
mod session;
mod shown_hosts;
mod suffix;

use std::sync::Arc;

pub(crate) use address::{AddressKind, kind_of};
pub use budget::{FetchLimits, MAX_CHUNK_BYTES};
use connector::Connector;
pub use connector::{Resolve, SystemResolver};
pub use error::FetchError;
pub use hosts::{AllowedHost, AllowedHosts, HostMatch, InvalidHost};
pub use policy::FetchPolicy;
pub use record::{FetchObserver, FetchOutcome, FetchRecord, NoObserver};
pub use request::{FetchRequest, Methods, RedirectMode};
pub use secrets::FetchSecret;
pub use session::{FetchResponse, FetchSession};
pub use shown_hosts::shown_host_entry;
pub(crate) use shown_hosts::{normal_host_entry, unicode_entries};

use crate::network::{NetworkRuntime, NetworkThreads};

const THREADS: NetworkThreads = NetworkThreads { name: "mcp-fetch", workers: 1, blocking: 16 };

/// Makes sessions. Contains the parts that all sessions share: the resolver, and the certificate authorities.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use hyperlight_mcp::fetch::{AllowedHosts, FetchPolicy, FetchRequest, Fetcher, NoObserver};
/// let policy = FetchPolicy::new(AllowedHosts::parse(["api.example.org"])?, "Add it to fetch.hosts.");
/// let session = Fetcher::new().session(policy, Arc::new(NoObserver))?;
/// let response = session.open(FetchRequest::get("https://api.example.org/status")).await?;
/// if let Some(body) = response.body {
///     let bytes = session.read_all(body).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fetcher {
    resolver: Arc<dyn Resolve>,
    tls: Option<rustls::ClientConfig>,
    runtime: Arc<NetworkRuntime>,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetcher {
    /// Makes a fetcher that resolves names as the operating system does, and trusts the certificate authorities of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self { resolver: Arc::new(SystemResolver), tls: None, runtime: Arc::new(NetworkRuntime::new(THREADS)) }
    }

    /// Sets another resolver for host names.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, ..self }
    }

    /// Sets certificate authorities that replace those of this machine.
    #[must_use]
    pub fn with_tls(self, tls: rustls::ClientConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Ends all fetches of all sessions, and the threads that serve them. Later requests fail with `ERR_FETCH_ENDED`.
    pub fn end(&self) {
        self.runtime.end();
    }

    /// Begins the fetches of a run. The observer is informed about each request.
    ///
    /// # Errors
    /// `ERR_FETCH_UNAVAILABLE` if the search for the policy's secrets cannot be prepared.
    pub fn session(&self, policy: FetchPolicy, observer: Arc<dyn FetchObserver>) -> Result<FetchSession, FetchError> {
        let connector = Connector::new(Arc::clone(&self.resolver), self.tls.clone(), Arc::clone(&self.runtime), &policy);
        FetchSession::new(policy, connector, observer)
    }
}
