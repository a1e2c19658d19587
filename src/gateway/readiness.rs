//! What is told about servers before a run: those that it has and that will probably not start, and those of the config that it does not have.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::events::Event;
use super::granted::Granted;
use super::tasks::AgentView;
use crate::client::ConnectionState;
use crate::config::{ServerDefinition, missing_variables};
use crate::registry::Obstacle;
use crate::text::variant_of;

/// The servers about which the operator was told, each with the reason.
#[derive(Default)]
pub(super) struct ToldUnavailable(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// True if no server has changed since the last look.
    is_current: bool,
    said: BTreeSet<(String, String)>,
}

impl ToldUnavailable {
    /// Records that servers have changed, so that the next run looks at them again.
    pub(super) fn servers_changed(&self) {
        self.0.lock().is_current = false;
    }
}

impl Core {
    /// Returns a sentence for each server that will probably not start: because variables are not set, or because its last connection
    /// failed. Connects to no server.
    pub(super) fn readiness_warnings<'s>(&self, servers: impl Iterator<Item = (&'s str, &'s ServerDefinition)>) -> Vec<String> {
        let warning = |(name, server): (&str, &ServerDefinition)| {
            let missing = missing_variables(server, &self.surroundings.environment);
            let is_down = !matches!(self.connections.state(&server.name), ConnectionState::Connected | ConnectionState::Connecting);
            match self.registry.last_error(&server.name).filter(|_| is_down) {
                _ if !missing.is_empty() => Some(not_ready(name, &missing)),
                Some(error) => Some(last_failed(name, error.code)),
                None => None,
            }
        };
        servers.filter_map(warning).collect()
    }

    /// Tells the operator, by events, which servers of the config a run of this agent does not have although nobody has disabled them. A server and a
    /// reason are told once, and only the first run after a change looks at the servers. Never fails, as the run does not need these servers.
    pub(super) fn tell_unavailable(&self, identity: &Identity, granted: &Granted) {
        let mut told = self.requests.unavailable.0.lock();
        if std::mem::replace(&mut told.is_current, true) {
            return;
        }
        let view = AgentView::of(identity, granted);
        let mut new = Vec::new();
        for entry in self.registry.entries() {
            // A variant has its own approval, and only agents with its profiles have it.
            if !entry.source().is_operators_config() || variant_of(entry.name()).is_some() {
                continue;
            }
            // Servers that are disabled, or not granted to this agent, are left out on purpose.
            let Ok(Some(obstacle)) = self.obstacle(view, &entry, false, ApprovalRead::Cached) else { continue };
            let is_told = matches!(obstacle, Obstacle::Invalid | Obstacle::NotApproved | Obstacle::ToolsNotApproved | Obstacle::NotEnabled);
            let (server, reason) = (entry.name().to_owned(), obstacle.to_string());
            if is_told && told.said.insert((server.clone(), reason.clone())) {
                new.push(Event::ServerUnavailable { server, reason });
            }
        }
        drop(told);
        new.iter().for_each(|event| self.events.send(event));
    }
}

/// Returns a sentence that lists the variables that a server needs but that are not set.
pub(super) fn not_ready(name: &str, missing: &[String]) -> String {
    let (noun, verb) = if missing.len() == 1 { ("variable", "is") } else { ("variables", "are") };
    format!("server \"{name}\" is not ready: the {noun} {} {verb} not set", missing.join(", "))
}

/// Returns a sentence that the last connection failed. Contains only the error code, because the message may contain text of the server.
fn last_failed(name: &str, code: &str) -> String {
    format!("server \"{name}\" may not be ready: its last connection failed with {code}. The next call tries again")
}
