//! Subscriptions since 2026-07-28 (`subscriptions/listen`), asked for again where one ends before its connection does.

use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, Subscription};

/// Pause before a subscription that ended is asked for again.
const PAUSE: Duration = Duration::from_secs(5);
/// Subscriptions that are asked for in one connection, one after the other.
const ATTEMPTS: usize = 5;

/// Keeps a subscription alive: the first one, if there is one already, then others. Returns when the connection has ended, or after the
/// last attempt. Notifications are taken by the connection's tap before they get here.
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
