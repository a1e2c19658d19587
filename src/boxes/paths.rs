//! Paths of a box: which of them can be given, and which files of the machine they name.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use super::order::Access;

/// Folders and files of the system that exist in every box, and cannot be written. `/etc` is given in parts, because it also has secrets that
/// root can read.
pub(crate) const SYSTEM: [&str; 33] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];
/// The files of [`SYSTEM`] by which programs find addresses. A box with its own network has its own files instead.
pub(super) const NAMING: [&str; 5] = ["/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"];
/// Folders of the kernel. A box has its own folders with these names, and never those of the machine.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The longest first line of a script that is read.
const MAX_FIRST_LINE: u64 = 512;

/// The kind of thing that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    /// A socket, a device or a pipe.
    Other,
}

/// Access to the machine's files, for reading only. Tests have their own implementation.
pub trait Lookup {
    /// Returns the path without links. `None` if there is nothing.
    fn real(&self, path: &Path) -> Option<PathBuf>;
    /// Returns the target of the link at the path. `None` if it is not a link.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Returns the kind of the file at the path, with links followed. `None` if nothing exists there.
    fn kind(&self, path: &Path) -> Option<Kind>;
    /// Returns the words of a script's first line, behind `#!`. `None` if it is not a script.
    fn interpreter(&self, path: &Path) -> Option<Vec<String>>;
    /// Returns whether the file can be executed by somebody.
    fn is_program(&self, path: &Path) -> bool;
    /// Returns the identity of the file at the path, without following a link. `None` if nothing exists there.
    fn identity(&self, path: &Path) -> Option<Identity>;
}

/// The identity of a file, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    /// The number of names that a file has on its file system. `None` for anything but a file.
    pub names: Option<u64>,
}

/// The machine on which this process runs.
pub struct Disk;

impl Lookup for Disk {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        fs::canonicalize(path).ok()
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        fs::read_link(path).ok()
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        let kind = fs::metadata(path).ok()?.file_type();
        Some(match () {
            () if kind.is_dir() => Kind::Folder,
            () if kind.is_file() => Kind::File,
            () => Kind::Other,
        })
    }

    fn interpreter(&self, path: &Path) -> Option<Vec<String>> {
        // Opening a pipe would wait for its writer.
        if self.kind(path)? != Kind::File {
            return None;
        }
        let mut line = Vec::new();
        BufReader::new(fs::File::open(path).ok()?.take(MAX_FIRST_LINE)).read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8(line).ok()?;
        Some(line.strip_prefix("#!")?.split_ascii_whitespace().map(str::to_owned).collect())
    }

    fn is_program(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        let data = fs::symlink_metadata(path).ok()?;
        Some(Identity { device: data.dev(), inode: data.ino(), names: data.is_file().then(|| data.nlink()) })
    }
}

/// Returns whether a path belongs to the system. Such a path exists in every box or in none.
pub(super) fn is_system(path: &Path) -> bool {
    SYSTEM.into_iter().chain(KERNEL).any(|folder| path.starts_with(folder))
}

/// Checks a path that `read` or `write` names.
///
/// # Errors
/// The reason why the path cannot be given.
pub(super) fn check_named(path: &Path, access: Access, own_folders: &[PathBuf], inner_home: &Path) -> Result<(), String> {
    let problem = match () {
        () if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) => "must be absolute, without ..",
        () if path == Path::new("/") => "cannot be given whole: name the folders that the server needs",
        () if KERNEL.into_iter().any(|folder| path.starts_with(folder)) => {
            "cannot be given: a box has a /proc and a /dev of its own, and no /sys"
        }
        () if own_folders.iter().any(|own| path.starts_with(own)) => "cannot be given: it belongs to this gateway's own folder",
        // A program that may write a folder can also move its content away.
        () if access == Access::Write && own_folders.iter().any(|own| own.starts_with(path)) => {
            "cannot be written, because it contains this gateway's own folder: name the folders within it"
        }
        () if path.starts_with(inner_home) || inner_home.starts_with(path) => "cannot be given: it is the place of the private home",
        () => return Ok(()),
    };
    Err(format!("{} {problem}", path.display()))
}

/// Finds a program in a search path.
pub(super) fn find_program(name: &str, search_path: &OsStr, lookup: &impl Lookup) -> Option<PathBuf> {
    let folders = std::env::split_paths(search_path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|path| lookup.is_program(path))
}
