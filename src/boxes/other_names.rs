//! Checks for other names of files (hard links), through which a box could write files that it must not write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::kept::Kept;
use super::order::Access;
use super::own_files::{OwnFile, OwnFileUse, access_of, followed};
use super::paths::{Entry, Identity, Kind, Lookup, is_system};
use super::shown::shown_path;

/// Maximum number of names that are looked at in the folders of one box, before it is made.
const MAX_NAMES: usize = if cfg!(test) { 500 } else { 100_000 };
/// Maximum number of names that are looked at for the sentence in an approval request. The author of a server's entry decides how many
/// names there are.
const MAX_NAMES_OF_SENTENCE: usize = if cfg!(test) { 100 } else { 20_000 };
/// Maximum length of a path in a sentence.
const MAX_SHOWN: usize = 300;

/// Checks that no file which a box must not write has another name in a folder that the box may write, and that none of the gateway's own
/// files has another name in any folder of the box. `own_programs` are the programs of the box itself.
///
/// # Errors
/// A sentence that names the file and its other name. It is also an error if such a file has another name somewhere, and not all names in
/// the folders can be looked at.
pub(super) fn check_other_names<'p>(
    kept: &[Kept],
    own_programs: impl Iterator<Item = &'p PathBuf>,
    own_files: &[OwnFile],
    paths: &BTreeMap<PathBuf, Access>,
    lookup: &impl Lookup,
) -> Result<(), String> {
    let programs = kept.iter().filter(|kept| kept.owner.is_kept()).map(|kept| followed(&kept.path, lookup).1);
    let words = "a program that this box must not change";
    let programs = own_programs.cloned().chain(programs).map(|file| (file, words.to_owned()));
    check_names_of(programs, Reach { paths, is_any: false }, lookup)?;
    // A base brings only entries that a person has to approve.
    let own_files = own_files.iter().filter(|file| file.use_of != OwnFileUse::Base && !file.leads_out);
    let own_files = own_files.map(|file| (followed(&file.path, lookup).1, file)).filter(|(place, file)| file.can_refuse(place, lookup));
    let own_files = own_files.map(|(place, file)| (place, file.words()));
    // A file that the box has under its known name is judged by this name.
    let elsewhere = own_files.filter(|(place, _)| access_of(paths, place).is_none());
    check_names_of(elsewhere, Reach { paths, is_any: true }, lookup)
}

/// Fails if one of the files has another name in a path that a box reaches. Each file comes with words that describe it.
fn check_names_of(files: impl Iterator<Item = (PathBuf, String)>, reach: Reach<'_>, lookup: &impl Lookup) -> Result<(), String> {
    let named_twice = |(file, words): (PathBuf, String)| {
        let Identity { device, inode, names } = lookup.identity(&file)?;
        names.is_some_and(|names| names > 1).then_some(((device, inode), (file, words)))
    };
    // Only root can give a file of the system another name.
    let wanted: BTreeMap<(u64, u64), (PathBuf, String)> = files.filter(|(file, _)| !is_system(file)).filter_map(named_twice).collect();
    let Some((first, words)) = wanted.values().next() else { return Ok(()) };
    let is_wanted = |path: &Path, file: Identity| Some((path.to_owned(), wanted.get(&(file.device, file.inode))?));
    let does = if reach.is_any { "would have" } else { "could write" };
    // One of the files has another name, but it is not known where.
    let unknown = |reason: String| {
        let known = first.display();
        format!(
            "{known}, {words}, has another name (a hard link) somewhere, and it cannot be told whether this box {does} it: {reason}. Name smaller \
             folders, or make {known} a file of its own, by copying it and moving the copy to its place"
        )
    };
    match walk(reach, MAX_NAMES, lookup, is_wanted) {
        Walk::Found((other, (known, words))) => Err(format!(
            "{}, which this box {does}, is another name (a hard link) of {}, {words}: make each of them a file of its own, by copying it and \
             moving the copy to its place",
            other.display(),
            known.display()
        )),
        Walk::TooMany => Err(unknown(format!("its folders have more than {MAX_NAMES} files"))),
        Walk::Unseen(place) => Err(unknown(format!("{} cannot be looked at", shortened(&place)))),
        Walk::Whole => Ok(()),
    }
}

/// Returns a path as a text of bounded length. A box can make paths longer than what a program may open.
fn shortened(path: &Path) -> String {
    crate::text::sanitise_text(&path.to_string_lossy(), MAX_SHOWN)
}

/// Returns a sentence if a box may write files that have other names, or if nobody can find this out.
pub(super) fn other_names_sentence(paths: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Option<String> {
    let has_other = |path: &Path, file: Identity| file.names.is_some_and(|names| names > 1).then(|| path.to_owned());
    match walk(Reach { paths, is_any: false }, MAX_NAMES_OF_SENTENCE, lookup, has_other) {
        Walk::Found(path) => Some(format!(
            "can change files by other names that they have elsewhere (hard links, as pnpm and uv make them), such as that of {}",
            shown_path(&path)
        )),
        Walk::TooMany => Some(format!(
            "may write more than {MAX_NAMES_OF_SENTENCE} files, so it is not known whether some have other names elsewhere (hard links)"
        )),
        Walk::Unseen(place) => Some(format!(
            "may write files that cannot be looked at, such as those in {}, so it is not known whether they have other names elsewhere (hard links)",
            shown_path(&place)
        )),
        Walk::Whole => None,
    }
}

enum Walk<T> {
    Found(T),
    /// All names were looked at.
    Whole,
    TooMany,
    /// There is a file or folder that cannot be looked at.
    Unseen(PathBuf),
}

/// The paths of a box, and the access at which they are examined.
#[derive(Clone, Copy)]
struct Reach<'p> {
    paths: &'p BTreeMap<PathBuf, Access>,
    /// True if read-only paths are examined too.
    is_any: bool,
}

impl Reach<'_> {
    fn has(self, access: Access) -> bool {
        self.is_any || access == Access::Write
    }
}

/// Looks at the names of all files that a box reaches, until `found` returns a value. Follows no links. If a file or folder cannot be
/// looked at, the walk continues with the rest. Never lists more than `max_names` names, because a server decides how many files a folder
/// has.
fn walk<T>(reach: Reach<'_>, max_names: usize, lookup: &impl Lookup, found: impl Fn(&Path, Identity) -> Option<T>) -> Walk<T> {
    let given = reach.paths.iter().filter(|(_, access)| reach.has(**access));
    let mut next: Vec<Entry> = given.map(|(path, _)| Entry { path: path.clone(), kind: Kind::Folder }).collect();
    let (mut count, mut listed, mut unseen) = (0, next.len(), None);
    while let Some(Entry { path, kind }) = next.pop() {
        count += 1;
        if count > max_names {
            return Walk::TooMany;
        }
        let identity = lookup.identity(&path);
        if let Some(found) = identity.filter(|file| file.names.is_some()).and_then(|file| found(&path, file)) {
            return Walk::Found(found);
        }
        let most = max_names.saturating_sub(listed).saturating_add(1);
        let entries = if kind == Kind::Folder { lookup.entries(&path, most) } else { Some(Vec::new()) };
        if entries.is_none() || (identity.is_none() && lookup.is_unknown(&path)) {
            unseen = unseen.or(Some(path));
        }
        let entries = entries.unwrap_or_default();
        listed += entries.len();
        // The given paths themselves are in the list already.
        let is_new = |entry: &Entry| {
            !reach.paths.contains_key(&entry.path) && access_of(reach.paths, &entry.path).is_some_and(|access| reach.has(access))
        };
        next.extend(entries.into_iter().filter(is_new));
    }
    match unseen {
        _ if listed > max_names => Walk::TooMany,
        Some(place) => Walk::Unseen(place),
        None => Walk::Whole,
    }
}
