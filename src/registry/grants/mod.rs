//! Grants: the rules that determine which items each agent may use. Everything in this module is a pure function of the config's settings
//! and the rows of the store.
//!
//! The rule: an agent's patterns are read in the order of its toolboxes, and the last pattern that matches an item decides. There is one
//! exception: if this pattern allows the item, and another matching pattern of the same length denies it, the item is denied. An item that
//! no pattern matches is denied.

mod explain;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use explain::Verdict;

use super::profiles::Stack;
use crate::config::{AgentDefinition, DefaultGrant, GrantSettings, Item, Pattern, ProfileConflict, ServerRef};

/// The patterns from all toolboxes of one agent, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Creates the list of patterns, in this order.
    #[must_use]
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Self(patterns)
    }

    /// Returns whether an item is allowed, according to the rule of this module.
    ///
    /// ```
    /// use hyperlight_mcp::config::{Item, Pattern};
    /// use hyperlight_mcp::registry::Patterns;
    /// let patterns = |texts: &[&str]| Patterns::new(texts.iter().map(|text| Pattern::parse(text).unwrap()).collect());
    /// let allows = |texts: &[&str]| patterns(texts).allows("github".into(), Item::Tool("delete_repo"));
    /// assert!(allows(&["github/*"]) && !allows(&["github/*", "!github/delete_*"]) && allows(&["!github/delete_*", "github/*"]));
    /// assert!(!allows(&["!github/d*", "github/d*"]), "of the same length, the denial wins");
    /// ```
    #[must_use]
    pub fn allows(&self, server: ServerRef<'_>, item: Item<'_>) -> bool {
        self.deciding(server, item).is_some_and(|pattern| !pattern.denies())
    }

    /// Returns the pattern that decides whether an item is allowed, or `None` if no pattern matches the item.
    #[must_use]
    pub fn deciding(&self, server: ServerRef<'_>, item: Item<'_>) -> Option<&Pattern> {
        let matching: Vec<&Pattern> = self.0.iter().filter(|pattern| pattern.matches(server, item)).collect();
        let last = *matching.last()?;
        if last.denies() {
            return Some(last);
        }
        Some(matching.into_iter().find(|other| other.denies() && other.length() == last.length()).unwrap_or(last))
    }

    /// Returns whether the patterns can allow at least one item of a server. The items of the server need not be known. If this is false,
    /// the agent must not learn the server's name.
    #[must_use]
    pub fn reaches(&self, server: ServerRef<'_>) -> bool {
        self.0.iter().enumerate().any(|(position, pattern)| {
            let is_overruled = |(at, other): (usize, &Pattern)| {
                other.denies() && other.matches_all_of(server) && (at > position || other.length() == pattern.length())
            };
            !pattern.denies() && pattern.matches_server(server) && !self.0.iter().enumerate().any(is_overruled)
        })
    }
}

/// The items that an agent may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Everything that is approved and enabled. Does not include servers that another agent has added: only a pattern that names such a
    /// server grants it.
    All,
    /// Everything that the patterns allow.
    Only(Arc<Patterns>),
}

impl Access {
    /// Returns whether the agent may use an item of a server.
    #[must_use]
    pub fn allows(&self, server: ServerRef<'_>, item: Item<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Only(patterns) => patterns.allows(server, item),
        }
    }

    /// Returns whether a pattern names a server that another agent has added, and can allow at least one item of the server.
    #[must_use]
    pub fn reaches_by_name(&self, server: ServerRef<'_>) -> bool {
        match self {
            Self::All => false,
            Self::Only(patterns) => server.added_by.is_some() && patterns.reaches(server),
        }
    }

    /// Returns whether the agent may know that a server with this name exists.
    #[must_use]
    pub fn reaches(&self, server: ServerRef<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Only(patterns) => patterns.reaches(server),
        }
    }
}

/// The toolboxes and grants from the config and the store. The config has priority: if the config and the store have an entry of the same
/// name, the row of the store is ignored.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    settings: Arc<GrantSettings>,
    /// Toolboxes that were made at run time.
    toolboxes: BTreeMap<String, Vec<Pattern>>,
    /// Toolboxes that were granted to agents at run time.
    agents: BTreeMap<String, Vec<String>>,
}

/// The source of a toolbox or a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantSource {
    Config,
    /// Made at run time, and stored in the store.
    Store,
}

/// A toolbox in the list of all toolboxes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolboxInfo {
    pub name: String,
    pub patterns: Vec<String>,
    pub source: GrantSource,
}

/// The toolboxes of one agent in the list of all grants.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantInfo {
    pub agent: String,
    pub toolboxes: Vec<String>,
    pub source: GrantSource,
}

/// The list of all toolboxes and grants.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantList {
    pub toolboxes: Vec<ToolboxInfo>,
    pub agents: Vec<GrantInfo>,
    /// The grant for agents without an entry.
    pub default_grant: DefaultGrant,
}

impl Grants {
    /// Merges the config's settings with the rows of the store.
    #[must_use]
    pub fn new(settings: Arc<GrantSettings>, toolboxes: BTreeMap<String, Vec<Pattern>>, agents: BTreeMap<String, Vec<String>>) -> Self {
        Self { settings, toolboxes, agents }
    }

    /// Returns the items that an agent may use. `name` is the name that the operator gave the agent, or `None` if the agent has no such
    /// name.
    #[must_use]
    pub fn access(&self, name: Option<&str>) -> Access {
        match name.and_then(|name| self.toolboxes_of(name)) {
            // The missing toolbox may contain patterns that deny, so the agent gets nothing until the toolbox exists again.
            Some(toolboxes) => Access::Only(Arc::new(self.patterns(toolboxes).unwrap_or_default())),
            None if self.default_grant() == DefaultGrant::All => Access::All,
            None => Access::Only(Arc::default()),
        }
    }

    /// Returns the grant for agents without an entry. If the config does not set this grant, such agents may use everything as long as no
    /// agent has an entry. As soon as one agent has an entry, they may use nothing. Otherwise an agent with a misspelt name would have all
    /// rights.
    #[must_use]
    pub fn default_grant(&self) -> DefaultGrant {
        let has_entries = !self.agents.is_empty() || self.settings.agents.values().any(|agent| agent.toolboxes.is_some());
        self.settings.default_grant.unwrap_or(if has_entries { DefaultGrant::Nothing } else { DefaultGrant::All })
    }

    /// Returns the names of an agent's profiles. If its entry in the config names profiles, returns these, and otherwise the profiles that
    /// the agent was opened with.
    #[must_use]
    pub fn profiles_of<'a>(&'a self, agent: Option<&str>, opened_with: &'a [String]) -> &'a [String] {
        let entry = agent.and_then(|agent| self.settings.agents.get(agent));
        entry.and_then(|entry| entry.profiles.as_deref()).unwrap_or(opened_with)
    }

    /// Combines profiles to a stack. Returns `None` if the config has no profiles and `profiles` is empty: in this case, all servers are
    /// available. If the config has profiles, an agent without profiles has no servers. The same is true for an agent with a profile that
    /// does not exist.
    ///
    /// # Errors
    /// The conflict of two profiles that set the same setting of one server differently.
    pub fn stack(&self, profiles: &[String]) -> Result<Option<Stack>, ProfileConflict> {
        if self.settings.profiles.is_empty() && profiles.is_empty() {
            return Ok(None);
        }
        let all: Option<Vec<_>> = profiles.iter().map(|name| self.settings.profiles.get_key_value(name)).collect();
        Stack::of(all.unwrap_or_default()).map(Some)
    }

    /// Returns the names of an agent's toolboxes. Returns `None` if the agent has no entry.
    #[must_use]
    pub fn toolboxes_of(&self, agent: &str) -> Option<&[String]> {
        match self.settings.agents.get(agent) {
            Some(AgentDefinition { toolboxes: Some(toolboxes), .. }) => Some(toolboxes),
            _ => self.agents.get(agent).map(Vec::as_slice),
        }
    }

    /// Returns the place in the config that grants toolboxes to an agent, if there is one.
    #[must_use]
    pub fn place_of_agent(&self, agent: &str) -> Option<&str> {
        self.settings.agents.get(agent).filter(|agent| agent.toolboxes.is_some()).map(|agent| agent.place.as_str())
    }

    /// Returns the place in the config that defines a toolbox, if there is one.
    #[must_use]
    pub fn place_of_toolbox(&self, toolbox: &str) -> Option<&str> {
        self.settings.toolboxes.get(toolbox).map(|toolbox| toolbox.place.as_str())
    }

    /// Returns the patterns of a toolbox.
    #[must_use]
    pub fn toolbox(&self, name: &str) -> Option<&[Pattern]> {
        self.settings.toolboxes.get(name).map(|toolbox| &toolbox.patterns).or_else(|| self.toolboxes.get(name)).map(Vec::as_slice)
    }

    /// Returns the names of all toolboxes.
    #[must_use]
    pub fn toolbox_names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.settings.toolboxes.keys().chain(self.toolboxes.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the names of all agents that have an entry.
    #[must_use]
    pub fn agent_names(&self) -> Vec<&str> {
        let of_config = self.settings.agents.iter().filter(|(_, agent)| agent.toolboxes.is_some()).map(|(name, _)| name);
        let mut names: Vec<_> = of_config.chain(self.agents.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the agents that are granted a toolbox.
    #[must_use]
    pub fn holders(&self, toolbox: &str) -> Vec<&str> {
        let has = |agent: &&str| self.toolboxes_of(agent).is_some_and(|toolboxes| toolboxes.iter().any(|name| name == toolbox));
        self.agent_names().into_iter().filter(has).collect()
    }

    /// Returns whether at least one toolbox could grant a server that an agent has added to another agent. Includes toolboxes that no agent
    /// has.
    #[must_use]
    pub fn names_addition(&self, server: ServerRef<'_>) -> bool {
        let allows = |pattern: &Pattern| !pattern.denies() && pattern.matches_server(server);
        server.added_by.is_some() && self.toolbox_names().into_iter().flat_map(|name| self.toolbox(name).unwrap_or_default()).any(allows)
    }

    /// Lists all toolboxes and grants.
    #[must_use]
    pub fn list(&self) -> GrantList {
        let source = |place: Option<&str>| if place.is_some() { GrantSource::Config } else { GrantSource::Store };
        let toolbox = |name: &str| ToolboxInfo {
            name: name.to_owned(),
            patterns: self.toolbox(name).unwrap_or_default().iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            source: source(self.place_of_toolbox(name)),
        };
        let agent = |name: &str| GrantInfo {
            agent: name.to_owned(),
            toolboxes: self.toolboxes_of(name).unwrap_or_default().to_vec(),
            source: source(self.place_of_agent(name)),
        };
        GrantList {
            toolboxes: self.toolbox_names().into_iter().map(toolbox).collect(),
            agents: self.agent_names().into_iter().map(agent).collect(),
            default_grant: self.default_grant(),
        }
    }

    /// Returns the patterns of several toolboxes, in order. Returns `None` if one of them does not exist.
    fn patterns(&self, toolboxes: &[String]) -> Option<Patterns> {
        let all: Option<Vec<&[Pattern]>> = toolboxes.iter().map(|name| self.toolbox(name)).collect();
        Some(Patterns(all?.concat()))
    }
}

#[cfg(test)]
mod tests;
