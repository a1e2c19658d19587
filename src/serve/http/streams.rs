//! Recognises streams of notifications. They stay open without a request in progress, so they have separate limits.

use http::{HeaderMap, Method};
use rmcp::model::ProtocolVersion;

/// The maximum number of open streams without a session for one caller. Each host that uses the caller's token needs about one such stream.
pub(super) const MAX_STREAMS_PER_CALLER: usize = 64;

/// The kind of a request, which determines the limits that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Call,
    /// The stream of a session. It is limited by the number of sessions.
    SessionStream,
    /// A stream without a session, since protocol 2026-07-28.
    Listen,
}

impl RequestKind {
    /// Returns the kind of a request. The MCP method is read from the request's header only in those protocol versions in which rmcp
    /// refuses a header that differs from the body.
    pub(super) fn of(method: &Method, headers: &HeaderMap) -> Self {
        if method == Method::GET {
            return Self::SessionStream;
        }
        let only = |name: &str| {
            let mut values = headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
        };
        let is_checked = only("mcp-protocol-version").is_some_and(|version| version >= ProtocolVersion::STANDARD_HEADERS.as_str());
        if method == Method::POST && is_checked && only("mcp-method") == Some("subscriptions/listen") { Self::Listen } else { Self::Call }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_a_stream_only_where_it_must_agree_with_the_body() {
        let kind = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, value.parse().unwrap());
            }
            RequestKind::of(&Method::POST, &headers)
        };
        let (version, method) = (("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen"));
        assert_eq!(kind(&[version, method]), RequestKind::Listen);
        for pairs in [
            &[version][..],
            &[method],
            &[("mcp-protocol-version", "2025-11-25"), method],
            &[version, ("mcp-method", "tools/call")],
            &[version, method, method],
        ] {
            assert_eq!(kind(pairs), RequestKind::Call, "{pairs:?}");
        }
        assert_eq!(RequestKind::of(&Method::GET, &HeaderMap::new()), RequestKind::SessionStream);
    }
}
