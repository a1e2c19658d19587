//! Measures and removes a folder with all its contents. The contents may be hostile: links are not followed, folders may forbid their own
//! user to read them, and folders may be nested to any depth.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// Maximum depth of folders that are measured. Each folder is open while its content is measured.
const MAX_DEPTH: usize = 200;
/// The unit of the size on the disk (`stat(2)`).
const BLOCK_BYTES: u64 = 512;
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The size of a folder on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeSize {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// False if there are more files than the limit, or if there are folders that could not be read or are nested too deeply.
    pub(crate) is_complete: bool,
}

/// Measures at most `limit` files of a folder. A file with several names is counted once for each name.
pub(crate) fn tree_size(path: &Path, limit: u64) -> io::Result<TreeSize> {
    let mut size = TreeSize { bytes: 0, files: 0, is_complete: true };
    let mut folders = vec![Dir::new(openat(CWD, path, OFlags::RDONLY | FOLDER, Mode::empty())?)?];
    while let Some(folder) = folders.last_mut() {
        let Some(Ok(entry)) = folder.read() else {
            folders.pop();
            continue;
        };
        let name = entry.file_name();
        let Ok(parent) = folder.fd() else { continue };
        let Some(Ok(file)) = is_entry(name).then(|| statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)) else { continue };
        if size.files >= limit {
            return Ok(TreeSize { is_complete: false, ..size });
        }
        size.files += 1;
        size.bytes += u64::try_from(file.st_blocks).unwrap_or_default().saturating_mul(BLOCK_BYTES);
        if is_folder(&file) {
            let opened = openat(parent, name, OFlags::RDONLY | FOLDER, Mode::empty()).and_then(Dir::new);
            match opened {
                Ok(opened) if folders.len() < MAX_DEPTH => folders.push(opened),
                _ => size.is_complete = false,
            }
        }
    }
    Ok(size)
}

/// Removes a folder. Each folder within it is first moved to the top level, so that neither the depth nor the number of open files grows.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let top = open_own_folder(CWD, &CString::new(path.as_os_str().as_encoded_bytes())?)?;
    let mut waiting = Vec::new();
    for (name, is_folder) in entries(&top)? {
        if is_folder { waiting.push(name) } else { unlinkat(&top, &name, AtFlags::empty())? }
    }
    let taken: HashSet<CString> = waiting.iter().cloned().collect();
    let mut names = (0_u64..).filter_map(|number| CString::new(number.to_string()).ok()).filter(|name| !taken.contains(name));
    while let Some(name) = waiting.pop() {
        let folder = open_own_folder(&top, &name)?;
        for (inner, is_folder) in entries(&folder)? {
            if !is_folder {
                unlinkat(&folder, &inner, AtFlags::empty())?;
                continue;
            }
            let Some(moved) = names.next() else { return Err(Errno::MLINK.into()) };
            // A folder cannot be moved if its owner has no permission to write to it.
            drop(open_own_folder(&folder, &inner)?);
            renameat(&folder, &inner, &top, &moved)?;
            waiting.push(moved);
        }
        unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    fs::remove_dir(path)
}

/// Opens a folder, and gives its owner all permissions for it. The permissions are changed for the opened folder, even if another process
/// puts a link in its place.
fn open_own_folder(parent: impl AsFd, name: &CStr) -> io::Result<File> {
    let place = File::from(openat(&parent, name, OFlags::PATH | FOLDER, Mode::empty())?);
    fs::set_permissions(format!("/proc/self/fd/{}", place.as_raw_fd()), Permissions::from_mode(0o700))?;
    Ok(File::from(openat(&place, c".", OFlags::RDONLY | FOLDER, Mode::empty())?))
}

/// Returns the names in a folder. Each name is returned with a flag that is true if it is the name of a folder.
fn entries(folder: &File) -> io::Result<Vec<(CString, bool)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if is_entry(&name) {
            let is_folder = is_folder(&statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?);
            names.push((name, is_folder));
        }
    }
    Ok(names)
}

fn is_entry(name: &CStr) -> bool {
    name != c"." && name != c".."
}

fn is_folder(file: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(file.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn files_of_all_folders_are_measured_up_to_the_limit_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/file"), vec![1; 3 << 20]).unwrap();
        symlink("/usr", path.join("link")).unwrap();
        let size = tree_size(&path, 100).unwrap();
        assert!(size.is_complete && size.files == 4 && size.bytes >= 3 << 20 && size.bytes < 4 << 20, "{size:?}");
        assert!(matches!(tree_size(&path, 3).unwrap(), TreeSize { files: 3, is_complete: false, .. }));
        assert!(tree_size(&path.join("link"), 100).is_err());
    }

    #[test]
    fn a_folder_is_removed_with_closed_folders_and_what_its_links_lead_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, outside) = (folder.path().join("it"), folder.path().join("outside"));
        fs::create_dir_all(path.join("closed/inner")).unwrap();
        // The removal could give this name to a folder that it moves.
        fs::create_dir_all(path.join("0/1")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        fs::write(path.join("closed/inner/file"), "").unwrap();
        symlink(&outside, path.join("link")).unwrap();
        symlink(&outside, path.join("closed/link")).unwrap();
        fs::set_permissions(path.join("closed/inner"), Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(path.join("closed"), Permissions::from_mode(0o0)).unwrap();
        remove_tree(&path).unwrap();
        assert!(!path.exists() && outside.join("kept").exists());
        symlink(&outside, &path).unwrap();
        assert!(remove_tree(&path).is_err() && outside.join("kept").exists());
    }

    #[test]
    fn folders_without_end_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        fs::create_dir(&path).unwrap();
        let mut inner = File::open(&path).unwrap();
        for _ in 0..6_000 {
            mkdirat(&inner, "a", Mode::RWXU).unwrap();
            inner = File::from(openat(&inner, "a", OFlags::RDONLY | FOLDER, Mode::empty()).unwrap());
        }
        assert!(!tree_size(&path, 100_000).unwrap().is_complete);
        remove_tree(&path).unwrap();
        assert!(!path.exists());
    }
}
