//! URL and headers of a server. They are checked once, before any request is sent.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::failure::Credentials;
use super::token::TokenSource;
use crate::error::{Error, Result};
use crate::network::NetworkRuntime;

/// Longest wait for the answer to a notification. This answer is only a confirmation.
pub(super) const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers that MCP or HTTP itself sets. The config may not set them.
const RESERVED: [&str; 19] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const RESERVED_START: &str = "mcp-param-";

/// A server that is reached over HTTP.
#[derive(Clone)]
pub struct HttpTarget {
    /// The server's name.
    pub server: String,
    /// URL of the MCP endpoint. It is kept as a secret, because it may contain values of `${VAR}` placeholders.
    pub url: SecretString,
    /// Headers that are sent with each request.
    pub headers: Vec<(String, SecretString)>,
    /// True if `http://` is also allowed for hosts other than this machine.
    pub allow_insecure: bool,
    /// Source of bearer tokens. It is not used if `headers` contains an `Authorization` header.
    pub tokens: Option<Arc<dyn TokenSource>>,
    /// The threads that drive the server's connections and read the server's answers.
    pub(crate) network: Arc<NetworkRuntime>,
}

impl HttpTarget {
    /// Creates a target without headers and tokens. The target has its own threads for its connections. The threads end when the last clone
    /// of the target is dropped.
    ///
    /// ```
    /// let target = hyperlight_mcp::client::HttpTarget::new("docs", "https://example.com/mcp".to_owned());
    /// assert!(target.headers.is_empty() && !target.allow_insecure);
    /// ```
    #[must_use]
    pub fn new(server: impl Into<String>, url: impl Into<SecretString>) -> Self {
        let network = Arc::new(crate::client::threads::network());
        Self { server: server.into(), url: url.into(), headers: Vec::new(), allow_insecure: false, tokens: None, network }
    }
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HttpTarget").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Time and size limits of one connection. The time limit of a call is set by its caller.
#[derive(Debug, Clone)]
pub(in crate::client) struct HttpLimits {
    /// Longest time to make a connection, TLS included.
    pub(in crate::client) connect: Duration,
    /// Longest time until an answer begins. This must exceed the longest call, because a server that answers with JSON begins its answer
    /// only after the tool has finished.
    pub(in crate::client) headers: Duration,
    /// Longest time between two chunks of a JSON answer.
    pub(in crate::client) body_idle: Duration,
    /// Longest wait for the answer to `server/discover`. After this time, the server is treated as an older one.
    pub(in crate::client) discover: Duration,
    /// Longest time to end a session at the server.
    pub(in crate::client) delete: Duration,
    /// Delay before the first retry of a request. Later delays are longer.
    pub(in crate::client) retry: Duration,
    /// Longest `Retry-After` delay that this client waits for.
    pub(in crate::client) longest_wait: Duration,
    /// Delay before a stream is resumed for the first time if the server gives no delay. Later delays are longer.
    pub(in crate::client) resume: Duration,
    /// Longest delay before a stream is resumed, even if the server's `retry:` field asks for more.
    pub(in crate::client) longest_resume: Duration,
    /// Maximum size of one JSON answer or of one event.
    pub(in crate::client) message_bytes: usize,
    /// Maximum total size of all unfinished answers and events. One of them may exceed this limit. The first bytes of each are not counted
    /// (see the module `budget`).
    pub(in crate::client) unfinished_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_mins(5),
            body_idle: Duration::from_secs(30),
            discover: Duration::from_secs(2),
            delete: Duration::from_secs(2),
            retry: Duration::from_millis(200),
            longest_wait: Duration::from_secs(5),
            resume: Duration::from_secs(1),
            longest_resume: Duration::from_secs(30),
            message_bytes: crate::limits::MAX_WIRE_MESSAGE_BYTES,
            unfinished_bytes: crate::limits::MAX_UNFINISHED_BYTES,
        }
    }
}

/// An address that was checked, with its headers and its token source.
pub(super) struct Endpoint {
    pub(super) url: Url,
    /// Headers from the config. Their values are marked as sensitive.
    pub(super) headers: HeaderMap,
    pub(super) tokens: Option<Arc<dyn TokenSource>>,
}

impl Endpoint {
    pub(super) fn of(target: &HttpTarget) -> Result<Self> {
        let invalid = |problem: String| Error::ConnectFailed { server: target.server.clone(), problem: problem.into() };
        let mut url = Url::parse(target.url.expose_secret().trim()).map_err(|error| invalid(format!("its url is not valid: {error}")))?;
        if url.scheme() != "https" && url.scheme() != "http" {
            return Err(invalid("its url must start with http:// or https://".to_owned()));
        }
        if url.scheme() == "http" && !is_loopback(&url) && !target.allow_insecure {
            return Err(Error::InsecureUrl { server: target.server.clone(), origin: origin(&url).into() });
        }
        let mut headers = HeaderMap::new();
        if let Some(credentials) = take_credentials(&mut url) {
            headers.insert(header::AUTHORIZATION, credentials);
        }
        for (name, value) in &target.headers {
            let name = header_name(name).map_err(invalid)?;
            let mut value = HeaderValue::from_str(value.expose_secret().trim())
                .map_err(|_| invalid(format!("the value of its header \"{name}\" has characters that are not allowed in a header")))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        url.set_fragment(None);
        let tokens = target.tokens.clone().filter(|_| !headers.contains_key(header::AUTHORIZATION));
        Ok(Self { url, headers, tokens })
    }

    pub(super) fn credentials(&self) -> Credentials {
        match &self.tokens {
            Some(_) => Credentials::Token,
            None if self.headers.contains_key(header::AUTHORIZATION) => Credentials::Configured,
            None => Credentials::Nothing,
        }
    }
}

fn header_name(name: &str) -> std::result::Result<HeaderName, String> {
    let parsed = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| format!("\"{name}\" is not a valid header name"))?;
    if RESERVED.contains(&parsed.as_str()) || parsed.as_str().starts_with(RESERVED_START) {
        return Err(format!("its header \"{name}\" is set by the protocol itself: remove it from headers"));
    }
    Ok(parsed)
}

/// Moves `user:password` from the URL into an `Authorization` header, because the URL appears in errors and redirects.
fn take_credentials(url: &mut Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let mut pair = decode(url.username());
    pair.push(b':');
    pair.extend(decode(url.password().unwrap_or_default()));
    // These calls cannot fail, because the URL has a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let mut value = HeaderValue::try_from(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the origin of a URL. Only the origin may be shown, because the path and the query may contain secrets.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => {
            address == Ipv6Addr::LOCALHOST || address.to_ipv4_mapped().is_some_and(|v4: Ipv4Addr| v4.is_loopback())
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str, headers: &[(&str, &str)]) -> HttpTarget {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned().into())).collect();
        HttpTarget { headers, ..HttpTarget::new("remote", url.to_owned()) }
    }

    fn problem(target: &HttpTarget) -> Error {
        Endpoint::of(target).err().expect("the target is refused")
    }

    #[test]
    fn plain_http_goes_to_this_machine_only_unless_the_config_allows_more() {
        for url in ["http://localhost:1/mcp", "http://127.0.0.1/", "http://127.8.9.10/", "http://[::1]:9/", "https://example.com/"] {
            assert!(Endpoint::of(&target(url, &[])).is_ok(), "{url}");
        }
        for url in ["http://example.com/mcp", "http://10.0.0.1/", "http://localhost.example.com/", "http://127.0.0.1.example.com/"] {
            let error = problem(&target(url, &[]));
            assert_eq!(error.code(), "ERR_INSECURE_URL", "{url}");
            assert!(error.to_string().contains("allowInsecureHttp"), "{error}");
            assert!(Endpoint::of(&HttpTarget { allow_insecure: true, ..target(url, &[]) }).is_ok());
        }
    }

    #[test]
    fn headers_of_the_protocol_cannot_be_configured() {
        for name in ["Accept", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID", "Host", "Content-Length", "Mcp-Param-X"] {
            let error = problem(&target("https://example.com", &[(name, "x")])).in_full();
            assert!(error.contains(name) && error.contains("headers"), "{error}");
        }
    }

    #[test]
    fn an_error_never_shows_a_headers_value_or_the_urls_path() {
        let error = problem(&target("https://example.com", &[("X-Key", "sec\nret")])).in_full();
        assert!(!error.contains("ret"), "{error}");
        let error = problem(&target("http://example.com/s3cret?key=s3cret", &[])).in_full();
        assert!(!error.contains("s3cret"), "{error}");
        let shown = format!("{:?}", target("https://u:s3cret@example.com/", &[("X-Key", "s3cret")]));
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn a_password_in_the_url_becomes_a_header() {
        let endpoint = Endpoint::of(&target("https://me:p%40ss@example.com/mcp#part", &[])).unwrap();
        assert_eq!(endpoint.url.as_str(), "https://example.com/mcp");
        assert_eq!(endpoint.headers[header::AUTHORIZATION], "Basic bWU6cEBzcw==");
        assert!(endpoint.headers[header::AUTHORIZATION].is_sensitive());
    }
}
