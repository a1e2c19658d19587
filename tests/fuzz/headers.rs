//! The fuzz target of headers: what agent code may send, and what it gets to see.
//!
//! An input has parts between the characters `\u{1e}`: a method, a URL, a body that is empty if there is none, and headers. A header has `\u{1f}`
//! between its name and its value. The word SECRET stands for the placeholder of a secret.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue};
use hyperlight_mcp::fetch::{AllowedHosts, FetchError, FetchLimits, FetchPolicy, FetchRequest, FetchSecret, Methods, RedirectMode};
use secrecy::SecretString;

const VALUE: &str = "value \u{e9} of the secret";
const MAX_HEADERS: usize = 6;
const MAX_HEADER_BYTES: usize = 400;
/// Headers that only `fetch` on the host and the HTTP client set: about the connection, the framing, cookies and what a browser sets.
const OURS: &str = "connection content-length cookie cookie2 expect host http2-settings keep-alive origin set-cookie set-cookie2 te trailer \
    transfer-encoding upgrade";
/// Headers of a response that agent code does not get.
const UNSEEN: &str = "connection keep-alive proxy-authenticate set-cookie set-cookie2 te trailer transfer-encoding upgrade";

static POLICY: LazyLock<FetchPolicy> = LazyLock::new(|| {
    let mut policy = FetchPolicy::new(AllowedHosts::parse(["*.allowed.example"]).expect("a host"), "");
    let host = "api.allowed.example".parse().expect("a host");
    policy.secrets = vec![FetchSecret::new("KEY", SecretString::from(VALUE), host).expect("a secret")];
    policy.limits = FetchLimits { headers: MAX_HEADERS, header_bytes: MAX_HEADER_BYTES, ..FetchLimits::default() };
    policy
});

/// Checks that each header of a request is one header when it is sent, that none is a header which only the host sets, and that a response
/// shows neither cookies nor secrets.
pub fn headers(bytes: &[u8]) {
    // Bytes that are no UTF-8 are characters below U+0100, of which a header may have more than ASCII.
    let text = std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned);
    let text = text.replace("SECRET", POLICY.secrets[0].placeholder());
    let mut parts = text.split('\u{1e}');
    let (method, url, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let given: Vec<(String, String)> = parts
        .map(|part| part.split_once('\u{1f}').unwrap_or((part, "")))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for methods in [Methods::All, Methods::ReadOnly] {
        let policy = FetchPolicy { methods, ..POLICY.clone() };
        let request = FetchRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: given.clone(),
            redirect: RedirectMode::Follow,
            body: (!body.is_empty()).then(|| body.to_owned().into()),
        };
        match policy.prepare(request) {
            Ok(request) => sent(&request, &given, methods),
            Err(error) => refused(&error),
        }
    }
    seen(&given);
}

fn refused(error: &FetchError) {
    let message = error.to_string();
    assert!(error.code().starts_with("ERR_FETCH_") && message.len() <= 1_000, "{message}");
    assert!(!message.contains(char::is_control) && !message.contains(VALUE), "{message:?}");
}

fn sent(request: &reqwest::Request, given: &[(String, String)], methods: Methods) {
    let method = request.method().as_str();
    assert!(!matches!(method, "CONNECT" | "TRACE" | "TRACK") && method.bytes().all(is_token), "{method:?}");
    assert!(methods == Methods::All || matches!(method, "GET" | "HEAD"));
    // The head as HTTP/1.1 writes it has one line for each header, and neither a further line nor an end before its end.
    let mut head = format!("{method} {} HTTP/1.1\r\n", &request.url()[url::Position::BeforePath..]).into_bytes();
    for (name, value) in request.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    assert_eq!(head.iter().filter(|byte| **byte == b'\n' || **byte == b'\r').count(), 2 * (request.headers().len() + 1));
    assert!(head.iter().all(|byte| matches!(byte, b'\t' | b'\r' | b'\n' | b' '..=b'~' | 0x80..)), "a control character");
    let placeholder = POLICY.secrets[0].placeholder();
    assert!(request.headers().values().all(|value| !holds(value.as_bytes(), placeholder)) && !request.url().as_str().contains(placeholder));
    // Each header is sent as it was given; the host adds one.
    assert!(given.len() <= MAX_HEADERS && request.headers().len() == given.len() + 1);
    assert!(given.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= MAX_HEADER_BYTES);
    for (name, value) in given {
        let name = name.to_ascii_lowercase();
        assert!(!OURS.split_whitespace().any(|ours| ours == name) && !name.starts_with("proxy-") && !name.starts_with("sec-"), "{name}");
        assert!(methods == Methods::All || !name.split(['-', '_']).any(|word| matches!(word, "method" | "verb")), "{name}");
        assert!(!name.is_empty() && name.bytes().all(is_token), "{name:?}");
        let value = value.trim_matches(['\t', '\n', '\r', ' ']).replace(placeholder, "\0");
        let all = request.headers().get_all(&name);
        assert!(all.iter().any(|sent| name == "authorization" || same(&value, sent.as_bytes())), "{name}");
    }
    let compression: Vec<&[u8]> = request.headers().get_all("accept-encoding").iter().map(HeaderValue::as_bytes).collect();
    assert!(compression == [&b"gzip"[..]] || compression == [&b"identity"[..]]);
}

/// Returns whether a sent value is the given one: one byte for each character, and the secret's value for each NUL.
fn same(given: &str, sent: &[u8]) -> bool {
    let bytes: Vec<u8> = given.chars().map(|next| u8::try_from(next).unwrap_or(b'?')).collect();
    bytes.split(|byte| *byte == 0).collect::<Vec<_>>().join(VALUE.as_bytes()) == sent
}

/// Checks the headers as those of a response.
fn seen(given: &[(String, String)]) {
    let mut headers = HeaderMap::new();
    for (name, value) in given.iter().take(1_000) {
        let value: Vec<u8> = value.replace(POLICY.secrets[0].placeholder(), VALUE).into_bytes();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(&value)) {
            headers.append(name, value);
        }
    }
    let visible = match POLICY.visible_headers(&headers) {
        Ok(visible) => visible,
        Err(error) => return refused(&error),
    };
    assert!(headers.len() <= MAX_HEADERS && visible.len() <= headers.len());
    for (name, value) in &visible {
        assert!(!UNSEEN.split_whitespace().any(|unseen| unseen == name), "{name}");
        assert!(value.chars().all(|next| u8::try_from(next).is_ok() && (next == '\t' || !next.is_ascii_control())), "{value:?}");
        let bytes: Vec<u8> = value.chars().filter_map(|next| u8::try_from(next).ok()).collect();
        assert!(!holds(&bytes, VALUE), "the value of a secret");
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Returns whether a byte may be part of a method or of a header's name (RFC 9110, `tchar`).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
