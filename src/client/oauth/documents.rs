//! The metadata documents in which rmcp finds an authorization server: the addresses of these documents, and limits of what the documents
//! may list.

use http::HeaderMap;
use http::header::{LOCATION, WWW_AUTHENTICATE};
use serde_json::Value as Json;
use url::Url;

/// Maximum length in bytes of a challenge that is read. The reason for the limit: rmcp compares each scope of a challenge with all others.
pub(super) const MAX_CHALLENGE_BYTES: usize = 8 * 1024;
/// Maximum number of entries in a list of a document. The reason for the limit: rmcp compares each entry with all others.
const MAX_ENTRIES: usize = 1_000;
/// Maximum number of authorization servers that a document may name. This program sends requests to one after the other.
const MAX_ISSUERS: usize = 16;
const ISSUERS: &str = "authorization_servers";

/// The address of the document that was requested last. If the request was redirected, this is the address before the redirects, because an
/// issuer may redirect within its own origin.
#[derive(Debug, Default)]
pub(super) struct LastDocument {
    first: Option<Url>,
    /// The address to which the last answer redirects, if rmcp follows it there.
    next: Option<Url>,
}

impl LastDocument {
    pub(super) fn first(&self) -> Option<&Url> {
        self.first.as_ref()
    }

    /// Records that a document is requested. If the last answer redirected to exactly this address, it is still the same document.
    /// Otherwise it is a new one.
    pub(super) fn requested(&mut self, url: &Url) {
        if self.next.take().as_ref() != Some(url) {
            self.first = Some(url.clone());
        }
    }

    /// Records the answer. A status of 300 to 399 without a usable `Location` is not a redirect.
    pub(super) fn answered(&mut self, url: &Url, status: http::StatusCode, headers: &HeaderMap) {
        let location = headers.get(LOCATION).filter(|_| status.is_redirection()).and_then(|location| location.to_str().ok());
        self.next = location.and_then(|location| url.join(location).ok()).filter(|next| next.origin() == url.origin());
    }
}

/// Removes a challenge that is too long to be read.
pub(super) fn limit_challenge(headers: &mut HeaderMap) {
    if headers.get_all(WWW_AUTHENTICATE).iter().any(|challenge| challenge.len() > MAX_CHALLENGE_BYTES) {
        headers.remove(WWW_AUTHENTICATE);
    }
}

/// Returns a description of the problem if a document lists more than rmcp can read in a short time.
pub(super) fn too_many(document: &Json) -> Option<String> {
    let limit = |field: &str| if field == ISSUERS { MAX_ISSUERS } else { MAX_ENTRIES };
    document.as_object()?.iter().find_map(|(field, value)| {
        let (entries, limit) = (value.as_array()?.len(), limit(field));
        (entries > limit).then(|| format!("a document whose list {} has {entries} entries, and at most {limit} are read", shown(field)))
    })
}

/// Returns the name of a field in a form that can be shown: at most 40 letters, digits and underscores.
fn shown(field: &str) -> String {
    field.chars().filter(|character| character.is_ascii_alphanumeric() || *character == '_').take(40).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode};
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn first_after(steps: &[(&str, u16, Option<&str>)]) -> String {
        let mut last = LastDocument::default();
        for (address, status, location) in steps {
            last.requested(&url(address));
            let headers = location.map(|location| (LOCATION, HeaderValue::from_str(location).unwrap()));
            last.answered(&url(address), StatusCode::from_u16(*status).unwrap(), &headers.into_iter().collect());
        }
        last.first().unwrap().to_string()
    }

    #[test]
    fn only_a_redirect_that_is_followed_leads_from_one_document_to_the_next() {
        let followed =
            [("https://a.example/x", 302, Some("/y")), ("https://a.example/y", 307, Some("z")), ("https://a.example/z", 200, None)];
        assert_eq!(first_after(&followed), "https://a.example/x");
        for (status, location) in [
            (300, None),
            (304, None),
            (302, Some("https://evil.example/m")),
            (302, Some("/other")),
            (200, Some("/m")),
            (302, Some("http://[")),
        ] {
            let steps = [("https://a.example/x", status, location), ("https://evil.example/m", 200, None)];
            assert_eq!(first_after(&steps), "https://evil.example/m", "{status} {location:?}");
        }
        // A redirect that was not followed has no effect on what is requested after the next document.
        let later = [("https://a.example/x", 302, Some("/y")), ("https://b.example/", 200, None), ("https://a.example/y", 200, None)];
        assert_eq!(first_after(&later), "https://a.example/y");
    }

    #[test]
    fn a_document_with_a_list_that_takes_long_to_compare_is_refused() {
        let list = |entries: usize| (0..entries).map(|entry| json!(format!("https://{entry}.example"))).collect::<Vec<_>>();
        assert_eq!(too_many(&json!({ "authorization_servers": list(16), "scopes_supported": list(1_000), "x": {} })), None);
        assert_eq!(too_many(&json!([list(2_000)])), None);
        let problem = too_many(&json!({ "authorization_servers": list(17) })).unwrap();
        assert_eq!(problem, "a document whose list authorization_servers has 17 entries, and at most 16 are read");
        assert!(too_many(&json!({ "scopes_supported": list(1_001) })).unwrap().contains("scopes_supported"));
    }

    #[test]
    fn a_long_challenge_is_not_read() {
        let with = |bytes: usize| {
            let mut headers: HeaderMap = [(WWW_AUTHENTICATE, HeaderValue::from_str(&"x".repeat(bytes)).unwrap())].into_iter().collect();
            limit_challenge(&mut headers);
            headers.contains_key(WWW_AUTHENTICATE)
        };
        assert!(with(MAX_CHALLENGE_BYTES) && !with(MAX_CHALLENGE_BYTES + 1));
    }
}
