//! Profiles: named sets of servers with overrides. An agent uses one or several of them. Everything in this module is a pure function of
//! the config's settings.
//!
//! Several profiles are combined to a stack. The stack contains the servers of all profiles. If several profiles contain the same server,
//! the server gets the filters and the changes of all these profiles, and the strictest value of `confirm` and of each limit. If a profile
//! contains a server without overrides, this does not weaken the overrides of another profile.

use std::collections::BTreeMap;

use crate::config::{Confirm, Item, Overrides, ProfileConflict, ProfileDefinition, least, variants_of};
use crate::text::{NameMark, marked_name};

/// The servers that an agent has because of its profiles, each with the overrides of the profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stack {
    servers: BTreeMap<String, Overrides>,
    /// The names of the variants in the registry, by the names of the servers that they replace.
    variants: BTreeMap<String, String>,
}

impl Stack {
    /// Combines profiles. The order of the profiles does not matter.
    ///
    /// # Errors
    /// The conflict of two profiles that set the same setting of one server differently.
    ///
    /// ```
    /// use hyperlight_mcp::config::{Confirm, parse_text};
    /// use hyperlight_mcp::registry::Stack;
    /// let text = r#"{ "profiles": { "a": { "servers": { "files": { "timeoutMs": 500 } } },
    ///     "b": { "servers": { "files": { "timeoutMs": 900, "confirm": "always" }, "web": { "env": { "STAGE": "b" } } } } } }"#;
    /// let profiles = parse_text(text, "config.json", 20).unwrap().grants.profiles;
    /// let stack = Stack::of(&profiles).unwrap();
    /// assert!(stack.has("web") && !stack.has("other"));
    /// assert_eq!(stack.stricter_timeout_ms("files", 700), 500);
    /// assert_eq!(stack.stricter_confirm("files", Confirm::Never), Confirm::Always);
    /// assert_eq!((stack.registry_name("web"), stack.registry_name("files")), ("web@b", "files"));
    /// ```
    pub fn of<'p>(profiles: impl IntoIterator<Item = (&'p String, &'p ProfileDefinition)>) -> Result<Self, ProfileConflict> {
        let profiles: BTreeMap<_, _> = profiles.into_iter().collect();
        let variants = variants_of(profiles.iter().map(|(name, profile)| (*name, *profile)))?;
        let variants = variants.into_iter().map(|(server, variant)| (server, variant.name())).collect();
        let mut servers: BTreeMap<String, Overrides> = BTreeMap::new();
        for (name, overrides) in profiles.into_values().flat_map(|profile| &profile.servers) {
            let stacked = servers.entry(name.clone()).or_default();
            let Overrides {
                tools,
                resources,
                prompts,
                call_timeout_ms,
                max_call_timeout_ms,
                connect_timeout_ms,
                idle_timeout_ms,
                max_parallel_calls,
                confirm,
                changes: _,
            } = overrides;
            stacked.tools.extend_from_slice(tools);
            stacked.resources.extend_from_slice(resources);
            stacked.prompts.extend_from_slice(prompts);
            stacked.call_timeout_ms = least(stacked.call_timeout_ms, *call_timeout_ms);
            stacked.max_call_timeout_ms = least(stacked.max_call_timeout_ms, *max_call_timeout_ms);
            stacked.connect_timeout_ms = least(stacked.connect_timeout_ms, *connect_timeout_ms);
            stacked.idle_timeout_ms = least(stacked.idle_timeout_ms, *idle_timeout_ms);
            stacked.max_parallel_calls = least(stacked.max_parallel_calls, *max_parallel_calls);
            stacked.confirm = stricter(stacked.confirm, *confirm);
        }
        Ok(Self { servers, variants })
    }

    /// Returns whether a profile contains the server. `server` is the name that code uses for the server.
    #[must_use]
    pub fn has(&self, server: &str) -> bool {
        self.servers.contains_key(server)
    }

    /// Returns the name in the registry for the server that code calls `server`. If the profiles make a variant of this server, returns the
    /// name of the variant.
    #[must_use]
    pub fn registry_name<'s>(&'s self, server: &'s str) -> &'s str {
        self.variants.get(server).map_or(server, String::as_str)
    }

    /// Returns whether the profiles contain a server of the registry. If the profiles make a variant, they contain the variant and not the
    /// server that it replaces.
    #[must_use]
    pub fn reaches(&self, registry_name: &str) -> bool {
        match marked_name(registry_name) {
            (server, NameMark::Task) => self.has(server),
            (server, NameMark::None | NameMark::Variant(_)) => self.has(server) && self.registry_name(server) == registry_name,
        }
    }

    /// Returns the names in the registry of the servers that the profiles contain.
    pub fn registry_names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(|server| self.registry_name(server))
    }

    /// Returns whether all filters that the profiles set for a server admit an item.
    #[must_use]
    pub fn allows(&self, server: &str, item: Item<'_>) -> bool {
        self.servers.get(server).is_some_and(|overrides| match item {
            Item::Tool(name) => overrides.tools.iter().all(|filter| filter.admits(name)),
            Item::Prompt(name) => overrides.prompts.iter().all(|filter| filter.admits(name)),
            Item::Resource(uri) => overrides.resources.iter().all(|filter| filter.admits(uri)),
        })
    }

    /// Returns the time limit of a call in milliseconds: `limit_ms`, or the limit of the profiles if it is shorter.
    #[must_use]
    pub fn stricter_timeout_ms(&self, server: &str, limit_ms: u64) -> u64 {
        self.servers.get(server).and_then(|overrides| overrides.call_timeout_ms).map_or(limit_ms, |own| own.min(limit_ms))
    }

    /// Returns the maximum time of a call in milliseconds: `limit_ms`, or the maximum of the profiles if it is shorter.
    #[must_use]
    pub fn stricter_max_timeout_ms(&self, server: &str, limit_ms: u64) -> u64 {
        self.servers.get(server).and_then(|overrides| overrides.max_call_timeout_ms).map_or(limit_ms, |own| own.min(limit_ms))
    }

    /// Returns the time limit for connecting in milliseconds: `limit_ms`, or the limit of the profiles if it is shorter.
    #[must_use]
    pub fn stricter_connect_ms(&self, server: &str, limit_ms: u64) -> u64 {
        self.servers.get(server).and_then(|overrides| overrides.connect_timeout_ms).map_or(limit_ms, |own| own.min(limit_ms))
    }

    /// Returns the time in milliseconds after which an idle connection is closed: `limit_ms`, or the time of the profiles if it is shorter.
    /// Returns `None` if neither of the two is set.
    #[must_use]
    pub fn stricter_idle_ms(&self, server: &str, limit_ms: Option<u64>) -> Option<u64> {
        least(limit_ms, self.servers.get(server).and_then(|overrides| overrides.idle_timeout_ms))
    }

    /// Returns the limit that the profiles set for simultaneous calls of a server. Returns `None` if no profile sets a limit.
    #[must_use]
    pub fn max_parallel_calls(&self, server: &str) -> Option<u64> {
        self.servers.get(server).and_then(|overrides| overrides.max_parallel_calls)
    }

    /// Returns the stricter one of two values: the server's own `confirm`, and the `confirm` that the profiles set for the server.
    #[must_use]
    pub fn stricter_confirm(&self, server: &str, confirm: Confirm) -> Confirm {
        let own = self.servers.get(server).and_then(|overrides| overrides.confirm);
        stricter(Some(confirm), own).unwrap_or(confirm)
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
