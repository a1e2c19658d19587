//! The files and folders from which this gateway is loaded, and which no box may write.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::boxes::{Disk, Kept, Lookup as _, Owner};
use crate::embedding::package_folders;

/// The name of this package in a `node_modules`.
const NAME: &str = "hyperlight-mcp";
const NODE_MODULES: &str = "node_modules";
/// Files of this package that Node loads, or that decide which files Node loads.
const FILES: [&str; 5] = ["package.json", "index.js", "index.mjs", "adapters.js", "adapters.mjs"];
/// Folders of the package, beside those files.
const FOLDERS: [&str; 3] = ["bin", "npm", "node_modules"];
/// Files and folders of Yarn that decide what Node loads in a project with Plug'n'Play. A project with the first of these files is such a
/// project.
const PLUG_AND_PLAY: [&str; 3] = [".pnp.cjs", ".pnp.loader.mjs", ".yarn"];

/// Config files of MCP hosts in a project. `install` writes an entry into such a file, and the host starts the command of the entry.
const HOST_CONFIGS: [&str; 4] = [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".codex/config.toml"];

/// The paths from which this process was started. They are used to find the files and folders from which the gateway is loaded.
pub(super) struct OwnPrograms {
    pub(super) watchdog: PathBuf,
    /// The other programs of this process: those that it runs from, and those that it starts.
    pub(super) others: Vec<PathBuf>,
    /// The files and folders from which the program that uses the gateway may be started: a `node_modules` in a folder above one of them
    /// can have a link to this package.
    pub(super) starts: Vec<PathBuf>,
    /// The folder of the package for the ranking by meaning, if an option names it.
    pub(super) search_model: Option<PathBuf>,
}

impl OwnPrograms {
    /// Finds all paths that no box may write because this gateway is loaded from them: its programs, its package, and the outermost
    /// `node_modules` that contains this package. In that `node_modules`, Node finds the packages that the command line loads, and the
    /// packages of the program that uses the gateway. Also finds the config files in which hosts have their entries. Reads the disk at each
    /// call, because these files can be added to a project at any time.
    pub(super) fn find(&self) -> Vec<Kept> {
        // Node has followed all links before it loads a program.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let watchdog = real(&self.watchdog);
        let folder = watchdog.parent().unwrap_or(Path::new("/"));
        let mut paths: BTreeSet<PathBuf> = self.others.iter().map(|path| real(path)).chain([watchdog.clone()]).collect();
        let modules = package_folders(folder);
        let npm = folder.parent().filter(|npm| npm.file_name() == Some(OsStr::new("npm")));
        let package = npm.and_then(Path::parent);
        let own = package.into_iter().flat_map(|package| FILES.iter().chain(&FOLDERS).map(|name| package.join(name)));
        paths.extend(own.filter(|path| may_exist(path)));
        // The outermost `node_modules` contains the others.
        paths.extend(modules.last().cloned());
        paths.extend(modules.iter().flat_map(|modules| package_in(modules)));
        paths.extend(self.search_model.clone());
        let mut hosts = BTreeSet::new();
        let starts: BTreeSet<&Path> = self.starts.iter().flat_map(|start| start.ancestors()).collect();
        for folder in starts {
            let modules = folder.join(NODE_MODULES);
            let found = package_in(&modules);
            if !found.is_empty() {
                paths.insert(modules);
                paths.extend(found);
            }
            hosts.extend(HOST_CONFIGS.map(|name| folder.join(name)));
            if may_exist(&folder.join(PLUG_AND_PLAY[0])) {
                paths.extend(PLUG_AND_PLAY.map(|name| folder.join(name)).into_iter().filter(|path| may_exist(path)));
            }
        }
        // If a package is not in the nearest `node_modules`, Node searches the `node_modules` of the folders above.
        let outermost = modules.last().and_then(|modules| modules.parent()).unwrap_or(folder);
        let above = outermost.ancestors().skip(1).map(|folder| folder.join(NODE_MODULES));
        let owned = |owner: Owner| move |path: PathBuf| Kept { path, owner: owner.clone() };
        let above = above.map(owned(Owner::GatewayIfMade));
        paths.into_iter().map(owned(Owner::Gateway)).chain(hosts.into_iter().map(owned(Owner::Host))).chain(above).collect()
    }
}

/// Returns the entry of this package in a `node_modules`, which can be a link, and its files. The files are listed one by one, because
/// package managers may hard-link them under other paths for other projects. Returns an empty list if there is no such entry.
fn package_in(modules: &Path) -> Vec<PathBuf> {
    let entry = modules.join(NAME);
    let Ok(package) = entry.canonicalize() else {
        // A link whose target does not exist now can get a target later.
        let is_there = entry.symlink_metadata().is_ok() || Disk.is_unknown(&entry);
        return is_there.then_some(entry).into_iter().collect();
    };
    let files = FILES.iter().map(|name| package.join(name)).filter(|file| may_exist(file));
    let files: Vec<PathBuf> = files.collect();
    files.into_iter().chain([entry]).collect()
}

/// Returns whether something exists at a path, or whether this cannot be known now. A server can temporarily take away the right to search
/// a folder.
fn may_exist(path: &Path) -> bool {
    path.exists() || Disk.is_unknown(path)
}

/// Returns the files and folders from which the program that uses the gateway may be started: the working folder, the workspace, and each file
/// in the command line of this process.
pub(super) fn starts(workspace: &Path) -> Vec<PathBuf> {
    let working_folder = std::env::current_dir().unwrap_or_default();
    let arguments = std::env::args_os().skip(1).map(|argument| working_folder.join(argument)).filter(|path| path.is_file());
    let named: Vec<PathBuf> = arguments.collect();
    let real = named.iter().filter_map(|path| path.canonicalize().ok()).collect::<Vec<_>>();
    named.into_iter().chain(real).chain([working_folder.clone(), working_folder.join(workspace)]).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn paths(watchdog: &str, starts: &[PathBuf]) -> Vec<PathBuf> {
        let others = vec![Path::new(watchdog).with_file_name("box")];
        let own = OwnPrograms { watchdog: watchdog.into(), others, starts: starts.to_vec(), search_model: None };
        own.find().into_iter().map(|kept| kept.path).collect()
    }

    #[test]
    fn the_folders_from_which_the_gateway_is_loaded_are_its_own() {
        let in_project = paths("/p/node_modules/a/node_modules/hyperlight-mcp-linux-x64-gnu/watchdog", &[]);
        assert!(in_project.contains(&"/p/node_modules".into()), "{in_project:?}");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let names = ["npm/linux-x64-gnu/watchdog", "npm/linux-x64-gnu/box", "index.js", "bin/x", "node_modules/x"];
        for name in names {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        let in_repository = paths(root.join(names[0]).to_str().unwrap(), &[]);
        for name in ["npm/linux-x64-gnu/watchdog", "npm/linux-x64-gnu/box", "index.js", "bin", "npm", "node_modules"] {
            assert!(in_repository.contains(&root.join(name)), "{name}: {in_repository:?}");
        }
        assert!(!in_repository.contains(&root));
    }

    /// A file that is added to a project after the gateway has opened is found at the next start of a box.
    #[test]
    fn what_is_added_to_a_project_is_found_later() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let own = OwnPrograms {
            watchdog: "/r/watchdog".into(),
            others: vec![],
            starts: vec![root.clone()],
            search_model: Some(root.join("model")),
        };
        let found = |name: &str, owner: Owner| own.find().contains(&Kept { path: root.join(name), owner });
        assert!(!found("node_modules", Owner::Gateway) && !found(".pnp.cjs", Owner::Gateway));
        assert!(found(".mcp.json", Owner::Host) && found("model", Owner::Gateway));
        fs::create_dir_all(root.join("node_modules/hyperlight-mcp")).unwrap();
        fs::write(root.join(".pnp.cjs"), "").unwrap();
        assert!(found("node_modules", Owner::Gateway) && found(".pnp.cjs", Owner::Gateway));
    }

    #[test]
    fn folders_above_the_installation_are_searched_by_node() {
        let above = OwnPrograms {
            watchdog: "/p/q/node_modules/hyperlight-mcp-linux-x64-gnu/watchdog".into(),
            others: vec![],
            starts: vec![],
            search_model: None,
        };
        let found: Vec<PathBuf> =
            above.find().into_iter().filter(|kept| kept.owner == Owner::GatewayIfMade).map(|kept| kept.path).collect();
        assert_eq!(found, ["/p/node_modules", "/node_modules"].map(PathBuf::from));
    }

    #[test]
    fn a_link_to_the_package_above_the_program_that_uses_it_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let package = root.join("store/hyperlight-mcp");
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("index.js"), "").unwrap();
        fs::create_dir_all(root.join("p/node_modules")).unwrap();
        fs::create_dir_all(root.join("p/src")).unwrap();
        fs::create_dir_all(root.join("yarn/.yarn")).unwrap();
        fs::write(root.join("yarn/.pnp.cjs"), "").unwrap();
        fs::write(root.join("p/.mcp.json"), "{}").unwrap();
        symlink(&package, root.join("p/node_modules/hyperlight-mcp")).unwrap();
        let own = paths("/r/watchdog", &[root.join("p/src/agent.mjs"), root.join("yarn")]);
        let expected = [
            "p/node_modules",
            "p/node_modules/hyperlight-mcp",
            "store/hyperlight-mcp/index.js",
            "yarn/.pnp.cjs",
            "yarn/.yarn",
            "p/.mcp.json",
        ];
        for name in expected {
            assert!(own.contains(&root.join(name)), "{name}: {own:?}");
        }
        assert!(!own.contains(&root.join("yarn/.pnp.loader.mjs")));
    }
}
