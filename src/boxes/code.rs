//! Finds the files and folders from which a server takes its code, and the files that decide which code it takes. A program that can write
//! these files gets the rights of the server.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::budget::{Budget, is_deep, is_usable};
use super::contents::{BoxInput, Choice, MARKS, MAX_INTERPRETERS, Places, given_paths};
use super::order::Access;
use super::own_files::{access_of, followed, steps_of};
use super::paths::{Kind, Lookup, is_system};
use super::words::Folders;
use crate::config::is_program_file;

/// Extensions that a runtime appends to a name to find the program.
const APPENDED: [&str; 14] = ["js", "cjs", "mjs", "node", "ts", "cts", "mts", "jsx", "tsx", "py", "rb", "so", "pl", "lua"];
/// Maximum number of folders of `PATH` that are looked at. The author of an entry decides how many folders its `PATH` has.
const MAX_SEARCHED: usize = 1_024;
/// Extensions of programs that load nothing from the folders above them.
const ALONE: [&str; 7] = ["bash", "bat", "dll", "exe", "jar", "sh", "zsh"];
/// Folders next to `bin` from which programs load code.
const BESIDE_BIN: [&str; 4] = ["lib", "lib64", "libexec", "share"];
const NODE_MODULES: &str = "node_modules";

/// The files and folders that decide which code a server runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Code {
    /// Programs, runtimes and packages, which contain only code. A missing file is included if the server would run it.
    pub programs: BTreeSet<PathBuf>,
    /// Folders that may contain code among other things: those in the arguments, variables and roots, those that the server's box gets, the
    /// working folder, the folders of `PATH`, and the folder of a script without a package.
    pub folders: BTreeSet<PathBuf>,
    /// Folders above a program or the working folder. A runtime looks there for packages and settings, such as `node_modules` and `package.json`.
    pub searched: BTreeSet<PathBuf>,
    /// All other files that the entry names, whether they exist or not.
    pub files: BTreeSet<PathBuf>,
    /// True if the entry names more paths than are looked at. Then the entry may name any file.
    pub is_too_long: bool,
    /// The amount of work that was done to find this, as a number of lookups.
    pub work: usize,
}

impl Code {
    /// Returns the code that another version of the same server does not have. A program or package that is only a folder in the other
    /// version is returned as a folder, because it may contain more than code.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let rest = |own: &BTreeSet<PathBuf>, other: &BTreeSet<PathBuf>| -> BTreeSet<PathBuf> { own.difference(other).cloned().collect() };
        let Self { programs, folders, searched, files, is_too_long, work } = self;
        let programs = rest(programs, &other.programs);
        let shared = programs.intersection(&other.folders).cloned();
        Self {
            folders: rest(folders, &other.folders).into_iter().chain(shared).collect(),
            programs: rest(&programs, &other.folders),
            searched: rest(searched, &other.searched),
            files: rest(files, &other.files),
            is_too_long: *is_too_long,
            work: *work,
        }
    }
}

/// The parts of a server's command that decide which code runs.
pub struct Command<'a> {
    pub name: &'a str,
    /// Returns the value of a variable that the command has, wherever it comes from.
    pub value_of: &'a dyn Fn(&str) -> Option<String>,
    /// The variables of the server's entry, and those that load code.
    pub variables: &'a [Variable],
    /// The folder that the command takes for the home of its user.
    pub home: &'a Path,
    /// Returns whether a text contains a secret. A secret can look like a path, so of such a text only files and folders that exist count:
    /// what counts is shown in the approvals of other servers.
    pub is_secret: &'a dyn Fn(&str) -> bool,
}

/// A variable that a command gets. It has no `Debug`, because the value may be a secret.
pub struct Variable {
    pub value: String,
    pub loads_code: bool,
}

/// Returns the files and folders that decide which code a server runs. The program need not exist.
pub fn code(request: &BoxInput<'_>, command: &Command<'_>, lookup: &impl Lookup) -> Code {
    // The kernel does not accept such a path, so this entry cannot start anything.
    if [request.program].into_iter().chain(request.working_directory).any(|path| !is_usable(path) || is_deep(path)) {
        return Code { is_too_long: true, ..Code::default() };
    }
    let mut budget = Budget::new();
    let request = &BoxInput { arguments: budget.take_arguments(request.arguments), ..request.clone() };
    // This choice ignores the gateway's own folders. A project that contains one of them cannot be given to a box, but is still the package
    // of a server's program.
    let choice = Choice::new(request, lookup, &[]);
    let Places { runtime, packages, files, interpreters } = choice.places();
    let folders = Folders { working: request.working_directory, home: command.home, value_of: command.value_of };
    let mut finder = Finder { code: Code::default(), choice, folders, is_secret: command.is_secret, budget, lookup };
    // The folder `bin` of a package has programs that load their code from the folders beside it.
    let roots = runtime.iter().filter_map(|folder| package_above(folder, lookup));
    finder.code.programs.extend(roots.chain(packages).chain(runtime.iter().cloned()));
    // A link that leads to the program or an interpreter can be replaced too, and a program that is missing can be made.
    for file in files.iter().chain(&interpreters).map(PathBuf::as_path).chain([request.program]) {
        finder.add_program(file);
    }
    finder.add_search_path(command.name);
    for path in request.read.iter().chain(&request.write).chain(&request.roots) {
        finder.add_given(path);
    }
    let arguments = request.arguments.iter().map(|argument| (argument, false));
    let variables = command.variables.iter().map(|variable| (&variable.value, variable.loads_code));
    let mut texts: Vec<(&String, bool)> = arguments.chain(variables).collect();
    // The most important texts come first, and no long text hides the others.
    texts.sort_by_key(|(text, loads_code)| (!loads_code, text.len()));
    for (text, loads_code) in &texts {
        finder.add_text(text, *loads_code);
    }
    // A short text can become long when the values of its variables are filled in.
    for (text, loads_code) in texts {
        if let Some(filled) = finder.folders.filled(text, &finder.budget) {
            finder.add_text(&filled, loads_code);
        }
    }
    let (is_too_long, work) = (finder.budget.is_exceeded(), finder.budget.work());
    let mut code = Code { is_too_long, work, ..finder.code };
    if let Some(folder) = request.working_directory {
        code.folders.insert(folder.to_owned());
        // The process sees the working folder with its links resolved.
        let real = lookup.real(folder).unwrap_or_else(|| followed(folder, lookup).1);
        code.searched.extend(folder.ancestors().chain(real.ancestors()).skip(1).filter(|above| *above != real).map(Path::to_owned));
    }
    // The root folder is left out, because it contains the whole machine.
    for folders in [&mut code.folders, &mut code.searched] {
        folders.remove(Path::new("/"));
    }
    code
}

/// Returns whether a program that is found by its name stays the same, whatever the box of its server writes. The program may change if it
/// is in the workspace, or if the box may write a folder in which the name is looked up, or a link that leads to the program.
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
    for folder in searched(request).into_iter().filter(|_| !command.contains('/')) {
        candidates.push(request.working_directory.unwrap_or(Path::new("/")).join(folder).join(command));
        if candidates.last().is_some_and(|candidate| candidate == request.program) {
            break;
        }
    }
    candidates
}

/// Returns the folders in which a command looks for its program.
fn searched(request: &BoxInput<'_>) -> Vec<PathBuf> {
    std::env::split_paths(request.search_path).take(MAX_SEARCHED).filter(|folder| is_usable(folder)).collect()
}

/// Collects the code of one server.
struct Finder<'a, L> {
    code: Code,
    choice: Choice<'a, L>,
    folders: Folders<'a>,
    is_secret: &'a dyn Fn(&str) -> bool,
    budget: Budget,
    lookup: &'a L,
}

impl<L: Lookup> Finder<'_, L> {
    /// Adds the folders in which the program and its interpreters are looked up.
    fn add_search_path(&mut self, command: &str) {
        let request = self.choice.request;
        for folder in searched(request).iter().filter_map(|folder| self.folders.placed(folder)) {
            if self.budget.take_path(&folder, self.lookup) {
                self.code.folders.insert(folder);
            }
        }
        let candidates = candidates(request, command);
        let is_missing = self.lookup.kind(request.program).is_none();
        // An earlier folder may contain the program even if nobody can find this out now.
        let possible = candidates.into_iter().filter(|candidate| is_missing || self.lookup.is_unknown(candidate));
        self.code.programs.extend(possible);
    }

    /// Adds the files and folders that an argument or the value of a variable names.
    fn add_text(&mut self, text: &str, loads_code: bool) {
        let is_secret = (self.is_secret)(text);
        for path in self.folders.paths_in(text, &mut self.budget, self.lookup) {
            match self.lookup.kind(&path) {
                None if is_secret => {}
                Some(Kind::Folder) => {
                    // A runtime prefers a file with the name of the folder and an extension.
                    self.add_completed(&path);
                    self.code.folders.insert(path);
                }
                Some(Kind::File) if loads_code || self.is_code(&path) => self.add_program(&path),
                Some(Kind::File | Kind::Other) => drop(self.code.files.insert(path)),
                None => self.add_missing(path, loads_code),
            }
        }
    }

    /// Adds a root, or a path that the server's box gets. The server may run what is there.
    fn add_given(&mut self, path: &Path) {
        if !self.budget.take_given(path, self.lookup) {
            return;
        }
        let is_folder = self.lookup.kind(path) == Some(Kind::Folder);
        let paths = if is_folder { &mut self.code.folders } else { &mut self.code.files };
        paths.insert(path.components().collect());
    }

    /// Adds a path at which nothing is found now.
    fn add_missing(&mut self, path: PathBuf, loads_code: bool) {
        if !self.lookup.is_unknown(&path) {
            self.add_completed(&path);
        }
        let missing = if loads_code || is_program_file(&path) { &mut self.code.programs } else { &mut self.code.files };
        missing.insert(path);
    }

    /// Adds programs whose names are this path and an extension. A runtime finds them by the path without the extension.
    fn add_completed(&mut self, path: &Path) {
        if !self.budget.take_completed() {
            return;
        }
        let with = |ending: &str| {
            let mut name = path.to_owned().into_os_string();
            name.push(".");
            name.push(ending);
            PathBuf::from(name)
        };
        let found: Vec<PathBuf> =
            APPENDED.iter().map(|ending| with(ending)).filter(|file| self.lookup.kind(file) == Some(Kind::File)).collect();
        for file in found {
            self.add_program(&file);
        }
    }

    fn is_code(&self, file: &Path) -> bool {
        is_program_file(file) || self.lookup.is_program(file) || self.lookup.interpreter(file).is_some()
    }

    /// Adds a program, the interpreter in its first line, the interpreter of this interpreter, and so on.
    fn add_program(&mut self, file: &Path) {
        let (mut next, mut seen) = (Some(file.to_owned()), BTreeSet::new());
        for _ in 0..MAX_INTERPRETERS {
            let Some(program) = next.filter(|program| seen.insert(program.clone())) else { break };
            if program != file {
                self.code.programs.extend(self.choice.runtime_of(&program));
            }
            self.add_file(&program);
            next = self.add_first_line(&program);
        }
    }

    /// Adds the interpreter and the other files that the first line of a script names. Returns the interpreter.
    fn add_first_line(&mut self, script: &Path) -> Option<PathBuf> {
        let words = self.lookup.interpreter(script)?;
        let filled: Vec<String> = words.iter().filter_map(|word| self.folders.filled(word, &self.budget)).collect();
        for word in words.iter().chain(&filled) {
            let is_secret = (self.is_secret)(word);
            for path in self.folders.paths_in(word, &mut self.budget, self.lookup) {
                match self.lookup.kind(&path) {
                    None if is_secret => {}
                    Some(Kind::Folder) => drop(self.code.folders.insert(path)),
                    _ => drop(self.code.programs.insert(path)),
                }
            }
        }
        self.choice.interpreter_of(script)
    }

    /// Adds a file that runs, and the places in which this file or its runtime looks for further code. A runtime finds modules in the
    /// folder of a script even if the script belongs to a package.
    fn add_file(&mut self, file: &Path) {
        let real = self.lookup.real(file).unwrap_or_else(|| file.to_owned());
        if is_deep(&real) {
            return self.budget.exceed();
        }
        for path in [file, &real] {
            self.code.programs.insert(path.to_owned());
            self.add_searched(path);
        }
        if is_system(&real) {
            self.add_system_program(&real);
        } else if is_program_file(&real) {
            let package = self.choice.package_of(&real);
            let folder = if package == real { real.parent().map(Path::to_owned) } else { Some(package) };
            self.code.folders.extend(folder);
        }
    }

    /// Adds the folders above a program. Packages that exist in these folders are added as programs.
    fn add_searched(&mut self, program: &Path) {
        if program.extension().and_then(OsStr::to_str).is_some_and(|ending| ALONE.contains(&ending)) {
            return;
        }
        let Some(steps) = steps_of(program, self.lookup) else { return self.budget.exceed() };
        for folder in program.ancestors().skip(1).filter(|folder| folder.parent().is_some()) {
            // All folders above this one were added together with it.
            if self.code.searched.contains(folder) || !self.budget.take_folder(folder, steps) {
                break;
            }
            self.code.searched.insert(folder.to_owned());
            let modules = folder.join(NODE_MODULES);
            if self.lookup.kind(&modules).is_some() || self.lookup.is_unknown(&modules) {
                self.code.programs.insert(modules);
            }
        }
    }

    /// Adds the package of a program in a system folder. Every box has these folders, but a box may also be allowed to write a part of them.
    fn add_system_program(&mut self, program: &Path) {
        let folders = || program.ancestors().skip(1);
        let is_modules = |folder: &&Path| folder.file_name() == Some(OsStr::new(NODE_MODULES));
        let is_package = |folder: &&Path| MARKS.iter().any(|mark| self.lookup.kind(&folder.join(mark)).is_some());
        self.code.programs.extend(folders().filter(is_modules).last().or_else(|| folders().find(is_package)).map(Path::to_owned));
        let beside = folders().find(|folder| folder.file_name() == Some(OsStr::new("bin"))).and_then(Path::parent);
        self.code.folders.extend(beside.into_iter().flat_map(|prefix| BESIDE_BIN.map(|name| prefix.join(name))));
        self.code.folders.extend(program.parent().map(Path::to_owned));
    }
}

/// Returns the package whose folder `bin` this is.
fn package_above(folder: &Path, lookup: &impl Lookup) -> Option<PathBuf> {
    let package = folder.parent().filter(|_| folder.file_name() == Some(OsStr::new("bin")))?;
    MARKS.iter().any(|mark| lookup.kind(&package.join(mark)).is_some()).then(|| package.to_owned())
}
