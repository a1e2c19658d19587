//! The fetches of one run.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http::Method;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::body::{Body, Encoding, TimeLeft, encoding};
use super::connector::Connector;
use super::error::FetchError;
use super::headers::{response_headers, text_of_bytes};
use super::policy::{FetchPolicy, shown_host};
use super::record::{FetchObserver, FetchOutcome, RecordGuard};
use super::redirect::{asked, is_redirect, location, next};
use super::request::{FetchRequest, Outgoing, RedirectMode, normal_method};
use super::secrets::Secrets;
use crate::queue::queue_now;

/// A response whose body can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    pub status: u16,
    pub status_text: String,
    /// The URL that answered, without its fragment.
    pub url: String,
    pub redirected: bool,
    /// Names and values of the headers, in the server's order. Names are in lower case. Each character of a value is one byte, as in the
    /// Fetch standard.
    pub headers: Vec<(String, String)>,
    /// The number of the body, for `read` and `cancel`. `None` if the response cannot have a body.
    pub body: Option<u64>,
}

/// The fetches of one run. Dropping this value ends all of them.
pub struct FetchSession {
    inner: Arc<Inner>,
}

struct Inner {
    policy: FetchPolicy,
    secrets: Secrets,
    connector: Connector,
    observer: Arc<dyn FetchObserver>,
    /// Semaphore that limits the number of requests that wait for their response at the same time.
    places: Arc<Semaphore>,
    requests: AtomicUsize,
    next_body: AtomicU64,
    bodies: Mutex<HashMap<u64, OpenBody>>,
    ended: CancellationToken,
}

/// A body that can be read, and the token that ends the reading.
#[derive(Clone)]
struct OpenBody {
    body: Arc<AsyncMutex<Body>>,
    cancelled: CancellationToken,
}

impl FetchSession {
    pub(super) fn new(policy: FetchPolicy, connector: Connector, observer: Arc<dyn FetchObserver>) -> Result<Self, FetchError> {
        let inner = Inner {
            secrets: Secrets::new(policy.secrets.clone())?,
            connector,
            observer,
            places: Arc::new(Semaphore::new(policy.limits.parallel.max(1))),
            requests: AtomicUsize::new(0),
            next_body: AtomicU64::new(1),
            bodies: Mutex::default(),
            ended: CancellationToken::new(),
            policy,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sends a request and follows its redirects. The future resolves when the response's headers have arrived. Dropping the future ends the
    /// request.
    pub fn open(&self, request: FetchRequest) -> impl Future<Output = Result<FetchResponse, FetchError>> + Send + use<> {
        let inner = Arc::clone(&self.inner);
        let place = queue_now(Arc::clone(&inner.places).acquire_owned());
        async move {
            tokio::select! {
                biased;
                () = inner.ended.cancelled() => Err(FetchError::Ended),
                response = async {
                    // The semaphore is never closed.
                    let _place = place.await;
                    inner.exchange(request).await
                } => response,
            }
        }
    }

    /// Reads the next chunk of a body, of at most 64 KiB. Returns `None` at the end of the body. Chunks are read one after another.
    pub fn read(&self, body: u64) -> impl Future<Output = Result<Option<Bytes>, FetchError>> + Send + use<> {
        self.inner.read(body)
    }

    /// Reads the whole rest of a body.
    pub fn read_all(&self, body: u64) -> impl Future<Output = Result<Bytes, FetchError>> + Send + use<> {
        let inner = Arc::clone(&self.inner);
        async move {
            let mut all = BytesMut::new();
            while let Some(chunk) = inner.read(body).await? {
                all.extend_from_slice(&chunk);
            }
            Ok(all.freeze())
        }
    }

    /// Ends a body that no code reads any more. An unknown body is ignored.
    pub fn cancel(&self, body: u64) {
        let open = self.inner.bodies.lock().remove(&body);
        if let Some(open) = open {
            open.cancelled.cancel();
        }
    }
}

impl Drop for FetchSession {
    fn drop(&mut self) {
        self.inner.ended.cancel();
        let bodies = std::mem::take(&mut *self.inner.bodies.lock());
        drop(bodies);
    }
}

impl Inner {
    fn read(self: &Arc<Self>, body: u64) -> impl Future<Output = Result<Option<Bytes>, FetchError>> + Send + use<> {
        let inner = Arc::clone(self);
        let open = inner.bodies.lock().get(&body).cloned();
        let reader = open.map(|open| (queue_now(Arc::clone(&open.body).lock_owned()), open.cancelled));
        async move {
            let Some((turn, cancelled)) = reader else { return Err(FetchError::UnknownBody { body }) };
            let reading = async { turn.await.next().await };
            let chunk = tokio::select! {
                biased;
                () = inner.ended.cancelled() => Err(FetchError::Ended),
                () = cancelled.cancelled() => Err(FetchError::UnknownBody { body }),
                chunk = reading => chunk,
            };
            if !matches!(chunk, Ok(Some(_))) {
                let ended = inner.bodies.lock().remove(&body);
                drop(ended);
            }
            chunk
        }
    }

    /// Sends a request, and the requests to which its redirects lead.
    async fn exchange(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let mode = request.redirect;
        let mut time = TimeLeft::new(self.policy.limits.request_time);
        let mut record = self.begin()?;
        record.asks(normal_method(&request.method), self.policy.parsed(&request.url).ok().as_ref());
        let mut outgoing = record.watch(Outgoing::check(request, &self.policy))?;
        let mut redirects = 0;
        loop {
            // The record contains the URL in the form in which it is sent: the host has no dot at its end.
            record.asks(outgoing.method.as_str(), Some(&outgoing.url));
            record.sends(outgoing.body.as_ref().map_or(0, Bytes::len));
            let sent = self.send(&outgoing, &mut time).await;
            let response = record.watch(sent)?;
            record.answered(response.status().as_u16());
            let target = self.target(&outgoing, &response, mode, redirects);
            let Some(target) = record.watch(target)? else {
                return self.deliver(&outgoing, response, redirects > 0, time, record);
            };
            record.ended(FetchOutcome::Redirected);
            record = self.begin()?;
            let status = response.status().as_u16();
            let (method, url) = asked(&outgoing, status, &target);
            record.asks(method.as_str(), url.as_ref());
            outgoing = record.watch(next(&outgoing, status, &target, &self.policy, &self.secrets))?;
            redirects += 1;
        }
    }

    /// Counts a request. Refused requests are counted too, so that code cannot fill the audit with such requests.
    fn begin(&self) -> Result<RecordGuard, FetchError> {
        let limit = self.policy.limits.requests;
        if self.requests.fetch_add(1, Ordering::Relaxed) >= limit {
            let problem = "this run has used up its requests".to_owned();
            return Err(FetchError::LimitExceeded { problem, limit_name: "requests", limit: limit as u64 });
        }
        Ok(RecordGuard::new(Arc::clone(&self.observer)))
    }

    async fn send(&self, outgoing: &Outgoing, time: &mut TimeLeft) -> Result<reqwest::Response, FetchError> {
        let url = &outgoing.url;
        let request = outgoing.to_send(&self.secrets)?;
        let client = self.connector.client(url, &self.policy)?;
        let response = time.wait(url, self.connector.send(url, client, request)).await?;
        response.map_err(|error| self.cleaned(error))
    }

    /// Returns the target of a response's redirect, if the redirect must be followed.
    fn target(
        &self,
        outgoing: &Outgoing,
        response: &reqwest::Response,
        mode: RedirectMode,
        redirects: usize,
    ) -> Result<Option<String>, FetchError> {
        if !is_redirect(response.status().as_u16()) || mode == RedirectMode::Manual {
            return Ok(None);
        }
        let (host, limit) = (shown_host(&outgoing.url), self.policy.limits.redirects);
        if mode == RedirectMode::Error {
            return Err(FetchError::Redirect { problem: format!("\"{host}\" redirects, and the request has redirect: \"error\"") });
        }
        let target = location(response.headers(), &self.secrets)?;
        if target.is_some() && redirects >= limit {
            return Err(FetchError::Redirect { problem: format!("\"{host}\" redirects once more after {limit} redirects") });
        }
        Ok(target)
    }

    /// Returns the response with its headers, and opens the body of the response.
    fn deliver(
        &self,
        outgoing: &Outgoing,
        response: reqwest::Response,
        redirected: bool,
        time: TimeLeft,
        mut record: RecordGuard,
    ) -> Result<FetchResponse, FetchError> {
        let has_body = outgoing.method != Method::HEAD && !matches!(response.status().as_u16(), 101 | 103 | 204 | 205 | 304);
        let head = record.watch(self.head(outgoing, &response, redirected, has_body))?;
        if !has_body {
            record.ended(FetchOutcome::Done);
            return Ok(head);
        }
        let body = Body::new(outgoing.url.clone(), response, self.secrets.stream(), &self.policy.limits, time, record)?;
        let number = self.next_body.fetch_add(1, Ordering::Relaxed);
        let open = OpenBody { body: Arc::new(AsyncMutex::new(body)), cancelled: CancellationToken::new() };
        self.bodies.lock().insert(number, open);
        Ok(FetchResponse { body: Some(number), ..head })
    }

    fn head(
        &self,
        outgoing: &Outgoing,
        response: &reqwest::Response,
        redirected: bool,
        has_body: bool,
    ) -> Result<FetchResponse, FetchError> {
        let limits = &self.policy.limits;
        let (status, host) = (response.status(), shown_host(&outgoing.url));
        if !(200..=599).contains(&status.as_u16()) {
            return Err(FetchError::Network { host, problem: format!("answered with the status {}", status.as_u16()) });
        }
        let encoding = encoding(&outgoing.url, response.headers());
        // The answer to HEAD has no body, but its headers contain the length that the compressed body would have.
        let is_compressed = !matches!(encoding, Ok(Encoding::Identity));
        if has_body {
            encoding?;
        }
        let length = response.content_length().filter(|_| has_body && !is_compressed);
        if length.is_some_and(|length| length > limits.response_body_bytes as u64) {
            let problem = format!("the body of the response from \"{host}\" is too large");
            return Err(FetchError::LimitExceeded { problem, limit_name: "responseBodyBytes", limit: limits.response_body_bytes as u64 });
        }
        let reason = response.extensions().get::<hyper::ext::ReasonPhrase>().map(|reason| self.secrets.clean(reason.as_bytes()));
        let standard = || status.canonical_reason().unwrap_or_default().to_owned();
        Ok(FetchResponse {
            status: status.as_u16(),
            status_text: reason.map_or_else(standard, |reason| text_of_bytes(&reason)),
            url: outgoing.url.to_string(),
            redirected,
            headers: response_headers(response.headers(), is_compressed, |value| self.secrets.clean(value), limits)?,
            body: None,
        })
    }

    /// Returns an error, with placeholders instead of the values of secrets.
    fn cleaned(&self, error: FetchError) -> FetchError {
        match error {
            FetchError::Network { host, problem } => FetchError::Network { host, problem: self.secrets.clean_text(&problem) },
            other => other,
        }
    }
}
