//! Prepares the box of a server that is about to start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use super::core::Core;
use super::launch::search_path;
use super::options::GatewayOptions;
use crate::blocking::blocking;
use crate::boxes::{BoxInput, Disk, HOME, contents};
use crate::client::{Boxed, Target};
use crate::config::{BoxDefinition, NEUTRAL_FOLDER, ResolvedCommand, ServerDefinition, Transport, resolve_box_paths};
use crate::error::{Error, Result};
use crate::files::private_folder;

/// The folder of the state folder with the private homes.
const HOMES: &str = "boxes";
/// Variables that lead into the private folders of the box, unless the entry sets them.
const PRIVATE: [(&str, &str); 2] = [("HOME", HOME), ("TMPDIR", "/tmp")];

/// The program that makes boxes, and the folder with their private homes.
pub(super) struct BoxMaker {
    program: PathBuf,
    state_folder: PathBuf,
}

impl BoxMaker {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self { program: options.box_program.clone(), state_folder: options.state_folder() }
    }

    /// Returns the private home of a server. Creates it at the first start, and keeps it.
    fn private_home(&self, server: &ServerDefinition) -> Result<PathBuf> {
        // A name may contain any character, so its digest names the folder.
        let name = hex::encode(Sha256::digest(server.key()));
        let folder = private_folder(&self.state_folder.join(HOMES).join(name));
        folder.map(|folder| folder.path).map_err(|error| Error::io("the private home of a box", &error))
    }
}

impl Core {
    /// Returns the process to start, within its box if the entry has one.
    pub(super) async fn target(&self, server: &ServerDefinition, command: ResolvedCommand, program: PathBuf) -> Result<Target> {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return Ok(Target::Process { command, program, in_box: None }) };
        let paths = resolve_box_paths(server, settings, &self.surroundings)?;
        let private_home = self.box_maker.private_home(server)?;
        let (settings, arguments) = (settings.clone(), command.arguments.clone());
        let (user_home, state_folder) = (self.surroundings.user_home.clone(), self.box_maker.state_folder.clone());
        let program = command.working_directory.join(program);
        let command = within(command, server, &settings.environment);
        let search = search_path(&command);
        let folder = Some(command.working_directory.clone()).filter(|folder| folder != Path::new(HOME));
        let found = blocking(move || {
            let request = BoxInput {
                settings: &settings,
                program: &program,
                arguments: &arguments,
                working_directory: folder.as_deref(),
                search_path: &search,
                read: paths.read,
                write: paths.write,
                roots: paths.roots,
                user_home: &user_home,
                state_folder: &state_folder,
                private_home: &private_home,
            };
            Ok(contents(&request, &Disk))
        });
        let failed = |problem: String| Error::BoxFailed { server: server.name.clone(), problem: problem.into() };
        let (contents, program) = found.await?.map_err(failed)?;
        let in_box = Some(Boxed { program: self.box_maker.program.clone(), contents });
        Ok(Target::Process { command, program, in_box })
    }
}

/// Returns the command with the folders and variables of its box. The working folder is the private home, unless the entry has one or depends on the
/// workspace.
fn within(mut command: ResolvedCommand, server: &ServerDefinition, in_box: &BTreeMap<String, String>) -> ResolvedCommand {
    let Transport::Stdio { environment: own, working_directory, .. } = &server.transport else { return command };
    let is_own = |name: &str| own.iter().any(|(own, _)| own == name);
    let folders = PRIVATE.into_iter().filter(|(name, _)| !is_own(name));
    for (name, value) in folders.chain(in_box.iter().map(|(name, value)| (name.as_str(), value.as_str()))) {
        command.environment.retain(|(known, _)| known != name);
        command.environment.push((name.to_owned(), SecretString::from(value)));
    }
    if working_directory.is_none() && command.working_directory == Path::new(NEUTRAL_FOLDER) {
        command.working_directory = PathBuf::from(HOME);
    }
    command
}
