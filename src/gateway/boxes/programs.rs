//! The programs of other servers, which run outside of a box, and the folders that a box has for its own program.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use secrecy::{ExposeSecret as _, SecretString};

use super::homes::HOMES;
use super::links::without_unbound;
use super::{PRIVATE, within};
use crate::boxes::{
    BoxInput, Code, Command, Disk, HOME, Kept, Lookup, OtherServer, OwnFile, Owner, Places, Variable, code, is_fixed_program, places,
};
use crate::config::{
    BoxBase, BoxDefinition, BoxPaths, BoxSettings, MAX_KNOWN_BYTES, ResolvedCommand, ServerDefinition, ServerSource, Transport,
    known_box_paths, loads_code, resolve_box_paths, server_of_key, source_of_key, with_known_values,
};
use crate::error::Result;
use crate::gateway::core::Core;
use crate::gateway::launch::search_path;
use crate::registry::KnownServer;
use crate::trust::{NamedFiles, NotApprovedReason, locate_program};

/// Variables that lead to folders with all kinds of files. They are examined only if the entry sets them. A file is not taken for code only
/// because one of them names it. The folders of `PATH` are examined separately.
const GENERAL: [&str; 4] = ["PATH", "HOME", "SHELL", "TMPDIR"];

/// Maximum number of lookups for all servers together that are neither in the operator's own config nor approved. Anybody can commit a config
/// of another program with very many entries.
const MAX_WORK_FOR_OTHERS: usize = 32_768;

/// Files and programs outside of a box that the box must not change. They have no influence on the folders that a box gets for its own
/// program.
pub(super) struct Outside<'a> {
    pub(super) files: &'a [OwnFile],
    pub(super) kept: &'a dyn Fn() -> Vec<Kept>,
    /// The value of [`BoxInput::is_always_named`].
    pub(super) is_always_named: &'a dyn Fn(&OtherServer) -> bool,
}

/// A command, with its program and the paths of its box.
struct Found {
    command: ResolvedCommand,
    program: PathBuf,
    paths: BoxPaths,
}

/// The part of a server's command that is missing now.
pub(super) enum Lack {
    /// A value of a placeholder.
    Value,
    Program(String),
}

impl Lack {
    /// Returns the sentence for an approval request.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Value => {
                "a value that its entry names is not set now, so it is not known which files this value gives to the box".to_owned()
            }
            Self::Program(name) => format!("its program {name} was not found now, so the folders of the program are not known"),
        }
    }
}

impl Outside<'_> {
    const NOTHING: Outside<'static> = Outside { files: &[], kept: &Vec::new, is_always_named: &|_| true };
}

impl Core {
    /// Calls a function with the `BoxInput` of a server, from which the server's box is made, and with the server's command. Values of
    /// inputs that a person has not answered yet are not known. Reads the disk.
    pub(super) fn with_box_input<T>(
        &self,
        server: &ServerDefinition,
        settings: &BoxSettings,
        outside: &Outside<'_>,
        use_input: impl FnOnce(&BoxInput<'_>, &ResolvedCommand) -> T,
    ) -> Option<T> {
        let command = self.command_without_inputs(server)?;
        let paths = resolve_box_paths(server, settings, &self.surroundings).ok()?;
        let program = locate_program(&command.command, &search_path(&command), &command.working_directory)?;
        let found = Found { program: command.working_directory.join(program), command, paths };
        Some(self.with_found(server, settings, outside, found, use_input))
    }

    /// Calls a function with the `BoxInput` of a server, from which the server's box is made, as far as it can be known. The second
    /// argument is the part that is missing, if there is one. A missing program adds no folders to the box. Returns `None` for a server
    /// without a command. Reads the disk.
    pub(super) fn with_possible_box<T>(
        &self,
        server: &ServerDefinition,
        settings: &BoxSettings,
        outside: &Outside<'_>,
        use_input: impl FnOnce(&BoxInput<'_>, Option<Lack>) -> T,
    ) -> Option<T> {
        let resolved = self.command_without_inputs(server);
        let lack = resolved.is_none().then_some(Lack::Value);
        let command = resolved.or_else(|| self.command_as_written(server))?;
        let program = locate_program(&command.command, &search_path(&command), &command.working_directory);
        let is_there = program.as_ref().is_some_and(|program| Disk.kind(program).is_some());
        let lack = lack.or_else(|| (!is_there).then(|| Lack::Program(command.command.clone())));
        // A missing program is placed in the root folder, where a program has no folders of its own.
        let program = program.unwrap_or_else(|| Path::new("/").join(&command.command));
        let paths = known_box_paths(server, settings, &self.surroundings);
        let found = Found { program: command.working_directory.join(program), command, paths };
        Some(self.with_found(server, settings, outside, found, |request, _| use_input(request, lack)))
    }

    /// Calls a function with the `BoxInput` of a server, from which the server's box is made, and with the server's command.
    fn with_found<T>(
        &self,
        server: &ServerDefinition,
        settings: &BoxSettings,
        outside: &Outside<'_>,
        Found { command, program, paths }: Found,
        use_input: impl FnOnce(&BoxInput<'_>, &ResolvedCommand) -> T,
    ) -> T {
        let arguments = command.arguments.clone();
        let command = within(command, server, &settings.environment);
        let search = search_path(&command);
        let private_home = self.box_maker.state_folder.join(HOMES);
        let request = BoxInput {
            settings,
            program: &program,
            arguments: &arguments,
            working_directory: Some(command.working_directory.as_path()).filter(|folder| *folder != Path::new(HOME)),
            workspace: Some(&self.surroundings.workspace_folder),
            search_path: &search,
            read: paths.read,
            write: paths.write,
            roots: paths.roots,
            start_hosts: &BTreeSet::new(),
            user_home: &self.surroundings.user_home,
            own_folders: &self.box_maker.own_folders(),
            private_home: &private_home,
            services: &self.box_maker.services,
            socket_folders: &self.box_maker.socket_folders,
            own_files: outside.files,
            kept: outside.kept,
            is_always_named: outside.is_always_named,
        };
        use_input(&request, &command)
    }

    /// Returns the paths that run outside of the box of a server: those of the gateway itself, and of the programs of all other servers. The
    /// box must not write those of the gateway and of protected servers. Reads the disk.
    pub(super) fn kept_from(&self, server: &ServerDefinition) -> Vec<Kept> {
        let (servers, projects) = (self.code_of_servers(), self.projects());
        let others = others(server, &servers).flat_map(|other| self.kept_of_server(other.server, &other.name, &other.code, &projects));
        let mut kept: Vec<Kept> = self.gateways_programs().into_iter().chain(others).collect();
        let known: BTreeSet<Kept> = kept.iter().cloned().collect();
        kept.extend(self.approved_code(server).into_iter().filter(|code| !known.contains(code)));
        kept
    }

    /// Returns the paths from which all approved commands, except that of `own`, took their code at their approval. This includes servers
    /// whose entries are gone. For example, an entry disappears when another branch of a repository is checked out, and comes back later
    /// with its approval.
    pub(super) fn approved_code(&self, own: &ServerDefinition) -> Vec<Kept> {
        let Ok(approvals) = self.trust.approvals.snapshot() else { return Vec::new() };
        let (own_key, projects) = (own.key(), self.projects());
        let named = approvals.named_files(SystemTime::now()).filter(|(key, _)| *key != own_key);
        let kept = |(key, named)| without_unbound(named, kept_of(&approved_seen_from(own, key), &code_at_approval(named)), &projects);
        named.flat_map(kept).collect()
    }

    /// Returns the files that a server's entry names, for its approval. Leaves out a name that is not valid Unicode, because rows of the
    /// store are JSON. Reads the disk.
    pub(in crate::gateway) fn named_files(&self, server: &ServerDefinition) -> NamedFiles {
        if !matches!(server.transport, Transport::Stdio { .. }) {
            return NamedFiles::default();
        }
        let text = |path: PathBuf| path.into_os_string().into_string().ok();
        let texts = |paths: BTreeSet<PathBuf>| paths.into_iter().filter_map(text).collect::<Vec<String>>();
        let code = self.code_of(server);
        let linked = Core::linked_in(&code, &self.projects());
        let Code { programs, folders, searched, files, is_too_long, work: _ } = code;
        let programs: Vec<String> = texts(programs).into_iter().chain(linked).collect::<BTreeSet<_>>().into_iter().collect();
        let missing = programs.iter().filter(|program| Disk.kind(Path::new(program)).is_none()).cloned().collect();
        let environment_file = self.variables_file(server).and_then(text);
        // Boxes have another rule for the `envFile` of an approved server than for other files.
        let files = texts(files).into_iter().filter(|file| Some(file) != environment_file.as_ref()).collect();
        let (folders, searched) = (texts(folders), texts(searched));
        NamedFiles { programs, missing, folders, searched, files, is_too_long, environment_file }
    }

    /// Returns the paths of the code that runs in this process: the gateway's own programs, and the packages of providers.
    pub(super) fn gateways_programs(&self) -> Vec<Kept> {
        let packages = self.providers.package_folders().into_iter().map(|path| Kept { path, owner: Owner::Gateway });
        // If this gateway also reads the config of a host, boxes hide that file, so it is not listed as read-only.
        let own = self.box_maker.own_programs.find().into_iter().filter(|kept| !self.is_read_as_config(&kept.path));
        own.chain(packages).collect()
    }

    /// Returns each server that is a process, was one earlier, or has an entry that cannot be used now. A server that an agent has proposed
    /// is included only after a person has approved it. Otherwise a model could make folders of other servers read-only by proposals.
    pub(super) fn processes(&self) -> impl Iterator<Item = KnownServer> {
        let counts = self.counts_for_boxes();
        let is_process =
            move |KnownServer { server, .. }: &KnownServer| matches!(server.transport, Transport::Stdio { .. }) && counts(server);
        self.registry.known_servers().into_iter().filter(is_process)
    }

    /// Returns all [processes](Self::processes), and the paths from which each takes its code. Reads the disk.
    pub(super) fn code_of_servers(&self) -> Vec<(KnownServer, Code)> {
        let is_known = self.is_known_to_person();
        let (first, others): (Vec<_>, Vec<_>) =
            self.processes().partition(|known| is_known(&known.server) || self.is_of_user(&known.server));
        let mut left = MAX_WORK_FOR_OTHERS;
        let of_other = |known: KnownServer| {
            let code = if left > 0 { self.code_of(&known.server) } else { Code { is_too_long: true, ..Code::default() } };
            left = left.saturating_sub(code.work);
            (known, code)
        };
        let of_first = |known: KnownServer| {
            let code = self.code_of(&known.server);
            (known, code)
        };
        first.into_iter().map(of_first).chain(others.into_iter().map(of_other)).collect()
    }

    /// Returns the paths from which a server takes its code, as far as they can be known now. The program or values of placeholders may be
    /// missing.
    pub(super) fn code_of(&self, server: &ServerDefinition) -> Code {
        self.code_with(server, &Disk)
    }

    pub(super) fn code_with(&self, server: &ServerDefinition, lookup: &impl Lookup) -> Code {
        let standard = BoxSettings::of(BoxBase::Standard);
        let settings = if let Some(BoxDefinition::On(settings)) = &server.in_box { settings } else { &standard };
        let known = self.command_with_defaults(server, &|path| self.read_variables_file(path));
        let Some(command) = known.or_else(|| self.command_as_written(server)) else { return Code::default() };
        let search = search_path(&command);
        let program = locate_program(&command.command, &search, &command.working_directory);
        // A missing program could be created in each folder of `PATH`. The last folder stands for all of them. An entry without a command
        // names only files, so a program of the system is used in its place.
        let last = || match command.command.as_str() {
            "" => PathBuf::from("/bin/sh"),
            name => std::env::split_paths(&search).last().unwrap_or_default().join(name),
        };
        let program = command.working_directory.join(program.unwrap_or_else(last));
        let paths = resolve_box_paths(server, settings, &self.surroundings).unwrap_or_default();
        self.with_found(server, settings, &Outside::NOTHING, Found { command, program, paths }, |request, command| {
            // An entry can have very many variables.
            let known: BTreeMap<&str, &str> =
                command.environment.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
            let home = known.get("HOME").map_or(request.user_home, Path::new);
            let inherited = |name: &str| self.surroundings.environment.get(name).map(String::as_str);
            let value_of = |name: &str| known.get(name).copied().or_else(|| inherited(name)).map(str::to_owned);
            let variables = self.variables(server, command);
            let secrets = self.secret_texts(server, command);
            let is_secret = |text: &str| secrets.are_in(text);
            let command = Command { name: &command.command, value_of: &value_of, variables: &variables, home, is_secret: &is_secret };
            // Outside of a box, a command starts in the root folder.
            let working_directory =
                request.working_directory.or((!matches!(server.in_box, Some(BoxDefinition::On(_)))).then_some(Path::new("/")));
            let mut code = code(&BoxInput { working_directory, ..request.clone() }, &command, lookup);
            let may_be_named = |file: &PathBuf| lookup.kind(file).is_some() || !is_secret(&file.to_string_lossy());
            code.files.extend(self.variables_file(server).filter(may_be_named));
            code
        })
    }

    /// Returns the variables of a server's entry, and all variables that can load code, even if they do not come from the entry.
    fn variables(&self, server: &ServerDefinition, command: &ResolvedCommand) -> Vec<Variable> {
        let is_inherited = |name: &str, value: &str| {
            let private = PRIVATE.contains(&(name, value));
            private || self.surroundings.environment.get(name).is_some_and(|known| known == value)
        };
        let known = command.environment.iter().map(|(name, value)| (name, value.expose_secret()));
        let known = known.filter(|(name, value)| !(GENERAL.contains(&name.as_str()) && is_inherited(name, value)));
        // If the value of one variable is missing, the resolved command has no variables at all. So the variables of the entry are read as
        // they are written.
        let Transport::Stdio { environment, .. } = &server.transport else { return Vec::new() };
        let names: BTreeSet<&String> = command.environment.iter().map(|(name, _)| name).collect();
        let written = environment.iter().filter(|(name, _)| !names.contains(name));
        let mut left = MAX_KNOWN_BYTES;
        let mut with_values =
            |value: &SecretString| with_known_values(value.expose_secret(), &self.surroundings, &server.input_defaults, &mut left);
        let written: Vec<_> = written.map(|(name, value)| (name, with_values(value))).collect();
        let variable =
            |(name, value): (&String, String)| Variable { value, loads_code: loads_code(name) && !GENERAL.contains(&name.as_str()) };
        // The folders of `PATH` are examined separately.
        let all = known.map(|(name, value)| (name, value.to_owned())).chain(written);
        all.filter(|(name, _)| name.as_str() != "PATH").map(variable).collect()
    }

    /// Returns the command as the entry writes it, for an entry in which some placeholders have no value now.
    fn command_as_written(&self, server: &ServerDefinition) -> Option<ResolvedCommand> {
        let Transport::Stdio { command, arguments, working_directory, .. } = &server.transport else { return None };
        let workspace = &self.surroundings.workspace_folder;
        let mut left = MAX_KNOWN_BYTES;
        let mut known = |text: &String| with_known_values(text, &self.surroundings, &server.input_defaults, &mut left);
        let path = self.surroundings.environment.get("PATH").map(|path| ("PATH".to_owned(), SecretString::from(path.clone())));
        Some(ResolvedCommand {
            command: known(command),
            arguments: arguments.iter().map(&mut known).collect(),
            environment: path.into_iter().collect(),
            working_directory: workspace.join(working_directory.as_ref().map(known).unwrap_or_default()),
            secrets: Vec::new(),
        })
    }

    /// Returns the folders that the box of a server has for its program, as far as the server's approval covers them. `None` without a box.
    /// Reads the disk.
    pub(in crate::gateway) fn places_in_box(&self, server: &ServerDefinition) -> Option<Vec<String>> {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return None };
        let compared = self.with_box_input(server, settings, &Outside::NOTHING, |request, command| {
            compared(server, is_fixed_program(request, &command.command, &Disk), places(request, &Disk))
        });
        Some(compared.unwrap_or_default())
    }

    /// Fails if the box of a server would have folders for its program that were not shown at the approval. Without this check, a program
    /// that can write this program, or a folder above it, could choose these folders.
    pub(super) fn check_places(&self, server: &ServerDefinition, places: &[String]) -> Result<()> {
        let approval = self.trust.approvals.approval(&server.key())?;
        // Without an approval, the start does not get here: the check of the command has already failed.
        let covers = approval.is_none_or(|approval| approval.covers_places(places));
        if covers { Ok(()) } else { Err(NotApprovedReason::Places.refusal(&server.name)) }
    }
}

/// Returns the folders of a program that an approval covers. A program of the user's own `PATH` can be updated without a new approval,
/// unless this box could put another program in its place (`is_fixed` is false). Packages that depend on a person's answers are left out,
/// because they are not known at the approval.
pub(super) fn compared(server: &ServerDefinition, is_fixed: bool, places: Places) -> Vec<String> {
    let Places { runtime, packages, .. } = places;
    let runtime = if is_fixed && has_inherited_path(server) { BTreeSet::new() } else { runtime };
    let packages = if has_inputs_for_packages(server) { BTreeSet::new() } else { packages };
    runtime.union(&packages).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Returns whether the packages of the server's program depend on a person's answers. This is so if an answer is part of the command, an
/// argument, the working folder or `PATH`.
fn has_inputs_for_packages(server: &ServerDefinition) -> bool {
    let Transport::Stdio { command, arguments, environment, working_directory, .. } = &server.transport else { return false };
    let search_path = environment.iter().filter(|(name, _)| name == "PATH").map(|(_, value)| value.expose_secret());
    let texts = arguments.iter().chain(working_directory).chain([command]).map(String::as_str);
    texts.chain(search_path).any(|text| text.contains("${input:"))
}

/// A server beside the one of a box.
pub(super) struct Other<'a> {
    pub(super) server: &'a ServerDefinition,
    /// The server as the request of the box's own server names it.
    pub(super) name: OtherServer,
    pub(super) code: Cow<'a, Code>,
}

/// Returns all servers except the one of a box, and the paths from which they take their code. The box's own server is only the definition
/// that is used now. Another definition with the same name can be used later, with other rights, so it is another server here. But if the
/// other entry is of the same source, it needs a new approval before it is used. Therefore it may share code with the box's own entry.
pub(super) fn others<'a>(own: &'a ServerDefinition, servers: &'a [(KnownServer, Code)]) -> impl Iterator<Item = Other<'a>> {
    let key = own.key();
    let is_own = move |known: &KnownServer| known.is_in_force && known.server.key() == key;
    let own_code = servers.iter().find(|(known, _)| is_own(known)).map(|(_, code)| code);
    servers.iter().filter(move |(known, _)| !is_own(known)).map(move |(KnownServer { server, .. }, code)| {
        let (name, code) = match (seen_from(own, &server.name, &server.source), own_code) {
            (OtherServer::OtherVersion, Some(own)) => (OtherServer::OtherVersion, Cow::Owned(code.without(own))),
            (name, _) => (name, Cow::Borrowed(code)),
        };
        Other { server, name, code }
    })
}

/// Returns how the approval request of server `own` refers to another server.
pub(super) fn seen_from(own: &ServerDefinition, name: &str, source: &ServerSource) -> OtherServer {
    if name != own.name {
        OtherServer::Named(name.to_owned())
    } else if *source == own.source {
        OtherServer::OtherVersion
    } else {
        OtherServer::SameName(name.to_owned(), source.clone())
    }
}

/// Returns how the approval request of server `own` refers to the server of another approval.
pub(super) fn approved_seen_from(own: &ServerDefinition, key: &str) -> OtherServer {
    seen_from(own, server_of_key(key), &source_of_key(key).unwrap_or_default())
}

/// Returns the paths from which a server took its code when it was approved.
fn code_at_approval(named: &NamedFiles) -> Code {
    let paths = |texts: &[String]| texts.iter().map(PathBuf::from).collect();
    let NamedFiles { programs, missing: _, folders, searched, files, is_too_long, environment_file: _ } = named;
    let (programs, folders, searched, files) = (paths(programs), paths(folders), paths(searched), paths(files));
    Code { programs, folders, searched, files, is_too_long: *is_too_long, work: 0 }
}

/// Returns the programs, folders and files from which a server takes its code.
pub(super) fn kept_of(server: &OtherServer, Code { programs, folders, searched, files, is_too_long, work: _ }: &Code) -> Vec<Kept> {
    // If the entry is too long to be examined, the server may run any file.
    let unexamined = is_too_long.then(|| Kept { path: "/".into(), owner: Owner::Unexamined(server.clone()) });
    let kept = |owner: fn(OtherServer) -> Owner| move |path: &PathBuf| Kept { path: path.clone(), owner: owner(server.clone()) };
    let programs = programs.iter().map(kept(Owner::Server)).chain(folders.iter().map(kept(Owner::MayRun)));
    programs.chain(searched.iter().map(kept(Owner::Searches))).chain(files.iter().map(kept(Owner::Uses))).chain(unexamined).collect()
}

/// Returns the same paths, for a server whose programs boxes may write until a person has approved it.
pub(super) fn unprotected(kept: Vec<Kept>) -> Vec<Kept> {
    let owner = |owner| if let Owner::Server(server) = owner { Owner::Runs(server) } else { owner };
    kept.into_iter().map(|kept| Kept { owner: owner(kept.owner), ..kept }).collect()
}

/// Returns whether a server finds its program in the `PATH` of the gateway's own user. The values of a pinned environment file are
/// approved, but the author of the entry chooses the folders in them.
fn has_inherited_path(server: &ServerDefinition) -> bool {
    let Transport::Stdio { environment, environment_file, .. } = &server.transport else { return false };
    let is_set_by_box = matches!(&server.in_box, Some(BoxDefinition::On(settings)) if settings.environment.contains_key("PATH"));
    let is_in_file = environment_file.is_some() && server.pin_values;
    !is_set_by_box && !is_in_file && environment.iter().all(|(name, _)| name != "PATH")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{SourceKind, parse_text};

    fn known(name: &str, source: &ServerSource, is_in_force: bool, program: &str) -> (KnownServer, Code) {
        let text = format!(r#"{{ "mcpServers": {{ "{name}": {{ "command": "x" }} }} }}"#);
        let server = parse_text(&text, "config.json", 20).unwrap().servers.remove(0);
        let server = Arc::new(ServerDefinition { source: source.clone(), ..server });
        let programs = ["/shared".into(), program.into()].into();
        (KnownServer { server, is_in_force }, Code { programs, ..Code::default() })
    }

    #[test]
    fn an_entry_that_is_too_long_may_run_anything() {
        let code = Code { is_too_long: true, ..Code::default() };
        let anything = Kept { path: "/".into(), owner: Owner::Unexamined("b".into()) };
        assert_eq!(kept_of(&"b".into(), &code), [anything]);
        assert_eq!(kept_of(&"b".into(), &Code::default()), []);
    }

    #[test]
    fn only_the_definition_in_force_is_the_boxs_own() {
        let [config, base] = [ServerSource::default(), ServerSource::named(SourceKind::Config, "cursor")];
        let servers = [
            known("files", &config, true, "/own"),
            known("files", &config, false, "/earlier"),
            known("files", &base, false, "/hidden"),
            known("b", &base, true, "/b"),
        ];
        let seen: Vec<_> = others(&servers[0].0.server, &servers)
            .map(|Other { name, code, .. }| {
                (name, code.programs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "))
            })
            .collect();
        let expected = [
            // A program of the box's own server stays its own.
            (OtherServer::OtherVersion, "/earlier"),
            (OtherServer::SameName("files".to_owned(), base), "/hidden /shared"),
            (OtherServer::from("b"), "/b /shared"),
        ];
        assert_eq!(seen, expected.map(|(other, programs)| (other, programs.to_owned())));
        // A definition that is no longer used is another version of the same server.
        let (stale, _) = &servers[2];
        let of_source = OtherServer::SameName("files".to_owned(), config);
        let seen: Vec<_> = others(&stale.server, &servers).map(|other| other.name).collect();
        assert_eq!(seen, [of_source.clone(), of_source, OtherServer::OtherVersion, OtherServer::from("b")]);
    }
}
