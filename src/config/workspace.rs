//! Decides how the workspace folder affects a command. A command that does not depend on the folder is started independently of it.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use super::substitute::Surroundings;

/// The folder in which a command without `cwd` is started if it does not depend on the workspace folder. Only the system's administrator
/// can write to this folder, so no file of another user can configure the program.
pub const NEUTRAL_FOLDER: &str = "/";
const PATH: &str = "PATH";
/// The search path that execvp(3) uses without a `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The dependence of an entry's command on the workspace folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// The command depends on the workspace folder. It is started in this folder, and an approval is valid only for this folder.
    Workspace,
    /// The command is the same for all workspace folders. It is started in [`NEUTRAL_FOLDER`], and the parts in the workspace are removed
    /// from the inherited `PATH`.
    Anywhere,
}

impl Locality {
    /// Returns the surroundings for a command with this locality.
    pub(super) fn surroundings(self, surroundings: &Surroundings) -> Cow<'_, Surroundings> {
        let path = surroundings.environment.get(PATH).filter(|_| self == Self::Anywhere);
        let kept = path.map(|path| without_workspace(path, surroundings)).filter(|kept| Some(kept) != path);
        kept.map_or(Cow::Borrowed(surroundings), |kept| {
            let mut surroundings = surroundings.clone();
            surroundings.environment.insert(PATH.to_owned(), kept);
            Cow::Owned(surroundings)
        })
    }

    /// Returns the folder in which a command without `cwd` is started.
    pub(super) fn start(self, surroundings: &Surroundings) -> PathBuf {
        match self {
            Self::Workspace => surroundings.workspace_folder.clone(),
            Self::Anywhere => PathBuf::from(NEUTRAL_FOLDER),
        }
    }
}

fn without_workspace(path: &str, surroundings: &Surroundings) -> String {
    let kept: Vec<&str> = path.split(':').filter(|part| !is_of_workspace(part, surroundings)).collect();
    if kept.is_empty() { DEFAULT_PATH.to_owned() } else { kept.join(":") }
}

/// Returns whether a part of a search path depends on the workspace folder: an empty or relative part, a part within the folder, or a
/// `node_modules/.bin` of the folder or its parents, which `npm run` and `npx` add.
pub(crate) fn is_of_workspace(part: &str, surroundings: &Surroundings) -> bool {
    let part = Path::new(part);
    if !part.is_absolute() {
        return true;
    }
    let workspace = &surroundings.workspace_folder;
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (real_part, real_workspace) = (real(part), real(workspace));
    let pairs = [(part, workspace.as_path()), (real_part.as_path(), real_workspace.as_path())];
    pairs.into_iter().any(|(part, workspace)| is_packages(part, workspace) || is_within(part, workspace, surroundings))
}

/// Returns whether a text contains the path of the workspace folder. Returns false if the folder contains the user's home.
pub(crate) fn mentions_workspace(text: &str, surroundings: &Surroundings) -> bool {
    let workspace = &surroundings.workspace_folder;
    let real = fs::canonicalize(workspace).unwrap_or_else(|_| workspace.clone());
    let is_in = |folder: &Path| folder.to_str().is_none_or(|folder| text.contains(folder));
    !holds_home(workspace, surroundings) && (is_in(workspace) || is_in(&real))
}

fn is_packages(part: &Path, workspace: &Path) -> bool {
    let owner = part.ancestors().nth(2).filter(|_| part.ends_with("node_modules/.bin"));
    owner.is_some_and(|owner| workspace.starts_with(owner))
}

fn is_within(part: &Path, workspace: &Path, surroundings: &Surroundings) -> bool {
    part.starts_with(workspace) && !holds_home(workspace, surroundings)
}

/// Returns whether the workspace folder contains the user's home. If it does, programs in it belong to the user, and are the same for all
/// workspaces.
fn holds_home(workspace: &Path, surroundings: &Surroundings) -> bool {
    surroundings.user_home.starts_with(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(path: &str, workspace: &str) -> String {
        let environment = [(PATH.to_owned(), path.to_owned())].into();
        let surroundings = Surroundings { environment, workspace_folder: workspace.into(), user_home: "/home/ada".into() };
        Locality::Anywhere.surroundings(&surroundings).environment[PATH].clone()
    }

    #[test]
    fn nothing_of_the_workspace_is_left_in_the_inherited_path() {
        for (path, expected) in [
            (".:/bin", "/bin"),
            ("/bin:", "/bin"),
            ("/bin::/sbin", "/bin:/sbin"),
            ("sub:../x:/bin", "/bin"),
            ("/code/a/node_modules/.bin:/code/node_modules/.bin:/node_modules/.bin:/opt/node_modules/.bin", "/opt/node_modules/.bin"),
            ("/code/a/.venv/bin:/code/ab/bin:/code/a:/bin", "/code/ab/bin:/bin"),
            (".", "/bin:/usr/bin"),
        ] {
            assert_eq!(kept(path, "/code/a"), expected, "{path}");
        }
    }

    #[test]
    fn a_persons_own_programs_stay_where_they_work_in_their_home() {
        assert_eq!(kept("/home/ada/.local/bin:/home/ada/node_modules/.bin:/bin", "/home/ada"), "/home/ada/.local/bin:/bin");
        assert_eq!(kept("/bin:/home/ada/bin", "/"), "/bin:/home/ada/bin");
    }

    #[test]
    fn an_entry_of_the_workspace_gets_its_path_as_it_is() {
        let environment = [(PATH.to_owned(), ".:/bin".to_owned())].into();
        let surroundings = Surroundings { environment, workspace_folder: "/work".into(), user_home: "/home/ada".into() };
        assert_eq!(Locality::Workspace.surroundings(&surroundings).environment[PATH], ".:/bin");
    }
}
