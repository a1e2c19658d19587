//! Prepares the box of a server that is about to start.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use super::Gateway;
use super::core::Core;
use super::launch::search_path;
use super::options::GatewayOptions;
use crate::blocking::blocking;
use crate::boxes::{BoxInput, BoxesReport, Disk, HOME, PROBE, contents};
use crate::client::{Boxed, Target};
use crate::config::{BoxDefinition, NEUTRAL_FOLDER, ResolvedCommand, ServerDefinition, Transport, resolve_box_paths};
use crate::error::{Error, Result as GatewayResult};
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
    fn private_home(&self, server: &ServerDefinition) -> GatewayResult<PathBuf> {
        // A name may contain any character, so its digest names the folder.
        let name = hex::encode(Sha256::digest(server.key()));
        let folder = private_folder(&self.state_folder.join(HOMES).join(name));
        folder.map(|folder| folder.path).map_err(|error| Error::io("the private home of a box", &error))
    }
}

/// What the programs that make boxes have found. It depends on the machine alone, so all gateways of this process share it.
static KNOWN: Mutex<BTreeMap<PathBuf, BoxesReport>> = Mutex::new(BTreeMap::new());
/// Longest wait for the program that tries the parts of a box. It normally takes some milliseconds.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

impl Gateway {
    /// Reports which parts of a box this machine has, and what can be done about those that are missing. Tries them once for this process. Blocks.
    #[must_use]
    pub fn boxes(&self) -> BoxesReport {
        let program = &self.core.box_maker.program;
        // The lock is held meanwhile, so that concurrent callers wait for the same attempt.
        let mut known = KNOWN.lock();
        if let Some(report) = known.get(program) {
            return report.clone();
        }
        match try_parts(program) {
            Ok(report) => known.entry(program.clone()).or_insert(report).clone(),
            // It is tried again when it is asked for again.
            Err(problem) => BoxesReport::without_program(format!("the program {} cannot be run: {problem}", program_name(program))),
        }
    }
}

fn program_name(program: &Path) -> std::borrow::Cow<'_, str> {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()
}

fn try_parts(program: &Path) -> Result<BoxesReport, String> {
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
    let mut line = Vec::new();
    let read = child.stdout.take().ok_or_else(|| "it has no output".to_owned()).and_then(|mut output| {
        let is_ready = poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&PATIENCE)).is_ok_and(|count| count > 0);
        // The program writes one line at its end.
        if is_ready { output.read_to_end(&mut line).map_err(|error| error.to_string()) } else { Err("it does not answer".to_owned()) }
    });
    let _ = child.kill();
    let _ = child.wait();
    read?;
    serde_json::from_slice(&line).map_err(|error| error.to_string())
}

impl Core {
    /// Returns the process to start, within its box if the entry has one.
    pub(super) async fn target(&self, server: &ServerDefinition, command: ResolvedCommand, program: PathBuf) -> GatewayResult<Target> {
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
        let in_box = Some(Box::new(Boxed { program: self.box_maker.program.clone(), contents }));
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
