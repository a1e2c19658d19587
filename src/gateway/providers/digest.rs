//! The digest of a package, which a person approves before the package's code runs. The digest covers all files in the package's folder,
//! because each of them may be loaded as code. It does not cover files outside of the folder, which the code cannot import. A link to a
//! target outside of the folder is refused: a file `package.json` behind such a link would determine how code is loaded, and could change
//! after the approval.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::packages::FoundPackage;
use crate::files::{Links, open_regular};
use crate::store::Canonical;

const MAX_FILES: usize = 5_000;
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const MAX_DEPTH: usize = 32;
const BLOCK: usize = 64 * 1024;

/// The digest of a package, with the number and the total size of the files that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageDigest {
    pub(super) digest: String,
    pub(super) files: usize,
    pub(super) bytes: u64,
}

/// Computes the digest of all files of a package.
///
/// # Errors
/// Returns the reason why the package cannot be approved.
pub(super) fn package_digest(package: &FoundPackage) -> Result<PackageDigest, String> {
    // The description is in `package.json`, which the digest covers anyway.
    let FoundPackage { name, version, description: _, folder, file } = package;
    let root = fs::canonicalize(folder).map_err(|error| format!("its folder cannot be read: {error}"))?;
    let mut walk = Walk { root, form: Canonical::new("hyperlight-mcp provider 1").text(name).text(version), files: 0, bytes: 0 };
    let file = file.to_str().ok_or("the name of its file is not UTF-8")?;
    walk.form = walk.form.text(file);
    walk.folder(folder, "", 0)?;
    let digest = hex::encode(Sha256::digest(walk.form.into_bytes()));
    Ok(PackageDigest { digest, files: walk.files, bytes: walk.bytes })
}

struct Walk {
    /// The package's folder, with links resolved.
    root: PathBuf,
    form: Canonical,
    files: usize,
    bytes: u64,
}

impl Walk {
    /// Adds the entries of a folder to the digest, in the order of their names. `path` is the folder's path within the package.
    fn folder(&mut self, folder: &Path, path: &str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("its folders are nested more than {MAX_DEPTH} levels deep"));
        }
        let unreadable = |error: io::Error| format!("its folder {path} cannot be read: {error}");
        let entries: io::Result<Vec<_>> = fs::read_dir(folder).map_err(unreadable)?.map(|entry| Ok(entry?.file_name())).collect();
        let mut names = entries.map_err(unreadable)?;
        names.sort();
        for name in names {
            let name = name.to_str().ok_or_else(|| format!("a name in its folder {path} is not UTF-8"))?;
            let (inner, shown) = (folder.join(name), format!("{path}{name}"));
            self.entry(&inner, &shown, depth).map_err(|problem| format!("{shown}: {problem}"))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Path, path: &str, depth: usize) -> Result<(), String> {
        let metadata = fs::symlink_metadata(entry).map_err(|error| error.to_string())?;
        if metadata.is_dir() {
            return self.folder(entry, &format!("{path}/"), depth + 1);
        }
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(format!("the package has more than {MAX_FILES} files"));
        }
        let content = if metadata.is_symlink() {
            // The target is in the package, so the digest covers its content at the target's own path.
            let is_inside = fs::canonicalize(entry).is_ok_and(|real| real.starts_with(&self.root));
            if !is_inside {
                return Err("the link leads to nothing in the package; replace it with the file, or remove it".to_owned());
            }
            let target = fs::read_link(entry).map_err(|error| error.to_string())?;
            ("link", hex::encode(target.as_os_str().as_encoded_bytes()))
        } else {
            let file = open_regular(entry, Links::Refuse).map_err(|error| error.to_string())?;
            ("file", self.content(file).map_err(|error| error.to_string())?)
        };
        let form = std::mem::replace(&mut self.form, Canonical::new(""));
        self.form = form.text(path).text(content.0).text(&content.1);
        Ok(())
    }

    /// Returns the digest of a file's content.
    fn content(&mut self, mut file: File) -> io::Result<String> {
        let (mut hash, mut block) = (Sha256::new(), vec![0; BLOCK]);
        loop {
            let length = file.read(&mut block)?;
            if length == 0 {
                return Ok(hex::encode(hash.finalize()));
            }
            self.bytes += length as u64;
            if self.bytes > MAX_BYTES {
                return Err(io::Error::other(format!("the package has more than {MAX_BYTES} bytes")));
            }
            hash.update(&block[..length]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn package(folder: &Path) -> FoundPackage {
        FoundPackage {
            name: "acme-mcp".into(),
            version: "1.0.0".into(),
            description: None,
            folder: folder.to_owned(),
            file: "provider.js".into(),
        }
    }

    #[test]
    fn every_change_of_a_file_is_another_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("lib")).unwrap();
        fs::write(path("provider.js"), "one").unwrap();
        fs::write(path("lib/a.js"), "two").unwrap();
        let digest = || package_digest(&package(folder.path())).unwrap();
        let first = digest();
        assert_eq!((first.files, first.bytes), (2, 6));
        assert_eq!(digest(), first);
        let mut seen = vec![first.digest];
        let mut changed = |what: &str| {
            let now = digest().digest;
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        fs::write(path("lib/a.js"), "owt").unwrap();
        changed("content");
        fs::rename(path("lib/a.js"), path("lib/b.js")).unwrap();
        changed("name");
        fs::rename(path("lib/b.js"), path("b.js")).unwrap();
        changed("folder");
        fs::write(path("new.json"), "").unwrap();
        changed("an empty file");
        symlink("b.js", path("link.js")).unwrap();
        changed("a link");
        fs::remove_file(path("link.js")).unwrap();
        symlink("provider.js", path("link.js")).unwrap();
        changed("a link's target");
        let other = FoundPackage { version: "1.0.1".into(), ..package(folder.path()) };
        assert!(!seen.contains(&package_digest(&other).unwrap().digest));
    }

    #[test]
    fn a_link_that_leads_to_nothing_in_the_package_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("package");
        fs::create_dir_all(inside.join("lib")).unwrap();
        fs::write(inside.join("provider.js"), "one").unwrap();
        fs::write(folder.path().join("outside.json"), "{}").unwrap();
        symlink("../provider.js", inside.join("lib/link.js")).unwrap();
        package_digest(&package(&inside)).unwrap();
        for target in ["../../outside.json", "../..", "../absent.json", "link.js", "/etc/passwd"] {
            symlink(target, inside.join("lib/package.json")).unwrap();
            let refused = package_digest(&package(&inside)).map(|digest| digest.digest);
            assert_eq!(refused.is_err(), target != "link.js", "{target}: {refused:?}");
            fs::remove_file(inside.join("lib/package.json")).unwrap();
        }
    }

    #[test]
    fn a_package_that_cannot_be_read_whole_has_no_digest() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("provider.js"), "").unwrap();
        crate::files::testing::pipe(folder.path(), "pipe");
        assert!(package_digest(&package(folder.path())).unwrap_err().starts_with("pipe: "));
        let deep: std::path::PathBuf = (0..40).map(|_| "a").collect();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(deep)).unwrap();
        assert!(package_digest(&package(folder.path())).unwrap_err().contains("nested"));
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(package_digest(&package(folder.path())).unwrap_err().contains("bytes"));
    }
}
