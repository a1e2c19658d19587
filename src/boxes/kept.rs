//! Files and folders that run outside of a box: the gateway's own program, and the programs of other servers. A process that can write them
//! gets the rights of the users who run them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::mounts::OtherMounts;
use super::order::Access;
use super::own_files::{access_of, followed, unseen};
use super::paths::Lookup;
use super::shown::{OtherServer, shown_path};

/// Files and folders in a project that programs of its user run, or that decide what such programs run.
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

/// The owner of a file or folder: the program that runs it, or that takes code from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The process of this gateway, which no box limits.
    Gateway,
    /// The process of this gateway, which loads the package if it exists.
    GatewayIfMade,
    /// A program of the user that starts servers, such as an editor. The file says which servers it starts.
    Host,
    /// The process of another server.
    Server(OtherServer),
    /// The process of another server that is not approved. The path is a program or package of this server. Boxes may write it until the
    /// server is approved.
    Runs(OtherServer),
    /// The process of another server. The folder may contain code for this server, and other things that boxes may write.
    MayRun(OtherServer),
    /// The process of another server. It looks in the folder for packages and settings with certain names.
    Searches(OtherServer),
    /// The process of another server. The file is named by its command, and is not a program.
    Uses(OtherServer),
    /// The process of another server. Its entry names more paths than are looked at, so it may run anything at the path.
    Unexamined(OtherServer),
}

impl Owner {
    /// Returns whether a box may only read what exists at the path.
    pub(super) fn is_kept(&self) -> bool {
        match self {
            Self::Gateway | Self::GatewayIfMade | Self::Host | Self::Server(_) => true,
            Self::Runs(_) | Self::MayRun(_) | Self::Searches(_) | Self::Uses(_) | Self::Unexamined(_) => false,
        }
    }
}

/// Something that a box can change, and that decides what another server runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub server: OtherServer,
    pub effect: Effect,
    pub path: PathBuf,
}

/// The way in which a box can change what another server runs. The sentences of an approval follow the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The path is, contains, or leads to a program or package of the server.
    Replaces,
    /// The path is that of a missing program of the server.
    Makes,
    /// The path is a folder from which the server may run code.
    MayPlant,
    /// The path is a folder in which the server looks for packages and settings.
    MayAdd,
    /// The path is that of another file that the command of the server names.
    Rewrites,
    /// The path is that of a missing file that the command of the server names.
    MayMake,
    /// The path is one that the box may write. It is not known whether the server takes code from it.
    Unexamined,
}

/// The changes that a box can make outside of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    pub of_servers: BTreeSet<Change>,
    /// Missing packages that this gateway would load.
    pub packages: BTreeSet<PathBuf>,
    /// Missing files in which programs of the user would find servers to start.
    pub host_configs: BTreeSet<PathBuf>,
}

/// Makes paths that run outside of the box read-only. Returns what the box can change nevertheless. `refused` gets the reasons why a box
/// with these paths could change the program of the gateway.
pub(super) fn keep(
    kept: &[Kept],
    paths: &mut BTreeMap<PathBuf, Access>,
    mounts: &OtherMounts,
    lookup: &impl Lookup,
    refused: &mut Vec<String>,
) -> Changes {
    let given: BTreeMap<PathBuf, Access> = paths.clone();
    let places = places(kept, mounts, lookup);
    for Place { at: place, .. } in places.iter().filter(|place| place.is_kept()) {
        let is_written = access_of(&given, place) == Some(Access::Write) && !given.contains_key(place);
        if is_written && lookup.kind(place).is_some() {
            paths.insert(place.clone(), Access::Read);
        }
    }
    let within_written = |place: &Path| access_of(&given, place) == Some(Access::Write);
    let mut programs = places.iter().filter(|place| place.is_kept()).map(|place| &place.at);
    if let Some(place) = programs.find(|place| within_written(place) && lookup.is_unknown(place)) {
        refused.push(unseen(place, lookup));
    }
    // A link within a protected path cannot be replaced.
    let is_written = |path: &Path| access_of(paths, path) == Some(Access::Write);
    let mut changes = Changes::default();
    for Place { owners, links, at: place } in &places {
        let links: Vec<&PathBuf> = links.iter().filter(|link| is_written(link)).collect();
        // The paths within a folder follow it in their order.
        let within = given.range::<PathBuf, _>(place..).take_while(|(path, _)| path.starts_with(place));
        let has = within.filter(|(_, access)| **access == Access::Write).map(|(path, _)| path);
        let changeable: Vec<&PathBuf> = has.chain(links.iter().copied()).collect();
        let is_unknown = lookup.is_unknown(place);
        let is_missing = lookup.kind(place).is_none() && !is_unknown;
        let looked = Looked { place, links: &links, changeable: &changeable, is_written: is_written(place), is_missing, is_unknown };
        refused.extend(owners.iter().filter_map(|owner| changes.add(owner, &looked).err()));
    }
    changes
}

/// Returns what a box could change of other servers if it could write only these paths. Reads the disk.
pub fn changes_by_writing(writes: &BTreeSet<PathBuf>, kept: &[Kept], lookup: &impl Lookup) -> BTreeSet<Change> {
    let mut paths: BTreeMap<PathBuf, Access> = writes.iter().map(|path| (path.clone(), Access::Write)).collect();
    let mounts = OtherMounts::of(writes.iter(), lookup);
    keep(kept, &mut paths, &mounts, lookup, &mut Vec::new()).of_servers
}

/// A place, and the links that lead to it.
struct Place<'k> {
    owners: Vec<&'k Owner>,
    links: Vec<PathBuf>,
    at: PathBuf,
}

impl Place<'_> {
    fn is_kept(&self) -> bool {
        self.owners.iter().any(|owner| owner.is_kept())
    }
}

/// Returns the places of all files that run outside of the box, with the other names that the box has for them. A path that many servers
/// share, such as one of `PATH`, is looked at once.
fn places<'k>(kept: &'k [Kept], mounts: &OtherMounts, lookup: &impl Lookup) -> Vec<Place<'k>> {
    let mut by_path: BTreeMap<&Path, Vec<&Owner>> = BTreeMap::new();
    for Kept { path, owner } in kept {
        by_path.entry(path).or_default().push(owner);
    }
    let mut places = Vec::new();
    for (path, owners) in by_path {
        let (links, place) = followed(path, lookup);
        for name in mounts.other_names(&place, lookup) {
            places.push(Place { owners: owners.clone(), links: Vec::new(), at: name });
        }
        places.push(Place { owners, links, at: place });
    }
    places
}

/// A place, and what a box can do there.
struct Looked<'p> {
    place: &'p PathBuf,
    /// The links to the place that the box can replace.
    links: &'p [&'p PathBuf],
    /// The given paths that are the place or lie within it, and the links.
    changeable: &'p [&'p PathBuf],
    is_written: bool,
    is_missing: bool,
    /// True if nobody can find out whether the place exists.
    is_unknown: bool,
}

impl Changes {
    /// Returns the missing programs of other servers that the box can make.
    pub(crate) fn makes(&self) -> impl Iterator<Item = &PathBuf> {
        self.of_servers.iter().filter(|change| change.effect == Effect::Makes).map(|change| &change.path)
    }

    /// Adds the changes that a box can make at a place.
    ///
    /// # Errors
    /// The reason why no box may change the place.
    fn add(&mut self, owner: &Owner, looked: &Looked<'_>) -> Result<(), String> {
        let Looked { place, links, changeable, is_written, is_missing, is_unknown } = *looked;
        let at_place: &[&PathBuf] = &[place];
        let is_makeable = is_written && is_missing;
        let (server, effect, paths) = match (owner, changeable) {
            (Owner::Gateway | Owner::GatewayIfMade | Owner::Host, [first, ..]) => return Err(refusal(owner, first)),
            (Owner::Gateway, []) if is_makeable => {
                return Err(format!(
                    "{} does not exist, and this box could make it: this gateway would load it, and runs without a box. Make it first, or name \
                     other folders",
                    place.display()
                ));
            }
            (Owner::GatewayIfMade, []) if is_makeable => {
                self.packages.insert(place.clone());
                return Ok(());
            }
            (Owner::Host, []) if is_makeable => {
                self.host_configs.insert(place.clone());
                return Ok(());
            }
            (Owner::Gateway | Owner::GatewayIfMade | Owner::Host, []) => return Ok(()),
            // If it cannot be found out whether a program exists, no box is made now. A box may be made later, when the program is missing.
            (Owner::Server(server), []) => (server, Effect::Makes, if is_written && (is_missing || is_unknown) { at_place } else { &[] }),
            (Owner::Server(server), _) => (server, Effect::Replaces, changeable),
            (Owner::Runs(server), []) if is_missing => (server, Effect::Makes, if is_written { at_place } else { &[] }),
            (Owner::Runs(server), _) => (server, Effect::Replaces, if is_written { at_place } else { changeable }),
            (Owner::MayRun(server), _) => (server, Effect::MayPlant, if is_written { at_place } else { changeable }),
            // Other things in the folder are not looked for.
            (Owner::Searches(server), _) => (server, Effect::MayAdd, if is_written { at_place } else { links }),
            (Owner::Uses(server), []) if is_missing => (server, Effect::MayMake, if is_written { at_place } else { &[] }),
            (Owner::Uses(server), []) => (server, Effect::Rewrites, if is_written { at_place } else { &[] }),
            (Owner::Uses(server), _) => (server, Effect::Rewrites, changeable),
            (Owner::Unexamined(server), _) => (server, Effect::Unexamined, changeable),
        };
        let change = |path: &&PathBuf| Change { server: server.clone(), effect, path: PathBuf::clone(path) };
        self.of_servers.extend(paths.iter().map(change));
        Ok(())
    }
}

/// Returns the reason why no box may change a path of the gateway, or of a program of the user that starts servers.
fn refusal(owner: &Owner, changeable: &Path) -> String {
    let changeable = changeable.display();
    if matches!(owner, Owner::Host) {
        return format!(
            "a box must not write {changeable}: your other programs, such as editors, read a file there and start the servers that it names, without a box. Name other folders"
        );
    }
    format!(
        "a box must not write {changeable}: this gateway's own program is loaded through it, and this program runs without a box. Name other folders, or install \
         the program outside of them"
    )
}

/// Returns a sentence about files that other programs of the user run, in or around a path that a box may write. `None` if no such file was
/// found.
pub(super) fn planting(given_path: &Path, given: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Option<String> {
    let may_exist = |path: &Path| lookup.kind(path).is_some() || lookup.is_unknown(path);
    let is_changeable = |path: &Path| access_of(given, path) == Some(Access::Write) && may_exist(path);
    let is_plant = |path: &&Path| path.file_name().is_some_and(|name| PLANTS.iter().any(|plant| name == *plant));
    // `.git/hooks` is a part of `.git`.
    let what = if let Some(plant) = given_path.ancestors().find(is_plant) {
        let part = if plant == given_path { String::new() } else { format!(", a part of {}", shown_path(plant)) };
        format!("{}{part}", shown_path(given_path))
    } else {
        let found: Vec<&str> = PLANTS.into_iter().filter(|name| is_changeable(&given_path.join(name))).collect();
        if found.is_empty() {
            return None;
        }
        format!("{} in {}", found.join(", "), shown_path(given_path))
    };
    Some(format!("can change {what}: git, package managers, editors and shells run what is there, with all of your rights"))
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
