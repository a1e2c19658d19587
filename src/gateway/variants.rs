//! Servers that agents have through their profiles. Creates the variants of servers that profiles need, and closes the connection of a
//! server when the last agent that has it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Gateway;
use super::agent::{Agent, Identity};
use super::approval_cache::ApprovalRead;
use super::callbacks::CallScope;
use super::core::Core;
use super::granted::profile_conflict;
use crate::client::ConnectionState;
use crate::config::{ServerDefinition, variants_of};
use crate::error::Result;

impl Gateway {
    /// Enables the variants of a server, each as soon as it is approved, but not the server itself. Does not enable a variant if a person
    /// has disabled the variant or the server.
    pub(crate) fn enable_variants(&self, server: &str) {
        self.core.registry.enable_variants(server);
    }
}

impl Agent {
    /// Returns whether the agent has servers through its profiles. The connections of such servers are closed when the last agent that has
    /// them ends.
    pub(crate) fn has_servers_by_profiles(&self) -> bool {
        !self.core.servers_by_profiles(&self.identity).is_empty()
    }
}

impl Core {
    /// Creates the variants for the profiles of an agent that is being opened.
    ///
    /// # Errors
    /// `ERR_PROFILE_CONFLICT` if two profiles contain different values of one setting of a server.
    pub(super) fn take_up_profiles(&self, profiles: &[String]) -> Result<()> {
        let settings = self.grants.settings();
        let chosen = profiles.iter().filter_map(|name| settings.profiles.get_key_value(name));
        variants_of(chosen).map_err(|conflict| self.redacted(profile_conflict(&conflict)))?;
        self.registry.make_variants(profiles);
        Ok(())
    }

    /// Returns the registry's names of the servers that an agent has through its profiles. Returns an empty set if the agent's grants
    /// cannot be read.
    pub(super) fn servers_by_profiles(&self, identity: &Identity) -> BTreeSet<String> {
        let granted = self.granted(identity, ApprovalRead::Cached);
        granted.map(|granted| granted.by_profiles().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Returns the registry's names of the servers that all open agents have through their profiles.
    pub(super) fn held_by_profiles(&self) -> BTreeSet<String> {
        self.agents.all().iter().flat_map(|identity| self.servers_by_profiles(identity)).collect()
    }

    /// Records whether the operator's own agent uses a server in a run or a call. A connection test is not a use, and reading the tools for
    /// an approval is not a use either.
    pub(super) fn note_use(&self, server: &ServerDefinition, is_new: bool, scope: &Arc<CallScope>) {
        if self.grants.settings().profiles.is_empty() {
            return;
        }
        let is_operators = scope.identity.is_operator() && !Arc::ptr_eq(scope, &self.people.session);
        let mut used = self.used_by_operator.lock();
        if is_operators {
            used.insert(server.name.clone());
        } else if is_new {
            used.remove(&server.name);
        }
    }

    /// Of these servers, closes the connections of those that no open agent has through its profiles and that the operator's own agent does
    /// not use.
    pub(super) async fn end_left(&self, servers: BTreeSet<String>) {
        let held = if servers.is_empty() { BTreeSet::new() } else { self.held_by_profiles() };
        let is_left = |server: &String| {
            !held.contains(server)
                && !self.used_by_operator.lock().contains(server)
                && self.connections.state(server) == ConnectionState::Connected
        };
        let ended: Vec<_> = servers.into_iter().filter(is_left).collect();
        futures::future::join_all(ended.iter().map(|server| self.connections.close(server))).await;
    }

    /// Does the same as [`Self::end_left`] in the background, because the JavaScript thread may be the one that drops an agent.
    pub(super) fn end_left_soon(self: &Arc<Self>, servers: BTreeSet<String>) {
        // If there is no runtime, the gateway is closed and its servers have ended.
        let Some(runtime) = self.trust.approval_cache.runtime().filter(|_| !servers.is_empty()) else { return };
        let core = Arc::clone(self);
        drop(runtime.spawn(async move { core.end_left(servers).await }));
    }
}
