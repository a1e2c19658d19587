//! Prepares the box of a server that is about to start.

mod covered;
mod homes;
mod links;
mod loaded;
mod makes;
mod outdated;
mod own_files;
mod own_programs;
mod present;
mod programs;
mod protection;
mod secret_texts;
mod start_registry;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;
use secrecy::SecretString;
use tokio::sync::OwnedMutexGuard;

use super::Gateway;
use super::core::Core;
use super::events::Event;
use super::launch::search_path;
use super::options::GatewayOptions;
use crate::boxes::border::{AbsoluteNames, BorderSettings, Descriptors, Refusal, RefusalListener};
use crate::boxes::{
    BoxInput, BoxesReport, Decided, Disk, HOME, PROBE, Registry, Service, decide, is_fixed_program, services, socket_folders,
};
use crate::client::{Boxed, Target, border_threads};
use crate::config::{
    BoxDefinition, BoxHost, BoxNetwork, Locality, NEUTRAL_FOLDER, ResolvedCommand, ServerDefinition, Transport, resolve_box_paths,
    user_home,
};
use crate::error::{Error, Result as GatewayResult};
use crate::fetch::{Resolve, SystemResolver};
use crate::network::NetworkRuntime;
use crate::text::escaped;
use crate::trust::{Added, CommandRequest, NotApprovedReason, Subject, deciding_folder};
use homes::{HeldHome, Homes};
pub use homes::{HomeUse, HomesToRemove, PrivateHome, RemovedHomes};
use loaded::loaded_files;
use own_files::OwnFiles;
use own_programs::{OwnPrograms, starts};
use programs::compared;
use start_registry::start_sentence;

/// Variables that name private folders of the box. The box sets each of them unless the entry does.
const PRIVATE: [(&str, &str); 2] = [("HOME", HOME), ("TMPDIR", "/tmp")];

/// Makes boxes: has the program that makes them, the folder with their private homes, and the settings that are the same for all boxes.
pub(super) struct BoxMaker {
    program: PathBuf,
    state_folder: PathBuf,
    homes: Homes,
    /// The threads that forward the connections of boxes to the allowed hosts.
    threads: Arc<NetworkRuntime>,
    resolver: Arc<dyn Resolve>,
    /// The hosts that the box of each server has refused since its last start. Each box reports only a limited number of refused hosts.
    refused: Arc<Mutex<HashMap<String, Vec<Refusal>>>>,
    /// The folder with the guest's snapshot. A program that can write there can decide which code runs in the VM.
    snapshot_folder: Option<PathBuf>,
    /// The services whose sockets are hidden from a box, even if the box has the folder of the socket.
    services: Vec<Service>,
    /// The folders in which programs on this machine create their sockets.
    socket_folders: Vec<PathBuf>,
    own_files: OwnFiles,
    own_programs: OwnPrograms,
    /// Locked while the contents of a server's box are looked up, by the names of the servers.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl BoxMaker {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        let workspace = options.workspace_folder.as_deref().unwrap_or(Path::new("."));
        Self {
            program: options.box_program.clone(),
            homes: Homes::new(&options.state_folder()),
            state_folder: options.state_folder(),
            threads: Arc::new(border_threads()),
            resolver: Arc::new(AbsoluteNames(SystemResolver)),
            refused: Arc::default(),
            snapshot_folder: options.snapshot_dir.clone(),
            own_files: OwnFiles::default(),
            turns: Mutex::default(),
            own_programs: OwnPrograms {
                watchdog: options.watchdog.clone(),
                others: [options.box_program.clone(), options.reader.clone()].into_iter().chain(loaded_files()).collect(),
                starts: starts(workspace),
                search_model: options.search_model.as_deref().and_then(|folder| absolute(folder).ok()),
            },
            services: services(&options.environment, &user_home(&options.environment), geteuid().as_raw()),
            socket_folders: socket_folders(&options.environment, geteuid().as_raw()),
        }
    }

    /// Removes the private homes of a server whose approval has ended. Blocks.
    pub(super) fn remove_homes(&self, key: &str) {
        self.homes.remove_of(key);
    }

    /// Waits for the turn of a server's look-up. A look-up goes on when its caller has given up, and further callers must not add to it.
    async fn turn(&self, server: &str) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(self.turns.lock().entry(server.to_owned()).or_default());
        turn.lock_owned().await
    }

    /// Returns the folders that no box may contain.
    fn own_folders(&self) -> Vec<PathBuf> {
        // A relative path is made absolute without following links, so that the path of a link is protected too.
        let own = [Some(&self.state_folder), self.snapshot_folder.as_ref()].into_iter().flatten();
        own.map(|folder| absolute(folder).unwrap_or_else(|_| folder.clone())).collect()
    }
}

/// The reports of the programs that make boxes. The reports depend only on the machine, so all gateways of this process share them.
static KNOWN: Mutex<BTreeMap<PathBuf, BoxesReport>> = Mutex::new(BTreeMap::new());
/// Maximum time to wait for the program that tests which features of a box work on this machine. The program normally takes some
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size in bytes of the report of the program that tests the features of a box.
const MAX_REPORT_BYTES: usize = 64 * 1024;

impl Gateway {
    /// Reports which features of a box work on this machine (such as namespaces and the filter of system calls), and remedies for the
    /// missing ones. The features are tested once in this process. Blocks.
    #[must_use]
    pub fn boxes(&self) -> BoxesReport {
        let program = &self.core.box_maker.program;
        // The lock is held during the test, so that concurrent callers wait for the same test.
        let mut known = KNOWN.lock();
        if let Some(report) = known.get(program) {
            return report.clone();
        }
        match try_parts(program, PATIENCE) {
            Ok(report) => known.entry(program.clone()).or_insert(report).clone(),
            // A failure is not cached, so the next call tests again.
            Err(problem) => BoxesReport::without_program(format!("the program {} cannot be run: {problem}", program_name(program))),
        }
    }
}

fn program_name(program: &Path) -> std::borrow::Cow<'_, str> {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()
}

fn try_parts(program: &Path, patience: Duration) -> Result<BoxesReport, String> {
    let mut command = Command::new(program);
    let mut child = command
        .arg(PROBE)
        .current_dir("/")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let read = child.stdout.take().ok_or_else(|| "it has no output".to_owned()).and_then(|output| read_whole(output, patience));
    let _ = child.kill();
    let _ = child.wait();
    serde_json::from_slice(&read?).map_err(|error| error.to_string())
}

/// Reads the output of the program that tests the features of a box. This program writes one line and ends.
fn read_whole(mut output: ChildStdout, patience: Duration) -> Result<Vec<u8>, String> {
    let (end, mut read, mut part) = (Instant::now() + patience, Vec::new(), [0; 4096]);
    while read.len() <= MAX_REPORT_BYTES {
        let rest = Timespec::try_from(end.saturating_duration_since(Instant::now())).map_err(|error| error.to_string())?;
        if !poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&rest)).is_ok_and(|count| count > 0) {
            return Err("it does not answer".to_owned());
        }
        match output.read(&mut part).map_err(|error| error.to_string())? {
            0 => return Ok(read),
            length => read.extend(&part[..length]),
        }
    }
    Err("its output is too long".to_owned())
}

impl Core {
    /// Returns the process to start, within its box if the entry sets one. `registry` is the registry in the approved subject.
    pub(super) async fn target(
        &self,
        server: &ServerDefinition,
        command: ResolvedCommand,
        program: PathBuf,
        registry: Registry,
    ) -> GatewayResult<Target> {
        let Some(BoxDefinition::On(settings)) = &server.in_box else { return Ok(Target::Process { command, program, in_box: None }) };
        let paths = resolve_box_paths(server, settings, &self.surroundings)?;
        let HeldHome { path: private_home, lock } = self.home_of(server).await?;
        let (settings, arguments) = (settings.clone(), command.arguments.clone());
        let program = command.working_directory.join(program);
        let name = command.command.clone();
        let mut command = within(command, server, &settings.environment);
        let hosts = hosts_of(&settings.network);
        let Registry { hosts: start_hosts, variables } = registry;
        add_missing(&mut command, variables);
        let (starting, search) = (start_hosts.clone(), search_path(&command));
        let folder = Some(command.working_directory.clone()).filter(|folder| folder != Path::new(HOME));
        let own = server.clone();
        let turn = self.box_maker.turn(&server.name).await;
        let made = self.reading(move |core| {
            let (known, own_files) = (core.known_to_box(), core.own_files(&own));
            let kept = || core.kept_from(&own);
            let request = BoxInput {
                settings: &settings,
                program: &program,
                arguments: &arguments,
                working_directory: folder.as_deref(),
                workspace: Some(&core.surroundings.workspace_folder),
                search_path: &search,
                read: paths.read,
                write: paths.write,
                roots: paths.roots,
                start_hosts: &starting,
                user_home: &core.surroundings.user_home,
                own_folders: &core.box_maker.own_folders(),
                private_home: &private_home,
                services: &core.box_maker.services,
                socket_folders: &core.box_maker.socket_folders,
                own_files: &own_files,
                kept: &kept,
                is_always_named: &|_| true,
            };
            let is_fixed = is_fixed_program(&request, &name, &Disk);
            let failed = |problem: String| Error::BoxFailed { server: own.name.clone(), problem: problem.into() };
            let Decided { contents, program, places, changes } = decide(&request, &Disk).map_err(failed)?;
            core.check_places(&own, &compared(&own, is_fixed, places))?;
            core.check_makes(&own, &changes)?;
            let alive = core.note_view(&own, &contents, &own_files)?;
            drop(turn);
            Ok((contents, program, alive, known))
        });
        let (contents, program, alive, known) = made.await?;
        self.check_current(server, &known).await?;
        let BoxMaker { program: box_program, threads, .. } = &self.box_maker;
        let border = self.border_settings(&server.name, hosts, start_hosts);
        let in_box = Boxed { program: box_program.clone(), contents, border, threads: Arc::clone(threads), home: Some(lock), alive };
        Ok(Target::Process { command, program, in_box: Some(Box::new(in_box)) })
    }

    /// Returns the private home that belongs to a server with its present command and approval.
    async fn home_of(&self, server: &ServerDefinition) -> GatewayResult<HeldHome> {
        let server = server.clone();
        let held = self.reading(move |core| {
            let workspace = deciding_folder(&server, &core.surroundings);
            let approval = core.trust.approvals.first_approval_id(&server.key())?.unwrap_or_default();
            core.box_maker.homes.hold(&server, workspace.as_deref(), &approval)
        });
        held.await
    }

    /// Returns the approval request for the command. For a server in a box, the request also contains the hosts that a package runner may
    /// reach until the server has started, and the sentences of the subject about the box on this machine. For every server that is a
    /// process, the request contains what other servers can change.
    pub(super) fn command_request(&self, server: &ServerDefinition, subject: &Subject, lack: Option<NotApprovedReason>) -> CommandRequest {
        let mut request = self.request_of_entry(server, subject, lack);
        request.changeable_by = subject.changeable_by.sentences.iter().map(|sentence| in_one_line(sentence)).collect();
        let (Some(in_box), Some(BoxDefinition::On(settings))) = (&mut request.in_box, &server.in_box) else { return request };
        if let BoxNetwork::Hosts(hosts) = &settings.network {
            in_box.allows.extend(start_sentence(&subject.registry, hosts).map(|sentence| in_one_line(&sentence)));
        }
        in_box.allows.extend(subject.present.sentences.iter().map(|sentence| in_one_line(sentence)));
        request
    }

    /// Returns the part of the approval request for the command that depends only on the entry.
    pub(super) fn request_of_entry(&self, server: &ServerDefinition, subject: &Subject, lack: Option<NotApprovedReason>) -> CommandRequest {
        let mut request = CommandRequest::new(server, subject, lack);
        let added = self.display_name(server);
        request.added = added.map(|name| Added { by: in_one_line(&server.source.to_string()), display_name: in_one_line(&name) });
        if let Some(in_box) = &mut request.in_box {
            for sentence in &mut in_box.allows {
                *sentence = in_one_line(sentence);
            }
        }
        let Transport::Stdio { working_directory, .. } = &server.transport else { return request };
        // The folders of the box can depend on the workspace. Then the approval belongs to the workspace, although the command does not
        // start there.
        if request.in_box.is_some() && working_directory.is_none() && self.locality(server) == Locality::Anywhere {
            request.cwd = Some(HOME.to_owned());
        }
        request
    }

    fn border_settings(&self, server: &str, hosts: BTreeSet<BoxHost>, start_hosts: BTreeSet<BoxHost>) -> BorderSettings {
        BorderSettings {
            hosts,
            start_hosts,
            resolver: Arc::clone(&self.box_maker.resolver),
            on_refused: self.on_refused(server),
            descriptors: Descriptors::of_process(),
        }
    }

    /// Returns the function that reports the refusals of a server's box.
    fn on_refused(&self, server: &str) -> RefusalListener {
        let (events, refused, server) = (self.events.clone(), Arc::clone(&self.box_maker.refused), server.to_owned());
        // Removes the refusals of an earlier start of this server, and those of servers that no longer exist.
        refused.lock().retain(|known, _| *known != server && self.registry.server(known).is_ok());
        Arc::new(move |refusal: &Refusal| {
            let Refusal { host, port, reason } = refusal.clone();
            refused.lock().entry(server.clone()).or_default().push(refusal.clone());
            events.send(&Event::BoxRefused { server: server.clone(), host, port, reason });
        })
    }
}

impl Gateway {
    /// Returns the refusals of a server's box since the server's last start.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`.
    pub fn refused_hosts(&self, server: &str) -> GatewayResult<Vec<Refusal>> {
        let name = self.server_info(server)?.status.name;
        Ok(self.core.box_maker.refused.lock().get(&name).cloned().unwrap_or_default())
    }
}

/// Returns a sentence of an approval request in one line. The sentence can contain the name of a file, and any program can choose that
/// name. Escaping keeps the name from looking like a sentence of its own.
fn in_one_line(sentence: &str) -> String {
    escaped(sentence).replace('\n', "\\n")
}

/// Returns the hosts that a box may reach by its entry.
fn hosts_of(network: &BoxNetwork) -> BTreeSet<BoxHost> {
    if let BoxNetwork::Hosts(hosts) = network { hosts.clone() } else { BTreeSet::new() }
}

/// Adds variables that the entry does not set itself.
fn add_missing(command: &mut ResolvedCommand, variables: Vec<(String, String)>) {
    for (name, value) in variables {
        if command.environment.iter().all(|(known, _)| !known.eq_ignore_ascii_case(&name)) {
            command.environment.push((name, SecretString::from(value)));
        }
    }
}

/// Returns the command with the folders and variables of its box. The working folder is the private home, unless the entry sets a working
/// folder or depends on the workspace.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_that_says_too_much_or_never_ends_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let told = |name: &str, script: &str, patience: Duration| {
            let program = folder.path().join(name);
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            try_parts(&program, patience).unwrap_err()
        };
        assert!(told("much", "exec cat /dev/zero", PATIENCE).contains("too long"));
        assert!(told("nothing", "exit 0", PATIENCE).contains("EOF"));
        // The first bytes come at once, and nothing comes after them.
        assert!(told("slow", "echo '{'; exec sleep 1000", Duration::from_millis(300)).contains("does not answer"));
    }
}
