//! Subscriptions to resources, and the stream of changes since protocol 2026-07-28 (`subscriptions/listen`).
//!
//! Each stream has its own session, with the subscriptions that its request lists. The session and the subscriptions end with the stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, SubscriptionContext, SubscriptionSink};
use rmcp::{ErrorData, RoleServer};
use tokio::sync::broadcast;

use super::answers::{about, no_such_resource, refused};
use super::direct::Direct;
use super::http::Principal;
use super::items::Seen;
use super::resources_and_prompts::{ResourcesAndPrompts, Target};
use super::session::{CallerName, ClientNotification, Session, SessionCell};
use super::{Shared, changes};
use crate::gateway::Agent;

/// The maximum number of resources for one stream. If a request lists more, the rest is not accepted, and the acknowledgment shows this.
const MAX_RESOURCES: usize = 64;

/// Returns the part of a filter that a stream can accept.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    accepted.resource_subscriptions = requested.resource_subscriptions.as_ref().map(|uris| {
        let mut known = BTreeSet::new();
        uris.iter().filter(|uri| known.insert(*uri)).take(MAX_RESOURCES).cloned().collect()
    });
    accepted
}

/// Notifies a client of changes until its stream ends. `caller` is the caller that opened the stream.
///
/// # Errors
/// The error of a subscription. Such an error ends the stream, because the stream could not report everything that it has acknowledged.
pub(super) async fn listen(shared: &Shared, caller: &Principal, context: &SubscriptionContext) -> Result<(), ErrorData> {
    let (mut changes, sink) = (shared.changes.subscribe(), context.sink());
    tokio::select! {
        () = context.cancelled() => Ok(()),
        () = shared.closed.cancelled() => Ok(()),
        told = async {
            let subscribed = subscribed(shared, caller, context).await?;
            let look = || Seen::of(subscribed.session.agent.clone(), shared.options.direct.clone());
            let mut seen = look().await;
            while changes::next(&mut changes).await {
                // If this caller does not see what has changed, the caller is not notified.
                let now = look().await;
                if !Seen::is_same(seen.as_ref(), now.as_ref()) {
                    tell(sink, &subscribed.declarations).await;
                }
                seen = now;
            }
            Ok(())
        } => told,
    }
}

/// The subscriptions of a stream.
struct Streamed {
    /// The URIs of the declarations to which the client has subscribed. Declarations change when approvals change.
    declarations: Vec<String>,
    /// The session of the stream. When the stream ends, the session and its subscriptions end too.
    session: Arc<Session>,
}

async fn subscribed(shared: &Shared, caller: &Principal, context: &SubscriptionContext) -> Result<Streamed, ErrorData> {
    let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
    let client = context.request_context().client_info();
    let name = CallerName { of_token: caller.agent.as_deref(), of_client: client.as_ref().map(|client| client.name.as_str()) };
    let session = Session::open(shared, &caller.key, name, Some(ClientNotification::Stream(context.sink().clone())))
        .map_err(|error| refused(&error))?;
    if uris.is_empty() {
        return Ok(Streamed { declarations: Vec::new(), session });
    }
    let (agent, options) = (session.agent.clone(), shared.options.clone());
    let asked = uris.clone();
    let find = move |_: &Agent, items: &ResourcesAndPrompts| Ok(asked.iter().map(|uri| items.target(uri)).collect::<Vec<_>>());
    let targets = shared.items.with(&caller.key, agent, options.direct, find);
    let mut declarations = Vec::new();
    for (uri, target) in uris.iter().zip(targets.await.map_err(|error| refused(&error))?) {
        let target = target.ok_or_else(|| about(no_such_resource(), uri))?;
        if matches!(target, Target::Types { .. }) {
            declarations.push(uri.clone());
        }
        subscribe(&session, target, uri).await?;
    }
    Ok(Streamed { declarations, session })
}

/// Notifies the client that the lists have changed, and that the declarations have changed with them. The sink drops notifications that do
/// not match its filter.
async fn tell(sink: &SubscriptionSink, declarations: &[String]) {
    let _ = sink.notify_tool_list_changed().await;
    let _ = sink.notify_resource_list_changed().await;
    let _ = sink.notify_prompt_list_changed().await;
    for uri in declarations {
        let _ = sink.notify_resource_updated(uri.clone()).await;
    }
}

/// What a session's client saw when the session began, and the changes since then. Both are read before the client can ask for a list, so
/// no change after a list is missed.
#[derive(Default)]
pub(super) struct FirstLook {
    is_filled: AtomicBool,
    look: Mutex<Option<Look>>,
}

pub(super) struct Look {
    seen: Option<Seen>,
    changes: broadcast::Receiver<()>,
}

impl FirstLook {
    /// Reads what the client of a session sees. Does nothing if this was done before, so that a connection is notified of changes only
    /// once. `session` is `None` if no session could be opened. Reads in the caller's turn.
    pub(super) async fn fill(&self, shared: &Shared, caller: &str, session: Option<&Session>) {
        if self.is_filled.swap(true, Ordering::Relaxed) {
            return;
        }
        let changes = shared.changes.subscribe();
        let seen = match session {
            Some(session) => {
                let _turn = shared.items.turn(caller).await;
                Seen::of(session.agent.clone(), shared.options.direct.clone()).await
            }
            None => None,
        };
        *self.look.lock() = Some(Look { seen, changes });
    }

    /// Takes what was read. Returns `None` if nothing was read, or if it was taken before.
    pub(super) fn take(&self) -> Option<Look> {
        self.look.lock().take()
    }
}

/// Notifies a session's client when its lists change. Ends when the client is gone, or when no further change can follow. A client without
/// a session gets no notification.
pub(super) async fn tell_session(first_look: Look, cell: SessionCell, direct: Direct, peer: Peer<RoleServer>) {
    let Look { mut seen, mut changes } = first_look;
    while changes::next(&mut changes).await {
        let Some(session) = cell.get() else { continue };
        // If this client does not see what has changed, the client is not notified.
        let now = Seen::of(session.agent.clone(), direct.clone()).await;
        if Seen::is_same(seen.as_ref(), now.as_ref()) {
            continue;
        }
        seen = now;
        let told = peer.notify_tool_list_changed().await.is_ok()
            && peer.notify_resource_list_changed().await.is_ok()
            && peer.notify_prompt_list_changed().await.is_ok();
        if !told {
            return;
        }
    }
}

/// Subscribes to a resource. Updates contain the URI under which the resource is listed.
///
/// # Errors
/// The error of the server that has the resource.
pub(super) async fn subscribe(session: &Session, target: Target, uri: &str) -> Result<(), ErrorData> {
    match target {
        Target::ServerResource { server, uri: own } => session.subscribe(&server, &own, uri).await.map_err(|error| refused(&error)),
        // The declarations change only when the lists change. These changes are sent to every client.
        Target::Types { .. } => Ok(()),
    }
}

/// Ends the subscriptions that a client has under one URI, and the subscription to the resource that is listed under this URI now.
///
/// # Errors
/// The error of the server that has the listed resource.
pub(super) async fn unsubscribe(session: &Session, subscribed: Vec<(String, String)>, target: Option<Target>) -> Result<(), ErrorData> {
    for (server, uri) in subscribed {
        // The client gets no more updates, even if this call fails. In that case the server is not informed, for example because the agent
        // may no longer use the server.
        let _ = session.unsubscribe(&server, &uri).await;
    }
    match target {
        Some(Target::ServerResource { server, uri }) => session.unsubscribe(&server, &uri).await.map_err(|error| refused(&error)),
        Some(Target::Types { .. }) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_each_resource_once_and_not_too_many() {
        let uris = (0..100).map(|number| format!("note://{}", number / 2)).chain((0..100).map(|number| format!("file:///{number}")));
        let mut requested = SubscriptionFilter::new();
        requested.resource_subscriptions = Some(uris.collect());
        let resources = accepted(&requested).resource_subscriptions.unwrap();
        assert_eq!(resources.len(), MAX_RESOURCES);
        assert_eq!((resources[0].as_str(), resources[49].as_str(), resources[50].as_str()), ("note://0", "note://49", "file:///0"));
        assert_eq!(accepted(&SubscriptionFilter::new()), SubscriptionFilter::new());
    }
}
