//! Unanswered requests, and their cancellations before MCP 2026-07-28.
//!
//! rmcp sends cancellations one after another, and sends none after it has begun to close. This module sends several cancellations at the
//! same time, each in the session of its request. When the connection is closed, it cancels all unanswered requests. A request that was
//! never sent needs no cancellation.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client::{HttpClient, Shared};
use super::raw::{Awaited, Kind};
use super::stream::Route;

/// Maximum number of cancellations that are sent at the same time.
const PARALLEL: usize = 64;
/// Number of cancellations that may be sent at the same time in addition to [`PARALLEL`] when the connection is closed.
const PARALLEL_AT_CLOSE: usize = 192;
/// Longest time to send one cancellation. The time includes the server's answer, which is only a confirmation.
const SENT_WITHIN: Duration = Duration::from_secs(2);
/// Longest time for which closing waits for the cancellations.
const CLOSE_WAITS: Duration = Duration::from_millis(500);
/// Shortest time between a request and its cancellation. The two use different sockets. Without this delay, the server could read the
/// cancellation first, ignore it, and then execute the request.
const AFTER_REQUEST: Duration = Duration::from_millis(100);

/// The unanswered requests of one server.
pub(super) struct Unanswered {
    requests: Mutex<Requests>,
    places: Semaphore,
    tasks: TaskTracker,
    /// Token that stops the sending of cancellations.
    over: CancellationToken,
}

#[derive(Default)]
struct Requests {
    sent: HashMap<RequestId, Sent>,
    number: u64,
    is_closed: bool,
}

/// An unanswered request.
struct Sent {
    number: u64,
    route: Route,
    /// Time at which the request was last sent, perhaps only partly. `None` while the request waits for a token.
    at: Option<Instant>,
}

impl Unanswered {
    pub(super) fn new() -> Self {
        let (places, tasks, over) = (Semaphore::new(PARALLEL), TaskTracker::new(), CancellationToken::new());
        Self { requests: Mutex::default(), places, tasks, over }
    }

    /// Records that a request will now be sent.
    pub(super) fn note_sent(&self, id: Option<&RequestId>) {
        let Some(id) = id else { return };
        if let Some(sent) = self.requests.lock().sent.get_mut(id) {
            sent.at = Some(Instant::now());
        }
    }

    fn take(&self, id: &RequestId) -> Option<Sent> {
        self.requests.lock().sent.remove(id)
    }

    /// Stops the sending of cancellations.
    pub(super) fn end(&self) {
        self.over.cancel();
    }
}

/// Guard of a request that is being sent or waits for its answer. Dropping the guard records that the request needs no cancellation.
pub(super) struct OpenRequest {
    client: HttpClient,
    id: RequestId,
    number: u64,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        // A newer entry can have the same id, because a request is sent again in a new session. The newer entry must stay.
        let mut requests = self.client.unanswered.requests.lock();
        if requests.sent.get(&self.id).is_some_and(|sent| sent.number == self.number) {
            requests.sent.remove(&self.id);
        }
    }
}

/// Returns the id of the request that a message cancels.
pub(super) fn cancelled(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(sent) => match &sent.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

fn needs_cancellation(awaited: &Awaited) -> bool {
    !matches!(awaited.kind, Kind::Initialize | Kind::Discover | Kind::Listen) && awaited.method != "tasks/cancel"
}

fn cancellation_of(id: &RequestId) -> Option<ClientJsonRpcMessage> {
    let params = json!({ "requestId": id, "reason": "the connection is closed" });
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    serde_json::from_value(message).ok()
}

impl HttpClient {
    /// Registers a request that will now be sent. Returns `Ok(None)` for a request that is never cancelled, and `Err` once the connection
    /// is being closed.
    pub(super) fn open_request(&self, awaited: &Awaited, route: &Route) -> Result<Option<OpenRequest>, ()> {
        if !needs_cancellation(awaited) {
            return Ok(None);
        }
        let mut requests = self.unanswered.requests.lock();
        if requests.is_closed {
            return Err(());
        }
        requests.number += 1;
        let number = requests.number;
        requests.sent.insert(awaited.id.clone(), Sent { number, route: route.clone(), at: None });
        Ok(Some(OpenRequest { client: self.clone(), id: awaited.id.clone(), number }))
    }

    /// Cancels a request at the server. The returned future resolves once the server has confirmed the cancellation, or the time limit for
    /// the confirmation has expired. The cancellation is sent even if the future is dropped.
    pub(super) fn cancel(&self, id: &RequestId, message: ClientJsonRpcMessage) -> impl Future<Output = ()> + Send + use<> {
        let sending = self.unanswered.take(id).and_then(|sent| self.send_cancellation(message, sent));
        async move {
            if let Some(sending) = sending {
                let _ = sending.await;
            }
        }
    }

    /// Starts a task that sends a cancellation. Returns `None` if the request was never sent.
    fn send_cancellation(&self, message: ClientJsonRpcMessage, Sent { route, at, .. }: Sent) -> Option<JoinHandle<()>> {
        let (client, earliest) = (self.clone(), at? + AFTER_REQUEST);
        let task = async move {
            let sending = async {
                tokio::time::sleep_until(earliest).await;
                let _place = client.unanswered.places.acquire().await;
                // A failure is ignored, because there is no other way to cancel the request.
                let _ = tokio::time::timeout(SENT_WITHIN, client.notify(&message, &route)).await;
            };
            tokio::select! {
                biased;
                () = client.unanswered.over.cancelled() => {}
                () = sending => {}
            }
        };
        Some(self.unanswered.tasks.spawn_on(task, &self.network))
    }

    /// Ends all running requests, and sends cancellations for those that are unanswered.
    async fn cancel_all(&self) {
        let sent = {
            let mut requests = self.unanswered.requests.lock();
            requests.is_closed = true;
            std::mem::take(&mut requests.sent)
        };
        // The running requests are ended first. Their callers then get errors now, and do not get the server's answers to the
        // cancellations.
        self.stop.cancel();
        if self.session_has_begun() {
            self.unanswered.places.add_permits(PARALLEL_AT_CLOSE);
            for (id, sent) in sent {
                if let Some(message) = cancellation_of(&id) {
                    let _ = self.send_cancellation(message, sent);
                }
            }
        }
        self.unanswered.tasks.close();
        let _ = tokio::time::timeout(CLOSE_WAITS, self.unanswered.tasks.wait()).await;
        self.unanswered.end();
    }
}

/// Handle with which the requests of a connection are ended before the connection is closed. The handle does not keep the connection's
/// sockets open.
pub(in crate::client) struct Farewell(Weak<Shared>);

impl Farewell {
    pub(super) fn of(client: &HttpClient) -> Self {
        Self(Arc::downgrade(&client.0))
    }

    /// Returns the id of the server's session.
    pub(in crate::client) fn session(&self) -> Option<Arc<str>> {
        HttpClient(self.0.upgrade()?).session_id()
    }

    /// Ends all running requests, and waits at most `CLOSE_WAITS` until their cancellations are sent to the server.
    pub(in crate::client) async fn cancel_all(&self) {
        if let Some(shared) = self.0.upgrade() {
            HttpClient(shared).cancel_all().await;
        }
    }
}
