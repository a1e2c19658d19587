//! One HTTP request and its answer, including tokens, redirects and retries.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Response;
use rmcp::model::RequestId;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::body::reason;
use super::client::HttpClient;
use super::failure::HttpFailure;
use super::redirect::{Redirected, VisitedUrls, is_redirect};
use super::retry::{Attempts, Outcome, RetryPolicy, retry_after};
use super::target::origin;
use crate::client::inbound::owner::RequestOwner;

/// Maximum number of times that one request is sent again with a new token, after HTTP 401.
const NEW_TOKENS: u32 = 1;
/// Maximum number of times that one request is sent again with a token for more scopes, after HTTP 403.
const MORE_SCOPES: u32 = 2;

/// A request that may be sent several times.
pub(super) struct Outgoing {
    /// Id of the JSON-RPC request. It is used to find the request's owner. `None` for messages that are not requests, and for the
    /// session's streams.
    pub(super) id: Option<RequestId>,
    pub(super) method: Method,
    pub(super) body: Option<Bytes>,
    /// Headers that MCP requires, in addition to the headers of the config.
    pub(super) headers: HeaderMap,
    pub(super) retry: RetryPolicy,
    /// Longest time until the headers of the answer arrive.
    pub(super) within: Option<Duration>,
}

impl Outgoing {
    fn redirected(&self) -> Redirected {
        if self.method == Method::GET { Redirected::Get } else { Redirected::Post }
    }
}

/// State of a request across all its attempts.
struct RequestProgress {
    visited: VisitedUrls,
    tries: Attempts,
    new_tokens: u32,
    more_scopes: u32,
}

/// The result of one attempt.
enum Step {
    Done(Response),
    Again(Duration),
}

impl HttpClient {
    /// Sends a request until it gets an answer that is neither a redirect nor an authorization challenge. If necessary, the request is
    /// sent several times.
    pub(super) async fn exchange(&self, request: &Outgoing) -> Result<Response, HttpFailure> {
        let mut progress = RequestProgress {
            visited: VisitedUrls::from(self.endpoint.url.clone()),
            tries: Attempts::default(),
            new_tokens: 0,
            more_scopes: 0,
        };
        loop {
            let token = self.token(&self.owner(request)).await?;
            self.unanswered.note_sent(request.id.as_ref());
            let step = match self.send(request, progress.visited.here(), token.as_ref()).await {
                Ok(response) => self.after_answer(request, &mut progress, response, token.as_ref()).await?,
                Err(failure) => self.after_failure(request, &mut progress, failure)?,
            };
            match step {
                Step::Done(response) => return Ok(response),
                Step::Again(delay) => tokio::time::sleep(delay).await,
            }
        }
    }

    /// Sends a request once, and does not answer a challenge. No caller waits for such a request, so no person may be asked because of
    /// it.
    pub(super) async fn send_once(&self, request: &Outgoing) -> Result<Response, HttpFailure> {
        let token = self.token(&RequestOwner::default()).await?;
        self.send(request, &self.endpoint.url, token.as_ref()).await
    }

    /// Makes one attempt. The kind of a failure shows whether another attempt is allowed.
    async fn send(&self, request: &Outgoing, url: &Url, token: Option<&SecretString>) -> Result<Response, HttpFailure> {
        let mut headers = self.endpoint.headers.clone();
        headers.extend(request.headers.clone());
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()));
            let mut value = value.map_err(|_| HttpFailure::NotSent { origin: origin(url), problem: BAD_TOKEN.to_owned() })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        let mut builder = self.web.request(request.method.clone(), url.clone()).headers(headers);
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        let sending = builder.send();
        let answer = match request.within {
            Some(after) => {
                let waiting_for = "an answer";
                tokio::time::timeout(after, sending).await.map_err(|_| HttpFailure::TimedOut { waiting_for, after })?
            }
            None => sending.await,
        };
        answer.map_err(|error| failure_of_try(&error, url))
    }

    /// Finds the request's owner. The owner is looked up each time it is needed, because the owner of a stream changes while the stream
    /// is open.
    fn owner(&self, request: &Outgoing) -> RequestOwner {
        match &self.endpoint.tokens {
            // While the connection is closed, only cancellations are sent, and no person is asked because of them.
            Some(_) if !self.stop.is_cancelled() => (self.owner_of)(request.id.as_ref()),
            _ => RequestOwner::default(),
        }
    }

    async fn token(&self, owner: &RequestOwner) -> Result<Option<SecretString>, HttpFailure> {
        match &self.endpoint.tokens {
            Some(tokens) => tokens.token(owner).await.map_err(|error| HttpFailure::Token(Box::new(error))),
            None => Ok(None),
        }
    }

    async fn after_answer(
        &self,
        request: &Outgoing,
        progress: &mut RequestProgress,
        response: Response,
        token: Option<&SecretString>,
    ) -> Result<Step, HttpFailure> {
        let status = response.status();
        let challenge = challenge_of(&response);
        match status {
            StatusCode::UNAUTHORIZED => {
                let left = NEW_TOKENS.checked_sub(progress.new_tokens + 1);
                progress.new_tokens += 1;
                self.challenged(request, status, challenge.unwrap_or_default(), left.is_some(), token).await
            }
            // A GET stream needs only the scopes that the messages need, so no scopes are requested for it.
            StatusCode::FORBIDDEN if challenge.is_some() && request.method != Method::GET => {
                let left = MORE_SCOPES.checked_sub(progress.more_scopes + 1);
                progress.more_scopes += 1;
                self.challenged(request, status, challenge.unwrap_or_default(), left.is_some(), token).await
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let asked = retry_after(response.headers(), SystemTime::now());
                let next = self.next_try(request, progress, Outcome::TooEarly(asked));
                Ok(next.map_or(Step::Done(response), Step::Again))
            }
            _ if is_redirect(status.as_u16()) => {
                let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
                let followed = progress.visited.follow(request.redirected(), status.as_u16(), location);
                followed.map(|()| Step::Again(Duration::ZERO)).map_err(|problem| HttpFailure::Redirect { problem })
            }
            status => {
                if let (true, Some(tokens), Some(token)) = (status.is_success(), &self.endpoint.tokens, token) {
                    tokens.accepted(token);
                }
                Ok(Step::Done(response))
            }
        }
    }

    async fn challenged(
        &self,
        request: &Outgoing,
        status: StatusCode,
        challenge: String,
        may_ask: bool,
        used: Option<&SecretString>,
    ) -> Result<Step, HttpFailure> {
        let status = status.as_u16();
        let given = self.endpoint.credentials();
        if let Some(tokens) = self.endpoint.tokens.as_ref().filter(|_| may_ask)
            && tokens
                .challenged(status, &challenge, used, &self.owner(request))
                .await
                .map_err(|error| HttpFailure::Token(Box::new(error)))?
        {
            return Ok(Step::Again(Duration::ZERO));
        }
        Err(HttpFailure::Unauthorized { status, given })
    }

    fn after_failure(&self, request: &Outgoing, progress: &mut RequestProgress, failure: HttpFailure) -> Result<Step, HttpFailure> {
        let outcome = match &failure {
            HttpFailure::NotSent { problem, .. } if is_lasting(problem) => return Err(failure),
            HttpFailure::NotSent { .. } => Outcome::Unsent,
            HttpFailure::Interrupted { .. } => Outcome::Broken,
            _ => return Err(failure),
        };
        self.next_try(request, progress, outcome).map(Step::Again).ok_or(failure)
    }

    fn next_try(&self, request: &Outgoing, progress: &mut RequestProgress, outcome: Outcome) -> Option<Duration> {
        progress.tries.next(request.retry, outcome, self.limits.retry, self.limits.longest_wait, random())
    }
}

const TIMED_OUT: &str = "no connection could be made in time";
const DISTRUSTED: &str = "its certificate is not trusted";
const BAD_TOKEN: &str = "its token has characters that are not allowed in a header";

/// Returns whether another attempt would most likely fail in the same way.
fn is_lasting(problem: &str) -> bool {
    [TIMED_OUT, DISTRUSTED, BAD_TOKEN].iter().any(|lasting| problem.starts_with(lasting))
}

fn failure_of_try(error: &reqwest::Error, url: &Url) -> HttpFailure {
    let reason = reason(error);
    if !error.is_connect() {
        return HttpFailure::Interrupted { problem: format!("the connection to {} broke before an answer came: {reason}", origin(url)) };
    }
    let problem = match () {
        () if error.is_timeout() => TIMED_OUT.to_owned(),
        () if reason.contains("certificate") => format!("{DISTRUSTED} ({reason})"),
        () => reason,
    };
    HttpFailure::NotSent { origin: origin(url), problem }
}

/// Returns all values of the `WWW-Authenticate` header, joined by commas.
fn challenge_of(response: &Response) -> Option<String> {
    let values = response.headers().get_all(header::WWW_AUTHENTICATE);
    let challenges: Vec<_> = values.iter().filter_map(|value| value.to_str().ok()).collect();
    (!challenges.is_empty()).then(|| challenges.join(", "))
}

/// Returns a random number that spreads retries over time. Returns a constant if the system has no random numbers.
pub(super) fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}
