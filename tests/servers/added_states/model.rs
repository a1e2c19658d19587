//! The decisions of persons and agents, and what follows from them, written down in the plainest way.

use std::collections::{BTreeMap, BTreeSet};

use super::{NARROW, NARROW_PROFILE, RESOURCE, tools};

/// The present state of a server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// The agent that has added the server. `None` if the provider provides it.
    pub(super) owner: Option<&'static str>,
    /// The name of its log.
    pub(super) log: String,
    pub(super) variant: usize,
    pub(super) approved: Option<usize>,
}

/// The decisions that were made, as a person would write them down.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) servers: BTreeMap<String, Server>,
    /// Approvals of servers that the provider does not provide at present.
    pub(super) kept: BTreeMap<String, usize>,
    pub(super) toolbox: Vec<&'static str>,
    pub(super) granted: BTreeMap<&'static str, bool>,
    pub(super) ever_approved: BTreeSet<String>,
    /// The servers that a person has disabled in the present gateway, whether they exist or not.
    pub(super) disabled: BTreeSet<String>,
    pub(super) has_profiles: bool,
}

impl Model {
    /// Returns the server that the number of a step selects.
    pub(super) fn nth(&self, number: usize) -> Option<String> {
        self.servers.keys().nth(number % self.servers.len().max(1)).cloned()
    }

    /// Returns the patterns that may apply to a server, in order: whether each one denies (`!`), and its part after the server's name.
    pub(super) fn fitting(&self, agent: &str, name: &str, server: &Server) -> Vec<(bool, &'static str)> {
        let given = self.granted.get(agent) == Some(&true);
        let fits = |pattern: &&'static str| {
            let (denies, rest) = pattern.strip_prefix('!').map_or((false, *pattern), |rest| (true, rest));
            let (of, item) = rest.split_once('/')?;
            let by_name = of == "*" || of == name;
            let fits = match server.owner {
                Some(owner) => denies && by_name || of == format!("agent:{owner}:{name}"),
                None => by_name,
            };
            fits.then_some((denies, item))
        };
        self.toolbox.iter().filter(|_| given && self.is_of_profiles(agent, name)).filter_map(fits).collect()
    }

    pub(super) fn is_of_profiles(&self, agent: &str, name: &str) -> bool {
        !self.has_profiles || agent != NARROW || NARROW_PROFILE.contains(&name)
    }

    /// Returns whether agents without a grant may use everything. This is true until an agent gets its first grant.
    pub(super) fn grants_by_default(&self) -> bool {
        self.granted.is_empty()
    }

    pub(super) fn grants(&self, agent: &str, name: &str, tool: &str) -> bool {
        let server = &self.servers[name];
        let part = |item: &str| item.strip_suffix('*').map_or(item == tool, |start| tool.starts_with(start));
        let last = self.fitting(agent, name, server).into_iter().rfind(|(_, item)| part(item));
        let own = server.owner == Some(agent);
        own || last.is_some_and(|(denies, _)| !denies)
            || server.owner.is_none() && self.grants_by_default() && self.is_of_profiles(agent, name)
    }

    /// Returns whether an agent may read resources or get prompts of a server. Patterns of tools do not give them.
    pub(super) fn may_read(&self, agent: &str, name: &str) -> bool {
        self.is_in_force(name) && !self.disabled.contains(name) && self.grants(agent, name, RESOURCE)
    }

    pub(super) fn is_in_force(&self, name: &str) -> bool {
        self.servers.get(name).is_some_and(|server| server.approved == Some(server.variant))
    }

    pub(super) fn may_call(&self, agent: &str, name: &str, tool: &str) -> bool {
        !self.disabled.contains(name) && self.may_see(agent, name, tool)
    }

    /// Returns whether an agent may know of a tool. Tools of a disabled server are known.
    pub(super) fn may_see(&self, agent: &str, name: &str, tool: &str) -> bool {
        self.is_in_force(name) && tools(self.servers[name].variant).contains(&tool.to_owned()) && self.grants(agent, name, tool)
    }

    /// Returns whether an agent may know the name of a server.
    pub(super) fn may_know(&self, agent: &str, name: &str) -> bool {
        let Some(server) = self.servers.get(name) else { return false };
        let is_named = self.fitting(agent, name, server).iter().any(|(denies, _)| !denies);
        match server.owner {
            Some(owner) => owner == agent || is_named && self.is_in_force(name),
            None => is_named || self.grants_by_default() && self.is_of_profiles(agent, name),
        }
    }
}
