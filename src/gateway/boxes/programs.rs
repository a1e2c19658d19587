//! The programs that run outside of a box, and the folders that a box has for its own program.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::homes::HOMES;
use super::within;
use crate::boxes::{BoxInput, Disk, HOME, Kept, OwnFile, Owner, Places, places};
use crate::config::{BoxBase, BoxDefinition, BoxSettings, ResolvedCommand, ServerDefinition, Transport, inputs_of, resolve_box_paths};
use crate::error::Result;
use crate::gateway::core::Core;
use crate::gateway::launch::search_path;
use crate::trust::{NotApprovedReason, locate_program};

/// Files and folders of the package from which a program that uses the gateway loads it, beside those of the platform's package.
const PACKAGE: [&str; 8] = ["package.json", "index.js", "index.mjs", "adapters.js", "adapters.mjs", "bin", "npm", "node_modules"];

/// Returns what no box may write, because this gateway is loaded from it: its programs, its package, and the outermost `node_modules` with this
/// package. There, Node finds the packages that the command line loads, and those of the program that uses the gateway.
pub(super) fn own_programs(watchdog: &Path, others: &[&PathBuf]) -> Vec<Kept> {
    // Node has followed all links before it loads a program.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut paths: BTreeSet<PathBuf> = others.iter().map(|path| real(path)).chain([real(watchdog)]).collect();
    let watchdog = real(watchdog);
    let folder = watchdog.parent().unwrap_or(Path::new("/"));
    let is_modules = |above: &&Path| above.file_name() == Some(OsStr::new("node_modules"));
    paths.extend(folder.ancestors().filter(is_modules).last().map(Path::to_owned));
    let npm = folder.parent().filter(|npm| npm.file_name() == Some(OsStr::new("npm")));
    let package = npm.and_then(Path::parent);
    paths.extend(package.into_iter().flat_map(|package| PACKAGE.map(|name| package.join(name))));
    paths.into_iter().map(|path| Kept { path, owner: Owner::Gateway }).collect()
}

/// Files and programs outside of a box that the box must not change. The folders of a box's own program do not depend on them.
pub(super) struct Outside<'a> {
    pub(super) files: &'a [OwnFile],
    pub(super) kept: &'a dyn Fn() -> Vec<Kept>,
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
        let arguments = command.arguments.clone();
        let program = locate_program(&command.command, &search_path(&command), &command.working_directory)?;
        let program = command.working_directory.join(program);
        let command = within(command, server, &settings.environment);
        let search = search_path(&command);
        let private_home = self.box_maker.state_folder.join(HOMES);
        let request = BoxInput {
            settings,
            program: &program,
            arguments: &arguments,
            working_directory: Some(command.working_directory.as_path()).filter(|folder| *folder != Path::new(HOME)),
            search_path: &search,
            read: paths.read,
            write: paths.write,
            roots: paths.roots,
            start_hosts: &BTreeSet::new(),
            user_home: &self.surroundings.user_home,
            own_folders: &self.box_maker.own_folders(),
            private_home: &private_home,
            services: &self.box_maker.services,
            own_files: outside.files,
            kept: outside.kept,
        };
        Some(use_input(&request, &command))
    }

    /// Returns what runs outside of the box of a server: the gateway itself, and the programs of all other servers. Reads the disk.
    pub(super) fn kept_from(&self, server: &str) -> Vec<Kept> {
        let others = self.programs_of_servers().into_iter().filter(|(other, _)| other.name != server);
        let owned = |(other, paths): (Arc<ServerDefinition>, BTreeSet<PathBuf>)| {
            paths.into_iter().map(move |path| Kept { path, owner: Owner::Server(other.name.clone()) })
        };
        self.box_maker.own_programs.iter().cloned().chain(others.flat_map(owned)).collect()
    }

    /// Returns each server that is a process, with the files and folders of its program. Reads the disk.
    pub(super) fn programs_of_servers(&self) -> Vec<(Arc<ServerDefinition>, BTreeSet<PathBuf>)> {
        let standard = BoxSettings::of(BoxBase::Standard);
        let is_process = |server: &Arc<ServerDefinition>| matches!(server.transport, Transport::Stdio { .. });
        let with_programs = |server: Arc<ServerDefinition>| {
            let settings = if let Some(BoxDefinition::On(settings)) = &server.in_box { settings } else { &standard };
            let found = self.with_box_input(&server, settings, &Outside::NOTHING, |request, _| {
                let Places { runtime, packages, files, .. } = places(request, &Disk);
                // A link that leads to the program can be replaced too, and a program that is missing can be made.
                [runtime, packages, files].into_iter().flatten().chain([request.program.to_owned()]).collect()
            });
            (server, found.unwrap_or_default())
        };
        self.registry.servers().into_iter().filter(is_process).map(with_programs).collect()
    }

    /// Returns the folders that the box of a server has for its program, as far as its approval covers them. `None` without a box. Reads the
    /// disk.
    pub(in crate::gateway) fn places_in_box(&self, server: &ServerDefinition) -> Option<Vec<String>> {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return None };
        let compared = self.with_box_input(server, settings, &Outside::NOTHING, |request, command| {
            self.compared(server, &command.command, request.program, places(request, &Disk))
        });
        Some(compared.unwrap_or_default())
    }

    /// Returns the folders of a program that an approval covers. A program of the user's own `PATH` can be updated without a new approval,
    /// because whoever could replace it would run outside of boxes. Packages that a person's answers decide are not known at the approval.
    pub(super) fn compared(&self, server: &ServerDefinition, command: &str, program: &Path, places: Places) -> Vec<String> {
        let is_users_tool = !command.contains('/') && !program.starts_with(&self.surroundings.workspace_folder);
        let Places { runtime, packages, .. } = places;
        let runtime = if is_users_tool { BTreeSet::new() } else { runtime };
        let packages = if inputs_of(server).is_empty() { packages } else { BTreeSet::new() };
        runtime.union(&packages).map(|path| path.to_string_lossy().into_owned()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_from_which_the_gateway_is_loaded_are_its_own() {
        let paths = |watchdog: &str| -> Vec<PathBuf> {
            let other = Path::new(watchdog).with_file_name("box");
            own_programs(Path::new(watchdog), &[&other]).into_iter().map(|kept| kept.path).collect()
        };
        let in_project = paths("/p/node_modules/a/node_modules/hyperlight-mcp-linux-x64-gnu/watchdog");
        assert!(in_project.contains(&"/p/node_modules".into()), "{in_project:?}");
        let in_repository = paths("/r/npm/linux-x64-gnu/watchdog");
        for name in ["npm/linux-x64-gnu/watchdog", "npm/linux-x64-gnu/box", "index.js", "bin", "npm", "node_modules"] {
            assert!(in_repository.contains(&Path::new("/r").join(name)), "{name}: {in_repository:?}");
        }
        assert!(!in_repository.contains(&"/r".into()));
    }
}
