//! The programs of other servers, which run outside of a box, and the folders that a box has for its own program.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::homes::HOMES;
use super::{PRIVATE, within};
use crate::boxes::{BoxInput, Code, Command, Disk, HOME, Kept, OwnFile, Owner, Places, Variable, code, is_fixed_program, places};
use crate::config::{
    BoxBase, BoxDefinition, BoxPaths, BoxSettings, ResolvedCommand, ServerDefinition, SourceKind, Transport, loads_code, resolve_box_paths,
};
use crate::error::Result;
use crate::gateway::core::Core;
use crate::gateway::launch::search_path;
use crate::trust::{NotApprovedReason, locate_program};

/// Variables that lead to folders with all kinds of files. They count only if the entry sets them, and no file that they name is code for this
/// reason alone. The folders of `PATH` are looked at by themselves.
const GENERAL: [&str; 4] = ["PATH", "HOME", "SHELL", "TMPDIR"];

/// Files and programs outside of a box that the box must not change. The folders of a box's own program do not depend on them.
pub(super) struct Outside<'a> {
    pub(super) files: &'a [OwnFile],
    pub(super) kept: &'a dyn Fn() -> Vec<Kept>,
}

/// A command, with its program and the paths of its box.
struct Found {
    command: ResolvedCommand,
    program: PathBuf,
    paths: BoxPaths,
}

impl Outside<'_> {
    const NOTHING: Outside<'static> = Outside { files: &[], kept: &Vec::new };
}

impl Core {
    /// Calls a function with what decides about the box of a server, and with its command, as far as these are known before a person has
    /// answered the questions for inputs. Reads the disk.
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

    /// Calls a function with what decides about the box of a server, and with its command.
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
        };
        use_input(&request, &command)
    }

    /// Returns what runs outside of the box of a server: the gateway itself, and the programs of all other servers. Reads the disk.
    pub(super) fn kept_from(&self, server: &str) -> Vec<Kept> {
        let others = kept_among(server, &self.code_of_servers());
        self.gateways_programs().into_iter().chain(others).collect()
    }

    /// Returns what runs in this process: the gateway's own programs, and the packages of providers.
    pub(super) fn gateways_programs(&self) -> Vec<Kept> {
        let packages = self.providers.package_folders().into_iter().map(|path| Kept { path, owner: Owner::Gateway });
        // A config of a host that this gateway reads too is covered, and so not read-only.
        let own = self.box_maker.own_programs.find().into_iter().filter(|kept| !self.is_read_as_config(&kept.path));
        own.chain(packages).collect()
    }

    /// Returns each server that is a process, was one earlier, or has an entry that cannot be used now, and from where it takes its code. A
    /// server that an agent has proposed counts once a person has approved it: otherwise a model could make folders of other servers read-only
    /// by proposals. Reads the disk.
    pub(super) fn code_of_servers(&self) -> Vec<(Arc<ServerDefinition>, Code)> {
        // Without a snapshot, each server counts.
        let approvals = self.trust.approvals.snapshot().ok();
        let is_approved = |server: &ServerDefinition| approvals.as_ref().is_none_or(|approvals| approvals.has(&server.key()));
        let is_process = |server: &Arc<ServerDefinition>| {
            matches!(server.transport, Transport::Stdio { .. }) && (server.source.kind != SourceKind::Agent || is_approved(server))
        };
        let with_code = |server: Arc<ServerDefinition>| (Arc::clone(&server), self.code_of(&server));
        self.registry.known_servers().into_iter().filter(is_process).map(with_code).collect()
    }

    /// Returns from where a server takes its code, as far as it can be known now. Its program may be missing, and so may values of placeholders.
    fn code_of(&self, server: &ServerDefinition) -> Code {
        let standard = BoxSettings::of(BoxBase::Standard);
        let settings = if let Some(BoxDefinition::On(settings)) = &server.in_box { settings } else { &standard };
        let Some(command) = self.command_without_inputs(server).or_else(|| self.command_as_written(server)) else { return Code::default() };
        let search = search_path(&command);
        let program = locate_program(&command.command, &search, &command.working_directory);
        // A missing program can come to each folder of `PATH`. The last one is as good as the others.
        let last = || std::env::split_paths(&search).last().unwrap_or_default().join(&command.command);
        let program = command.working_directory.join(program.unwrap_or_else(last));
        let paths = resolve_box_paths(server, settings, &self.surroundings).unwrap_or_default();
        self.with_found(server, settings, &Outside::NOTHING, Found { command, program, paths }, |request, command| {
            let home = command.environment.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.expose_secret());
            let home = home.map_or(Cow::Borrowed(request.user_home), |home| Cow::Owned(PathBuf::from(home)));
            let command = Command { name: &command.command, variables: &self.variables(server, command), home: &home };
            // Outside of a box, a command starts in the root folder.
            let working_directory =
                request.working_directory.or((!matches!(server.in_box, Some(BoxDefinition::On(_)))).then_some(Path::new("/")));
            code(&BoxInput { working_directory, ..request.clone() }, &command, &Disk)
        })
    }

    /// Returns the variables of a server's entry, and those that load code, wherever they come from.
    fn variables(&self, server: &ServerDefinition, command: &ResolvedCommand) -> Vec<Variable> {
        let is_inherited = |name: &str, value: &str| {
            let private = PRIVATE.contains(&(name, value));
            private || self.surroundings.environment.get(name).is_some_and(|known| known == value)
        };
        let known = command.environment.iter().map(|(name, value)| (name, value.expose_secret()));
        let known = known.filter(|(name, value)| !(GENERAL.contains(&name.as_str()) && is_inherited(name, value)));
        // The command has no variables if the value of one of them is not set.
        let Transport::Stdio { environment, .. } = &server.transport else { return Vec::new() };
        let is_missing = |name: &String| command.environment.iter().all(|(known, _)| known != name);
        let written = environment.iter().filter(|(name, _)| is_missing(name)).map(|(name, value)| (name, value.expose_secret()));
        let variable = |(name, value): (&String, &str)| Variable {
            value: value.to_owned(),
            loads_code: loads_code(name) && !GENERAL.contains(&name.as_str()),
        };
        known.chain(written).map(variable).collect()
    }

    /// Returns the command of an entry with its placeholders, some of which have no value now.
    fn command_as_written(&self, server: &ServerDefinition) -> Option<ResolvedCommand> {
        let Transport::Stdio { command, arguments, working_directory, .. } = &server.transport else { return None };
        let workspace = &self.surroundings.workspace_folder;
        let path = self.surroundings.environment.get("PATH").map(|path| ("PATH".to_owned(), SecretString::from(path.clone())));
        Some(ResolvedCommand {
            command: command.clone(),
            arguments: arguments.clone(),
            environment: path.into_iter().collect(),
            working_directory: workspace.join(working_directory.as_deref().unwrap_or_default()),
            secrets: Vec::new(),
        })
    }

    /// Returns the folders that the box of a server has for its program, as far as its approval covers them. `None` without a box. Reads the
    /// disk.
    pub(in crate::gateway) fn places_in_box(&self, server: &ServerDefinition) -> Option<Vec<String>> {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return None };
        let compared = self.with_box_input(server, settings, &Outside::NOTHING, |request, command| {
            compared(server, is_fixed_program(request, &command.command, &Disk), places(request, &Disk))
        });
        Some(compared.unwrap_or_default())
    }

    /// Fails if the box of a server would have folders for its program that were not shown at the approval. Whoever can write the program, or a
    /// folder above it, could choose them otherwise.
    pub(super) fn check_places(&self, server: &ServerDefinition, places: &[String]) -> Result<()> {
        let approval = self.trust.approvals.approval(&server.key())?;
        // Without an approval, the check of the command has already ended the start.
        let covers = approval.is_none_or(|approval| approval.covers_places(places));
        if covers { Ok(()) } else { Err(NotApprovedReason::Places.refusal(&server.name)) }
    }
}

/// Returns the folders of a program that an approval covers. A program of the user's own `PATH` can be updated without a new approval,
/// unless this box could choose another one (`is_fixed` is false). Packages that a person's answers decide are not known at the approval.
pub(super) fn compared(server: &ServerDefinition, is_fixed: bool, places: Places) -> Vec<String> {
    let Places { runtime, packages, .. } = places;
    let runtime = if is_fixed && has_inherited_path(server) { BTreeSet::new() } else { runtime };
    let packages = if has_inputs_for_packages(server) { BTreeSet::new() } else { packages };
    runtime.union(&packages).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Returns whether a person's answers decide which packages the server's program has: an answer is part of the command, an argument, the
/// working folder or `PATH`.
fn has_inputs_for_packages(server: &ServerDefinition) -> bool {
    let Transport::Stdio { command, arguments, environment, working_directory, .. } = &server.transport else { return false };
    let search_path = environment.iter().filter(|(name, _)| name == "PATH").map(|(_, value)| value.expose_secret());
    let texts = arguments.iter().chain(working_directory).chain([command]).map(String::as_str);
    texts.chain(search_path).any(|text| text.contains("${input:"))
}

/// Returns the programs and folders with code of all servers but one.
pub(super) fn kept_among(server: &str, code: &[(Arc<ServerDefinition>, Code)]) -> Vec<Kept> {
    let others = code.iter().filter(|(other, _)| other.name != server);
    let owned = |(other, Code { programs, folders, searched, files }): &(Arc<ServerDefinition>, Code)| {
        let kept = |owner: fn(String) -> Owner| move |path: &PathBuf| Kept { path: path.clone(), owner: owner(other.name.clone()) };
        let programs = programs.iter().map(kept(Owner::Server)).chain(folders.iter().map(kept(Owner::MayRun)));
        programs.chain(searched.iter().map(kept(Owner::Searches))).chain(files.iter().map(kept(Owner::Uses))).collect::<Vec<_>>()
    };
    others.flat_map(owned).collect()
}

/// Returns whether a server finds its program in the `PATH` of the gateway's own user. The values of a pinned environment file are approved, but
/// they name folders of the entry's author.
fn has_inherited_path(server: &ServerDefinition) -> bool {
    let Transport::Stdio { environment, environment_file, .. } = &server.transport else { return false };
    let is_set_by_box = matches!(&server.in_box, Some(BoxDefinition::On(settings)) if settings.environment.contains_key("PATH"));
    let is_in_file = environment_file.is_some() && server.pin_values;
    !is_set_by_box && !is_in_file && environment.iter().all(|(name, _)| name != "PATH")
}
