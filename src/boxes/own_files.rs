//! Files of the gateway itself that lie in folders of a box: its config, tokens and keys, and the variables of its servers. A program that
//! changes these files decides what other servers and callers may do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::mounts::OtherMounts;
use super::order::Access;
use super::paths::{Disk, Identity, Kind, Lookup, SYSTEM, is_system};
use super::shown::{OtherServer, shown_path};
use crate::files::{Followed, MAX_STEPS, follow};

/// A file that the gateway reads, and that no box may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFile {
    pub path: PathBuf,
    pub use_of: OwnFileUse,
    /// The other server that gets its variables from the file. `None` for any other file.
    pub server: Option<FileOwner>,
    /// True if others than the user decide which file this is: a link leads out of a project, or to a file of the system. Then a box keeps the
    /// file. If the server is approved, no box may replace the link.
    pub leads_out: bool,
}

/// Another server that gets its variables from a file (`envFile`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOwner {
    pub server: OtherServer,
    /// True if the server is approved and has no entry now. The entry may come back.
    pub is_gone: bool,
    pub trust: FileTrust,
}

/// The trust in an entry that names an `envFile`. It decides whether a box is refused because of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileTrust {
    /// The file belongs to a server whose approval is being requested. It refuses no box. A box hides it if it can.
    Unapproved,
    /// The entry is one of the user, and is not approved with this file. A box is refused only if the file exists.
    Configured,
    /// A valid approval of the server covers this file.
    Approved,
}

impl OwnFile {
    /// Returns a file whose use needs no name of a server.
    pub fn new(path: impl Into<PathBuf>, use_of: OwnFileUse) -> Self {
        Self { path: path.into(), use_of, server: None, leads_out: false }
    }

    /// Returns whether a box that could make or replace the file is refused. `place` is where the file's path ends.
    pub(super) fn can_refuse(&self, place: &Path, lookup: &impl Lookup) -> bool {
        match self.server.as_ref().map(|owner| owner.trust) {
            None if self.use_of == OwnFileUse::LinkedBase => false,
            None | Some(FileTrust::Approved) => true,
            Some(FileTrust::Configured) if self.leads_out => false,
            Some(FileTrust::Configured) => lookup.kind(place).is_some() || lookup.is_unknown(place),
            Some(FileTrust::Unapproved) => false,
        }
    }

    /// Returns whether a box that has the file's place hides it. An entry can name a folder, which no server can use as its `envFile`, so the
    /// folder of an entry that is not approved stays visible.
    pub(crate) fn is_hidden_at(&self, place: &Path, lookup: &impl Lookup) -> bool {
        if self.use_of == OwnFileUse::LinkedBase || self.leads_out {
            return false;
        }
        self.can_refuse(place, lookup) || (matches!(lookup.kind(place), None | Some(Kind::File)) && !lookup.is_unknown(place))
    }

    /// Returns words that describe the file in an error.
    pub(super) fn words(&self) -> String {
        let Some(FileOwner { server, is_gone, trust: _ }) = &self.server else { return self.use_of.words().to_owned() };
        let gone = if *is_gone { ", which is approved and has no entry now" } else { "" };
        format!("the envFile of {server}{gone}")
    }

    /// Returns the end of an error, which says what the user can do if the file does not exist.
    fn way_out_if_missing(&self) -> String {
        let revoking = self.server.as_ref().filter(|owner| owner.is_gone);
        let revoking = revoking.map(|owner| format!(", or revoke the approval of {}", owner.server));
        format!("make it first, even if it is empty{}", revoking.unwrap_or_default())
    }
}

/// The use that the gateway makes of one of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFileUse {
    Config,
    /// A config of another program, from which the gateway takes entries. They need an approval like all others.
    Base,
    /// A base that is a link, or lies behind one, in a project, or that leads to a file of the system. Others than the user decide where it
    /// leads, so it takes no file away from a box.
    LinkedBase,
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
            Self::Base | Self::LinkedBase => "a config from which this gateway takes servers",
            Self::Secret => "a file with tokens or a key of this gateway",
            Self::Variables { by_this: true } => "the envFile of this server",
            Self::Variables { by_this: false } => "the envFile of a server",
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
    /// Those files that the box cannot change in any way, also not by another name.
    pub(super) unchangeable: BTreeSet<PathBuf>,
}

/// Decides how a box may use each of the gateway's own files. `named` are the paths that the config's `read` names. A person has allowed
/// these by name.
///
/// # Errors
/// The reason why a box with these paths could change or read one of the files.
pub(super) fn held(
    files: &[OwnFile],
    given: &BTreeMap<PathBuf, Access>,
    named: &[PathBuf],
    mounts: &OtherMounts,
    lookup: &impl Lookup,
) -> Result<Held, String> {
    let mut held = Held::default();
    let (given, elsewhere) = (&with_system(given), system_elsewhere(lookup));
    let identities: Vec<(&Path, Identity)> = given.keys().filter_map(|path| Some((path.as_path(), lookup.identity(path)?))).collect();
    let paths = BoxPaths { given, identities: &identities, elsewhere: &elsewhere, named, mounts };
    for file in files {
        let (passed, place) = replaceable(&file.path, given, lookup);
        let refusal = paths.refusal(file, passed.as_deref(), &place, lookup);
        let is_unchangeable = refusal.is_none() && is_hidden_if_given(&file.path, lookup);
        if let Some(reason) = refusal.filter(|_| file.can_refuse(&place, lookup)) {
            return Err(reason);
        }
        let is_given_itself = given.contains_key(&place);
        if is_given_itself || access_of(given, &place).is_none() || !file.is_hidden_at(&place, lookup) {
            continue;
        }
        if is_unchangeable {
            held.unchangeable.insert(place.clone());
        }
        match file.use_of {
            OwnFileUse::Variables { by_this: true } => held.read.push(place),
            _ => held.hidden.push(place),
        }
    }
    Ok(held)
}

/// The paths of a box, with which the gateway's own files are compared.
struct BoxPaths<'p> {
    /// The given paths, and those of the system.
    given: &'p BTreeMap<PathBuf, Access>,
    identities: &'p [(&'p Path, Identity)],
    /// The paths of the system that are links to other places.
    elsewhere: &'p [(&'static str, PathBuf)],
    named: &'p [PathBuf],
    mounts: &'p OtherMounts,
}

impl BoxPaths<'_> {
    /// Returns the reason why a box with these paths could change or read the file. `passed` is a link to the file that the box could
    /// replace, and `place` is where the file's path ends.
    fn refusal(&self, file: &OwnFile, passed: Option<&Path>, place: &Path, lookup: &impl Lookup) -> Option<String> {
        let Self { given, identities, elsewhere, named, mounts } = *self;
        let (use_of, words, what) = (file.use_of, file.words(), file.path.display());
        if let Some(passed) = passed.filter(|_| use_of != OwnFileUse::Base) {
            return Some(format!(
                "{what}, {words}, leads through {}, which this box could replace: name {} itself, or put it outside of the folders of this box",
                passed.display(),
                place.display()
            ));
        }
        if file.leads_out {
            return None;
        }
        if let Some((system, real)) = elsewhere.iter().find(|(_, real)| place.starts_with(real)) {
            return Some(format!("{what} is {words}, and lies in {}, which each box has as {system}: move it elsewhere", real.display()));
        }
        let by_mount = || name_by_mount(place, given, mounts, lookup);
        if let Some(other) = other_name(place, identities, lookup).or_else(by_mount) {
            return Some(format!("{what}, {words}, has another name in this box, {}: give {} instead", other.display(), place.display()));
        }
        let access = access_of(given, place)?;
        if lookup.is_unknown(place) {
            return Some(unseen(place, lookup));
        }
        // If the file is covered, another name of the same file is not covered.
        if use_of != OwnFileUse::Base && lookup.identity(place).and_then(|file| file.names).is_some_and(|names| names > 1) {
            return Some(format!(
                "{what}, {words}, has other names (hard links), by which this box could reach it: make it a file of its own, by copying it and \
                 moving the copy to its place"
            ));
        }
        let is_given_itself = given.contains_key(place);
        match use_of {
            OwnFileUse::Secret => {
                Some(format!("{what} is {words}, and lies in a folder that this box would have: put it outside of that folder"))
            }
            OwnFileUse::Variables { .. } if is_given_itself && access == Access::Read && named.iter().any(|named| named == place) => None,
            _ if is_given_itself => Some(format!("{what} cannot be given: it is {words}")),
            // A program in the box that makes this file decides what the gateway reads. A base is different: it brings only entries that a
            // person has to approve.
            OwnFileUse::Config | OwnFileUse::Variables { .. } if access == Access::Write && lookup.kind(place).is_none() => {
                Some(format!("{what}, {words}, does not exist, and this box could make it: {}", file.way_out_if_missing()))
            }
            OwnFileUse::Config | OwnFileUse::Base | OwnFileUse::LinkedBase | OwnFileUse::Variables { .. } => None,
        }
    }
}

/// Checks that a box with these paths cannot replace a link or folder that leads to one of the gateway's own folders. The gateway would
/// take the replacement for its own folder.
///
/// # Errors
/// A sentence that names what could be replaced.
pub(super) fn check_own_folders(
    folders: &[PathBuf],
    given: &BTreeMap<PathBuf, Access>,
    mounts: &OtherMounts,
    lookup: &impl Lookup,
) -> Result<(), String> {
    for folder in folders {
        let (passed, place) = replaceable(folder, given, lookup);
        if let Some(passed) = passed {
            return Err(format!(
                "{}, this gateway's own folder, leads through {}, which this box could replace: name {} itself, or put it outside of the folders of this box",
                folder.display(),
                passed.display(),
                place.display()
            ));
        }
        if let Some(other) = name_by_mount(&place, given, mounts, lookup) {
            return Err(format!(
                "{}, this gateway's own folder, has another name in this box, {}: give the box folders that do not contain this name, or move the gateway's folder outside of them",
                folder.display(),
                other.display()
            ));
        }
    }
    Ok(())
}

/// Returns whether each box that has the folder of this file hides the file, and no box can change it by another name or a link.
pub(crate) fn is_hidden_if_given(path: &Path, lookup: &impl Lookup) -> bool {
    let (passed, place) = followed(path, lookup);
    let has_one_name = || lookup.identity(&place).and_then(|file| file.names).is_none_or(|names| names <= 1);
    passed.is_empty() && lookup.kind(&place) == Some(Kind::File) && has_one_name()
}

/// Returns a sentence for each config that does not exist and that a box can make.
pub(super) fn makeable(files: &[OwnFile], given: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Vec<String> {
    let bases = files.iter().filter(|file| matches!(file.use_of, OwnFileUse::Base | OwnFileUse::LinkedBase));
    let can_be_made = |path: &&PathBuf| {
        let (passed, place) = replaceable(path, given, lookup);
        passed.is_some() || (access_of(given, &place) == Some(Access::Write) && lookup.kind(&place).is_none())
    };
    let paths = bases.map(|file| &file.path).filter(can_be_made);
    paths.map(|path| format!("can make {}, from which this gateway takes servers that need an approval", shown_path(path))).collect()
}

/// Returns another name that a box has for a file. A given path is the same file, or the same folder as one that contains the file, because
/// the machine has it mounted twice, or because it is a hard link.
fn other_name(place: &Path, given: &[(&Path, Identity)], lookup: &impl Lookup) -> Option<PathBuf> {
    place.ancestors().find_map(|known| {
        let Identity { device, inode, names: _ } = lookup.identity(known)?;
        let is_same = |(path, other): &&(&Path, Identity)| (other.device, other.inode) == (device, inode) && *path != known;
        let (path, _) = given.iter().find(is_same)?;
        let rest = place.strip_prefix(known).ok()?;
        Some(path.join(rest).components().collect())
    })
}

/// Returns another name that a box has for a file or folder, because the machine has it mounted twice.
fn name_by_mount(place: &Path, given: &BTreeMap<PathBuf, Access>, mounts: &OtherMounts, lookup: &impl Lookup) -> Option<PathBuf> {
    mounts.other_names(place, lookup).into_iter().find(|name| access_of(given, name).is_some())
}

/// Returns the given paths together with the paths of the system, which each box has.
pub(super) fn with_system(given: &BTreeMap<PathBuf, Access>) -> BTreeMap<PathBuf, Access> {
    let system = SYSTEM.into_iter().map(|path| (PathBuf::from(path), Access::Read));
    system.chain(given.iter().map(|(path, access)| (path.clone(), *access))).collect()
}

/// Returns the paths of the system that are links to other places, each with its place.
pub(super) fn system_elsewhere(lookup: &impl Lookup) -> Vec<(&'static str, PathBuf)> {
    let real = SYSTEM.into_iter().filter_map(|path| Some((path, lookup.real(Path::new(path))?)));
    real.filter(|(_, real)| !is_system(real)).collect()
}

/// Returns the access that a box has to a path, by the innermost given folder that contains it.
pub(super) fn access_of(given: &BTreeMap<PathBuf, Access>, path: &Path) -> Option<Access> {
    path.ancestors().find_map(|above| given.get(above)).copied()
}

/// Returns the place at which a path ends on this machine, with all links followed, whether something exists there or not.
pub(crate) fn place_of(path: &Path) -> PathBuf {
    followed(path, &Disk).1
}

/// Returns the files that can redirect a path, and the place at which the path ends. The place need not exist. The files are links, and
/// folders that the path leaves by `..`. A program that replaces one of them decides where the path ends.
pub(super) fn followed(path: &Path, lookup: &impl Lookup) -> (Vec<PathBuf>, PathBuf) {
    let Followed { passed, place, .. } = follow(path, |at| lookup.link(at));
    (passed, place)
}

/// Returns the number of parts of a path, including the parts of the links through which it leads. `None` if there are more than
/// [`MAX_STEPS`].
pub(super) fn steps_of(path: &Path, lookup: &impl Lookup) -> Option<usize> {
    Some(follow(path, |at| lookup.link(at)).steps).filter(|steps| *steps <= MAX_STEPS)
}

/// Returns the error about a path for which nobody can find out what exists there. A box can take away the right to search a folder, and
/// give it back later.
pub(super) fn unseen(path: &Path, lookup: &impl Lookup) -> String {
    let closed = path.ancestors().find(|above| !lookup.is_unknown(above)).unwrap_or(path);
    format!(
        "this box must not change {}, and it cannot be told whether it exists, because {} cannot be searched: allow yourself to search it (chmod \
         u+rwx), or name other folders",
        path.display(),
        closed.display()
    )
}

/// Returns the first file that a box may replace among those through which a path leads, and the place at which the path ends.
fn replaceable(path: &Path, given: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> (Option<PathBuf>, PathBuf) {
    let (passed, place) = followed(path, lookup);
    // A given path itself cannot be moved from its place.
    let can_be_replaced = |passed: &PathBuf| passed.parent().and_then(|above| access_of(given, above)) == Some(Access::Write);
    (passed.into_iter().find(can_be_replaced), place)
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
