//! HTTP client for all OAuth requests, including rmcp's requests. It limits times, sizes and addresses, and follows no redirects.

use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde_json::Value as Json;
use url::Url;

use super::OnSecret;
use super::address::{Policy, Reach, Resolver, origin_of, reach_of_literal};
use super::documents::{LastDocument, limit_challenge, too_many};
use super::exchange::with_whole_seconds;
use super::failure::{Problem, Refusal};
use super::sent::secrets_of;
use crate::network::Lookups;

const TIME: Duration = Duration::from_secs(10);
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Maximum length in bytes of a token or client secret that is accepted. Real tokens and secrets are shorter, because they must fit into a
/// header.
const MAX_SECRET_BYTES: usize = 16 * 1024;
/// Fields of an answer whose values are secrets.
const SECRET_FIELDS: [&str; 3] = ["access_token", "refresh_token", "client_secret"];

/// HTTP client for the OAuth requests of one MCP server.
pub(super) struct Http {
    client: reqwest::Client,
    policy: Arc<Policy>,
    on_secret: OnSecret,
    /// Failure of the last POST request. It is stored here because rmcp's error does not contain the details.
    failure: Mutex<Option<Problem>>,
    last_get: Mutex<LastDocument>,
}

/// The reason why a request got no answer. The text shows only the origin of a URL.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAnswer(String);

impl Http {
    pub(super) fn new(base: &Url, allow_insecure: bool, on_secret: OnSecret) -> Result<Self, String> {
        let policy = Arc::new(Policy::new(base.clone(), allow_insecure));
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(base.scheme() == "https")?)
            .timeout(TIME)
            .connect_timeout(TIME)
            // rmcp itself follows redirects of metadata requests, if they stay within one origin. Other requests are not redirected.
            .redirect(reqwest::redirect::Policy::none())
            // Requests are not retried, because a code or a refresh token can only be used once.
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("hyperlight-mcp/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(Resolver { policy: Arc::clone(&policy), lookups: Lookups::default() }));
        // Requests to this machine must not go through a proxy.
        let builder = if reach_of_literal(base) == Some(Reach::Loopback) { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| format!("no HTTP client can be made: {}", chain(&error)))?;
        Ok(Self { client, policy, on_secret, failure: Mutex::default(), last_get: Mutex::default() })
    }

    /// Returns the failure of the last POST request, and removes it.
    pub(super) fn take_failure(&self) -> Option<Problem> {
        self.failure.lock().take()
    }

    /// Returns the URL of the metadata document that was requested last. If the request was redirected, returns the URL before the
    /// redirects.
    pub(super) fn last_document(&self) -> Option<Url> {
        self.last_get().first().cloned()
    }

    /// Forgets which document was requested last. Called at the start of each discovery.
    pub(super) fn forget_document(&self) {
        *self.last_get() = LastDocument::default();
    }

    fn last_get(&self) -> MutexGuard<'_, LastDocument> {
        self.last_get.lock()
    }

    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        self.policy.check(url)
    }

    /// Sends a request. The request's secrets are reported to the redactor before the request is sent, because the answer may repeat them.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, NoAnswer> {
        let is_post = request.method() == Method::POST;
        let secrets = if is_post { secrets_of(&request) } else { Vec::new() };
        for secret in &secrets {
            (self.on_secret)(secret);
        }
        let url = request.uri().to_string();
        let mut answer = self.exchange(request).await;
        if is_post {
            let body = answer.as_ref().ok().and_then(|answer| serde_json::from_slice::<Json>(answer.body()).ok());
            let changed = body.as_ref().and_then(with_whole_seconds).and_then(|changed| serde_json::to_vec(&changed).ok());
            if let (Ok(answer), Some(changed)) = (&mut answer, changed) {
                *answer.body_mut() = changed;
            }
            if let Some(problem) = body.as_ref().and_then(too_long) {
                let origin = Url::parse(&url).map_or_else(|_| "the authorization server".to_owned(), |url| origin_of(&url));
                answer = Err(NoAnswer(format!("{origin} answered with {problem}")));
            }
            let failure = match &answer {
                Ok(_) => body.as_ref().and_then(Refusal::read).map(Problem::Refused),
                Err(error) => Some(Problem::failed(error.to_string())),
            };
            *self.failure.lock() = failure.map(|failure| failure.without(&secrets));
        }
        answer
    }

    async fn exchange(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, NoAnswer> {
        let request = reqwest::Request::try_from(request).map_err(|_| NoAnswer("an address in its metadata is not a URL".to_owned()))?;
        let url = request.url().clone();
        self.policy.check(&url).map_err(NoAnswer)?;
        let is_get = request.method() == Method::GET;
        if is_get {
            self.last_get().requested(&url);
        }
        let response = self.client.execute(request).await.map_err(|error| failed(&url, error))?;
        self.policy.answered(&url, response.remote_addr());
        if is_get {
            self.last_get().answered(&url, response.status(), response.headers());
        }
        let mut answer = read(&url, response).await?;
        limit_challenge(answer.headers_mut());
        let document = is_get.then(|| serde_json::from_slice::<Json>(answer.body()).ok()).flatten();
        match document.as_ref().and_then(too_many) {
            Some(problem) => Err(NoAnswer(format!("{} answered with {problem}", origin_of(&url)))),
            None => Ok(answer),
        }
    }
}

impl OAuthHttpClient for Http {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let mut request = request.request;
            request.headers_mut().entry(ACCEPT).or_insert(http::HeaderValue::from_static("application/json"));
            Ok(self.send(request).await?)
        })
    }
}

async fn read(url: &Url, mut response: reqwest::Response) -> Result<Response<Vec<u8>>, NoAnswer> {
    let mut answer = Response::new(Vec::new());
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response.headers().clone();
    // The body of an event stream is not read, because it never ends. The MCP endpoint may answer a GET with such a stream.
    let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_stream {
        return Ok(answer);
    }
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(url, error))? {
        if answer.body().len() + chunk.len() > MAX_BODY_BYTES {
            return Err(NoAnswer(format!("{} answered with more than {MAX_BODY_BYTES} bytes", origin_of(url))));
        }
        answer.body_mut().extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// Returns a description of the problem if a token or client secret in the answer is too long. The length is limited because every text
/// is searched for each of these secrets.
fn too_long(body: &Json) -> Option<String> {
    let bytes = |field: &&str| body.get(field).and_then(Json::as_str).map_or(0, str::len);
    let field = SECRET_FIELDS.iter().find(|field| bytes(field) > MAX_SECRET_BYTES)?;
    Some(format!("{field} of {} bytes, and at most {MAX_SECRET_BYTES} are accepted: let it issue shorter ones", bytes(field)))
}

fn failed(url: &Url, error: reqwest::Error) -> NoAnswer {
    let origin = origin_of(url);
    if error.is_timeout() {
        return NoAnswer(format!("{origin} did not answer within {} s", TIME.as_secs()));
    }
    NoAnswer(format!("{origin} cannot be reached: {}", chain(&error.without_url())))
}

/// Joins an error's text with the texts of its causes, because the outermost text often only says that the request failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Returns TLS settings with this machine's certificate authorities. The certificates are only read once, because there are hundreds of
/// them. A machine without certificates can still connect to itself.
fn tls(needs_certificates: bool) -> Result<rustls::ClientConfig, String> {
    static TRUSTING: OnceLock<rustls::ClientConfig> = OnceLock::new();
    if let Some(config) = TRUSTING.get() {
        return Ok(config.clone());
    }
    let builder = || {
        rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))
    };
    match builder()?.with_platform_verifier() {
        Ok(verified) => Ok(TRUSTING.get_or_init(|| verified.with_no_client_auth()).clone()),
        Err(error) if needs_certificates => Err(format!("this machine's certificates cannot be read: {error}")),
        Err(_) => Ok(builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()),
    }
}
