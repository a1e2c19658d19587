//! Profiles: named sets of servers with overrides, of which an agent takes up one or several. A pure function of the config's settings.
//!
//! Stacked: the union of the servers; for a server of several profiles all of their filters, and the stricter of each limit and of `confirm`. A
//! profile that has a server without overrides does not loosen what another one says.

use std::collections::BTreeMap;

use crate::config::{Confirm, Item, Overrides, ProfileDefinition};

/// The servers that an agent has by its profiles, each with what narrows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    servers: BTreeMap<String, Overrides>,
}

impl Stack {
    /// Stacks profiles. Their order does not matter.
    ///
    /// ```
    /// use hyperlight_mcp::config::{Confirm, parse_text};
    /// use hyperlight_mcp::registry::Stack;
    /// let text = r#"{ "profiles": { "a": { "servers": { "files": { "timeoutMs": 500 } } },
    ///     "b": { "servers": { "files": { "timeoutMs": 900, "confirm": "always" }, "web": {} } } } }"#;
    /// let profiles = parse_text(text, "config.json", 20).unwrap().grants.profiles;
    /// let stack = Stack::of(profiles.values());
    /// assert!(stack.has("web") && !stack.has("other"));
    /// assert_eq!(stack.stricter_timeout_ms("files", 700), 500);
    /// assert_eq!(stack.stricter_confirm("files", Confirm::Never), Confirm::Always);
    /// ```
    pub fn of<'p>(profiles: impl IntoIterator<Item = &'p ProfileDefinition>) -> Self {
        let mut servers: BTreeMap<String, Overrides> = BTreeMap::new();
        for (name, overrides) in profiles.into_iter().flat_map(|profile| &profile.servers) {
            let stacked = servers.entry(name.clone()).or_default();
            let Overrides { tools, resources, prompts, call_timeout_ms, max_call_timeout_ms, confirm } = overrides;
            stacked.tools.extend_from_slice(tools);
            stacked.resources.extend_from_slice(resources);
            stacked.prompts.extend_from_slice(prompts);
            stacked.call_timeout_ms = least(stacked.call_timeout_ms, *call_timeout_ms);
            stacked.max_call_timeout_ms = least(stacked.max_call_timeout_ms, *max_call_timeout_ms);
            stacked.confirm = stricter(stacked.confirm, *confirm);
        }
        Self { servers }
    }

    /// Returns whether a profile has the server.
    #[must_use]
    pub fn has(&self, server: &str) -> bool {
        self.servers.contains_key(server)
    }

    /// Returns whether all filters of the profiles admit an item.
    #[must_use]
    pub fn allows(&self, server: &str, item: Item<'_>) -> bool {
        self.servers.get(server).is_some_and(|overrides| match item {
            Item::Tool(name) => overrides.tools.iter().all(|filter| filter.admits(name)),
            Item::Prompt(name) => overrides.prompts.iter().all(|filter| filter.admits(name)),
            Item::Resource(uri) => overrides.resources.iter().all(|filter| filter.admits(uri)),
        })
    }

    /// Returns the shorter of a call's time limit and that of the profiles.
    #[must_use]
    pub fn stricter_timeout_ms(&self, server: &str, limit_ms: u64) -> u64 {
        self.servers.get(server).and_then(|overrides| overrides.call_timeout_ms).map_or(limit_ms, |own| own.min(limit_ms))
    }

    /// Returns the shorter of a call's longest time and that of the profiles.
    #[must_use]
    pub fn stricter_max_timeout_ms(&self, server: &str, limit_ms: u64) -> u64 {
        self.servers.get(server).and_then(|overrides| overrides.max_call_timeout_ms).map_or(limit_ms, |own| own.min(limit_ms))
    }

    /// Returns the stricter of a server's `confirm` and that of the profiles.
    #[must_use]
    pub fn stricter_confirm(&self, server: &str, confirm: Confirm) -> Confirm {
        let own = self.servers.get(server).and_then(|overrides| overrides.confirm);
        stricter(Some(confirm), own).unwrap_or(confirm)
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn stricter(one: Option<Confirm>, other: Option<Confirm>) -> Option<Confirm> {
    let rank = |confirm: Confirm| match confirm {
        Confirm::Never => 0,
        Confirm::Writes => 1,
        Confirm::Always => 2,
    };
    match (one, other) {
        (Some(one), Some(other)) => Some(if rank(one) >= rank(other) { one } else { other }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
