//! Compares the paths of a running box with files that have become files of the gateway since the box was made.

use std::path::{Path, PathBuf};

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
