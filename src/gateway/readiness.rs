//! Reports about servers. When a gateway opens, it reports problems of the config. Before a run, it reports servers of the run that will
//! probably not start, and servers of the config that the run does not have.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::Gateway;
use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::core::Core;
use super::events::Event;
use super::granted::Granted;
use super::tasks::AgentView;
use crate::client::ConnectionState;
use crate::config::{ServerDefinition, ServerSource, missing_variables};
use crate::registry::{Entry, Obstacle};
use crate::text::variant_of;

/// The servers that were reported to the operator as unavailable, each with the reason.
#[derive(Default)]
pub(super) struct ReportedUnavailable(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    /// The agents for whose runs the servers were checked since the last change of a server. Agents of the same name
    /// count as one, and so do all agents whose names the operator has not chosen.
    checked: BTreeSet<Option<ServerSource>>,
    /// The servers that were reported already, each with the reason.
    sent: BTreeSet<(String, String)>,
}

impl ReportedUnavailable {
    /// Records that servers have changed, so that the next run of each agent checks the servers again.
    pub(super) fn servers_changed(&self) {
        self.0.lock().checked.clear();
    }
}

impl Gateway {
    /// Sends a warning for each problem in the config that does not prevent opening.
    pub(super) fn warn_at_open(&self, warnings: Vec<String>) {
        let invalid = self.core.registry.entries().into_iter().filter_map(|entry| match entry {
            Entry::Invalid(server) => {
                Some(format!("server \"{}\" cannot be used: {}", server.name, self.core.redacted(server.error.clone())))
            }
            Entry::Valid(_) => None,
        });
        self.warn_of(warnings.into_iter().chain(invalid));
    }

    pub(super) fn warn_of(&self, warnings: impl IntoIterator<Item = String>) {
        warnings.into_iter().for_each(|warning| self.core.events.warn(warning));
    }
}

impl Core {
    /// Returns a sentence for each server that will probably not start: because a variable that it needs is not set, or because its last
    /// connection failed. Connects to no server.
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

    /// Tells the operator, by events, which servers of the config a run of this agent does not have although nobody has disabled them.
    /// Reports each pair of a server and a reason only once. The servers are checked only at the first run of an agent after a change.
    /// Never fails, because the run does not need these servers.
    pub(super) fn tell_unavailable(&self, identity: &Identity, granted: &Granted) {
        let mut reports = self.requests.unavailable.0.lock();
        if !reports.checked.insert(identity.own_source().cloned()) {
            return;
        }
        let view = AgentView::of(identity, granted);
        let mut new = Vec::new();
        for entry in self.registry.entries() {
            // A variant has its own approval, and only agents with its profiles have it.
            if !entry.source().is_operators_config() || variant_of(entry.name()).is_some() {
                continue;
            }
            // Servers that are disabled or not granted to this agent are not reported, because somebody has decided this.
            let Ok(Some(obstacle)) = self.obstacle(view, &entry, false, ApprovalRead::Cached) else { continue };
            let is_reported =
                matches!(obstacle, Obstacle::Invalid | Obstacle::NotApproved | Obstacle::ToolsNotApproved | Obstacle::NotEnabled);
            let (server, reason) = (entry.name().to_owned(), obstacle.to_string());
            if is_reported && reports.sent.insert((server.clone(), reason.clone())) {
                new.push(Event::ServerUnavailable { server, reason });
            }
        }
        drop(reports);
        for event in &new {
            self.events.send(event);
        }
    }
}

/// Returns a sentence that lists the variables that a server needs but that are not set.
pub(super) fn not_ready(name: &str, missing: &[String]) -> String {
    let (noun, verb) = if missing.len() == 1 { ("variable", "is") } else { ("variables", "are") };
    format!("server \"{name}\" is not ready: the {noun} {} {verb} not set", missing.join(", "))
}

/// Returns a sentence which says that the last connection failed. Contains only the error code, because the message may contain text of the
/// server.
fn last_failed(name: &str, code: &str) -> String {
    format!("server \"{name}\" may not be ready: its last connection failed with {code}. The next call tries again")
}
