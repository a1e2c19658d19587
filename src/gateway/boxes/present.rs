//! Sentences for the approval about what a box has on this machine now, in addition to what the config names.

use std::collections::BTreeSet;
use std::path::Path;

use super::homes::HOMES;
use super::within;
use crate::boxes::{BoxInput, Disk, HOME, present};
use crate::config::{BoxDefinition, ServerDefinition, resolve_box_paths};
use crate::gateway::core::Core;
use crate::gateway::launch::search_path;
use crate::trust::Subject;

impl Core {
    /// Returns sentences about the folders of the program and its packages, and about sockets in given folders. Reads the disk. Returns no
    /// sentences if the program was not found, or if a value that is still missing decides what the box has.
    pub(super) fn present_in_box(&self, server: &ServerDefinition, subject: &Subject) -> Vec<String> {
        let (Some(BoxDefinition::On(settings)), Some(program)) = (&server.in_box, &subject.executable) else { return Vec::new() };
        let Some(command) = self.command_without_inputs(server) else { return Vec::new() };
        let Ok(paths) = resolve_box_paths(server, settings, &self.surroundings) else { return Vec::new() };
        let arguments = command.arguments.clone();
        let command = within(command, server, &settings.environment);
        let search = search_path(&command);
        let private_home = self.box_maker.state_folder.join(HOMES);
        let request = BoxInput {
            settings,
            program: &program.path,
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
            own_files: &self.own_files(server),
        };
        present(&request, &Disk)
    }
}
