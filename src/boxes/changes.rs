//! Describes what a box can change, if that decides what other servers run. A person reads these sentences in the approval of the box, and
//! in the approval of each other server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::kept::{Change, Changes, Effect};
use super::shown::{OtherServer, shown_path, shown_server};

/// Maximum number of paths that one sentence names.
const MAX_PATHS: usize = 3;
/// Maximum number of other servers that one request names, beside those that are always named. Anybody can commit a config with very many
/// servers.
const MAX_SERVERS: usize = 10;

/// Returns sentences for the approval of the box.
pub(super) fn sentences_of_box(changes: &BTreeSet<Change>, is_always_named: &dyn Fn(&OtherServer) -> bool) -> Vec<String> {
    let (named, more) = named_servers(by_server(changes), |(server, _)| is_always_named(server));
    let mut said = Vec::new();
    for (server, changes) in &named {
        for (effect, paths) in changes {
            let paths = listed(paths);
            said.push(match effect {
                Effect::Replaces => format!("can change {paths}, and so can change what {server} runs"),
                Effect::Makes => format!("can make {paths}, which {server} runs"),
                Effect::MayPlant => format!("can change files in {paths}, from which {server} may run code"),
                Effect::MayAdd => {
                    format!("can make or change node_modules, package.json and the like in {paths}, where {server} looks for them")
                }
                Effect::Rewrites => format!("can change {paths}, which {server} uses"),
                Effect::MayMake => format!("can make {paths}, which {server} uses"),
                Effect::Unexamined => {
                    format!("can write {paths}, and so may be able to change what {server} runs: its entry is too long to be examined")
                }
            });
        }
    }
    said.extend((more > 0).then(|| format!("can change what {more} more servers run")));
    said
}

/// Returns the servers that a request names, and the number of the others. Servers that are always named come first.
fn named_servers<T>(servers: impl IntoIterator<Item = T>, is_always_named: impl Fn(&T) -> bool) -> (Vec<T>, usize) {
    let (mut named, others): (Vec<T>, Vec<T>) = servers.into_iter().partition(is_always_named);
    let more = others.len().saturating_sub(MAX_SERVERS);
    named.extend(others.into_iter().take(MAX_SERVERS));
    (named, more)
}

/// The boxes of other servers that can change what a server runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ChangeableBy {
    pub sentences: Vec<String>,
    /// The names of the servers with these boxes.
    pub servers: Vec<String>,
}

/// Returns the boxes of other servers that can change what the server named `runs` runs, for the approval of this server. `by_box` contains
/// what each box can change, by the name of the box's server.
#[must_use]
pub fn changeable_by(by_box: &BTreeMap<String, BTreeSet<Change>>, runs: &str, is_always_named: &dyn Fn(&str) -> bool) -> ChangeableBy {
    let is_of_this = |change: &&Change| matches!(&change.server, OtherServer::Named(name) if name == runs);
    let of_this = |changes: &BTreeSet<Change>| -> BTreeSet<Change> { changes.iter().filter(is_of_this).cloned().collect() };
    let others: Vec<_> = by_box.iter().map(|(name, changes)| (name, of_this(changes))).filter(|(_, changes)| !changes.is_empty()).collect();
    let mut said = Vec::new();
    let servers = others.iter().map(|(name, _)| (*name).clone()).collect();
    let (others, more) = named_servers(others, |(name, _)| is_always_named(name));
    for (name, changes) in &others {
        let name = shown_server(name);
        for (effect, paths) in by_server(changes).into_values().flatten() {
            let paths = listed(&paths);
            said.push(match effect {
                Effect::Replaces => format!("{name} may write {paths}, and so change what this server runs"),
                Effect::Makes => format!("{name} may make {paths}, which this server runs"),
                Effect::MayPlant => format!("{name} may write in {paths}, from which this server may run code"),
                Effect::MayAdd => {
                    format!(
                        "{name} may make or change node_modules, package.json and the like in {paths}, where this server looks for them"
                    )
                }
                Effect::Rewrites => format!("{name} may change {paths}, which this server uses"),
                Effect::MayMake => format!("{name} may make {paths}, which this server uses"),
                Effect::Unexamined => {
                    format!(
                        "{name} may write {paths}, and so may be able to change what this server runs: the entry of this server is too long to be examined"
                    )
                }
            });
        }
    }
    said.extend((more > 0).then(|| format!("{more} more servers may change what this server runs")));
    ChangeableBy { sentences: said, servers }
}

/// Returns the servers that sentences about these changes name, or count.
pub(super) fn servers_in(changes: &BTreeSet<Change>) -> Vec<String> {
    let servers: BTreeSet<&OtherServer> = changes.iter().map(|change| &change.server).collect();
    servers.into_iter().map(ToString::to_string).collect()
}

/// Returns the paths by server and effect, the shortest first. A path is left out if it lies within a path that is named already.
fn by_server(changes: &BTreeSet<Change>) -> BTreeMap<&OtherServer, Vec<(Effect, Vec<&Path>)>> {
    let mut sorted: Vec<&Change> = changes.iter().collect();
    sorted.sort_by_key(|change| (&change.server, change.effect, change.path.components().count(), &change.path));
    let mut by_server: BTreeMap<&OtherServer, Vec<(Effect, Vec<&Path>)>> = BTreeMap::new();
    let mut known: BTreeSet<(&OtherServer, Effect, &Path)> = BTreeSet::new();
    for Change { server, effect, path } in sorted {
        let said = by_server.entry(server).or_default();
        let covers = |other: &Effect| other.covers(*effect) && path.ancestors().any(|above| known.contains(&(server, *other, above)));
        if said.iter().any(|(other, _)| covers(other)) {
            continue;
        }
        known.insert((server, *effect, path));
        match said.last_mut().filter(|(last, _)| last == effect) {
            Some((_, paths)) => paths.push(path),
            None => said.push((*effect, vec![path])),
        }
    }
    by_server
}

impl Effect {
    /// Returns whether a sentence about this effect of a folder makes a sentence about the effect `other` within the folder unnecessary.
    fn covers(self, other: Self) -> bool {
        match (self, other) {
            // A missing program is named even if its folder is named too. An entry that was not examined is always mentioned.
            (Self::MayPlant, Self::Makes | Self::Replaces) | (Self::Replaces | Self::MayPlant, Self::Unexamined) => false,
            (Self::Replaces | Self::MayPlant, _)
            | (Self::MayAdd, Self::MayAdd)
            | (Self::Rewrites, Self::Rewrites)
            | (Self::Unexamined, Self::Unexamined) => true,
            (Self::Makes | Self::MayAdd | Self::Rewrites | Self::MayMake | Self::Unexamined, _) => false,
        }
    }
}

/// Returns sentences about packages and configs that a box can make, and that this gateway or other programs of the user would then use.
pub(super) fn made_sentences(Changes { of_servers: _, packages, host_configs }: &Changes) -> Vec<String> {
    let listed = |paths: &BTreeSet<PathBuf>| listed(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    let of_packages = (!packages.is_empty()).then(|| format!("can make {}, from which this gateway may load packages", listed(packages)));
    let of_hosts = (!host_configs.is_empty())
        .then(|| format!("can make {}: editors and other hosts start the servers in it, with all of your rights", listed(host_configs)));
    of_packages.into_iter().chain(of_hosts).collect()
}

fn listed(paths: &[&Path]) -> String {
    let mut said: Vec<String> = paths.iter().take(MAX_PATHS).map(|path| shown_path(path)).collect();
    let more = paths.len().saturating_sub(MAX_PATHS);
    said.extend((more > 0).then(|| format!("{more} more places")));
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerSource, SourceKind};

    fn change(server: &str, effect: Effect, path: &str) -> Change {
        Change { server: server.into(), effect, path: path.into() }
    }

    #[test]
    fn each_place_is_said_once_and_the_shortest_first() {
        let changes = BTreeSet::from([
            change("b", Effect::MayPlant, "/ws/x/y"),
            change("b", Effect::MayPlant, "/ws/x"),
            change("b", Effect::MayPlant, "/ws/p/lib"),
            change("b", Effect::Replaces, "/ws/p"),
            change("c", Effect::Makes, "/ws/later.mjs"),
            change("c", Effect::MayPlant, "/ws"),
        ]);
        let said = [
            "can change /ws/p, and so can change what the server \"b\" runs",
            "can change files in /ws/x, from which the server \"b\" may run code",
            "can make /ws/later.mjs, which the server \"c\" runs",
            "can change files in /ws, from which the server \"c\" may run code",
        ];
        assert_eq!(sentences_of_box(&changes, &|_| false), said);
        let by_box = BTreeMap::from([("a".to_owned(), changes)]);
        let said = [
            "the server \"a\" may make /ws/later.mjs, which this server runs",
            "the server \"a\" may write in /ws, from which this server may run code",
        ];
        assert_eq!(changeable_by(&by_box, "c", &|_| false).sentences, said);
        assert_eq!(changeable_by(&by_box, "d", &|_| false).sentences, [] as [String; 0]);
    }

    #[test]
    fn a_file_in_a_folder_that_is_said_is_not_said_again() {
        let changes = BTreeSet::from([
            change("b", Effect::MayPlant, "/ws"),
            change("b", Effect::MayAdd, "/ws"),
            change("b", Effect::Rewrites, "/ws/x.yml"),
            change("b", Effect::MayMake, "/ws/y.yml"),
            change("b", Effect::Rewrites, "/data/x.db"),
            change("b", Effect::MayMake, "/data/y.db"),
            change("b", Effect::MayAdd, "/data"),
            change("b", Effect::MayAdd, "/data/lib"),
        ]);
        let said = [
            "can change files in /ws, from which the server \"b\" may run code",
            "can make or change node_modules, package.json and the like in /data, where the server \"b\" looks for them",
            "can change /data/x.db, which the server \"b\" uses",
            "can make /data/y.db, which the server \"b\" uses",
        ];
        assert_eq!(sentences_of_box(&changes, &|_| false), said);
        // An entry that was not examined is always mentioned, in addition to what is known about it.
        let unexamined = BTreeSet::from([change("b", Effect::MayPlant, "/ws"), change("b", Effect::Unexamined, "/ws")]);
        let said = "can write /ws, and so may be able to change what the server \"b\" runs: its entry is too long to be examined";
        assert_eq!(sentences_of_box(&unexamined, &|_| false)[1], said);
        let said = "the server \"a\" may write /ws, and so may be able to change what this server runs: the entry of this server is too long to be examined";
        assert_eq!(changeable_by(&BTreeMap::from([("a".to_owned(), unexamined)]), "b", &|_| false).sentences[1], said);
        let long = BTreeSet::from([change("b", Effect::MayMake, &format!("/ws/{}", "x".repeat(5_000)))]);
        assert!(sentences_of_box(&long, &|_| false)[0].chars().count() < 400);
    }

    /// The author of an entry decides how many folders its `PATH` has.
    #[test]
    fn very_many_places_are_said_at_once() {
        let changes: BTreeSet<Change> = (0..100_000).map(|number| change("b", Effect::MayPlant, &format!("/ws/p{number}"))).collect();
        let said = crate::files::testing::at_once(move || sentences_of_box(&changes, &|_| false));
        assert_eq!(said, ["can change files in /ws/p0, /ws/p1, /ws/p10, 99997 more places, from which the server \"b\" may run code"]);
    }

    #[test]
    fn no_name_of_a_file_or_server_continues_a_sentence() {
        let changes = BTreeSet::from([
            change("b", Effect::Rewrites, "/ws/q, which was checked. Note"),
            change("c\" runs, but only \"d", Effect::Rewrites, "/ws/x"),
        ]);
        let said = [
            r#"can change "/ws/q, which was checked. Note", which the server "b" uses"#,
            r#"can change /ws/x, which the server "c\" runs, but only \"d" uses"#,
        ];
        assert_eq!(sentences_of_box(&changes, &|_| false), said);
        let by_box = BTreeMap::from([(format!("a\" {}", "x".repeat(50_000)), changes)]);
        let said = changeable_by(&by_box, "b", &|_| false).sentences.remove(0);
        assert!(
            said.starts_with(r#"the server "a\" xxx"#)
                && said.ends_with(r#"x…" may change "/ws/q, which was checked. Note", which this server uses"#)
        );
        assert!(said.len() < 300, "{said}");
        let same_name = OtherServer::SameName("b".to_owned(), ServerSource::named(SourceKind::Config, "cursor"));
        let changes = [same_name, OtherServer::OtherVersion].map(|server| Change { server, effect: Effect::Makes, path: "/ws/x".into() });
        let said = [
            "can make /ws/x, which the server \"b\" of the config of \"cursor\" runs",
            "can make /ws/x, which another version of this server runs",
        ];
        assert_eq!(sentences_of_box(&changes.into(), &|_| false), said);
    }

    #[test]
    fn the_number_of_places_and_servers_is_bounded() {
        let places: BTreeSet<Change> = (0..5).map(|number| change("b", Effect::MayPlant, &format!("/ws/{number}"))).collect();
        assert_eq!(
            sentences_of_box(&places, &|_| false),
            ["can change files in /ws/0, /ws/1, /ws/2, 2 more places, from which the server \"b\" may run code"]
        );
        let servers: BTreeSet<Change> = (0..14).map(|number| change(&format!("b{number:02}"), Effect::MayPlant, "/ws")).collect();
        let said = sentences_of_box(&servers, &|_| false);
        assert_eq!((said.len(), said.last().map(String::as_str)), (11, Some("can change what 4 more servers run")));
        let by_box = (0..12).map(|number| (format!("a{number:02}"), servers.clone())).collect();
        let said = changeable_by(&by_box, "b00", &|_| false).sentences;
        assert_eq!((said.len(), said.last().map(String::as_str)), (11, Some("2 more servers may change what this server runs")));
        // Those that a person knows are named first, however many others there are.
        let said = sentences_of_box(&servers, &|server| *server == "b13".into());
        assert!(said.len() == 12 && said[0].ends_with("the server \"b13\" may run code") && said[11].contains("3 more"), "{said:#?}");
        let said = changeable_by(&by_box, "b00", &|name| name == "a11").sentences;
        assert!(said.len() == 12 && said[0].starts_with("the server \"a11\"") && said[11].starts_with("1 more"), "{said:#?}");
    }
}
