//! Prepares the box of a server that is about to start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use super::core::Core;
use super::events::Event;
use super::launch::search_path;
use super::options::GatewayOptions;
use crate::blocking::blocking;
use crate::boxes::border::{BorderSettings, Refusal, RefusalListener};
use crate::boxes::{BoxInput, Disk, HOME, contents};
use crate::client::{Boxed, Target, border_threads};
use crate::config::{BoxDefinition, BoxNetwork, NEUTRAL_FOLDER, ResolvedCommand, ServerDefinition, Transport, resolve_box_paths};
use crate::error::{Error, Result};
use crate::fetch::{Resolve, SystemResolver};
use crate::files::private_folder;
use crate::network::NetworkRuntime;

/// The folder of the state folder with the private homes.
const HOMES: &str = "boxes";
/// Variables that lead into the private folders of the box, unless the entry sets them.
const PRIVATE: [(&str, &str); 2] = [("HOME", HOME), ("TMPDIR", "/tmp")];

/// The program that makes boxes, and the folder with their private homes.
pub(super) struct BoxMaker {
    program: PathBuf,
    state_folder: PathBuf,
    /// The threads that serve the borders of boxes.
    threads: Arc<NetworkRuntime>,
    resolver: Arc<dyn Resolve>,
}

impl BoxMaker {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self { program: options.box_program.clone(), state_folder: options.state_folder(), threads: Arc::new(border_threads()), resolver: Arc::new(SystemResolver) }
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
        let (settings, arguments, search) = (settings.clone(), command.arguments.clone(), search_path(&command));
        let (user_home, state_folder) = (self.surroundings.user_home.clone(), self.box_maker.state_folder.clone());
        let program = command.working_directory.join(program);
        let command = within(command, server);
        let hosts = match &settings.network {
            BoxNetwork::Any => BTreeSet::new(),
            BoxNetwork::Hosts(hosts) => hosts.clone(),
        };
        let start_hosts = BTreeSet::new();
        let starting = start_hosts.clone();
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
                start_hosts: &starting,
                user_home: &user_home,
                state_folder: &state_folder,
                private_home: &private_home,
            };
            Ok(contents(&request, &Disk))
        });
        let failed = |problem: String| Error::BoxFailed { server: server.name.clone(), problem: problem.into() };
        let (contents, program) = found.await?.map_err(failed)?;
        let BoxMaker { program: box_program, state_folder: _, threads, resolver } = &self.box_maker;
        let border = BorderSettings { hosts, start_hosts, resolver: Arc::clone(resolver), on_refused: self.on_refused(&server.name) };
        let in_box = Some(Boxed { program: box_program.clone(), contents, border, threads: Arc::clone(threads) });
        Ok(Target::Process { command, program, in_box })
    }

    /// Returns the function that tells what the box of a server has refused.
    fn on_refused(&self, server: &str) -> RefusalListener {
        let (events, server) = (self.events.clone(), server.to_owned());
        Arc::new(move |refusal: &Refusal| {
            let Refusal { host, port, reason } = refusal.clone();
            events.send(&Event::BoxRefused { server: server.clone(), host, port, reason });
        })
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
