//! Finds packages that provide servers, in the same places as Node: in the `node_modules` of a folder and of its parent folders. Reads only
//! the file `package.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde_json::Value as Json;

use crate::config::is_package_name;
use crate::files::{Links, read_bounded};

const NODE_MODULES: &str = "node_modules";
const MAX_MANIFEST_BYTES: u64 = 1024 * 1024;
/// The maximum number of installed packages whose `package.json` is read.
const MAX_PACKAGES: usize = 20_000;
const MAX_VERSION_CHARS: usize = 64;
/// The key in `package.json` that marks a package as a provider.
const KEY: &str = "hyperlight-mcp";

/// An installed package that is marked as a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundPackage {
    pub(super) name: String,
    pub(super) version: String,
    /// The description from `package.json`, unchanged.
    pub(super) description: Option<String>,
    /// The package's folder, with links resolved.
    pub(super) folder: PathBuf,
    /// The path of the provider's file, relative to the package's folder. Contains no `..`.
    pub(super) file: PathBuf,
}

/// Finds an installed package by its name. Uses the first folder of `starts` from which the package can be found.
///
/// # Errors
/// Returns the reason why there is no provider of this name.
pub(super) fn find(name: &str, starts: &[PathBuf]) -> Result<FoundPackage, String> {
    let folder = search_folders(starts).into_iter().map(|folder| folder.join(name)).find(|folder| folder.is_dir());
    let Some(folder) = folder else {
        return Err("the package is not installed: install it in the folder of the config, or in the workspace folder".to_owned());
    };
    match read(name, &folder)? {
        Some(found) => Ok(found),
        None => Err(format!("its package.json has no \"{KEY}\": {{ \"provider\": \"./file\" }}: it provides no servers")),
    }
}

/// Finds all installed packages that are marked as providers, by name. A package in a nearer folder hides packages with the same name in
/// other folders.
pub(super) fn discover(starts: &[PathBuf]) -> BTreeMap<String, Result<FoundPackage, String>> {
    let (mut found, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for folder in search_folders(starts) {
        for (name, folder) in installed(&folder) {
            if seen.len() >= MAX_PACKAGES {
                return found;
            }
            if seen.insert(name.clone()) {
                match read(&name, &folder) {
                    Ok(Some(package)) => drop(found.insert(name, Ok(package))),
                    Err(problem) => drop(found.insert(name, Err(problem))),
                    Ok(None) => {}
                }
            }
        }
    }
    found
}

/// Returns the `node_modules` folders in which Node searches for a package, nearest first.
fn search_folders(starts: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for ancestor in starts.iter().flat_map(|start| start.ancestors()) {
        // Node does not search in `node_modules/node_modules`.
        let folder = ancestor.join(NODE_MODULES);
        if ancestor.file_name().is_none_or(|name| name != NODE_MODULES) && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Lists the packages in one `node_modules` folder, in the order of their names.
fn installed(folder: &Path) -> Vec<(String, PathBuf)> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).take(MAX_PACKAGES).collect();
        names.sort();
        names
    };
    let mut packages = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if name.starts_with('@') {
            packages.extend(names(&path).into_iter().map(|rest| (format!("{name}/{rest}"), path.join(&rest))));
        } else {
            packages.push((name, path));
        }
    }
    packages.retain(|(name, _)| is_package_name(name));
    packages
}

/// Reads the `package.json` of a folder. Returns `None` if the package is not marked as a provider.
fn read(name: &str, folder: &Path) -> Result<Option<FoundPackage>, String> {
    let bytes = match read_bounded(&folder.join("package.json"), Links::Follow, MAX_MANIFEST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(format!("its package.json cannot be read: {error}")),
    };
    let manifest: Json = match serde_json::from_slice(&bytes) {
        Ok(manifest) => manifest,
        // An invalid `package.json` that does not contain the key is ignored, because the package cannot be a provider.
        Err(_) if !bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()) => return Ok(None),
        Err(error) => return Err(format!("its package.json is not JSON: {error}")),
    };
    let Some(provider) = manifest.get(KEY).and_then(|ours| ours.get("provider")) else { return Ok(None) };
    if manifest["name"].as_str() != Some(name) {
        return Err("its package.json gives it another name than the one under which it is installed".to_owned());
    }
    let version = manifest["version"].as_str().filter(|version| is_version(version));
    let version = version.ok_or("its package.json has no version")?.to_owned();
    let file = provider.as_str().and_then(inner_path);
    let file =
        file.ok_or_else(|| format!("\"{KEY}\".provider of its package.json must be a path within the package, like \"./provider.js\""))?;
    let folder = fs::canonicalize(folder).map_err(|error| format!("its folder cannot be read: {error}"))?;
    check_inside(&folder, "package.json")?;
    let description = manifest["description"].as_str().map(str::to_owned);
    Ok(Some(FoundPackage { name: name.to_owned(), version, description, folder, file }))
}

/// Checks that a file of a package is in the package's folder after links are resolved. The digest does not cover files outside of the
/// folder. `package.json` is checked too, because it determines which code runs and how it is loaded.
fn check_inside(folder: &Path, file: &str) -> Result<(), String> {
    match fs::canonicalize(folder.join(file)) {
        Ok(real) if real.starts_with(folder) => Ok(()),
        Ok(_) => Err(format!("its {file} is a link to a file outside of the package; replace it with the file")),
        Err(error) => Err(format!("its {file} cannot be read: {error}")),
    }
}

fn is_version(version: &str) -> bool {
    let fits = |next: char| next.is_ascii_alphanumeric() || matches!(next, '.' | '-' | '+');
    !version.is_empty() && version.len() <= MAX_VERSION_CHARS && version.chars().all(fits)
}

/// Returns a relative path without its `./`, if the path stays within its folder.
fn inner_path(path: &str) -> Option<PathBuf> {
    let is_plain = !path.chars().any(char::is_control) && path.starts_with("./");
    let parts: Option<PathBuf> = Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| if let Component::Normal(name) = part { Some(name) } else { None })
        .collect();
    parts.filter(|parts| is_plain && parts.file_name().is_some())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Writes a package, and returns its folder.
    fn write(node_modules: &Path, folder: &str, manifest: &str) -> PathBuf {
        let folder = node_modules.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("package.json"), manifest).unwrap();
        folder
    }

    fn manifest(name: &str, version: &str) -> String {
        format!(r#"{{ "name": "{name}", "version": "{version}", "hyperlight-mcp": {{ "provider": "./lib/provider.js" }} }}"#)
    }

    #[test]
    fn a_package_is_found_as_node_finds_it() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("node_modules"), root.path().join("project/node_modules"));
        write(&outer, "acme-mcp", &manifest("acme-mcp", "1.0.0"));
        write(&outer, "@acme/tools", &manifest("@acme/tools", "1.0.0"));
        let start = [root.path().join("project/src")];
        fs::create_dir_all(&start[0]).unwrap();
        assert_eq!(find("acme-mcp", &start).unwrap().version, "1.0.0");
        write(&inner, "acme-mcp", &manifest("acme-mcp", "2.0.0"));
        let found = find("acme-mcp", &start).unwrap();
        assert_eq!((found.version.as_str(), found.file.to_str()), ("2.0.0", Some("lib/provider.js")));
        assert_eq!(find("acme-mcp", &[root.path().to_owned()]).unwrap().version, "1.0.0");
        assert_eq!(find("@acme/tools", &start).unwrap().name, "@acme/tools");
        assert!(find("other", &start).unwrap_err().contains("not installed"));
        let all: Vec<_> = discover(&start).into_iter().map(|(name, found)| (name, found.unwrap().version)).collect();
        assert_eq!(all, [("@acme/tools".to_owned(), "1.0.0".to_owned()), ("acme-mcp".to_owned(), "2.0.0".to_owned())]);
    }

    #[test]
    fn a_link_to_a_package_is_followed_and_its_real_folder_is_told() {
        let root = tempfile::tempdir().unwrap();
        let real = write(root.path(), "store/acme-mcp@1", &manifest("acme-mcp", "1.0.0"));
        let modules = root.path().join("node_modules");
        fs::create_dir_all(&modules).unwrap();
        symlink(&real, modules.join("acme-mcp")).unwrap();
        let found = find("acme-mcp", &[root.path().to_owned()]).unwrap();
        assert_eq!(found.folder, fs::canonicalize(real).unwrap());
    }

    #[test]
    fn a_package_json_that_is_a_link_is_followed_only_within_the_package() {
        let root = tempfile::tempdir().unwrap();
        let start = [root.path().to_owned()];
        let inside = write(&root.path().join("node_modules"), "acme-mcp", &manifest("acme-mcp", "1.0.0"));
        let outside = root.path().join("other.json");
        let path = inside.join("package.json");
        fs::rename(&path, inside.join("real.json")).unwrap();
        symlink("real.json", &path).unwrap();
        assert_eq!(find("acme-mcp", &start).unwrap().version, "1.0.0");
        fs::rename(inside.join("real.json"), &outside).unwrap();
        symlink(&outside, inside.join("real.json")).unwrap();
        assert!(find("acme-mcp", &start).unwrap_err().contains("outside of the package"));
        assert!(discover(&start)["acme-mcp"].is_err());
    }

    #[test]
    fn a_package_that_lies_or_is_none_is_told() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("node_modules");
        let start = [root.path().to_owned()];
        let problem = |text: &str| {
            write(&modules, "acme-mcp", text);
            find("acme-mcp", &start).unwrap_err()
        };
        assert!(problem(&manifest("github-official", "1.0.0")).contains("another name"));
        assert!(problem(&manifest("acme-mcp", "")).contains("no version"));
        assert!(problem(&manifest("acme-mcp", "1.0\\u202e")).contains("no version"));
        assert!(problem(r#"{ "name": "acme-mcp", "version": "1.0.0" }"#).contains("provides no servers"));
        assert!(problem("{ \"hyperlight-mcp\": ").contains("is not JSON"));
        for file in ["../evil.js", "/evil.js", "evil.js", "./a/../../evil.js", "./", "."] {
            let text = format!(r#"{{ "name": "acme-mcp", "version": "1.0.0", "hyperlight-mcp": {{ "provider": "{file}" }} }}"#);
            assert!(problem(&text).contains("a path within the package"), "{file}");
        }
        assert!(discover(&start)["acme-mcp"].is_err());
        write(&modules, "plain", "not JSON at all");
        write(&modules, ".cache", &manifest(".cache", "1.0.0"));
        assert_eq!(discover(&start).len(), 1);
    }
}
