//! Finds other names of files and folders that exist because their file system is mounted more than once, for example by a bind mount.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::paths::Lookup;

/// A place at which a folder or file of a file system is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The number of the file system, as the kernel writes it.
    pub device: String,
    /// The path, within the file system, of the folder or file that is mounted.
    pub root: PathBuf,
    pub point: PathBuf,
}

/// Reads `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`).
pub(super) fn mounts(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
        Some(Mount { device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
    };
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Decodes a path in which the kernel has written blanks, line breaks and backslashes as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), field);
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            path.push(byte);
            rest = behind.get(3..).unwrap_or_default();
        } else {
            path.push(*first);
            rest = behind;
        }
    }
    OsString::from_vec(path).into()
}

/// The mounts of a machine through which a box with certain paths may have other names of files.
pub(crate) struct OtherMounts {
    by_point: BTreeMap<PathBuf, (String, PathBuf)>,
    /// The parts of each file system that the box has: the path within the file system, and the name in the box.
    reached: BTreeMap<String, Vec<(PathBuf, PathBuf)>>,
}

impl OtherMounts {
    /// Looks up the mounts. `given` are the paths of the box.
    pub(crate) fn of<'p>(given: impl Iterator<Item = &'p PathBuf>, lookup: &impl Lookup) -> Self {
        // A later mount at the same place hides the earlier one.
        let by_point: BTreeMap<PathBuf, (String, PathBuf)> =
            lookup.mounts().into_iter().map(|Mount { device, root, point }| (point, (device, root))).collect();
        let mounts = Self { by_point, reached: BTreeMap::new() };
        let given: BTreeSet<&PathBuf> = given.collect();
        let is_within = |point: &&PathBuf| point.ancestors().any(|above| given.iter().any(|path| path.as_path() == above));
        let points: BTreeSet<PathBuf> = mounts.by_point.keys().filter(is_within).cloned().collect();
        // A file system that is mounted once gives each file one path.
        let is_mounted_again = |device: &str| mounts.by_point.values().filter(|(other, _)| other == device).nth(1).is_some();
        let mut reached: BTreeMap<String, Vec<(PathBuf, PathBuf)>> = BTreeMap::new();
        for name in given.into_iter().chain(&points).collect::<BTreeSet<_>>() {
            if let Some((device, inner, _)) = mounts.position(name).filter(|(device, ..)| is_mounted_again(device)) {
                reached.entry(device.to_owned()).or_default().push((inner, name.clone()));
            }
        }
        Self { reached, ..mounts }
    }

    /// Returns the mount points at or within a path. The entry of a mount point in its folder shows the kind of the hidden file, not of the
    /// mounted one.
    pub(super) fn points_in<'m>(&'m self, path: &'m Path) -> impl Iterator<Item = &'m Path> {
        self.by_point.range(path.to_owned()..).map(|(point, _)| point.as_path()).take_while(move |point| point.starts_with(path))
    }

    /// Returns the other names that the box has for the file or folder at a path, or for things within it. The path must not contain links.
    pub(crate) fn other_names(&self, path: &Path, lookup: &impl Lookup) -> Vec<PathBuf> {
        if self.reached.is_empty() {
            return Vec::new();
        }
        let Some((device, inner, own)) = self.position(path) else { return Vec::new() };
        let reached = self.reached.get(device).into_iter().flatten();
        let other = reached.filter(|(_, name)| self.position(name).is_some_and(|(_, _, mount)| mount != own));
        // The box has a folder that contains the path, or one within the path.
        let name = |(reached, name): &(PathBuf, PathBuf)| match inner.strip_prefix(reached) {
            Ok(rest) => Some((path.to_owned(), joined(name, rest))),
            Err(_) => reached.strip_prefix(&inner).ok().map(|rest| (joined(path, rest), name.clone())),
        };
        // Another mount can hide the file with this name.
        other.filter_map(name).filter(|(known, name)| is_same(known, name, lookup)).map(|(_, name)| name).collect()
    }

    /// Returns the file system of a path, the path within it, and the place of the mount.
    fn position(&self, path: &Path) -> Option<(&str, PathBuf, &Path)> {
        let (point, (device, root)) = path.ancestors().find_map(|above| self.by_point.get_key_value(above))?;
        Some((device, joined(root, path.strip_prefix(point).ok()?), point))
    }
}

/// Joins two paths. The second one may be empty.
fn joined(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().as_bytes().is_empty() { path.to_owned() } else { path.join(rest) }
}

/// Returns whether two names mean the same file. If the file does not exist, the folders of the two names are compared.
fn is_same(one: &Path, other: &Path, lookup: &impl Lookup) -> bool {
    let number = |path: &Path| lookup.identity(path).map(|file| (file.device, file.inode));
    match (number(one), number(other)) {
        (None, None) => match (one.parent(), other.parent()) {
            (Some(one_folder), Some(other_folder)) => one.file_name() == other.file_name() && is_same(one_folder, other_folder, lookup),
            _ => false,
        },
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_of_mounts_is_read() {
        let text = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n36 22 8:1 /real\\040a/b /second\\011x\\134 rw - ext4 /dev/sda1 rw\nx\n";
        let mount = |root: &str, point: &str| Mount { device: "8:1".to_owned(), root: root.into(), point: point.into() };
        assert_eq!(mounts(text), [mount("/", "/"), mount("/real a/b", "/second\tx\\")]);
        assert_eq!(unescaped(b"/a\\"), Path::new("/a\\"));
        assert_eq!(unescaped(b"/a\\04"), Path::new("/a\\04"));
    }
}
