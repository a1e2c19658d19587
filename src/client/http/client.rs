//! Implements rmcp's trait for a Streamable HTTP client.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::Response;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, JsonRpcVersion2_0, RequestId};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use serde_json::{Value as Json, json};
use sse_stream::Sse;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body::{content_type, detail_of, is_event_stream, is_json, names_a_session, read_answer, read_refusal};
use super::budget::{Budget, Reservation};
use super::cancellation::{OpenRequest, Unanswered};
use super::exchange::Outgoing;
use super::failure::HttpFailure;
use super::long_messages::LongMessages;
use super::raw::{Answer, Awaited, Inbound, Kind, error_in, sort};
use super::retry::{RetryPolicy, retry_after};
use super::stream::{Events, Route, event_of, unknown_method};
use super::target::{CONTROL_TIMEOUT, Endpoint, HttpLimits};
use crate::client::inbound::notification::Interceptor;
use crate::client::inbound::owner::OwnerOf;
use crate::client::inbound::rate_limit::{Pace, UNSOLICITED};
use crate::client::inbound::server_requests::{Admission, MAX_REFUSALS, ServerRequests};
use crate::client::wire::json;

/// Method of an internal message to the interceptor: a new session has begun, and the old one's subscriptions and log levels are lost.
pub(in crate::client) const SESSION_RENEWED: &str = "notifications/hyperlight-mcp/session_renewed";

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const BOTH: &str = "application/json, text/event-stream";

type Failed = StreamableHttpError<HttpFailure>;

/// HTTP client of one server. Its sockets close when the last clone is dropped.
#[derive(Clone)]
pub(super) struct HttpClient(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) web: reqwest::Client,
    pub(super) interceptor: Interceptor,
    pub(super) owner_of: OwnerOf,
    pub(super) limits: HttpLimits,
    /// Token that cancels all running requests. It is needed because rmcp's worker ignores cancellations while it starts.
    pub(super) stop: CancellationToken,
    /// Runtime on which all work of this client runs.
    pub(super) network: Handle,
    pub(super) unanswered: Unanswered,
    session: Mutex<Session>,
    server_requests: Mutex<ServerRequests>,
    refusals: Mutex<Refusals>,
    /// Rate limit for the bytes that streams carry in addition to answers.
    pace: Mutex<Pace>,
    /// Memory budget for unfinished answers and events.
    budget: Budget,
    pub(super) long_messages: LongMessages,
}

/// Ids of the server's requests that must be refused.
#[derive(Default)]
struct Refusals {
    waiting: VecDeque<RequestId>,
    are_sent: bool,
}

/// The server's session. It is stored here because rmcp does not end a session whose handshake was not completed.
#[derive(Default)]
struct Session {
    begun: bool,
    /// Id of the session. `None` if there is no session that must still be ended at the server.
    open: Option<Arc<str>>,
}

impl std::ops::Deref for HttpClient {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl HttpClient {
    pub(super) fn new(
        endpoint: Endpoint,
        web: reqwest::Client,
        interceptor: Interceptor,
        owner_of: OwnerOf,
        limits: HttpLimits,
        (stop, network): (CancellationToken, Handle),
    ) -> Self {
        let budget = Budget::new(limits.unfinished_bytes);
        Self(Arc::new(Shared {
            endpoint,
            web,
            interceptor,
            owner_of,
            limits,
            stop,
            network,
            unanswered: Unanswered::new(),
            session: Mutex::default(),
            server_requests: Mutex::default(),
            refusals: Mutex::default(),
            pace: Mutex::new(Pace::new(UNSOLICITED, Instant::now())),
            budget,
            long_messages: LongMessages::default(),
        }))
    }

    /// Counts bytes that the server sent without a request, and returns the time at which the stream may be read again.
    pub(super) fn spend(&self, bytes: usize) -> Instant {
        let now = Instant::now();
        now + self.pace.lock().spend(bytes, now)
    }

    /// Makes a memory reservation for one body.
    pub(super) fn place(&self) -> Reservation {
        self.budget.place()
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Failed::Client(HttpFailure::Closed)),
            done = work => done,
        }
    }

    async fn post(&self, message: ClientJsonRpcMessage, route: Route) -> Result<StreamableHttpPostResponse, Failed> {
        let Some(awaited) = Awaited::of(&message) else { return self.notify(&message, &route).await };
        let within = if awaited.kind == Kind::Discover { self.limits.discover } else { self.limits.headers };
        let retry = if awaited.is_safe() { RetryPolicy::Refused } else { RetryPolicy::Unsent };
        let open = self.open_request(&awaited, &route).map_err(|()| HttpFailure::Closed)?;
        let answered = async {
            let response = self.exchange(&post_of(&message, &route, retry, within)?).await?;
            if response.status().is_success() {
                self.read(response, &awaited, &route, open).await
            } else {
                self.refused(response, &awaited, &route).await
            }
        };
        let answer = match answered.await {
            Err(Failed::Client(failure)) => at_once(&awaited, failure)?,
            other => other?,
        };
        if awaited.kind == Kind::Initialize {
            self.begin_session(&answer);
        }
        Ok(answer)
    }

    fn begin_session(&self, answer: &StreamableHttpPostResponse) {
        let open = match answer {
            StreamableHttpPostResponse::Json(JsonRpcMessage::Response(_), id) | StreamableHttpPostResponse::Sse(_, id) => {
                id.as_deref().map(Arc::from)
            }
            _ => return,
        };
        let begun = std::mem::replace(&mut *self.session(), Session { begun: true, open }).begun;
        if begun {
            // The new session does not wait for answers to requests of the old one.
            *self.server_requests() = ServerRequests::default();
            (self.interceptor)(&json!({ "jsonrpc": "2.0", "method": SESSION_RENEWED }));
        }
    }

    /// Returns whether the server has answered `initialize`. Servers since MCP 2026-07-28 never get this request.
    pub(super) fn session_has_begun(&self) -> bool {
        self.session().begun
    }

    /// Returns the id that the server has given its session.
    pub(super) fn session_id(&self) -> Option<Arc<str>> {
        self.session().open.clone()
    }

    fn session(&self) -> parking_lot::MutexGuard<'_, Session> {
        self.session.lock()
    }

    /// Returns whether a message may be forwarded to rmcp. Limits how many of the server's own requests are open at the same time, and
    /// refuses further requests.
    pub(super) fn admits(&self, message: &Json, route: &Route) -> bool {
        let Some(method) = message.get("method") else { return true };
        let id = |id: &Json| serde_json::from_value::<RequestId>(id.clone()).ok();
        if method == "notifications/cancelled"
            && let Some(cancelled) = id(&message["params"]["requestId"])
        {
            self.server_requests().end(&cancelled);
        }
        let Some(id) = message.get("id").and_then(id) else { return true };
        let admission = self.server_requests().admit(&id);
        match admission {
            Admission::HandOn => return true,
            Admission::Skip => tracing::debug!("a request of the server was skipped: its id is not usable or is still in use"),
            Admission::Refuse => self.refuse(id, route),
        }
        false
    }

    /// Refuses a request. Refusals are sent one after another. Their number is limited, because the server may not read them.
    fn refuse(&self, id: RequestId, route: &Route) {
        let mut refusals = self.refusals();
        if refusals.waiting.len() >= MAX_REFUSALS {
            return;
        }
        refusals.waiting.push_back(id);
        if !std::mem::replace(&mut refusals.are_sent, true) {
            let (client, route) = (self.clone(), route.clone());
            self.network.spawn(async move { client.unless_stopped(client.send_refusals(&route)).await });
        }
    }

    async fn send_refusals(&self, route: &Route) -> Result<(), Failed> {
        loop {
            let next = {
                let mut refusals = self.refusals();
                let next = refusals.waiting.pop_front();
                refusals.are_sent = next.is_some();
                next
            };
            let Some(id) = next else { return Ok(()) };
            let error = ErrorData::new(ErrorCode(-32000), "this client does not answer so many requests at once", None);
            let refusal = JsonRpcMessage::Error(JsonRpcError { jsonrpc: JsonRpcVersion2_0, id: Some(id), error });
            // If the server does not accept the refusal, nothing more can be done.
            let _ = self.notify(&refusal, route).await;
        }
    }

    fn refusals(&self) -> parking_lot::MutexGuard<'_, Refusals> {
        self.refusals.lock()
    }

    fn server_requests(&self) -> parking_lot::MutexGuard<'_, ServerRequests> {
        self.server_requests.lock()
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, message: &ClientJsonRpcMessage, route: &Route) -> Result<StreamableHttpPostResponse, Failed> {
        match message {
            JsonRpcMessage::Response(answer) => self.server_requests().end(&answer.id),
            JsonRpcMessage::Error(answer) => answer.id.iter().for_each(|id| self.server_requests().end(id)),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        let sent = async {
            let request = post_of(message, route, RetryPolicy::Unsent, CONTROL_TIMEOUT.min(self.limits.headers))?;
            let response = self.exchange(&request).await?;
            if response.status().is_success() {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            let status = response.status();
            let failure = status_failure(&response);
            if route.session.is_some() && status == StatusCode::NOT_FOUND {
                Err(Failed::SessionExpired)
            } else {
                Err(Failed::Client(failure))
            }
        };
        let is_initialized = matches!(message, JsonRpcMessage::Notification(sent) if matches!(sent.notification, rmcp::model::ClientNotification::InitializedNotification(_)));
        match sent.await {
            // An error here would end rmcp without a reason. If the server really has a problem, the next request reports it.
            Err(failure) if is_initialized => {
                tracing::warn!(%failure, "notifications/initialized was not accepted");
                Ok(StreamableHttpPostResponse::Accepted)
            }
            sent => sent,
        }
    }

    /// Reads an answer with a 2xx status.
    async fn read(
        &self,
        response: Response,
        awaited: &Awaited,
        route: &Route,
        open: Option<OpenRequest>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let session = session_of(&response);
        let (status, kind) = (response.status(), content_type(&response));
        if is_event_stream(&kind) {
            let events = Events::new(self.clone(), route.clone(), Some((awaited.clone(), open)), response);
            return Ok(StreamableHttpPostResponse::Sse(events.into_stream(), session));
        }
        if !is_json(&kind) {
            let shown = if kind.is_empty() { "an answer without a content type".to_owned() } else { format!("\"{kind}\"") };
            return Err(malformed(format!(
                "it answered with HTTP {} and {shown}, which is neither JSON nor an event stream; check that url is the address of its MCP endpoint",
                status.as_u16()
            )));
        }
        let mut place = self.place();
        let reading = read_answer(response, &self.limits, &mut place);
        let body = match awaited.kind {
            Kind::Discover => tokio::time::timeout(self.limits.discover, reading)
                .await
                .unwrap_or_else(|_| Err(HttpFailure::TimedOut { waiting_for: "the rest of the answer", after: self.limits.discover })),
            _ => reading.await,
        };
        let body = body.map_err(Failed::Client)?;
        let body_bytes = body.len();
        let sorted = || self.sort_all(body, awaited, route).map(|(answer, others)| response_of(*answer, others, session));
        self.long_messages.handle(body_bytes, sorted).await
    }

    /// Parses a JSON body. Returns the answer to the request, and the other messages of the body.
    fn sort_all(&self, body: Vec<u8>, awaited: &Awaited, route: &Route) -> Result<(Box<Answer>, Vec<String>), Failed> {
        let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&body).trim_ascii();
        if text.is_empty() {
            return Err(malformed("its answer is empty".to_owned()));
        }
        let parsed = json::read(text).map_err(|unread| Failed::Client(HttpFailure::of_parse_failure(&unread)))?;
        // The text may be as large as the parsed value, so it is freed before the value is used.
        drop(body);
        // MCP 2025-03-26 allowed batches of messages.
        let messages = match parsed {
            Json::Array(batch) => batch,
            message => vec![message],
        };
        let (mut answer, mut others) = (None, Vec::new());
        for mut message in messages {
            if !self.admits(&message, route) || (self.interceptor)(&message) {
                continue;
            }
            match sort(&mut message, Some(awaited)) {
                Inbound::Answer(found) => answer = answer.or(Some(found)),
                Inbound::Other => others.push(message.to_string()),
                Inbound::Foreign | Inbound::Noise => {}
            }
        }
        let answer = answer.ok_or_else(|| malformed("it answered with JSON that is not an answer to this request".to_owned()))?;
        Ok((answer, others))
    }

    /// Handles an answer whose status is not 2xx.
    async fn refused(&self, response: Response, awaited: &Awaited, route: &Route) -> Result<StreamableHttpPostResponse, Failed> {
        let status = response.status();
        if status == StatusCode::NOT_FOUND && route.session.is_some() {
            return Err(Failed::SessionExpired);
        }
        let failure = status_failure(&response);
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Failed::Client(failure));
        }
        let session = session_of(&response);
        let body = read_refusal(response).await;
        if route.session.is_some() && status == StatusCode::BAD_REQUEST && names_a_session(&body) {
            return Err(Failed::SessionExpired);
        }
        if let Some(error) = error_in(&body).filter(|_| status != StatusCode::FORBIDDEN) {
            if let Ok(message) = serde_json::from_slice(&body) {
                (self.interceptor)(&message);
            }
            return Ok(StreamableHttpPostResponse::Json(awaited.error(error).into_message(), session));
        }
        if awaited.kind == Kind::Initialize && status.is_client_error() && self.is_legacy().await {
            return Err(Failed::Client(HttpFailure::LegacySse));
        }
        Err(Failed::Client(failure.with_detail(detail_of(&body))))
    }

    /// Ends the server's session if it is still open.
    pub(super) async fn bye(&self, headers: &HashMap<HeaderName, HeaderValue>) -> Result<(), HttpFailure> {
        let Some(session) = self.session().open.take() else { return Ok(()) };
        let after = self.limits.delete;
        let said = tokio::time::timeout(after, self.delete(&session, headers)).await;
        said.unwrap_or(Err(HttpFailure::TimedOut { waiting_for: "the end of the session", after }))
    }

    async fn delete(&self, session: &str, headers: &HashMap<HeaderName, HeaderValue>) -> Result<(), HttpFailure> {
        let headers = protocol_headers(BOTH, Some(session), headers);
        let request = Outgoing { id: None, method: Method::DELETE, body: None, headers, retry: RetryPolicy::Unsent, within: None };
        let response = self.send_once(&request).await?;
        let status = response.status();
        // A server may not support DELETE, or may already have ended the session.
        if status.is_success() || matches!(status.as_u16(), 404 | 405) { Ok(()) } else { Err(status_failure(&response)) }
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.unless_stopped(self.post(message, Route { session, headers })).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        _session: Arc<str>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        self.bye(&headers).await.map_err(Failed::Client)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failed> {
        let route = Route { session, headers };
        // No time limit applies, because some servers send the headers only with their first message.
        let opening = async { self.open_stream(&route, last_event_id.as_deref(), None, None).await.map_err(Failed::Client) };
        match self.unless_stopped(opening).await {
            Ok(response) => Ok(Events::new(self.clone(), route, None, response).into_stream()),
            Err(Failed::Client(HttpFailure::Status { status: 400 | 404 | 405 | 406 | 501, .. })) => Err(Failed::ServerDoesNotSupportSse),
            Err(failure) => Err(failure),
        }
    }
}

/// Makes the headers that MCP requires.
pub(super) fn protocol_headers(accept: &'static str, session: Option<&str>, others: &HashMap<HeaderName, HeaderValue>) -> HeaderMap {
    let mut headers: HeaderMap = others.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    if let Some(mut session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
        session.set_sensitive(true);
        headers.insert(SESSION, session);
    }
    headers
}

fn post_of(message: &ClientJsonRpcMessage, route: &Route, retry: RetryPolicy, within: Duration) -> Result<Outgoing, Failed> {
    let body = serde_json::to_vec(message).map_err(Failed::Deserialize)?;
    let mut headers = protocol_headers(BOTH, route.session.as_deref(), &route.headers);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let id = if let JsonRpcMessage::Request(request) = message { Some(request.id.clone()) } else { None };
    Ok(Outgoing { id, method: Method::POST, body: Some(body.into()), headers, retry, within: Some(within) })
}

fn response_of(answer: Answer, others: Vec<String>, session: Option<String>) -> StreamableHttpPostResponse {
    if others.is_empty() {
        return StreamableHttpPostResponse::Json(answer.into_message(), session);
    }
    let events = others.into_iter().chain([answer.into_text()]).map(|message| Ok(event_of(message)));
    StreamableHttpPostResponse::Sse(Box::pin(futures::stream::iter(events.collect::<Vec<_>>())), session)
}

/// Converts failures that rmcp must get as answers: unusable answers, and failures of `server/discover` on older servers. All other
/// failures stay errors.
fn at_once(awaited: &Awaited, failure: HttpFailure) -> Result<StreamableHttpPostResponse, Failed> {
    let error = match failure {
        HttpFailure::TimedOut { .. } if awaited.kind == Kind::Discover => unknown_method(),
        // rmcp tries `initialize` next. The failure of `initialize` describes the problem better.
        HttpFailure::Status { .. } | HttpFailure::Interrupted { .. } if awaited.kind == Kind::Discover => {
            rmcp::model::ErrorData::invalid_request(failure.to_string(), None)
        }
        HttpFailure::TooLarge { .. } | HttpFailure::TooDense | HttpFailure::Malformed(_) => failure.to_error_data(),
        other => return Err(Failed::Client(other)),
    };
    Ok(StreamableHttpPostResponse::Json(awaited.error(error).into_message(), None))
}

fn malformed(problem: String) -> Failed {
    Failed::Client(HttpFailure::Malformed(problem))
}

/// Makes the failure for a status that is not 2xx, without the text of the body.
pub(super) fn status_failure(response: &Response) -> HttpFailure {
    let retry_after = retry_after(response.headers(), SystemTime::now());
    HttpFailure::Status { status: response.status().as_u16(), retry_after, detail: String::new() }
}

fn session_of(response: &Response) -> Option<String> {
    response.headers().get(SESSION).and_then(|session| session.to_str().ok()).map(str::to_owned)
}

impl From<HttpFailure> for Failed {
    fn from(failure: HttpFailure) -> Self {
        Failed::Client(failure)
    }
}
