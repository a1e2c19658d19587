//! Distinguishes versions of a file without reading the file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A stamp that identifies one version of a file. If another file replaces the file, the inode is different. The change time is included
/// because the owner of a file cannot set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of the file. Symbolic links are followed. Returns `None` if the file's metadata cannot be read.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_version_of_a_file_has_a_stamp_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new, link) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("link"));
        symlink(&path, &link).unwrap();
        assert_eq!(Stamp::of(&link), None);
        fs::write(&path, "one").unwrap();
        let first = Stamp::of(&link);
        assert!(first.is_some() && first == Stamp::of(&path));
        fs::write(&new, "two").unwrap();
        fs::rename(&new, &path).unwrap();
        let replaced = Stamp::of(&link);
        assert_ne!(replaced, first);
        fs::write(&path, "longer").unwrap();
        assert_ne!(Stamp::of(&link), replaced);
    }
}
