//! The merged view of all sources. Each name appears once, from the source with the highest precedence that has it. A pure function of the
//! layers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Entry;
use super::earlier::Earlier;
use super::variants::{Variants, can_vary, entry_of};
use crate::config::{BoxDefinition, InputDefinition, ServerDefinition, ServerSource, SourceKind, out_of_force};
use crate::error::Error;
use crate::text::variant_of;

/// A source whose server of some name is not used, because a source of higher precedence has a server of the same name.
pub type Hidden = ServerSource;

/// Maximum number of names in an error for an unknown server.
const KNOWN_NAMES: usize = 100;

/// The place of a layer among all layers. The smallest rank has the highest precedence. Ranks are compared first by the kind of the source,
/// then by its position among the sources of its kind, then by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    kind: SourceKind,
    position: usize,
    source: ServerSource,
}

impl Rank {
    /// Returns the rank of a source whose kind has no positions.
    pub(super) fn of(source: ServerSource) -> Self {
        Self::at(source, 0)
    }

    /// Returns the rank of a source at a position. The operator's own config has the position 0. The base layers of the config have the
    /// next positions, in the order in which the config lists them.
    pub(super) fn at(source: ServerSource, position: usize) -> Self {
        Self { kind: source.kind, position, source }
    }

    /// Returns whether this is the rank of the operator's config, or of a layer under it.
    pub(super) fn is_config(&self) -> bool {
        self.kind == SourceKind::Config
    }
}

/// The servers of each source, ordered by precedence.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) by_rank: BTreeMap<Rank, Vec<Entry>>,
    /// The inputs of the operator's config.
    pub(super) inputs: Vec<InputDefinition>,
    pub(super) variants: Variants,
    /// The boxes that the operator sets for servers of other sources, by the server's name. For a server of an agent, the key is used
    /// instead of the name.
    pub(super) boxes: BTreeMap<String, BoxDefinition>,
    /// The servers of base layers that another server of the same layer hides.
    pub(super) hidden_in_bases: Vec<Arc<ServerDefinition>>,
    pub(super) earlier: Earlier,
}

/// The merged view, which all callers share.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) entries: Vec<Entry>,
    /// Positions in `entries`, by name.
    index: HashMap<String, usize>,
    /// By the name of a server: the other sources that have a server of this name, which is not used. The sources are ordered by
    /// precedence.
    pub(super) hidden: HashMap<String, Vec<Hidden>>,
    /// The names of each server's variants.
    variants: HashMap<String, Vec<String>>,
    pub(super) inputs: Vec<InputDefinition>,
    /// The definitions of hidden entries and of entries with errors. These servers cannot be used.
    out_of_force: Vec<Arc<ServerDefinition>>,
    /// The servers that existed earlier. Leaves out an earlier server if a present server names the same files.
    pub(super) earlier: Vec<Arc<ServerDefinition>>,
    /// True if at least one source other than the operator's own config has servers.
    has_other_sources: bool,
}

/// The view of all sources at one moment.
#[derive(Debug, Clone)]
pub struct RegistryView(pub(super) Arc<Merged>);

impl RegistryView {
    /// Returns the entries in the order of [`Registry::entries`](super::Registry::entries).
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0.entries
    }

    /// Returns the position of the entry with this name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.index.get(name).copied()
    }

    /// Returns whether both values are the same view. If so, no source has changed between them.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Layers {
    /// Merges the layers.
    pub(super) fn merged(&self) -> Merged {
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        let mut owners: HashMap<&str, &ServerSource> = HashMap::new();
        let mut hidden: HashMap<String, Vec<Hidden>> = HashMap::new();
        let mut not_in_force = self.hidden_in_bases.clone();
        for (Rank { source, .. }, entries) in &self.by_rank {
            for entry in entries {
                if let Entry::Invalid(server) = entry {
                    not_in_force.extend(server.as_written.clone());
                }
                match owners.get(entry.name()) {
                    Some(owner) if *owner != source => {
                        hidden.entry(entry.name().to_owned()).or_default().push(source.clone());
                        if let Entry::Valid(server) = entry {
                            not_in_force.push(Arc::new(out_of_force(server)));
                        }
                    }
                    _ => {
                        owners.insert(entry.name(), source);
                        let entry = self.boxed(entry.clone());
                        let list = if matches!(entry, Entry::Valid(_)) { &mut valid } else { &mut invalid };
                        list.push(entry);
                    }
                }
            }
        }
        let mut valid = self.with_variants(valid, &mut invalid);
        valid.append(&mut invalid);
        let mut index = HashMap::with_capacity(valid.len());
        for (position, entry) in valid.iter().enumerate() {
            index.entry(entry.name().to_owned()).or_insert(position);
        }
        let mut variants: HashMap<String, Vec<String>> = HashMap::new();
        for (name, server) in valid.iter().filter_map(|entry| Some((entry.name(), variant_of(entry.name())?))) {
            variants.entry(server.to_owned()).or_default().push(name.to_owned());
        }
        let has_other_sources = self.by_rank.keys().any(|rank| !rank.source.is_operators_config());
        let (inputs, out_of_force) = (self.inputs.clone(), not_in_force);
        Merged { entries: valid, index, hidden, variants, inputs, out_of_force, earlier: Vec::new(), has_other_sources }
    }

    /// Returns the entry with the box that the operator sets for it (`boxes`). If an entry is invalid only because its program cannot run
    /// in a box, it becomes valid when the operator switches the box off (`BoxDefinition::Off`).
    fn boxed(&self, entry: Entry) -> Entry {
        // When an agent has removed its server, another agent can use the same name. So a box for an agent's server is only for the server
        // of that agent.
        let given = match entry.source().kind {
            SourceKind::Agent => self.boxes.get(&entry.source().key(entry.name())),
            _ => self.boxes.get(entry.name()),
        };
        let Some(given) = given else { return entry };
        match &entry {
            Entry::Valid(server) if server.in_box.is_some() && !server.source.is_operators_config() => {
                let mut server = ServerDefinition::clone(server);
                server.in_box = Some(given.clone());
                Entry::Valid(server.into())
            }
            Entry::Invalid(server) if *given == BoxDefinition::Off && !server.source.is_operators_config() => {
                server.without_box.clone().map_or(entry, Entry::Valid)
            }
            Entry::Valid(_) | Entry::Invalid(_) => entry,
        }
    }

    /// Returns the servers, each followed by its valid variants. Adds invalid variants to `invalid`.
    fn with_variants(&self, servers: Vec<Entry>, invalid: &mut Vec<Entry>) -> Vec<Entry> {
        let by_server = self.variants.by_server();
        if by_server.is_empty() {
            return servers;
        }
        let mut all = Vec::with_capacity(servers.len());
        for entry in servers {
            all.push(entry.clone());
            let Entry::Valid(server) = &entry else { continue };
            for variant in by_server.get(&server.name).into_iter().flatten().filter(|_| can_vary(server.source.kind)) {
                let variant = entry_of(variant, server, &self.inputs);
                if matches!(variant, Entry::Valid(_)) { all.push(variant) } else { invalid.push(variant) }
            }
        }
        all
    }
}

impl Merged {
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.index.get(name).and_then(|position| self.entries.get(*position))
    }

    /// Returns the present servers, including those that cannot be used.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Arc<ServerDefinition>> {
        self.in_force().chain(self.out_of_force())
    }

    /// Returns the servers that can be used.
    pub(super) fn in_force(&self) -> impl Iterator<Item = &Arc<ServerDefinition>> {
        self.entries.iter().filter_map(|entry| if let Entry::Valid(server) = entry { Some(server) } else { None })
    }

    /// Returns the present servers that cannot be used, because their entries are hidden or have errors.
    pub(super) fn out_of_force(&self) -> impl Iterator<Item = &Arc<ServerDefinition>> {
        self.out_of_force.iter()
    }

    /// Returns the names of a server's variants.
    pub(super) fn variants_of(&self, server: &str) -> impl Iterator<Item = &str> {
        self.variants.get(server).into_iter().flatten().map(String::as_str)
    }

    pub(super) fn unknown(&self, name: &str) -> Error {
        Error::UnknownServer {
            server: name.to_owned(),
            place: self.searched_place(),
            known: self.entries.iter().take(KNOWN_NAMES).map(|entry| entry.name().into()).collect(),
        }
    }

    /// Returns the sources in which a server is looked up, for the text of the error about an unknown name.
    pub(super) fn searched_place(&self) -> &'static str {
        if self.has_other_sources {
            "in the config, its base layers, or among the servers that agents, providers and tasks have added"
        } else {
            "in the config"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::config::{InvalidServer, parse_text};

    fn server(name: &str, source: &ServerSource) -> Entry {
        let text = format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#);
        let mut server = parse_text(&text, "config.json", 20).unwrap().servers.remove(0);
        server.source = source.clone();
        Entry::Valid(Arc::new(server))
    }

    #[test]
    fn a_name_is_the_one_of_the_highest_source_and_the_others_are_told_as_hidden() {
        let config = ServerSource::default();
        let [base, agent, provider] = [(SourceKind::Config, "claude-code"), (SourceKind::Agent, "a"), (SourceKind::Provider, "p")]
            .map(|(kind, name)| ServerSource::named(kind, name));
        let mut layers = Layers::default();
        for (source, names) in [(&provider, &["x", "z"][..]), (&agent, &["x", "y", "z"]), (&base, &["x"]), (&config, &["w", "y"])] {
            layers.by_rank.insert(Rank::of(source.clone()), names.iter().map(|name| server(name, source)).collect());
        }
        let merged = layers.merged();
        let seen: Vec<_> = merged.entries.iter().map(Entry::name).collect();
        assert_eq!(seen, ["w", "y", "x", "z"]);
        let source = |name: &str| match merged.get(name) {
            Some(Entry::Valid(server)) => server.source.clone(),
            _ => unreachable!(),
        };
        assert_eq!([source("x"), source("y"), source("z")], [base, config, provider.clone()]);
        assert_eq!(merged.hidden["x"], [provider, agent.clone()]);
        // A server that an agent has added hides no other server.
        assert_eq!((&merged.hidden["y"], &merged.hidden["z"]), (&vec![agent.clone()], &vec![agent]));
    }

    #[test]
    fn the_operator_can_take_the_box_away_from_a_program_that_cannot_be_in_one() {
        let provider = ServerSource::named(SourceKind::Provider, "acme");
        let definition = serde_json::json!({ "name": "files", "command": "docker", "args": ["run", "-i", "acme/files"] });
        let (entry, _) = crate::registry::providers::read_definition(definition.as_object().unwrap(), "acme--files", &provider);
        let with = |boxes: &str| {
            let mut layers =
                Layers { boxes: parse_text(&format!(r#"{{ "boxes": {boxes} }}"#), "c", 9).unwrap().boxes, ..Layers::default() };
            layers.by_rank.insert(Rank::of(provider.clone()), vec![entry.clone()]);
            layers.merged().get("acme--files").unwrap().clone()
        };
        let Entry::Valid(server) = with(r#"{ "acme--files": "off" }"#) else { panic!("it is not valid") };
        assert_eq!((&server.in_box, &server.source), (&Some(BoxDefinition::Off), &provider));
        for boxes in ["{}", r#"{ "other": "off" }"#, r#"{ "acme--files": "standard" }"#] {
            let Entry::Invalid(server) = with(boxes) else { panic!("{boxes}: it is valid") };
            assert!(server.error.clone().in_full().contains("must be \"off\" for docker"), "{boxes}");
        }
    }

    #[test]
    fn the_box_of_an_agents_server_is_for_this_agent_alone() {
        let boxes = r#"{ "boxes": { "files": "strict", "agent:ada:files": { "network": ["a.example"] }, "acme--files": "strict" } }"#;
        let with = |source: &ServerSource, name: &str| {
            let mut layers = Layers { boxes: parse_text(boxes, "c", 9).unwrap().boxes, ..Layers::default() };
            layers.by_rank.insert(Rank::of(source.clone()), vec![server(name, source)]);
            let Some(Entry::Valid(server)) = layers.merged().get(name).cloned() else { panic!("it is not valid") };
            server.in_box.clone()
        };
        let agent = |name: &str| ServerSource::named(SourceKind::Agent, name);
        let standard = with(&ServerSource::default(), "files");
        let given = parse_text(boxes, "c", 9).unwrap().boxes;
        assert_eq!(with(&agent("ada"), "files").as_ref(), Some(&given["agent:ada:files"]));
        assert_eq!(with(&agent("eve"), "files"), standard, "the name alone gives nothing");
        let provider = ServerSource::named(SourceKind::Provider, "acme");
        assert_eq!(with(&provider, "acme--files").as_ref(), Some(&given["acme--files"]));
    }

    /// A layer of the tests: its kind, its position among the layers of its kind, and its servers, each with a flag that is true if its
    /// entry is valid.
    type Layer = (SourceKind, usize, Vec<(String, bool)>);

    fn entry(name: &str, is_valid: bool, source: &ServerSource) -> Entry {
        if is_valid {
            return server(name, source);
        }
        let error = Error::Closed { what: "test" };
        Entry::Invalid(Arc::new(InvalidServer {
            name: name.to_owned(),
            source: source.clone(),
            error,
            without_box: None,
            as_written: None,
        }))
    }

    fn layers() -> impl Strategy<Value = Vec<Layer>> {
        let kinds = vec![
            SourceKind::Task,
            SourceKind::Config,
            SourceKind::Registered,
            SourceKind::Provider,
            SourceKind::Generated,
            SourceKind::Catalogue,
            SourceKind::Agent,
        ];
        let servers = prop::collection::btree_map("[a-d]", any::<bool>(), 0..4).prop_map(|servers| servers.into_iter().collect());
        prop::collection::vec((prop::sample::select(kinds), 0..3_usize, servers), 0..8)
    }

    proptest! {
        #[test]
        fn the_view_is_what_the_plainest_way_finds(given in layers()) {
            let source = |kind: SourceKind, position: usize| ServerSource::named(kind, format!("{}", 9 - position));
            let mut layers = Layers::default();
            for (kind, position, servers) in &given {
                let source = source(*kind, *position);
                let entries = servers.iter().map(|(name, is_valid)| entry(name, *is_valid, &source)).collect();
                layers.by_rank.insert(Rank::at(source, *position), entries);
            }
            let merged = layers.merged();
            // The simplest method: asks all layers for each name, from the highest precedence to the lowest.
            let order = [SourceKind::Task, SourceKind::Config, SourceKind::Registered, SourceKind::Provider, SourceKind::Generated, SourceKind::Catalogue, SourceKind::Agent];
            let mut seen = 0;
            for name in ["a", "b", "c", "d"] {
                let mut owners = Vec::new();
                for kind in order {
                    for position in 0..3 {
                        let last = given.iter().rev().find(|layer| layer.0 == kind && layer.1 == position);
                        if let Some((_, is_valid)) = last.and_then(|layer| layer.2.iter().find(|(known, _)| known == name)) {
                            owners.push((source(kind, position), *is_valid));
                        }
                    }
                }
                let found = merged.get(name).map(|entry| (entry.source().clone(), matches!(entry, Entry::Valid(_))));
                prop_assert_eq!(found.as_ref(), owners.first());
                seen += usize::from(found.is_some());
                let hidden: Vec<_> = owners.into_iter().skip(1).map(|(source, _)| source).collect();
                prop_assert_eq!(merged.hidden.get(name).cloned().unwrap_or_default(), hidden);
            }
            prop_assert_eq!(merged.entries.len(), seen);
            let first_invalid = merged.entries.iter().position(|entry| matches!(entry, Entry::Invalid(_))).unwrap_or(seen);
            prop_assert!(merged.entries[first_invalid..].iter().all(|entry| matches!(entry, Entry::Invalid(_))));
        }
    }
}
