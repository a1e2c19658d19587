//! Other names of files (hard links), by which a box could write what it cannot write by the known name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::kept::{Kept, Owner};
use super::order::Access;
use super::own_files::{access_of, followed};
use super::paths::{Entry, Identity, Lookup, is_system};

/// Maximum number of names that are looked at in the folders of one box.
const MAX_NAMES: usize = 100_000;

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
    let programs = kept.iter().filter(|kept| !matches!(kept.owner, Owner::MayRun(_))).map(|kept| followed(&kept.path, lookup).1);
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
    match walk(paths, lookup, is_wanted) {
        Walk::Found((other, known)) => Err(format!(
            "{}, which this box could write, is another name (a hard link) of {}, which is a program that it must not change: make each of them a \
             file of its own, by copying it and moving the copy to its place",
            other.display(),
            known.display()
        )),
        Walk::Whole | Walk::TooMany => Ok(()),
    }
}

/// Says that a box may write files that have other names, or that nobody knows.
pub(super) fn other_names_sentence(paths: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup) -> Option<String> {
    let has_other = |path: &Path, file: Identity| file.names.is_some_and(|names| names > 1).then(|| path.to_owned());
    match walk(paths, lookup, has_other) {
        Walk::Found(path) => Some(format!(
            "can change files by other names that they have elsewhere (hard links, as pnpm and uv make them), such as that of {}",
            path.display()
        )),
        Walk::TooMany => {
            Some(format!("may write more than {MAX_NAMES} files, so it is not known whether some have other names elsewhere (hard links)"))
        }
        Walk::Whole => None,
    }
}

enum Walk<T> {
    Found(T),
    /// All names were looked at.
    Whole,
    TooMany,
}

/// Looks at the names of all files that a box may write, until one is found. Follows no links.
fn walk<T>(paths: &BTreeMap<PathBuf, Access>, lookup: &impl Lookup, found: impl Fn(&Path, Identity) -> Option<T>) -> Walk<T> {
    let written = paths.iter().filter(|(_, access)| **access == Access::Write);
    let mut next: Vec<Entry> = written.map(|(path, _)| Entry { path: path.clone(), is_folder: true }).collect();
    let mut count = 0;
    while let Some(Entry { path, is_folder }) = next.pop() {
        count += 1;
        if count > MAX_NAMES {
            return Walk::TooMany;
        }
        if let Some(found) = lookup.identity(&path).filter(|file| file.names.is_some()).and_then(|file| found(&path, file)) {
            return Walk::Found(found);
        }
        if is_folder {
            next.extend(lookup.entries(&path).into_iter().filter(|entry| access_of(paths, &entry.path) == Some(Access::Write)));
        }
    }
    Walk::Whole
}
