//! Prepares the box of a server that is about to start.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::core::Core;
use super::launch::search_path;
use super::options::GatewayOptions;
use crate::blocking::blocking;
use crate::boxes::{BoxInput, Disk, HOME, contents};
use crate::client::{Boxed, Target};
use crate::config::{BoxDefinition, NEUTRAL_FOLDER, ResolvedCommand, ServerDefinition, Transport, loads_code, resolve_box_paths};
use crate::error::{Error, Result};
use crate::files::private_folder;
use crate::trust::deciding_folder;

/// The folder of the state folder with the private homes.
const HOMES: &str = "boxes";
/// Variables that lead into the private folders of the box, unless the entry sets them.
const PRIVATE: [(&str, &str); 2] = [("HOME", HOME), ("TMPDIR", "/tmp")];

/// The program that makes boxes, and the folder with their private homes.
pub(super) struct BoxMaker {
    program: PathBuf,
    state_folder: PathBuf,
    /// The folder with the guest's snapshot. Who writes there chooses what runs in the VM.
    snapshot_folder: Option<PathBuf>,
}

impl BoxMaker {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self { program: options.box_program.clone(), state_folder: options.state_folder(), snapshot_folder: options.snapshot_dir.clone() }
    }

    /// Returns the private home of a server and its command. Creates it at the first start, and keeps it. Another command of the same name
    /// has another home, as code and settings that the first one left there would run with what a person has approved for the second.
    fn private_home(&self, server: &ServerDefinition, workspace: Option<&Path>) -> Result<PathBuf> {
        let folder = private_folder(&self.state_folder.join(HOMES).join(home_name(server, workspace)));
        folder.map(|folder| folder.path).map_err(|error| Error::io("the private home of a box", &error))
    }

    /// Returns the folders that no box has, whatever it is given.
    fn own_folders(&self) -> Vec<PathBuf> {
        [Some(&self.state_folder), self.snapshot_folder.as_ref()].into_iter().flatten().cloned().collect()
    }
}

/// Returns the name of the private home: a digest of all that decides which code runs, as the config has it.
fn home_name(server: &ServerDefinition, workspace: Option<&Path>) -> String {
    let mut digest = Sha256::new();
    let mut add = |text: &[u8]| {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    };
    add(server.key().as_bytes());
    if let Transport::Stdio { command, arguments, environment, removed_environment: _, working_directory, environment_file } =
        &server.transport
    {
        [command].into_iter().chain(working_directory).chain(environment_file).for_each(|text| add(text.as_bytes()));
        add(arguments.len().to_string().as_bytes());
        arguments.iter().for_each(|argument| add(argument.as_bytes()));
        for (name, value) in environment.iter().filter(|(name, _)| loads_code(name)) {
            add(name.as_bytes());
            add(value.expose_secret().as_bytes());
        }
    }
    if let Some(BoxDefinition::On(settings)) = &server.in_box {
        for (name, value) in settings.environment.iter().filter(|(name, _)| loads_code(name)) {
            add(name.as_bytes());
            add(value.as_bytes());
        }
    }
    // A relative path is another program in another folder.
    add(workspace.map_or(&[][..], |folder| folder.as_os_str().as_encoded_bytes()));
    hex::encode(digest.finalize())
}

impl Core {
    /// Returns the process to start, within its box if the entry has one.
    pub(super) async fn target(&self, server: &ServerDefinition, command: ResolvedCommand, program: PathBuf) -> Result<Target> {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return Ok(Target::Process { command, program, in_box: None }) };
        let paths = resolve_box_paths(server, settings, &self.surroundings)?;
        let workspace = deciding_folder(server, &self.surroundings);
        let private_home = self.box_maker.private_home(server, workspace.as_deref())?;
        let (settings, arguments, search) = (settings.clone(), command.arguments.clone(), search_path(&command));
        let (user_home, own_folders) = (self.surroundings.user_home.clone(), self.box_maker.own_folders());
        let program = command.working_directory.join(program);
        let command = within(command, server);
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
                own_folders: &own_folders,
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

/// Returns the command with the folders of its box. The working folder is the private home, unless the entry has one or depends on the
/// workspace.
fn within(mut command: ResolvedCommand, server: &ServerDefinition) -> ResolvedCommand {
    let Transport::Stdio { environment: own, working_directory, .. } = &server.transport else { return command };
    let is_own = |name: &str| own.iter().any(|(own, _)| own == name);
    for (name, value) in PRIVATE.into_iter().filter(|(name, _)| !is_own(name)) {
        command.environment.retain(|(known, _)| known != name);
        command.environment.push((name.to_owned(), SecretString::from(value)));
    }
    if working_directory.is_none() && command.working_directory == Path::new(NEUTRAL_FOLDER) {
        command.working_directory = PathBuf::from(HOME);
    }
    command
}
