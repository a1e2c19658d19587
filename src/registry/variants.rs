//! The variants of the servers that currently exist. Variants exist for each single profile, for the profiles of each agent in the config,
//! and for the profiles that agents were opened with. Everything in this module is a pure function of the config's settings and the merged
//! servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Entry;
use crate::config::{GrantSettings, InputDefinition, InvalidServer, ServerDefinition, SourceKind, Variant, variants_of};
use crate::text::{NameMark, PROFILE_SIGN, marked_name};

/// The profiles of the config, and the combinations of them for which variants exist.
#[derive(Debug, Default)]
pub(super) struct Variants {
    pub(super) settings: GrantSettings,
    /// Combinations of profile names that an agent was opened with, or that a person has named together.
    pub(super) stacks: BTreeSet<BTreeSet<String>>,
}

impl Variants {
    /// Returns all variants, by the names of the servers that they are based on. A combination of profiles that conflict, or that no longer
    /// all exist, has no variants.
    pub(super) fn by_server(&self) -> BTreeMap<String, Vec<Variant>> {
        let GrantSettings { profiles, agents, .. } = &self.settings;
        let alone = profiles.keys().map(|name| vec![name]);
        let of_agents = agents.values().filter_map(|agent| Some(agent.profiles.as_ref()?.iter().collect()));
        let opened = self.stacks.iter().map(|stack| stack.iter().collect());
        let mut all: BTreeMap<String, Variant> = BTreeMap::new();
        for names in alone.chain(of_agents).chain(opened) {
            let stack: Option<Vec<_>> = names.iter().map(|name| profiles.get_key_value(*name)).collect();
            let variants = variants_of(stack.unwrap_or_default()).unwrap_or_default();
            all.extend(variants.into_values().map(|variant| (variant.name(), variant)));
        }
        let mut by_server: BTreeMap<String, Vec<Variant>> = BTreeMap::new();
        for variant in all.into_values() {
            by_server.entry(variant.server().to_owned()).or_default().push(variant);
        }
        by_server
    }

    /// Returns the profiles that make the variant with this name. Returns `None` if there is no server or profile for a part of the name,
    /// or if these profiles do not make a variant of the server.
    pub(super) fn stack_in(&self, name: &str) -> Option<BTreeSet<String>> {
        let (server, NameMark::Variant(mark)) = marked_name(name) else { return None };
        let stack: BTreeSet<String> = mark.split(PROFILE_SIGN).map(str::to_owned).collect();
        let profiles: Option<Vec<_>> = stack.iter().map(|profile| self.settings.profiles.get_key_value(profile)).collect();
        let variants = variants_of(profiles?).ok()?;
        variants.get(server).is_some_and(|variant| variant.name() == name).then_some(stack)
    }
}

/// Returns the entry of a variant. The variant has the same source as its server, so that a server from another source cannot inherit the
/// approval of the variant.
pub(super) fn entry_of(variant: &Variant, server: &ServerDefinition, inputs: &[InputDefinition]) -> Entry {
    match variant.of(server, inputs) {
        Ok(server) => Entry::Valid(Arc::new(server)),
        Err(error) => {
            // No definition is recorded (`as_written`): the settings of the profiles are not known, and the server's own entry already
            // names the server's files.
            let (name, source) = (variant.name(), server.source.clone());
            Entry::Invalid(Arc::new(InvalidServer { name, source, error, without_box: None, as_written: None }))
        }
    }
}

/// Returns whether profiles can change servers of this kind. They cannot change servers that an agent has added or that a task defines.
pub(super) fn can_vary(kind: SourceKind) -> bool {
    match kind {
        SourceKind::Config | SourceKind::Registered | SourceKind::Provider | SourceKind::Generated | SourceKind::Catalogue => true,
        SourceKind::Agent | SourceKind::Task => false,
    }
}
