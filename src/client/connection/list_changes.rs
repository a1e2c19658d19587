//! Subscription to changed lists: since 2026-07-28, a server announces them only to subscribers.

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::Peer;

use super::listening::keep_listening;

/// Listens for changed lists as long as the connection lives, where the server tells them to listeners.
pub(in crate::client) fn listen(peer: &Peer<RoleClient>) {
    if let Some(filter) = filter(peer) {
        tokio::spawn(keep_listening(peer.clone(), filter, None));
    }
}

/// The changes that the server says it tells; `None`: none, or it tells them unasked.
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
