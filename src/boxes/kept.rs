//! Files and folders that run outside of a box: the gateway's own program, and the programs of other servers. Whoever writes them acts with
//! the rights of those who run them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::mounts::OtherMounts;
use super::order::Access;
use super::own_files::{access_of, followed, unseen};
use super::paths::Lookup;

/// Files and folders of a project that programs of its user run, or from which they take what they run.
const PLANTS: [&str; 16] = [
    ".git",
    ".husky",
    ".pre-commit-config.yaml",
    ".vscode",
    ".idea",
    ".envrc",
    ".npmrc",
    ".mcp.json",
    ".cursor",
    ".codex",
    ".claude",
    "Makefile",
    "justfile",
    "package.json",
    "node_modules",
    "pyproject.toml",
];

/// A file or folder that runs outside of the box.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    pub path: PathBuf,
    pub owner: Owner,
}

/// Who runs a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The process of this gateway, which no box limits.
    Gateway,
    /// The process of another server, with this name.
    Server(String),
    /// The process of another server. The folder may have code for it, and other things that boxes may write.
    MayRun(String),
}

/// Something that a box can change, and that decides what another server runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub server: String,
    pub effect: Effect,
    pub path: PathBuf,
}

/// The way in which a box can change what another server runs. The order is that of the sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The path is, contains, or leads to a program or package of the server.
    Replaces,
    /// The path is that of a missing program of the server.
    Makes,
    /// The path is a folder from which the server may run code.
    MayPlant,
}

/// Takes the right to write from what runs outside. Returns what a box can change nevertheless.
///
/// # Errors
/// The reason why a box with these paths could change the program of the gateway.
pub(super) fn keep(
    kept: &[Kept],
    paths: &mut BTreeMap<PathBuf, Access>,
    mounts: &OtherMounts,
    lookup: &impl Lookup,
) -> Result<BTreeSet<Change>, String> {
    let given: BTreeMap<PathBuf, Access> = paths.clone();
    let places: Vec<(&Kept, Vec<PathBuf>, PathBuf)> = kept
        .iter()
        .flat_map(|kept| {
            let (links, place) = followed(&kept.path, lookup);
            let others = mounts.other_names(&place, lookup).into_iter().map(|name| (kept, Vec::new(), name));
            others.chain([(kept, links, place)]).collect::<Vec<_>>()
        })
        .collect();
    for (kept, _, place) in &places {
        let is_program = !matches!(kept.owner, Owner::MayRun(_));
        let is_written = access_of(&given, place) == Some(Access::Write) && !given.contains_key(place);
        if is_program && is_written && lookup.kind(place).is_some() {
            paths.insert(place.clone(), Access::Read);
        }
    }
    let within_written = |place: &Path| access_of(&given, place) == Some(Access::Write);
    let programs = || places.iter().filter(|(kept, ..)| !matches!(kept.owner, Owner::MayRun(_)));
    if let Some((_, _, place)) = programs().find(|(_, _, place)| within_written(place) && lookup.is_unknown(place)) {
        return Err(unseen(place, lookup));
    }
    // A link within something that is kept cannot be replaced.
    let is_written = |path: &Path| access_of(paths, path) == Some(Access::Write);
    let mut changes = BTreeSet::new();
    for (kept, links, place) in &places {
        let link = links.iter().find(|link| is_written(link));
        let has = given.iter().find(|(path, access)| **access == Access::Write && path.starts_with(place)).map(|(path, _)| path);
        let changeable = has.or(link);
        let (server, effect, path) = match (&kept.owner, changeable) {
            (Owner::Gateway, Some(changeable)) => {
                return Err(format!(
                    "{} cannot be written: this gateway's own program is loaded through it, which runs without a box. Name other folders, or install \
                     the program outside of them",
                    changeable.display()
                ));
            }
            (Owner::Server(server), Some(changeable)) => (server, Effect::Replaces, changeable),
            (Owner::Server(server), None) if is_written(place) && lookup.kind(place).is_none() => (server, Effect::Makes, place),
            (Owner::MayRun(server), _) if is_written(place) => (server, Effect::MayPlant, place),
            (Owner::MayRun(server), Some(changeable)) => (server, Effect::MayPlant, changeable),
            _ => continue,
        };
        changes.insert(Change { server: server.clone(), effect, path: path.clone() });
    }
    Ok(changes)
}

/// Says what in a folder that a box may write is run by other programs of the user. `None` if nothing was found.
pub(super) fn planting(folder: &Path, given: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Option<String> {
    let is_changeable = |path: &Path| access_of(given, path) == Some(Access::Write) && lookup.kind(path).is_some();
    let found: Vec<&str> = PLANTS.into_iter().filter(|name| is_changeable(&folder.join(name))).collect();
    let named = format!("can change {} in {}", found.join(", "), folder.display());
    (!found.is_empty()).then(|| format!("{named}: git, package managers, editors and shells run what is there, with all of your rights"))
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
