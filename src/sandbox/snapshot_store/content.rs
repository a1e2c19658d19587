//! The files of a stored snapshot: their owner, their digest, and their holes. Most of a snapshot is heap, and most of the heap is zero.
//! Pages that contain only zeroes are stored as holes, and the digest skips the holes.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::files::{Links, open_regular, read_open};

const PAGE: usize = 4096;
const CHUNK: usize = 256 * PAGE;
/// The maximum size of a file that is read as a whole.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// The maximum number of files of a snapshot. A snapshot has one file for the memory, and four small files.
const MAX_FILES: usize = 16;

fn odd(path: &Path, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {problem}", path.display()))
}

/// Returns an error if another user owns the file or has access to it.
fn check_private(path: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(odd(path, "it belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(odd(path, "other users may read or write it"));
    }
    Ok(())
}

/// Returns an error if the path is not a folder, or if another user owns it or has access to it.
pub(super) fn check_folder(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Err(odd(path, "it is not a folder"));
    }
    check_private(path, &metadata)
}

/// Opens a file to which only the current user has access. Returns an error for symbolic links and for files with several hard links.
fn open_private(path: &Path) -> io::Result<File> {
    let file = open_regular(path, Links::Refuse)?;
    let metadata = file.metadata()?;
    if metadata.nlink() != 1 {
        return Err(odd(path, "it has more than one hard link"));
    }
    check_private(path, &metadata)?;
    Ok(file)
}

pub(super) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    read_open(&open_private(path)?, MAX_SMALL_BYTES)
}

pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Returns all files below a folder, sorted by name.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
            if found.len() + folders.len() > MAX_FILES {
                return Err(odd(folder, "it has more files than a snapshot can have"));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Removes other users' access to a folder and everything in it.
pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    for file in files(folder)? {
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        let mut parent = file.parent();
        while let Some(within) = parent.filter(|within| within.starts_with(folder)) {
            fs::set_permissions(within, Permissions::from_mode(0o700))?;
            parent = within.parent();
        }
    }
    Ok(())
}

/// Returns the digest of the files in the folder. The file `except` is left out. The digest does not depend on whether zeroes are stored as
/// holes.
pub(super) fn digest_of(folder: &Path, except: &str) -> io::Result<String> {
    let mut hash = Sha256::new();
    for path in files(folder)? {
        let name = path.strip_prefix(folder).map_err(io::Error::other)?;
        if name == Path::new(except) {
            continue;
        }
        let (name, file) = (name.to_string_lossy(), open_private(&path)?);
        hash.update(name.len().to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(file.metadata()?.len().to_le_bytes());
        each_page(&file, |offset, page| {
            if !is_zero(page) {
                hash.update(offset.to_le_bytes());
                hash.update(page);
            }
            Ok(())
        })?;
        hash.update(u64::MAX.to_le_bytes());
    }
    Ok(hex::encode(hash.finalize()))
}

/// Replaces pages of zeroes in the files by holes, if the file system supports holes.
pub(super) fn punch_zeroes(folder: &Path) -> io::Result<()> {
    for path in files(folder)? {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut zeroes = Vec::<(u64, u64)>::new();
        each_page(&file, |offset, page| {
            if page.len() == PAGE && is_zero(page) {
                match zeroes.last_mut() {
                    Some((start, length)) if *start + *length == offset => *length += PAGE as u64,
                    _ => zeroes.push((offset, PAGE as u64)),
                }
            }
            Ok(())
        })?;
        for (start, length) in zeroes {
            match fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, length) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Calls `visit` with the offset and the content of each page that is not in a hole.
fn each_page(file: &File, mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    while offset < length {
        let Some((start, end)) = next_data(file, offset, length)? else { break };
        // If the data starts in the middle of a page, the whole page is read.
        offset = start - start % PAGE as u64;
        while offset < end {
            let wanted = usize::try_from((length - offset).min(CHUNK as u64)).map_err(io::Error::other)?;
            file.read_exact_at(&mut buffer[..wanted], offset)?;
            for page in buffer[..wanted].chunks(PAGE) {
                visit(offset, page)?;
                offset += page.len() as u64;
                if offset >= end {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Returns the range of the next data at or after an offset. If the file system does not report holes, returns the whole rest of the file.
fn next_data(file: &File, offset: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL) => return Ok(Some((offset, length))),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((start, seek(file, SeekFrom::Hole(start))?)))
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        DirBuilder::new().mode(0o700).create(folder.path().join("blobs")).unwrap();
        write_private(&folder.path().join("index.json"), b"{}").unwrap();
        let mut memory = vec![0; 100 * PAGE];
        memory[7 * PAGE + 1] = 1;
        memory[60 * PAGE] = 2;
        write_private(&folder.path().join("blobs/memory"), &memory).unwrap();
        folder
    }

    fn digest(folder: &tempfile::TempDir) -> io::Result<String> {
        digest_of(folder.path(), "kept.json")
    }

    #[test]
    fn holes_in_the_place_of_zeroes_do_not_change_the_digest_or_what_is_read() {
        let folder = folder();
        let memory = folder.path().join("blobs/memory");
        let (before, content, blocks) = (digest(&folder).unwrap(), fs::read(&memory).unwrap(), fs::metadata(&memory).unwrap().blocks());
        punch_zeroes(folder.path()).unwrap();
        assert_eq!(digest(&folder).unwrap(), before);
        assert_eq!(fs::read(&memory).unwrap(), content);
        assert!(fs::metadata(&memory).unwrap().blocks() < blocks);
    }

    #[test]
    fn each_change_of_a_byte_a_length_or_a_name_changes_the_digest() {
        let before = digest(&folder()).unwrap();
        let changed = |change: &dyn Fn(&Path)| {
            let folder = folder();
            punch_zeroes(folder.path()).unwrap();
            change(folder.path());
            digest(&folder).unwrap()
        };
        let open = |path: PathBuf| OpenOptions::new().write(true).open(path).unwrap();
        assert_eq!(changed(&|_| ()), before);
        assert_ne!(changed(&|folder| open(folder.join("blobs/memory")).write_all_at(b"x", 50 * PAGE as u64 + 9).unwrap()), before);
        assert_ne!(changed(&|folder| open(folder.join("blobs/memory")).set_len(101 * PAGE as u64).unwrap()), before);
        assert_ne!(changed(&|folder| open(folder.join("index.json")).set_len(1).unwrap()), before);
        assert_ne!(changed(&|folder| fs::rename(folder.join("index.json"), folder.join("Index.json")).unwrap()), before);
        assert_ne!(changed(&|folder| write_private(&folder.join("more"), b"").unwrap()), before);
        assert_eq!(changed(&|folder| write_private(&folder.join("kept.json"), b"x").unwrap()), before);
    }

    #[test]
    fn what_others_may_reach_is_refused() {
        let folder = folder();
        let memory = folder.path().join("blobs/memory");
        fs::set_permissions(&memory, Permissions::from_mode(0o640)).unwrap();
        assert!(digest(&folder).unwrap_err().to_string().contains("other users may read"));
        make_private(folder.path()).unwrap();
        fs::hard_link(&memory, folder.path().join("again")).unwrap();
        assert!(digest(&folder).unwrap_err().to_string().contains("more than one hard link"));
        fs::remove_file(folder.path().join("again")).unwrap();
        std::os::unix::fs::symlink(&memory, folder.path().join("link")).unwrap();
        assert!(digest(&folder).is_err());
        fs::remove_file(folder.path().join("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("fifo"), rustix::fs::Mode::RUSR).unwrap();
        assert!(digest(&folder).unwrap_err().to_string().contains("not a regular file"));
    }
}
