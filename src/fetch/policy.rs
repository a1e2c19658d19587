//! The rules for the fetches of one session.

use http::HeaderMap;
use url::Url;

use super::budget::FetchLimits;
use super::error::FetchError;
use super::headers::response_headers;
use super::hosts::{AllowedHosts, HostMatch};
use super::request::{FetchRequest, Methods, Outgoing};
use super::secrets::{FetchSecret, Secrets};
use crate::text::sanitise_line;

/// Maximum number of characters of a host that a message shows.
const SHOWN_CHARS: usize = 120;

/// The rules for the fetches of one session.
#[derive(Clone)]
pub struct FetchPolicy {
    /// The hosts to which requests may be sent.
    pub hosts: AllowedHosts,
    /// Hosts that may have private addresses and need no TLS. The operator lists these hosts. Requests to them must also be allowed by
    /// `hosts`.
    pub private_hosts: AllowedHosts,
    pub methods: Methods,
    pub secrets: Vec<FetchSecret>,
    pub limits: FetchLimits,
    /// The sentence that an error adds to the refusal of a host. It explains how the host can be allowed.
    pub way_out: String,
}

impl FetchPolicy {
    /// Returns a policy that allows these public hosts, with all methods and the default limits.
    #[must_use]
    pub fn new(hosts: AllowedHosts, way_out: impl Into<String>) -> Self {
        Self {
            hosts,
            private_hosts: AllowedHosts::none(),
            methods: Methods::default(),
            secrets: Vec::new(),
            limits: FetchLimits::default(),
            way_out: way_out.into(),
        }
    }

    /// Parses an absolute URL, and checks that a request may be sent to it. The result has no fragment, and no dot after the host.
    ///
    /// # Errors
    /// Fails with the reason why no request may be sent there. The addresses of the host are checked only when a request is sent.
    pub fn judge(&self, text: &str) -> Result<Url, FetchError> {
        let limit = self.limits.url_bytes;
        let url = normal(self.parsed(text)?)?;
        // Parsing may have lengthened the URL.
        if url.as_str().len() > limit.saturating_mul(3) {
            let problem = format!("the URL has {} bytes", url.as_str().len());
            return Err(FetchError::LimitExceeded { problem, limit_name: "urlBytes", limit: limit as u64 });
        }
        self.judge_host(&url)?;
        Ok(url)
    }

    /// Returns a request of agent code in the form in which it is sent, with the values of its secrets. The HTTP client adds the headers
    /// `Host` and `Content-Length`.
    ///
    /// # Errors
    /// Fails with the reason why the request may not be sent.
    pub fn prepare(&self, request: FetchRequest) -> Result<reqwest::Request, FetchError> {
        Outgoing::check(request, self)?.to_send(&Secrets::new(self.secrets.clone())?)
    }

    /// Returns the headers of a response in the form that agent code gets, with placeholders for the values of secrets.
    ///
    /// # Errors
    /// `ERR_FETCH_LIMIT` if there are too many headers, or too large ones.
    pub fn visible_headers(&self, headers: &HeaderMap) -> Result<Vec<(String, String)>, FetchError> {
        let secrets = Secrets::new(self.secrets.clone())?;
        response_headers(headers, false, |value| secrets.clean(value), &self.limits)
    }

    /// Parses a URL, and checks the limit on its size.
    pub(super) fn parsed(&self, text: &str) -> Result<Url, FetchError> {
        let limit = self.limits.url_bytes;
        if text.len() > limit {
            let problem = format!("the URL has {} bytes", text.len());
            return Err(FetchError::LimitExceeded { problem, limit_name: "urlBytes", limit: limit as u64 });
        }
        Url::parse(text).map_err(|error| FetchError::invalid(format!("the URL cannot be parsed: {error}")))
    }

    fn judge_host(&self, url: &Url) -> Result<(), FetchError> {
        let (host, way_out) = (shown_host(url), self.way_out.clone());
        let problem = match self.hosts.judge(url) {
            HostMatch::Allowed => return Ok(()),
            HostMatch::NeedsHttps if self.is_private(url) => return Ok(()),
            HostMatch::OtherHost => return Err(FetchError::HostNotAllowed { host, way_out }),
            HostMatch::NeedsHttps => format!("\"{host}\" is allowed with https: only"),
            HostMatch::OtherPort => {
                format!("\"{host}\" is allowed, but not with the port {}", url.port_or_known_default().unwrap_or_default())
            }
        };
        Err(FetchError::OriginNotAllowed { problem, way_out })
    }

    /// Returns whether the operator has allowed private addresses for the host of a URL.
    pub(super) fn is_private(&self, url: &Url) -> bool {
        self.private_hosts.names(url)
    }
}

/// Returns the host of a URL in a form that can be shown.
pub(super) fn shown_host(url: &Url) -> String {
    sanitise_line(url.host_str().unwrap_or_default(), SHOWN_CHARS)
}

/// Returns an `http:` or `https:` URL without its fragment and without a dot after its host. With this dot, TLS would use another host
/// name.
fn normal(mut url: Url) -> Result<Url, FetchError> {
    if !matches!(url.scheme(), "http" | "https") {
        let problem = format!("the scheme {}: only http: and https: can be fetched", sanitise_line(url.scheme(), 20));
        return Err(FetchError::invalid(problem));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::invalid("a URL cannot contain a user name or a password: use the header Authorization"));
    }
    url.set_fragment(None);
    let without_dot = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
    if let Some(host) = without_dot {
        url.set_host(Some(&host)).map_err(|error| FetchError::invalid(format!("the URL cannot be parsed: {error}")))?;
    }
    let is_whole =
        url.host_str().is_some_and(|host| !host.is_empty() && host.split('.').all(|label| !label.is_empty()) || host.starts_with('['));
    if is_whole { Ok(url) } else { Err(FetchError::invalid("the host of the URL has an empty label")) }
}
