//! Subscriptions to resources. All agents with the same subscription share one request to the server. The request is repeated when the
//! server is connected again.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Request;
use super::item::{ApprovedItem, Target};
use crate::client::{Caller, Lease, Watch};
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::gateway::agent::Agent;
use crate::gateway::availability::Viewer;
use crate::gateway::core::Core;
use crate::gateway::events::Event;
use crate::gateway::{ApprovalRead, CallOptions};
use crate::registry::AgentId;
use crate::sandbox::Stop;

/// The maximum number of resources to which one agent can subscribe. Each subscription stores its URI, whose length the client chooses.
const MAX_OF_AGENT: usize = 256;

/// The subscription to one resource.
struct Subscribed {
    /// The server sends updates until this value is dropped.
    watch: Watch,
    agents: BTreeSet<AgentId>,
}

type ByUri = BTreeMap<String, Subscribed>;

/// The subscriptions of each server, by URI.
#[derive(Default)]
pub(in crate::gateway) struct Subscriptions {
    all: Mutex<BTreeMap<String, ByUri>>,
    /// One lock for each server, held while a request changes the subscriptions at this server. Otherwise one agent could subscribe while
    /// the request of another agent ends the last subscription.
    turns: Mutex<BTreeMap<String, Turn>>,
}

type Turn = Arc<tokio::sync::Mutex<()>>;

impl Subscriptions {
    pub(super) fn add(&self, server: &str, uri: &str, agent: AgentId, watch: Watch) {
        let mut all = self.locked();
        all.entry(server.to_owned()).or_default().insert(uri.to_owned(), Subscribed { watch, agents: BTreeSet::from([agent]) });
    }

    /// Adds an agent to the subscription of another agent. Returns whether there was such a subscription. If so, no request is sent to the
    /// server, because a second subscription would make it report each change twice.
    ///
    /// # Errors
    /// `ERR_BUSY` if the agent already has the maximum number of subscriptions, and this resource is not one of them.
    pub(super) fn join(&self, server: &str, uri: &str, agent: AgentId) -> Result<bool> {
        let mut all = self.locked();
        let of_agent = all.values().flat_map(BTreeMap::values).filter(|subscribed| subscribed.agents.contains(&agent)).count();
        let subscribed = all.get_mut(server).and_then(|of_server| of_server.get_mut(uri));
        let is_known = subscribed.as_ref().is_some_and(|subscribed| subscribed.agents.contains(&agent));
        if !is_known && of_agent >= MAX_OF_AGENT {
            return Err(Error::Busy { what: "subscriptions of this agent", limit: MAX_OF_AGENT });
        }
        Ok(subscribed.map(|subscribed| subscribed.agents.insert(agent)).is_some())
    }

    /// Removes the subscription of one agent. Returns whether another agent is still subscribed to this resource.
    pub(in crate::gateway) fn remove(&self, server: &str, uri: &str, agent: AgentId) -> bool {
        let mut all = self.locked();
        let Some(of_server) = all.get_mut(server) else { return false };
        let Some(subscribed) = of_server.get_mut(uri) else { return false };
        subscribed.agents.remove(&agent);
        let is_wanted = !subscribed.agents.is_empty();
        if !is_wanted {
            of_server.remove(uri);
        }
        is_wanted
    }

    /// Removes the subscriptions of a server that has lost its approval or is disabled.
    pub(in crate::gateway) fn forget(&self, server: &str) {
        self.locked().remove(server);
    }

    /// Returns the servers and URIs to which an agent has subscribed.
    fn of_agent(&self, agent: AgentId) -> Vec<(String, String)> {
        let all = self.locked();
        let of_server = |(server, of_server): (&String, &ByUri)| {
            let wanted = of_server.iter().filter(|(_, subscribed)| subscribed.agents.contains(&agent));
            wanted.map(|(uri, _)| (server.clone(), uri.clone())).collect::<Vec<_>>()
        };
        all.iter().flat_map(of_server).collect()
    }

    /// Returns the agents that are subscribed to a resource.
    fn agents(&self, server: &str, uri: &str) -> BTreeSet<AgentId> {
        self.locked().get(server).and_then(|of_server| of_server.get(uri)).map(|subscribed| subscribed.agents.clone()).unwrap_or_default()
    }

    pub(super) fn is_wanted(&self, server: &str, uri: &str) -> bool {
        !self.agents(server, uri).is_empty()
    }

    /// Waits until no other change of the server's subscriptions is in progress.
    pub(super) async fn turn(&self, server: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = Arc::clone(self.turns.lock().entry(server.to_owned()).or_default());
        turn.lock_owned().await
    }

    fn uris(&self, server: &str) -> Vec<String> {
        self.locked().get(server).map(|of_server| of_server.keys().cloned().collect()).unwrap_or_default()
    }

    /// Replaces the watch of the earlier connection by the watch of the new connection.
    fn renew(&self, server: &str, uri: &str, watch: Watch) {
        if let Some(subscribed) = self.locked().get_mut(server).and_then(|of_server| of_server.get_mut(uri)) {
            subscribed.watch = watch;
        }
    }

    fn drop_uri(&self, server: &str, uri: &str) {
        if let Some(of_server) = self.locked().get_mut(server) {
            of_server.remove(uri);
        }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, ByUri>> {
        self.all.lock()
    }
}

impl Agent {
    /// Subscribes to a resource: when it changes, an event is sent. This includes changes during later connections.
    ///
    /// # Errors
    /// The errors of [`Agent::read_resource`], `ERR_PROTOCOL` if the server does not report changes, and `ERR_BUSY` if the agent already
    /// has 256 subscriptions.
    pub async fn subscribe(&self, name: &str, uri: &str) -> Result<()> {
        let request = Request::Subscribe(uri.to_owned());
        self.request_without_run(name, &request, CallOptions::default(), &Stop::new()).await.map(drop)
    }

    /// Ends a subscription. The server gets a request only if no other agent has the same subscription.
    ///
    /// # Errors
    /// The errors of [`Agent::subscribe`].
    pub async fn unsubscribe(&self, name: &str, uri: &str) -> Result<()> {
        self.identity.check_open()?;
        let granted = self.granted(ApprovalRead::Fresh)?;
        if self.core.requests.subscriptions.remove(granted.registry_name(name), uri, self.identity.id) {
            return Ok(());
        }
        let request = Request::Unsubscribe(uri.to_owned());
        self.request_without_run(name, &request, CallOptions::default(), &Stop::new()).await.map(drop)
    }
}

impl Core {
    /// Sends an event that a resource has changed to all agents that are subscribed to it. If no agent is subscribed, sends the event to
    /// the operator.
    pub(in crate::gateway) fn tell_resource_updated(&self, server: &str, uri: &str) {
        let agents = self.requests.subscriptions.agents(server, uri);
        let is_unknown = agents.is_empty();
        let told = |server: &str| Event::ResourceUpdated { server: server.to_owned(), uri: uri.to_owned(), is_subscribed: !is_unknown };
        // An agent may have lost access to the server since it subscribed.
        let seeing = agents.into_iter().filter(|agent| self.registry.is_enabled(server, *agent) && self.may_read_now(*agent, server, uri));
        let listeners: Vec<_> = seeing
            .map(|agent| {
                let identity = self.agents.get(agent)?;
                let granted = self.granted(&identity, ApprovalRead::Cached).ok()?;
                // The event contains the name that the agent's code uses for the server, as the agent subscribed under this name.
                Some((identity.listener.clone()?, told(granted.name_in_code(server.into()).unwrap_or(server))))
            })
            .collect();
        // The gateway's listener gets the event once, for the operator and for all agents without a listener.
        if is_unknown || listeners.iter().any(Option::is_none) {
            self.events.send(&told(server));
        }
        listeners.iter().flatten().for_each(|(listener, event)| self.events.send_to(Some(listener), event));
    }

    /// Returns whether a subscribed agent is still granted the resource. Uses the cached grants.
    fn may_read_now(&self, agent: AgentId, server: &str, uri: &str) -> bool {
        let Some(identity) = self.agents.get(agent) else { return agent == self.people.operator.id };
        let Ok(server) = self.registry.server(server) else { return false };
        self.granted(&identity, ApprovalRead::Cached).is_ok_and(|granted| granted.may_read(&server, uri))
    }

    /// Ends the subscriptions of an agent that has ended.
    pub(in crate::gateway) fn end_subscriptions_of(self: &Arc<Self>, agent: AgentId) {
        for (server, uri) in self.requests.subscriptions.of_agent(agent) {
            self.end_subscription(server, uri, agent);
        }
    }

    /// Ends the subscriptions of an agent to resources of one server.
    pub(in crate::gateway) fn end_subscriptions_to(self: &Arc<Self>, server: &str, agent: AgentId) {
        for (of, uri) in self.requests.subscriptions.of_agent(agent) {
            if of == server {
                self.end_subscription(of, uri, agent);
            }
        }
    }

    /// Ends one subscription. If no other agent has the same subscription, a request is sent to the server. It is sent in the background,
    /// so that the end of an agent does not wait for a server.
    fn end_subscription(self: &Arc<Self>, server: String, uri: String, agent: AgentId) {
        if self.requests.subscriptions.remove(&server, &uri, agent) {
            return;
        }
        let Some(runtime) = self.trust.approval_cache.runtime() else { return };
        let core = Arc::clone(self);
        drop(runtime.spawn(async move { core.stop_updates(&server, &uri).await }));
    }

    async fn stop_updates(&self, server: &str, uri: &str) {
        let Some(connection) = self.connections.live(server).await else { return };
        let _turn = self.requests.subscriptions.turn(server).await;
        if self.requests.subscriptions.is_wanted(server, uri) {
            return;
        }
        let Ok(definition) = self.registry.server(server) else { return };
        let caller = self.caller(&self.people.session, None);
        if let Err(failure) = connection.unwatch(uri, self.call_limits(&definition, &self.grants.everything, None), &caller).await {
            tracing::debug!(server, error = %failure.error, "a subscription could not be cancelled");
        }
    }

    /// Repeats the subscriptions of agents on a new connection. If a subscription cannot be repeated, it ends, and a warning is sent.
    pub(in crate::gateway) async fn resubscribe(&self, server: &Arc<ServerDefinition>, connection: &Lease) {
        let caller = self.caller(&self.people.session, None);
        for uri in self.requests.subscriptions.uris(&server.name) {
            match self.resubscribe_to(server, connection, &uri, &caller).await {
                Ok(watch) => self.requests.subscriptions.renew(&server.name, &uri, watch),
                Err(error) => {
                    self.requests.subscriptions.drop_uri(&server.name, &uri);
                    self.events.warn(format!("a resource of server \"{}\" is no longer watched: {}", server.name, self.redacted(error)));
                }
            }
        }
    }

    async fn resubscribe_to(&self, server: &ServerDefinition, connection: &Lease, uri: &str, caller: &Arc<dyn Caller>) -> Result<Watch> {
        // The approval is checked on behalf of one agent that still sees the resource. Agents that no longer see it get no updates.
        let agents = self.requests.subscriptions.agents(&server.name, uri);
        let seeing = agents.iter().filter_map(|agent| self.agents.get(*agent)).find(|agent| self.may_read_now(agent.id, &server.name, uri));
        let identity = seeing.unwrap_or_else(|| Arc::clone(&self.people.operator));
        let granted = self.granted(&identity, ApprovalRead::Fresh)?;
        let viewer = Viewer { id: identity.id, granted: &granted };
        let item = ApprovedItem::find(server, &self.usable(server, &viewer)?, &granted, Target::Resource(uri))?;
        item.compare(&server.name, &*connection.manifest().await?)?;
        connection.watch(uri, self.call_limits(server, &granted, None), caller).await.map_err(|failure| failure.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_no_more_subscriptions_than_its_share_and_another_has_its_own() {
        let (subscriptions, greedy, other) = (Subscriptions::default(), AgentId(1), AgentId(2));
        for number in 0..MAX_OF_AGENT {
            let (server, uri) = (["a", "b"][number % 2], format!("x://{number}"));
            assert!(!subscriptions.join(server, &uri, greedy).unwrap());
            subscriptions.add(server, &uri, greedy, Watch::of_nothing());
        }
        assert_eq!(subscriptions.join("a", "x://new", greedy).unwrap_err().code(), "ERR_BUSY");
        assert!(subscriptions.join("a", "x://0", greedy).unwrap(), "a subscription that it has");
        assert!(subscriptions.join("a", "x://0", other).unwrap());
        assert!(!subscriptions.join("a", "x://new", other).unwrap());
        subscriptions.remove("b", "x://1", greedy);
        assert!(!subscriptions.join("a", "x://new", greedy).unwrap());
    }
}
