//! Subscription to changed lists: since 2026-07-28, a server announces them only to subscribers.

use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::Peer;

/// Pause before a subscription that ended is renewed, and how many times that is done.
const AGAIN: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 5;

/// Keeps a subscription as long as the connection lives. Its notifications are taken before they get here, like every other.
pub(super) fn keep_listening(peer: &Peer<RoleClient>) {
    let Some(filter) = filter(peer) else { return };
    let peer = peer.clone();
    tokio::spawn(async move {
        for _ in 0..ATTEMPTS {
            match peer.listen(filter.clone()).await {
                Ok(mut subscription) => while matches!(subscription.next().await, Ok(Some(_))) {},
                Err(error) => tracing::debug!(%error, "a subscription to changed lists was refused"),
            }
            if peer.is_transport_closed() {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
}

/// Returns the changes that the server offers to announce; `None`: it announces none, or needs no subscription.
fn filter(peer: &Peer<RoleClient>) -> Option<SubscriptionFilter> {
    let info = peer.peer_info()?;
    if info.protocol_version.has_initialize() {
        return None;
    }
    let capabilities = &info.capabilities;
    let mut filter = SubscriptionFilter::new();
    let told = |changed: Option<bool>| changed.filter(|changed| *changed);
    filter.tools_list_changed = capabilities.tools.as_ref().and_then(|tools| told(tools.list_changed));
    filter.prompts_list_changed = capabilities.prompts.as_ref().and_then(|prompts| told(prompts.list_changed));
    filter.resources_list_changed = capabilities.resources.as_ref().and_then(|resources| told(resources.list_changed));
    let any = filter.tools_list_changed.or(filter.prompts_list_changed).or(filter.resources_list_changed);
    any.map(|_| filter)
}
