//! Compares the paths of a running box with files that have become files of the gateway since the box was made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::kept::{Kept, Owner};
use super::mounts::OtherMounts;
use super::order::{Access, Given};
use super::other_names::check_other_names;
use super::own_files::{OwnFile, OwnFileUse, followed, held, with_system};
use super::paths::Lookup;

/// Checks that a box with these paths does not have a file with tokens or a key, and cannot replace a link that leads to the file.
///
/// # Errors
/// A sentence with the reason.
pub(crate) fn check_secret(path: &Path, given: &[Given], lookup: &impl Lookup) -> Result<(), String> {
    let given = given.iter().map(|given| (given.path.clone(), given.access)).collect();
    let mounts = OtherMounts::of(with_system(&given).keys(), lookup);
    held(&[OwnFile::new(path, OwnFileUse::Secret)], &given, &[], &mounts, lookup).map(drop)
}

/// Checks that a running box can neither make nor replace the `envFile` of another server, whose approval may be newer than the box.
///
/// # Errors
/// A sentence with the reason.
pub(crate) fn check_variables(files: &[OwnFile], given: &[Given], lookup: &impl Lookup) -> Result<(), String> {
    let can_refuse = |file: &OwnFile| file.can_refuse(&followed(&file.path, lookup).1, lookup);
    let is_to_check = |file: &&OwnFile| file.use_of == OwnFileUse::Variables { by_this: false } && can_refuse(file);
    let files: Vec<OwnFile> = files.iter().filter(is_to_check).cloned().collect();
    if files.is_empty() {
        return Ok(());
    }
    // The box was made with the files that are given to be read.
    let named: Vec<PathBuf> = given.iter().filter(|given| given.access == Access::Read).map(|given| given.path.clone()).collect();
    let given = given.iter().map(|given| (given.path.clone(), given.access)).collect();
    let mounts = OtherMounts::of(with_system(&given).keys(), lookup);
    held(&files, &given, &named, &mounts, lookup)?;
    check_other_names(&[], std::iter::empty(), &files, &given, lookup)
}

/// Returns whether a running box may write another name (a hard link) of one of these programs, or whether this cannot be told. The box can
/// have made the name before the programs were protected.
pub(crate) fn may_write_other_name<'p>(programs: impl Iterator<Item = &'p PathBuf>, given: &[Given], lookup: &impl Lookup) -> bool {
    let kept: Vec<Kept> = programs.map(|path| Kept { path: path.clone(), owner: Owner::GatewayIfMade }).collect();
    let given: BTreeMap<PathBuf, Access> = given.iter().map(|given| (given.path.clone(), given.access)).collect();
    check_other_names(&kept, std::iter::empty(), &[], &given, lookup).is_err()
}

/// Returns the names of all boxes that share a path with one of these boxes, or with a box that does so, if one of the two may write it. A
/// process can pass an open file through a socket in such a path, so a box may write a file that it has no path to. `given` are the paths
/// of all boxes.
pub(crate) fn sharing(first: &BTreeSet<String>, given: &BTreeMap<String, Vec<(PathBuf, Access)>>) -> BTreeSet<String> {
    let (mut all, mut next) = (first.clone(), first.iter().cloned().collect::<Vec<_>>());
    let is_shared = |(a, one): &(PathBuf, Access), (b, two): &(PathBuf, Access)| {
        (*one == Access::Write || *two == Access::Write) && (a.starts_with(b) || b.starts_with(a))
    };
    let overlap = |a: &[(PathBuf, Access)], b: &[(PathBuf, Access)]| a.iter().any(|a| b.iter().any(|b| is_shared(a, b)));
    while let Some(name) = next.pop() {
        let Some(own) = given.get(&name) else { continue };
        for (other, paths) in given {
            if !all.contains(other) && overlap(own, paths) {
                all.insert(other.clone());
                next.push(other.clone());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_that_share_a_path_end_together() {
        // A path in capitals is only read.
        let access = |path: &str| if path.to_uppercase() == path { Access::Read } else { Access::Write };
        let given: BTreeMap<String, Vec<(PathBuf, Access)>> =
            [("evil", "/p /q /RUNTIME"), ("helper", "/q"), ("third", "/q/sub /r"), ("fourth", "/r"), ("apart", "/s /RUNTIME")]
                .map(|(name, paths)| (name.to_owned(), paths.split(' ').map(|path| (PathBuf::from(path), access(path))).collect()))
                .into();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        assert_eq!(sharing(&names(&["evil"]), &given), names(&["evil", "helper", "third", "fourth"]));
        assert_eq!(sharing(&names(&["apart"]), &given), names(&["apart"]));
        assert_eq!(sharing(&names(&[]), &given), names(&[]));
    }
}
