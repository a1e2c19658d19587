//! Decides what exists in a box. It looks at the machine only through [`Lookup`], and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::budget::{Budget, is_deep};
use super::kept::{Changes, Effect, Kept, keep};
use super::mounts::OtherMounts;
use super::order::{Access, Ceilings, Contents, Given, Link, Network};
use super::other_names::check_other_names;
use super::own_files::{Held, OwnFile, access_of, check_own_folders, followed, held};
use super::paths::{Kind, Lookup, NAMING, SYSTEM, check_named, find_program, is_system};
use super::services::{Service, check_services, check_socket_folders};
use super::shown::{OtherServer, shown_path};
use crate::config::{BoxBase, BoxHost, BoxNetwork, BoxSettings, is_program_file};

/// Maximum number of paths that one box is given. Each is compared with all files that the box must not write.
const MAX_GIVEN: usize = 1_000;
/// The home folder within a box.
pub const HOME: &str = "/box/home";
/// Files that mark the folder of a package.
pub(super) const MARKS: [&str; 3] = ["package.json", "pyproject.toml", "pyvenv.cfg"];
/// Folders next to `bin` that a runtime needs.
const BESIDE_BIN: [&str; 3] = ["lib", "lib64", "libexec"];
/// Options of `env` that allow several words after it in a script's first line.
const SPLITTING: [&str; 2] = ["-S", "--split-string"];
/// Maximum number of interpreters that follow one another.
pub(super) const MAX_INTERPRETERS: usize = 4;
const THREADS_OF_PROCESS: u64 = 32;
const OPEN_FILES: u64 = 16_384;
const FILE_BYTES: u64 = 4 << 30;
const TEMPORARY_BYTES: u64 = 512 << 20;

/// A server that is about to start. All placeholders in its settings are filled in already.
#[derive(Clone)]
pub struct BoxInput<'a> {
    pub settings: &'a BoxSettings,
    /// The file that was found for the command.
    pub program: &'a Path,
    pub arguments: &'a [String],
    /// The folder in which relative paths in the arguments are resolved. `None` means the private home. Then no relative argument names a
    /// file.
    pub working_directory: Option<&'a Path>,
    /// The workspace folder. A program that is found there is not one of the user's own programs.
    pub workspace: Option<&'a Path>,
    /// The folders in which interpreters are searched.
    pub search_path: &'a OsStr,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub roots: Vec<PathBuf>,
    /// The hosts that the server may reach until it has started.
    pub start_hosts: &'a BTreeSet<BoxHost>,
    pub user_home: &'a Path,
    /// The gateway's own folders, with its approvals and the snapshot of its guest.
    pub own_folders: &'a [PathBuf],
    /// The folder of the machine that becomes [`HOME`].
    pub private_home: &'a Path,
    /// The services whose sockets a box has only if the config names them. A folder that contains such a socket cannot be given.
    pub services: &'a [Service],
    /// The folders in which programs of the machine make their sockets. None of them can be given as a whole.
    pub socket_folders: &'a [PathBuf],
    /// The gateway's own files, which a box may have in its folders, but not change.
    pub own_files: &'a [OwnFile],
    /// Finds the files and folders that run outside of this box. It is asked only for a box that may write something.
    pub kept: &'a dyn Fn() -> Vec<Kept>,
    /// Returns whether an approval of this box always names a server whose code the box can change, however many others there are.
    pub is_always_named: &'a dyn Fn(&OtherServer) -> bool,
}

/// The files and folders that a box has because its program needs them, although the config does not name them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Places {
    /// The folders of the program and its interpreters.
    pub runtime: BTreeSet<PathBuf>,
    /// The packages of the programs in the arguments.
    pub packages: BTreeSet<PathBuf>,
    /// The program, its interpreters and the programs in the arguments themselves.
    pub files: BTreeSet<PathBuf>,
    /// The interpreters, at the paths that the first lines of scripts name.
    pub(super) interpreters: BTreeSet<PathBuf>,
}

/// The decision about a box: its contents, and the facts that led to them.
#[derive(Debug)]
pub struct Decided {
    pub contents: Contents,
    /// The path by which the program is started in the box.
    pub program: PathBuf,
    pub places: Places,
    /// The places that the box can change and that decide what runs outside of it.
    pub changes: Changes,
}

/// Returns what exists in the box, and the path by which the program is started there.
///
/// # Errors
/// The reason why a path cannot be given.
pub fn contents(request: &BoxInput<'_>, lookup: &impl Lookup) -> Result<(Contents, PathBuf), String> {
    decide(request, lookup).map(|Decided { contents, program, .. }| (contents, program))
}

/// Returns the files and folders that a box of this server has for its program. They do not depend on what else the box has.
pub fn places(request: &BoxInput<'_>, lookup: &impl Lookup) -> Places {
    Choice::new(request, lookup, &own_folders(request, lookup)).places()
}

/// Returns the paths that a box has because of its entry alone. The folders of the program that is found now are left out. An earlier box,
/// which had another program, could write there.
pub(super) fn given_paths(request: &BoxInput<'_>, lookup: &impl Lookup) -> BTreeMap<PathBuf, Access> {
    let own_folders = own_folders(request, lookup);
    let choice = Choice::new(request, lookup, &own_folders);
    let mut paths = BTreeMap::new();
    choice.add_arguments(&mut paths, &mut Places::default(), &mut Vec::new());
    paths.extend(request.read.iter().map(|path| (path.clone(), Access::Read)));
    paths.extend(request.write.iter().map(|path| (path.clone(), Access::Write)));
    paths
}

pub(super) fn own_folders(request: &BoxInput<'_>, lookup: &impl Lookup) -> Vec<PathBuf> {
    // A folder that does not exist yet can be reached through a link too.
    request.own_folders.iter().map(|folder| lookup.real(folder).unwrap_or_else(|| followed(folder, lookup).1)).collect()
}

/// Decides what exists in the box.
///
/// # Errors
/// The reason why a path cannot be given.
pub fn decide(request: &BoxInput<'_>, lookup: &impl Lookup) -> Result<Decided, String> {
    let Examined { decided, refused, writes: _ } = examine(request, lookup);
    refused.into_iter().next().map_or(Ok(decided), Err)
}

/// The contents that a box would have, and the reasons why the box cannot be made now.
#[derive(Debug)]
pub struct Examined {
    /// If the box cannot be made, only `changes` and `places` are complete.
    pub decided: Decided,
    /// The paths that the box could write before any of them becomes read-only, and paths in arguments that do not exist yet.
    pub writes: BTreeSet<PathBuf>,
    /// The reasons, in the order in which they were found. Empty if the box can be made.
    pub refused: Vec<String>,
}

/// Examines a box. Returns everything that the box could change, even if the box cannot be made now, because the reason for this may soon
/// be gone.
pub fn examine(request: &BoxInput<'_>, lookup: &impl Lookup) -> Examined {
    let (mut budget, mut refused) = (Budget::new(), Vec::new());
    let request = &BoxInput { arguments: budget.take_arguments(request.arguments), ..request.clone() };
    if budget.is_exceeded() {
        refused.push("it has more arguments than can be examined: put them into a file".to_owned());
    }
    let own_folders = own_folders(request, lookup);
    let choice = Choice::new(request, lookup, &own_folders);
    let mut places = Places::default();
    let program = choice.add_runtime(&mut places);
    let mut paths: BTreeMap<PathBuf, Access> = places.runtime.iter().map(|path| (path.clone(), Access::Read)).collect();
    choice.add_arguments(&mut paths, &mut places, &mut refused);
    for (named, access) in [(&request.read, Access::Read), (&request.write, Access::Write)] {
        for path in named {
            refused.extend(check_named(path, access, &own_folders, Path::new("/box")).err());
            paths.insert(path.clone(), access);
        }
    }
    if let Some(first) = paths.keys().nth(MAX_GIVEN).cloned() {
        refused.push(format!(
            "its entry gives it {} paths, and at most {MAX_GIVEN} are possible: name folders that contain them",
            paths.len()
        ));
        paths.split_off(&first);
    }
    let named: Vec<&Path> = request.read.iter().chain(&request.write).map(PathBuf::as_path).collect();
    let system: Vec<PathBuf> = SYSTEM.into_iter().map(PathBuf::from).collect();
    let mounts = OtherMounts::of(paths.keys().chain(&system), lookup);
    let all: Vec<&Path> = paths.keys().map(PathBuf::as_path).collect();
    refused.extend(check_services(&all, &named, request.services, &mounts, lookup).err());
    refused.extend(all.iter().filter_map(|path| check_socket_folders(path, &named, request.socket_folders, &mounts, lookup).err()));
    refused.extend(check_own_folders(request.own_folders, &paths, &mounts, lookup).err());
    choice.keep_programs(&places, &mut paths, &mounts, &mut refused);
    let missing = choice.missing_arguments();
    let written = paths.iter().chain(&missing).filter(|(_, access)| **access == Access::Write);
    let writes: BTreeSet<PathBuf> = written.map(|(path, _)| path.clone()).collect();
    let kept = if writes.is_empty() { Vec::new() } else { (request.kept)() };
    let has_missing = !missing.is_empty();
    let mut with_missing: BTreeMap<PathBuf, Access> = missing.into_iter().chain(paths.clone()).collect();
    let mut changes = keep(&kept, &mut paths, &mounts, lookup, &mut refused);
    if has_missing {
        // A box that starts when these paths exist has them, without another approval. Whether that box can be made is decided at its
        // start.
        changes = keep(&kept, &mut with_missing, &mounts, lookup, &mut Vec::new());
    }
    let held = held(request.own_files, &paths, &request.read, &mounts, lookup).unwrap_or_else(|reason| {
        refused.push(reason);
        Held::default()
    });
    // The box does not have the content of these files, whoever else names them.
    changes.of_servers.retain(|change| change.effect != Effect::Rewrites || !held.unchangeable.contains(&change.path));
    refused.extend(check_other_names(&kept, places.files.iter(), request.own_files, &paths, lookup).err());
    paths.extend(held.read.into_iter().map(|path| (path, Access::Read)));
    let hidden = own_folders.into_iter().chain(held.hidden).collect();
    let contents = contents_of(request, paths, hidden);
    Examined { decided: Decided { contents, program, places, changes }, writes, refused }
}

/// Returns the contents of a box with these paths, and with its network and limits.
fn contents_of(request: &BoxInput<'_>, paths: BTreeMap<PathBuf, Access>, hidden: Vec<PathBuf>) -> Contents {
    let network = network_of(&request.settings.network, request.start_hosts);
    // A box with its own network has its own files for looking up names.
    let is_kept = |path: &&str| network == Network::Shared || !NAMING.contains(path);
    let system = SYSTEM.into_iter().filter(is_kept).map(|path| Given { path: path.into(), access: Access::Read, link: Link::System });
    let named = paths.into_iter().map(|(path, access)| Given { path, access, link: Link::Refused });
    let mut given: Vec<Given> = system.filter(|given| !request.write.contains(&given.path)).chain(named).collect();
    // A folder comes before its contents, so that they are mounted over it.
    given.sort_by_key(|given| given.path.components().count());
    // The variables are part of the command's environment already.
    let BoxSettings { base: _, read: _, write: _, network: _, memory_mb, disk_mb, processes, cpu_percent, is_nested, environment: _ } =
        request.settings;
    let (is_nested, memory_mb, processes) = (*is_nested, *memory_mb, *processes);
    let ceilings = Ceilings {
        memory_bytes: memory_mb << 20,
        processes,
        threads: processes * THREADS_OF_PROCESS,
        open_files: OPEN_FILES,
        file_bytes: FILE_BYTES,
        temporary_bytes: TEMPORARY_BYTES,
        home_bytes: disk_mb << 20,
        cpu_percent: *cpu_percent,
    };
    Contents { given, hidden, home: request.private_home.to_owned(), network, is_nested, ceilings }
}

/// Returns the network of a box. A box without hosts also has its own network, so that refused hosts can be reported.
fn network_of(network: &BoxNetwork, start_hosts: &BTreeSet<BoxHost>) -> Network {
    match network {
        BoxNetwork::Any => Network::Shared,
        BoxNetwork::Hosts(hosts) => {
            let ports: BTreeSet<u16> = hosts.iter().chain(start_hosts).map(BoxHost::port).collect();
            Network::Own { ports: ports.into_iter().collect() }
        }
    }
}

pub(super) struct Choice<'a, L> {
    pub(super) request: &'a BoxInput<'a>,
    lookup: &'a L,
    user_home: PathBuf,
    own_folders: &'a [PathBuf],
}

impl<'a, L: Lookup> Choice<'a, L> {
    pub(super) fn new(request: &'a BoxInput<'a>, lookup: &'a L, own_folders: &'a [PathBuf]) -> Self {
        let user_home = lookup.real(request.user_home).unwrap_or_else(|| request.user_home.to_owned());
        Self { request, lookup, user_home, own_folders }
    }

    pub(super) fn places(&self) -> Places {
        let mut places = Places::default();
        self.add_runtime(&mut places);
        self.add_arguments(&mut BTreeMap::new(), &mut places, &mut Vec::new());
        places
    }

    /// Adds the files that the program and its interpreters need. Returns the path by which the program is started: its own path if it
    /// exists in the box, or else the file to which it leads.
    fn add_runtime(&self, places: &mut Places) -> PathBuf {
        let mut next = Some(self.request.program.to_owned());
        for _ in 0..MAX_INTERPRETERS {
            let Some(program) = next else { break };
            let real = self.lookup.real(&program).unwrap_or_else(|| program.clone());
            for path in [self.placed(&program), Some(real.clone())].into_iter().flatten() {
                places.runtime.extend(self.runtime_of(&path).into_iter().filter(|path| self.may_be_given(path)));
            }
            // A folder or a socket is not a program.
            if self.lookup.kind(&real) == Some(Kind::File) && self.may_be_given(&real) {
                places.files.insert(real.clone());
            }
            next = self.interpreter_of(&real).filter(|path| path.is_absolute() && self.lookup.is_program(path));
            places.interpreters.extend(next.clone());
        }
        let program = self.request.program;
        let own = self.placed(program).filter(|own| is_system(own) || places.runtime.iter().any(|given| own.starts_with(given)));
        own.or_else(|| self.lookup.real(program)).unwrap_or_else(|| program.to_owned())
    }

    /// Makes the programs themselves read-only, even within a folder that may be written. Otherwise, a server could rewrite the first line
    /// of its own program, and its box would have other contents at the next start. `refused` gets the reasons why the box cannot be made.
    fn keep_programs(&self, places: &Places, paths: &mut BTreeMap<PathBuf, Access>, mounts: &OtherMounts, refused: &mut Vec<String>) {
        let others = places.files.iter().flat_map(|file| mounts.other_names(file, self.lookup));
        for file in places.files.iter().cloned().chain(others) {
            if access_of(paths, &file) != Some(Access::Write) {
                continue;
            }
            if paths.contains_key(&file) {
                refused.push(format!("{} cannot be written: it is this server's own program", file.display()));
                continue;
            }
            paths.insert(file, Access::Read);
        }
        for program in places.interpreters.iter().map(PathBuf::as_path).chain([self.request.program]) {
            let (links, _) = followed(program, self.lookup);
            if let Some(link) = links.iter().find(|link| access_of(paths, link) == Some(Access::Write)) {
                refused.push(format!(
                    "{}, which this server runs, leads through the link {}, which this box could replace: put it outside of what the box may write",
                    program.display(),
                    link.display()
                ));
            }
        }
    }

    /// Returns the path with the links of its folder followed. A link at the path itself is kept, because a virtual environment is
    /// recognised by the path of its link.
    fn placed(&self, program: &Path) -> Option<PathBuf> {
        Some(self.lookup.real(program.parent()?)?.join(program.file_name()?))
    }

    pub(super) fn interpreter_of(&self, program: &Path) -> Option<PathBuf> {
        let words = self.lookup.interpreter(program)?;
        let mut words = words.iter().map(String::as_str);
        let first = words.next()?;
        if Path::new(first).file_name() != Some(OsStr::new("env")) {
            return Some(first.into());
        }
        // A word with quotes, or a path, could name a program in another folder, which no person is shown.
        if words.clone().any(|word| word.contains(['\'', '"', '\\'])) {
            return None;
        }
        // Another option may have a value, which would be taken for the interpreter.
        let name = words
            .find(|word| !SPLITTING.contains(word) && !word.contains('='))
            .filter(|word| !word.starts_with('-') && !word.contains('/'))?;
        find_program(name, self.request.search_path, self.lookup)
    }

    /// Returns the folders that the program at this path needs.
    pub(super) fn runtime_of(&self, program: &Path) -> Vec<PathBuf> {
        let Some(folder) = program.parent().filter(|_| !is_system(program)) else { return Vec::new() };
        let prefix = folder.parent().unwrap_or(folder);
        let has = |path: &PathBuf| self.lookup.real(path).as_ref() == Some(path) && self.lookup.kind(path) == Some(Kind::Folder);
        let name = folder.file_name().and_then(OsStr::to_str);
        match name {
            // A virtual environment has nothing but packages.
            Some("bin") if self.may_be_given(prefix) && self.lookup.kind(&prefix.join("pyvenv.cfg")).is_some() => vec![prefix.to_owned()],
            Some("bin") => {
                let beside = BESIDE_BIN.into_iter().map(|name| prefix.join(name)).filter(has);
                [folder.to_owned()].into_iter().filter(has).chain(beside).collect()
            }
            // A version manager keeps the programs next to the scripts that choose one of them.
            Some("shims") if self.may_be_given(prefix) => vec![prefix.to_owned()],
            // Links are not mounted; the file to which the link leads is.
            _ if self.lookup.real(program).as_deref() == Some(program) && self.lookup.kind(program) == Some(Kind::File) => {
                vec![self.package_of(program)]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the folder of the package to which a program belongs, or the program itself.
    pub(super) fn package_of(&self, program: &Path) -> PathBuf {
        let folders = || program.ancestors().skip(1).filter(|folder| self.may_be_given(folder));
        let is_modules = |folder: &&Path| folder.file_name() == Some(OsStr::new("node_modules"));
        let marked = |folder: &&Path| MARKS.iter().any(|mark| self.lookup.kind(&folder.join(mark)).is_some());
        folders().filter(is_modules).last().or_else(|| folders().find(marked)).unwrap_or(program).to_owned()
    }

    /// Returns whether a path may be given although neither `read` nor `write` names it.
    fn may_be_given(&self, path: &Path) -> bool {
        let is_own = |folder: &PathBuf| folder.starts_with(path) || path.starts_with(folder);
        let is_own_file = self.request.own_files.iter().any(|file| file.path == path && file.is_hidden_at(path, self.lookup));
        !self.user_home.starts_with(path) && !self.own_folders.iter().any(is_own) && !is_own_file && !is_system(path)
    }

    /// Adds the paths in the arguments, and the roots. `refused` gets the reasons why one of them cannot be given.
    fn add_arguments(&self, paths: &mut BTreeMap<PathBuf, Access>, places: &mut Places, refused: &mut Vec<String>) {
        let access = self.access_of_arguments();
        let arguments = self.request.arguments.iter().filter_map(|argument| self.path_of(argument));
        for path in arguments.chain(self.request.roots.iter().cloned()) {
            // An argument such as `/api` is not a path.
            let (Some(kind), Some(real)) = (self.lookup.kind(&path), self.lookup.real(&path)) else { continue };
            if is_deep(&path) || is_deep(&real) {
                refused.push(format!("{} is nested too deeply to be given to a box: name a folder that contains it", shown_path(&path)));
                continue;
            }
            if kind == Kind::Other || !self.may_be_given(&real) || !self.may_be_given(&path) {
                continue;
            }
            // If `write` names the file itself, a person has chosen it, so it is not added here.
            if kind == Kind::File && is_program_file(&real) && !self.request.write.contains(&real) {
                places.files.insert(real.clone());
            }
            if self.is_named(&real) {
                continue;
            }
            // Package managers link from one package to another. The box keeps a link that is given together with the file to which it leads.
            let is_link_in_package = || path.starts_with(self.package_of(&real)) && is_program_file(&real) && !has_parent_parts(&path);
            // `/a/../b` is not a link, but has no place of its own either.
            if real != path.components().collect::<PathBuf>() && !is_link_in_package() {
                refused.push(format!(
                    "{} leads through a link, which a box does not follow: write {} instead",
                    path.display(),
                    real.display()
                ));
            }
            if kind == Kind::File && is_program_file(&real) {
                let package = self.package_of(&real);
                places.packages.insert(package.clone());
                paths.entry(package).or_insert(Access::Read);
            } else if kind == Kind::File && self.lookup.is_program(&real) {
                // If the box could write a program, that code would run outside of the box when the user starts the program.
                paths.entry(real).or_insert(Access::Read);
            } else {
                paths.insert(real, access);
            }
        }
    }

    /// Returns the paths in arguments and roots at which nothing exists now, with the access that a box gets if something exists there
    /// later.
    fn missing_arguments(&self) -> BTreeMap<PathBuf, Access> {
        let arguments = self.request.arguments.iter().filter_map(|argument| self.path_of(argument));
        let missing = arguments.chain(self.request.roots.iter().cloned()).filter(|path| self.lookup.kind(path).is_none());
        let places = missing.map(|path| followed(&path, self.lookup).1);
        places
            .filter(|place| self.may_be_given(place) && !self.is_named(place) && !is_program_file(place))
            .map(|place| (place, self.access_of_arguments()))
            .collect()
    }

    fn access_of_arguments(&self) -> Access {
        match self.request.settings.base {
            BoxBase::Standard => Access::Write,
            BoxBase::Strict => Access::Read,
        }
    }

    /// Returns the path that an argument names by its form.
    fn path_of(&self, argument: &str) -> Option<PathBuf> {
        let path = Path::new(argument);
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let folder = self.request.working_directory.filter(|_| is_relative_path(argument))?;
        // `./a` and `a` are the same place.
        Some(folder.join(path).components().collect())
    }

    /// Returns whether `read` or `write` gives the path, or a folder that contains it.
    fn is_named(&self, path: &Path) -> bool {
        self.request.read.iter().chain(&self.request.write).any(|named| path.starts_with(named))
    }
}

/// Returns whether an argument has the form of a relative path: it begins with a dot, has folders, or is a program of a runtime. A flag, an
/// address, and the name of a package with its scope have another form.
pub(super) fn is_relative_path(argument: &str) -> bool {
    let is_other = argument.starts_with(['-', '@', '~', '/']) || argument.contains("://") || argument.contains(char::is_whitespace);
    let is_dotted = matches!(argument, "." | "..") || argument.starts_with("./") || argument.starts_with("../");
    is_dotted || (!is_other && (argument.contains('/') || is_program_file(Path::new(argument))))
}

fn has_parent_parts(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
#[path = "contents_tests.rs"]
mod tests;
