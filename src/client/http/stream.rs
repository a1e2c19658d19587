//! Reads an event stream within a size limit, passes its messages to the interceptor, and resumes the stream if it breaks. rmcp only gets
//! complete messages, and never notices a break. rmcp's own resumption is not used, because a server could make it retry for ever.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use reqwest::Response;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::transport::streamable_http_client::SseError;
use serde_json::Value as Json;
use sse_stream::Sse;
use tokio::time::Instant;

use super::body::{EVENT_STREAM, content_type, is_event_stream, reason};
use super::budget::Reservation;
use super::cancellation::OpenRequest;
use super::client::{HttpClient, protocol_headers, status_failure};
use super::exchange::{Outgoing, random};
use super::failure::HttpFailure;
use super::raw::{Awaited, Inbound, Kind, sort};
use super::resume::{Position, Purpose};
use super::retry::RetryPolicy;
use super::sse::{Event, Parser};
use crate::client::inbound::rate_limit::MESSAGE;
use crate::client::wire::json;

/// Number of bytes at the start of a malformed message that are searched for the key `method`.
const METHOD_WINDOW: usize = 512;

/// Session and headers that every request for the same stream must contain.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) session: Option<Arc<str>>,
    pub(super) headers: HashMap<HeaderName, HeaderValue>,
}

pub(super) struct Events {
    http: HttpClient,
    route: Route,
    awaited: Option<Awaited>,
    /// Guard of the waiting request. It is dropped when the answer has arrived.
    request: Option<OpenRequest>,
    open: Option<Open>,
    position: Position,
    /// Messages that rmcp has not received yet.
    ready: VecDeque<String>,
    phase: Phase,
    deadline: Option<Instant>,
    /// Time until which the stream is not read, because the server has sent more than the rate limit allows.
    rests_until: Option<Instant>,
}

struct Open {
    response: Response,
    parser: Parser,
    place: Reservation,
}

impl Open {
    fn new(response: Response, http: &HttpClient) -> Self {
        Self { response, parser: Parser::new(http.limits.message_bytes), place: http.place() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Reading,
    /// The answer has arrived. The rest of the stream is still read, so that the HTTP connection can be used again.
    Draining,
    Ended,
}

impl Events {
    /// Makes the reader of a stream. `request` is the request whose answer the stream carries. A stream of the server's own messages has
    /// no request.
    pub(super) fn new(http: HttpClient, route: Route, request: Option<(Awaited, Option<OpenRequest>)>, response: Response) -> Self {
        let (awaited, request) = request.unzip();
        let purpose = if awaited.is_some() { Purpose::Answer } else { Purpose::Common };
        let discover = awaited.as_ref().is_some_and(|awaited| awaited.kind == Kind::Discover);
        let deadline = discover.then(|| Instant::now() + http.limits.discover);
        let (open, position) = (Some(Open::new(response, &http)), Position::start(purpose));
        let request = request.flatten();
        Self { http, route, awaited, request, open, position, ready: VecDeque::new(), phase: Phase::Reading, deadline, rests_until: None }
    }

    pub(super) fn into_stream(self) -> BoxStream<'static, Result<Sse, SseError>> {
        futures::stream::unfold(self, async |mut events| events.next().await.map(|event| (Ok(event), events))).boxed()
    }

    async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(event_of(message));
            }
            if self.phase == Phase::Ended {
                return None;
            }
            let (stop, deadline) = (self.http.stop.clone(), self.deadline);
            let step = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.phase = Phase::Ended;
                    Ok(())
                }
                () = passed(deadline) => {
                    self.give_up();
                    Ok(())
                }
                step = self.step() => step,
            };
            if let Err(failure) = step {
                self.fail(&failure);
            }
        }
    }

    async fn step(&mut self) -> Result<(), HttpFailure> {
        if let Some(until) = self.rests_until {
            tokio::time::sleep_until(until).await;
            self.rests_until = None;
        }
        let Some(open) = &mut self.open else { return Err(ended("")) };
        if self.phase == Phase::Reading {
            open.place.hold(open.parser.unfinished()).await;
        }
        let problem = match open.response.chunk().await {
            Ok(Some(chunk)) if self.phase == Phase::Draining => {
                self.rest_after(chunk.len());
                return Ok(());
            }
            Ok(Some(chunk)) => {
                let limit = self.http.limits.message_bytes;
                let before = open.parser.unfinished();
                let events = open.parser.push(&chunk).map_err(|large| HttpFailure::TooLarge { bytes: large.bytes, limit })?;
                let said = (before + chunk.len()).saturating_sub(open.parser.unfinished()) + events.len() * MESSAGE;
                let (http, bytes) = (self.http.clone(), events.iter().map(|event| event.data.len()).sum());
                http.long_messages.handle(bytes, || events.into_iter().for_each(|event| self.take(event))).await;
                if let Some(open) = &mut self.open {
                    open.place.shrink(open.parser.unfinished());
                }
                if self.phase == Phase::Reading {
                    self.rest_after(said);
                }
                return Ok(());
            }
            Ok(None) => String::new(),
            Err(error) => reason(&error),
        };
        self.open = None;
        let is_listen = self.awaited.as_ref().is_some_and(|awaited| awaited.kind == Kind::Listen);
        if self.phase == Phase::Draining || is_listen {
            self.phase = Phase::Ended;
            return Ok(());
        }
        let delay = self.position.after_end(&self.http.limits, random()).ok_or_else(|| ended(&problem))?;
        self.resume(delay).await
    }

    fn rest_after(&mut self, said: usize) {
        self.rests_until = Some(self.http.spend(said)).filter(|until| *until > Instant::now());
    }

    /// Tries to resume the stream. Stops trying when an attempt succeeds, or when a failure shows that another attempt would be useless.
    async fn resume(&mut self, mut delay: Duration) -> Result<(), HttpFailure> {
        loop {
            tokio::time::sleep(delay).await;
            let failure = match self.reopen().await {
                Ok(response) => {
                    self.open = Some(Open::new(response, &self.http));
                    return Ok(());
                }
                Err(failure) => failure,
            };
            let asked = match &failure {
                HttpFailure::Status { status: 429 | 500.., retry_after, .. } => *retry_after,
                HttpFailure::NotSent { .. } | HttpFailure::Interrupted { .. } | HttpFailure::TimedOut { .. } => None,
                _ => return Err(ended(&format!("it cannot be resumed: {failure}"))),
            };
            let next = self.position.after_failure(asked, &self.http.limits, random());
            delay = next.ok_or_else(|| ended(&format!("it cannot be resumed: {failure}")))?;
        }
    }

    async fn reopen(&self) -> Result<Response, HttpFailure> {
        let request = self.awaited.as_ref().map(|awaited| &awaited.id);
        self.http.open_stream(&self.route, self.position.last_id.as_deref(), request, Some(self.http.limits.headers)).await
    }

    fn take(&mut self, event: Event) {
        self.position.note(&event);
        let Event { kind, data, .. } = event;
        let text = data.trim_start_matches('\u{feff}').trim();
        if !matches!(kind.as_str(), "" | "message") || text.is_empty() || self.phase != Phase::Reading {
            return;
        }
        match json::read(text.as_bytes()) {
            // MCP 2025-03-26 allowed batches of messages.
            Ok(Json::Array(batch)) => {
                for message in batch {
                    self.take_message(message, None);
                }
            }
            Ok(message) => {
                // If the message is an answer, no copy of its text is kept, because an answer may be large.
                let text = message.get("method").is_some().then(|| text.to_owned());
                drop(data);
                self.take_message(message, text);
            }
            Err(error) if self.awaited.is_some() && is_answer_like(text) => {
                self.fail(&HttpFailure::of_parse_failure(&error));
            }
            Err(error) => tracing::debug!(%error, "an event that cannot be used was skipped"),
        }
    }

    fn take_message(&mut self, mut message: Json, text: Option<String>) {
        if !self.http.admits(&message, &self.route) || (self.http.interceptor)(&message) || self.phase != Phase::Reading {
            return;
        }
        match sort(&mut message, self.awaited.as_ref()) {
            Inbound::Answer(answer) => {
                self.ready.push_back(answer.into_text());
                self.phase = Phase::Draining;
                (self.deadline, self.request) = (None, None);
            }
            Inbound::Other => self.ready.push_back(text.unwrap_or_else(|| message.to_string())),
            Inbound::Foreign => tracing::debug!("an answer to an unknown request was skipped"),
            Inbound::Noise => tracing::debug!("JSON that is not a message was skipped"),
        }
    }

    fn fail(&mut self, failure: &HttpFailure) {
        self.end();
        match &self.awaited {
            // rmcp itself reports the end of the stream to the subscriber.
            Some(awaited) if awaited.kind == Kind::Listen => {}
            Some(awaited) => self.ready.push_back(awaited.fail(failure).into_text()),
            None => tracing::warn!(%failure, "the stream of the server's own messages ended; its notifications are no longer received"),
        }
    }

    /// Stops waiting for the answer to `server/discover`. rmcp gets an error as the answer, because the server probably uses an older MCP
    /// version.
    fn give_up(&mut self) {
        self.end();
        if let Some(awaited) = &self.awaited {
            self.ready.push_back(awaited.error(unknown_method()).into_text());
        }
    }

    fn end(&mut self) {
        self.phase = Phase::Ended;
        (self.open, self.request) = (None, None);
    }
}

impl HttpClient {
    pub(super) async fn open_stream(
        &self,
        route: &Route,
        last_id: Option<&str>,
        request: Option<&RequestId>,
        within: Option<Duration>,
    ) -> Result<Response, HttpFailure> {
        let mut headers = protocol_headers(EVENT_STREAM, route.session.as_deref(), &route.headers);
        if let Some(id) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert("last-event-id", id);
        }
        let id = request.cloned();
        let request = Outgoing { id, method: Method::GET, body: None, headers, retry: RetryPolicy::Broken, within };
        let response = self.exchange(&request).await?;
        let (status, kind) = (response.status(), content_type(&response));
        if status != StatusCode::OK {
            return Err(status_failure(&response));
        }
        if !is_event_stream(&kind) {
            return Err(HttpFailure::Malformed(format!("it answered with \"{kind}\" to a request for an event stream")));
        }
        Ok(response)
    }
}

/// Makes an event for rmcp. The event has neither an id nor a delay, because rmcp must not resume the stream.
pub(super) fn event_of(message: String) -> Sse {
    Sse::default().data(message)
}

pub(super) fn unknown_method() -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        "the server did not answer server/discover in time, so it is treated as an older server",
        None,
    )
}

fn ended(problem: &str) -> HttpFailure {
    let because = if problem.is_empty() { String::new() } else { format!(": {problem}") };
    HttpFailure::Interrupted { problem: format!("the stream of its answer ended before the answer came{because}") }
}

/// Returns whether malformed JSON was probably an answer and not a notification. Only a malformed answer makes a call fail.
fn is_answer_like(text: &str) -> bool {
    let start = &text[..text.floor_char_boundary(METHOD_WINDOW)];
    text.trim_start().starts_with('{') && !start.contains("\"method\"")
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
