//! Subscription to changes of the server's lists. Since MCP 2026-07-28, a server announces these changes only to subscribers.

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::Peer;

use super::listening::keep_listening;

/// Subscribes to changes of the server's lists until the connection ends, if the server supports such a subscription.
pub(in crate::client) fn listen(peer: &Peer<RoleClient>) {
    if let Some(filter) = filter(peer) {
        tokio::spawn(keep_listening(peer.clone(), filter, None));
    }
}

/// Returns a filter with the list changes that the server can announce. Returns `None` if it can announce none, or if it announces them
/// without a subscription.
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
