//! MCP roots: the folders that a server may know. A server never learns of folders other than those that the config names and a person has
//! approved.

use std::path::{Path, PathBuf};

use url::Url;

/// Maximum number of roots of a host that are used. All roots after these are ignored.
const MAX_ROOTS: usize = 64;
const MAX_URI_BYTES: usize = 4_096;

/// Returns the host's folders that lie within approved folders, as URIs. If there are none, returns the approved folders. Resolves links
/// on the disk, because a link must not lead out of an approved folder.
pub(super) fn narrowed(approved: &[String], of_host: &[String]) -> Vec<String> {
    let bounds: Vec<PathBuf> = approved.iter().filter_map(|uri| folder(uri)).filter_map(|path| path.canonicalize().ok()).collect();
    let is_within = |path: &Path| bounds.iter().any(|bound| path.starts_with(bound));
    let mut within: Vec<String> = Vec::new();
    let known = of_host.iter().take(MAX_ROOTS).filter_map(|uri| folder(uri)).filter_map(|path| path.canonicalize().ok());
    for path in known.filter(|path| is_within(path)) {
        // The path with its links resolved is returned. A link that is changed later then cannot lead to another folder.
        if let Ok(uri) = Url::from_file_path(path)
            && !within.iter().any(|other| other == uri.as_str())
        {
            within.push(uri.into());
        }
    }
    if within.is_empty() { approved.to_vec() } else { within }
}

/// Returns the path of a `file:` URI on this machine.
fn folder(uri: &str) -> Option<PathBuf> {
    if uri.len() > MAX_URI_BYTES {
        return None;
    }
    let url = Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    use super::*;

    fn uri(path: &Path) -> String {
        Url::from_file_path(path).unwrap().into()
    }

    #[test]
    fn a_host_narrows_the_approved_folders_and_never_widens_them() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (approved, outside) = (place.join("work"), place.join("outside"));
        for path in [&approved.join("project"), &outside, &place.join("work-2")] {
            create_dir_all(path).unwrap();
        }
        symlink(&outside, approved.join("link")).unwrap();
        symlink(approved.join("project"), outside.join("back")).unwrap();
        let all = [uri(&approved)];
        let told = |of_host: &[&Path]| narrowed(&all, &of_host.iter().map(|path| uri(path)).collect::<Vec<_>>());
        let project = [uri(&approved.join("project"))];
        assert_eq!(told(&[&approved.join("project")]), project);
        assert_eq!(told(&[&outside, &approved.join("project"), &outside.join("back")]), project);
        assert_eq!(told(&[&approved]), all);
        for path in [&*place, &outside, &place.join("work-2"), &approved.join("link"), &approved.join("none"), Path::new("/")] {
            assert_eq!(told(&[path]), all, "{}", path.display());
        }
        let up = format!("{}/../outside", all[0]);
        let encoded = format!("{}/%2e%2e/outside", all[0]);
        for spelled in [up, encoded, "https://example.com/".into(), "nonsense".into(), format!("file://elsewhere{}", approved.display())] {
            assert_eq!(narrowed(&all, &[spelled]), all);
        }
        assert_eq!(narrowed(&[], &project), Vec::<String>::new());
    }
}
