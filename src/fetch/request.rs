//! A request of agent code, and the checks of the request.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use url::Url;

use super::error::FetchError;
use super::headers::request_headers;
use super::policy::FetchPolicy;
use super::secrets::Secrets;
use crate::text::sanitise_line;

/// Maximum number of bytes in a method.
pub(super) const MAX_METHOD_BYTES: usize = 32;
/// Methods that the Fetch standard converts to upper case.
const NORMALISED: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
/// Methods that the Fetch standard forbids.
const FORBIDDEN: [&str; 3] = ["CONNECT", "TRACE", "TRACK"];
/// The compression that servers are asked to use.
const ACCEPTED_ENCODING: HeaderValue = HeaderValue::from_static("gzip");
const NO_ENCODING: HeaderValue = HeaderValue::from_static("identity");

/// A request as agent code made it. No part of it is trusted.
#[derive(Debug, Clone)]
pub struct FetchRequest {
    pub method: String,
    pub url: String,
    /// Names and values of the headers. Each character of a value is one byte, as in the Fetch standard.
    pub headers: Vec<(String, String)>,
    pub redirect: RedirectMode,
    pub body: Option<Bytes>,
}

impl FetchRequest {
    /// Returns a GET request that follows redirects.
    #[must_use]
    pub fn get(url: impl Into<String>) -> Self {
        Self { method: "GET".to_owned(), url: url.into(), headers: Vec::new(), redirect: RedirectMode::Follow, body: None }
    }
}

/// The reaction to a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedirectMode {
    /// The redirect is followed, if its target is allowed.
    #[default]
    Follow,
    /// The fetch fails.
    Error,
    /// The redirect itself is returned as the response.
    Manual,
}

/// The methods that a policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Methods {
    /// GET and HEAD.
    ReadOnly,
    /// All methods except CONNECT, TRACE and TRACK.
    #[default]
    All,
}

/// A request that has passed all checks. It contains placeholders in place of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
}

impl Outgoing {
    /// Checks a request against a policy.
    pub(super) fn check(request: FetchRequest, policy: &FetchPolicy) -> Result<Self, FetchError> {
        let FetchRequest { method, url, headers, redirect: _, body } = request;
        let method = checked_method(&method, policy.methods)?;
        let url = policy.judge(&url)?;
        let headers = request_headers(&headers, policy.methods, &policy.limits)?;
        if let Some(body) = &body {
            if matches!(method, Method::GET | Method::HEAD) {
                return Err(FetchError::invalid(format!("a {method} request cannot have a body")));
            }
            let (size, limit) = (body.len(), policy.limits.request_body_bytes);
            if size > limit {
                let problem = format!("the body of the request has {size} bytes");
                return Err(FetchError::LimitExceeded { problem, limit_name: "requestBodyBytes", limit: limit as u64 });
            }
        }
        Ok(Self { method, url, headers, body })
    }

    /// Returns the request in the form in which it is sent: with the values of its secrets, and with the only compression that this program
    /// can decode.
    pub(super) fn to_send(&self, secrets: &Secrets) -> Result<reqwest::Request, FetchError> {
        let filled = secrets.fill(self)?;
        let mut request = reqwest::Request::new(self.method.clone(), filled.url);
        *request.headers_mut() = filled.headers;
        // A range counts the bytes that are sent, so a part of a compressed body could not be decompressed. The size of a compressed body
        // would also show how much of a secret in it is equal to a text of the code in it.
        let is_plain = secrets.exist() || request.headers().contains_key(header::RANGE);
        let accepted = if is_plain { NO_ENCODING } else { ACCEPTED_ENCODING };
        request.headers_mut().insert(header::ACCEPT_ENCODING, accepted);
        *request.body_mut() = filled.body.map(reqwest::Body::from);
        Ok(request)
    }
}

/// Returns a method in the spelling of the Fetch standard.
pub(super) fn normal_method(text: &str) -> &str {
    NORMALISED.into_iter().find(|known| text.eq_ignore_ascii_case(known)).unwrap_or(text)
}

fn checked_method(text: &str, methods: Methods) -> Result<Method, FetchError> {
    let is_forbidden = text.len() > MAX_METHOD_BYTES || FORBIDDEN.iter().any(|forbidden| text.eq_ignore_ascii_case(forbidden));
    let parsed = Method::from_bytes(normal_method(text).as_bytes()).ok().filter(|_| !is_forbidden);
    let parsed =
        parsed.ok_or_else(|| FetchError::invalid(format!("the method \"{}\" cannot be fetched", sanitise_line(text, MAX_METHOD_BYTES))))?;
    match (methods, &parsed) {
        (Methods::All, _) | (Methods::ReadOnly, &Method::GET | &Method::HEAD) => Ok(parsed),
        (Methods::ReadOnly, other) => Err(FetchError::MethodNotAllowed { method: other.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::AllowedHosts;

    const WAY_OUT: &str = "Add it to your prompt to allow access.";

    fn policy(hosts: &[&str]) -> FetchPolicy {
        FetchPolicy::new(AllowedHosts::parse(hosts.iter().copied()).unwrap(), WAY_OUT)
    }

    fn check(policy: &FetchPolicy, url: &str) -> Result<String, FetchError> {
        Outgoing::check(FetchRequest::get(url), policy).map(|outgoing| outgoing.url.to_string())
    }

    #[test]
    fn a_url_is_sent_as_the_standard_parses_it_without_its_fragment() {
        let policy = policy(&["api.example.org", "http://plain.example"]);
        for (url, sent) in [
            ("https://api.example.org", "https://api.example.org/"),
            ("HTTPS://API.example.org:443/a b?c=\"#d", "https://api.example.org/a%20b?c=%22"),
            ("https://api.example.org./x", "https://api.example.org/x"),
            ("https:\\\\api.example.org\\x", "https://api.example.org/x"),
            ("  https://api.example.org/\n", "https://api.example.org/"),
            ("http://plain.example/", "http://plain.example/"),
            ("https://plain.example/", "https://plain.example/"),
        ] {
            assert_eq!(check(&policy, url).unwrap(), sent, "{url}");
        }
    }

    #[test]
    fn another_host_is_refused_with_the_way_out() {
        let error = check(&policy(&["api.example.org"]), "https://evil.example/?token=x").unwrap_err();
        let expected = "Fetch blocked: domain \"evil.example\" not in whitelist. Add it to your prompt to allow access.";
        assert_eq!((error.to_string().as_str(), error.code(), error.is_refusal()), (expected, "ERR_FETCH_HOST_NOT_ALLOWED", true));
    }

    #[test]
    fn another_port_and_plain_http_are_refused_by_name() {
        let policy = policy(&["api.example.org"]);
        for (url, part) in [("https://api.example.org:8443/", "not with the port 8443"), ("http://api.example.org/", "with https: only")] {
            let error = check(&policy, url).unwrap_err();
            assert!(error.to_string().contains(part) && error.code() == "ERR_FETCH_HOST_NOT_ALLOWED", "{error}");
        }
        let mut private = policy;
        private.private_hosts = AllowedHosts::parse(["api.example.org"]).unwrap();
        assert!(check(&private, "http://api.example.org/").is_ok(), "private hosts need no TLS");
        assert!(check(&private, "http://api.example.org:8080/").is_err());
    }

    #[test]
    fn what_is_no_web_address_or_has_a_login_is_refused_without_being_quoted() {
        let policy = policy(&["api.example.org"]);
        for url in [
            "ftp://api.example.org/",
            "file:///etc/passwd",
            "data:text/plain,x",
            "javascript:x",
            "ws://api.example.org/",
            "gopher://api.example.org/",
            "https://user:sekret@api.example.org/",
            "https://sekret@api.example.org/",
            "https://api.example.org@evil.example/",
            "https:///",
            "https://",
            "//api.example.org/",
            "/path",
            "",
            "https://api..example.org/",
            "https://api.example.org../",
            "https://api.example.org:99999/",
            "https://[::1/",
            "https://exa mple.org/",
        ] {
            let error = check(&policy, url).unwrap_err();
            assert!(error.is_refusal() && !error.to_string().contains("sekret"), "{url}: {error}");
        }
    }

    #[test]
    fn methods_are_tokens_and_reading_is_get_and_head() {
        let mut policy = policy(&["api.example.org"]);
        let mut check = |method: &str, methods| {
            policy.methods = methods;
            let request = FetchRequest { method: method.into(), ..FetchRequest::get("https://api.example.org") };
            Outgoing::check(request, &policy).map(|outgoing| outgoing.method.to_string())
        };
        for (method, sent) in [("get", "GET"), ("Post", "POST"), ("patch", "PATCH"), ("PROPFIND", "PROPFIND"), ("purge", "purge")] {
            assert_eq!(check(method, Methods::All).unwrap(), sent);
        }
        for method in ["CONNECT", "trace", "Track", "", "GET ", "G\r\nET", "GET\0", "g\u{e9}t", "A B", &"X".repeat(33)] {
            assert_eq!(check(method, Methods::All).unwrap_err().code(), "ERR_FETCH_INVALID_REQUEST", "{method:?}");
        }
        assert!(check("head", Methods::ReadOnly).is_ok());
        for method in ["POST", "put", "DELETE", "OPTIONS", "GETS"] {
            assert_eq!(check(method, Methods::ReadOnly).unwrap_err().code(), "ERR_FETCH_METHOD_NOT_ALLOWED", "{method}");
        }
    }

    #[test]
    fn urls_and_bodies_are_limited_and_reading_has_no_body() {
        let mut policy = policy(&["api.example.org"]);
        policy.limits.url_bytes = 40;
        policy.limits.request_body_bytes = 4;
        let long = format!("https://api.example.org/{}", "x".repeat(40));
        assert_eq!(check(&policy, &long).unwrap_err().code(), "ERR_FETCH_LIMIT");
        let post = |method: &str, body: &'static str| {
            let request = FetchRequest { method: method.into(), body: Some(body.into()), ..FetchRequest::get("https://api.example.org") };
            Outgoing::check(request, &policy).map(|_| ()).map_err(|error| error.code())
        };
        assert_eq!(post("POST", "1234"), Ok(()));
        assert_eq!(post("POST", "12345"), Err("ERR_FETCH_LIMIT"));
        assert_eq!([post("GET", ""), post("head", "1")], [Err("ERR_FETCH_INVALID_REQUEST"); 2]);
    }
}
