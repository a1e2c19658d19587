//! The merged view of all sources: each name once, from the source of the highest precedence that has it. A pure function of the layers.

use std::collections::{BTreeMap, HashMap};

use super::Entry;
use crate::config::{InputDefinition, ServerSource};
use crate::error::Error;

/// A source whose server of the same name is not used, as a source of higher precedence has the name.
pub type Hidden = ServerSource;

/// Maximum number of names that an error for an unknown server gets.
const KNOWN_NAMES: usize = 100;

/// The servers of each source, in the order of the sources' precedence.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) by_source: BTreeMap<ServerSource, Vec<Entry>>,
    /// The inputs of the operator's config.
    pub(super) inputs: Vec<InputDefinition>,
}

/// The view that all callers share.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) entries: Vec<Entry>,
    /// Positions in `entries`, by name.
    index: HashMap<String, usize>,
    /// The sources that have a name as well and are not used, in their precedence.
    pub(super) hidden: BTreeMap<String, Vec<Hidden>>,
    pub(super) inputs: Vec<InputDefinition>,
}

impl Layers {
    /// Merges the layers.
    pub(super) fn merged(&self) -> Merged {
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        let mut owners: HashMap<&str, &ServerSource> = HashMap::new();
        let mut hidden: BTreeMap<String, Vec<Hidden>> = BTreeMap::new();
        for (source, entries) in &self.by_source {
            for entry in entries {
                match owners.get(entry.name()) {
                    Some(owner) if *owner != source => hidden.entry(entry.name().to_owned()).or_default().push(source.clone()),
                    _ => {
                        owners.insert(entry.name(), source);
                        let list = if matches!(entry, Entry::Valid(_)) { &mut valid } else { &mut invalid };
                        list.push(entry.clone());
                    }
                }
            }
        }
        valid.append(&mut invalid);
        let mut index = HashMap::with_capacity(valid.len());
        for (position, entry) in valid.iter().enumerate() {
            index.entry(entry.name().to_owned()).or_insert(position);
        }
        Merged { entries: valid, index, hidden, inputs: self.inputs.clone() }
    }
}

impl Merged {
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.index.get(name).and_then(|position| self.entries.get(*position))
    }

    pub(super) fn unknown(&self, name: &str) -> Error {
        Error::UnknownServer {
            server: name.to_owned(),
            place: "in the config",
            known: self.entries.iter().take(KNOWN_NAMES).map(|entry| entry.name().into()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{SourceKind, parse_text};

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
        for (source, names) in [(&provider, &["x", "z"][..]), (&agent, &["x", "y"]), (&base, &["x"]), (&config, &["w", "y"])] {
            layers.by_source.insert(source.clone(), names.iter().map(|name| server(name, source)).collect());
        }
        let merged = layers.merged();
        let seen: Vec<_> = merged.entries.iter().map(Entry::name).collect();
        assert_eq!(seen, ["w", "y", "x", "z"]);
        let source = |name: &str| match merged.get(name) {
            Some(Entry::Valid(server)) => server.source.clone(),
            _ => unreachable!(),
        };
        assert_eq!([source("x"), source("y"), source("z")], [base, config, provider.clone()]);
        assert_eq!(merged.hidden["x"], [agent.clone(), provider]);
        assert_eq!(merged.hidden["y"], [agent]);
    }
}
