//! Subscriptions with `subscriptions/listen` (since MCP 2026-07-28). If a subscription ends before its connection, it is requested again.

use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, Subscription};

/// Pause before a subscription that has ended is requested again.
const PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of subscriptions that one task uses, one after another.
const ATTEMPTS: usize = 5;

/// Keeps a subscription alive. Starts with `first` if it is given, and requests a new subscription whenever one ends. Returns when the
/// connection has ended, or after the last attempt. This function ignores the notifications, because the connection's interceptor has
/// already handled them.
pub(in crate::client) async fn keep_listening(peer: Peer<RoleClient>, filter: SubscriptionFilter, first: Option<Subscription>) {
    let mut subscription = first;
    for _ in 0..ATTEMPTS {
        if subscription.is_none() {
            match peer.listen(filter.clone()).await {
                Ok(next) => subscription = Some(next),
                Err(error) => tracing::debug!(%error, "a subscription was refused"),
            }
        }
        if let Some(mut heard) = subscription.take() {
            while matches!(heard.next().await, Ok(Some(_))) {}
        }
        if peer.is_transport_closed() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
