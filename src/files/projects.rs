//! Follows the links of a path, and tells whether a link in a project decides where the path ends.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf, absolute};

/// Maximum number of links that lead to one file, as in the kernel.
const MAX_LINKS: usize = 40;
/// Maximum number of parts of a path that are followed, with the parts of the links through which it leads. Each link can have very many.
pub(crate) const MAX_STEPS: usize = 1_024;
/// Entries of the root folder of a repository.
const OF_REPOSITORY: [&str; 4] = [".git", ".hg", ".svn", ".jj"];
/// Files in the folder of a project that may be in no repository.
const OF_PACKAGE: [&str; 4] = ["package.json", "pyproject.toml", "Cargo.toml", "go.mod"];
/// Folders that only the administrator of the machine changes, and that can have such entries too.
const OF_MACHINE: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix/store", "/gnu/store", "/run"];

/// A path that was followed.
pub(crate) struct Followed {
    /// The files that can redirect the path: links, and folders that the path leaves by `..`.
    pub(crate) passed: Vec<PathBuf>,
    /// Those of `passed` that are links.
    pub(crate) links: Vec<PathBuf>,
    /// The place at which the path ends. It need not exist.
    pub(crate) place: PathBuf,
    /// The number of parts that were followed. More than [`MAX_STEPS`] if the last parts were not.
    pub(crate) steps: usize,
}

/// Follows an absolute path. `link` returns the target of the link at a path.
pub(crate) fn follow(path: &Path, link: impl Fn(&Path) -> Option<PathBuf>) -> Followed {
    let mut followed = Followed { passed: Vec::new(), links: Vec::new(), place: PathBuf::from("/"), steps: 0 };
    let mut rest: Vec<PathBuf> = parts(path);
    while let Some(part) = rest.pop() {
        followed.steps += 1;
        if followed.steps > MAX_STEPS {
            followed.place.push(part);
            followed.place.extend(rest.into_iter().rev());
            break;
        }
        if part == Path::new("..") {
            followed.passed.push(followed.place.clone());
            followed.place.pop();
            continue;
        }
        let next = followed.place.join(&part);
        match link(&next).filter(|_| followed.links.len() < MAX_LINKS) {
            Some(target) => {
                if target.is_absolute() {
                    followed.place = PathBuf::from("/");
                }
                rest.extend(parts(&target));
                followed.passed.push(next.clone());
                followed.links.push(next);
            }
            None => followed.place = next,
        }
    }
    followed
}

/// Returns the parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// The folders in which others than the user decide where a link leads.
#[derive(Debug, Clone)]
pub(crate) struct Projects {
    /// The workspace as it was named, and without links.
    workspace: (PathBuf, PathBuf),
    user_home: PathBuf,
    /// The folders that boxes may write, without links.
    written: Vec<PathBuf>,
}

impl Projects {
    /// Takes the workspace, the home of the user, and the paths that boxes may write.
    pub(crate) fn new(workspace: &Path, user_home: &Path, written: impl IntoIterator<Item = PathBuf>) -> Self {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let named = absolute(workspace).unwrap_or_else(|_| workspace.to_owned());
        let mut written: Vec<PathBuf> = written.into_iter().map(|path| real(&path)).collect();
        written.sort();
        written.dedup();
        Self { workspace: (named, real(workspace)), user_home: real(user_home), written }
    }

    /// Returns the place to which a path leads, if a link in a project leads there out of the project. The place need not exist.
    ///
    /// **The rule for links in a project.** A project is a folder in which others than the user write: the workspace, a folder that a box
    /// may write, and the folder of a repository or a package. Whoever writes there can make any file of the user the target of a link. So a
    /// path that leads out of its project by a link protects nothing outside: no box loses the right to read or write the target, and none
    /// is refused because of it. The path is used in one of two ways:
    /// - An `envFile` is refused with an error that names the target. Each approval is one of a path, and no approval shows the values.
    /// - The target of a program is bound by the approval of its entry: it is protected from then on. If the link leads elsewhere later, the
    ///   new target is not protected, and the server does not start before it is approved again.
    /// - A config in the project, or one of another program (`base`), is read, and each entry in it needs an approval.
    /// - A folder that is given to a box (`read`, `write`, an argument, a root) is refused with an error that names the target.
    ///
    /// The links through which the workspace itself is reached are those of the user, as are links outside of projects.
    pub(crate) fn led_out(&self, path: &Path) -> Option<PathBuf> {
        let path = absolute(path).ok()?;
        let (named, real) = &self.workspace;
        let path = path.strip_prefix(named).map_or_else(|_| path.clone(), |rest| real.join(rest));
        let Followed { links, place, steps, .. } = follow(&path, |at| fs::read_link(at).ok());
        let leaves = |link: &PathBuf| self.project_of(link).is_some_and(|project| steps > MAX_STEPS || !place.starts_with(project));
        links.iter().any(leaves).then_some(place)
    }

    /// Returns whether a file in a project has other names (hard links). Whoever writes the project may have given it the name of a file that
    /// lies elsewhere.
    pub(crate) fn has_other_names(&self, path: &Path) -> bool {
        let Ok(real) = path.canonicalize() else { return false };
        let is_named_twice = fs::metadata(&real).is_ok_and(|data| data.is_file() && data.nlink() > 1);
        is_named_twice && self.project_of(&real).is_some()
    }

    /// Returns whether a box may write a path.
    pub(crate) fn is_written(&self, path: &Path) -> bool {
        self.written.iter().any(|written| path.starts_with(written))
    }

    /// Returns the innermost project that contains a link or another file. The path must not lead through links.
    fn project_of(&self, file: &Path) -> Option<PathBuf> {
        let is_within = |folder: &&PathBuf| file.starts_with(folder) && file != folder.as_path();
        let known = self.written.iter().chain([&self.workspace.1]).filter(is_within);
        if let Some(innermost) = known.max_by_key(|folder| folder.as_os_str().len()) {
            return Some(innermost.clone());
        }
        if OF_MACHINE.iter().any(|folder| file.starts_with(folder)) {
            return None;
        }
        // The home itself, and the folders above, are not those of a project, even if the user keeps settings in a repository there.
        let folders = || file.ancestors().skip(1).filter(|folder| !self.user_home.starts_with(folder) && folder.parent().is_some());
        let has = |folder: &&Path, names: &[&str]| names.iter().any(|name| fs::symlink_metadata(folder.join(name)).is_ok());
        let repository = folders().find(|folder| has(folder, &OF_REPOSITORY));
        repository.or_else(|| folders().filter(|folder| has(folder, &OF_PACKAGE)).last()).map(Path::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes files, folders (`a/`) and links (`a -> b`).
    fn made(names: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in names {
            let (name, target) = name.split_once(" -> ").map_or((*name, None), |(name, target)| (name, Some(target)));
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match target {
                Some(target) => symlink(target.replace('^', root.to_str().unwrap()), path).unwrap(),
                None if name.ends_with('/') => fs::create_dir_all(path).unwrap(),
                None => fs::write(path, "").unwrap(),
            }
        }
        (folder, root)
    }

    /// Files, folders (`/`) and links (`->`; `^` is the root) of the test.
    const NAMES: [&str; 26] = [
        "data/state",
        "ws/own",
        "ws/file -> ../data/state",
        "ws/absolute -> ^/data/state",
        "ws/folder -> ../data",
        "ws/again -> file",
        "ws/within -> own",
        "ws/round -> ../back",
        "back -> ws/own",
        "ws/later -> ../data/none",
        "alias -> ws",
        "outer -> data/state",
        "repository/.git/",
        "repository/sub/package.json",
        "repository/sub/near -> ../x",
        "repository/sub/far -> ../../data/state",
        "package/package.json",
        "package/sub/far -> ../../data/state",
        "plain/far -> ../data/state",
        "written/here/far -> ../../data/state",
        "written/here/near -> near2",
        "ws/out/far -> ../own",
        "home/.git/",
        "home/linked -> ../data",
        "home/p/.git/",
        "home/p/far -> ../other",
    ];
    /// Paths that a link leads out of their project, and where to.
    const LED_OUT: [(&str, &str); 13] = [
        ("ws/file", "data/state"),
        ("alias/file", "data/state"),
        ("ws/absolute", "data/state"),
        ("ws/folder/state", "data/state"),
        ("ws/folder/none", "data/none"),
        ("ws/again", "data/state"),
        ("ws/later", "data/none"),
        ("ws/folder/../own", "own"),
        ("repository/sub/far", "data/state"),
        ("package/sub/far", "data/state"),
        ("written/here/far", "data/state"),
        // A box may write a part of the workspace.
        ("ws/out/far", "ws/own"),
        ("home/p/far", "home/other"),
    ];
    /// Paths that stay in their project, or are in none.
    const KEPT: [&str; 11] = [
        "ws/own",
        "ws/within",
        "ws/round",
        "ws/none",
        "ws/../data/state",
        "alias/own",
        "outer",
        "repository/sub/near",
        "plain/far",
        "written/here/near",
        "home/linked/state",
    ];

    #[test]
    fn only_a_link_in_a_project_leads_out_of_it() {
        let (_folder, root) = made(&NAMES);
        let written = ["written/here", "ws/out"].map(|name| root.join(name));
        for workspace in ["ws", "alias"] {
            let projects = Projects::new(&root.join(workspace), &root.join("home"), written.clone());
            let place = |name: &str| {
                let place = projects.led_out(&root.join(name))?;
                Some(place.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
            };
            for (name, expected) in LED_OUT {
                assert_eq!(place(name).as_deref(), Some(expected), "{workspace}: {name}");
            }
            assert!(KEPT.into_iter().all(|name| place(name).is_none_or(|place| panic!("{workspace}: {name}: {place}"))));
        }
    }

    #[test]
    fn a_file_of_a_project_can_be_another_file_of_the_user() {
        let (_folder, root) = made(&["data/state", "ws/own", "plain/"]);
        let projects = Projects::new(&root.join("ws"), &root.join("home"), []);
        for place in ["ws/file", "plain/file"] {
            fs::hard_link(root.join("data/state"), root.join(place)).unwrap();
        }
        let found = ["ws/file", "ws/own", "ws/none", "plain/file"].map(|name| projects.has_other_names(&root.join(name)));
        assert_eq!(found, [true, false, false, false]);
    }

    #[test]
    fn a_path_with_very_many_parts_is_followed_to_a_limit() {
        let target = "x/../".repeat(MAX_STEPS);
        let (_folder, root) = made(&["ws/x/", &format!("ws/long -> {}own", &target[..3_000])]);
        let projects = Projects::new(&root.join("ws"), &root.join("home"), []);
        assert!(projects.led_out(&root.join("ws/long")).is_some());
        assert_eq!(follow(&root.join("ws/long"), |at| fs::read_link(at).ok()).steps, MAX_STEPS + 1);
    }
}
