//! The state folder and its files. Only this user may access them. A file that other users may write is refused. If other users may only
//! read a file, their permissions are removed.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::read::{Links, check_regular, open_regular, read_open, unwaiting};

const FOLDER_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const OPEN_TO_OTHERS: u32 = 0o077;

/// A folder that only this user may access.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    /// Path of the folder, with symbolic links resolved.
    pub(crate) path: PathBuf,
    /// Mode of the folder before its permissions were removed. `None` if other users had no permissions.
    pub(crate) was_open: Option<u32>,
}

/// Opens a folder, or creates it with mode 0700. Fails if the folder belongs to another user, or if other users may write to it. If other
/// users may only read it, their permissions are removed.
pub(crate) fn private_folder(path: &Path) -> io::Result<PrivateFolder> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
    }
    // The path may be a symbolic link, for example to another disk. The check then applies to the link's target.
    let path = fs::canonicalize(path)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(i32::try_from(flags.bits()).map_err(io::Error::other)?).open(&path)?;
    let was_open = close_to_others(&folder, FOLDER_MODE)?;
    Ok(PrivateFolder { path, was_open })
}

/// Opens a folder that a person has named, or creates it with mode 0700. Fails for the same folders as [`private_folder`]. If the folder
/// exists, its mode is not changed. If other users may read the folder, [`PrivateFolder::was_open`] contains the mode.
pub(crate) fn named_folder(path: &Path) -> io::Result<PrivateFolder> {
    if !path.is_dir() {
        return private_folder(path);
    }
    let path = fs::canonicalize(path)?;
    let folder = fs::metadata(&path)?;
    check_own(&folder, FOLDER_MODE)?;
    let bits = folder.mode() & 0o7777;
    Ok(PrivateFolder { path, was_open: (bits & OPEN_TO_OTHERS != 0).then_some(bits) })
}

/// Opens one of this program's files for reading. The file must be regular, must belong to this user, and must not be writable by other
/// users. If other users may read the file, their permissions are removed.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    let file = open_regular(path, Links::Refuse)?;
    close_to_others(&file, FILE_MODE)?;
    Ok(file)
}

/// Checks one of this program's files in the same way as [`open_own`], but does not open the file. If the file were opened, closing it
/// would release the locks that a database has on it.
pub(crate) fn close_own(path: &Path) -> io::Result<()> {
    let before = fs::symlink_metadata(path)?;
    check_regular(&before)?;
    check_own(&before, FILE_MODE)?;
    if before.mode() & OPEN_TO_OTHERS == 0 { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(FILE_MODE)) }
}

/// Reads one of this program's files completely. Fails if the file has more than `limit` bytes.
pub(crate) fn read_own(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open(&open_own(path)?, limit)
}

/// Opens one of this program's files for appending. Creates it if it does not exist.
pub(crate) fn append_own(path: &Path) -> io::Result<File> {
    open_to_write(OpenOptions::new().append(true), path)
}

/// Opens one of this program's files, or creates it with mode 0600. If the path is a pipe, fails without waiting.
pub(super) fn open_to_write(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.create(true).mode(FILE_MODE).custom_flags(unwaiting(Links::Refuse)?).open(path)?;
    check_regular(&file.metadata()?)?;
    close_to_others(&file, FILE_MODE)?;
    Ok(file)
}

/// Removes the permissions of other users. Returns the previous mode if other users had permissions.
fn close_to_others(file: &File, mode: u32) -> io::Result<Option<u32>> {
    let before = file.metadata()?;
    check_own(&before, mode)?;
    let bits = before.mode() & 0o7777;
    if bits & OPEN_TO_OTHERS == 0 {
        return Ok(None);
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(Some(bits))
}

/// Fails if another user owns the file, or if other users may write to it.
fn check_own(metadata: &Metadata, mode: u32) -> io::Result<()> {
    let (owner, us, bits) = (metadata.uid(), rustix::process::geteuid().as_raw(), metadata.mode() & 0o7777);
    let refused = |problem: String| Err(io::Error::new(ErrorKind::PermissionDenied, problem));
    if owner != us {
        return refused(format!("it belongs to another user (uid {owner}; this process has uid {us}); if you trust its content, chown it"));
    }
    if bits & WRITABLE_BY_OTHERS != 0 {
        return refused(format!("others may write to it (mode {bits:o}); if you trust its content, chmod {mode:o} it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn the_mode_of_a_folder_that_a_person_named_stays_and_others_may_not_write_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (made, there, link) = (folder.path().join("a/made"), folder.path().join("there"), folder.path().join("link"));
        assert_eq!(named_folder(&made).unwrap().was_open, None);
        assert_eq!((mode(&made), mode(&folder.path().join("a"))), (0o700, 0o700));
        fs::create_dir(&there).unwrap();
        set(&there, 0o755);
        std::os::unix::fs::symlink(&there, &link).unwrap();
        for named in [&there, &link] {
            assert_eq!((named_folder(named).unwrap().was_open, mode(&there)), (Some(0o755), 0o755));
        }
        set(&there, 0o777);
        assert!(named_folder(&link).unwrap_err().to_string().contains("chmod 700") && mode(&there) == 0o777);
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_is_made_for_its_user_alone_and_one_that_others_look_into_is_closed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/b");
        assert!(private_folder(&path).unwrap().was_open.is_none());
        assert_eq!((mode(&path), mode(&outer.path().join("a"))), (0o700, 0o700));
        set(&path, 0o755);
        assert_eq!(private_folder(&path).unwrap().was_open, Some(0o755));
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_folder_into_which_others_may_write_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        for bits in [0o770, 0o702, 0o1777] {
            set(folder.path(), bits);
            let error = private_folder(folder.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {bits:o}")) && error.contains("chmod 700"), "{error}");
            assert_eq!(mode(folder.path()), bits);
        }
    }

    #[test]
    fn a_link_to_a_folder_is_followed_and_what_it_leads_to_is_judged() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, link) = (outer.path().join("folder"), outer.path().join("link"));
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        private_folder(&folder).unwrap();
        assert_eq!(private_folder(&link).unwrap().path, folder.canonicalize().unwrap());
        set(&folder, 0o777);
        assert!(private_folder(&link).is_err());
    }

    #[test]
    fn a_file_that_others_could_read_is_closed_and_one_that_they_could_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        set(&path, 0o644);
        assert_eq!(read_own(&path, 9).unwrap(), b"x");
        assert_eq!(mode(&path), 0o600);
        set(&path, 0o620);
        assert!(read_own(&path, 9).unwrap_err().to_string().contains("others may write"));
        assert!(append_own(&path).is_err());
    }

    #[test]
    fn what_another_user_owns_is_refused_whatever_its_mode() {
        // In this case, other users may read a file of root. Root cannot test this with a file of its own, so root gives the file to
        // another user.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        set(&path, 0o600);
        let foreign = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            path
        } else {
            PathBuf::from("/etc/passwd")
        };
        let error = read_own(&foreign, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("another user (uid ") && error.contains("chown"), "{error}");
        assert!(check_own(&fs::metadata(&foreign).unwrap(), 0o600).is_err());
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = crate::files::testing::pipe(folder.path(), "pipe");
        let both = move || (append_own(&path).is_err(), read_own(&path, 9).is_err());
        assert_eq!(crate::files::testing::at_once(both), (true, true));
    }
}
