//! The steps of one request, in order.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::Value as Json;
use tokio::sync::OwnedMutexGuard;

use super::item::ApprovedItem;
use super::permission::Permission;
use super::{Request, Requester};
use crate::client::{CallFailure, CallLimits, Caller, Connection, Lease, SentRequest, ToolRequest};
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::gateway::availability::Viewer;
use crate::gateway::caller::SentNote;
use crate::gateway::core::Core;
use crate::gateway::look_up::CallDeadline;
use crate::registry::AgentId;
use crate::telemetry::TraceContext;

/// The reason why a request that waited during a revocation is refused, although the server has been approved again.
const REVOKED_MEANWHILE: &str = "it was revoked and approved again while this request waited, so the request was not sent: send it again";

/// A request that is in progress, and its state between the steps.
pub(super) struct Pipeline<'a> {
    pub(super) core: &'a Core,
    pub(super) name: &'a str,
    pub(super) request: &'a Request,
    pub(super) requester: Requester<'a>,
    started: Instant,
    /// The trace context of the request.
    trace: Option<TraceContext>,
    /// The protocol version of the connection. Set only if the request is traced.
    protocol: OnceLock<String>,
    sent: SentNote,
}

/// The server and the approved item of a request, as of one lookup.
pub(super) struct FoundItem {
    pub(super) server: Arc<ServerDefinition>,
    pub(super) item: ApprovedItem,
    /// The id of the server's approval. A new approval after a revocation has another id.
    approval: String,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(core: &'a Core, name: &'a str, request: &'a Request, requester: Requester<'a>) -> Self {
        Self { core, name, request, requester, started: Instant::now(), trace: None, protocol: OnceLock::new(), sent: SentNote::default() }
    }

    pub(super) fn with_trace(self, trace: Option<TraceContext>) -> Self {
        Self { trace, ..self }
    }

    /// Returns the protocol version of the connection, and how the request was sent, if the request got that far.
    pub(super) fn into_exchange(self) -> (Option<String>, Option<SentRequest>) {
        let sent = self.sent.lock().take();
        (self.protocol.into_inner(), sent)
    }

    pub(super) async fn run(&self) -> Result<Json> {
        let found = self.find()?;
        let limits = self.core.call_limits(&found.server, self.viewer().granted, self.requester.timeout_ms);
        let (mut found, mut connection) = self.connect(found, limits).await?;
        if let Permission::Ask { allows, reason } = self.permission(&found)? {
            // The connection is released, so that other servers can connect while the person decides.
            drop(connection);
            self.ask(&found, allows, reason).await?;
            // The approval may have changed while the person decided, so the item is checked again.
            (found, connection) = self.connect(self.find_again(&found)?, limits).await?;
        }
        let most = self.requester.scope.granted.max_parallel_calls(&found.server.name);
        let slot = self.core.call_slot(&found.server, self.request.label(), limits, self.requester.timeout_ms, most).await?;
        if slot.was_awaited() {
            found = self.find_again(&found)?;
            self.compare(&found, &connection).await?;
        }
        let caller = self.core.traced_caller(self.requester.scope, self.requester.control, self.trace.clone(), Arc::clone(&self.sent));
        match self.send(&found, &connection, limits, &caller).await {
            Ok(result) => Ok(result),
            Err(failure) if found.item.may_send_again(&failure) => {
                drop(connection);
                self.send_again(&found, limits, &caller, failure.error).await
            }
            Err(failure) => Err(failure.error),
        }
    }

    /// Finds the approved item of an enabled server.
    fn find(&self) -> Result<FoundItem> {
        let server = self.core.known_server(self.name, self.viewer().granted)?;
        // The approval is read before the item, so that the item is not older than the approval. An error about the approval is returned
        // only afterwards, because an error about the item is more precise.
        let approval = self.core.approval_id(&server);
        let item = self.item(&server)?;
        Ok(FoundItem { approval: approval?, server, item })
    }

    /// Returns the id of the agent that makes the request.
    pub(super) fn agent(&self) -> AgentId {
        self.requester.scope.identity.id
    }

    /// Returns the agent with its grants as of the start of its run or call.
    pub(super) fn viewer(&self) -> Viewer<'_> {
        Viewer { id: self.agent(), granted: &self.requester.scope.granted }
    }

    fn item(&self, server: &ServerDefinition) -> Result<ApprovedItem> {
        let viewer = self.viewer();
        ApprovedItem::find(server, &self.core.usable(server, &viewer)?, viewer.granted, self.request.target())
    }

    /// Finds the item again. Returns an error if the server's command or the approved description of the item has changed since then. Also
    /// returns an error if the approval was revoked since then, even if the server has been approved again.
    pub(super) fn find_again(&self, before: &FoundItem) -> Result<FoundItem> {
        let viewer = self.viewer();
        let server = self.core.known_server(self.name, viewer.granted)?;
        let manifest = self.core.usable(&server, &viewer)?;
        if self.core.subject(&server).digest != self.core.subject(&before.server).digest {
            return Err(Error::DigestChanged { server: self.name.to_owned() });
        }
        let item = ApprovedItem::find(&server, &manifest, viewer.granted, self.request.target())?;
        if item != before.item {
            return Err(before.item.changed(self.name));
        }
        let approval = self.core.approval_id(&server)?;
        if approval != before.approval {
            return Err(Error::NotApproved { server: self.name.to_owned(), reason: REVOKED_MEANWHILE.to_owned().into() });
        }
        Ok(FoundItem { server, item, approval })
    }

    /// Connects the server, and compares the item with the server's present offer. If connecting had to wait, looks up the item again,
    /// because the approval may have changed.
    async fn connect(&self, found: FoundItem, limits: CallLimits) -> Result<(FoundItem, Lease)> {
        let (leased, was_awaited) = with_was_awaited(self.lease(&found, limits)).await;
        let connection = leased?;
        if self.trace.is_some() {
            self.protocol.get_or_init(|| connection.protocol_version());
        }
        self.compare(&found, &connection).await?;
        let found = if was_awaited { self.find_again(&found)? } else { found };
        Ok((found, connection))
    }

    async fn lease(&self, found: &FoundItem, limits: CallLimits) -> Result<Lease> {
        let Requester { scope, control, .. } = self.requester;
        let deadline = CallDeadline::of(self.started, (self.name, self.request.label()), limits, self.requester.timeout_ms);
        self.core.connect(&found.server, scope, control, limits.timeout, deadline).await
    }

    /// Compares the running server's item with the approved item.
    async fn compare(&self, found: &FoundItem, connection: &Connection) -> Result<()> {
        let Requester { scope, control, .. } = self.requester;
        found.item.compare(self.name, &*connection.manifest_for(|| self.core.caller(scope, control)).await?)
    }

    async fn send(
        &self,
        found: &FoundItem,
        connection: &Connection,
        limits: CallLimits,
        caller: &Arc<dyn Caller>,
    ) -> std::result::Result<Json, CallFailure> {
        match self.request {
            Request::CallTool { tool, arguments } => {
                let (tool, arguments, caller) = (tool.to_string(), Arc::clone(arguments), Arc::clone(caller));
                let as_task = found.item.runs_as_task();
                Box::pin(connection.call(ToolRequest { tool, arguments, as_task, limits, caller })).await
            }
            Request::ResourceOrPrompt(request) => connection.request_resource_or_prompt(request, limits, caller).await,
            Request::Subscribe(uri) => {
                let _turn = self.subscription_turn(limits).await?;
                if self.core.requests.subscriptions.join(self.name, uri, self.agent())? {
                    return Ok(Json::Null);
                }
                let watch = connection.watch(uri, limits, caller).await?;
                self.core.requests.subscriptions.add(self.name, uri, self.agent(), watch);
                Ok(Json::Null)
            }
            Request::Unsubscribe(uri) => {
                let _turn = self.subscription_turn(limits).await?;
                // Another agent may have subscribed to the resource while this request waited.
                if self.core.requests.subscriptions.is_wanted(self.name, uri) {
                    return Ok(Json::Null);
                }
                connection.unwatch(uri, limits, caller).await.map(|()| Json::Null)
            }
        }
    }

    /// Waits until no other change of the server's subscriptions is in progress, for at most the time limit of a call.
    async fn subscription_turn(&self, limits: CallLimits) -> Result<OwnedMutexGuard<()>> {
        let turn = tokio::time::timeout(limits.timeout, self.core.requests.subscriptions.turn(self.name)).await;
        let limit_ms = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
        let (server, tool) = (self.name.to_owned(), self.request.label().to_owned());
        turn.map_err(|_| Error::CallTimeout { server, tool: tool.into(), limit_ms, limit_name: "callTimeoutMs" })
    }

    /// Sends the request a second time on a new connection. If the connection fails, returns the error of the first attempt.
    async fn send_again(&self, before: &FoundItem, limits: CallLimits, caller: &Arc<dyn Caller>, failure: Error) -> Result<Json> {
        tracing::info!(server = self.name, tool = self.request.label(), error = %failure, "the request is sent once more");
        let found = self.find_again(before)?;
        let connection = self.lease(&found, limits).await.map_err(|_| failure)?;
        self.compare(&found, &connection).await?;
        let found = self.find_again(&found)?;
        self.send(&found, &connection, limits, caller).await.map_err(|failure| failure.error)
    }
}

/// Returns the output of the future, and `true` if the future was pending at its first poll.
async fn with_was_awaited<T>(work: impl Future<Output = T>) -> (T, bool) {
    let (mut work, mut was_awaited) = (pin!(work), false);
    let outcome = poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        was_awaited |= polled.is_pending();
        polled
    });
    (outcome.await, was_awaited)
}
