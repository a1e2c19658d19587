//! Finds the addresses of a destination outside of the box, and selects the permitted ones.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::rules::{Destination, Rules};
use crate::fetch::Resolve;

/// Maximum number of simultaneous lookups of one box. A lookup that was given up keeps its place until the system ends it.
const LOOKUPS: usize = 4;
const LOOKUP_TIME: Duration = Duration::from_secs(10);
const CONNECT_TIME: Duration = Duration::from_secs(8);
/// Maximum number of addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;

/// The reason why a destination was not reached.
#[derive(Debug)]
pub(super) enum Unreached {
    /// All addresses of the name are private or cannot be used.
    Refused,
    /// The network has failed.
    Failed,
}

pub(super) struct Reach {
    resolver: Arc<dyn Resolve>,
    places: Arc<Semaphore>,
}

impl Reach {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, places: Arc::new(Semaphore::new(LOOKUPS)) }
    }

    /// Connects to the first address that answers.
    pub(super) async fn connect(&self, destination: &Destination, rules: &Rules) -> Result<TcpStream, Unreached> {
        for address in self.addresses(destination, rules).await? {
            if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                return Ok(stream);
            }
        }
        Err(Unreached::Failed)
    }

    /// Returns a socket that exchanges datagrams with one address.
    pub(super) async fn datagrams(&self, destination: &Destination, rules: &Rules) -> Result<UdpSocket, Unreached> {
        for address in self.addresses(destination, rules).await? {
            let own = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            if let Ok(socket) = UdpSocket::bind(own).await
                && socket.connect(address).await.is_ok()
            {
                return Ok(socket);
            }
        }
        Err(Unreached::Failed)
    }

    /// Returns the checked addresses. The name is resolved only once, so a name server cannot give another address after the check.
    async fn addresses(&self, destination: &Destination, rules: &Rules) -> Result<Vec<SocketAddr>, Unreached> {
        match destination {
            Destination::Address { address, other, until_started: _ } => Ok(std::iter::once(*address).chain(*other).collect()),
            Destination::Name { name, port, may_be_private, .. } => {
                let found = tokio::time::timeout(LOOKUP_TIME, self.look_up(name)).await;
                let found = found.ok().and_then(Result::ok).filter(|found| !found.is_empty()).ok_or(Unreached::Failed)?;
                let reachable = rules.reachable(&found, *port, *may_be_private).map_err(|_| Unreached::Refused)?;
                Ok(reachable.into_iter().take(MAX_ADDRESSES).map(|address| SocketAddr::new(address, *port)).collect())
            }
        }
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let lookup = self.resolver.resolve(name);
        let found = tokio::spawn(async move {
            let found = lookup.await;
            drop(place);
            found
        });
        found.await.map_err(io::Error::other)?
    }
}
