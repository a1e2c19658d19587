//! Prepares the box of a server that is about to start.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use super::Gateway;
use super::core::Core;
use super::events::Event;
use super::launch::search_path;
use super::options::GatewayOptions;
use crate::blocking::blocking;
use crate::boxes::border::{BorderSettings, Refusal, RefusalListener};
use crate::boxes::{BoxInput, Disk, HOME, Registry, RunnerSettings, contents, registry};
use crate::client::{Boxed, Target, border_threads};
use crate::config::{
    BoxDefinition, BoxHost, BoxNetwork, NEUTRAL_FOLDER, ResolvedCommand, ServerDefinition, Surroundings, Transport, resolve_box_paths,
};
use crate::error::{Error, Result};
use crate::fetch::{Resolve, SystemResolver};
use crate::files::{Links, private_folder, read_bounded};
use crate::network::NetworkRuntime;
use crate::trust::{CommandRequest, NotApprovedReason, Subject};

/// The folder of the state folder with the private homes.
const HOMES: &str = "boxes";
/// The longest file with settings of a package manager.
const MAX_SETTINGS_BYTES: u64 = 256 * 1024;
/// Variables that lead into the private folders of the box, unless the entry sets them.
const PRIVATE: [(&str, &str); 2] = [("HOME", HOME), ("TMPDIR", "/tmp")];

/// The program that makes boxes, and the folder with their private homes.
pub(super) struct BoxMaker {
    program: PathBuf,
    state_folder: PathBuf,
    /// The threads that serve the borders of boxes.
    threads: Arc<NetworkRuntime>,
    resolver: Arc<dyn Resolve>,
    /// What the box of each server has refused since its last start. A border tells a limited number.
    refused: Arc<Mutex<HashMap<String, Vec<Refusal>>>>,
}

impl BoxMaker {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self {
            program: options.box_program.clone(),
            state_folder: options.state_folder(),
            threads: Arc::new(border_threads()),
            resolver: Arc::new(SystemResolver),
            refused: Arc::default(),
        }
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
        let mut command = within(command, server);
        let (hosts, hosts_all) = match &settings.network {
            BoxNetwork::Any => (BTreeSet::new(), true),
            BoxNetwork::Hosts(hosts) => (hosts.clone(), false),
        };
        let (own_command, own_arguments, surroundings) = (command.command.clone(), command.arguments.clone(), self.surroundings.clone());
        let registry = blocking(move || Ok(registry_of(&own_command, &own_arguments, &surroundings))).await?.unwrap_or_default();
        let Registry { hosts: start_hosts, variables } = registry;
        if !hosts_all {
            add_missing(&mut command, variables);
        }
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
        let BoxMaker { program: box_program, state_folder: _, threads, resolver, refused: _ } = &self.box_maker;
        let border = BorderSettings { hosts, start_hosts, resolver: Arc::clone(resolver), on_refused: self.on_refused(&server.name) };
        let in_box = Some(Box::new(Boxed { program: box_program.clone(), contents, border, threads: Arc::clone(threads) }));
        Ok(Target::Process { command, program, in_box })
    }

    /// Returns the request of stage 1, with what a package runner may reach until its server has started.
    pub(super) fn command_request(&self, server: &ServerDefinition, subject: &Subject, lack: Option<NotApprovedReason>) -> CommandRequest {
        let mut request = CommandRequest::new(server, subject, lack);
        let Transport::Stdio { command, arguments, .. } = &server.transport else { return request };
        let (Some(in_box), Some(BoxDefinition::On(settings))) = (&mut request.in_box, &server.in_box) else { return request };
        if let BoxNetwork::Hosts(hosts) = &settings.network {
            let registry = registry_of(command, arguments, &self.surroundings).unwrap_or_default();
            in_box.allows.extend(start_sentence(&registry.hosts, hosts));
        }
        request
    }

    /// Returns the function that tells what the box of a server has refused.
    fn on_refused(&self, server: &str) -> RefusalListener {
        let (events, refused, server) = (self.events.clone(), Arc::clone(&self.box_maker.refused), server.to_owned());
        // Those of an earlier start say nothing about this one.
        refused.lock().remove(&server);
        Arc::new(move |refusal: &Refusal| {
            let Refusal { host, port, reason } = refusal.clone();
            refused.lock().entry(server.clone()).or_default().push(refusal.clone());
            events.send(&Event::BoxRefused { server: server.clone(), host, port, reason });
        })
    }
}

impl Gateway {
    /// Returns what the box of a server has refused since its last start.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`.
    pub fn refused_hosts(&self, server: &str) -> Result<Vec<Refusal>> {
        let name = self.server_info(server)?.status.name;
        Ok(self.core.box_maker.refused.lock().get(&name).cloned().unwrap_or_default())
    }
}

/// Returns what a package runner needs, by the settings of the user's own package manager. A registry that only the entry names must be in `network`: whoever
/// brings an entry does not choose a private address.
fn registry_of(command: &str, arguments: &[String], surroundings: &Surroundings) -> Option<Registry> {
    let Surroundings { environment, user_home, workspace_folder: _ } = surroundings;
    let config = environment.get("XDG_CONFIG_HOME").map_or_else(|| user_home.join(".config"), PathBuf::from);
    let read = |path: PathBuf| {
        let bytes = read_bounded(&path, Links::Follow, MAX_SETTINGS_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    };
    let npmrc = read(user_home.join(".npmrc"));
    let pip_config = read(config.join("pip/pip.conf")).or_else(|| read(user_home.join(".pip/pip.conf")));
    let uv_config = read(config.join("uv/uv.toml"));
    let settings = RunnerSettings {
        variables: environment.clone(),
        npmrc: npmrc.as_deref(),
        pip_config: pip_config.as_deref(),
        uv_config: uv_config.as_deref(),
    };
    registry(command, arguments, &settings)
}

fn start_sentence(of_start: &BTreeSet<BoxHost>, hosts: &BTreeSet<BoxHost>) -> Option<String> {
    let names: Vec<String> = of_start.difference(hosts).map(ToString::to_string).collect();
    (!names.is_empty()).then(|| format!("may reach {} until it has started, to fetch its package", names.join(", ")))
}

/// Adds variables that the entry does not set itself.
fn add_missing(command: &mut ResolvedCommand, variables: Vec<(String, String)>) {
    for (name, value) in variables {
        if command.environment.iter().all(|(known, _)| !known.eq_ignore_ascii_case(&name)) {
            command.environment.push((name, SecretString::from(value)));
        }
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
