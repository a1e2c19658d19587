//! Reads regular files without waiting, up to a maximum number of bytes.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::locked::check_unlocked;

/// The treatment of a path whose last component is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Follows the link, because a person may have created it.
    Follow,
    /// Refuses the link. The file belongs to this program, and this program creates no links.
    Refuse,
}

/// Opens a regular file for reading. Fails immediately for any other kind of file, because a pipe would wait for a writer, and reading a
/// device may never end. Fails for a file that this process has locked ([`LockedFiles`]).
///
/// [`LockedFiles`]: super::LockedFiles
pub(crate) fn open_regular(path: &Path, links: Links) -> io::Result<File> {
    // The file is found and checked before it is opened, because opening some devices already has an effect, and closing a locked file has
    // one. A descriptor with O_PATH has neither (`open(2)`).
    let flags = OFlags::PATH | OFlags::CLOEXEC | if links == Links::Refuse { OFlags::NOFOLLOW } else { OFlags::empty() };
    let found = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = found.metadata()?;
    check_regular(&metadata)?;
    check_unlocked(&metadata)?;
    // This link of the kernel leads to the file that was checked, whatever has the path now.
    let checked = format!("/proc/self/fd/{}", found.as_raw_fd());
    fs::OpenOptions::new().read(true).custom_flags(unwaiting(Links::Follow)?).open(checked)
}

/// Reads a regular file completely. Fails if it has more than `limit` bytes.
pub(crate) fn read_bounded(path: &Path, links: Links, limit: u64) -> io::Result<Vec<u8>> {
    read_open(&open_regular(path, links)?, limit)
}

/// Reads an open file in the same way as [`read_bounded`].
pub(crate) fn read_open(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The reported size may be wrong (for a file of /proc), or may change. So the bytes that are read are also counted.
    if file.metadata()?.len() > limit || file.take(limit.saturating_add(1)).read_to_end(&mut bytes)? as u64 > limit {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// Returns flags for `open` with which neither opening nor reading waits.
pub(super) fn unwaiting(links: Links) -> io::Result<i32> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = if links == Links::Refuse { flags | OFlags::NOFOLLOW } else { flags };
    i32::try_from(flags.bits()).map_err(io::Error::other)
}

pub(super) fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = if metadata.is_symlink() { "it is a symbolic link" } else { "it is not a regular file" };
    Err(io::Error::new(ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::testing::{at_once, pipe};

    fn read(path: &Path, links: Links) -> Result<Vec<u8>, String> {
        let path = path.to_owned();
        at_once(move || read_bounded(&path, links, 4)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_a_regular_file_is_an_error_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/zero", &link).unwrap();
        for path in [pipe(folder.path(), "pipe"), link, "/dev/zero".into(), "/dev/null".into(), folder.path().into()] {
            assert_eq!(read(&path, Links::Follow), Err("it is not a regular file".to_owned()), "{}", path.display());
        }
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, Links::Follow).unwrap(), b"four");
        fs::write(&path, "fives").unwrap();
        assert_eq!(read(&path, Links::Follow), Err("it has more than 4 bytes".to_owned()));
        // The kernel reports the size 0 for this file.
        assert_eq!(read(Path::new("/proc/self/status"), Links::Follow), Err("it has more than 4 bytes".to_owned()));
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path, Links::Follow).is_err());
    }

    #[test]
    fn a_link_is_followed_only_where_a_person_may_have_put_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "four").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read(&link, Links::Follow).unwrap(), b"four");
        assert_eq!(read(&link, Links::Refuse), Err("it is a symbolic link".to_owned()));
    }
}
