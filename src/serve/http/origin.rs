//! Checks the headers `Host` and `Origin` of requests. The headers reveal a web page whose domain name was made to resolve to this machine
//! (DNS rebinding).

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use super::options::invalid;
use crate::error::Result;

/// The reason why a request is refused because of its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forbidden {
    /// `Host` is missing, occurs twice, or cannot be parsed.
    BadHost,
    Host,
    Origin,
}

/// The allowed host names and origins.
#[derive(Debug)]
pub(super) struct Allowed {
    hosts: Vec<(String, Option<u16>)>,
    origins: Vec<Origin>,
    scheme: &'static str,
    port: u16,
}

/// A web page's origin, with an explicit port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Allowed {
    /// Parses the lists of allowed hosts and origins.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if an entry cannot be parsed.
    pub(super) fn new(hosts: &[String], origins: &[String], has_tls: bool, port: u16) -> Result<Self> {
        let host = |text: &String| {
            let parsed = text.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'));
            let parsed = parsed.ok_or_else(|| {
                invalid(format!("\"{text}\" cannot be an allowed host (--allowed-hosts, or allowedHosts): write NAME or NAME:PORT"))
            })?;
            Ok((bare(parsed.host()), parsed.port_u16()))
        };
        let origin = |text: &String| {
            Origin::parse(text).ok_or_else(|| {
                invalid(format!(
                    "\"{text}\" cannot be an allowed origin (--allowed-origins, or allowedOrigins): write https://NAME or https://NAME:PORT"
                ))
            })
        };
        let hosts = hosts.iter().map(host).collect::<Result<_>>()?;
        let origins = origins.iter().map(origin).collect::<Result<_>>()?;
        Ok(Self { hosts, origins, scheme: if has_tls { "https" } else { "http" }, port })
    }

    /// Checks one request. `local` is this machine's address to which the client connected.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap, local: IpAddr) -> std::result::Result<(), Forbidden> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let named = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok().and_then(|text| text.parse::<Authority>().ok()),
            _ => None,
        };
        let named = named.filter(|authority| !authority.as_str().contains('@')).ok_or(Forbidden::BadHost)?;
        // If the request line contains an absolute URI, the host of this URI must be allowed too.
        for authority in [Some(&named), uri.authority()].into_iter().flatten() {
            if !self.host_is_allowed(&bare(authority.host()), authority.port_u16(), local) {
                return Err(Forbidden::Host);
            }
        }
        let allowed = |value: &http::HeaderValue| value.to_str().is_ok_and(|text| self.origin_is_allowed(text, local));
        if headers.get_all(header::ORIGIN).iter().all(allowed) { Ok(()) } else { Err(Forbidden::Origin) }
    }

    /// Returns whether a host is allowed. A loopback name may have any port, because a client may reach this server through a tunnel from
    /// another port.
    fn host_is_allowed(&self, host: &str, port: Option<u16>, local: IpAddr) -> bool {
        is_here(host, local) || self.hosts.iter().any(|(name, only)| name == host && only.is_none_or(|only| port == Some(only)))
    }

    /// Returns whether an origin is allowed. The port is compared, because a page on another port of this machine belongs to another
    /// program. So does a page at another loopback address, or at `localhost`, which may stand for another address: another user's program
    /// can listen there on the same port.
    fn origin_is_allowed(&self, text: &str, local: IpAddr) -> bool {
        let Some(origin) = Origin::parse(text) else { return false };
        let is_same = origin.host.parse::<IpAddr>().is_ok_and(|host| host.to_canonical() == local.to_canonical());
        let own = origin.scheme == self.scheme && origin.port == self.port && is_same;
        own || self.origins.contains(&origin)
    }
}

/// Returns whether the host is a loopback name or the address to which the client connected.
fn is_here(host: &str, local: IpAddr) -> bool {
    let same =
        |ip: IpAddr| ip.to_canonical() == local.to_canonical() || (local.to_canonical().is_loopback() && ip.to_canonical().is_loopback());
    let loopback_name = matches!(host, "localhost" | "localhost.") && local.to_canonical().is_loopback();
    loopback_name || host.parse::<IpAddr>().is_ok_and(same)
}

fn bare(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let standard = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = rest.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'))?;
        let port = match authority.port() {
            Some(port) => port.as_str().parse().ok()?,
            None => standard,
        };
        Some(Self { scheme, host: bare(authority.host()), port })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn decide(allowed: &Allowed, local: IpAddr, pairs: &[(&'static str, &str)]) -> std::result::Result<(), Forbidden> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        allowed.check(&Uri::from_static("/mcp"), &headers, local)
    }

    fn plain() -> Allowed {
        Allowed::new(&[], &[], false, 8080).unwrap()
    }

    #[test]
    fn a_loopback_name_is_allowed_and_any_other_name_is_not() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.0.0.1:9000", "[::1]:8080", "[::1]"] {
            assert_eq!(decide(&plain(), HERE, &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "evil.example:8080", "192.168.1.1", "0.0.0.0:8080", "localhost@evil.example"]
        {
            assert!(decide(&plain(), HERE, &[("host", host)]).is_err(), "{host}");
        }
    }

    #[test]
    fn a_request_has_exactly_one_host_and_names_no_other() {
        assert_eq!(decide(&plain(), HERE, &[]), Err(Forbidden::BadHost));
        assert_eq!(decide(&plain(), HERE, &[("host", "localhost"), ("host", "localhost")]), Err(Forbidden::BadHost));
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost".parse().unwrap());
        assert_eq!(plain().check(&Uri::from_static("http://evil.example/mcp"), &headers, HERE), Err(Forbidden::Host));
    }

    #[test]
    fn only_a_page_of_this_server_may_send_requests() {
        let origin = |origin: &str| decide(&plain(), HERE, &[("host", "localhost:8080"), ("origin", origin)]);
        assert_eq!(origin("http://127.0.0.1:8080"), Ok(()));
        for other in [
            "http://127.0.0.1:3000",
            "https://127.0.0.1:8080",
            "http://localhost:8080",
            "http://[::1]:8080",
            "http://127.0.0.2:8080",
            "http://evil.example:8080",
            "null",
            "",
            "file://",
            "http://127.0.0.1",
        ] {
            assert_eq!(origin(other), Err(Forbidden::Origin), "{other}");
        }
    }

    #[test]
    fn the_operators_lists_add_names_and_pages() {
        let allowed = Allowed::new(&["Mcp.example".into(), "b.example:444".into()], &["https://page.example".into()], true, 443).unwrap();
        let there = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        for host in ["mcp.example", "mcp.example:443", "b.example:444", "192.0.2.7"] {
            assert_eq!(decide(&allowed, there, &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["b.example", "c.example", "localhost", "127.0.0.1"] {
            assert_eq!(decide(&allowed, there, &[("host", host)]), Err(Forbidden::Host), "{host}");
        }
        let origin = |origin: &str| decide(&allowed, there, &[("host", "mcp.example"), ("origin", origin)]);
        assert_eq!(origin("https://page.example:443"), Ok(()));
        assert_eq!(origin("https://192.0.2.7"), Ok(()));
        assert_eq!(origin("http://page.example"), Err(Forbidden::Origin));
        assert!(Allowed::new(&["a b".into()], &[], false, 1).is_err() && Allowed::new(&[], &["page.example".into()], false, 1).is_err());
    }

    #[test]
    fn an_address_of_version_six_may_stand_for_one_of_version_four() {
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert_eq!(decide(&plain(), mapped, &[("host", "127.0.0.1:8080")]), Ok(()));
        assert_eq!(decide(&plain(), IpAddr::V6(Ipv6Addr::LOCALHOST), &[("host", "localhost:8080")]), Ok(()));
    }
}
