//! The headers that agent code may send, and the headers that it gets.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::budget::FetchLimits;
use super::error::FetchError;
use super::request::Methods;

/// Headers that control the connection or the framing of a message, or that a browser sets automatically. This program sets them if they
/// are needed. Names that begin with `proxy-` or `sec-` are also forbidden.
const FORBIDDEN: [HeaderName; 16] = [
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    HeaderName::from_static("cookie2"),
    header::EXPECT,
    HeaderName::from_static("http2-settings"),
    header::HOST,
    HeaderName::from_static("keep-alive"),
    header::ORIGIN,
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Words in the names of certain headers, such as `X-HTTP-Method-Override`. With such a header, some servers treat a GET request as a
/// request with another method. If the policy allows only reading, a header with one of these words in its name is refused.
const METHOD_WORDS: [&str; 2] = ["method", "verb"];
/// Headers of a response that agent code does not get: cookies, and headers about the connection.
const DROPPED: [HeaderName; 9] = [
    header::SET_COOKIE,
    HeaderName::from_static("set-cookie2"),
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Checks the headers of a request.
pub(super) fn request_headers(given: &[(String, String)], methods: Methods, limits: &FetchLimits) -> Result<HeaderMap, FetchError> {
    check_size("the request", &given.iter().map(|(name, value)| name.len() + value.len()).collect::<Vec<_>>(), limits)?;
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| FetchError::invalid("a header's name is not a valid token"))?;
        if is_forbidden(&name) {
            return Err(FetchError::invalid(format!("the header {name} cannot be set by code: leave it out")));
        }
        if methods == Methods::ReadOnly && names_method(&name) {
            return Err(FetchError::MethodNotAllowed { method: format!("in the header {name}") });
        }
        let value = request_value(value)
            .ok_or_else(|| FetchError::invalid(format!("the value of the header {name} has characters that no header can have")))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Returns whether agent code may not set a header.
fn is_forbidden(name: &HeaderName) -> bool {
    let read = read_by_servers(name);
    FORBIDDEN.iter().any(|forbidden| forbidden.as_str() == read) || read.starts_with("proxy-") || read.starts_with("sec-")
}

/// Returns whether a server may read the method of the request from this header.
fn names_method(name: &HeaderName) -> bool {
    let read = read_by_servers(name);
    read.split('-').any(|word| METHOD_WORDS.contains(&word))
}

/// Returns a name as many servers read it. In the variables of CGI (RFC 3875, 4.1.18), `-` and `_` are the same.
fn read_by_servers(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

/// Converts a value to bytes: each character becomes one byte.
fn request_value(value: &str) -> Option<HeaderValue> {
    let trimmed = value.trim_matches(['\t', '\n', '\r', ' ']);
    let bytes: Option<Vec<u8>> = trimmed.chars().map(|next| u8::try_from(next).ok()).collect();
    HeaderValue::from_bytes(&bytes?).ok()
}

/// Returns the headers of a response for agent code. `change` replaces the values of secrets.
pub(super) fn response_headers(
    headers: &HeaderMap,
    is_compressed: bool,
    change: impl Fn(&[u8]) -> Vec<u8>,
    limits: &FetchLimits,
) -> Result<Vec<(String, String)>, FetchError> {
    check_size("the response", &headers.iter().map(|(name, value)| name.as_str().len() + value.len()).collect::<Vec<_>>(), limits)?;
    // Code gets the body in decompressed form, so the headers with the length and the encoding of the body would be wrong. The length would
    // also show how well the body was compressed. If the server puts a secret and a text of the code into one body, this shows how much of
    // the two is equal.
    let is_untrue = |name: &HeaderName| is_compressed && (name == header::CONTENT_ENCODING || name == header::CONTENT_LENGTH);
    let kept = headers.iter().filter(|(name, _)| !DROPPED.contains(name) && !is_untrue(name));
    let text = |bytes: &[u8]| text_of_bytes(&change(bytes));
    Ok(kept.map(|(name, value)| (text(name.as_str().as_bytes()), text(value.as_bytes()))).collect())
}

/// Returns a text with one character for each byte. In this form, the Fetch standard passes header values to code.
pub(super) fn text_of_bytes(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn check_size(what: &str, sizes: &[usize], limits: &FetchLimits) -> Result<(), FetchError> {
    let count = sizes.len();
    if count > limits.headers {
        let problem = format!("{what} has {count} headers");
        return Err(FetchError::LimitExceeded { problem, limit_name: "headers", limit: limits.headers as u64 });
    }
    let bytes: usize = sizes.iter().sum();
    if bytes > limits.header_bytes {
        let problem = format!("the headers of {what} have {bytes} bytes");
        return Err(FetchError::LimitExceeded { problem, limit_name: "headerBytes", limit: limits.header_bytes as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(name: &str, value: &str) -> Result<HeaderMap, FetchError> {
        request_headers(&[(name.to_owned(), value.to_owned())], Methods::All, &FetchLimits::default())
    }

    #[test]
    fn ordinary_headers_are_sent_as_they_are() {
        for (name, value) in
            [("Accept", "application/json"), ("X-Api-Key", "k"), ("authorization", "Bearer x"), ("X-Empty", ""), ("User-Agent", "me/1")]
        {
            assert_eq!(checked(name, value).unwrap()[name], value);
        }
        assert_eq!(checked("X-Spaces", " \t a b\r\n").unwrap()["x-spaces"], "a b");
        assert_eq!(checked("X-Latin", "caf\u{e9}").unwrap()["x-latin"].as_bytes(), b"caf\xe9");
    }

    #[test]
    fn headers_about_the_connection_cookies_and_a_browsers_own_are_refused() {
        let names = "Host hOST Cookie Cookie2 Set-Cookie Set-Cookie2 Connection Keep-Alive Proxy-Authorization Proxy-Connection proxy-x TE Trailer \
            Transfer-Encoding transfer_encoding Upgrade Content-Length Content_Length Expect Accept-Encoding Origin Sec-Fetch-Site sec-x HTTP2-Settings";
        for name in names.split_whitespace() {
            let error = checked(name, "x").unwrap_err();
            assert_eq!(error.code(), "ERR_FETCH_INVALID_REQUEST", "{name}");
            assert!(error.to_string().contains(&name.to_ascii_lowercase()), "{error}");
        }
    }

    #[test]
    fn a_value_cannot_end_its_header() {
        for value in ["a\r\nHost: evil", "a\nb", "a\rb", "a\0b", "a\u{7f}b", "a\u{1}b", "a\u{100}b", "a\u{560a}\u{560d}b", "\u{10a}"] {
            let error = checked("X-A", value).unwrap_err();
            assert!(!error.to_string().contains("evil"), "{value:?}");
        }
        for name in ["", "a b", "a:", "a\r\n", "a\0", "h\u{f6}st", "a(b", "\u{130}", "a\n"] {
            assert!(checked(name, "x").is_err(), "{name:?}");
        }
    }

    #[test]
    fn where_only_reading_is_allowed_no_header_can_change_the_method() {
        for name in [
            "X-HTTP-Method-Override",
            "x-http-method",
            "X-Method-Override",
            "X_HTTP_Method_Override",
            "X-Method",
            "X-Original-Method",
            "X-HTTP-Verb",
        ] {
            let error = request_headers(&[(name.to_owned(), "DELETE".to_owned())], Methods::ReadOnly, &FetchLimits::default()).unwrap_err();
            assert_eq!(error.code(), "ERR_FETCH_METHOD_NOT_ALLOWED");
            assert!(checked(name, "GET").is_ok());
        }
    }

    #[test]
    fn the_number_and_the_bytes_of_headers_are_limited_both_ways() {
        let limits = FetchLimits { headers: 2, header_bytes: 20, ..FetchLimits::default() };
        let of = |count: usize, length: usize| vec![("a".to_owned(), "x".repeat(length)); count];
        assert!(request_headers(&of(2, 9), Methods::All, &limits).is_ok());
        for (count, length) in [(3, 1), (2, 10)] {
            assert_eq!(request_headers(&of(count, length), Methods::All, &limits).unwrap_err().code(), "ERR_FETCH_LIMIT");
            let answer: HeaderMap = of(count, length).iter().fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
                all
            });
            assert_eq!(response_headers(&answer, false, <[u8]>::to_vec, &limits).unwrap_err().code(), "ERR_FETCH_LIMIT");
        }
    }

    #[test]
    fn a_response_comes_without_cookies_and_without_what_is_about_the_connection() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("set-cookie", "a=b"), ("content-type", "text/plain"), ("content-encoding", "gzip"), ("connection", "close")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.append("x-latin", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        let names = |is_compressed| response_headers(&headers, is_compressed, <[u8]>::to_vec, &FetchLimits::default()).unwrap();
        let expected = [("content-type", "text/plain"), ("content-encoding", "gzip"), ("x-latin", "caf\u{e9}")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(names(false), expected);
        assert_eq!(names(true), [expected[0].clone(), expected[2].clone()]);
    }

    proptest! {
        #[test]
        fn what_passes_has_no_byte_that_could_end_a_header(name: String, value: String) {
            if let Ok(headers) = checked(&name, &value) {
                for (name, value) in &headers {
                    prop_assert!(!is_forbidden(name));
                    prop_assert!(value.as_bytes().iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f));
                }
            }
        }
    }
}
