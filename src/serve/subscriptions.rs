//! Subscriptions to resources, and the stream of changes since protocol 2026-07-28 (`subscriptions/listen`).
//!
//! A stream is a session of its own: it has the subscriptions that its request names, and they end with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{SubscriptionContext, SubscriptionSink};

use super::answers::{no_such_resource, refused};
use super::http::Principal;
use super::resources_and_prompts::{ResourcesAndPrompts, Target};
use super::session::{CallerName, ClientNotification, Session};
use super::{Shared, changes};
use crate::blocking::blocking;

/// Resources of one stream. Further ones are not accepted, which the acknowledgment says.
const MAX_RESOURCES: usize = 64;

/// Returns the part of a filter that a stream can have.
pub(super) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    accepted.resource_subscriptions = requested.resource_subscriptions.as_ref().map(|uris| {
        let mut known = BTreeSet::new();
        uris.iter().filter(|uri| known.insert(*uri)).take(MAX_RESOURCES).cloned().collect()
    });
    accepted
}

/// Tells a client of changes until its stream ends. `caller`: the name of its token.
///
/// # Errors
/// The failure of a subscription. The stream ends with it, as it could not tell of all that it has acknowledged.
pub(super) async fn listen(shared: &Shared, caller: &Principal, context: &SubscriptionContext) -> Result<(), ErrorData> {
    let (mut changes, sink) = (shared.changes.subscribe(), context.sink());
    tokio::select! {
        () = context.cancelled() => Ok(()),
        () = shared.closed.cancelled() => Ok(()),
        told = async {
            let subscribed = subscribed(shared, caller, context).await?;
            while changes::next(&mut changes).await {
                tell(sink, subscribed.as_ref().map_or(&[], |subscribed| &subscribed.declarations)).await;
            }
            Ok(())
        } => told,
    }
}

/// The subscriptions of a stream.
struct Streamed {
    /// The declarations of servers, which change with the approvals.
    declarations: Vec<String>,
    /// Ends with the stream, and its subscriptions with it.
    _session: Arc<Session>,
}

async fn subscribed(shared: &Shared, caller: &Principal, context: &SubscriptionContext) -> Result<Option<Streamed>, ErrorData> {
    let Some(uris) = context.accepted().resource_subscriptions.as_ref().filter(|uris| !uris.is_empty()) else { return Ok(None) };
    let client = context.request_context().client_info();
    let name = CallerName { of_token: caller.agent.as_deref(), of_client: client.as_ref().map(|client| client.name.as_str()) };
    let session = Session::open(shared, &caller.key, name, Some(ClientNotification::Stream(context.sink().clone())))
        .map_err(|error| refused(&error))?;
    let agent = session.agent.clone();
    let asked = uris.clone();
    let targets = blocking(move || {
        let items = ResourcesAndPrompts::read(&agent)?;
        Ok(asked.iter().map(|uri| items.target(uri)).collect::<Vec<_>>())
    });
    let mut declarations = Vec::new();
    for (uri, target) in uris.iter().zip(targets.await.map_err(|error| refused(&error))?) {
        let target = target.ok_or_else(no_such_resource)?;
        if matches!(target, Target::Types { .. }) {
            declarations.push(uri.clone());
        }
        subscribe(&session, target, uri).await?;
    }
    Ok(Some(Streamed { declarations, _session: session }))
}

/// Tells that the lists have changed, and the declarations with them. The sink leaves out what its filter does not have.
async fn tell(sink: &SubscriptionSink, declarations: &[String]) {
    let _ = sink.notify_tool_list_changed().await;
    let _ = sink.notify_resource_list_changed().await;
    let _ = sink.notify_prompt_list_changed().await;
    for uri in declarations {
        let _ = sink.notify_resource_updated(uri.clone()).await;
    }
}

/// Subscribes to a resource under the URI under which it is served.
///
/// # Errors
/// The failure of the server that has the resource.
pub(super) async fn subscribe(session: &Session, target: Target, uri: &str) -> Result<(), ErrorData> {
    match target {
        Target::ServerResource { server, uri: own } => session.subscribe(&server, &own, uri).await.map_err(|error| refused(&error)),
        // The declarations change with the lists, which is told anyway.
        Target::Types { .. } => Ok(()),
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
