//! Resolves the path of another program's file before the file is replaced. A symbolic link is only followed if no other user could have
//! changed its target.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The sticky bit in the mode of a folder. With this bit, only the owner of a file in the folder may replace the file.
const STICKY: u32 = 0o1000;

/// Returns the path of the file to replace. A symbolic link is followed, because many people store their settings in another folder. Fails
/// if another user owns the link or a folder on the path to the link's target. Also fails if another user may write to one of these
/// folders.
pub(crate) fn target_of_user(path: &Path) -> io::Result<PathBuf> {
    let link = match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => there,
        Ok(_) | Err(_) => return Ok(path.to_owned()),
    };
    let refused = |problem: String| Err(io::Error::new(ErrorKind::PermissionDenied, problem));
    let target = fs::canonicalize(path).map_err(|error| io::Error::new(error.kind(), format!("it is a symbolic link: {error}")))?;
    let name = target.display();
    if !is_trusted(&link) {
        return refused(format!("it is a symbolic link of another user (uid {}) to {name}", link.uid()));
    }
    for (index, folder) in target.ancestors().skip(1).enumerate() {
        let there = fs::symlink_metadata(folder)?;
        let is_protected = there.mode() & WRITABLE_BY_OTHERS == 0 || (index > 0 && there.mode() & STICKY != 0);
        if !is_trusted(&there) || !is_protected {
            let folder = folder.display();
            return refused(format!("it is a symbolic link to {name}, and other users may write to {folder}"));
        }
    }
    Ok(target)
}

/// Returns the path of a file in a project. Fails if the file, or a folder between the file and the project, is a symbolic link. The author
/// of the project could have made this link so that it leads to another file of the user.
pub(crate) fn target_in_project(path: &Path, project: &Path) -> io::Result<PathBuf> {
    for part in path.ancestors().take_while(|part| *part != project) {
        if fs::symlink_metadata(part).is_ok_and(|there| there.is_symlink()) {
            let problem = format!("{} is a symbolic link, which is not followed in a project", part.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, problem));
        }
    }
    Ok(path.to_owned())
}

/// Returns whether the owner of the file is this user or root.
fn is_trusted(there: &Metadata) -> bool {
    there.uid() == 0 || there.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_link_is_followed_only_to_where_no_other_user_may_write() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, link) = (outer.path().join("dotfiles"), outer.path().join("mcp.json"));
        fs::create_dir(&folder).unwrap();
        let file = folder.join("mcp.json");
        symlink(&file, &link).unwrap();
        assert!(target_of_user(&link).unwrap_err().to_string().contains("symbolic link"), "it leads to nothing");
        fs::write(&file, "{}").unwrap();
        set(&folder, 0o755);
        assert_eq!(target_of_user(&link).unwrap(), file.canonicalize().unwrap());
        assert_eq!(target_of_user(&file).unwrap(), file);
        for mode in [0o775, 0o777, 0o1777] {
            set(&folder, mode);
            assert!(target_of_user(&link).unwrap_err().to_string().contains("other users may write"), "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            set(&folder, 0o755);
            std::os::unix::fs::chown(&folder, Some(12_345), None).unwrap();
            assert!(target_of_user(&link).is_err());
        }
    }

    #[test]
    fn no_link_of_a_project_is_followed() {
        let outer = tempfile::tempdir().unwrap();
        let (project, elsewhere) = (outer.path().join("project"), outer.path().join("elsewhere"));
        fs::create_dir(&project).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let path = project.join(".vscode/mcp.json");
        assert_eq!(target_in_project(&path, &project).unwrap(), path);
        symlink(&elsewhere, project.join(".vscode")).unwrap();
        assert!(target_in_project(&path, &project).unwrap_err().to_string().contains(".vscode is a symbolic link"));
    }
}
