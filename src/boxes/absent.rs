//! Finds paths in arguments and variables that name files or folders outside of a box. A box contains only files and folders that exist
//! when the box is made. It does not contain a path only because a variable names this path.

use std::path::{Path, PathBuf};

use super::contents::HOME;
use super::order::Given;
use super::paths::{Kind, Lookup, is_system};

/// The folder of the box's own temporary files.
const TEMPORARY: &str = "/tmp";

/// Returns the arguments that are paths of missing files in existing folders, if the box does not contain these folders. A server cannot
/// create such a file.
#[must_use]
pub fn absent_arguments(arguments: &[String], given: &[Given], lookup: &impl Lookup) -> Vec<PathBuf> {
    let paths = arguments.iter().map(Path::new);
    paths.filter(|path| lookup.kind(path).is_none() && is_in_folder(path, lookup) && !is_in_box(path, given)).map(Path::to_owned).collect()
}

/// Returns the arguments that name existing files and folders which no argument adds to a box: the home, the gateway's own folder, a folder
/// above one of them, and sockets.
#[must_use]
pub fn withheld_arguments(arguments: &[String], given: &[Given], lookup: &impl Lookup) -> Vec<PathBuf> {
    let paths = arguments.iter().map(Path::new).filter(|path| path.is_absolute());
    paths.filter(|path| lookup.kind(path).is_some() && !is_in_box(path, given)).map(Path::to_owned).collect()
}

/// Returns the variables whose value is a path outside of the box: an existing file or folder, or a missing file in an existing folder. A
/// box does not contain a path only because a variable names it. A value may also be a `file:` URL, as for some databases.
#[must_use]
pub fn variables_outside(variables: &[(String, String)], given: &[Given], lookup: &impl Lookup) -> Vec<(String, PathBuf)> {
    let outside = variables.iter().filter_map(|(name, value)| {
        let path = Path::new(value.strip_prefix("file://").or_else(|| value.strip_prefix("file:")).unwrap_or(value));
        (is_in_folder(path, lookup) && !is_in_box(path, given)).then(|| (name.clone(), path.to_owned()))
    });
    outside.collect()
}

/// Returns whether an absolute path lies in an existing folder other than the root folder. `/api` and `/api/v1` are usually not the paths
/// of files.
fn is_in_folder(path: &Path, lookup: &impl Lookup) -> bool {
    let folder = path.parent().filter(|folder| *folder != Path::new("/"));
    path.is_absolute() && folder.is_some_and(|folder| lookup.kind(folder) == Some(Kind::Folder))
}

fn is_in_box(path: &Path, given: &[Given]) -> bool {
    let own = path.starts_with(HOME) || path.parent() == Some(Path::new(TEMPORARY));
    own || is_system(path) || given.iter().any(|given| path.starts_with(&given.path))
}

/// Returns the arguments that are names of files in the working folder, but do not have the form of a path. Therefore the box does not
/// contain these files.
#[must_use]
pub fn bare_names(arguments: &[String], working_directory: &Path, given: &[Given], lookup: &impl Lookup) -> Vec<String> {
    let is_bare = |argument: &&String| !argument.is_empty() && !argument.starts_with(['-', '.', '@']) && !argument.contains('/');
    let is_in_box = |path: &Path| given.iter().any(|given| path.starts_with(&given.path));
    let is_missing = |argument: &&String| {
        let path = working_directory.join(argument.as_str());
        lookup.kind(&path).is_some() && !is_in_box(&path)
    };
    let is_home = working_directory.starts_with(HOME);
    arguments.iter().filter(is_bare).filter(|argument| !is_home && is_missing(argument)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::{Access, Disk, Link};

    #[test]
    fn the_name_of_a_folder_is_told_unless_its_folder_was_given() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("notes")).unwrap();
        let in_box = [Given { path: folder.path().to_owned(), access: Access::Write, link: Link::Refused }];
        let arguments = ["notes", "./notes", "-notes", "other", ""].map(str::to_owned);
        assert_eq!(bare_names(&arguments, folder.path(), &[], &Disk), ["notes"]);
        assert_eq!(bare_names(&arguments, folder.path(), &in_box, &Disk), [] as [String; 0]);
        assert_eq!(bare_names(&arguments, Path::new(HOME), &[], &Disk), [] as [String; 0]);
    }

    #[test]
    fn a_file_that_is_to_be_created_is_absent_unless_its_folder_was_given() {
        let (outside, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("there.db"), "").unwrap();
        let in_box = [Given { path: given.path().to_owned(), access: Access::Write, link: Link::Refused }];
        let absent = |argument: &str| absent_arguments(&[argument.to_owned()], &in_box, &Disk);
        let at = |folder: &tempfile::TempDir, name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(absent(&at(&outside, "new.db")), [outside.path().join("new.db")]);
        assert_eq!(absent(&at(&outside, "there.db")), [] as [PathBuf; 0]);
        assert_eq!(absent(&at(&given, "new.db")), [] as [PathBuf; 0]);
        for other in ["/api", "/api/v1", "new.db", "--db=/var/new.db", "/usr/new.db", "/tmp/new.db", "/box/home/new.db", "/proc/new", "/"] {
            assert_eq!(absent(other), [] as [PathBuf; 0], "{other}");
        }
    }

    #[test]
    fn a_path_that_exists_and_was_not_given_is_withheld() {
        let (outside, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let in_box = [Given { path: given.path().to_owned(), access: Access::Write, link: Link::Refused }];
        let arguments = |paths: [&Path; 4]| paths.map(|path| path.to_str().unwrap().to_owned());
        let arguments = arguments([outside.path(), given.path(), Path::new("/usr/bin"), Path::new("/api/v1")]);
        // A folder directly in `/tmp` could also be one of the box's own `/tmp`, so this test uses a folder one level deeper.
        let within = outside.path().join("within");
        std::fs::create_dir(&within).unwrap();
        assert_eq!(withheld_arguments(&arguments, &in_box, &Disk), [] as [PathBuf; 0]);
        assert_eq!(withheld_arguments(&[within.to_str().unwrap().to_owned()], &in_box, &Disk), [within]);
        assert_eq!(withheld_arguments(&["/".to_owned()], &in_box, &Disk), [PathBuf::from("/")]);
    }

    #[test]
    fn a_path_in_a_variable_is_told_unless_it_was_given() {
        let (outside, given) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("there.db"), "").unwrap();
        let in_box = [Given { path: given.path().to_owned(), access: Access::Write, link: Link::Refused }];
        let told = |value: String| variables_outside(&[("DB".to_owned(), value)], &in_box, &Disk);
        let at = |folder: &tempfile::TempDir, name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["new.db", "there.db"] {
            let path = outside.path().join(name);
            for form in ["", "file:", "file://"] {
                assert_eq!(told(format!("{form}{}", at(&outside, name))), [("DB".to_owned(), path.clone())], "{form}");
            }
            assert!(told(at(&given, name)).is_empty(), "{name}");
        }
        for other in
            ["/api/v1", "new.db", "info", "", "/usr/bin/node", "/tmp/new.db", "/box/home/new.db", "/usr/bin:/bin", "https://a.example/b"]
        {
            assert!(told(other.to_owned()).is_empty(), "{other}");
        }
    }
}
