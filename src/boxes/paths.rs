//! Paths of a box: which of them can be given, and which files of the machine they name.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access as AccessMode, AtFlags, CWD, accessat};
use rustix::process::geteuid;

use super::mounts::{Mount, mounts};
use super::order::Access;
use crate::files::{Links, open_regular};

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
/// The mounts of this process.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Folders of the kernel. A box has its own folders with these names, and never those of the machine.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The mode of a folder in which all users make files: sticky, and writable for others.
const SHARED_MODE: u32 = 0o1002;
/// The number of bytes at the start of a script in which the kernel looks for its first line.
const FIRST_LINE_BYTES: usize = 256;

/// The kind of thing that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    /// A socket, a device or a pipe. For an entry of a folder, also a link.
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
    /// Returns the interpreter in a script's first line, as the kernel reads it, and then the words of its argument. `None` if the file is
    /// not a script.
    fn interpreter(&self, path: &Path) -> Option<Vec<String>>;
    /// Returns whether at least one user may execute the file.
    fn is_program(&self, path: &Path) -> bool;
    /// Returns the identity of the file at the path, without following a link. `None` if nothing exists there.
    fn identity(&self, path: &Path) -> Option<Identity>;
    /// Returns at most `most` entries of a folder. Returns no entries if there is no folder. `None` if the folder cannot be listed, but its
    /// files could be reached by their names, or after a change of its rights.
    fn entries(&self, folder: &Path, most: usize) -> Option<Vec<Entry>>;
    /// Returns whether nobody can find out what exists at the path, for example because a folder above it cannot be searched.
    fn is_unknown(&self, path: &Path) -> bool;
    /// Returns whether the path is a folder in which all users make files, and can remove only their own, as in `/tmp`.
    fn is_shared(&self, path: &Path) -> bool;
    /// Returns the mounts of this process, in the order in which they were made. Returns none if they are not known.
    fn mounts(&self) -> Vec<Mount>;
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: PathBuf,
    /// The kind of the entry itself. A link is [`Kind::Other`].
    pub kind: Kind,
}

/// The identity of a file, which does not depend on its name.
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
        Some(kind_of(fs::metadata(path).ok()?.file_type()))
    }

    fn interpreter(&self, path: &Path) -> Option<Vec<String>> {
        let mut start = Vec::new();
        // A server can replace a file with a pipe at any moment. Opening the pipe must not wait for a writer.
        open_regular(path, Links::Follow).ok()?.take(FIRST_LINE_BYTES as u64).read_to_end(&mut start).ok()?;
        first_line(&start)
    }

    fn is_program(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        let data = fs::symlink_metadata(path).ok()?;
        Some(Identity { device: data.dev(), inode: data.ino(), names: data.is_file().then(|| data.nlink()) })
    }

    fn entries(&self, folder: &Path, most: usize) -> Option<Vec<Entry>> {
        let entry = |entry: fs::DirEntry| Entry { path: entry.path(), kind: entry.file_type().map_or(Kind::Other, kind_of) };
        let listed = fs::read_dir(folder).and_then(|entries| entries.take(most).map(|found| found.map(entry)).collect());
        match listed {
            Ok(entries) => Some(entries),
            Err(error) if is_missing(&error) => Some(Vec::new()),
            // A folder of another user that this process cannot search has no entries here: a box with the same rights cannot reach them
            // either.
            Err(error) => (error.kind() == ErrorKind::PermissionDenied && is_closed(folder)).then(Vec::new),
        }
    }

    fn is_unknown(&self, path: &Path) -> bool {
        fs::metadata(path).is_err_and(|error| !is_missing(&error))
    }

    fn is_shared(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| data.is_dir() && data.permissions().mode() & SHARED_MODE == SHARED_MODE)
    }

    fn mounts(&self) -> Vec<Mount> {
        fs::read(MOUNTS).map(|text| mounts(&text)).unwrap_or_default()
    }
}

fn kind_of(kind: fs::FileType) -> Kind {
    if kind.is_dir() {
        Kind::Folder
    } else if kind.is_file() {
        Kind::File
    } else {
        Kind::Other
    }
}

/// Returns whether an error says that nothing exists at a path.
fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns whether a folder belongs to another user, and cannot be searched.
fn is_closed(folder: &Path) -> bool {
    let is_of_other = fs::symlink_metadata(folder).is_ok_and(|data| data.uid() != geteuid().as_raw());
    is_of_other && accessat(CWD, folder, AccessMode::EXEC_OK, AtFlags::EACCESS).is_err()
}

/// Reads the start of a script as the kernel does: only a blank and a tab end the interpreter. With other rules, the gateway would take
/// another file for the interpreter than the one that runs.
fn first_line(start: &[u8]) -> Option<Vec<String>> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let behind = start.strip_prefix(b"#!")?;
    let end = behind.iter().position(|byte| *byte == b'\n');
    let line = &behind[..end.unwrap_or(behind.len())];
    let line = &line[line.iter().position(|byte| !is_blank(byte))?..];
    let name = line.iter().position(|byte| is_blank(byte) || *byte == 0);
    // The kernel does not run an interpreter if it may have seen only a part of the interpreter's path.
    if name.is_none() && end.is_none() && start.len() >= FIRST_LINE_BYTES {
        return None;
    }
    let (name, argument) = line.split_at(name.unwrap_or(line.len()));
    let argument = argument.split(|byte| *byte == 0).next().unwrap_or_default();
    let words = std::iter::once(name).chain(argument.split(is_blank)).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8(word.to_vec()).ok()).collect()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::files::testing::{at_once, pipe};

    #[test]
    fn a_first_line_is_read_as_the_kernel_reads_it() {
        let read = |text: &str| first_line(text.as_bytes()).map(|words| words.join("|"));
        for (text, words) in [
            ("#!/bin/sh\nmore", Some("/bin/sh")),
            ("#! \t/usr/bin/env  -S\tnode --flag \n", Some("/usr/bin/env|-S|node|--flag")),
            ("#!/bin/sh", Some("/bin/sh")),
            // All of these are parts of the name.
            ("#!/ws/x\r\n", Some("/ws/x\r")),
            ("#!/ws/x\u{b}y\u{c}z\n", Some("/ws/x\u{b}y\u{c}z")),
            ("#!/ws/x\0y z\n", Some("/ws/x")),
            ("#!\n", None),
            ("#!  ", None),
            ("/bin/sh\n", None),
        ] {
            assert_eq!(read(text).as_deref(), words, "{text:?}");
        }
        let long = format!("#!/{}", "x".repeat(FIRST_LINE_BYTES));
        assert_eq!(read(&long[..FIRST_LINE_BYTES]), None, "its end was not seen");
        assert!(read(&long[..FIRST_LINE_BYTES - 1]).is_some());
        let ended = format!("#!/x {}", "y".repeat(FIRST_LINE_BYTES));
        assert!(read(&ended[..FIRST_LINE_BYTES]).unwrap().starts_with("/x|y"));
    }

    /// A server can have the other name of a file at which the gateway looks.
    #[test]
    fn a_file_that_becomes_a_pipe_while_it_is_looked_at_is_no_script() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, script, place) = (pipe(folder.path(), "pipe"), folder.path().join("script"), folder.path().join("place"));
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let (is_done, looked_at) = (Arc::new(AtomicBool::new(false)), place.clone());
        let done = Arc::clone(&is_done);
        let swapping = std::thread::spawn(move || {
            let next = place.with_extension("next");
            for source in [&pipe, &script].into_iter().cycle().take_while(|_| !done.load(Ordering::Acquire)) {
                fs::hard_link(source, &next).unwrap();
                fs::rename(&next, &place).unwrap();
                let _ = fs::remove_file(&next);
            }
        });
        let found = at_once(move || (0..20_000).filter(|_| Disk.interpreter(&looked_at).is_some()).count());
        is_done.store(true, Ordering::Release);
        swapping.join().unwrap();
        assert!(found > 0, "no script was found");
    }

    #[test]
    fn no_more_entries_of_a_folder_are_read_than_are_wanted() {
        let folder = tempfile::tempdir().unwrap();
        (0..20).for_each(|number| fs::write(folder.path().join(number.to_string()), "").unwrap());
        assert_eq!([0, 7, 30].map(|most| Disk.entries(folder.path(), most).unwrap().len()), [0, 7, 20]);
    }

    #[test]
    fn what_the_kernel_refuses_to_look_up_is_not_taken_for_missing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        assert!(!Disk.is_unknown(&missing) && Disk.entries(&missing, 9) == Some(vec![]));
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        let long: PathBuf =
            std::iter::repeat_n(folder.path().join("x").strip_prefix("/").unwrap(), 400).fold("/".into(), |path, part| path.join(part));
        for path in [folder.path().join("loop/x"), long] {
            assert!(Disk.is_unknown(&path) && Disk.entries(&path, 9).is_none() && Disk.kind(&path).is_none());
        }
    }
}
