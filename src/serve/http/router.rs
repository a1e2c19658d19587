//! The routes, and the guards through which each request passes: draining, `Host` and `Origin`, the caller, the caller's rate, and the
//! limits on requests and bodies.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use rmcp::ServerHandler;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::access::{Access, Denied, Principal};
use super::answer_body::AnswerBody;
use super::body_shape::{self, Shape};
use super::callers::{Callers, Service};
use super::connection::ConnectionAddresses;
use super::metrics::{Metrics, Refusal};
use super::options::HttpLimits;
use super::origin::{Allowed, Forbidden};
use super::rate::{Client, Rates};
use super::sessions::{ANSWER_KEPT, NO_SESSION_LEFT};
use super::slots::Slots;
use super::streams::RequestKind;
use crate::serve::places::{Place, Share};

const SESSION_ID: &str = "mcp-session-id";
const PREFLIGHT: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name",
    ),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

/// The state that every request needs.
pub(super) struct Shared<H> {
    pub(super) access: Access,
    pub(super) allowed: Allowed,
    pub(super) callers: Callers<H>,
    pub(super) limits: HttpLimits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) rates: Rates,
    /// Cancelled when the server accepts no more requests.
    pub(super) draining: CancellationToken,
}

/// Returns the routes of the server.
pub(super) fn router<H: ServerHandler>(shared: Arc<Shared<H>>) -> Router {
    let known = Router::new()
        .route("/mcp", any(mcp::<H>))
        .route("/metrics", get(metrics::<H>))
        .route_layer(from_fn_with_state(shared.clone(), known_caller::<H>));
    Router::new()
        .route("/health", get(async || ([(header::CONTENT_TYPE, "application/json")], "{\"status\":\"ok\"}\n")))
        .route("/.well-known/oauth-protected-resource", get(resource_metadata::<H>))
        .route("/.well-known/oauth-protected-resource/{*path}", get(resource_metadata::<H>))
        .merge(known)
        .layer(from_fn_with_state(shared.clone(), open_and_allowed::<H>))
        .layer(from_fn_with_state(shared.clone(), counted::<H>))
        .with_state(shared)
}

async fn counted<H: ServerHandler>(State(shared): State<Arc<Shared<H>>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    shared.metrics.answered(response.status().as_u16());
    response
}

/// Lets a request pass if the server is not closing and the headers `Host` and `Origin` are allowed.
async fn open_and_allowed<H: ServerHandler>(State(shared): State<Arc<Shared<H>>>, request: Request, next: Next) -> Response {
    if shared.draining.is_cancelled() {
        let mut response = shared.refuse(Refusal::Draining);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    let Some(addresses) = request.extensions().get::<ConnectionAddresses>() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match shared.allowed.check(request.uri(), request.headers(), addresses.local) {
        Ok(()) => {}
        Err(Forbidden::BadHost) => {
            return shared.refuse_with(Refusal::Host, StatusCode::BAD_REQUEST, "the request needs one valid Host header");
        }
        Err(Forbidden::Host) => return shared.refuse(Refusal::Host),
        Err(Forbidden::Origin) => return shared.refuse(Refusal::Origin),
    }
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else { return next.run(request).await };
    let is_preflight = request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { (StatusCode::NO_CONTENT, PREFLIGHT).into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("mcp-session-id, www-authenticate, retry-after"));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// Lets a request pass if its caller is identified and within its rate limit.
async fn known_caller<H: ServerHandler>(State(shared): State<Arc<Shared<H>>>, mut request: Request, next: Next) -> Response {
    let Some(address) = request.extensions().get::<ConnectionAddresses>().map(|addresses| Client::at(addresses.client)) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    // Checking a token costs time. So for an address above its limit of failed attempts, only tokens that have identified a caller before
    // are checked.
    if shared.access.has_unknown_token(request.headers()) && !shared.rates.has_left(&address, Instant::now()) {
        return shared.refuse(Refusal::Rate);
    }
    let identified = shared.access.identify(request.headers()).await;
    if let Some(owners) = &identified.owners {
        shared.callers.keep(owners);
    }
    let client = match &identified.caller {
        Ok(caller) if !caller.is_anonymous() => Client::Caller(caller.key.clone()),
        // Requests with wrong tokens are counted for the address, so that nobody can try many tokens.
        _ => address,
    };
    if !shared.rates.take(client.clone(), Instant::now()) {
        return shared.refuse(Refusal::Rate);
    }
    let caller = match identified.caller {
        Ok(caller) => caller,
        Err(denied) => return shared.deny(denied),
    };
    // The handler gets the caller's name, but never the token.
    request.headers_mut().remove(header::AUTHORIZATION);
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(client);
    next.run(request).await
}

async fn metrics<H: ServerHandler>(State(shared): State<Arc<Shared<H>>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.metrics.render()).into_response()
}

async fn resource_metadata<H: ServerHandler>(State(shared): State<Arc<Shared<H>>>) -> Response {
    let Some(oauth) = &shared.access.oauth else { return StatusCode::NOT_FOUND.into_response() };
    ([(header::CONTENT_TYPE, "application/json")], oauth.metadata().to_string()).into_response()
}

/// Forwards a request to the MCP service of its caller.
async fn mcp<H: ServerHandler>(State(shared): State<Arc<Shared<H>>>, mut request: Request) -> Response {
    let caller = request.extensions().get::<Principal>().cloned();
    let service = caller.as_ref().and_then(|caller| shared.callers.service(caller));
    let (Some(service), Some(caller)) = (service, caller) else { return shared.refuse(Refusal::Busy) };
    // Since 2026-07-28, requests are served without a session, even if their headers contain a session id.
    request.extensions_mut().insert(service.owner(&caller));
    let session = match session_id(request.headers()) {
        None => None,
        Some(id) => match service.sessions.enter(id) {
            // Without this check, rmcp would report success for ending an unknown session.
            None if request.method() == Method::DELETE => return (StatusCode::NOT_FOUND, "there is no such session\n").into_response(),
            session => session,
        },
    };
    if let Some(session) = &session {
        request.extensions_mut().insert(session.end());
    }
    let kind = RequestKind::of(request.method(), request.headers());
    // The body is read before a slot is taken, so that a slow client does not occupy a slot.
    let (mut request, shape) = match shared.read(request, &service.buffers).await {
        Ok(read) => read,
        Err(refusal) => return shared.refuse(refusal),
    };
    let slots = match shared.slots(&service, kind, shape) {
        Ok(slots) => slots,
        Err(refusal) => return shared.refuse(refusal),
    };
    request.extensions_mut().insert(Arc::clone(&slots));
    // The server may have started to close while the body was read.
    if shared.draining.is_cancelled() {
        return shared.refuse(Refusal::Draining);
    }
    let full = Cell::new(false);
    let (response, full) = NO_SESSION_LEFT
        .scope(full, async {
            let response = slots.written(service.mcp.handle(request)).await;
            (response, NO_SESSION_LEFT.with(Cell::get))
        })
        .await;
    if full {
        return shared.refuse(Refusal::Sessions);
    }
    let ended = (kind != RequestKind::Call).then(|| Box::pin(shared.draining.clone().cancelled_owned()));
    let kept_for = (session.is_some() && kind == RequestKind::Call).then_some(ANSWER_KEPT);
    response.map(|body| Body::new(AnswerBody::new(Body::new(body), ended, slots, session, kept_for)))
}

fn session_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_ID).and_then(|value| value.to_str().ok())
}

impl<H: ServerHandler> Shared<H> {
    /// Ends everything that belongs to callers whose tokens were removed or have expired.
    pub(super) fn end_withdrawn_callers(&self) {
        if let Some(owners) = self.access.owners() {
            self.callers.keep(&owners);
        }
        // If the clock is before 1970, no access token is accepted, and none is treated as expired.
        self.callers.end_expired(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    }

    /// Takes the slot of a request. A stream of notifications takes none of the slots for requests in progress, because the client decides
    /// how long it stays open. An answer to a question takes no slot either. Otherwise, a caller whose requests all wait for answers could
    /// not send an answer.
    fn slots(&self, service: &Service<H>, kind: RequestKind, shape: Shape) -> Result<Arc<Slots>, Refusal> {
        let taken = match (kind, shape) {
            (RequestKind::SessionStream, _) | (RequestKind::Call, Shape::Message) => None,
            (RequestKind::Call, _) => Some((&service.slots, Refusal::Busy)),
            (RequestKind::Listen, _) => Some((&service.streams, Refusal::Streams)),
        };
        let place = taken.map(|(share, refusal)| share.take(1).map_err(|_| refusal)).transpose()?;
        Ok(Slots::new(place, self.draining.clone()))
    }

    /// Reads the whole body, within the limits of size and time. Each part of the body counts against the memory limits of all bodies and
    /// of the caller's bodies from the time when it arrives until the service has read it. So a slow client reserves no memory in advance.
    async fn read(&self, request: Request, of_caller: &Arc<Share>) -> Result<(http::Request<Full<Bytes>>, Shape), Refusal> {
        let (parts, mut body) = request.into_parts();
        let most = self.limits.max_body_bytes;
        if http_body::Body::size_hint(&body).lower() > most as u64 {
            return Err(Refusal::BodySize);
        }
        let reading = async {
            let (mut bytes, mut buffer) = (BytesMut::new(), None::<Place>);
            while let Some(frame) = body.frame().await {
                // The client has disconnected, or has sent something that is not a body.
                let frame = frame.map_err(|_| Refusal::BodyTime)?;
                let Ok(data) = frame.into_data() else { continue };
                if bytes.len() + data.len() > most {
                    return Err(Refusal::BodySize);
                }
                match &mut buffer {
                    Some(buffer) => buffer.add(data.len()).map_err(|_| Refusal::Busy)?,
                    None => buffer = Some(of_caller.take(data.len()).map_err(|_| Refusal::Busy)?),
                }
                bytes.extend_from_slice(&data);
            }
            Ok(Bytes::from_owner(BodyBytes { bytes, _buffer: buffer }))
        };
        let bytes = timeout(self.limits.body_timeout, reading).await.unwrap_or(Err(Refusal::BodyTime))?;
        // Parsing many small values takes long, and no other client may wait for it.
        let further = body_shape::further_requests(&bytes);
        if let Some(client) = parts.extensions.get::<Client>()
            && further > 0
            && !self.rates.take_further(client.clone(), further, Instant::now())
        {
            return Err(Refusal::Rate);
        }
        match body_shape::shape(&bytes) {
            Shape::TooLarge => Err(Refusal::BodyShape),
            shape => Ok((http::Request::from_parts(parts, Full::new(bytes)), shape)),
        }
    }

    fn deny(&self, denied: Denied) -> Response {
        let (refusal, status, words) = match denied {
            Denied::Scope => (Refusal::Scope, StatusCode::FORBIDDEN, "the token lacks a scope that this server needs"),
            Denied::Missing => (Refusal::Token, StatusCode::UNAUTHORIZED, "this server needs a bearer token"),
            Denied::Invalid => (Refusal::Token, StatusCode::UNAUTHORIZED, "the bearer token is not valid"),
        };
        let mut response = self.refuse_with(refusal, status, words);
        if let Ok(challenge) = HeaderValue::from_str(&self.access.challenge(denied)) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        let (status, words) = match refusal {
            Refusal::Host => (StatusCode::FORBIDDEN, "this Host is not allowed; the operator can add it to the allowed hosts"),
            Refusal::Origin => (StatusCode::FORBIDDEN, "this Origin is not allowed; the operator can add it to the allowed origins"),
            Refusal::Token => (StatusCode::UNAUTHORIZED, "this server needs a bearer token"),
            Refusal::Scope => (StatusCode::FORBIDDEN, "the token lacks a scope that this server needs"),
            Refusal::Rate => (StatusCode::TOO_MANY_REQUESTS, "too many requests per second; send fewer"),
            Refusal::Busy => (StatusCode::SERVICE_UNAVAILABLE, "too many requests are in progress; try again later"),
            Refusal::Sessions => (StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open; end one, or try again later"),
            Refusal::Streams => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many streams of notifications are open; end one, or try again later")
            }
            Refusal::BodySize => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"),
            Refusal::BodyShape => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body has more than 100,000 values, an initialize of more than 64 KiB, or a _meta of more than 16 KiB: send less",
            ),
            Refusal::BodyTime => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            Refusal::Connections => (StatusCode::SERVICE_UNAVAILABLE, "too many connections are open; try again later"),
            Refusal::User => (
                StatusCode::FORBIDDEN,
                "this server accepts only requests from the user who runs it; to accept others, start it with --token-file",
            ),
            Refusal::Draining => (StatusCode::SERVICE_UNAVAILABLE, "the server is closing; try again later"),
        };
        self.refuse_with(refusal, status, words)
    }

    fn refuse_with(&self, refusal: Refusal, status: StatusCode, words: &'static str) -> Response {
        self.metrics.refused(refusal);
        let mut response = (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{words}\n")).into_response();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // The connection is closed. Otherwise the unread rest of the body would have to be read before the next request.
        if matches!(refusal, Refusal::BodySize | Refusal::BodyTime) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The bytes of a body. They count against the memory limits until this value is dropped.
struct BodyBytes {
    bytes: BytesMut,
    _buffer: Option<Place>,
}

impl AsRef<[u8]> for BodyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
