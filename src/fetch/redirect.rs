//! Decides whether a redirect is followed. Returns the next request, or the reason why there is no next request.

use http::{HeaderMap, Method, header};
use url::Url;

use super::error::FetchError;
use super::policy::{FetchPolicy, shown_host};
use super::request::Outgoing;
use super::secrets::Secrets;
use crate::redact::{is_key_name, is_secret_name};

/// Headers that describe a body. If the next request has no body, it has none of these headers.
const ABOUT_THE_BODY: [header::HeaderName; 4] =
    [header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_LOCATION, header::CONTENT_TYPE];

/// Returns whether a response with this status and a header `Location` is a redirect.
pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Returns the target in a response's header `Location`, with placeholders in place of secrets. Returns `None` if there is no such header.
pub(super) fn location(headers: &HeaderMap, secrets: &Secrets) -> Result<Option<String>, FetchError> {
    let mut all: Vec<_> = headers.get_all(header::LOCATION).iter().collect();
    all.dedup();
    match all[..] {
        [] => Ok(None),
        [one] => Ok(Some(String::from_utf8_lossy(&secrets.clean(one.as_bytes())).into_owned())),
        _ => Err(FetchError::Redirect { problem: "the response redirects to several addresses at once".to_owned() }),
    }
}

/// Returns the next request. The target is checked like the URL of a first request.
pub(super) fn next(current: &Outgoing, status: u16, target: &str, policy: &FetchPolicy, secrets: &Secrets) -> Result<Outgoing, FetchError> {
    let from = shown_host(&current.url);
    let target = current
        .url
        .join(target)
        .map_err(|_| FetchError::Redirect { problem: format!("\"{from}\" redirects to an address that is not a URL") })?;
    let url = policy.judge(target.as_str())?;
    if current.url.scheme() == "https" && url.scheme() == "http" {
        return Err(FetchError::Redirect {
            problem: format!("\"{from}\" redirects from https: to http:, where everybody on the way can read and change it"),
        });
    }
    let mut next = Outgoing { url, ..current.clone() };
    if becomes_get(&current.method, status) {
        next.method = Method::GET;
        next.body = None;
        for name in ABOUT_THE_BODY {
            next.headers.remove(name);
        }
    }
    if !is_same_origin(&current.url, &next.url) {
        next.headers = without_secrets(&next.headers, secrets);
    }
    Ok(next)
}

/// Returns the method and the target of the next request, before any check.
pub(super) fn asked(current: &Outgoing, status: u16, target: &str) -> (Method, Option<Url>) {
    let method = if becomes_get(&current.method, status) { Method::GET } else { current.method.clone() };
    (method, current.url.join(target).ok())
}

fn becomes_get(method: &Method, status: u16) -> bool {
    matches!(status, 301 | 302) && method == Method::POST || status == 303 && !matches!(*method, Method::GET | Method::HEAD)
}

fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

/// Returns the headers that may be sent to another origin. Leaves out headers that contain a secret, and headers whose name is typical of a
/// secret.
fn without_secrets(headers: &HeaderMap, secrets: &Secrets) -> HeaderMap {
    let is_secret = |name: &str, value: &[u8]| is_secret_name(name) || is_key_name(name) || secrets.is_in_header(name, value);
    let kept = headers.iter().filter(|(name, value)| !is_secret(name.as_str(), value.as_bytes()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::{AllowedHosts, FetchRequest};

    fn policy() -> FetchPolicy {
        FetchPolicy::new(AllowedHosts::parse(["a.example", "b.example", "http://b.example", "http://a.example"]).unwrap(), "")
    }

    fn request(method: &str, headers: &[(&str, &str)]) -> Outgoing {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let body = (method != "GET" && method != "HEAD").then(|| "body".into());
        let request = FetchRequest { method: method.into(), headers, body, ..FetchRequest::get("https://a.example/dir/page?q") };
        Outgoing::check(request, &policy()).unwrap()
    }

    fn follow(current: &Outgoing, status: u16, target: &str) -> Result<Outgoing, FetchError> {
        next(current, status, target, &policy(), &Secrets::none())
    }

    #[test]
    fn the_method_changes_as_the_standard_says() {
        for (method, status, then, has_body) in [
            ("POST", 301, "GET", false),
            ("POST", 302, "GET", false),
            ("POST", 303, "GET", false),
            ("POST", 307, "POST", true),
            ("POST", 308, "POST", true),
            ("PUT", 301, "PUT", true),
            ("PUT", 302, "PUT", true),
            ("PUT", 303, "GET", false),
            ("DELETE", 303, "GET", false),
            ("HEAD", 303, "HEAD", false),
            ("GET", 307, "GET", false),
        ] {
            let next = follow(&request(method, &[("content-type", "text/plain"), ("x-a", "1")]), status, "../other").unwrap();
            assert_eq!((next.method.as_str(), next.body.is_some()), (then, has_body), "{method} {status}");
            assert_eq!(next.url.as_str(), "https://a.example/other");
            assert_eq!((next.headers.contains_key("content-type"), next.headers.contains_key("x-a")), (method == then, true));
        }
    }

    #[test]
    fn headers_with_secrets_stay_with_their_origin() {
        let current = request("GET", &[("Authorization", "Bearer x"), ("X-Api-Key", "k"), ("X-Auth-Token", "t"), ("Accept", "text/html")]);
        assert_eq!(follow(&current, 302, "/next").unwrap().headers.len(), 4);
        for target in ["https://b.example/", "//b.example"] {
            let next = follow(&current, 302, target).unwrap();
            assert_eq!(next.headers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), ["accept"], "{target}");
        }
    }

    #[test]
    fn each_target_is_judged_like_a_first_request() {
        let current = request("GET", &[]);
        for (target, code) in [
            ("https://evil.example/", "ERR_FETCH_HOST_NOT_ALLOWED"),
            ("https://127.0.0.1/", "ERR_FETCH_HOST_NOT_ALLOWED"),
            ("https://a.example:8443/", "ERR_FETCH_HOST_NOT_ALLOWED"),
            ("//evil.example", "ERR_FETCH_HOST_NOT_ALLOWED"),
            ("\\\\evil.example", "ERR_FETCH_HOST_NOT_ALLOWED"),
            ("https://user:pass@a.example/", "ERR_FETCH_INVALID_REQUEST"),
            ("file:///etc/passwd", "ERR_FETCH_INVALID_REQUEST"),
            ("data:text/plain,x", "ERR_FETCH_INVALID_REQUEST"),
            ("javascript:alert(1)", "ERR_FETCH_INVALID_REQUEST"),
            ("http://a.example/", "ERR_FETCH_REDIRECT"),
            ("https://[", "ERR_FETCH_REDIRECT"),
        ] {
            assert_eq!(follow(&current, 302, target).unwrap_err().code(), code, "{target}");
        }
    }

    #[test]
    fn several_different_targets_are_refused() {
        let headers = |values: &[&'static str]| {
            values.iter().map(|value| (header::LOCATION, http::HeaderValue::from_static(value))).collect::<HeaderMap>()
        };
        assert_eq!(location(&headers(&[]), &Secrets::none()).unwrap(), None);
        assert_eq!(location(&headers(&["/a", "/a"]), &Secrets::none()).unwrap().as_deref(), Some("/a"));
        assert_eq!(location(&headers(&["/a", "/b"]), &Secrets::none()).unwrap_err().code(), "ERR_FETCH_REDIRECT");
    }
}
