//! The server as an OAuth protected resource (RFC 9728): publishes its metadata, and checks access tokens with the issuer's keys. The keys
//! are fetched and cached.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use reqwest::redirect::Policy;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use url::Url;

use super::jwt::{Expected, Keys, TokenProblem, Verified, verify};
use super::options::{ProtectedResource, check_url, invalid};
use crate::error::Result;

const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
const FETCH_TIME: Duration = Duration::from_secs(10);
/// The minimum time between two fetches of the keys, so that tokens with invented key identifiers cannot make this server flood the issuer.
const FETCH_PAUSE: Duration = Duration::from_mins(1);
/// The minimum time between two fetches while there are no keys, and therefore all callers are refused.
const FIRST_FETCH_PAUSE: Duration = Duration::from_secs(5);
/// The age at which the keys are fetched again. The reason is that the issuer may have withdrawn a key.
const KEYS_AGE: Duration = Duration::from_hours(1);
/// The maximum age up to which the keys are trusted while the issuer cannot be reached.
const LONGEST_KEYS_AGE: Duration = Duration::from_hours(24);
const WELL_KNOWN: [&str; 2] = [".well-known/oauth-authorization-server", ".well-known/openid-configuration"];

/// This server as an OAuth protected resource. It checks access tokens, and caches the issuer's keys.
#[derive(Debug)]
pub(super) struct Resource {
    settings: ProtectedResource,
    metadata_url: String,
    http: reqwest::Client,
    kept: Mutex<CachedKeys>,
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct CachedKeys {
    keys: Arc<Keys>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
}

/// The action that is needed before a token can be checked with the keys.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Use,
    Fetch,
    /// There are no keys, or the keys are too old, and it is too early for another fetch.
    Unavailable,
}

#[derive(Debug, Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

impl Resource {
    pub(super) fn new(settings: &ProtectedResource) -> Result<Self> {
        let resource = check_url("the OAuth resource", &settings.resource)?;
        let path = resource.path().trim_end_matches('/').to_owned();
        let mut metadata_url = resource;
        metadata_url.set_path(&format!("/.well-known/oauth-protected-resource{path}"));
        metadata_url.set_query(None);
        metadata_url.set_fragment(None);
        let http = client().map_err(|problem| invalid(format!("OAuth cannot be set up: {problem}")))?;
        let settings = settings.clone();
        Ok(Self { settings, metadata_url: metadata_url.into(), http, kept: Mutex::default(), fetching: tokio::sync::Mutex::default() })
    }

    /// Returns the metadata with which a client finds out where to get a token.
    pub(super) fn metadata(&self) -> Json {
        let ProtectedResource { resource, issuer, scopes, jwks_url: _ } = &self.settings;
        json!({
            "resource": resource,
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        })
    }

    /// Returns the parameters of `WWW-Authenticate` for this resource.
    pub(super) fn challenge(&self) -> String {
        let scope = if self.settings.scopes.is_empty() { String::new() } else { format!(", scope=\"{}\"", self.settings.scopes.join(" ")) };
        format!(", resource_metadata=\"{}\"{scope}", self.metadata_url)
    }

    /// Verifies a token, and returns its subject and its expiry.
    pub(super) async fn verified(self: &Arc<Self>, token: &str) -> std::result::Result<Verified, TokenProblem> {
        let keys = self.keys(false).await.ok_or(TokenProblem::UnknownKey)?;
        let checked = verify(token, &keys, self.expected());
        if checked != Err(TokenProblem::UnknownKey) {
            return checked;
        }
        let keys = self.keys(true).await.ok_or(TokenProblem::UnknownKey)?;
        verify(token, &keys, self.expected())
    }

    fn expected(&self) -> Expected<'_> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let ProtectedResource { resource, issuer, scopes, jwks_url: _ } = &self.settings;
        Expected { issuer, audience: resource, scopes, now }
    }

    /// Returns the issuer's keys. If `newer` is true, fetches keys that are newer than the cached ones, if a fetch is allowed now.
    async fn keys(self: &Arc<Self>, newer: bool) -> Option<Arc<Keys>> {
        let step = self.kept.lock().step(newer, Instant::now());
        match step {
            Step::Fetch => {
                // The fetch runs in a separate task, because all callers need the keys: the fetch must continue if this client disconnects.
                let this = self.clone();
                tokio::spawn(async move { this.renew(newer).await }).await.ok()?;
            }
            Step::Use if !newer => {}
            // Another task may be fetching the keys. This line waits for that task.
            Step::Use | Step::Unavailable => drop(self.fetching.lock().await),
        }
        let kept = self.kept.lock();
        (kept.step(false, Instant::now()) != Step::Unavailable).then(|| kept.keys.clone())
    }

    async fn renew(&self, newer: bool) {
        let _one_at_a_time = self.fetching.lock().await;
        {
            // Another request may have fetched the keys since.
            let mut kept = self.kept.lock();
            if kept.step(newer, Instant::now()) != Step::Fetch {
                return;
            }
            kept.tried = Some(Instant::now());
        }
        match self.fetch().await {
            Ok(keys) => {
                let mut kept = self.kept.lock();
                (kept.keys, kept.fetched) = (Arc::new(keys), Some(Instant::now()));
            }
            Err(problem) => tracing::warn!(problem, "the keys of the OAuth issuer cannot be fetched"),
        }
    }

    async fn fetch(&self) -> std::result::Result<Keys, String> {
        let url = match &self.settings.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let url = check_url("the address of the OAuth keys", &url).map_err(|_| "their address is not https".to_owned())?;
        Keys::parse(&self.get(url).await?).ok_or_else(|| "they are not a JSON Web Key Set".to_owned())
    }

    /// Returns the address of the keys from the issuer's metadata. The metadata must name the same issuer (RFC 8414).
    async fn discover(&self) -> std::result::Result<String, String> {
        let issuer = Url::parse(&self.settings.issuer).map_err(|_| "the issuer is not a URL".to_owned())?;
        let path = issuer.path().trim_matches('/');
        let mut problem = "the issuer has no metadata".to_owned();
        for well_known in WELL_KNOWN {
            // RFC 8414 appends the path of the issuer, and OpenID Connect puts it in front.
            for place in [format!("/{well_known}/{path}"), format!("/{path}/{well_known}")] {
                let mut url = issuer.clone();
                url.set_path(place.replace("//", "/").trim_end_matches('/'));
                let bytes = match self.get(url).await {
                    Ok(bytes) => bytes,
                    Err(lack) => {
                        problem = format!("the issuer's metadata cannot be read: {lack}");
                        continue;
                    }
                };
                match serde_json::from_slice::<IssuerMetadata>(&bytes) {
                    Ok(metadata) if metadata.issuer == self.settings.issuer => return Ok(metadata.jwks_uri),
                    Ok(_) => "the metadata is of another issuer".clone_into(&mut problem),
                    Err(_) => "the issuer's metadata is not valid".clone_into(&mut problem),
                }
            }
        }
        Err(problem)
    }

    async fn get(&self, url: Url) -> std::result::Result<Vec<u8>, String> {
        let mut response = self.http.get(url).send().await.map_err(|_| "there is no answer".to_owned())?;
        if !response.status().is_success() {
            return Err(format!("the answer has the HTTP status {}", response.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| "the answer broke off".to_owned())? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_DOCUMENT_BYTES {
                return Err("the answer is too large".to_owned());
            }
        }
        Ok(bytes)
    }
}

impl CachedKeys {
    fn step(&self, newer: bool, now: Instant) -> Step {
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        let pause = if self.fetched.is_some() { FETCH_PAUSE } else { FIRST_FETCH_PAUSE };
        let may_ask = since(self.tried).is_none_or(|passed| passed >= pause);
        match since(self.fetched) {
            Some(age) if age < KEYS_AGE && !newer => Step::Use,
            _ if may_ask => Step::Fetch,
            Some(age) if age < LONGEST_KEYS_AGE => Step::Use,
            _ => Step::Unavailable,
        }
    }
}

/// Returns an HTTP client that follows no redirects, because requests must only be sent to the address that the operator specified.
fn client() -> std::result::Result<reqwest::Client, String> {
    let builder = || {
        rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())
    };
    // A machine without certificate authorities can still use an issuer on the same machine.
    let tls = match builder()?.with_platform_verifier() {
        Ok(verified) => verified.with_no_client_auth(),
        Err(_) => builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    };
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).redirect(Policy::none()).timeout(FETCH_TIME);
    client.connect_timeout(FETCH_TIME).build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_stands_where_the_standard_puts_it() {
        let resource = |url: &str, scopes: &[&str]| {
            let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            Resource::new(&ProtectedResource { resource: url.into(), issuer: "https://issuer.example".into(), jwks_url: None, scopes })
                .unwrap()
        };
        let challenge = resource("https://a.example/mcp", &["read", "write"]).challenge();
        assert_eq!(challenge, ", resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"");
        let bare = resource("https://a.example", &[]);
        assert_eq!(bare.challenge(), ", resource_metadata=\"https://a.example/.well-known/oauth-protected-resource\"");
        assert_eq!(bare.metadata()["authorization_servers"], json!(["https://issuer.example"]));
    }

    #[test]
    fn the_issuer_is_not_asked_for_keys_again_and_again() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let none = CachedKeys::default();
        assert_eq!(none.step(false, start), Step::Fetch);
        let failed = CachedKeys { tried: Some(start), ..CachedKeys::default() };
        assert_eq!((failed.step(false, at(4)), failed.step(false, at(5))), (Step::Unavailable, Step::Fetch));
        let kept = CachedKeys { tried: Some(start), fetched: Some(start), ..CachedKeys::default() };
        assert_eq!((kept.step(false, at(3599)), kept.step(false, at(3600))), (Step::Use, Step::Fetch));
        assert_eq!((kept.step(true, at(59)), kept.step(true, at(60))), (Step::Use, Step::Fetch));
        let unreachable = CachedKeys { tried: Some(at(90_000)), fetched: Some(start), ..CachedKeys::default() };
        assert_eq!(unreachable.step(false, at(90_001)), Step::Unavailable);
    }
}
