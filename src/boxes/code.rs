//! Finds out from where a server takes the code that it runs. Whoever writes there acts with the rights of this server.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::contents::{BoxInput, Choice, MARKS, Places, given_paths, is_relative_path, own_folders, places};
use super::order::Access;
use super::own_files::{access_of, followed};
use super::paths::{Kind, Lookup};
use crate::config::is_program_file;

/// Extensions that a runtime appends to a name to find the program.
const APPENDED: [&str; 5] = ["js", "cjs", "node", "ts", "py"];
/// Maximum number of words of a command that are looked up.
const MAX_WORDS: usize = 1_024;

/// The files and folders from which a server takes the code that it runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Code {
    /// Programs, runtimes and packages. Nothing but code is in them. A file that does not exist yet is among them if the server would run it.
    pub programs: BTreeSet<PathBuf>,
    /// Folders that may have code beside other things: those in the arguments, the working folder, the folders of `PATH`, and the folder of a
    /// script without a package.
    pub folders: BTreeSet<PathBuf>,
}

/// Returns from where a server takes its code. `command` names its program, and `variables` are the values of variables that load code.
pub fn code(request: &BoxInput<'_>, command: &str, variables: &[String], lookup: &impl Lookup) -> Code {
    let own_folders = own_folders(request, lookup);
    let choice = Choice::new(request, lookup, &own_folders);
    let Places { runtime, packages, files, .. } = places(request, lookup);
    let mut code = Code::default();
    // The folder `bin` of a package has programs that load their code from the folders beside it.
    let roots = runtime.iter().filter_map(|folder| package_above(folder, lookup));
    code.programs.extend(roots.chain(packages).chain(runtime.iter().cloned()));
    for file in &files {
        code.add_program(file, &choice, lookup);
    }
    // A link that leads to the program can be replaced too, and a program that is missing can be made.
    code.programs.insert(request.program.to_owned());
    code.folders.extend(request.working_directory.map(Path::to_owned));
    let in_search_path = std::env::split_paths(request.search_path);
    code.folders.extend(in_search_path.filter_map(|folder| placed(&folder, request.working_directory)));
    // An earlier folder can have the program, although nobody can tell it at this moment.
    code.programs.extend(candidates(request, command).into_iter().filter(|candidate| lookup.is_unknown(candidate)));
    let texts = request.arguments.iter().chain(variables);
    for word in texts.flat_map(|text| words(text)).take(MAX_WORDS) {
        let is_path = word.starts_with('/') || is_relative_path(&word);
        if let Some(path) = is_path.then(|| placed(Path::new(&word), request.working_directory)).flatten() {
            code.add_word(path, &choice, lookup);
        }
    }
    // The whole machine is no place of code.
    code.folders.remove(Path::new("/"));
    code
}

/// Returns whether a program that is found by its name stays the same whatever the box of its server does. That is not so for a program of the
/// workspace, and if the box may write a folder in which the name is looked up, or a link that leads to the program.
pub fn is_fixed_program(request: &BoxInput<'_>, command: &str, lookup: &impl Lookup) -> bool {
    let in_workspace = |path: &Path| request.workspace.is_some_and(|workspace| path.starts_with(workspace));
    if command.contains('/') || in_workspace(request.program) {
        return false;
    }
    let given = given_paths(request, lookup);
    let is_written = |path: &Path| access_of(&given, path) == Some(Access::Write);
    candidates(request, command).iter().all(|candidate| {
        let (links, place) = followed(candidate, lookup);
        !is_written(&place) && !links.iter().any(|link| is_written(link))
    })
}

/// Returns the paths at which a program is looked up by its name, up to the one at which it is found.
fn candidates(request: &BoxInput<'_>, command: &str) -> Vec<PathBuf> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(request.search_path).filter(|_| !command.contains('/')) {
        candidates.push(request.working_directory.unwrap_or(Path::new("/")).join(folder).join(command));
        if candidates.last().is_some_and(|candidate| candidate == request.program) {
            break;
        }
    }
    candidates
}

impl Code {
    /// Adds a program. Its folder is a place of code too, because a runtime finds modules beside a script, whatever package it belongs to.
    fn add_program<L: Lookup>(&mut self, file: &Path, choice: &Choice<'_, L>, lookup: &L) {
        self.programs.insert(file.to_owned());
        let real = lookup.real(file).unwrap_or_else(|| file.to_owned());
        if !is_program_file(&real) {
            return;
        }
        let package = choice.package_of(&real);
        let folder = if package == real { real.parent().map(Path::to_owned) } else { Some(package) };
        self.folders.extend(folder);
    }

    /// Adds the file or folder that a word of the command names.
    fn add_word<L: Lookup>(&mut self, path: PathBuf, choice: &Choice<'_, L>, lookup: &L) {
        match lookup.kind(&path) {
            Some(Kind::Folder) => drop(self.folders.insert(path)),
            Some(Kind::File) if is_program_file(&path) || lookup.is_program(&path) => self.add_program(&path, choice, lookup),
            Some(Kind::File | Kind::Other) => {}
            None if is_program_file(&path) || lookup.is_unknown(&path) => drop(self.programs.insert(path)),
            None => {
                let with = |ending: &str| {
                    let mut name = path.clone().into_os_string();
                    name.push(".");
                    name.push(ending);
                    PathBuf::from(name)
                };
                let found = APPENDED.iter().map(|ending| with(ending)).find(|file| lookup.kind(file) == Some(Kind::File));
                if let Some(file) = found {
                    self.add_program(&file, choice, lookup);
                }
            }
        }
    }
}

/// Returns the package that has a folder `bin`.
fn package_above(folder: &Path, lookup: &impl Lookup) -> Option<PathBuf> {
    let package = folder.parent().filter(|_| folder.file_name() == Some(OsStr::new("bin")))?;
    MARKS.iter().any(|mark| lookup.kind(&package.join(mark)).is_some()).then(|| package.to_owned())
}

/// Returns the place of a path that a command names. `None` for a relative path of a command without a working folder.
fn placed(path: &Path, working_directory: Option<&Path>) -> Option<PathBuf> {
    if path.is_absolute() {
        return Some(path.components().collect());
    }
    // `./a` is the place `a`.
    Some(working_directory?.join(path).components().collect())
}

/// Returns a text, and each part of it that may be a path: the value of `--flag=path` or `-Ipath`, or a file in the command line of `sh -c`.
fn words(text: &str) -> Vec<String> {
    let separates = |character: char| character.is_whitespace() || "=:,;|&()<>'\"`{}".contains(character);
    let behind_letter = |word: &str| {
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
        let value = letters.get(1..)?;
        (value.starts_with(['/', '.'])).then(|| value.to_owned())
    };
    let mut found: Vec<String> =
        [text].into_iter().chain(text.split(separates)).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    found.extend(found.iter().filter_map(|word| behind_letter(word)).collect::<Vec<_>>());
    found.sort_unstable();
    found.dedup();
    found
}
