//! The catalogue: definitions of well-known servers that are shipped with the package. These servers are available only if the config
//! switches the catalogue on. They need an approval like all other servers.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json};

use super::Entry;
use super::providers::read_definition;
use crate::config::{ServerDefinition, ServerSource, SourceKind, shipped_box};

/// The definitions, in the format that a provider uses.
const DEFINITIONS: &str = include_str!("catalogue.json");

/// Returns the source of the catalogue's servers.
#[must_use]
pub fn catalogue_source() -> ServerSource {
    ServerSource { kind: SourceKind::Catalogue, name: None }
}

/// Returns the catalogue's servers. They are parsed only once.
///
/// ```
/// use hyperlight_mcp::registry::{Entry, catalogue};
/// assert!(catalogue().iter().all(|entry| matches!(entry, Entry::Valid(_))));
/// ```
#[must_use]
pub fn catalogue() -> Vec<Entry> {
    static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        let definitions: Vec<Json> = serde_json::from_str(DEFINITIONS).unwrap_or_default();
        let named = definitions.iter().filter_map(|definition| Some((definition.as_object()?, definition.get("name")?.as_str()?)));
        named.map(|(definition, name)| with_box(definition, name)).collect()
    });
    ENTRIES.clone()
}

/// Parses a definition of the catalogue. In addition to the keys of a provider's definition, it may have the key `box`.
fn with_box(definition: &Map<String, Json>, name: &str) -> Entry {
    let mut definition = definition.clone();
    let in_box = definition.remove("box").map(|in_box| shipped_box(&in_box));
    match (read_definition(&definition, name, &catalogue_source()).0, in_box) {
        (Entry::Valid(server), Some(in_box @ Some(_))) => {
            let mut server = ServerDefinition::clone(&server);
            server.in_box = in_box;
            Entry::Valid(server.into())
        }
        (entry, _) => entry,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::config::{BoxBase, BoxDefinition, BoxNetwork, BoxSettings, Confirm, Transport};

    /// The packages that were started, with the names of their tools. `scripts/catalogue-check --record` writes this file.
    const STARTED: &str = include_str!("catalogue-started.json");

    #[test]
    fn every_definition_is_complete_and_says_what_its_server_is_for() {
        let definitions: Vec<Json> = serde_json::from_str(DEFINITIONS).unwrap();
        assert!(definitions.len() >= 40, "{}", definitions.len());
        for definition in &definitions {
            for key in ["name", "package", "description"] {
                assert!(definition[key].as_str().is_some_and(|text| !text.trim().is_empty()), "{key}: {definition}");
            }
            for key in ["capabilities", "keywords"] {
                assert!(definition[key].as_array().is_some_and(|list| !list.is_empty()), "{key}: {definition}");
            }
            assert!(definition["envRequired"].is_array(), "{definition}");
        }
    }

    #[test]
    fn every_definition_is_a_server_of_its_own_that_starts_its_package() {
        let definitions: Vec<Json> = serde_json::from_str(DEFINITIONS).unwrap();
        let mut names = BTreeSet::new();
        let entries = catalogue();
        assert_eq!(entries.len(), definitions.len());
        for (entry, definition) in entries.iter().zip(&definitions) {
            let Entry::Valid(server) = entry else { panic!("{entry:?}") };
            let Transport::Stdio { command, arguments, .. } = &server.transport else { panic!("{server:?}") };
            let package = definition["package"].as_str().unwrap();
            assert!(names.insert(server.name.clone()), "{} is there twice", server.name);
            assert!(command == "npx" || command == "uvx", "{server:?}");
            assert!(arguments.iter().any(|argument| argument == package), "{server:?} does not start {package}");
            assert!(package.contains("==") || package.rfind('@').is_some_and(|at| at > 0), "{package} has no version");
            assert_eq!((server.confirm, &server.source), (Confirm::Writes, &catalogue_source()));
        }
    }

    #[test]
    fn the_boxes_of_definitions_are_read_and_none_is_off() {
        let definitions: Vec<Json> = serde_json::from_str(DEFINITIONS).unwrap();
        let mut with_hosts = 0;
        for (entry, definition) in catalogue().iter().zip(&definitions) {
            let Entry::Valid(server) = entry else { panic!("{entry:?}") };
            let Some(BoxDefinition::On(settings)) = &server.in_box else { panic!("{}: {:?}", server.name, server.in_box) };
            assert_eq!(definition.get("box").is_some(), *settings != BoxSettings::of(BoxBase::Standard), "{}", server.name);
            with_hosts += usize::from(settings.network != BoxNetwork::none() && settings.network != BoxNetwork::Any);
        }
        assert!(with_hosts >= 30, "{with_hosts}");
    }

    #[test]
    fn each_version_that_needs_no_key_has_been_started() {
        let definitions: Vec<Json> = serde_json::from_str(DEFINITIONS).unwrap();
        let mut started: BTreeMap<String, Json> = serde_json::from_str(STARTED).unwrap();
        for definition in definitions.iter().filter(|definition| definition["envRequired"] == serde_json::json!([])) {
            let name = definition["name"].as_str().unwrap();
            let record = started.remove(name).unwrap_or_else(|| panic!("run scripts/catalogue-check --record {name}"));
            assert_eq!(record["package"], definition["package"], "run scripts/catalogue-check --record {name}");
            assert!(record["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{record}");
        }
        assert!(started.is_empty(), "not in the catalogue, or with a key: {started:?}");
    }
}
