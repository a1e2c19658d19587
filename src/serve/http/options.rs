//! Settings of the HTTP server, and their validation.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use crate::error::{Error, Result};

/// The method name that errors about these settings contain.
pub(super) const METHOD: &str = "serve";
const MIB: usize = 1024 * 1024;
const DAY: Duration = Duration::from_hours(24);

/// The address on which the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// `localhost`, or an IP address without brackets. Default: `127.0.0.1`.
    pub host: String,
    /// The port. If it is 0, the operating system chooses a port. Default: 0.
    pub port: u16,
}

impl Default for Listen {
    fn default() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.to_string(), port: 0 }
    }
}

impl Listen {
    /// Parses `PORT`, `HOST:PORT` or `[IPV6]:PORT`.
    ///
    /// # Errors
    /// `ERR_INVALID_OPTION` if the text has another form.
    pub fn parse(text: &str) -> Result<Self> {
        let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        // `::1` has no port, although its last part is a number.
        let ambiguous = bare == host && bare.contains(':');
        let port = port.parse().ok().filter(|_| !ambiguous && !bare.is_empty());
        let port = port.ok_or_else(|| invalid(format!("\"{text}\" is not an address: write PORT, HOST:PORT or [IPV6]:PORT")))?;
        let listen = Self { host: bare.to_owned(), port };
        listen.address().map(|_| listen)
    }

    /// Returns the socket address. Names other than `localhost` are refused, because their address may change.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        let ip = if self.host.eq_ignore_ascii_case("localhost") { Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { self.host.parse() };
        let problem =
            || invalid(format!("\"{}\" is not an address to listen on: use localhost or an IP address of this machine", self.host));
        ip.map(|ip| SocketAddr::new(ip, self.port)).map_err(|_| problem())
    }
}

/// PEM files for TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// Settings for the OAuth access tokens that the server accepts (RFC 9728: the server is the protected resource).
#[derive(Debug, Clone)]
pub struct ProtectedResource {
    /// The address by which clients know this server, such as `https://host/mcp`. Tokens must contain it as their audience.
    pub resource: String,
    /// The authorization server, written exactly as in the tokens.
    pub issuer: String,
    /// The address of the issuer's keys. Default: the address in the issuer's metadata.
    pub jwks_url: Option<String>,
    /// Scopes that each token must have.
    pub scopes: Vec<String>,
}

/// Limits of the server. "Client" means the caller that a token identifies, or the IP address if there are no tokens.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// The maximum size of one request's body in bytes. Default: 4 MiB.
    pub max_body_bytes: usize,
    /// The maximum size in bytes of all bodies that are being read. One client can use half of it, but at least one body is always allowed.
    /// Default: 64 MiB.
    pub max_buffered_bytes: usize,
    /// The maximum number of simultaneous connections. Default: 2048.
    pub max_connections: usize,
    /// The maximum number of simultaneous connections from one IP address. Default: 1024.
    pub max_connections_per_address: usize,
    /// The maximum number of sessions for all callers. Default: 1000.
    pub max_sessions: usize,
    /// The maximum number of sessions for one caller. Default: 500.
    pub max_sessions_per_client: usize,
    /// The maximum number of requests in progress for all callers. Default: 512.
    pub max_requests: usize,
    /// The maximum number of requests in progress for one caller. Default: 256.
    pub max_requests_per_client: usize,
    /// The maximum number of requests per second from one client, and the maximum burst. Default: 1000.
    pub requests_per_second: u32,
    /// The maximum time until the headers of a request have arrived. It is also the maximum time for which a connection may have no
    /// request. Default: 15 s.
    pub header_timeout: Duration,
    /// The maximum time until the body of a request has arrived. Default: 30 s.
    pub body_timeout: Duration,
    /// The maximum time without progress while a response is sent to a client that does not read. Default: 30 s.
    pub write_timeout: Duration,
    /// The time after which a session without open requests and streams ends. Default: 10 minutes.
    pub session_idle: Duration,
    /// The time that requests in progress have to finish when the server closes. Default: 10 s.
    pub drain: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 * MIB,
            max_buffered_bytes: 64 * MIB,
            max_connections: 2048,
            max_connections_per_address: 1024,
            max_sessions: 1000,
            max_sessions_per_client: 500,
            max_requests: 512,
            max_requests_per_client: 256,
            requests_per_second: 1000,
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            session_idle: Duration::from_mins(10),
            drain: Duration::from_secs(10),
        }
    }
}

impl HttpLimits {
    /// Returns the maximum size in bytes of the bodies of one caller that are read simultaneously. This is half of the limit for all
    /// callers, but at least one body is always allowed.
    pub(super) fn max_buffered_bytes_per_client(&self) -> usize {
        (self.max_buffered_bytes / 2).max(self.max_body_bytes)
    }

    fn validate(&self) -> Result<()> {
        let counts = [
            ("maxBodyBytes", self.max_body_bytes, 1024, 64 * MIB),
            ("maxBufferedBytes", self.max_buffered_bytes, self.max_body_bytes, 4096 * MIB),
            ("maxHttpConnections", self.max_connections, 1, 65_536),
            ("maxConnectionsPerAddress", self.max_connections_per_address, 1, 65_536),
            ("maxSessions", self.max_sessions, 1, 65_536),
            ("maxSessionsPerClient", self.max_sessions_per_client, 1, 65_536),
            ("maxRequests", self.max_requests, 1, 65_536),
            ("maxRequestsPerClient", self.max_requests_per_client, 1, 65_536),
            ("requestsPerSecond", self.requests_per_second as usize, 1, 1_000_000),
        ];
        for (name, value, least, most) in counts {
            if !(least..=most).contains(&value) {
                return Err(invalid(format!("limits.{name} must be from {least} to {most}, not {value}")));
            }
        }
        let times = [
            ("headerTimeoutMs", self.header_timeout, 1),
            ("bodyTimeoutMs", self.body_timeout, 1),
            ("writeTimeoutMs", self.write_timeout, 1),
            ("sessionIdleMs", self.session_idle, 1),
            ("drainMs", self.drain, 0),
        ];
        for (name, value, least) in times {
            if !(Duration::from_millis(least)..=DAY).contains(&value) {
                let most = DAY.as_millis();
                return Err(invalid(format!("limits.{name} must be from {least} to {most}, not {}", value.as_millis())));
            }
        }
        Ok(())
    }
}

/// Settings of the HTTP server.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    pub listen: Listen,
    /// The file with the tokens. Its lines are `NAME:TOKEN` or `TOKEN`, or comments that start with `#`.
    pub token_file: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub oauth: Option<ProtectedResource>,
    pub limits: HttpLimits,
    /// Names that requests may use as `Host`, written as `NAME` or `NAME:PORT`. Loopback names and the address of this server are always
    /// allowed.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may send requests, written as `https://name[:port]`. Pages of this server are always allowed.
    pub allowed_origins: Vec<String>,
}

impl HttpOptions {
    /// Checks all settings that need no file and no network. Returns the address to listen on.
    pub(in crate::serve) fn validate(&self) -> Result<SocketAddr> {
        let address = self.listen.address()?;
        self.limits.validate()?;
        if !address.ip().is_loopback() && self.token_file.is_none() && self.oauth.is_none() {
            return Err(invalid(format!(
                "{} can be reached from other machines, so callers must prove who they are: give a token file (--token-file FILE, or \
                 tokenFile) or OAuth, or listen on 127.0.0.1",
                address.ip()
            )));
        }
        if let Some(resource) = &self.oauth {
            check_url("the OAuth resource (oauth.resource)", &resource.resource)?;
            check_url("the OAuth issuer (oauth.issuer)", &resource.issuer)?;
            resource.jwks_url.iter().try_for_each(|url| check_url("the address of the OAuth keys (oauth.jwksUrl)", url).map(drop))?;
        }
        Ok(address)
    }
}

/// Returns the parsed address if it begins with `https://`, or if it begins with `http://` and its host is this machine.
pub(super) fn check_url(what: &str, text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|_| invalid(format!("{what} \"{text}\" is not a URL")))?;
    let local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    if url.scheme() == "https" || (url.scheme() == "http" && local) {
        return Ok(url);
    }
    Err(invalid(format!("{what} \"{text}\" must begin with https://")))
}

pub(in crate::serve) fn invalid(problem: String) -> Error {
    Error::InvalidOption { method: METHOD, problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem<T: std::fmt::Debug>(result: Result<T>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.code(), "ERR_INVALID_OPTION");
        error.to_string()
    }

    #[test]
    fn an_address_is_a_port_or_a_host_with_a_port() {
        let parsed = |text: &str| Listen::parse(text).unwrap().address().unwrap().to_string();
        assert_eq!(parsed("8080"), "127.0.0.1:8080");
        assert_eq!(parsed("localhost:1"), "127.0.0.1:1");
        assert_eq!(parsed("0.0.0.0:0"), "0.0.0.0:0");
        assert_eq!(parsed("[::1]:80"), "[::1]:80");
        for bad in ["", ":", ":80", "x", "::1", "127.0.0.1", "127.0.0.1:70000", "example.com:80", "[::1]", "1.2.3:4", "-1"] {
            assert!(problem(Listen::parse(bad)).starts_with("serve: \""), "{bad}");
        }
    }

    #[test]
    fn off_loopback_the_server_does_not_start_without_a_way_to_know_its_callers() {
        let options = |host: &str, tokens: Option<&str>| HttpOptions {
            listen: Listen { host: host.into(), port: 0 },
            token_file: tokens.map(PathBuf::from),
            ..HttpOptions::default()
        };
        for host in ["0.0.0.0", "::", "192.0.2.1"] {
            assert!(problem(options(host, None).validate()).contains("--token-file"));
            options(host, Some("tokens")).validate().unwrap();
        }
        for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost"] {
            options(host, None).validate().unwrap();
        }
    }

    #[test]
    fn a_limit_out_of_range_is_named() {
        let options = |limits| HttpOptions { limits, ..HttpOptions::default() };
        let none = HttpLimits { max_sessions: 0, ..HttpLimits::default() };
        assert!(problem(options(none).validate()).contains("limits.maxSessions must be from 1"));
        let endless = HttpLimits { body_timeout: Duration::MAX, ..HttpLimits::default() };
        assert!(problem(options(endless).validate()).contains("limits.bodyTimeoutMs"));
    }

    #[test]
    fn oauth_takes_only_addresses_that_nobody_on_the_way_can_change() {
        assert!(check_url("x", "https://a.example/mcp").is_ok() && check_url("x", "http://127.0.0.1:9/").is_ok());
        for bad in ["http://a.example/", "ftp://a.example/", "a.example", "http://localhost.example/"] {
            assert!(check_url("x", bad).is_err(), "{bad}");
        }
    }
}
