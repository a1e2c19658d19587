//! Files and folders that run outside of a box: the gateway's own program, and the programs of other servers. Whoever writes them acts with
//! the rights of those who run them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::order::Access;
use super::own_files::{access_of, followed};
use super::paths::Lookup;

/// Files and folders of a project that programs of its user run, or from which they take what they run.
const PLANTS: [&str; 11] = [
    ".git",
    ".husky",
    ".pre-commit-config.yaml",
    ".vscode",
    ".idea",
    ".envrc",
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
}

/// Takes the right to write from what runs outside. Returns sentences about what a box can change nevertheless.
///
/// # Errors
/// The reason why a box with these paths could change the program of the gateway.
pub(super) fn keep(kept: &[Kept], paths: &mut BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Result<Vec<String>, String> {
    let given: BTreeMap<PathBuf, Access> = paths.clone();
    let is_written = |path: &Path| access_of(&given, path) == Some(Access::Write);
    let mut notes = Vec::new();
    for Kept { path, owner } in kept {
        let (links, place) = followed(path, lookup);
        let has = given.iter().find(|(path, access)| **access == Access::Write && path.starts_with(&place));
        let link = links.iter().find(|link| is_written(link));
        let changeable = has.map(|(path, _)| path).or(link);
        match (owner, changeable) {
            (Owner::Gateway, Some(changeable)) => {
                return Err(format!(
                    "{} cannot be written: this gateway's own program is loaded through it, which runs without a box. Name other folders, or install \
                     the program outside of them",
                    changeable.display()
                ));
            }
            (Owner::Server(name), Some(changeable)) => {
                notes.push(format!("can change {}, and so what the server \"{name}\" runs", changeable.display()));
            }
            (Owner::Server(name), None) if is_written(&place) && lookup.kind(&place).is_none() => {
                notes.push(format!("can make {}, which the server \"{name}\" runs", place.display()));
            }
            _ => {}
        }
        if is_written(&place) && !given.contains_key(&place) && lookup.kind(&place).is_some() {
            paths.insert(place, Access::Read);
        }
    }
    notes.sort();
    notes.dedup();
    Ok(notes)
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
