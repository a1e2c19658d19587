//! Subscriptions to resources. They are renewed when their server is connected anew.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::item::{ApprovedItem, Target};
use crate::client::{Caller, Lease, Watch};
use crate::config::ServerDefinition;
use crate::error::Result;
use crate::gateway::core::Core;

/// The subscriptions of each server, by URI.
#[derive(Default)]
pub(in crate::gateway) struct Subscriptions(Mutex<BTreeMap<String, BTreeMap<String, Watch>>>);

impl Subscriptions {
    pub(super) fn add(&self, server: &str, uri: &str, watch: Watch) {
        self.locked().entry(server.to_owned()).or_default().insert(uri.to_owned(), watch);
    }

    pub(in crate::gateway) fn remove(&self, server: &str, uri: &str) {
        if let Some(of_server) = self.locked().get_mut(server) {
            of_server.remove(uri);
        }
    }

    /// Removes the subscriptions of a server that has lost its approval or is disabled.
    pub(in crate::gateway) fn forget(&self, server: &str) {
        self.locked().remove(server);
    }

    fn uris(&self, server: &str) -> Vec<String> {
        self.locked().get(server).map(|of_server| of_server.keys().cloned().collect()).unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, Watch>>> {
        self.0.lock()
    }
}

impl Core {
    /// Renews subscriptions on a new connection. Subscriptions that fail are removed.
    pub(in crate::gateway) async fn resubscribe(&self, server: &Arc<ServerDefinition>, connection: &Lease) {
        let caller = self.caller(&self.people.session, None);
        for uri in self.requests.subscriptions.uris(&server.name) {
            match self.resubscribe_to(server, connection, &uri, &caller).await {
                Ok(watch) => self.requests.subscriptions.add(&server.name, &uri, watch),
                Err(error) => {
                    self.requests.subscriptions.remove(&server.name, &uri);
                    self.events.warn(format!("a resource of server \"{}\" is no longer watched: {}", server.name, self.redacted(error)));
                }
            }
        }
    }

    async fn resubscribe_to(&self, server: &ServerDefinition, connection: &Lease, uri: &str, caller: &Arc<dyn Caller>) -> Result<Watch> {
        let item = ApprovedItem::find(server, &self.usable(server)?, Target::Resource(uri))?;
        item.compare(&server.name, &*connection.manifest().await?)?;
        connection.watch(uri, self.call_limits(server, None), caller).await.map_err(|failure| failure.error)
    }
}
