//! Finds the program that a command names, and computes its digest, so that a replaced program is detected.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::processes::leads_to_processes;
use crate::files::{Links, open_regular};

/// Maximum size of a program in bytes. A larger one would take too long to read before each start.
pub(super) const MAX_PROGRAM_BYTES: u64 = 512 * 1024 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum number of programs whose digests are cached.
const REMEMBERED: usize = 64;

/// A program on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Executable {
    /// The path with symbolic links followed.
    pub path: PathBuf,
    /// SHA-256 of the content, in hexadecimal.
    pub sha256: String,
}

/// Identifies one state of a file without reading its content. The owner of a file cannot set its change time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Finds programs and computes their digests. Caches each digest while the file is unchanged.
#[derive(Debug, Default)]
pub struct Executables {
    known: Mutex<HashMap<PathBuf, (Stamp, String)>>,
}

impl Executables {
    /// Returns the program that a command would start. Returns `None` if no such program can be read: it is not a regular file, it has more
    /// than 512 MiB, or its path leads through the table of processes, where the child process would find another program. Reads the whole
    /// program if its digest is not cached. Does not block other callers during that time.
    ///
    /// ```
    /// let executables = hyperlight_mcp::trust::Executables::default();
    /// let shell = executables.find("sh", "/bin:/usr/bin".as_ref(), "/".as_ref()).unwrap();
    /// assert_eq!(shell.sha256.len(), 64);
    /// ```
    #[must_use]
    pub fn find(&self, command: &str, search_path: &OsStr, working_directory: &Path) -> Option<Executable> {
        self.at(&locate_program(command, search_path, working_directory)?)
    }

    /// Returns the program at a path. Returns `None` in the same cases as [`Self::find`].
    #[must_use]
    pub fn at(&self, path: &Path) -> Option<Executable> {
        if leads_to_processes(path) {
            return None;
        }
        let path = fs::canonicalize(path).ok()?;
        let stamp = Stamp::of(&fs::metadata(&path).ok()?);
        if let Some((_, sha256)) = self.known().get(&path).filter(|(known, _)| *known == stamp) {
            return Some(Executable { sha256: sha256.clone(), path });
        }
        let (stamp, sha256) = digest(&path).ok()?;
        let mut known = self.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(path.clone(), (stamp, sha256.clone()));
        Some(Executable { path, sha256 })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, (Stamp, String)>> {
        self.known.lock()
    }
}

/// Finds a program like `execvp`: a name with a slash is a path, and any other name is looked up in the search path. Symbolic links are not
/// followed, because a script sees this path as its own. Unlike `execvp`, does not try the next folder if the system cannot start the
/// program, for example because its interpreter does not exist. So only this file may be started. A file with the same name in a later
/// folder was neither shown nor compared.
///
/// ```
/// let shell = hyperlight_mcp::trust::locate_program("sh", "/no/such/folder:/bin".as_ref(), "/".as_ref());
/// assert_eq!(shell.unwrap().to_str(), Some("/bin/sh"));
/// ```
#[must_use]
pub fn locate_program(command: &str, search_path: &OsStr, working_directory: &Path) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(working_directory.join(command));
    }
    std::env::split_paths(search_path).map(|folder| working_directory.join(folder).join(command)).find(|path| is_program(path))
}

/// Returns whether a path is a file that this user may start. `execvp` skips any other file.
pub(super) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) && access(path, Access::EXEC_OK).is_ok()
}

/// Returns the digest of a program, and the stamp of the file that was read. The caller has already followed symbolic links.
fn digest(path: &Path) -> io::Result<(Stamp, String)> {
    let mut file = open_regular(path, Links::Refuse)?;
    let before = Stamp::of(&file.metadata()?);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut size = 0;
    loop {
        // The size that the kernel reports may be wrong, so the bytes are also counted while they are read.
        if before.size.max(size) > MAX_PROGRAM_BYTES {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("the program has more than {MAX_PROGRAM_BYTES} bytes")));
        }
        match file.read(&mut buffer)? {
            0 => break,
            count => {
                hash.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
    // If the file changed while it was read, the digest belongs to no known content.
    if Stamp::of(&file.metadata()?) == before {
        Ok((before, hex::encode(hash.finalize())))
    } else {
        Err(io::Error::other("the program changed while it was read"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::files::testing::{at_once, pipe};

    fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_program_is_found_as_the_system_would_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        let (first, second) = (here.join("first"), here.join("second"));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        fs::write(first.join("tool"), "not executable").unwrap();
        let tool = program(&second, "tool", "a");
        let search = std::env::join_paths([&first, &second]).unwrap();
        let find = |command: &str| Executables::default().find(command, &search, &here).map(|found| found.path);
        assert_eq!(find("tool"), Some(tool.clone()));
        assert_eq!(find("./second/tool"), Some(tool));
        assert_eq!(find("other"), None);
    }

    #[test]
    fn a_program_that_another_process_finds_elsewhere_is_not_shown() {
        let executables = Executables::default();
        assert_eq!(executables.find("/proc/self/exe", OsStr::new(""), Path::new("/")), None);
        assert_eq!(executables.find("/dev/fd/../exe", OsStr::new(""), Path::new("/")), None);
    }

    #[test]
    fn a_program_that_was_swapped_has_another_digest_though_size_and_time_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let executables = Executables::default();
        let path = program(folder.path(), "tool", "good");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let find = || executables.find(&path.to_string_lossy(), OsStr::new(""), folder.path()).unwrap().sha256;
        let before = find();
        assert_eq!(find(), before);
        let swapped = program(folder.path(), "other", "evil");
        File::open(&swapped).unwrap().set_modified(modified).unwrap();
        fs::rename(&swapped, &path).unwrap();
        assert_ne!(find(), before);
    }

    #[test]
    fn what_has_no_end_or_is_not_a_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link, huge) = (pipe(folder.path(), "pipe"), folder.path().join("link"), program(folder.path(), "huge", ""));
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        File::options().write(true).open(&huge).unwrap().set_len(MAX_PROGRAM_BYTES + 1).unwrap();
        for path in [PathBuf::from("/dev/zero"), pipe, link, huge, folder.path().into()] {
            let found = at_once(move || Executables::default().find(&path.to_string_lossy(), OsStr::new(""), Path::new("/")));
            assert_eq!(found, None);
        }
    }
}
