//! Files of the gateway itself that lie in folders of a box: its config, tokens, keys, and the variables of its servers. Whoever changes them
//! decides what other servers and callers may do.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::order::Access;
use super::paths::Lookup;

/// Maximum number of links that lead to one file, as in the kernel.
const MAX_LINKS: usize = 40;

/// A file that the gateway reads, and that no box may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFile {
    pub path: PathBuf,
    pub use_of: OwnFileUse,
}

/// The use that the gateway makes of one of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFileUse {
    Config,
    /// A config of another program, from which the gateway takes entries. They need an approval like all others.
    Base,
    /// Tokens of callers, or a private key. The gateway reads such a file again at any time.
    Secret,
    /// Variables of servers (`envFile`). `by_this` is true if they are for the server in the box, which gets them anyway.
    Variables {
        by_this: bool,
    },
}

impl OwnFileUse {
    fn words(self) -> &'static str {
        match self {
            Self::Config => "this gateway's config",
            Self::Base => "a config from which this gateway takes servers",
            Self::Secret => "a file with tokens or a key of this gateway",
            Self::Variables { .. } => "the envFile of a server",
        }
    }
}

/// The gateway's own files within the folders of a box.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Files that the box has without their content, and without the right to write or replace them.
    pub(super) hidden: Vec<PathBuf>,
    /// Files that the box may only read.
    pub(super) read: Vec<PathBuf>,
}

/// Decides about all own files. `named` are the paths that the config's `read` names, which a person has allowed by name.
///
/// # Errors
/// The reason why a box with these paths could change or read one of the files.
pub(super) fn held(files: &[OwnFile], given: &BTreeMap<PathBuf, Access>, named: &[PathBuf], lookup: &impl Lookup) -> Result<Held, String> {
    let mut held = Held::default();
    for OwnFile { path, use_of } in files {
        let (words, what) = (use_of.words(), path.display());
        let (links, place) = followed(path, lookup);
        if let Some(link) = links.iter().find(|link| access_of(given, link) == Some(Access::Write))
            && *use_of != OwnFileUse::Base
        {
            return Err(format!(
                "{what}, {words}, leads through the link {}, which this box could replace: name {} itself, or put it outside",
                link.display(),
                place.display()
            ));
        }
        let Some(access) = access_of(given, &place) else { continue };
        let is_given_itself = given.contains_key(&place);
        match use_of {
            OwnFileUse::Secret => {
                return Err(format!("{what} is {words}, and lies in a folder that this box would have: put it outside of that folder"));
            }
            OwnFileUse::Variables { .. } if is_given_itself && access == Access::Read && named.contains(&place) => {}
            _ if is_given_itself => return Err(format!("{what} cannot be given: it is {words}")),
            // A program that makes the file writes what the gateway reads. A base brings only entries that a person has to approve.
            OwnFileUse::Config | OwnFileUse::Variables { .. } if access == Access::Write && lookup.kind(&place).is_none() => {
                return Err(format!("{what}, {words}, does not exist, and this box could make it: make it first, even if it is empty"));
            }
            OwnFileUse::Variables { by_this: true } => held.read.push(place),
            _ => held.hidden.push(place),
        }
    }
    Ok(held)
}

/// Returns a sentence for each config that does not exist and that a box can make.
pub(super) fn makeable(files: &[OwnFile], given: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Vec<String> {
    let bases = files.iter().filter(|file| file.use_of == OwnFileUse::Base);
    let can_be_made = |path: &&PathBuf| {
        let (links, place) = followed(path, lookup);
        let is_written = |path: &PathBuf| access_of(given, path) == Some(Access::Write);
        links.iter().any(is_written) || (is_written(&place) && lookup.kind(&place).is_none())
    };
    let paths = bases.map(|file| &file.path).filter(can_be_made);
    paths.map(|path| format!("can make {}, from which this gateway takes servers that need an approval", path.display())).collect()
}

/// Returns the access that a box has to a path, by the innermost given folder that contains it.
fn access_of(given: &BTreeMap<PathBuf, Access>, path: &Path) -> Option<Access> {
    path.ancestors().find_map(|above| given.get(above)).copied()
}

/// Returns the links through which a path leads, and the place at which it ends, whether something exists there or not.
fn followed(path: &Path, lookup: &impl Lookup) -> (Vec<PathBuf>, PathBuf) {
    let (mut links, mut place) = (Vec::new(), PathBuf::from("/"));
    let mut rest: Vec<PathBuf> = parts(path);
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            place.pop();
            continue;
        }
        let next = place.join(&part);
        match lookup.link(&next).filter(|_| links.len() < MAX_LINKS) {
            Some(target) => {
                if target.is_absolute() {
                    place = PathBuf::from("/");
                }
                rest.extend(parts(&target));
                links.push(next);
            }
            None => place = next,
        }
    }
    (links, place)
}

/// Returns the parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// Returns the paths that must stay at their place in a box: folders between a folder that can be written and something in it that cannot.
/// A folder that is moved takes along what is mounted within, and another one could come to its place.
pub(super) fn fixed_folders<'p>(written: &[&Path], kept: impl Iterator<Item = &'p Path>, is_given: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let is_within = |folder: &Path| written.iter().any(|above| folder.starts_with(above) && folder != *above);
    let mut folders: Vec<PathBuf> =
        kept.flat_map(|path| path.ancestors().skip(1)).filter(|path| is_within(path)).map(Path::to_owned).collect();
    folders.retain(|folder| !is_given(folder));
    // A folder comes before what it contains.
    folders.sort();
    folders.dedup();
    folders
}
