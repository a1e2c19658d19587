//! Writes whole files atomically. The complete new file replaces the old file, so no reader sees an incomplete file.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::private::FILE_MODE;
use super::read::check_regular;

/// Suffix of a temporary file's name.
const UNFINISHED: &str = ".tmp";
/// Number of random characters in a temporary file's name.
const RANDOM_CHARS: usize = 6;
/// Age from which a temporary file is treated as abandoned. In this case, the process that wrote the file was probably killed.
const ABANDONED: Duration = Duration::from_hours(1);

/// Durability of a completed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// The file survives a power failure.
    Durable,
    /// A power failure may destroy the file. This is acceptable because its content can be recreated.
    Quick,
}

/// Writes a file with mode 0600. Replaces an existing file.
pub(crate) fn replace(path: &Path, bytes: &[u8], writing: Writing) -> io::Result<()> {
    replace_with_mode(path, bytes, FILE_MODE, writing)
}

/// Replaces a file in the same way as [`replace`], but with another mode. The umask applies to the mode.
pub(crate) fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32, writing: Writing) -> io::Result<()> {
    written(path, bytes, mode, writing)?.persist(path).map_err(|error| error.error)?;
    kept(path, writing)
}

/// Creates a file with mode 0600. If there is already a file, changes nothing and returns `false`.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    match written(path, bytes, FILE_MODE, Writing::Durable)?.persist_noclobber(path) {
        Ok(_) => kept(path, Writing::Durable).map(|()| true),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// Replaces a file of another program, or creates it with `new_mode`. The new file gets the mode, the owner and the group of the old
/// file. Fails if the old file is not regular, if it is read-only, or if its owner cannot be kept.
pub(crate) fn replace_kept(path: &Path, bytes: &[u8], new_mode: u32) -> io::Result<()> {
    let refused = |problem: String| Err(io::Error::new(ErrorKind::PermissionDenied, problem));
    let before = match fs::symlink_metadata(path) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let file = match before {
        None => written(path, bytes, new_mode, Writing::Durable)?,
        Some(before) => {
            check_regular(&before)?;
            let (mode, user) = (before.mode() & 0o7777, rustix::process::geteuid());
            if mode & 0o200 == 0 {
                return refused(format!("it is read-only (mode {mode:o})"));
            }
            if before.uid() != user.as_raw() && !user.is_root() {
                return refused(format!("it belongs to another user (uid {})", before.uid()));
            }
            let file = written(path, bytes, FILE_MODE, Writing::Durable)?;
            let made = file.as_file().metadata()?;
            if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
                // The owner is changed before the mode, because a change of the owner clears some bits of the mode.
                fchown(file.as_file(), Some(before.uid()), Some(before.gid()))?;
            }
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file
        }
    };
    file.persist(path).map_err(|error| error.error)?;
    kept(path, Writing::Durable)
}

/// Removes temporary files for this path that killed processes have left, because such files may contain secrets. Only old files are
/// removed, because another process may still be writing a new one. For this reason, no lock is needed.
fn sweep(path: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(folder_of(path)) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(|name| is_unfinished(name, path))) {
        let Ok(file) = entry.metadata() else { continue };
        let is_old = file.modified().is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age > ABANDONED));
        if file.is_file() && file.uid() == rustix::process::geteuid().as_raw() && is_old {
            // An error is ignored, because another process may have removed the file first.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether `name` is the name of a temporary file for `path`. Such a name has the form `.name.a1B2c3.tmp`.
fn is_unfinished(name: &str, path: &Path) -> bool {
    let random = name.strip_prefix(&prefix_of(path)).and_then(|rest| rest.strip_suffix(UNFINISHED));
    random.is_some_and(|random| random.len() == RANDOM_CHARS && random.chars().all(|character| character.is_ascii_alphanumeric()))
}

fn written(path: &Path, bytes: &[u8], mode: u32, writing: Writing) -> io::Result<NamedTempFile> {
    sweep(path, SystemTime::now());
    let prefix = prefix_of(path);
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(&prefix).suffix(UNFINISHED).rand_bytes(RANDOM_CHARS).permissions(Permissions::from_mode(mode));
    let mut file = builder.tempfile_in(folder_of(path))?;
    file.write_all(bytes)?;
    if writing == Writing::Durable {
        file.as_file().sync_all()?;
    }
    Ok(file)
}

/// Syncs the folder for a durable write, so that the file's name is as durable as its content.
fn kept(path: &Path, writing: Writing) -> io::Result<()> {
    match writing {
        Writing::Durable => File::open(folder_of(path))?.sync_all(),
        Writing::Quick => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn prefix_of(path: &Path) -> String {
    format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_the_place_of_the_one_before_and_is_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old, and readable").unwrap();
        replace(&path, b"new", Writing::Durable).unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mode() & 0o777), (b"new".to_vec(), 0o600));
        assert!(!create(&path, b"other").unwrap() && create(&folder.path().join("other"), b"other").unwrap());
        assert_eq!((fs::read(&path).unwrap(), fs::read_dir(folder.path()).unwrap().count()), (b"new".to_vec(), 2));
    }

    #[test]
    fn a_file_of_another_program_keeps_its_mode_and_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let state = || fs::metadata(&path).map(|file| (file.mode() & 0o7777, file.uid())).unwrap();
        replace_kept(&path, b"new", 0o600).unwrap();
        assert_eq!(state().0, 0o600);
        for mode in [0o644, 0o664, 0o666, 0o600] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            replace_kept(&path, b"again", 0o600).unwrap();
            assert_eq!(state().0, mode);
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).unwrap();
            replace_kept(&path, b"of another", 0o600).unwrap();
            assert_eq!((state().1, fs::metadata(&path).unwrap().gid()), (12_345, 54_321));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        assert!(replace_kept(&path, b"x", 0o600).unwrap_err().to_string().contains("read-only (mode 444)"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(replace_kept(&link, b"x", 0o600).unwrap_err().to_string().contains("symbolic link"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_killed_writers_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let left = written(&path, b"secret", FILE_MODE, Writing::Quick).unwrap().keep().unwrap().1;
        // These are, in this order: a temporary file of another file, a name that is too short, a file of another program, and a name with
        // a wrong character.
        let others = [".other.abcdef.tmp", ".file.abc.tmp", ".tmpabcdef", ".file.ab-def.tmp"].map(|name| folder.path().join(name));
        for other in &others {
            fs::write(other, "").unwrap();
        }
        fs::create_dir(folder.path().join(".file.abcdef.tmp")).unwrap();
        let now = SystemTime::now();
        sweep(&path, now);
        assert!(left.exists(), "somebody may be writing it");
        sweep(&path, now + 2 * ABANDONED);
        assert!(!left.exists() && others.iter().all(|other| other.exists()) && folder.path().join(".file.abcdef.tmp").exists());
    }
}
