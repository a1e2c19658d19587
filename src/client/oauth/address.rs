//! Checks addresses in OAuth metadata. A public server must not make this machine send requests into this machine's own private network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::super::proxies;
use crate::fetch::{AddressKind, kind_of};
use crate::network::Lookups;

/// The kind of network to which an address belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Public,
    Private,
    Loopback,
    /// Link-local, multicast and reserved networks. Requests to them are never allowed. One reason is that clouds serve credentials on
    /// link-local addresses.
    Never,
}

impl Reach {
    pub(super) fn of(address: IpAddr) -> Self {
        let plain = match address {
            IpAddr::V6(within) => embedded(within).map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        let reach = match plain {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        };
        // The address table for fetches also knows the services of clouds, and newer entries of the registries.
        match (kind_of(plain), reach) {
            (AddressKind::LinkLocal(_) | AddressKind::Unusable(_), _) => Self::Never,
            (AddressKind::Private(_), Self::Public) => Self::Private,
            (AddressKind::Private(_) | AddressKind::Global, reach) => reach,
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [127, ..] => Self::Loopback,
            [100, 64..=127, ..] => Self::Private,
            [0 | 240..=255, ..] | [198, 18 | 19, ..] => Self::Never,
            _ if address.is_private() => Self::Private,
            _ if address.is_link_local() || address.is_multicast() => Self::Never,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            [0xfc00..=0xfdff, ..] => Self::Private,
            // These are unspecified, link-local, site-local, multicast, Teredo, and local NAT64 addresses.
            [0, 0, 0, 0, 0, 0, 0, 0] | [0xfe80..=0xffff, ..] | [0x2001, 0, ..] | [0x64, 0xff9b, 1, ..] => Self::Never,
            _ => Self::Public,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Self::Public => 1,
            Self::Private => 2,
            Self::Loopback => 4,
            Self::Never => 0,
        }
    }
}

/// Returns the IPv4 address inside an IPv6 address that is mapped, compatible, NAT64 or 6to4. Returns `None` for other addresses.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if !address.is_loopback() && !address.is_unspecified() => Some(join(high, low)),
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

/// The addresses that OAuth requests for one server may reach.
#[derive(Debug)]
pub(super) struct Policy {
    base: Url,
    allow_insecure: bool,
    /// Networks that are allowed, as bits. Bits are added, but never removed.
    allowed: AtomicU8,
    /// Hosts of the proxies. A proxy may have a private address, because the operator configured it.
    proxies: Vec<String>,
}

impl Policy {
    /// Makes the policy for the server at `base`. This address is trusted, because the operator wrote it.
    pub(super) fn new(base: Url, allow_insecure: bool) -> Self {
        let own = reach_of_literal(&base).unwrap_or(Reach::Public);
        let proxies = proxies::addresses().filter_map(|proxy| proxy_host(&proxy)).collect();
        Self { base, allow_insecure, allowed: AtomicU8::new(Reach::Public.bit() | own.bit()), proxies }
    }

    /// Checks, without resolving the host name, whether a request may be sent to a URL.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        let shown = origin_of(url);
        let literal = reach_of_literal(url);
        match url.scheme() {
            "https" => {}
            "http" if self.allow_insecure || literal == Some(Reach::Loopback) => {}
            _ => return Err(format!("{shown} is not https")),
        }
        let own = url.host() == self.base.host();
        match literal {
            Some(reach) if !own && !self.allows(reach) => {
                Err(format!("{shown} is an address to which this server may not direct OAuth requests"))
            }
            _ => Ok(()),
        }
    }

    /// Records the IP address from which the server answered over TLS. If this address is private, the authorization server may have a
    /// private address too. The host name alone proves nothing, because the name's owner decides to which address it resolves.
    pub(super) fn answered(&self, url: &Url, from: Option<SocketAddr>) {
        if let Some(from) = from.filter(|_| url.scheme() == "https" && url.host() == self.base.host() && self.proxies.is_empty()) {
            self.allowed.fetch_or(Reach::of(from.ip()).bit(), Ordering::Relaxed);
        }
    }

    fn allows(&self, reach: Reach) -> bool {
        self.allowed.load(Ordering::Relaxed) & reach.bit() != 0
    }

    /// Returns those addresses of a host name to which requests may be sent.
    fn filter(&self, name: &str, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        if self.proxies.iter().any(|proxy| proxy == name) {
            return addresses;
        }
        let own = self.base.host_str().is_some_and(|host| normal(host) == name);
        let reachable = |address: &SocketAddr| match Reach::of(address.ip()) {
            Reach::Never => false,
            reach => own || self.allows(reach),
        };
        addresses.into_iter().filter(reachable).collect()
    }
}

/// Returns the scheme, host and port of a URL. Errors show no other part of a URL.
pub(super) fn origin_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Returns in which kind of network an IP address or `localhost` is. Returns `None` for a host name that must be resolved.
pub(super) fn reach_of_literal(url: &Url) -> Option<Reach> {
    match url.host()? {
        Host::Ipv4(address) => Some(Reach::of(address.into())),
        Host::Ipv6(address) => Some(Reach::of(address.into())),
        Host::Domain(name) => {
            let name = normal(name);
            (name == "localhost" || name.ends_with(".localhost")).then_some(Reach::Loopback)
        }
    }
}

fn proxy_host(proxy: &str) -> Option<String> {
    Url::parse(proxy).ok()?.host_str().map(normal)
}

fn normal(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// Resolves host names as the system does, and only returns addresses to which requests may be sent.
pub(super) struct Resolver {
    pub(super) policy: Arc<Policy>,
    pub(super) lookups: Lookups,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookups) = (Arc::clone(&self.policy), self.lookups.clone());
        Box::pin(async move {
            let found = lookups.addresses(name.as_str()).await?;
            let host = normal(name.as_str());
            let reachable = policy.filter(&host, found);
            if reachable.is_empty() {
                return Err(format!("{host} has no address to which this server may direct OAuth requests").into());
            }
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(base: &str) -> Policy {
        Policy { proxies: Vec::new(), ..Policy::new(Url::parse(base).unwrap(), false) }
    }

    fn allows(base: &str, url: &str) -> bool {
        policy(base).check(&Url::parse(url).unwrap()).is_ok()
    }

    fn kept(policy: &Policy, name: &str, addresses: &[&str]) -> Vec<String> {
        let addresses = addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0)).collect();
        policy.filter(name, addresses).into_iter().map(|address| address.ip().to_string()).collect()
    }

    #[test]
    fn an_address_is_known_for_what_it_is_however_it_is_wrapped() {
        let cases = [
            (Reach::Public, ["93.184.216.34", "2606:4700::1111", "64:ff9b::5db8:d822"]),
            (Reach::Loopback, ["127.0.0.9", "::1", "::ffff:127.0.0.1"]),
            (Reach::Private, ["10.0.0.9", "fd00::1", "64:ff9b::a00:9"]),
            (Reach::Private, ["100.64.0.1", "172.16.1.1", "2002:c0a8:101::"]),
            (Reach::Never, ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"]),
            (Reach::Never, ["0.0.0.0", "255.255.255.255", "::"]),
            (Reach::Never, ["100.100.100.200", "168.63.129.16", "fd00:ec2::254"]),
            (Reach::Never, ["192.88.99.1", "5f00::1", "100::1"]),
            (Reach::Never, ["224.0.0.1", "ff02::1", "2001:0:4136:e378::1"]),
        ];
        for (reach, addresses) in cases {
            for address in addresses {
                assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
            }
        }
    }

    #[test]
    fn a_public_server_sends_us_only_to_public_addresses_over_https() {
        let base = "https://mcp.example.com/mcp";
        assert!(allows(base, "https://auth.example.com/token") && allows(base, "https://93.184.216.34/token"));
        for url in [
            "http://auth.example.com/",
            "https://127.0.0.1/",
            "http://127.0.0.1:6379/",
            "http://localhost/",
            "https://10.0.0.1/",
            "https://169.254.169.254/",
            "https://[::1]/",
            "file:///etc/passwd",
        ] {
            assert!(!allows(base, url), "{url}");
        }
        let policy = policy(base);
        assert_eq!(kept(&policy, "auth.example.com", &["127.0.0.1", "93.184.216.34", "10.0.0.1"]), ["93.184.216.34"]);
        assert!(kept(&policy, "metadata.google.internal", &["169.254.169.254"]).is_empty());
    }

    #[test]
    fn a_server_on_loopback_may_use_loopback_without_tls() {
        let base = "http://127.0.0.1:3000/mcp";
        assert!(allows(base, "http://127.0.0.1:4000/token") && allows(base, "http://localhost:4000/token"));
        assert!(!allows(base, "http://10.0.0.1/token") && !allows(base, "https://169.254.169.254/"));
    }

    #[test]
    fn a_server_that_proved_to_be_private_may_have_a_private_authorization_server() {
        let policy = policy("https://mcp.corp/mcp");
        assert_eq!(kept(&policy, "mcp.corp", &["10.0.0.4"]), ["10.0.0.4"]);
        assert!(kept(&policy, "sso.corp", &["10.0.0.5"]).is_empty());
        policy.answered(&Url::parse("http://mcp.corp/").unwrap(), Some("10.0.0.4:80".parse().unwrap()));
        assert!(kept(&policy, "sso.corp", &["10.0.0.5"]).is_empty(), "without TLS, the server's address proves nothing");
        policy.answered(&Url::parse("https://mcp.corp/").unwrap(), Some("10.0.0.4:443".parse().unwrap()));
        assert_eq!(kept(&policy, "sso.corp", &["10.0.0.5", "169.254.169.254"]), ["10.0.0.5"]);
    }
}
