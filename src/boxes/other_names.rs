//! Other names of files (hard links), by which a box could write what it cannot write by the known name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::kept::Kept;
use super::order::Access;
use super::own_files::{access_of, followed};
use super::paths::{Entry, Identity, Lookup, is_system};

/// Maximum number of names that are looked at in the folders of one box, before it is made.
const MAX_NAMES: usize = if cfg!(test) { 500 } else { 100_000 };
/// Maximum number of names that are looked at for the sentence in an approval request. Whoever proposes a server decides how many there are.
const MAX_NAMES_OF_SENTENCE: usize = if cfg!(test) { 100 } else { 20_000 };
/// Maximum length of a path in a sentence.
const MAX_SHOWN: usize = 300;

/// Fails if a file that a box must not write has another name in a folder that the box may write. `own` are the programs of the box itself. If
/// there are more names than can be looked at, the approval says so.
///
/// # Errors
/// A sentence that names the file and its other name.
pub(super) fn check_other_names<'p>(
    kept: &[Kept],
    own: impl Iterator<Item = &'p PathBuf>,
    paths: &BTreeMap<PathBuf, Access>,
    lookup: &impl Lookup,
) -> Result<(), String> {
    let programs = kept.iter().filter(|kept| kept.owner.is_kept()).map(|kept| followed(&kept.path, lookup).1);
    // Only root can give a file of the system another name.
    let files = own.cloned().chain(programs).filter(|file| !is_system(file));
    let named_twice = |file: PathBuf| {
        let Identity { device, inode, names } = lookup.identity(&file)?;
        names.is_some_and(|names| names > 1).then_some(((device, inode), file))
    };
    let wanted: BTreeMap<(u64, u64), PathBuf> = files.filter_map(named_twice).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let is_wanted = |path: &Path, file: Identity| Some((path.to_owned(), wanted.get(&(file.device, file.inode))?));
    // The file that a box must not change has another name somewhere.
    let unknown = |reason: String| {
        let known = wanted.values().next().map(|path| path.display().to_string()).unwrap_or_default();
        format!(
            "{known}, a program that this box must not change, has another name (a hard link) somewhere, and it cannot be told whether this box could \
             write it: {reason}. Name smaller folders, or make {known} a file of its own, by copying it and moving the copy to its place"
        )
    };
    match walk(paths, MAX_NAMES, lookup, is_wanted) {
        Walk::Found((other, known)) => Err(format!(
            "{}, which this box could write, is another name (a hard link) of {}, which is a program that it must not change: make each of them a \
             file of its own, by copying it and moving the copy to its place",
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

/// Says that a box may write files that have other names, or that nobody knows.
pub(super) fn other_names_sentence(paths: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Option<String> {
    let has_other = |path: &Path, file: Identity| file.names.is_some_and(|names| names > 1).then(|| path.to_owned());
    match walk(paths, MAX_NAMES_OF_SENTENCE, lookup, has_other) {
        Walk::Found(path) => Some(format!(
            "can change files by other names that they have elsewhere (hard links, as pnpm and uv make them), such as that of {}",
            path.display()
        )),
        Walk::TooMany => Some(format!(
            "may write more than {MAX_NAMES_OF_SENTENCE} files, so it is not known whether some have other names elsewhere (hard links)"
        )),
        Walk::Unseen(place) => Some(format!(
            "may write files that cannot be looked at, such as those in {}, so it is not known whether they have other names elsewhere (hard links)",
            shortened(&place)
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

/// Looks at the names of all files that a box may write, until one is found. Follows no links. If something cannot be looked at, the rest is
/// looked at nevertheless.
fn walk<T>(
    paths: &BTreeMap<PathBuf, Access>,
    max_names: usize,
    lookup: &impl Lookup,
    found: impl Fn(&Path, Identity) -> Option<T>,
) -> Walk<T> {
    let written = paths.iter().filter(|(_, access)| **access == Access::Write);
    let mut next: Vec<Entry> = written.map(|(path, _)| Entry { path: path.clone(), is_folder: true }).collect();
    let (mut count, mut unseen) = (0, None);
    while let Some(Entry { path, is_folder }) = next.pop() {
        count += 1;
        if count > max_names {
            return Walk::TooMany;
        }
        let identity = lookup.identity(&path);
        if let Some(found) = identity.filter(|file| file.names.is_some()).and_then(|file| found(&path, file)) {
            return Walk::Found(found);
        }
        let entries = if is_folder { lookup.entries(&path) } else { Some(Vec::new()) };
        if entries.is_none() || (identity.is_none() && lookup.is_unknown(&path)) {
            unseen = unseen.or(Some(path));
        }
        next.extend(entries.into_iter().flatten().filter(|entry| access_of(paths, &entry.path) == Some(Access::Write)));
    }
    unseen.map_or(Walk::Whole, Walk::Unseen)
}
