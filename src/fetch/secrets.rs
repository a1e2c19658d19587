//! Secrets. Requests of agent code contain placeholders instead of secrets. This module inserts the values of the secrets into requests. In
//! responses, it replaces the values by the placeholders.

use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::error::FetchError;
use super::hosts::AllowedHost;
use super::request::Outgoing;
use crate::redact::{Replacements, SecretStream};
use crate::text::sanitise_line;

/// Permitted lengths in bytes of a secret's value. A shorter value would occur in many texts by chance.
const VALUE_BYTES: std::ops::RangeInclusive<usize> = 8..=4096;
/// Maximum number of characters in a secret's name.
const NAME_CHARS: usize = 64;
const PREFIX: &str = "hlsecret_";
const RANDOM_BYTES: usize = 16;
/// The characters of a value that are escaped in a URL and in a form. These are all characters that are not "unreserved" (RFC 3986).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A secret that requests to one host may use. Agent code knows only the secret's placeholder.
#[derive(Clone)]
pub struct FetchSecret {
    name: String,
    placeholder: String,
    value: SecretString,
    host: AllowedHost,
    /// True if the value may also be used in the bodies of requests.
    is_for_bodies: bool,
}

impl FetchSecret {
    /// Makes a secret with a new random placeholder, such as `hlsecret_0123456789abcdef0123456789abcdef`.
    ///
    /// # Errors
    /// `ERR_FETCH_UNAVAILABLE` for a value that no header can have, or that is too short or too long to be found in a response.
    pub fn new(name: impl Into<String>, value: SecretString, host: AllowedHost) -> Result<Self, FetchError> {
        let name = sanitise_line(&name.into(), NAME_CHARS);
        let problem = |problem: &str| Err(FetchError::Unavailable { problem: format!("the secret {name} cannot be used: {problem}") });
        if !VALUE_BYTES.contains(&value.expose_secret().len()) || value.expose_secret().chars().count() < *VALUE_BYTES.start() {
            return problem("its value must have from 8 to 4096 bytes");
        }
        if value.expose_secret().chars().any(char::is_control) {
            return problem("its value has a line break or another control character");
        }
        let mut random = [0; RANDOM_BYTES];
        if getrandom::fill(&mut random).is_err() {
            return problem("this machine has no random numbers");
        }
        Ok(Self { placeholder: format!("{PREFIX}{}", hex::encode(random)), name, value, host, is_for_bodies: false })
    }

    /// Allows the value in bodies of requests too. A server may store a body, for example as a file. If code can read the stored file in
    /// parts, it gets the value in parts, and this module does not find a part of a value in a response.
    #[must_use]
    pub fn for_bodies(self) -> Self {
        Self { is_for_bodies: true, ..self }
    }

    /// Returns a text with the form of a placeholder that belongs to no secret.
    #[must_use]
    pub fn made_up() -> String {
        format!("{PREFIX}{}", "0".repeat(2 * RANDOM_BYTES))
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text that agent code uses in place of the value.
    #[must_use]
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }

    #[must_use]
    pub fn host(&self) -> &AllowedHost {
        &self.host
    }
}

impl fmt::Debug for FetchSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FetchSecret").field("name", &self.name).field("host", &self.host).finish_non_exhaustive()
    }
}

/// The secrets of one session.
pub(super) struct Secrets {
    all: Vec<FetchSecret>,
    /// Finds placeholders, in the order of `all`.
    placeholders: AhoCorasick,
    /// Finds values. `None` if there are no secrets.
    values: Option<Arc<Replacements>>,
}

/// A request with the values of its secrets, ready to be sent.
pub(super) struct Filled {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
}

/// The notation of a value at the position where it is inserted into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    AsIs,
    Percent,
    Json,
}

impl Secrets {
    pub(super) fn new(all: Vec<FetchSecret>) -> Result<Self, FetchError> {
        let cannot = |_| FetchError::Unavailable { problem: "there are too many secrets to search for".to_owned() };
        let placeholders = AhoCorasick::new(all.iter().map(|secret| &secret.placeholder)).map_err(cannot)?;
        let values = Replacements::new(all.iter().map(|secret| (&secret.value, secret.placeholder.as_str())));
        let values =
            values.ok_or(()).map_err(|()| FetchError::Unavailable { problem: "a secret is too long to be searched for".to_owned() })?;
        Ok(Self { values: (!all.is_empty()).then(|| Arc::new(values)), all, placeholders })
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self::new(Vec::new()).unwrap()
    }

    /// Returns whether there are any secrets.
    pub(super) fn exist(&self) -> bool {
        !self.all.is_empty()
    }

    /// Inserts the values of secrets into a request. First checks that each of them may be sent to the request's host.
    pub(super) fn fill(&self, request: &Outgoing) -> Result<Filled, FetchError> {
        let Outgoing { method: _, url, headers, body } = request;
        let mut filled = Filled { url: url.clone(), headers: headers.clone(), body: body.clone() };
        if !self.exist() {
            return Ok(filled);
        }
        self.check(request)?;
        let text = |text: &str| String::from_utf8_lossy(&self.replaced(text.as_bytes(), Notation::Percent)).into_owned();
        if self.is_in(url.path().as_bytes()) {
            filled.url.set_path(&text(url.path()));
        }
        if let Some(query) = url.query().filter(|query| self.is_in(query.as_bytes())) {
            filled.url.set_query(Some(&text(query)));
        }
        for (name, value) in &mut filled.headers {
            if self.is_in_header(name.as_str(), value.as_bytes()) {
                *value = self.filled_header(name.as_str(), value)?;
            }
        }
        if let Some(body) = body.as_ref().filter(|body| self.is_in(body)) {
            filled.body = Some(self.replaced(body, notation_of_body(headers)).into());
        }
        Ok(filled)
    }

    /// Fails in three cases: a secret of the request belongs to another host; a secret is in the body, but not allowed in bodies; or the
    /// request asks for a part of a response. The third case is refused because a host can send back what it has received, and this module
    /// does not find a part of a value in a response.
    fn check(&self, request: &Outgoing) -> Result<(), FetchError> {
        let Outgoing { method: _, url, headers, body } = request;
        let parts = [url.as_str().as_bytes(), body.as_deref().unwrap_or_default()].map(<[u8]>::to_vec);
        let in_headers = headers.iter().flat_map(|(name, value)| [Some(value.as_bytes().to_vec()), login(name.as_str(), value.as_bytes())]);
        for part in parts.into_iter().chain(in_headers.flatten()) {
            for found in self.placeholders.find_iter(&part) {
                let secret = self.found(&found);
                if !secret.host.matches(url) {
                    let (home, host) = (secret.host.to_string(), sanitise_line(&url.origin().ascii_serialization(), NAME_CHARS * 2));
                    return Err(FetchError::SecretNotAllowed { secret: secret.name.clone(), home, host });
                }
            }
        }
        let mut in_body = body.as_deref().into_iter().flat_map(|body| self.placeholders.find_iter(body)).map(|found| self.found(&found));
        if let Some(secret) = in_body.find(|secret| !secret.is_for_bodies) {
            return Err(FetchError::invalid(format!(
                "the secret {name} can be used in headers and in the URL, but not in a body; to allow bodies too, pass it as {name}@HOST:body",
                name = secret.name
            )));
        }
        if let Some(name) = headers.keys().find(|name| asks_for_part(name)) {
            return Err(FetchError::invalid(format!(
                "code that has secrets can only fetch a whole response, not a part of it (Range): leave the header {name} out"
            )));
        }
        Ok(())
    }

    fn found(&self, found: &aho_corasick::Match) -> &FetchSecret {
        &self.all[found.pattern().as_usize()]
    }

    /// Returns whether a header contains a placeholder, either directly or in the encoded login of `Basic`.
    pub(super) fn is_in_header(&self, name: &str, value: &[u8]) -> bool {
        self.is_in(value) || login(name, value).is_some_and(|login| self.is_in(&login))
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.exist() && self.placeholders.is_match(bytes)
    }

    fn filled_header(&self, name: &str, value: &HeaderValue) -> Result<HeaderValue, FetchError> {
        let filled = match login(name, value.as_bytes()).filter(|login| self.is_in(login)) {
            Some(login) => format!("Basic {}", STANDARD.encode(self.replaced(&login, Notation::AsIs))).into_bytes(),
            None => self.replaced(value.as_bytes(), Notation::AsIs),
        };
        let mut filled = HeaderValue::from_bytes(&filled)
            .map_err(|_| FetchError::invalid("this secret contains characters that a header cannot have"))?;
        filled.set_sensitive(true);
        Ok(filled)
    }

    fn replaced(&self, bytes: &[u8], notation: Notation) -> Vec<u8> {
        let written = |secret: &FetchSecret| written(secret.value.expose_secret(), notation);
        self.placeholders.replace_all_bytes(bytes, &self.all.iter().map(written).collect::<Vec<_>>())
    }

    /// Returns bytes of a response, with placeholders instead of the values of secrets.
    pub(super) fn clean(&self, bytes: &[u8]) -> Vec<u8> {
        self.values.as_ref().map_or_else(|| bytes.to_vec(), |values| values.replace(bytes))
    }

    /// Returns a text, with placeholders instead of the values of secrets.
    pub(super) fn clean_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.clean(text.as_bytes())).into_owned()
    }

    /// Returns the stream that replaces the values of secrets in a body, or `None` if there are no secrets.
    pub(super) fn stream(&self) -> Option<SecretStream> {
        self.values.as_ref().map(|values| SecretStream::new(Arc::clone(values)))
    }
}

/// Returns whether a request header can ask for a part of a response. Some servers have other names for `Range`, such as `Request-Range`
/// and `x-ms-range`. `Content-Range` does not count, because it only says which part of a body is sent.
fn asks_for_part(name: &HeaderName) -> bool {
    *name != header::CONTENT_RANGE && name.as_str().split(['-', '_', '.']).any(|word| matches!(word, "range" | "ranges"))
}

/// Returns the decoded login of an `Authorization: Basic` header.
fn login(name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, login) = value.split_at_checked(6)?;
    let is_basic = name == header::AUTHORIZATION.as_str() && scheme.eq_ignore_ascii_case(b"basic ");
    STANDARD.decode(login.trim_ascii()).ok().filter(|_| is_basic)
}

/// Returns the notation of a value in a body. It depends on the type of the body.
fn notation_of_body(headers: &HeaderMap) -> Notation {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/x-www-form-urlencoded" => Notation::Percent,
        kind if kind == "application/json" || kind.ends_with("+json") => Notation::Json,
        _ => Notation::AsIs,
    }
}

fn written(value: &str, notation: Notation) -> String {
    match notation {
        Notation::AsIs => value.to_owned(),
        Notation::Percent => utf8_percent_encode(value, ESCAPED).to_string(),
        Notation::Json => {
            let quoted = serde_json::Value::from(value).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
    }
}
