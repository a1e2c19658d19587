//! Subscriptions to resources. They use `resources/subscribe` before MCP 2026-07-28, and `subscriptions/listen` since then.

use std::sync::Arc;

use rmcp::model::{ClientRequest, SubscriptionFilter};
use serde_json::json;
use tokio::task::JoinHandle;

use super::era::Era;
use super::listening::keep_listening;
use super::tools::custom;
use super::{Connection, millis};
use crate::client::clock::CallLimits;
use crate::client::inbound::caller::Caller;
use crate::client::wire::answer::CallFailure;
use crate::error::Error;

const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// A subscription to a resource. Since MCP 2026-07-28, dropping this value ends the subscription.
#[derive(Debug)]
pub struct Watch(Option<JoinHandle<()>>);

#[cfg(test)]
impl Watch {
    /// Makes a subscription that was never sent to a server.
    pub(crate) fn of_nothing() -> Self {
        Self(None)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(listening) = &self.0 {
            listening.abort();
        }
    }
}

impl Connection {
    /// Subscribes to the changes of a resource. The subscription is valid for this connection only.
    ///
    /// # Errors
    /// Same errors as [`Connection::call`], and `ERR_PROTOCOL` if the server does not announce changes of this resource.
    pub async fn watch(&self, uri: &str, limits: CallLimits, caller: &Arc<dyn Caller>) -> std::result::Result<Watch, CallFailure> {
        // The subscription is recorded before it is sent, because the server may announce a change immediately.
        self.updates.subscribe(uri);
        self.watch_now(uri, limits, caller).await.inspect_err(|_| self.updates.unsubscribe(uri))
    }

    async fn watch_now(&self, uri: &str, limits: CallLimits, caller: &Arc<dyn Caller>) -> std::result::Result<Watch, CallFailure> {
        if self.era == Era::Initialize {
            self.request(SUBSCRIBE, legacy(SUBSCRIBE, uri), limits, caller).await?;
            return Ok(Watch(None));
        }
        let filter = SubscriptionFilter::builder().resource_subscription(uri).build();
        let Ok(heard) = tokio::time::timeout(limits.timeout, self.peer.listen(filter.clone())).await else {
            let (server, tool, limit_ms) = (self.server.clone(), SUBSCRIBE.to_owned(), millis(limits.timeout));
            return Err(Error::CallTimeout { server, tool: tool.into(), limit_ms, limit_name: "callTimeoutMs" }.into());
        };
        let subscription = match heard {
            Ok(subscription) => subscription,
            Err(error) => return Err(self.failure(SUBSCRIBE, &error).await),
        };
        let told = subscription.acknowledged().resource_subscriptions.as_ref();
        if !told.is_some_and(|uris| uris.iter().any(|known| known == uri)) {
            let message = "it does not announce changes of this resource".to_owned();
            return Err(Error::UnusableAnswer { server: self.server.clone(), tool: SUBSCRIBE.into(), problem: message.into() }.into());
        }
        Ok(Watch(Some(self.runtime.spawn(keep_listening(self.peer.clone(), filter, Some(subscription))))))
    }

    /// Unsubscribes from a resource. Since MCP 2026-07-28 this method sends nothing, because dropping the [`Watch`] ends the subscription.
    ///
    /// # Errors
    /// Same errors as [`Connection::call`].
    pub async fn unwatch(&self, uri: &str, limits: CallLimits, caller: &Arc<dyn Caller>) -> std::result::Result<(), CallFailure> {
        if self.era == Era::Initialize {
            self.request(UNSUBSCRIBE, legacy(UNSUBSCRIBE, uri), limits, caller).await?;
        }
        self.updates.unsubscribe(uri);
        Ok(())
    }
}

/// Makes rmcp's typed request if possible, because rmcp derives the HTTP headers from the type. Otherwise makes an untyped request.
fn legacy(method: &str, uri: &str) -> ClientRequest {
    let request = json!({ "method": method, "params": { "uri": uri } });
    serde_json::from_value(request).unwrap_or_else(|_| custom(method, json!({ "uri": uri })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_before_are_the_protocols_own() {
        for method in [SUBSCRIBE, UNSUBSCRIBE] {
            let request = legacy(method, "a:b");
            assert!(!matches!(request, ClientRequest::CustomRequest(_)), "{method}");
            assert_eq!(serde_json::to_value(&request).unwrap(), json!({ "method": method, "params": { "uri": "a:b" } }));
        }
    }
}
