//! Finds the package with the program, and checks that no other user could have changed it.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::files::{Links, read_bounded};

/// The name of the npm package.
pub const PACKAGE: &str = "hyperlight-mcp-search-model";
const PROGRAM: &str = "hyperlight-mcp-embed";
/// The files of the package that are checked: the program itself, the files that it reads, and `package.json`, which contains the version.
const FILES: [&str; 4] = [PROGRAM, "model.onnx", "tokenizer.json", "package.json"];
const NODE_MODULES: &str = "node_modules";
const MAX_MANIFEST_BYTES: u64 = 64 * 1024;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Returns the path of the program of the package in `folder`. Without a folder, uses the package that was installed together with the
/// package at `start`.
///
/// # Errors
/// Returns the reason why the package cannot be used, as a part of a sentence.
pub(super) fn find(folder: Option<&Path>, start: &Path) -> Result<PathBuf, String> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => resolve(start).ok_or("is not installed")?,
    };
    let folder = fs::canonicalize(&folder).map_err(|error| format!("cannot be read in {}: {error}", folder.display()))?;
    check(&folder).map_err(|problem| format!("in {} is not used: {problem}", folder.display()))?;
    Ok(folder.join(PROGRAM))
}

/// Finds the package beside the addon. `start` is the folder of the package that contains the addon. A person has installed this package,
/// and therefore also the packages beside it. No other folder is searched, because another folder may be a project of somebody else.
fn resolve(start: &Path) -> Option<PathBuf> {
    package_folders(&fs::canonicalize(start).ok()?).into_iter().map(|modules| modules.join(PACKAGE)).find(|folder| folder.is_dir())
}

/// Returns the folders `node_modules` that were installed together with a package, innermost first. If the package is the repository
/// itself, this is the repository's own `node_modules`. Unlike Node, does not search the folders above, because other programs may write
/// there.
pub(crate) fn package_folders(package: &Path) -> Vec<PathBuf> {
    let is_modules = |folder: &Path| folder.file_name().is_some_and(|name| name == NODE_MODULES);
    let outermost = package.ancestors().filter(|folder| is_modules(folder)).last().and_then(Path::parent);
    let npm = package.parent().filter(|npm| npm.file_name().is_some_and(|name| name == "npm"));
    let Some(last) = outermost.or_else(|| npm.and_then(Path::parent)) else { return Vec::new() };
    let folders = package.ancestors().take_while(|folder| folder.starts_with(last)).filter(|folder| !is_modules(folder));
    folders.map(|folder| folder.join(NODE_MODULES)).collect()
}

fn check(folder: &Path) -> Result<(), String> {
    for file in FILES {
        let path = folder.join(file);
        let real = fs::canonicalize(&path).map_err(|error| format!("its {file} cannot be read: {error}"))?;
        if real != path {
            return Err(format!("its {file} is a symbolic link"));
        }
    }
    for place in FILES.iter().map(|file| folder.join(file)).chain(folder.ancestors().map(Path::to_owned)) {
        let metadata = fs::metadata(&place).map_err(|error| format!("{} cannot be read: {error}", place.display()))?;
        // In a folder with the sticky bit, such as /tmp, other users cannot replace files and folders of this user.
        let is_sticky = metadata.mode() & STICKY != 0 && !place.starts_with(modules_of(folder));
        check_owner(&metadata, is_sticky).map_err(|problem| format!("{} {problem}", place.display()))?;
    }
    check_version(folder)
}

/// Returns the folder `node_modules` that contains the package. If there is none, returns the package's own folder.
fn modules_of(folder: &Path) -> &Path {
    folder.parent().filter(|parent| parent.file_name().is_some_and(|name| name == NODE_MODULES)).unwrap_or(folder)
}

fn check_owner(metadata: &Metadata, is_sticky: bool) -> Result<(), String> {
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != 0 && owner != us {
        return Err(format!("belongs to another user (uid {owner})"));
    }
    // On most distributions, the group with the same number as the user contains only this user.
    let is_own_group = metadata.gid() == 0 || metadata.gid() == us;
    let foreign = if is_own_group { WRITABLE_BY_ALL } else { WRITABLE_BY_ALL | WRITABLE_BY_GROUP };
    if metadata.mode() & foreign != 0 && !is_sticky { Err("can be written by other users".to_owned()) } else { Ok(()) }
}

/// Checks the name and the version. The constants of the ranking were measured with one model, so the versions must be equal.
fn check_version(folder: &Path) -> Result<(), String> {
    let bytes = read_bounded(&folder.join("package.json"), Links::Refuse, MAX_MANIFEST_BYTES);
    let bytes = bytes.map_err(|error| format!("its package.json cannot be read: {error}"))?;
    let manifest: Json = serde_json::from_slice(&bytes).map_err(|error| format!("its package.json is not JSON: {error}"))?;
    if manifest["name"].as_str() != Some(PACKAGE) {
        return Err("its package.json has another name".to_owned());
    }
    let wanted = env!("CARGO_PKG_VERSION");
    match manifest["version"].as_str() {
        Some(version) if version == wanted => Ok(()),
        version => Err(format!("it has version {}, and {wanted} is needed", version.unwrap_or("none").escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    const ADDON: &str = "node_modules/hyperlight-mcp-linux-x64-gnu";

    fn install(modules: &Path) -> PathBuf {
        fs::create_dir_all(modules.join("hyperlight-mcp-linux-x64-gnu")).unwrap();
        let folder = modules.join(PACKAGE);
        fs::create_dir_all(&folder).unwrap();
        for file in FILES {
            fs::write(folder.join(file), "").unwrap();
        }
        write_manifest(&folder, PACKAGE, env!("CARGO_PKG_VERSION"));
        folder
    }

    fn write_manifest(folder: &Path, name: &str, version: &str) {
        fs::write(folder.join("package.json"), format!(r#"{{ "name": "{name}", "version": "{version}" }}"#)).unwrap();
    }

    #[test]
    fn the_package_is_found_beside_the_addon_and_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let addon = root.join("node_modules/hyperlight-mcp-linux-x64-gnu");
        fs::create_dir_all(&addon).unwrap();
        assert_eq!(find(None, &addon).unwrap_err(), "is not installed");
        let outer = install(&root.join("node_modules"));
        assert_eq!(find(None, &addon).unwrap(), outer.join(PROGRAM));
        // pnpm keeps packages in folders of their own, and links them.
        let kept = root.join("node_modules/.pnpm/hyperlight-mcp@0.1.0/node_modules/hyperlight-mcp");
        fs::create_dir_all(&kept).unwrap();
        symlink(&kept, root.join("node_modules/hyperlight-mcp")).unwrap();
        assert_eq!(find(None, &root.join("node_modules/hyperlight-mcp")).unwrap(), outer.join(PROGRAM));
        let other = tempfile::tempdir().unwrap();
        let named = install(other.path());
        assert_eq!(find(Some(&named), &addon).unwrap(), fs::canonicalize(&named).unwrap().join(PROGRAM));
    }

    /// A server in a box that may write a folder above the package could create a package of this name there.
    #[test]
    fn the_package_is_not_looked_for_above_what_was_installed() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        for addon in ["p/node_modules/hyperlight-mcp-linux-x64-gnu", "r/npm/linux-x64-gnu", "app/dist"] {
            fs::create_dir_all(root.join(addon)).unwrap();
            install(&root.join("node_modules"));
            assert_eq!(find(None, &root.join(addon)).unwrap_err(), "is not installed", "{addon}");
        }
        let own = install(&root.join("r/node_modules"));
        assert_eq!(find(None, &root.join("r/npm/linux-x64-gnu")).unwrap(), own.join(PROGRAM));
    }

    #[test]
    fn a_package_of_another_version_or_name_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = install(&root.path().join(NODE_MODULES));
        let problem = || find(None, &root.path().join(ADDON)).unwrap_err();
        write_manifest(&folder, PACKAGE, "9.9.9");
        assert!(problem().contains("it has version 9.9.9, and 0."), "{}", problem());
        write_manifest(&folder, "evil", env!("CARGO_PKG_VERSION"));
        assert!(problem().ends_with("another name"), "{}", problem());
        fs::write(folder.join("package.json"), "{").unwrap();
        assert!(problem().contains("is not JSON"), "{}", problem());
        fs::remove_file(folder.join("model.onnx")).unwrap();
        assert!(problem().contains("its model.onnx cannot be read"), "{}", problem());
    }

    #[test]
    fn a_package_that_another_user_could_change_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join(NODE_MODULES);
        let folder = install(&modules);
        for place in [&folder.join(PROGRAM), &folder.join("model.onnx"), &folder, &modules] {
            let before = fs::metadata(place).unwrap().permissions();
            fs::set_permissions(place, Permissions::from_mode(0o1777)).unwrap();
            let problem = find(None, &root.path().join(ADDON)).unwrap_err();
            assert!(problem.ends_with("can be written by other users"), "{problem}");
            fs::set_permissions(place, before).unwrap();
        }
        assert!(find(None, &root.path().join(ADDON)).is_ok());
        if rustix::process::geteuid().is_root() {
            chown(folder.join(PROGRAM), Some(12_345), None).unwrap();
            assert!(find(None, &root.path().join(ADDON)).unwrap_err().ends_with("belongs to another user (uid 12345)"));
        }
    }

    #[test]
    fn a_file_that_is_a_link_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = install(&root.path().join(NODE_MODULES));
        fs::rename(folder.join(PROGRAM), root.path().join("elsewhere")).unwrap();
        symlink(root.path().join("elsewhere"), folder.join(PROGRAM)).unwrap();
        assert!(find(None, &root.path().join(ADDON)).unwrap_err().ends_with("its hyperlight-mcp-embed is a symbolic link"));
    }
}
